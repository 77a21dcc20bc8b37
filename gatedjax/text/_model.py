"""A trained model: its folder on disk, and its predictions for texts."""

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
from gatedjax._utils.json import to_json
from gatedjax._utils.limits import MOST_LENGTH
from gatedjax._utils.nested import from_json
from gatedjax._utils.types import Json, Output, Params, Tree
from gatedjax.data.text._vocabulary import UNK, Vocabulary
from gatedjax.export import ModelCard, ParamsMismatch
from gatedjax.export._kinds import check_kind, facts_of
from gatedjax.export._tensors import check_outputs
from gatedjax.lexicon._lexicon import NOTHING_KNOWN
from gatedjax.models import GANet
from gatedjax.text._buckets import FINE, group_texts, pad_texts, shape_of, sizes_of, width_of
from gatedjax.text._networks import PAIR, TAGS, TEXT, Batch, Config, NetworkEntry, Reading
from gatedjax.text._prediction import REPORT as REPORT
from gatedjax.text._prediction import TOKENS as TOKENS
from gatedjax.text._prediction import VOCABULARY as VOCABULARY
from gatedjax.text._prediction import (
    WITHOUT_NETWORK,
    check_classes,
    check_length,
    check_prior,
    check_report,
    check_stored_options,
    check_texts,
)
from gatedjax.text._prediction import Failure as Failure
from gatedjax.text._prediction import Prediction as Prediction
from gatedjax.text._prediction import check_inputs as check_inputs
from gatedjax.text._prediction import chunks as chunks
from gatedjax.text._prediction import inputs_of as inputs_of
from gatedjax.text._prediction import usable as usable
from gatedjax.text._read import Label
from gatedjax.text._tokens import Function, NeedsTokenizer, Tokenizer
from gatedjax.text._windows import pool_windows, split_words

# The numbers of patterns of gates that may run at once; each is a compiled program.
_POWERS = tuple(2**n for n in range(3, 16))


@dataclasses.dataclass(frozen=True, slots=True)
class TextOutput:
    """The output of the network for a text or a pair of texts, without padding."""

    tokens: tuple[tuple[str, ...], ...]  # the words of the text, or of both texts of a pair
    probabilities: np.ndarray  # float32 [C]
    masks: tuple[np.ndarray, ...]  # for each text bool [T], True at words that attention can see
    density: float  # the share of these words
    attention: np.ndarray | None  # [T], of the first text; None without attention
    gates: np.ndarray | None  # [T], open probabilities in the first text; None without gates
    windows: tuple[int, ...] = ()  # words in each window of a long text, else ()
    note: str = ""  # a remark: a text was cut, or the answer is the prior


# Compiled programs are cached by network. Networks with the same options are equal, so that a
# folder that is opened again uses the programs of the first time, even with other parameters.


@functools.lru_cache(16)
def _reading(kind: str, network: str, module: nn.Module) -> Any:
    return jax.jit(networks(kind)[network].reading(module))


@functools.partial(jax.jit, static_argnums=0)
def _modes(module: nn.Module, params: Params, batch: Batch) -> Json:
    # The seed is fixed, so that each evaluation of a text has the same draws.
    rngs = {"gate": jax.random.key(0)}
    outputs: Tree = module.apply({"params": params}, batch, rngs=rngs, method=GANet.gate_modes)
    return {mode: output.logits for mode, output in outputs.items()}


@functools.partial(jax.jit, static_argnums=0)
def _run_with_gates(module: nn.Module, params: Params, batch: Batch, gates: Tree) -> Tree:
    output: Output = module.apply({"params": params}, batch, gates, method=GANet.with_gates)
    return jax.nn.softmax(output.logits)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedModel:
    """A trained network with its vocabulary and classes."""

    kind: str  # "text", "pair" or "tags"
    network: str  # the name, such as "gru", see `networks`
    config: Config
    vocabulary: Vocabulary
    classes: tuple[Label, ...]  # as in the training data, in the order of the outputs
    params: Params
    max_len: int  # words that the network reads at once
    report: Json = dataclasses.field(default_factory=dict)
    tokenizer: Tokenizer = dataclasses.field(default_factory=Tokenizer)
    windows: bool = False  # False cuts longer texts
    options: Json | None = None  # see `options_to_json`; None for a folder of an earlier version
    prior: tuple[float, ...] = ()  # frequencies of the classes in training; () for tags and `_run`

    @property
    def entry(self) -> NetworkEntry:
        """The entry of the network: the functions that build and read it, and its defaults."""
        return networks(self.kind)[self.network]

    @functools.cached_property
    def module(self) -> nn.Module:
        """The Flax module of the network."""
        return self.entry.make(self.config, words=len(self.vocabulary), classes=len(self.classes))

    @functools.cached_property
    def _program(self) -> Any:
        return _reading(self.kind, self.network, self.module)

    @functools.cached_property
    def _device_params(self) -> Params:
        return jax.device_put(self.params)

    def __getstate__(self) -> Json:
        """Returns the fields by name without compiled programs, which cannot be pickled."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def inputs(self) -> int:
        """The number of texts in an example: 2 for pairs, else 1."""
        return inputs_of(self.kind)

    def ids(self, tokens: Sequence[str]) -> np.ndarray:
        """Returns the ids of the first `max_len` words, int32 [n]; an unknown word for no word."""
        words = self.vocabulary.encode(tokens[: self.max_len]) or [UNK]
        return np.array(words, np.int32)

    def run(self, batch: Mapping[str, np.ndarray]) -> Json:
        """Runs the network on a batch of `pad_texts`; returns its `Reading` with NumPy arrays.

        Raises ValueError if an output is not finite; the message names the largest parameter.
        """
        outputs: Json = jax.device_get(self._program(self._device_params, batch))
        check_outputs(jax.tree.leaves(outputs), self.params)
        return outputs

    def read_texts(
        self, examples: Iterable[Sequence[str]], *, chunk: int = 4096
    ) -> Iterator[TextOutput | Failure]:
        """Runs the network on texts, and yields the results in the order of the texts. An example
        is a tuple with a text or, for pairs, two; `chunk` examples are in memory.
        """
        for part in chunks(examples, chunk):
            yield from self._read_chunk(part)

    def predict(self, examples: Iterable[Sequence[str]]) -> Iterator[Prediction | Failure]:
        """Yields a `Prediction` for each example, or a `Failure` with the reason."""
        return (self._prediction(output) for output in self.read_texts(examples))

    def probabilities(self, examples: Iterable[Sequence[str]]) -> np.ndarray:
        """Computes the probability of each class for each example: float32 [n, C]."""
        rows = [output.probabilities for output in usable(self.read_texts(examples))]
        return np.array(rows, np.float32).reshape(-1, len(self.classes))

    def _prediction(self, output: TextOutput | Failure) -> Prediction | Failure:
        if isinstance(output, Failure):
            return output
        # Among equal probabilities the first class is predicted.
        best = int(np.argmax(output.probabilities))
        open_words = [
            list(itertools.compress(words, mask.tolist()))
            for words, mask in zip(output.tokens, output.masks, strict=True)
        ]
        return Prediction(
            self.classes[best],
            float(output.probabilities[best]),
            open_words if self.kind == "pair" else open_words[0],
            output.density,
            output.note,
        )

    def _read_chunk(self, examples: Sequence[Sequence[str]]) -> list[TextOutput | Failure]:
        """Returns a list with the `TextOutput` of each example, or a `Failure` with the reason."""
        most = MOST_LENGTH if self.windows else self.max_len
        # A text that the network reads has its note here, which its output replaces at the end.
        results: list[TextOutput | Failure | str] = []
        usable: list[tuple[tuple[str, ...], ...]] = []
        for texts in examples:
            if reason := self._unusable(texts):
                results.append(Failure(reason))
                continue
            # A text that is cut is split up to the first word that is not read.
            words = self.all_tokens(texts, beyond=1)
            cut = tuple(text[:most] for text in words)
            note = "" if cut == words else f"only the first {most:,} words of a text were read"
            results.append(note if all(words) else self._answer_by_prior(cut))
            if all(words):
                usable.append(cut)
        outputs = iter(self.read_documents(usable))
        return [
            dataclasses.replace(next(outputs), note=result) if isinstance(result, str) else result
            for result in results
        ]

    def _answer_by_prior(self, cut: tuple[tuple[str, ...], ...]) -> TextOutput:
        masks = tuple(np.zeros(len(words), bool) for words in cut)
        note = NOTHING_KNOWN if self.kind == "text" else "a text of the pair has no word"
        return TextOutput(cut, np.array(self.prior, np.float32), masks, 0.0, None, None, note=note)

    def tokens(self, texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Returns a tuple with the first `max_len` words of each text of an example."""
        return tuple(self.tokenizer.split(text, self.max_len) for text in texts)

    def all_tokens(self, texts: Sequence[str], *, beyond: int = 0) -> tuple[tuple[str, ...], ...]:
        """Returns the words that a prediction reads of each text, and `beyond` more."""
        most = MOST_LENGTH if self.windows else self.max_len
        return tuple(self.tokenizer.split(text, most + beyond) for text in texts)

    def list_windows(
        self, examples: Sequence[tuple[tuple[str, ...], ...]]
    ) -> tuple[list[tuple[tuple[str, ...], ...]], np.ndarray]:
        """Splits single texts into windows of at most `max_len` words; returns them as examples,
        and the position of the example of each, int [W].
        """
        if not self.windows:
            return list(examples), np.arange(len(examples))
        parts = [split_words(words, self.max_len) for (words,) in examples]
        owners = np.repeat(np.arange(len(parts)), list(map(len, parts)))
        return [(window,) for part in parts for window in part], owners

    def read_documents(self, examples: Sequence[tuple[tuple[str, ...], ...]]) -> list[TextOutput]:
        """Runs the network on examples that are split into words, long texts in windows, which
        `join_windows` joins.
        """
        pieces, owners = self.list_windows(examples)
        outputs = self.read_tokens(pieces)
        ends = np.searchsorted(owners, np.arange(len(examples) + 1)).tolist()
        return [
            outputs[begin] if end == begin + 1 else join_windows(outputs[begin:end])
            for begin, end in itertools.pairwise(ends)
        ]

    def read_tokens(self, examples: Sequence[tuple[tuple[str, ...], ...]]) -> list[TextOutput]:
        """Runs the network on words, without windows; a text without words is an unknown word."""
        outputs: dict[int, TextOutput] = {}
        for numbers, batch in self.batches(examples):
            out = self.run(batch)
            for row, number in enumerate(numbers):
                outputs[number] = take_row(examples[number], out, row)
        return [outputs[number] for number in range(len(examples))]

    def batches(
        self, examples: Sequence[tuple[tuple[str, ...], ...]]
    ) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
        """Yields (positions of the examples, their padded batch), the shortest texts first. Filler
        rows follow the examples.
        """
        lengths = (max(map(len, words)) for words in examples)
        for numbers, (_, width) in group_texts(lengths, lambda n: shape_of(n, self.max_len)):
            yield numbers, self.batch([examples[i] for i in numbers], width)

    @functools.cached_property
    def modes(self) -> Any:
        """A compiled function of (params, batch) that returns a dict from gate mode to logits
        [draws, B, C], with a single draw for modes without random gates.
        """
        return functools.partial(_modes, self.module)

    def with_gates(self, tokens: tuple[str, ...], gates: np.ndarray) -> np.ndarray:
        """Returns the probabilities [S, C] for a text of T words with S vectors of gates in [0, 1],
        [S, T], in place of the gates of the network.
        """
        width = width_of(len(tokens), self.max_len)
        # The number of rows is rounded up to a power of 2, so that few programs are compiled.
        rows = next(size for size in _POWERS if size >= len(gates))
        patterns = np.zeros((rows, 1, width), np.float32)
        patterns[: len(gates), 0, : gates.shape[1]] = gates
        probabilities = _run_with_gates(
            self.module, self._device_params, self.batch([(tokens,)], width), patterns
        )
        return np.asarray(probabilities)[: len(gates), 0]

    def _unusable(self, texts: Sequence[str]) -> str:
        if isinstance(texts, str) or len(texts) != self.inputs:
            plural = "s" * (self.inputs > 1)
            return f"an example must be a tuple of {self.inputs} text{plural}, got {texts!r:.40}"
        bad = next((text for text in texts if not isinstance(text, str)), None)
        return "" if bad is None else f"a text must be a str, got {bad!r:.40}"

    def batch(
        self, examples: Sequence[tuple[tuple[str, ...], ...]], width: int
    ) -> dict[str, np.ndarray]:
        """Pads examples to a width, in the smallest size of batch in which they fit."""
        rows = next(size for size in sizes_of(width) if size >= len(examples))
        return pad_texts([tuple(map(self.ids, texts)) for texts in examples], (rows, width))

    def save(self, folder: str | Path, *, card: ModelCard | None = None, overwrite: bool) -> Path:
        """Writes the model to a folder and returns the path of the folder."""
        config = {
            **facts_of(self.kind),  # type: ignore[arg-type]
            "network": self.network,
            "model": self.config,
            "classes": list(self.classes),
            "prior": list(self.prior),
            "vocab_size": len(self.vocabulary),
            "max_len": self.max_len,
        }
        words = {"words": list(self.vocabulary.words), "lowercase": self.vocabulary.lowercase}
        files = {
            VOCABULARY: to_json(words, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            REPORT: to_json(self.report, indent=1).encode(),
        }
        if self.options is not None:
            config["options"] = self.options
        tokens = self.tokenizer.to_json()
        if tokens is not None:
            # The rule is named in config.json, so that a reader of the folder sees it.
            config["tokens"] = tokens["kind"]
            files[TOKENS] = to_json(tokens, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return export.save(
            folder, self.params, config=config, card=card, files=files, overwrite=overwrite
        )

    @classmethod
    def load(
        cls, folder: str | Path, kinds: Sequence[str], tokenizer: Function | None = None
    ) -> "TrainedModel":
        """Loads a model that `save` wrote; no code in the folder is executed."""
        config = export.read_config(folder)
        kind = check_kind(config, kinds, folder)  # type: ignore[arg-type]
        if config.get("network") in WITHOUT_NETWORK:
            raise export.BadFile(
                f"{folder} must have a network, got a model without one: `gatedjax explain` shows "
                "its gates, and `gatedjax train --model ganet` trains a network with gates"
            )
        try:
            entry = networks(kind)[config["network"]]
            words = json.loads(export.read_file(folder, VOCABULARY))
            # The first two words are the special words, which the constructor adds.
            names = check_texts(words["words"][2:])
            vocabulary = entry.vocabulary(names, lowercase=words["lowercase"])
            model = cls(
                kind=kind,
                network=config["network"],
                config=from_json(type(entry.config), config["model"]),
                vocabulary=vocabulary,
                classes=(classes := check_classes(config["classes"])),
                prior=check_prior(config["prior"], len(classes) * (kind != "tags")),
                params={},
                max_len=check_length(config["max_len"]),
                report=check_report(json.loads(export.read_file(folder, REPORT))),
                tokenizer=_tokenizer(folder, config.get("tokens"), tokenizer),
                windows=kind == "text",
                options=check_stored_options(config.get("options")),
            )
            # The model without parameters gives their shapes, by which the file is checked before
            # it is read.
            like = jax.eval_shape(model._init)
        except (export.BadFile, NeedsTokenizer):  # The message already names the fault.
            raise
        except (
            # The content comes from a file and may be anything, so each of these errors means a
            # damaged or foreign file.
            *(AttributeError, KeyError, TypeError, ValueError),
            *(OverflowError, RecursionError),
        ) as error:
            raise export.BadFile(
                f"{folder} must be a model that this version can read, got {error!r}"
            ) from error
        try:
            params, _ = export.load(folder, like)
        except ParamsMismatch as error:
            raise export.BadFile(
                f"{folder} must have the parameters of the network in its config.json, got others"
            ) from error
        return dataclasses.replace(model, params=params)

    def _init(self) -> Params:
        # `jax.eval_shape` uses only the shapes and dtypes of these parameters.
        example = (("a",),) * self.inputs
        batch = self.batch([example], FINE[0])
        return self.module.init(jax.random.key(0), batch)["params"]


def networks(kind: str) -> dict[str, NetworkEntry]:
    """Returns a dict from the name of each network for a kind of model to its `NetworkEntry`."""
    return {"text": TEXT, "pair": PAIR, "tags": TAGS}.get(kind, {})


def _tokenizer(folder: str | Path, kind: object, function: Function | None) -> Tokenizer:
    value = None if kind is None else json.loads(export.read_file(folder, TOKENS))
    return Tokenizer.from_json(value, function)


def take_row(tokens: tuple[tuple[str, ...], ...], out: Reading, row: int) -> TextOutput:
    """Returns the `TextOutput` for a row of a batch, without padding."""
    size = len(tokens[0])
    attention, gates = out.get("attention"), out.get("gates")
    return TextOutput(
        tokens,
        out["probabilities"][row],
        tuple(mask[row, : len(words)] for mask, words in zip(out["kept"], tokens, strict=True)),
        float(out["density"][row]),
        None if attention is None else attention[row, :size],
        None if gates is None else gates[row, :size],
    )


def join_windows(outputs: Sequence[TextOutput]) -> TextOutput:
    """Returns the output of a long text from its windows: the probabilities by `pool_windows`, and
    the attention in a window times its share of the words.
    """
    lengths = np.array([len(output.tokens[0]) for output in outputs])
    shares = lengths / lengths.sum()
    probabilities = np.stack([output.probabilities for output in outputs])
    attention = [
        output.attention * share
        for output, share in zip(outputs, shares, strict=True)
        if output.attention is not None
    ]
    gates = [output.gates for output in outputs if output.gates is not None]
    return TextOutput(
        (tuple(itertools.chain.from_iterable(output.tokens[0] for output in outputs)),),
        pool_windows(probabilities, np.zeros(len(outputs), int), lengths, 1)[0],
        (np.concatenate([output.masks[0] for output in outputs]),),
        float(shares @ [output.density for output in outputs]),
        np.concatenate(attention) if attention else None,
        np.concatenate(gates) if gates else None,
        tuple(lengths.tolist()),
    )
