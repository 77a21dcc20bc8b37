"""The estimators by name, for configurations and command lines."""

from typing import Literal, get_args

from jaxtyping import Array, Float

from gatedjax.gates._control import Rebar
from gatedjax.gates._enumerate import Enumerate
from gatedjax.gates._expectation import Estimator
from gatedjax.gates._pathwise import MeanField, ReinMax, SoftGumbel, STGumbel, StraightThrough
from gatedjax.gates._score import ARM, DisARM, LeaveOneOut, LocalExpectation, Reinforce
from gatedjax.gates._stretched import HardConcrete, HardKuma

EstimatorName = Literal[
    "soft_gumbel",
    "st_gumbel",
    "straight_through",
    "reinmax",
    "mean_field",
    "hard_concrete",
    "hard_kuma",
    "reinforce",
    "leave_one_out",
    "arm",
    "disarm",
    "local_expectation",
    "rebar",
    "enumerate",
]

ALIASES: dict[str, EstimatorName] = {
    "st": "st_gumbel",
    "soft": "soft_gumbel",
    "expect": "mean_field",
}
"""Older names of estimators, of the selectors of attention; accepted for one release."""


def named(
    name: EstimatorName, *, temperature: float | Float[Array, ""] = 0.5, draws: int = 2
) -> Estimator:
    """The estimator of a name: that of its class in snake case.

    Args:
      name: any but "relax", whose critic is a function.
      temperature: tau of "soft_gumbel", "st_gumbel", "hard_concrete" and "rebar"; may be traced.
      draws: k of "leave_one_out".

    Raises:
      ValueError: if there is none of that name.
    """
    tempered = {
        "soft_gumbel": SoftGumbel,
        "st_gumbel": STGumbel,
        "hard_concrete": HardConcrete,
        "rebar": Rebar,
    }
    plain = {
        "straight_through": StraightThrough,
        "reinmax": ReinMax,
        "mean_field": MeanField,
        "hard_kuma": HardKuma,
        "reinforce": Reinforce,
        "arm": ARM,
        "disarm": DisARM,
        "local_expectation": LocalExpectation,
        "enumerate": Enumerate,
    }
    if name in tempered:
        return tempered[name](tau=temperature)
    if name in plain:
        return plain[name]()
    if name == "leave_one_out":
        return LeaveOneOut(draws)
    raise ValueError(f"estimator must be one of {', '.join(get_args(EstimatorName))}, got {name!r}")
