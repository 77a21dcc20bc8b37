"""GA-Net against the equations of spec sections 2 to 5, and its invariances."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.models import GANet, GANetConfig, GANetTask
from gatedjax.models.ga_net import GATE_MODES
from tests.tolerances import F32

# One layer: compilation is what these tests spend their time on.
SMALL = {"embedding_dim": 6, "hidden": 5, "aux_hidden": 4, "num_layers": 1}


def make_batch(rng: np.random.Generator, lengths=(4, 7, 1), size=8, first_id=0):
    lengths = np.asarray(lengths, np.int32)
    tokens = rng.integers(2, 20, (len(lengths), size)).astype(np.int32)
    tokens *= np.arange(size)[None, :] < lengths[:, None]
    return {
        "tokens": jnp.asarray(tokens),
        "lengths": jnp.asarray(lengths),
        "label": jnp.asarray(rng.integers(0, 3, len(lengths)), jnp.int32),
        "example_id": jnp.arange(first_id, first_id + len(lengths)),
        "weight": jnp.ones(len(lengths)),
    }


def make_task(**config) -> GANetTask:
    return GANetTask(GANet(GANetConfig(**(SMALL | config)), vocab_size=20, num_classes=3))


# Compiled whole: an eager pass would compile every operation on its own.
init = jax.jit(lambda task, key, batch: task.init(key, batch), static_argnums=0)
evaluate = jax.jit(lambda task, params, batch: task.evaluate(params, batch), static_argnums=0)
loss = jax.jit(lambda task, params, batch, keys: task.loss(params, batch, keys), static_argnums=0)
gradient = jax.jit(
    lambda task, params, batch, keys: jax.grad(lambda p: task.loss(p, batch, keys)[0])(params),
    static_argnums=0,
)


@functools.partial(jax.jit, static_argnums=(0,), static_argnames="train")
def forward(model, params, batch, keys=None, *, train=False):
    return model.apply({"params": params}, batch, train=train, rngs=keys)


def rngs(seed=0):
    return {"dropout": jax.random.key(seed), "gate": jax.random.key(seed + 1)}


def pad(batch, size):
    extra = size - batch["tokens"].shape[1]
    return batch | {"tokens": jnp.pad(batch["tokens"], ((0, 0), (0, extra)))}


def sharpened(params, scale=4.0):
    """The gate's output layer scaled up, so that gates differ between tokens."""
    gate = params["auxiliary"]["gate"]
    return params | {
        "auxiliary": params["auxiliary"] | {"gate": jax.tree.map(lambda w: w * scale, gate)}
    }


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _lstm_loop(p, name, xs, reverse):
    w, u, b = (np.asarray(p[f"{name}_{k}"], np.float64) for k in ("input", "recurrent", "bias"))
    n = u.shape[0]
    h, c, out = np.zeros(n), np.zeros(n), np.zeros((len(xs), n))
    for t in reversed(range(len(xs))) if reverse else range(len(xs)):
        i, f, g, o = np.split(xs[t] @ w + h @ u + b, 4)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        out[t] = h
    return out


def _bilstm_loop(p, layer, xs):
    return np.concatenate(
        [_lstm_loop(p, f"layer_{layer}_{d}", xs, d == "backward") for d in ("forward", "backward")],
        1,
    )


def _oracle(params, tokens, gates):
    """Class scores and attention of one sentence under given gates, by plain loops."""
    xs = np.asarray(params["embed"]["table"], np.float64)[tokens]
    states = _bilstm_loop(params["backbone"], 1, _bilstm_loop(params["backbone"], 0, xs))
    w = np.asarray(params["score"]["Dense_0"]["kernel"], np.float64)[:, 0]
    weights = np.array([g * np.exp(np.tanh(h) @ w) for g, h in zip(gates, states, strict=True)])
    weights /= weights.sum()
    pooled = np.tanh(sum(a * h for a, h in zip(weights, states, strict=True)))
    out = params["classifier"]
    logits = pooled @ np.asarray(out["kernel"], np.float64) + np.asarray(out["bias"])
    hidden = _bilstm_loop(params["auxiliary"]["LSTM_0"], 0, xs)
    gate = params["auxiliary"]["gate"]
    gate_logits = hidden @ np.asarray(gate["kernel"], np.float64)[:, 0] + np.asarray(gate["bias"])
    return logits, weights, gate_logits


@pytest.mark.parametrize("train", [True, False])
def test_forward_pass_equals_loops_over_the_equations(train, np_rng):
    task = make_task(embedding_dropout=0.0, pool_dropout=0.0, num_layers=2)
    batch = make_batch(np_rng)
    params = sharpened(init(task, jax.random.key(1), batch))
    output = forward(task.model, params, batch, rngs(), train=train)
    for row, length in enumerate(batch["lengths"]):
        tokens = np.asarray(batch["tokens"][row, :length])
        gates = np.asarray(output.gates[row, :length], np.float64)
        logits, weights, gate_logits = _oracle(params, tokens, gates)
        np.testing.assert_allclose(output.logits[row], logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(output.attention[row, :length], weights, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            output.gate_logits[row, :length], gate_logits, rtol=1e-4, atol=1e-5
        )
        assert set(gates) <= {0.0, 1.0} or train


@pytest.mark.parametrize(
    ("system", "train"),
    [("ganet", True), ("ganet", False), ("soft", True), ("local", True), ("bilstm", False)],
)
def test_padding_and_batch_company_change_no_example(system, train, np_rng):
    task = make_task(system=system, recurrent_dropout=0.2, layer_dropout=0.2)
    batch = make_batch(np_rng)
    params = init(task, jax.random.key(1), batch)

    def run(b):
        return forward(task.model, params, b, rngs(), train=train)

    alone = {k: v[1:2] for k, v in batch.items()}
    one, many, wide = run(alone), run(batch), run(pad(batch, 16))
    order = jnp.array([2, 1, 0])
    turned = run({k: v[order] for k, v in batch.items()})
    for other, row in ((many, 1), (wide, 1), (turned, 1)):
        np.testing.assert_allclose(other.logits[row], one.logits[0], **F32)
        if system == "ganet" and not train:
            np.testing.assert_array_equal(other.gates[row, :8], one.gates[0])
        elif system == "ganet":
            np.testing.assert_allclose(other.gates[row, :8], one.gates[0], **F32)


@pytest.mark.parametrize(
    ("test_gate", "empty"),
    [
        ("sample", "max_gate"),
        ("threshold", "max_gate"),
        ("multi_sample", "max_gate"),
        ("sample", "soft"),
        ("sample", "zeros"),
    ],
)
def test_one_token_has_weight_one_in_every_gate_mode(test_gate, empty, np_rng):
    task = make_task(test_gate=test_gate, empty=empty, gate_bias_init=-50.0)
    batch = make_batch(np_rng, lengths=(1, 1))
    params = init(task, jax.random.key(1), batch)
    output = forward(task.model, params, batch, rngs())
    expected = 0.0 if empty == "zeros" else 1.0
    np.testing.assert_allclose(output.attention[:, 0], expected, **F32)
    assert bool(output.closed.all())


@pytest.mark.parametrize("empty", ["max_gate", "soft", "zeros"])
def test_all_gates_closed_follows_the_empty_rule(empty, np_rng):
    task = make_task(empty=empty, gate_bias_init=-1e4, test_gate="threshold")
    batch = make_batch(np_rng, lengths=(6, 3))
    params = init(task, jax.random.key(1), batch)
    output = forward(task.model, params, batch, rngs())
    soft = dataclasses.replace(task.model.config, system="soft")
    attention = np.asarray(output.attention)
    if empty == "max_gate":
        chosen = np.argmax(np.asarray(output.gate_logits), axis=1)
        np.testing.assert_array_equal(attention.argmax(1), chosen)
        np.testing.assert_array_equal(attention.sum(1), 1.0)
    elif empty == "zeros":
        np.testing.assert_array_equal(attention, 0.0)
    else:
        ungated = forward(GANet(soft, vocab_size=20, num_classes=3), params, batch)
        np.testing.assert_allclose(attention, ungated.attention, **F32)


def test_all_gates_open_equals_soft_attention(np_rng):
    task = make_task(gate_bias_init=1e4, test_gate="threshold")
    batch = make_batch(np_rng)
    params = init(task, jax.random.key(1), batch)
    soft = GANet(
        dataclasses.replace(task.model.config, system="soft"), vocab_size=20, num_classes=3
    )
    gated = forward(task.model, params, batch)
    ungated = forward(soft, params, batch)
    np.testing.assert_allclose(gated.logits, ungated.logits, **F32)
    np.testing.assert_allclose(gated.attention, ungated.attention, **F32)


@pytest.mark.parametrize(
    ("system", "dtype"),
    [("ganet", "float32"), ("ganet", "bfloat16"), ("local", "float32"), ("bilstm", "float32")],
)
def test_row_of_padding_gives_finite_logits_and_gradients(system, dtype, np_rng):
    task = make_task(system=system, dtype=dtype)
    batch = make_batch(np_rng, lengths=(0, 5))
    params = init(task, jax.random.key(1), batch)
    output = forward(task.model, params, batch, rngs())
    assert np.isfinite(np.asarray(output.logits)).all()
    if output.attention is not None:
        np.testing.assert_array_equal(output.attention[0], 0.0)
    grads = gradient(task, params, batch, rngs())
    assert all(np.isfinite(np.asarray(g)).all() for g in jax.tree.leaves(grads))
    metrics, _ = evaluate(task, params, batch)
    assert np.isfinite(metrics["accuracy"].value())


@pytest.mark.parametrize("penalty_on", ["gate", "prob"])
def test_penalty_is_lambda_times_the_mean_gate_over_true_lengths(penalty_on, np_rng):
    batch = make_batch(np_rng)
    task = make_task(penalty=0.5, penalty_on=penalty_on)
    params = init(task, jax.random.key(1), batch)
    total, metrics = loss(task, params, batch, rngs())
    output = forward(task.model, params, batch, rngs(), train=True)
    extra = 0.0
    for row, length in enumerate(batch["lengths"]):
        soft = np.asarray(output.gates[row, :length], np.float64)
        probability = _sigmoid(np.asarray(output.gate_logits[row, :length], np.float64))
        extra += 0.5 * (soft if penalty_on == "gate" else probability).sum() / float(length)
    cross_entropy = float(metrics["cross_entropy"].total)
    np.testing.assert_allclose(float(total) - cross_entropy, extra, rtol=1e-4)


def test_gradient_reaches_the_auxiliary_network_through_attention_and_through_the_penalty(np_rng):
    batch = make_batch(np_rng)
    through = {}
    for penalty in (0.0, 10.0):
        task = make_task(penalty=penalty)
        params = init(task, jax.random.key(1), batch)
        grads = gradient(task, params, batch, rngs())
        through[penalty] = np.asarray(grads["auxiliary"]["gate"]["kernel"])
    assert np.abs(through[0.0]).max() > 0
    assert np.abs(through[10.0] - through[0.0]).max() > 1e-3


def test_filler_rows_change_neither_loss_nor_metrics(np_rng):
    task = make_task()
    batch = make_batch(np_rng)
    params = init(task, jax.random.key(1), batch)
    filler = {
        "tokens": jnp.zeros((2, 8), jnp.int32),
        "lengths": jnp.zeros(2, jnp.int32),
        "label": jnp.zeros(2, jnp.int32),
        "example_id": -jnp.ones(2, jnp.int32),
        "weight": jnp.zeros(2),
    }
    padded = {k: jnp.concatenate([v, filler[k].astype(v.dtype)]) for k, v in batch.items()}
    for with_filler, without in (
        (loss(task, params, padded, rngs())[1], loss(task, params, batch, rngs())[1]),
        (evaluate(task, params, padded)[0], evaluate(task, params, batch)[0]),
    ):
        for name in without:
            np.testing.assert_allclose(
                with_filler[name].value(), without[name].value(), err_msg=name, **F32
            )


def test_evaluation_reports_every_gate_mode_from_the_same_states(np_rng):
    task = make_task(test_samples=3)
    batch = make_batch(np_rng, lengths=(8, 5, 3, 8))
    params = sharpened(init(task, jax.random.key(2), batch))
    metrics, predictions = evaluate(task, params, batch)
    for mode in GATE_MODES:
        assert 0 < metrics[f"density_{mode}"].value() <= 1
        assert f"accuracy_{mode}" in metrics
    output = forward(task.model, params, batch, {"gate": jax.random.key(0)})
    np.testing.assert_array_equal(predictions["attended"], output.gates.sum(-1))
    by_hand = [
        np.mean(np.asarray(output.gate_logits[i, :n]) > 0) or 1 / n
        for i, n in enumerate((8, 5, 3, 8))
    ]
    np.testing.assert_allclose(metrics["density_threshold"].value(), np.mean(by_hand), rtol=1e-5)
    probabilities = _sigmoid(np.asarray(output.gate_logits, np.float64))
    expected = np.mean([probabilities[i, :n].mean() for i, n in enumerate((8, 5, 3, 8))])
    np.testing.assert_allclose(metrics["density_expected"].value(), expected, rtol=1e-5)


def test_sampled_gates_follow_the_key(np_rng):
    task = make_task()
    batch = make_batch(np_rng, lengths=(8, 8, 8))
    params = init(task, jax.random.key(1), batch)

    def draw(seed):
        return np.asarray(forward(task.model, params, batch, {"gate": jax.random.key(seed)}).gates)

    np.testing.assert_array_equal(draw(0), draw(0))
    assert (draw(0) != draw(1)).any()


def test_straight_through_trains_with_hard_gates(np_rng):
    task = make_task(relax="straight_through", embedding_dropout=0.0, pool_dropout=0.0)
    batch = make_batch(np_rng, lengths=(8, 6))
    params = init(task, jax.random.key(1), batch)
    output = forward(task.model, params, batch, rngs(), train=True)
    assert set(np.unique(output.gates)) <= {0.0, 1.0}
    grads = gradient(task, params, batch, rngs())
    assert np.abs(np.asarray(grads["auxiliary"]["gate"]["kernel"])).max() > 0


def test_bfloat16_stays_close_to_float32(np_rng):
    batch = make_batch(np_rng)
    task, low = make_task(), make_task(dtype="bfloat16")
    params = init(task, jax.random.key(1), batch)

    def run(t):
        return forward(t.model, params, batch, rngs(), train=True)

    np.testing.assert_allclose(run(low).logits, run(task).logits, atol=1e-2)
    assert run(low).gate_logits.dtype == jnp.float32


@pytest.mark.parametrize(
    "option",
    [{"aux": "fnn"}, {"aux": "att"}, {"merge": "sum"}, {"score": "mlp1"}, {"post_tanh": False}],
    ids=str,
)
def test_every_option_trains_one_step_downhill(option, np_rng):
    task = make_task(embedding_dropout=0.0, pool_dropout=0.0, **option)
    batch = make_batch(np_rng)
    params = init(task, jax.random.key(1), batch)
    grads = gradient(task, params, batch, rngs())
    moved = jax.tree.map(lambda p, g: p - 0.05 * g, params, grads)
    before, after = (loss(task, p, batch, rngs())[0] for p in (params, moved))
    assert float(after) < float(before)


def test_frozen_embeddings_get_no_gradient_and_padding_never_moves(np_rng):
    batch = make_batch(np_rng)
    for freeze in (True, False):
        task = make_task(freeze_embeddings=freeze)
        params = init(task, jax.random.key(1), batch)
        grads = gradient(task, params, batch, rngs())
        table = np.asarray(grads["embed"]["table"])
        np.testing.assert_array_equal(table[0], 0.0)
        assert (np.abs(table).max() == 0) == freeze


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.0),
        ("temperature", float("nan")),
        ("penalty", -1.0),
        ("hidden", 0),
        ("pool_dropout", 1.0),
        ("local_half_width", -2.0),
    ],
)
def test_impossible_settings_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        GANetConfig(**{field: value})


def test_batch_of_the_wrong_rank_is_refused(np_rng):
    task = make_task()
    batch = make_batch(np_rng)
    with pytest.raises(ValueError, match="tokens"):
        task.model.init(jax.random.key(0), batch | {"lengths": jnp.ones((3, 1), jnp.int32)})


def test_nan_in_a_word_vector_shows_in_the_loss_of_its_example_only(np_rng):
    task = make_task(embedding_dropout=0.0)
    batch = make_batch(np_rng, lengths=(4, 4))
    params = init(task, jax.random.key(1), batch)
    word = int(batch["tokens"][0, 0])
    batch["tokens"] = (
        batch["tokens"].at[1].set(jnp.where(batch["tokens"][1] == word, 1, batch["tokens"][1]))
    )
    params["embed"]["table"] = params["embed"]["table"].at[word].set(jnp.nan)
    output = forward(task.model, params, batch, rngs(), train=True)
    assert np.isnan(np.asarray(output.logits[0])).all()
    assert np.isfinite(np.asarray(output.logits[1])).all()
