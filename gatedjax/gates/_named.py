"""The table of estimators by name, for configurations, command lines and modules."""

import dataclasses
from typing import Literal

from jaxtyping import Array, Float

from gatedjax.gates._control import Rebar
from gatedjax.gates._enumerate import Enumerate
from gatedjax.gates._estimator import Estimator
from gatedjax.gates._pathwise import MeanField, ReinMax, SoftGumbel, STGumbel, StraightThrough
from gatedjax.gates._score import ARM, DisARM, LeaveOneOut, LocalExpectation, Reinforce
from gatedjax.gates._stretched import HardConcrete, HardKuma

EstimatorName = Literal[
    "soft_gumbel", "st_gumbel", "straight_through", "reinmax", "mean_field", "hard_concrete",
    "hard_kuma", "reinforce", "leave_one_out", "arm", "disarm", "local_expectation", "rebar",
    "enumerate",
]  # fmt: skip
KINDS: dict[EstimatorName, type] = {
    "soft_gumbel": SoftGumbel, "st_gumbel": STGumbel, "straight_through": StraightThrough,
    "reinmax": ReinMax, "mean_field": MeanField, "hard_concrete": HardConcrete,
    "hard_kuma": HardKuma, "reinforce": Reinforce, "leave_one_out": LeaveOneOut, "arm": ARM,
    "disarm": DisARM, "local_expectation": LocalExpectation, "rebar": Rebar,
    "enumerate": Enumerate,
}  # fmt: skip
"""The class of each name. A name is the name of its class in snake case."""


def takes_temperature(name: EstimatorName) -> bool:
    """Returns True if the estimator of that name, such as "rebar", has a temperature tau."""
    return any(field.name == "tau" for field in dataclasses.fields(KINDS[name]))


def create_estimator(
    name: EstimatorName, *, temperature: float | Float[Array, ""] = 0.5, draws: int = 2
) -> Estimator:
    """Returns the estimator of a name, such as `STGumbel(0.5)` for "st_gumbel"."""
    if name not in KINDS:
        raise ValueError(f"estimator must be one of {', '.join(map(repr, KINDS))}, got {name!r}")
    options = {"tau": temperature, "k": draws}
    fields = [field.name for field in dataclasses.fields(KINDS[name])]
    return KINDS[name](**{key: value for key, value in options.items() if key in fields})
