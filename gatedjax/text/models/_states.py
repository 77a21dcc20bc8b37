"""The model of token vectors: the encoder of the user, the folder, predictions, and the leak."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.export._card import check_kind
from gatedjax.export._folder import load, read_file
from gatedjax.lexicon import GatedPooling
from gatedjax.text.answers._prediction import STATES, chunks
from gatedjax.text.corpus._tokens import import_path
from gatedjax.text.models import _base
from gatedjax.text.sources._labels import Label
from gatedjax.text.targets import ClassTarget

Encoder = Callable[[list[str]], Iterable[tuple[Sequence[str], Any]]]
"""A function from texts to the tokens and their vectors [T, D] of each text."""
_CHUNK = 64
_PROBE = "a fine film, not dull at all"
"""A text for which an encoder must give the same vectors as the encoder of the training."""
_NUMBERS = 8
"""Numbers of the first and of the last vector of this text that are compared."""


class EncodedText(NamedTuple):
    """A text as its T tokens and their vectors [T, D]."""

    tokens: Sequence[str]
    vectors: np.ndarray


class NeedsEncoder(ValueError):
    """Raised if a model reads vectors and has no encoder, or an encoder with other vectors."""


def encode_texts(encoder: Encoder, texts: Iterable[str], width: int = 0) -> Iterator[EncodedText]:
    """Calls an encoder on a few texts at a time, and yields the checked results. All vectors must
    have the same width, `width` unless it is 0.
    """
    for part in chunks(texts, _CHUNK):
        returned = encoder(part)
        results = list(returned) if isinstance(returned, Iterable) else None
        if results is None or len(results) != len(part):
            got = type(returned).__name__ if results is None else f"{len(results)} results"
            texts_of_call = f" for {len(part)} texts, the first of which is {part[0]!r:.60}"
            raise ValueError(
                "encoder must return a list with (tokens, vectors [T, D]) for each text, got "
                f"{got}{texts_of_call}"
            )
        for text, result in zip(part, results, strict=True):
            encoded = _check_encoded(result, f"the text {text!r:.60}")
            its_width = encoded.vectors.shape[1]
            width = width or its_width
            if not encoded.tokens:
                encoded = EncodedText([], np.zeros((0, width)))
            elif its_width != width:
                got = f"{width} and, for the text {text!r:.60}, {its_width}"
                _refuse("vectors of the same width for each text", got)
            yield encoded


def _check_encoded(result: Any, text: str) -> EncodedText:
    """Returns the tokens and vectors that an encoder gave for a text."""
    if isinstance(result, str) or not hasattr(result, "__len__") or len(result) != 2:
        _refuse("(tokens, vectors [T, D]) for each text", f"{type(result).__name__} for {text}")
    tokens, vectors = result
    words = tokens if isinstance(tokens, str | bytes) else list(tokens)
    if isinstance(words, str | bytes) or not all(isinstance(word, str) for word in words):
        _refuse(f"a list of texts as the tokens of {text}", f"{words!r:.60}")
    try:
        array = np.asarray(vectors)
        array = array if array.dtype.kind in "fc" else array.astype(np.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        # A tensor of PyTorch may be on a device, need a gradient, or have a type without a
        # counterpart in NumPy.
        raise ValueError(
            f"encoder must give an array of numbers as the vectors of {text}; for a tensor of "
            f"PyTorch give vectors.detach().float().cpu().numpy(): {error}"
        ) from error
    if array.dtype.kind == "c":
        remedy = "give their real and imaginary parts as columns"
        _refuse("vectors of real numbers", f"complex numbers for {text}: {remedy}")
    if not len(words) and not array.size:
        array = array.reshape(0, array.shape[-1] if array.ndim == 2 else 0)
    if array.ndim != 2 or len(array) != len(words):
        raise ValueError(
            f"encoder must give a vector for each token: {text} has {len(words)} tokens and "
            f"vectors of shape {array.shape}"
        )
    if not np.isfinite(array).all():
        _refuse("finite vectors", f"NaN or infinity for {text}")
    return EncodedText(list(map(str, words)), array)


def _refuse(wanted: str, got: str) -> NoReturn:
    raise ValueError(f"encoder must give {wanted}, got {got}")


def check_encoder(encoder: Any) -> None:
    """Raises TypeError if `encoder`, a function of a list of texts, cannot be called."""
    if not callable(encoder):
        raise TypeError(
            "encoder must be a function from a list of texts to a list of (tokens, vectors [T, D]),"
            f" got {type(encoder).__name__}"
        )


def sample_encoder(encoder: Encoder, width: int) -> Json:
    """Returns the facts by which an encoder is compared when a model is loaded."""
    ((tokens, vectors),) = encode_texts(encoder, [_PROBE], width)
    numbers: Any = np.asarray(vectors, np.float64)[[0, -1]][:, :_NUMBERS] if tokens else []
    return {
        "path": import_path(encoder),
        "tokens": list(tokens),
        "vectors": np.asarray(numbers).tolist(),
    }


def compare_encoder(encoder: Encoder, facts: Any, width: int) -> None:
    """Checks that an encoder gives the vectors with which a model was trained."""
    check_encoder(encoder)
    now = sample_encoder(encoder, width)
    same_tokens = now["tokens"] == facts["tokens"]
    # Encoders on other devices round in another way.
    if not same_tokens or not np.allclose(
        np.asarray(now["vectors"]), np.asarray(facts["vectors"]), rtol=1e-2, atol=1e-2
    ):
        name = facts["path"] or "the encoder of the training"
        raise NeedsEncoder(
            f"encoder must encode texts like {name}, got other "
            f"{'vectors' if same_tokens else 'tokens'} for {_PROBE!r}"
        )


def locate_tokens(text: str, tokens: Sequence[str]) -> list[tuple[int, int] | None]:
    r"""Finds the characters of each token in its text, (begin, end) or None, without case, from the
    left to the right. Marks of subwords ("##", "\u2581", "\u0120", "</w>") are left out. A token
    that is not in the rest of the text, such as "[CLS]", has no characters.

        >>> locate_tokens("Unseen film", ["[CLS]", "un", "##seen", "film"])
        [None, (0, 2), (2, 6), (7, 11)]
    """
    # `lower` may change the number of characters, `casefold` even more often.
    lowered = text.lower()
    lowered = lowered if len(lowered) == len(text) else text
    places: list[tuple[int, int] | None] = []
    position = 0
    for token in tokens:
        plain = token.removeprefix("##").lstrip("\u2581\u0120").removesuffix("</w>")
        begin = lowered.find(plain.lower(), position) if plain.strip() else -1
        # A token that is far ahead is more likely a special token with a common spelling.
        if begin < 0 or lowered[position:begin].count(" ") > _FARTHEST:
            places.append(None)
            continue
        position = begin + len(plain)
        places.append((begin, position))
    return places


_FARTHEST = 8
"""Largest number of spaces between a token and the token before it."""


def remove_tokens(text: str, tokens: Sequence[str], is_removed: Sequence[bool]) -> str:
    """Returns a text without the characters of some tokens; see `locate_tokens`.

    >>> remove_tokens("a dull film", ["a", "dull", "film"], [True, False, True])
    'dull'
    """
    letters = list(text)
    for place, removed in zip(locate_tokens(text, tokens), is_removed, strict=True):
        if place is not None and removed:
            # A space keeps the neighbours apart.
            letters[place[0]] = " "
            letters[place[0] + 1 : place[1]] = [""] * (place[1] - place[0] - 1)
    return " ".join("".join(letters).split())


ENCODER = "encoder.json"
"""The file with the facts by which an encoder is compared."""
_UNMEASURED = "no token that is not read was found in its text, so that the leak is not measured"
_LEAK = "the vectors of these words also depend on words that are not read"
_FIELDS = ("cut", "share")
_ARRAYS = ("gate", "weights", "bias", "prior")
_LARGEST_CHANGE = 1e-6
"""A change of a probability up to this number is rounding, and counts as no leak."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StatesModel(_base.SavedModel):
    """A fitted `GatedPooling` with its classes and its encoder."""

    kind: ClassVar[str] = "text"  # type: ignore[misc]
    network: ClassVar[str] = STATES  # type: ignore[misc]
    pooling: GatedPooling
    classes: tuple[Label, ...]
    facts: Json  # see `sample_encoder`
    encoder: Encoder | None = None  # None cannot read a text
    report: Json = dataclasses.field(default_factory=dict)
    picture: str = ""
    options: Json | None = None

    @property
    def target(self) -> ClassTarget:
        """The target, a class for each text."""
        return ClassTarget(self.classes)

    @property
    def prior(self) -> np.ndarray:
        """The frequencies of the classes or the mean of the numbers in the training texts."""
        return self.pooling.prior

    @property
    def has_no_leak(self) -> bool:
        """True if training has found that the unread tokens change no vector."""
        return is_zero(self.report.get("leak"))

    def encode(self, texts: Sequence[str]) -> Iterator[EncodedText]:
        """Returns the tokens and vectors of texts."""
        if self.encoder is None:
            raise NeedsEncoder(
                "the model reads the vectors of an encoder, which is not stored in its folder: "
                "load it in Python with TextClassifier.load(folder, encoder=...)"
            )
        return encode_texts(self.encoder, texts, self.pooling.width)

    def _read_part(self, examples: list[Sequence[str]]) -> Iterator[_base.TextReading]:
        for text in self.encode([text for (text,) in examples]):
            yield _base.TextReading(text, self.pooling.read([text.vectors]))

    def predict_read(self, output: _base.TextReading) -> Any:
        text, reading = output
        prediction = self.target.predict(reading, text.tokens)
        if self.has_no_leak or not prediction.read:
            return prediction
        note = f"{prediction.note}; {_LEAK}" if prediction.note else _LEAK
        return dataclasses.replace(prediction, note=note)

    def _to_files(self) -> tuple[Any, Json, dict[str, bytes]]:
        names = (*_FIELDS, "temperatures")
        config = {"model": {name: getattr(self.pooling, name) for name in names}}
        arrays = {name: getattr(self.pooling, name) for name in _ARRAYS}
        return arrays, config, {ENCODER: _base.encode_json(self.facts)}

    @classmethod
    def load(cls, folder: str | Path, encoder: Encoder | None = None) -> "StatesModel":
        """Loads a model that `save` wrote; no code in the folder is executed."""
        params, config = load(folder)
        check_kind(config, "text", folder)
        with _base.refuse_damage(folder):
            classes = _base.check_classes(config["classes"])
            numbers: Any = {name: float(config["model"][name]) for name in _FIELDS}
            numbers["temperatures"] = tuple(map(float, config["model"]["temperatures"]))
            arrays: Any = {name: np.asarray(params[name]) for name in _ARRAYS}
            pooling = GatedPooling(num_classes=len(classes), **numbers, **arrays)
            pooling.check()
            facts = json.loads(read_file(folder, ENCODER))
            if not facts.keys() >= {"path", "tokens", "vectors"}:
                raise ValueError(f"{ENCODER} must have path, tokens and vectors, got {facts!r:.80}")
            shared = _base.read_shared(folder, config)
        if encoder is not None:
            compare_encoder(encoder, facts, pooling.width)
        return cls(pooling=pooling, classes=classes, encoder=encoder, facts=facts, **shared)


def measure_states_leak(model: StatesModel, texts: Sequence[str]) -> Json | None:
    """Measures the changes if the unread tokens are removed; None without such a token."""
    pairs = []
    outputs = model.read([(text,) for text in texts])
    for text, (encoded, reading) in zip(texts, outputs, strict=True):
        remaining = remove_tokens(text, encoded.tokens, (~reading.is_read[0]).tolist())
        if remaining != " ".join(text.split()):
            pairs.append((remaining, reading.probabilities[0]))
    changes, changed = [], 0
    again = model.read([(remaining,) for remaining, _ in pairs])
    for (_, before), (_, reading) in zip(pairs, again, strict=True):
        best, after = int(np.argmax(before)), reading.probabilities[0]
        changes.append(abs(float(before[best] - after[best])))
        changed += int(np.argmax(after)) != best
    if not pairs:
        return None
    return {
        "texts": len(pairs),
        "changed": changed,
        "mean_change": float(np.mean(changes)),
        "largest_change": float(np.max(changes)),
    }


def is_zero(leak: object) -> bool:
    """Returns True if a leak was measured and is at most the size of rounding."""
    return isinstance(leak, dict) and leak["largest_change"] <= _LARGEST_CHANGE


def render_states_leak(leak: Json | None) -> str:
    """Returns the result of `measure_states_leak` as a sentence."""
    if leak is None:
        return _UNMEASURED
    if is_zero(leak):
        return (
            "the same answer from the tokens read alone: yes (the other tokens of "
            f"{leak['texts']:,} texts removed, and the rest encoded again)"
        )
    share = leak["changed"] / leak["texts"]
    return (
        f"the tokens read alone, encoded again: another answer for {leak['changed']:,} of "
        f"{leak['texts']:,} texts ({share:.1%}), and the probability changes by "
        f"{leak['mean_change']:.4f} on average, because the encoder has read the other tokens into "
        "the vectors of these"
    )
