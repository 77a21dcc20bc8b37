"""Labelled sentences in the explorer: accuracy by threshold, and the most difficult sentences.

The curve has two kinds of thresholds: thresholds with a given share of open gates, so that the
points are evenly spaced in density, and round numbers.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json, Tree
from gatedjax.explore._engine import Explorer, Programs
from gatedjax.explore._views import LONGEST
from gatedjax.text._buckets import COARSE, group_texts, shape_of
from gatedjax.text._labels import Classes
from gatedjax.text._read import Label, Record, Table

MOST, MOST_LEAKS = 1000, 200
"""Largest number of sentences that are read, and for which the gate leak is measured."""
# The thresholds of the curve: with these shares of open gates, and these numbers.
SHARES = tuple(n / 20 for n in range(1, 20))
ROUND = tuple(n / 10 for n in range(1, 10))
ROUNDING = 1e-6
"""Largest change of a probability by rounding in another batch."""
PAGE = 20
"""Number of sentences in an answer."""
_LEXICON_TEXTS = 100
"""Number of texts that a lexicon reads at a time."""
ORDERS = ("error", "density", "leak")


@dataclasses.dataclass(frozen=True, eq=False)
class Sentences:
    """Labelled sentences and the results of the models for them."""

    name: str
    total: int  # usable lines that were read
    has_more: bool
    rows: Sequence[Json]  # "leak" is None after MOST_LEAKS sentences and without gates
    curves: Sequence[Json]  # of each model

    def about(self) -> Json:
        """Returns the curves and the numbers of sentences, for JSON."""
        return {
            "name": self.name,
            "total": self.total,
            "more": self.has_more,
            "leaks": sum(row["leak"] is not None for row in self.rows),
            "orders": [o for o in ORDERS if any(row[o] is not None for row in self.rows)],
            "curves": list(self.curves),
        }

    def page(self, order: Any, begin: Any) -> Json:
        """Returns up to 20 (`PAGE`) sentences with a value of `order`, the largest first."""
        if order not in ORDERS:
            raise ValueError(
                f"order must be one of {', '.join(map(repr, ORDERS))}, got {str(order)[:40]!r}"
            )
        # bool is a subclass of int, but true is no number of rows.
        if not isinstance(begin, int) or isinstance(begin, bool) or begin < 0:
            raise ValueError(f"begin must be an integer of at least 0, got {begin!r:.40}")
        rows = [row for row in self.rows if row[order] is not None]
        rows.sort(key=lambda row: -row[order])
        return {"rows": rows[begin : begin + PAGE], "begin": begin, "total": len(rows)}


def read_sentences(
    explorer: Explorer, table: Table, *, most: int = MOST, leaks: int = MOST_LEAKS
) -> Sentences:
    """Runs all models on labelled sentences."""
    # A sentence more than the limit is read, which shows whether the file has more.
    pairs = list(itertools.islice(_usable(explorer, table), most + 1))
    has_more, pairs = len(pairs) > most, pairs[:most]
    records = [record for record, _ in pairs]
    if not records:
        raise ValueError(
            f"{table.name} must have a sentence with a label of the model, got none: its labels "
            f"are {', '.join(map(repr, explorer.models[0].classes[:10]))}"
        )
    results = _compute_results(explorer, [record.inputs[0] for record in records])
    labels = np.array([places for _, places in pairs]).T.tolist()
    curves = [result.curve(right) for result, right in zip(results, labels, strict=True)]
    rows = _rows(explorer.models[0].classes, results[0], records, labels[0])
    for row, leak in zip(rows, results[0].leaks(leaks), strict=False):
        row["leak"] = leak
    return Sentences(table.name, len(records), has_more, rows, curves)


def first_sentence(explorer: Explorer, table: Table) -> Json | None:
    """Returns {"text", "label", "name"} of the first sentence with a label of the models."""
    try:
        record, _ = next(_usable(explorer, table))
    except (StopIteration, OSError, ValueError):
        return None  # `read_sentences` raises the error.
    return {"text": record.inputs[0], "label": str(record.label), "name": table.name}


def _usable(explorer: Explorer, table: Table) -> Iterator[tuple[Record, list[Any]]]:
    """Yields (record, positions of its label in the classes of the models)."""
    tables = [Classes("label", model.classes) for model in explorer.models]
    split = explorer.models[0].split if explorer.views else explorer.tokenizer.split
    for record in table:
        if not isinstance(record, Record) or record.label is None:
            continue
        if split(record.inputs[0]):
            places = [classes.find(record.label, record.where, record.line) for classes in tables]
            if None not in places:  # The curves of all models are of the same sentences.
                yield record, places


def _compute_results(
    explorer: Explorer, texts: Sequence[str]
) -> "Sequence[_Results | _LexiconResults]":
    if explorer.views:
        return [_LexiconResults.compute(m, texts, explorer.check_open) for m in explorer.models]
    words = [explorer.tokenizer.split(text) for text in texts]
    return [_Results.compute(p, words, explorer.check_open) for p in explorer.programs]


def _rows(
    classes: Sequence[Label],
    results: "_Results | _LexiconResults",
    records: Sequence[Record],
    labels: Sequence[int],
) -> list[Json]:
    """Returns the `rows` of `Sentences`, without gate leaks: a dict for each sentence."""
    rows = []
    for number, record in enumerate(records):
        probabilities = results.middle_probabilities[number]
        rows.append(
            {
                "text": record.inputs[0],
                "label": str(record.label),
                "predicted": str(classes[int(np.argmax(probabilities))]),
                "error": float(1 - probabilities[labels[number]]),
                "density": float(results.masks[number].mean()) if results.gated else None,
                "leak": None,
            }
        )
    return rows


def thresholds_of(values: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Computes thresholds with given shares of the values above them. Each is halfway between two
    values, because at a value rounding would decide, which depends on the batch and the processor;
    equal values stay on one side.

        >>> print(thresholds_of(np.array([0.0, 0.25, 0.5, 1.0]), [0.5]))
        [0.375]
    """
    ordered = np.sort(values.astype(np.float64))
    is_distinct = np.diff(ordered) > ROUNDING
    between = ((ordered[1:] + ordered[:-1]) / 2)[is_distinct]
    below = np.quantile(ordered, 1 - np.array(shares), method="lower")
    if not len(between):
        return below
    return between[np.searchsorted(between, below).clip(max=len(between) - 1)]


@dataclasses.dataclass(eq=False)
class _Results:
    """The results of a model for N texts with each of S thresholds of the open probability."""

    programs: Programs
    texts: Sequence[tuple[str, ...]]
    check: Callable[[], None]  # called between batches; an exception from it ends the work
    thresholds: np.ndarray  # [S], descending; at -1 all gates are open
    middle_probabilities: np.ndarray  # [N, C], with the threshold 0.5 or without gates
    masks: list[np.ndarray]  # bool [T] of each text, open at the threshold 0.5
    predicted: np.ndarray  # int [S, N]
    open_counts: np.ndarray  # [S, N]

    @classmethod
    def compute(
        cls, programs: Programs, texts: Sequence[tuple[str, ...]], check: Callable[[], None]
    ) -> "_Results":
        """Runs the model on texts, each a tuple of words, with a program for each padded length."""
        model = programs.model
        texts = [words[: model.max_len] for words in texts]
        classes = len(model.classes)
        middle_probabilities = np.zeros((len(texts), classes))
        if not programs.gated:
            for numbers, batch in _batches(programs, texts):
                check()
                middle_probabilities[numbers] = model.run(batch)["probabilities"][: len(numbers)]
            best = np.argmax(middle_probabilities, axis=1)[None]
            masks = [np.ones(len(words), bool) for words in texts]
            open_counts = np.array([[len(words) for words in texts]], float)
            return cls(
                programs,
                texts,
                check,
                np.array([-1.0]),
                middle_probabilities,
                masks,
                best,
                open_counts,
            )
        likely: dict[int, np.ndarray] = {}
        for numbers, batch in _batches(programs, texts):
            check()
            *_, probabilities_open = programs.batch_with_gates(
                batch, np.zeros(_shape(batch), np.float32)
            )
            likely |= {n: probabilities_open[row, : len(texts[n])] for row, n in enumerate(numbers)}
        # The thresholds depend on the probabilities of all texts, so the network runs a second time
        # with the gates.
        pooled = np.concatenate([likely[number] for number in range(len(texts))])
        thresholds = -np.sort(-np.array([*thresholds_of(pooled, SHARES), *ROUND, -1.0]))
        # `ROUND` has the threshold 0.5. The thresholds descend, so it is the first that is not
        # above.
        middle = int(np.argmax(thresholds <= 0.5))
        predicted = np.zeros((len(thresholds), len(texts)), int)
        open_counts = np.zeros((len(thresholds), len(texts)))
        masks = [np.zeros(0, bool)] * len(texts)
        for numbers, batch in _batches(programs, texts):
            check()
            gates = np.zeros(_shape(batch), np.float32)
            for row, number in enumerate(numbers):
                p = likely[number]
                gates[:, row, : len(p)] = p > thresholds[:, None]
            probabilities, used, _ = programs.batch_with_gates(batch, gates)
            predicted[:, numbers] = probabilities.argmax(-1)[:, : len(numbers)]
            open_counts[:, numbers] = used.sum(-1)[:, : len(numbers)]
            middle_probabilities[numbers] = probabilities[middle, : len(numbers)]
            for row, number in enumerate(numbers):
                masks[number] = used[middle, row, : len(texts[number])] > 0
        return cls(
            programs, texts, check, thresholds, middle_probabilities, masks, predicted, open_counts
        )

    @property
    def gated(self) -> bool:
        return self.programs.gated

    def curve(self, targets: Sequence[int]) -> Json:
        """Returns "density", "accuracy", "threshold": lists, an entry per distinct threshold."""
        words = sum(map(len, self.texts))
        # Equal thresholds become a single point, because they are keys of a dict.
        points = {
            threshold: (
                float(open_counts.sum() / words),
                float(np.mean(predicted == np.array(targets))),
            )
            for threshold, open_counts, predicted in zip(
                self.thresholds.tolist(), self.open_counts, self.predicted, strict=True
            )
        }
        return {
            "density": [density for density, _ in points.values()],
            "accuracy": [accuracy for _, accuracy in points.values()],
            "threshold": [max(threshold, 0.0) for threshold in points],
        }

    def leaks(self, most: int) -> list[float]:
        """Computes the gate leak, as in `faithfulness`, of the first `most` texts; [] without
        gates.
        """
        if not self.programs.gated:
            return []
        open_texts = [
            tuple(itertools.compress(words, masks.tolist()))
            for words, masks in zip(self.texts[:most], self.masks, strict=False)
        ]
        leaks = np.zeros(len(open_texts))
        for numbers, batch in _batches(self.programs, open_texts):
            self.check()
            gates = np.ones(_shape(batch), np.float32)
            probabilities, *_ = self.programs.batch_with_gates(batch, gates)
            for row, number in enumerate(numbers):
                best = int(np.argmax(self.middle_probabilities[number]))
                leaks[number] = abs(
                    self.middle_probabilities[number, best] - probabilities[0, row, best]
                )
        return [float(leak) for leak in leaks]


@dataclasses.dataclass(eq=False)
class _LexiconResults:
    """The results of a lexicon for N texts; its gates have no threshold."""

    middle_probabilities: np.ndarray
    masks: list[np.ndarray]
    gated = True

    @classmethod
    def compute(
        cls, model: Any, texts: Sequence[str], check: Callable[[], None]
    ) -> "_LexiconResults":
        """Reads texts with a `LexiconModel`, up to the words that the page shows of a long text."""
        probabilities, masks = [np.zeros((0, len(model.classes)))], []
        for begin in range(0, len(texts), _LEXICON_TEXTS):
            check()
            part = texts[begin : begin + _LEXICON_TEXTS]
            readings = model.lexicon.read([model.split(text)[:LONGEST] for text in part])
            probabilities.append(readings.probabilities)
            masks += [np.asarray(is_open, bool) for is_open in readings.is_open]
        return cls(np.concatenate(probabilities), masks)

    def curve(self, targets: Sequence[int]) -> Json:
        correct = np.argmax(self.middle_probabilities, axis=1) == np.array(targets)
        density = np.concatenate(self.masks).mean()
        return {"density": [float(density)], "accuracy": [float(correct.mean())], "threshold": [0]}

    def leaks(self, most: int) -> list[float]:
        return []  # A lexicon is not run again without its closed words here.


def _batches(
    programs: Programs, texts: Sequence[tuple[str, ...]]
) -> Iterator[tuple[list[int], Tree]]:
    shapes = functools.partial(shape_of, longest=programs.model.max_len, widths=COARSE)
    for numbers, (rows, width) in group_texts(map(len, texts), shapes):
        # Rows after the `numbers` repeat texts, so that each padded length has one program.
        filled = [(texts[n],) for n in (numbers * rows)[:rows]]
        yield numbers, programs.model.batch(filled, width)


def _shape(batch: Tree) -> tuple[int, ...]:
    return (len(SHARES) + len(ROUND) + 1, *batch["tokens"].shape)
