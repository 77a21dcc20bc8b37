"""Initial parameters, loss and gradient of every model, with dropout and sampled gates.

The keys of all random draws are compared exactly. Numbers are compared by the sum and the sum of
absolute values of every leaf, for the last bits differ between processors and versions of jaxlib;
other random bits move them by far more.
"""

import contextlib
import functools
import zlib
from typing import Any

import jax
import numpy as np
import pytest

from tests._slow import slow_but
from tests.equality import test_parameters
from tests.equality._golden import digest, golden, leaves, same
from tests.models._losses import losses, total_loss, with_dropout
from tests.models._passes import DRAWS, watch

LOSSES = losses()
RNGS = {"dropout": 1, "gate": 2}
TOLERANCE = 1e-4
# draws inside a computation that is made again for the gradient: its keys do not come out of it
REMADE = ("probe, reinforce",)


@contextlib.contextmanager
def watched(keys: list[tuple[str, Any]]):
    """Lists the keys of the draws of a traced pass."""

    def drawing(name: str, place: int, draw: Any):
        def drawn(*args, **options):
            if jax.numpy.issubdtype(args[place].dtype, jax.dtypes.prng_key):
                keys.append((name, jax.random.key_data(args[place])))
            return draw(*args, **options)

        return drawn

    with pytest.MonkeyPatch.context() as patch:
        for name, place in DRAWS.items():
            watch(patch, name, functools.partial(drawing, name, place))
        yield


def parameters(name: str, shapes: Any) -> Any:
    """Parameters without a zero, by NumPy; of each leaf by its path."""

    def drawn(path, leaf):
        seed = zlib.crc32(f"{name}{jax.tree_util.keystr(path)}".encode())
        values = np.random.default_rng(seed).normal(0, 0.4, leaf.shape)
        return values.astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(drawn, shapes)


def summed(leaf: Any) -> list[float]:
    """Sum and sum of absolute values, added in float64."""
    values = np.asarray(leaf, np.float64)
    assert np.isfinite(values).all()
    return [float(f"{number:.7g}") for number in (values.sum(), np.abs(values).sum())]


def described(name: str) -> dict[str, Any]:
    """What one program finds: initial parameters, loss, gradient, and the keys that were used."""
    case = LOSSES[name]
    task, batch, carry = with_dropout(case.task), case.batch, case.carry
    given = () if carry is None else (carry,)
    names: list[str] = []
    key = jax.random.key(0)
    # Dropout has no parameters.
    params = parameters(name, case.shapes)

    def loss(values, batch, rngs, *given):
        keys: list[tuple[str, Any]] = []
        with watched(keys):
            total, _ = total_loss(task, values, batch, rngs, *given)
        names[:] = [draw for draw, _ in keys]
        return total, [] if name in REMADE else [data for _, data in keys]

    @jax.jit
    def all_of_it(key, values, batch, rngs, *given):
        (total, keys), gradient = jax.value_and_grad(loss, has_aux=True)(
            values, batch, rngs, *given
        )
        return task.init(key, batch), total, gradient, keys

    rngs = {kind: jax.random.key(number) for kind, number in RNGS.items()}
    init, total, gradient, keys = all_of_it(key, params, batch, rngs, *given)
    digests = [digest(np.asarray(data)) for data in keys] or [""] * len(names)
    drawn = sorted(zip(names, digests, strict=True))
    return {
        "draws": [" ".join(one).strip() for one in drawn],
        "loss": float(f"{float(total):.7g}"),
        "init": {path: summed(leaf) for path, leaf in sorted(leaves(init).items())},
        "gradient": {path: summed(leaf) for path, leaf in sorted(leaves(gradient).items())},
    }


def found() -> dict[str, Any]:
    """Every task of the table."""
    return {name: described(name) for name in LOSSES}


def near(found: dict[str, list[float]], wanted: dict[str, list[float]], where: str) -> None:
    """Compares sums; what cancels in one of them is measured by the absolute values."""
    assert found.keys() == wanted.keys(), where
    for path, (total, absolute) in wanted.items():
        # gradients that are zero by the mathematics are rounding errors
        least = TOLERANCE * absolute + 1e-6
        one, other = found[path]
        assert abs(one - total) <= least, f"{where}, {path}: sum {one}, wanted {total}"
        assert abs(other - absolute) <= least, (
            f"{where}, {path}: absolute values {other}, wanted {absolute}"
        )


@pytest.mark.parametrize("name", LOSSES)
def test_parameters_have_the_paths_and_shapes_that_they_had(name):
    same(test_parameters.described(name), golden("parameters")[name], name)


@pytest.mark.parametrize(
    "name", slow_but(LOSSES, "AGT", "GA-Net, local", "RAU", "language", "probe")
)
def test_loss_and_gradient_with_dropout_and_gates_are_what_they_were(name):
    wanted, here = golden("losses")[name], described(name)
    same(here["draws"], wanted["draws"], f"{name}, keys of random draws")
    assert here["loss"] == pytest.approx(wanted["loss"], rel=TOLERANCE), name
    for part in ("init", "gradient"):
        near(here[part], wanted[part], f"{name}, {part}")


def test_every_task_is_here_and_draws():
    wanted = golden("losses")
    assert wanted.keys() == LOSSES.keys()
    assert [name for name, one in wanted.items() if not one["draws"]] == []
