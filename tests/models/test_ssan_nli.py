"""Inference between sentences: loops, padding, symmetry, and what is refused."""

import functools

import jax
import numpy as np
import pytest

from gatedjax.models import SSANNLI, SSANNLIConfig, SSANNLITask
from gatedjax.models.ssan.nli import MultiDimensionalAttention
from tests._drawn import drawn
from tests._grouped import grouped
from tests.models._passes import apply, evaluate

V = 11


def batch_of(np_rng, first=(5, 3, 1), second=(2, 4, 6)):
    batch = {}
    for name, sizes, length in (
        ("tokens", first, "lengths"),
        ("hypothesis", second, "hypothesis_lengths"),
    ):
        cells = np_rng.integers(2, V, (len(sizes), max(sizes)))
        cells = np.where(np.arange(max(sizes))[None] < np.array(sizes)[:, None], cells, 0)
        batch[name], batch[length] = cells.astype(np.int32), np.array(sizes, np.int32)
    ids = np.arange(len(first), dtype=np.int32)
    weight = np.ones(len(first), np.float32)
    return batch | {"example_id": ids, "label": ids % 3, "weight": weight}


@functools.cache
def made(**options):
    model = SSANNLI(grouped(SSANNLIConfig, **{"hidden": 8, "embedding_dim": 6, **dict(options)}), V)
    batch = batch_of(np.random.default_rng(0))
    return model, drawn(SSANNLITask(model).init, batch, std=0.4, rng=5)


def dense(p, x):
    return x @ np.asarray(p["kernel"], np.float64) + np.asarray(p.get("bias", 0), np.float64)


def elu(x):
    return np.where(x > 0, x, np.expm1(x))


def oracle(p, tokens):
    """The standard network (one head) of one sentence, word by word in float64."""
    x = np.asarray(p["embed"]["embedding"], np.float64)[tokens]
    u = elu(dense(p["projection"], x))
    size, width = u.shape
    for n in range(size):
        for d in range(width):
            angle = n / 10_000 ** (2 * (d // 2) / width)
            u[n, d] += np.sin(angle) if d % 2 == 0 else np.cos(angle)
    a = p["attention"]
    flat = {
        name: {
            "kernel": np.asarray(a[name]["kernel"]).reshape(width, width),
            "bias": np.asarray(a[name]["bias"]).reshape(width),
        }
        for name in ("query", "key", "value", "out")
    }
    q, k, v = (dense(flat[name], u) for name in ("query", "key", "value"))
    mixed = np.zeros_like(u)
    for i in range(size):
        scores = np.array([q[i] @ k[j] / width**0.5 for j in range(size)])
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        mixed[i] = sum(w * v[j] for j, w in enumerate(weights))
    o = dense(flat["out"], mixed)
    gate = 1 / (1 + np.exp(-(dense(p["fusion_token"], u) + dense(p["fusion_attended"], o))))
    s = gate * u + (1 - gate) * o
    logits = dense(p["pool"]["Dense_1"], elu(dense(p["pool"]["Dense_0"], s)))
    weights = np.exp(logits - logits.max(0))
    return (weights / weights.sum(0) * s).sum(0)


@pytest.mark.slow
def test_logits_equal_loops_over_words(np_rng):
    model, params = made(select_layers=(0,))
    batch = batch_of(np_rng)
    got = apply(model, params, batch).logits
    for row in range(3):
        left, right = (
            oracle(params, np.asarray(batch[name][row, : int(batch[length][row])]))
            for name, length in (("tokens", "lengths"), ("hypothesis", "hypothesis_lengths"))
        )
        features = np.concatenate([left, right, left - right, left * right])
        hidden = elu(dense(params["compare"], features))
        np.testing.assert_allclose(got[row], dense(params["classifier"], hidden), rtol=2e-4,
                                   atol=1e-5)  # fmt: skip


@pytest.mark.slow
def test_multi_dimensional_attention_equals_loops_over_features(np_rng):
    states = np_rng.normal(size=(1, 4, 6)).astype(np.float32)
    mask = np.array([[True, True, True, False]])
    layer = MultiDimensionalAttention(num_heads=1, score_scale=2.0, exclude_self=True)
    params = jax.jit(layer.init)(jax.random.key(0), states, mask)["params"]
    got, selection = jax.tree.map(
        np.asarray, jax.jit(layer.apply)({"params": params}, states, mask)
    )
    p = {
        name: {
            "kernel": np.asarray(x["kernel"]).reshape(6, 6), "bias": np.asarray(x["bias"]).ravel()
        }
        for name, x in params.items()
    }  # fmt: skip
    with pytest.raises(ValueError, match="relative must be 'none'"):
        MultiDimensionalAttention(num_heads=1, relative="learned").init(
            jax.random.key(0), states, mask
        )
    h = states[0].astype(np.float64)
    q, k, v = (dense(p[name], h) for name in ("query", "key", "value"))
    chosen = dense(p["selector_query"], h) @ dense(p["selector_key"], h).T > 0
    mixed = np.zeros((4, 6))
    for i in range(3):
        for d in range(6):
            keys = [j for j in range(3) if j != i and chosen[i, j]]
            scores = np.array([2 * np.tanh((q[i, d] + k[j, d]) / 2) for j in keys])
            weights = np.exp(scores) / np.exp(scores).sum() if keys else scores
            mixed[i, d] = sum(w * v[j, d] for j, w in zip(keys, weights, strict=True))
    np.testing.assert_allclose(got[0, :3], dense(p["out"], mixed)[:3], rtol=1e-4, atol=1e-5)
    assert not np.any(got[0, 3])
    np.testing.assert_array_equal(selection.gates[0, 0, :3, :3], chosen[:3, :3])
    # what was selected is counted over the pairs that may see each other
    pairs = ~np.eye(4, dtype=bool)
    pairs[3], pairs[:, 3] = False, False
    logits = selection.logits[0, 0].astype(np.float64)
    p, size = 1 / (1 + np.exp(-logits)), pairs.sum()
    surprise = np.logaddexp(0, np.where(chosen, -logits, logits))
    entropy = p * np.logaddexp(0, -logits) + (1 - p) * np.logaddexp(0, logits)
    counts = (chosen & pairs)[:3].sum(1)
    assert chosen[np.arange(3), np.arange(3)].any()
    want = {
        "selected": counts.mean(),
        "rate": counts.sum() / size,
        "empty": (counts == 0).mean(),
        "probability": p[pairs].sum() / size,
        "entropy": entropy[pairs].sum() / size,
        "log_prob": -surprise[pairs].sum() / size,
    }
    _, in_blocks = jax.jit(layer.clone(block=2).apply)({"params": params}, states, mask)
    for name, value in want.items():
        for found in (selection, in_blocks):
            np.testing.assert_allclose(np.ravel(getattr(found, name)), [value], rtol=1e-5)


@pytest.mark.slow
def test_predictions_tell_of_the_first_sentence_and_metrics_of_both(np_rng):
    model, params = made(num_heads=2)
    batch = batch_of(np_rng)
    output = apply(model, params, batch)
    assert (output.premise.gates.shape[-1], output.hypothesis.gates.shape[-1]) == (5, 6)
    metrics, predictions = evaluate(SSANNLITask(model), params, batch)
    for name, share in (("selected", "rate"), ("empty", "empty")):
        first, second = getattr(output.premise, share), getattr(output.hypothesis, share)
        assert predictions[f"{name}_heads"].shape == (3, 1, 2)
        np.testing.assert_allclose(predictions[f"{name}_heads"][:, 0], first, rtol=1e-6)
        both = np.concatenate([first, second])
        np.testing.assert_allclose(metrics[f"{name}_1"].value(), both.mean(), rtol=1e-6)
    plain, params = made(select_layers=())
    metrics, _ = jax.eval_shape(SSANNLITask(plain).evaluate, params, batch)
    assert "selected_1" not in metrics
