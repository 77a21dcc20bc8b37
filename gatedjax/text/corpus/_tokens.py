"""The tokenizers of a model for texts, and their form in a model folder."""

import dataclasses
import itertools
import pkgutil
import sys
from collections.abc import Callable, Iterable
from typing import Any, cast

from gatedjax._utils.choices import suggestion
from gatedjax._utils.types import Json
from gatedjax.data.text._bpe import BytePairs
from gatedjax.data.text._tokenize import character_tokens, social_tokens, tokenize, unescape
from gatedjax.data.text._units import RUN, Units
from gatedjax.text.sources._labels import CONTROL

Function = Callable[[str], Iterable[str]]
"""A function from a text to its tokens."""
KINDS = ("words", "social", "characters", "bpe")
"""The values of `--tokens`."""
LEXICON_KIND = "social"
"""The value of `--tokens` for a lexicon that has no other."""
# The kind of a tokenizer that a user passed as a function.
_CUSTOM = "custom"
# The number of tokens that a splitter remembers.
_MOST_FORMS = 200_000
# A token that still changes after this many splits is left out.
_ROUNDS = 8
# The number of pieces of a byte-pair encoding; short training texts give fewer.
_PIECES = 8000
# A text on which a function must give the same tokens as the function of the training.
_PROBE = "It's 3.5 stars, isn't it? #fun @ann: Caf\u00e9 \u597d\u770b https://example.org/a"


class NeedsTokenizer(ValueError):
    """Raised if a model folder needs a function that was not passed, or another function."""


def split_words(text: str, most: int | None = None) -> tuple[str, ...]:
    """Splits a text into at most `most` tokens; invisible characters count as spaces."""
    return Tokenizer().split(text, most)


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """A rule that splits texts into tokens.

    >>> Tokenizer("social").split("#dull &amp; flat, isn't it")
    ('#dull', '&', 'flat', ',', "isn't", 'it')
    """

    kind: str = "words"  # "words" (as in GloVe), "social", "characters", "bpe" or "custom"
    units: Units | None = None  # of scripts without spaces; None leaves their runs whole
    pieces: BytePairs | None = None  # for bpe
    function: Function | None = None  # for custom
    lowercase: bool = False  # for bpe with pieces of texts in lower case

    def __post_init__(self) -> None:
        if self.function is None and self.kind not in KINDS:
            raise ValueError(
                f"tokens must be one of {', '.join(map(repr, KINDS))}, got {self.kind!r}."
                f"{suggestion(str(self.kind), KINDS)}"
            )
        if self.function is not None:
            if not callable(self.function):
                raise TypeError(
                    "tokenizer must be a function from a text to a list of its tokens, got "
                    f"{self.function!r:.40}: for a rule of this library give tokens="
                )
            self.split(_PROBE)

    def split(self, text: str, most: int | None = None) -> tuple[str, ...]:
        """Splits a text into at most `most` tokens."""
        if self.function is not None:
            result = self.function(text)
            # A text is iterable too: its characters would silently become the tokens.
            parts = (None,) if isinstance(result, str | bytes) else tuple(result)
            if not all(isinstance(token, str) for token in parts):
                raise ValueError(
                    f"tokenizer must return a list of texts, got {result!r:.80} for the text "
                    f"{text!r:.40}"
                )
            return tuple(str(token) for token in parts if token)[:most]
        text = self.prepare(text)
        if self.kind == "characters":
            return character_tokens(text, most)
        if self.pieces is not None:
            return tuple(self.pieces.pieces(self.pieces.encode(text)[:most]))
        if self.kind == "social":
            tokens = tuple(social_tokens(text, most))
        else:
            tokens = tokenize(text, marks=True, most=most)
        return tokens if self.units is None else tuple(self.units.split(tokens)[:most])

    def prepare(self, text: str) -> str:
        """Returns a text in the form in which it is split."""
        # Entities come first, because an entity may stand for an invisible character.
        text = unescape(text) if self.kind == "social" else text
        # No invisible character is printable, and this test is faster than the search.
        if not text.isprintable():
            text = CONTROL.sub(" ", text)
        return text.lower() if self.lowercase else text

    def to_json(self) -> Json | None:
        """Returns the tokenizer as a dict for JSON, or None for the default tokenizer."""
        if self == Tokenizer():
            return None
        value: Json = {"kind": self.kind}
        if self.units is not None:
            value |= {"units": self.units.counts, "total": self.units.total}
        if self.pieces is not None:
            value |= {"pieces": self.pieces.to_json(), "lowercase": self.lowercase}
        if self.function is not None:
            value |= {"path": import_path(self.function), "sample": list(self.split(_PROBE))}
        return value

    @classmethod
    def from_json(cls, value: object, function: Function | None = None) -> "Tokenizer":
        """Returns the tokenizer that `to_json` described. A function is never imported by its path,
        because a model folder of a stranger could name any function; the caller passes it.
        """
        if not isinstance(value, dict | None):
            raise ValueError(f"tokens must be a JSON object, got {value!r:.80}")
        value = value or {"kind": "words"}
        kind = value.get("kind")
        if kind == _CUSTOM:
            return _match(value, function)
        if function is not None:
            raise NeedsTokenizer(
                f"tokenizer must be None for a model that was trained with tokens={kind!r}, got "
                f"{function!r}: leave it out"
            )
        units = value.get("units")
        if not isinstance(units, dict | None):
            raise ValueError(f"units must be a JSON object with counts, got {units!r:.80}")
        return cls(
            cast(str, kind),
            None if units is None else Units(units, cast(int, value.get("total"))),
            BytePairs.from_json(str(value.get("pieces"))) if kind == "bpe" else None,
            lowercase=value.get("lowercase") is True,
        )


def _match(value: Json, function: Function | None) -> Tokenizer:
    """Returns the tokenizer of a user's function, which must be the function of the training."""
    path = value.get("path") if isinstance(value.get("path"), str) else None
    name = path or "a function without an import path"
    if function is None:
        example = path.rpartition(":")[2] if path else "my_function"
        raise NeedsTokenizer(
            f"tokenizer must be {name}, with which the model was trained and which its folder does "
            "not store, got none: load it in Python with "
            f"TextClassifier.load(folder, tokenizer={example})"
        )
    tokenizer = Tokenizer(_CUSTOM, function=function)
    sample = list(tokenizer.split(_PROBE))
    if sample != value.get("sample"):
        raise NeedsTokenizer(
            f"tokenizer must split texts like {name}, with which the model was trained: "
            f"{_PROBE!r} became {value.get('sample')!r:.200}, and now {sample!r:.200}"
        )
    return tokenizer


def choose_tokenizer(
    kind: str | None,
    function: Function | None,
    texts: Callable[[], Iterable[str]],
    *,
    lowercase: bool,
) -> Tokenizer:
    """Returns the tokenizer of a training, before units of scripts without spaces are learned."""
    if function is not None:
        return Tokenizer(_CUSTOM, function=function)
    if kind != "bpe":
        return Tokenizer(kind or "words")
    rule = Tokenizer(kind, lowercase=lowercase)
    try:
        pieces = BytePairs.train(map(rule.prepare, texts()), _PIECES)
    except ImportError as error:
        raise ValueError(f"tokens must be another rule than 'bpe' here: {error}") from None
    return dataclasses.replace(rule, pieces=pieces)


def learn_units(rule: Tokenizer, texts: Iterable[str]) -> Tokenizer:
    """Returns a tokenizer with the units of scripts without spaces that are learned from texts."""
    if rule.kind not in ("words", "social"):
        return rule
    return dataclasses.replace(rule, units=Units.learn(map(rule.prepare, texts)))


class Splitter:
    """A tokenizer with tokens that stay the same if some of them are left out: with words, social
    and characters each token of a text is also the only token of itself, so that
    `split(" ".join(tokens))` returns the tokens again.
    """

    def __init__(self, tokenizer: Tokenizer, lowercase: bool = True) -> None:
        self.tokenizer, self.lowercase = tokenizer, lowercase
        self._is_repeatable = tokenizer.kind in ("words", "social", "characters")
        # Token -> the tokens that replace it.
        self._parts: dict[str, tuple[str, ...]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled model contains no words of the texts that it has read.
        return type(self), (self.tokenizer, self.lowercase)

    def split(self, text: str) -> list[str]:
        """Returns the tokens of a text, each the only token of itself if the kind allows it."""
        # Parts are cached to save time, and dropped when they take too much memory. Another thread
        # may still use the cache, so it is replaced instead of cleared.
        if len(self._parts) > _MOST_FORMS:
            self._parts = {}
        parts, tokens = self._parts, self.tokenizer.split(text)
        for token in tokens:
            if token not in parts:
                parts[token] = self._settle(token)
        return [*itertools.chain.from_iterable(map(parts.__getitem__, tokens))]

    def split_again(self, tokens: Iterable[str]) -> list[str]:
        """Joins tokens by spaces, and splits the result again as a new text. Pieces of a byte-pair
        encoding and tokens of a function stay, because joined by spaces they are another text.
        """
        return self.split(" ".join(tokens)) if self._is_repeatable else list(tokens)

    def _settle(self, token: str) -> tuple[str, ...]:
        """Returns the tokens that replace a token of the tokenizer."""
        # Equal tokens share a string, because a corpus has far more tokens than words.
        token = sys.intern(token.lower() if self.lowercase else token)
        units = self.tokenizer.units
        # A word of ASCII letters is the only token of itself, and most words are of this kind.
        if not self._is_repeatable or (token.isascii() and token.isalpha()):
            return (token,)
        # For posts a unit of a script without spaces is cut again by the units alone.
        if self.tokenizer.kind == "social" and units is not None and RUN.fullmatch(token):
            return units.cut(token)
        return tuple(map(sys.intern, self._split_again(token, _ROUNDS)))

    def _split_again(self, token: str, rounds: int) -> list[str]:
        parts = [p.lower() if self.lowercase else p for p in self.tokenizer.split(token)]
        if parts == [token]:
            return parts
        # Each split of a token in parts or in another form is split again, a few times at most.
        return [p for part in parts if rounds for p in self._split_again(part, rounds - 1)]


def import_path(function: Any) -> str | None:
    """Returns "module:name" of a function, or None if this path does not lead to it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module == "__main__":
        return None
    path = f"{module}:{name}"
    try:
        return path if pkgutil.resolve_name(path) is function else None
    except (ImportError, AttributeError, ValueError):
        return None
