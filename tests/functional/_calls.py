"""One call of every public function of arrays, with NumPy arguments of a few rows."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import functional as F

ROWS, STEPS, WIDTH, HIDDEN, QUERY = 4, 5, 3, 4, 3

NOT_CALLED = {
    "Aggregation": "a type",
    "AttentionCache": "a tuple",
    "Gating": "a type",
    "GRUWeights": "a tuple",
    "GatedStackWeights": "a tuple",
    "HighwayWeights": "a tuple",
    "LSTMState": "a tuple",
    "LSTMWeights": "a tuple",
    "RAUAttention": "a type",
    "RAUConcatWeights": "a tuple",
    "RAUHiddenWeights": "a tuple",
    "RAUMatrixWeights": "a tuple",
    "RAUTimeState": "a tuple",
    "RAUWeights": "a tuple",
    "RecurrenceBackend": "an answer in words",
    "RecurrenceImplementation": "a type",
    "plan_capacity": "runs on the host, before any program",
    "recurrence_backend": "takes sizes",
}
"""Public names that have no call below, and why."""


class Call(NamedTuple):
    """function(shared, rows): rows is a tree of arrays [ROWS, ...], shared of any others.

    differentiated: whether the gradient has anything that another call does not show.
    """

    function: Callable[[Any, Any], Any]
    rows: dict[str, Any]
    shared: Any = ()
    differentiated: bool = True


def calls() -> dict[str, Call]:
    """Every call, by the name of its function and what is special about it."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.5, shape).astype(np.float32)

    def uniform(*shape: int) -> np.ndarray:
        return rng.uniform(0.1, 0.9, shape).astype(np.float32)

    lengths = np.array([5, 3, 0, 4], np.int32)
    mask = np.arange(STEPS) < lengths[:, None]
    ids = np.arange(ROWS, dtype=np.int32)
    gates = (uniform(ROWS, STEPS) > 0.5).astype(np.float32)
    scores = normal(ROWS, STEPS)
    sequence = {"xs": normal(ROWS, STEPS, WIDTH), "mask": mask}
    heads = {name: normal(ROWS, 2, STEPS, HIDDEN) for name in ("query", "key", "value")}
    pairs = normal(ROWS, 2, STEPS, STEPS)
    open_pairs = (uniform(*pairs.shape) > 0.5).astype(np.float32)
    dropout = 2.0 * (uniform(ROWS, HIDDEN) > 0.5).astype(np.float32)
    key = np.array([1, 2], np.uint32)

    def kernels(blocks: int) -> tuple[np.ndarray, ...]:
        size = blocks * HIDDEN
        return normal(WIDTH, size), normal(HIDDEN, size), normal(size)

    joined = WIDTH + HIDDEN
    plain = F.RAUWeights(*kernels(5))
    through_tanh = F.RAUHiddenWeights(
        *kernels(4), normal(joined, 2), normal(2), normal(2, HIDDEN), normal(HIDDEN)
    )
    timed = F.RAUHiddenWeights(*kernels(4), normal(joined, 2), normal(2), normal(2, 1))
    rau_weights = {
        "feature_proj": plain,
        "sigmoid": plain,
        "additive_relu": through_tanh,
        "time_causal": timed,
        "concat": F.RAUConcatWeights(
            *kernels(3),
            normal(joined, joined),
            normal(joined),
            normal(joined, HIDDEN),
            normal(HIDDEN),
        ),
        "matrix": F.RAUMatrixWeights(
            *kernels(3), normal(HIDDEN, joined), normal(joined, joined), normal(joined)
        ),
    }
    lstm, gru = F.LSTMWeights(*kernels(4)), F.GRUWeights(*kernels(3))
    biased = F.GRUWeights(*kernels(3), normal(HIDDEN))
    started = {**sequence, "initial": normal(ROWS, HIDDEN), "recurrent_dropout_mask": dropout}
    begun = {"resets": uniform(ROWS, STEPS) > 0.6, "reset_to": normal(ROWS, HIDDEN)}
    cells = {"initial": F.LSTMState(normal(ROWS, HIDDEN), normal(ROWS, HIDDEN))}
    step = {"x": normal(ROWS, WIDTH), "recurrent_dropout_mask": dropout}
    found = {"logits": scores, "document_mask": mask}
    sized = {"ids": ids, "mask": mask}

    def plainly(function: Callable[..., Any], **options: Any) -> Callable[[Any, Any], Any]:
        """shared are the first arguments, rows the others."""
        return lambda shared, rows: function(*shared, **rows, **options)

    def of_weights(function: Callable[..., Any], **options: Any) -> Callable[[Any, Any], Any]:
        return lambda weights, rows: function(weights, **rows, **options)

    def keyed(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        """Bits of the keys of the examples."""
        return lambda key, rows: function(F.example_keys(wrap(key), rows["ids"]), rows)

    def wrap(data: Any) -> Any:
        return jax.random.wrap_key_data(jnp.asarray(data))

    def size(rows: dict[str, Any]) -> int:
        """T, which a program may leave open."""
        return rows["mask"].shape[1]

    def score(kernel: Any, states: Any) -> Any:
        return jnp.tanh(states) @ kernel

    found_calls = {
        "attention_pool": Call(
            plainly(F.attention_pool), {"states": sequence["xs"], "weights": scores, "mask": mask}
        ),
        "local_attention_weights": Call(
            plainly(F.local_attention_weights, half_width=1.5),
            {"scores": scores, "position": uniform(ROWS), "lengths": lengths},
        ),
        "local_attention_weights of a mask": Call(
            plainly(F.local_attention_weights, half_width=1.5),
            {"scores": scores, "position": uniform(ROWS), "mask": mask},
        ),
        "scaled_dot_product": Call(
            plainly(F.scaled_dot_product), {name: heads[name] for name in ("query", "key")}
        ),
        "sinusoids": Call(
            lambda _, rows: F.sinusoids(rows["ids"], WIDTH), {"ids": ids}, differentiated=False
        ),
        "relative_bias": Call(
            lambda table, rows: (
                rows["scores"].astype(table.dtype)
                + F.relative_bias(table, *2 * [jnp.arange(rows["scores"].shape[-1])])[None]
            ),
            {"scores": pairs},
            normal(2, 5),
        ),
        "byte_dropout": Call(
            plainly(F.byte_dropout, rate=0.5),
            {"inputs": scores, "draws": rng.integers(0, 256, scores.shape, np.uint8)},
        ),
        "feature_bytes": Call(keyed(lambda k, rows: F.feature_bytes(k, size(rows), 3)), sized, key),
        "pair_bytes": Call(
            keyed(lambda k, rows: F.pair_bytes(k, 3, jnp.arange(size(rows)), size(rows))),
            sized,
            key,
        ),
        "pair_uniform": Call(
            keyed(lambda k, rows: F.pair_uniform(k, 3, jnp.arange(size(rows)), size(rows))),
            sized,
            key,
        ),
        "clip_gradient": Call(plainly(F.clip_gradient, bound=0.1), {"x": scores}),
        "compact_attention_pool": Call(
            lambda kernel, rows: F.compact_attention_pool(
                functools.partial(score, kernel), **rows, capacity=2
            ),
            {"states": sequence["xs"], "gates": gates, "mask": mask},
            normal(WIDTH),
        ),
        "open_indices": Call(plainly(F.open_indices, capacity=2), {"gates": gates, "mask": mask}),
        "linear_cross_entropy": Call(
            lambda shared, rows: F.linear_cross_entropy(
                rows["h"], shared[0], rows["y"], bias=shared[1], mask=rows["mask"]
            ),
            {"h": sequence["xs"], "y": rng.integers(0, 6, (ROWS, STEPS), np.int32), "mask": mask},
            (normal(WIDTH, 6), normal(6)),
        ),
        "gated_attention": Call(
            plainly(F.gated_attention),
            {
                "document": sequence["xs"],
                "query": normal(ROWS, QUERY, WIDTH),
                "query_mask": mask[:, :QUERY],
            },
        ),
        "gru": Call(of_weights(F.gru), started, gru),
        "gru reset after": Call(
            of_weights(F.gru, reset_after=True, reverse=True, gradient_clip=0.5),
            started | begun,
            biased,
        ),
        "gru_step": Call(
            of_weights(F.gru_step, gradient_clip=0.5), {**step, "hidden": normal(ROWS, HIDDEN)}, gru
        ),
        "gated_stack": Call(
            lambda weights, rows: F.gated_stack(rows["selected"], weights),
            {"selected": normal(ROWS, 3, WIDTH)},
            F.GatedStackWeights(
                normal(2, WIDTH, 2 * WIDTH), normal(2, WIDTH, WIDTH), normal(2, 2 * WIDTH)
            ),
        ),
        "highway_stack": Call(
            lambda weights, rows: F.highway_stack(rows["inputs"], weights),
            {"inputs": normal(ROWS, WIDTH)},
            F.HighwayWeights(normal(2, WIDTH, 2 * WIDTH), normal(2, 2 * WIDTH)),
        ),
        "highway_mix": Call(
            plainly(F.highway_mix), {"candidate": scores, "carry": scores + 1, "gate": gates}
        ),
        "lstm": Call(of_weights(F.lstm), started | cells | {"resets": begun["resets"]}, lstm),
        "lstm of lengths": Call(
            of_weights(F.lstm), {"xs": sequence["xs"], "lengths": lengths}, lstm
        ),
        "skip_lstm": Call(
            lambda weights, rows: F.skip_lstm(weights, **rows),
            {**sequence, "gates": jax.nn.sigmoid(sequence["xs"][..., 0])},
            lstm,
        ),
        "lstm_step": Call(of_weights(F.lstm_step), {**step, "carry": cells["initial"]}, lstm),
        "bidirectional": Call(
            lambda weights, rows: F.bidirectional(F.lstm, *weights, **rows), sequence, (lstm, lstm)
        ),
        "masked_scan": Call(
            lambda weights, rows: F.masked_scan(
                lambda h, x: 2 * (F.gru_step(weights, h, x)[0].astype(h.dtype),), **rows
            ),
            {**sequence, "initial": normal(ROWS, HIDDEN), **begun},
            gru,
        ),
        "pointer_sum": Call(
            plainly(F.pointer_sum),
            {
                **found,
                "occurrence": uniform(ROWS, STEPS, 3) > 0.6,
                "candidate_mask": uniform(ROWS, 3) > 0.2,
            },
        ),
        "pointer_sum_indexed": Call(
            plainly(F.pointer_sum_indexed, aggregation="code"),
            {**found, "positions": rng.integers(-1, STEPS, (ROWS, 3, 2), np.int32)},
        ),
        "example_keys": Call(
            keyed(lambda k, _: jax.random.key_data(k).astype(jnp.float32)), {"ids": ids}, key
        ),
        "example_noise": Call(keyed(lambda k, rows: F.example_noise(k, size(rows))), sized, key),
        "example_dropout": Call(
            keyed(lambda k, rows: F.example_dropout(rows["inputs"], 0.5, k)),
            {"ids": ids, "inputs": scores},
            key,
        ),
        "rau feature_proj": Call(
            of_weights(F.rau, rescale=True, reverse=True, reset_after=True),
            started | begun,
            plain._replace(recurrent_bias=normal(HIDDEN)),
        ),
        "rau_step": Call(
            of_weights(F.rau_step), {**step, "carry": normal(ROWS, HIDDEN)}, through_tanh
        ),
        "ensure_open": Call(
            plainly(F.ensure_open), {"gates": 0 * gates, "logits": scores, "mask": mask}
        ),
        "hard_gates": Call(plainly(F.hard_gates, empty="soft"), {"logits": scores, "mask": mask}),
        "gate_penalty": Call(plainly(F.gate_penalty), {"gates": gates, "mask": mask}),
        "gumbel_noise": Call(lambda key, _: F.gumbel_noise(wrap(key), (3,)), {}, key),
        "logistic_noise": Call(lambda key, _: F.logistic_noise(wrap(key), (3,)), {}, key),
        "gumbel_sigmoid": Call(
            lambda tau, rows: F.gumbel_sigmoid(**rows, temperature=tau, straight_through=True),
            {"logits": scores, "noise": normal(ROWS, STEPS)},
            np.float32(0.7),
        ),
        "log_gumbel_sigmoid": Call(
            lambda tau, rows: F.log_gumbel_sigmoid(**rows, temperature=tau),
            {"logits": scores, "noise": normal(ROWS, STEPS)},
            np.float32(0.7),
        ),
        "gumbel_softmax": Call(
            lambda tau, rows: F.gumbel_softmax(**rows, temperature=tau, straight_through=True),
            {"logits": scores, "noise": normal(ROWS, STEPS)},
            np.float32(0.7),
        ),
        "uniform_sigmoid": Call(
            lambda tau, rows: F.uniform_sigmoid(**rows, temperature=tau, straight_through=True),
            {"logits": scores, "uniform": uniform(ROWS, STEPS)},
            np.float32(0.7),
        ),
        "sample_gates": Call(lambda key, _: F.sample_gates(jnp.zeros(4), key=wrap(key)), {}, key),
        "score_function_loss": Call(
            plainly(F.score_function_loss),
            {"log_prob": uniform(ROWS), "reward": uniform(ROWS), "baseline": uniform(ROWS)},
        ),
        "threshold_gates": Call(plainly(F.threshold_gates), {"logits": scores}),
        "selection_vectors": Call(
            lambda shared, rows: F.selection_vectors(rows["words"], *shared, rows["mask"]),
            {"words": sequence["xs"], "mask": mask},
            (normal(2, WIDTH, 3), normal(2, 3)),
        ),
        "selection_vectors of one kernel": Call(
            lambda shared, rows: F.selection_vectors(rows["words"], *shared, keys=rows["keys"]),
            {"words": sequence["xs"], "keys": normal(ROWS, STEPS, 2)},
            (normal(1, 2, 3), normal(2, 3)),
        ),
        "selective_attention": Call(
            plainly(F.selective_attention, hard=True, empty="self"),
            {**heads, "gates": open_pairs, "mask": mask},
        ),
        "selective_attention of pairs": Call(
            plainly(F.selective_attention, causal=True),
            {**heads, "gates": open_pairs, "mask": mask, "pair_mask": pairs[:, 0] > -0.5},
        ),
        "append_to_cache": Call(
            lambda position, rows: F.append_to_cache(
                F.AttentionCache(rows["key"], rows["value"], rows["mask"], position),
                2 * rows["key"][:, :, :2],
                jnp.sin(rows["value"][:, :, :2]),
            )[:3],
            {"key": heads["key"], "value": heads["value"], "mask": mask},
            np.int32(1),
        ),
        "relaxed_selective_attention": Call(
            plainly(F.relaxed_selective_attention),
            {**heads, "log_gates": -np.exp(pairs), "mask": mask},
        ),
        "selective_weights": Call(
            plainly(F.selective_weights),
            {"scores": pairs, "gates": open_pairs, "mask": mask[:, None, None, :]},
        ),
        "source_to_token": Call(
            plainly(F.source_to_token),
            {"states": sequence["xs"], "logits": normal(ROWS, STEPS, WIDTH), "mask": mask},
        ),
        "mean_over_pairs": Call(
            plainly(F.mean_over_pairs),
            {"sums": normal(ROWS, 2, STEPS), "mask": mask, "num_keys": uniform(ROWS, 1, STEPS)},
        ),
        "selection_counts": Call(
            plainly(F.selection_counts),
            {"gates": open_pairs, "mask": mask, "pair_mask": pairs > -0.5},
        ),
        "selection_entropy": Call(plainly(F.selection_entropy), {"logits": pairs, "mask": mask}),
        "selection_log_prob": Call(
            plainly(F.selection_log_prob), {"logits": pairs, "gates": open_pairs, "mask": mask}
        ),
        "selection_statistics": Call(
            plainly(F.selection_statistics), {"counts": normal(ROWS, 2, STEPS), "mask": mask}
        ),
        "gated_softmax": Call(
            plainly(F.gated_softmax), {"scores": scores, "gates": gates, "mask": mask}
        ),
        "relaxed_gated_softmax": Call(
            plainly(F.relaxed_gated_softmax),
            {"scores": scores, "log_gates": -np.exp(scores), "mask": mask},
        ),
        "masked_softmax": Call(plainly(F.masked_softmax), {"scores": scores, "mask": mask}),
        "length_mask": Call(
            lambda _, rows: F.length_mask(rows["lengths"], rows["scores"].shape[1]),
            {"lengths": lengths, "scores": mask},
        ),
    }
    for attention, weights in rau_weights.items():
        options = {"attention": attention}
        if attention != "feature_proj":  # above, with all options
            found_calls[f"rau {attention}"] = Call(of_weights(F.rau, **options), sequence, weights)
        found_calls[f"rau_attention {attention}"] = Call(
            of_weights(F.rau_attention, **options), sequence, weights, differentiated=False
        )
    return found_calls
