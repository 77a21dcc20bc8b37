"""Tokenisation of raw text into the words of the GloVe vocabulary."""

import functools
import itertools
import re
import sys
import unicodedata

_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_NOT = re.compile(r"(?<=\w)n['’]t\b", re.IGNORECASE)
_CLITIC = re.compile(r"(?<=\w)['’](s|re|ve|ll|d|m)\b", re.IGNORECASE)
_TOKEN = re.compile(
    r"""
      n't\b | '(?:s|re|ve|ll|d|m)\b     # clitics, split off above
    | (?:[^\W\d_]\.){2,}                # u.s.
    | \d+(?:[.,:]\d+)+                  # 1,000  3.5  10:30
    | [^\W_]+                           # words  90s
    | \.{2,} | -{2,}                    # ... --
    | [^\w\s] | _                       # any other mark by itself
    """,
    re.VERBOSE | re.IGNORECASE,
)

# For longer texts it is faster to stop after `most` words than to find all of them.
_LONG = 10_000


@functools.cache
def mark_ranges() -> str:
    """Returns the ranges of all combining marks for a pattern, as `re` has no class for them."""
    codes = [c for c in range(0x300, 0x20000) if unicodedata.category(chr(c))[0] == "M"]
    # Consecutive codes have the same difference to their positions.
    runs = itertools.groupby(enumerate(codes), lambda pair: pair[1] - pair[0])
    ends = ([code for _, code in run] for _, run in runs)
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in ends)


@functools.cache
def _with_marks() -> re.Pattern[str]:
    marks = mark_ranges() + "\u200c\u200d"  # joiners and non-joiners inside words
    pattern = _TOKEN.pattern.replace(r"[^\W_]+", rf"[^\W_](?:[^\W_]|[{marks}])*")
    return re.compile(pattern.replace(r"[^\w\s]", rf"[^\w\s][{marks}]*"), _TOKEN.flags)


def tokenize(text: str, *, marks: bool = False, most: int | None = None) -> tuple[str, ...]:
    """Splits raw text into words and punctuation marks, like the corpus of GloVe 6B.

    `<br />` is a space. Clitics are split as in the Penn Treebank ("don't" -> "do n't", "it's" ->
    "it 's"), hyphens split words, runs of full stops become "..." and of hyphens "--". Case does
    not change (the vocabulary lower-cases).

    Args:
      text: the raw text.
      marks: True to treat combining marks, such as a vowel sign of Hindi or the accent of a
        decomposed letter, as parts of words, and to compose letters and accents (NFC). In the
        corpus of GloVe a mark ends a word (False).
      most: the largest number of words to return; None returns all.

    Returns:
      The words.

    >>> tokenize("It's well-made, isn't it?<br />Yes...")
    ('It', "'s", 'well', '-', 'made', ',', 'is', "n't", 'it', '?', 'Yes', '...')
    """
    text = _BREAK.sub(" ", text)
    if "'" in text or "’" in text:
        text = _CLITIC.sub(r" '\1", _NOT.sub(" n't", text))
    token = _TOKEN
    if marks and not text.isascii():
        text, token = unicodedata.normalize("NFC", text), _with_marks()
    if most is None or len(text) < _LONG:
        words = token.findall(text)[:most]
    else:
        words = [match[0] for match in itertools.islice(token.finditer(text), most)]
    # Equal words share a single string, because a corpus has far more tokens than words.
    return tuple([sys.intern(_RUNS.get(w[:2], w)) if len(w) > 1 else w for w in words])


_RUNS = {"..": "...", "--": "--"}

_TREEBANK = re.compile(
    r"""
      @placeholder\b
    | n't\b | '(?:s|re|ve|ll|d|m)\b          # clitics, split off above
    | (?:Mr|Mrs|Ms|Dr|St|Prof|Capt|Col|Gen|Rev|Hon|Jr|Sr|vs|etc|No)\.(?=\s)
    | (?:[^\W\d_]\.){2,}                     # U.S.
    | \d+(?:[.,:]\d+)*                       # 1,000  3.5  10:30
    | [^\W_]+(?:[-'][^\W_]+)*                # words, with hyphens and apostrophes inside
    | \.{2,} | -{2,} | `` | ''
    | [^\w\s] | _
    """,
    re.VERBOSE,
)
_OPENING = re.compile(r'(^|[\s([{-])"')
_OPENING_SINGLE = re.compile(r"(^|[\s([{-])'(?=\w)")
_PLAIN = {"“": " `` ", "”": " '' ", "‘": " ` ", "’": "'", "—": " -- ", "–": "-"}


def treebank_tokens(text: str) -> list[str]:
    """Splits text into tokens like the Children's Book Test, close to the Penn Treebank."""
    for fancy, plain in _PLAIN.items():
        text = text.replace(fancy, plain)
    text = re.sub(r"\bXXXXX\b", "@placeholder", text)
    # A quote after a space or a bracket opens; other quotes close.
    text = _OPENING.sub(r"\1 `` ", text).replace('"', " '' ")
    text = _OPENING_SINGLE.sub(r"\1 ` ", text)
    text = _CLITIC.sub(r" '\1", _NOT.sub(" n't", text))
    words = _TREEBANK.findall(text)
    return ["..." if re.fullmatch(r"\.{2,}", w) else "--" if w[:2] == "--" else w for w in words]


BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]"}
