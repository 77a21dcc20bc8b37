"""Word vectors from the binary models of fastText, also for words that training has not seen."""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_MAGIC, _VERSIONS = 793712314, (11, 12)
# dim, ws, epoch, minCount, neg, wordNgrams, loss, model, bucket, minn, maxn, lrUpdateRate, t
_ARGUMENTS = struct.Struct("<12id")
# size, nwords, nlabels, ntokens, pruneidx_size
_DICTIONARY = struct.Struct("<3i2q")
_ENTRY = struct.Struct("<qb")
_SUPERVISED, _WORD = 3, 0
_BEGIN, _END, _END_OF_LINE = b"<", b">", b"</s>"
# A word of a longer line would be no word.
_LONGEST_WORD = 1 << 16
_MOST_WIDTH = 1 << 16


class FastTextFile:
    """The word vectors of a binary fastText model (`.bin`) on disk: v(w) = 1/|G| sum_{g in G} e_g,
    where G has w, if it is a word of the model, and the n-grams of "<w>". An n-gram g has the row
    len(words) + hash_ngram(g) mod bucket (Bojanowski et al. 2017).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            is_empty = path.stat().st_size == 0
            content = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, version = struct.unpack_from("<2i", content) if len(content) >= 8 else (0, 0)
        if magic != _MAGIC:
            raise ValueError(
                f"{path} must be a model of fastText (.bin), got another file; vectors of word2vec "
                "must be in text format"
            )
        if version not in _VERSIONS:
            raise ValueError(
                f"{path} must be of version {' or '.join(map(str, _VERSIONS))} of fastText's "
                f"format, got {version}"
            )
        try:
            self._read(content, version)
        except struct.error as error:
            raise self._damaged(f"it is truncated: {error}") from error

    def _read(self, content: Any, version: int) -> None:
        arguments = _ARGUMENTS.unpack_from(content, 8)
        self.dim, model, self._bucket = arguments[0], arguments[7], arguments[8]
        self._shortest, self._longest = arguments[9], arguments[10]
        if version < max(_VERSIONS) and model == _SUPERVISED:
            # Such models have no n-grams, whatever their arguments are.
            self._longest = 0
        place = 8 + _ARGUMENTS.size
        size, num_words, _, _, num_pruned = _DICTIONARY.unpack_from(content, place)
        place += _DICTIONARY.size
        if not 0 < self.dim <= _MOST_WIDTH or not 0 <= num_words <= size or self._bucket < 0:
            raise self._damaged(f"the width is {self.dim}, and {num_words} of {size} are words")
        self.words: list[str] = []
        self._rows: dict[bytes, int] = {}
        for _ in range(size):
            end = content.find(b"\0", place, place + _LONGEST_WORD)
            if end < 0:
                raise self._damaged("a word has no end")
            _, kind = _ENTRY.unpack_from(content, end + 1)
            if kind == _WORD:
                self._rows[content[place:end]] = len(self.words)
                self.words.append(content[place:end].decode("utf-8", "replace"))
            place = end + 1 + _ENTRY.size
        if len(self.words) != num_words:
            raise self._damaged(f"{len(self.words):,} words follow, the header has {num_words:,}")
        if content[place : place + 1] != b"\0" or num_pruned > 0:
            raise ValueError(
                f"{self._path} must not be quantised (.ftz): give the .bin or .vec file"
            )
        rows, columns = struct.unpack_from("<2q", content, place + 1)
        num_needed = num_words + (self._bucket if self._longest > 0 else 0)
        if columns != self.dim or rows < num_needed:
            raise self._damaged(
                f"the matrix has {rows:,} rows of {columns:,} numbers, and {num_needed:,} of "
                f"{self.dim:,} are needed"
            )
        place += 17
        if len(content) < place + 4 * rows * columns:
            raise self._damaged("the matrix is not complete")
        # Only the rows that are used are read from the disk.
        self._matrix = np.frombuffer(content, "<f4", rows * columns, place).reshape(rows, columns)

    def _damaged(self, fault: str) -> ValueError:
        return ValueError(f"{self._path} must be a whole file, got a damaged one: {fault}")

    def vector(self, word: str) -> np.ndarray | None:
        """Returns the vector of a word, float32 [dim], or None for a word without any n-gram."""
        raw = word.encode("utf-8", "surrogatepass")
        row = self._rows.get(raw)
        rows = [] if row is None else [row]
        if raw != _END_OF_LINE and self._longest > 0 and self._bucket:
            rows += [
                len(self.words) + hash_ngram(ngram) % self._bucket
                for ngram in list_ngrams(raw, self._shortest, self._longest)
            ]
        if not rows:
            return None
        vector = self._matrix[rows].mean(0, dtype=np.float64)
        if not np.isfinite(vector).all():
            raise ValueError(
                f"{self._path}: vectors must be finite, got NaN or infinity for {word!r}"
            )
        return vector.astype(np.float32)


def list_ngrams(word: bytes, shortest: int, longest: int) -> Iterator[bytes]:
    """Yields the n-grams of "<word>" in the order of fastText; a single "<" or ">" is none.

    >>> list(list_ngrams(b"ab", 2, 3))
    [b'<a', b'<ab', b'ab', b'ab>', b'b>']
    """
    text = _BEGIN + word + _END
    # A character begins at each byte that does not continue a character.
    starts = [place for place, byte in enumerate(text) if byte & 0xC0 != 0x80]
    ends = [*starts[1:], len(text)]
    for first, begin in enumerate(starts):
        for last in range(first + max(shortest, 1) - 1, min(first + longest, len(starts))):
            is_mark = last == first and (first == 0 or last == len(starts) - 1)
            if not is_mark:
                yield text[begin : ends[last]]


def hash_ngram(ngram: bytes) -> int:
    r"""Returns the 32-bit FNV-1a hash of bytes that are read as signed numbers.

    >>> hash_ngram(b"a"), hash_ngram("\u00e9".encode()) < 2**32
    (3826002220, True)
    """
    value = 2166136261
    for byte in ngram:
        # fastText extends the sign of a byte above 127 to 32 bits.
        value ^= byte if byte < 128 else byte | 0xFFFFFF00
        value = value * 16777619 & 0xFFFFFFFF
    return value
