"""Statistics of the texts of a data set: lengths, labels, repetitions, overlap of splits."""

import collections
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from gatedjax.data.files._source import Example

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


@dataclasses.dataclass(frozen=True)
class SplitTexts:
    """Statistics of the n texts of a split."""

    split: str
    lengths: np.ndarray  # int [n], in tokens
    class_counts: dict[str, int]
    empty: int
    repeated: int  # texts that occurred before in the split
    conflicting: int  # distinct texts with more than one label

    def length_quantiles(self) -> list[int]:
        """Returns the 0, 5, 25, 50, 75, 95, 99 and 100 % quantiles of the lengths, in tokens."""
        return [int(q) for q in np.quantile(self.lengths, QUANTILES, method="inverted_cdf")]


@dataclasses.dataclass(frozen=True)
class Overlap:
    """Texts of a split with the same lower-cased tokens as a text of another split."""

    first: str
    second: str
    count: int  # texts of `second` that are also in `first`
    total: int  # texts of `second`
    examples: tuple[tuple[str, str, str], ...]  # (place in `first`, place in `second`, text)


@dataclasses.dataclass(frozen=True)
class Text:
    """The fields of a text that are compared and shown."""

    key: bytes  # digest of the lower-cased tokens, and of the query of a cloze question
    label: int
    length: int
    place: str
    text: str


def read_texts(examples: Sequence[Example], place: Callable[[int], str]) -> Iterator[Text]:
    """Converts examples to `Text`s; the label of a cloze question is the status of its answer."""
    for index in range(len(examples)):
        example = examples[index]
        if "image" in example:
            yield _image(example, place)
            continue
        cloze = "query" in example  # one document may have several queries
        joined = " ".join((*example["query"], *example["tokens"]) if cloze else example["tokens"])
        joined = joined.lower()
        # Reports show only the start of a text.
        yield Text(
            # Texts from JSON may contain lone surrogates, which UTF-8 refuses by default.
            hashlib.blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=16).digest(),
            example["status"] if cloze else example["label"],
            len(example["tokens"]),
            place(example["example_id"]),
            joined[:120],
        )


def _image(example: Example, place: Callable[[int], str]) -> Text:
    rows, columns = example["image"].shape
    key = hashlib.blake2b(example["image"].tobytes(), digest_size=16).digest()
    description = f"{rows} x {columns} pixels"
    return Text(key, example["label"], rows, place(example["example_id"]), description)


def _labels(texts: Sequence[Text]) -> dict[bytes, set[int]]:
    labels = collections.defaultdict(set)
    for text in texts:
        if text.length:  # empty texts do not count as repetitions
            labels[text.key].add(text.label)
    return labels


def conflicting(texts: Sequence[Text]) -> int:
    """Returns the number of distinct texts that occur with more than one label in `texts`."""
    return sum(len(labels) > 1 for labels in _labels(texts).values())


def describe(split: str, texts: Sequence[Text], classes: Sequence[str]) -> SplitTexts:
    """Computes the statistics of the texts of the split with the name `split`."""
    counts = collections.Counter(text.label for text in texts)
    # Empty texts are counted separately, because each of them would repeat the first.
    full = [text for text in texts if text.length]
    return SplitTexts(
        split=split,
        lengths=np.array([text.length for text in texts], int),
        class_counts={name: counts[i] for i, name in enumerate(classes)},
        empty=len(texts) - len(full),
        repeated=len(full) - len(_labels(texts)),
        conflicting=conflicting(texts),
    )


def compare(a: str, b: str, texts: Mapping[str, Sequence[Text]], examples: int) -> Overlap:
    """Counts the texts of split `b` that are also in split `a`."""
    # Texts are compared by their digests, which take less memory than the texts.
    first: dict[bytes, Text] = {}
    for text in texts[a]:
        if text.length:
            first.setdefault(text.key, text)
    both = [text for text in texts[b] if text.key in first]
    named = tuple((first[t.key].place, t.place, t.text) for t in both[:examples])
    return Overlap(a, b, len(both), len(texts[b]), named)
