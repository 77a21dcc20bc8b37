"""Texts for the trainer: word vectors, and batches in common length buckets."""

import dataclasses
import functools
import gzip
import hashlib
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Generic, Literal, Protocol, TypeVar

import numpy as np

from experiments.core.kinds import Config, Fields, Json, Records
from experiments.core.origins import join_remarks
from gatedjax import data as gdata
from gatedjax._utils.run_files import write_json
from gatedjax._utils.terminal import say
from gatedjax.text.models._folders import CLASSES, VOCABULARY
from gatedjax.training import CheckpointStore
from gatedjax.training.distributed import is_main

Network = TypeVar("Network")


def find_embeddings(name: str, manual_dir: str | None) -> Path | None:
    """Returns the path of a file of word vectors. A relative name that does not exist is looked up
    in `manual_dir`, in its folder glove, and with the suffix .gz. The path may not exist; it is
    None for "none"."""
    if name == "none":
        return None
    if not name:
        raise ValueError("embeddings must be a file of word vectors, or 'none' for no file, got ''")
    path = Path(name).expanduser()
    # A relative name is looked up in the folder of raw files, too, because GloVe is usually
    # unpacked beside the data sets.
    if not path.exists() and manual_dir is not None and not path.is_absolute():
        for folder in (Path(manual_dir), Path(manual_dir) / "glove"):
            for file_name in (path.name, f"{path.name}.gz"):
                if (folder / file_name).exists():
                    return folder / file_name
    return path


def open_vectors(path: Path) -> BinaryIO | gzip.GzipFile:
    """Opens a file of word vectors, plain or .gz."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def width_of(path: Path) -> int | None:
    """Returns the width of the first vector in a file of word vectors, or None."""
    try:
        with open_vectors(path) as file:
            # The length of the line is limited, because any file may be given.
            return file.readline(1 << 20).rstrip(b"\r\n ").count(b" ") or None
    except (OSError, EOFError, zlib.error):
        return None  # the loader describes the fault


def check_embeddings(path: Path | None, dim: int) -> None:
    """Refuses a missing or empty file of word vectors before the slow part of a run."""
    if path is not None and not (path.is_file() and path.stat().st_size):
        # The loader is called for its message; without words it stores no vectors.
        gdata.load_embeddings(path, gdata.Vocabulary.build([]), dim=dim)


def read_embeddings(
    path: Path, vocabulary: gdata.Vocabulary, *, dim: int, **options: Any
) -> gdata.Embeddings:
    """Reads word vectors and prints the share of the words that have a vector. Raises ValueError as
    `load_embeddings`, and if no word has a vector, as in a file of another language."""
    vectors = gdata.load_embeddings(path, vocabulary, dim=dim, **options)
    # The first two ids are padding and the unknown word, which have no vector in any file.
    count, words = int(vectors.found[2:].sum()), len(vocabulary) - 2
    if not count:
        raise ValueError(
            f"{path} must have vectors of words of the texts, got a vector for none of the "
            f"{words:,} words"
        )
    # With several processes, only the first prints, because all read the same file.
    if is_main():
        say(
            f"word vectors: {count:,} of {words:,} words ({vectors.coverage:.1%}) are in {path}",
            file=sys.stderr,
        )
    return vectors


SPLITS = ("train", "validation", "test")
"""The names of the splits, in the order in which they are read."""


class Split(Protocol):
    """Examples of a split, in the form of numbers."""

    @property
    def info(self) -> gdata.SourceInfo:
        """Name and classes of the data set."""


E = TypeVar("E", bound=Split)


@dataclasses.dataclass(frozen=True, eq=False)
class Texts(Generic[E]):
    """A data set of texts or questions in the form that the trainer needs."""

    splits: dict[str, E]
    """The splits by name; their texts may be of different kinds."""
    vocabulary: gdata.Vocabulary
    """The words that have an id."""
    embeddings: np.ndarray | None = None
    """Initial word vectors; None leaves the initialisation to the network."""
    coverage: float | None = None
    """Share of the vocabulary with a pretrained vector; None without a file of vectors."""

    @property
    def info(self) -> gdata.SourceInfo:
        """Name and classes of the test split."""
        return self.splits["test"].info

    @property
    def substitute(self) -> str | None:
        """The differences from the official data in all splits; None without a difference."""
        return join_remarks(split.info.substitute for split in self.splits.values())

    def facts(self) -> Json:
        """Returns the entries of a record that describe the vocabulary."""
        return {"vocabulary_size": len(self.vocabulary), "embedding_coverage": self.coverage}

    def classifier(self, kind: Callable[..., Network], config: Config) -> Network:
        """Returns a network for the vocabulary, the classes and the word vectors."""
        return kind(
            config,
            vocab_size=len(self.vocabulary),
            num_classes=len(self.info.class_names),
            embeddings=self.embeddings,
        )


def load_splits(name: str, files: Any, splits: Sequence[str] = SPLITS, **options: Any) -> Json:
    """Returns the splits of a data set by their names. `files` has data_dir and manual_dir, and
    `options` are those of `gatedjax.data.load`."""
    options |= {"data_dir": files.data_dir, "manual_dir": files.manual_dir}
    return {split: gdata.load(name, split, **options) for split in splits}


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
    splits may be added, because their vectors are constants of the file, as they would be for any
    new text. The result of the last call is cached, so that consecutive runs share the texts.

    `name` is the data set, or the data set of each split. `files` has data_dir, manual_dir and, if
    `dim` is given, embeddings: a file or "none". Without a file, `random` draws random vectors.
    `vocabulary`, `encode` and `load` are options of `Vocabulary.build`, `gatedjax.data.encode` and
    `gatedjax.data.load`.
    """
    names = (name,) * len(SPLITS) if isinstance(name, str) else tuple(name)
    folders = {"data_dir": files.data_dir, "manual_dir": files.manual_dir}
    embeddings = "none" if dim is None else files.embeddings
    # The cache needs arguments that can be hashed, so dicts become tuples.
    parts = (
        tuple(sorted((part or {}).items()))
        for part in (vocabulary, encode, {**(load or {}), **folders})
    )
    everywhere = words == "with vectors"
    return _read_texts(names, embeddings, dim, random, everywhere, *parts)


@functools.lru_cache(maxsize=1)
def _read_texts(
    names: tuple[str, ...],
    embeddings: str,
    dim: int | None,
    random: bool,
    everywhere: bool,
    *options: tuple[tuple[str, Any], ...],
) -> Texts[gdata.Encoded]:
    """Reads texts like `read_texts`, with arguments that can be hashed, for the cache. `options`
    are those of `Vocabulary.build`, of `encode` and of `load`, each as sorted pairs."""
    counting, encoding, loading = map(dict, options)
    path = find_embeddings(embeddings, loading["manual_dir"])
    if path is not None and dim is not None:
        check_embeddings(path, dim)
    sources = {
        split: gdata.load(name, split, **loading) for split, name in zip(SPLITS, names, strict=True)
    }
    # Without a file of vectors a word of the test split would have an untrained vector.
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
    """Returns the upper edges of length buckets that fit all splits. Validation and test share the
    edges, so that the test pass finds compiled programs. The training lengths determine all edges
    but the last, which is at least the longest length of all splits."""
    edges = gdata.plan_buckets(lengths["train"], max_buckets)
    longest = max(int(array.max()) for array in lengths.values())
    return (*edges[:-1], max(longest, edges[-1]))


def in_batches(
    splits: Mapping[str, gdata.Encoded], config: Config
) -> tuple[Callable[[int], gdata.Batches], gdata.Batches, gdata.Batches]:
    """Makes batches of texts in common length buckets. Returns a function from a seed to the
    training batches, and the ordered passes of validation and of test."""
    train = splits["train"]
    lengths = {name: split.lengths for name, split in splits.items()}
    edges = common_edges(lengths, config.max_buckets)

    def training(seed: int) -> gdata.Batches:
        return gdata.Batches(train, batch_size=config.batch_size, bucket_edges=edges, seed=seed)

    def one_pass(split: str) -> gdata.Batches:
        size = config.eval_batch_size
        return gdata.Batches.eval(splits[split], batch_size=size, bucket_edges=edges)

    return training, one_pass("validation"), one_pass("test")


def vocabulary_parts(vocabulary: gdata.Vocabulary, classes: Sequence[str] = ()) -> Json:
    """Returns the arguments of an `Experiment` that describe words and classes. Both are written
    next to the checkpoints, and `gatedjax export` copies them."""
    before = functools.partial(write_words, vocabulary, classes)
    return {"vocabulary": vocabulary.digest(), "before": before}


def write_words(vocabulary: gdata.Vocabulary | None, classes: Sequence[str], workdir: Path) -> None:
    """Writes the words and the names of the classes to a work folder. If the folder has a
    checkpoint, its words stay, because a run refuses to continue with other words. If several
    processes train together, the first process writes. None and an empty sequence write nothing."""
    if not is_main():
        return
    place = workdir / VOCABULARY
    has_checkpoint = CheckpointStore(workdir / "checkpoints").latest() is not None
    if vocabulary is not None and not (has_checkpoint and place.exists()):
        vocabulary.save(place)
    if classes:
        write_json(workdir / CLASSES, list(classes))


def for_training(texts: Texts[gdata.Encoded], config: Config) -> Json:
    """Returns the arguments of an `Experiment` that classified texts determine."""
    train, validation, test = in_batches(texts.splits, config)
    return {
        "train": train,
        "validation": validation,
        "test": test,
        **vocabulary_parts(texts.vocabulary, texts.info.class_names),
        "labels": texts.splits["train"].labels,
        "substitute": texts.substitute,
    }


def correct_string(predictions: dict[str, np.ndarray]) -> str:
    """Returns a character per test example, 1 if it is correct, in the order of the file."""
    order = np.argsort(predictions["example_id"], kind="stable")
    return "".join("1" if c > 0 else "0" for c in predictions["correct"][order])


def digest_of_test(predictions: dict[str, np.ndarray]) -> str:
    """Returns a short digest of (id, label) of the test examples. `correct_string`s with equal
    digests can be paired. Ids are positions in files, and raw files have another order than the
    same data set in the form that TFDS prepared."""
    order = np.argsort(predictions["example_id"], kind="stable")
    columns = [predictions[name][order].astype("<i8") for name in ("example_id", "label")]
    return hashlib.sha256(np.stack(columns).tobytes()).hexdigest()[:16]


def correctness(records: Records) -> np.ndarray:
    """Returns a boolean array [seeds, examples] from the "correct" strings of records."""
    digits = [np.frombuffer(record["correct"].encode(), np.uint8) for record in records]
    return np.array(digits) == ord("1")
