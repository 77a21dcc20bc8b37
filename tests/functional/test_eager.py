"""Calls outside `jit`: compiled once for every shape, with the values of a jitted call."""

import chex
import jax
import jax.numpy as jnp
import pytest

from gatedjax import functional as F
from tests.functional._calls import calls
from tests.tolerances import F32

CALLS = calls()
LOOPS = [
    "lstm",
    "gru",
    "rau feature_proj",
    "rau time_causal",
    "rau_attention concat",
    "bidirectional",
    "gated_stack",
    "highway_stack",
]


def compilations(caplog, function):
    """What function returns, and what was compiled meanwhile."""
    caplog.clear()
    with jax.log_compiles():
        found = jax.block_until_ready(function())
    return found, [r.getMessage() for r in caplog.records if "Compiling" in r.getMessage()]


@pytest.mark.parametrize("name", LOOPS)
def test_the_second_call_compiles_nothing(name, caplog):
    call = CALLS[name]
    first, seen = compilations(caplog, lambda: call.function(call.shared, call.rows))
    assert seen  # or the log says nothing of compilations
    again, seen = compilations(caplog, lambda: call.function(call.shared, call.rows))
    assert not seen
    chex.assert_trees_all_equal(first, again)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "gru", "rau"])
def test_the_second_gradient_and_hessian_vector_product_compile_nothing(cell, caplog):
    call = CALLS["rau feature_proj" if cell == "rau" else cell]
    unroll = getattr(F, cell)
    options = {"reset_after": True} if cell == "rau" else {}
    xs, mask = call.rows["xs"], call.rows["mask"]

    def product(weights):
        cost = lambda w: jnp.sum(jnp.sin(unroll(w, xs, mask, **options)[1]))  # noqa: E731
        return jax.jvp(jax.grad(cost), (weights,), (weights,))

    first, _ = compilations(caplog, lambda: product(call.shared))
    again, seen = compilations(caplog, lambda: product(call.shared))
    assert not seen
    want = jax.jit(product)(call.shared)
    for got in (first, again):
        chex.assert_trees_all_close(got, want, **F32)
