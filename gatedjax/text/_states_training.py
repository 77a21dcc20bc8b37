"""The fit of gates to token vectors: the split, the choice of the density, and the report."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import GatedPooling, fit_pooling
from gatedjax.text import _copies, _corpus
from gatedjax.text._asides import check_share
from gatedjax.text._calibration import choose_temperature
from gatedjax.text._corpus import Corpus, Examples, digest_parts, say_corpus
from gatedjax.text._leak import Sample
from gatedjax.text._lexicon_report import draw_curve, render_calibration, render_curve
from gatedjax.text._lexicon_training import (
    LARGEST_REFIT,
    WITHOUT_UNITS,
    TextPart,
    choose_stage,
    list_densities,
    measure_baselines,
    measure_open,
    weigh_texts,
)
from gatedjax.text._metrics import classification_metrics, count_effective
from gatedjax.text._options import METRICS, TextOptions, check_options
from gatedjax.text._prediction import check_inputs
from gatedjax.text._states import (
    NumberedTable,
    States,
    check_encoder,
    find_states,
    locate_tokens,
    sample_encoder,
)
from gatedjax.text._states_model import (
    StatesModel,
    is_zero,
    measure_states_leak,
    render_states_leak,
)
from gatedjax.text._stored_options import options_to_json
from gatedjax.text._table import Label, Table
from gatedjax.text._target_base import allow_points

Say = Callable[[str], None]
Source = str | Path | Sequence[Any] | None
# With a smaller share of tokens that occur in their texts, the states may be of other texts.
_LEAST_LOCATED = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """The n texts for training, validation or test, their vectors, and their classes."""

    texts: list[str]
    vectors: list[np.ndarray]
    labels: np.ndarray
    weights: np.ndarray | None = None
    sample_weight: np.ndarray | None = None

    def select(self, rows: np.ndarray) -> "_Part":
        places = rows.tolist()
        return _Part(
            [self.texts[i] for i in places],
            [self.vectors[i] for i in places],
            self.labels[rows],
            None if self.weights is None else self.weights[rows],
            None if self.sample_weight is None else self.sample_weight[rows],
        )

    def split(self) -> TextPart:
        """Returns the texts as a `TextPart`, for the models that the result is compared with.

        It has the list of the words of each text, the texts, their classes and `sample_weight`.
        """
        words = [WITHOUT_UNITS.split(text) for text in self.texts]
        return TextPart(words, self.texts, self.labels, sample_weight=self.sample_weight)


def train_states(
    table: Table,
    options: TextOptions,
    *,
    validation: Table | None = None,
    test: Table | None = None,
    say: Say = lambda line: None,
    max_aside: float = 1.0,
    sample_weight: np.ndarray | None = None,
    states: Source = None,
    validation_states: Source = None,
    test_states: Source = None,
) -> StatesModel:
    """Fits gates and a classifier to the token vectors of labelled texts, and measures them. The
    stages of `fit_pooling` are compared like the stages of a lexicon, see `train_lexicon`. `states`
    replaces `options.states`; all sources of states have an entry for each record of their texts.
    """
    check_options(options, "text")
    check_share(max_aside)
    states = options.states if states is None else states
    encoder = options.encoder
    sources = {
        "train": (table, states, "states"),
        "validation": (validation, validation_states, "validation_states"),
        "test": (test, test_states, "test_states"),
    }
    for name, (source, encoded, argument) in sources.items():
        if source is not None and encoded is None and encoder is None:
            raise ValueError(
                f"{argument} must be the file with the vectors of the {name} texts, because there "
                f"is no encoder: give {argument}= or encoder="
            )
        if source is None and encoded is not None:
            raise ValueError(
                f"{argument} must be left out unless there are {name} texts, got it alone: give "
                f"{name}="
            )
    if encoder is not None:
        check_encoder(encoder)
    corpora: dict[str, Corpus] = {}
    parts: dict[str, _Part] = {}
    for name, (source, encoded, _) in sources.items():
        if source is None:
            continue
        check_inputs(source.columns, "text")
        numbered = NumberedTable(source)
        vectors = find_states(numbered, encoded, encoder)
        if parts and vectors.width != parts["train"].vectors[0].shape[1]:
            raise ValueError(
                f"{vectors.name} must have vectors of the width of the training texts "
                f"({parts['train'].vectors[0].shape[1]}), got {vectors.width}"
            )
        classes = corpora["train"].classes if corpora else None
        left_out = frozenset(corpora["train"].left_out) if corpora else frozenset()
        if name == "train" and options.min_class > 1:
            left_out = frozenset(_corpus.find_rare_classes(source, options.min_class))
        corpora[name], parts[name] = read_encoded(
            numbered, vectors, classes, max_aside, left_out, say
        )
        if name == "train":
            _corpus.check_trainable(corpora[name], split=validation is None)
    for labelled in corpora.values():
        say_corpus(labelled, say)
    corpus = corpora["train"]
    duplicates = _copies.find_duplicates(corpus)
    for line in (*duplicates.render(), *_corpus.note_parts(corpora)):
        say(line)
    if sample_weight is not None:
        sample_weight = sample_weight[corpus.lines - 1]
    weights = weigh_texts(corpus, options.class_weight, sample_weight)
    every = parts["train"] = dataclasses.replace(
        parts["train"], weights=weights, sample_weight=sample_weight
    )
    training_rows = np.arange(len(corpus))
    if validation is None:
        training_rows, validation_rows = _corpus.split_training(corpus, options.held_out)
        parts["train"] = every.select(training_rows)
        parts["validation"] = every.select(validation_rows)
    sizes = ", ".join(f"{len(part.labels):,} for {name}" for name, part in parts.items())
    split = "" if validation is not None else " (in proportion to the classes, always the same)"
    say(f"split: {sizes}{split}")
    stages, curve, stage_number = _fit_stages(parts, len(corpus.classes), options)
    metric = options.best_metric
    title = f"{metric.replace('_', ' ')} on the validation texts, by the share of open tokens:"
    lines = (line.replace("words", "tokens") for line in render_curve(curve, stage_number, metric))
    say("\n".join([title, *lines]))
    measured, all_tokens = stages[stage_number], stages[0]
    pooling = measured
    if validation is None and len(corpus) <= LARGEST_REFIT:
        densities = [density for density in list_densities(options) if density >= measured.density]
        all_tokens, *stages = _fit(every, len(corpus.classes), densities)
        pooling = stages[-1] if stages else all_tokens
        parts["train"] = every
    checked = "validation" if test is None else "test"
    validation_part = parts["validation"]
    # The temperature is fitted before the validation texts may become training texts.
    temperature, fitted_temperature = choose_temperature(
        measured.read(validation_part.vectors).probabilities,
        validation_part.labels,
        validation_part.sample_weight,
    )
    compared = measured if checked == "validation" else pooling
    uncalibrated = _measure(compared, parts[checked], corpus.classes)["ece"]
    measured = dataclasses.replace(measured, temperature=temperature)
    pooling = dataclasses.replace(pooling, temperature=temperature)
    report: Json = {"density": pooling.density, "temperature": temperature}
    report |= {"fitted_temperature": fitted_temperature, "curve": curve}
    report["validation"] = _measure(measured, validation_part, corpus.classes)
    report["validation"]["all_words"] = curve[0]["accuracy"]
    fitted = every.select(training_rows) if checked == "validation" else parts["train"]
    if test is not None:
        report["test"] = _measure(pooling, parts["test"], corpus.classes)
        accuracy = _measure(all_tokens, parts["test"], corpus.classes)["accuracy"]
        report["test"]["all_words"] = accuracy
    report |= measure_baselines(
        fitted.split(), parts[checked].split(), len(corpus.classes), checked
    )
    report[checked]["uncalibrated_ece"] = uncalibrated
    model = StatesModel(
        pooling=pooling,
        classes=corpus.classes,
        encoder=encoder,
        facts=sample_encoder(encoder) if states is None else None,
        report=report,
        picture=draw_curve(curve, stage_number),
        options=options_to_json(options),
    )
    report["leak"] = None
    if encoder is not None:
        report["leak"] = measure_states_leak(model, sample_texts(parts[checked].texts))
    say(_render_accuracies(report, checked))
    say(render_states_leak(report["leak"]))
    say(render_calibration(report, checked))
    report["data"] = {
        name: {"n": len(part.labels), "aside": corpora[name].aside if name in corpora else 0}
        for name, part in parts.items()
    }
    report["data"]["train"] |= duplicates.to_report()
    return model


def _fit_stages(
    parts: dict[str, _Part], num_classes: int, options: TextOptions
) -> tuple[list[GatedPooling], list[Json], int]:
    """Fits a classifier for each density, and chooses the last with a metric on the validation
    texts at most `allow_points` below the best; with `options.density` simply the last.
    """
    validation_part = parts["validation"]
    stages, curve = [], []
    for pooling in _fit(parts["train"], num_classes, list_densities(options)):
        readings = pooling.read(validation_part.vectors)
        scores = classification_metrics(
            validation_part.labels,
            readings.probabilities,
            range(num_classes),
            sample_weight=validation_part.sample_weight,
        )
        share = measure_open(readings.is_open, validation_part.sample_weight)
        stage = {name: scores[name] for name in METRICS}
        curve.append({"density": pooling.density, "words": share, **stage})
        stages.append(pooling)
    stage_number = len(stages) - 1
    if options.density is None:
        shares = [stage[options.best_metric] for stage in curve]
        count = count_effective(validation_part.sample_weight, len(validation_part.labels))
        stage_number = choose_stage(shares, allow_points(max(shares), count))
    return stages, curve, stage_number


def _fit(part: _Part, num_classes: int, densities: Sequence[float]) -> list[GatedPooling]:
    return list(
        fit_pooling(part.vectors, part.labels, num_classes, densities, sample_weight=part.weights)
    )


def read_encoded(
    table: NumberedTable,
    states: States,
    classes: Sequence[Label] | None,
    max_aside: float,
    left_out: frozenset[Label] = frozenset(),
    say: Say = lambda line: None,
) -> tuple[Corpus, _Part]:
    """Reads labelled texts and finds the states of each by the number of its record."""
    examples = Examples(table, classes, left_out)  # type: ignore[arg-type]
    texts: list[str] = []
    vectors: list[np.ndarray] = []
    sample = Sample()
    for record, (tokens,) in examples.read(lambda record: [states[table.place].tokens]):
        examples.add(
            record, digest_parts(token.encode("utf-8", "surrogatepass") for token in tokens)
        )
        texts.append(record.inputs[0])
        vectors.append(states[table.place].vectors)
        sample.add((record.inputs[0], tokens))
    located = [
        place is not None
        for text, tokens in sample.texts()
        for place in locate_tokens(text, tokens)
    ]
    if located and np.mean(located) < _LEAST_LOCATED:
        say(
            f"{states.name}: only {np.mean(located):.0%} of the tokens occur in the texts of "
            f"{table.name}: are these the states of these texts, in their order?"
        )
    corpus = examples.finish(max_aside)
    return corpus, _Part(texts, vectors, np.asarray(corpus.labels))


def sample_texts(texts: Sequence[str]) -> list[str]:
    """Returns an evenly spread sample of at most 64 texts, in their order."""
    sample = Sample()
    for text in texts:
        sample.add(text)
    return sample.texts()


def _measure(pooling: GatedPooling, part: _Part, classes: Sequence[Label]) -> Json:
    readings = pooling.read(part.vectors)
    metrics = classification_metrics(
        part.labels, readings.probabilities, classes, sample_weight=part.sample_weight
    )
    return {**metrics, "density": measure_open(readings.is_open, part.sample_weight)}


def evaluate_states(
    model: StatesModel,
    table: Table,
    *,
    max_aside: float = 1.0,
    states: Source = None,
    say: Say = lambda line: None,
) -> Json:
    """Evaluates a model of states on labelled texts: `classification_metrics`, "density", "aside",
    and "states_leak" of `measure_states_leak`, which needs an encoder.
    """
    numbered = NumberedTable(table)
    if states is None and model.encoder is None:
        model.encode([""])  # raises the error about the missing encoder
    encoded = find_states(numbered, states, model.encoder)
    if encoded.width != model.pooling.width:
        raise ValueError(
            f"{encoded.name} must have vectors of the width {model.pooling.width}, with which the "
            f"model was trained, got {encoded.width}"
        )
    corpus, part = read_encoded(numbered, encoded, model.classes, max_aside, say=say)
    leak = None
    if model.encoder is not None:
        leak = measure_states_leak(model, sample_texts(part.texts))
    metrics = _measure(model.pooling, part, model.classes)
    return {**metrics, "aside": corpus.aside, "states_leak": leak}


def _render_accuracies(report: Json, checked: str) -> str:
    """Returns the accuracy of the model and of the models that it is compared with, in lines."""
    ours = report[checked]
    verb = "from" if is_zero(report["leak"]) else "with the gates open for"
    lines = [
        f"{checked}: accuracy {ours['accuracy']:.4f} {verb} {ours['density']:.0%} of the tokens "
        f"(macro F1 {ours['macro_f1']:.4f})"
    ]
    baselines = {
        "the same model with all tokens": ours["all_words"],
        "logistic regression on words": report["baseline"][checked],
        "logistic regression on characters": report["character_baseline"].get(checked),
    }
    best = max(value for value in baselines.values() if value is not None)
    for name, value in baselines.items():
        mark = " (better)" if value is not None and value == best > ours["accuracy"] else ""
        shown = "not measured, the texts are too long" if value is None else f"{value:.4f}{mark}"
        lines.append(f"  {name}: {shown}")
    return "\n".join(lines)
