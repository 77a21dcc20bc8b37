"""A recurrence of one's own against NumPy loops, and against the recurrences that have a core."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from tests.functional._calls import calls
from tests.functional.test_resets import MASK, RESETS
from tests.tolerances import F64

B, T = MASK.shape
RNG = np.random.default_rng(0)
XS = {"values": RNG.normal(size=(B, T, 2)), "kinds": RNG.integers(1, 4, (B, T))}
INITIAL = (RNG.normal(size=(B, 2, 2)), np.arange(B))
FRESH = (RNG.normal(size=(B, 2, 2)), 10 + np.arange(B))


def step(carry, x):
    """A matrix that turns and forgets, and a counter: outputs of two ranks."""
    memory, count = carry
    added = x["values"][:, :, None] * x["values"][:, None, :] * x["kinds"][:, None, None]
    memory = jnp.tanh(jnp.swapaxes(memory, 1, 2) + added)
    count = count + x["kinds"]
    return (memory, count), {"trace": memory[:, 0, 0] + memory[:, 1, 1], "count": count[:, None]}


def by_rows(mask, resets, fresh, reverse):
    """The same by a loop over rows and real steps."""
    trace, counts = np.zeros((B, T)), np.zeros((B, T, 1), int)
    last = [np.array(part) for part in INITIAL]
    for row in range(B):
        memory, count = (part[row] for part in INITIAL)
        real = list(np.flatnonzero(mask[row]))
        if reverse:
            real.reverse()
        for place, t in enumerate(real):
            # backwards a segment is over after its first step
            starts = place > 0 and resets[row, real[place - 1]] if reverse else resets[row, t]
            if starts:
                memory, count = (part[row] for part in fresh)
            value, kind = XS["values"][row, t], XS["kinds"][row, t]
            memory = np.tanh(memory.T + np.outer(value, value) * kind)
            count = count + kind
            trace[row, t], counts[row, t] = np.trace(memory), count
        last[0][row], last[1][row] = memory, count
    return last, {"trace": trace, "count": counts}


@functools.cache
def found():
    """Every combination of options by one program."""
    cases = [
        (masked, reset, fresh, reverse)
        for masked in (False, True)
        for reset, fresh in ((False, False), (True, False), (True, True))
        for reverse in (False, True)
    ]

    @jax.jit
    def run(xs, initial, fresh, mask, resets):
        return [
            F.masked_scan(
                step,
                initial,
                xs,
                mask if masked else None,
                resets=resets if reset else None,
                reset_to=fresh if replaced else None,
                reverse=reverse,
            )
            for masked, reset, replaced, reverse in cases
        ]

    with jax.enable_x64(True):
        spoilt = {
            "values": np.where(MASK[..., None], XS["values"], np.nan),
            "kinds": np.where(MASK, XS["kinds"], 99),
        }
        clean = run(XS, INITIAL, FRESH, MASK, RESETS)
        dirty = run(spoilt, INITIAL, FRESH, MASK, RESETS)
    return cases, jax.tree.map(np.asarray, clean), jax.tree.map(np.asarray, dirty)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_values_are_those_of_a_loop_over_rows(number):
    cases, clean, dirty = found()
    masked, reset, replaced, reverse = cases[number]
    mask = MASK if masked else np.ones_like(MASK)
    resets = RESETS if reset else np.zeros_like(RESETS)
    carry, outputs = by_rows(mask, resets, FRESH if replaced else INITIAL, reverse)
    for got in (clean[number], dirty[number])[: 1 + masked]:
        for ours, wanted in zip(got[0], carry, strict=True):
            np.testing.assert_allclose(ours, wanted, **F64)
        for name, wanted in outputs.items():
            assert got[1][name].shape == wanted.shape
            np.testing.assert_allclose(got[1][name], wanted, **F64)


@pytest.mark.slow
def test_gradients_are_those_of_the_recurrence_with_a_core():
    call = calls()["lstm"]
    to64 = functools.partial(jax.tree.map, lambda x: np.asarray(x, np.float64))
    mask, resets = call.rows["mask"], call.rows["resets"]

    def ours(weights, xs, initial):
        step = functools.partial(F.lstm_step, weights)
        return F.masked_scan(step, initial, xs, mask, resets=resets, reverse=True)

    def theirs(weights, xs, initial):
        return F.lstm(weights, xs, mask, initial=initial, resets=resets, reverse=True)

    @jax.jit
    def both(*arguments):
        pulled = []
        for run in (ours, theirs):
            result, pull = jax.vjp(run, *arguments)
            pulled.append((result, pull(jax.tree.map(jnp.cos, result))))
        # JAX differentiates the loop, forward mode included
        forward = jax.jvp(ours, arguments, arguments)[1]
        product = sum(
            jnp.vdot(jnp.cos(a), b)
            for a, b in zip(jax.tree.leaves(pulled[0][0]), jax.tree.leaves(forward), strict=True)
        )
        return pulled, product

    xs = np.where(mask[..., None], call.rows["xs"], np.nan)
    arguments = (call.shared, xs, call.rows["initial"])
    with jax.enable_x64(True):
        (got, wanted), product = both(*to64(arguments))
    chex.assert_trees_all_close(got, wanted, **F64)
    assert np.all(np.isfinite(got[1][1]))
    real = (call.shared, np.where(mask[..., None], xs, 0), call.rows["initial"])
    along = sum(
        np.vdot(a, b) for a, b in zip(jax.tree.leaves(got[1]), jax.tree.leaves(real), strict=True)
    )
    np.testing.assert_allclose(product, along, rtol=1e-6)


def test_it_is_an_unroll_of_bidirectional_with_lengths_and_packed_rows():
    def unroll(weights, xs, mask=None, **options):
        def step(h, x):
            h = jnp.tanh(x @ weights + h)
            return h, h

        return F.masked_scan(step, jnp.zeros((len(xs), 3), xs.dtype), xs, mask, **options)

    weights = RNG.normal(size=(2, 3)).astype(np.float32)
    xs = XS["values"].astype(jnp.bfloat16)
    lengths = np.array([6, 0, 1])

    @jax.jit
    def run(xs, lengths):
        half = jnp.asarray(weights, jnp.bfloat16)
        return F.bidirectional(unroll, half, half, xs, lengths=lengths)

    (last, first), outputs = run(xs, lengths)
    assert outputs.dtype == jnp.bfloat16
    assert outputs.shape == (B, T, 6)
    np.testing.assert_array_equal(outputs[1], np.zeros((T, 6)))
    np.testing.assert_array_equal(last[1], np.zeros(3))
    np.testing.assert_array_equal(last[0], outputs[0, -1, :3])
    np.testing.assert_array_equal(first[0], outputs[0, 0, 3:])
    # of a row of one step both directions are the same
    np.testing.assert_array_equal(outputs[2, 0, :3], outputs[2, 0, 3:])


def test_bidirectional_passes_options_and_pairs_of_carries_on():
    weights = F.GRUWeights(
        *(RNG.normal(size=s).astype(np.float32) for s in [(2, 9), (3, 9), (9,), (3,)])
    )
    xs, resets = XS["values"], np.arange(T) == np.array([2, 1, 3])[:, None]
    ahead, back, fresh = (RNG.normal(size=(B, 3)).astype(np.float32) for _ in range(3))
    options = {"reset_after": True, "gradient_clip": 2.0, "resets": resets}

    @jax.jit
    def run(weights, ahead, back, fresh):
        starts = {"initial": (ahead, back), "reset_to": [fresh, -fresh]}
        got = F.bidirectional(F.gru, weights, weights, xs, **starts, **options)
        one = F.gru(weights, xs, initial=ahead, reset_to=fresh, **options)
        other = F.gru(weights, xs, initial=back, reset_to=-fresh, reverse=True, **options)
        return got, ((one[0], other[0]), jnp.concatenate([one[1], other[1]], -1))

    chex.assert_trees_all_equal(*run(weights, ahead, back, fresh))
    with pytest.raises(TypeError, match="reverse"):
        F.bidirectional(F.gru, weights, weights, xs, reverse=True)
    for wrong, kind in ((F.LSTMState(ahead, back), "LSTMState of 2"), ((ahead,), "tuple of 1")):
        with pytest.raises(ValueError, match=rf"initial must be \(forward, backward\).*{kind}"):
            F.bidirectional(F.gru, weights, weights, xs, initial=wrong)
    # as in a call of the partial function, what `bidirectional` passes on comes last
    replaced = {"reverse": True, "initial": fresh, "reset_to": -fresh, "reset_after": False}
    bound = functools.partial(F.gru, **options | replaced)
    starts = {"initial": (ahead, back), "reset_to": [fresh, -fresh]}
    got = F.bidirectional(bound, weights, weights, xs, **starts, reset_after=True)
    want = F.bidirectional(F.gru, weights, weights, xs, **starts, **options)
    chex.assert_trees_all_equal(got, want)


def normed(weights, h, x):
    """A step with infinite derivatives where x, h, x W + h or x W - h is 0 or constant."""
    a = x @ weights + h
    h = a / jnp.linalg.norm(a, axis=-1, keepdims=True) + jnp.std(x, axis=-1, keepdims=True)
    return x @ weights, h + jnp.linalg.norm(x @ weights - h, axis=-1, keepdims=True)


def alone(step, weights, h, xs, mask, reverse):
    """The sum of squares of all results, by a loop over rows and real steps."""
    total = 0.0
    for row in range(len(xs)):
        carry, places = h[row][None], np.flatnonzero(mask[row])
        for t in places[::-1] if reverse else places:
            carry, y = step(weights, carry, xs[row, t][None])
            total += jnp.sum(y**2)
        total += jnp.sum(carry**2)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_padding_gives_no_nan_to_gradients_where_a_step_has_no_derivative_at_zero(reverse, x64):
    mask = np.array([[1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]], bool)
    weights, xs = RNG.normal(size=(3, 3)), RNG.normal(size=(4, 4, 3))
    start = RNG.normal(size=(4, 3)) * np.array([1, 0, 1, 0])[:, None]

    def ours(weights, start, xs, mask):
        step = functools.partial(normed, weights)
        carry, ys = F.masked_scan(step, start, xs, mask, reverse=reverse)
        return jnp.sum(carry**2) + jnp.sum(ys**2)

    spoilt = np.where(mask[..., None], xs, np.nan)
    gradient = jax.jit(jax.grad(ours, (0, 1, 2)))
    want = jax.grad(lambda *given: alone(normed, *given, mask, reverse), (0, 1, 2))
    chex.assert_trees_all_close(
        gradient(weights, start, spoilt, mask), want(weights, start, xs), **F64
    )
    # forward mode too, and a batch without any real step
    tangents = jax.jvp(lambda w: ours(w, start, spoilt, mask), (weights,), (weights,))[1]
    np.testing.assert_allclose(tangents, np.vdot(want(weights, start, xs)[0], weights), rtol=1e-9)
    empty = gradient(weights, start, np.full_like(xs, np.nan), np.zeros_like(mask))
    chex.assert_trees_all_equal(empty, (np.zeros((3, 3)), 2 * start, np.zeros_like(xs)))


@pytest.mark.slow
def test_padding_runs_on_the_carry_of_a_reset_where_the_initial_one_is_never_used(x64):
    def step(weights, h, x):  # no derivative at h = 0
        return x @ weights, jnp.linalg.norm(h @ weights, axis=-1)

    resets = np.zeros_like(RESETS)
    resets[np.arange(B), MASK.argmax(1)] = True  # every row starts with a carry of ones
    weights, xs, ones = RNG.normal(size=(2, 2)), XS["values"], np.ones((B, 2))

    def ours(weights):
        options = {"resets": resets, "reset_to": ones}
        run = functools.partial(step, weights)
        carry, ys = F.masked_scan(run, np.zeros((B, 2)), xs, MASK, **options)
        return jnp.sum(carry**2) + jnp.sum(ys**2)

    want = jax.grad(lambda weights: alone(step, weights, ones, xs, MASK, False))(weights)
    np.testing.assert_allclose(jax.grad(ours)(weights), want, **F64)
