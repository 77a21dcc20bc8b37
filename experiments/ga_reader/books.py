"""Plain text and books as sentences of tokens, with their names and common nouns.

Names and nouns are found by counting how a book uses its words, without a tagger. The rules are
rough (see `names_of` and `nouns_of`). They suffice to try a reader on other texts, but the
published data sets were built differently.
"""

import collections
import re
from collections.abc import Iterable
from pathlib import Path

from gatedjax.data.files._unpack import open_compressed
from gatedjax.data.text._tokenize import treebank_tokens as tokens_of

END = {".", "!", "?", "..."}
_CLOSING = {"''", "'", ")", "]"}


def sentences_of(tokens: list[str]) -> list[list[str]]:
    """Splits tokens into sentences, after . ! ? ... and the quotes and brackets that close there. A
    sentence continues if the next word begins with a lower-case letter, so that `` Why ? '' he
    asked remains a single sentence."""
    sentences: list[list[str]] = []
    current: list[str] = []
    i = 0
    while i < len(tokens):
        current.append(tokens[i])
        if tokens[i] in END:
            # Closing quotes and brackets belong to the sentence that they end.
            while i + 1 < len(tokens) and tokens[i + 1] in (_CLOSING | END):
                i += 1
                current.append(tokens[i])
            following = tokens[i + 1] if i + 1 < len(tokens) else ""
            if not following[:1].islower():
                sentences.append(current)
                current = []
        i += 1
    if current:
        sentences.append(current)
    return sentences


# Books -------------------------------------------------------------------------------------------

_START = re.compile(r"\*\*\* ?START OF .*?\*\*\*", re.IGNORECASE)
_END = re.compile(r"\*\*\* ?END OF ", re.IGNORECASE)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DETERMINERS = _words(
    "the a an this that these those his her my your our their its every each some any no"
)
# Tokens after nouns, rarely after adjectives: punctuation, prepositions, conjunctions, auxiliaries.
_AFTER_NOUN = _words(
    ". , ; : ! ? '' ) -- of in on at to for from with by under over into upon and or but that "
    "which who was were is are had has have would could should will can may must did do does 's "
    "as than when while where"
)
_NEVER_NAMES = _words(
    "I Mr. Mrs. Ms. Dr. St. Mr Mrs Miss Sir Madam Lady Lord Monday Tuesday Wednesday Thursday "
    "Friday Saturday Sunday January February March April May June July August September October "
    "November December Chapter CHAPTER Christmas God"
)
_OPENS = {"``", "`", "'", "(", "[", "--", ":"}
MIN_COUNT = 3
"""The lowest number of times that a book must use a word as a name or a noun."""

Sentences = list[list[str]]


def read_book(path: Path) -> Sentences:
    """Reads a book and splits its paragraphs, which empty lines separate, into sentences of tokens.

    Text around the book in files of Project Gutenberg is removed, and paragraphs without a
    lower-case letter (headings) are left out. No sentence crosses the end of a paragraph.

    The file is UTF-8, plain or compressed (.gz, .bz2, .xz, .zst or .zip). Raises ValueError if it
    is not, or has no sentence.
    """
    try:
        with open_compressed(path) as file:
            text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8, got another code at byte {error.start}") from error
    start = _START.search(text)
    text = text[start.end() :] if start else text
    end = _END.search(text)
    text = text[: end.start()] if end else text
    sentences: Sentences = []
    for paragraph in re.split(r"\r?\n[ \t]*\r?\n", text):
        if any(c.islower() for c in paragraph):
            # Underscores mark italics in files of Project Gutenberg.
            sentences += sentences_of(tokens_of(paragraph.replace("_", "")))
    if not sentences:
        raise ValueError(f"{path} must have at least 1 sentence, got none")
    return sentences


def _inner(sentence: list[str]) -> Iterable[int]:
    """Yields the positions at which a capital is not due to the start of a sentence or a speech."""
    previous = None
    for i, token in enumerate(sentence):
        if previous is not None and previous not in _OPENS and previous not in ".!?...":
            yield i
        if previous is not None or token not in _OPENS:
            previous = token


def names_of(sentences: Sentences) -> set[str]:
    """Finds the names: words with a capital inside of sentences that are rarely in lower case. A
    name occurs at least three times inside of sentences, and at least five times as often as the
    same word in lower case. Each part of a name counts as a word. Peoples, languages and places are
    names, and so is a title that is always capitalised unless it is in a short list."""
    inside: collections.Counter[str] = collections.Counter()
    small: collections.Counter[str] = collections.Counter()
    for sentence in sentences:
        small.update(token for token in sentence if token.islower())
        inside.update(
            sentence[i]
            for i in _inner(sentence)
            if re.fullmatch(r"[^\W\d_][^\W\d_'-]+", sentence[i]) and sentence[i][0].isupper()
        )
    return {
        word
        for word, count in inside.items()
        if count >= MIN_COUNT and count >= 5 * small[word.lower()] and word not in _NEVER_NAMES
        if not word.isupper()
    }


def nouns_of(sentences: Sentences) -> set[str]:
    """Finds the common nouns: lower-case words after a determiner and before a word that follows
    nouns. A noun occurs at least three times between such words, in at least half of its places
    after a determiner. Adjectives that stand for nouns ("the poor of") can be among them; nouns
    that mostly precede other nouns are missed."""
    after: collections.Counter[str] = collections.Counter()
    closed: collections.Counter[str] = collections.Counter()
    for sentence in sentences:
        for previous, word, following in zip(sentence, sentence[1:], sentence[2:], strict=False):
            if previous.lower() in _DETERMINERS and re.fullmatch(r"[a-z]{3,}", word):
                after[word] += 1
                closed[word] += following in _AFTER_NOUN
    words = _DETERMINERS | _AFTER_NOUN
    return {
        word
        for word, count in closed.items()
        if count >= MIN_COUNT and 2 * count >= after[word] and word not in words
    }
