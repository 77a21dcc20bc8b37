"""Labelled texts as arrays of numbers."""

import collections
import dataclasses
import hashlib
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from gatedjax._utils.limits import MOST_LENGTH
from gatedjax._utils.terminal import join_first, render_count
from gatedjax._utils.types import Json
from gatedjax.data.sets._declaration import stratified_split
from gatedjax.data.text._vocabulary import SPECIALS, Vocabulary
from gatedjax.text.corpus._shapes import ShapedVocabulary, common_shapes
from gatedjax.text.corpus._tokens import Function, Tokenizer, choose_tokenizer, learn_units
from gatedjax.text.sources._labels import Classes, Label, parse_number
from gatedjax.text.sources._table import Aside, Asides, Record, Table
from gatedjax.text.targets._base import Target

T = TypeVar("T")
# Number of classes up to which almost each example may have a class of its own.
_FEW = 4
# The largest number of texts that are split off for validation.
_LARGEST_HELD = 20_000
SPLIT_SEED = 20_200_820
"""Seed of the split, fixed so that it does not depend on the seed of the training."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rows(Sequence[np.ndarray]):
    """Rows of numbers, each an int array: row i is `flat[starts[i] : starts[i + 1]]`."""

    flat: np.ndarray  # int32: the numbers of all rows
    starts: np.ndarray  # int64 [n + 1]: where each row begins, and the end of the last row

    @classmethod
    def join(cls, rows: Sequence[np.ndarray]) -> "Rows":
        """Returns rows as a copy in a single array."""
        starts = np.cumsum([0, *map(len, rows)])
        return cls(np.concatenate([np.zeros(0, np.int32), *rows]), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.flat[self.starts[index] : self.starts[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """int64 [n]: the lengths of the rows."""
        return np.diff(self.starts)

    def select(self, positions: np.ndarray) -> "Rows":
        """Returns the rows at the given positions, an int array, in this order."""
        return Rows.join([self[i] for i in positions.tolist()])

    def cut(self, longest: int) -> "Rows":
        """Returns the first `longest` numbers of each row."""
        return Rows.join([row[:longest] for row in self])

    def renumber(self, table: np.ndarray) -> "Rows":
        """Returns the rows with `table[number]` in place of each number."""
        return Rows(table[self.flat], self.starts)


class Numbers:
    """The numbers of words in the order of their first occurrence, and how texts must be read."""

    def __init__(self, *, lowercase: bool, tokenizer: Tokenizer | None = None) -> None:
        self.lowercase, self.tokenizer = lowercase, tokenizer or Tokenizer()
        self.ids: collections.defaultdict[str, int] = collections.defaultdict()
        # A new word gets the number of words before it, because the factory runs before the word is
        # inserted.
        self.ids.default_factory = self.ids.__len__

    def of(self, tokens: Iterable[str]) -> np.ndarray:
        """Returns int32 [n], the number of each of n tokens; a new word gets the next number."""
        words = map(str.lower, tokens) if self.lowercase else tokens
        return np.array([*map(self.ids.__getitem__, words)], np.int32)


Labels = np.ndarray | Rows
"""int32 [n], a label for each text; or `Rows`, a row of tags for each sentence."""


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """The labelled texts of a file, as numbers: a text, or a pair of texts, is an example."""

    name: str
    texts: tuple[Rows, ...]  # for each text column the texts, with the numbers of `Numbers`
    labels: Labels  # int32 [n]: positions in `classes`; `Rows` for tagged sentences
    lines: np.ndarray  # int64 [n]: the line of the file where each example begins
    classes: tuple[Label, ...]  # sorted, or in the order of the model
    asides: Asides  # the lines that could not be used
    digests: np.ndarray | None = None  # int64 [n]: a hash of each text; None for tagged sentences
    # The number of texts of each class that was left out, see `min_class`.
    left_out: Mapping[Label, int] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def class_counts(self) -> dict[Label, int]:
        """The number of examples by class; for tagged sentences the number of words by tag."""
        counts = np.bincount(self.flat_labels, minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))

    @property
    def is_tagged(self) -> bool:
        """True if each word has a label, False if each text has a label."""
        return isinstance(self.labels, Rows)

    @property
    def flat_labels(self) -> np.ndarray:
        """int32: the labels of the texts, or the tags of all words."""
        return self.labels.flat if isinstance(self.labels, Rows) else self.labels

    def __str__(self) -> str:
        n = len(self.classes)
        if isinstance(self.labels, Rows):
            return f"{len(self):,} sentences, {len(self.labels.flat):,} words with {n} tags"
        return f"{len(self):,} texts in {n} classes"


def read_training(
    table: Table,
    *,
    lowercase: bool,
    tokens: str | None = None,
    tokenizer: Function | None = None,
    **options: Any,
) -> tuple[Corpus, Numbers]:
    """Reads the training texts; validation and test texts need the returned `Numbers`."""
    table = table.load()

    def texts() -> Iterator[str]:
        return (text for row in table if isinstance(row, Record) for text in row.inputs)

    rule = choose_tokenizer(tokens, tokenizer, texts, lowercase=lowercase)
    numbers = Numbers(lowercase=lowercase, tokenizer=learn_units(rule, texts()))
    return read_corpus(table, numbers, **options), numbers


def find_rare_classes(table: Table, min_class: int) -> list[Label]:
    """Returns the labels of a table of labelled texts that have fewer than `min_class` texts."""
    classes = Classes("label")
    counts = collections.Counter(
        classes.place(record.label, record.where, record.line)
        for record in table
        if isinstance(record, Record) and record.label is not None
    )
    rare = [label for label, place in classes.places.items() if counts[place] < min_class]
    if len(rare) == len(classes.places) > 0:
        raise ValueError(
            f"{table.name}: min_class must be at most {max(counts.values())}, the number of texts "
            f"of the largest class, got {min_class}"
        )
    return rare


def read_corpus(table: Table, numbers: Numbers, **options: Any) -> Corpus:
    """Reads labelled texts as numbers in one pass, with the options of `read_examples`."""
    split = numbers.tokenizer.split
    corpus, _, texts = read_examples(
        table,
        lambda record: [numbers.of(split(text, MOST_LENGTH)) for text in record.inputs],
        **options,
    )
    return dataclasses.replace(corpus, texts=tuple(map(Rows.join, zip(*texts, strict=True))))


def read_examples(
    table: Table,
    split: Callable[[Record], T],
    *,
    places: Any = None,  # see `Target.make_places`; None makes a table of new classes
    left_out: Collection[Label] = (),
    max_aside: float = 1.0,
) -> tuple[Corpus, list[Record], list[T]]:
    """Returns a `Corpus` without texts, its records, and for each the words of its texts."""
    places = Classes("label") if places is None else places
    # Numbers and sets of labels have no classes.
    has_new = isinstance(places, Classes) and places.is_new
    asides = Asides(table.name)
    counts: collections.Counter[Label] = collections.Counter()
    records: list[Record] = []
    texts: list[Any] = []
    labels: list[int] = []
    digests: list[int] = []
    for row in asides.sift(table):
        label = cast(Label, row.label)
        if label in left_out:
            counts[label] += 1
            continue
        words: Any = split(row)
        # A text may be left without a word, because invisible characters count as spaces.
        if not all(map(len, words)):
            asides.add(Aside(row.where, row.line, "a text without a word"))
            continue
        labels.append(places.place(label, row.where, row.line))
        # Checked early, so that a column of texts is not stored as a million labels.
        if has_new and labels[-1] >= 2000:
            check_classes(table.name, places.places, len(labels), most=2000)
        # Hashes are compared only inside of a process. Two of ten million different texts have the
        # same hash with probability 3e-6.
        digests.append(
            hash(tuple(w.tobytes() if isinstance(w, np.ndarray) else tuple(w) for w in words))
        )
        records.append(row)
        texts.append(words)
    asides.check(len(labels), max_aside)
    if has_new:
        check_classes(table.name, places.places, len(labels))
    # Labels were numbered in the order of the file, because the list of all classes is complete
    # only now.
    names, order = order_classes(places.places, is_sorted=has_new)
    lines = np.array([record.line for record in records])
    corpus = Corpus(
        *(table.name, (), order[labels], lines, names, asides, np.array(digests), dict(counts))
    )
    return corpus, records, texts


def say_corpus(corpus: Corpus, say: Callable[[str], None], targets: str | None = None) -> None:
    """Calls `say` with the classes, or with `targets`, and a line about unusable lines."""
    counts = sorted(corpus.class_counts.items(), key=lambda pair: -pair[1])
    listing = ", ".join(f"{label} {count:,}" for label, count in counts[:10])
    remainder = f", and {len(counts) - 10} more" if len(counts) > 10 else ""
    say(f"{corpus.name}: {targets or f'{corpus}: {listing}{remainder}'}")
    if count := corpus.asides.count:
        first = "; ".join(map(str, corpus.asides.first))
        say(f"{render_count(count, 'line')} set aside, as {first}")


def order_classes(
    positions: Mapping[Label, int], *, is_sorted: bool
) -> tuple[tuple[Label, ...], np.ndarray]:
    """Returns the classes, sorted or as they came, and the place of each label in them."""
    names = tuple(positions)
    if is_sorted:
        # `float` does not read numbers here, because an integer may be larger than any float.
        names = tuple(sorted(names, key=str if any(isinstance(n, str) for n in names) else None))
    place = {name: i for i, name in enumerate(names)}
    return names, np.array([place[name] for name in positions], np.int32)


def check_classes(
    name: str, labels: Collection[Label], lines: int, *, most: int = _FEW, noun: str = "labels"
) -> None:
    """Raises ValueError if more than `most` labels, and more than half of them, are different."""
    if len(labels) <= max(most, lines / 2):
        return
    if noun == "tags":
        hint = "name the columns of the words and of the tags (--word N --tag N, from 0)"
    else:
        hint = "name the column that has the classes (--label NAME), or "
        if are_numbers(labels):
            hint += "predict the number with --task regression (in Python with TextRegressor)"
        else:
            hint += "put numbers into ranges"
    raise ValueError(
        f"{name}: {noun} must be classes, got {len(labels):,} different {noun} among {lines:,}: "
        f"{hint}"
    )


def are_numbers(labels: Iterable[Label]) -> bool:
    """Returns True if there are labels and all of them are numbers or texts such as "3.5"."""
    labels = list(labels)
    try:
        for label in labels:
            parse_number(label)
    except (ValueError, OverflowError):
        return False
    return bool(labels) and not any(isinstance(label, bool) for label in labels)


def check_trainable(corpus: Corpus, *, split: bool, has_classes: bool = True) -> None:
    """Raises ValueError unless there are two classes, and with `split` two different texts."""
    noun, user, unit = "classes", "classifier", "different texts"
    if corpus.is_tagged:
        noun, user, unit = "tags", "tagger", "sentences"
    hint = ": add texts, or give validation data"
    if has_classes and len(corpus.classes) < 2:
        count = corpus.asides.count
        requirement = f"at least two {noun} for a {user}, got only {corpus.classes[0]!r}"
        requirement += f" ({count:,} could not be used)" * bool(count)
    elif split and len(np.unique(equal_texts(corpus))) < 2:
        requirement = f"two {unit}, for training and validation, got one{hint}"
    elif split and has_classes and len(single_text_classes(corpus)) == len(corpus.classes):
        requirement = (
            "a class with two different texts, for training and validation, got one for each "
            f"class{hint}"
        )
    else:
        return
    raise ValueError(f"{corpus.name} must have {requirement}")


def split_training(corpus: Corpus, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions for training, and at most 20,000 for validation, by `split_texts`."""
    # All validation texts are read in each evaluation, so their number has a limit.
    share, equal = min(held_out, _LARGEST_HELD / len(corpus)), equal_texts(corpus)
    training, validation = split_texts(corpus.labels, share, equal)
    if len(validation):
        return training, validation
    # With few texts each class or stratum may have a single text, which would be for training.
    return split_texts(np.zeros(len(corpus), np.int32), share, equal)


def split_texts(
    labels: Labels, fraction: float, equal: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions for training and for validation, in proportion to the classes. Equal
    texts are in the same part, so that validation tests no text of training. Both parts get a text
    of each class with two different texts; a single text is for training.
    """
    if not isinstance(labels, np.ndarray):
        # A sentence has many tags, so there is no class by which it could be stratified.
        labels = np.zeros(len(labels), np.int32)
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
    """Returns the vocabulary, frequent words first, and the id in it of each number, int32."""
    counts = count_words(corpus.texts, numbers)
    if len(excluded):
        # Words of the validation texts do not count, because only the training texts may determine
        # the vocabulary.
        counts -= count_words([rows.select(excluded) for rows in corpus.texts], numbers)
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
    return vocabulary, np.array(vocabulary.encode(numbers.ids), np.int32).reshape(-1)


def count_words(texts: Iterable[Rows], numbers: Numbers) -> np.ndarray:
    """Returns int64 [number of words]: how often each word occurs in columns of texts."""
    return np.bincount(np.concatenate([rows.flat for rows in texts]), minlength=len(numbers.ids))


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
            # A word counts once in a text, and each time that it has a tag.
            np.add.at(counts, (label, ids if np.ndim(label) else np.unique(ids)), 1)
    logs = np.log(counts / counts.sum(axis=1, keepdims=True))
    ratios = (logs - logs.mean(axis=0)).T
    ratios[: len(SPECIALS)] = 0
    return ratios


def digest_of(corpora: Mapping[str, Corpus]) -> str:
    """Computes a hash of texts and labels, which is compared when training continues."""
    digest = hashlib.sha256()
    for name, corpus in sorted(corpora.items()):
        digest.update(name.encode())
        digest.update(corpus.flat_labels.tobytes())
        for rows in corpus.texts:
            # The starts are hashed too, because the same ids may be divided into other texts.
            digest.update(rows.starts.tobytes() + rows.flat.tobytes())
    return digest.hexdigest()[:16]


# A list of quoted texts or of numbers, or an empty list, as Python, NumPy and JSON write it.
# The possessive repetitions take all spaces, because three that share them would take cubic time.
_LIST = re.compile(r"""\[\s*+((["']).*\2\s*+|[\d\s.,]*+)\]""", re.DOTALL)


def encode_corpus(corpus: Corpus, target: Target) -> tuple[np.ndarray, Corpus]:
    """Returns the targets of the texts, and the corpus with the stratum of each text in place of
    its class: a class, a grade, the rarest label, or a tenth of the numbers. Texts are split in
    proportion to the strata.
    """
    targets = target.encode(corpus.classes)[corpus.labels]
    labels, classes = target.stratify(targets)
    return targets, dataclasses.replace(corpus, labels=labels, classes=classes)


def note_joined_labels(labels: Iterable[Any]) -> str | None:
    """Returns a sentence about labels that look like several labels in a cell, or None: a list as
    text, as "['a', 'b']", or other labels with ";", "," or "|" between them.

        >>> note_joined_labels(["a", "b", "a;b"]).split(":")[0]
        "labels with several labels in a cell ('a;b') count as single labels"
        >>> note_joined_labels(["a", "b", "c;d"]) is None
        True
    """
    different = {name for names in labels for name in (names if type(names) is tuple else [names])}
    texts = {name.strip() for name in different if isinstance(name, str)}
    joined = sorted(name for name in texts if _LIST.fullmatch(name) or _is_joined(name, texts))
    if not joined:
        return None
    shown = ", ".join(map(repr, joined[:3])) + ", ..." * (len(joined) > 3)
    return (
        f"labels with several labels in a cell ({shown}) count as single labels: for several "
        "labels of a text give a list in .jsonl, or __label__a __label__b in .txt, with --task "
        "labels"
    )


def _is_joined(name: str, labels: Container[str]) -> bool:
    parts = [[part.strip() for part in name.split(mark)] for mark in ";,|" if mark in name]
    return any(all(part in labels for part in split) for split in parts)


def list_single(strata: Corpus, target: Target, targets: np.ndarray) -> list[Label]:
    """Returns classes or labels that only a single text has; validation cannot check them."""
    return single_text_classes(strata) if target.has_classes else target.list_single(targets)


def equal_texts(corpus: Corpus) -> np.ndarray:
    """Returns for each text the first position of the same words; tagged sentences all differ."""
    if corpus.digests is None:
        return np.arange(len(corpus))
    _, first, inverse = np.unique(corpus.digests, return_index=True, return_inverse=True)
    return first[inverse]


def single_text_classes(corpus: Corpus) -> list[Label]:
    """Returns the classes that have only copies of a single text, so that they cannot be split."""
    if corpus.is_tagged:
        return []
    # A pair of a text and a class is a single number, because it is faster to sort numbers.
    number = len(corpus.classes)
    pairs = np.unique(equal_texts(corpus) * number + corpus.labels)
    counts = np.bincount(pairs % number, minlength=number)
    return [label for label, count in zip(corpus.classes, counts, strict=True) if count < 2]


def render_single(labels: Sequence[Label], noun: str = "classes") -> str:
    """Returns a sentence about classes or labels that only a single text has."""
    # A line with hundreds of names is not read.
    names = join_first([repr(label) for label in labels], 5)
    return f"{noun} with a single text are learned, and validation cannot check them: {names}"


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The texts of a corpus that occur more than once, compared by their words."""

    copies: int  # lines that repeat an earlier text
    conflicts: int  # different texts with several labels
    lines: int  # lines with a text that has several labels
    examples: tuple[tuple[tuple[int, Label], ...], ...]  # (line, label) in up to three conflicts

    def to_report(self) -> Json:
        """Returns the numbers for `report.json`, a dict, or {} without copies."""
        return {"copies": self.copies, "conflicts": self.conflicts} if self.copies else {}

    def render(self) -> list[str]:
        """Returns a sentence about copies and a sentence about contradictions, if there are any."""
        if not self.copies:
            return []
        sentences = [render_count(self.copies, "duplicate line")]
        shown = "; ".join(
            " and ".join(f"{label!r} in line {line:,}" for line, label in example)
            for example in self.examples
        )
        if self.conflicts == 1 and self.lines == 2:
            sentences.append(f"one text has two labels ({shown}); one of them must be wrong")
        elif self.conflicts:
            sentences.append(
                f"{render_count(self.conflicts, 'text')} with different labels on "
                f"{self.lines:,} lines, some of which must be wrong: {shown}"
            )
        return sentences


def find_duplicates(corpus: Corpus) -> Duplicates:
    """Counts the texts of a `Corpus` that occur more than once or have several labels."""
    if corpus.is_tagged:
        return Duplicates(0, 0, 0, ())
    first = equal_texts(corpus)
    counts = np.bincount(first)
    number = len(corpus.classes)
    pairs = np.unique(first * number + corpus.labels)
    several = np.bincount(pairs // number) > 1
    examples = []
    for text in np.flatnonzero(several)[:3]:
        copies = np.flatnonzero(first == text)
        _, places = np.unique(corpus.labels[copies], return_index=True)
        shown = copies[np.sort(places)][:3]
        lines, labels = corpus.lines[shown].tolist(), corpus.labels[shown].tolist()
        examples.append(
            tuple((line, corpus.classes[i]) for line, i in zip(lines, labels, strict=True))
        )
    return Duplicates(
        copies=len(first) - int(np.sum(counts > 0)),
        conflicts=int(np.sum(several)),
        lines=int(np.sum(counts[several])),
        examples=tuple(examples),
    )


def count_overlap(corpus: Corpus, other: Corpus) -> int:
    """Counts the texts of `other` that are in `corpus`, both read with the same `Numbers`."""
    if corpus.digests is None or other.digests is None:
        return 0
    return int(np.sum(np.isin(other.digests, corpus.digests)))
