"""Training of a model on labelled texts or tagged sentences."""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from gatedjax._utils.signals import default_sigterm
from gatedjax._utils.types import Json
from gatedjax._utils.write import write_atomic
from gatedjax.data import SequenceBatches, load_embeddings, plan_buckets, random_embeddings
from gatedjax.data.batches._texts import for_schedule
from gatedjax.data.text._embeddings import words_in
from gatedjax.data.text._vocabulary import UNK, Vocabulary
from gatedjax.lexicon import Readings
from gatedjax.lexicon._vectors import MORE_WORDS, embed_words, is_file, read_vectors
from gatedjax.text._options import TextOptions, options_to_json
from gatedjax.text.answers._leak import Sample, measure_leak, render_leak
from gatedjax.text.corpus import _corpus
from gatedjax.text.corpus._corpus import Corpus, Labels, Numbers, Rows
from gatedjax.text.corpus._shapes import is_unknown
from gatedjax.text.corpus._tagged import RULE, Scorer, find_usual_tags, read_tagged, render_score
from gatedjax.text.fit._learner import Data, Learner, Say
from gatedjax.text.fit._network_options import network_config, train_config
from gatedjax.text.fit._rivals import train_rival
from gatedjax.text.models import _buckets
from gatedjax.text.models._buckets import pool_windows, split_starts
from gatedjax.text.models._entries import Config, NetworkEntry, held_at, networks
from gatedjax.text.models._network import TrainedModel
from gatedjax.training import FitResult, StoppedBySignal, TrainConfig, fit, workdir


@contextlib.contextmanager
def work_folder(path: Path) -> Iterator[None]:
    """Reserves a folder; a folder that it created goes if training fails before a checkpoint."""
    created = []
    with contextlib.ExitStack() as stack:
        # The parents are created separately, so that a failed training removes exactly the folders
        # that it created.
        for place in reversed((path, *path.parents)):
            if not place.is_dir():
                place.mkdir(exist_ok=True)
                created.append(place)
                stack.callback(_remove_empty, place)
        if foreign := workdir.foreign_files(path):
            raise FileExistsError(
                f"{path} holds {', '.join(foreign[:5])} and no lock of a run, so no run "
                "wrote them: move them away, or use another workdir"
            )
        lock = workdir.WorkdirLock(path, workdir.TRAIN_LOCK)
        stack.callback(lock.release)
        # Another training may have removed the folder before the lock was acquired.
        lock.check()
        try:
            yield
        except BaseException:
            # After the first checkpoint the folder stays, so that the same command can continue. A
            # save that failed, as on a full disk, leaves the folder of the checkpoints empty.
            saved = any(step.name.isdigit() for step in (path / "checkpoints").glob("*"))
            if path in created and not saved:
                remove_work(path)
            raise


def remove_work(path: Path) -> str:
    """Removes the files of a run, and its empty folder; returns why it is not empty, or ""."""
    try:
        foreign = workdir.remove_run(path, (workdir.LOCK,))
    except workdir.WorkdirBusy as error:  # Another program calls `fit` with the folder.
        return str(error)
    return f"it holds {', '.join(foreign[:5])}, which no run wrote" if foreign else ""


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


_CHECKED = ("validation", "test")
# Factor of the random numbers in word vectors that start from log-ratios.
_NOISE = 0.1
Compared = Iterator[tuple[str, Json, float, str]]
"""For validation and test the name, the scores of a model, the accuracy of its baseline, a line."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """The texts for a purpose: training, validation or test."""

    texts: tuple[Rows, ...]
    labels: Labels
    owners: np.ndarray | None = None
    """int [n], the document of each text if the texts are windows of documents; else None."""

    def select(self, numbers: np.ndarray) -> "_Part":
        texts = tuple(rows.select(numbers) for rows in self.texts)
        labels = self.labels
        return _Part(texts, labels.select(numbers) if isinstance(labels, Rows) else labels[numbers])

    def split(self, longest: int) -> "_Part":
        rows = self.texts[0]
        starts, owners = split_starts(rows.starts, longest)
        if len(owners) == len(rows):
            return self
        # A text of several windows has the weight of several texts in training.
        return _Part((Rows(rows.flat, starts),), self.labels[owners], owners)

    def lengths(self) -> np.ndarray:
        return np.max([rows.lengths for rows in self.texts], axis=0)

    def __getitem__(self, number: int) -> _buckets.Ids:
        return tuple(np.asarray(rows[number]) for rows in self.texts)

    def batches(self, size: int, edges: Sequence[int], **options: Any) -> SequenceBatches:
        """Returns the batches of the texts, a sequence of dicts of padded arrays."""
        sequences: dict[str, Any] = dict(zip(_buckets.NAMES, self.texts, strict=False))
        labels: Any = self.labels
        tagged = isinstance(labels, Rows)
        return SequenceBatches(
            {**sequences, "labels": labels} if tagged else sequences,
            np.arange(len(self.labels)),
            lengths=dict(zip(_buckets.LENGTHS, sequences, strict=False)),
            columns=None if tagged else {"label": labels},
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


class NetworkLearner(Learner):
    """A network, which is trained step by step, with checkpoints in a folder."""

    def __init__(self, kind: str, options: TextOptions, folder: Path, *, progress: bool) -> None:
        super().__init__(kind, options)
        self._folder, self._progress = folder, progress
        self._numbers = Numbers(lowercase=options.lowercase)

    def read(self, name: str, table: Any, **options: Any) -> Corpus:
        if self.kind == "tags":
            # A tagger reads all of a long sentence, in windows.
            return read_tagged(table, self._numbers, longest=self.options.max_len, **options)
        if name != "train":
            return _corpus.read_corpus(table, self._numbers, **options)
        names = ("lowercase", "tokens", "tokenizer")
        rule = {name: getattr(self.options, name) for name in names}
        corpus, self._numbers = _corpus.read_training(table, **rule, **options)
        return corpus

    def describe(self, corpus: Corpus) -> list[str]:
        max_len = self.options.max_len
        lengths = np.stack([rows.lengths for rows in corpus.texts])
        long = int(np.sum(np.any(lengths > max_len, axis=0)))
        if self.kind == "tags" or not long:
            return []
        line = f"{long:,} of {len(corpus):,} texts are longer than {max_len:,} words (max_len)"
        if self.kind == "text":
            count = len(split_starts(corpus.texts[0].starts, max_len)[1])
            windows = f"windows of at most so many words, {count:,} windows in total"
            return [f"{line} and are read in {windows}"]
        share = np.sum(np.maximum(lengths - max_len, 0)) / np.sum(lengths)
        return [f"{line}, and {share:.1%} of all words are not read"]

    def fit(self, data: Data, say: Say) -> tuple[TrainedModel, int]:
        kind, options, numbers = self.kind, self.options, self._numbers
        corpus, entry = data.corpora["train"], networks(kind)[options.model]
        vocabulary, table_of_ids, vectors, coverage = self._read_words(corpus, data.validation)
        documents = _parts(data, table_of_ids, options.max_len if kind == "pair" else None)
        parts = documents
        if kind == "text":
            parts = {name: part.split(options.max_len) for name, part in documents.items()}
        say(f"words: {coverage}")
        train = parts["train"]
        width = entry.vectors if vectors is None else vectors.shape[1]
        # The hash lets the same command continue the run only with the same file of vectors.
        embeddings = None if vectors is None else hashlib.sha256(vectors.tobytes()).hexdigest()[:16]
        config = network_config(options, entry, width)
        vectors = _start(vectors, entry, config, vocabulary, train, len(corpus.classes))
        module = entry.make(
            config, words=len(vocabulary), classes=len(corpus.classes), vectors=vectors
        )
        longest = max(int(part.lengths().max()) for part in parts.values())
        # The widths fit all parts, so that an evaluation needs no further compiled program. Each
        # width costs a compilation, and a short training saves too little padding for it.
        count = len(train.labels)
        widths = plan_buckets(train.lengths(), 2 if count <= 5000 else 4)
        edges = (*widths[:-1], max(longest, widths[-1]))
        size = options.batch_size or (32 if count <= 10_000 else 64)
        batches = train.batches(size, edges, seed=options.seed)
        checked = parts["validation"].batches(_buckets.EVALUATED, edges, shuffle=False).eval()
        training = train_config(options, batches.steps_per_epoch)
        # The progress bar is no option of the model, because it does not change the result.
        training = dataclasses.replace(training, progress=self._progress)
        facts = {
            "model": options.model,
            "network": config,
            "texts": _corpus.digest_of(data.corpora),
            "vocabulary": vocabulary.digest(),
            # Settings that affect the training and are in neither the texts nor the network.
            "options": {
                "classes": list(corpus.classes),
                "max_len": options.max_len,
                "held_out": options.held_out if data.is_split else None,
                "batch_size": size,
                "seed": options.seed,
                "embeddings": embeddings,
            },
        }
        task, numbered = entry.task(module), for_schedule(batches, config)
        result = self._run(task, numbered, checked, training, facts)
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
        share = getattr(getattr(config, "gates", None), "density", None)
        if share is not None:
            # The threshold is set on the validation texts, because training has not seen them.
            outputs = _read_part(model, parts["validation"], edges)
            gates = np.concatenate([output.gates for _, output in outputs])
            params = held_at(model.params, gates, share)
            model = dataclasses.replace(model, params=params)
        model.report.update(steps=result.steps, best_step=result.best_step)
        if kind == "tags":
            compared = _compare_tags(model, parts, _parts(data), numbers, edges)
        else:
            compared = _compare_classes(model, parts, documents, edges)
        baseline: Json = {"kind": RULE} if kind == "tags" else {}
        model.report["baseline"] = baseline
        for name, ours, theirs, line in compared:
            model.report[name], baseline[name] = ours, theirs
            is_better = ours["accuracy"] >= theirs
            say(f"{name}: {line}{'' if is_better else ': THE BASELINE IS BETTER'}")
        if kind != "tags":
            last, sample = "test" if "test" in parts else "validation", Sample()
            for number in range(len(parts[last].labels)):
                sample.add(number)
            leak = measure_leak(model.run, [parts[last][i] for i in sample.texts()], _shapes(edges))
            if leak is not None:
                model.report[last]["leak"] = leak
                say(f"{last}: {render_leak(leak)}")
        return model, len(documents["train"].labels)

    def _read_words(
        self, corpus: Corpus, excluded: np.ndarray
    ) -> tuple[Vocabulary, np.ndarray, np.ndarray | None, str]:
        """Builds the vocabulary and reads the file of word vectors, if there is one."""
        options = self.options
        source = options.vectors
        extra_words: Iterable[str] = ()
        # Rare words, such as names, predict a class only by chance.
        few = (1, 2, 5, 10)[np.searchsorted((1000, 5000, 20_000), len(corpus))]
        rare, width = 2 if self.kind == "tags" else few, 0
        if source is not None:
            rare = 1
            if is_file(source):
                width, extra_words = words_in(source, MORE_WORDS)
        vocabulary, ids = _corpus.build_vocabulary(
            corpus,
            excluded,
            self._numbers,
            min_count=options.min_count or int(rare),
            max_words=options.max_words,
            extra_words=extra_words,
            make=networks(self.kind)[options.model].vocabulary,
        )
        unknown = is_unknown(vocabulary)
        covered = np.mean([np.mean(~unknown[ids[rows.flat]]) for rows in corpus.texts])
        share = f"{np.sum(~unknown) - 1:,}, they cover {covered:.1%} of the texts"
        if source is None:
            return vocabulary, ids, None, share
        if is_file(source):
            vectors = load_embeddings(source, vocabulary, dim=width)
        else:
            vectors = embed_words(read_vectors(source, ()), vocabulary)
        trained = ids[ids > UNK]
        with_vector = float(vectors.found[trained].mean()) if len(trained) else 0.0
        # Vectors of another language or case would otherwise train a network on random vectors.
        if not with_vector:
            raise ValueError(
                f"{source} must have a vector for at least one word of {corpus.name}, got none: "
                "give vectors of the same language, and of words with capitals if lowercase is "
                "False"
            )
        share += f"; {with_vector:.1%} of theirs have a vector in {source}"
        return vocabulary, ids, vectors.matrix, share

    def _run(
        self,
        task: Any,
        train: SequenceBatches,
        validation: SequenceBatches,
        config: TrainConfig,
        facts: Mapping[str, object],
    ) -> FitResult:
        """Trains the network; `minutes` includes earlier parts of the run, and no compilation."""
        clock, minutes = self._folder / "seconds", self.options.minutes
        seconds = float(clock.read_text()) if clock.exists() else 0.0
        # None before the first event, because the checks before the first step trace the network,
        # which is a part of compilation.
        last: float | None = None

        def hook(event: str, step: int, state: Any, metrics: Mapping[str, Any]) -> bool:
            nonlocal seconds, last
            now = time.monotonic()
            if last is not None and event != "compiled":
                seconds += now - last
            last = now
            # The time is written with each checkpoint: a continued run repeats the steps after it.
            if event == "save":
                write_atomic(clock, f"{seconds:.3f}".encode())
            return minutes is not None and seconds >= 60 * minutes

        # `fit` handles the signals, and a second SIGTERM must end a process that compiles.
        with default_sigterm():
            result = fit(task, train, validation, config, self._folder, settings=facts, hook=hook)
        # A signal must also stop the steps after the training.
        if result.signal is not None:
            raise StoppedBySignal([result])
        return result


def _start(
    vectors: np.ndarray | None,
    entry: NetworkEntry,
    config: Config,
    vocabulary: Vocabulary,
    train: _Part,
    classes: int,
) -> np.ndarray:
    """Returns the initial word vectors [V, D]: from a file, or random, perhaps with log-ratios."""
    width = getattr(config, "embedding_dim", None) or config.hidden
    if vectors is None:
        vectors = random_embeddings(vocabulary, width)
        if entry.starts_from_counts:
            # The random numbers are scaled down, because they would hide the log-ratios.
            vectors *= _NOISE
            ratios = _corpus.log_ratios(train.texts, train.labels, len(vocabulary), classes)
            # There may be more classes than numbers in a vector.
            used = min(classes, width)
            vectors[:, :used] = ratios[:, :used]
    elif vectors.shape[1] != width:
        raise ValueError(
            f"the width of the word vectors in network must be {vectors.shape[1]}, that of the "
            f"vectors in the file, got {width}: leave it out"
        )
    std = entry.vector_std
    return vectors if std is None else vectors * np.float32(std / vectors.std())


def _parts(
    data: Data, ids: np.ndarray | None = None, max_len: int | None = None
) -> dict[str, _Part]:
    """Returns the texts by purpose: "train", "validation" and, if given, "test"."""
    parts = {}
    for name, corpus in data.corpora.items():
        texts = corpus.texts
        if ids is not None:
            texts = tuple(rows.renumber(ids) for rows in texts)
        if max_len is not None:
            texts = tuple(rows.cut(max_len) for rows in texts)
        parts[name] = _Part(texts, corpus.labels)
    return data.split(parts)


def _render_time_up(minutes: float, steps: int, planned: int, epoch: int) -> str:
    text = f"the time is up ({minutes:g} minutes) after {steps:,} of {planned:,} steps"
    if steps < epoch:
        text += (
            f": the model has read {steps / epoch:.0%} of the training texts and has hardly "
            "learned; give more minutes"
        )
    return text


def _compare_classes(
    model: TrainedModel,
    parts: Mapping[str, _Part],
    documents: Mapping[str, _Part],
    edges: Sequence[int],
) -> Compared:
    train = documents["train"]
    is_class = np.eye(len(model.classes), dtype=bool)[train.labels]
    size = sum(len(rows.flat) for rows in train.texts)
    # The baseline reads the same words as the network, so that the comparison is fair.
    rival = train_rival(train.words(model.vocabulary), is_class, size=size)
    for name in filter(parts.__contains__, _CHECKED):
        part, labels = parts[name], cast(np.ndarray, documents[name].labels)
        probabilities = np.zeros((len(part.labels), len(model.classes)), np.float32)
        sizes, shares = np.zeros((2, len(part.labels)))
        for place, output in _read_part(model, part, edges):
            probabilities[place], shares[place] = output.probabilities, output.share
            sizes[place] = sum(map(len, output.tokens))
        if part.owners is not None:
            probabilities = pool_windows(probabilities, part.owners, part.lengths(), len(labels))
        share = float(np.average(shares, weights=sizes))
        ours = model.target.measure(labels, Readings.of_outputs(probabilities, probabilities))
        linear = rival(documents[name].words(model.vocabulary))
        theirs = float(np.mean(linear.argmax(axis=1) == labels))
        line = (
            f"accuracy {ours['accuracy']:.4f}, macro F1 {ours['macro_f1']:.4f}, share {share:.3f}; "
            f"logistic regression on words {theirs:.4f}"
        )
        yield name, {**ours, "share": share}, theirs, line


def _compare_tags(
    model: TrainedModel,
    parts: Mapping[str, _Part],
    numbered: Mapping[str, _Part],
    numbers: Numbers,
    edges: Sequence[int],
) -> Compared:
    """Compares with a rule that reads `numbered`, without unknown words in training."""
    is_not_known, train = is_unknown(model.vocabulary), numbered["train"]
    tags, sure = cast(Rows, train.labels), np.eye(len(model.classes))
    usual = find_usual_tags(train.texts[0], tags, len(numbers.ids), len(sure))
    for name in filter(parts.__contains__, _CHECKED):
        of_rule, of_model = Scorer(model.classes), Scorer(model.classes)
        words, labels = parts[name].texts[0], parts[name].labels
        for ids, row in zip(numbered[name].texts[0], labels, strict=True):
            of_rule.add(row, sure[usual[ids]], np.zeros(len(ids), bool))
        for place, output in _read_part(model, parts[name], edges):
            ids = words[place]
            of_model.add(labels[place], output.probabilities[: len(ids)], is_not_known[ids])
        ours, theirs = of_model.metrics(), of_rule.metrics()
        line = f"word accuracy {render_score(ours)}; {RULE} {render_score(theirs)}"
        yield name, ours, theirs["accuracy"], line


def _shapes(edges: Sequence[int]) -> Callable[[int], _buckets.Shape]:
    return lambda length: (_buckets.EVALUATED, edges[int(np.searchsorted(edges, length))])


def _read_part(
    model: TrainedModel, part: _Part, edges: Sequence[int]
) -> Iterator[tuple[int, _buckets.TextOutput]]:
    """Returns an iterator over the position and the output of each text."""
    batches = _buckets.make_batches(part, part.lengths().tolist(), _shapes(edges))
    return _buckets.stream_batches(model.run, part, batches)
