"""The planted questions: two facts are needed, and nothing else tells the candidates apart."""

import collections

import pytest

from gatedjax import data
from gatedjax.data.sets import _two_facts


@pytest.fixture(scope="module", params=["train", "validation", "test"])
def split(request):
    return request.param


def facts_of(example):
    tokens = example["tokens"]
    assert tokens[2::3] == (".",) * (len(tokens) // 3)
    return dict(zip(tokens[0::3], tokens[1::3], strict=True))


def some(split, count=400):
    return [_two_facts.make(split, i) for i in range(count)]


def test_following_the_chain_gives_the_answer(split):
    lengths = collections.Counter()
    for example in some(split):
        facts = facts_of(example)
        (thing, *rest) = example["query"]
        assert rest == ["@placeholder"]
        steps, word = 0, thing
        while word in facts:
            word, steps = facts[word], steps + 1
        assert (word,) == example["answer"] == example["candidates"][example["label"]]
        assert len(example["candidates"]) == 3
        lengths[steps] += 1
    if split == "train":
        assert set(lengths) == {1, 2}
        assert 150 < lengths[2] < 250
    else:
        assert set(lengths) == {2}


@pytest.mark.parametrize("held_out", ["validation", "test"])
def test_no_shortcut_tells_the_candidates_apart(held_out):
    examples = some(held_out, 900)
    labels = collections.Counter(example["label"] for example in examples)
    assert all(250 < labels[i] < 350 for i in range(3))
    last, first, near = 0, 0, 0
    for example in examples:
        tokens, candidates = example["tokens"], [c for (c,) in example["candidates"]]
        counts = collections.Counter(tokens)
        assert [counts[c] for c in candidates] == [1, 1, 1]
        assert {counts[h] for h in _two_facts.HOLDERS} == {2}
        assert counts[example["query"][0]] == 1
        order = sorted(candidates, key=tokens.index)
        at = tokens.index(example["query"][0])
        nearest = min(candidates, key=lambda c: abs(tokens.index(c) - at))
        first += order[0] == example["answer"][0]
        last += order[-1] == example["answer"][0]
        near += nearest == example["answer"][0]
    # a third each, but that the sentence of the thing itself holds no candidate
    assert all(0.25 < count / 900 < 0.42 for count in (first, last, near))


def test_questions_are_a_function_of_split_and_index(split):
    source = data.load("two_facts", split)
    assert len(source) == {"train": 40_000, "validation": 500, "test": 1_000}[split]
    assert source[17] == _two_facts.make(split, 17)
    assert source[17] != source[18]
    assert source.report.reconciles
    base = {"train": 0, "validation": 100_000_000, "test": 200_000_000}[split]
    assert source[17]["example_id"] == base + 17


def test_words_take_one_part_only():
    parts = [_two_facts.THINGS, _two_facts.HOLDERS, _two_facts.PLACES]
    words = [word for part in parts for word in part]
    assert len(set(words)) == len(words) == 39
