"""The base class of all trained models of texts: `read`, `predict`, `probabilities`, their folder.

A model reads texts and gives an output for each: `TextReading` of a lexicon or a model of states,
`TextOutput` of a network. No function of this module needs JAX.
"""

import abc
import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gatedjax._utils.json import to_json
from gatedjax._utils.types import Json
from gatedjax.export._card import facts_of
from gatedjax.export._folder import read_file, save
from gatedjax.export._tensors import BadFile
from gatedjax.lexicon import Readings
from gatedjax.text.answers._prediction import REPORT, TOKENS, Failure, chunks, inputs_of, usable
from gatedjax.text.corpus._tokens import Function, NeedsTokenizer, Tokenizer
from gatedjax.text.sources._labels import Label

CURVE = "curve.svg"
"""The file with the picture of the accuracy at each share."""
CHUNK = 4096
"""Texts that are read at a time; this bounds the memory."""


class TextReading(NamedTuple):
    """A text as a lexicon or a model of states reads it."""

    text: Any  # the words for a lexicon, the `EncodedText` for a model of states
    reading: Readings  # of a single row

    @property
    def probabilities(self) -> np.ndarray:
        """The probability of each class, [C]."""
        return self.reading.probabilities[0]


class SavedModel(abc.ABC):
    """The base class of the trained models. Texts come as examples, tuples of one text or of two;
    a text that cannot be read gets a `Failure` with the reason in place of its output.
    """

    kind: str  # of the folder, as in gatedjax.export._card
    network: str  # the name of the model, as "lexicon" or "gru"
    classes: tuple[Label, ...]  # as in the training data, in the order of the outputs
    report: Json
    picture: str = ""  # an SVG image of the accuracy at each share
    options: Json | None  # see `options_to_json`

    @property
    def inputs(self) -> int:
        """The number of texts in an example: 2 for pairs, else 1."""
        return inputs_of(self.kind)

    def read(self, examples: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yields the output for each example, in their order; a part of them is in memory."""
        for part in chunks(examples, CHUNK):
            faults = [self._find_fault(example) for example in part]
            outputs = iter(self._read_part([part[i] for i, f in enumerate(faults) if not f]))
            for fault in faults:
                yield Failure(fault) if fault else next(outputs)

    def predict(self, examples: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yields a prediction for each example, or a `Failure`."""
        for output in self.read(examples):
            yield output if isinstance(output, Failure) else self.predict_read(output)

    def probabilities(self, examples: Iterable[Sequence[Any]]) -> np.ndarray:
        """Computes the probability of each class for each example: float32 [n, C]."""
        rows = [output.probabilities for output in usable(self.read(examples))]
        return np.array(rows, np.float32).reshape(-1, len(self.classes))

    @abc.abstractmethod
    def predict_read(self, output: Any) -> Any:
        """Returns the prediction for an output of `read`."""

    @abc.abstractmethod
    def _read_part(self, examples: list[Sequence[Any]]) -> Iterable[Any]:
        """Returns the outputs for examples without a fault."""

    def _find_fault(self, example: Sequence[Any]) -> str:
        if isinstance(example, str) or len(example) != self.inputs:
            plural = "s" * (self.inputs > 1)
            return f"an example must be a tuple of {self.inputs} text{plural}, got {example!r:.40}"
        bad = next((text for text in example if not isinstance(text, str)), None)
        return "" if bad is None else f"a text must be a str, got {bad!r:.40}"

    def save(self, folder: str | Path, *, card: Any = None, overwrite: bool) -> Path:
        """Writes the model to a folder and returns the path of the folder."""
        params, own_config, own_files = self._to_files()
        config: Json = {
            **facts_of(self.kind),  # type: ignore[arg-type]
            "network": self.network,
            "classes": list(self.classes),
            **own_config,
        }
        if self.options is not None:
            config["options"] = self.options
        files = {REPORT: to_json(self.report, indent=1).encode(), **own_files}
        if self.picture:
            files[CURVE] = self.picture.encode()
        return save(folder, params, config=config, card=card, files=files, overwrite=overwrite)

    @abc.abstractmethod
    def _to_files(self) -> tuple[Any, Json, dict[str, bytes]]:
        """Returns the arrays by name, entries of config.json, and the contents of further files."""


def encode_json(value: object, indent: int | None = None) -> bytes:
    """Returns the content of a JSON file, which may have a lone surrogate of a text."""
    return to_json(value, ensure_ascii=False, indent=indent).encode("utf-8", "surrogatepass")


@contextlib.contextmanager
def refuse_damage(folder: str | Path) -> Iterator[None]:
    """Turns errors about the content of a model folder into a `BadFile`."""
    try:
        yield
    except (BadFile, NeedsTokenizer):  # The message already names the file and the fault.
        raise
    except (
        # The content comes from a file and may be anything, so each of these errors means a damaged
        # or foreign file.
        *(AttributeError, KeyError, TypeError, ValueError),
        *(OverflowError, RecursionError),
    ) as error:
        raise BadFile(
            f"{folder} must be a model that this version can read, got {error!r}"
        ) from error


# The next functions raise an error for a value of another form, because anybody may have written a
# model folder.
def read_shared(folder: str | Path, config: Json) -> Json:
    """Returns the fields that all models have: `report` and `options`."""
    report, options = json.loads(read_file(folder, REPORT)), config.get("options")
    if not isinstance(report, dict):
        raise ValueError(f"{REPORT} must be a JSON object, got {report!r:.80}")
    if not isinstance(options, dict | None):
        raise ValueError(f"options must be a JSON object, got {options!r:.80}")
    return {"report": report, "options": options}


def read_tokenizer(folder: str | Path, config: Json, function: Function | None) -> Tokenizer:
    """Returns the tokenizer of a folder, the default tokenizer if it has no file."""
    value = None if config.get("tokens") is None else json.loads(read_file(folder, TOKENS))
    return Tokenizer.from_json(value, function)


def check_texts(values: object) -> list[str]:
    """Returns `values` if it is a list of texts."""
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise ValueError(f"words must be a list of texts, got {values!r:.80}")
    return values


def check_classes(values: object, least: int = 2) -> tuple[Label, ...]:
    """Returns `values` as a tuple if it lists at least `least` different labels."""
    if not isinstance(values, list) or len(set(values)) < max(len(values), least):
        raise ValueError(
            f"classes must be a list of at least {least} different labels, got {values!r:.80}"
        )
    if not all(isinstance(label, str | int | float) for label in values):
        raise ValueError(f"classes must be texts or numbers, got {values!r:.80}")
    return tuple(values)
