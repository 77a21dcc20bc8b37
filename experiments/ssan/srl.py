"""Semantic role labelling: the predicates of a run, its task and its scores."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments.core.text import check_embeddings, find_embeddings, read_embeddings
from experiments.ssan.experiment import Experiment, by_step
from experiments.ssan.task_config import SRLConfig, SRLData
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.models import SSANTagger, SSANTaggingTask

SPLITS = ("train", "validation", "test")
UNKNOWN = -1
"""A label that the training text does not have: no guess is right."""


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """Predicates, looked up."""

    sources: dict[str, gdata.Source]
    sequences: dict[str, dict[str, list[np.ndarray]]]
    """By split: "tokens", "labels" and "is_predicate"."""
    vocabulary: gdata.Vocabulary
    labels: tuple[str, ...]
    embeddings: np.ndarray | None
    coverage: float | None


def label_names(source: gdata.Source) -> tuple[str, ...]:
    """The labels of a source: "O" first, then B- and I- of every role that occurs."""
    roles = sorted({role for example in source for _, _, role in example["spans"]})
    return ("O", *(f"{kind}-{role}" for role in roles for kind in "BI"))


def encode_labels(labels: Sequence[str], names: Sequence[str], *, strict: bool) -> np.ndarray:
    """The numbers of BIO labels.

    Args:
      labels: of the words of a sentence.
      names: the labels that there are.
      strict: refuse a label that is not one of them; else it is `UNKNOWN`.

    Raises:
      ValueError: naming the label, if strict.
    """
    number = {name: i for i, name in enumerate(names)}
    if strict and (outside := [label for label in labels if label not in number]):
        raise ValueError(f"label {outside[0]!r} is not one of the {len(names)} labels of training")
    return np.array([number.get(label, UNKNOWN) for label in labels], np.int32)


def prepare(config: SRLData, embedding_dim: int) -> Prepared:
    """Loads and looks up the splits; those of the last call are kept."""
    return _prepare(dataclasses.replace(config, batch_tokens=1, eval_batch_tokens=1), embedding_dim)


@functools.lru_cache(maxsize=1)
def _prepare(config: SRLData, embedding_dim: int) -> Prepared:
    path = find_embeddings(config.embeddings, config.manual_dir)
    check_embeddings(path, embedding_dim)
    options: dict[str, Any] = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
    sources = {split: gdata.load("conll_srl", split, **options) for split in SPLITS}
    known = SPLITS if path is not None else ("train",)
    vocabulary = gdata.Vocabulary.build(
        [sources[split] for split in known], min_count=config.min_count
    )
    embeddings, coverage = None, None
    if path is not None:
        vectors = read_embeddings(path, vocabulary, dim=embedding_dim)
        embeddings, coverage = vectors.matrix, vectors.coverage
        if config.vector_std is not None:
            embeddings = embeddings * (config.vector_std / embeddings[vectors.found].std())
    names = label_names(sources["train"])
    sequences = {
        split: {
            "tokens": [np.array(vocabulary.encode(x["tokens"]), np.int32) for x in source],
            "labels": [encode_labels(x["labels"], names, strict=split == "train") for x in source],
            "is_predicate": [np.array(x["is_predicate"], np.int32) for x in source],
        }
        for split, source in sources.items()
    }
    return Prepared(sources, sequences, vocabulary, names, embeddings, coverage)


def batches(prepared: Prepared, config: SRLData, *, seed: int) -> list[gdata.SequenceBatches]:
    """Training, validation and test batches; the last two are one ordered pass."""
    made = []
    for split in SPLITS:
        source, training = prepared.sources[split], split == "train"
        sequences = prepared.sequences[split]
        rows = list(range(len(source)))
        if training:
            rows = [i for i in rows if len(sequences["tokens"][i]) <= config.max_len]
        one = gdata.SequenceBatches(
            {name: [texts[i] for i in rows] for name, texts in sequences.items()},
            np.array([source[i]["example_id"] for i in rows]),
            lengths={"lengths": "tokens"},
            max_tokens=config.batch_tokens if training else config.eval_batch_tokens,
            max_buckets=config.max_buckets,
            seed=seed,
            shuffle=training,
        )
        made.append(one if training else one.eval())
    return made


def experiment(config: SRLConfig) -> Experiment:
    """The run of a tagger."""
    prepared = prepare(config.data, config.model.embedding_dim)
    train, validation, test = batches(prepared, config.data, seed=config.train.seed)
    model = SSANTagger(
        config.model, len(prepared.vocabulary), len(prepared.labels), prepared.embeddings
    )
    width = max(one.edges[-1] for one in (train, validation, test))
    info = prepared.sources["test"].info
    parts = [config.data.note, info.substitute]
    if config.data.embeddings == "none":
        parts.append("random word vectors where the paper has GloVe 100-d")
    return Experiment(
        task=SSANTaggingTask(model, width),
        train=by_step(train, config.model),
        validation=validation,
        test=test,
        vocabulary=prepared.vocabulary.digest(),
        facts={
            "train_n": len(train.columns["example_id"]),
            "vocabulary_size": len(prepared.vocabulary),
            "labels": len(prepared.labels),
            "embedding_coverage": prepared.coverage,
        },
        substitute="; ".join(part for part in parts if part) or None,
        measure=functools.partial(measure, config, prepared, model),
    )


def measure(
    config: SRLConfig, prepared: Prepared, model: SSANTagger, params: Any
) -> dict[str, Any]:
    """F1 of arguments on validation and test by the rules of the CoNLL scorer.

    "role_counts" has matched, predicted and gold arguments of every test predicate, in the order of
    the file, for paired tests.
    """
    _, validation, test = batches(prepared, config.data, seed=0)
    run: Any = model.apply
    apply = jax.jit(lambda params, batch: run({"params": params}, batch).logits)
    record: dict[str, Any] = {}
    for split, data in (("validation", validation), ("test", test)):
        by_id = {example["example_id"]: example for example in prepared.sources[split]}
        counts: dict[str, dict[int, analysis.RoleCounts]] = {"greedy": {}, "constrained": {}}
        for batch in data:
            logits = np.asarray(apply(params, batch))
            for row in np.flatnonzero(batch["weight"] > 0):
                example = by_id[int(batch["example_id"][row])]
                own = logits[row, : len(example["tokens"])]
                ways = {"greedy": np.argmax(own, axis=1)}
                if config.data.constrained:
                    ways["constrained"] = analysis.constrained_labels(own, prepared.labels)
                for way, numbers in ways.items():
                    predicted = [prepared.labels[i] for i in numbers]
                    counts[way][example["example_id"]] = analysis.role_counts(
                        example["labels"], predicted
                    )
        for way, found in counts.items():
            if found:
                total = sum(found.values(), analysis.RoleCounts())
                scores = total.value()._asdict()
                record[f"{split}_roles_{way}"] = {k: round(v, 6) for k, v in scores.items()}
        if split == "test":
            record["role_counts"] = [
                [c.matched, c.predicted, c.gold] for _, c in sorted(counts["greedy"].items())
            ]
    return record
