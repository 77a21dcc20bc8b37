"""The RAU classifier: parameter counts, invariances, training."""

import functools
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax import functional as F
from gatedjax.data import ImageBatches, load
from gatedjax.models import RAUClassifier, RAUConfig, RAUTask
from tests.tolerances import F32

CELLS = ("rau", "gru", "lstm")
FORMS = get_args(F.RAUAttention)
VARIANTS = [
    *({"cell": cell} for cell in CELLS),
    *({"attention": form} for form in FORMS if form != "feature_proj"),
    *({"attention": f, "rescale": True} for f in ("feature_proj", "concat", "time_causal")),
    {"attn_hidden": 3},
    {"reset_after": True},
    {"cell": "gru", "reset_after": True},
]
ids = lambda variant: "-".join(map(str, variant.values()))  # noqa: E731


def make_task(text=False, **config) -> RAUTask:
    network = RAUConfig(**({"hidden": 5, "embedding_dim": 6} | config))
    return RAUTask(RAUClassifier(network, num_classes=3, vocab_size=20 if text else None))


def make_batch(rng, lengths=(4, 7, 1), size=8, text=False):
    lengths = np.asarray(lengths, np.int32)
    real = np.arange(size)[None, :] < lengths[:, None]
    if text:
        inputs = {"tokens": jnp.asarray(rng.integers(2, 20, real.shape) * real, jnp.int32)}
    else:
        rows = rng.normal(size=(*real.shape, 4)) * real[..., None]
        inputs = {"rows": jnp.asarray(rows, jnp.float32)}
    return inputs | {
        "lengths": jnp.asarray(lengths),
        "label": jnp.asarray(rng.integers(0, 3, len(lengths)), jnp.int32),
        "example_id": jnp.arange(10, 10 + len(lengths)),
        "weight": jnp.ones(len(lengths)),
    }


# Compiled whole: an eager pass would compile every operation on its own.
init = jax.jit(lambda task, key, batch: task.init(key, batch), static_argnums=0)
loss = jax.jit(lambda task, params, batch, keys: task.loss(params, batch, keys), static_argnums=0)


@functools.partial(jax.jit, static_argnums=0, static_argnames=("train", "attention"))
def forward(model, params, batch, *, train=False, attention=False):
    keys = {"dropout": jax.random.key(3)}
    return model.apply({"params": params}, batch, train=train, attention=attention, rngs=keys)


def size_of(tree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(("cell", "count"), [("gru", 60_288), ("lstm", 80_384), ("rau", 100_480)])
def test_parameter_counts_of_the_paper(cell, count):
    task = RAUTask(RAUClassifier(RAUConfig(cell=cell), num_classes=10))
    batch = {"rows": jnp.zeros((1, 28, 28)), "lengths": jnp.array([28])}
    params = jax.eval_shape(task.init, jax.random.key(0), batch)
    assert size_of(params["recurrent"]) == count
    assert size_of(params["classifier"]) == 128 * 10 + 10


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("text", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("variant", VARIANTS[:6], ids=ids)
def test_padding_and_batch_company_change_no_example(variant, text, train, np_rng):
    drop = {"embedding_dropout": 0.3, "recurrent_dropout": 0.3, "state_dropout": 0.3}
    task = make_task(text, **variant, **drop)
    batch = make_batch(np_rng, text=text)
    params = init(task, jax.random.key(1), batch)
    one = forward(task.model, params, {k: v[1:2] for k, v in batch.items()}, train=train)
    name = "tokens" if text else "rows"
    widths = [(0, 0), (0, 5), (0, 0)][: batch[name].ndim]
    wide = batch | {name: jnp.pad(batch[name], widths, constant_values=0 if text else 9)}
    for other in (batch, wide):
        found = forward(task.model, params, other, train=train)
        np.testing.assert_allclose(found.logits[1], one.logits[0], **F32)


def test_the_logits_are_the_dense_layer_on_the_state_after_the_last_true_step(np_rng):
    task = make_task()
    batch = make_batch(np_rng)
    params = init(task, jax.random.key(1), batch)
    output = forward(task.model, params, batch)
    cell = F.RAUWeights(*(params["recurrent"][f"layer_0_{f}"] for f in F.RAUWeights._fields[:3]))
    for row, length in enumerate(batch["lengths"]):
        state = jnp.zeros((1, 5))
        for x in batch["rows"][row, :length]:
            state = F.rau_step(cell, state, x[None])
        wanted = state @ params["classifier"]["kernel"] + params["classifier"]["bias"][None]
        np.testing.assert_allclose(output.logits[row], wanted[0], **F32)
        np.testing.assert_allclose(output.states[row, length - 1], state[0], **F32)


@pytest.mark.parametrize("form", FORMS)
def test_attention_over_time_sums_to_one_and_is_zero_at_padding(form, np_rng):
    task = make_task(attention=form)
    batch = make_batch(np_rng)
    params = init(task, jax.random.key(1), batch)
    found = np.asarray(forward(task.model, params, batch, attention=True).attention)
    width = {"concat": (9,), "matrix": (5, 9), "time_causal": (1,)}.get(form, (5,))
    assert found.shape == (3, 8, *width)
    mask = np.asarray(F.length_mask(batch["lengths"], 8))
    assert np.all(found[~mask] == 0)
    if form == "time_causal":
        np.testing.assert_allclose(found[:, 0], 1, **F32)
    elif form != "sigmoid":
        np.testing.assert_allclose(found[mask].sum(-1), 1, **F32)


def test_attention_of_the_default_form_is_the_softmax_of_its_logits(np_rng):
    task = make_task(rescale=True)
    batch = make_batch(np_rng, lengths=(8, 8, 8))
    params = init(task, jax.random.key(1), batch)
    output = forward(task.model, params, batch, attention=True)
    before = jnp.pad(output.states, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    own = params["recurrent"]
    kernel = jnp.concatenate([own["layer_0_input"], own["layer_0_recurrent"]])[:, 15:20]
    logits = jnp.concatenate([batch["rows"], before], axis=-1) @ kernel
    np.testing.assert_allclose(output.attention, 5 * jax.nn.softmax(logits), **F32)


def test_a_baseline_has_no_attention(np_rng):
    task = make_task(cell="gru")
    batch = make_batch(np_rng)
    params = init(task, jax.random.key(1), batch)
    with pytest.raises(ValueError, match="cell 'gru' has no attention"):
        forward(task.model, params, batch, attention=True)


def train(task, params, batch, steps, rate):
    tx = optax.adam(rate)

    @jax.jit
    def run(params):
        def step(carry, number):
            params, state = carry
            keys = {"dropout": jax.random.fold_in(jax.random.key(0), number)}
            value, grad = jax.value_and_grad(lambda p: task.loss(p, batch, keys)[0])(params)
            updates, state = tx.update(grad, state)
            return (optax.apply_updates(params, updates), state), value

        carry, losses = jax.lax.scan(step, (params, tx.init(params)), jnp.arange(steps))
        return carry[0], losses

    return run(params)


@pytest.mark.parametrize("text", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("variant", VARIANTS, ids=ids)
def test_every_cell_and_variant_learns(variant, text, np_rng):
    task = make_task(text, **variant)
    batch = make_batch(np_rng, lengths=(4, 7, 1, 8), text=text)
    params = init(task, jax.random.key(1), batch)
    _, losses = train(task, params, batch, 12, 0.02)
    assert np.all(np.isfinite(losses))
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("cell", CELLS)
def test_32_digits_are_learnt_by_heart(cell):
    batch = jax.tree.map(jnp.asarray, ImageBatches(load("digits", "train"), batch_size=32)[0])
    task = RAUTask(RAUClassifier(RAUConfig(cell=cell, hidden=16), num_classes=10))
    params = init(task, jax.random.key(0), batch)
    params, _ = train(task, params, batch, 150, 0.02)
    metrics, predictions = jax.jit(task.evaluate)(params, batch)
    assert float(metrics["accuracy"].total) == 32
    assert float(metrics["loss"].total / metrics["loss"].count) < 0.1
    np.testing.assert_array_equal(predictions["predicted"], batch["label"])


def test_bfloat16_products_are_close_and_the_state_is_float32(np_rng):
    batch = make_batch(np_rng)
    params = init(make_task(), jax.random.key(1), batch)
    wide = forward(make_task().model, params, batch)
    narrow = forward(make_task(dtype="bfloat16").model, params, batch)
    assert narrow.logits.dtype == narrow.state.dtype == jnp.float32
    np.testing.assert_allclose(narrow.logits, wide.logits, atol=0.05)


def test_filler_rows_count_for_nothing(np_rng):
    task = make_task()
    batch = make_batch(np_rng)
    params = init(task, jax.random.key(1), batch)
    filler = jax.tree.map(lambda v: jnp.concatenate([v, jnp.zeros_like(v[:1])]), batch)
    for a, b in zip(
        jax.tree.leaves(loss(task, params, batch, {})),
        jax.tree.leaves(loss(task, params, filler, {})),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, **F32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        ({"state_dropout": 1.0}, r"state_dropout must be in \[0, 1\), got 1.0"),
        ({"attn_hidden": -1}, "attn_hidden must be at least 0"),
        ({"attn_hidden": 2, "attention": "concat"}, "attn_hidden must be 0 for"),
        ({"rescale": True, "attention": "sigmoid"}, "rescale must be False"),
        ({"reset_after": True, "cell": "lstm"}, "reset_after must be False"),
    ],
)
def test_impossible_configurations_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RAUConfig(**options)


def test_a_batch_of_another_kind_is_refused(np_rng):
    task = make_task()
    with pytest.raises(ValueError, match="batch needs 'rows'"):
        task.init(jax.random.key(0), make_batch(np_rng, text=True))
    batch = make_batch(np_rng)
    with pytest.raises(ValueError, match=r"rows \[B, T, D\] and lengths \[B\]"):
        task.init(jax.random.key(0), batch | {"lengths": batch["lengths"][:2]})
