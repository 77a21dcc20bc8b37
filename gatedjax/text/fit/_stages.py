"""The fit of a model in stages, one for each share: the choice of the share, and its scores."""

import abc
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import SHARES, EmptyLexicon, Head, Readings
from gatedjax.text._options import BALANCED
from gatedjax.text.answers import _report
from gatedjax.text.corpus._corpus import SPLIT_SEED, Corpus
from gatedjax.text.fit._learner import Data, Learner, Say
from gatedjax.text.fit._rivals import measure_rivals
from gatedjax.text.sources._labels import Label
from gatedjax.text.targets._base import Target
from gatedjax.text.targets._calibration import apply_temperatures, choose_temperatures

# Up to this many texts, folds compare the shares, and the chosen share is fitted again to all
# texts. With more texts another tenth hardly helps, and the fits take longer.
LARGEST_REFIT = 20_000
_FOLDS = 3
Stage = Any
"""A `Lexicon` or a `GatedPooling`, the model that is fitted to a share of the words."""


@dataclasses.dataclass(frozen=True, eq=False)
class TextPart:
    """The n texts for training, validation or test, with their targets."""

    items: Sequence[Any]  # the input of the model for each text: its words, or its vectors
    words: Sequence[list[str]]  # for the models that the result is compared with
    texts: Sequence[str]
    labels: np.ndarray
    weights: np.ndarray | None = None  # for the fit
    sample_weight: np.ndarray | None = None  # for all scores
    unknown: Sequence[Label] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: np.ndarray) -> "TextPart":
        """Returns the texts at the positions `rows`, an int array from 0, in this order."""
        columns: Json = {
            name: [getattr(self, name)[i] for i in rows.tolist()]
            for name in ("items", "words", "texts")
        }
        for name in ("labels", "weights", "sample_weight"):
            values = getattr(self, name)
            columns[name] = None if values is None else values[rows]
        return TextPart(**columns)


class Trial(NamedTuple):
    """The stages of a share, and their readings of the texts that judge them."""

    stages: Sequence[Stage]  # one for each part of texts
    readings: Readings  # of all n texts, one part after the other
    bias: np.ndarray  # [n, B], the biases of the stage that read the text
    scores: Json  # the entry of the curve


class StagedLearner(Learner):
    """A model whose fit yields a stage for each share, from all words to the fewest."""

    noun = "words"
    has_gates = True  # False for a model of all words, which has no curve
    title = ""

    @abc.abstractmethod
    def make_part(self, name: str, labels: np.ndarray) -> TextPart:
        """Returns the texts for a purpose with their targets."""

    @abc.abstractmethod
    def start_fit(self, part: TextPart, head: Head, shares: Sequence[float]) -> Iterator[Stage]:
        """Returns an iterator over the stages of falling shares, each fitted when asked for."""

    def start_trials(
        self, every: TextPart, pairs: Sequence[tuple[TextPart, TextPart]], target: Target, say: Say
    ) -> Iterator[Trial]:
        """Returns the trials of the shares; a lexicon first chooses whether it has vectors."""
        return self.try_shares(pairs, target)

    @abc.abstractmethod
    def make_model(
        self, stage: Stage, target: Target, every: TextPart, report: Json, picture: str
    ) -> Any:
        """Returns the model of a stage, which was fitted to texts of `every`."""

    @abc.abstractmethod
    def measure_reading(self, model: Any, part: TextPart, scores: Json) -> tuple[str, list[str]]:
        """Returns how the model answers by its words ("from"), and lines about unread words."""

    def fit(self, data: Data, say: Say) -> tuple[Any, int]:
        """Compares the shares, fits the chosen one, and measures it."""
        kind, options, target = self.kind, self.options, data.target
        assert target is not None
        parts: dict[str, TextPart] = {}
        for name, corpus in data.corpora.items():
            part = self.make_part(name, data.targets[name])
            parts[name] = dataclasses.replace(part, unknown=target.find_unknown(corpus.classes))
        weights = _weigh_texts(data.corpora["train"], options.class_weight, data.sample_weight)
        every = parts["train"] = dataclasses.replace(
            parts["train"], weights=weights, sample_weight=data.sample_weight
        )
        parts = data.split(parts)
        training, held = parts["train"], parts["validation"]
        head = target.make_head(every.labels, data.sample_weight)
        has_folds = data.is_split and len(every.labels) <= LARGEST_REFIT
        pairs = _split_folds(every, target) if has_folds else [(training, held)]
        trials = list(self.start_trials(every, pairs, target, say))
        chosen = self._choose_share(trials, target, say)
        share = trials[chosen].scores["asked"]
        # The model of all words has its own temperatures and thresholds, so that the comparison is
        # fair.
        judged = [judge for _, judge in pairs]
        all_target, all_fields, _ = _calibrate(trials[0], judged, target, head)
        target, fields, report = _calibrate(trials[chosen], judged, target, head)
        if has_folds:
            first, measured = self._fit_share(training, head, share)
        else:
            (first,), (measured,) = trials[0].stages, trials[chosen].stages
        of_all_held = _measure(dataclasses.replace(first, **all_fields), held, all_target)
        final, fitted = measured, training
        if has_folds:
            # The validation texts now belong to the training texts. In a few texts the words may be
            # too frequent for this share, and the stage stays as it is.
            with contextlib.suppress(EmptyLexicon):
                first_of_all, final = self._fit_share(every, head, share)
                parts["train"] = every
                if "test" in parts:
                    first, fitted = first_of_all, every
        checked = "test" if "test" in parts else "validation"
        part = parts[checked]
        compared = final if checked == "test" else measured
        uncalibrated = _measure(compared, part, target).get("ece")
        measured, final = (dataclasses.replace(stage, **fields) for stage in (measured, final))
        first = dataclasses.replace(first, **all_fields)
        curve = [trial.scores for trial in trials]
        report |= {"share": final.share, "curve": curve}
        report["validation"] = _measure(measured, held, target)
        if checked == "test":
            report["test"] = _measure(final, part, target)
        of_all = _measure(first, part, all_target)
        picture = ""
        if self.has_gates:
            metric = target.choose_metric(options.best_metric)
            picture = _report.draw_curve(curve, chosen, metric, target.metrics[metric])
        model = self.make_model(final, target, every, report, picture)
        verb, lines = self.measure_reading(model, part, report[checked])
        ours, scores = final if checked == "test" else measured, report[checked]
        rivals, report["better"] = measure_rivals(
            *(target, training, held, fitted, part, ours.read(part.items), scores["share"])
        )
        for line in _report.render_better(report, checked, target, self.options.model):
            say(line)
        if kind == "text":
            if self.has_gates:
                report["validation"]["all_words"] = of_all_held["accuracy"]
                scores["all_words"] = of_all["accuracy"]
            report |= {name: {checked: rival["accuracy"]} for name, rival in rivals.items()}
            if _report.FILTER in rivals:
                report[_report.FILTER]["share"] = rivals[_report.FILTER]["share"]
            source = f"{verb} {{:.0%}} of the {self.noun}"
            say(_report.render_accuracies(report, checked, target, source))
        else:
            if self.has_gates:
                scores["all_words"] = {name: of_all[name] for name in target.metrics}
            names, titles = [*target.metrics, "share"], _report.name_rivals(target)
            report["baseline"] = {
                titles[key]: {checked: {name: rival[name] for name in names if name in rival}}
                for key, rival in rivals.items()
            }
            say(_report.render_scores(report, checked, target.metrics))
        for line in lines:
            say(line)
        if uncalibrated is not None:
            report[checked]["uncalibrated_ece"] = uncalibrated
            say(_report.render_calibration(report, checked, self.noun))
        if few := report[checked].get("few_words"):
            say(_report.render_few_words(few, self.noun))
        if report[checked].get("unknown"):
            say(_report.render_unknown(report[checked]["unknown"]))
        return model, len(parts["train"].labels)

    def _fit_share(self, part: TextPart, head: Head, share: float) -> tuple[Stage, Stage]:
        """Returns the stage of all words, which ranks them, and that of a share of the words."""
        stages = list(self.start_fit(part, head, sorted({1.0, share}, reverse=True)))
        return stages[0], stages[-1]

    def try_shares(
        self, pairs: Sequence[tuple[TextPart, TextPart]], target: Target
    ) -> Iterator[Trial]:
        """Yields the trial of each share; `pairs` has texts to fit, and texts that judge them."""
        shares: Sequence[float] = SHARES if self.has_gates else (1.0,)
        if self.has_gates and self.options.share is not None:
            shares = sorted({1.0, self.options.share}, reverse=True)
        fits = [
            self.start_fit(part, target.make_head(part.labels, part.sample_weight), shares)
            for part, _ in pairs
        ]
        judges = [judge for _, judge in pairs]
        labels, weights = _join_labels(judges)
        metric = target.choose_metric(self.options.best_metric)
        first: Trial | None = None
        try:
            for stages in zip(*fits, strict=True):
                readings = [s.read(part.items) for s, part in zip(stages, judges, strict=True)]
                bias = np.repeat([s.bias for s in stages], list(map(len, judges)), 0)
                trial = Trial(stages, Readings.join(readings), bias.astype(np.float64), {})
                decided = target.choose_decision(trial.readings, labels, weights)
                measured = _measure_readings(trial.readings, labels, decided, (), weights)
                best = (first.scores if first else measured)[metric]
                loss = measured[metric] - best if target.is_error else best - measured[metric]
                first = trial if first is None else first
                error = target.compare(labels, first.readings, trial.readings, weights)
                trial.scores["asked"] = stages[0].share
                names = ("share", *target.metrics, "by_prior")
                trial.scores.update({name: measured[name] for name in names})
                trial.scores.update({"loss": loss, "error": error, "n": len(labels)})
                yield trial
                # Fewer words have hardly ever been as good as all words after a clear loss.
                is_lost = loss - 2 * error > target.allow_loss(first.scores)
                if is_lost and self.options.share is None:
                    return
        except EmptyLexicon:
            # There are too few words for the last shares. Only for a user's share is this an error.
            if self.options.share is not None:
                raise

    def _choose_share(self, trials: Sequence[Trial], target: Target, say: Say) -> int:
        """Returns the place of the trial of the chosen share."""
        if not self.has_gates:
            return 0
        curve = [trial.scores for trial in trials]
        chosen, is_doubtful = choose_share(curve, target.allow_loss(curve[0]))
        if self.options.share is not None:
            chosen, is_doubtful = len(curve) - 1, False
        metric = target.choose_metric(self.options.best_metric)
        head = (
            f"{target.metrics[metric]} on {curve[0]['n']:,} texts that were not fitted{self.title}:"
        )
        lines = _report.render_curve(curve, chosen, metric)
        say("\n".join([head, *(line.replace("words", self.noun) for line in lines)]))
        if is_doubtful:
            say(
                f"{curve[0]['n']:,} texts are too few to tell whether a smaller share of "
                f"{self.noun} does; --share 0.3 reads 30 % of them"
            )
        return chosen


def choose_share(curve: Sequence[Json], allowed: float) -> tuple[int, bool]:
    """Returns the place of the smallest safe share, and True if a smaller share may be safe."""
    # The prior is right by chance: at most one more text in twenty may be answered by it than with
    # all words.
    most = curve[0]["by_prior"] + curve[0]["n"] // 20
    useful = [number for number, scores in enumerate(curve) if scores["by_prior"] <= most]
    possible = [i for i in useful if curve[i]["loss"] <= allowed + 1e-12]
    safe = [i for i in possible if curve[i]["loss"] + curve[i]["error"] <= allowed + 1e-12]
    chosen = max(safe, default=0)
    return chosen, max(possible) > chosen


def split_folds(strata: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Returns the fold of each text, int [n], by strata; equal texts share a fold.

    >>> split_folds(np.array([0, 0, 0, 1, 1, 1]), list("abcdef")).tolist()
    [2, 0, 1, 2, 0, 1]
    """
    _, first, copies = np.unique(np.array(texts, object), return_index=True, return_inverse=True)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(first))
    order = order[np.argsort(strata[first][order], kind="stable")]
    folds = np.empty(len(first), np.int64)
    folds[order] = np.arange(len(first)) % _FOLDS
    return folds[copies]


def _split_folds(every: TextPart, target: Target) -> list[tuple[TextPart, TextPart]]:
    """Returns for each fold the texts outside of it, and its texts."""
    folds = split_folds(target.stratify(every.labels)[0], every.texts)
    return [
        (every.select(np.flatnonzero(folds != k)), every.select(np.flatnonzero(folds == k)))
        for k in range(_FOLDS)
    ]


def _join_labels(parts: Sequence[TextPart]) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the labels and the weights of all texts of the parts."""
    labels = np.concatenate([part.labels for part in parts])
    weights = [part.sample_weight for part in parts if part.sample_weight is not None]
    return labels, np.concatenate(weights) if weights else None


def _calibrate(
    trial: Trial, judges: Sequence[TextPart], target: Target, head: Head
) -> tuple[Target, Json, Json]:
    """Returns the target with thresholds, the temperatures as a field, and report entries."""
    labels, weights = _join_labels(judges)
    temperatures, common = choose_temperatures(head, trial.bias, trial.readings, labels, weights)
    readings = apply_temperatures(head, trial.bias, trial.readings, temperatures)
    target = target.choose_decision(readings, labels, weights)
    report = {"temperature": common, "temperatures": list(temperatures)}
    return target, {"temperatures": temperatures}, report


def _measure(stage: Stage, part: TextPart, target: Target) -> Json:
    """Returns a dict of the metrics and of the share of a stage on texts."""
    readings = stage.read(part.items)
    return _measure_readings(readings, part.labels, target, part.unknown, part.sample_weight)


def _measure_readings(
    readings: Readings,
    labels: np.ndarray,
    target: Target,
    unknown: Sequence[Label],
    weights: np.ndarray | None,
) -> Json:
    metrics = target.measure(labels, readings, unknown, weights)
    of_words = weights
    if of_words is not None:  # A word has the weight of its text.
        of_words = np.repeat(of_words, list(map(len, readings.is_read)))
    share = float(np.average(np.concatenate(readings.is_read), weights=of_words))
    return {**metrics, "share": share, "by_prior": int(readings.is_prior.sum())}


def _weigh_texts(
    corpus: Corpus, class_weight: str | None, sample_weight: np.ndarray | None
) -> np.ndarray | None:
    """Returns the weight of each text, times n / (C n_c) if balanced; None if all are equal."""
    if class_weight is None:
        return sample_weight
    weights = np.ones(len(corpus)) if sample_weight is None else sample_weight
    if class_weight == BALANCED:
        labels = np.asarray(corpus.labels)
        counts = np.bincount(labels, minlength=len(corpus.classes))
        weights = weights * len(corpus) / (len(counts) * counts[labels])
    return weights
