"""The loss of every task on a batch of a few rows, with NumPy parameters."""

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
        """Parameters without a zero."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return jax.tree.map(lambda s: rng.normal(0, 0.4, s.shape).astype(s.dtype), self.shapes)

    @functools.cached_property
    def carry(self) -> Any:
        """The state before the first window, or None."""
        if not hasattr(self.task, "init_carried"):
            return None
        return jax.tree.map(np.asarray, self.task.init_carried(None, self.batch))


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
def losses() -> dict[str, Loss]:
    """Every task, with what is special about its network."""
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
    ssan = {"num_layers": 1, "hidden": 4, "filter_size": 6, "num_heads": 2}
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
    translation = shared | {
        "tokens": words(),
        "targets": words(),
        "target_lengths": LENGTHS[::-1].copy(),
    }

    def ga_net(**options: Any) -> models.GANetTask:
        small = {"embedding_dim": 3, "hidden": 3, "aux_hidden": 3, "num_layers": 1}
        return models.GANetTask(
            models.GANet(grouped(models.GANetConfig, **small, **options), 12, 3)
        )

    def reader(characters: int = 0, **options: Any) -> models.GAReaderTask:
        config = grouped(
            models.GAReaderConfig,
            hops=2,
            hidden=3,
            embedding_dim=3,
            char_hidden=2,
            char_features=3,
            **options,
        )
        return models.GAReaderTask(models.GAReader(config, 12, num_characters=characters))

    def rau(**options: Any) -> models.RAUTask:
        config = grouped(models.RAUConfig, hidden=3, embedding_dim=3, **options)
        return models.RAUTask(models.RAUClassifier(config, num_classes=3, vocab_size=12))

    pairs = shared | {
        "tokens": words(),
        "hypothesis": words(),
        "hypothesis_lengths": LENGTHS[::-1].copy(),
    }

    def nli(**options: Any) -> models.SSANNLITask:
        config = grouped(models.SSANNLIConfig, hidden=4, embedding_dim=3, **options)
        return models.SSANNLITask(models.SSANNLI(config, 12))

    agt = models.AGTConfig(
        num_layers=3, hidden=3, attention_hidden=3, embedding_dim=3, head_hidden=(4,)
    )
    tasks: dict[str, tuple[Any, dict[str, np.ndarray]]] = {
        "AGT": (models.AGTTask(models.AGT(agt, vocab_size=12, num_classes=3)), text),
        "GA-Net": (ga_net(recurrent_dropout=0.3), text),
        "GA-Net, local": (ga_net(system="local"), text),
        "GA-Net, att": (ga_net(aux="att", estimator="st_gumbel", penalty_on="prob"), text),
        "GA Reader": (reader(char_dim=0), question),
        "GA Reader, characters": (reader(7, char_dim=2, feature=True, aggregation="code"), listed),
        "RAU": (rau(), text),
        "RAU, time_causal": (rau(attention="time_causal", num_layers=2), text),
        "language": (
            models.RAULanguageTask(
                models.RAULanguageModel(
                    grouped(models.RAUConfig, hidden=3, embedding_dim=3), vocab_size=12
                )
            ),
            text
            | {
                "targets": words(),
                "token_weight": real.astype(np.float32),
                "reset": np.array([1, 0, 0, 0], bool),
            },
        ),
        "probe": (
            models.SSANProbeTask(
                models.SSANProbe(grouped(models.SSANProbeConfig, **ssan, head_hidden=(4,)), 12, 3)
            ),
            text,
        ),
        "probe, reinforce": (
            models.SSANProbeTask(
                models.SSANProbe(
                    grouped(
                        models.SSANProbeConfig,
                        **ssan,
                        head_hidden=(4,),
                        estimator="reinforce",
                        norm="post",
                        positions="learned",
                        pool="s2t",
                        block=2,
                    ),
                    12,
                    3,
                )
            ),
            text,
        ),
        "reordering": (
            models.WordReorderingTask(
                models.WordReorderingDetector(grouped(models.WordReorderingConfig, **ssan), 12)
            ),
            text
            | {
                "insert": np.zeros(ROWS, np.int32),
                "original": np.maximum(LENGTHS - 1, 0).astype(np.int32),
            },
        ),
        "tagger": (
            models.SSANTaggingTask(
                models.SSANTagger(grouped(models.SSANTaggerConfig, **ssan, embedding_dim=2), 12, 3),
                width=6,
            ),
            text
            | {
                "labels": words() % 3,
                "is_predicate": (np.arange(STEPS) == 0) * np.ones((ROWS, 1), np.int32),
            },
        ),
        "NLI": (nli(), pairs),
        "NLI, multi_dim": (nli(t2t="multi_dim", estimator="soft_gumbel", empty="self"), pairs),
        "translation": (
            models.SSANTranslationTask(
                models.SSANTranslator(
                    grouped(models.SSANTranslatorConfig, **ssan, decoder_layers=1), 12
                )
            ),
            translation,
        ),
    }
    return {
        name: Loss(name, task, jax.tree.map(np.asarray, batch))
        for name, (task, batch) in tasks.items()
    }
