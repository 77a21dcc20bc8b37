"""Word vectors from files of GloVe, fastText and word2vec, and random vectors per word."""

import collections
import dataclasses
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from gatedjax.data.files._paths import BOM
from gatedjax.data.files._unpack import limit_unpacking, open_compressed
from gatedjax.data.text._fasttext import FastTextFile
from gatedjax.data.text._vocabulary import PAD, SPECIALS, Vocabulary

OOV_RANGE = 0.25
BINARY = ".bin"
"""The ending of a binary model of fastText."""
_LOOK = 100
_HEADER = re.compile(rb"(\d+)[ \t](\d+)")
# A line is bounded, because it is in memory; a word and 1,000 numbers take 10 KB.
_LONGEST_LINE = 1 << 20
_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """The word vectors of a vocabulary of V words, in the order of ids.

        >>> found = np.array([False, False, True, False])
        >>> Embeddings(np.zeros((4, 3), np.float32), found).coverage
        0.5

    Attributes:
      matrix: float32 [V, dim], the vector of each word.
      found: bool [V]: True at words that the file contains.
    """

    matrix: np.ndarray
    found: np.ndarray

    @property
    def coverage(self) -> float:
        """The share, in [0, 1], of the words of the vocabulary that the file contains.

        Each word counts once; "<pad>" and "<unk>" do not count.
        """
        words = self.found[2:]
        return float(words.mean()) if len(words) else 0.0


def _check_dim(dim: int, std: float | None) -> None:
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    if std is not None and not std >= 0:
        raise ValueError(f"std or oov_std must be at least 0, got {std}")


def random_embeddings(
    vocabulary: Vocabulary, dim: int, seed: int = 0, *, std: float | None = None
) -> np.ndarray:
    """Makes uniform(-0.25, 0.25) word vectors, or normal vectors with `std`; padding is zero.

    A vector depends only on (seed, word), not on the vocabulary.

        >>> random_embeddings(Vocabulary(["good", "film"]), dim=3).shape
        (4, 3)

    Args:
      vocabulary: the words, each of which gets a vector.
      dim: width of the vectors.
      seed: seed of the vectors.
      std: standard deviation of normal vectors; None means uniform vectors.

    Returns:
      float32 [V, dim], a vector for each of the V words in the order of ids.

    Raises:
      ValueError: if dim < 1 or std < 0.
    """
    _check_dim(dim, std)
    matrix = np.empty((len(vocabulary), dim), np.float32)
    for row, word in zip(matrix, vocabulary.words, strict=True):
        row[:] = _word_vector(word, dim, seed, std)
    matrix[PAD] = 0.0
    return matrix


def _word_vector(word: str, dim: int, seed: int, std: float | None) -> np.ndarray:
    """Returns the random vector [dim] of a word, a function of (seed, word)."""
    # Bits of a hash are cheaper than a generator per word and do not depend on NumPy's version.
    size = dim if std is None else 2 * dim
    data = hashlib.shake_256(f"{seed}\0{word}".encode("utf-8", "surrogatepass")).digest(4 * size)
    uniform = np.frombuffer(data, "<u4") / 2.0**32
    if std is None:
        return (uniform * 2 - 1) * OOV_RANGE
    # The Box-Muller transform makes normal numbers of uniform numbers.
    radius = np.sqrt(-2 * np.log1p(-uniform[:dim]))
    return std * radius * np.cos(2 * np.pi * uniform[dim:])


def load_embeddings(
    path: str | Path,
    vocabulary: Vocabulary,
    *,
    dim: int,
    seed: int = 0,
    oov_std: float | None = None,
    unpack_limit: int | None = None,
) -> Embeddings:
    """Reads the vectors of a vocabulary from a file of GloVe, fastText or word2vec.

    A line is a word and `dim` numbers, separated by single spaces; words that contain a space are
    skipped. The header of fastText and word2vec (the number of vectors and their width) is checked
    if there is one. The width of all lines is checked; numbers are parsed only in the first line
    and for words of the vocabulary. If a word occurs twice, its first line is used. Words that are
    not in the file get the vectors of `random_embeddings`, padding gets zeros.

    A file that ends with .bin is a binary model of fastText. It has a vector for each word from the
    character n-grams of the word, also for words that its training has not seen; see
    `FastTextFile`.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "vectors.txt")
        >>> _ = path.write_text("red 0.5 1.0")
        >>> vectors = load_embeddings(path, Vocabulary(["red", "blue"]), dim=2)
        >>> print(vectors.matrix[2], vectors.coverage)
        [0.5 1. ] 0.5

    Args:
      path: the file, plain or packed (.gz, .bz2, .xz, .zst, or .zip with a single file), or a model
        of fastText (.bin).
      vocabulary: the words to look up.
      dim: width of the vectors.
      seed: seed of the vectors of words that are not in the file.
      oov_std: standard deviation of these vectors; None means uniform(-0.25, 0.25).
      unpack_limit: the largest number of bytes that a packed file may unpack to; None is 1 GiB (or
        the value of the environment variable GATEDJAX_UNPACK_LIMIT), or 32 times the size of the
        file if that is more.

    Returns:
      The vectors [V, dim] of the V words, and a mask [V], True at words that the file contains.

    Raises:
      FileNotFoundError: if the file does not exist; the message names an address, and the
        alternative without a file.
      ValueError: for a file without lines, a line of another width, a wrong header, a value that is
        not a finite number, invalid UTF-8, a truncated file, or a file that unpacks to more than
        the limit; the message names the line.
    """
    _check_dim(dim, oov_std)
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: there is no such file of word vectors. GloVe 6B is at "
            "https://nlp.stanford.edu/data/glove.6B.zip "
            f"(the file for this width: glove.6B.{dim}d.txt; it may be gzipped). "
            "random_embeddings makes vectors without a file."
        )
    ids = {word: i for i, word in enumerate(vocabulary.words) if i != PAD}
    vectors: dict[int, np.ndarray] = {}
    if path.suffix == BINARY:
        model = FastTextFile(path)
        if model.dim != dim:
            raise ValueError(f"{path}: vectors must have {dim} values, got {model.dim}")
        for word, row in ids.items():
            vector = model.vector(word) if row >= len(SPECIALS) else None
            if vector is not None:
                vectors[row] = vector
    else:
        with limit_unpacking(unpack_limit):
            vectors = _read_vectors(path, ids, dim)
    matrix = np.zeros((len(vocabulary), dim), np.float32)
    for word, row in ids.items():
        found = vectors.get(row)
        # Drawn only for the words that the file lacks, because a draw per word takes time.
        matrix[row] = _word_vector(word, dim, seed, oov_std) if found is None else found
    return Embeddings(matrix, np.isin(np.arange(len(vocabulary)), list(vectors)))


def _read_vectors(path: Path, ids: Mapping[str, int], dim: int) -> dict[int, np.ndarray]:
    """Returns id -> vector [dim] of the words of `ids` in a text file of word vectors."""
    vectors: dict[int, np.ndarray] = {}
    has_vectors, number, first = False, 0, 0
    for number, line in _lines(path):
        first = first or number
        # Counting spaces is faster than splitting, and most lines are of words that are not looked
        # up.
        spaces = line.count(b" ")
        if spaces > dim and not _is_number(line.rsplit(b" ", dim)[0]):
            continue  # a word with a space, which no token has
        if spaces != dim:
            hint = "; truncated?" if spaces < dim and number > first else ""
            raise ValueError(
                f"{path}, line {number}: a line must have a word and {dim} values, got {spaces} "
                f"values{hint}"
            )
        raw, _, numbers = line.partition(b" ")
        try:
            index = ids.get(raw.decode())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: the word must be UTF-8, got {raw!r}"
            ) from error
        # The first line with a vector is parsed in any case, so that a file of another kind is
        # noticed.
        is_wanted = index is not None and index not in vectors
        if not is_wanted and has_vectors:
            continue
        has_vectors = True
        try:
            vector = np.array([float(v) for v in numbers.split(b" ")])
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: values must be numbers: {error}") from error
        if not (np.abs(vector) <= _LARGEST).all():  # False for NaN too
            raise ValueError(
                f"{path}, line {number}: the values of {raw.decode()!r} must be finite"
            )
        if index is not None and is_wanted:
            vectors[index] = vector.astype(np.float32)
    if not number:
        raise ValueError(f"{path} is empty: it must have word vectors")
    if not has_vectors:
        # A text of long lines looks like words with spaces, and all vectors would be random.
        raise ValueError(
            f"{path} must have lines of a word and {dim} values, got none: give a file of word "
            "vectors"
        )
    return vectors


def words_in(path: str | Path, most: int) -> tuple[int, list[str]]:
    """Reads the width of the vectors in a text file of word vectors, and its first words."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of word vectors")
    if path.suffix == BINARY:
        model = FastTextFile(path)
        return model.dim, model.words[:most]
    lines = (line for _, line in _lines(path))
    start = list(itertools.islice(lines, _LOOK))
    # The most frequent width counts, because a word may contain spaces; among equally frequent
    # widths the smallest, so that the order of the lines has no effect.
    widths = collections.Counter(map(_width, start))
    width = max(widths, key=lambda size: (widths[size], -size), default=0)
    if not width:
        raise ValueError(
            f"{path}: a line must be a word and its numbers, with single spaces between them, got "
            "no such line"
        )
    limited_lines = itertools.islice(itertools.chain(start, lines), most)
    words = [line.split(b" ", 1)[0] for line in limited_lines if line.count(b" ") == width]
    return width, [word.decode("utf-8", "replace") for word in words]


def _width(line: bytes) -> int:
    numbers = itertools.takewhile(_is_number, reversed(line.split(b" ")[1:]))
    return sum(1 for _ in numbers)


def _is_number(text: bytes) -> bool:
    try:
        float(text.rsplit(b" ", 1)[-1])
    except ValueError:
        return False
    return True


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields (number from 1, line) of the lines that are not blank, without the header of fastText
    and word2vec, whose count is compared at the end: a truncated file has fewer vectors.
    """
    with open_compressed(path) as file:
        header: tuple[int, int, int] | None = None  # its line, the count and the width
        seen, number = 0, 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE:
                raise ValueError(
                    f"{path}, line {number}: a line must have fewer than {_LONGEST_LINE:,} bytes, "
                    "got more"
                )
            line = line.removeprefix(BOM) if number == 1 else line
            if not (line := line.rstrip(b"\r\n ")):
                continue
            if not seen and header is None and (match := _HEADER.fullmatch(line)):
                header = number, int(match[1]), int(match[2])
                continue
            seen += 1
            if seen == 1 and header is not None and _width(line) != header[2]:
                raise ValueError(
                    f"{path}, line {number}: a line must have {header[2]:,} values, as the header "
                    f"states, got {_width(line):,}"
                )
            yield number, line
    if header is not None and seen != header[1]:
        hint = "; truncated?" if seen < header[1] else ""
        raise ValueError(
            f"{path}, line {header[0]}: {header[1]:,} vectors must follow, as the header states, "
            f"got {seen:,}{hint}"
        )
