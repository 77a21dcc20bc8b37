"""Arrays of a train state that need care: keys, arrays without numbers, half precision."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.training import (
    CheckpointMismatch,
    CheckpointStore,
    OptimizerConfig,
    eval_params,
    fit,
    fit_lanes,
    make_parallel,
    params_ema,
    restore_params,
)
from gatedjax.training._transforms import keys_as_data
from tests._slow import slow_but
from tests.training._plane import CONFIG, EVALUATION, Data, Plane, assert_close, loop


def noisy(impl=None):
    key = jax.random.key(0, impl=impl)
    return optax.chain(optax.add_noise(0.1, 0.5, key=key), optax.sgd(0.05))


@pytest.mark.parametrize("kind", slow_but(["single", "sharding", "pmap"], "pmap"))
def test_a_key_in_the_state_of_an_optimizer_is_saved_and_goes_on(kind, tmp_path):
    config = dataclasses.replace(CONFIG, parallel=kind)

    def run(folder, steps):
        options = {"optimizer": noisy(), "parallel": make_parallel(kind, jax.devices()[:2])}
        short = dataclasses.replace(config, num_steps=steps)
        return fit(Plane(), Data(), None, short, tmp_path / folder, **options)

    whole = run("whole", 4)
    run("parts", 2)
    parts = run("parts", 4)
    chex.assert_trees_all_equal(parts.state, whole.state)
    assert_close(whole.state.params, loop(noisy(), 4)[0])


def test_keys_as_data_draws_the_same_bits():
    params = {"table": np.ones((2, 3), np.float32)}
    tx = noisy("rbg")
    data = keys_as_data(tx)
    state, raw = jax.jit(tx.init)(params), jax.jit(data.init)(params)
    assert all(leaf.dtype != jax.random.key(0, impl="rbg").dtype for leaf in jax.tree.leaves(raw))
    update, other = (jax.jit(lambda s, t=t: t.update(params, s, params)) for t in (tx, data))
    for _ in range(2):
        updates, state = update(state)
        found, raw = other(raw)
        chex.assert_trees_all_equal(found, updates)


class Odd(Plane):
    def __init__(self, **more):
        self.more = more

    def init(self, key, batch):
        return super().init(key, batch) | self.more


def empty_state():
    """Keeps an array without numbers beside nothing else."""
    return optax.GradientTransformation(
        lambda params: {"none": jnp.zeros((0, 3), jnp.bfloat16)}, lambda u, s, p=None: (u, s)
    )


def test_arrays_without_numbers_are_saved(tmp_path):
    task, tx = Odd(empty=np.zeros((2, 0), np.float32)), optax.chain(empty_state(), optax.sgd(0.1))
    whole = fit(task, Data(), None, CONFIG, tmp_path / "whole", optimizer=tx)
    short = dataclasses.replace(CONFIG, num_steps=2)
    fit(task, Data(), None, short, tmp_path / "parts", optimizer=tx)
    parts = fit(task, Data(), None, CONFIG, tmp_path / "parts", optimizer=tx)
    chex.assert_trees_all_equal(parts.state, whole.state)
    assert parts.state.opt_state[0]["none"].shape == (0, 3)
    params, left = restore_params(tmp_path / "whole", whole.best_params)
    assert (params["empty"].shape, left) == ((2, 0), [])
    store = CheckpointStore(tmp_path / "whole" / "checkpoints")
    assert store.verify(4, arrays=True)["leaves"]["best"]["empty"][0] == "float32[2, 0]"
    with pytest.raises(CheckpointMismatch, match=r"empty: saved float32\[2, 0\], now float32\[3"):
        restore_params(
            tmp_path / "whole", whole.best_params | {"empty": np.zeros((3, 0), np.float32)}
        )


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (jax.random.key(0), "params.odd is a PRNG key"),
        (np.arange(3), r"params.odd must be .* floating-point numbers, got int32\[3\]"),
    ],
)
def test_parameters_that_no_gradient_can_have_are_refused(leaf, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        fit(Odd(odd=leaf), Data(), None, CONFIG, tmp_path / "run")
    with pytest.raises(TypeError, match=message):
        fit_lanes(Odd(odd=leaf), lambda seed: Data(), None, CONFIG, tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Half(Plane):
    def __init__(self, dtype):
        self.dtype = dtype


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_average_of_half_precision_moves_by_small_steps(dtype):
    tx = params_ema(0.999)
    number = lambda value: {"w": np.full(1, value, dtype)}  # noqa: E731
    zero, here, there = number(0), number(1), number(1.25)

    @jax.jit
    def run(state, params, steps):
        return jax.lax.fori_loop(0, steps, lambda t, s: tx.update(zero, s, params)[1], state)

    state = run(run(jax.jit(tx.init)(here), here, 9000), there, 1000)
    wanted = 1.25 - 0.25 * 0.999**1000
    assert state.ema["w"].dtype == jnp.float32
    np.testing.assert_allclose(state.ema["w"], wanted, rtol=1e-3)
    found = eval_params(there, state)["w"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.asarray(state.ema["w"]).astype(dtype))


@pytest.mark.parametrize("lanes", [False, True])
def test_runs_of_half_precision_average_and_resume(lanes, tmp_path):
    optimizer = OptimizerConfig(name="sgd", learning_rate=0.05, ema_decay=0.9)
    config = dataclasses.replace(CONFIG, optimizer=optimizer)

    def run(folder, steps):
        short = dataclasses.replace(config, num_steps=steps)
        task = Half(jnp.bfloat16)
        if lanes:
            return fit_lanes(task, lambda seed: Data(), EVALUATION, short, tmp_path / folder)[0]
        return fit(task, Data(), EVALUATION, short, tmp_path / folder)

    whole = run("whole", 4)
    run("parts", 2)
    parts = run("parts", 4)
    chex.assert_trees_all_equal((parts.state, parts.best_params), (whole.state, whole.best_params))
    average = whole.state.opt_state[-1].ema["w"]
    assert (average.dtype, whole.best_params["w"].dtype) == (jnp.float32, jnp.bfloat16)
    # it has bits that bfloat16 does not have
    assert np.any(average != average.astype(jnp.bfloat16).astype(np.float32))
    np.testing.assert_array_equal(whole.best_params["w"], average.astype(jnp.bfloat16))
