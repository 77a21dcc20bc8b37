"""The evaluation of a trained model on labelled texts, for every model. It does not import JAX."""

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from gatedjax._utils.types import Json
from gatedjax.lexicon import Readings
from gatedjax.text.answers import _prediction, _report
from gatedjax.text.answers._leak import Sample, measure_leak, render_leak
from gatedjax.text.models._buckets import Shape, pool_windows, shape_of, sizes_of, width_of
from gatedjax.text.models._states import measure_states_leak, render_states_leak
from gatedjax.text.sources._table import Aside, Asides, Table

# Records that are read at a time; this bounds the memory for texts.
_CHUNK = 4096
# A network has no leak if dropping an unread word changes its predictions by less.
_LEAST_LEAK = 1e-5
# The output of the model for an example, the texts of the example, and the number of its label.
_Used = tuple[Any, tuple[str, ...], int]


def evaluate_model(model: Any, table: Table, *, max_aside: float = 1.0) -> Json:
    """Measures a model, its share and its leak on labelled texts, which are read once."""
    _prediction.check_inputs(table.columns, model.kind)
    scores = (_Scores if model.network in _prediction.WITHOUT_NETWORK else _NetworkScores)(model)
    places = model.target.make_places(model.target)
    labels: list[int] = []
    asides = Asides(table.name)
    for rows in _prediction.chunks(table, _CHUNK):
        records = [(row, places.place(row.label, row.where, row.line)) for row in asides.sift(rows)]
        used = []
        outputs = model.read([record.inputs for record, _ in records])
        for (record, label), output in zip(records, outputs, strict=True):
            if model.network == _prediction.STATES and not output.text.tokens:
                asides.add(Aside(record.where, record.line, "a text without a word"))
            else:
                used.append((output, record.inputs, label))
        scores.add(used)
        labels += [label for *_, label in used]
    asides.check(len(labels), max_aside)
    names = tuple(places.places)
    targets = model.target.encode(names)[labels]
    readings = Readings.join(scores.readings)
    metrics = model.target.measure(targets, readings, model.target.find_unknown(names))
    share = scores.words_read / max(scores.words, 1)
    report = {**metrics, "share": share, "aside": asides.count, **scores.finish(readings)}
    # A constant prediction of labels would need thresholds, which a folder lacks.
    if model.kind != _prediction.LABELS:
        rows = model.target.repeat_prior(np.asarray(model.prior), len(targets))
        constant = model.target.measure(targets, rows)
        report[_report.CONSTANT] = {name: constant[name] for name in model.target.metrics}
    return report


class _Scores:
    """The counts and readings of the texts of a source."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.readings: list[Readings] = []
        self.words = self.words_read = 0.0
        self.equal = self.by_prior = 0
        self.sample = Sample()

    def add(self, used: Sequence[_Used]) -> None:
        """Adds the outputs, the texts and the labels of a chunk."""
        for output, (text,), _ in used:
            self.readings.append(output.reading)
            self.words += len(output.reading.is_read[0])
            self.words_read += int(output.reading.is_read[0].sum())
            self.sample.add(text)
        if self.model.network == _prediction.LEXICON:
            texts = [output.text for output, *_ in used]
            self.equal += _report.count_equal(self.model.lexicon, self.model.splitter, texts)

    def finish(self, readings: Readings) -> Json:
        """Returns the entries of the report that only this kind of model has."""
        if self.model.network == _prediction.STATES:
            return {"states_leak": measure_states_leak(self.model, self.sample.texts())}
        report: Json = {"by_prior": int(readings.is_prior.sum())}
        if self.model.network == _prediction.LEXICON:
            report["same_answer"] = {"texts": len(readings.is_prior), "equal": self.equal}
        return report


class _NetworkScores(_Scores):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.fullest: collections.Counter[int] = collections.Counter()
        self.modes: dict[str, list[np.ndarray]] = {}

    def add(self, used: Sequence[_Used]) -> None:
        widths: collections.Counter[int] = collections.Counter()
        for output, *_ in used:
            row = output.probabilities[None].astype(np.float64)
            self.readings.append(Readings.of_outputs(row, row))
            if not all(output.tokens):
                self.by_prior += 1
                continue
            size = sum(map(len, output.tokens))
            self.words += size
            self.words_read += output.share * size
            # The leak of a long text is measured in its windows.
            for window in self.model.list_windows([output.tokens])[0]:
                self.sample.add(window)
            widths[width_of(max(map(len, output.tokens)), self.model.max_len)] += 1
        # Batches do not cross the border of a chunk, so the largest batch of a width is that of the
        # chunk with the most texts of this width. The union has the larger count for each width.
        self.fullest |= widths
        if self.model.entry.gated and used:
            for mode, right in _by_mode(self.model, used).items():
                self.modes.setdefault(mode, []).append(right)

    def finish(self, readings: Readings) -> Json:
        report: Json = {"by_prior": self.by_prior}
        if self.modes:
            modes = self.modes.items()
            accuracy = {mode: float(np.mean(np.concatenate(right))) for mode, right in modes}
            report["gate_modes"] = accuracy
            report["gate_gap"] = max(accuracy.values()) - min(accuracy.values())
        sampled = [tuple(map(self.model.ids, tokens)) for tokens in self.sample.texts()]
        leak = measure_leak(self.model.run, sampled, self._read_shape)
        return report if leak is None else {**report, "leak": leak}

    def _read_shape(self, size: int) -> Shape:
        # The leak is measured with shapes that were compiled before, because a new shape takes
        # longer than the measurement.
        rows, width = shape_of(size, self.model.max_len)
        count = min(self.fullest[width], rows)
        return next(rows for rows in sizes_of(width) if rows >= count), width


def _by_mode(model: Any, used: Sequence[_Used]) -> dict[str, np.ndarray]:
    """Returns, for each gate mode, the share of the draws [n] that predict the true class."""
    documents = [model.all_tokens(texts) for _, texts, _ in used]
    targets = np.array([label for *_, label in used])
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
    right: dict[str, np.ndarray] = {}
    for mode, draws in probabilities.items():
        best = pool_windows(draws, owners, lengths, len(used)).argmax(axis=-1)
        best[:, [not words for (words,) in documents]] = np.argmax(model.prior)
        right[mode] = np.mean(best == targets, axis=0)
    return right


def render_evaluation(model: Any, metrics: Json) -> str:
    """Formats the result of `evaluate_model` as lines of text."""
    share, equal = metrics["share"], metrics.get("same_answer")
    shown = _report.render_metric_list(metrics, model.target.metrics)
    is_class = "per_class" in metrics
    lines = [_report.render_summary(metrics) if is_class else f"{metrics['n']:,} texts: {shown}"]
    if model.network in _prediction.OF_WORDS:
        lines[0] += f"; {share:.0%} of the words are read"
        lines.append(_report.render_priors(metrics))
        lines.append(
            _report.render_equal(equal, model.target.answers) if equal else _report.READS_ALL
        )
    elif metrics.get("by_prior"):
        lines.append(_report.render_priors(metrics))
    if few := metrics.get("few_words"):
        lines.append(_report.render_few_words(few))
    if (table := _report.render_details(metrics)) is not None:
        lines += ["", table.rstrip(), ""]
    if _report.CONSTANT in metrics:
        shown = _report.render_metric_list(metrics[_report.CONSTANT], model.target.metrics)
        lines.append(f"{model.target.constant}: {shown}")
    if model.network not in _prediction.OF_WORDS:
        lines.append(f"share: {share:.4f} of the {_name_words(model, metrics)}")
    if "states_leak" in metrics:
        lines.append(render_states_leak(metrics["states_leak"]))
    if "gate_modes" in metrics:
        modes = ", ".join(f"{mode} {value:.4f}" for mode, value in metrics["gate_modes"].items())
        lines.append(f"accuracy by gate mode: {modes}; gap {metrics['gate_gap']:.4f}")
    if "leak" in metrics:
        lines.append(render_leak(metrics["leak"]))
    return "\n".join(lines)


def _name_words(model: Any, metrics: Json) -> str:
    if model.network == _prediction.STATES:
        return "tokens are read"
    if model.entry.selects_pairs:
        return "pairs of words are selected"
    leaks = metrics.get("leak", {}).get("not_read", 0.0) > _LEAST_LEAK
    return "words are read by attention" if leaks else "words are read"
