"""The table of all estimators: exports, names, reports and the pages read it.

A new estimator needs an import and an entry here. The order is that of names, reports and pages.
"""

import dataclasses
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from jaxtyping import Array, Float

from gatedjax._utils.choices import check_choice
from gatedjax.gates._control import Rebar as Rebar
from gatedjax.gates._control import Relax as Relax
from gatedjax.gates._enumerate import Enumerate as Enumerate
from gatedjax.gates._estimator import Estimator, Pathwise
from gatedjax.gates._pathwise import HardConcrete as HardConcrete
from gatedjax.gates._pathwise import HardKuma as HardKuma
from gatedjax.gates._pathwise import MeanField as MeanField
from gatedjax.gates._pathwise import ReinMax as ReinMax
from gatedjax.gates._pathwise import SoftGumbel as SoftGumbel
from gatedjax.gates._pathwise import STGumbel as STGumbel
from gatedjax.gates._pathwise import StraightThrough as StraightThrough
from gatedjax.gates._score import ARM as ARM
from gatedjax.gates._score import DisARM as DisARM
from gatedjax.gates._score import LeaveOneOut as LeaveOneOut
from gatedjax.gates._score import LocalExpectation as LocalExpectation
from gatedjax.gates._score import MultiPass
from gatedjax.gates._score import Reinforce as Reinforce


class _Entry(NamedTuple):
    """An estimator, its name, and all that differs from the most common case."""

    kind: type[Any]
    name: str | None  # in configurations and on command lines; None if it needs a function
    use: str  # completes "use it if ..." on the page of gates
    evaluations: str = "1"  # of the loss, for n gates
    reported: Callable[[float], tuple[Any, ...]] | None = None  # from tau; None means kind()
    not_of_pairs: str = ""  # why it cannot train selections of pairs of tokens, see below


ESTIMATORS = (
    _Entry(
        SoftGumbel,
        "soft_gumbel",
        "f makes sense between 0 and 1, and speed counts (GA-Net)",
        reported=lambda tau: (SoftGumbel(tau),),
    ),
    _Entry(
        STGumbel,
        "st_gumbel",
        "the forward pass must be hard (SSAN)",
        reported=lambda tau: (STGumbel(tau),),
    ),
    _Entry(StraightThrough, "straight_through", "f is nearly linear in each gate"),
    _Entry(ReinMax, "reinmax", "f is nearly quadratic in each gate"),
    _Entry(MeanField, "mean_field", "gates may stay soft"),
    _Entry(
        HardConcrete,
        "hard_concrete",
        "you want exact zeros with pathwise gradients, and an L0 penalty in closed form",
    ),
    _Entry(HardKuma, "hard_kuma", "you want the same, without a temperature"),
    _Entry(Reinforce, "reinforce", "you can't afford f twice, and have a good baseline"),
    _Entry(
        LeaveOneOut,
        "leave_one_out",
        "you need k draws anyway, or have several layers of gates",
        evaluations="k",
        reported=lambda tau: (LeaveOneOut(2), LeaveOneOut(4)),
    ),
    _Entry(ARM, "arm", "you compare with it; `DisARM` is never worse", evaluations="2"),
    _Entry(DisARM, "disarm", "you have no other preference", evaluations="2"),
    _Entry(
        LocalExpectation,
        "local_expectation",
        "n is small; it is exact if the gates do not interact",
        evaluations="n + 1",
        not_of_pairs="it runs the network once for every pair of tokens",
    ),
    _Entry(
        Rebar,
        "rebar",
        "the variance of `DisARM` limits training",
        evaluations="3",
        reported=lambda tau: (Rebar(tau),),
        not_of_pairs="it draws noise anew, given the gates, behind every layer",
    ),
    # Relax is as good as its critic, and Enumerate is exact: neither belongs in a report.
    _Entry(Relax, None, "you can train a critic as well", reported=lambda tau: ()),
    _Entry(
        Enumerate,
        "enumerate",
        "there are at most some fifteen gates",
        evaluations="2^n",
        reported=lambda tau: (),
        not_of_pairs="it runs the network for every subset of the pairs of tokens",
    ),
)

KINDS: dict[str, type[Any]] = {entry.name: entry.kind for entry in ESTIMATORS if entry.name}
"""The class of each name. A name is the name of its class in snake case."""


def why_not_of_pairs(entry: _Entry) -> str:
    """Returns why an estimator cannot train selections of pairs of tokens, or "" if it can."""
    if entry.not_of_pairs or {Pathwise, MultiPass, Reinforce} & {*entry.kind.__mro__}:
        return entry.not_of_pairs
    return "its draws have no derivative, and it is no estimator by passes of the whole network"


NOT_OF_PAIRS = {entry.name: why for entry in ESTIMATORS if (why := why_not_of_pairs(entry))}
"""The estimators that cannot train selections of pairs of tokens, with the reason."""

if typing.TYPE_CHECKING:
    # Type checkers cannot compute the names, and read the imports above.
    EstimatorName = str
else:
    EstimatorName = Literal[tuple(KINDS)]
    __all__ = [entry.kind.__name__ for entry in ESTIMATORS]


def takes_temperature(name: EstimatorName) -> bool:
    """Returns True if the estimator of that name, such as "rebar", has a temperature tau."""
    return any(field.name == "tau" for field in dataclasses.fields(KINDS[name]))


def create_estimator(
    name: EstimatorName, *, temperature: float | Float[Array, ""] = 0.5, draws: int = 2
) -> Estimator:
    """Returns the estimator of a name, such as `STGumbel(0.5)` for "st_gumbel"."""
    if name not in KINDS:
        check_choice(tuple(KINDS), estimator=name)
    options = {"tau": temperature, "k": draws}
    fields = [field.name for field in dataclasses.fields(KINDS[name])]
    return KINDS[name](**{key: value for key, value in options.items() if key in fields})


def standard_estimators(tau: float = 0.5) -> tuple[Estimator, ...]:
    """Returns the estimators that need no function or other input, with the temperature tau."""
    return tuple(
        estimator
        for entry in ESTIMATORS
        for estimator in (entry.reported(tau) if entry.reported else (entry.kind(),))
    )


def table_of_estimators() -> str:
    """Returns a Markdown table of all estimators: bias, cost, and when to use each."""
    lines = [
        "| estimator | use it if | unbiased | evaluations | needs f' | name |",
        "|---|---|---|---|---|---|",
    ]
    for kind, name, use, evaluations, *_ in ESTIMATORS:
        cells = [f"`{kind.__name__}`", use, "yes" if kind.unbiased else "no", evaluations]
        cells += ["yes" if kind.needs_gradient else "no", f"`{name}`" if name else "-"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
