"""A trained model: its folder on disk, and its predictions for texts."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from gatedjax import export
from gatedjax._utils.json import from_json
from gatedjax._utils.limits import MOST_LENGTH, check_most
from gatedjax._utils.run_files import read_json
from gatedjax._utils.types import Json, Output, Params, Tree
from gatedjax.data.text._vocabulary import UNK, Vocabulary
from gatedjax.export._card import check_kind
from gatedjax.export._tensors import check_outputs
from gatedjax.lexicon._lexicon import NOTHING_KNOWN
from gatedjax.models import GANet, GANetConfig
from gatedjax.text.answers._prediction import TOKENS, VOCABULARY, WITHOUT_NETWORK, Prediction
from gatedjax.text.corpus._tokens import Function, Tokenizer
from gatedjax.text.models import _base, _buckets
from gatedjax.text.models._buckets import TextOutput, Words
from gatedjax.text.models._entries import Batch, Config, NetworkEntry, Reading, networks
from gatedjax.text.models._folders import CLASSES, explain_faults, open_folder
from gatedjax.text.sources._labels import Label
from gatedjax.text.targets._class import ClassTarget

# The number of words that are read of each text if the run did not cut texts.
_MOST_WORDS = 1000


# Compiled programs are cached by module. Networks with the same options are equal, so that a folder
# that is opened again uses the programs of the first time, even with other parameters.
@functools.partial(jax.jit, static_argnums=(0, 1))
def _read(network: tuple[str, str], module: nn.Module, params: Params, batch: Batch) -> Reading:
    kind, name = network
    output: Tree = module.apply({"params": params}, batch)
    reading = networks(kind)[name].summarize(output, batch)
    return {"probabilities": nn.softmax(output.logits), **reading}


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
class TrainedModel(_base.SavedModel):
    """A trained network with its vocabulary and classes."""

    kind: str  # "text", "pair" or "tags"
    network: str  # the name, such as "gru", see `networks`
    config: Config
    vocabulary: Vocabulary
    classes: tuple[Label, ...]  # as in the training data, in the order of the outputs
    params: Params
    max_len: int  # words that the network reads at once
    tokenizer: Tokenizer = dataclasses.field(default_factory=Tokenizer)
    windows: bool = False  # False cuts longer texts
    report: Json = dataclasses.field(default_factory=dict)
    options: Json | None = None
    prior: tuple[float, ...] = ()  # frequencies of the classes in training; () for tags and runs

    @property
    def entry(self) -> NetworkEntry:
        """The entry of the network: the functions that build and read it, and its defaults."""
        return networks(self.kind)[self.network]

    @property
    def target(self) -> ClassTarget:
        """The target, a class for each example."""
        return ClassTarget(self.classes)

    @functools.cached_property
    def module(self) -> nn.Module:
        """The Flax module of the network."""
        return self.entry.make(self.config, words=len(self.vocabulary), classes=len(self.classes))

    @functools.cached_property
    def _device_params(self) -> Params:
        return jax.device_put(self.params)

    def __getstate__(self) -> Json:
        """Returns the fields by name without compiled programs, which cannot be pickled."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def ids(self, tokens: Sequence[str]) -> np.ndarray:
        """Returns the ids of the first `max_len` words, int32 [n]; an unknown word for no word."""
        words = self.vocabulary.encode(tokens[: self.max_len]) or [UNK]
        return np.array(words, np.int32)

    def run(self, batch: Mapping[str, np.ndarray]) -> Json:
        """Runs the network on a batch of `pad_texts`; an output that is not finite is an error."""
        network = (self.kind, self.network)
        outputs: Json = jax.device_get(_read(network, self.module, self._device_params, batch))
        check_outputs(jax.tree.leaves(outputs), self.params)
        return outputs

    def predict_read(self, output: TextOutput) -> Prediction:
        # Among equal probabilities the first class is predicted.
        best = int(np.argmax(output.probabilities))
        words_read = [
            list(itertools.compress(words, mask.tolist()))
            for words, mask in zip(output.tokens, output.masks, strict=True)
        ]
        return Prediction(
            self.classes[best],
            float(output.probabilities[best]),
            words_read if self.kind == "pair" else words_read[0],
            output.share,
            output.note,
        )

    def _read_part(self, examples: list[Sequence[str]]) -> list[TextOutput]:
        most = MOST_LENGTH if self.windows else self.max_len
        # A text that is cut is split up to the first word that is not read.
        whole = [self.all_tokens(texts, beyond=1) for texts in examples]
        cut = [tuple(text[:most] for text in texts) for texts in whole]
        windows, owners = self.list_windows([words for words in cut if all(words)])
        parts = itertools.groupby(
            zip(owners.tolist(), self.read_tokens(windows), strict=True), lambda pair: pair[0]
        )
        outputs = (_join_windows([output for _, output in part]) for _, part in parts)
        note = f"only the first {most:,} words of a text were read"
        return [
            dataclasses.replace(next(outputs), note="" if words == texts else note)
            if all(words)
            else self._answer_by_prior(words)
            for words, texts in zip(cut, whole, strict=True)
        ]

    def _answer_by_prior(self, cut: Words) -> TextOutput:
        masks = tuple(np.zeros(len(words), bool) for words in cut)
        note = NOTHING_KNOWN if self.kind == "text" else "a text of the pair has no word"
        return TextOutput(cut, np.array(self.prior, np.float32), masks, 0.0, None, None, note=note)

    def all_tokens(self, texts: Sequence[str], *, beyond: int = 0) -> Words:
        """Returns the words that a prediction reads of each text, and `beyond` more."""
        most = MOST_LENGTH if self.windows else self.max_len
        return tuple(self.tokenizer.split(text, most + beyond) for text in texts)

    def list_windows(self, examples: Sequence[Words]) -> tuple[list[Words], np.ndarray]:
        """Splits texts into windows of at most `max_len` words, with the owner of each, int [W]."""
        if not self.windows:
            return list(examples), np.arange(len(examples))
        parts = [_buckets.split_words(words, self.max_len) for (words,) in examples]
        owners = np.repeat(np.arange(len(parts)), list(map(len, parts)))
        return [(window,) for part in parts for window in part], owners

    def read_tokens(self, examples: Sequence[Words]) -> list[TextOutput]:
        """Runs the network on words, without windows; a text without words is an unknown word."""
        return _buckets.run_batches(self.run, examples, self.batches(examples))

    def batches(
        self, examples: Sequence[Words]
    ) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
        """Yields (positions of examples, their padded batch); filler rows follow the examples."""
        lengths = (max(map(len, words)) for words in examples)
        for numbers, (_, width) in _buckets.group_texts(
            lengths, lambda n: _buckets.shape_of(n, self.max_len)
        ):
            yield numbers, self.batch([examples[i] for i in numbers], width)

    def modes(self, params: Params, batch: Batch) -> Json:
        """Computes the logits [draws, B, C] for each gate mode, by its name."""
        return _modes(self.module, params, batch)

    def with_gates(self, tokens: tuple[str, ...], gates: np.ndarray) -> np.ndarray:
        """Returns the probabilities [S, C] of a text of T words under S vectors of gates [S, T]."""
        width = _buckets.width_of(len(tokens), self.max_len)
        # The number of rows is rounded up to a power of 2, so that few programs are compiled.
        rows = max(8, 1 << (len(gates) - 1).bit_length())
        patterns = np.zeros((rows, 1, width), np.float32)
        patterns[: len(gates), 0, : gates.shape[1]] = gates
        probabilities = _run_with_gates(
            self.module, self._device_params, self.batch([(tokens,)], width), patterns
        )
        return np.asarray(probabilities)[: len(gates), 0]

    def batch(self, examples: Sequence[Words], width: int) -> dict[str, np.ndarray]:
        """Pads examples to a width, in the smallest size of batch in which they fit."""
        rows = next(size for size in _buckets.sizes_of(width) if size >= len(examples))
        return _buckets.pad_texts(
            [tuple(map(self.ids, texts)) for texts in examples], (rows, width)
        )

    def _to_files(self) -> tuple[Params, Json, dict[str, bytes]]:
        config = {
            "model": self.config,
            "prior": list(self.prior),
            "vocab_size": len(self.vocabulary),
            "max_len": self.max_len,
        }
        words = {"words": list(self.vocabulary.words), "lowercase": self.vocabulary.lowercase}
        files = {VOCABULARY: _base.encode_json(words)}
        tokens = self.tokenizer.to_json()
        if tokens is not None:
            # The rule is named in config.json, so that a reader of the folder sees it.
            config["tokens"] = tokens["kind"]
            files[TOKENS] = _base.encode_json(tokens)
        return self.params, config, files

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
        with _base.refuse_damage(folder):
            entry = networks(kind)[config["network"]]
            max_len = config["max_len"]
            if not isinstance(max_len, int) or max_len < 1:
                raise ValueError(f"max_len must be an integer of at least 1, got {max_len!r}")
            check_most("max_len", max_len, MOST_LENGTH)
            words = json.loads(export.read_file(folder, VOCABULARY))
            # The first two words are the special words, which the constructor adds.
            names = _base.check_texts(words["words"][2:])
            classes = _base.check_classes(config["classes"])
            model = cls(
                kind=kind,
                network=config["network"],
                config=from_json(type(entry.config), config["model"]),
                vocabulary=entry.vocabulary(names, lowercase=words["lowercase"]),
                classes=classes,
                prior=_check_prior(config["prior"], len(classes) * (kind != "tags")),
                params={},
                max_len=max_len,
                tokenizer=_base.read_tokenizer(folder, config, tokenizer),
                windows=kind == "text",
                **_base.read_shared(folder, config),
            )
            # The model without parameters gives their shapes, by which the file is checked before
            # it is read.
            like = jax.eval_shape(model._init)
        try:
            params, _ = export.load(folder, like)
        except export.ParamsMismatch as error:
            raise export.BadFile(
                f"{folder} must have the parameters of the network in its config.json, got others"
            ) from error
        return dataclasses.replace(model, params=params)

    def _init(self) -> Params:
        # `jax.eval_shape` uses only the shapes and dtypes of these parameters.
        example = (("a",),) * self.inputs
        return self.module.init(jax.random.key(0), self.batch([example], _buckets.FINE[0]))[
            "params"
        ]


def _check_prior(values: Any, count: int) -> tuple[float, ...]:
    prior = tuple(map(float, values))
    if len(prior) != count or not all(0 <= share <= 1 for share in prior):
        raise ValueError(f"prior must be {count} numbers in [0, 1], got {values!r:.80}")
    return prior


def _join_windows(outputs: Sequence[TextOutput]) -> TextOutput:
    """Returns the output of a long text; the attention in a window is times its share of words."""
    if len(outputs) == 1:
        return outputs[0]
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
        _buckets.pool_windows(probabilities, np.zeros(len(outputs), int), lengths, 1)[0],
        (np.concatenate([output.masks[0] for output in outputs]),),
        float(shares @ [output.share for output in outputs]),
        np.concatenate(attention) if attention else None,
        np.concatenate(gates) if gates else None,
        tuple(lengths.tolist()),
    )


def open_ga_net(folder: Path) -> tuple[TrainedModel, Json]:
    """Returns the model of a run of `experiments.ga_net`, or its export, and its data options."""
    run_folder = open_folder(folder, "run", VOCABULARY, CLASSES)
    with explain_faults(folder):
        settings = run_folder.config["config"]
        model, data = settings["model"], settings["data"]
        if not isinstance(model, dict) or "gates" not in model or not isinstance(data, dict):
            raise ValueError(
                f"{folder} must be the work folder of a run of python -m experiments.ga_net, got "
                "another run"
            )
        config = from_json(GANetConfig, model)
    network = TrainedModel(
        kind="text",
        network=config.system,
        config=config,
        vocabulary=Vocabulary.load(folder / VOCABULARY),
        classes=tuple(read_json(folder / CLASSES)),
        params={},
        max_len=data.get("max_len") or _MOST_WORDS,
    )
    params = run_folder.params(jax.eval_shape(network._init))
    return dataclasses.replace(network, params=params), data


def load_run(folder: Path) -> TrainedModel:
    """Opens a run of GA-Net, or its export, as a classifier with its best parameters."""
    model, data = open_ga_net(folder)
    if data.get("truncate_side", "right") != "right" and data.get("max_len") is not None:
        raise ValueError(
            f"{folder} must be trained with truncate_side='right', got {data['truncate_side']!r}: "
            "its model reads the ends of long texts, so train a run that reads their beginnings"
        )
    return model
