"""By how much a prediction depends on words that are not read: against removals one by one."""

import numpy as np
import pytest

from gatedjax.text.answers import _leak
from gatedjax.text.answers._leak import Sample, measure_leak, render_leak


class Network:
    """Adds up numbers of words; keeps the even ones. Knows what it was asked."""

    def __init__(self, odd_words_count):
        self.odd_words_count, self.shapes = odd_words_count, []

    def probabilities(self, text):
        score = sum(0.1 * x * (self.odd_words_count or x % 2 == 0) for ids in text for x in ids)
        chance = 1 / (1 + np.exp(-score + 2))
        return np.array([(1 - chance) ** 2, 2 * chance * (1 - chance), chance**2])

    def __call__(self, batch):
        rows = [
            [tokens[:size] for tokens, size in zip(batch[name], batch[lengths], strict=True)]
            for name, lengths in (("tokens", "lengths"), ("hypothesis", "hypothesis_lengths"))
            if name in batch
        ]
        self.shapes.append(batch["tokens"].shape)
        answers = np.array([self.probabilities(text) for text in zip(*rows, strict=True)])
        read = [batch[n] % 2 == 0 for n in ("tokens", "hypothesis") if n in batch]
        return {"probabilities": answers, "read": tuple(read), "share": np.ones(len(answers))}


def texts_of(inputs, count=5, longest=7):
    rng = np.random.default_rng(0)
    return [
        tuple(rng.integers(1, 9, rng.integers(2, longest)).astype(np.int32) for _ in range(inputs))
        for _ in range(count)
    ]


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("odd_words_count", [True, False])
def test_every_word_is_removed_in_turn(inputs, odd_words_count, monkeypatch):
    monkeypatch.setattr(_leak, "_EACH", 100)
    network, texts = Network(odd_words_count), texts_of(inputs)
    found = measure_leak(network, texts, lambda size: (8, 8 if size < 5 else 16))
    changes = {True: [], False: []}
    for text in texts:
        before = network.probabilities(text)
        best = before.argmax()  # another word may make another class the best
        for place, ids in enumerate(text):
            for i, word in enumerate(ids):
                if len(ids) > 1:
                    rest = (*text[:place], [*ids[:i], *ids[i + 1 :]], *text[place + 1 :])
                    change = abs(before[best] - network.probabilities(rest)[best])
                    changes[bool(word % 2 == 0)].append(change)
    assert found["read"] == pytest.approx(np.mean(changes[True]))
    assert found["not_read"] == pytest.approx(np.mean(changes[False]))
    assert (found["not_read"] > 0) == odd_words_count
    assert (found["words_read"], found["words_not_read"]) == tuple(map(len, changes.values()))[:2]
    assert found["texts"] == 5
    assert set(network.shapes) == {(8, 8), (8, 16)}


def test_the_work_is_bounded_and_the_same_every_time(monkeypatch):
    texts = texts_of(1, count=64, longest=60)
    network = Network(True)
    found = measure_leak(network, texts, lambda size: (64, 64))
    assert found["words_not_read"] <= 64 * 4
    assert found["words_read"] <= 64 * 4
    assert len(network.shapes) <= 9
    assert measure_leak(network, texts, lambda size: (64, 64)) == found
    monkeypatch.setattr(_leak, "_WORDS", 1000)
    assert measure_leak(network, texts, lambda size: (64, 64))["texts"] == 2


def test_there_is_none_without_words_of_both_kinds():
    network = Network(True)
    even, odd, one = ((np.array(ids, np.int32),) for ids in ([2, 4], [1, 3], [2]))
    for texts in ([even], [odd], [one, even], []):
        assert measure_leak(network, texts, lambda size: (8, 8)) is None
    found = measure_leak(network, [even, odd], lambda size: (8, 8))
    assert render_leak({**found, "not_read": 0.0105, "read": 0.01006}) == (
        "the probability changes by 0.0105 on average when a word that is not read is removed, and "
        "by 0.0101 when a word that is read is (2 and 2 words of 2 texts)"
    )


@pytest.mark.parametrize("count", [0, 3, 64, 127, 128, 1000])
def test_a_sample_is_spread_evenly(count):
    sample = Sample()
    for number in range(count):
        sample.add(number)
    found = sample.texts()
    assert len(found) == min(count, 64)
    assert found == sorted(set(found))
    if count >= 64:
        assert np.abs(np.array(found) / count - np.arange(64) / 64).max() < 2 / 64
