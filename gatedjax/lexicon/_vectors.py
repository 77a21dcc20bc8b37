"""Pretrained vectors of words: from a file, or from a package with vectors of pieces of words."""

import dataclasses
import functools
import importlib.util
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gatedjax.data.text import _embeddings
from gatedjax.data.text._vocabulary import SPECIALS, Vocabulary
from gatedjax.lexicon._features import Spelling, flatten

MORE_WORDS = 50_000
"""Words of a file, from its beginning, where the frequent words are. A model has them in addition
to those of the training texts, because new texts have many of them."""
_MARKS = "#@"


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """The N pieces with vectors that words consist of: whole words, or a tokenizer's pieces.

    The vector of a word is the mean of the vectors of its pieces, so that it depends on its
    spelling only. The marks # and @ at its beginning do not count.

    Attributes:
      words: the N words, each of which is a single piece; other words have no vector.
      tokenizer: the JSON of a tokenizer of the library `tokenizers`, which splits a word into N
        different pieces; "" if the pieces are words.
    """

    words: tuple[str, ...] = ()
    tokenizer: str = ""

    @functools.cached_property
    def _number_of(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @functools.cached_property
    def _splitter(self) -> Any:
        try:
            import tokenizers
        except ImportError as error:
            raise ImportError(
                "vectors of pieces of words need the library tokenizers: pip install tokenizers"
            ) from error
        try:
            splitter = tokenizers.Tokenizer.from_str(self.tokenizer)
        except Exception as error:  # The library raises this class itself.
            raise ValueError(
                f"the tokenizer of vectors must be one of the library tokenizers: {error}"
            ) from error
        splitter.no_padding()
        splitter.no_truncation()
        return splitter

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields by name, without the cached results."""
        return {"words": self.words, "tokenizer": self.tokenizer}

    def __len__(self) -> int:
        """Returns the number of pieces N."""
        return self._splitter.get_vocab_size() if self.tokenizer else len(self.words)

    def split(self, words: Collection[str]) -> Spelling:
        """Returns the numbers of the pieces of each word, none for a word without a vector."""
        if not (self.words or self.tokenizer):
            return Spelling(np.zeros(0, np.int64), np.zeros(len(words) + 1, np.int64))
        names = map(_name, words)
        if self.tokenizer:
            # Half of a surrogate pair, which a file may have, is no character for the library.
            texts = (name.encode("utf-8", "replace").decode() for name in names)
            parts = [self._splitter.encode(text, add_special_tokens=False).ids for text in texts]
        else:
            numbers = map(self._number_of.get, names)
            parts = [[] if number is None else [number] for number in numbers]
        flat, sizes = flatten(parts)
        return Spelling(flat, np.concatenate([[0], np.cumsum(sizes)]))


NO_PIECES = Pieces()
"""The pieces of a model without vectors."""


class Vectors(NamedTuple):
    """The vectors of N pieces of words, float32 [N, D]."""

    pieces: Pieces
    matrix: np.ndarray


def read_vectors(source: str | Path, words: Iterable[str]) -> Vectors:
    """Reads the vectors of words.

    Args:
      source: a file of GloVe, fastText or word2vec, or the name of an installed package that has a
        matrix of vectors (.safetensors) and its tokenizer (.json), such as "wordllama". The package
        is not imported.
      words: the words of the training texts. Of a file only these words and its first 50,000
        words are read.

    Raises:
      ImportError: if the package or the library `tokenizers` is not installed.
      FileNotFoundError: if there is no such file.
      ValueError: if the file is damaged, or has no vector for any of the words.
    """
    if is_file(source):
        return _read_file(Path(source).expanduser(), words)
    return _read_package(str(source))


def check_source(source: str | Path) -> None:
    """Raises FileNotFoundError or ImportError if there are no vectors of this name."""
    if not is_file(source):
        _find_package(str(source))
    elif not Path(source).expanduser().is_file():
        raise FileNotFoundError(
            f"{source}: there is no such file of word vectors. GloVe 6B is at "
            "https://nlp.stanford.edu/data/glove.6B.zip; a name without a dot is that of an "
            "installed package, such as wordllama"
        )


def is_file(source: str | Path) -> bool:
    """Returns True for the path of a file of vectors, and False for the name of a package."""
    return Path(source).expanduser().exists() or not str(source).isidentifier()


def _name(word: str) -> str:
    return word.lstrip(_MARKS) or word


def _read_file(path: Path, words: Iterable[str]) -> Vectors:
    width, first_words = _embeddings.words_in(path, MORE_WORDS)
    names = dict.fromkeys(map(_name, words))
    # A file of GloVe may have the names of the special words, too.
    vocabulary = Vocabulary(
        [name for name in dict.fromkeys([*names, *first_words]) if name not in SPECIALS]
    )
    table = _embeddings.load_embeddings(path, vocabulary, dim=width)
    rows = np.flatnonzero(table.found)
    pieces = tuple(vocabulary.words[i] for i in rows.tolist())
    if names.keys().isdisjoint(pieces):
        raise ValueError(
            f"{path} must have a vector for at least one word of the texts, got none: give "
            "vectors of the same language, and of words with capitals if lowercase is False"
        )
    return Vectors(Pieces(words=pieces), table.matrix[rows])


def _read_package(name: str) -> Vectors:
    # The loader of a package may ask a server for a file that the package has.
    folder = _find_package(name)
    matrices = sorted(folder.rglob("*.safetensors"))
    texts = [path.read_text("utf-8") for path in sorted(folder.rglob("*tokenizer*.json"))]
    tokenizers = [text for text in texts if "vocab" in json.loads(text).get("model", {})]
    if len(matrices) != 1 or len(tokenizers) != 1:
        raise ValueError(
            f"the package {name!r} must have a single matrix of vectors (.safetensors) and its "
            f"tokenizer (.json), got {len(matrices)} and {len(tokenizers)} files"
        )
    from safetensors.numpy import load_file

    arrays = list(load_file(matrices[0]).values())
    pieces = Pieces(tokenizer=tokenizers[0])
    if len(arrays) != 1 or arrays[0].ndim != 2 or len(arrays[0]) < len(pieces):
        raise ValueError(
            f"{matrices[0]} must have a single matrix with {len(pieces):,} rows, a vector for each "
            f"piece of the tokenizer, got {[array.shape for array in arrays]}"
        )
    return Vectors(pieces, arrays[0][: len(pieces)].astype(np.float32))


def _find_package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            f"vectors must be a file or the name of an installed package, got {name!r}: give a "
            "file (.vec, .txt, .bin), or pip install wordllama and give wordllama"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def embed_words(vectors: Vectors, vocabulary: Vocabulary) -> _embeddings.Embeddings:
    """Returns the vectors of a vocabulary, random ones for words without a vector."""
    split = vectors.pieces.split(vocabulary.words)
    has_vector = np.diff(split.starts) > 0
    has_vector[: len(SPECIALS)] = False
    matrix = average_matrix(split, len(vectors.matrix)) @ vectors.matrix
    random = _embeddings.random_embeddings(vocabulary, matrix.shape[1])
    return _embeddings.Embeddings(
        np.where(has_vector[:, None], matrix, random).astype(np.float32), has_vector
    )


def average_matrix(pieces: Spelling, num_pieces: int) -> Any:
    """Returns the csr matrix [V, N] whose product with the vectors of pieces is that of words."""
    from scipy.sparse import csr_matrix

    sizes = np.diff(pieces.starts)
    values = np.repeat(1 / np.maximum(sizes, 1), sizes)
    return csr_matrix((values, pieces.columns, pieces.starts), (len(sizes), num_pieces))
