"""Texts as the trainer needs them: word vectors, and batches in common length buckets."""

import gzip
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax import data as gdata
from gatedjax._terminal import say
from gatedjax.training.distributed import is_main


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
    """Reads the word vectors of a run, and prints how many of its words have one.

    Args:
      path: the file.
      vocabulary: of the run.
      dim: width of the vectors.
      **options: of `gatedjax.data.load_embeddings`.

    Raises:
      FileNotFoundError: as `gatedjax.data.load_embeddings`.
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
            flush=True,
        )
    return vectors


def text_batches(
    train: gdata.Encoded, validation: gdata.Encoded, test: gdata.Encoded, config: Any, *, seed: int
) -> tuple[gdata.Batches, gdata.Batches, gdata.Batches]:
    """Returns training, validation and test batches; the last two are one ordered pass.

    Args:
      train: the training texts; their lengths decide the buckets.
      validation: the validation texts.
      test: the test texts.
      config: has batch_size, eval_batch_size and max_buckets.
      seed: of the order of the training texts.
    """
    edges = gdata.plan_buckets(train.lengths, config.max_buckets)
    # one set of shapes for all splits: what validation compiled, the test pass finds
    longest = max(int(split.lengths.max()) for split in (train, validation, test))
    edges = (*edges[:-1], max(longest, edges[-1]))
    training = gdata.Batches(train, batch_size=config.batch_size, bucket_edges=edges, seed=seed)
    rest = [
        gdata.Batches.eval(split, batch_size=config.eval_batch_size, bucket_edges=edges)
        for split in (validation, test)
    ]
    return training, rest[0], rest[1]


def correct_string(predictions: dict[str, np.ndarray]) -> str:
    """One character per test example, in the order of the file: for paired tests."""
    order = np.argsort(predictions["example_id"], kind="stable")
    return "".join("1" if c > 0 else "0" for c in predictions["correct"][order])


def correctness(records: list[dict[str, Any]]) -> np.ndarray:
    """Correctness of records [seeds, examples]."""
    return np.array([[c == "1" for c in record["correct"]] for record in records])
