"""A trained lexicon or linear model: its folder on disk, and its predictions for texts. It does not
import JAX.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.export._card import check_kind
from gatedjax.export._folder import load, read_file
from gatedjax.lexicon import Lexicon
from gatedjax.lexicon._heads import ClassHead, head_from_json
from gatedjax.lexicon._linear import LinearText
from gatedjax.lexicon._vectors import Pieces
from gatedjax.text.answers import _prediction
from gatedjax.text.corpus._tokens import Function, Splitter
from gatedjax.text.models import _base
from gatedjax.text.sources._labels import Label
from gatedjax.text.targets import TARGET_OF
from gatedjax.text.targets._base import Target

WORDS, NGRAMS = "words.txt", "ngrams.txt"
"""The files with the words and the n-grams of characters, one in each line. A list in JSON would
take a third more space."""
VECTOR_WORDS, VECTOR_TOKENIZER = "vector_words.txt", "vector_tokenizer.json"
"""The files of the pieces of words that have a vector: words, or the tokenizer of a package."""
EXAMPLES = "examples.json"
"""The file with extracts of training texts, by the word."""
_NUMBERS, _SETTINGS = ("share", "threshold"), ("temperatures", "letters_suffice")
_ARRAYS = ("is_read", "counts", "pairs", "scale", "weights", "bias", "prior")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LexiconModel(_base.SavedModel):
    """A fitted lexicon, a linear model of the words that it reads, and its target."""

    network: ClassVar[str] = _prediction.LEXICON  # type: ignore[misc]
    form: ClassVar[type[Lexicon]] = Lexicon
    lexicon: Lexicon
    splitter: Splitter
    target: Target
    # A word -> up to two extracts of training texts with it.
    examples: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    columns: tuple[Label, ...] | None = None  # of y: labels and columns without a text
    report: Json = dataclasses.field(default_factory=dict)
    picture: str = ""
    options: Json | None = None

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The kind of the folder, which follows from the target."""
        return self.target.kind

    @property
    def classes(self) -> tuple[Label, ...]:  # type: ignore[override]
        """The classes, labels or grades of the target; none for numbers."""
        return self.target.classes

    @property
    def prior(self) -> np.ndarray:
        """The frequencies of the classes or the mean of the numbers in the training texts."""
        return self.lexicon.prior

    def split(self, text: str) -> list[str]:
        """Returns the tokens of a text, which are its words for this model."""
        return self.splitter.split(text)

    def _read_part(self, examples: list[Sequence[str]]) -> Iterator[_base.TextReading]:
        words = [self.split(text) for (text,) in examples]
        readings = self.lexicon.read(words)
        for row, text in enumerate(words):
            yield _base.TextReading(text, readings.take(row))

    def predict_read(self, output: _base.TextReading) -> _prediction.AnyPrediction:
        return self.target.predict(output.reading, output.text)

    def probabilities(self, examples: Iterable[Sequence[str]]) -> np.ndarray:
        if not self.classes:
            raise ValueError(
                "the model must have classes, labels or grades for probabilities, got a model of "
                "numbers: call predict"
            )
        return super().probabilities(examples)

    def _to_files(self) -> tuple[Any, Json, dict[str, bytes]]:
        lexicon, tokenizer = self.lexicon, self.splitter.tokenizer
        config: Json = {
            "model": {name: getattr(lexicon, name) for name in (*_NUMBERS, *_SETTINGS)},
            "tokens": tokenizer.kind,
            "lowercase": self.splitter.lowercase,
        }
        if self.kind in _prediction.TARGETS:
            config["head"] = lexicon.head.to_json()
        if decision := self.target.decision_to_json():
            config["decision"] = decision
        if self.columns is not None:
            config["columns"] = list(self.columns)
        files = {
            _prediction.TOKENS: _base.encode_json(tokenizer.to_json()),
            WORDS: _join_lines(lexicon.words),
            NGRAMS: _join_lines(lexicon.ngrams),
            EXAMPLES: _base.encode_json(dict(self.examples), 1),
        }
        arrays = {name: getattr(lexicon, name) for name in _ARRAYS}
        if len(lexicon.piece_weights):
            arrays["piece_weights"], pieces = lexicon.piece_weights, lexicon.pieces
            config["vectors"] = VECTOR_TOKENIZER if pieces.tokenizer else VECTOR_WORDS
            files[config["vectors"]] = pieces.tokenizer.encode() or _join_lines(pieces.words)
        return arrays, config, files

    @classmethod
    def load(cls, folder: str | Path, tokenizer: Function | None = None) -> "LexiconModel":
        """Loads a model that `save` wrote; no code in the folder is executed."""
        params, config = load(folder)
        kind = check_kind(config, ("text", *_prediction.TARGETS), folder)  # type: ignore[arg-type]
        with _base.refuse_damage(folder):
            if type(config["lowercase"]) is not bool:
                raise ValueError(f"lowercase must be true or false, got {config['lowercase']!r}")
            classes = _base.check_classes(
                config["classes"], 0 if kind in (_prediction.LABELS, _prediction.REGRESSION) else 2
            )
            head = ClassHead(len(classes)) if kind == "text" else head_from_json(config["head"])
            if head.num_probabilities != len(classes):
                raise ValueError(f"head must be for {len(classes)} classes, got {head}")
            numbers: Any = {name: float(config["model"][name]) for name in _NUMBERS}
            numbers["temperatures"] = tuple(map(float, config["model"]["temperatures"]))
            numbers["letters_suffice"] = config["model"]["letters_suffice"] is True
            arrays: Any = {name: np.asarray(params[name]) for name in _ARRAYS}
            if "vectors" in config:
                arrays |= {"piece_weights": np.asarray(params["piece_weights"])}
                arrays |= {"pieces": _read_pieces(folder, config["vectors"])}
            lexicon = cls.form(
                num_classes=len(classes),
                head=head,
                words=_split_lines(read_file(folder, WORDS)),
                ngrams=_split_lines(read_file(folder, NGRAMS)),
                **numbers,
                **arrays,
            )
            lexicon.check()
            # The file has private texts if the training texts are private, and may be deleted.
            has_examples = Path(folder, EXAMPLES).exists()
            examples = json.loads(read_file(folder, EXAMPLES)) if has_examples else {}
            for texts in examples.values():
                _base.check_texts(texts)
            return cls(
                lexicon=lexicon,
                splitter=Splitter(
                    _base.read_tokenizer(folder, config, tokenizer), config["lowercase"]
                ),
                target=TARGET_OF[kind](classes).with_decision(config.get("decision", {})),
                columns=_read_column_names(config.get("columns"), classes),
                examples=examples,
                **_base.read_shared(folder, config),
            )


class LinearModel(LexiconModel):
    """A fitted linear model of all words, and its target. Its folder is that of a lexicon."""

    network: ClassVar[str] = _prediction.LINEAR  # type: ignore[misc]
    form: ClassVar[type[Lexicon]] = LinearText


def _read_pieces(folder: str | Path, name: object) -> Pieces:
    if name == VECTOR_TOKENIZER:
        return Pieces(tokenizer=read_file(folder, VECTOR_TOKENIZER).decode())
    if name != VECTOR_WORDS:
        raise ValueError(f"vectors must be {VECTOR_WORDS} or {VECTOR_TOKENIZER}, got {name!r}")
    return Pieces(words=_split_lines(read_file(folder, VECTOR_WORDS)))


def _read_column_names(values: object, classes: tuple[Label, ...]) -> tuple[Label, ...] | None:
    if values is None:
        return None
    names = _base.check_classes(values, least=0)
    if missing := set(classes).difference(names):
        raise ValueError(f"columns must have all labels, got {names} without {missing}")
    return names


def _join_lines(strings: Sequence[str]) -> bytes:
    # No string has a line break.
    return "\n".join(strings).encode("utf-8", "surrogatepass")


def _split_lines(content: bytes) -> tuple[str, ...]:
    # `splitlines` would also split at other separators, which may be in a word.
    text = content.decode("utf-8", "surrogatepass")
    return tuple(text.split("\n")) if text else ()
