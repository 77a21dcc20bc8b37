"""The fit of a lexicon to labelled texts: the split, the choice of the density, and the report."""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import (
    DENSITIES,
    EmptyLexicon,
    Lexicon,
    Units,
    WindowLexicon,
    fit_lexicon,
    learn_units,
)
from gatedjax.text import _copies, _corpus
from gatedjax.text._asides import Asides, check_share
from gatedjax.text._baseline import LinearBaseline, character_ngrams
from gatedjax.text._corpus import Corpus, say_corpus
from gatedjax.text._labels import CONTROL, Classes
from gatedjax.text._lexicon import LexiconModel, split_units
from gatedjax.text._lexicon_report import (
    count_equal,
    draw_curve,
    measure_leak_of_sample,
    render_accuracies,
    render_curve,
    render_equal,
    render_window_leak,
)
from gatedjax.text._metrics import classification_metrics
from gatedjax.text._options import TextOptions, check_options
from gatedjax.text._prediction import WINDOW, check_inputs
from gatedjax.text._table import Aside, Label, Table
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


@dataclasses.dataclass(frozen=True, eq=False)
class TextPart:
    """The texts of a purpose, also as words, with their classes."""

    words: list[list[str]]
    texts: list[str]
    labels: np.ndarray

    def select(self, rows: np.ndarray) -> "TextPart":
        """Returns the texts at these positions."""
        places = rows.tolist()
        return TextPart(
            [self.words[i] for i in places], [self.texts[i] for i in places], self.labels[rows]
        )


def train_lexicon(
    table: Table,
    options: TextOptions,
    *,
    validation: Table | None = None,
    test: Table | None = None,
    say: Say = lambda line: None,
    max_aside: float = 1.0,
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

    Returns:
      The fitted model with its report.

    Raises:
      ValueError: for data or options that cannot be used.
    """
    check_options(options, "text")
    check_share(max_aside)
    corpora: dict[str, Corpus] = {}
    texts: dict[str, list[str]] = {}
    for name, source in (("train", table), ("validation", validation), ("test", test)):
        if source is None:
            continue
        check_inputs(source.columns, "text")
        classes = corpora["train"].classes if corpora else None
        left_out = frozenset(corpora["train"].left_out) if corpora else frozenset()
        if name == "train" and options.min_class > 1:
            left_out = frozenset(_corpus.find_rare_classes(source, options.min_class))
        corpora[name], texts[name] = read_labelled(source, classes, max_aside, left_out)
        if name == "train":
            _corpus.check_trainable(corpora[name], split=validation is None)
    for read in corpora.values():
        say_corpus(read, say)
    corpus = corpora["train"]
    for line in (*_copies.find_duplicates(corpus).render(), *_corpus.note_parts(corpora)):
        say(line)
    training_rows = np.arange(len(corpus))
    validation_rows = training_rows[:0]
    if validation is None:
        training_rows, validation_rows = _corpus.split_training(corpus, options.held_out)
    train_texts = [texts["train"][i] for i in training_rows.tolist()]
    units = learn_units(train_texts, lowercase=options.lowercase)
    parts = {
        name: TextPart(
            [units.split(text) for text in texts[name]],
            texts[name],
            np.asarray(corpora[name].labels),
        )
        for name in corpora
    }
    every = parts["train"]
    if validation is None:
        parts["train"] = every.select(training_rows)
        parts["validation"] = every.select(validation_rows)
    sizes = ", ".join(f"{len(part.labels):,} for {name}" for name, part in parts.items())
    split = "" if validation is not None else " (in proportion to the classes, always the same)"
    say(f"split: {sizes}{split}")
    measured, all_words, curve, chosen = _choose(parts, len(corpus.classes), options, units)
    say("\n".join(["accuracy on the validation texts:", *render_curve(curve, chosen)]))
    lexicon = measured
    if validation is None and len(corpus) <= _LARGEST_REFIT:
        # The validation texts have chosen the density, and now belong to the training texts. In a
        # few texts the words may be too frequent for this density, and the lexicon stays as it is.
        with contextlib.suppress(EmptyLexicon):
            lexicon, first = _refit(every, len(corpus.classes), options, measured.density, units)
            parts["train"] = every
            all_words = all_words if test is None else first
    checked = "validation" if test is None else "test"
    report: Json = {"density": lexicon.density, "curve": curve}
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
    equal = {"texts": len(words), "equal": count_equal(lexicon, words)}
    report[checked]["same_answer"] = equal
    say(render_accuracies(report, checked))
    say(render_equal(equal))
    if isinstance(lexicon, WindowLexicon):
        report[checked]["window_leak"] = leak = measure_leak_of_sample(lexicon, words)
        say(render_window_leak(leak))
    report["data"] = {
        name: {"n": len(part.labels), "aside": corpora[name].aside if name in corpora else 0}
        for name, part in parts.items()
    }
    return LexiconModel(
        lexicon=lexicon,
        classes=corpus.classes,
        report=report,
        picture=draw_curve(curve, chosen),
    )


def _choose(
    parts: dict[str, TextPart], num_classes: int, options: TextOptions, units: Units
) -> tuple[Gated, Gated, list[Json], int]:
    """Fits all stages, and chooses the stage of the model.

    Args:
      parts: the texts by purpose; "train" and "validation" are used.
      num_classes: the number of classes.
      options: the options, of which the density is used.
      units: the splitter of texts.

    Returns:
      The lexicon of the chosen stage; the lexicon of all words; for each stage a dict with
      "density", "words" (the share of open words in the validation texts) and "accuracy"; and the
      number of the chosen stage.
    """
    train, held = parts["train"], parts["validation"]
    stages: list[Gated] = []
    curve: list[Json] = []
    densities = _list_densities(options)
    # The second fit, to all texts, has these texts too.
    all_texts = [*train.words, *held.words]
    fit = _start_fit(train, num_classes, options, densities, units, room_for=all_texts)
    try:
        for lexicon in fit:
            readings = lexicon.read(held.words)
            accuracy = float(np.mean(readings.probabilities.argmax(1) == held.labels))
            share = float(np.mean(np.concatenate(readings.is_open)))
            curve.append({"density": lexicon.density, "words": share, "accuracy": accuracy})
            stages.append(lexicon)
    except EmptyLexicon:
        # There are too few words for the last stages, and only a density of the user is an error.
        if options.density is not None:
            raise
    chosen = len(stages) - 1
    if options.density is None:
        chosen = choose_stage([stage["accuracy"] for stage in curve], len(held.labels))
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


def _refit(
    part: TextPart, num_classes: int, options: TextOptions, density: float, units: Units
) -> tuple[Gated, Gated]:
    """Fits the stages to all texts; returns the lexicon of the density, and that of all words."""
    densities = [stage for stage in _list_densities(options) if stage >= density]
    if options.model == WINDOW:
        densities = sorted({1.0, density}, reverse=True)
    first, *stages = _start_fit(part, num_classes, options, densities, units)
    return (stages[-1] if stages else first), first


def _start_fit(
    part: TextPart,
    num_classes: int,
    options: TextOptions,
    densities: Sequence[float],
    units: Units,
    room_for: Sequence[Sequence[str]] | None = None,
) -> Iterator[Gated]:
    """Returns the lexicons of falling densities, see `fit_lexicon` and `fit_window`."""
    arguments = part.words, part.labels, num_classes, densities
    if options.model == WINDOW:
        return fit_window(*arguments, units=units, seed=options.seed, room_for=room_for)
    return fit_lexicon(*arguments, units=units)


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
) -> tuple[Corpus, list[str]]:
    """Reads labelled texts into memory.

    Args:
      table: the texts.
      classes: the possible labels; None uses the labels in the table.
      max_aside: the largest share of the lines that may be set aside.
      left_out: texts with these labels are left out.

    Returns:
      A `Corpus` with the labels, without the numbers of words, and the texts.
    """
    table_of_classes = Classes("label", classes)
    texts: list[str] = []
    labels: list[int] = []
    lines: list[int] = []
    digests: list[int] = []
    counts: collections.Counter[Label] = collections.Counter()
    asides = Asides(table.name)
    units = learn_units(())
    for record in table:
        words: list[str] = []
        if not isinstance(record, Aside):
            if record.label in left_out:
                counts[record.label] += 1
                continue
            words = split_units(units, record.inputs[0])
            if not words:
                record = Aside(record.where, record.line, "a text without a word")
        if isinstance(record, Aside):
            asides.add(record)
            continue
        labels.append(table_of_classes.place(record.label, record.where, record.line))  # type: ignore[arg-type]
        lines.append(record.line)
        digests.append(_corpus.digest_words(words))
        texts.append(CONTROL.sub(" ", record.inputs[0]))
    if not labels:
        raise asides.make_empty_error(f"{table.name} has no labelled text")
    asides.check(len(labels), max_aside)
    if classes is None:
        _corpus.check_classes(table.name, len(table_of_classes.places), len(labels))
    names, order = _corpus.order_classes(table_of_classes.places, classes)
    corpus = Corpus(
        table.name,
        (),
        order[np.array(labels, np.int32)],
        np.array(lines, np.int64),
        names,
        asides.count,
        tuple(asides.first),
        dict(asides.reasons),
        np.array(digests, np.uint64),
        dict(counts),
    )
    return corpus, texts


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
