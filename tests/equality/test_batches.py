"""Three epochs of every kind of batches, bit for bit, on embedded and generated data."""

import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gatedjax import data
from tests.equality._golden import digest, golden, same

EPOCHS = 3
INFO = data.SourceInfo("made", "train", ("a", "b", "c"))


@functools.cache
def encoded(split: str) -> data.Encoded:
    """The embedded corpus, in the words of its training part."""
    words = data.Vocabulary.build([data.load("polarity", "train")])
    return data.encode(data.load("polarity", split), words)


@functools.cache
def questions() -> tuple[data.EncodedCloze, Any]:
    """Generated questions, and how their words are spelt."""
    source = data.load("two_facts", "validation")
    words = data.cloze_vocabulary([source])
    return data.encode_cloze(source, words), data.Characters.build(words).table(words)


def cloze(share: float = 1.0, spelt: bool = True, **options: Any) -> data.ClozeBatches:
    encoded_questions, table = questions()
    part = encoded_questions.fraction(share, seed=3)
    return data.ClozeBatches(part, characters=table if spelt else None, **options)


def ids(rng: np.random.Generator, sizes: Any, first: int = 2) -> list[np.ndarray]:
    return [rng.integers(first, 50, size).astype(np.int32) for size in sizes]


def pairs() -> data.SequenceBatches:
    rng = np.random.default_rng(0)
    sides = {name: ids(rng, rng.integers(1, 20, 61)) for name in ("tokens", "hypothesis")}
    lengths = {"lengths": "tokens", "hypothesis_lengths": "hypothesis"}
    labels = {"label": rng.integers(0, 3, 61)}
    options = {"batch_size": 8, "max_buckets": 4, "seed": 2}
    return data.SequenceBatches(
        sides, np.arange(61) + 1000, lengths=lengths, columns=labels, **options
    )


def parallel(**options: Any) -> data.SequenceBatches:
    rng = np.random.default_rng(1)
    sides = {name: ids(rng, rng.integers(1, 30, 90)) for name in ("tokens", "targets")}
    lengths = {"lengths": "tokens", "target_lengths": "targets"}
    options = {"max_tokens": 160, "max_buckets": 8, "seed": 3} | options
    return data.SequenceBatches(sides, np.arange(90) + 5, lengths=lengths, **options)


def tagging() -> data.SequenceBatches:
    rng = np.random.default_rng(2)
    sizes = rng.integers(2, 25, 70)
    predicates = [(np.arange(n) == n // 2).astype(np.int32) for n in sizes]
    columns = {"tokens": ids(rng, sizes), "labels": ids(rng, sizes, 0), "is_predicate": predicates}
    options = {"max_tokens": 100, "max_buckets": 3, "seed": 6}
    return data.SequenceBatches(columns, np.arange(70), lengths={"lengths": "tokens"}, **options)


def moved(make: Callable[..., data.Source], *columns: str) -> data.SequenceBatches:
    """The embedded sentences with a word, or two, in another place."""
    sentences = [example["tokens"] for example in data.load("polarity", "validation")]
    source = make(sentences, seed=3, base=40)
    texts = data.encode(source, data.Vocabulary.build([source]))
    labels = {name: np.array([texts.extra(i, name) for i in range(len(texts))]) for name in columns}
    return data.SequenceBatches(
        {"tokens": texts.ids}, texts.example_ids, lengths={"lengths": "tokens"}, columns=labels,
        batch_size=32, bucket_edges=(12, 24, 40), seed=1,
    )  # fmt: skip


def images() -> data.ImageSource:
    pixels = np.random.default_rng(7).integers(0, 256, (45, 6, 5)).astype(np.uint8)
    labels, numbers = np.arange(45) % 3, np.arange(100, 145)
    return data.ImageSource(pixels, labels, numbers, INFO)


def stream() -> data.TokenStream:
    rng = np.random.default_rng(8)
    sentences = [
        {"tokens": (*(f"w{i}" for i in rng.integers(0, 20, n)), "<eos>"), "label": 0,
         "example_id": 300 + number}
        for number, n in enumerate(rng.integers(1, 12, 60))
    ]  # fmt: skip
    words = data.ClosedVocabulary.build([data.Source(sentences, INFO)])
    return data.TokenStream(sentences, INFO, vocabulary=words)


def texts(split: str, **options: Any) -> data.Batches:
    return data.Batches(encoded(split), **options)


KINDS: dict[str, Callable[[], Any]] = {
    "texts": lambda: texts("train", batch_size=64, max_buckets=3, seed=5),
    "texts, given buckets": lambda: texts("test", batch_size=50, bucket_edges=(9, 18, 40), seed=1),
    "texts, in order": lambda: texts("test", batch_size=48, shuffle=False),
    "texts, one pass": lambda: data.Batches.eval(
        encoded("validation"), batch_size=64, max_buckets=2
    ),
    "cloze": lambda: cloze(batch_size=32, seed=2),
    "cloze, listed places": lambda: cloze(0.5, batch_size=16, max_shapes=2, dense_cells=0, seed=4),
    "cloze, words alone": lambda: cloze(0.75, spelt=False, batch_size=16, max_shapes=1),
    "cloze, one pass": lambda: data.ClozeBatches.eval(
        questions()[0], batch_size=50, max_shapes=1, characters=questions()[1]
    ),
    "pairs": pairs,
    "parallel": parallel,
    "parallel, one pass": lambda: parallel(shuffle=False).eval(),
    "tagging": tagging,
    "reordering": lambda: moved(data.word_reordering, "insert", "original"),
    "inverted bigrams": lambda: moved(data.bigram_shift, "label"),
    "images": lambda: data.ImageBatches(images(), batch_size=8, seed=3),
    "images, one pass": lambda: data.ImageBatches.eval(images(), batch_size=16),
    "language": lambda: data.LanguageModelBatches(stream(), batch_size=4, num_steps=7),
    "language, one pass": lambda: data.LanguageModelBatches.eval(
        stream(), batch_size=3, num_steps=10
    ),
}


def described(batches: Any) -> dict[str, Any]:
    """Steps of an epoch, and a digest of every column of three epochs of batches."""
    columns: dict[str, list[np.ndarray]] = defaultdict(list)
    epochs = 1 if batches.one_pass else EPOCHS
    for step in range(epochs * len(batches)):
        for name, value in batches[step].items():
            columns[name].append(value)
    counts = {len(values) for values in columns.values()}
    assert counts == {epochs * len(batches)}
    return {
        "steps": len(batches),
        "padding": round(float(batches.padding_fraction), 9),
        **{name: digest(*values) for name, values in sorted(columns.items())},
    }


def found() -> dict[str, Any]:
    """Every kind of batches."""
    return {name: described(make()) for name, make in KINDS.items()}


@pytest.mark.parametrize("name", KINDS)
def test_three_epochs_have_the_bits_that_they_had(name):
    same(described(KINDS[name]()), golden("batches")[name], name)


def test_every_kind_of_batches_of_the_library_is_here():
    assert golden("batches").keys() == KINDS.keys()
    kinds = {name for name in dir(data) if name.endswith("Batches")}
    assert {type(make()).__name__ for make in KINDS.values()} == kinds
