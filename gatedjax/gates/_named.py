"""The estimators by name, for configurations, command lines, modules, reports and pages."""

import dataclasses
import typing
from typing import Any, Literal

from jaxtyping import Array, Float

from gatedjax.gates._estimator import Estimator
from gatedjax.gates._registry import ESTIMATORS

KINDS: dict[str, type[Any]] = {entry.name: entry.kind for entry in ESTIMATORS if entry.name}
"""The class of each name. A name is the name of its class in snake case."""

NOT_OF_PAIRS = {entry.name: entry.not_of_pairs for entry in ESTIMATORS if entry.not_of_pairs}
"""The estimators that cannot train selections of pairs of tokens, with the reason."""

if typing.TYPE_CHECKING:
    # Type checkers cannot compute the names.
    EstimatorName = str
else:
    EstimatorName = Literal[tuple(KINDS)]


def takes_temperature(name: EstimatorName) -> bool:
    """Returns True if the estimator of that name, such as "rebar", has a temperature tau."""
    return any(field.name == "tau" for field in dataclasses.fields(KINDS[name]))


def create_estimator(
    name: EstimatorName, *, temperature: float | Float[Array, ""] = 0.5, draws: int = 2
) -> Estimator:
    """Returns the estimator of a name, such as `STGumbel(0.5)` for "st_gumbel"."""
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
