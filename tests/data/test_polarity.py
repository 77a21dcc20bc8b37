"""The embedded corpus: truth, balance, disjointness, and that counting words is not enough."""

import re

import numpy as np
import pytest

from gatedjax import data
from gatedjax.data.sets import _polarity

SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def sources():
    return {split: data.load("polarity", split) for split in SPLITS}


def verdict(example):
    """The label by the rules of the grammar, from the words alone."""
    words = list(example["tokens"])
    if "but" in words:
        words = words[words.index("but") :]
    elif "although" in words:
        start = words.index("although")
        words = words[words.index(",", start) :]
    words = words[words.index("is") :]  # past what stands aside
    polar = next(i for i, w in enumerate(words) if w in _polarity._POLAR[0] + _polarity._POLAR[1])
    negated = bool({"not", "never", "hardly", "far", "means"} & set(words[:polar]))
    return int((words[polar] in _polarity._POLAR[1]) ^ negated)


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_labels_follow_from_the_words_and_classes_are_balanced(sources, split):
    source = sources[split]
    assert len(source) == {"train": 4000, "validation": 500, "test": 1000}[split]
    assert [verdict(x) for x in source] == [x["label"] for x in source]
    assert sum(x["label"] for x in source) * 2 == len(source)
    lengths = [len(x["tokens"]) for x in source]
    assert min(lengths) >= 5
    assert max(lengths) <= 30


def test_the_deciding_words_alone_give_the_label(sources):
    for example in sources["test"]:
        chosen = [w for w, d in zip(example["tokens"], example["decides"], strict=True) if d]
        assert len(example["decides"]) == len(example["tokens"])
        polar = [w for w in chosen if w in _polarity._POLAR[0] + _polarity._POLAR[1]]
        first = chosen.index(polar[0])
        assert int((polar[0] in _polarity._POLAR[1]) ^ (first > 0)) == example["label"]
        assert len(polar) == 1 + ("and" in example["tokens"] and len(polar) == 2)


def test_the_leaves_of_the_tree_are_the_tokens_in_order(sources):
    for example in sources["validation"]:
        leaves = re.findall(r"(?<![(\S])[^()\s]+", example["tree"])
        assert tuple(leaves) == example["tokens"]
        assert example["tree"].count("(") == example["tree"].count(")")


def test_no_text_is_in_two_splits_and_ids_are_unique(sources):
    texts = {split: {x["tokens"] for x in source} for split, source in sources.items()}
    assert not texts["train"] & texts["validation"]
    assert not texts["train"] & texts["test"]
    assert not texts["validation"] & texts["test"]
    ids = [x["example_id"] for source in sources.values() for x in source]
    assert len(set(ids)) == len(ids)


def test_counting_words_does_not_solve_it(sources):
    vocabulary = data.Vocabulary.build([sources["train"]])

    def design(source):
        counts = np.zeros((len(source), len(vocabulary)))
        for row, example in zip(counts, source, strict=True):
            np.add.at(row, vocabulary.encode(example["tokens"]), 1.0)
        return counts, np.array([2.0 * x["label"] - 1 for x in source])

    counts, labels = design(sources["train"])
    ridge = 10 * np.eye(len(vocabulary))
    weights = np.linalg.solve(counts.T @ counts + ridge, counts.T @ labels)
    test, truth = design(sources["test"])
    assert (np.sign(test @ weights) == truth).mean() < 0.65
    words = {w for x in sources["test"] for w in x["tokens"]}
    assert words <= set(vocabulary.words)
