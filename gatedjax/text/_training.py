"""Training of a model on labelled texts or tagged sentences."""

import dataclasses
import functools
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from gatedjax._utils.sigterm import default_sigterm
from gatedjax._utils.types import Json
from gatedjax._utils.write import write_atomic
from gatedjax.data import SequenceBatches, load_embeddings, random_embeddings
from gatedjax.data.batches._steps import for_schedule
from gatedjax.data.text._embeddings import words_in
from gatedjax.data.text._vocabulary import UNK, Vocabulary
from gatedjax.text import _copies, _corpus
from gatedjax.text._asides import check_share
from gatedjax.text._baseline import LinearBaseline
from gatedjax.text._buckets import (
    EVALUATED,
    LENGTHS,
    NAMES,
    Shape,
    group_texts,
    pad_texts,
    training_size,
    training_widths,
)
from gatedjax.text._corpus import Corpus, Labels, Numbers, Rows, say_corpus
from gatedjax.text._leak import Ids, Sample, measure_leak, render_leak
from gatedjax.text._metrics import classification_metrics
from gatedjax.text._model import TrainedModel, check_inputs, networks
from gatedjax.text._networks import Config, NetworkEntry, held_at
from gatedjax.text._options import TextOptions, check_options, network_config, train_config
from gatedjax.text._prediction import COLUMNS as COLUMNS
from gatedjax.text._read import Table
from gatedjax.text._shapes import is_unknown
from gatedjax.text._stored_options import options_to_json
from gatedjax.text._tagged import (
    RULE,
    Sentences,
    TagRule,
    model_metrics,
    read_tagged,
    render_score,
    rule_metrics,
)
from gatedjax.text._tags import SentenceTable
from gatedjax.text._windows import Windows, pool_windows, split_starts
from gatedjax.training import FitResult, TrainConfig, fit

Say = Callable[[str], None]
Data = Table | SentenceTable
# Words of a file of vectors that are added to the vocabulary, from its beginning, where the
# frequent words are; new texts have many of them that the training texts lack.
_MORE_WORDS = 50_000
# Factor of the random numbers in word vectors that start from log-ratios.
_NOISE = 0.1
OPTIONS = "options"
"""Key, in the metadata of checkpoints, of the options that affect the training and that are in
neither the hash of the texts nor the configuration of the network."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """The texts for a purpose: training, validation or test."""

    texts: tuple[Sequence[np.ndarray], ...]
    labels: Labels
    owners: np.ndarray | None = None
    """int [n], the document of each text if the texts are windows of documents; else None."""

    def split(self, longest: int) -> "_Part":
        lengths = [len(row) for row in self.texts[0]]
        starts, owners = split_starts(np.cumsum([0, *lengths]), longest)
        if len(owners) == len(lengths):
            return self
        # A text of several windows has the weight of several texts in training.
        return _Part((Windows(self.texts[0], starts, owners),), self.labels[owners], owners)

    def lengths(self) -> np.ndarray:
        return np.max([[len(row) for row in rows] for rows in self.texts], axis=0)

    def ids(self, numbers: Iterable[int]) -> list[Ids]:
        return [tuple(np.asarray(rows[i]) for rows in self.texts) for i in numbers]

    def batches(self, size: int, edges: Sequence[int], **options: Any) -> SequenceBatches:
        """Returns the batches of the texts, a sequence of dicts of padded arrays."""
        sequences = dict(zip(NAMES, self.texts, strict=False))
        tagged = not isinstance(self.labels, np.ndarray)
        return SequenceBatches(
            {**sequences, "labels": self.labels} if tagged else sequences,
            np.arange(len(self.labels)),
            lengths=dict(zip(LENGTHS, sequences, strict=False)),
            columns=None if tagged else {"label": self.labels},
            batch_size=size,
            bucket_edges=edges,
            **options,
        )

    def words(self, vocabulary: Vocabulary) -> Iterator[list[str]]:
        names = vocabulary.words
        for row in zip(*self.texts, strict=True):
            words = [names[i] for i in row[0]]
            for ids in row[1:]:
                words += [f"2:{names[i]}" for i in ids]
            yield words


def train_model(
    kind: str,
    table: Data,
    options: TextOptions,
    folder: Path,
    *,
    validation: Data | None = None,
    test: Data | None = None,
    say: Say = lambda line: None,
    progress: bool = False,
    max_aside: float = 1.0,
) -> TrainedModel:
    """Trains a classifier or a tagger. If `folder` has checkpoints of the same run, training
    continues from them, with the same result bit for bit.
    """
    check_options(options, kind)
    check_share(max_aside)
    for source in (table, validation, test):
        if isinstance(source, Table):
            check_inputs(source.columns, kind)
    entry = networks(kind)[options.model]
    read_part: Any = functools.partial(_corpus.read_corpus, max_aside=max_aside)
    if kind == "tags":
        read_part = functools.partial(read_tagged, longest=options.max_len, max_aside=max_aside)
        numbers = Numbers(lowercase=options.lowercase)
        corpus: Corpus = read_part(table, folder, "train", numbers)
    else:
        corpus, numbers = _corpus.read_training(
            cast(Table, table),
            folder,
            lowercase=options.lowercase,
            tokens=options.tokens,
            tokenizer=options.tokenizer,
            min_class=options.min_class,
            max_aside=max_aside,
        )
    corpora = {"train": corpus}
    _corpus.check_trainable(corpus, split=validation is None)
    for name, other in (("validation", validation), ("test", test)):
        if other is not None:
            corpora[name] = read_part(other, folder, name, numbers, classes=corpus.classes)
    all_rows = np.arange(len(corpus))
    training_rows, validation_rows = all_rows, all_rows[:0]
    if validation is None:
        training_rows, validation_rows = _corpus.split_training(corpus, options.held_out)
    vocabulary, table_of_ids, vectors, coverage = _words(
        kind, corpus, validation_rows, numbers, options
    )
    for part_corpus in corpora.values():
        say_corpus(part_corpus, say)
        if kind != "tags":  # A tagger reads all of a long sentence, in windows.
            _say_long(part_corpus, options.max_len, say)
    duplicates = _copies.find_duplicates(corpus)
    for line in (*duplicates.render(), *_corpus.note_parts(corpora)):
        say(line)
    if duplicates.copies and validation is None:
        say("equal texts stay on one side of the split")
    most = options.max_len if kind == "pair" else None
    documents = _parts(corpora, training_rows, validation_rows, table_of_ids, most)
    parts = documents
    if kind == "text":
        parts = {name: part.split(options.max_len) for name, part in documents.items()}
    sizes = ", ".join(f"{len(part.labels):,} for {name}" for name, part in documents.items())
    way = "always the same" if kind == "tags" else "in proportion to the classes, always the same"
    split = "" if validation is not None else f" ({way})"
    say(f"split: {sizes}{split}")
    say(f"words: {coverage}")

    train = parts["train"]
    width = entry.vectors if vectors is None else vectors.shape[1]
    # The hash lets the same command continue the run only with the same file of vectors.
    embeddings = None if vectors is None else hashlib.sha256(vectors.tobytes()).hexdigest()[:16]
    config = network_config(options, entry, width)
    vectors = _start(vectors, entry, config, vocabulary, train, len(corpus.classes))
    module = entry.make(config, words=len(vocabulary), classes=len(corpus.classes), vectors=vectors)
    lengths = train.lengths()
    longest = max(int(part.lengths().max()) for part in parts.values())
    # The widths fit all parts, so that an evaluation needs no further compiled program.
    edges = training_widths(lengths, longest)
    size = options.batch_size or training_size(len(lengths))
    batches = train.batches(size, edges, seed=options.seed)
    checked = parts["validation"].batches(EVALUATED, edges, shuffle=False).eval()
    training = train_config(options, batches.steps_per_epoch)
    # The progress bar is no option of the model, because it does not change the result.
    training = dataclasses.replace(training, progress=progress)
    facts = {
        "model": options.model,
        "network": config,
        "texts": _corpus.digest_of(corpora),
        "vocabulary": vocabulary.digest(),
        OPTIONS: {
            "classes": list(corpus.classes),
            "max_len": options.max_len,
            "held_out": options.held_out if validation is None else None,
            "batch_size": size,
            "seed": options.seed,
            "embeddings": embeddings,
            **({"windows": True} if any(p.owners is not None for p in parts.values()) else {}),
            **({"equal_texts": "together"} if duplicates.copies and validation is None else {}),
        },
    }
    numbered = for_schedule(batches, config)
    result = _fit(entry.task(module), numbered, checked, training, folder, facts, options.minutes)
    minutes, epoch = options.minutes, batches.steps_per_epoch
    if minutes is not None and result.stopped == "done" and result.steps < training.num_steps:
        say(_render_time_up(minutes, result.steps, training.num_steps, epoch))
    labels = documents["train"].labels
    prior: Any = () if kind == "tags" else np.bincount(labels, minlength=len(corpus.classes))
    model = TrainedModel(
        kind=kind,
        network=options.model,
        config=config,
        vocabulary=vocabulary,
        classes=corpus.classes,
        params=result.best_params,
        max_len=options.max_len,
        tokenizer=numbers.tokenizer,
        windows=kind == "text",
        options=options_to_json(options),
        prior=tuple(float(count / len(labels)) for count in prior),
    )
    density = getattr(getattr(config, "gates", None), "density", None)
    if density is not None:
        # The threshold is set on the validation texts, because training has not seen them.
        _, columns = _probabilities(model, parts["validation"], edges)
        model = dataclasses.replace(model, params=held_at(model.params, columns["gates"], density))
    report: Json = {"steps": result.steps, "best_step": result.best_step}
    if kind == "tags":
        report |= _report_tags(
            model, parts, _parts(corpora, training_rows, validation_rows), numbers, edges, say
        )
    else:
        report |= _report(model, parts, documents, edges, say)
    report["data"] = {
        name: {"n": len(part.labels), "aside": corpora[name].aside if name in corpora else 0}
        for name, part in documents.items()
    }
    report["data"]["train"] |= duplicates.to_report()
    return dataclasses.replace(model, report=report)


def _say_long(corpus: Corpus, max_len: int, say: Say) -> None:
    """Calls `say` with a line about the texts that are longer than `max_len`, if there are any."""
    lengths = np.stack([np.diff(rows.starts) for rows in corpus.texts])
    if len(lengths) == 1:
        if long := int(np.sum(lengths > max_len)):
            windows = len(split_starts(corpus.texts[0].starts, max_len)[1])
            say(
                f"{long:,} of {len(corpus):,} texts are longer than {max_len:,} words (max_len) "
                f"and are read in windows of at most so many words, {windows:,} windows in total"
            )
        return
    beyond = np.maximum(lengths - max_len, 0)
    cut = int(np.sum(np.any(beyond > 0, axis=0)))
    if cut:
        say(
            f"{cut:,} of {len(corpus):,} texts are longer than {max_len:,} words (max_len), and "
            f"{np.sum(beyond) / np.sum(lengths):.1%} of all words are not read"
        )


def _rare(texts: int, tagged: bool) -> int:
    # Rare words, such as names, predict a class only by chance.
    if tagged or texts <= 5000:
        return 2 if tagged or texts > 1000 else 1
    return 5 if texts <= 20_000 else 10


def _words(
    kind: str, corpus: Corpus, excluded: np.ndarray, numbers: Numbers, options: TextOptions
) -> tuple[Vocabulary, np.ndarray, np.ndarray | None, str]:
    """Builds the vocabulary and reads the file of word vectors, if there is one."""
    min_count = options.min_count or _rare(len(corpus), corpus.is_tagged)
    path = None if options.embeddings is None else Path(options.embeddings).expanduser()
    extra_words: Iterable[str] = ()
    width = 0
    if path is not None:
        width, words = words_in(path, _MORE_WORDS)
        min_count, extra_words = options.min_count or 1, words
    vocabulary, ids = _corpus.build_vocabulary(
        corpus,
        excluded,
        numbers,
        min_count=min_count,
        max_words=options.max_words,
        extra_words=extra_words,
        make=networks(kind)[options.model].vocabulary,
    )
    unknown = is_unknown(vocabulary)
    covered = np.mean([float(np.mean(~unknown[ids[p]])) for r in corpus.texts for p in r.pieces()])
    share = f"{np.sum(~unknown) - 1:,}, they cover {covered:.1%} of the texts"
    if path is None:
        return vocabulary, ids, None, share
    vectors = load_embeddings(path, vocabulary, dim=width)
    trained = ids[ids > UNK]
    with_vector = float(vectors.found[trained].mean()) if len(trained) else 0.0
    # Vectors of another language or case would otherwise train a network on random vectors.
    if not with_vector:
        raise ValueError(
            f"{path} must have a vector for at least one word of {corpus.name}, got none: give "
            "vectors of the same language, and of words with capitals if lowercase is False"
        )
    return (
        vocabulary,
        ids,
        vectors.matrix,
        f"{share}; {with_vector:.1%} of theirs have a vector in {path}",
    )


def _parts(
    corpora: Mapping[str, Corpus],
    training_rows: np.ndarray,
    validation_rows: np.ndarray,
    ids: np.ndarray | None = None,
    max_len: int | None = None,
) -> dict[str, _Part]:
    """Returns the texts as a dict by purpose: "train", "validation" and, if given, "test"."""
    parts = {
        name: _Part(tuple(rows.renumber(ids, max_len) for rows in corpus.texts), corpus.labels)
        for name, corpus in corpora.items()
    }
    if len(validation_rows):
        everything = parts["train"]
        parts |= {
            "train": _select_texts(everything, training_rows),
            "validation": _select_texts(everything, validation_rows),
        }
    return parts


def _select_texts(part: _Part, numbers: np.ndarray) -> _Part:
    texts = tuple(rows.select(numbers) for rows in part.texts if isinstance(rows, Rows))
    labels = part.labels
    return _Part(texts, labels.select(numbers) if isinstance(labels, Rows) else labels[numbers])


def _start(
    vectors: np.ndarray | None,
    entry: NetworkEntry,
    config: Config,
    vocabulary: Vocabulary,
    train: _Part,
    classes: int,
) -> np.ndarray | None:
    """Returns the initial word vectors [V, D]: from a file, or random, with the log-ratios of word
    and class frequencies in the first columns if the network starts from them.
    """
    width = getattr(config, "embedding_dim", None) or config.hidden
    if vectors is not None:
        if vectors.shape[1] != width:
            raise ValueError(
                f"the width of the word vectors in network must be {vectors.shape[1]}, that of the "
                f"vectors in the file, got {width}: leave it out"
            )
        return _scale_vectors(vectors, entry.vector_std)
    initial = random_embeddings(vocabulary, width)
    if entry.starts_from_counts:
        # The random numbers are scaled down, because they would hide the log-ratios.
        initial *= _NOISE
        ratios = _corpus.log_ratios(train.texts, train.labels, len(vocabulary), classes)
        # There may be more classes than numbers in a vector.
        used = min(classes, width)
        initial[:, :used] = ratios[:, :used]
    return _scale_vectors(initial, entry.vector_std)


def _scale_vectors(vectors: np.ndarray, std: float | None) -> np.ndarray:
    return vectors if std is None else vectors * np.float32(std / vectors.std())


def _fit(
    task: Any,
    train: SequenceBatches,
    validation: SequenceBatches,
    config: TrainConfig,
    folder: Path,
    facts: Mapping[str, object],
    minutes: float | None,
) -> FitResult:
    """Trains the network; `minutes` includes the time of earlier parts of the run."""
    clock = folder / "seconds"
    watch = Stopwatch(_read_seconds(clock))

    def on_event(event: str, step: int) -> None:
        watch.pass_event(compiled=event == "compiled")
        # The time is written with each checkpoint, because a continued run repeats the steps after
        # it.
        if event == "save":
            write_atomic(clock, f"{watch.seconds():.3f}".encode())

    # `fit` handles the signals, and a second SIGTERM must end a process that compiles.
    with default_sigterm():
        return fit(
            task,
            train,
            validation,
            config,
            folder,
            settings=facts,
            on_event=on_event,
            raise_on_signal=True,
            stop_when=None if minutes is None else lambda step: watch.seconds() >= 60 * minutes,
        )


class Stopwatch:
    """Measures the time of training without the time of compilation."""

    def __init__(self, used: float = 0.0, now: Callable[[], float] | None = None) -> None:
        self._now, self._used = now or time.monotonic, used
        self._last = self._now()
        # The checks before the first step trace the network, which is a part of compilation.
        self._started = False

    def pass_event(self, *, compiled: bool) -> None:
        """Adds the time since the last event; if `compiled` is True the time is left out."""
        now = self._now()
        if self._started and not compiled:
            self._used += now - self._last
        self._last, self._started = now, True

    def seconds(self) -> float:
        """Returns the seconds of training so far."""
        return self._used + (self._now() - self._last if self._started else 0.0)


def _render_time_up(minutes: float, steps: int, planned: int, epoch: int) -> str:
    text = f"the time is up ({minutes:g} minutes) after {steps:,} of {planned:,} steps"
    if steps < epoch:
        text += (
            f": the model has read {steps / epoch:.0%} of the training texts and has hardly "
            "learned; give more minutes"
        )
    return text


def _read_seconds(clock: Path) -> float:
    try:
        used = float(clock.read_text())
    except (OSError, ValueError):
        return 0.0
    return used if 0 <= used < math.inf else 0.0


def _report(
    model: TrainedModel,
    parts: Mapping[str, _Part],
    documents: Mapping[str, _Part],
    edges: Sequence[int],
    say: Say,
) -> Json:
    """Returns scores of the model and of the linear baseline on validation and test texts."""
    train = documents["train"]
    baseline = LinearBaseline().fit(train.words(model.vocabulary), train.labels, len(model.classes))
    report: Json = {"baseline": {"kind": baseline.kind}}
    for name in ("validation", "test"):
        if name not in parts:
            continue
        part = documents[name]
        probabilities, columns = _probabilities(model, parts[name], edges)
        if (owners := parts[name].owners) is not None:
            lengths = np.array([len(row) for row in parts[name].texts[0]])
            probabilities = pool_windows(probabilities, owners, lengths, len(part.labels))
        density = float(np.sum(columns["kept"]) / np.sum(columns["words"]))
        ours = classification_metrics(part.labels, probabilities, model.classes)
        # The baseline reads the same words as the network, so that the comparison is fair.
        linear = baseline.probabilities(part.words(model.vocabulary))
        theirs = float(np.mean(linear.argmax(axis=1) == part.labels))
        report[name] = {**ours, "density": density}
        report["baseline"][name] = theirs
        say(
            f"{name}: accuracy {ours['accuracy']:.4f}, macro F1 {ours['macro_f1']:.4f}, density "
            f"{density:.3f}; linear baseline (words and bigrams) {theirs:.4f}"
            f"{_worse(ours, theirs)}"
        )
    checked = "test" if "test" in parts else "validation"
    leak = _leak(model, parts[checked], edges)
    if leak is not None:
        report[checked]["leak"] = leak
        say(f"{checked}: {render_leak(leak)}")
    return report


def _worse(ours: Json, theirs: float) -> str:
    return "" if ours["accuracy"] >= theirs else ": THE BASELINE IS BETTER"


def _shapes(edges: Sequence[int]) -> Callable[[int], Shape]:
    return lambda length: (EVALUATED, edges[int(np.searchsorted(edges, length))])


def _leak(model: TrainedModel, part: _Part, edges: Sequence[int]) -> Json | None:
    sample = Sample()
    for number in range(len(part.labels)):
        sample.add(number)
    return measure_leak(model.run, part.ids(sample.texts()), _shapes(edges))


def _probabilities(
    model: TrainedModel, part: _Part, edges: Sequence[int]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Computes the probabilities of texts in their order, and counts and gates of their words in
    the order of the batches.
    """
    probabilities = np.zeros((len(part.labels), len(model.classes)), np.float32)
    columns: dict[str, list[np.ndarray]] = {"kept": [], "words": [], "gates": []}
    for numbers, texts, out in _outputs(model, part, edges):
        probabilities[numbers] = out["probabilities"][: len(numbers)]
        words = np.array([sum(map(len, text)) for text in texts])
        columns["words"].append(words)
        columns["kept"].append(out["density"][: len(words)] * words)
        if "gates" in out:
            columns["gates"] += [
                row[: len(ids)] for row, (ids, *_) in zip(out["gates"], texts, strict=False)
            ]
    return probabilities, {name: np.concatenate(parts) for name, parts in columns.items() if parts}


def _outputs(
    model: TrainedModel, part: _Part, edges: Sequence[int]
) -> Iterator[tuple[list[int], list[Ids], dict[str, Any]]]:
    for numbers, shape in group_texts(part.lengths().tolist(), _shapes(edges)):
        # The output may have filler rows at its end.
        texts = part.ids(numbers)
        yield numbers, texts, model.run(pad_texts(texts, shape))


def _report_tags(
    model: TrainedModel,
    parts: Mapping[str, _Part],
    numbered: Mapping[str, _Part],
    numbers: Numbers,
    edges: Sequence[int],
    say: Say,
) -> Json:
    """Returns the scores of a tagger by purpose; the baseline reads `numbered`, with the numbers of
    all words, so that it has no unknown words in training.
    """
    classes = model.classes
    rule = TagRule(_sentences(numbered["train"]), len(numbers.ids), len(classes))
    report: Json = {"baseline": {"kind": RULE}}
    for name in ("validation", "test"):
        if name not in parts:
            continue
        theirs = rule_metrics(rule, _sentences(numbered[name]), classes)
        outputs = (
            (number, probabilities)
            for numbers_of_batch, _, out in _outputs(model, parts[name], edges)
            # The batch may have filler rows at its end.
            for number, probabilities in zip(numbers_of_batch, out["probabilities"], strict=False)
        )
        ours = model_metrics(
            outputs, _sentences(parts[name]), classes, is_unknown(model.vocabulary)
        )
        report[name] = ours
        report["baseline"][name] = theirs["accuracy"]
        worse = _worse(ours, theirs["accuracy"])
        say(f"{name}: word accuracy {render_score(ours)}; {RULE} {render_score(theirs)}{worse}")
    return report


def _sentences(part: _Part) -> Sentences:
    # A tagger has a single text column, and its labels are rows of tags.
    return Sentences(part.texts[0], cast(Sequence[np.ndarray], part.labels))
