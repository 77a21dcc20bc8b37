"""Evaluation of a trained model on labelled texts."""

import collections
import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from scipy.special import softmax

from gatedjax._utils.types import Json
from gatedjax.lexicon import Readings
from gatedjax.text._asides import Asides
from gatedjax.text._buckets import Shape, shape_of, sizes_of, width_of
from gatedjax.text._labels import Classes
from gatedjax.text._leak import Sample, measure_leak
from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._lexicon_report import count_equal
from gatedjax.text._metrics import classification_metrics
from gatedjax.text._model import Failure, TrainedModel, check_inputs, chunks
from gatedjax.text._read import Aside, Label, Table
from gatedjax.text._states_model import StatesModel
from gatedjax.text._states_training import evaluate_states
from gatedjax.text._windows import pool_windows

# Lines that are read at a time; this bounds the memory for texts.
_CHUNK = 4096


def evaluate_model(
    model: TrainedModel | LexiconModel | StatesModel,
    table: Table,
    *,
    max_aside: float = 1.0,
    states: Any = None,
    say: Callable[[str], None] = lambda line: None,
) -> Json:
    """Returns the metrics of a model, its density and its leak on labelled texts, read once."""
    check_inputs(table.columns, model.kind)
    if isinstance(model, StatesModel):
        return evaluate_states(model, table, max_aside=max_aside, states=states, say=say)
    if states is not None:
        raise ValueError("states must be left out: the model reads texts")
    if isinstance(model, LexiconModel):
        return _evaluate_lexicon(model, table, max_aside)
    classes = Classes("label", model.classes)
    probabilities, labels = [], []
    open_words = words = 0.0
    by_prior = 0
    sample = Sample()
    fullest: collections.Counter[int] = collections.Counter()
    modes: dict[str, list[np.ndarray]] = {}
    asides = Asides(table.name)
    for records in chunks(table, _CHUNK):
        texts = []
        for record in records:
            if isinstance(record, Aside):
                asides.add(record)
                continue
            label = cast(Label, record.label)
            texts.append((record.inputs, classes.place(label, record.where, record.line), record))
        used = []
        # Batches do not cross the border of a chunk, so the largest batch of a width is that of the
        # chunk with the most texts of this width.
        widths: collections.Counter[int] = collections.Counter()
        outputs = model.read_texts([inputs for inputs, _, _ in texts])
        for (inputs, label, record), output in zip(texts, outputs, strict=True):
            if isinstance(output, Failure):
                asides.add(Aside(record.where, record.line, output.error))
                continue
            probabilities.append(output.probabilities)
            labels.append(label)
            used.append(inputs)
            if not all(output.tokens):
                by_prior += 1
                continue
            size = sum(map(len, output.tokens))
            words += size
            open_words += output.density * size
            # The leak of a long text is measured in its windows.
            for window in model.list_windows([output.tokens])[0]:
                sample.add(window)
            widths[width_of(max(map(len, output.tokens)), model.max_len)] += 1
        fullest |= widths  # The union has the larger count for each width.
        if model.entry.gated:
            for mode, right in _by_mode(model, used, labels[len(labels) - len(used) :]).items():
                modes.setdefault(mode, []).append(right)
    if not labels:
        raise asides.make_empty_error("a labelled text")
    asides.check(len(labels), max_aside)
    metrics = classification_metrics(
        np.array(labels), np.array(probabilities, np.float64), model.classes
    )
    density = open_words / max(words, 1)
    report: Json = {**metrics, "density": density, "by_prior": by_prior, "aside": asides.count}
    if modes:
        accuracy = {mode: float(np.mean(np.concatenate(right))) for mode, right in modes.items()}
        report["gate_modes"] = accuracy
        report["gate_gap"] = max(accuracy.values()) - min(accuracy.values())

    # The leak is measured with shapes that were compiled above, because a new shape takes longer
    # than the measurement.
    def read_shape(size: int) -> Shape:
        rows, width = shape_of(size, model.max_len)
        count = min(fullest[width], rows)
        return next(rows for rows in sizes_of(width) if rows >= count), width

    sampled = [tuple(map(model.ids, tokens)) for tokens in sample.texts()]
    leak = measure_leak(model.run, sampled, read_shape)
    if leak is not None:
        report["leak"] = leak
    return report


def _evaluate_lexicon(model: LexiconModel, table: Table, max_aside: float) -> Json:
    places = model.target.make_places(model.target)
    readings: list[Readings] = []
    labels: list[int] = []
    words = open_words = equal = 0
    asides = Asides(table.name)
    for records in chunks(table, _CHUNK):
        texts: list[list[str]] = []
        for record in records:
            if not isinstance(record, Aside):
                labels.append(places.place(record.label, record.where, record.line))
                texts.append(model.split(record.inputs[0]))
                continue
            asides.add(record)
        readings.append(model.lexicon.read(texts))
        words += sum(map(len, texts))
        open_words += sum(int(gates.sum()) for gates in readings[-1].is_open)
        equal += count_equal(model.lexicon, model.splitter, texts)
    if not labels:
        raise asides.make_empty_error("a labelled text")
    asides.check(len(labels), max_aside)
    names = tuple(places.places)
    targets = model.target.encode(names)[labels]
    joined = _join(readings)
    metrics = model.target.measure(targets, joined, model.target.find_unknown(names))
    same_answer = {"texts": len(labels), "equal": equal}
    density = open_words / max(words, 1)
    return {
        **metrics,
        "density": density,
        "by_prior": int(joined.is_prior.sum()),
        "aside": asides.count,
        "same_answer": same_answer,
    }


def _join(readings: Sequence[Readings]) -> Readings:
    return Readings._make(
        list(itertools.chain(*parts)) if isinstance(parts[0], list) else np.concatenate(parts)
        for parts in zip(*readings, strict=True)
    )


def _by_mode(
    model: TrainedModel, texts: Sequence[tuple[str, ...]], labels: Sequence[int]
) -> dict[str, np.ndarray]:
    """Returns, for each gate mode, the share of the draws [n] that predict the true class."""
    right: dict[str, np.ndarray] = {}
    targets = np.array(labels)
    documents = [model.all_tokens(example) for example in texts]
    windows, owners = model.list_windows(documents)
    lengths = np.array([sum(map(len, window)) for window in windows])
    probabilities: dict[str, np.ndarray] = {}
    for numbers, batch in model.batches(windows):
        for mode, logits in model.modes(model.params, batch).items():
            # The logits have an axis for draws before the axis of texts, and the last texts of a
            # batch are fillers.
            draws = softmax(np.asarray(logits, np.float64)[:, : len(numbers)], axis=-1)
            shape = (len(draws), len(windows), draws.shape[-1])
            probabilities.setdefault(mode, np.zeros(shape))[:, numbers] = draws
    for mode, draws in probabilities.items():
        best = pool_windows(draws, owners, lengths, len(texts)).argmax(axis=-1)
        best[:, [not words for (words,) in documents]] = np.argmax(model.prior)
        right[mode] = np.mean(best == targets, axis=0)
    return right
