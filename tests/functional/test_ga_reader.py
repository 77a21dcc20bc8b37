"""Gated attention, pointer sum and gradient clipping against loops written from the equations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from tests.functional.passes import check_gradients, draw_like
from tests.tolerances import BF16, F32, F64

N, Q, D = 5, 4, 3
# lengths 4, 1 and 0
QUERY_MASK = np.arange(Q)[None, :] < np.array([4, 1, 0])[:, None]


def gate_rows(document, query, mask, gating):
    """a and x of every token of every row, one after the other; analytic."""
    rows = len(document)
    width = 2 * D if gating == "concat" else D
    kind = np.result_type(document, query)
    attention = np.zeros((rows, document.shape[1], query.shape[1]), kind)
    gated = np.zeros((rows, document.shape[1], width), kind)
    for row in range(rows):
        real = [j for j in range(query.shape[1]) if mask[row, j]]
        for i, token in enumerate(document[row]):
            weight = {j: np.exp(token @ query[row, j]) for j in real}
            view = np.zeros(D, kind)
            for j in real:
                attention[row, i, j] = weight[j] / sum(weight.values())
                view += attention[row, i, j] * query[row, j]
            joined = {"multiply": token * view, "sum": token + view}
            gated[row, i] = joined.get(gating, np.concatenate([token, view]))
    return gated, attention


@pytest.mark.parametrize("gating", ["multiply", "sum", "concat"])
def test_gated_attention_and_its_gradients_equal_the_loop(gating, np_rng, x64):
    document, query = np_rng.normal(size=(3, N, D)), np_rng.normal(size=(3, Q, D))
    run = jax.jit(functools.partial(F.gated_attention, gating=gating))
    gated, attention = run(document, query, QUERY_MASK)
    want = gate_rows(document, query, QUERY_MASK, gating)
    np.testing.assert_allclose(gated, want[0], **F64)
    np.testing.assert_allclose(attention, want[1], **F64)
    np.testing.assert_allclose(attention.sum(-1)[:2], 1.0, **F64)

    @jax.jit
    def pull(document, query, cotangents):
        return jax.vjp(lambda d, q: run(d, q, QUERY_MASK), document, query)[1](cotangents)

    def rows(document, query):
        return gate_rows(document, query, QUERY_MASK, gating)

    cotangents = draw_like(want, np_rng)
    found = jax.tree.map(np.asarray, pull(document, query, cotangents))
    check_gradients(found, rows, (document, query), cotangents, np_rng, **F64)


@pytest.mark.parametrize("gating", ["multiply", "sum", "concat"])
def test_one_query_vector_is_a_query_of_one_token(gating, np_rng):
    document = np.asarray(np_rng.normal(size=(2, 3, N, D)), np.float32)
    query = np.asarray(np_rng.normal(size=(2, 3, D)), np.float32)
    run = jax.jit(functools.partial(F.gated_attention, gating=gating))
    (one, first), (two, second) = run(document, query), run(document, query[..., None, :])
    np.testing.assert_allclose(one, two, **F32)
    np.testing.assert_array_equal(first, np.ones((2, 3, N, 1)))
    np.testing.assert_allclose(second, first, **F32)


def test_gated_attention_of_extreme_scores_is_finite(np_rng):
    document = np.float32(100) * np.sign(np.asarray(np_rng.normal(size=(1, N, D)), np.float32))
    query = np.float32(100) * np.asarray(np_rng.normal(size=(1, Q, D)), np.float32)

    def total(document, query):
        return jnp.sum(F.gated_attention(document, query)[0])

    value, grads = jax.jit(jax.value_and_grad(total, (0, 1)))(document, query)
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in grads)


def test_bfloat16_gates_in_bfloat16_with_attention_in_float32(np_rng):
    document, query = (np_rng.normal(size=(3, size, D)) for size in (N, Q))
    low = [np.asarray(x, jnp.bfloat16) for x in (document, query)]
    gated, attention = jax.jit(F.gated_attention)(*low, QUERY_MASK)
    assert gated.dtype == jnp.bfloat16
    assert attention.dtype == jnp.float32
    want = gate_rows(*(np.asarray(x, np.float64) for x in low), QUERY_MASK, "multiply")
    np.testing.assert_allclose(attention, want[1], **BF16)
    np.testing.assert_allclose(np.asarray(gated, np.float64), want[0], **BF16)


# -- pointer sum ------------------------------------------------------------------------------

# rows: overlapping candidates; one that is absent; none there; an empty document
OCCURRENCE = np.array(
    [
        [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]],
        [[1, 0, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]],
        [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 1, 1]],
        [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]],
    ],
    bool,
)
DOCUMENT_MASK = np.arange(N)[None, :] < np.array([5, 4, 4, 0])[:, None]
CANDIDATE_MASK = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]], bool)


def positions_of(occurrence, width=N, order=1):
    """The index lists of the flags, padded with -1."""
    listed = np.full((len(occurrence), occurrence.shape[2], width), -1)
    for row, candidate in np.ndindex(listed.shape[:2]):
        found = np.flatnonzero(occurrence[row, :, candidate])[::order]
        listed[row, candidate, : len(found)] = found
    return listed


def candidate_rows(logits, occurrence, document_mask, candidate_mask, aggregation):
    """Pr(c) by summing the softmax of all real tokens; analytic."""
    member = occurrence & document_mask[..., None] & candidate_mask[:, None, :]
    found = np.zeros((len(logits), occurrence.shape[2]), logits.dtype)
    for row, e in enumerate(logits):
        real = np.flatnonzero(document_mask[row])
        if not member[row].any():
            continue
        s = {i: np.exp(e[i]) / sum(np.exp(e[j]) for j in real) for i in real}
        scores = [sum(s[i] for i in np.flatnonzero(c)) for c in member[row].T]
        total = sum(scores)
        if aggregation == "code":
            total = sum(s[i] for i in np.flatnonzero(member[row].any(-1)))
        found[row] = [score / total for score in scores]
    return found


def flags(logits, **options):
    return F.pointer_sum(logits, OCCURRENCE, DOCUMENT_MASK, CANDIDATE_MASK, **options)


def lists(logits, **options):
    places = positions_of(OCCURRENCE, order=-1)
    return F.pointer_sum_indexed(logits, places, DOCUMENT_MASK, CANDIDATE_MASK, **options)


@pytest.mark.parametrize("aggregation", ["paper", "code"])
@pytest.mark.parametrize("form", [flags, lists])
def test_pointer_sum_and_its_gradient_equal_the_sum_of_a_softmax(form, aggregation, np_rng, x64):
    logits = np_rng.normal(size=(4, N)) * 2
    masks = DOCUMENT_MASK, CANDIDATE_MASK, aggregation
    run = jax.jit(functools.partial(form, aggregation=aggregation))
    got, want = run(logits), candidate_rows(logits, OCCURRENCE, *masks)
    np.testing.assert_allclose(np.exp(got), want, **F64)
    np.testing.assert_array_equal(np.isneginf(got), want == 0)
    sums = np.exp(got).sum(-1)
    np.testing.assert_allclose(sums[1:], [1, 0, 0], **F64)
    # a token of two candidates counts twice in the program's numbers
    np.testing.assert_allclose(sums[0], want[0].sum(), **F64)
    assert (sums[0] > 1.05) == (aggregation == "code")
    jacobian = jax.jit(jax.jacrev(lambda e: jnp.exp(form(e, aggregation=aggregation))))(logits)
    for row, token in np.ndindex(4, N):
        moved = logits.astype(complex)
        moved[row, token] += 1e-30j
        slope = candidate_rows(moved, OCCURRENCE, *masks).imag * 1e30
        np.testing.assert_allclose(jacobian[:, :, row, token], slope, **F64)


@pytest.mark.parametrize(("form", "aggregation"), [(flags, "paper"), (lists, "code")])
def test_pointer_sum_ignores_other_tokens_and_is_finite_where_nothing_occurs(
    form, aggregation, np_rng
):
    logits = np.asarray(np_rng.normal(size=(4, N)), np.float32)
    member = OCCURRENCE & DOCUMENT_MASK[..., None] & CANDIDATE_MASK[:, None, :]
    used = member.any(-1)

    @jax.jit
    def both(logits):
        def total(logits):
            found = form(logits, aggregation=aggregation)
            return jnp.sum(jnp.where(jnp.isneginf(found), 0, found)), found

        return jax.value_and_grad(total, has_aux=True)(logits)

    (_, clean), gradient = jax.tree.map(np.asarray, both(logits))
    dirty = np.where(used, logits, np.float32(np.nan))
    (_, found), dirty = jax.tree.map(np.asarray, both(dirty))
    np.testing.assert_array_equal(found, clean)
    np.testing.assert_array_equal(gradient, dirty)
    np.testing.assert_array_equal(gradient[~used], 0.0)
    assert np.isneginf(found[2:]).all()
    assert np.isfinite(found[0]).all()
    # a logit of -inf is a token that is not there
    logits[0, 2] = -np.inf
    (_, without), gradient = both(logits)
    assert np.isneginf(np.asarray(without)[0, 2])
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(("form", "aggregation"), [(flags, "code"), (lists, "paper")])
def test_logits_of_ten_thousand_keep_their_digits(form, aggregation, x64):
    small = np.array([[0.25, -1.5, -9000.0, 0.5, 0.0]] * 4)

    @jax.jit
    def both(logits):
        found, pull = jax.vjp(functools.partial(form, aggregation=aggregation), logits)
        return found, pull(jnp.where(jnp.isneginf(found), 0, 1).astype(found.dtype))[0]

    want = np.asarray(both(small)[0])[0]
    for shift in (0.0, 1e4, -1e4):
        logits = np.asarray(small + shift, np.float32)
        found, gradient = jax.tree.map(np.asarray, both(logits))
        np.testing.assert_allclose(found[0], want, **F32)
        assert np.isfinite(gradient).all()


def test_many_small_probabilities_add_up_like_float64(np_rng, x64):
    """4,096 tokens, of which a candidate has every second."""
    logits = np_rng.normal(size=(1, 4096)) * 3
    occurrence = (np.arange(4096)[:, None] % 2 == np.arange(2)[None, :])[None]
    weights = np.exp(logits[0]) / np.exp(logits[0]).sum()
    want = np.log([weights[::2].sum(), weights[1::2].sum()])
    places = positions_of(occurrence, 2048)
    run = jax.jit(lambda x: (F.pointer_sum(x, occurrence), F.pointer_sum_indexed(x, places)))
    for found in run(logits.astype(np.float32)):
        assert found.dtype == np.float32
        np.testing.assert_allclose(np.asarray(found)[0], want, rtol=1e-5)


@pytest.mark.slow
def test_pointer_sum_takes_leading_axes_and_bfloat16(np_rng):
    logits = np.asarray(np_rng.normal(size=(2, 4, N)), np.float32)
    both = [np.stack([x, x]) for x in (OCCURRENCE, DOCUMENT_MASK, CANDIDATE_MASK)]
    places = np.stack([positions_of(OCCURRENCE)] * 2)
    want = np.stack([flags(row) for row in logits])  # not compiled as a whole

    @jax.jit
    def run(logits):
        low = logits.astype(jnp.bfloat16)
        again = F.pointer_sum(low, *both), F.pointer_sum(low.astype(jnp.float32), *both)
        return again, (
            F.pointer_sum(logits, *both),
            F.pointer_sum_indexed(logits, places, *both[1:]),
        )

    (low, wide), forms = run(logits)
    for found in forms:
        np.testing.assert_allclose(found, want, **F32)
    assert low.dtype == np.float32
    np.testing.assert_array_equal(low, wide)


def test_places_outside_of_the_document_and_empty_axes_are_legal():
    logits, nothing = np.zeros((1, 3), np.float32), np.zeros((1, 0), np.float32)
    places = np.array([[[0, 3, -1], [2, 1, -7]]])

    @jax.jit
    def run(logits):
        return (
            jnp.exp(F.pointer_sum_indexed(logits, places)),
            F.pointer_sum_indexed(nothing, places),
            F.pointer_sum(nothing, np.zeros((1, 0, 2), bool)),
            F.pointer_sum(logits, np.zeros((1, 3, 0), bool)),
            F.pointer_sum(logits, np.ones((1, 3, 1), bool)),
        )

    found, empty, none, no_candidate, one = jax.tree.map(np.asarray, run(logits))
    np.testing.assert_allclose(found, [[1 / 3, 2 / 3]], **F32)
    assert np.isneginf(empty).all()
    assert np.isneginf(none).all()
    assert no_candidate.shape == (1, 0)
    np.testing.assert_allclose(one, 0.0, atol=1e-6)


@pytest.mark.parametrize(("dtype", "size"), [("int8", 200), ("uint8", 256)])
def test_places_may_be_of_a_dtype_that_the_length_does_not_fit_in(dtype, size):
    logits, places = np.zeros((1, size), np.float32), np.array([[[3, 7], [4, 5]]])
    found = jax.jit(F.pointer_sum_indexed)(logits, places.astype(dtype))
    np.testing.assert_allclose(np.exp(found), [[0.5, 0.5]], **F32)
