"""A trained model: what a folder holds, and what it says of texts."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from gatedjax import export
from gatedjax._utils.groups import as_dict
from gatedjax._utils.json import to_json
from gatedjax._utils.limits import MOST_LENGTH, check_most
from gatedjax._utils.types import Json, Output, Params, Tree
from gatedjax.data.batches._plan import pad_rows
from gatedjax.data.text._vocabulary import UNK, Vocabulary
from gatedjax.export import ModelCard, ParamsMismatch
from gatedjax.export._kinds import check_kind, facts_of
from gatedjax.models import GANet
from gatedjax.text._corpus import split_words
from gatedjax.text._networks import PAIR, TAGS, TEXT, Batch, Config, Network, Reading
from gatedjax.text._read import Columns, Label

VOCABULARY, REPORT = "vocabulary.json", "report.json"
NAMES = ("tokens", "hypothesis")
"""Of the texts of an example in a batch."""
LENGTHS = ("lengths", "hypothesis_lengths")
EDGES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Padded lengths of prediction, and twice the last one again and again: programs are few."""
CELLS = 8192
"""Words of a batch of prediction, padding included."""
_POWERS = tuple(2**n for n in range(3, 16))


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """What a model says of one text (or pair of texts).

    Attributes:
      label: the likeliest class, as it was written in the training data.
      probability: of that class.
      kept: the words that attention may see: those with an open gate; without gates all of them, or
        those that local attention or the selector chose. A pair has a list for each text. The
        prediction also depends on other words, through the encoder; the report of `train` and
        `evaluate` has by how much ("leak").
      density: share of the words that were kept.
    """

    label: Label
    probability: float
    kept: list[Any]
    density: float

    def to_json(self) -> Json:
        """As a line of `gatedjax predict`."""
        return {
            "label": self.label,
            "probability": round(self.probability, 6),
            "kept": self.kept,
            "density": round(self.density, 6),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Why nothing can be said of a text."""

    error: str

    def to_json(self) -> Json:
        """As a line of `gatedjax predict`."""
        return {"error": self.error}


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """One text as the network saw it."""

    tokens: tuple[tuple[str, ...], ...]
    probabilities: np.ndarray
    kept: tuple[np.ndarray, ...]
    density: float
    attention: np.ndarray | None
    gates: np.ndarray | None


# programs belong to networks, which are equal where their options are: a folder that is opened
# again finds those of the first time, whatever its parameters


@functools.lru_cache(16)
def _reading(kind: str, network: str, module: nn.Module) -> Any:
    return jax.jit(networks(kind)[network].reading(module))


@functools.partial(jax.jit, static_argnums=0)
def _modes(module: nn.Module, params: Params, batch: Batch) -> Json:
    # one seed: the draws of a text are the same in every evaluation
    rngs = {"gate": jax.random.key(0)}
    outputs: Tree = module.apply({"params": params}, batch, rngs=rngs, method=GANet.gate_modes)
    return {mode: output.logits for mode, output in outputs.items()}


@functools.partial(jax.jit, static_argnums=0)
def _forced(module: nn.Module, params: Params, batch: Batch, gates: Tree) -> Tree:
    output: Output = module.apply({"params": params}, batch, gates, method=GANet.with_gates)
    return jax.nn.softmax(output.logits)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """Everything that prediction needs.

    Attributes:
      kind: "text", "pair" or "tags".
      network: name of the network.
      config: its configuration.
      vocabulary: gives the ids.
      classes: labels as written, in the order of the outputs.
      params: parameters.
      max_len: words of a text that are used.
      report: what is known of its quality.
    """

    kind: str
    network: str
    config: Config
    vocabulary: Vocabulary
    classes: tuple[Label, ...]
    params: Params
    max_len: int
    report: Json = dataclasses.field(default_factory=dict)

    @property
    def entry(self) -> Network:
        """The network's entry in the list."""
        return networks(self.kind)[self.network]

    @functools.cached_property
    def module(self) -> nn.Module:
        """The Flax module."""
        return self.entry.make(self.config, words=len(self.vocabulary), classes=len(self.classes))

    @functools.cached_property
    def _read(self) -> Any:
        return _reading(self.kind, self.network, self.module)

    @functools.cached_property
    def _placed(self) -> Params:
        return jax.device_put(self.params)

    def __getstate__(self) -> Json:
        """The fields; what was compiled of them stays in this process."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def inputs(self) -> int:
        """Texts of an example."""
        return inputs_of(self.kind)

    def ids(self, tokens: Sequence[str]) -> np.ndarray:
        """int32 ids of the words of a text, as far as they are used."""
        words = self.vocabulary.encode(tokens[: self.max_len]) or [UNK]
        return np.array(words, np.int32)

    def run(self, batch: Mapping[str, np.ndarray]) -> Json:
        """What the network says of a padded batch, as NumPy arrays."""
        return jax.device_get(self._read(self._placed, batch))

    def read(
        self, examples: Iterable[Sequence[str]], *, chunk: int = 4096
    ) -> Iterator[Read | Failure]:
        """Runs the network over texts, in their order.

        Memory holds one chunk; padded shapes are few whatever the texts.

        Args:
          examples: texts, as many each as the model reads.
          chunk: examples that are sorted into batches of one length together.
        """
        iterator = iter(examples)
        while part := list(itertools.islice(iterator, chunk)):
            yield from self._read_chunk(part)

    def predict(self, examples: Iterable[Sequence[str]]) -> Iterator[Prediction | Failure]:
        """What `read` found, in words."""
        return (self._prediction(one) for one in self.read(examples))

    def probabilities(self, examples: Iterable[Sequence[str]]) -> np.ndarray:
        """float32 [n, C].

        Raises:
          ValueError: if a text has no word.
        """
        rows = []
        for number, one in enumerate(self.read(examples)):
            if isinstance(one, Failure):
                raise ValueError(f"text {number}: {one.error}")
            rows.append(one.probabilities)
        return np.array(rows, np.float32).reshape(-1, len(self.classes))

    def _prediction(self, one: Read | Failure) -> Prediction | Failure:
        if isinstance(one, Failure):
            return one
        best = int(np.argmax(one.probabilities))
        kept = [
            list(itertools.compress(words, mask.tolist()))
            for words, mask in zip(one.tokens, one.kept, strict=True)
        ]
        return Prediction(
            self.classes[best],
            float(one.probabilities[best]),
            kept if self.kind == "pair" else kept[0],
            one.density,
        )

    def _read_chunk(self, examples: Sequence[Sequence[str]]) -> list[Read | Failure]:
        found: list[Read | Failure] = []
        usable: list[tuple[tuple[str, ...], ...]] = []
        for texts in examples:
            reason = self._unusable(texts)
            words = () if reason else self.tokens(texts)
            if not all(words):
                reason = "the text has no word"
            found.append(Failure(reason))
            if not reason:
                usable.append(words)
        rest = iter(self.read_tokens(usable))
        return [one if one.error else next(rest) for one in found if isinstance(one, Failure)]

    def tokens(self, texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The words of every text of an example, as far as they are used."""
        return tuple(split_words(text, self.max_len) for text in texts)

    def read_tokens(self, examples: Sequence[tuple[tuple[str, ...], ...]]) -> list[Read]:
        """Runs the network over texts that are words already; no word is read as an unknown one."""
        found: dict[int, Read] = {}
        for numbers, batch in self.batches(examples):
            out = self.run(batch)
            for row, number in enumerate(numbers):
                found[number] = cut(examples[number], out, row)
        return [found[number] for number in range(len(examples))]

    def batches(
        self, examples: Sequence[tuple[tuple[str, ...], ...]]
    ) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
        """Yields (which examples, their padded batch), the shortest texts first."""
        groups: dict[int, list[int]] = {}
        for number, words in enumerate(examples):
            groups.setdefault(edge_of(max(map(len, words)), self.max_len), []).append(number)
        for edge, numbers in sorted(groups.items()):
            rows = rows_of(edge)
            for begin in range(0, len(numbers), rows):
                some = numbers[begin : begin + rows]
                yield some, self.batch([examples[i] for i in some], edge)

    @functools.cached_property
    def modes(self) -> Any:
        """A compiled function of (params, batch): the logits [draws, B, C] of every gate mode."""
        return functools.partial(_modes, self.module)

    def with_gates(self, tokens: tuple[str, ...], gates: np.ndarray) -> np.ndarray:
        """The class probabilities [S, C] of one text under gates [S, T] that are given."""
        edge = edge_of(len(tokens), self.max_len)
        rows = next(size for size in _POWERS if size >= len(gates))
        padded = np.zeros((rows, 1, edge), np.float32)
        padded[: len(gates), 0, : gates.shape[1]] = gates
        found = _forced(self.module, self._placed, self.batch([(tokens,)], edge), padded)
        return np.asarray(found)[: len(gates), 0]

    def _unusable(self, texts: Sequence[str]) -> str:
        if isinstance(texts, str) or len(texts) != self.inputs:
            return f"wanted {self.inputs} texts"
        bad = next((text for text in texts if not isinstance(text, str)), None)
        return "" if bad is None else f"a text must be a str, got {type(bad).__name__}"

    def batch(
        self, examples: Sequence[tuple[tuple[str, ...], ...]], edge: int
    ) -> dict[str, np.ndarray]:
        """The padded batch of tokenised texts; a few sizes of batches, whatever their number."""
        size = next(s for s in sizes_of(edge) if s >= len(examples))
        batch: dict[str, np.ndarray] = {}
        for place, texts in enumerate(zip(*examples, strict=True)):
            ids = [self.ids(words) for words in texts]
            lengths = np.ones(size, np.int32)
            lengths[: len(ids)] = [len(row) for row in ids]
            batch[NAMES[place]] = pad_rows(ids, (size, edge))
            batch[LENGTHS[place]] = lengths
        return batch

    def save(self, folder: str | Path, *, card: ModelCard | None = None, overwrite: bool) -> Path:
        """Writes the folder; see `gatedjax.export.save`."""
        config = {
            **facts_of(self.kind),  # type: ignore[arg-type]
            "network": self.network,
            "model": as_dict(self.config),
            "classes": list(self.classes),
            "vocab_size": len(self.vocabulary),
            "max_len": self.max_len,
        }
        words = {"words": list(self.vocabulary.words), "lowercase": self.vocabulary.lowercase}
        files = {
            VOCABULARY: to_json(words, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            REPORT: to_json(self.report, indent=1).encode(),
        }
        return export.save(
            folder, self.params, config=config, card=card, files=files, overwrite=overwrite
        )

    @classmethod
    def load(cls, folder: str | Path, kinds: Sequence[str]) -> "TrainedModel":
        """Reads what `save` wrote; nothing of it is executed.

        Raises:
          FileNotFoundError, ValueError: for a folder that is none, holds another kind of model, is
            damaged, or was written by a newer version.
        """
        config = export.read_config(folder)
        kind = check_kind(config, kinds, folder)  # type: ignore[arg-type]
        try:
            entry = networks(kind)[config["network"]]
            settings = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in config["model"].items()
            }
            words = json.loads(export.read_file(folder, VOCABULARY))
            vocabulary = entry.vocabulary(_texts(words["words"][2:]), lowercase=words["lowercase"])
            made = cls(
                kind=kind,
                network=config["network"],
                config=type(entry.config)(**settings),
                vocabulary=vocabulary,
                classes=_classes(config["classes"]),
                params={},
                max_len=_positive(config["max_len"]),
                report=_object(json.loads(export.read_file(folder, REPORT))),
            )
            like = jax.eval_shape(made._init)
        except export.BadFile:  # says which file and what is wrong with it
            raise
        except (
            *(AttributeError, KeyError, TypeError, ValueError),
            *(OverflowError, RecursionError),
        ) as error:
            raise export.BadFile(f"{folder} is no model of this version: {error!r}") from error
        try:
            params, _ = export.load(folder, like)
        except ParamsMismatch as error:
            raise export.BadFile(
                f"{folder}: its parameters are not those of the network in its config.json"
            ) from error
        return dataclasses.replace(made, params=params)

    def _init(self) -> Params:
        example = (("a",),) * self.inputs
        batch = self.batch([example], EDGES[0])
        return self.module.init(jax.random.key(0), batch)["params"]


def networks(kind: str) -> dict[str, Network]:
    """The networks for a kind of model."""
    return {"text": TEXT, "pair": PAIR, "tags": TAGS}[kind]


def inputs_of(kind: str) -> int:
    """Texts of an example."""
    return 2 if kind == "pair" else 1


def check_inputs(columns: Columns, kind: str) -> None:
    """Refuses columns that are not as many as a kind of model reads texts."""
    if len(columns.inputs) != inputs_of(kind):
        wanted = "two columns for pairs" if kind == "pair" else "one column for texts"
        raise ValueError(
            f"columns.inputs must name {wanted}, got {', '.join(map(repr, columns.inputs))}"
        )


def _texts(values: object) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise ValueError("words must be a list of texts")
    return values


def _classes(values: object) -> tuple[Label, ...]:
    if not isinstance(values, list) or len(set(values)) < max(len(values), 2):
        raise ValueError("classes must be a list of different labels, at least two")
    if not all(isinstance(one, str | int | float) for one in values):
        raise ValueError("classes must be texts or numbers")
    return tuple(values)


def _object(value: object) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{REPORT} must hold an object, got {type(value).__name__}")
    return value


def _positive(value: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"wanted a number from 1 on, got {value!r}")
    check_most("max_len", value, MOST_LENGTH)
    return value


def edge_of(length: int, longest: int) -> int:
    """The padded length of a text of so many words."""
    for edge in EDGES:
        if length <= edge:
            return min(edge, longest) if longest > EDGES[0] else edge
    edge = EDGES[-1]
    while edge < length:
        edge *= 2
    return min(edge, longest)


def rows_of(edge: int) -> int:
    """Rows of a full batch of this padded length."""
    return max(8, min(256, CELLS // edge // 8 * 8))


def sizes_of(edge: int) -> tuple[int, ...]:
    """The sizes of batches: one text, a few, a full batch."""
    return tuple(sorted({1, 8, rows_of(edge)}))


def cut(tokens: tuple[tuple[str, ...], ...], out: Reading, row: int) -> Read:
    """One row of a batch, without its padding."""
    size = len(tokens[0])
    attention, gates = out.get("attention"), out.get("gates")
    return Read(
        tokens,
        out["probabilities"][row],
        tuple(kept[row, : len(words)] for kept, words in zip(out["kept"], tokens, strict=True)),
        float(out["density"][row]),
        None if attention is None else attention[row, :size],
        None if gates is None else gates[row, :size],
    )
