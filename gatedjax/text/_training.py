"""From labelled texts to a trained model."""

import dataclasses
import difflib
import functools
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_type_hints

import numpy as np

from gatedjax._utils.groups import as_dict, grouped_paths
from gatedjax._utils.limits import (
    MOST_BATCH,
    MOST_LENGTH,
    MOST_SEED,
    MOST_STEPS,
    MOST_WORDS,
    check_most,
)
from gatedjax._utils.numbers import make_plain
from gatedjax._utils.types import Json
from gatedjax._utils.write import write_atomic
from gatedjax.data import SequenceBatches, load_embeddings, plan_buckets, random_embeddings
from gatedjax.data.batches._sequences import real_rows
from gatedjax.data.batches._steps import for_schedule
from gatedjax.data.text._embeddings import words_in
from gatedjax.data.text._vocabulary import UNK, Vocabulary
from gatedjax.text import _corpus
from gatedjax.text._asides import check_share
from gatedjax.text._baseline import LinearBaseline
from gatedjax.text._corpus import Corpus, Labels, Numbers, Rows
from gatedjax.text._leak import Sample, measure_leak, render_leak
from gatedjax.text._metrics import classification_metrics
from gatedjax.text._model import LENGTHS, NAMES, TrainedModel, check_inputs, networks
from gatedjax.text._networks import Config, Network, held_at
from gatedjax.text._read import Columns, Table
from gatedjax.text._shapes import strange
from gatedjax.text._tagged import (
    RULE,
    Sentences,
    TagRule,
    model_metrics,
    read_tagged,
    rule_metrics,
    said,
)
from gatedjax.text._tags import SentenceTable
from gatedjax.training import CheckpointStore, FitResult, OptimizerConfig, TrainConfig, fit
from gatedjax.training.checkpoint import DAMAGED

Say = Callable[[str], None]
Data = Table | SentenceTable
_LARGEST_HELD = 20_000
_MORE_WORDS = 50_000
_NOISE = 0.1
_FEWEST_STEPS = 400
# texts of a batch that is evaluated
_EVALUATED = 128
OPTIONS = "options"
"""Name, in the metadata of checkpoints, of the options that change the data or the network and
that neither the texts nor the network's configuration tell."""
_MOST = {
    "max_len": MOST_LENGTH,
    "min_count": MOST_WORDS,
    "max_words": MOST_WORDS,
    "num_steps": MOST_STEPS,
    "batch_size": MOST_BATCH,
    "seed": MOST_SEED,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a model is made. Every default is meant to be kept.

    Attributes:
      model: name of the network.
      embeddings: GloVe text file (plain or .gz); None starts from the counts of words in classes.
      minutes: train for at most so long; None has no limit.
      num_steps: train for at most so many steps; None is some twenty epochs.
      density: share of the words to keep (ganet); None keeps what the network says, a half.
      max_len: words of a text that are used; a tagger learns a longer sentence in pieces.
      min_count: words that occur less often are unknown; None is 2 (1 for 1,000 texts and fewer, 5
        above 5,000, 10 above 20,000; with `embeddings` 1; of tagged sentences 2).
      max_words: words that are known at most.
      lowercase: fold case.
      held_out: share of the training texts that is kept for choosing the best parameters, of
        20,000 texts at most.
      batch_size: texts of a step; None is 32, or 64 above 10,000 texts.
      seed: of parameters, dropout, gates and order.
      network: options of the network by name, as {"hidden": 128}.
      training: options of `TrainConfig` by dotted name, as {"optimizer.learning_rate": 3e-4}.
    """

    model: str = "ganet"
    embeddings: str | Path | None = None
    minutes: float | None = None
    num_steps: int | None = None
    density: float | None = None
    max_len: int = 400
    min_count: int | None = None
    max_words: int = 100_000
    lowercase: bool = True
    held_out: float = 0.1
    batch_size: int | None = None
    seed: int = 0
    network: Mapping[str, object] | None = None
    training: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        """Makes numbers of NumPy Python's."""
        make_plain(self)

    def check(self, kind: str) -> None:
        """Refuses what no training could use, before a file is read."""
        known = networks(kind)
        if self.model not in known:
            near = difflib.get_close_matches(str(self.model), known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"model must be one of {', '.join(known)}, got {self.model!r}.{hint}")
        for name in ("max_len", "max_words"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("num_steps", "min_count", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
        for name, most in _MOST.items():
            if getattr(self, name) is not None:
                check_most(name, getattr(self, name), most)
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ValueError(f"minutes must be positive, got {self.minutes}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1, got {self.held_out}")
        entry = known[self.model]
        if self.density is not None:
            if not entry.gated:
                raise ValueError(
                    f"density needs model='ganet', got {self.model!r}: it has no gates"
                )
            if not 0 < self.density < 1:
                raise ValueError(f"density must be between 0 and 1, got {self.density}")
        self.configured(entry, entry.vectors)
        self.trained(1)

    def configured(self, entry: Network, width: int) -> Config:
        """The network's configuration for word vectors of this width."""
        usual = {} if self.embeddings is None else dict(entry.with_vectors)
        if self.density is not None:
            usual["gates.density"] = self.density
        config = entry.width(entry.config, width)
        return _changed(config, {**usual, **(self.network or {})}, "network")

    def trained(self, epoch: int) -> TrainConfig:
        """How to train where an epoch has so many steps."""
        every = min(max(epoch // 2, 20), 2000)
        default = TrainConfig(
            num_steps=max(20 * epoch, _FEWEST_STEPS),
            log_every=max(every // 2, 1),
            eval_every=every,
            checkpoint_every=2 * every,
            early_stop_patience=6,
            best_metric="loss",
            best_mode="min",
            seed=self.seed,
            optimizer=OptimizerConfig(
                learning_rate=1e-3 if self.embeddings is None else 2e-3, clip_norm=5.0
            ),
        )
        if self.num_steps is not None:
            default = dataclasses.replace(default, num_steps=self.num_steps)
        config: TrainConfig = _changed(default, self.training or {}, "training")
        if config.seeds > 1 or config.sweep:
            raise ValueError("training: a model is one seed; train it again with another `seed`")
        planned = self.num_steps is not None or "num_steps" in (self.training or {})
        ends = config.optimizer.schedule not in ("constant", "rsqrt", "staircase")
        if self.minutes and not planned and ends:
            raise ValueError(
                f"minutes needs a schedule without an end, got {config.optimizer.schedule!r}: "
                "give num_steps"
            )
        return config


def _changed(config: Config, changes: Mapping[str, object], what: str) -> Config:
    """A configuration with some options, by dotted name, changed."""
    values: Json = {}
    parts: dict[str, Json] = {}
    fields, paths = get_type_hints(type(config)), grouped_paths(type(config))
    for name, value in changes.items():
        first, _, rest = paths.get(name, name).partition(".")
        if first not in fields:
            near = difflib.get_close_matches(first, [*fields, *paths], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{what}: there is no option {name!r}.{hint}")
        if rest:
            parts.setdefault(first, {})[rest] = value
        elif isinstance(getattr(config, first), tuple) and isinstance(value, list):
            values[first] = tuple(value)
        else:
            values[first] = value
    # at once: some options have to agree with others
    for name, inner in parts.items():
        values[name] = _changed(values.get(name, getattr(config, name)), inner, what)
    return dataclasses.replace(config, **values)


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """Texts for one purpose."""

    texts: tuple[Sequence[np.ndarray], ...]
    labels: Labels

    def lengths(self) -> np.ndarray:
        return np.max([[len(row) for row in rows] for rows in self.texts], axis=0)

    def batches(self, size: int, edges: Sequence[int], **options: Any) -> SequenceBatches:
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
        """The known words of every text; those of a second text are told apart."""
        names = vocabulary.words
        for row in zip(*self.texts, strict=True):
            words = [names[i] for i in row[0]]
            for ids in row[1:]:
                words += [f"2:{names[i]}" for i in ids]
            yield words


def train_model(
    kind: str,
    table: Data,
    options: Options,
    folder: Path,
    *,
    validation: Data | None = None,
    test: Data | None = None,
    say: Say = lambda line: None,
    progress: bool = False,
    max_aside: float = 1.0,
) -> TrainedModel:
    """Trains a classifier or a tagger; continues where a run in the folder ended.

    Args:
      kind: "text", "pair" or "tags".
      table: labelled texts, or tagged sentences.
      options: how.
      folder: where the run keeps its files; its checkpoints are continued with the same bits.
      validation: chooses the best parameters; None holds out a part of `table`.
      test: is only reported on.
      say: is told what is read and made, a line at a time.
      progress: whether training shows its bar.
      max_aside: the largest share of the lines of a source that may be set aside.

    Raises:
      ValueError: for data or options that no model can be made of.
      StoppedBySignal: after Ctrl-C or SIGTERM; the run is saved.
    """
    options.check(kind)
    check_share(max_aside)
    for given in (table, validation, test):
        if isinstance(given, Table):
            check_inputs(given.columns, kind)
    entry = networks(kind)[options.model]
    numbers = Numbers(lowercase=options.lowercase)
    read: Any = functools.partial(_corpus.read_corpus, max_aside=max_aside)
    if kind == "tags":
        read = functools.partial(read_tagged, longest=options.max_len, max_aside=max_aside)
    corpora: dict[str, Corpus] = {"train": read(table, folder, "train", numbers)}
    corpus = corpora["train"]
    _corpus.check_trainable(corpus, split=validation is None)
    for name, other in (("validation", validation), ("test", test)):
        if other is not None:
            corpora[name] = read(other, folder, name, numbers, classes=corpus.classes)
    everything = np.arange(len(corpus))
    kept, held = everything, everything[:0]
    if validation is None:
        share = min(options.held_out, _LARGEST_HELD / len(corpus))
        kept, held = _corpus.held_out(corpus.labels, share)
    vocabulary, table_of_ids, vectors, coverage = _words(kind, corpus, held, numbers, options)
    for one in corpora.values():
        _say_read(one, say)
        if kind != "tags":  # long sentences are tagged in windows
            _say_cut(one, options.max_len, say)
    parts = _parts(corpora, kept, held, table_of_ids, options.max_len)
    sizes = ", ".join(f"{len(part.labels):,} for {name}" for name, part in parts.items())
    way = "always the same" if kind == "tags" else "in proportion to the classes, always the same"
    split = "" if validation is not None else f" ({way})"
    say(f"split: {sizes}{split}")
    say(f"words: {coverage}")

    train = parts["train"]
    width = entry.vectors if vectors is None else vectors.shape[1]
    embeddings = None if vectors is None else hashlib.sha256(vectors.tobytes()).hexdigest()[:16]
    config = options.configured(entry, width)
    vectors = _start(vectors, entry, config, vocabulary, train, len(corpus.classes))
    module = entry.make(config, words=len(vocabulary), classes=len(corpus.classes), vectors=vectors)
    lengths = train.lengths()
    buckets = 2 if len(lengths) <= 5000 else 4
    longest = max(int(part.lengths().max()) for part in parts.values())
    planned = plan_buckets(lengths, buckets)
    edges = (*planned[:-1], max(longest, planned[-1]))
    size = options.batch_size or (32 if len(lengths) <= 10_000 else 64)
    batches = train.batches(size, edges, seed=options.seed)
    checked = parts["validation"].batches(_EVALUATED, edges, shuffle=False).eval()
    training = options.trained(batches.steps_per_epoch)
    training = dataclasses.replace(training, progress=progress)
    facts = {
        "model": options.model,
        "network": as_dict(config),
        "texts": _corpus.digest_of(corpora),
        "vocabulary": vocabulary.digest(),
        OPTIONS: {
            "classes": list(corpus.classes),
            "max_len": options.max_len,
            "held_out": options.held_out if validation is None else None,
            "batch_size": size,
            "seed": options.seed,
            "embeddings": embeddings,
        },
    }
    if not _knows_options(folder):
        del facts[OPTIONS]
    numbered = for_schedule(batches, config)
    result = _fit(entry.task(module), numbered, checked, training, folder, facts, options.minutes)
    model = TrainedModel(
        kind=kind,
        network=options.model,
        config=config,
        vocabulary=vocabulary,
        classes=corpus.classes,
        params=result.best_params,
        max_len=options.max_len,
    )
    if getattr(config, "density", None) is not None:
        _, read = _probabilities(model, parts["validation"], edges)
        model = dataclasses.replace(
            model, params=held_at(model.params, read["gates"], config.density)
        )
    report: Json = {"steps": result.steps, "best_step": result.best_step}
    if kind == "tags":
        report |= _report_tags(model, parts, _parts(corpora, kept, held), numbers, edges, say)
    else:
        report |= _report(model, parts, edges, say)
    report["data"] = {
        name: {"n": len(part.labels), "aside": corpora[name].aside if name in corpora else 0}
        for name, part in parts.items()
    }
    return dataclasses.replace(model, report=report)


def _knows_options(folder: Path) -> bool:
    """Returns False for the run of an older version, whose checkpoints do not have `OPTIONS`."""
    store = CheckpointStore(folder / "checkpoints")
    latest = store.latest()
    if latest is None:
        return True
    try:
        return OPTIONS in store.record(latest)["metadata"]
    except DAMAGED:  # `fit` reports it
        return True


def _say_read(corpus: Corpus, say: Say) -> None:
    counts = sorted(corpus.class_counts.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{label} {count:,}" for label, count in counts[:10])
    more = f", and {len(counts) - 10} more" if len(counts) > 10 else ""
    say(f"{corpus.name}: {corpus}: {shown}{more}")
    if corpus.aside:
        say(f"{corpus.aside:,} lines set aside, as {'; '.join(map(str, corpus.first_aside))}")


def _say_cut(corpus: Corpus, max_len: int, say: Say) -> None:
    lengths = np.stack([np.diff(rows.starts) for rows in corpus.texts])
    beyond = np.maximum(lengths - max_len, 0)
    cut = int(np.sum(np.any(beyond > 0, axis=0)))
    if cut:
        say(
            f"{cut:,} of {len(corpus):,} texts are longer than {max_len:,} words (max_len), and "
            f"{np.sum(beyond) / np.sum(lengths):.1%} of all words are not read"
        )


def _rare(texts: int, tagged: bool) -> int:
    """How often a word must occur: names that stand for a class by chance are learned by heart."""
    if tagged or texts <= 5000:
        return 2 if tagged or texts > 1000 else 1
    return 5 if texts <= 20_000 else 10


def _words(
    kind: str, corpus: Corpus, held: np.ndarray, numbers: Numbers, options: Options
) -> tuple[Vocabulary, np.ndarray, np.ndarray | None, str]:
    """(vocabulary, id of every number, vectors of a file, what is to be said of them)."""
    min_count = options.min_count or _rare(len(corpus), corpus.tagged)
    path = None if options.embeddings is None else Path(options.embeddings).expanduser()
    more: Iterable[str] = ()
    width = 0
    if path is not None:
        width, words = words_in(path, _MORE_WORDS)
        min_count, more = options.min_count or 1, words
    vocabulary, ids = _corpus.build_vocabulary(
        corpus,
        held,
        numbers,
        min_count=min_count,
        max_words=options.max_words,
        more=more,
        make=networks(kind)[options.model].vocabulary,
    )
    unknown = strange(vocabulary)
    known = np.mean([float(np.mean(~unknown[ids[p]])) for r in corpus.texts for p in r.pieces()])
    share = f"{np.sum(~unknown) - 1:,}, they cover {known:.1%} of the texts"
    if path is None:
        return vocabulary, ids, None, share
    vectors = load_embeddings(path, vocabulary, dim=width)
    trained = ids[ids > UNK]
    found = float(vectors.found[trained].mean()) if len(trained) else 0.0
    if not found:
        raise ValueError(f"{path} has a vector for none of the words of {corpus.name}")
    return (
        vocabulary,
        ids,
        vectors.matrix,
        f"{share}; {found:.1%} of theirs have a vector in {path}",
    )


def _parts(
    corpora: Mapping[str, Corpus],
    kept: np.ndarray,
    held: np.ndarray,
    ids: np.ndarray | None = None,
    max_len: int | None = None,
) -> dict[str, _Part]:
    """Texts by purpose, with the ids that a table gives; those held out are for validation."""
    parts = {
        name: _Part(tuple(rows.numbered(ids, max_len) for rows in one.texts), one.labels)
        for name, one in corpora.items()
    }
    if len(held):
        whole = parts["train"]
        parts |= {"train": _chosen(whole, kept), "validation": _chosen(whole, held)}
    return parts


def _chosen(part: _Part, numbers: np.ndarray) -> _Part:
    texts = tuple(rows.taken(numbers) for rows in part.texts if isinstance(rows, Rows))
    labels = part.labels
    return _Part(texts, labels.taken(numbers) if isinstance(labels, Rows) else labels[numbers])


def _start(
    vectors: np.ndarray | None,
    entry: Network,
    config: Config,
    vocabulary: Vocabulary,
    train: _Part,
    classes: int,
) -> np.ndarray | None:
    """Word vectors to start from: a file's, or random ones that begin with counts of classes."""
    width = getattr(config, "embedding_dim", None) or config.hidden
    if vectors is not None:
        if vectors.shape[1] != width:
            raise ValueError(
                f"network: the word vectors of the file have {vectors.shape[1]} numbers, got a "
                f"width of {width}"
            )
        return _scaled(vectors, entry.vector_std)
    made = random_embeddings(vocabulary, width)
    if entry.starts_from_counts:
        # small beside the counts, which a hundred random numbers would drown
        made *= _NOISE
        ratios = _corpus.log_ratios(train.texts, train.labels, len(vocabulary), classes)
        used = min(classes, width)
        made[:, :used] = ratios[:, :used]
    return _scaled(made, entry.vector_std)


def _scaled(vectors: np.ndarray, std: float | None) -> np.ndarray:
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
    """Trains; a time limit counts what earlier parts of the same run have used."""
    clock = folder / "seconds"
    used = _read_seconds(clock)
    began = time.monotonic()

    def seconds() -> float:
        return used + time.monotonic() - began

    def on_event(event: str, step: int) -> None:
        if event == "save":
            write_atomic(clock, f"{seconds():.3f}".encode())

    return fit(
        task,
        train,
        validation,
        config,
        folder,
        metadata=dict(facts),
        on_event=on_event,
        raise_on_signal=True,
        stop_when=None if minutes is None else lambda step: seconds() >= 60 * minutes,
    )


def _read_seconds(clock: Path) -> float:
    """Reads how long earlier parts of a run took; a damaged file does not keep it from going on."""
    try:
        used = float(clock.read_text())
    except (OSError, ValueError):
        return 0.0
    return used if 0 <= used < math.inf else 0.0


def _report(
    model: TrainedModel, parts: Mapping[str, _Part], edges: Sequence[int], say: Say
) -> Json:
    """What is known of the model's quality, beside a linear baseline's on the same texts."""
    train = parts["train"]
    baseline = LinearBaseline().fit(train.words(model.vocabulary), train.labels, len(model.classes))
    report: Json = {"baseline": {"kind": baseline.kind}}
    for name in ("validation", "test"):
        if name not in parts:
            continue
        part = parts[name]
        probabilities, read = _probabilities(model, part, edges)
        density = float(np.sum(read["kept"]) / np.sum(read["words"]))
        ours = classification_metrics(part.labels, probabilities, model.classes)
        linear = baseline.probabilities(part.words(model.vocabulary))
        theirs = float(np.mean(linear.argmax(axis=1) == part.labels))
        report[name] = {**ours, "density": density}
        report["baseline"][name] = theirs
        accuracy = ours["accuracy"]
        better = "" if accuracy >= theirs else ": THE BASELINE IS BETTER"
        say(
            f"{name}: accuracy {accuracy:.4f}, macro F1 {ours['macro_f1']:.4f}, density "
            f"{density:.3f}; linear baseline (words and bigrams) {theirs:.4f}{better}"
        )
    checked = "test" if "test" in parts else "validation"
    leak = _leak(model, parts[checked], edges)
    if leak is not None:
        report[checked]["leak"] = leak
        say(f"{checked}: {render_leak(leak)}")
    return report


def _leak(model: TrainedModel, part: _Part, edges: Sequence[int]) -> Json | None:
    """Measures the leak on some of the texts, in batches of the shapes of `_outputs`."""
    sample = Sample()
    for number in range(len(part.labels)):
        sample.add(number)
    texts = [tuple(np.asarray(rows[i]) for rows in part.texts) for i in sample.texts()]
    shape_of = lambda length: (_EVALUATED, edges[int(np.searchsorted(edges, length))])  # noqa: E731
    return measure_leak(model.run, texts, shape_of)


def _probabilities(
    model: TrainedModel, part: _Part, edges: Sequence[int]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(float32 [n, C], kept and all words of texts, gates of words) of texts that are numbers."""
    found = np.zeros((len(part.labels), len(model.classes)), np.float32)
    rest: dict[str, list[np.ndarray]] = {"kept": [], "words": [], "gates": []}
    for batch, out in _outputs(model, part, edges):
        real = batch["weight"] > 0
        found[batch["example_id"][real]] = out["probabilities"][real]
        words = np.sum([batch[name] for name in LENGTHS if name in batch], axis=0)
        rest["words"].append(words[real])
        rest["kept"].append((out["density"] * words)[real])
        if "gates" in out:
            real_words = np.arange(out["gates"].shape[1]) < batch[LENGTHS[0]][:, None]
            rest["gates"].append(out["gates"][real_words])
    return found, {name: np.concatenate(parts) for name, parts in rest.items() if parts}


def _outputs(
    model: TrainedModel, part: _Part, edges: Sequence[int]
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Yields (a batch of the texts, what the network says of it)."""
    for batch in part.batches(_EVALUATED, edges, shuffle=False).eval():
        inputs = {name: batch[name] for name in (*NAMES, *LENGTHS) if name in batch}
        # filler rows have no word; a length of one keeps them finite
        out = model.run({k: np.maximum(v, 1) if k in LENGTHS else v for k, v in inputs.items()})
        yield batch, out


def _report_tags(
    model: TrainedModel,
    parts: Mapping[str, _Part],
    numbered: Mapping[str, _Part],
    numbers: Numbers,
    edges: Sequence[int],
    say: Say,
) -> Json:
    """See `_report`; the baseline knows every word of the training texts (`numbered`)."""
    classes = model.classes
    rule = TagRule(_sentences(numbered["train"]), len(numbers.ids), len(classes))
    report: Json = {"baseline": {"kind": RULE}}
    for name in ("validation", "test"):
        if name not in parts:
            continue
        theirs = rule_metrics(rule, _sentences(numbered[name]), classes)
        read = (
            (number, out["probabilities"][row])
            for batch, out in _outputs(model, parts[name], edges)
            for row, number in real_rows(batch)
        )
        ours = model_metrics(read, _sentences(parts[name]), classes, strange(model.vocabulary))
        report[name] = ours
        report["baseline"][name] = theirs["accuracy"]
        better = "" if ours["accuracy"] >= theirs["accuracy"] else ": THE BASELINE IS BETTER"
        say(f"{name}: word accuracy {said(ours)}; {RULE} {said(theirs)}{better}")
    return report


def _sentences(part: _Part) -> Sentences:
    return Sentences(part.texts[0], cast(Sequence[np.ndarray], part.labels))


COLUMNS = {"text": Columns(("text",)), "pair": Columns(("premise", "hypothesis"))}
"""What is read for each kind."""
