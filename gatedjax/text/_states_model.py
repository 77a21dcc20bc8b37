"""A trained classifier of token vectors: its folder on disk, its predictions and explanations."""

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
from gatedjax.lexicon import GatedPooling, Readings
from gatedjax.text._lexicon import CURVE
from gatedjax.text._lexicon_explanation import ReasonedPrediction
from gatedjax.text._prediction import (
    REPORT,
    STATES,
    Prediction,
    check_classes,
    check_report,
    check_stored_options,
    chunks,
)
from gatedjax.text._show import Explanation, Reasons, explain_open_words
from gatedjax.text._states import (
    EncodedText,
    Encoder,
    NeedsEncoder,
    check_encoded,
    compare_encoder,
    encode_texts,
    remove_tokens,
)
from gatedjax.text._table import Label

ENCODER = "encoder.json"
"""The file with the facts by which an encoder is compared."""
UNMEASURED = (
    "closed tokens may have shaped the vectors of the open tokens; this cannot be measured without "
    "the encoder"
)
_NUMBERS = ("cut", "density", "temperature")
_ARRAYS = ("gate", "weights", "bias", "prior")
_CHUNK = 1024
_LARGEST_CHANGE = 1e-6
"""A change of a probability up to this number is rounding, and counts as no leak."""
Item = str | EncodedText
"""A text, or its tokens and their vectors."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenPrediction(Prediction):
    """A prediction that also depends on closed tokens, so that its open tokens are not `kept`."""

    def to_json(self) -> Json:
        """Returns the dict of `gatedjax predict`, with "open" in place of "kept"."""
        fields = Prediction.to_json(self)
        return {"open" if name == "kept" else name: value for name, value in fields.items()}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StatesModel:
    """A fitted `GatedPooling` with its classes and its encoder, in place of a `TrainedModel`."""

    pooling: GatedPooling
    classes: tuple[Label, ...]
    encoder: Encoder | None = None  # None reads only vectors
    facts: Json | None = None  # see `sample_encoder`; None after training with a file of states
    report: Json = dataclasses.field(default_factory=dict)
    picture: str = ""  # an SVG image of the accuracy at each density
    options: Json | None = None  # see `options_to_json`; None for a folder of an earlier version
    kind: str = "text"
    inputs: int = 1
    network: str = STATES

    @property
    def has_no_leak(self) -> bool:
        """True if training has found that closed tokens do not change the vectors of open ones."""
        return is_zero(self.report.get("leak"))

    def encode(self, items: Sequence[Item]) -> list[EncodedText]:
        """Returns the tokens and vectors of texts, of which some may be encoded already."""
        texts = [item for item in items if isinstance(item, str)]
        if texts and self.encoder is None:
            raise NeedsEncoder(
                "the model reads vectors of an encoder, which is not stored in the folder: give "
                "--states FILE (in Python vectors from read_states, or load(folder, encoder=...))"
            )
        new = encode_texts(self.encoder, texts) if self.encoder is not None else iter(())
        encoded_items = check_encoded(
            (item for item in items if not isinstance(item, str)), "states"
        )
        encoded = [next(new) if isinstance(item, str) else next(encoded_items) for item in items]
        for number, text in enumerate(encoded):
            if len(text.tokens) and text.vectors.shape[1] != self.pooling.width:
                raise ValueError(
                    f"text {number} must have vectors of the width {self.pooling.width}, with "
                    f"which the model was trained, got {text.vectors.shape[1]}"
                )
        no_vectors = np.zeros((0, self.pooling.width))
        return [text if len(text.tokens) else EncodedText([], no_vectors) for text in encoded]

    def read_texts(
        self, examples: Iterable[Sequence[Item]]
    ) -> Iterator[tuple[EncodedText, Readings]]:
        """Yields the tokens and the `Readings` of each text."""
        for part in chunks(examples, _CHUNK):
            for text in self.encode([item for (item,) in part]):
                yield text, self.pooling.read([text.vectors])

    def predict(self, examples: Iterable[Sequence[Item]]) -> Iterator[Prediction]:
        """Yields a `Prediction` for each example."""
        return itertools.starmap(self.predict_read, self.read_texts(examples))

    def predict_read(self, text: EncodedText, reading: Readings) -> Prediction:
        """Returns the prediction for a single text, an `OpenPrediction` unless training has found
        that closed tokens have no effect.
        """
        best = int(np.argmax(reading.probabilities[0]))
        is_open = reading.is_open[0]
        make = Prediction if self.has_no_leak else OpenPrediction
        return make(
            self.classes[best],
            float(reading.probabilities[0, best]),
            list(itertools.compress(text.tokens, is_open.tolist())),
            float(is_open.sum() / max(len(is_open), 1)),
            reading.notes[0],
        )

    def predict_with_reasons(
        self, examples: Iterable[Sequence[Item]]
    ) -> Iterator[ReasonedPrediction]:
        """Yields the prediction for each example with the parts of its open tokens, the largest
        first, in the logit of the predicted class against the mean of the classes.
        """
        for text, reading in self.read_texts(examples):
            shares = self.pooling.share(text.vectors)
            parts, bias = shares.words, tuple(map(float, shares.bias))
            places = np.flatnonzero(reading.is_open[0]).tolist()
            best = int(np.argmax(reading.probabilities[0]))
            order = sorted(places, key=lambda i: -abs(parts[i, best] - parts[i].mean()))
            reasons = tuple((text.tokens[i], tuple(map(float, parts[i]))) for i in order)
            prediction = self.predict_read(text, reading)
            yield ReasonedPrediction(prediction, self.classes, reasons, bias)

    def probabilities(self, examples: Iterable[Sequence[Item]]) -> np.ndarray:
        """Computes the probability of each class for each example: float32 [n, C]."""
        rows = [reading.probabilities[0] for _, reading in self.read_texts(examples)]
        return np.array(rows, np.float32).reshape(-1, len(self.classes))

    def explain(self, item: Item) -> Explanation:
        """Explains the prediction for a text by its open tokens. If closed tokens change the
        vectors of open tokens, the text is encoded again without them.
        """
        ((text, reading),) = self.read_texts([(item,)])
        return self.explain_read(item, text, reading)

    def explain_read(self, item: Item, text: EncodedText, reading: Readings) -> Explanation:
        """Explains the prediction for a text that has been read, see `explain`."""
        probabilities, is_open = reading.probabilities[0], reading.is_open[0]
        best = int(np.argmax(probabilities))
        shares = self.pooling.share(text.vectors)
        removed = [probabilities] * len(is_open)
        # A closed token is not in the mean, so that its removal changes no bit.
        for place in np.flatnonzero(is_open).tolist():
            remaining = np.delete(text.vectors, place, axis=0)
            removed[place] = self.pooling.read([remaining]).probabilities[0]
        again = self.pooling.read([text.vectors[is_open]]).probabilities[0]
        reasons = Reasons(
            classes=self.classes,
            bias=tuple(map(float, shares.bias)),
            words=tuple(tuple(map(float, row)) for row in shares.words),
            pairs=(),
            is_same=bool((probabilities == again).all()),
            note=reading.notes[0],
            leak="" if self.has_no_leak else self._describe_leak(item, text, is_open),
        )
        return explain_open_words(
            item if isinstance(item, str) else " ".join(text.tokens),
            *(text.tokens, self.classes, probabilities, is_open, best),
            ((int(np.argmax(row)), row) for row in removed),
            reasons,
        )

    def _describe_leak(self, item: Item, text: EncodedText, is_open: np.ndarray) -> str:
        """Returns a sentence about the text without its closed tokens."""
        if self.encoder is None or not isinstance(item, str):
            return UNMEASURED
        remaining = remove_tokens(item, text.tokens, (~is_open).tolist())
        (prediction,) = self.predict([(remaining,)])
        return (
            "the vectors of the open tokens also depend on the closed tokens: the open tokens "
            f"alone, encoded again, are {prediction.label} with {prediction.probability:.3f}"
        )

    def save(self, folder: str | Path, *, card: Any = None, overwrite: bool) -> Path:
        """Writes the model, without the encoder, to a folder; see `gatedjax.export.save`."""
        config: Json = {
            **facts_of("text"),
            "network": STATES,
            "model": {name: getattr(self.pooling, name) for name in _NUMBERS},
            "classes": list(self.classes),
        }
        if self.options is not None:
            config["options"] = self.options
        files = {
            ENCODER: to_json(self.facts, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            REPORT: to_json(self.report, indent=1).encode(),
        }
        if self.picture:
            files[CURVE] = self.picture.encode()
        params = {name: getattr(self.pooling, name) for name in _ARRAYS}
        return save(folder, params, config=config, card=card, files=files, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path, encoder: Encoder | None = None) -> "StatesModel":
        """Loads a model that `save` wrote; no code in the folder is executed."""
        params, config = load(folder)
        check_kind(config, "text", folder)
        try:
            classes = check_classes(config["classes"])
            numbers: Any = {name: float(config["model"][name]) for name in _NUMBERS}
            arrays: Any = {name: np.asarray(params[name]) for name in _ARRAYS}
            pooling = GatedPooling(num_classes=len(classes), **numbers, **arrays)
            pooling.check()
            facts = json.loads(read_file(folder, ENCODER))
            report = check_report(json.loads(read_file(folder, REPORT)))
            options = check_stored_options(config.get("options"))
        except BadFile:  # The message already names the file and the fault.
            raise
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            # The content comes from a file and may be anything.
            raise BadFile(f"{folder} is not a model that this version reads: {error!r}") from error
        if encoder is not None:
            compare_encoder(encoder, facts, pooling.width)
        return cls(
            pooling=pooling,
            classes=classes,
            encoder=encoder,
            facts=facts,
            report=report,
            options=options,
        )


def measure_states_leak(model: StatesModel, texts: Sequence[str]) -> Json | None:
    """Removes the closed tokens of texts, encodes the rest again, and measures the changes of the
    label and of its probability; None if no closed token is found in its text.
    """
    pairs = []
    outputs = model.read_texts([(text,) for text in texts])
    for text, (encoded, reading) in zip(texts, outputs, strict=True):
        remaining = remove_tokens(text, encoded.tokens, (~reading.is_open[0]).tolist())
        if remaining != " ".join(text.split()):
            pairs.append((remaining, reading.probabilities[0]))
    changes, changed = [], 0
    again = model.read_texts([(remaining,) for remaining, _ in pairs])
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
        return UNMEASURED
    if is_zero(leak):
        return (
            "the same answer from the open tokens alone: yes (the closed tokens of "
            f"{leak['texts']:,} texts removed, and the rest encoded again)"
        )
    share = leak["changed"] / leak["texts"]
    return (
        f"the closed tokens removed, and the rest encoded again: another answer for "
        f"{leak['changed']:,} of {leak['texts']:,} texts ({share:.1%}), and the probability "
        f"changes by {leak['mean_change']:.4f} on average, because the encoder has read the closed "
        "tokens into the vectors of the open tokens"
    )
