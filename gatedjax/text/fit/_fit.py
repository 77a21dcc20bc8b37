"""The training of a model on a user's texts, the same for all models: read and split the texts, fit
a model, compare it with simple models, and report.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax._utils.terminal import join_first, render_count
from gatedjax._utils.types import Json
from gatedjax.text._options import TextOptions
from gatedjax.text.answers import _prediction
from gatedjax.text.corpus import _corpus
from gatedjax.text.fit._learner import Data, Learner, Say
from gatedjax.text.fit._without_network import LexiconLearner, LinearLearner, StatesLearner
from gatedjax.text.sources._labels import Classes, Label
from gatedjax.text.sources._table import check_share
from gatedjax.text.targets import TARGET_OF, WITHOUT_CLASSES
from gatedjax.text.targets._base import Target

_LEARNERS: Mapping[str, type[Learner]] = {
    _prediction.LEXICON: LexiconLearner,
    _prediction.LINEAR: LinearLearner,
    _prediction.STATES: StatesLearner,
}
"""The models without a network."""
# With more classes that are numbers, a hint names the tasks for numbers.
_MANY_NUMBERS = 10


def train_any(
    kind: str,
    table: Any,
    options: TextOptions,
    folder: Path | None = None,
    *,
    validation: Any = None,
    test: Any = None,
    say: Say = lambda line: None,
    progress: bool = False,
    max_aside: float = 1.0,
    sample_weight: np.ndarray | None = None,
    has_columns: bool = False,
) -> Any:
    """Trains the model that the options name, which the caller has checked. A network writes its
    checkpoints to `folder`, and continues from those of the same run with the same bits.
    `has_columns` is True if the labels name columns of an array.
    """
    check_share(max_aside)
    tables = {"train": table, "validation": validation, "test": test}
    sources = {name: source for name, source in tables.items() if source is not None}
    if kind != "tags":
        for source in sources.values():
            _prediction.check_inputs(source.columns, kind)
    learner: Learner
    if options.model in _LEARNERS:
        learner = _LEARNERS[options.model](kind, options)
    else:
        # Its module imports JAX.
        from gatedjax.text.fit._network import NetworkLearner

        assert folder is not None
        learner = NetworkLearner(kind, options, folder, progress=progress)
    data = _read(learner, sources, max_aside, has_columns, sample_weight, say)
    model, trained = learner.fit(data, say)
    asides = {name: corpus.asides.count for name, corpus in data.corpora.items()}
    model.report["data"] = {
        name: {"n": size, "aside": asides.get(name, 0)}
        for name, size in (data.sizes | {"train": trained}).items()
    }
    model.report["data"]["train"] |= data.duplicates.to_report()
    return model


def _read(
    learner: Learner,
    sources: Mapping[str, Any],
    max_aside: float,
    has_columns: bool,
    sample_weight: np.ndarray | None,
    say: Say,
) -> Data:
    """Reads and splits the texts, and describes them."""
    kind, options, is_split = learner.kind, learner.options, "validation" not in sources
    target_class = TARGET_OF.get(kind)
    target: Target | None = None
    reading: Json = {"max_aside": max_aside}
    if kind != "tags":
        # A model of several labels leaves out labels but no texts.
        has_rare = options.min_class > 1 and kind != _prediction.LABELS
        rare: Sequence[Label] = ()
        if has_rare:
            # The texts are read once, and counted in memory.
            sources = {**sources, "train": sources["train"].load()}
            rare = _corpus.find_rare_classes(sources["train"], options.min_class)
        reading["left_out"] = frozenset(rare)
    corpora: dict[str, _corpus.Corpus] = {}
    strata: dict[str, _corpus.Corpus] = {}
    targets: dict[str, Any] = {}
    for name, source in sources.items():
        if target_class is None:
            tags = Classes("tag", corpora["train"].classes if corpora else None)
            corpora[name] = corpus = learner.read(name, source, places=tags, **reading)
            targets[name], strata[name] = corpus.labels, corpus
        else:
            places = target_class.make_places(target)
            corpora[name] = corpus = learner.read(name, source, places=places, **reading)
            if target is None:
                counts = list(corpus.class_counts.values())
                target = target_class.of_labels(corpus.classes, counts, options, has_columns)
            targets[name], strata[name] = _corpus.encode_corpus(corpus, target)
        if name == "train":
            has_classes = kind not in WITHOUT_CLASSES
            _corpus.check_trainable(strata[name], split=is_split, has_classes=has_classes)
    held_out = targets.get("validation") if kind == _prediction.LABELS else None
    # The thresholds and the share follow from the F1, which is 0 without a label.
    if target and held_out is not None and not held_out[:, : len(target.classes)].any():
        raise ValueError(
            f"{corpora['validation'].name}: the validation texts must have a label of the training "
            "texts, from which the thresholds are chosen, got none: give other texts, or leave "
            "validation out"
        )
    train = corpora["train"]
    training, held = np.arange(len(train)), np.arange(0)
    if is_split:
        training, held = _corpus.split_training(strata["train"], options.held_out)
    if sample_weight is not None:
        sample_weight = sample_weight[train.lines - 1]
    duplicates = _corpus.find_duplicates(train)
    data = Data(kind, target, corpora, targets, training, held, duplicates, sample_weight)
    for name, corpus in corpora.items():
        summary = None if target is None else target.render_source(targets[name])
        _corpus.say_corpus(corpus, say, summary)
        for line in learner.describe(corpus):
            say(line)
    for line in (*_note_target(data), *duplicates.render(), *_note_parts(data, strata["train"])):
        say(line)
    sizes = ", ".join(f"{size:,} for {name}" for name, size in data.sizes.items())
    proportion = "" if target is None else f"in proportion to the {target.ranges}, "
    say(f"split: {sizes}{f' ({proportion}always the same)' if is_split else ''}")
    return data


def _note_target(data: Data) -> Iterator[str]:
    """Yields lines about labels that may suit another task, and about labels that are left out."""
    kind, target, train = data.kind, data.target, data.corpora["train"]
    if target is None:
        return
    # If a text has several labels, numbers are names, such as the categories of a shop.
    is_single = kind == "text" or (
        kind == _prediction.LABELS and data.targets["train"].sum(1).max() <= 1
    )
    if is_single and len(target.classes) > _MANY_NUMBERS and _corpus.are_numbers(target.classes):
        yield (
            f"the {len(target.classes)} {target.ranges} are numbers: "
            "--task regression predicts the number, and --task ordinal a grade (TextRegressor, "
            "OrdinalTextClassifier)"
        )
    if kind in ("text", _prediction.LABELS) and (note := _corpus.note_joined_labels(train.classes)):
        yield note
    if counts := target.count_left_out(train.class_counts):
        yield f"labels with too few texts (min_class) left out: {_list_counts(counts)}"


def _list_counts(counts: Mapping[Label, int]) -> str:
    return join_first([f"{label!r} {n:,}" for label, n in counts.items()], 5)


def _note_parts(data: Data, strata: _corpus.Corpus) -> Iterator[str]:
    """Yields lines about classes and texts that validation or test cannot measure."""
    target, train = data.target, data.corpora["train"]
    if train.left_out:
        yield (
            f"{render_count(sum(train.left_out.values()), 'text')} in classes with too few texts "
            f"(min_class) left out: {_list_counts(train.left_out)}"
        )
    single = [] if target is None else _corpus.list_single(strata, target, data.targets["train"])
    if single and "validation" not in data.corpora:
        noun = "labels" if data.kind == _prediction.LABELS else "classes"
        yield _corpus.render_single(single, noun)
    for name, other in data.corpora.items():
        if other is not train and (n := _corpus.count_overlap(train, other)):
            yield (
                f"{n:,} of {render_count(len(other), 'text')} of {other.name} ({name}) also in "
                f"{train.name}: their scores do not measure new texts"
            )
    if data.duplicates.copies and data.is_split:
        yield "equal texts stay on one side of the split"
