"""The encoder of SSAN, its probe and word reordering detection."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from gatedjax import models
from gatedjax import nn as gnn
from gatedjax.models.ssan.selector import selector_terms
from tests._drawn import drawn
from tests._grouped import grouped
from tests.models._losses import total_loss
from tests.models._passes import RNGS, apply, evaluate, in_numpy, loss

VOCAB, N = 30, 6
LENGTHS = np.array([6, 3, 1, 0])
SMALL = {"num_layers": 2, "hidden": 8, "filter_size": 12, "num_heads": 2}


def batch_of(lengths=LENGTHS, size=N, first=0):
    rows = len(lengths)
    tokens = np.random.default_rng(1).integers(2, VOCAB, (10, 40))[first : first + rows, :size]
    tokens = np.where(np.arange(size)[None] < lengths[:, None], tokens, 0).astype(np.int32)
    return {
        "tokens": tokens,
        "lengths": lengths.astype(np.int32),
        "label": (np.arange(rows) % 2).astype(np.int32),
        "insert": np.zeros(rows, np.int32),
        "original": np.maximum(lengths - 1, 0).astype(np.int32),
        "example_id": np.arange(first, first + rows, dtype=np.int32),
        "weight": np.ones(rows, np.float32),
    }


draw = functools.partial(drawn, std=0.3, rng=7, scales=1.0)


@functools.cache
def encoder(embedding_dim=None, **options):
    config = grouped(models.SSANConfig, **SMALL, **options)
    net = models.SSANEncoder(config, VOCAB, embedding_dim=embedding_dim)
    return net, draw(net.init, batch_of())["params"]


def count(tree, *words):
    leaves = jax.tree.leaves_with_path(tree)
    return sum(x.size for path, x in leaves if any(w in str(path) for w in words))


@pytest.mark.parametrize("layers", [(0,), (), (1,), (2,), (1, 2)])
def test_only_listed_layers_have_a_selector(layers):
    net, params = encoder(select_layers=layers)
    wanted = [n for n in layers if n]
    found = {n for n in (1, 2) if "selector_query" in params[f"layer_{n}"]["attention"]}
    assert found == set(wanted)
    assert count(params, "selector_") == len(wanted) * 2 * (8 * 8 + 8)
    output = jax.eval_shape(lambda: net.apply({"params": params}, batch_of()))
    assert [s.gates is not None for s in output.selections] == [n in wanted for n in (1, 2)]


@pytest.mark.parametrize(
    ("norm", "relative", "width"), [("pre", "none", 6), ("post", "learned", None)]
)
def test_an_encoder_is_the_equations_of_its_layers(norm, relative, width):
    """Two layers, in NumPy, text by text, without padding."""
    net, p = encoder(width, norm=norm, relative=relative, max_offset=2)
    got = apply(net, p, batch_of())

    def layer_norm(x, w):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-6) * w["scale"] + w["bias"]

    def heads(x, w):
        return np.einsum("nd,dmh->mnh", x, w["kernel"]) + w["bias"][:, None]

    def attention(x, w):
        q, k, v = (heads(x, w[name]) for name in ("query", "key", "value"))
        e = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        if relative != "none":
            place = np.arange(len(x))
            e = e + w["relative_bias"][:, np.clip(place[None] - place[:, None], -2, 2) + 2]
        e = np.exp(e)
        if "selector_query" in w:
            s = heads(x, w["selector_query"]) @ heads(x, w["selector_key"]).swapaxes(1, 2)
            e = e * (s > 0)
        mixed = (
            np.where(
                e.sum(-1, keepdims=True) > 0, e / np.maximum(e.sum(-1, keepdims=True), 1e-30), 0
            )
            @ v
        )
        return np.einsum("mnh,mhd->nd", mixed, w["out"]["kernel"]) + w["out"]["bias"]

    def feed_forward(x, w):
        hidden = np.maximum(x @ w["wide"]["kernel"] + w["wide"]["bias"], 0)
        return hidden @ w["narrow"]["kernel"] + w["narrow"]["bias"]

    for row, length in enumerate(LENGTHS):
        tokens = np.asarray(batch_of()["tokens"])[row, :length]
        places = np.arange(length)[:, None] * 10_000.0 ** (-2.0 * (np.arange(8) // 2) / 8)
        x = p["embed"]["embedding"][tokens] * np.sqrt(width or 8)
        if width:
            x = x @ p["projection"]["kernel"] + p["projection"]["bias"]
        x = x + np.where(np.arange(8) % 2 == 0, np.sin(places), np.cos(places))
        for n in (1, 2):
            w = p[f"layer_{n}"]
            for name, f in (("attention", attention), ("feed_forward", feed_forward)):
                norm_of = w[f"{name}_norm"]
                if norm == "pre":
                    x = x + f(layer_norm(x, norm_of), w[name])
                else:
                    x = layer_norm(x + f(x, w[name]), norm_of)
        if norm == "pre":
            x = layer_norm(x, p["norm"])
        np.testing.assert_allclose(got.states[row, :length], x, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got.states[row, length:], 0)


@pytest.mark.slow
def test_pretrained_vectors_are_taken_as_they_are_and_drawn_ones_are_scaled():
    plain, params = encoder(select_layers=(0,))
    table = params["embed"]["embedding"] * np.float32(8**0.5)
    given = models.SSANEncoder(plain.config, VOCAB, embeddings=table)
    scaled = {"params": params | {"embed": {"embedding": table}}}
    states = jax.jit(given.apply)(scaled, batch_of()).states
    np.testing.assert_allclose(
        apply(plain, params, batch_of()).states, states, rtol=1e-4, atol=1e-5
    )


@functools.cache
def probe(**options):
    config = grouped(
        models.SSANProbeConfig, **(SMALL | {"num_layers": 1, "head_hidden": (5,)} | options)
    )
    task = models.SSANProbeTask(models.SSANProbe(config, VOCAB, 3))
    return task, draw(task.init, batch_of())


@pytest.mark.parametrize("pool", ["mean", "max", "first", "s2t"])
def test_pooling(pool):
    task, params = probe(pool=pool)
    output = apply(task.model, params, batch_of())
    assert output.logits.shape == (4, 3)
    assert np.isfinite(output.logits).all()
    head = params
    for row, length in enumerate(LENGTHS):
        own = output.states[row, :length]
        if pool == "s2t":
            if length:
                w = head["pool"]
                hidden = own @ w["Dense_0"]["kernel"] + w["Dense_0"]["bias"]
                hidden = np.where(hidden > 0, hidden, np.expm1(hidden))
                e = np.exp(hidden @ w["Dense_1"]["kernel"] + w["Dense_1"]["bias"])
                pooled = (e / e.sum(0) * own).sum(0)
        elif length:
            pooled = {"mean": own.mean(0), "max": own.max(0), "first": own[0]}[pool]
        pooled = pooled if length else np.zeros(8)
        hidden = np.maximum(pooled @ head["head_0"]["kernel"] + head["head_0"]["bias"], 0)
        wanted = hidden @ head["classifier"]["kernel"] + head["classifier"]["bias"]
        np.testing.assert_allclose(output.logits[row], wanted, rtol=1e-4, atol=1e-5)


def test_selector_terms_are_those_of_the_selections():
    config = models.SelectorConfig(
        estimator="reinforce",
        selected_weight=0.5,
        entropy_weight=0.25,
        reward_penalty=0.1,
    )
    rng = np.random.default_rng(0)
    selection = {
        "rate": rng.random((4, 2)), "empty": np.zeros((4, 2)), "selected": rng.random((4, 2)),
        "entropy": rng.random(4), "log_prob": -rng.random(4),
    }  # fmt: skip
    layers = (gnn.Selection(), gnn.Selection(**selection))
    cost, baseline = rng.random(4).astype(np.float32), np.float32(-0.3)
    penalty, _ = selector_terms(config, layers, cost, baseline)
    wanted = 0.5 * selection["selected"].sum(1) - 0.25 * selection["entropy"]
    np.testing.assert_allclose(penalty, wanted, rtol=1e-5)
    reward = -(np.asarray(cost) + 0.1 * selection["rate"].mean(1))
    surrogate = lambda c, b: selector_terms(config, layers, c, b)[1].sum()  # noqa: E731
    to_cost, to_baseline = jax.grad(surrogate, (0, 1))(cost, baseline)
    np.testing.assert_array_equal(to_cost, 0)
    np.testing.assert_allclose(to_baseline, (-0.3 - reward).sum(), rtol=1e-5)
    with pytest.raises(ValueError, match="baseline"):
        selector_terms(config, layers, cost)
    plain = dataclasses.replace(config, estimator=None, selected_weight=0.0, entropy_weight=0.0)
    for term in selector_terms(plain, layers, cost):
        np.testing.assert_array_equal(term, 0)


def detector(**options):
    config = grouped(models.WordReorderingConfig, **(SMALL | {"num_layers": 1} | options))
    task = models.WordReorderingTask(models.WordReorderingDetector(config, VOCAB))
    return task, draw(task.init, batch_of())


@pytest.mark.slow
def test_a_detector_points_to_words_by_its_equations():
    task, params = detector()
    params["insert"]["kernel"] *= -1  # the two positions differ
    batch = batch_of()
    output, p = apply(task.model, params, batch), params
    costs, right = [], []
    for row, length in enumerate(LENGTHS):
        x = np.asarray(output.states)[row, :length]
        q, k, v = np.split(x @ p["parts"]["kernel"] + p["parts"]["bias"], 3, axis=-1)
        insert = (np.tanh(q) @ p["insert"]["kernel"] + p["insert"]["bias"])[:, 0]
        share = np.exp(insert) / np.exp(insert).sum()
        original = k @ (share @ v) / np.sqrt(8)
        for got, wanted in zip(output.logits[row], (insert, original), strict=True):
            np.testing.assert_allclose(got[:length], wanted, rtol=1e-4, atol=1e-5)
            assert np.isneginf(got[length:]).all()
        if length:
            pair = ((insert, 0), (original, length - 1))
            costs.append(sum(np.log(np.exp(u).sum()) - u[at] for u, at in pair))
            right.append([np.argmax(u) == at for u, at in pair])
    metrics, predictions = evaluate(task, params, batch)
    for number, name in enumerate(("insert", "original")):
        best = np.argmax(output.logits[:, number], axis=-1)
        np.testing.assert_array_equal(predictions[name], best)
        np.testing.assert_array_equal(predictions[f"{name}_correct"], best == batch[name])
    np.testing.assert_array_equal(predictions["example_id"], batch["example_id"])
    np.testing.assert_allclose(metrics["loss"].value(), sum(costs) / 4, rtol=1e-5)
    right = np.array([*right, [True, True]])  # an empty text has no word to point to
    np.testing.assert_allclose(metrics["insert"].value(), right[:, 0].mean())
    np.testing.assert_allclose(metrics["original"].value(), right[:, 1].mean())
    np.testing.assert_allclose(metrics["accuracy"].value(), right.all(1).mean())
    np.testing.assert_array_equal(predictions["correct"], right.all(1))
    assert predictions["selected_heads"].shape == (4, 1, 2)


@pytest.mark.slow
def test_the_cap_bounds_the_gradient_of_the_selector_and_of_nothing_behind_it():
    (_, params), batch = probe(), batch_of()
    sharp = jax.tree.map_with_path(
        lambda path, p: p * (30 if "'query'" in str(path) else 1), params
    )
    ((free_loss, _), free), ((capped_loss, _), capped) = (
        loss(probe(cap=cap)[0], sharp, batch) for cap in (10.0, 0.0)
    )
    assert free_loss == capped_loss
    for (path, one), other in zip(
        jax.tree.leaves_with_path(free), jax.tree.leaves(capped), strict=True
    ):
        name = jax.tree_util.keystr(path)
        if "selector" in name:
            assert np.linalg.norm(other) < np.linalg.norm(one) / 2, name
        elif "embed" not in name and "attention_norm" not in name:  # the selector reads these
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.slow
def test_a_label_outside_the_classes_has_no_finite_loss():
    task, params = probe(selected_weight=0.1)
    batch = batch_of() | {"label": np.array([0, 1, 3, 0], np.int32)}
    # optax says what a label beyond the last class costs: NaN, which training skips and reports
    total, _ = in_numpy(total_loss)(task, params, batch, RNGS)
    assert not np.isfinite(total)
