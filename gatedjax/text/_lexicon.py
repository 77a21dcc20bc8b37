"""A trained lexicon: its folder on disk, and its predictions for texts. It does not import JAX."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.json import to_json
from gatedjax._utils.types import Json
from gatedjax.export._folder import load, read_file, save
from gatedjax.export._kinds import check_kind, facts_of
from gatedjax.export._tensors import BadFile
from gatedjax.lexicon import Lexicon, Readings
from gatedjax.lexicon._heads import ClassHead, head_from_json
from gatedjax.text._prediction import (
    LABELS,
    LEXICON,
    REGRESSION,
    REPORT,
    TARGETS,
    TOKENS,
    Failure,
    LabelsPrediction,
    Prediction,
    ValuePrediction,
    check_classes,
    check_report,
    check_stored_options,
    check_texts,
    chunks,
    usable,
)
from gatedjax.text._table import Label
from gatedjax.text._target_base import Target
from gatedjax.text._target_class import ClassTarget
from gatedjax.text._targets import TARGET_OF
from gatedjax.text._tokens import Function, NeedsTokenizer, Splitter, Tokenizer

CURVE = "curve.svg"
"""The file with the picture of the accuracy at each density."""
WORDS, NGRAMS = "words.txt", "ngrams.txt"
"""The files with the words and the n-grams of characters, one in each line. A list in JSON would
take a third more space."""
EXAMPLES = "examples.json"
"""The file with extracts of training texts, by the word."""
# Texts that are read at a time; this bounds the memory for their features.
_CHUNK = 4096
_NUMBERS = ("density", "threshold", "temperature")
AnyPrediction = Prediction | LabelsPrediction | ValuePrediction
_ARRAYS = ("is_open", "counts", "pairs", "scale", "weights", "bias", "prior")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LexiconModel:
    """A fitted lexicon, a linear model of the words with an open gate; used like `TrainedModel`."""

    network: ClassVar[str] = LEXICON
    lexicon: Lexicon
    splitter: Splitter
    classes: tuple[Label, ...] = ()  # in the order of the outputs; the target replaces them
    # A word -> up to two extracts of training texts with it.
    examples: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    report: Json = dataclasses.field(default_factory=dict)
    picture: str = ""  # an SVG image of the accuracy at each density
    target: Target = None  # type: ignore[assignment]
    columns: tuple[Label, ...] | None = None  # of y: labels and columns without a text
    options: Json | None = None  # None for a folder of an earlier version
    kind: str = "text"
    inputs: int = 1

    def __post_init__(self) -> None:
        """Sets the target of classes if there is no target, and the fields that it defines."""
        target = ClassTarget(self.classes) if self.target is None else self.target
        for name, value in (("target", target), ("classes", target.classes), ("kind", target.kind)):
            object.__setattr__(self, name, value)

    def split(self, text: str) -> list[str]:
        """Returns the tokens of a text, which are its words for this model."""
        return self.splitter.split(text)

    def read_texts(
        self, examples: Iterable[Sequence[str]]
    ) -> Iterator[tuple[list[str], Readings] | Failure]:
        """Yields the words and the `Readings`, of a single row, of each text, or a `Failure`."""
        for part in chunks(examples, _CHUNK):
            words = [self._split_or_fail(example) for example in part]
            readable = [item for item in words if not isinstance(item, Failure)]
            readings = self.lexicon.read(readable)
            row = 0
            for item in words:
                if isinstance(item, Failure):
                    yield item
                    continue
                yield item, readings.take(row)
                row += 1

    def _split_or_fail(self, example: Sequence[str]) -> list[str] | Failure:
        """Returns the words of an example, a tuple of one text, or a `Failure` with the reason.

        It fails for another number of texts, and for a text that is no string.
        """
        if isinstance(example, str) or len(example) != 1:
            return Failure(f"an example must be a tuple of 1 text, got {example!r:.40}")
        if not isinstance(example[0], str):
            return Failure(f"a text must be a str, got {example[0]!r:.40}")
        return self.split(example[0])

    def predict(self, examples: Iterable[Sequence[str]]) -> Iterator[AnyPrediction | Failure]:
        """Yields a prediction of the target for each example, or a `Failure` with the reason."""
        for output in self.read_texts(examples):
            yield output if isinstance(output, Failure) else self.predict_read(*output)

    def predict_read(self, words: list[str], reading: Readings) -> AnyPrediction:
        """Returns the prediction for a text from its words and its `Readings`, a single row."""
        return self.target.predict(reading, 0, words)

    def probabilities(self, examples: Iterable[Sequence[str]]) -> np.ndarray:
        """Computes the class probabilities [n, C]; raises ValueError for a model of numbers."""
        if not self.classes:
            raise ValueError(
                "the model must have classes, labels or grades for probabilities, got a model of "
                "numbers: call predict"
            )
        rows = [reading.probabilities[0] for _, reading in usable(self.read_texts(examples))]
        return np.array(rows, np.float32).reshape(-1, len(self.classes))

    def save(self, folder: str | Path, *, card: Any = None, overwrite: bool) -> Path:
        """Writes the model to a folder and returns the path of the folder."""
        lexicon, splitter = self.lexicon, self.splitter
        tokens = splitter.tokenizer.to_json()
        config: Json = {
            **facts_of(self.kind),  # type: ignore[arg-type]
            "network": self.network,
            "model": {name: getattr(lexicon, name) for name in _NUMBERS},
            "classes": list(self.classes),
            "tokens": splitter.tokenizer.kind,
            "lowercase": splitter.lowercase,
        }
        if self.kind in TARGETS:
            config["head"] = lexicon.head.to_json()
        if decision := self.target.decision_to_json():
            config["decision"] = decision
        if self.columns is not None:
            config["columns"] = list(self.columns)
        if self.options is not None:
            config["options"] = self.options
        files = {
            TOKENS: to_json(tokens, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            WORDS: _join_lines(lexicon.words),
            NGRAMS: _join_lines(lexicon.ngrams),
            EXAMPLES: to_json(dict(self.examples), ensure_ascii=False, indent=1).encode(
                "utf-8", "surrogatepass"
            ),
            REPORT: to_json(self.report, indent=1).encode(),
        }
        if self.picture:
            files[CURVE] = self.picture.encode()
        params = {name: getattr(lexicon, name) for name in _ARRAYS}
        return save(folder, params, config=config, card=card, files=files, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path, tokenizer: Function | None = None) -> "LexiconModel":
        """Loads a model that `save` wrote; no code in the folder is executed."""
        params, config = load(folder)
        kind = check_kind(config, ("text", *TARGETS), folder)  # type: ignore[arg-type]
        try:
            rule = Tokenizer.from_json(json.loads(read_file(folder, TOKENS)), tokenizer)
            if type(config["lowercase"]) is not bool:
                raise ValueError(f"lowercase must be true or false, got {config['lowercase']!r}")
            classes = _read_classes(config["classes"], kind)
            target = TARGET_OF[kind](classes).with_decision(config.get("decision", {}))
            columns = _read_column_names(config.get("columns"), classes)
            head = ClassHead(len(classes)) if kind == "text" else head_from_json(config["head"])
            if head.num_probabilities != len(classes):
                raise ValueError(f"head must be for {len(classes)} classes, got {head}")
            numbers: Any = {name: float(config["model"][name]) for name in _NUMBERS}
            arrays: Any = {name: np.asarray(params[name]) for name in _ARRAYS}
            lexicon = Lexicon(
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
                check_texts(texts)
            report = check_report(json.loads(read_file(folder, REPORT)))
            options = check_stored_options(config.get("options"))
        except (BadFile, NeedsTokenizer):  # The message already names the file and the fault.
            raise
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            # The content comes from a file and may be anything.
            raise BadFile(
                f"{folder} must be a model that this version can read, got {error!r}"
            ) from error
        splitter = Splitter(rule, config["lowercase"])
        return cls(
            lexicon=lexicon,
            splitter=splitter,
            target=target,
            columns=columns,
            examples=examples,
            report=report,
            options=options,
        )


def _read_classes(values: object, kind: str) -> tuple[Label, ...]:
    # The check of classes wants at least two.
    if kind in (LABELS, REGRESSION) and isinstance(values, list) and len(values) < 2:
        return () if not values else check_classes([*values, ""])[:1]
    return check_classes(values)


def _read_column_names(values: object, classes: tuple[Label, ...]) -> tuple[Label, ...] | None:
    if values is None:
        return None
    names = _read_classes(values, LABELS)
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
