"""The fit of a lexicon to labelled texts: the split, the choice of the density, and the report."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import (
    DENSITIES,
    EmptyLexicon,
    Lexicon,
    WindowLexicon,
    fit_lexicon,
)
from gatedjax.text import _copies, _corpus
from gatedjax.text._asides import check_share
from gatedjax.text._baseline import LinearBaseline, character_ngrams
from gatedjax.text._calibration import choose_temperature
from gatedjax.text._corpus import Corpus, Examples, digest_parts, say_corpus
from gatedjax.text._labels import CONTROL
from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._lexicon_explanation import find_examples, list_open_words
from gatedjax.text._lexicon_report import (
    count_equal,
    draw_curve,
    measure_leak_of_sample,
    render_accuracies,
    render_calibration,
    render_curve,
    render_equal,
    render_window_leak,
)
from gatedjax.text._metrics import classification_metrics
from gatedjax.text._options import BALANCED, METRICS, TextOptions, check_options
from gatedjax.text._prediction import WINDOW, check_inputs
from gatedjax.text._table import Label, Record, Table
from gatedjax.text._tokens import (
    LEXICON_KIND,
    Splitter,
    Tokenizer,
    choose_tokenizer,
    learn_units,
)
from gatedjax.text._window import fit_window

Say = Callable[[str], None]
Gated = Lexicon | WindowLexicon
LEAST_LOSS = 0.005
"""A stage may be this much less accurate than the best, or more if the standard error is larger."""
# Up to so many texts the chosen density is fitted again to all texts. More texts hardly profit from
# another tenth, and the fit takes longer.
_LARGEST_REFIT = 20_000
# With more characters in the training texts, the model of characters takes longer than the lexicon.
_MOST_CHARACTERS = 2_000_000
_WITHOUT_UNITS = Splitter(Tokenizer(LEXICON_KIND))


@dataclasses.dataclass(frozen=True, eq=False)
class TextPart:
    """The texts of a purpose, also as words, with their classes."""

    words: list[list[str]]
    texts: list[str]
    labels: np.ndarray
    weights: np.ndarray | None = None

    def select(self, rows: np.ndarray) -> "TextPart":
        """Returns the texts at these positions."""
        places = rows.tolist()
        return TextPart(
            [self.words[i] for i in places],
            [self.texts[i] for i in places],
            self.labels[rows],
            None if self.weights is None else self.weights[rows],
        )


def train_lexicon(
    table: Table,
    options: TextOptions,
    *,
    validation: Table | None = None,
    test: Table | None = None,
    say: Say = lambda line: None,
    max_aside: float = 1.0,
    sample_weight: np.ndarray | None = None,
) -> LexiconModel:
    """Fits a lexicon to labelled texts, and measures it.

    The stages of the fit are compared on the validation texts. Without `options.density` the
    smallest density is chosen whose accuracy is at most half a point, or one standard error of the
    best accuracy, below the best stage. If the validation texts are a part of
    `table`, and it has at most 20,000 texts, the chosen density is then fitted to all texts. There
    is no random number except in the fixed split.

    Args:
      table: labelled texts.
      options: the options; those of networks must have their defaults.
      validation: texts that choose the density; None splits off a part of `table`.
      test: texts on which the model is evaluated.
      say: called with each line of the progress report.
      max_aside: the largest share of the lines in a source that may be set aside.
      sample_weight: the weight of each line of `table` in the fit; None gives all the same weight.

    Returns:
      The fitted model with its report.

    Raises:
      ValueError: for data or options that cannot be used.
    """
    check_options(options, "text")
    check_share(max_aside)
    corpora: dict[str, Corpus] = {}
    texts: dict[str, list[str]] = {}
    check_inputs(table.columns, "text")
    rule = choose_tokenizer(
        options.tokens or LEXICON_KIND,
        options.tokenizer,
        lambda: (record.inputs[0] for record in table if isinstance(record, Record)),
        lowercase=options.lowercase,
    )
    splitter = Splitter(rule, options.lowercase)
    for name, source in (("train", table), ("validation", validation), ("test", test)):
        if source is None:
            continue
        check_inputs(source.columns, "text")
        classes = corpora["train"].classes if corpora else None
        left_out = frozenset(corpora["train"].left_out) if corpora else frozenset()
        if name == "train" and options.min_class > 1:
            left_out = frozenset(_corpus.find_rare_classes(source, options.min_class))
        corpora[name], texts[name] = read_labelled(source, classes, max_aside, left_out, splitter)
        if name == "train":
            _corpus.check_trainable(corpora[name], split=validation is None)
    for read in corpora.values():
        say_corpus(read, say)
    corpus = corpora["train"]
    duplicates = _copies.find_duplicates(corpus)
    for line in (*duplicates.render(), *_corpus.note_parts(corpora)):
        say(line)
    if duplicates.copies and validation is None:
        say("equal texts stay on one side of the split")
    training_rows = np.arange(len(corpus))
    validation_rows = training_rows[:0]
    if validation is None:
        training_rows, validation_rows = _corpus.split_training(corpus, options.held_out)
    splitter = Splitter(learn_units(rule, texts["train"]), options.lowercase)
    parts = {
        name: TextPart(
            [splitter.split(text) for text in texts[name]],
            texts[name],
            np.asarray(corpora[name].labels),
        )
        for name in corpora
    }
    weights = _weigh_texts(corpus, options.class_weight, sample_weight)
    parts["train"] = dataclasses.replace(parts["train"], weights=weights)
    every = parts["train"]
    if validation is None:
        parts["train"] = every.select(training_rows)
        parts["validation"] = every.select(validation_rows)
    sizes = ", ".join(f"{len(part.labels):,} for {name}" for name, part in parts.items())
    split = "" if validation is not None else " (in proportion to the classes, always the same)"
    say(f"split: {sizes}{split}")
    measured, all_words, curve, chosen = _choose(parts, len(corpus.classes), options)
    metric = options.best_metric
    title = f"{metric.replace('_', ' ')} on the validation texts:"
    say("\n".join([title, *render_curve(curve, chosen, metric)]))
    lexicon = measured
    if validation is None and len(corpus) <= _LARGEST_REFIT:
        # The validation texts have chosen the density, and now belong to the training texts. In a
        # few texts the words may be too frequent for this density, and the lexicon stays as it is.
        with contextlib.suppress(EmptyLexicon):
            lexicon, first = _refit(every, len(corpus.classes), options, measured.density)
            parts["train"] = every
            all_words = all_words if test is None else first
    checked = "validation" if test is None else "test"
    # The temperature is fitted before the validation texts may become training texts.
    held = parts["validation"]
    temperature, fitted_temperature = choose_temperature(
        measured.read(held.words).probabilities, held.labels
    )
    compared = measured if checked == "validation" else lexicon
    uncalibrated = measure_lexicon(compared, parts[checked], corpus.classes)["ece"]
    measured, lexicon = (_set_temperature(fitted, temperature) for fitted in (measured, lexicon))
    report: Json = {"density": lexicon.density, "temperature": temperature}
    report |= {"fitted_temperature": fitted_temperature, "curve": curve}
    report["validation"] = measure_lexicon(measured, parts["validation"], corpus.classes)
    report["validation"]["all_words"] = curve[0]["accuracy"]
    # Each other model is trained on the texts of the lexicon that it is compared with.
    fitted = every.select(training_rows) if checked == "validation" else parts["train"]
    if checked == "test":
        report["test"] = measure_lexicon(lexicon, parts["test"], corpus.classes)
        report["test"]["all_words"] = measure_lexicon(all_words, parts["test"], corpus.classes)[
            "accuracy"
        ]
    report |= measure_baselines(fitted, parts[checked], len(corpus.classes), checked)
    words = parts[checked].words
    equal = {"texts": len(words), "equal": count_equal(lexicon, splitter, words)}
    report[checked]["same_answer"] = equal
    say(render_accuracies(report, checked))
    say(render_equal(equal))
    report[checked]["uncalibrated_ece"] = uncalibrated
    say(render_calibration(report, checked))
    if isinstance(lexicon, WindowLexicon):
        report[checked]["window_leak"] = leak = measure_leak_of_sample(lexicon, words)
        say(render_window_leak(leak))
    report["data"] = {
        name: {"n": len(part.labels), "aside": corpora[name].aside if name in corpora else 0}
        for name, part in parts.items()
    }
    report["data"]["train"] |= duplicates.to_report()
    model = LexiconModel(
        lexicon=lexicon,
        splitter=splitter,
        classes=corpus.classes,
        report=report,
        picture=draw_curve(curve, chosen),
    )
    labels = [corpus.classes[i] for i in every.labels.tolist()]
    # With a window the same word may be closed in some texts.
    is_open = lexicon.select(every.words)[0] if isinstance(lexicon, WindowLexicon) else None
    examples = find_examples(list_open_words(model), every.words, labels, is_open)
    return dataclasses.replace(model, examples=examples)


def _choose(
    parts: dict[str, TextPart], num_classes: int, options: TextOptions
) -> tuple[Gated, Gated, list[Json], int]:
    """Fits all stages, and chooses the stage of the model.

    Args:
      parts: the texts by purpose; "train" and "validation" are used.
      num_classes: the number of classes.
      options: the options, of which the density is used.

    Returns:
      The lexicon of the chosen stage; the lexicon of all words; for each stage a dict with
      "density", "words" (the share of open words in the validation texts), "accuracy" and
      "macro_f1"; and the number of the chosen stage.
    """
    train, held = parts["train"], parts["validation"]
    stages: list[Gated] = []
    curve: list[Json] = []
    densities = _list_densities(options)
    # The second fit, to all texts, has these texts too.
    all_texts = [*train.words, *held.words]
    fit = _start_fit(train, num_classes, options, densities, room_for=all_texts)
    try:
        for lexicon in fit:
            readings = lexicon.read(held.words)
            scores = classification_metrics(held.labels, readings.probabilities, range(num_classes))
            share = float(np.mean(np.concatenate(readings.is_open)))
            stage = {name: scores[name] for name in METRICS}
            curve.append({"density": lexicon.density, "words": share, **stage})
            stages.append(lexicon)
    except EmptyLexicon:
        # There are too few words for the last stages, and only a density of the user is an error.
        if options.density is not None:
            raise
    chosen = len(stages) - 1
    if options.density is None:
        chosen = choose_stage([stage[options.best_metric] for stage in curve], len(held.labels))
    return stages[chosen], stages[0], curve, chosen


def choose_stage(accuracies: Sequence[float], num_texts: int) -> int:
    """Chooses the last stage that is nearly as accurate as the best stage.

    A stage is nearly as accurate if its accuracy is at most max(0.005, s) below the best accuracy
    a, where s = sqrt(a (1 - a) / n) is the standard error of a on n texts.

        >>> choose_stage([0.9, 0.89, 0.85], 400)
        1

    Args:
      accuracies: the accuracy of each stage, from all words to the fewest.
      num_texts: the number of texts n on which they were measured.

    Returns:
      The number of the stage.

    Reference: Breiman et al. 1984 (the rule of one standard error).
    """
    best = max(accuracies)
    allowed = max(LEAST_LOSS, (best * (1 - best) / num_texts) ** 0.5)
    return max(i for i, accuracy in enumerate(accuracies) if accuracy >= best - allowed - 1e-12)


def _weigh_texts(
    corpus: Corpus, class_weight: str | None, sample_weight: np.ndarray | None
) -> np.ndarray | None:
    """Returns the weight of each text, or None if all have the same weight.

    Args:
      corpus: the n training texts.
      class_weight: "balanced" multiplies the weight of a text with n / (C n_c), where n_c is the
        number of texts of its class among C classes; None does not.
      sample_weight: the weight of each line.
    """
    if class_weight is None and sample_weight is None:
        return None
    weights = np.ones(len(corpus))
    if sample_weight is not None:
        weights = sample_weight[corpus.lines - 1]
    if class_weight == BALANCED:
        labels = np.asarray(corpus.labels)
        counts = np.bincount(labels, minlength=len(corpus.classes))
        weights = weights * len(corpus) / (len(counts) * counts[labels])
    return weights


def _refit(
    part: TextPart, num_classes: int, options: TextOptions, density: float
) -> tuple[Gated, Gated]:
    """Fits the stages to all texts; returns the lexicon of the density, and that of all words."""
    densities = [stage for stage in _list_densities(options) if stage >= density]
    if options.model == WINDOW:
        densities = sorted({1.0, density}, reverse=True)
    first, *stages = _start_fit(part, num_classes, options, densities)
    return (stages[-1] if stages else first), first


def _start_fit(
    part: TextPart,
    num_classes: int,
    options: TextOptions,
    densities: Sequence[float],
    room_for: Sequence[Sequence[str]] | None = None,
) -> Iterator[Gated]:
    """Returns the lexicons of falling densities, see `fit_lexicon` and `fit_window`."""
    arguments = part.words, part.labels, num_classes, densities
    if options.model == WINDOW:
        return fit_window(
            *arguments, sample_weight=part.weights, seed=options.seed, room_for=room_for
        )
    return fit_lexicon(*arguments, sample_weight=part.weights)


def _set_temperature(lexicon: Gated, temperature: float) -> Gated:
    if isinstance(lexicon, WindowLexicon):
        reader = dataclasses.replace(lexicon.reader, temperature=temperature)
        return dataclasses.replace(lexicon, reader=reader)
    return dataclasses.replace(lexicon, temperature=temperature)


def _list_densities(options: TextOptions) -> list[float]:
    density = options.density
    if density is None:
        return list(DENSITIES)
    if options.model == WINDOW:
        # The gates of a density do not depend on the stages before it.
        return [1.0, density]
    return [*(stage for stage in DENSITIES if stage > density), density]


def read_labelled(
    table: Table,
    classes: Sequence[Label] | None,
    max_aside: float,
    left_out: frozenset[Label] = frozenset(),
    splitter: Splitter = _WITHOUT_UNITS,
) -> tuple[Corpus, list[str]]:
    """Reads labelled texts into memory.

    Args:
      table: the texts.
      classes: the possible labels; None uses the labels in the table.
      max_aside: the largest share of the lines that may be set aside.
      left_out: texts with these labels are left out.
      splitter: the rule that decides which texts have a word, and which texts are equal.

    Returns:
      A `Corpus` with the labels, without the numbers of words, and the texts.
    """
    examples = Examples(table, classes, left_out)
    texts: list[str] = []
    for record, (words,) in examples.read(lambda record: [splitter.split(record.inputs[0])]):
        examples.add(record, digest_parts(word.encode("utf-8", "surrogatepass") for word in words))
        texts.append(CONTROL.sub(" ", record.inputs[0]))
    return examples.finish(max_aside), texts


def measure_lexicon(lexicon: Gated, part: TextPart, classes: Sequence[Label]) -> Json:
    """Returns the metrics of `classification_metrics` and the density on texts."""
    readings = lexicon.read(part.words)
    metrics = classification_metrics(part.labels, readings.probabilities, classes)
    return {**metrics, "density": float(np.mean(np.concatenate(readings.is_open)))}


def measure_baselines(train: TextPart, held: TextPart, num_classes: int, checked: str) -> Json:
    """Trains two linear models, of words and of character n-grams, and returns their accuracies.

    Args:
      train: the training texts.
      held: the texts on which the accuracies are measured.
      num_classes: the number of classes.
      checked: the name of these texts.
    """
    words = LinearBaseline().fit(train.words, train.labels, num_classes)
    accuracy = float(np.mean(words.probabilities(held.words).argmax(1) == held.labels))
    report: Json = {"baseline": {"kind": words.kind, checked: accuracy}, "character_baseline": {}}
    if sum(map(len, train.texts)) <= _MOST_CHARACTERS:
        ngrams = LinearBaseline(pairs=False).fit(
            map(character_ngrams, train.words), train.labels, num_classes
        )
        probabilities = ngrams.probabilities(map(character_ngrams, held.words))
        accuracy = float(np.mean(probabilities.argmax(1) == held.labels))
        report["character_baseline"] = {"kind": words.kind, checked: accuracy}
    return report
