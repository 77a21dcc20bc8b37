"""Texts as numbers: read once and kept on disk, so that memory holds the words, not the texts."""

import array
import collections
import contextlib
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax._utils.limits import MOST_LENGTH
from gatedjax.data import tokenize
from gatedjax.data.sets._split import stratified_split
from gatedjax.data.text._vocabulary import SPECIALS, UNK, Vocabulary
from gatedjax.text._asides import Asides
from gatedjax.text._labels import CONTROL, Classes
from gatedjax.text._read import Aside, Label, Record, Table
from gatedjax.text._shapes import ShapedVocabulary, common_shapes

_FLUSH = 1 << 20
# of so many classes more than half of a few examples may have one of their own
_FEW = 4
SPLIT_SEED = 20_200_820
"""Fixed: one file is split in one way, whatever the seed of the training."""


class Rows(Sequence[np.ndarray]):
    """Ids of texts, cut from one array as they are asked for.

    Args:
      flat: ids of all texts, one after the other.
      starts: int64 [n + 1], where the texts begin, and where the last one ends.
      table: what an id becomes; None leaves it as it is.
      max_len: words of a text that are used.
    """

    def __init__(
        self,
        flat: np.ndarray,
        starts: np.ndarray,
        table: np.ndarray | None = None,
        max_len: int | None = None,
    ) -> None:
        self._flat, self._starts, self._table, self._max_len = flat, starts, table, max_len

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        start, end = int(self._starts[index]), int(self._starts[index + 1])
        if self._max_len is not None:
            end = min(end, start + self._max_len)
        if start == end:
            return np.array([UNK], np.int32)
        piece = self._flat[start:end]
        return piece if self._table is None else self._table[piece]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def pieces(self) -> Iterator[np.ndarray]:
        """All ids, some at a time; nothing is cut."""
        for begin in range(0, len(self._flat), _FLUSH):
            piece = self._flat[begin : begin + _FLUSH]
            yield piece if self._table is None else self._table[piece]

    @property
    def starts(self) -> np.ndarray:
        """Where the texts begin, and where the last one ends."""
        return self._starts

    def numbered(self, table: np.ndarray | None, max_len: int | None) -> "Rows":
        """The same texts with ids that a table gives, cut to so many words."""
        return Rows(self._flat, self._starts, table, max_len)

    def taken(self, chosen: np.ndarray) -> "Chosen":
        """Some of the texts."""
        return Chosen(self, chosen)


class Chosen(Sequence[np.ndarray]):
    """Some rows, by their numbers."""

    def __init__(self, rows: Sequence[np.ndarray], chosen: np.ndarray) -> None:
        self._rows, self._chosen = rows, chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._rows[int(self._chosen[index])]


class Spool:
    """Rows of ids on their way to a file: memory holds what is not yet written, and the starts.

    The file is a new one each time: a run that is still on reads the one that it has written, which
    stays with it though it has lost its name.

    Args:
      path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._buffer, self._starts = path, array.array("i"), array.array("q", [0])

    def __enter__(self) -> "Spool":
        self._path.unlink(missing_ok=True)
        self._handle = self._path.open("x+b")
        return self

    def __exit__(self, *raised: object) -> None:
        if raised == (None, None, None):
            self._buffer.tofile(self._handle)
            self._handle.flush()
            if len(self):  # nothing cannot be mapped
                self._flat = np.memmap(self._handle, np.int32, "r")
        self._handle.close()

    def add(self, ids: Sequence[int]) -> None:
        """One more row."""
        self._buffer.extend(ids)
        self._starts.append(self._starts[-1] + len(ids))
        if len(self._buffer) >= _FLUSH:
            self._buffer.tofile(self._handle)
            del self._buffer[:]

    def __len__(self) -> int:
        """Ids that were added."""
        return self._starts[-1]

    def rows(self, table: np.ndarray | None = None) -> Rows:
        """What was added, read from the file once that is closed; a table changes the ids."""
        return Rows(self._flat, np.frombuffer(self._starts, np.int64), table)


class Numbers:
    """Numbers for words, in the order in which they first come."""

    def __init__(self, *, lowercase: bool) -> None:
        self.lowercase = lowercase
        self.ids: collections.defaultdict[str, int] = collections.defaultdict()
        self.ids.default_factory = self.ids.__len__

    def of(self, tokens: Iterable[str]) -> list[int]:
        """The number of every word; new words get the next ones."""
        ids = self.ids
        return (
            [ids[token.lower()] for token in tokens]
            if self.lowercase
            else [ids[token] for token in tokens]
        )


Labels = Any
"""int32 [n], one of every text; or (`Rows`, `Chosen`) a row of every sentence."""


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Labelled texts of one file, as numbers."""

    name: str
    texts: tuple[Rows, ...]
    """Of every column of text, with the numbers of `Numbers`."""
    labels: Labels
    """int32 [n]: positions in `classes`; of tagged sentences a row each."""
    lines: np.ndarray
    """int64 [n]: where the examples begin in the file."""
    classes: tuple[Label, ...]
    """Sorted."""
    aside: int
    """Lines that could not be used."""
    first_aside: tuple[Aside, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def class_counts(self) -> dict[Label, int]:
        """Examples (words, where these have the labels) of every class."""
        counts = np.zeros(len(self.classes), np.int64)
        for piece in self.label_pieces():
            counts += np.bincount(piece, minlength=len(counts))
        return dict(zip(self.classes, counts.tolist(), strict=True))

    @property
    def tagged(self) -> bool:
        """Whether every word has a label."""
        return isinstance(self.labels, Rows)

    def label_pieces(self) -> Iterator[np.ndarray]:
        """All labels, some at a time."""
        return self.labels.pieces() if isinstance(self.labels, Rows) else iter([self.labels])

    def __str__(self) -> str:
        n = len(self.classes)
        if isinstance(self.labels, Rows):
            return f"{len(self):,} sentences, {self.labels.starts[-1]:,} words with {n} tags"
        return f"{len(self):,} texts in {n} classes"


def split_words(text: str, most: int | None = None) -> tuple[str, ...]:
    """Returns the tokens of a text, at most so many; no token has a character that nobody sees."""
    return tokenize(CONTROL.sub(" ", text), marks=True, most=most)


def read_corpus(
    table: Table,
    folder: Path,
    part: str,
    numbers: Numbers,
    *,
    classes: Sequence[Label] | None = None,
    max_aside: float = 1.0,
) -> Corpus:
    """Reads labelled texts in one pass; their numbers lie in a file of the folder.

    Args:
      table: the texts.
      folder: where the numbers are written.
      part: name of the file.
      numbers: of the words.
      classes: the labels that there may be; None takes those of the file.
      max_aside: the largest share of the lines that may be set aside.

    Raises:
      ValueError: if no line can be used, or too few, labels look like texts or numbers rather than
        classes, or one is not in `classes`.
    """
    width = len(table.columns.inputs)
    spools = [Spool(folder / f"{part}-{i}.ids") for i in range(width)]
    numbered = Classes("label", classes)
    labels, lines = array.array("i"), array.array("q")
    asides = Asides(table.name)
    with contextlib.ExitStack() as stack:
        for spool in spools:
            stack.enter_context(spool)
        for record in table:
            if isinstance(record, Record):
                pieces = [numbers.of(split_words(text, MOST_LENGTH)) for text in record.inputs]
                if not all(pieces):
                    record = Aside(record.where, record.line, "a text without a word")
            if isinstance(record, Aside):
                asides.add(record)
                continue
            seen = len(numbered.places)
            labels.append(numbered.place(record.label, record.where, record.line))  # type: ignore[arg-type]
            if len(numbered.places) > seen:
                # asked early, so that a column of texts is not kept as a million labels
                _check_classes(table.name, len(numbered.places), len(labels), most=2000)
            lines.append(record.line)
            for piece, spool in zip(pieces, spools, strict=True):
                spool.add(piece)
    if not labels:
        raise asides.nothing(f"{table.name} has no labelled text")
    asides.check(len(labels), max_aside)
    if classes is None:
        _check_classes(table.name, len(numbered.places), len(labels), most=_FEW)
    names, order = ordered(numbered.places, classes)
    return Corpus(
        table.name,
        tuple(spool.rows() for spool in spools),
        order[np.frombuffer(labels, np.int32)],
        np.frombuffer(lines, np.int64),
        names,
        asides.count,
        tuple(asides.first),
    )


def ordered(
    found: Mapping[Label, int], classes: Sequence[Label] | None
) -> tuple[tuple[Label, ...], np.ndarray]:
    """(the classes: those given, or those found sorted; the place there of every one found)."""
    names = tuple(found) if classes is not None else _sorted(found)
    place = {name: i for i, name in enumerate(names)}
    return names, np.array([place[name] for name in found], np.int32)


def _sorted(labels: Iterable[Label]) -> tuple[Label, ...]:
    """By value where they are of one kind, else as texts."""
    labels = list(labels)
    if any(isinstance(label, str) for label in labels):
        return tuple(sorted(labels, key=str))
    return tuple(sorted(labels))  # by value; an integer may be larger than any float


def _check_classes(name: str, distinct: int, lines: int, *, most: int) -> None:
    if distinct > max(most, lines / 2):
        raise ValueError(
            f"{name}: {distinct:,} of {lines:,} labels are distinct, so they are no classes: name "
            "the column that has the classes (--label NAME), or put numbers into ranges"
        )


def check_trainable(corpus: Corpus, *, split: bool) -> None:
    """Refuses what no classifier can be trained on.

    Args:
      corpus: the training texts.
      split: whether a part of them is to be held out.

    Raises:
      ValueError: for one class, or, with `split`, a class with one example.
    """
    what, user = ("tag", "tagger") if corpus.tagged else ("class", "classifier")
    if len(corpus.classes) < 2:
        aside = f" ({corpus.aside:,} could not be used)" if corpus.aside else ""
        raise ValueError(
            f"{corpus.name} has one {what}, {corpus.classes[0]!r}{aside}: a {user} needs two"
        )
    if split and corpus.tagged:
        if len(corpus) < 2:
            raise ValueError(
                f"{corpus.name} has one sentence, which cannot be both learned and checked"
            )
    elif split:
        for label, count in corpus.class_counts.items():
            if count < 2:
                line = int(corpus.lines[list(corpus.labels).index(corpus.classes.index(label))])
                raise ValueError(
                    f"{corpus.name}:{line}: the class {label!r} has one example, which cannot be "
                    "both learned and checked: add one, or leave it out"
                )


def held_out(labels: Labels, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """(kept, held out): in proportion to the classes, at least one example of each in either.

    Sentences, which have many labels, are of one class.
    """
    if not isinstance(labels, np.ndarray):
        labels = np.zeros(len(labels), np.int32)
    kept, held = stratified_split(labels, fraction, seed=SPLIT_SEED)
    to_held, to_kept = _lacking(labels, held, kept), _lacking(labels, kept, held)
    held = np.union1d(np.setdiff1d(held, to_kept), to_held)
    return np.setdiff1d(np.arange(len(labels)), held), held


def _lacking(labels: np.ndarray, part: np.ndarray, other: np.ndarray) -> np.ndarray:
    """An example of every class that a part lacks, from the other one."""
    lacking = np.setdiff1d(labels, labels[part])
    return np.array([other[labels[other] == label][0] for label in lacking], np.int64)


def build_vocabulary(
    corpus: Corpus,
    held: np.ndarray,
    numbers: Numbers,
    *,
    min_count: int,
    max_words: int,
    more: Iterable[str] = (),
    make: type[Vocabulary] = Vocabulary,
) -> tuple[Vocabulary, np.ndarray]:
    """The words of the training texts, the most frequent first, equal counts alphabetically.

    Args:
      corpus: with the training texts.
      held: which of its texts are not for training.
      numbers: of the words.
      min_count: drop words that occur less often.
      max_words: how many are kept at most.
      more: words that join them, such as those of a file of vectors.
      make: what is made; a `ShapedVocabulary` also has the shapes of words that are dropped.

    Returns:
      The vocabulary, and its id of every number.
    """
    counts = np.zeros(len(numbers.ids), np.int64)
    for rows in corpus.texts:
        for piece in rows.pieces():
            counts += np.bincount(piece, minlength=len(counts))
        for i in held:
            np.subtract.at(counts, rows[int(i)], 1)
    words = list(numbers.ids)
    known = [i for i in np.flatnonzero(counts >= min_count).tolist() if words[i] not in SPECIALS]
    known.sort(key=lambda i: (-counts[i], words[i]))
    names = [words[i] for i in known[:max_words]]
    if make is ShapedVocabulary:
        kept = set(names)
        names += common_shapes(words[i] for i in np.flatnonzero(counts) if words[i] not in kept)
    have = set(names) | set(SPECIALS)
    names += dict.fromkeys(word for word in more if word not in have)
    vocabulary = make(names, lowercase=numbers.lowercase)
    return vocabulary, table_of(numbers, vocabulary)


def table_of(numbers: Numbers, vocabulary: Vocabulary) -> np.ndarray:
    """The id in the vocabulary of every number."""
    return np.array(vocabulary.encode(numbers.ids), np.int32).reshape(-1)


def log_ratios(
    texts: Sequence[Sequence[np.ndarray]], labels: Labels, words: int, classes: int
) -> np.ndarray:
    """How much more often than in the average class a word occurs in each [words, classes].

        r_wc = log p(w | c) - mean_c' log p(w | c'),  p(w | c) ~ 2 + texts of c that have w
        (of tags: 2 + times that w has c)

    The weights of a naive Bayes classifier; word vectors that start with them let a network begin
    where counting words ends.
    """
    counts = np.full((classes, words), 2.0)
    for rows in texts:
        for ids, label in zip(rows, labels, strict=True):
            if np.ndim(label):
                np.add.at(counts, (label, ids), 1)
            else:
                counts[label, np.unique(ids)] += 1
    logs = np.log(counts / counts.sum(axis=1, keepdims=True))
    ratios = (logs - logs.mean(axis=0)).T
    ratios[: len(SPECIALS)] = 0
    return ratios


def digest_of(corpora: Mapping[str, Corpus]) -> str:
    """What a checkpoint knows texts by: another file is another run."""
    digest = hashlib.sha256()
    for name, corpus in sorted(corpora.items()):
        digest.update(name.encode())
        for labels in corpus.label_pieces():
            digest.update(np.ascontiguousarray(labels).tobytes())
        for rows in corpus.texts:
            digest.update(rows.starts.tobytes())
            for piece in rows.pieces():
                digest.update(piece.tobytes())
    return digest.hexdigest()[:16]
