"""Tokens of raw text: the words of GloVe, of the Penn Treebank, and of posts and chats."""

import functools
import html
import itertools
import re
import sys
import unicodedata

from gatedjax.data.text._units import RUN, SPACELESS, is_mark

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
    words = _find_all(token, text, most)
    # Equal words share a single string, because a corpus has far more tokens than words.
    return tuple([sys.intern(_RUNS.get(w[:2], w)) if len(w) > 1 else w for w in words])


def _find_all(pattern: re.Pattern[str], text: str, most: int | None) -> list[str]:
    # For longer texts it is faster to stop after `most` tokens than to find all of them.
    if most is None or len(text) < _LONG:
        return pattern.findall(text)[:most]
    return [match[0] for match in itertools.islice(pattern.finditer(text), most)]


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

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_PICTURE = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe"
    "\u2600-\u27bf\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_VARIED = f"{_PICTURE}(?:\ufe0f|[\U0001f3fb-\U0001f3ff])?[\U000e0020-\U000e007f]*"
_KEYCAP = "[0-9#*]\ufe0f?\u20e3"
EMOJI = (
    "[\U0001f1e6-\U0001f1ff]{2}"  # a flag: two regional indicators
    f"|{_VARIED}(?:\u200d{_VARIED})*"  # with skin tones, and joined, as in a family
)
"""A regular expression of an emoji sequence (a single picture) that is not a keycap."""
_SITE = rf"(?i:https?://|www\.)(?:(?![{SPACELESS}])[\w.:@%-])*(?![{SPACELESS}])\w"
# All combining marks, joiners and scripts without spaces are here.
_HIGH = re.compile("[\u0300-\U0010ffff]+")
_LINK = re.compile(rf"({_SITE})(?:[/?#](?:[!#-;=?-~]*[A-Za-z0-9_/=&%#+~-])?)?")


@functools.cache
def _social(
    is_ascii: bool, has_marks: bool, has_links: bool, has_names: bool, is_spaceless: bool
) -> re.Pattern[str]:
    """Returns the pattern of a token, without the alternatives that a text cannot contain."""
    # The pattern of an ASCII text without links and names takes a fifth of the time of the whole.
    marks = mark_ranges() if has_marks else ""
    other = rf"(?![{SPACELESS}])" if is_spaceless else ""
    letter = rf"[\w{marks}\u200c\u200d]" if marks else r"\w"
    word = rf"{other}\w(?:{other}{letter})*" if other else rf"\w{letter}*"
    parts = [_SITE] if has_links else []
    if has_names:
        # An address of electronic mail comes first, because it has "@" inside.
        # It starts where its characters start, because a search from each of them to the last would
        # take quadratic time.
        parts += [r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+", rf"(?<!\w)[@#][\w{marks}]+"]
    if has_marks:
        parts.append(_KEYCAP)
    parts.append(r"\d+(?:[.,:]\d+)+")  # 1,000  3.5  10:30
    if is_spaceless:
        parts.append(f"[{SPACELESS}]+")
    parts.append(rf"{word}(?:'{word})*")  # don't
    if not is_ascii:
        parts.append(EMOJI)
    # Any other mark is a token by itself.
    parts.append(rf"[^\w\s\u200c\u200d\ufe0e\ufe0f][{marks}]*" if marks else r"[^\w\s]")
    return re.compile("|".join(parts), re.ASCII if is_ascii else re.NOFLAG)


@functools.cache
def _character() -> re.Pattern[str]:
    return re.compile(
        rf"{_KEYCAP}|{EMOJI}|[^\s\u200c\u200d\ufe0e\ufe0f][{mark_ranges()}\u200c\u200d]*"
    )


def unescape(text: str) -> str:
    """Replaces the entities of HTML in a text, such as "&amp;" and "&#39;", by their characters.

    An entity must end with a semicolon, because "AT&T" and "a&not b" have none.

        >>> unescape("R&amp;B &lt;3 AT&T")
        'R&B <3 AT&T'
    """
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text) if "&" in text else text


def social_tokens(text: str, most: int | None = None) -> list[str]:
    """Splits a post into words, links, names, hashtags, emoji sequences and single marks. Entities
    are replaced, and accents are composed with their letters (NFC). A link is cut to its site,
    because the rest is seldom repeated. A run of a script without spaces is a single token.

        >>> social_tokens("@ann don't miss https://a.org/x?y=1 #film &amp; 10:30!")
        ['@ann', "don't", 'miss', 'https://a.org', '#film', '&', '10:30', '!']
    """
    text = unescape(text)
    if "<" in text:
        text = _BREAK.sub(" ", text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text.replace("\u2019", "'"))
    if "\u20e3" in text:
        # Otherwise the digit of a keycap would belong to a word before it.
        text = re.sub(_KEYCAP, r" \g<0> ", text)
    has_links = "://" in text or "www." in text.lower()
    if has_links:
        text = _LINK.sub(r"\1", text)
    is_ascii = text.isascii()
    # A search for marks or scripts in all characters would take longer than that for the tokens.
    high = "" if is_ascii else "".join(_HIGH.findall(text))
    pattern = _social(
        is_ascii,
        any(character in "\u200c\u200d" or is_mark(character) for character in set(high)),
        has_links,
        "@" in text or "#" in text,
        RUN.search(high) is not None,
    )
    return _find_all(pattern, text, most)


def character_tokens(text: str, most: int | None = None) -> tuple[str, ...]:
    """Splits a text into characters (NFC) without spaces; accents and emoji sequences stay whole.

    >>> character_tokens("so 3!")
    ('s', 'o', '3', '!')
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    # Equal tokens share a single string, because a corpus has far more tokens than words.
    return tuple(map(sys.intern, _find_all(_character(), text, most)))
