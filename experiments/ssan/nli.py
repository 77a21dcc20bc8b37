"""Inference between sentences: the pairs of a run and its task."""

import dataclasses
import functools
from typing import Any

import numpy as np

from experiments.core.text import check_embeddings, find_embeddings, read_embeddings
from experiments.ssan import paper
from experiments.ssan.experiment import Experiment
from experiments.ssan.task_config import NLIConfig, NLIData
from gatedjax import data as gdata
from gatedjax.models import SSANNLI, SSANNLITask

SPLITS = ("train", "validation", "test")
LENGTHS = {"lengths": "tokens", "hypothesis_lengths": "hypothesis"}


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """Pairs of sentences, looked up."""

    sources: dict[str, gdata.Source]
    sequences: dict[str, dict[str, list[np.ndarray]]]
    """By split: ids of "tokens" and "hypothesis"."""
    vocabulary: gdata.Vocabulary
    embeddings: np.ndarray | None
    coverage: float | None
    """Share of the vocabulary with a pretrained vector; None without a file."""


def prepare(config: NLIData, embedding_dim: int) -> Prepared:
    """Loads and looks up the splits; those of the last call are kept."""
    return _prepare(dataclasses.replace(config, batch_size=1, eval_batch_size=1), embedding_dim)


@functools.lru_cache(maxsize=1)
def _prepare(config: NLIData, embedding_dim: int) -> Prepared:
    path = find_embeddings(config.embeddings, config.manual_dir)
    check_embeddings(path, embedding_dim)
    options: dict[str, Any] = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
    sources = {split: gdata.load(config.name, split, **options) for split in SPLITS}
    # words of the other splits have a vector in the file, as those of any new text would
    known = SPLITS if path is not None else ("train",)
    texts = [both for split in known for both in _sentences(sources[split])]
    vocabulary = gdata.Vocabulary.build(texts, min_count=config.min_count)
    embeddings, coverage = None, None
    if path is not None:
        vectors = read_embeddings(path, vocabulary, dim=embedding_dim)
        embeddings, coverage = vectors.matrix, vectors.coverage
    sequences = {
        split: {
            name: [
                np.array(vocabulary.encode(example[name]) or [1], np.int32) for example in source
            ]
            for name in LENGTHS.values()
        }
        for split, source in sources.items()
    }
    return Prepared(sources, sequences, vocabulary, embeddings, coverage)


def _sentences(source: gdata.Source) -> tuple[gdata.Source, gdata.Source]:
    """First and second sentences, each as a source of texts."""
    second = [{**example, "tokens": example["hypothesis"]} for example in source]
    return source, gdata.Source(second, source.info)


def kept(sequences: dict[str, list[np.ndarray]], quantile: float) -> np.ndarray:
    """The training pairs whose sentences are both no longer than those of this share."""
    lengths = np.array([[len(x) for x in sequences[name]] for name in LENGTHS.values()])
    limit = np.quantile(lengths, quantile)
    return np.flatnonzero(np.all(lengths <= limit, axis=0))


def batches(prepared: Prepared, config: NLIData, *, seed: int) -> list[gdata.SequenceBatches]:
    """Training, validation and test batches; the last two are one ordered pass."""
    made = []
    for split in SPLITS:
        source, training = prepared.sources[split], split == "train"
        sequences = prepared.sequences[split]
        rows = np.arange(len(source))
        if training:
            rows = kept(sequences, config.length_quantile)
        one = gdata.SequenceBatches(
            {name: [texts[i] for i in rows] for name, texts in sequences.items()},
            np.array([source[int(i)]["example_id"] for i in rows]),
            lengths=LENGTHS,
            columns={"label": np.array([source[int(i)]["label"] for i in rows])},
            batch_size=config.batch_size if training else config.eval_batch_size,
            max_buckets=config.max_buckets,
            seed=seed,
            shuffle=training,
        )
        made.append(one if training else one.eval())
    return made


def experiment(config: NLIConfig) -> Experiment:
    """The run of a classifier of pairs."""
    prepared = prepare(config.data, config.model.embedding_dim)
    train, validation, test = batches(prepared, config.data, seed=config.train.seed)
    info = prepared.sources["test"].info
    model = SSANNLI(
        config.model, len(prepared.vocabulary), len(info.class_names), prepared.embeddings
    )
    return Experiment(
        task=SSANNLITask(model),
        train=train,
        validation=validation,
        test=test,
        vocabulary=prepared.vocabulary.digest(),
        facts={
            "train_n": len(train.columns["example_id"]),
            "vocabulary_size": len(prepared.vocabulary),
            "embedding_coverage": prepared.coverage,
            "class_names": list(info.class_names),
        },
        labels=train.columns["label"],
        substitute=substitute(config, info.substitute),
    )


def substitute(config: NLIConfig, of_data: str | None) -> str | None:
    """What differs from the paper's data and word vectors; None if nothing does."""
    parts = [config.data.note, of_data]
    if config.data.name != "snli":
        parts.append(paper.SICK_SUBSTITUTE)
    width = config.model.embedding_dim
    if config.data.embeddings == "none":
        parts.append(f"random word vectors of width {width} where the paper has GloVe 300-d")
    elif width != 300:
        parts.append(f"word vectors of width {width} where the paper has 300")
    return "; ".join(part for part in parts if part) or None
