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


def local(scores=FLOATS, position=ONE, half_width=2.0, lengths=LENGTHS):
    return lambda: F.local_attention_weights(scores, position, half_width, lengths)


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


def rau(attention, weights=RAU, xs=XS, **options):
    return lambda: F.rau(weights, xs, attention=attention, **options)


def of_form(attention, **fields):
    weights = CALLS[f"rau {attention}"].shared._replace(**fields)
    return rau(attention, weights)


TABLE = {
    "length_mask": [
        (lambda: F.length_mask(ONE, 3), TypeError, "lengths|float32"),
        (lambda: F.length_mask(LENGTHS, 3.0), TypeError, "size|float"),
        (lambda: F.length_mask(LENGTHS, -1), ValueError, "size|-1"),
        (lambda: F.length_mask(np.array([2, 4]), 3), ValueError, "lengths|[0, 3]|4"),
        (lambda: F.length_mask(np.array([2, -1]), 3), ValueError, "lengths|[0, 3]|-1"),
        (lambda: F.length_mask([2, 4], 3), ValueError, "lengths|4"),
        (lambda: F.length_mask(TOO_BIG, 3), ValueError, "lengths|int32|4294967297"),
        (lambda: F.length_mask(np.array([200], np.uint8), 3), ValueError, "lengths|200"),
    ],
    "masked_softmax": [
        (lambda: F.masked_softmax(INTS), TypeError, "scores|int32"),
        (lambda: F.masked_softmax(FLOATS, INTS), TypeError, "mask|bool|int32"),
        (lambda: F.masked_softmax(FLOATS, FLOATS), TypeError, "mask|bool|float32"),
        (lambda: F.masked_softmax(FLOATS, BOOLS[:, :2]), ValueError, "mask|(2, 3)|(2, 2)"),
        (lambda: F.masked_softmax(FLOATS, BOOLS[0]), ValueError, "mask|(2, 3)|(3,)"),
        (lambda: F.masked_softmax(FLOATS, axis=2), ValueError, "axis|2"),
    ],
    "gated_softmax": [
        (lambda: F.gated_softmax(INTS, FLOATS), TypeError, "scores|int32"),
        (lambda: F.gated_softmax(FLOATS, INTS), TypeError, "gates|int32"),
        (lambda: F.gated_softmax(FLOATS, BOOLS), TypeError, "gates|bool"),
        (lambda: F.gated_softmax(FLOATS, FLOATS[:1]), ValueError, "gates (1, 3)"),
        (lambda: F.gated_softmax(FLOATS, FLOATS, INTS), TypeError, "mask|bool|int32"),
        (lambda: F.gated_softmax(FLOATS, FLOATS, BOOLS[:, :2]), ValueError, "mask|(2, 2)"),
        (lambda: F.gated_softmax(FLOATS, FLOATS, axis=-3), ValueError, "axis|-3"),
        (lambda: F.gated_softmax(FLOATS, -FLOATS), ValueError, "gates|-1.0|relaxed_gated_softmax"),
    ],
    "relaxed_gated_softmax": [
        (lambda: F.relaxed_gated_softmax(INTS, FLOATS), TypeError, "scores|int32"),
        (lambda: F.relaxed_gated_softmax(FLOATS, INTS), TypeError, "log_gates|int32"),
        (lambda: F.relaxed_gated_softmax(FLOATS, FLOATS[0]), ValueError, "log_gates (3,)"),
        (lambda: F.relaxed_gated_softmax(FLOATS, -FLOATS, FLOATS), TypeError, "mask|bool"),
        (lambda: F.relaxed_gated_softmax(FLOATS, -FLOATS, axis=5), ValueError, "axis|5"),
        (
            lambda: F.relaxed_gated_softmax(FLOATS, FLOATS),
            ValueError,
            "log_gates|1.0|`gated_softmax`",
        ),
    ],
    "attention_pool": [
        (lambda: F.attention_pool(XS[:2, :3], INTS), TypeError, "weights|int32"),
        (lambda: F.attention_pool(INTS[..., None], FLOATS), TypeError, "states|int32"),
        (lambda: F.attention_pool(XS[:2], FLOATS), ValueError, "weights|(2, 5)|(2, 3)"),
        (lambda: F.attention_pool(XS[:2], FLOATS[0]), ValueError, "weights|(3,)"),
    ],
    "local_attention_weights": [
        (local(scores=INTS), TypeError, "scores|int32"),
        (local(position=LENGTHS), TypeError, "position|int32"),
        (local(lengths=ONE), TypeError, "lengths|float32"),
        (local(half_width=0.0), ValueError, "half_width|0.0"),
        (local(half_width=np.nan), ValueError, "half_width|nan"),
        (local(half_width=FLOATS[0]), ValueError, "half_width|()|(3,)"),
        (local(lengths=LENGTHS[:1]), ValueError, "lengths (1,)"),
        (local(lengths=np.full(2, TOO_BIG)), ValueError, "lengths|int32|4294967297"),
        (local(position=ONE[:1], lengths=LENGTHS[:1]), ValueError, "position|(1,)"),
    ],
    "scaled_dot_product": [
        (lambda: F.scaled_dot_product(HEADS, ones(4, 2, 5, 3)), ValueError, "key|(4, 2, 5, 3)"),
        (lambda: F.scaled_dot_product(HEADS, HEADS[:2]), ValueError, "key|(2, 2, 5, 4)"),
        (lambda: F.scaled_dot_product(HEADS, HEADS[0]), ValueError, "key|(2, 5, 4)"),
        (lambda: F.scaled_dot_product(HEADS, HEADS.astype(int)), TypeError, "key|int32"),
    ],
    "relative_bias": [
        (lambda: F.relative_bias(ones(2, 4), *2 * [LENGTHS]), ValueError, "table|2 K + 1|(2, 4)"),
        (lambda: F.relative_bias(ones(3), *2 * [LENGTHS]), ValueError, "table|(3,)"),
        (lambda: F.relative_bias(INTS, *2 * [LENGTHS]), TypeError, "table|int32"),
        (lambda: F.relative_bias(FLOATS, LENGTHS[None], LENGTHS), ValueError, "queries|(1, 2)"),
        (lambda: F.relative_bias(FLOATS, LENGTHS, ONE), TypeError, "keys|float32"),
        (
            lambda: F.relative_bias(FLOATS, TOO_BIG[None], LENGTHS),
            ValueError,
            "queries|int32|4294967297",
        ),
    ],
    "compact_attention_pool": [
        (compact(capacity=0), ValueError, "capacity|0"),
        (compact(capacity=-1), ValueError, "capacity|-1"),
        (compact(capacity=2.0), TypeError, "capacity|float"),
        (compact(capacity=True), TypeError, "capacity|bool"),
        (compact(overflow="drop"), ValueError, "overflow|'drop'"),
        (compact(gates=FLOATS[:, :2]), ValueError, "gates|(2, 3)|(2, 2)"),
        (compact(states=STEPS[:2, :3].astype(np.int32)), TypeError, "states|int32"),
        (compact(mask=FLOATS), TypeError, "mask|float32"),
        (compact(mask=BOOLS[:1, :2]), ValueError, "mask|(1, 2)"),
        (compact(lambda h: h), ValueError, "score_fn"),
        (compact(lambda h: jnp.sum(h, -1).astype(jnp.int32)), TypeError, "scores|int32"),
    ],
    "open_indices": [
        (lambda: open_indices(FLOATS, 0), ValueError, "capacity|0"),
        (lambda: open_indices(FLOATS, 1.5), TypeError, "capacity|float"),
        (lambda: jax.jit(open_indices)(FLOATS, 2), TypeError, "capacity|known while tracing"),
        (lambda: open_indices(np.float32(1), 1), ValueError, "gates|scalar"),
        (lambda: open_indices(ones(2, 3, kind=np.complex64), 1), TypeError, "gates|complex64"),
    ],
    "plan_capacity": [
        (lambda: F.plan_capacity([]), ValueError, "open_counts"),
        (lambda: F.plan_capacity([-1]), ValueError, "open_counts|-1"),
        (lambda: F.plan_capacity([np.nan]), ValueError, "open_counts|nan"),
        (lambda: F.plan_capacity([1], quantile=1.1), ValueError, "quantile|1.1"),
        (lambda: F.plan_capacity([1], multiple=0), ValueError, "multiple|0"),
    ],
    "linear_cross_entropy": [
        (likelihood(states=ones(6, 4, kind=np.int32)), TypeError, "states|int32"),
        (likelihood(kernel=ones(4, 7, kind=np.int32)), TypeError, "kernel|int32"),
        (likelihood(bias=ones(7, kind=bool)), TypeError, "bias|bool"),
        (likelihood(targets=ones(6)), TypeError, "targets|integers|float32"),
        (likelihood(targets=ones(6, kind=bool)), TypeError, "targets|integers|bool"),
        (likelihood(states=ones()), ValueError, "states [..., H]|(4, 7)|()"),
        (likelihood(states=ones(6, 5)), ValueError, "kernel|[H, V]|(6, 5)"),
        (likelihood(kernel=ones(4)), ValueError, "kernel|[H, V]|(4,)"),
        (likelihood(kernel=ones(4, 0)), ValueError, "kernel|one class|(4, 0)"),
        (likelihood(bias=ones(1, 7)), ValueError, "bias|(7,)|(1, 7)"),
        (likelihood(mask=ones(6)), TypeError, "mask|bool|float32"),
        (likelihood(targets=ones(6, 1, kind=int)), ValueError, "targets|(6,)|(6, 1)"),
        (likelihood(targets=np.full(6, TOO_BIG)), ValueError, "targets|int32|4294967297"),
        (
            likelihood(targets=np.full(6, TOO_BIG), mask=np.arange(6) > 0),
            ValueError,
            "targets|int32|4294967297",
        ),
    ],
    "gated_attention": [
        (lambda: F.gated_attention(XS, XS, gating="add"), ValueError, "gating|'add'"),
        (lambda: F.gated_attention(XS, STEPS), ValueError, "query|(4, 5, 4)"),
        (lambda: F.gated_attention(XS, XS[:3]), ValueError, "query|(3, 5, 3)"),
        (lambda: F.gated_attention(XS, X[:3]), ValueError, "query|(3, 3)"),
        (lambda: F.gated_attention(X[0], X), ValueError, "document|(3,)"),
        (lambda: F.gated_attention(XS, XS.astype(int)), TypeError, "query|int32"),
        (lambda: F.gated_attention(XS, XS, XS[..., 0]), TypeError, "query_mask|bool|float32"),
        (lambda: F.gated_attention(XS, X, SEGMENTS), ValueError, "query_mask|None|(4, 5)"),
        (lambda: F.gated_attention(XS, XS, SEGMENTS[:, :2]), ValueError, "query_mask|(4, 2)"),
    ],
    "pointer_sum": [
        (
            lambda: F.pointer_sum(FLOATS, ones(2, 3, 2, kind=bool), aggregation="sum"),
            ValueError,
            "aggregation|'sum'",
        ),
        (change("pointer_sum", occurrence=ones(4, 5, 3)), TypeError, "occurrence|bool|float32"),
        (change("pointer_sum", occurrence=BOOLS), ValueError, "occurrence|(2, 3)"),
        (change("pointer_sum", logits=ones(4, 5, kind=int)), TypeError, "logits|int32"),
        (change("pointer_sum", logits=np.float32(1)), ValueError, "logits|()"),
        (change("pointer_sum", document_mask=BOOLS), ValueError, "document_mask|(2, 3)"),
        (change("pointer_sum", candidate_mask=X), TypeError, "candidate_mask|float32"),
        (change("pointer_sum_indexed", positions=XS), TypeError, "positions|float32"),
        (change("pointer_sum_indexed", positions=INTS), ValueError, "positions|(2, 3)"),
        (change("pointer_sum_indexed", document_mask=X), TypeError, "document_mask|float32"),
        (
            change("pointer_sum_indexed", positions=np.full((4, 3, 2), TOO_BIG)),
            ValueError,
            "positions|int32|4294967297",
        ),
    ],
    "selection_vectors": [
        (select(words=X[0]), ValueError, "words|(3,)"),
        (select(words=XS.astype(int)), TypeError, "words|int32"),
        (select(vectors=ONE), ValueError, "vectors|[L, A]|(2,)"),
        (select(kernels=ones(3, 3, 3)), ValueError, "kernels|(2, 3, 3)|(3, 3, 3)"),
        (select(kernels=ones(2, 5, 3)), ValueError, "kernels|(2, 3, 3)|(2, 5, 3)"),
        (select(mask=XS[..., 0]), TypeError, "mask|bool|float32"),
        (select(mask=SEGMENTS[:, :2]), ValueError, "mask|(4, 5)|(4, 2)"),
        (select(keys=XS[:, :2]), ValueError, "keys|(4, 2, 3)"),
        (select(keys=XS.astype(int)), TypeError, "keys|int32"),
    ],
    "stacks": [
        (stack(input=ones(3, 1)), ValueError, "input|(2, 3, 6)|(3, 1)"),
        (stack(recurrent=ones(3, 1)), ValueError, "recurrent|(2, 3, 3)|(3, 1)"),
        (stack(bias=ones(3, 1)), ValueError, "bias|(2, 6)|(3, 1)"),
        (stack(ones(3)), ValueError, "selected|[..., L, D]|(3,)"),
        (stack(ones(2, 0, 3)), ValueError, "selected|1|(2, 0, 3)"),
        (stack(ones(2, 3, 3, kind=int)), TypeError, "selected|int32"),
        (
            change("highway_stack", F.HighwayWeights(ones(3, 3, 6), ones(2, 6))),
            ValueError,
            "bias|(3, 6)|(2, 6)",
        ),
        (change("highway_stack", inputs=ones()), ValueError, "inputs|[..., D]|()"),
        (change("highway_mix", gate=INTS), TypeError, "gate|int32"),
    ],
    "selective_attention": [
        (selective(gates=ones(4, 5, 5)), ValueError, "gates|(4, 5, 5)"),
        (selective(gates=ones(4, 2, 5, 6)), ValueError, "gates|(4, 2, 5, 6)"),
        (selective(gates=ones(1, 1, 1, 1, kind=int)), TypeError, "gates|int32"),
        (selective(key=ones(4, 2, 5, 3)), ValueError, "key|(4, 2, 5, 3)"),
        (selective(value=ones(4, 2, 6, 4)), ValueError, "value|(4, 2, 6, 4)"),
        (selective(query=ones(4)), ValueError, "query|(4,)"),
        (selective(mask=ones(4, 6, kind=bool)), ValueError, "mask|(4, 1, 6)"),
        (selective(mask=ones(4, 5)), TypeError, "mask|float32"),
        (selective(empty="none"), ValueError, "empty|'none'"),
        (selective(cap=-1.0), ValueError, "cap|-1.0"),
        (selective(eps=-1.0), ValueError, "eps|-1.0"),
        (lambda: F.selective_weights(FLOATS, FLOATS, empty="self"), ValueError, "positions|(2, 3)"),
        (
            lambda: F.relaxed_selective_attention(HEADS, HEADS, HEADS, -ones(4, 5, 5)),
            ValueError,
            "log_gates|(4, 5, 5)",
        ),
        (lambda: F.source_to_token(FLOATS, ones(2, 4)), ValueError, "states|logits|(2, 3)|(2, 4)"),
    ],
    "selections": [
        (lambda: F.uniform_sigmoid(FLOATS, ones(2, 4)), ValueError, "uniform (2, 4)"),
        (lambda: F.uniform_sigmoid(FLOATS, FLOATS, temperature=0.0), ValueError, "temperature|0.0"),
        (lambda: F.uniform_sigmoid(FLOATS, FLOATS, temperature=-1), ValueError, "temperature|-1"),
        (lambda: F.selection_counts(ones(4, 2, 5, 5, kind=int)), TypeError, "gates|int32"),
        (lambda: F.selection_counts(ones(4, 5, 5)), ValueError, "[B, M, Q, N]|(4, 5, 5)"),
        (lambda: F.selection_statistics(ones(4, 5)), ValueError, "[B, M, N]|(4, 5)"),
        (lambda: F.selection_counts(HEADS, ones(4, 4)), TypeError, "mask|float32"),
    ],
    "relaxations": [
        row
        for relax in (F.gumbel_sigmoid, F.log_gumbel_sigmoid, F.gumbel_softmax)
        for row in (
            (lambda relax=relax: relax(INTS, FLOATS), TypeError, "logits|int32"),
            (lambda relax=relax: relax(FLOATS, INTS), TypeError, "noise|int32"),
            (lambda relax=relax: relax(FLOATS, ONE), ValueError, "logits (2, 3)|noise (2,)"),
            *(
                (
                    lambda relax=relax, tau=tau: relax(FLOATS, FLOATS, temperature=tau),
                    ValueError,
                    f"temperature|{tau}",
                )
                for tau in (0.0, -1.0, np.nan, np.inf)
            ),
        )
    ],
    "gates": [
        (lambda: F.gumbel_softmax(FLOATS, FLOATS, axis=2), ValueError, "axis|2"),
        (lambda: F.sample_gates(INTS, KEYS[0]), TypeError, "logits|int32"),
        (lambda: F.threshold_gates(INTS), TypeError, "logits|int32"),
        (lambda: F.ensure_open(FLOATS, FLOATS, INTS), TypeError, "mask|bool|int32"),
        (lambda: F.ensure_open(FLOATS, FLOATS[:1], BOOLS), ValueError, "logits (1, 3)"),
        (lambda: F.ensure_open(FLOATS, FLOATS, BOOLS[0]), ValueError, "mask (3,)"),
        (lambda: F.hard_gates(INTS, BOOLS), TypeError, "logits|int32"),
        (lambda: F.hard_gates(FLOATS, FLOATS), TypeError, "mask|bool|float32"),
        (lambda: F.hard_gates(FLOATS, BOOLS[0]), ValueError, "mask (3,)"),
        (
            lambda: F.hard_gates(FLOATS, BOOLS, empty="zeros"),
            ValueError,
            "empty|'max_gate'|'zeros'",
        ),
        (lambda: F.gate_penalty(INTS), TypeError, "gates|int32"),
        (lambda: F.gate_penalty(FLOATS, FLOATS), TypeError, "mask|bool|float32"),
        (lambda: F.gate_penalty(FLOATS, BOOLS[:, :2]), ValueError, "mask (2, 2)"),
        (lambda: F.score_function_loss(ONE, ones(3)), ValueError, "reward (3,)"),
        # (2, 1) against (2,) would quietly make a 2 x 2 loss.
        (lambda: F.score_function_loss(ONE, ONE, ONE[:, None]), ValueError, "baseline (2, 1)"),
        (lambda: F.score_function_loss(ONE, ONE, ones(3)), ValueError, "baseline (3,)"),
        (lambda: hard_top_k(FLOATS, np.full((2, 1), TOO_BIG)), ValueError, "k|int32|4294967297"),
    ],
    "example_dropout": [
        (lambda rate=rate: F.example_dropout(FLOATS, rate, KEYS), ValueError, f"rate|[0, 1)|{rate}")
        for rate in (-0.1, 1.0, 1.5, np.nan)
    ],
    "recurrent_bias": [
        (change("gru", BIASED), ValueError, "recurrent_bias|None|reset_after=True|(4,)"),
        (rau("feature_proj", CALLS["rau feature_proj"].shared), ValueError, "recurrent_bias|None"),
    ],
    "gradient_clip": [
        (change("gru", gradient_clip=0.0), ValueError, "gradient_clip|0.0"),
        (lambda: F.gru_step(GRU, H, X, gradient_clip=-1.0), ValueError, "gradient_clip|-1.0"),
        (lambda: F.clip_gradient(X, np.nan), ValueError, "bound|nan"),
    ],
    "lengths": [
        row
        for name in ("lstm of lengths", "bidirectional")
        for row in (
            (
                change(name, mask=SEGMENTS, lengths=np.array([5, 2, 0, 1])),
                ValueError,
                "mask|lengths",
            ),
            (change(name, mask=None, lengths=ones(4)), TypeError, "lengths|integers|float32"),
            (change(name, mask=None, lengths=ones(5, kind=int)), ValueError, "lengths|(4,)|(5,)"),
        )
    ],
    "resets": [
        (change("gru", resets=1.0 * SEGMENTS), TypeError, "resets|bool|float32"),
        (change("gru", resets=[[True]]), TypeError, "resets|bool|list"),
        (change("gru", mask=None, lengths=[5, 5, 4, 1]), TypeError, "lengths|integers|list"),
        (change("gru", resets=SEGMENTS[0]), ValueError, "resets|(4, 5)|(5,)"),
        (change("gru", reset_to=X), ValueError, "reset_to|(4, 4)|(4, 3)"),
        (change("gru", resets=SEGMENTS, reset_to=X), ValueError, "reset_to|(4, 4)|(4, 3)"),
    ],
    "rau": [
        (rau("time"), ValueError, "attention='time'|causal|'time_causal'"),
        (rau("other"), ValueError, "attention|time_causal|'other'"),
        (rau("sigmoid", rescale=True), ValueError, "rescale|False|'sigmoid'"),
        (rau("feature_proj", rescale=np.inf), TypeError, "rescale|True|False|inf"),
        (rau("feature_proj", reset_after=1), TypeError, "reset_after|True|False|1"),
        (rau("concat"), TypeError, "weights|RAUConcatWeights|RAUWeights"),
        (rau("time_causal"), TypeError, "weights|RAUHiddenWeights|RAUWeights"),
        (of_form("concat", value=H), ValueError, "value|(7, 4)|(4, 4)"),
        (of_form("concat", score=H), ValueError, "score|(7, 7)|(4, 4)"),
        (of_form("time_causal", hidden=H), ValueError, "hidden|(7, 4)|(4, 4)"),
        (of_form("time_causal", hidden=ones()), ValueError, "hidden|()"),
        (of_form("time_causal", score=ones(2, 4)), ValueError, "score|(2, 1)|(2, 4)"),
        (
            lambda: F.rau(RAU._replace(recurrent=ones(0, 0), input=ones(3, 0), bias=ones(0)), XS),
            ValueError,
            "recurrent|1|0",
        ),
    ],
    "carries": [
        (change("lstm", initial=H), TypeError, "initial|LSTMState|ndarray"),
        (change("lstm_step", carry=H), TypeError, "carry|LSTMState"),
        (change("gru", initial=STATE), TypeError, "initial|array|LSTMState"),
        (change("gru_step", hidden=STATE), TypeError, "hidden|array|LSTMState"),
        (change("gru_step", hidden=H[:3]), ValueError, "hidden|(4, 4)|(3, 4)"),
        (change("lstm_step", carry=F.LSTMState(H[:3], H)), ValueError, "hidden|(4, 4)|(3, 4)"),
        (change("rau_step", carry=H[:3]), ValueError, "carry|(4, 4)|(3, 4)"),
        (rau("sigmoid", initial=STATE), TypeError, "initial|array|LSTMState"),
        (rau("sigmoid", initial=TIME_STATE), TypeError, "initial|array|RAUTimeState"),
        (rau("time_causal", TIMED, initial=H), TypeError, "initial|RAUTimeState"),
        (
            rau("time_causal", TIMED, initial=TIME_STATE._replace(log_norm=H)),
            ValueError,
            "initial.log_norm|(4, 1)|(4, 4)",
        ),
    ],
    "masked_scan": [
        (scan(xs={}), ValueError, "xs|array"),
        (scan(xs=H[0]), ValueError, "xs|[B, T, ...]|(4,)"),
        (scan(xs=(STEPS, H)), ValueError, "xs|[B, T]|(4, 5)|(4, 4)"),
        (scan(initial=H[:1]), ValueError, "initial|4|(1, 4)"),
        (scan(initial=0.0), ValueError, "initial|4|()"),
        (scan(mask=XS[..., 0]), TypeError, "mask|bool"),
        (scan(reset_to=H[:, :1]), ValueError, "reset_to|(4, 4)|(4, 1)"),
        (scan(resets=SEGMENTS, reset_to=(H,)), TypeError, "reset_to|structure"),
        (scan(lambda h, x: h), TypeError, "step|(carry, output)"),
        (scan(lambda h, x: (h[:, :1], x)), ValueError, "step|carry|(4, 4)|(4, 1)"),
        (scan(lambda h, x: (h.astype("bfloat16"), x)), TypeError, "step|float32|bfloat16"),
        (scan(lambda h, x: (h, h[0, :3])), ValueError, "output|step|4|(3,)"),
        (scan(lambda h, x: (h, (x, h[:1]))), ValueError, "output|step|4|(1, 4)"),
        (scan(lambda h, x: (h, 1.0)), ValueError, "output|step|4|()"),
        (scan(lambda h, x: ((h, h), x)), TypeError, "step|carry|structure"),
    ],
}
# what only values show is refused where they are known
VALUES = {
    "linear_cross_entropy": [
        (likelihood(targets=np.full(6, -100)), ValueError, "targets|[0, 7)|-100|mask"),
        (likelihood(targets=np.full(6, 7)), ValueError, "targets|[0, 7)|7|mask"),
    ],
    "selective_attention": [
        (
            selective(gates=-ones(4, 2, 5, 5), hard=False),
            ValueError,
            "gates|-1.0|`relaxed_selective_attention`",
        ),
        (
            lambda: F.selective_weights(FLOATS, 0.25 * FLOATS, hard=True),
            ValueError,
            "gates|0 or 1|0.25|hard=False",
        ),
        (lambda: F.selective_weights(FLOATS, -FLOATS, hard=True), ValueError, "gates|-1.0"),
        (
            lambda: F.relaxed_selective_attention(HEADS, HEADS, HEADS, ones(4, 2, 5, 5)),
            ValueError,
            "log_gates|1.0|`selective_attention`",
        ),
    ],
    "lengths": [
        (change(name, mask=None, lengths=np.array([5, wrong, 0, 4])), ValueError, f"[0, 5]|{wrong}")
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
        yield change(name, tuple(weights)), TypeError, f"weights|{kind}|tuple"
        yield change(name, xs=XS[0]), ValueError, "xs|3|[B T D]|(5, 3)"
        yield change(name, xs=STEPS), ValueError, "xs|D = 3|weights.input|4"
        yield change(name, xs=XS.astype(int)), TypeError, "xs|int32"
        for field, wanted, given in (
            ("input", (3, size), (3, 4)),
            ("recurrent", (4, size), (4, 4)),
            ("bias", (size,), (5,)),
        ):
            changed = weights._replace(**{field: ones(*given)})
            yield change(name, changed), ValueError, f"{field}|{wanted}|{given}"
        yield change(name, weights._replace(recurrent=ones(4))), ValueError, "recurrent|2|(4,)"
        yield change(name, mask=XS[..., 0]), TypeError, "mask|bool|float32"
        yield change(name, mask=SEGMENTS.T), ValueError, "mask|(4, 5)|(5, 4)"
        dropout = "recurrent_dropout_mask"
        yield change(name, **{dropout: STEPS}), ValueError, f"{dropout}|(4, 4)|(4, 5, 4)"
        yield functools.partial(step, H), ValueError, "x|D = 3|4|(4, 4)"
        yield functools.partial(step, XS), ValueError, "x|2|[B D]|(4, 5, 3)"
    yield change("gru", LSTM), TypeError, "weights|GRUWeights|LSTMWeights"
    yield lambda: F.lstm_step(tuple(LSTM), STATE, X), TypeError, "weights|LSTMWeights|tuple"
    yield lambda: F.rau_attention(tuple(RAU), XS), TypeError, "weights|RAUWeights|tuple"


@each_row(TABLE | {"cell": list(each_cell())})
def test_bad_input_is_refused_by_name(call, error, parts):
    refused(call, error, parts)
    refused(lambda: jax.eval_shape(call), error, parts)


@each_row(VALUES)
def test_bad_values_are_refused_where_they_are_known(call, error, parts):
    refused(call, error, parts)
