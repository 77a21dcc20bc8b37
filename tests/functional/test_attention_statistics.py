"""Statistics of attention against loops over pairs, dense and a block of queries at a time."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import analysis
from gatedjax import functional as F
from gatedjax import nn as gnn
from tests._drawn import drawn
from tests.tolerances import BF16, F32, F64

B, M, N, H, C = 4, 2, 7, 3, 3
LENGTHS = np.array([7, 4, 1, 0])
MASK = np.arange(N) < LENGTHS[:, None]
TAGS = ("NN", "VB", "IN")


def heads_of(rng, dtype=np.float64):
    """query, key, and the selector's two, the latter of one head for all."""
    shapes = ((B, M, N, H),) * 2 + ((B, 1, N, H),) * 2
    return tuple((1.5 * rng.normal(size=shape)).astype(dtype) for shape in shapes)


def weights_of(heads, allowed, *, selective):
    """Attention weights, pair by pair."""
    query, key, select, selected = heads
    weights = np.zeros((B, M, N, N))
    for b, m, i in itertools.product(range(B), range(M), range(N)):
        seen = [j for j in range(N) if allowed[b, m, i, j]]
        if selective:
            seen = [j for j in seen if select[b, 0, i] @ selected[b, 0, j] > 0]
        scores = np.array([query[b, m, i] @ key[b, m, j] * H**-0.5 for j in seen])
        if seen:
            ratios = np.exp(scores - scores.max())
            weights[b, m, i, seen] = ratios / (ratios.sum() + 1e-6 * selective)
    return weights


def oracle(weights, classes, top):
    """The statistics, query by query."""
    found = {name: np.zeros((B, M, N)) for name in F.AttentionStatistics._fields[:6]}
    by_class = np.zeros((B, M, C))
    for b, m in itertools.product(range(B), range(M)):
        for i in range(LENGTHS[b]):
            row = weights[b, m, i, : LENGTHS[b]]
            found["entropy"][b, m, i] = -sum(w * np.log(w) for w in row if w > 0)
            found["distance"][b, m, i] = sum(w * abs(i - j) for j, w in enumerate(row))
            found["top"][b, m, i] = sum(sorted(row)[::-1][:top])
            found["mass"][b, m, i] = sum(row)
            for j, w in enumerate(row):
                found["received"][b, m, j] += w
                found["by_distance"][b, m, abs(i - j)] += w
                if 0 <= classes[b, j] < C:
                    by_class[b, m, classes[b, j]] += w
    return F.AttentionStatistics(**found, by_class=by_class)


def assert_same(got, want, **tolerance):
    for name, a, b in zip(want._fields, got, want, strict=True):
        np.testing.assert_allclose(a, b, err_msg=name, **tolerance)


def entropy_of(found):
    return jnp.sum(found.entropy * jnp.cos(found.mass)) + jnp.sum(found.by_distance[..., 1])


@functools.cache
def solved():
    """In float64: arguments, pairs, and statistics dense and streamed, with gradients."""
    rng = np.random.default_rng(0)
    heads, pairs = heads_of(rng), rng.random((B, 1, N, N)) < 0.8
    pairs[0, 0, 3] = False  # a query that sees nothing
    classes = rng.integers(-1, C, (B, N))  # -1 is of no class
    options = {"classes": classes, "num_classes": C, "top": 2}

    @jax.jit
    def run(heads):
        query, key, select, selected = heads

        def standard(query, key):
            return F.streamed_attention_statistics(
                query, key, MASK, pair_mask=pairs, block=3, **options
            )

        def whole(query, key):
            allowed = jnp.asarray(MASK)[:, None, None, :] & pairs
            query, key = (jnp.where(MASK[:, None, :, None], x, 0) for x in (query, key))
            weights = F.masked_softmax(F.scaled_dot_product(query, key), allowed)
            return F.attention_statistics(weights, MASK, **options)

        selective = F.streamed_attention_statistics(
            query,
            key,
            MASK,
            causal=True,
            selector_query=select,
            selector_key=selected,
            block=2,
            **options,
        )
        slopes = [
            jax.grad(lambda q, k, f=f: entropy_of(f(q, k)), (0, 1))(query, key)
            for f in (standard, whole)
        ]
        return standard(query, key), whole(query, key), selective, slopes

    with jax.enable_x64(True):
        dirty = [np.where(MASK[:, None, :, None], x, np.nan) for x in heads]
        return heads, pairs, classes, jax.tree.map(np.asarray, run(tuple(dirty)))


def test_statistics_are_those_of_a_loop_over_pairs():
    heads, pairs, classes, (standard, whole, selective, _) = solved()
    allowed = np.broadcast_to(MASK[:, None, None, :], (B, M, N, N))
    want = oracle(weights_of(heads, allowed & pairs, selective=False), classes, 2)
    assert_same(standard, want, **F64)
    assert_same(whole, want, **F64)
    allowed = allowed & np.tril(np.ones((N, N), bool))
    assert_same(selective, oracle(weights_of(heads, allowed, selective=True), classes, 2), **F64)
    assert (standard.mass[0, :, 3] == 0).all()


def test_gradients_of_blocks_are_those_of_the_whole():
    _, _, _, (*_, (streamed, whole)) = solved()
    for got, want in zip(streamed, whole, strict=True):
        assert np.isfinite(got).all()
        assert np.abs(got[0]).max() > 0
        np.testing.assert_allclose(got, want, **F64)


def test_sums_are_the_counts_of_the_analysis(np_rng):
    weights = np_rng.random((B, M, N, N)).astype(np.float32)
    classes = np_rng.integers(0, C, (B, N))
    found = F.attention_statistics(weights, MASK, classes=classes, num_classes=C)
    for head in range(M):
        counts = analysis.distance_counts(weights[:, head], LENGTHS)
        np.testing.assert_allclose(found.by_distance[:, head].sum(0), counts.mass, **F32)
        rows = [
            analysis.tag_counts(weights[b, head], [TAGS[c] for c in classes[b, : LENGTHS[b]]])
            for b in range(B)
        ]
        shares = [[row.mass[analysis.tag_class(tag)] for tag in TAGS] for row in rows]
        np.testing.assert_allclose(found.by_class[:, head], shares, **F32)


def test_bfloat16_and_float32_stay_close_and_a_batch_may_be_mapped(np_rng):
    heads = heads_of(np_rng, np.float32)
    call = functools.partial(F.streamed_attention_statistics, top=2, block=4)
    want = F.attention_statistics(
        weights_of(heads, np.broadcast_to(MASK[:, None, None], (B, M, N, N)), selective=False)
        .astype(np.float32),
        MASK,
        top=2,
    )  # fmt: skip
    found = jax.jit(jax.vmap(call))(*(x.reshape(2, 2, *x.shape[1:]) for x in (*heads[:2], MASK)))
    found = jax.tree.map(lambda x: x.reshape(B, *x.shape[2:]), found)
    for name, a, b in zip(want._fields[:6], found, want, strict=False):
        np.testing.assert_allclose(a, b, err_msg=name, **F32)
    low = jax.jit(call)(*(x.astype(jnp.bfloat16) for x in heads[:2]), MASK)
    assert low.entropy.dtype == jnp.float32
    np.testing.assert_allclose(low.mass, want.mass, **BF16)
    np.testing.assert_allclose(low.entropy, want.entropy, rtol=0.1, atol=0.1)


def test_memory_does_not_grow_with_the_square_of_the_length():
    """By what the compiled programs allot beside arguments and results; nothing is run."""

    def dense(query, key):
        weights = F.masked_softmax(F.scaled_dot_product(query, key))
        return F.attention_statistics(weights)

    def allotted(function, size):
        heads = jax.ShapeDtypeStruct((1, 2, size, 8), np.float32)
        return jax.jit(function).lower(heads, heads).compile().memory_analysis().temp_size_in_bytes

    streamed = functools.partial(F.streamed_attention_statistics, block=32)
    small, large = (allotted(streamed, size) for size in (256, 1024))
    # four times as long, where the square is 16; a GPU's programs allot more beside that
    assert large < (5 if jax.default_backend() == "cpu" else 8) * small
    pairs = 2 * 1024 * 1024 * 4
    assert large < pairs / 2
    assert allotted(dense, 1024) > pairs


@pytest.mark.parametrize("options", [{"selector": "none"}, {"causal": True, "empty": "self"}])
def test_the_module_has_the_statistics_of_its_weights(options, np_rng):
    inputs = np_rng.normal(size=(B, N, 4)).astype(np.float32)
    module = gnn.SelectiveSelfAttention(M, **options)
    variables = drawn(module.init, inputs)

    @jax.jit
    def both(variables, inputs):
        _, selection = module.apply(variables, inputs, MASK)
        found = module.apply(variables, inputs, MASK, block=3, top=2, method="statistics")
        return found, F.attention_statistics(selection.weights, MASK, top=2)

    found, want = jax.tree.map(np.asarray, both(variables, inputs))
    for name, a, b in zip(want._fields[:6], found, want, strict=False):
        np.testing.assert_allclose(a, b, err_msg=name, **F32)


def test_no_word_at_all():
    empty = np.zeros((2, M, 0, H), np.float32)
    found = F.streamed_attention_statistics(
        empty, empty, classes=np.zeros((2, 0), int), num_classes=C
    )
    assert found.entropy.shape == found.by_distance.shape == (2, M, 0)
    assert found.by_class.shape == (2, M, C)


def test_a_class_below_zero_is_none_in_a_narrow_dtype_too():
    weights = np.full((1, 1, 2, 2), 0.5, np.float32)
    classes = np.array([[-1, 0]], np.int8)
    found = F.attention_statistics(weights, classes=classes, num_classes=256)
    np.testing.assert_allclose(found.by_class[0, 0], np.eye(256)[0], **F32)


ARRAY = np.zeros((B, M, N, H), np.float32)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"key": ARRAY[..., :1]}, ValueError, "one common shape, got query"),
        ({"mask": MASK[:1, :3]}, ValueError, "mask must have shape"),
        ({"selector_query": ARRAY}, ValueError, "selector_query and selector_key must be given"),
        (
            {"classes": MASK * 1},
            ValueError,
            "num_classes must be given together, got num_classes 0",
        ),
        ({"classes": MASK * 1.0, "num_classes": 2}, TypeError, "classes must be integers"),
        ({"num_classes": 2}, ValueError, "got num_classes 2 without classes"),
        ({"top": 0}, ValueError, "top must be at least 1, got 0"),
        ({"block": 0}, ValueError, "block must be at least 1, got 0"),
        ({"empty": "some"}, ValueError, "empty must be one of"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(options, error, message):
    call = functools.partial(
        F.streamed_attention_statistics, **({"query": ARRAY, "key": ARRAY} | options)
    )
    with pytest.raises(error, match=message):
        jax.eval_shape(call)
    with pytest.raises(ValueError, match=r"weights must be \[B, M, N, N\], got \(4, 2, 7, 3\)"):
        F.attention_statistics(ARRAY)
