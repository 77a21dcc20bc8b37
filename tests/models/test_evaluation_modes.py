"""What GA-Net and its baselines report in evaluation, against a slow loop for every gate mode."""

import jax
import numpy as np
import pytest

from gatedjax.models import GANet, GANetConfig, GANetTask
from tests._grouped import grouped
from tests.functional.rau_oracle import sigmoid, softmax

SMALL = {
    "embedding_dim": 4, "hidden": 3, "aux_hidden": 3, "num_layers": 1, "test_samples": 3,
    "temperature": 0.4, "aux": "fnn", "local_half_width": 1.5,
}  # fmt: skip
LENGTHS = np.array([6, 4, 1, 5, 3], np.int32)
WEIGHT = np.array([1, 1, 1, 0, 1], np.float32)
LABEL = np.array([0, 2, 1, 1, 0], np.int32)


def evaluated(**options):
    """(config, parameters, metrics, predictions, logits of a call, states .., noise of draws)."""
    config = grouped(GANetConfig, **(SMALL | options))
    task = GANetTask(GANet(config, vocab_size=20, num_classes=3), eval_seed=4)
    rng = np.random.default_rng(3)
    real = np.arange(6)[None] < LENGTHS[:, None]
    batch = {
        "tokens": (rng.integers(2, 20, real.shape) * real).astype(np.int32),
        "lengths": LENGTHS,
        "label": LABEL,
        "weight": WEIGHT,
        "example_id": np.arange(5, dtype=np.int32),
    }
    shapes = jax.eval_shape(task.init, jax.random.key(0), batch)
    # large enough for gates and classes that differ from example to example
    params = jax.tree.map(lambda x: rng.normal(0, 1.5, x.shape).astype(x.dtype), shapes)
    if config.system == "ganet":
        params["auxiliary"]["gate"]["bias"] -= 1
    drawn = []

    def noise(model, encoded, rows):
        drawn.append(draw(model, encoded, rows))
        return drawn[-1]

    @jax.jit
    def run(params):
        metrics, predictions = task.evaluate(params, batch)
        noise = drawn[0] if drawn else ()
        rngs = {"gate": jax.random.key(4)}
        called = task.model.apply({"params": params}, batch, rngs=rngs)
        encoded = task.model.apply({"params": params}, batch, method=GANet.encode)
        return metrics, predictions, called.logits, encoded, noise

    draw = GANet.test_noise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GANet, "test_noise", noise)
        metrics, *rest = jax.device_get(run(params))
    return config, params, {name: ratio.value() for name, ratio in metrics.items()}, *rest


def logits_of(params, pooled):
    out = params["classifier"]
    return np.tanh(pooled) @ out["kernel"] + out["bias"]


def one_pass(config, params, states, scores, opens, gates, hard):
    """One example under one draw: logits, gates after the rule for none, and was it closed."""
    closed = hard and not gates.any()
    if closed and config.gates.empty == "max_gate":
        gates = np.eye(len(gates))[np.argmax(opens)]
    weights = gates * np.exp(scores - scores.max())
    weights = weights / weights.sum() if weights.any() else weights
    if closed and config.gates.empty == "soft":
        weights = softmax(scores)
    return logits_of(params, weights @ states), gates, closed


def slow(config, params, encoded, noise):
    """Every gate mode, example by example and draw by draw: lists [draw][example] of passes."""
    modes = {"threshold": [[]], "expected": [[]]}
    modes |= {name: [[] for _ in noise] for name in ("sample", "relaxed")}
    for row, length in enumerate(LENGTHS):
        a = encoded.gate_logits[row, :length].astype(np.float64)
        rest = config, params, encoded.states[row, :length], encoded.scores[row, :length], a
        modes["threshold"][0].append(one_pass(*rest, (a > 0).astype(float), True))
        modes["expected"][0].append(one_pass(*rest, sigmoid(a), False))
        for number, draw in enumerate(noise):
            moved = a + draw[row, :length]
            modes["sample"][number].append(one_pass(*rest, (moved > 0).astype(float), True))
            relaxed = sigmoid(moved / config.gates.temperature)
            modes["relaxed"][number].append(one_pass(*rest, relaxed, False))
    return modes


def scores_of(passes):
    """The metrics of one mode: means over draws and over the examples that count."""
    parts = {name: [] for name in ("loss", "accuracy", "density", "closed", "open", "tokens")}
    for row, weight in enumerate(WEIGHT):
        for draw in passes if weight else ():
            logits, gates, closed = draw[row]
            parts["loss"].append(-np.log(softmax(logits)[LABEL[row]]))
            parts["accuracy"].append(np.argmax(logits) == LABEL[row])
            parts["density"].append(gates.mean())
            parts["closed"].append(closed)
            parts["open"].append(gates.sum())
            parts["tokens"].append(LENGTHS[row])
    means = {name: np.mean(parts[name]) for name in ("loss", "accuracy", "density", "closed")}
    return means | {"density_tok": np.sum(parts["open"]) / np.sum(parts["tokens"])}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test_gate", "empty"),
    [("sample", "max_gate"), ("threshold", "soft"), ("multi_sample", "zeros")],
)
def test_every_gate_mode_equals_its_own_loop(test_gate, empty):
    config, params, metrics, predictions, called, encoded, noise = evaluated(
        test_gate=test_gate, empty=empty
    )
    # every draw of every example is its own
    assert np.shape(noise) == (config.gates.test_samples, *encoded.scores.shape)
    assert len(np.unique(noise)) == np.size(noise)
    modes = slow(config, params, encoded, noise)
    want = {
        f"{name}_{mode}": value
        for mode, passes in modes.items()
        for name, value in scores_of(passes).items()
        if name != "closed" or mode in ("sample", "threshold")
    }
    assert any(closed for draw in modes["sample"] for _, _, closed in draw)
    assert any(closed for _, _, closed in modes["threshold"][0])

    source = "threshold" if test_gate == "threshold" else "sample"
    first = modes[source][0]
    logits = np.stack([one[0] for one in first])
    want["density"] = want[f"density_{source}"]
    if test_gate == "multi_sample":
        # the mean of probabilities, which is not that of their logarithms
        every = np.array([[softmax(one[0]) for one in draw] for draw in modes["sample"]])
        logits = np.log(every.mean(axis=0))
        geometric = np.log(every).mean(axis=0)
        assert np.abs(logits - geometric).max() > 0.1
        cost = -logits[np.arange(5), LABEL]
        want["loss"] = np.sum(cost * WEIGHT) / WEIGHT.sum()
        right = np.argmax(logits, -1) == LABEL
        want["accuracy"] = np.sum(right * WEIGHT) / WEIGHT.sum()
    else:
        want["loss"], want["accuracy"] = want[f"loss_{source}"], want[f"accuracy_{source}"]
    assert set(metrics) == set(want)
    for name, value in want.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-4, atol=1e-5, err_msg=name)

    # what is told of an example is of the mode that was asked for, not of another one
    np.testing.assert_allclose(called, logits, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(predictions["predicted"], np.argmax(logits, -1))
    np.testing.assert_array_equal(predictions["correct"], np.argmax(logits, -1) == LABEL)
    attended = [
        LENGTHS[row] if closed and empty == "soft" else np.sum(gates > 0)
        for row, (_, gates, closed) in enumerate(first)
    ]
    np.testing.assert_array_equal(predictions["attended"], attended)
    np.testing.assert_array_equal(predictions["length"], LENGTHS)
    np.testing.assert_array_equal(predictions["label"], LABEL)
    np.testing.assert_array_equal(predictions["example_id"], np.arange(5))
    other = modes["sample" if source == "threshold" else "threshold"][0]
    assert attended != [int(np.sum(gates > 0)) for _, gates, _ in other]


@pytest.mark.parametrize("system", ["soft", "local", "bilstm"])
def test_every_baseline_equals_its_own_loop(system):
    config, params, metrics, predictions, called, encoded, _ = evaluated(system=system)
    logits, attended = [], []
    for row, length in enumerate(LENGTHS):
        states, last = encoded.states[row, :length], encoded.last[row]
        if system == "bilstm":
            out = params["classifier"]
            logits.append(last @ out["kernel"] + out["bias"])
            attended.append(length)
            continue
        scores = encoded.scores[row, :length]
        near = np.ones(length, bool)
        weights = softmax(scores)
        if system == "local":
            own = params["position"]
            share = np.tanh(last @ own["Dense_0"]["kernel"]) @ own["Dense_1"]["kernel"]
            away = np.arange(length) - (length - 1) * sigmoid(share[0])
            near = np.abs(away) <= config.local_half_width
            width = config.local_half_width / 2
            weights = np.exp(scores - scores.max()) * near
            weights = weights / weights.sum() * np.exp(-(away**2) / (2 * width**2))
        logits.append(logits_of(params, weights @ states))
        attended.append(near.sum())
    logits = np.stack(logits)
    np.testing.assert_allclose(called, logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(predictions["attended"], attended)
    np.testing.assert_array_equal(predictions["predicted"], np.argmax(logits, -1))
    cost = np.array([-np.log(softmax(x)[y]) for x, y in zip(logits, LABEL, strict=True)])
    right = np.argmax(logits, -1) == LABEL
    assert set(metrics) == {"loss", "accuracy"}
    np.testing.assert_allclose(metrics["loss"], (cost * WEIGHT).sum() / WEIGHT.sum(), rtol=1e-4)
    np.testing.assert_allclose(metrics["accuracy"], (right * WEIGHT).sum() / WEIGHT.sum())
