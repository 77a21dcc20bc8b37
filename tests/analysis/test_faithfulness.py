"""Comprehensiveness, sufficiency and gate leak against loops over words; their properties."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.analysis import _passes
from gatedjax.models import AGT, AGTConfig, RAUClassifier, RAUConfig, SSANProbe, SSANProbeConfig
from tests._grouped import grouped
from tests.models._passes import make_batch
from tests.models.test_ga_net import _oracle, draw, make_task, pad
from tests.tolerances import F32

LENGTHS = (4, 7, 1, 8, 0, 5)
SHARES = (0.0, 0.2, 0.5, 1.0)
ROWS = 32
MEASURES = ("comprehensiveness", "sufficiency", "needed", "enough", "leak", "flipped")
faithfulness = functools.partial(analysis.faithfulness, rows=ROWS, samples=50)


@functools.cache
def network(**options):
    """(model, parameters): two layers; about half of the gates are open."""
    task = make_task(num_layers=2, **options)
    params = draw(task, gate_bias=0.0 if "system" not in options else None)
    for name in ("classifier", "score"):
        for leaf in _leaves(params[name]):
            leaf *= 4
    if "auxiliary" in params:
        params["auxiliary"]["gate"]["kernel"] *= 20
    return task.model, params


def _leaves(tree):
    return [x for v in tree.values() for x in (_leaves(v) if isinstance(v, dict) else [v])]


@pytest.fixture
def batch(np_rng):
    found = make_batch(np_rng, LENGTHS)
    found["weight"][1] = 0  # and row 4 has no word
    return found


def probabilities(params, words, gates=None):
    """Of the classes by loops over the words, and the gates: those above 0, or the largest."""
    words = np.asarray(words)
    logits = _oracle(params, words, np.ones(len(words)))[2]
    if gates is None:
        gates = (logits > 0) | (not (logits > 0).any()) & (np.arange(len(words)) == logits.argmax())
    scores = _oracle(params, words, np.asarray(gates, float))[0]
    return np.exp(scores) / np.exp(scores).sum(), np.asarray(gates, bool), logits


def top(scores, count):
    return np.isin(
        np.arange(len(scores)), sorted(range(len(scores)), key=lambda t: -scores[t])[:count]
    )


def left(words, keep, deletion):
    if deletion == "unk":
        return [w if k else 1 for w, k in zip(words, keep, strict=True)]
    return [w for w, k in zip(words, keep, strict=True) if k] or [1]


def measures(params, words, scores, is_open, deletion, own=False):
    """The fields of a rationale of one text, one word after the other."""
    whole, _, logits = probabilities(params, words)
    scores, j = logits if own else scores, whole.argmax()
    drop = lambda keep: whole[j] - probabilities(params, left(words, keep, deletion))[0][j]  # noqa: E731
    by_share = [top(scores, int(np.ceil(q * len(words)))) for q in SHARES]
    chosen = is_open if own else top(scores, is_open.sum())
    before = probabilities(params, words, chosen)[0]
    held = chosen if deletion == "unk" else np.ones(chosen.sum(), bool)
    after = probabilities(params, left(words, chosen, deletion), held)[0]
    every = [[drop(~r) for r in by_share], [drop(r) for r in by_share]]
    return every, {
        "comprehensiveness": np.mean(every[0]),
        "sufficiency": np.mean(every[1]),
        "needed": drop(~chosen),
        "enough": drop(chosen),
        "leak": abs(before[j] - after[j]),
        "flipped": before.argmax() != after.argmax(),
    }


@pytest.mark.slow
@pytest.mark.parametrize("deletion", ["remove", "unk"])
def test_measures_equal_loops_over_the_words(deletion, batch, np_rng):
    model, params = network()
    scores = np_rng.normal(size=batch["tokens"].shape)
    is_padding = np.arange(scores.shape[1]) >= np.array(LENGTHS)[:, None]
    scores[is_padding] = np.nan
    kept = None
    if deletion == "unk":  # the words that count as open are given
        kept = np_rng.random(scores.shape) < 0.5
        kept[:, 0] = True
    options = {"deletion": deletion, "shares": SHARES, "others": {"given": scores}, "kept": kept}
    found = faithfulness(model, params, batch, **options)
    np.testing.assert_array_equal(found.rows, [0, 2, 3, 5])
    assert 0 < found.density.min() < found.density.max() <= 1
    assert found.own.leak.max() > 1e-3
    for place, row in enumerate(found.rows):
        words = batch["tokens"][row, : LENGTHS[row]]
        whole, is_open, _ = probabilities(params, words)
        is_open = is_open if kept is None else kept[row, : len(words)]
        assert found.predicted[place] == whole.argmax()
        np.testing.assert_allclose(found.probability[place], whole.max(), rtol=1e-4)
        np.testing.assert_allclose(found.density[place], is_open.mean())
        for name, of_words in (("own", None), ("given", scores[row, : len(words)])):
            rationale = found.rationales[name]
            every, want = measures(params, words, of_words, is_open, deletion, name == "own")
            got = [values[:, place] for values in rationale.by_share]
            np.testing.assert_allclose(got, every, atol=1e-4)
            for field, value in want.items():
                np.testing.assert_allclose(
                    getattr(rationale, field)[place], value, atol=1e-4, err_msg=field
                )


@pytest.mark.parametrize("deletion", ["remove", "unk"])
def test_nothing_taken_and_everything_kept_change_nothing(deletion, batch):
    found = faithfulness(*network(), batch, deletion=deletion, shares=(0, 1))
    for rationale in found.rationales.values():
        needed, enough = rationale.by_share
        np.testing.assert_array_equal(needed[0], 0)
        np.testing.assert_array_equal(enough[1], 0)
        np.testing.assert_array_equal(needed[1], enough[0])


def test_open_gates_leak_nothing(batch):
    model, params = network()
    gate = {**params["auxiliary"]["gate"], "bias": np.full(1, 1e4, np.float32)}
    wide = {**params, "auxiliary": {**params["auxiliary"], "gate": gate}}
    found = faithfulness(model, wide, batch)
    np.testing.assert_array_equal(found.density, 1)
    for rationale in found.rationales.values():
        for field in ("leak", "flipped", "enough"):
            np.testing.assert_array_equal(getattr(rationale, field), 0)


@pytest.mark.slow
@pytest.mark.parametrize("deletion", ["remove", "unk"])
def test_gates_on_the_input_leak_nothing_whatever_the_rationale(deletion, batch):
    found = faithfulness(*network(gates_on="input"), batch, deletion=deletion)
    assert found.density.min() < 1
    for rationale in found.rationales.values():
        np.testing.assert_array_equal(rationale.leak, 0)
        np.testing.assert_array_equal(rationale.flipped, 0)


@pytest.mark.slow
def test_a_random_rationale_belongs_to_the_key_and_the_example(batch):
    model, params = network()
    # without ids the numbers of the rows are those of the examples
    bare = {name: values for name, values in batch.items() if name != "example_id"}
    one = faithfulness(model, params, bare, against=["random"])
    batch["example_id"] = np.arange(len(LENGTHS))
    turned = {name: values[::-1] for name, values in batch.items()}
    for other in (turned, pad(batch, 11)):
        same = faithfulness(model, params, other, against=["random"])
        order = np.argsort(np.asarray(other["example_id"])[same.rows])
        for field in MEASURES:
            got = getattr(same.rationales["random"], field)[order]
            np.testing.assert_allclose(got, getattr(one.rationales["random"], field), **F32)
    by_hand = _passes.random_scores(None, batch["example_id"], 8, 5)
    named = {str(n): scores for n, scores in enumerate(by_hand)}
    each = faithfulness(model, params, batch, against=[], others=named)
    for field in MEASURES:
        mean = np.mean([getattr(each.rationales[name], field) for name in named], axis=0)
        np.testing.assert_allclose(getattr(one.rationales["random"], field), mean, atol=1e-12)


def test_comparisons_are_paired_and_corrected_together(batch):
    found = faithfulness(*network(), batch)
    assert found.shares == (0.01, 0.05, 0.1, 0.2, 0.5)
    assert [(c.measure, c.against) for c in found.comparisons] == [
        (measure, name) for measure in MEASURES for name in ("random", "attention", "gradient")
    ]
    corrected = analysis.holm([c.p_value for c in found.comparisons])
    np.testing.assert_array_equal([c.corrected for c in found.comparisons], corrected)
    for c in found.comparisons:
        difference = found.mean(c.measure) - found.mean(c.measure, c.against)
        np.testing.assert_allclose(c.difference, difference, atol=1e-9)
        assert c.low <= c.difference <= c.high
        own, other = (getattr(found.rationales[name], c.measure) for name in ("own", c.against))
        assert c.p_value >= min(
            1, 0.5 ** float(sum(own != other) - 1)
        )  # five texts are not sure of much
    assert "*" not in found.table()
    assert found.table().count("\n") == 2 + 4


@pytest.mark.slow
def test_attention_of_another_network_is_a_rationale(batch):
    model, params = network()
    soft = network(system="soft")
    scores = analysis.rationale_scores(*soft, batch, "attention", rows=ROWS)
    np.testing.assert_allclose(scores.sum(1)[[0, 1, 2, 3, 5]], 1, rtol=1e-6)
    found = faithfulness(model, params, batch, against=[], others={"soft": scores})
    assert set(found.rationales) == {"own", "soft"}
    alone = faithfulness(*soft, batch)
    assert alone.density is alone.own.leak is alone.mean("needed") is None
    assert set(alone.rationales) == {"own", "random", "gradient"}
    # attention is another rationale than the scores that are given
    given = faithfulness(*soft, batch, scores=-scores)
    assert set(given.rationales) == {"own", "random", "attention", "gradient"}
    gated = analysis.rationale_scores(model, params, batch, "attention", rows=ROWS)
    assert (gated[:, 0][np.array(LENGTHS) > 0] > 0).all()


def test_gradient_times_input_equals_the_closed_form_of_a_mean_of_words(batch):
    config = AGTConfig(system="average", embedding_dim=6, head_hidden=())
    model, params = of(AGT(config, vocab_size=20, num_classes=3), batch)
    found = analysis.rationale_scores(model, params, batch, "gradient", rows=ROWS)
    kernel, bias = (np.asarray(params["classifier"][k], np.float64) for k in ("kernel", "bias"))
    for row, length in enumerate(LENGTHS):
        xs = np.asarray(params["embed"]["embedding"], np.float64)[batch["tokens"][row, :length]]
        logits = xs.mean(0) @ kernel + bias if length else bias
        p = np.exp(logits) / np.exp(logits).sum()
        want = xs @ (kernel[:, p.argmax()] - kernel @ p) / max(length, 1)
        np.testing.assert_allclose(found[row, :length], want, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(found[row, length:], 0)


class CountTwos:
    """A network that counts twos, to which it attends in one of two layers."""

    def apply(self, variables, batch):
        twos = (batch["tokens"] == 2).astype(float)
        logits = jnp.stack([0 * twos.sum(1), 9 * twos.sum(1)], 1)
        attention = jnp.stack([twos, jnp.zeros_like(twos)], 1)
        odds = jnp.where(batch["tokens"] > 0, twos, -jnp.inf)
        return types.SimpleNamespace(logits=logits, attention=attention, gate_logits=odds)


def test_shares_ties_layers_and_stars_of_a_network_that_counts():
    tokens = np.pad(np.full((12, 25), 3), ((0, 0), (0, 2)))
    tokens[:, 7] = 2
    batch, rows = {"tokens": tokens, "lengths": np.full(12, 25)}, np.zeros((12, 27))
    seen = analysis.rationale_scores(CountTwos(), {}, batch, "attention")
    np.testing.assert_array_equal(seen, 0.5 * (tokens == 2))  # the mean over the layers
    of_gates = analysis.rationale_scores(CountTwos(), {}, batch, "gates")
    np.testing.assert_array_equal(of_gates, tokens == 2)  # and 0 at padding
    # 0.28 * 25 is 7.000000000000001, and of equal words the first seven are taken
    options = {"shares": (0.28,), "against": [], "others": {"seen": seen}}
    found = faithfulness(CountTwos(), {}, batch, scores=rows, **options)
    np.testing.assert_array_equal(found.own.comprehensiveness, 0)
    np.testing.assert_allclose(found.rationales["seen"].comprehensiveness, 0.5, atol=1e-3)
    own, other = (line.split("|")[2].strip() for line in found.table().splitlines()[2:])
    assert (own, other) == ("0.0000", "0.4999*")


def of(model, batch):
    """The network with random parameters, without a compilation."""
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), batch))["params"]
    rng = np.random.default_rng(0)
    return model, jax.tree.map(lambda s: rng.normal(size=s.shape).astype(s.dtype), shapes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agt", "rau", "ssan"])
def test_other_networks_give_attention_or_take_scores(name, batch):
    options = {"vocab_size": 20, "num_classes": 3}
    make = {
        "agt": lambda: AGT(
            AGTConfig(num_layers=2, hidden=4, attention_hidden=3, embedding_dim=4), **options
        ),
        "rau": lambda: RAUClassifier(
            grouped(RAUConfig, cell="gru", hidden=4, embedding_dim=4), **options
        ),
        "ssan": lambda: SSANProbe(
            grouped(SSANProbeConfig, num_layers=1, hidden=4, num_heads=2, filter_size=4), **options
        ),
    }
    model, params = of(make[name](), batch)
    scores = None
    if name != "agt":
        with pytest.raises(ValueError, match="give scores"):
            faithfulness(model, params, batch, against=["random"])
        scores = analysis.rationale_scores(model, params, batch, "gradient", rows=ROWS)
    found = faithfulness(model, params, batch, scores=scores, against=["random"], shares=(0.5, 1))
    assert found.own.leak is None
    assert np.isfinite(found.own.comprehensiveness).all()
    np.testing.assert_array_equal(found.own.by_share[1][1], 0)


def test_the_number_of_texts_compiles_nothing_and_equal_rows_run_once(batch):
    model, params = network()
    faithfulness(model, params, batch)
    sizes = [f._cache_size() for f in (_passes.predict, _passes.force, _passes.gradient)]
    twice = {name: np.concatenate([values] * 9) for name, values in batch.items()}
    found = faithfulness(model, params, twice)
    assert [f._cache_size() for f in (_passes.predict, _passes.force, _passes.gradient)] == sizes
    np.testing.assert_allclose(found.own.leak[:4], found.own.leak[-4:], **F32)
    seen = []

    def program(rows):
        seen.append(rows)
        return {"double": 2 * rows}

    values = np.arange(7)[[3, 1, 3, 3, 6, 1, 0, 0]]
    np.testing.assert_array_equal(_passes.over_rows(program, 3, values)["double"], 2 * values)
    assert [list(rows) for rows in seen] == [[3, 1, 6], [0, 0, 0]]


BAD = [
    ({"shares": ()}, "shares"),
    ({"shares": (1.5,)}, "shares"),
    ({"deletion": "zero"}, "deletion"),
    ({"draws": 0}, "draws"),
    ({"key": jnp.zeros(3)}, "key must be a PRNG key"),
    ({"rows": 0}, "rows"),
    ({"against": ["gates"]}, "against"),
    ({"others": {"random": np.zeros((6, 8))}}, "others"),
    ({"others": {"mine": np.zeros((6, 7))}}, "mine must have shape"),
    ({"scores": np.zeros(6)}, "scores must have shape"),
    ({"scores": np.full((6, 8), np.nan)}, "scores must be a number at each word, got nan"),
    ({"kept": np.ones((5, 8), bool)}, "kept must have shape"),
]


@pytest.mark.parametrize(("options", "match"), BAD, ids=[match for _, match in BAD])
def test_what_does_not_fit_is_refused(options, match, batch):
    with pytest.raises((ValueError, TypeError), match=match):
        faithfulness(*network(), batch, **options)


def test_a_batch_without_texts_is_refused(batch):
    model, params = network()
    for bad, error, match in (
        ({"tokens": batch["tokens"]}, ValueError, "lengths"),
        (batch | {"lengths": np.zeros(6, np.int32)}, ValueError, "a text with words"),
        (batch | {"lengths": np.full(6, 9)}, ValueError, "lengths must be in"),
        (batch | {"tokens": batch["tokens"].astype(float)}, TypeError, "tokens"),
        (batch | {"tokens": batch["tokens"][0]}, ValueError, "tokens"),
    ):
        with pytest.raises(error, match=match):
            faithfulness(model, params, bad)
    with pytest.raises(ValueError, match="source"):
        analysis.rationale_scores(model, params, batch, "states")
