"""Word vectors trained on film reviews: `python -m experiments.agt.vectors --out FILE`."""

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from experiments.core import cli
from experiments.core.config import Files
from experiments.core.kinds import Json
from experiments.core.text import load_splits, read_embeddings
from gatedjax import data as gdata
from gatedjax._utils.missing import missing
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.write import open_atomic
from gatedjax.data.text._embeddings import words_in
from gatedjax.data.text._tokenize import treebank_tokens
from gatedjax.data.text._vocabulary import SPECIALS

SPREAD = 0.5
"""Root mean square of the numbers in the file. It is near that of GloVe 6B of width 100, because
the learning rates of the presets were found with such vectors."""
SKIP_GRAM: Json = {
    "sg": 1,
    "vector_size": 300,
    "window": 5,
    "negative": 5,
    "sample": 1e-4,
    "min_count": 5,
    "epochs": 5,
    "seed": 0,
}
"""Options of gensim's Word2Vec. Words that are rarer than min_count are left out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorsConfig(Files):
    """Trains skip-gram vectors with gensim, on IMDB's reviews and the training sentences of SST.

    They replace the paper's vectors if these are not available: `--data.embeddings FILE`. No labels
    are read. Training uses a single thread and a seed, so that the same texts give the same file.
    """

    out: Path
    """File to write, with a word and its numbers per line, in the format of GloVe."""
    beside: Unset[Path] = None
    """GloVe file, plain or .gz. Its numbers stand before those of the reviews, and a word that only
    one of the two has gets zeros for the other."""


def sentences(options: Files) -> list[list[str]]:
    """Returns reviews and sentences as lower-cased tokens, split with the rules of SST."""
    texts = [
        # The tag is the only markup of the reviews, and its parts would become frequent words.
        treebank_tokens(example["text"].replace("<br />", " "))
        for source in load_splits("imdb", options).values()
        for example in source
    ]
    training = load_splits("sst1", options, ["train"])["train"]
    texts += [example["tokens"] for example in training]
    # The corpus has millions of tokens but few different words, so equal words share their memory.
    return [[sys.intern(word.lower()) for word in text] for text in texts]


def lines(words: Sequence[str], vectors: np.ndarray) -> Iterator[bytes]:
    """Yields the lines of a file of word vectors."""
    for word, vector in zip(words, vectors, strict=True):
        yield f"{word} {' '.join(f'{x:.4f}' for x in vector)}\n".encode()


def scale(vectors: np.ndarray) -> np.ndarray:
    """Returns the vectors, multiplied by a common factor so that their spread is `SPREAD`."""
    # The squares are summed in float64, because their number is large. A common factor keeps all
    # angles between the vectors.
    factor = SPREAD / np.sqrt(np.mean(np.square(vectors, dtype=np.float64)))
    return vectors * np.float32(factor)


def read_glove(path: Path) -> tuple[list[str], np.ndarray]:
    """Reads the words of a file of word vectors that are in lower case, and their vectors. The
    vectors are float32 [n, E]. Raises ValueError as `gatedjax.data.load_embeddings`."""
    width, words = words_in(path, sys.maxsize)
    words = [w for w in dict.fromkeys(words) if w == w.lower() and w not in SPECIALS]
    embeddings = read_embeddings(path, gdata.Vocabulary(words), dim=width)
    # The first two rows are those of padding and of unknown words.
    is_in_file = embeddings.found[len(SPECIALS) :]
    vectors = embeddings.matrix[len(SPECIALS) :][is_in_file]
    return list(itertools.compress(words, is_in_file)), vectors


def join(
    words: Sequence[str], vectors: np.ndarray, glove: tuple[list[str], np.ndarray]
) -> tuple[list[str], np.ndarray]:
    """Puts other vectors before trained vectors. Returns the words of both without repetition, the
    trained words first, and for each word its E + D numbers, zeros where it has no vector."""
    other_words, other_vectors = glove
    joined_words = list(dict.fromkeys([*words, *other_words]))
    rows = {word: row for row, word in enumerate(joined_words)}
    width = other_vectors.shape[1]
    joined = np.zeros((len(rows), width + vectors.shape[1]), np.float32)
    joined[[rows[word] for word in other_words], :width] = other_vectors
    joined[: len(words), width:] = vectors
    return joined_words, joined


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = cli.parse_many(VectorsConfig, args, "python -m experiments.agt.vectors")
    # The vectors take long to train and records name their file, so a present file is never
    # replaced.
    if options.out.exists():
        cli.fail(f"--out must be a new file, got {options.out}, which exists")
    cli.check_folder(options.out.parent, "--out", exists=True)
    glove = None
    if options.beside is not None:
        # The file is read before the training, which takes minutes and would be lost.
        with cli.refusals():
            glove = read_glove(options.beside)
    try:
        from gensim.models import Word2Vec
    except ImportError:
        cli.fail(missing("training word vectors needs", "gensim"))
    with cli.refusals(cli.TABLE_OPTIONS):
        texts = sentences(options)
    # With several workers the order of updates, and so the vectors, would differ from run to run.
    trained = Word2Vec(texts, workers=1, **SKIP_GRAM).wv
    words, vectors = trained.index_to_key, scale(trained.vectors)
    if glove is not None:
        words, vectors = join(words, vectors, glove)
    with open_atomic(options.out) as file:
        file.writelines(lines(words, vectors))
    say(f"wrote {options.out}: {len(words):,} words of {vectors.shape[1]} numbers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
