"""The fit of a lexicon to labelled texts: the split, the choice of the density, and the report."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import DENSITIES, EmptyLexicon, Head, Lexicon, fit_lexicon
from gatedjax.text import _copies, _corpus
from gatedjax.text._asides import check_share
from gatedjax.text._baseline import LinearBaseline, character_ngrams
from gatedjax.text._corpus import (
    Corpus,
    Examples,
    are_numbers,
    digest_parts,
    list_counts,
    say_corpus,
)
from gatedjax.text._labels import CONTROL
from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._lexicon_explanation import find_examples, list_open_words
from gatedjax.text._lexicon_report import (
    count_equal,
    draw_curve,
    render_accuracies,
    render_calibration,
    render_curve,
    render_equal,
    render_priors,
    render_scores,
)
from gatedjax.text._options import BALANCED, TextOptions, check_options
from gatedjax.text._prediction import LABELS, REGRESSION, TARGETS, check_inputs
from gatedjax.text._rivals import measure_rivals
from gatedjax.text._stored_options import options_to_json
from gatedjax.text._table import Label, Record, Table
from gatedjax.text._target_base import Target, TargetOptions
from gatedjax.text._target_corpus import (
    WITHOUT_CLASSES,
    check_strata,
    count_left_out,
    encode_corpus,
    join_strata,
    note_joined_labels,
    read_target,
    split_strata,
    stratify_corpus,
)
from gatedjax.text._target_metrics import render_unknown
from gatedjax.text._targets import TARGET_OF
from gatedjax.text._tokens import (
    LEXICON_KIND,
    Splitter,
    Tokenizer,
    choose_tokenizer,
    learn_units,
)

Say = Callable[[str], None]
# Up to so many texts the chosen density is fitted again to all texts. More texts hardly profit from
# another tenth, and the fit takes longer.
LARGEST_REFIT = 20_000
# With more characters in the training texts, the model of characters takes longer than the lexicon.
_MOST_CHARACTERS = 2_000_000
# With more classes that are numbers, a hint names the tasks for numbers.
_MANY_NUMBERS = 10
WITHOUT_UNITS = Splitter(Tokenizer(LEXICON_KIND))


@dataclasses.dataclass(frozen=True, eq=False)
class TextPart:
    """The n texts for training, validation or test, with their targets."""

    words: list[list[str]]
    texts: list[str]
    labels: np.ndarray
    weights: np.ndarray | None = None
    sample_weight: np.ndarray | None = None
    unknown: Sequence[Label] = ()

    def select(self, rows: np.ndarray) -> "TextPart":
        """Returns the texts at the positions `rows`, an int array from 0, in this order."""
        places = rows.tolist()
        return TextPart(
            [self.words[i] for i in places],
            [self.texts[i] for i in places],
            self.labels[rows],
            None if self.weights is None else self.weights[rows],
            None if self.sample_weight is None else self.sample_weight[rows],
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
    kind: str = "text",
    has_columns: bool = False,  # True if the labels name columns of an array, also 0 and 1
) -> LexiconModel:
    """Fits a lexicon to labelled texts, and measures it. The stages of the fit, a lexicon for each
    density, are compared on the validation texts. Without `options.density` the smallest density is
    chosen that loses no more than `Target.allow_loss`. If the validation texts are a part of at
    most `LARGEST_REFIT` texts, this density is then fitted to all texts.
    """
    check_options(options, kind)
    check_share(max_aside)
    target_class = TARGET_OF[kind]
    target: Target | None = None
    target_options = TargetOptions(
        threshold=options.threshold,
        order=options.order,
        min_class=options.min_class,
        has_columns=has_columns,
    )
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
        left_out = frozenset(corpora["train"].left_out) if corpora else frozenset()
        if name == "train" and options.min_class > 1 and kind != LABELS:
            left_out = frozenset(_corpus.find_rare_classes(source, options.min_class))
        corpora[name], texts[name] = read_targets(
            source, target_class, target, max_aside, left_out, splitter
        )
        if target is None:
            target = read_target(corpora[name], kind, target_options)
    assert target is not None
    duplicates = _copies.find_duplicates(corpora["train"])
    targets = {name: encode_corpus(part, target) for name, part in corpora.items()}
    strata = {name: stratify_corpus(part, target, targets[name]) for name, part in corpora.items()}
    corpus = strata["train"]
    check_strata(corpus, kind, split=validation is None)
    for name, source_corpus in corpora.items():
        say_corpus(source_corpus, say, target.render_source(targets[name]))
    # Numbers of texts with several labels are names, as of the categories of a shop.
    is_single = kind == "text" or (kind == LABELS and targets["train"].sum(1).max() <= 1)
    if is_single and len(target.classes) > _MANY_NUMBERS and are_numbers(target.classes):
        say(
            f"the {len(target.classes)} {'labels' if kind == LABELS else 'classes'} are numbers: "
            "--task regression predicts the number, and --task ordinal a grade (TextRegressor, "
            "OrdinalTextClassifier)"
        )
    if kind in ("text", LABELS) and (note := note_joined_labels(corpora["train"].classes)):
        say(note)
    if counts := count_left_out(corpora["train"], target):
        say(f"labels with too few texts (min_class) left out: {list_counts(counts)}")
    # The thresholds and the density follow from the F1, which is 0 without a label.
    held_out = targets.get("validation")
    if kind == LABELS and held_out is not None and not held_out[:, : len(target.classes)].any():
        raise ValueError(
            f"{corpora['validation'].name}: the validation texts must have a label of the training "
            "texts, from which the thresholds are chosen, got none: give other texts, or leave "
            "validation out"
        )
    # The strata of labels and numbers are no classes, and their texts are counted by label.
    noted = strata
    if kind in WITHOUT_CLASSES:
        noted = {name: join_strata(part) for name, part in strata.items()}
    for line in (*duplicates.render(), *_corpus.note_parts(noted)):
        say(line)
    if single := target.list_single(targets["train"]):
        names = ", ".join(map(repr, single[:5])) + ", ..." * (len(single) > 5)
        say(f"labels with a single text are learned, and validation cannot check them: {names}")
    if duplicates.copies and validation is None:
        say("equal texts stay on one side of the split")
    training_rows = np.arange(len(corpus))
    validation_rows = training_rows[:0]
    if validation is None:
        training_rows, validation_rows = split_strata(corpus, options.held_out)
    splitter = Splitter(learn_units(rule, texts["train"]), options.lowercase)
    parts = {
        name: TextPart(
            [splitter.split(text) for text in texts[name]],
            texts[name],
            targets[name],
            unknown=target.find_unknown(corpora[name].classes),
        )
        for name in corpora
    }
    if sample_weight is not None:
        sample_weight = sample_weight[corpora["train"].lines - 1]
    weights = weigh_texts(corpora["train"], options.class_weight, sample_weight)
    parts["train"] = dataclasses.replace(
        parts["train"], weights=weights, sample_weight=sample_weight
    )
    every = parts["train"]
    if validation is None:
        parts["train"] = every.select(training_rows)
        parts["validation"] = every.select(validation_rows)
    sizes = ", ".join(f"{len(part.labels):,} for {name}" for name, part in parts.items())
    ranges = {REGRESSION: "tenths of the numbers", LABELS: "labels"}.get(kind, "classes")
    split = "" if validation is not None else f" (in proportion to the {ranges}, always the same)"
    say(f"split: {sizes}{split}")
    head = target.make_head(every.labels, sample_weight)
    measured, first, curve, chosen = _choose(parts, target, head, options)
    metric = target.choose_metric(options.best_metric)
    name = target.metrics[metric] if kind in TARGETS else metric.replace("_", " ")
    say("\n".join([f"{name} on the validation texts:", *render_curve(curve, chosen, metric)]))
    held = parts["validation"]
    # The temperature and the thresholds are chosen before the validation texts may become training
    # texts.
    target, temperature, fitted_temperature = _calibrate(measured, held, target)
    # The model of all words has a temperature and thresholds of its own, so that the comparison is
    # fair.
    of_all_words = _calibrate(first, held, target)
    lexicon, all_words = measured, first
    if validation is None and len(corpus) <= LARGEST_REFIT:
        # The validation texts have chosen the density, and now belong to the training texts. In a
        # few texts the words may be too frequent for this density, and the lexicon stays as it is.
        with contextlib.suppress(EmptyLexicon):
            lexicon, refitted = _refit(every, head, options, measured.density)
            parts["train"] = every
            all_words = all_words if test is None else refitted
    checked = "validation" if test is None else "test"
    compared = measured if checked == "validation" else lexicon
    uncalibrated = measure_lexicon(compared, parts[checked], target).get("ece")
    measured = dataclasses.replace(measured, temperature=temperature)
    lexicon = dataclasses.replace(lexicon, temperature=temperature)
    report: Json = {"density": lexicon.density, "temperature": temperature}
    report |= {"fitted_temperature": fitted_temperature, "curve": curve}
    report["validation"] = measure_lexicon(measured, held, target)
    all_words = dataclasses.replace(all_words, temperature=of_all_words[1])
    of_all = measure_lexicon(all_words, parts[checked], of_all_words[0])
    if checked == "test":
        report["test"] = measure_lexicon(lexicon, parts["test"], target)
    # Each other model is trained on the texts of the lexicon that it is compared with.
    fitted = every.select(training_rows) if checked == "validation" else parts["train"]
    words = parts[checked].words
    equal = {"texts": len(words), "equal": count_equal(lexicon, splitter, words)}
    report[checked]["same_answer"] = equal
    if kind == "text":
        report["validation"]["all_words"] = curve[0]["accuracy"]
        report[checked]["all_words"] = of_all["accuracy"]
        report |= measure_baselines(fitted, parts[checked], len(corpus.classes), checked)
        say(render_accuracies(report, checked))
    else:
        report[checked]["all_words"] = {name: of_all[name] for name in target.metrics}
        rivals = measure_rivals(target, every.select(training_rows), held, fitted, parts[checked])
        report["baseline"] = {
            rival: {checked: {name: scores[name] for name in target.metrics}}
            for rival, scores in rivals.items()
        }
        say(render_scores(report, checked, target.metrics))
    say(render_priors(report[checked]))
    say(render_equal(equal))
    if uncalibrated is not None:
        report[checked]["uncalibrated_ece"] = uncalibrated
        say(render_calibration(report, checked))
    if report[checked].get("unknown"):
        say(render_unknown(report[checked]["unknown"]))
    report["data"] = {
        name: {"n": len(part.labels), "aside": corpora[name].aside if name in corpora else 0}
        for name, part in parts.items()
    }
    report["data"]["train"] |= duplicates.to_report()
    model = LexiconModel(
        lexicon=lexicon,
        splitter=splitter,
        target=target,
        report=report,
        picture=draw_curve(curve, chosen, *(() if kind == "text" else (metric, name))),
        options=options_to_json(options),
    )
    labels = target.name_groups(every.labels)
    examples = find_examples(list_open_words(model), every.words, labels)
    return dataclasses.replace(model, examples=examples)


def _calibrate(
    lexicon: Lexicon, validation: TextPart, target: Target
) -> tuple[Target, float, float]:
    """Returns the target with chosen thresholds, and the temperature to use and the fitted T."""
    readings = lexicon.read(validation.words)
    temperature = fitted = 1.0
    # The prior has no temperature, so that its texts are no evidence.
    if len(rows := np.flatnonzero(~readings.is_prior)):
        evidence = readings._replace(
            probabilities=readings.probabilities[rows], logits=readings.logits[rows]
        )
        weights = validation.sample_weight
        temperature, fitted = target.choose_temperature(
            *(lexicon.head, lexicon.bias, evidence, validation.labels[rows]),
            None if weights is None else weights[rows],
        )
    readings = dataclasses.replace(lexicon, temperature=temperature).read(validation.words)
    target = target.choose_decision(readings, validation.labels, validation.sample_weight)
    return target, temperature, fitted


def _choose(
    parts: dict[str, TextPart], target: Target, head: Head, options: TextOptions
) -> tuple[Lexicon, Lexicon, list[Json], int]:
    """Returns the chosen lexicon, the lexicon of all words, the curve and the chosen stage."""
    train, held = parts["train"], parts["validation"]
    stages: list[Lexicon] = []
    curve: list[Json] = []
    measures: list[Json] = []
    priors: list[int] = []
    try:
        for lexicon in _start_fit(train, head, list_densities(options)):
            readings = lexicon.read(held.words)
            decided = target.choose_decision(readings, held.labels, held.sample_weight)
            measured = decided.measure(held.labels, readings, held.unknown, held.sample_weight)
            share = measure_open(readings.is_open, held.sample_weight)
            stage = {name: measured[name] for name in target.metrics}
            curve.append({"density": lexicon.density, "words": share, **stage})
            stages.append(lexicon)
            measures.append(measured)
            priors.append(int(readings.is_prior.sum()))
    except EmptyLexicon:
        # There are too few words for the last stages, and only a density of the user is an error.
        if options.density is not None:
            raise
    chosen = len(stages) - 1
    if options.density is None:
        metric = target.choose_metric(options.best_metric)
        # The prior is right by chance, which is no reason to close the words of a text: at most one
        # more text in twenty may be answered by it than with all words.
        most = priors[0] + len(held.words) // 20
        useful = [stage for stage, count in zip(curve, priors, strict=True) if count <= most]
        scores = [-stage[metric] if target.is_error else stage[metric] for stage in useful]
        best = int(np.argmax(scores))
        chosen = choose_stage(scores, target.allow_loss(measures[best], metric))
    return stages[chosen], stages[0], curve, chosen


def choose_stage(scores: Sequence[float], allowed: float) -> int:
    """Returns the last stage, of the fewest words, with a score at most `allowed` below the best.

    Reference: Breiman et al. 1984 (the rule of one standard error).
    """
    best = max(scores)
    return max(i for i, score in enumerate(scores) if score >= best - allowed - 1e-12)


def weigh_texts(
    corpus: Corpus, class_weight: str | None, sample_weight: np.ndarray | None
) -> np.ndarray | None:
    """Returns the weight of each text, times n / (C n_c) if balanced; None if all are equal."""
    if class_weight is None and sample_weight is None:
        return None
    weights = np.ones(len(corpus))
    if sample_weight is not None:
        weights = sample_weight
    if class_weight == BALANCED:
        labels = np.asarray(corpus.labels)
        counts = np.bincount(labels, minlength=len(corpus.classes))
        weights = weights * len(corpus) / (len(counts) * counts[labels])
    return weights


def _refit(
    part: TextPart, head: Head, options: TextOptions, density: float
) -> tuple[Lexicon, Lexicon]:
    densities = [stage for stage in list_densities(options) if stage >= density]
    first, *stages = _start_fit(part, head, densities)
    return (stages[-1] if stages else first), first


def _start_fit(part: TextPart, head: Head, densities: Sequence[float]) -> Iterator[Lexicon]:
    """Returns an iterator over the lexicons of falling densities, each fitted when asked for."""
    return fit_lexicon(
        *(part.words, part.labels, 0, densities), sample_weight=part.weights, head=head
    )


def list_densities(options: TextOptions) -> list[float]:
    """Returns the densities, shares of open words or tokens, of the stages of the fit, falling."""
    density = options.density
    if density is None:
        return list(DENSITIES)
    return [*(stage for stage in DENSITIES if stage > density), density]


def read_labelled(
    table: Table,
    classes: Sequence[Label] | None,
    max_aside: float,
    left_out: frozenset[Label] = frozenset(),
    splitter: Splitter = WITHOUT_UNITS,
) -> tuple[Corpus, list[str]]:
    """Returns the labels as a `Corpus` without the numbers of words, and the texts."""
    return _read_examples(Examples(table, classes, left_out), max_aside, splitter)


def read_targets(
    table: Table,
    target_class: type[Target],
    model_target: Target | None,  # None for the training texts
    max_aside: float,
    left_out: frozenset[Label],
    splitter: Splitter,
) -> tuple[Corpus, list[str]]:
    """Returns the targets as a `Corpus` without the numbers of words, and the texts."""
    if target_class.kind not in WITHOUT_CLASSES:
        classes = None if model_target is None else model_target.classes
        return read_labelled(table, classes, max_aside, left_out, splitter)
    examples = Examples(table, (), left_out, target_class.make_places(model_target))
    return _read_examples(examples, max_aside, splitter)


def _read_examples(
    examples: Examples, max_aside: float, splitter: Splitter
) -> tuple[Corpus, list[str]]:
    texts: list[str] = []
    for record, (words,) in examples.read(lambda record: [splitter.split(record.inputs[0])]):
        examples.add(record, digest_parts(word.encode("utf-8", "surrogatepass") for word in words))
        texts.append(CONTROL.sub(" ", record.inputs[0]))
    return examples.finish(max_aside), texts


def measure_lexicon(lexicon: Lexicon, part: TextPart, target: Target) -> Json:
    """Returns a dict of the metrics and of the density of a lexicon on texts."""
    readings = lexicon.read(part.words)
    metrics = target.measure(part.labels, readings, part.unknown, part.sample_weight)
    return {
        **metrics,
        "density": measure_open(readings.is_open, part.sample_weight),
        "by_prior": int(readings.is_prior.sum()),
    }


def measure_open(is_open: Sequence[np.ndarray], sample_weight: np.ndarray | None) -> float:
    """Returns the share of open words; a word has the weight of its text."""
    weights = None
    if sample_weight is not None:
        weights = np.repeat(sample_weight, [len(gates) for gates in is_open])
    return float(np.average(np.concatenate(is_open), weights=weights))


def measure_baselines(train: TextPart, held: TextPart, num_classes: int, checked: str) -> Json:
    """Trains two linear models, of words and of character n-grams, and returns their accuracies."""
    weights = train.sample_weight

    def score(probabilities: np.ndarray) -> float:
        """Returns the accuracy of predictions for the texts of `held`: [n, C] for C classes."""
        is_right = probabilities.argmax(1) == held.labels
        return float(np.average(is_right, weights=held.sample_weight))

    words = LinearBaseline().fit(train.words, train.labels, num_classes, weights)
    accuracy = score(words.probabilities(held.words))
    report: Json = {"baseline": {"kind": words.kind, checked: accuracy}, "character_baseline": {}}
    if sum(map(len, train.texts)) <= _MOST_CHARACTERS:
        ngrams = LinearBaseline(pairs=False).fit(
            map(character_ngrams, train.words), train.labels, num_classes, weights
        )
        accuracy = score(ngrams.probabilities(map(character_ngrams, held.words)))
        report["character_baseline"] = {"kind": words.kind, checked: accuracy}
    return report
