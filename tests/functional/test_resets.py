"""Resets against a NumPy loop over the segments of every row, each run on its own.

One program a recurrence has all forms of the loop, in both directions.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from tests._slow import slow_but
from tests.functional._calls import calls
from tests.functional.passes import check_gradients, close, draw_like
from tests.functional.test_recurrence import CELLS, TURNS, B, H, T, draw, leaves, use_form
from tests.tolerances import F32, F64

# the second row has gaps and, with the third, resets at padding
MASK = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [1, 1, 1, 1, 0, 0]], bool)
RESETS = np.array([[1, 0, 0, 1, 1, 0], [1, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1]], bool)


def oracle(cell, weights, xs, initial, fresh, drop, *, mask, resets, reverse):
    """Cuts every row into segments of real steps, and runs one after the other; analytic."""
    weights = [np.asarray(w) for w in weights if w is not None]
    kind = np.result_type(*weights, xs, drop, *leaves(initial), *leaves(fresh))
    final = [leaf.astype(kind) for leaf in leaves(initial)]
    outputs = np.zeros((*xs.shape[:2], H), kind)
    for row in range(xs.shape[0]):
        segments = []
        for t in np.flatnonzero(mask[row]):
            if resets[row, t] or not segments:
                segments.append([])
            segments[-1].append(t)
        for number, segment in enumerate(segments[:: -1 if reverse else 1]):
            goes_on = number == 0 and (reverse or not resets[row, segment[0]])
            state = tuple(leaf[row] for leaf in leaves(initial if goes_on else fresh))
            for t in segment[:: -1 if reverse else 1]:
                state = cell.numpy_step(weights, state, xs[row, t], drop[row])
                outputs[row, t] = state[0]
            for leaf, value in zip(final, state, strict=True):
                leaf[row] = value
    return final, outputs


@functools.cache
def solved(name, masked):
    """Arguments, cotangents, and by form and direction results and gradients of all arguments."""
    rng, cell = np.random.default_rng(0), CELLS[name]
    (weights, xs, initial, drop), cotangents = draw(cell, rng)
    arguments = (weights, xs, initial, draw_like(initial, rng), drop)

    @jax.jit
    def run(arguments, mask, resets, cotangents):
        found = {}
        for form, reverse in TURNS:

            def call(weights, xs, initial, fresh, drop, reverse=reverse):
                options = {"initial": initial, "reset_to": fresh, "recurrent_dropout_mask": drop}
                return cell.unroll(weights, xs, mask, resets=resets, reverse=reverse, **options)

            with use_form(form):
                result, pull = jax.vjp(call, *arguments)
                found[form, reverse] = result, pull(cotangents)
        return found

    with jax.enable_x64(True):
        found = run(arguments, MASK if masked else None, RESETS, cotangents)
        return cell, arguments, cotangents, jax.tree.map(np.asarray, found)


@pytest.mark.parametrize(("form", "reverse"), TURNS, ids=str)
@pytest.mark.parametrize(
    ("name", "masked"),
    [("gru", False), *slow_but([(name, True) for name in CELLS], "lstm", "gru", "rau")],
)
def test_values_and_gradients_are_those_of_segments_run_on_their_own(
    name, masked, form, reverse, np_rng
):
    cell, arguments, cotangents, found = solved(name, masked)
    mask = MASK if masked else np.ones((B, T), bool)
    run = functools.partial(oracle, cell, mask=mask, resets=RESETS, reverse=reverse)
    results, gradients = found[form, reverse]
    close(results, run(*arguments), **F64)
    assert min(np.abs(leaf).max() for leaf in leaves(gradients)) > 0
    check_gradients(gradients, run, arguments, cotangents, np_rng, **F64)


def timed(*arguments, **options):
    return F.rau(*arguments, attention="time_causal", **options)


@functools.cache
def packed(name):
    """Two segments a row, run as one and one by one, with the gradients of all inputs."""
    cell = {"lstm": F.lstm, "rau time_causal": timed}[name]
    weights = calls()[name].shared
    xs = np.random.default_rng(1).normal(size=(4, 5, 3)).astype(np.float32)
    resets = np.broadcast_to(np.arange(5) == 2, (4, 5))

    @jax.jit
    def run(xs):
        def as_one(xs):
            return F.bidirectional(cell, weights, weights, xs, resets=resets)

        def apart(xs):
            first, second = (
                F.bidirectional(cell, weights, weights, x) for x in (xs[:, :2], xs[:, 2:])
            )
            carries = (second[0][0], first[0][1])  # of the segment that is run last
            return carries, jnp.concatenate([first[1], second[1]], axis=1)

        both = []
        for function in (as_one, apart):
            found, pull = jax.vjp(function, xs)
            both.append((found, pull(jax.tree.map(jnp.cos, found))))
        return both

    return xs, jax.tree.map(np.asarray, run(xs)), lambda xs: jax.tree.map(np.asarray, run(xs))


@pytest.mark.parametrize("name", slow_but(["lstm", "rau time_causal"], "lstm"))
def test_packed_segments_are_the_segments_in_both_directions(name):
    _, (together, apart), _ = packed(name)
    close(together, apart, **F32)
    if jax.default_backend() == "cpu":  # where a product of the same rows has the same bits
        np.testing.assert_array_equal(together[0][1], apart[0][1])


def test_what_stands_in_one_segment_has_no_effect_on_another():
    xs, (clean, _), run = packed("lstm")
    (_, outputs), (changes,) = run(np.where(np.arange(5)[:, None] < 2, np.nan, xs))[0]
    np.testing.assert_array_equal(outputs[:, 2:], clean[0][1][:, 2:])
    np.testing.assert_array_equal(changes[:, 2:], clean[1][0][:, 2:])


def test_attention_weights_of_a_segment_are_those_it_has_on_its_own():
    xs = np.random.default_rng(1).normal(size=(4, 5, 3)).astype(np.float32)
    resets = np.broadcast_to(np.arange(5) == 2, (4, 5))
    weigh = functools.partial(F.rau_attention, calls()["rau feature_proj"].shared, reset_after=True)
    parts = np.concatenate([weigh(xs[:, :2]), weigh(xs[:, 2:])], axis=1)
    np.testing.assert_allclose(weigh(xs, resets=resets), parts, **F32)


@pytest.mark.slow
def test_second_derivatives_are_those_of_the_scanned_step():
    cell = CELLS["lstm"]
    (weights, xs, initial, _), _ = draw(cell, np.random.default_rng(0))
    direction = np.random.default_rng(1).normal(size=weights.bias.shape)

    def scanned(weights, xs, initial):
        def body(carry, step):
            x, real, start = step
            new = jax.tree.map(lambda c, i: jnp.where(start[:, None], i, c), carry, initial)
            new, _ = cell.step(weights, new, x)
            new = jax.tree.map(lambda n, c: jnp.where(real[:, None], n, c), new, carry)
            return new, jnp.where(real[:, None], jax.tree.leaves(new)[0], 0)

        steps = (jnp.swapaxes(x, 0, 1) for x in (xs, MASK, RESETS & MASK))
        return jax.lax.scan(body, initial, tuple(steps))[1].swapaxes(0, 1)

    @jax.jit
    def run(weights, xs, initial, direction):
        def product(unroll):
            def cost(bias, initial):
                return jnp.sum(jnp.sin(unroll(weights._replace(bias=bias), xs, initial)))

            slope = jax.grad(cost, (0, 1))
            return jax.jvp(lambda bias: slope(bias, initial), (weights.bias,), (direction,))[1]

        fast = lambda w, x, i: cell.unroll(w, x, MASK, initial=i, resets=RESETS)[1]  # noqa: E731
        return product(fast), product(scanned)

    with jax.enable_x64(True):
        close(*jax.tree.map(np.asarray, run(weights, xs, initial, direction)), **F64)


def test_rows_of_no_step_and_of_one(np_rng):
    start, xs = np_rng.normal(size=(2, 4)), np_rng.normal(size=(2, 1, 3))
    call = functools.partial(F.gru, calls()["gru"].shared, initial=start, reverse=True)
    first = np.ones((2, 1), bool)

    @jax.jit
    def run(xs):
        none = call(xs[:, :0], resets=first[:, :0], reset_to=-start)
        return none, call(xs, resets=first, reset_to=-start), call(xs)

    (final, outputs), one, step = run(xs.astype(np.float32))
    assert outputs.shape == (2, 0, 4)
    np.testing.assert_allclose(final, start, **F32)
    # read backward, the first step of a segment is its last
    close(one, step, **F32)


@pytest.mark.slow
def test_a_carry_for_segments_has_no_part_without_resets(np_rng):
    """A caller can hand on both, whether there are resets or not."""
    cell = CELLS["lstm"]
    weights, carry = cell.weights(np_rng), cell.carry(np_rng)
    xs = np.ones((B, T, 4), np.float32)
    run = jax.jit(lambda fresh: cell.unroll(weights, xs, MASK, reset_to=fresh))
    want = jax.jit(lambda: cell.unroll(weights, xs, MASK))()
    chex.assert_trees_all_equal(run(carry), want)
