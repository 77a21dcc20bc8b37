"""Word vectors trained on film reviews: `python -m experiments.agt.vectors --out FILE`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.core.cli import (
    TABLE_OPTIONS,
    check_counts,
    check_folder,
    fail,
    parse_many,
    refusals,
)
from experiments.core.config import Files
from experiments.core.kinds import Json
from experiments.core.text import SPLITS, width_of
from gatedjax import data as gdata
from gatedjax._utils.missing import missing
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.write import write_atomic
from gatedjax.data.files._compressed import open_compressed
from gatedjax.data.text._tokenize import treebank_tokens

SPREAD = 0.5
"""Root mean square of the numbers in the file. It is near that of GloVe 6B of width 100, because
the learning rates of the presets were found with such vectors."""
SKIP_GRAM = {"sg": 1, "window": 5, "negative": 5, "sample": 1e-4}
"""Fixed options of gensim's Word2Vec."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorsConfig(Files):
    """Trains skip-gram vectors with gensim, on IMDB's reviews and the training sentences of SST.

    They replace the paper's vectors if these are not available: `--data.embeddings FILE`. No labels
    are read. Training uses a single thread and a seed, so that the same texts give the same file.
    """

    out: Path
    """File to write, with a word and its numbers per line, in the format of GloVe."""
    beside: Unset[Path] = None
    """GloVe file, plain or compressed. Its numbers stand before those of the reviews, and a word
    that one of the two does not have gets zeros there."""
    width: int = 300
    """The number of numbers per word."""
    min_count: int = 5
    """Smallest number of occurrences of a word; rarer words are left out."""
    epochs: int = 5
    """Number of passes over the texts."""
    seed: int = 0
    """Seed of the initial vectors and of the draws."""


def sentences(options: Files) -> list[list[str]]:
    """Returns reviews and sentences as lower-cased tokens, split with the rules of SST."""
    folders: Json = {"data_dir": options.data_dir, "manual_dir": options.manual_dir}
    reviews = [gdata.load("imdb", part, **folders) for part in SPLITS]
    texts = [
        # The tag is the only markup of the reviews, and its parts would become frequent words.
        treebank_tokens(example["text"].replace("<br />", " "))
        for source in reviews
        for example in source
    ]
    texts += [example["tokens"] for example in gdata.load("sst1", "train", **folders)]
    # The corpus has millions of tokens but few different words, so equal words share their memory.
    return [[sys.intern(word.lower()) for word in text] for text in texts]


def lines(words: Sequence[str], vectors: np.ndarray) -> str:
    """Returns the text of a file of word vectors."""
    rows = (" ".join(f"{x:.4f}" for x in vector) for vector in vectors)
    return "".join(f"{word} {row}\n" for word, row in zip(words, rows, strict=True))


def scale(vectors: np.ndarray) -> np.ndarray:
    """Returns the vectors, multiplied by a common factor so that their spread is `SPREAD`."""
    # The squares are summed in float64, because their number is large. A common factor keeps all
    # angles between the vectors.
    return vectors * (SPREAD / np.sqrt(np.mean(np.square(vectors, dtype=np.float64))))


def join(words: Sequence[str], vectors: np.ndarray, path: Path) -> tuple[list[str], np.ndarray]:
    """Puts the vectors of a GloVe file before trained vectors.

    Args:
      words: the trained words.
      vectors: [n, D], their vectors.
      path: the file, with vectors of width E.

    Returns:
      The trained words and the further words of the file, m in total, and their vectors
      [m, E + D]. Where a word has no vector, its numbers are 0.

    Raises:
      ValueError, FileNotFoundError: if the file has no word vectors, see
        `gatedjax.data.load_embeddings`.
    """
    words = [*words, *sorted(words_of(path) - set(words))]
    given = read_beside(path, words)
    # The first two rows are those of padding and of unknown words.
    found, first = given.found[2:, None], given.matrix[2:]
    second = np.zeros((len(first), vectors.shape[1]), vectors.dtype)
    second[: len(vectors)] = vectors
    return words, np.concatenate([np.where(found, first, 0), second], axis=1)


def read_beside(path: Path, words: Sequence[str]) -> gdata.Embeddings:
    """Reads the vectors of words from a file, whose first line has its width."""
    return gdata.load_embeddings(path, gdata.Vocabulary(words), dim=width_of(path) or 1)


def words_of(path: Path) -> set[str]:
    """Returns the words of a file of word vectors."""
    with open_compressed(path) as file:
        parts = (line.split(b" ") for line in file)
        # A line of two entries is the header of word2vec.
        return {part[0].decode() for part in parts if len(part) > 2}


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(VectorsConfig, args, "python -m experiments.agt.vectors")
    check_counts(options, "width", "min_count", "epochs")
    # The vectors take long to train and records name their file, so a present file is never
    # replaced.
    if options.out.exists():
        fail(f"--out must be a new file, got {options.out}, which exists")
    check_folder(options.out.parent, "--out", exists=True)
    if options.beside is not None:
        # Training takes minutes, so the file is read before it, too.
        with refusals():
            read_beside(options.beside, [])
    try:
        from gensim.models import Word2Vec
    except ImportError:
        fail(missing("training word vectors needs", "gensim"))
    with refusals(TABLE_OPTIONS):
        texts = sentences(options)
    settings: Json = {"vector_size": options.width, "epochs": options.epochs, "seed": options.seed}
    settings["min_count"] = options.min_count
    # With several workers the order of updates, and so the vectors, would differ from run to run.
    trained = Word2Vec(texts, workers=1, **settings, **SKIP_GRAM).wv
    words, vectors = trained.index_to_key, scale(trained.vectors)
    if options.beside is not None:
        with refusals():
            words, vectors = join(words, vectors, options.beside)
    write_atomic(options.out, lines(words, vectors).encode())
    say(f"wrote {options.out}: {len(words):,} words of {vectors.shape[1]} numbers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
