"""The translator: cache against whole targets, padding, search, losses, and what is refused."""

import functools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from gatedjax.models import (
    SSANTranslationTask,
    SSANTranslator,
    SSANTranslatorConfig,
    translate,
)
from gatedjax.models.transformer.decoder import smoothed_cross_entropy
from tests._drawn import drawn
from tests._grouped import grouped
from tests._slow import slow_but
from tests.models._passes import apply, in_numpy
from tests.tolerances import F32

V = 12


def config(**options):
    # one layer of each: most of the time of these tests is compilation
    small = {"num_layers": 1, "decoder_layers": 1, "hidden": 16, "filter_size": 32, "num_heads": 2}
    return grouped(SSANTranslatorConfig, **{**small, **options})


def batch_of(np_rng, lengths, target_lengths):
    """Random sentences that end with the stop token."""
    batch = {}
    for name, sizes, length in (
        ("tokens", lengths, "lengths"),
        ("targets", target_lengths, "target_lengths"),
    ):
        cells = np.zeros((len(sizes), max(*sizes, 1)), np.int32)
        for row, size in zip(cells, sizes, strict=True):
            if size:
                row[:size] = [*np_rng.integers(4, V, size - 1), 3]
        batch[name], batch[length] = cells, np.array(sizes, np.int32)
    batch["example_id"] = np.arange(len(lengths), dtype=np.int32)
    batch["weight"] = np.ones(len(lengths), np.float32)
    return batch


search = in_numpy(translate, static_argnames=("beam_size", "extra"))


@functools.cache
def trained(**options):
    """A model with parameters that are not those of the beginning (biases 0)."""
    model = SSANTranslator(config(**dict(options)), V)
    batch = batch_of(np.random.default_rng(1), [4, 3], [3, 4])
    return model, drawn(SSANTranslationTask(model).init, batch, std=0.25, rng=5, scales=1.0)


VARIANTS = [
    {},
    {"norm": "post", "positions": "learned", "max_length": 20, "decoder_layers": 2},
    {"share_embeddings": False, "tie_output": False, "positions": "none", "select_layers": (0,)},
]


@pytest.mark.parametrize("options", slow_but(VARIANTS, VARIANTS[1]), ids=["pre", "post", "untied"])
def test_decoding_with_a_cache_equals_the_whole_target(np_rng, options):
    model, params = trained(**options)
    batch = batch_of(np_rng, [5, 3, 1, 0], [6, 2, 4, 1])
    logits = apply(model, params, batch).logits
    full = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    beams, size = 2, 6

    variables = {"params": params}
    begun = jax.jit(lambda v, b: model.apply(v, b, beams, size, method=SSANTranslator.start))(
        variables, batch
    )
    step = jax.jit(functools.partial(model.apply, method=SSANTranslator.step))
    cache, found = begun["cache"], []
    read = np.pad(batch["targets"], ((0, 0), (1, 0)), constant_values=2)
    other = np.roll(read, 1, axis=1)  # another target of the same source
    for t in range(size):
        tokens = np.stack([read[:, t], other[:, t]], axis=1)
        position = np.int32(t)
        log_probs, cache = step(variables, tokens, cache, position, begun["source"], begun["mask"])
        found.append(np.asarray(log_probs)[:, 0])
    got = np.stack(found, axis=1)
    for row, length in enumerate([6, 2, 4, 1]):
        np.testing.assert_allclose(got[row, :length], full[row, :length], rtol=1e-4, atol=1e-5)


def test_evaluation_is_of_the_real_words_of_the_targets(np_rng):
    model, params = trained()
    batch = batch_of(np_rng, [5, 3, 1, 0], [6, 2, 4, 1])
    output = apply(model, params, batch)
    told = SimpleNamespace(apply=lambda *_: output, config=model.config)
    metrics, predictions = SSANTranslationTask(told).evaluate(params, batch)
    log_probs = output.logits - np.log(np.exp(output.logits).sum(-1, keepdims=True))
    targets, lengths = batch["targets"], batch["target_lengths"]
    real = np.arange(6) < lengths[:, None]
    nll = -np.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0] * real
    np.testing.assert_allclose(predictions["nll"], nll.sum(axis=1), **F32)
    np.testing.assert_array_equal(predictions["words"], lengths)
    np.testing.assert_array_equal(predictions["example_id"], np.arange(4))
    right = (np.argmax(log_probs, axis=-1) == targets) & real
    for name, total in (("loss", nll.sum()), ("perplexity", nll.sum()), ("accuracy", right.sum())):
        found = metrics[name].total, metrics[name].count
        np.testing.assert_allclose(found, (total, 13), rtol=1e-5)


def test_a_target_word_is_not_seen_before_it_is_predicted(np_rng):
    model, params = trained()
    batch = batch_of(np_rng, [5, 3, 1, 0], [6, 6, 6, 6])
    before = apply(model, params, batch).logits
    changed = batch | {"targets": batch["targets"].copy()}
    changed["targets"][:, 3] = 13 - changed["targets"][:, 3]
    after = apply(model, params, changed).logits
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    for row in range(4):
        assert not np.allclose(before[row, 4:], after[row, 4:])


@pytest.mark.slow
def test_translations_depend_on_neither_padding_nor_the_rest_of_the_batch(np_rng):
    model, params = trained()
    batch = batch_of(np_rng, [5, 2, 1], [2, 2, 2])
    run = functools.partial(search, model, params, beam_size=3, extra=4)
    found = run({name: batch[name] for name in ("tokens", "lengths")})
    # at most `extra` tokens more than the source
    assert np.all(np.sum(np.asarray(found.tokens[:, 0]) > 0, axis=1) <= np.array([9, 6, 5]))
    alone = run({"tokens": batch["tokens"][1:2, :2], "lengths": np.array([2], np.int32)})
    np.testing.assert_array_equal(found.tokens[1, :, :6], alone.tokens[0])
    np.testing.assert_allclose(found.scores[1], alone.scores[0], rtol=1e-4, atol=1e-5)
    ended = np.asarray(found.tokens)
    assert np.all(np.sum(ended == 3, axis=-1) == 1)
    assert not np.isin(ended[ended > 0], [0, 1, 2]).any()


@pytest.mark.slow
def test_the_score_of_a_translation_is_its_log_probability(np_rng):
    model, params = trained()
    batch = batch_of(np_rng, [4, 3], [2, 2])
    sources = {name: batch[name] for name in ("tokens", "lengths")}
    greedy = search(model, params, sources, beam_size=1, extra=3)
    targets = greedy.tokens[:, 0]
    lengths = np.sum(targets > 0, axis=1, dtype=np.int32)
    scored = sources | {"targets": targets, "target_lengths": lengths}
    logits = apply(model, params, scored).logits.astype(np.float64)
    for row, length in enumerate(np.asarray(lengths)):
        allowed = logits[row].copy()
        total = 0.0
        for t in range(length):
            whole = np.log(np.sum(np.exp(allowed[t])))  # forbidden tokens keep their mass
            total += allowed[t, targets[row, t]] - whole
        assert float(greedy.scores[row, 0]) == pytest.approx(total, rel=1e-4)


def test_smoothing_is_the_mixture_with_the_uniform_distribution(np_rng):
    logits = np_rng.normal(size=(3, 5)) * 4
    targets = np.array([0, 4, 2])
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    goal = np.full((3, 5), 0.1 / 5)
    goal[np.arange(3), targets] += 0.9
    scores = logits.astype(np.float32)
    got = jax.jit(smoothed_cross_entropy, static_argnums=2)(scores, targets, 0.1)
    np.testing.assert_allclose(got, -(goal * log_probs).sum(-1), **F32)
    plain = jax.jit(smoothed_cross_entropy, static_argnums=2)(scores, targets, 0.0)
    np.testing.assert_allclose(plain, -log_probs[np.arange(3), targets], **F32)


def test_keys_and_values_are_cached_in_the_dtype_of_the_network(np_rng):
    model, batch = SSANTranslator(config(dtype="bfloat16"), V), batch_of(np_rng, [4, 3], [3, 4])
    start = functools.partial(model.apply, beams=2, size=5, method=SSANTranslator.start)
    shapes = jax.eval_shape(SSANTranslationTask(model).init, jax.random.key(0), batch)
    begun = jax.eval_shape(lambda params: start({"params": params}, batch), shapes)
    assert {str(x.dtype) for x in jax.tree.leaves((begun["cache"], begun["source"]))} == {
        "bfloat16"
    }


def test_a_text_beyond_the_position_table_is_refused(np_rng):
    model, params = trained(norm="post", positions="learned", max_length=20)
    variables = {"params": params}
    with pytest.raises(ValueError, match="must be at most 20, got 21"):
        jax.eval_shape(model.apply, variables, batch_of(np_rng, [21], [3]))
    with pytest.raises(ValueError, match=r"targets.shape\[1\] must be at most 20, got 21"):
        jax.eval_shape(model.apply, variables, batch_of(np_rng, [3], [21]))
    with pytest.raises(ValueError, match="size must be at most 20, got 23"):
        search(model, params, batch_of(np_rng, [3], [3]), extra=20)


@pytest.mark.slow
def test_the_selector_is_in_the_chosen_encoder_layers_only():
    shapes = {}
    for layers in ((0,), (1,), (1, 2)):
        model = SSANTranslator(config(num_layers=2, select_layers=layers), V)
        batch = batch_of(np.random.default_rng(1), [4, 3], [3, 4])
        params = jax.eval_shape(lambda m=model, b=batch: m.init(jax.random.key(0), b))["params"]
        shapes[layers] = sum(x.size for x in jax.tree.leaves(params))
        decoder = [params[name] for name in params if name.startswith("decoder")]
        assert "selector" not in str(jax.tree.structure(decoder))
    extra = 2 * (16 * 16 + 16)
    assert shapes[1,] - shapes[0,] == extra
    assert shapes[1, 2] - shapes[0,] == 2 * extra
