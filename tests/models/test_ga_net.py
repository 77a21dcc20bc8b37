"""GA-Net against the equations of spec sections 2 to 5, and its invariances."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from gatedjax.models import GANet, GANetConfig, GANetTask
from tests._drawn import drawn
from tests._grouped import grouped
from tests.functional.rau_oracle import sigmoid
from tests.models._losses import total_loss
from tests.models._passes import Recording, apply, evaluate, in_numpy, make_batch
from tests.tolerances import F32

# One layer, three rows of eight tokens: compilation is what these tests spend their time on.
SMALL = {"embedding_dim": 6, "hidden": 5, "aux_hidden": 4, "num_layers": 1, "test_samples": 3}
QUIET = {"embedding_dropout": 0.0, "pool_dropout": 0.0}


def make_task(**config) -> GANetTask:
    return GANetTask(GANet(grouped(GANetConfig, **(SMALL | config)), vocab_size=20, num_classes=3))


def draw(task, gate_bias=None):
    """Parameters without a compilation."""
    params = drawn(task.init, make_batch(np.random.default_rng(0)), std=0.4)
    if gate_bias is not None:
        params["auxiliary"]["gate"]["bias"][:] = gate_bias
    return params


def _loss(task, params, batch, keys):
    """(loss, (metrics, output of the network)) of one pass."""
    recording = Recording(task.model)
    total, metrics = total_loss(dataclasses.replace(task, model=recording), params, batch, keys)
    return total, (metrics, recording.output)


loss = in_numpy(_loss)


@in_numpy
def train(task, params, batch, keys, penalty=None):
    """(loss, metrics, output of the network, gradient) of one pass."""
    task = task if penalty is None else task.with_value("penalty", penalty)
    graded = jax.value_and_grad(functools.partial(_loss, task), has_aux=True)
    (total, (metrics, output)), grads = graded(params, batch, keys)
    return total, metrics, output, grads


def rngs(seed=0):
    return {"dropout": jax.random.key(seed), "gate": jax.random.key(seed + 1)}


def pad(batch, size):
    extra = size - batch["tokens"].shape[1]
    return batch | {"tokens": np.pad(batch["tokens"], ((0, 0), (0, extra)))}


def sharpened(params, scale=4.0):
    """The gate's output layer scaled up, so that gates differ between tokens."""
    gate = params["auxiliary"]["gate"]
    return params | {
        "auxiliary": params["auxiliary"] | {"gate": jax.tree.map(lambda w: w * scale, gate)}
    }


def _lstm_loop(p, xs, gates, reverse):
    """States of an LSTM that moves by the gate of each step."""
    names = ("kernel", "recurrent_kernel", "bias")
    w, u, b = (np.asarray(p[name], np.float64) for name in names)
    n = u.shape[0]
    h, c, out = np.zeros(n), np.zeros(n), np.zeros((len(xs), n))
    for t in reversed(range(len(xs))) if reverse else range(len(xs)):
        i, f, g, o = np.split(xs[t] @ w + h @ u + b, 4)
        new_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        new_h = out[t] = sigmoid(o) * np.tanh(new_c)
        h, c = (gates[t] * new + (1 - gates[t]) * old for new, old in ((new_h, h), (new_c, c)))
    return out


def _bilstm_loop(p, layer, xs, gates=None):
    own, gates = p[f"layer_{layer}"], np.ones(len(xs)) if gates is None else gates
    ways = [_lstm_loop(own[d], xs, gates, d == "backward") for d in ("forward", "backward")]
    return np.concatenate(ways, axis=1)


def _oracle(params, tokens, gates, merge="concat", post_tanh=True):
    """Class scores and attention of one sentence under given gates, by plain loops."""
    xs = np.asarray(params["embed"]["embedding"], np.float64)[tokens]
    states = _bilstm_loop(params["backbone"], 1, _bilstm_loop(params["backbone"], 0, xs))
    if merge == "sum":
        states = sum(np.split(states, 2, axis=-1))
    scored, layers = states, params["score"]
    if "Dense_1" in layers:  # mlp1
        scored = states @ np.float64(layers["Dense_0"]["kernel"]) + layers["Dense_0"]["bias"]
    w = np.asarray(layers[max(layers)]["kernel"], np.float64)[:, 0]
    weights = np.array([g * np.exp(np.tanh(h) @ w) for g, h in zip(gates, scored, strict=True)])
    weights /= weights.sum()
    pooled = sum(a * h for a, h in zip(weights, states, strict=True))
    pooled = np.tanh(pooled) if post_tanh else pooled
    out = params["classifier"]
    logits = pooled @ np.asarray(out["kernel"], np.float64) + np.asarray(out["bias"])
    hidden = _bilstm_loop(params["auxiliary"]["LSTM_0"], 0, xs)
    gate = params["auxiliary"]["gate"]
    gate_logits = hidden @ np.asarray(gate["kernel"], np.float64)[:, 0] + np.asarray(gate["bias"])
    return logits, weights, gate_logits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "options"),
    [(True, {"post_tanh": False}), (False, {}), (False, {"merge": "sum", "score": "mlp1"})],
    ids=["train", "test", "sum"],
)
def test_forward_pass_equals_loops_over_the_equations(train, options, np_rng):
    task = make_task(**QUIET, num_layers=2, **options)
    batch = make_batch(np_rng)
    params = sharpened(draw(task))
    output = apply(task.model, params, batch, rngs(), train=train)
    for row, length in enumerate(batch["lengths"]):
        tokens = np.asarray(batch["tokens"][row, :length])
        gates = np.asarray(output.gates[row, :length], np.float64)
        given = {name: value for name, value in options.items() if name != "score"}
        logits, weights, gate_logits = _oracle(params, tokens, gates, **given)
        np.testing.assert_allclose(output.logits[row], logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(output.attention[row, :length], weights, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            output.gate_logits[row, :length], gate_logits, rtol=1e-4, atol=1e-5
        )
        assert set(gates) <= {0.0, 1.0} or train


@pytest.mark.slow
def test_padding_and_batch_company_change_no_evaluation(np_rng):
    """That training does not depend on them is a matter of test_every_task."""
    task, batch = make_task(), make_batch(np_rng)
    params = draw(task)

    def run(b):
        return apply(task.model, params, b, rngs())

    many = run(batch)
    turned = run({k: v[::-1] for k, v in batch.items()})
    wide = pad(batch, 16)
    for row in range(3):
        one = run({k: v[row : row + 1] for k, v in wide.items()})
        for other, place in ((many, row), (turned, 2 - row)):
            np.testing.assert_allclose(other.logits[place], one.logits[0], **F32)
            np.testing.assert_array_equal(other.gates[place], one.gates[0, :8])
            np.testing.assert_array_equal(one.gates[0, 8:], 0.0)


@pytest.mark.slow
def test_a_text_without_words_is_evaluated_under_all_gates(np_rng):
    task, batch = make_task(), make_batch(np_rng, lengths=(0, 5, 8))
    metrics, predictions = evaluate(task, draw(task), batch)
    assert np.isfinite([ratio.total for ratio in metrics.values()]).all()
    assert predictions["attended"][0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("penalty_on", ["gate", "prob"])
def test_penalty_is_lambda_times_the_mean_gate_over_true_lengths(penalty_on, np_rng):
    batch = make_batch(np_rng)
    task = make_task(penalty=0.5, penalty_on=penalty_on)
    params = draw(task)
    total, (metrics, output) = loss(task, params, batch, rngs())
    extra = 0.0
    for row, length in enumerate(batch["lengths"]):
        soft = np.asarray(output.gates[row, :length], np.float64)
        probability = sigmoid(np.asarray(output.gate_logits[row, :length], np.float64))
        extra += 0.5 * (soft if penalty_on == "gate" else probability).sum() / float(length)
    cross_entropy = float(metrics["cross_entropy"].total)
    np.testing.assert_allclose(float(total) - cross_entropy, extra, rtol=1e-4)


@pytest.mark.slow
def test_nan_in_a_word_vector_shows_in_the_loss_of_its_example_only(np_rng):
    task = make_task()
    batch = make_batch(np_rng, lengths=(4, 4, 4))
    params = draw(task)
    word = batch["tokens"][0, 0]
    batch["tokens"][1:] = np.where(batch["tokens"][1:] == word, 1, batch["tokens"][1:])
    params["embed"]["embedding"][word] = np.nan
    output = apply(task.model, params, batch, rngs(), train=True)
    assert np.isnan(output.logits[0]).all()
    assert np.isfinite(output.logits[1:]).all()
