"""Texts as the trainer needs them: word vectors, and batches in common length buckets."""

import dataclasses
import functools
import gzip
import hashlib
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from experiments.core.kinds import Config, Fields, Json, Records
from experiments.core.origins import joined
from gatedjax import data as gdata
from gatedjax._utils.terminal import say
from gatedjax.text._folders import CLASSES, VOCABULARY
from gatedjax.training import CheckpointStore
from gatedjax.training.distributed import is_main
from gatedjax.training.log import write_json

Network = TypeVar("Network")


def find_embeddings(name: str, manual_dir: str | None) -> Path | None:
    """Returns the file of word vectors: as given, or below manual_dir; None for "none"."""
    if name == "none":
        return None
    if not name:
        raise ValueError('the file of word vectors has no name; "none" stands for no file')
    path = Path(name).expanduser()
    if not path.exists() and manual_dir is not None and not path.is_absolute():
        for folder in (Path(manual_dir), Path(manual_dir) / "glove"):
            for found in (path.name, f"{path.name}.gz"):
                if (folder / found).exists():
                    return folder / found
    return path


def width_of(path: Path) -> int | None:
    """How many numbers the first line of a file of word vectors has; None if it has none."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return file.readline(1 << 20).rstrip(b"\r\n ").count(b" ") or None
    except (OSError, EOFError, zlib.error):
        return None  # the loader says what is wrong with it


def check_embeddings(path: Path | None, dim: int) -> None:
    """Refuses a missing or empty file before the slow part; the loader owns the messages."""
    if path is not None and not (path.is_file() and path.stat().st_size):
        gdata.load_embeddings(path, gdata.Vocabulary.build([]), dim=dim)


def read_embeddings(
    path: Path, vocabulary: gdata.Vocabulary, *, dim: int, **options: Any
) -> gdata.Embeddings:
    """As `gatedjax.data.load_embeddings`; prints how many of the words have a vector.

    Raises:
      ValueError: as there; and if no word has a vector, as in a file of another language.
    """
    vectors = gdata.load_embeddings(path, vocabulary, dim=dim, **options)
    found, words = int(vectors.found[2:].sum()), len(vocabulary) - 2
    if not found:
        raise ValueError(f"{path} has a vector for none of the {words:,} words of the texts")
    if is_main():
        say(
            f"word vectors: {found:,} of {words:,} words ({vectors.coverage:.1%}) are in {path}",
            file=sys.stderr,
        )
    return vectors


SPLITS = ("train", "validation", "test")


class Split(Protocol):
    """Examples of a split, looked up."""

    @property
    def info(self) -> gdata.SourceInfo:
        """Name and classes."""


E = TypeVar("E", bound=Split)


@dataclasses.dataclass(frozen=True, eq=False)
class Texts(Generic[E]):
    """A data set of texts or questions as the trainer needs it."""

    splits: dict[str, E]
    """By name; each may have texts of its own kind."""
    vocabulary: gdata.Vocabulary
    embeddings: np.ndarray | None = None
    """Word vectors to start from; None leaves them to the network."""
    coverage: float | None = None
    """Share of the vocabulary with a pretrained vector; None without a file."""

    @property
    def info(self) -> gdata.SourceInfo:
        """Name and classes, of the test split."""
        return self.splits["test"].info

    @property
    def substitute(self) -> str | None:
        """What differs from the official data in any split; None if nothing does."""
        return joined(split.info.substitute for split in self.splits.values())

    def facts(self) -> Json:
        """What a record says of the words."""
        return {"vocabulary_size": len(self.vocabulary), "embedding_coverage": self.coverage}

    def classifier(self, kind: Callable[..., Network], config: Config) -> Network:
        """A network for the words, the classes and the word vectors."""
        return kind(
            config,
            vocab_size=len(self.vocabulary),
            num_classes=len(self.info.class_names),
            embeddings=self.embeddings,
        )


def load_splits(name: str, files: Any, splits: Sequence[str] = SPLITS) -> Json:
    """The splits of a data set by name; `files` has data_dir and manual_dir."""
    folders = {"data_dir": files.data_dir, "manual_dir": files.manual_dir}
    return {split: gdata.load(name, split, **folders) for split in splits}


def read_texts(
    name: str | Sequence[str],
    files: Any,
    dim: int | None = None,
    *,
    words: Literal["training", "with vectors"] = "with vectors",
    random: bool = True,
    vocabulary: Fields | None = None,
    encode: Fields | None = None,
    load: Fields | None = None,
) -> Texts[gdata.Encoded]:
    """Loads, counts and encodes the splits, and reads the word vectors.

    The vocabulary is that of the training text. With a file of word vectors the words of the other
    splits may join it: their vectors are constants of the file, as they would be for any new text.
    The texts of the last call are kept, so that consecutive runs share them.

    Args:
      name: of the data set, or of the data set of every split.
      files: has data_dir and manual_dir, and embeddings, a file or "none", if `dim` is given.
      dim: width of the word vectors; None has none.
      words: whether the words of the other splits that may have a vector join the vocabulary.
      random: draw the word vectors without a file; else there are none.
      vocabulary: options of `gatedjax.data.Vocabulary.build`.
      encode: options of `gatedjax.data.encode`.
      load: options of `gatedjax.data.load`.
    """
    names = (name,) * len(SPLITS) if isinstance(name, str) else tuple(name)
    folders = {"data_dir": files.data_dir, "manual_dir": files.manual_dir}
    embeddings = "none" if dim is None else files.embeddings
    parts = (
        tuple(sorted((part or {}).items()))
        for part in (vocabulary, encode, {**(load or {}), **folders})
    )
    everywhere = words == "with vectors"
    return _read_texts(names, embeddings, dim, random, everywhere, *parts)


Options = tuple[tuple[str, Any], ...]


@functools.lru_cache(maxsize=1)
def _read_texts(
    names: tuple[str, ...],
    embeddings: str,
    dim: int | None,
    random: bool,
    everywhere: bool,
    *options: Options,
) -> Texts[gdata.Encoded]:
    counting, encoding, loading = map(dict, options)
    path = find_embeddings(embeddings, loading["manual_dir"])
    if path is not None and dim is not None:
        check_embeddings(path, dim)
    sources = {
        split: gdata.load(name, split, **loading) for split, name in zip(SPLITS, names, strict=True)
    }
    counted = SPLITS if everywhere and path is not None else SPLITS[:1]
    vocabulary = gdata.Vocabulary.build([sources[split] for split in counted], **counting)
    matrix = coverage = None
    if path is not None and dim is not None:
        vectors = read_embeddings(path, vocabulary, dim=dim)
        matrix, coverage = vectors.matrix, vectors.coverage
    elif random and dim is not None:
        matrix = gdata.random_embeddings(vocabulary, dim)
    encoded = {
        split: gdata.encode(source, vocabulary, **encoding) for split, source in sources.items()
    }
    return Texts(encoded, vocabulary, matrix, coverage)


def common_edges(lengths: Mapping[str, Any], max_buckets: int) -> tuple[int, ...]:
    """Edges of length buckets for all splits: what validation compiled, the test pass finds.

    The lengths of "train" decide all edges but the last, of which there are at most `max_buckets`.
    """
    edges = gdata.plan_buckets(lengths["train"], max_buckets)
    longest = max(int(one.max()) for one in lengths.values())
    return (*edges[:-1], max(longest, edges[-1]))


def in_batches(
    splits: Mapping[str, gdata.Encoded], config: Config
) -> tuple[Callable[[int], gdata.Batches], gdata.Batches, gdata.Batches]:
    """Batches of texts in common length buckets.

    Args:
      splits: training, validation and test texts; the lengths of the training texts decide the
        buckets.
      config: has batch_size, eval_batch_size and max_buckets.

    Returns:
      From a seed to the training batches; those of validation and test, each one ordered pass.
    """
    train = splits["train"]
    lengths = {name: split.lengths for name, split in splits.items()}
    edges = common_edges(lengths, config.max_buckets)

    def training(seed: int) -> gdata.Batches:
        return gdata.Batches(train, batch_size=config.batch_size, bucket_edges=edges, seed=seed)

    def one_pass(split: str) -> gdata.Batches:
        size = config.eval_batch_size
        return gdata.Batches.eval(splits[split], batch_size=size, bucket_edges=edges)

    return training, one_pass("validation"), one_pass("test")


def kept(vocabulary: gdata.Vocabulary, classes: Sequence[str] = ()) -> Json:
    """What an `Experiment` has of its words and classes; both are written beside the checkpoints.

    `gatedjax export` takes them along.
    """
    before = functools.partial(write_words, vocabulary, classes)
    return {"vocabulary": vocabulary.digest(), "before": before}


def write_words(vocabulary: gdata.Vocabulary | None, classes: Sequence[str], workdir: Path) -> None:
    """Writes words and names of classes into a work folder, as far as there are some.

    The words of a run that has begun stay: it refuses to continue with others. Of several processes
    the first one writes.
    """
    if not is_main():
        return
    place = workdir / VOCABULARY
    begun = CheckpointStore(workdir / "checkpoints").latest() is not None
    if vocabulary is not None and not (begun and place.exists()):
        vocabulary.save(place)
    if classes:
        write_json(workdir / CLASSES, list(classes))


def for_training(texts: Texts[gdata.Encoded], config: Config) -> Json:
    """What an `Experiment` of classified texts has of them: see `in_batches`."""
    train, validation, test = in_batches(texts.splits, config)
    return {
        "train": train,
        "validation": validation,
        "test": test,
        **kept(texts.vocabulary, texts.info.class_names),
        "labels": texts.splits["train"].labels,
        "substitute": texts.substitute,
    }


def correct_string(predictions: dict[str, np.ndarray]) -> str:
    """One character per test example, in the order of the file: for paired tests."""
    order = np.argsort(predictions["example_id"], kind="stable")
    return "".join("1" if c > 0 else "0" for c in predictions["correct"][order])


def digest_of_test(predictions: dict[str, np.ndarray]) -> str:
    """A short digest of (id, label) of the test examples: whether `correct_string`s can be paired.

    Ids are places in files. Raw files and the same set as TFDS prepared it have other orders.
    """
    order = np.argsort(predictions["example_id"], kind="stable")
    columns = [predictions[name][order].astype("<i8") for name in ("example_id", "label")]
    return hashlib.sha256(np.stack(columns).tobytes()).hexdigest()[:16]


def correctness(records: Records) -> np.ndarray:
    """Correctness of records [seeds, examples]."""
    return np.array([[c == "1" for c in record["correct"]] for record in records])
