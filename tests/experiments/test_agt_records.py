"""Records of AGT's runs: what is shown of them, with exact numbers."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from experiments.agt import figures, layers, reported
from experiments.agt.paper import PAPER
from experiments.core.command import options_of
from experiments.core.paper import Job
from gatedjax import data as gdata
from gatedjax.analysis import phrases
from gatedjax.models import AGT, AGTConfig, AGTTask
from tests.experiments import _results
from tests.experiments._results import save
from tests.experiments.test_pages import LAYERS

config_of = functools.partial(_results.config_of, PAPER)
rendered = functools.partial(_results.rendered, PAPER)


def job_of(tmp_path, what, **options):
    folders = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    return Job(PAPER, options_of(PAPER)(what=what, **folders, **options))


def make_record(config, correct, **more):
    facts = {
        "train_on": config.data.train_on,
        "train_n": 100,
        "system": config.model.system,
        "embedding_dim": 300,
        "parameters": 5000,
        "parameters_without_embeddings": 1234,
    }
    return _results.record_of(PAPER, config, correct, **facts | LAYERS | more)


def test_lists_show_the_seed_that_is_best_in_validation(tmp_path):
    records = [
        make_record(config_of("sst1", seed), "1", validation={"accuracy": a, "loss": 0.0})
        for seed, a in enumerate((0.25, 0.5, 0.5))
    ]
    save(PAPER.store(tmp_path), "sst1", "agt", records)
    assert "SST-1, seed 1 (best in validation)" in rendered(PAPER.store(tmp_path))


@pytest.mark.parametrize("what", ["figure2", "figure3", "figure4", "optimizers"])
def test_a_figure_is_drawn_from_records_alone(tmp_path, what):
    pytest.importorskip("matplotlib")
    job = job_of(tmp_path, what)
    sentences = [one | {"attention": one["attention"][:2], "gates": one["gates"][:1]}
                 for one in LAYERS["examples"]]  # fmt: skip
    save(job.store, "sst1", "agt", [make_record(config_of("sst1", 0), "1", examples=sentences)])
    figures.draw(job)
    paths = sorted(job.store.folder.glob("*.png"))
    names = [path.name for path in paths]
    assert names == (["figure4_1.png", "figure4_3.png"] if what == "figure4" else [f"{what}.png"])
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert f"[{names[0]}]" in rendered(job.store)


def test_a_figure_of_what_no_record_has_is_refused(tmp_path):
    job = job_of(tmp_path, "figure2")
    with pytest.raises(ValueError, match=r"record of AGT on sst1 .*, got none"):
        figures.draw(job)
    save(job.store, "trec", "agt", [make_record(config_of("trec", 0), "1", examples=[])])
    with pytest.raises(ValueError, match=r"test set of .* paper's figures, got none"):
        figures.draw(job_of(tmp_path, "figure4", data=("trec",)))


def test_lengths_beyond_the_longest_share_the_last_bar():
    histogram = layers.of_lengths([[5, 3, 2, 1], [0, 0, 0, 4]], 3)
    assert histogram.counts.tolist() == [[5, 3, 3], [0, 0, 4]]
    assert histogram.open_end
    assert not layers.of_lengths([[5, 3]], 3).open_end
    assert layers.above_first(histogram).counts.tolist() == [[0, 3, 3], [0, 0, 4]]


def test_shuffling_keeps_how_many_words_are_selected_and_the_padding():
    rng = np.random.default_rng(0)
    mask = np.arange(9) < np.array([9, 4, 1, 0])[:, None]
    selected = (rng.random((4, 3, 9)) < 0.5) & mask[:, None]
    moved = layers.shuffle_words(selected, mask, rng)
    np.testing.assert_array_equal(moved.sum(-1), selected.sum(-1))
    assert not (moved & ~mask[:, None]).any()
    assert (moved[0] != selected[0]).any()
    # one order for all layers of a sentence: equal columns stay equal columns
    columns = sorted(map(tuple, selected[0].T.tolist()))
    assert sorted(map(tuple, moved[0].T.tolist())) == columns


def polarity_batches(count=40):
    source = gdata.load("polarity", "test")
    vocabulary = gdata.Vocabulary.build([source])
    encoded = gdata.encode(source, vocabulary)
    size = {name: getattr(encoded, name)[:count] for name in ("lengths", "labels", "example_ids")}
    part = dataclasses.replace(
        encoded, ids=encoded.ids[:count], starts=encoded.starts[:count], **size
    )
    return vocabulary, part


@pytest.mark.slow
def test_statistics_over_batches_are_those_of_every_sentence_by_itself():
    vocabulary, encoded = polarity_batches()
    test = gdata.Batches.eval(encoded, batch_size=16, max_buckets=2)
    assert len(test) > 2
    small = {"hidden": 4, "attention_hidden": 4, "embedding_dim": 3, "head_hidden": (4,)}
    model = AGT(AGTConfig(num_layers=3, **small), vocab_size=len(vocabulary), num_classes=2)
    params = jax.jit(AGTTask(model).init)(jax.random.key(1), test[0])
    found = layers.statistics(model, params, test)
    attention = np.zeros((3, layers.BINS), int)
    first, lengths, gates = {}, [[], [], []], []
    tokens = np.zeros((len(encoded), encoded.lengths.max()), np.int32)
    for row, ids in zip(tokens, encoded.ids, strict=True):
        row[: len(ids)] = ids
    batch = {"tokens": tokens, "lengths": encoded.lengths}
    output = jax.jit(model.apply)({"params": params}, batch)
    for i in range(len(encoded)):
        gates.append(np.asarray(output.gates[i]).mean(-1))
        r = phrases.normalise(np.asarray(output.attention[i])[:, : encoded.lengths[i]])
        for layer in range(3):
            attention[layer] += np.histogram(r[layer], layers.BINS, (0, 1))[0]
            text = "".join("x" if v > 0.95 else " " for v in r[layer])
            lengths[layer] += [len(run) for run in text.split()]
        for word, value in zip(encoded.tokens(i), r[0], strict=True):
            if value > 0.95:
                first[word.lower()] = first.get(word.lower(), 0) + 1
    # another batch rounds otherwise: a weight at an edge may fall into the bin beside it
    assert np.abs(np.array(found["layers"]["attention"]) - attention).sum() <= 4
    np.testing.assert_allclose(found["layers"]["mean_gate"], np.mean(gates, axis=0), atol=1e-5)
    means = [np.mean(one) for one in lengths]
    np.testing.assert_allclose(found["layers"]["mean_run"], means, rtol=0.03)
    assert sum(count for _, count in found["first_words"]) == pytest.approx(
        sum(first.values()), abs=2
    )


def test_a_network_without_attention_has_no_layers():
    vocabulary, encoded = polarity_batches(4)
    test = gdata.Batches.eval(encoded, batch_size=4, max_buckets=1)
    model = AGT(AGTConfig(system="average"), vocab_size=len(vocabulary), num_classes=2)
    assert layers.statistics(model, {}, test)["layers"] is None
    assert layers.examples(model, {}, encoded) == []


@pytest.mark.slow
def test_the_example_sentences_are_found_word_by_word(shared_data):
    test = gdata.load("sst1", "test", manual_dir=shared_data / "sst")
    encoded = gdata.encode(test, gdata.Vocabulary.build([]))
    found = [layers.find(encoded, text) for text in reported.EXAMPLES]
    assert None not in found
    assert len(encoded.tokens(found[0])) == 28
    assert "bad-luck" in encoded.tokens(found[1])
    assert layers.find(encoded, "no sentence begins like this") is None
