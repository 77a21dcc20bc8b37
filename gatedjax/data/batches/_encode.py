"""Encoding of a source as columns: ids, lengths, labels."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from gatedjax.data.files._source import Source, SourceInfo
from gatedjax.data.text._vocabulary import SPECIALS, UNK, Vocabulary

T = TypeVar("T")


PER_TOKEN = ("decides", "is_predicate", "labels", "tags")
"""Fields with a value per token; they cannot be told by length, so they are listed here."""


@dataclasses.dataclass(frozen=True, eq=False)
class Encoded:
    """The n texts of a source as ids, in the order of the source. Each text has at least one token.

    Attributes:
      ids: int32 ids of each text (views into a common array).
      lengths: int32 [n], the number of tokens of each text.
      labels: int32 [n], the class of each text.
      example_ids: int32 [n], the id of each example in the source.
      starts: int64 [n]: the number of tokens that were truncated on the left.
      source: the examples that were encoded.
    """

    ids: list[np.ndarray]
    lengths: np.ndarray
    labels: np.ndarray
    example_ids: np.ndarray
    starts: np.ndarray
    source: Source

    @property
    def info(self) -> SourceInfo:
        """The name, split and classes of the source."""
        return self.source.info

    def __len__(self) -> int:
        return len(self.ids)

    def _window(self, index: int, values: Sequence[T]) -> tuple[T, ...]:
        start = int(self.starts[index])
        return tuple(values[start : start + int(self.lengths[index])])

    def tokens(self, index: int) -> tuple[str, ...]:
        """Returns the original words of the text at position `index`, truncated like its ids.

        A text without words has the single word `<unk>`.
        """
        words = self.source[index]["tokens"]
        return self._window(index, words) if words else (SPECIALS[UNK],)

    def extra(self, index: int, name: str) -> Any:
        """Returns the field `name` of the example at position `index` of the source.

        The fields with a value per token, "decides", "is_predicate", "labels" and "tags", are
        truncated like the ids. Raises KeyError for a field that the example does not have.
        """
        example = self.source[index]
        if name not in example:
            raise KeyError(
                f"name must be a field of the examples of {self.info.name} ({sorted(example)}), "
                f"got {name!r}"
            )
        value = example[name]
        return self._window(index, value) if name in PER_TOKEN else value


def encode(
    source: Source,
    vocabulary: Vocabulary,
    *,
    max_len: int | None = None,
    truncate_side: str = "right",
) -> Encoded:
    """Encodes the tokens of a source as ids.

        >>> from gatedjax.data import load
        >>> source = load("polarity", "test")
        >>> encoded = encode(source, Vocabulary.build([source]), max_len=5)
        >>> len(encoded), int(encoded.lengths.max())
        (1000, 5)

    Args:
      source: examples with "tokens", "label" and "example_id".
      vocabulary: maps tokens to ids.
      max_len: keep at most this many tokens; None keeps all.
      truncate_side: the end at which longer texts are truncated, "right" or "left".

    Returns:
      The texts as ids, in the order of the source. A text without tokens becomes a single unknown
      word.

    Raises:
      ValueError: for max_len < 1, another truncate_side, or a label outside the classes.
    """
    if max_len is not None and max_len < 1:
        raise ValueError(f"max_len must be at least 1, got {max_len}")
    if truncate_side not in ("right", "left"):
        raise ValueError(f"truncate_side must be 'right' or 'left', got {truncate_side!r}")
    n, classes = len(source), len(source.info.class_names)
    labels, example_ids = np.empty(n, np.int32), np.empty(n, np.int32)
    lengths, starts = np.empty(n, np.int32), np.zeros(n, np.int64)
    pieces = []
    for i, example in enumerate(source):
        # JAX does not report an index outside an array, so that a wrong label would be trained on.
        if not 0 <= example["label"] < classes:
            raise ValueError(
                f"label of example {example['example_id']} must be in [0, {classes}), got "
                f"{example['label']}"
            )
        words = example["tokens"]
        if max_len is not None and len(words) > max_len:
            # The start is stored, so that values per token can be truncated in the same way later.
            starts[i] = len(words) - max_len if truncate_side == "left" else 0
            words = words[starts[i] : starts[i] + max_len]
        piece = vocabulary.encode(words) or [UNK]
        pieces.append(np.array(piece, np.int32))
        lengths[i], labels[i], example_ids[i] = len(piece), example["label"], example["example_id"]
    # The texts become views into a single array, which takes less memory than an array for each.
    # Its positions may exceed 32 bits.
    ends = np.cumsum(lengths, dtype=np.int64)
    flat = np.concatenate(pieces) if pieces else np.empty(0, np.int32)
    ids = [flat[end - size : end] for end, size in zip(ends, lengths, strict=True)]
    return Encoded(ids, lengths, labels, example_ids, starts, source)
