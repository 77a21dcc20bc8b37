"""Plain text as tokens and sentences, in the form of the Children's Book Test."""

import re

_TOKEN = re.compile(
    r"""
      @placeholder\b
    | n't\b | '(?:s|re|ve|ll|d|m)\b          # clitics, split off below
    | (?:Mr|Mrs|Ms|Dr|St|Prof|Capt|Col|Gen|Rev|Hon|Jr|Sr|vs|etc|No)\.(?=\s)
    | (?:[^\W\d_]\.){2,}                     # U.S.
    | \d+(?:[.,:]\d+)*                       # 1,000  3.5  10:30
    | [^\W_]+(?:[-'][^\W_]+)*                # words, with hyphens and apostrophes inside
    | \.{2,} | -{2,} | `` | ''
    | [^\w\s] | _
    """,
    re.VERBOSE,
)
_NOT = re.compile(r"(?<=\w)n['’]t\b", re.IGNORECASE)
_CLITIC = re.compile(r"(?<=\w)['’](s|re|ve|ll|d|m)\b", re.IGNORECASE)
_OPENING = re.compile(r'(^|[\s([{-])"')
_OPENING_SINGLE = re.compile(r"(^|[\s([{-])'(?=\w)")
_PLAIN = {"“": " `` ", "”": " '' ", "‘": " ` ", "’": "'", "—": " -- ", "–": "-"}

END = {".", "!", "?", "..."}
_CLOSING = {"''", "'", ")", "]"}


def tokens_of(text: str) -> list[str]:
    """Splits text into tokens as in the Children's Book Test, roughly those of the Penn Treebank.

    Double quotes become `` and '', single ones that open become `, clitics are split off ("do n't",
    "Heidi 's"), words with hyphens stay whole, titles keep their full stop. XXXXX stands for the
    placeholder.
    """
    for fancy, plain in _PLAIN.items():
        text = text.replace(fancy, plain)
    text = re.sub(r"\bXXXXX\b", "@placeholder", text)
    # an opening quote follows a space or a bracket; any other one closes
    text = _OPENING.sub(r"\1 `` ", text).replace('"', " '' ")
    text = _OPENING_SINGLE.sub(r"\1 ` ", text)
    text = _CLITIC.sub(r" '\1", _NOT.sub(" n't", text))
    words = _TOKEN.findall(text)
    return ["..." if re.fullmatch(r"\.{2,}", w) else "--" if w[:2] == "--" else w for w in words]


def sentences_of(tokens: list[str]) -> list[list[str]]:
    """Cuts tokens in sentences: after . ! ? ... and what closes behind them.

    Inside quotes a sentence ends only if the next word has a capital, so that `` Why ? '' he asked
    stays whole.
    """
    sentences: list[list[str]] = []
    current: list[str] = []
    i = 0
    while i < len(tokens):
        current.append(tokens[i])
        if tokens[i] in END:
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
