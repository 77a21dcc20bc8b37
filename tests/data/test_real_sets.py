"""The sets as their makers publish them, where a developer has the files: sizes and accounts."""

import collections
import os
from pathlib import Path

import numpy as np
import pytest

from gatedjax import data
from gatedjax.__main__ import main
from gatedjax._commands import _data_check
from gatedjax.data import _prepared
from gatedjax.data.sets import _cbt, _sst

SPLITS = ("train", "validation", "test")
# set -> the published sizes by split
OFFICIAL = {
    "sst1": dict(zip(SPLITS, (8_544, 1_101, 2_210), strict=True)),
    "sst2": dict(zip(SPLITS, (6_920, 872, 1_821), strict=True)),
    "trec": {"train_full": 5_452, "test": 500},
    "ag_news": {"test": 7_600},
    "imdb": {"train_full": 25_000, "test": 25_000},
    "sick": dict(zip(SPLITS, (4_500, 500, 4_927), strict=True)),
    "multi30k": dict(zip(SPLITS, (29_000, 1_014, 1_000), strict=True)),
    "mnist": {"validation": 5_000, "test": 10_000},
    "fashion_mnist": {"test": 10_000},
    "ewt_trees": dict(zip(SPLITS, (12_504, 1_962, 2_051), strict=True)),
    "ptb": dict(zip(SPLITS, (42_068, 3_370, 3_761), strict=True)),
    "senteval_bigram_shift": {"train": 100_000, "test": 10_000},
}
# the same of files that are not the official ones, and of parts that are drawn from one
OTHER = {
    "trec": {"train": 4_907, "validation": 545},
    "imdb": {"validation": 2_500},
    "senteval_tree_depth": {"train": 2_508, "test": 349},
    "word_reordering": {"validation": 10_000},
    "conll_srl": dict(zip(SPLITS, (40_418, 4_960, 4_792), strict=True)),
    "cbt_ne": {"validation": 2_000, "test": 2_500},
    "cbt_cn": {"validation": 2_000, "test": 2_500},
}
# set and split -> how many examples of each class
CLASSES = {
    ("trec", "test"): [9, 138, 94, 65, 81, 113],
    ("ag_news", "test"): [1_900] * 4,
    ("fashion_mnist", "test"): [1_000] * 10,
    ("imdb", "test"): [12_500] * 2,
}
STSA = {"sst1": "fine", "sst2": "binary"}
"""Sets whose labels are also in a file of another form."""
TOKENS = {"train": 887_521 + 42_068, "validation": 70_390 + 3_370, "test": 78_669 + 3_761}
"""Of ptb, with the end of each line, as others count them."""
SLOW = ("imdb", "ewt_trees", "conll_srl", "cbt_ne", "cbt_cn", "senteval_bigram_shift", "ptb")


def rows(table):
    return [
        pytest.param(name, split, size, marks=[pytest.mark.slow] * (name in SLOW))
        for name, sizes in table.items()
        for split, size in sizes.items()
    ]


def labels_of(source):
    """How many examples have each label."""
    if isinstance(source, data.ImageSource):
        return np.bincount(source.labels).tolist()
    kept = getattr(source._examples, "rows", None)  # of reviews, without splitting every text
    labels = [row.label for row in kept.rows] if kept else [example["label"] for example in source]
    counts = collections.Counter(labels)
    return [counts[label] for label in range(len(source.info.class_names))]


@pytest.mark.parametrize(("name", "split", "size"), rows(OFFICIAL))
def test_an_official_file_is_read_whole(name, split, size, shared_data):
    source = data.load(name, split, manual_dir=shared_data, strict=True)
    assert len(source) == size
    assert source.info.substitute is None
    assert source.quarantine == ()
    assert source.report.reconciles
    if (name, split) in CLASSES:
        assert labels_of(source) == CLASSES[name, split]
    if name in STSA:  # in another order
        part = {"validation": "dev"}.get(split, split)
        lines = (shared_data / "sst" / f"stsa.{STSA[name]}.{part}").read_text("utf-8").splitlines()
        counts = collections.Counter(int(line.split(" ", 1)[0]) for line in lines)
        assert collections.Counter(x["label"] for x in source) == counts
    if name == "ptb":
        assert (source.num_tokens, source.unknown) == (TOKENS[split], 0)
        assert source.vocabulary.words[:4] == ("the", "<unk>", "<eos>", "N")


@pytest.mark.parametrize(("name", "split", "size"), rows(OTHER))
def test_other_files_have_the_counts_of_their_makers(name, split, size, shared_data):
    if name.startswith("cbt") and not (shared_data / "cloze").is_dir():
        pytest.skip("the cloze sets are not on this machine")
    source = data.load(name, split, manual_dir=shared_data)
    assert len(source) == size
    assert source.quarantine == ()
    # as large as the official ones, and not them: they say what they are
    if name.startswith("cbt"):
        assert source.info.substitute == _cbt.MADE_OF_BOOKS["build_report.json"]
        assert source.report.notes == {}
    if name == "conll_srl":
        arguments = [s[2] for x in source for s in x["spans"] if s[2] not in ("V", "C-V")]
        assert len(arguments) == dict(zip(SPLITS, (81_244, 9_556, 9_313), strict=True))[split]


def spans_by_hand(text):
    """(words, label) of every bracket, by recursion over the characters: another parser."""

    def node(at):
        label, at, words = int(text[at + 1]), at + 3, []
        while text[at] != ")":
            if text[at] == "(":
                inner, at = node(at)
                words += inner
            elif text[at] == " ":
                at += 1
            else:
                end = text.index(")", at)
                words.append(text[at:end])
                at = end
        found.append((" ".join(words), label))
        return words, at + 1

    found, at = [], 0
    while at < len(text):
        _, at = node(at)
        while at < len(text) and text[at] == "\n":
            at += 1
    return found


@pytest.mark.slow
def test_the_spans_of_the_validation_trees_are_those_of_another_parser(shared_data):
    raw = (shared_data / "sst" / "trees" / "dev.txt").read_text("utf-8")
    wanted = [(" ".join(map(_sst.word, text.split(" "))), k) for text, k in spans_by_hand(raw)]
    source = data.load("sst1", "validation", manual_dir=shared_data, level="phrase")
    found = [(" ".join(x["tokens"]), x["label"]) for x in source]
    assert collections.Counter(found) == collections.Counter(wanted)


@pytest.mark.slow
def test_the_training_phrases_of_sst_have_these_counts(shared_data):
    for name, counts in (
        ("sst1_phrases", [7_233, 27_711, 81_658, 33_361, 9_311]),
        ("sst2_phrases", [34_944, 42_672]),
    ):
        source = data.load(name, "train", manual_dir=shared_data, strict=True)
        labels = collections.Counter(example["label"] for example in source)
        assert [labels[i] for i in range(len(counts))] == counts


@pytest.mark.slow
def test_images_are_in_the_published_order(shared_data):
    test = data.load("mnist", "test", manual_dir=shared_data)
    assert test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    held = data.load("mnist", "validation", manual_dir=shared_data)
    assert held.example_ids.tolist() == list(range(55_000, 60_000))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["mnist", "imdb_reviews"])
def test_a_set_as_tfds_prepares_it_equals_the_raw_files(name, shared_data):
    folder = os.environ.get("GATEDJAX_TFDS_DATA") or Path.home() / "tensorflow_datasets"
    if not _prepared.is_prepared(name, folder):
        pytest.skip(f"{name} is not prepared here (set GATEDJAX_TFDS_DATA)")
    for split in ("test", "validation"):
        prepared = data.load(name, split, data_dir=folder)
        raw = data.load(name, split, manual_dir=shared_data)
        assert labels_of(prepared) == labels_of(raw)
        if name == "mnist":
            assert np.array_equal(prepared.images, raw.images)
            assert np.array_equal(prepared.example_ids, raw.example_ids)


@pytest.mark.slow
def test_a_part_that_is_not_here_fails_the_check_and_the_overlap_is_found(shared_data, capsys):
    status = main(["data", "check", "ag_news", "--manual-dir", str(shared_data)])
    assert status == (0 if (shared_data / "ag_news" / "train.csv").exists() else 1)
    assert "7600" in capsys.readouterr().out
    report = _data_check.check("trec", manual_dir=shared_data)
    assert len(_data_check.list_overlap(report.texts["train"], report.texts["test"])) == 10


@pytest.mark.slow
def test_vectors_of_glove_cover_trec(shared_data):
    path = shared_data / "glove" / "glove.6B.100d.subset.txt.gz"
    words = data.Vocabulary.build([data.load("trec", "train_full", manual_dir=shared_data)])
    found = data.load_embeddings(path, words, dim=100)
    assert 0.9 < found.coverage < 1
    first = found.matrix[words.encode(["the"])[0], :3]
    np.testing.assert_allclose(first, [-0.038194, -0.24487, 0.72812])
    with pytest.raises(ValueError, match=r"line 1: .* 300 values, got 100"):
        data.load_embeddings(path, words, dim=300)
