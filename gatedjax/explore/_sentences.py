"""Labelled sentences under a model: accuracy as the gates' threshold moves, and what is hard.

The thresholds of the curve are those at which the gates of a share of all words are open, so that
points lie evenly over density, and round ones.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json, Tree
from gatedjax.explore._engine import Explorer, Programs
from gatedjax.text._buckets import COARSE, grouped, shape_of
from gatedjax.text._corpus import split_words
from gatedjax.text._labels import Classes
from gatedjax.text._read import Label, Record, Table

MOST, MOST_LEAKS = 1000, 200
"""So many sentences are read, and the leak is measured of so many of them."""
SHARES = tuple(n / 20 for n in range(1, 20))
ROUND = tuple(n / 10 for n in range(1, 10))
ROUNDING = 1e-6
"""Of a probability: what another batch may change."""
PAGE = 20
"""Sentences of an answer."""
ORDERS = ("error", "density", "leak")


@dataclasses.dataclass(frozen=True, eq=False)
class Sentences:
    """What is known of labelled sentences.

    Attributes:
      name: of the file.
      total: usable lines read; more may follow.
      more: whether the file has more lines than were read.
      rows: of every sentence text, label, and of the first model what is predicted, the error
        1 - p(label), the density and, of the first ones, the leak.
      curves: of every model density, accuracy and threshold of its points; one without gates.
    """

    name: str
    total: int
    more: bool
    rows: Sequence[Json]
    curves: Sequence[Json]

    def about(self) -> Json:
        """The curves, and how many sentences there are."""
        return {
            "name": self.name,
            "total": self.total,
            "more": self.more,
            "leaks": sum(row["leak"] is not None for row in self.rows),
            "orders": [o for o in ORDERS if any(row[o] is not None for row in self.rows)],
            "curves": list(self.curves),
        }

    def page(self, order: Any, begin: Any) -> Json:
        """So many rows from a place on, the largest first.

        Raises:
          ValueError: for an order or a place that there is not.
        """
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {str(order)[:40]!r}")
        if not isinstance(begin, int) or isinstance(begin, bool) or begin < 0:
            raise ValueError(f"begin must be a whole number from 0 on, got {str(begin)[:40]}")
        known = [row for row in self.rows if row[order] is not None]
        known.sort(key=lambda row: -row[order])
        return {"rows": known[begin : begin + PAGE], "begin": begin, "total": len(known)}


def read_sentences(
    explorer: Explorer, table: Table, *, most: int = MOST, leaks: int = MOST_LEAKS
) -> Sentences:
    """Runs every model over labelled sentences.

    Args:
      explorer: the models.
      table: the sentences; those whose label no model knows are passed over.
      most: sentences that are read.
      leaks: sentences whose leak is measured.

    Raises:
      ValueError: if there is no usable one.
    """
    known = [Classes("label", model.classes) for model in explorer.models]
    found = (
        (record, [one.find(record.label, record.where, record.line) for one in known])
        for record in table
        if isinstance(record, Record) and record.label is not None
        if split_words(record.inputs[0], 1)
    )
    usable = ((record, places) for record, places in found if None not in places)
    pairs = list(itertools.islice(usable, most + 1))
    more, pairs = len(pairs) > most, pairs[:most]
    records = [record for record, _ in pairs]
    if not records:
        raise ValueError(f"{table.name} has no sentence with a label of the model")
    texts = [split_words(record.inputs[0]) for record in records]
    seen = [_Seen.of(programs, texts, explorer.check_open) for programs in explorer.programs]
    labels = np.array([places for _, places in pairs]).T.tolist()
    curves = [one.curve(right) for one, right in zip(seen, labels, strict=True)]
    rows = _rows(explorer.models[0].classes, seen[0], records, labels[0])
    for row, leak in zip(rows, seen[0].leaks(leaks), strict=False):
        row["leak"] = leak
    return Sentences(table.name, len(records), more, rows, curves)


def _rows(
    classes: Sequence[Label], seen: "_Seen", records: Sequence[Record], labels: Sequence[int]
) -> list[Json]:
    rows = []
    for number, record in enumerate(records):
        probabilities = seen.usual[number]
        rows.append(
            {
                "text": record.inputs[0],
                "label": str(record.label),
                "predicted": str(classes[int(np.argmax(probabilities))]),
                "error": float(1 - probabilities[labels[number]]),
                "density": float(seen.kept[number].mean()) if seen.programs.gated else None,
                "leak": None,
            }
        )
    return rows


def thresholds_of(values: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Thresholds that a share of the values is above, each halfway between two of them.

    On one of them rounding would decide, which another batch or processor does otherwise.
    """
    ordered = np.sort(values.astype(np.float64))
    apart = np.diff(ordered) > ROUNDING
    between = ((ordered[1:] + ordered[:-1]) / 2)[apart]
    below = np.quantile(ordered, 1 - np.array(shares), method="lower")
    if not len(between):
        return below
    return between[np.searchsorted(between, below).clip(max=len(between) - 1)]


@dataclasses.dataclass(eq=False)
class _Seen:
    """What a model says of texts under every threshold.

    Attributes:
      programs: of the model.
      texts: words.
      check: is called between batches; what it raises ends the work.
      thresholds: [S], falling; at -1 all gates are open.
      usual: [N, C] class probabilities under the threshold 0.5, or without gates.
      kept: of every text which words the usual gates keep.
      chosen: [S, N] the likeliest class.
      opened: [S, N] how many gates are open.
    """

    programs: Programs
    texts: Sequence[tuple[str, ...]]
    check: Callable[[], None]
    thresholds: np.ndarray
    usual: np.ndarray
    kept: list[np.ndarray]
    chosen: np.ndarray
    opened: np.ndarray

    @classmethod
    def of(
        cls, programs: Programs, texts: Sequence[tuple[str, ...]], check: Callable[[], None]
    ) -> "_Seen":
        """Runs the model; one program for every width."""
        model = programs.model
        texts = [words[: model.max_len] for words in texts]
        classes = len(model.classes)
        usual = np.zeros((len(texts), classes))
        if not programs.gated:
            for numbers, batch in _batches(programs, texts):
                check()
                usual[numbers] = model.run(batch)["probabilities"][: len(numbers)]
            one = np.argmax(usual, axis=1)[None]
            kept = [np.ones(len(words), bool) for words in texts]
            opened = np.array([[len(words) for words in texts]], float)
            return cls(programs, texts, check, np.array([-1.0]), usual, kept, one, opened)
        likely: dict[int, np.ndarray] = {}
        for numbers, batch in _batches(programs, texts):
            check()
            *_, found = programs.batch_with_gates(batch, np.zeros(_shape(batch), np.float32))
            likely |= {n: found[row, : len(texts[n])] for row, n in enumerate(numbers)}
        pooled = np.concatenate([likely[number] for number in range(len(texts))])
        thresholds = -np.sort(-np.array([*thresholds_of(pooled, SHARES), *ROUND, -1.0]))
        middle = int(np.argmax(thresholds <= 0.5))
        chosen = np.zeros((len(thresholds), len(texts)), int)
        opened = np.zeros((len(thresholds), len(texts)))
        kept = [np.zeros(0, bool)] * len(texts)
        for numbers, batch in _batches(programs, texts):
            check()
            gates = np.zeros(_shape(batch), np.float32)
            for row, number in enumerate(numbers):
                p = likely[number]
                gates[:, row, : len(p)] = p > thresholds[:, None]
            probabilities, used, _ = programs.batch_with_gates(batch, gates)
            chosen[:, numbers] = probabilities.argmax(-1)[:, : len(numbers)]
            opened[:, numbers] = used.sum(-1)[:, : len(numbers)]
            usual[numbers] = probabilities[middle, : len(numbers)]
            for row, number in enumerate(numbers):
                kept[number] = used[middle, row, : len(texts[number])] > 0
        return cls(programs, texts, check, thresholds, usual, kept, chosen, opened)

    def curve(self, targets: Sequence[int]) -> Json:
        """Density, accuracy and threshold of every point."""
        words = sum(map(len, self.texts))
        points = {
            threshold: (float(opened.sum() / words), float(np.mean(chosen == np.array(targets))))
            for threshold, opened, chosen in zip(
                self.thresholds.tolist(), self.opened, self.chosen, strict=True
            )
        }
        return {
            "density": [density for density, _ in points.values()],
            "accuracy": [accuracy for _, accuracy in points.values()],
            "threshold": [max(threshold, 0.0) for threshold in points],
        }

    def leaks(self, most: int) -> list[float]:
        """|p_j(x; gates open at r) - p_j(r alone; all gates open)| of the predicted class j, with
        the kept words r: what the prediction owes to words behind shut gates."""
        if not self.programs.gated:
            return []
        alone = [
            tuple(itertools.compress(words, kept.tolist()))
            for words, kept in zip(self.texts[:most], self.kept, strict=False)
        ]
        leaks = np.zeros(len(alone))
        for numbers, batch in _batches(self.programs, alone):
            self.check()
            gates = np.ones(_shape(batch), np.float32)
            probabilities, *_ = self.programs.batch_with_gates(batch, gates)
            for row, number in enumerate(numbers):
                best = int(np.argmax(self.usual[number]))
                leaks[number] = abs(self.usual[number, best] - probabilities[0, row, best])
        return [float(leak) for leak in leaks]


def _batches(
    programs: Programs, texts: Sequence[tuple[str, ...]]
) -> Iterator[tuple[list[int], Tree]]:
    """Yields (which texts, their padded batch), all of one size for a width."""

    shapes = functools.partial(shape_of, longest=programs.model.max_len, widths=COARSE)
    for numbers, (rows, width) in grouped(map(len, texts), shapes):
        filled = [(texts[n],) for n in (numbers * rows)[:rows]]
        yield numbers, programs.model.batch(filled, width)


def _shape(batch: Tree) -> tuple[int, ...]:
    """Of the gates of a batch under every threshold."""
    return (len(SHARES) + len(ROUND) + 1, *batch["tokens"].shape)
