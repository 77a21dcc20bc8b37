"""Pooling and local attention against loops written from GA-Net, sections 2.1 and 4."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax.functional._attention import attention_pool, local_attention_weights
from tests.functional.passes import complex_step
from tests.tolerances import BF16, F32, F64

# Rows: position at the left end, at the right end, between tokens, left and right of the
# sentence, a sentence of one token (twice), the empty one.
T = 7
LENGTHS = np.array([7, 7, 6, 4, 4, 1, 1, 0])
POSITIONS = np.array([0.0, 6.0, 2.3, -2.6, 6.2, 0.0, 0.4, 0.0])
MASK = np.arange(T)[None, :] < LENGTHS[:, None]
local = jax.jit(local_attention_weights, static_argnames=("half_width", "renormalise"))

# Rows: padding in front, holes, two tokens as near to a hole, one token, no token, far outside.
HOLES = np.array(
    [
        [0, 0, 1, 1, 1, 1, 1],
        [1, 0, 1, 1, 0, 1, 0],
        [1, 1, 0, 0, 0, 1, 1],
        [0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 0, 0],
        [1, 1, 0, 1, 1, 0, 0],
    ],
    bool,
)
CENTRES = np.array([0.3, 2.6, 3.0, 0.0, 0.0, 9.0, -5.0])


def local_rows(scores, positions, half_width, mask, renormalise=False):
    """alpha_t = softmax over the window of e_t, times exp(-(t - p)^2 / (2 s^2)), s = D / 2.

    Of real tokens; the window has the nearest of them even where it lies beyond D. Analytic.
    """
    out = np.zeros(scores.shape, np.result_type(scores, positions))
    for b, (p, real) in enumerate(zip(positions, mask, strict=True)):
        tokens = [t for t in range(len(real)) if real[t]]
        if not tokens:
            continue
        nearest = min(tokens, key=lambda t: abs(t - np.clip(p.real, tokens[0], tokens[-1])))
        window = [t for t in tokens if abs(t - p.real) <= half_width or t == nearest]
        top = max(scores[b, t].real for t in window)
        total = sum(np.exp(scores[b, t] - top) for t in window)
        squares = {t: -((t - p) ** 2) / (2 * (half_width / 2) ** 2) for t in window}
        shift = max(value.real for value in squares.values()) if renormalise else 0
        for t in window:
            out[b, t] = np.exp(scores[b, t] - top) / total * np.exp(squares[t] - shift)
        if renormalise:
            out[b] = out[b] / out[b].sum()
    return out


BY_LENGTH = (POSITIONS, MASK, {"lengths": LENGTHS})
BY_MASK = (CENTRES, HOLES, {"mask": HOLES})


@pytest.mark.parametrize(
    ("half_width", "renormalise", "case"),
    [
        (1, False, BY_LENGTH),
        (2.0, True, BY_LENGTH),
        (20, False, (POSITIONS, MASK, {"lengths": LENGTHS.tolist()})),
        (0.25, True, BY_MASK),
        (2.0, False, BY_MASK),
    ],
)
def test_local_value_and_gradients_equal_the_loop(half_width, renormalise, case, np_rng, x64):
    positions, real, given = case
    scores, cotangent = np_rng.normal(size=(2, *real.shape))

    def objective(e, p):
        weights = local_attention_weights(e, p, half_width, renormalise=renormalise, **given)
        return jnp.sum(weights * cotangent), weights

    run = jax.jit(jax.grad(objective, argnums=(0, 1), has_aux=True))
    (d_scores, d_positions), weights = run(np.where(real, scores, np.nan), positions)

    def oracle(e, p):
        return local_rows(e, p, half_width, real, renormalise)

    np.testing.assert_allclose(weights, oracle(scores, positions), **F64)
    for found in (weights, d_scores):
        np.testing.assert_array_equal(np.asarray(found)[~real], 0.0)
    want = complex_step(lambda e: oracle(e, positions), scores, cotangent)
    np.testing.assert_allclose(d_scores, want, **F64)
    want = complex_step(lambda p: oracle(scores, p), positions, cotangent)
    np.testing.assert_allclose(d_positions, want, **F64)


@pytest.mark.parametrize("half_width", [0.5, 0.01])
def test_nearest_token_is_in_a_window_too_narrow_for_any(half_width):
    positions = np.array([2.4, 2.6, 9.0, -3.0, 0.3], np.float32)
    lengths = np.array([7, 7, 3, 3, 1])
    nearest = np.array([2, 3, 2, 0, 0])
    want = np.eye(T)[nearest]
    # Renormalised, the weight is 1 even where the Gaussian is below the least float32.
    got = local(jnp.zeros((5, T)), positions, half_width, lengths=lengths, renormalise=True)
    np.testing.assert_allclose(got, want, **F32)
    distance = (nearest - positions.astype(float)) / half_width
    got = local(jnp.zeros((5, T)), positions, half_width, lengths=lengths)
    np.testing.assert_allclose(got, want * np.exp(-2 * distance**2)[:, None], **F32)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_local_lengths_may_be_of_a_dtype_that_the_width_does_not_fit_in(dtype):
    scores, positions = np.zeros((2, 300), np.float32), np.float32([50.4, 99.9])
    lengths = np.array([100, 0])
    got = local(scores, positions, half_width=0.2, lengths=lengths.astype(dtype))
    real = np.arange(300) < lengths[:, None]
    want = local_rows(scores.astype(float), positions.astype(float), 0.2, real)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    assert got[0, 50] > 1e-4


def test_local_extreme_scores_have_finite_weights_and_gradients(np_rng):
    scores = np_rng.choice([-1e4, 0.0, 1e4], size=MASK.shape).astype(np.float32)

    def objective(e, p):
        weights = local_attention_weights(e, p, 2.0, lengths=LENGTHS, renormalise=True)
        return jnp.sum(weights * jnp.arange(7.0)[None, :]), weights

    grads, weights = jax.jit(jax.grad(objective, argnums=(0, 1), has_aux=True))(
        scores, POSITIONS.astype(np.float32)
    )
    assert np.all((weights >= 0) & (weights <= 1))
    assert all(np.all(np.isfinite(g)) for g in grads)


def test_local_bfloat16_is_computed_in_float32(np_rng):
    scores = jnp.asarray(np_rng.normal(size=(1, 400)), jnp.bfloat16)
    # bfloat16 cannot tell token 300 from 301: the positions must not be rounded to it.
    got = local(scores, np.array([301.0], np.float32), 3.0, lengths=np.array([400]))
    assert got.dtype == jnp.bfloat16
    want = local_rows(
        np.asarray(scores, np.float64), np.array([301.0]), 3.0, np.ones((1, 400), bool)
    )
    np.testing.assert_allclose(got.astype(jnp.float32), want, **BF16)


def test_local_takes_leading_axes_and_a_traced_width(np_rng):
    scores = np_rng.normal(size=MASK.shape).astype(np.float32)
    positions = POSITIONS.astype(np.float32)
    want = local_rows(scores.astype(float), POSITIONS, 2.3, MASK)
    folded = jax.jit(local_attention_weights)(
        scores.reshape(2, 4, T), positions.reshape(2, 4), 2.3, lengths=LENGTHS.reshape(2, 4)
    )
    np.testing.assert_allclose(folded.reshape(-1, T), want, **F32)


def test_local_of_far_positions_has_the_nearest_real_token_only(np_rng):
    scores = np_rng.normal(size=HOLES.shape).astype(np.float32)
    for centre, far in ((1e9, -1), (-1e9, 0)):
        got = local(scores, np.full(len(HOLES), centre, np.float32), 0.5, HOLES, renormalise=True)
        for row, real in zip(np.asarray(got), HOLES, strict=True):
            want = np.zeros(T)
            if real.any():
                want[np.flatnonzero(real)[far]] = 1.0
            np.testing.assert_array_equal(row, want)


@pytest.mark.parametrize("half_width", [0.25, 2.0])
def test_local_lengths_and_their_mask_have_the_same_bits(half_width, np_rng):
    """Also where two tokens are equally near and only the rounded position is in the window."""
    scores = np_rng.normal(size=MASK.shape).astype(np.float32)
    for positions in (POSITIONS, np.full(8, 1.5), np.full(8, 2.5), np.full(8, 6.5)):
        positions = positions.astype(np.float32)
        want = local(scores, positions, half_width, lengths=LENGTHS)
        np.testing.assert_array_equal(local(scores, positions, half_width, MASK), want)


def test_local_without_mask_and_lengths_takes_all_tokens_and_masks_broadcast(np_rng):
    scores = np_rng.normal(size=MASK.shape).astype(np.float32)
    positions = POSITIONS.astype(np.float32)
    every = np.full(8, T)
    np.testing.assert_array_equal(
        local(scores, positions, 2.0), local(scores, positions, 2.0, lengths=every)
    )
    np.testing.assert_array_equal(
        local(scores, positions, 2.0, MASK[3:4]),
        local(scores, positions, 2.0, np.broadcast_to(MASK[3:4], MASK.shape)),
    )
    assert local(scores[:, :0], positions, 2.0, MASK[:, :0]).shape == (8, 0)


# ---- pooling


def test_pool_value_and_gradients_equal_the_loop(np_rng, x64):
    states = np_rng.normal(size=(3, 5, 4))
    weights = np_rng.uniform(size=(3, 5))
    cotangent = np_rng.normal(size=(3, 4))
    value = np.array([[sum(weights[b, t] * states[b, t, d] for t in range(5)) for d in range(4)]
                      for b in range(3)])  # fmt: skip
    np.testing.assert_allclose(jax.jit(attention_pool)(states, weights), value, **F64)
    grads = jax.jit(
        jax.grad(lambda h, a: jnp.sum(attention_pool(h, a) * cotangent), argnums=(0, 1))
    )(states, weights)
    np.testing.assert_allclose(grads[0], np.einsum("bt,bd->btd", weights, cotangent), **F64)
    np.testing.assert_allclose(grads[1], np.einsum("btd,bd->bt", states, cotangent), **F64)


def test_pool_of_zero_weights_or_no_tokens_is_zero():
    np.testing.assert_array_equal(attention_pool(jnp.ones((2, 3, 4)), jnp.zeros((2, 3))), 0.0)
    got = attention_pool(jnp.ones((2, 0, 4)), jnp.ones((2, 0)))
    np.testing.assert_array_equal(got, np.zeros((2, 4)))


def test_pool_takes_any_leading_axes(np_rng):
    states = np_rng.normal(size=(2, 3, 5, 4)).astype(np.float32)
    weights = np_rng.uniform(size=(2, 3, 5)).astype(np.float32)
    want = (states.astype(float) * weights[..., None]).sum(axis=-2)
    np.testing.assert_allclose(attention_pool(states, weights), want, **F32)
    np.testing.assert_allclose(attention_pool(states[0, 0], weights[0, 0]), want[0, 0], **F32)


@pytest.mark.parametrize("weight_dtype", [jnp.bfloat16, jnp.float32])
def test_pool_of_bfloat16_states_is_summed_in_float32(weight_dtype):
    size = 4096
    states = jnp.full((1, size, 2), 1.5, jnp.bfloat16)
    got = attention_pool(states, jnp.full((1, size), 1 / size, weight_dtype))
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(got.astype(jnp.float32), 1.5)


# name -> a result that has the dtype of x [2, 3, 4], whatever that of y [2, 3, 4] is
LIKE_THE_FIRST = {
    "attention_pool": lambda x, y: F.attention_pool(x, y[..., 0], jnp.ones((1, 3), bool)),
    "byte_dropout": lambda x, y: F.byte_dropout(x, 0.5, jnp.ones((2, 3, 4), jnp.uint8)),
    "compact_attention_pool": lambda x, y: (
        F.compact_attention_pool(lambda states: y[..., 0], x, y[..., 0], capacity=3).pooled
    ),
    "gated_attention": lambda x, y: F.gated_attention(x, y)[0],
    "gated_softmax": F.gated_softmax,
    "gumbel_softmax": F.gumbel_softmax,
    "relaxed_gated_softmax": F.relaxed_gated_softmax,
    "relaxed_selective_attention": lambda x, y: F.relaxed_selective_attention(
        y, y, x, jnp.zeros((2, 3, 3))
    )[0],
    "selection_vectors": lambda x, y: F.selection_vectors(
        x, jnp.ones((1, 4, 5)), jnp.ones((1, 5)), keys=y
    )[0],
    "selective_attention": lambda x, y: F.selective_attention(y, y, x, jnp.ones((2, 3, 3)))[0],
    "selective_weights": F.selective_weights,
    "source_to_token": F.source_to_token,
    "uniform_sigmoid": F.uniform_sigmoid,
    "uniform_sigmoid, hard": lambda x, y: F.uniform_sigmoid(x, y, straight_through=True),
}
# name -> a result of float32 for x and y of bfloat16, or of either
WIDE = {
    "scaled_dot_product": F.scaled_dot_product,
    "selection_vectors": lambda x, y: F.selection_vectors(
        x, jnp.ones((2, 4, 5)), jnp.ones((2, 5)), keys=y
    )[1],
    "selective_attention": lambda x, y: F.selective_attention(x, x, y, jnp.ones((2, 3, 3)))[1],
    "gated_attention of a vector": lambda x, y: F.gated_attention(x, y[:, 0])[1],
    "selection_counts": lambda x, y: F.selection_counts(x[None]),
    "selection_entropy": lambda x, y: F.selection_entropy(x[None]),
    "selection_log_prob": lambda x, y: F.selection_log_prob(x[None], y[None]),
}
DTYPES = [(jnp.float32, jnp.bfloat16), (jnp.bfloat16, jnp.float32), (jnp.bfloat16, jnp.bfloat16)]


@pytest.mark.parametrize(("dtype", "other"), DTYPES)
def test_results_have_the_dtype_of_what_they_stand_for_or_a_wide_one(dtype, other):
    x, y = (jax.ShapeDtypeStruct((2, 3, 4), one) for one in (dtype, other))
    for name, function in LIKE_THE_FIRST.items():
        assert jax.eval_shape(function, x, y).dtype == dtype, name
    for name, function in WIDE.items():
        assert jax.eval_shape(function, x, y).dtype == jnp.float32, name
    mixed = jnp.promote_types(dtype, other)
    assert jax.eval_shape(F.highway_mix, x, x, y).dtype == mixed
    assert jax.eval_shape(F.highway_mix, x, y, x).dtype == mixed
