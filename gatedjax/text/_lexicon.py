"""A trained lexicon: its folder on disk, and its predictions for texts. It does not import JAX."""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax._utils.json import to_json
from gatedjax._utils.types import Json
from gatedjax.export._folder import load, read_file, save
from gatedjax.export._kinds import check_kind, facts_of
from gatedjax.export._tensors import BadFile
from gatedjax.lexicon import Lexicon, Readings, Units, WindowLexicon
from gatedjax.text._labels import CONTROL
from gatedjax.text._prediction import (
    LEXICON,
    REPORT,
    VOCABULARY,
    WINDOW,
    Failure,
    Prediction,
    check_classes,
    check_report,
    check_texts,
    chunks,
    usable,
)
from gatedjax.text._table import Label

CURVE = "curve.svg"
"""The file with the picture of the accuracy at each density."""
WORDS, NGRAMS = "words.txt", "ngrams.txt"
"""The files with the words and the character n-grams, one in each line. A list in JSON would take
a third more space."""
UNREAD = "nothing of this text was read"
_CHUNK = 4096
_ARRAYS = ("is_open", "counts", "pairs", "scale", "weights", "bias")


def split_units(units: Units, text: str) -> list[str]:
    """Splits a text into the units of a lexicon; invisible characters count as spaces."""
    return units.split(CONTROL.sub(" ", text))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LexiconModel:
    """A fitted lexicon with its classes, in place of a `TrainedModel`.

    Attributes:
      lexicon: the gates and weights.
      classes: the labels as written in the training data, in the order of the outputs.
      report: scores of the model, and of other models on the same texts.
      picture: an SVG image of the accuracy at each density, or "".
    """

    lexicon: Lexicon | WindowLexicon
    classes: tuple[Label, ...]
    report: Json = dataclasses.field(default_factory=dict)
    picture: str = ""
    kind: str = "text"
    inputs: int = 1

    @property
    def network(self) -> str:
        """The name of the model, "lexicon" or "window"."""
        return WINDOW if isinstance(self.lexicon, WindowLexicon) else LEXICON

    def split(self, text: str) -> list[str]:
        """Returns the units of a text, which are its words for this model."""
        return split_units(self.lexicon.units, text)

    def read_texts(
        self, examples: Iterable[Sequence[str]]
    ) -> Iterator[tuple[list[str], Readings] | Failure]:
        """Reads texts, a few thousand at a time, and yields the results in their order.

        Args:
          examples: the texts, each in a tuple of one string.

        Yields:
          The words of each text and its `Readings` (of a single text), or a `Failure`.
        """
        for part in chunks(examples, _CHUNK):
            words = [self._split_or_fail(example) for example in part]
            readable = [item for item in words if not isinstance(item, Failure)]
            readings = self.lexicon.read(readable)
            row = 0
            for item in words:
                if isinstance(item, Failure):
                    yield item
                    continue
                yield item, _select(readings, row)
                row += 1

    def _split_or_fail(self, example: Sequence[str]) -> list[str] | Failure:
        if isinstance(example, str) or len(example) != 1:
            return Failure(f"an example must have 1 text, got {example!r:.40}")
        if not isinstance(example[0], str):
            return Failure(f"a text must be a str, got {type(example[0]).__name__}")
        return self.split(example[0]) or Failure("the text has no word")

    def predict(self, examples: Iterable[Sequence[str]]) -> Iterator[Prediction | Failure]:
        """Yields a `Prediction` for each example, or a `Failure` with the reason, in their order.

        An example is a tuple of one string.
        """
        for output in self.read_texts(examples):
            yield output if isinstance(output, Failure) else self.predict_read(*output)

    def predict_read(self, words: list[str], reading: Readings) -> Prediction:
        """Returns the prediction for a text of which `words` were read as `reading`."""
        best = int(np.argmax(reading.probabilities[0]))
        is_open = reading.is_open[0]
        return Prediction(
            self.classes[best],
            float(reading.probabilities[0, best]),
            list(itertools.compress(words, is_open.tolist())),
            float(np.mean(is_open)),
            UNREAD if reading.is_empty[0] else "",
        )

    def probabilities(self, examples: Iterable[Sequence[str]]) -> np.ndarray:
        """Computes the probability of each class for each example: float32 [n, C].

        Raises:
          ValueError: if a text has no word.
        """
        rows = [reading.probabilities[0] for _, reading in usable(self.read_texts(examples))]
        return np.array(rows, np.float32).reshape(-1, len(self.classes))

    def save(self, folder: str | Path, *, card: Any = None, overwrite: bool) -> Path:
        """Writes the model to a folder and returns its path; see `gatedjax.export.save`.

        Args:
          folder: the folder of the model.
          card: a description of the model, which is written to its README, or None.
          overwrite: True replaces an earlier model in the folder.
        """
        gated = self.lexicon if isinstance(self.lexicon, WindowLexicon) else None
        lexicon: Any = self.lexicon if gated is None else gated.reader
        units = lexicon.units
        config: Json = {
            **facts_of("text"),
            "network": self.network,
            "model": {"density": self.lexicon.density, "threshold": lexicon.threshold},
            "classes": list(self.classes),
        }
        pieces: Json = {"pieces": units.scores, "lowercase": units.lowercase}
        if gated is not None:
            config["model"]["cut"] = gated.cut
            pieces["gate_words"] = list(gated.words)
        files = {
            VOCABULARY: to_json(pieces, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            WORDS: _join_lines(lexicon.words),
            NGRAMS: _join_lines(lexicon.ngrams),
            REPORT: to_json(self.report, indent=1).encode(),
        }
        if self.picture:
            files[CURVE] = self.picture.encode()
        params = {name: getattr(lexicon, name) for name in _ARRAYS}
        if gated is not None:
            params["gates"] = gated.gates
        return save(folder, params, config=config, card=card, files=files, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path) -> "LexiconModel":
        """Loads a model that `save` wrote; no code in the folder is executed.

        Args:
          folder: the folder of the model.

        Returns:
          The fitted model.

        Raises:
          FileNotFoundError, ValueError: if the folder does not have such a model, or is damaged.
        """
        params, config = load(folder)
        check_kind(config, "text", folder)
        try:
            words = json.loads(read_file(folder, VOCABULARY))
            classes = check_classes(config["classes"])
            pieces = words["pieces"]
            check_texts(list(pieces))
            lexicon: Any = Lexicon(
                num_classes=len(classes),
                units=Units(
                    {piece: int(score) for piece, score in pieces.items()},
                    lowercase=bool(words["lowercase"]),
                ),
                words=_split_lines(read_file(folder, WORDS)),
                ngrams=_split_lines(read_file(folder, NGRAMS)),
                threshold=float(config["model"]["threshold"]),
                density=float(config["model"]["density"]),
                **{name: np.asarray(params[name]) for name in _ARRAYS},
            )
            if config["network"] == WINDOW:
                lexicon = WindowLexicon(
                    words=tuple(check_texts(words["gate_words"])),
                    gates=np.asarray(params["gates"]),
                    cut=float(config["model"]["cut"]),
                    reader=dataclasses.replace(lexicon, density=1.0),
                    density=lexicon.density,
                )
            lexicon.check()
            report = check_report(json.loads(read_file(folder, REPORT)))
        except BadFile:  # The message already names the file and the fault.
            raise
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            # The content comes from a file and may be anything.
            raise BadFile(f"{folder} is not a model that this version reads: {error!r}") from error
        return cls(lexicon=lexicon, classes=classes, report=report)


def _join_lines(strings: Sequence[str]) -> bytes:
    return "\n".join(strings).encode("utf-8", "surrogatepass")


def _split_lines(content: bytes) -> tuple[str, ...]:
    # `splitlines` would also split at other separators, which may be in a word.
    text = content.decode("utf-8", "surrogatepass")
    return tuple(text.split("\n")) if text else ()


def _select(readings: Readings, row: int) -> Readings:
    part = slice(row, row + 1)
    return Readings(
        readings.probabilities[part],
        readings.is_open[part],
        readings.chosen[part],
        readings.is_empty[part],
    )
