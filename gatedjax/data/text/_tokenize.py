"""Splitting of raw text into the words that the GloVe vocabulary has."""

import re
import sys

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


def tokenize(text: str) -> tuple[str, ...]:
    """Splits raw text into words and punctuation marks, in the way GloVe 6B was counted.

    `<br />` is a space. Clitics are split as in the Penn Treebank ("don't" -> "do n't", "it's" ->
    "it 's"), hyphens split words, runs of full stops become "..." and of hyphens "--". Case is kept
    (the vocabulary lower-cases).

    >>> tokenize("It's well-made, isn't it?<br />Yes...")
    ('It', "'s", 'well', '-', 'made', ',', 'is', "n't", 'it', '?', 'Yes', '...')
    """
    text = _BREAK.sub(" ", text)
    if "'" in text or "’" in text:
        text = _CLITIC.sub(r" '\1", _NOT.sub(" n't", text))
    words = _TOKEN.findall(text)
    return tuple([sys.intern(_RUNS.get(w[:2], w)) if len(w) > 1 else w for w in words])


_RUNS = {"..": "...", "--": "--"}
