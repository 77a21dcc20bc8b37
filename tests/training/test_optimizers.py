"""Optimizers of Optax in `fit`: they get what they ask for, or are refused."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from gatedjax.training import fit, make_parallel
from tests._slow import slow_but
from tests.training._plane import CONFIG, Data, Plane, assert_close, loop


class FixedOffset(Plane):
    frozen = ("b",)


ASKING = {
    "reduce_on_plateau": (
        optax.chain(optax.sgd(0.05), contrib.reduce_on_plateau(patience=1, rtol=0.5)), ["value"]
    ),
    "polyak_sgd": (optax.polyak_sgd(), ["value"]),
    "lbfgs": (optax.lbfgs(), ["value", "grad", "value_fn"]),
    "momo": (contrib.momo(), ["value"]),
    "sam": (contrib.sam(optax.sgd(0.05), contrib.normalize()), []),
    "MultiSteps": (optax.MultiSteps(optax.adam(0.05), 2), []),
    "MultiSteps that asks": (optax.MultiSteps(optax.polyak_sgd(), 2), ["value"]),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but(ASKING, "reduce_on_plateau", "momo", "MultiSteps"))
def test_an_optimizer_gets_what_it_asks_for(name, tmp_path):
    tx, given = ASKING[name]
    result = fit(Plane(), Data(), None, CONFIG, tmp_path, optimizer=tx)
    assert_close(result.state.params, loop(tx, 4, given)[0])


class Asked(NamedTuple):
    value: Any
    grad: Any


def by_value_fn():
    """Gradient descent along the gradient of `value_fn`; keeps the rest of what it is given."""

    def update(grads, state, params, *, value, grad, value_fn):
        again, slope = jax.value_and_grad(value_fn)(params)
        return jax.tree.map(lambda g: -0.05 * g, slope), Asked(value - again, grad)

    def init(params):
        return Asked(jnp.ones(()), jax.tree.map(jnp.zeros_like, params))

    return optax.GradientTransformationExtraArgs(init, update)


DEVICES = slow_but(
    [("pmap", 2), ("pmap", 1), ("sharding", 2), ("single", 2)], ("pmap", 2), ("single", 2)
)


@pytest.mark.parametrize(("kind", "accumulate"), DEVICES)
def test_the_loss_as_a_function_is_that_of_the_batch_of_all_devices(kind, accumulate, tmp_path):
    config = dataclasses.replace(CONFIG, parallel=kind, accumulate=accumulate, num_steps=2)
    parallel = make_parallel(kind, jax.devices()[:2], accumulate=accumulate)
    tx = by_value_fn()
    result = fit(Plane(), Data(), None, config, tmp_path, optimizer=tx, parallel=parallel)
    params, _ = loop(optax.sgd(0.05), 2)
    assert_close(result.state.params, params)
    state = result.state.opt_state
    np.testing.assert_allclose(state.value, 0, atol=1e-4)
    # the gradient before the second step
    before, _ = loop(optax.sgd(0.05), 1)
    assert_close(jax.tree.map(lambda p, g: p - 0.05 * g, before, state.grad), params)


def test_the_loss_as_a_function_is_one_of_the_trained_parameters(tmp_path):
    config = dataclasses.replace(CONFIG, num_steps=2)
    result = fit(FixedOffset(), Data(), None, config, tmp_path, optimizer=by_value_fn())
    fixed = {"w": optax.sgd(0.05), "b": optax.set_to_zero()}
    assert_close(result.state.params, loop(optax.partition(fixed, {"w": "w", "b": "b"}), 2)[0])
    assert np.any(result.state.params["w"] != 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pmap", "sharding"])
def test_a_line_search_runs_on_several_devices(kind, tmp_path):
    config = dataclasses.replace(CONFIG, parallel=kind)
    parallel = make_parallel(kind, jax.devices()[:2])
    tx = optax.lbfgs()
    result = fit(Plane(), Data(), None, config, tmp_path, optimizer=tx, parallel=parallel)
    assert_close(result.state.params, loop(tx, 4, ["value", "grad", "value_fn"])[0], rtol=1e-3)


def test_what_an_optimizer_cannot_get_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match=r"optimizer must update .*value_fn=.*obj_fn"):
        fit(Plane(), Data(), None, CONFIG, tmp_path / "run", optimizer=contrib.sophia(0.1))
    assert not (tmp_path / "run").exists()
