"""A small task of every kind with its batch of a few rows, and NumPy parameters."""

import dataclasses
import functools
import zlib
from typing import Any

import jax
import numpy as np

from gatedjax import models
from gatedjax.training import objective
from tests._grouped import grouped, option, option_names

ROWS, STEPS, VOCABULARY = 4, 5, 12
LENGTHS = np.array([5, 3, 0, 4], np.int32)


def total_loss(task: Any, params: Any, batch: Any, rngs: Any, *carry: Any) -> Any:
    """(the loss summed over a batch, which is differentiated, and what the task returned)."""
    found = task.loss(params, batch, rngs, *carry)
    return objective(found[0] if carry else found).total, found


@dataclasses.dataclass(frozen=True)
class Loss:
    """A task, a batch and its parameters; carry where the task has one.

    A variant has a comma in its name: another form of a network that is there before it.
    """

    name: str
    task: Any
    batch: dict[str, np.ndarray]

    @functools.cached_property
    def shapes(self) -> Any:
        """Of the parameters; tracing takes time, so that no file does it for its list of names."""
        return jax.eval_shape(self.task.init, jax.random.key(0), self.batch)

    @functools.cached_property
    def params(self) -> Any:
        """Parameters without a zero, by NumPy; of each leaf by its path."""

        def drawn(path: Any, leaf: Any) -> np.ndarray:
            seed = zlib.crc32(f"{self.name}{jax.tree_util.keystr(path)}".encode())
            values = np.random.default_rng(seed).normal(0, 0.4, leaf.shape)
            return values.astype(leaf.dtype)

        return jax.tree_util.tree_map_with_path(drawn, self.shapes)

    @functools.cached_property
    def carry(self) -> Any:
        """The state before the first window, or None."""
        if not hasattr(self.task, "init_carried"):
            return None
        return jax.tree.map(np.asarray, self.task.init_carried(None, self.batch))

    @property
    def carried(self) -> tuple[Any, ...]:
        """What a task that carries a state takes beside the batch."""
        return () if self.carry is None else (self.carry,)


def rates_of(config: Any) -> dict[str, float]:
    """Another rate for every field that is one: it names the field wherever it is used."""
    names = [name for name in option_names(type(config)) if "dropout" in name]
    rates = [name for name in names if isinstance(option(config, name), float)]
    return {name: 0.25 + 0.0625 * number for number, name in enumerate(rates)}


def with_dropout(task: Any) -> Any:
    """The task with these rates."""
    config = task.model.config
    model = task.model.clone(config=grouped(config, **rates_of(config)))
    return dataclasses.replace(task, model=model)


@functools.cache
def batches() -> dict[str, dict[str, np.ndarray]]:
    """The batch of every kind of task; a row of weight 0 has no word."""
    rng = np.random.default_rng(0)
    real = np.arange(STEPS) < LENGTHS[:, None]

    def words(shape: tuple[int, ...] = real.shape, keep: Any = real) -> np.ndarray:
        return (rng.integers(2, VOCABULARY, shape) * keep).astype(np.int32)

    shared = {
        "lengths": LENGTHS,
        "label": np.array([1, 0, 1, 2], np.int32),
        "example_id": np.arange(10, 10 + ROWS, dtype=np.int32),
        "weight": np.array([1, 1, 0, 1], np.float32),
    }
    text = shared | {"tokens": words()}
    asked = np.array([3, 2, 1, 3], np.int32)
    question = {
        "document": words(),
        "document_lengths": LENGTHS,
        "query": words((ROWS, 3), np.arange(3) < asked[:, None]),
        "query_lengths": asked,
        "cloze": asked - 1,
        "candidate_mask": np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]], bool),
        "occurrence": rng.random((ROWS, STEPS, 3)) < 0.5,
    }
    question |= {name: shared[name] for name in ("label", "example_id", "weight")}
    places = rng.integers(-1, STEPS, (ROWS, 3, 2)).astype(np.int32)
    listed = {name: value for name, value in question.items() if name != "occurrence"}
    listed |= {
        "candidate_positions": places,
        "word_characters": rng.integers(1, 7, (ROWS, 12, 4)).astype(np.int32),
        "word_lengths": rng.integers(1, 5, (ROWS, 12)).astype(np.int32),
        "document_words": question["document"],
        "query_words": question["query"],
    }
    behind = LENGTHS[::-1].copy()
    translation = shared | {"tokens": words(), "targets": words(), "target_lengths": behind}
    pairs = shared | {"tokens": words(), "hypothesis": words(), "hypothesis_lengths": behind}
    language = {
        "targets": words(),
        "token_weight": real.astype(np.float32),
        "reset": np.array([1, 0, 0, 0], bool),
    }
    moved = {
        "insert": np.zeros(ROWS, np.int32),
        "original": np.maximum(LENGTHS - 1, 0).astype(np.int32),
    }
    tagged = {
        "labels": words() % 3,
        "is_predicate": (np.arange(STEPS) == 0) * np.ones((ROWS, 1), np.int32),
    }
    found = {"text": text, "question": question, "listed": listed, "pairs": pairs}
    found |= {"translation": translation, "language": text | language}
    found |= {"reordering": text | moved, "tagger": text | tagged}
    return jax.tree.map(np.asarray, found)


SSAN = {"num_layers": 1, "hidden": 4, "filter_size": 6, "num_heads": 2}


def ga_net(**options: Any) -> models.GANetTask:
    small = {"embedding_dim": 3, "hidden": 3, "aux_hidden": 3, "num_layers": 1}
    config = grouped(models.GANetConfig, **small | options)
    return models.GANetTask(models.GANet(config, VOCABULARY, 3))


def agt(**options: Any) -> models.AGTTask:
    small = {"num_layers": 3, "hidden": 3, "attention_hidden": 3, "embedding_dim": 3}
    config = models.AGTConfig(**small | {"head_hidden": (4,)} | options)
    return models.AGTTask(models.AGT(config, VOCABULARY, 3))


def rau(**options: Any) -> models.RAUTask:
    config = grouped(models.RAUConfig, **{"hidden": 3, "embedding_dim": 3} | options)
    return models.RAUTask(models.RAUClassifier(config, 3, VOCABULARY))


def rau_language(**options: Any) -> models.RAULanguageTask:
    config = grouped(models.RAUConfig, **{"hidden": 3, "embedding_dim": 3} | options)
    return models.RAULanguageTask(models.RAULanguageModel(config, VOCABULARY))


def ga_reader(characters: int = 0, **options: Any) -> models.GAReaderTask:
    small = {"hops": 2, "hidden": 3, "embedding_dim": 3, "char_hidden": 2, "char_features": 3}
    config = grouped(models.GAReaderConfig, **small | {"char_dim": 0} | options)
    return models.GAReaderTask(models.GAReader(config, VOCABULARY, num_characters=characters))


def ssan_probe(embeddings: Any = None, **options: Any) -> models.SSANProbeTask:
    config = grouped(models.SSANProbeConfig, **SSAN | {"head_hidden": (4,)} | options)
    return models.SSANProbeTask(models.SSANProbe(config, VOCABULARY, 3, embeddings))


def ssan_reordering(embeddings: Any = None, **options: Any) -> models.WordReorderingTask:
    config = grouped(models.WordReorderingConfig, **SSAN | options)
    return models.WordReorderingTask(models.WordReorderingDetector(config, VOCABULARY, embeddings))


def ssan_tagger(embeddings: Any = None, **options: Any) -> models.SSANTaggingTask:
    config = grouped(models.SSANTaggerConfig, **SSAN | {"embedding_dim": 2} | options)
    return models.SSANTaggingTask(models.SSANTagger(config, VOCABULARY, 3, embeddings), width=6)


def ssan_nli(embeddings: Any = None, **options: Any) -> models.SSANNLITask:
    config = grouped(models.SSANNLIConfig, **{"hidden": 4, "embedding_dim": 3} | options)
    return models.SSANNLITask(models.SSANNLI(config, VOCABULARY, embeddings=embeddings))


def ssan_translation(**options: Any) -> models.SSANTranslationTask:
    config = grouped(models.SSANTranslatorConfig, **SSAN | {"decoder_layers": 1} | options)
    return models.SSANTranslationTask(models.SSANTranslator(config, VOCABULARY))


MAKERS = {
    "ga_net": (ga_net, "text"),
    "agt": (agt, "text"),
    "rau": (rau, "text"),
    "rau_language": (rau_language, "language"),
    "ga_reader": (ga_reader, "question"),
    "ssan_probe": (ssan_probe, "text"),
    "ssan_reordering": (ssan_reordering, "reordering"),
    "ssan_tagger": (ssan_tagger, "tagger"),
    "ssan_translation": (ssan_translation, "translation"),
    "ssan_nli": (ssan_nli, "pairs"),
}
"""A function of options that makes a task, and the name of its batch."""


def make(name: str, **options: Any) -> Loss:
    """A task of `MAKERS` with its batch."""
    maker, batch = MAKERS[name]
    return Loss(name, maker(**options), batches()[batch])


@functools.cache
def losses() -> dict[str, Loss]:
    """Every task, with what is special about its network."""
    characters = {"char_dim": 2, "feature": True, "aggregation": "code"}
    reinforce = {"estimator": "reinforce", "norm": "post", "positions": "learned", "pool": "s2t"}
    pairs = {"t2t": "multi_dim", "estimator": "soft_gumbel", "empty": "self"}
    tasks = {
        "AGT": (agt(), "text"),
        "GA-Net": (ga_net(recurrent_dropout=0.3), "text"),
        "GA-Net, local": (ga_net(system="local"), "text"),
        "GA-Net, att": (ga_net(aux="att", estimator="st_gumbel", penalty_on="prob"), "text"),
        "GA Reader": (ga_reader(), "question"),
        "GA Reader, characters": (ga_reader(7, **characters), "listed"),
        "RAU": (rau(), "text"),
        "RAU, time_causal": (rau(attention="time_causal", num_layers=2), "text"),
        "language": (rau_language(), "language"),
        "probe": (ssan_probe(), "text"),
        "probe, reinforce": (ssan_probe(**reinforce, block=2), "text"),
        "reordering": (ssan_reordering(), "reordering"),
        "tagger": (ssan_tagger(), "tagger"),
        "NLI": (ssan_nli(), "pairs"),
        "NLI, multi_dim": (ssan_nli(**pairs), "pairs"),
        "translation": (ssan_translation(), "translation"),
    }
    return {name: Loss(name, task, batches()[batch]) for name, (task, batch) in tasks.items()}
