"""Texts as numbers. The numbers lie in files, so that memory has the vocabulary, not the texts."""

import array
import collections
import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from gatedjax._utils.limits import MOST_LENGTH
from gatedjax._utils.terminal import render_count
from gatedjax._utils.write import naming
from gatedjax.data.sets._split import stratified_split
from gatedjax.data.text._units import RUN
from gatedjax.data.text._vocabulary import SPECIALS, Vocabulary
from gatedjax.text._asides import Asides
from gatedjax.text._copies import count_overlap, equal_texts, single_text_classes
from gatedjax.text._labels import Classes
from gatedjax.text._read import Aside, Label, Record, Table
from gatedjax.text._shapes import ShapedVocabulary, common_shapes
from gatedjax.text._table import parse_number
from gatedjax.text._tokens import Function, Tokenizer, choose_tokenizer, learn_units

T = TypeVar("T")
# The number of ids in memory before they are written, and in a piece that is read at once.
_FLUSH = 1 << 20
# Up to so many classes a corpus of a few examples may have almost as many classes as examples.
_FEW = 4
# The largest number of texts that are split off for validation.
_LARGEST_HELD = 20_000
SPLIT_SEED = 20_200_820
"""Seed of the split, fixed so that it does not depend on the seed of the training."""


class Rows(Sequence[np.ndarray]):
    """A sequence of texts, each an int array of the ids of its words, cut from `flat` at `starts`.
    `table` has the new id of each id in `flat`, and `max_len` cuts each text.

        >>> rows = Rows(np.array([5, 6, 7], np.int32), np.array([0, 2, 3]))
        >>> len(rows), rows[0].tolist(), rows[1].tolist()
        (2, [5, 6], [7])
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
        piece = self._flat[start:end]
        return piece if self._table is None else self._table[piece]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def pieces(self) -> Iterator[np.ndarray]:
        """Yields the ids of all texts, not cut by `max_len`, concatenated in large int arrays."""
        for begin in range(0, len(self._flat), _FLUSH):
            piece = self._flat[begin : begin + _FLUSH]
            yield piece if self._table is None else self._table[piece]

    @property
    def starts(self) -> np.ndarray:
        """int64 [n + 1], the position where each text begins, and the end of the last text."""
        return self._starts

    def renumber(self, table: np.ndarray | None, max_len: int | None) -> "Rows":
        """Returns the same texts with another table of the ids in the file, and another limit."""
        return Rows(self._flat, self._starts, table, max_len)

    def select(self, positions: np.ndarray) -> "RowSubset":
        """Returns the texts at the given positions, an int array, in this order."""
        return RowSubset(self, positions)


class RowSubset(Sequence[np.ndarray]):
    """A selection of texts by their positions, as a sequence of int arrays of ids."""

    def __init__(self, rows: Sequence[np.ndarray], positions: np.ndarray) -> None:
        self._rows, self._positions = rows, positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._rows[int(self._positions[index])]


class Spool:
    """A writer of rows of ids, a row per text, to a file; memory has a buffer and the starts."""

    def __init__(self, path: Path) -> None:
        self._path, self._buffer, self._starts = path, array.array("i"), array.array("q", [0])

    def __enter__(self) -> "Spool":
        # A run that still reads the old file can go on, because the file is not overwritten.
        self._path.unlink(missing_ok=True)
        self._handle = self._path.open("x+b")
        return self

    def __exit__(self, *raised: object) -> None:
        with naming(self._path), self._handle:
            # After an error the rest is not written, because no caller reads an incomplete file.
            if raised == (None, None, None):
                self._buffer.tofile(self._handle)
                self._handle.flush()
                if len(self):  # An empty file cannot be mapped.
                    self._flat = np.memmap(self._handle, np.int32, "r")

    def add(self, ids: Sequence[int]) -> None:
        """Appends a row, the ids of the words of a text."""
        self._buffer.extend(ids)
        self._starts.append(self._starts[-1] + len(ids))
        if len(self._buffer) >= _FLUSH:
            with naming(self._path):
                self._buffer.tofile(self._handle)
            del self._buffer[:]

    def __len__(self) -> int:
        """Returns the number of ids (not of rows) that were added."""
        return self._starts[-1]

    def rows(self, table: np.ndarray | None = None) -> Rows:
        """Returns the rows in the file as a sequence of int arrays; the context must have ended."""
        return Rows(self._flat, np.frombuffer(self._starts, np.int64), table)


class Numbers:
    """A table that numbers words from 0, in the order in which they first occur. It has the
    tokenizer and the labels to leave out, with which all later texts must be read too.
    """

    def __init__(
        self,
        *,
        lowercase: bool,
        tokenizer: Tokenizer | None = None,
        left_out: frozenset[Label] = frozenset(),
    ) -> None:
        self.lowercase, self.left_out = lowercase, left_out
        self.tokenizer = Tokenizer() if tokenizer is None else tokenizer
        self.ids: collections.defaultdict[str, int] = collections.defaultdict()
        # A new word gets the number of words before it, because the factory runs before the word is
        # inserted.
        self.ids.default_factory = self.ids.__len__

    def of(self, tokens: Iterable[str]) -> list[int]:
        """Returns the number of each word, from 0; a new word gets the next number."""
        ids = self.ids
        return (
            [ids[token.lower()] for token in tokens]
            if self.lowercase
            else [ids[token] for token in tokens]
        )


Labels = Any
"""int32 [n], a label for each text; or `Rows` or `RowSubset`, a row of tags for each sentence."""


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """The labelled texts of a file, as numbers: a text, or a pair of texts, is an example."""

    name: str
    texts: tuple[Rows, ...]
    """For each text column the texts, with the numbers of `Numbers`."""
    labels: Labels
    """int32 [n]: positions in `classes`; for tagged sentences a row for each sentence."""
    lines: np.ndarray
    """int64 [n]: the line of the file where each example begins."""
    classes: tuple[Label, ...]
    """The classes, sorted, or in the order that was passed to `read_corpus`."""
    aside: int
    """Number of lines that could not be used."""
    first_aside: tuple[Aside, ...]
    """The first of the lines that could not be used."""
    reasons: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """The number of lines that could not be used, by the reason."""
    digests: np.ndarray | None = None
    """uint64 [n]: a hash of the words of each text; None for tagged sentences."""
    left_out: Mapping[Label, int] = dataclasses.field(default_factory=dict)
    """The number of texts of each class that was left out, see `min_class`."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def class_counts(self) -> dict[Label, int]:
        """The number of examples by class; for tagged sentences the number of words by tag."""
        counts = np.zeros(len(self.classes), np.int64)
        for piece in self.label_pieces():
            counts += np.bincount(piece, minlength=len(counts))
        return dict(zip(self.classes, counts.tolist(), strict=True))

    @property
    def is_tagged(self) -> bool:
        """True if each word has a label, False if each text has a label."""
        return isinstance(self.labels, Rows)

    def label_pieces(self) -> Iterator[np.ndarray]:
        """Yields all labels, concatenated, in large int arrays of positions in `classes`."""
        return self.labels.pieces() if isinstance(self.labels, Rows) else iter([self.labels])

    def __str__(self) -> str:
        n = len(self.classes)
        if isinstance(self.labels, Rows):
            return f"{len(self):,} sentences, {self.labels.starts[-1]:,} words with {n} tags"
        return f"{len(self):,} texts in {n} classes"


def read_training(
    table: Table,
    folder: Path,
    *,
    lowercase: bool,
    tokens: str | None = None,
    tokenizer: Function | None = None,
    min_class: int = 1,
    **options: Any,
) -> tuple[Corpus, Numbers]:
    """Reads the training texts as numbers. If they have a script without spaces, its units are
    learned and the texts are read again. Validation and test texts need the returned `Numbers`.
    """

    def texts() -> Iterator[str]:
        records = (record for record in table if isinstance(record, Record))
        return (text for record in records for text in record.inputs)

    rare = frozenset(find_rare_classes(table, min_class)) if min_class > 1 else frozenset()
    rule = choose_tokenizer(tokens, tokenizer, texts, lowercase=lowercase)
    numbers = Numbers(lowercase=lowercase, tokenizer=rule, left_out=rare)
    corpus = read_corpus(table, folder, "train", numbers, **options)
    # Whether there are such scripts is known only now, when all words have been read.
    if any(RUN.search(word) for word in numbers.ids):
        learned = learn_units(rule, texts())
        if learned != rule:
            rule = learned
            numbers = Numbers(lowercase=lowercase, tokenizer=rule, left_out=rare)
            corpus = read_corpus(table, folder, "train", numbers, **options)
    return corpus, numbers


def find_rare_classes(table: Table, min_class: int) -> list[Label]:
    """Returns the labels of a table of labelled texts that have fewer than `min_class` texts."""
    classes = Classes("label")
    counts: collections.Counter[int] = collections.Counter()
    for record in table:
        if isinstance(record, Record) and record.label is not None:
            counts[classes.place(record.label, record.where, record.line)] += 1
    rare = [label for label, place in classes.places.items() if counts[place] < min_class]
    if len(rare) == len(classes.places) > 0:
        raise ValueError(
            f"{table.name}: min_class must be at most {max(counts.values())}, the number of texts "
            f"of the largest class, got {min_class}"
        )
    return rare


def read_corpus(
    table: Table,
    folder: Path,
    part: str,
    numbers: Numbers,
    *,
    classes: Sequence[Label] | None = None,
    max_aside: float = 1.0,
    check_labels: bool = True,
    places: Any = None,
) -> Corpus:
    """Reads labelled texts in one pass, and writes their numbers to files."""
    width = len(table.columns.inputs)
    spools = [Spool(folder / f"{part}-{i}.ids") for i in range(width)]
    examples = Examples(table, classes, numbers.left_out, places)
    split = numbers.tokenizer.split
    with contextlib.ExitStack() as stack:
        for spool in spools:
            stack.enter_context(spool)
        for record, pieces in examples.read(
            lambda record: [numbers.of(split(text, MOST_LENGTH)) for text in record.inputs]
        ):
            is_new = examples.add(
                record, digest_parts(array.array("i", p).tobytes() for p in pieces)
            )
            if is_new and check_labels:
                # Checked early, so that a column of texts is not stored as a million labels.
                check_classes(
                    *(table.name, examples.num_classes, len(examples)),
                    most=2000,
                    labels=examples.labels,
                )
            for piece, spool in zip(pieces, spools, strict=True):
                spool.add(piece)
    corpus = examples.finish(max_aside, check_labels=check_labels)
    return dataclasses.replace(corpus, texts=tuple(spool.rows() for spool in spools))


class Examples:
    """The labels of the usable records of a table, collected while it is read. `places` has a
    method `place(label, file, line)`, which numbers a label, and a dict `places` of these numbers,
    such as a `LabelSets`; None makes a table of `classes`.
    """

    def __init__(
        self,
        table: Table,
        classes: Sequence[Label] | None,
        left_out: Collection[Label],
        places: Any = None,
    ) -> None:
        self._table, self._given, self._left_out = table, classes, left_out
        self._classes = Classes("label", classes) if places is None else places
        self._labels, self._lines = array.array("i"), array.array("q")
        self._digests = array.array("Q")
        self._counts: collections.Counter[Label] = collections.Counter()
        self._asides = Asides(table.name)

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def num_classes(self) -> int:
        """The number of different labels so far, or of the possible labels if they are given."""
        return len(self._classes.places)

    @property
    def labels(self) -> Iterable[Label]:
        """The different labels so far, or the possible labels if they are given."""
        return self._classes.places

    def read(self, split: Callable[[Record], Sequence[T]]) -> Iterator[tuple[Record, Sequence[T]]]:
        """Yields the usable records, each with the words of its texts, and sets the rest aside."""
        for record in self._table:
            if isinstance(record, Record):
                if record.label in self._left_out:
                    self._counts[cast(Label, record.label)] += 1
                    continue
                pieces = split(record)
                # A text may be left without a word, because invisible characters count as spaces.
                if all(pieces):
                    yield record, pieces
                    continue
                record = Aside(record.where, record.line, "a text without a word")
            self._asides.add(record)

    def add(self, record: Record, digest: int) -> bool:
        """Stores the label and the line of a record; returns True for a label seen first here."""
        seen = self.num_classes
        label = cast(Label, record.label)
        self._labels.append(self._classes.place(label, record.where, record.line))
        self._lines.append(record.line)
        self._digests.append(digest)
        return self.num_classes > seen

    def finish(self, max_aside: float, *, check_labels: bool = True) -> Corpus:
        """Checks the share of unusable lines, and returns a `Corpus` without texts."""
        name = self._table.name
        if not self._labels:
            raise self._asides.make_empty_error("a labelled text")
        self._asides.check(len(self._labels), max_aside)
        if self._given is None and check_labels:
            check_classes(name, self.num_classes, len(self._labels), labels=self._classes.places)
        # Labels were numbered in the order of the file, because the list of all classes is complete
        # only now.
        names, order = order_classes(self._classes.places, self._given)
        return Corpus(
            name,
            (),
            order[np.frombuffer(self._labels, np.int32)],
            np.frombuffer(self._lines, np.int64),
            names,
            self._asides.count,
            tuple(self._asides.first),
            dict(self._asides.reasons),
            np.frombuffer(self._digests, np.uint64),
            dict(self._counts),
        )


def digest_parts(parts: Iterable[bytes]) -> int:
    """Returns a hash of 64 bits of the parts of an example, by which equal texts are found."""
    # Two of ten million different texts have the same hash with probability 3e-6.
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return int.from_bytes(digest.digest(), "little")


def say_corpus(corpus: Corpus, say: Callable[[str], None], targets: str | None = None) -> None:
    """Calls `say` with a line of the classes, or with `targets`, and one about unusable lines."""
    counts = sorted(corpus.class_counts.items(), key=lambda pair: -pair[1])
    listing = ", ".join(f"{label} {count:,}" for label, count in counts[:10])
    remainder = f", and {len(counts) - 10} more" if len(counts) > 10 else ""
    say(f"{corpus.name}: {targets or f'{corpus}: {listing}{remainder}'}")
    if corpus.aside:
        first = "; ".join(map(str, corpus.first_aside))
        say(f"{render_count(corpus.aside, 'line')} set aside, as {first}")


def list_counts(counts: Mapping[Label, int]) -> str:
    """Returns the first five labels with their numbers of texts, and how many labels follow.

    >>> list_counts({"a": 3, "b": 1})
    "'a' 3, 'b' 1"
    """
    listing = ", ".join(f"{label!r} {n:,}" for label, n in list(counts.items())[:5])
    return listing + (f" and {len(counts) - 5} more" if len(counts) > 5 else "")


def note_parts(corpora: Mapping[str, Corpus]) -> list[str]:
    """Returns sentences about classes and texts that validation or test cannot measure."""
    corpus = corpora["train"]
    notes = []
    # At most five classes are named, because a line with hundreds of names is not read.
    if corpus.left_out:
        notes.append(
            f"{render_count(sum(corpus.left_out.values()), 'text')} in classes with too few texts "
            f"(min_class) left out: {list_counts(corpus.left_out)}"
        )
    if "validation" not in corpora and (single := single_text_classes(corpus)):
        classes = ", ".join(map(repr, single[:5])) + ", ..." * (len(single) > 5)
        notes.append(
            f"classes with a single text are learned, and validation cannot check them: {classes}"
        )
    for name, other in corpora.items():
        if other is not corpus and (n := count_overlap(corpus, other)):
            notes.append(
                f"{n:,} of {render_count(len(other), 'text')} of {other.name} ({name}) also in "
                f"{corpus.name}: their scores do not measure new texts"
            )
    return notes


def order_classes(
    positions: Mapping[Label, int], classes: Sequence[Label] | None
) -> tuple[tuple[Label, ...], np.ndarray]:
    """Returns the classes, sorted if they are not given, and the place of each label in them."""
    names = tuple(positions) if classes is not None else _sorted(positions)
    place = {name: i for i, name in enumerate(names)}
    return names, np.array([place[name] for name in positions], np.int32)


def _sorted(labels: Iterable[Label]) -> tuple[Label, ...]:
    labels = list(labels)
    if any(isinstance(label, str) for label in labels):
        return tuple(sorted(labels, key=str))
    return tuple(sorted(labels))  # Not by `float`, because an integer may be larger than any float.


def check_classes(
    name: str, distinct: int, lines: int, *, most: int = _FEW, labels: Iterable[Label] = ()
) -> None:
    """Raises ValueError if more than `most` labels, and more than half of them, are different."""
    if distinct > max(most, lines / 2):
        hint = "put numbers into ranges"
        if are_numbers(labels):
            hint = "predict the number with --task regression (in Python with TextRegressor)"
        raise ValueError(
            f"{name}: labels must be classes, got {distinct:,} different labels among {lines:,}: "
            f"name the column that has the classes (--label NAME), or {hint}"
        )


def are_numbers(labels: Iterable[Label]) -> bool:
    """Returns True if there are labels and all of them are numbers or texts such as "3.5"."""
    labels = list(labels)
    for label in labels:
        try:
            parse_number(label)
        except (ValueError, OverflowError):
            return False
    return bool(labels) and not any(isinstance(label, bool) for label in labels)


def check_trainable(corpus: Corpus, *, split: bool) -> None:
    """Raises ValueError for a single class; with `split`, if no class has two different texts."""
    noun, user = ("tags", "tagger") if corpus.is_tagged else ("classes", "classifier")
    if len(corpus.classes) < 2:
        aside = f" ({corpus.aside:,} could not be used)" if corpus.aside else ""
        raise ValueError(
            f"{corpus.name} must have at least two {noun} for a {user}, got only "
            f"{corpus.classes[0]!r}{aside}"
        )
    if split and corpus.is_tagged:
        if len(corpus) < 2:
            raise ValueError(
                f"{corpus.name} must have at least two sentences, for training and validation, got "
                "one: add a sentence, or give validation data"
            )
    elif split and len(single_text_classes(corpus)) == len(corpus.classes):
        raise ValueError(
            f"{corpus.name} must have a class with two different texts, for training and "
            "validation, got one for each class: add texts, or give validation data"
        )


def split_training(corpus: Corpus, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions for training, and at most 20,000 for validation, by `split_texts`."""
    # All validation texts are read in each evaluation, so their number has a limit.
    share = min(held_out, _LARGEST_HELD / len(corpus))
    return split_texts(corpus.labels, share, equal_texts(corpus))


def split_texts(
    labels: Labels, fraction: float, equal: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions for training and for validation, in proportion to the classes. Equal
    texts are in the same part, so that validation tests no text of training. Both parts get a text
    of each class with two different texts; a single text is for training.
    """
    if not isinstance(labels, np.ndarray):
        # A sentence has many tags, so there is no class by which it could be stratified.
        labels = np.zeros(len(labels), np.int32)
    if equal is None:
        equal = np.arange(len(labels))
    # The first of equal texts stands for its copies, with its label. A text with very many copies
    # is for training, because it would fill the validation part.
    firsts, copies = np.unique(equal, return_counts=True)
    few = firsts[copies <= max(2, round(fraction * len(labels)) // 10)]
    _, places = stratified_split(labels[few], fraction, seed=SPLIT_SEED)
    is_held_out = np.isin(equal, few[places])
    # A rare class may fall into a single part, so a text of it is moved to the other part.
    for label in np.setdiff1d(labels, labels[~is_held_out]):
        is_held_out[equal == equal[np.flatnonzero(labels == label)[0]]] = False
    for label in np.setdiff1d(labels, labels[is_held_out]):
        texts, counts = np.unique(equal[np.isin(equal, equal[labels == label])], return_counts=True)
        # The text with the fewest copies comes first.
        for text in texts[np.argsort(counts, kind="stable")] if len(texts) > 1 else ():
            same = equal == text
            # Copies with several labels must not take another class out of the training part.
            if not len(np.setdiff1d(labels[same], labels[~is_held_out & ~same])):
                is_held_out |= same
                break
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def build_vocabulary(
    corpus: Corpus,
    excluded: np.ndarray,
    numbers: Numbers,
    *,
    min_count: int,
    max_words: int,
    extra_words: Iterable[str] = (),
    make: type[Vocabulary] = Vocabulary,
) -> tuple[Vocabulary, np.ndarray]:
    """Returns the vocabulary of the training texts, frequent words first, and its `table_of`."""
    counts = np.zeros(len(numbers.ids), np.int64)
    for rows in corpus.texts:
        for piece in rows.pieces():
            counts += np.bincount(piece, minlength=len(counts))
        # Words of the validation texts do not count, because only the training texts may determine
        # the vocabulary.
        for i in excluded:
            np.subtract.at(counts, rows[int(i)], 1)
    words = list(numbers.ids)
    frequent = [i for i in np.flatnonzero(counts >= min_count).tolist() if words[i] not in SPECIALS]
    frequent.sort(key=lambda i: (-counts[i], words[i]))
    names = [words[i] for i in frequent[:max_words]]
    if make is ShapedVocabulary:
        word_set = set(names)
        names += common_shapes(words[i] for i in np.flatnonzero(counts) if words[i] not in word_set)
    # Extra words follow in the order of their file, because they have no count.
    have = set(names) | set(SPECIALS)
    names += dict.fromkeys(word for word in extra_words if word not in have)
    vocabulary = make(names, lowercase=numbers.lowercase)
    return vocabulary, table_of(numbers, vocabulary)


def table_of(numbers: Numbers, vocabulary: Vocabulary) -> np.ndarray:
    """Returns int32 [number of words]: the id in `vocabulary` of each word, by its number."""
    return np.array(vocabulary.encode(numbers.ids), np.int32).reshape(-1)


def log_ratios(
    texts: Sequence[Sequence[np.ndarray]], labels: Labels, words: int, classes: int
) -> np.ndarray:
    """Computes r_wc = log p(w | c) - mean_c' log p(w | c'), [words, classes], where p(w | c) is
    proportional to 2 + the number of texts of c with w (for tags, of words w with tag c). A network
    with these weights of naive Bayes as word vectors begins with the accuracy of counting words.
    """
    # The counts start above 0, so that a word that a class lacks has a finite logarithm.
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
    """Computes a hash of texts and labels, which is compared when training continues."""
    digest = hashlib.sha256()
    for name, corpus in sorted(corpora.items()):
        digest.update(name.encode())
        for labels in corpus.label_pieces():
            digest.update(np.ascontiguousarray(labels).tobytes())
        for rows in corpus.texts:
            # The starts are hashed too, because the same ids may be split into texts in other
            # places.
            digest.update(rows.starts.tobytes())
            for piece in rows.pieces():
                digest.update(piece.tobytes())
    return digest.hexdigest()[:16]
