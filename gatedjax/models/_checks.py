"""Checks of configurations and batches for all networks. The messages name the field."""

import math
from collections.abc import Mapping, Sequence

from jaxtyping import Array

from gatedjax._utils.field_checks import check_range
from gatedjax._utils.limits import MOST_LAYERS, MOST_WIDTH, check_most
from gatedjax.functional._checks import check_rate


def check_at_least(config: object, least: int, *names: str) -> None:
    """Raises ValueError unless the fields `names` of a configuration are at least `least`."""
    for name in names:
        check_range(name, getattr(config, name), least)


def check_widths(name: str, widths: Sequence[int]) -> None:
    """Raises ValueError unless the widths of the layers of a classifier head are in range."""
    check_most(f"the layers of {name}", len(widths), MOST_LAYERS)
    if any(not 1 <= width <= MOST_WIDTH for width in widths):
        raise ValueError(f"{name} must be widths in [1, {MOST_WIDTH}], got {widths}")


def check_rates(config: object, *names: str) -> None:
    """Raises ValueError unless the fields `names` of a configuration are in [0, 1)."""
    for name in names:
        check_rate(getattr(config, name), name)


def check_finite(config: object, *names: str) -> None:
    """Raises ValueError unless the fields `names` of a configuration are finite numbers."""
    for name in names:
        if not math.isfinite(getattr(config, name)):
            raise ValueError(f"{name} must be finite, got {getattr(config, name)}")


def check_dict(batch: object, **axes: str) -> None:
    """Raises TypeError unless the batch is a dict; the message lists the arrays that it needs."""
    if not isinstance(batch, Mapping):
        shape = getattr(batch, "shape", None)
        got = type(batch).__name__ if shape is None else f"an array of shape {shape}"
        arrays = ", ".join(f'"{name}": [{its.replace(" ", ", ")}]' for name, its in axes.items())
        raise TypeError(f"batch must be a dict of arrays {{{arrays}}}, got {got}")


def check_batch(batch: Mapping[str, Array], **axes: str) -> None:
    """Checks the axes of arrays, such as tokens="B N"; equal letters need equal sizes."""
    check_dict(batch, **axes)
    if missing := sorted(axes.keys() - batch.keys()):
        raise ValueError(f"batch must have {', '.join(missing)}, got {sorted(batch)}")
    sizes: dict[str, int] = {}
    for name in axes:
        if not hasattr(batch[name], "shape"):
            kind = type(batch[name]).__name__
            raise TypeError(f"batch[{name!r}] must be an array [{axes[name]}], got {kind}")
    shapes = [batch[name].shape for name in axes]
    for letters, shape in zip(map(str.split, axes.values()), shapes, strict=True):
        pairs = list(zip(letters, shape, strict=False))
        # The first array with an axis sets its size, and the later arrays have to agree with it.
        if len(letters) != len(shape) or any(sizes.setdefault(*pair) != pair[1] for pair in pairs):
            alike: dict[str, list[str]] = {}
            for name, names in axes.items():
                alike.setdefault(names.replace(" ", ", "), []).append(name)
            needs = " and ".join(f"{' and '.join(n)} [{a}]" for a, n in alike.items())
            raise ValueError(f"batch must have {needs}, got {', '.join(map(str, shapes))}")
