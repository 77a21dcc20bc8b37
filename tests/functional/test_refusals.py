"""Arguments of a wrong kind, shape or value are refused by name, inside and outside of `jit`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import functional as F
from gatedjax.functional._compact import open_indices
from gatedjax.gates import hard_top_k
from tests.functional._calls import calls
from tests.refusals import each_row, refused

CALLS = calls()
# the calls have 4 rows of 5 steps, inputs of width 3 and states of width 4
LSTM, GRU, RAU = (CALLS[name].shared for name in ("lstm", "gru", "rau sigmoid"))
TIMED = CALLS["rau time_causal"].shared
STATE = CALLS["lstm"].rows["initial"]
TIME_STATE = F.RAUTimeState(np.ones((4, 4), np.float32), *2 * [np.ones((4, 1), np.float32)])
BIASED = CALLS["gru reset after"].shared
XS, X = np.ones((4, 5, 3), np.float32), np.ones((4, 3), np.float32)
H = np.ones((4, 4), np.float32)
FLOATS, INTS, BOOLS = (np.ones((2, 3), kind) for kind in (np.float32, np.int32, bool))
ONE, LENGTHS, TOO_BIG = np.ones(2, np.float32), np.array([3, 1], np.int32), np.int64(2**32 + 1)
HEADS = np.ones((4, 2, 5, 4), np.float32)
STEPS, SEGMENTS = np.ones((4, 5, 4), np.float32), np.ones((4, 5), bool)
KEYS = jax.random.split(jax.random.key(0), 2)


def ones(*shape, kind=np.float32):
    return np.ones(shape, kind)


def change(name, *shared, **rows):
    """The call of `_calls` of a name, with some of its arguments changed."""
    call = CALLS[name]
    return lambda: call.function(shared[0] if shared else call.shared, call.rows | rows)


def local(scores=FLOATS, position=ONE, half_width=2.0, mask=None, lengths=LENGTHS):
    return lambda: F.local_attention_weights(scores, position, half_width, mask, lengths=lengths)


def compact(score=lambda h: jnp.sum(h, axis=-1), states=STEPS[:2, :3], gates=FLOATS, **options):
    return lambda: F.compact_attention_pool(score, states, gates, **({"capacity": 2} | options))


def likelihood(**changes):
    good = {"states": ones(6, 4), "kernel": ones(4, 7), "bias": ones(7), "targets": np.arange(6)}
    return lambda: F.linear_cross_entropy(**(good | changes))


def select(**changes):
    good = {"words": XS, "kernels": ones(2, 3, 3), "vectors": FLOATS}
    return lambda: F.selection_vectors(**(good | changes))


def selective(**changes):
    good = {"query": HEADS, "key": HEADS, "value": HEADS, "gates": ones(4, 2, 5, 5)}
    return lambda: F.selective_attention(**(good | {"hard": True} | changes))


def scan(step=lambda h, x: (h + x, h), initial=H, xs=STEPS, mask=None, **options):
    return lambda: F.masked_scan(step, initial, xs, mask, **options)


def stack(*selected, **weights):
    good = CALLS["gated_stack"].shared._replace(**weights)
    return lambda: F.gated_stack(*(selected or (ones(2, 3, 3),)), good)


def append(**changes):
    empty = F.AttentionCache(HEADS, HEADS, SEGMENTS, np.int32(0))
    return lambda: F.append_to_cache(empty, **({"key": HEADS, "value": HEADS} | changes))


def rau(attention, weights=RAU, xs=XS, **options):
    return lambda: F.rau(weights, xs, attention=attention, **options)


def of_form(attention, **fields):
    weights = CALLS[f"rau {attention}"].shared._replace(**fields)
    return rau(attention, weights)


TABLE = {
    "natural mistakes": [
        (lambda: F.masked_softmax(FLOATS, axis="last"), "axis|integer|'last'", TypeError),
        (
            lambda: F.gumbel_sigmoid(FLOATS, FLOATS, temperature=ones(4, 1, 1)),
            "temperature|(2, 3)|(4, 1, 1)",
        ),
        (
            lambda: F.gumbel_softmax(FLOATS, FLOATS, temperature="low"),
            "temperature|number|'low'",
            TypeError,
        ),
        (
            lambda: jax.jit(lambda rate: F.example_dropout(FLOATS, rate, KEYS))(0.5),
            "rate|static|jax.jit",
            TypeError,
        ),
        (lambda: F.example_dropout(FLOATS, "0.5", KEYS), "rate|number|'0.5'", TypeError),
        (lambda: F.example_dropout(FLOATS, ones(1) / 2, KEYS), "rate|number|(1,)"),
        (lambda: F.byte_dropout(FLOATS, 1.0, FLOATS.astype("uint8")), "rate|[0, 1)|1.0"),
        (lambda: F.example_keys(KEYS[0], ONE), "example_id|integers|float32", TypeError),
        (lambda: F.example_keys(KEYS[0], INTS), "example_id|[B]|(2, 3)"),
        (lambda: F.recurrence_backend("gru", 1, 1, 1, implementation="x"), "implementation|'x'"),
        (lambda: F.sinusoids(5, 4), "positions|[N]|()"),
        (lambda: F.skip_lstm(LSTM, XS, 2 * ones(4, 5)), "gates|[0, 1]|2.0"),
        (lambda: F.skip_lstm(LSTM, XS, -ones(4, 5)), "gates|[0, 1]|-1.0"),
        (lambda: F.masked_scan(H, lambda h, x: (h, h), STEPS), "step|function", TypeError),
        (lambda: F.byte_dropout(FLOATS, 0.5, FLOATS), "draws|uint8|float32", TypeError),
        (lambda: F.append_to_cache(None, HEADS, HEADS), "cache|AttentionCache|NoneType", TypeError),
        (lambda: F.gru(GRU, None), "xs|NoneType", TypeError),
    ],
    "append_to_cache": [
        (append(key=HEADS[..., :3]), "key|(4, 2, 5, 4)|(4, 2, 5, 3)"),
        (append(value=HEADS[:, :1]), "value|(4, 2, 5, 4)|(4, 1, 5, 4)"),
        (append(mask=SEGMENTS[:, :4]), "mask|(4, 5)|(4, 4)"),
        (append(selector_key=HEADS), "selector_key|None|an array"),
    ],
    "length_mask": [
        (lambda: F.length_mask(LENGTHS, 3.0), "size|float", TypeError),
        (lambda: F.length_mask(LENGTHS, -1), "size|-1"),
        (lambda: F.length_mask(np.array([2, 4]), 3), "lengths|[0, 3]|4"),
        (lambda: F.length_mask(np.array([2, -1]), np.int64(3)), "lengths|[0, 3]|-1"),
        (lambda: F.length_mask(np.array([2, 4]), np.int64(3)), "lengths|[0, 3]|4"),
        (lambda: F.length_mask([2, 4], 3), "lengths|4"),
        (lambda: F.length_mask(TOO_BIG, 3), "lengths|int32|4294967297"),
        (lambda: F.length_mask(np.array([200], np.uint8), 3), "lengths|200"),
    ],
    "masked_softmax": [
        (lambda: F.masked_softmax(FLOATS, BOOLS[0]), "mask|(2, 3)|(3,)"),
        (lambda: F.masked_softmax(FLOATS, axis=2), "axis|2"),
        (lambda: F.masked_softmax(FLOATS, BOOLS[None]), "mask|(2, 3)|(1, 2, 3)"),
        (lambda: F.masked_softmax(FLOATS.astype(complex)), "scores|complex64", TypeError),
    ],
    "gated_softmax": [
        (lambda: F.gated_softmax(FLOATS, BOOLS), "gates|bool", TypeError),
        (lambda: F.gated_softmax(FLOATS, FLOATS[:1]), "gates (1, 3)"),
        (lambda: F.gated_softmax(FLOATS, FLOATS, axis=-3), "axis|-3"),
        (lambda: F.gated_softmax(FLOATS, -FLOATS), "gates|-1.0|relaxed_gated_softmax"),
    ],
    "relaxed_gated_softmax": [
        (lambda: F.relaxed_gated_softmax(FLOATS, FLOATS[0]), "log_gates (3,)"),
        (lambda: F.relaxed_gated_softmax(FLOATS, -FLOATS, axis=5), "axis|5"),
        (lambda: F.relaxed_gated_softmax(FLOATS, FLOATS), "log_gates|1.0|`gated_softmax`"),
    ],
    "attention_pool": [
        (lambda: F.attention_pool(XS[:2], FLOATS), "weights|(2, 5)|(2, 3)"),
        (lambda: F.attention_pool(XS[:2], FLOATS[0]), "weights|(3,)"),
    ],
    "local_attention_weights": [
        (local(half_width=0.0), "half_width|0.0"),
        (local(half_width=np.nan), "half_width|nan"),
        (local(half_width=np.inf), "half_width|inf"),
        (local(half_width=-1.0), "half_width|-1.0"),
        (local(half_width=FLOATS[0]), "half_width|()|(3,)"),
        (local(lengths=LENGTHS[:1]), "lengths (1,)"),
        (local(mask=BOOLS), "mask or lengths|None"),
        (local(mask=BOOLS[:1, :2], lengths=None), "mask|(1, 2)"),
        (local(lengths=np.full(2, TOO_BIG)), "lengths|int32|4294967297"),
        (local(position=ONE[:1], lengths=LENGTHS[:1]), "position|(1,)"),
    ],
    "scaled_dot_product": [
        (lambda: F.scaled_dot_product(HEADS, ones(4, 2, 5, 3)), "key|(4, 2, 5, 3)"),
        (lambda: F.scaled_dot_product(HEADS, HEADS[0]), "key|(2, 5, 4)"),
    ],
    "relative_bias": [
        (lambda: F.relative_bias(ones(2, 4), *2 * [LENGTHS]), "table|2 K + 1|(2, 4)"),
        (lambda: F.relative_bias(ones(3), *2 * [LENGTHS]), "table|(3,)"),
        (lambda: F.relative_bias(INTS, *2 * [LENGTHS]), "table|int32", TypeError),
        (lambda: F.relative_bias(FLOATS, LENGTHS[None], LENGTHS), "queries|(1, 2)"),
        (lambda: F.relative_bias(FLOATS, LENGTHS, ONE), "keys|float32", TypeError),
        (lambda: F.relative_bias(FLOATS, TOO_BIG[None], LENGTHS), "queries|int32|4294967297"),
    ],
    "compact_attention_pool": [
        (compact(capacity=0), "capacity|0"),
        (compact(capacity=-1), "capacity|-1"),
        (compact(capacity=2.0), "capacity|float", TypeError),
        (compact(capacity=True), "capacity|bool", TypeError),
        (compact(overflow="drop"), "overflow|'drop'"),
        (compact(mask=BOOLS[:1, :2]), "mask|(1, 2)"),
        (compact(lambda h: h), "score_fn"),
        (compact(lambda h: jnp.sum(h, -1).astype(jnp.int32)), "scores|int32", TypeError),
    ],
    "open_indices": [
        (lambda: open_indices(FLOATS, capacity=0), "capacity|0"),
        (lambda: open_indices(FLOATS, capacity=1.5), "capacity|float", TypeError),
        (
            lambda: jax.jit(open_indices)(FLOATS, capacity=2),
            "capacity|known while tracing",
            TypeError,
        ),
        (lambda: open_indices(np.float32(1), capacity=1), "gates|axis"),
        (
            lambda: open_indices(ones(2, 3, kind=np.complex64), capacity=1),
            "gates|complex64",
            TypeError,
        ),
    ],
    "plan_capacity": [
        (lambda: F.plan_capacity([]), "open_counts"),
        (lambda: F.plan_capacity([-1]), "open_counts|-1"),
        (lambda: F.plan_capacity([np.nan]), "open_counts|nan"),
        *((lambda q=q: F.plan_capacity([1], q), f"quantile|[0, 1]|{q}") for q in (-0.1, 1.1)),
        (lambda: F.plan_capacity([1], multiple=0), "multiple|0"),
    ],
    "linear_cross_entropy": [
        (likelihood(states=ones(6, 4, kind=np.int32)), "states|int32", TypeError),
        (likelihood(kernel=ones(4, 7, kind=np.int32)), "kernel|int32", TypeError),
        (likelihood(bias=ones(7, kind=bool)), "bias|bool", TypeError),
        (likelihood(targets=ones(6)), "targets|integers|float32", TypeError),
        (likelihood(targets=ones(6, kind=bool)), "targets|integers|bool", TypeError),
        (likelihood(states=ones()), "states [..., H]|(4, 7)|()"),
        (likelihood(states=ones(6, 5)), "kernel|[H, V]|(6, 5)"),
        (likelihood(kernel=ones(4)), "kernel|[H, V]|(4,)"),
        (likelihood(kernel=ones(4, 0)), "kernel|one class|(4, 0)"),
        (likelihood(bias=ones(1, 7)), "bias|(7,)|(1, 7)"),
        (likelihood(targets=ones(6, 1, kind=int)), "targets|(6,)|(6, 1)"),
        (likelihood(targets=np.full(6, TOO_BIG)), "targets|int32|4294967297"),
        (
            likelihood(targets=np.full(6, TOO_BIG), mask=np.arange(6) > 0),
            "targets|int32|4294967297",
        ),
    ],
    "gated_attention": [
        (lambda: F.gated_attention(XS, XS, gating="add"), "gating|'add'"),
        (lambda: F.gated_attention(XS, STEPS), "query|(4, 5, 4)"),
        (lambda: F.gated_attention(XS, X[:3]), "query|(3, 3)"),
        (lambda: F.gated_attention(X[0], X), "document|(3,)"),
        (lambda: F.gated_attention(XS, X, SEGMENTS), "query_mask|None|(4, 5)"),
    ],
    "pointer_sum": [
        (
            lambda: F.pointer_sum(FLOATS, ones(2, 3, 2, kind=bool), aggregation="sum"),
            "aggregation|'sum'",
        ),
        (change("pointer_sum", occurrence=BOOLS), "occurrence|(2, 3)"),
        (change("pointer_sum", logits=np.float32(1)), "logits|()"),
        (change("pointer_sum_indexed", positions=INTS), "positions|(2, 3)"),
        (
            change("pointer_sum_indexed", positions=np.full((4, 3, 2), TOO_BIG)),
            "positions|int32|4294967297",
        ),
    ],
    "selection_vectors": [
        (select(words=X[0]), "words|(3,)"),
        (select(vectors=ONE), "vectors|[L, A]|(2,)"),
        (select(kernels=ones(3, 3, 3)), "kernels|(2, 3, 3)|(3, 3, 3)"),
        (select(kernels=ones(2, 5, 3)), "kernels|(2, 3, 3)|(2, 5, 3)"),
        (select(keys=XS[:, :2]), "keys|(4, 2, 3)"),
        (select(keys=XS.astype(int)), "keys|int32", TypeError),
        (select(kernels=ones(2, 3, 3, kind=int)), "kernels|int32", TypeError),
        (select(vectors=INTS), "vectors|int32", TypeError),
    ],
    "stacks": [
        (stack(input=ones(3, 1)), "input|(2, 3, 6)|(3, 1)"),
        (stack(recurrent=ones(3, 1)), "recurrent|(2, 3, 3)|(3, 1)"),
        (stack(bias=ones(3, 1)), "bias|(2, 6)|(3, 1)"),
        (stack(bias=ones(2, 6, kind=int)), "bias|int32", TypeError),
        (stack(ones(3)), "selected|[..., L, D]|(3,)"),
        (stack(ones(2, 0, 3)), "selected|1|(2, 0, 3)"),
        (
            change("highway_stack", F.HighwayWeights(ones(3, 3, 6), ones(2, 6))),
            "bias|(3, 6)|(2, 6)",
        ),
        (lambda: F.highway_stack(FLOATS, F.HighwayWeights(FLOATS, INTS)), "bias|int32", TypeError),
        (change("highway_stack", inputs=ones()), "inputs|[..., D]|()"),
    ],
    "selective_attention": [
        (selective(gates=ones(4, 5, 5)), "gates|(4, 5, 5)"),
        (selective(gates=ones(4, 2, 5, 6)), "gates|(4, 2, 5, 6)"),
        (selective(key=ones(4, 2, 5, 3)), "key|(4, 2, 5, 3)"),
        (selective(value=ones(4, 2, 6, 4)), "value|(4, 2, 6, 4)"),
        (selective(query=ones(4)), "query|(4,)"),
        (selective(mask=ones(4, 6, kind=bool)), "mask|(4, 1, 6)"),
        (selective(empty="none"), "empty|'none'"),
        (selective(cap=-1.0), "cap|-1.0"),
        (selective(eps=-1.0), "eps|-1.0"),
        (lambda: F.selective_weights(FLOATS, FLOATS, empty="self"), "positions|(2, 3)"),
        (
            lambda: F.relaxed_selective_attention(HEADS, HEADS, HEADS, -ones(4, 5, 5)),
            "log_gates|(4, 5, 5)",
        ),
        (lambda: F.source_to_token(FLOATS, ones(2, 4)), "states|logits|(2, 3)|(2, 4)"),
    ],
    "selections": [
        (lambda: F.uniform_sigmoid(FLOATS, ones(2, 4)), "uniform (2, 4)"),
        (lambda: F.uniform_sigmoid(FLOATS, FLOATS, temperature=0.0), "temperature|0.0"),
        (lambda: F.uniform_sigmoid(FLOATS, FLOATS, temperature=-1), "temperature|-1"),
        (lambda: F.selection_counts(ones(4, 5, 5)), "[B, M, Q, N]|(4, 5, 5)"),
        (lambda: F.selection_statistics(ones(4, 5)), "[B, M, N]|(4, 5)"),
        (change("mean_over_pairs", num_keys=ones(4, 1, 4)), "num_keys|(4, 2, 5)|(4, 1, 4)"),
    ],
    "relaxations": [
        row
        for relax in (F.gumbel_sigmoid, F.log_gumbel_sigmoid, F.gumbel_softmax)
        for row in (
            (lambda relax=relax: relax(FLOATS, ONE), "logits (2, 3)|noise (2,)"),
            *(
                (
                    lambda relax=relax, tau=tau: relax(FLOATS, FLOATS, temperature=tau),
                    f"temperature|{tau}",
                )
                for tau in (0.0, -1.0, np.nan, np.inf, np.float32([1, 0, 1]))
            ),
        )
    ],
    "gates": [
        (lambda: F.gumbel_softmax(FLOATS, FLOATS, axis=2), "axis|2"),
        (lambda: F.sample_gates(INTS, key=KEYS[0]), "logits|int32", TypeError),
        (lambda: F.ensure_open(FLOATS, FLOATS[:1], BOOLS), "logits (1, 3)"),
        (lambda: F.ensure_open(FLOATS, FLOATS, BOOLS[0]), "mask (3,)"),
        (lambda: F.hard_gates(FLOATS, BOOLS[0]), "mask (3,)"),
        (lambda: F.hard_gates(FLOATS, BOOLS, empty="zeros"), "empty|'max_gate'|'zeros'"),
        (lambda: F.score_function_loss(ONE, ones(3)), "reward (3,)"),
        # (2, 1) against (2,) would quietly make a 2 x 2 loss.
        (lambda: F.score_function_loss(ONE, ONE, ONE[:, None]), "baseline (2, 1)"),
        (lambda: F.score_function_loss(ONE, ONE, ones(3)), "baseline (3,)"),
        (lambda: hard_top_k(FLOATS, np.full((2, 1), TOO_BIG)), "k|int32|4294967297"),
    ],
    "example_dropout": [
        (lambda rate=rate: F.example_dropout(FLOATS, rate, KEYS), f"rate|[0, 1)|{rate}")
        for rate in (-0.1, 1.0, 1.5, np.nan)
    ],
    "recurrent_bias": [
        (change("gru", BIASED), "recurrent_bias|None|reset_after=True|(4,)"),
        (rau("feature_proj", CALLS["rau feature_proj"].shared), "recurrent_bias|None"),
    ],
    "gradient_clip": [
        (change("gru", gradient_clip=0.0), "gradient_clip|0.0"),
        (lambda: F.gru_step(GRU, H, X, gradient_clip=-1.0), "gradient_clip|-1.0"),
        *((lambda b=b: F.clip_gradient(X, b), f"bound|{b}") for b in (-1.0, np.nan, np.inf)),
    ],
    "lengths": [
        row
        for name in ("lstm of lengths", "bidirectional")
        for row in (
            (change(name, mask=SEGMENTS, lengths=np.array([5, 2, 0, 1])), "mask|lengths"),
            (change(name, mask=None, lengths=ones(4)), "lengths|integers|float32", TypeError),
            (change(name, mask=None, lengths=ones(5, kind=int)), "lengths|(4,)|(5,)"),
        )
    ],
    "resets": [
        (change("gru", resets=[[True]]), "resets|bool|list", TypeError),
        (change("gru", mask=None, lengths=[5, 5, 4, 1]), "lengths|integers|list", TypeError),
        (change("gru", resets=SEGMENTS[0]), "resets|(4, 5)|(5,)"),
        (change("gru", reset_to=X), "reset_to|(4, 4)|(4, 3)"),
        (change("gru", resets=SEGMENTS, reset_to=X), "reset_to|(4, 4)|(4, 3)"),
    ],
    "rau": [
        (rau("time"), "attention|causal|'time'|'time_causal'"),
        (rau("other"), "attention|time_causal|'other'"),
        (rau("sigmoid", rescale=True), "rescale|False|'sigmoid'"),
        (rau("feature_proj", rescale=np.inf), "rescale|True|False|inf", TypeError),
        (rau("feature_proj", reset_after=1), "reset_after|True|False|1", TypeError),
        (rau("concat"), "weights|RAUConcatWeights|RAUWeights", TypeError),
        (rau("time_causal"), "weights|RAUHiddenWeights|RAUWeights", TypeError),
        (of_form("concat", value=H), "value|(7, 4)|(4, 4)"),
        (of_form("concat", score=H), "score|(7, 7)|(4, 4)"),
        (of_form("time_causal", hidden=H), "hidden|(7, 4)|(4, 4)"),
        (of_form("time_causal", hidden=ones()), "hidden|()"),
        (of_form("time_causal", score=ones(2, 4)), "score|(2, 1)|(2, 4)"),
        (
            lambda: F.rau(RAU._replace(recurrent=ones(0, 0), input=ones(3, 0), bias=ones(0)), XS),
            "recurrent|1|0",
        ),
    ],
    "carries": [
        (change("lstm", initial=H), "initial|LSTMState|ndarray", TypeError),
        (change("lstm_step", carry=H), "carry|LSTMState", TypeError),
        (change("gru", initial=STATE), "initial|array|LSTMState", TypeError),
        (change("gru_step", hidden=STATE), "hidden|array|LSTMState", TypeError),
        (change("lstm_step", carry=F.LSTMState(H[:3], H)), "hidden|(4, 4)|(3, 4)"),
        (rau("sigmoid", initial=STATE), "initial|array|LSTMState", TypeError),
        (rau("sigmoid", initial=TIME_STATE), "initial|array|RAUTimeState", TypeError),
        (rau("time_causal", TIMED, initial=H), "initial|RAUTimeState", TypeError),
        (
            rau("time_causal", TIMED, initial=TIME_STATE._replace(log_norm=H)),
            "initial.log_norm|(4, 1)|(4, 4)",
        ),
    ],
    "masked_scan": [
        (scan(xs={}), "xs|array"),
        (scan(xs=H[0]), "xs|[B, T, ...]|(4,)"),
        (scan(xs=(STEPS, H)), "xs|[B, T]|(4, 5)|(4, 4)"),
        (scan(initial=0.0), "initial|4|()"),
        (scan(reset_to=H[:, :1]), "reset_to|(4, 4)|(4, 1)"),
        (scan(resets=SEGMENTS, reset_to=(H,)), "reset_to|structure", TypeError),
        (scan(lambda h, x: h), "step|(carry, output)", TypeError),
        (scan(lambda h, x: (h[:, :1], x)), "step|carry|(4, 4)|(4, 1)"),
        (scan(lambda h, x: (h.astype("bfloat16"), x)), "step|float32|bfloat16", TypeError),
        (scan(lambda h, x: (h, h[0, :3])), "output|step|4|(3,)"),
        (scan(lambda h, x: (h, (x, h[:1]))), "output|step|4|(1, 4)"),
        (scan(lambda h, x: (h, 1.0)), "output|step|4|()"),
        (scan(lambda h, x: ((h, h), x)), "step|carry|structure", TypeError),
    ],
}
# what only values show is refused where they are known
VALUES = {
    "linear_cross_entropy": [
        (likelihood(targets=np.full(6, -100)), "targets|[0, 7)|-100|mask"),
        (likelihood(targets=np.full(6, 7)), "targets|[0, 7)|7|mask"),
    ],
    "selective_attention": [
        (
            selective(gates=-ones(4, 2, 5, 5), hard=False),
            "gates|-1.0|`relaxed_selective_attention`",
        ),
        (
            lambda: F.selective_weights(FLOATS, 0.25 * FLOATS, hard=True),
            "gates|0 or 1|0.25|hard=False",
        ),
        (lambda: F.selective_weights(FLOATS, -FLOATS, hard=True), "gates|-1.0"),
        (
            lambda: F.relaxed_selective_attention(HEADS, HEADS, HEADS, ones(4, 2, 5, 5)),
            "log_gates|1.0|`selective_attention`",
        ),
    ],
    "lengths": [
        (change(name, mask=None, lengths=np.array([5, wrong, 0, 4])), f"[0, 5]|{wrong}")
        for name in ("lstm of lengths", "gru", "rau sigmoid", "bidirectional", "masked_scan")
        for wrong in (6, -1)
    ],
}


def each_cell():
    """Every recurrence with one argument changed, and its steps."""
    blocks = {"lstm": 4, "gru": 3, "rau sigmoid": 5, "gru reset after": 3, "rau feature_proj": 5}
    for name, count in blocks.items():
        weights, size, kind = CALLS[name].shared, 4 * count, type(CALLS[name].shared).__name__
        step = {"lstm": F.lstm_step, "gru": F.gru_step}.get(name.split()[0], F.rau_step)
        start = STATE if name == "lstm" else H
        after = {"reset_after": True} if weights._asdict().get("recurrent_bias") is not None else {}
        step = functools.partial(step, weights, start, **after)
        yield change(name, tuple(weights)), f"weights|{kind}|tuple", TypeError
        yield change(name, xs=XS[0]), "xs|3|[B T D]|(5, 3)"
        yield change(name, xs=STEPS), "xs|D = 3|weights.input|4"
        for field, wanted, given in (
            ("input", (3, size), (3, 4)),
            ("recurrent", (4, size), (4, 4)),
            ("bias", (size,), (5,)),
        ):
            changed = weights._replace(**{field: ones(*given)})
            yield change(name, changed), f"{field}|{wanted}|{given}"
        yield change(name, weights._replace(recurrent=ones(4))), "recurrent|2|(4,)"
        yield change(name, mask=SEGMENTS.T), "mask|(4, 5)|(5, 4)"
        dropout = "recurrent_dropout_mask"
        yield change(name, **{dropout: STEPS}), f"{dropout}|(4, 4)|(4, 5, 4)"
        yield functools.partial(step, H), "x|D = 3|4|(4, 4)"
        yield functools.partial(step, XS), "x|2|[B D]|(4, 5, 3)"
    yield change("gru", LSTM), "weights|GRUWeights|LSTMWeights", TypeError
    yield lambda: F.lstm_step(tuple(LSTM), STATE, X), "weights|LSTMWeights|tuple", TypeError
    yield lambda: F.rau_attention(tuple(RAU), XS), "weights|RAUWeights|tuple", TypeError


# Arrays of the calls that set sizes or are no arguments, that may be integers, and whose number of
# rows is free or is told by the name of another argument.
NOT_ARGUMENTS = {
    *("feature_bytes mask", "pair_bytes mask", "pair_uniform mask", "example_noise mask"),
    *("relative_bias scores", "length_mask scores", "sinusoids ids", "linear_cross_entropy h"),
    *("linear_cross_entropy y", "skip_lstm xs", "masked_scan xs"),
    *(f"{name} ids" for name in CALLS if "ids" in CALLS[name].rows),
}
ANY_NUMBER = {
    *("byte_dropout inputs", "compact_attention_pool gates", "open_indices gates"),
    *("ensure_open gates", "score_function_loss log_prob", "score_function_loss reward"),
    *("score_function_loss baseline", "skip_lstm gates", "append_to_cache value"),
    *("mean_over_pairs sums", "mean_over_pairs num_keys"),
}
ANY_ROWS = {
    *("append_to_cache value", "example_dropout inputs", "highway_mix carry"),
    *("highway_mix gate", "mean_over_pairs num_keys"),
    *(f"{name} {array}" for name in CALLS for array in ("key", "mask", "pair_mask")
      if "selective_attention" in name),
}  # fmt: skip


def each_array():
    """Every array of every call in another kind of dtype, and all but the first with fewer rows."""
    for name, call in CALLS.items():
        for place, (argument, array) in enumerate(call.rows.items()):
            key = f"{name} {argument}"
            if key in NOT_ARGUMENTS or isinstance(array, tuple):
                continue
            if key not in ANY_NUMBER:
                other = np.dtype(np.int32 if array.dtype == np.float32 else np.float32)
                yield (
                    change(name, **{argument: array.astype(other)}),
                    f"{argument}|{other}",
                    TypeError,
                )
            if place and key not in ANY_ROWS:
                fewer = array[: len(array) - 1]
                yield change(name, **{argument: fewer}), f"{argument}|{fewer.shape}"


@each_row({"array": list(each_array())})
def test_an_array_of_another_dtype_or_another_number_of_rows_is_refused_by_name(call, parts, error):
    refused(lambda: jax.eval_shape(call), parts, error)


@each_row(TABLE | {"cell": list(each_cell())})
def test_bad_input_is_refused_by_name(call, parts, error):
    refused(call, parts, error)
    refused(lambda: jax.eval_shape(call), parts, error)


@each_row(VALUES)
def test_bad_values_are_refused_where_they_are_known(call, parts, error):
    refused(call, parts, error)
