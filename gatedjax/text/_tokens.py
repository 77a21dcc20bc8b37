"""The tokenizers of a model for texts, and their form in a model folder."""

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from gatedjax._utils.choices import suggestion
from gatedjax._utils.types import Json
from gatedjax.data.text._bpe import BytePairs
from gatedjax.data.text._social import (
    character_tokens,
    find_social_tokens,
    social_tokens,
    unescape,
)
from gatedjax.data.text._tokenize import tokenize
from gatedjax.data.text._units import RUN, Units
from gatedjax.text._labels import CONTROL

Function = Callable[[str], Iterable[str]]
"""A function from a text to its tokens."""
KINDS = ("words", "social", "characters", "bpe")
"""The values of `--tokens`."""
LEXICON_KIND = "social"
"""The value of `--tokens` for a lexicon that has no other."""
CUSTOM = "custom"
"""The kind of a tokenizer that a user passed as a function."""
_MOST_FORMS = 200_000
"""The number of tokens that a splitter remembers."""
_ROUNDS = 8
"""A token that still changes after this many splits is left out."""
_PIECES = 8000
"""The number of pieces of a byte-pair encoding; short training texts give fewer."""
_WITH_UNITS = ("words", "social")
_PROBE = "It's 3.5 stars, isn't it? #fun @ann: Caf\u00e9 \u597d\u770b https://example.org/a"
"""A text on which a function must give the same tokens as the function of the training."""


def split_words(text: str, most: int | None = None) -> tuple[str, ...]:
    """Splits a text into at most `most` tokens; invisible characters count as spaces.

    >>> split_words("A dull, lifeless film!")
    ('A', 'dull', ',', 'lifeless', 'film', '!')
    """
    return Tokenizer().split(text, most)


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """A rule that splits texts into tokens.

    >>> Tokenizer().split("A dull film!")
    ('A', 'dull', 'film', '!')
    >>> Tokenizer("social").split("#dull &amp; flat, isn't it")
    ('#dull', '&', 'flat', ',', "isn't", 'it')
    """

    kind: str = "words"  # "words" (as in GloVe), "social", "characters", "bpe" or "custom"
    units: Units | None = None  # of scripts without spaces; None leaves their runs whole
    pieces: BytePairs | None = None  # for bpe
    function: Function | None = None  # for custom
    lowercase: bool = False  # for bpe with pieces of texts in lower case

    def split(self, text: str, most: int | None = None) -> tuple[str, ...]:
        """Splits a text into tokens."""
        if self.function is not None:
            return _check_tokens(self.function, text)[:most]
        text = self.prepare(text)
        if self.kind == "characters":
            return character_tokens(text, most)
        if self.pieces is not None:
            return tuple(self.pieces.pieces(self.pieces.encode(text)[:most]))
        if self.kind == "social":
            tokens = social_tokens(text, most)
        else:
            tokens = tokenize(text, marks=True, most=most)
        return tokens if self.units is None else tuple(self.units.split(tokens)[:most])

    def find(self, text: str) -> Sequence[str]:
        """Returns the tokens of `split`, in which equal tokens may be two strings."""
        if self.kind != "social":
            return self.split(text)
        tokens = find_social_tokens(self.prepare(text))
        # No character of a script without spaces is ASCII.
        return tokens if self.units is None or text.isascii() else self.units.split(tokens)

    def prepare(self, text: str) -> str:
        """Returns a text in the form in which it is split."""
        # Entities come first, because an entity may stand for an invisible character.
        text = unescape(text) if self.kind == "social" else text
        # No invisible character is printable, and this test is faster than the search.
        if not text.isprintable():
            text = CONTROL.sub(" ", text)
        return text.lower() if self.lowercase else text

    @property
    def name(self) -> str:
        """The kind, or for a function its import path, for messages."""
        return self.kind if self.function is None else import_path(self.function) or "a function"

    def to_json(self) -> Json | None:
        """Returns the tokenizer as a dict for JSON, or None for the tokenizer of old folders."""
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
        if kind == CUSTOM:
            path = value.get("path")
            name = path if isinstance(path, str) else "a function without an import path"
            if function is None:
                example = path.rpartition(":")[2] if isinstance(path, str) else "my_function"
                raise NeedsTokenizer(
                    f"tokenizer must be {name}, with which the model was trained and which its "
                    "folder does not store, got none: load it in Python with "
                    f"TextClassifier.load(folder, tokenizer={example})"
                )
            tokenizer = cls(CUSTOM, function=function)
            sample = list(tokenizer.split(_PROBE))
            if sample != value.get("sample"):
                raise NeedsTokenizer(
                    f"tokenizer must split texts like {name}, with which the model was trained: "
                    f"{_PROBE!r} became {value.get('sample')!r:.200}, and now {sample!r:.200}"
                )
            return tokenizer
        if function is not None:
            raise NeedsTokenizer(
                f"tokenizer must be None for a model that was trained with tokens={kind!r}, got "
                f"{function!r}: leave it out"
            )
        check_kind(kind)
        units = pieces = None
        if "units" in value:
            if not isinstance(value["units"], dict):
                raise ValueError(
                    f"units must be a JSON object with counts, got {value['units']!r:.80}"
                )
            units = Units(value["units"], cast(int, value.get("total")))
        if kind == "bpe":
            pieces = BytePairs.from_json(str(value.get("pieces")))
        return cls(str(kind), units, pieces, lowercase=value.get("lowercase") is True)


def learn_units(rule: Tokenizer, texts: Iterable[str]) -> Tokenizer:
    """Returns a tokenizer with the units of scripts without spaces that are learned from texts."""
    if rule.kind not in _WITH_UNITS:
        return rule
    return dataclasses.replace(rule, units=Units.learn(map(rule.prepare, texts)))


@dataclasses.dataclass(frozen=True)
class Splitter:
    """A tokenizer with tokens that stay the same if some of them are left out. With words, social
    and characters, each token of a text is also the only token of itself, so that the call
    `split(" ".join(tokens))` returns the tokens again. A token that would be split further in a
    text by itself is replaced by its parts.

        >>> Splitter(Tokenizer("social")).split("It's @ann")
        ["it's", '@ann']
    """

    tokenizer: Tokenizer
    lowercase: bool = True

    def split(self, text: str) -> list[str]:
        """Returns the tokens of a text, each the only token of itself if the kind allows it."""
        tokens = self.tokenizer.find(text)
        forms = self._forms
        # The forms are remembered to save time, so they may be forgotten when they take too much
        # memory. Another thread may still use them, so that they are replaced and not cleared.
        if len(forms) + len(forms.parts) > _MOST_FORMS:
            forms = self.__dict__["_forms"] = _Forms(self._settle_form)
        words = list(map(forms.__getitem__, tokens))
        parts = forms.parts
        if not parts or parts.keys().isdisjoint(tokens):
            return words
        return [
            part
            for token, word in zip(tokens, words, strict=True)
            for part in parts.get(token, [word])
        ]

    def split_again(self, tokens: Iterable[str]) -> list[str]:
        """Joins tokens by spaces, and splits the result again as a new text. Pieces of a byte-pair
        encoding and tokens of a function are returned as they are, because joined by spaces they
        are another text.
        """
        return self.split(" ".join(tokens)) if self.is_repeatable else list(tokens)

    @property
    def is_repeatable(self) -> bool:
        """True if the tokens of a text, joined by spaces, are a text with the same tokens."""
        return self.tokenizer.kind in ("words", "social", "characters")

    @functools.cached_property
    def _forms(self) -> "_Forms":
        return _Forms(self._settle_form)

    def _settle_form(self, token: str) -> list[str]:
        """Returns the tokens that replace a token of the tokenizer."""
        token = token.lower() if self.lowercase else token
        # A word of ASCII letters is the only token of itself, and most words are of this kind.
        if not self.is_repeatable or (token.isascii() and token.isalpha()):
            return [token]
        rule = self.tokenizer
        # For posts a unit of a script without spaces is cut again by the units alone.
        if rule.kind == "social" and rule.units is not None and RUN.fullmatch(token):
            return list(rule.units.cut(token))
        return self._settle(token, _ROUNDS)

    def _split_once(self, text: str) -> list[str]:
        tokens = self.tokenizer.split(text)
        return [token.lower() for token in tokens] if self.lowercase else list(tokens)

    def _settle(self, token: str, rounds: int) -> list[str]:
        parts = self._split_once(token)
        if parts == [token]:
            return parts
        # Each split of a token in parts or in another form is split again, a few times at most.
        return [p for part in parts if rounds for p in self._settle(part, rounds - 1)]


class _Forms(dict[str, str]):
    """Token -> the token that replaces it, which is computed when the token first occurs."""

    def __init__(self, settle: Callable[[str], list[str]]) -> None:
        super().__init__()
        # Tokens that none or several replace; the value of the dict for them is the token itself.
        self.parts: dict[str, list[str]] = {}
        self._settle = settle

    def __missing__(self, token: str) -> str:
        if token not in self.parts:
            parts = self._settle(token)
            if len(parts) == 1:
                # Equal tokens share a string, because a corpus has far more tokens than words.
                form = self[token] = sys.intern(parts[0])
                return form
            self.parts[token] = parts
        return token


class NeedsTokenizer(ValueError):
    """Raised if a model folder needs a function that was not passed, or another function."""


def check_kind(kind: object) -> None:
    """Raises ValueError unless `kind` is "words", "social", "characters" or "bpe" (`KINDS`)."""
    if kind not in KINDS:
        raise ValueError(
            f"tokens must be one of {', '.join(map(repr, KINDS))}, got {kind!r}."
            f"{suggestion(str(kind), KINDS)}"
        )


def choose_tokenizer(
    kind: str | None,
    function: Function | None,
    texts: Callable[[], Iterable[str]],
    *,
    lowercase: bool,
) -> Tokenizer:
    """Returns the tokenizer of a training, before units of scripts without spaces are learned."""
    if function is not None:
        return Tokenizer(CUSTOM, function=function)
    kind = "words" if kind is None else kind
    check_kind(kind)
    if kind != "bpe":
        return Tokenizer(kind)
    try:
        rule = Tokenizer(kind, lowercase=lowercase)
        return dataclasses.replace(
            rule, pieces=BytePairs.train(map(rule.prepare, texts()), _PIECES)
        )
    except ImportError as error:
        raise ValueError(f"tokens must be another rule than 'bpe' here: {error}") from None


def check_function(function: Any) -> None:
    """Checks that a tokenizer of a user can be called and returns tokens."""
    if not callable(function):
        raise TypeError(
            "tokenizer must be a function from a text to a list of its tokens, got "
            f"{function!r:.40}: for a rule of this library give tokens="
        )
    _check_tokens(function, _PROBE)


def import_path(function: Any) -> str | None:
    """Returns "module:name" of a function, or None if this path does not lead to it.

    >>> import_path(split_words)
    'gatedjax.text._tokens:split_words'
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or module == "__main__":
        return None
    value: Any
    try:
        value = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError):
        return None
    return f"{module}:{name}" if value is function else None


def _check_tokens(function: Function, text: str) -> tuple[str, ...]:
    """Returns the tokens that a function of a user gives for a text, as plain strings."""
    tokens = function(text)
    # A text is iterable too: its characters would silently become the tokens.
    listed = () if isinstance(tokens, str | bytes) else tuple(tokens)
    if isinstance(tokens, str | bytes) or not all(isinstance(t, str) for t in listed):
        raise ValueError(
            f"tokenizer must return a list of texts, got {tokens!r:.80} for the text {text!r:.40}"
        )
    return tuple(str(token) for token in listed if token)
