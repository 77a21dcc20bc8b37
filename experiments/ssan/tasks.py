"""Inference between sentences, and semantic role labelling: the examples of a run and its task."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.core.experiment import Experiment
from experiments.core.kinds import Config, Json, Params, Record
from experiments.core.text import SPLITS, check_embeddings, find_embeddings, read_embeddings
from experiments.ssan import reported
from experiments.ssan.config import NLIConfig, NLIData, SRLConfig, SRLData
from experiments.ssan.sentences import Split, joined, load, sequence_batches, without_batches
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.models import SSANNLI, SSANNLITask, SSANTagger, SSANTaggingTask

PAIR = {"lengths": "tokens", "hypothesis_lengths": "hypothesis"}
UNKNOWN = -1
"""A label that the training text does not have: no guess is right."""


class Words(NamedTuple):
    """The words of a run, and their vectors if they come from a file."""

    vocabulary: gdata.Vocabulary
    vectors: gdata.Embeddings | None

    @property
    def matrix(self) -> np.ndarray | None:
        """The vectors; None without a file."""
        return None if self.vectors is None else self.vectors.matrix

    def facts(self) -> Json:
        """What a record says of the words."""
        coverage = None if self.vectors is None else self.vectors.coverage
        return {"vocabulary_size": len(self.vocabulary), "embedding_coverage": coverage}


def read_words(
    name: str,
    config: Config,
    dim: int,
    texts: Callable[[gdata.Source], Iterable[gdata.Source]] = lambda source: [source],
) -> tuple[dict[str, gdata.Source], Words]:
    """Loads a data set, counts its words and reads their vectors.

    Args:
      name: of the data set.
      config: has embeddings, min_count and the folders.
      dim: width of the vectors.
      texts: from a split to the texts whose words count.
    """
    path = find_embeddings(config.embeddings, config.manual_dir)
    check_embeddings(path, dim)
    sources = load(name, config)
    # words of the other splits have a vector in the file, as those of any new text would
    counted = SPLITS if path is not None else SPLITS[:1]
    vocabulary = gdata.Vocabulary.build(
        [text for split in counted for text in texts(sources[split])], min_count=config.min_count
    )
    vectors = None if path is None else read_embeddings(path, vocabulary, dim=dim)
    return sources, Words(vocabulary, vectors)


# inference ---------------------------------------------------------------------------------------


def _sentences(source: gdata.Source) -> tuple[gdata.Source, gdata.Source]:
    """First and second sentences, each as a source of texts."""
    second = [{**example, "tokens": example["hypothesis"]} for example in source]
    return source, gdata.Source(second, source.info)


@functools.lru_cache(maxsize=1)
def _pairs(config: NLIData, dim: int) -> tuple[dict[str, Split], Words]:
    """Pairs of sentences, looked up."""
    sources, words = read_words(config.name, config, dim, _sentences)

    def ids(example: Any, name: str) -> np.ndarray:
        return np.array(words.vocabulary.encode(example[name]) or [1], np.int32)

    splits = {
        split: Split(
            source,
            {name: [ids(example, name) for example in source] for name in PAIR.values()},
            {"label": np.array([example["label"] for example in source])},
        )
        for split, source in sources.items()
    }
    return splits, words


def not_long(split: Split, quantile: float) -> np.ndarray:
    """The pairs whose sentences are both no longer than those of this share."""
    lengths = np.array([[len(x) for x in split.sequences[name]] for name in PAIR.values()])
    return np.flatnonzero(np.all(lengths <= np.quantile(lengths, quantile), axis=0))


def inference(config: NLIConfig) -> Experiment:
    """The run of a classifier of pairs."""
    splits, words = _pairs(without_batches(config.data), config.model.embedding_dim)
    rows = not_long(splits["train"], config.data.length_quantile)
    train, validation, test = sequence_batches(splits, PAIR, config.data, rows=rows)
    info = splits["test"].source.info
    model = SSANNLI(config.model, len(words.vocabulary), len(info.class_names), words.matrix)
    return Experiment(
        task=SSANNLITask(model),
        train=train,
        validation=validation,
        test=test,
        vocabulary=words.vocabulary.digest(),
        facts={"train_n": len(rows), **words.facts(), "class_names": list(info.class_names)},
        labels=splits["train"].columns["label"][rows],
        substitute=joined(config.data.note, info.substitute, *_other_than_snli(config)),
    )


def _other_than_snli(config: NLIConfig) -> Iterable[str]:
    """What differs from the paper's data and word vectors."""
    if config.data.name != "snli":
        yield reported.SICK_SUBSTITUTE
    width = config.model.embedding_dim
    if config.data.embeddings == "none":
        yield f"random word vectors of width {width} where the paper has GloVe 300-d"
    elif width != 300:
        yield f"word vectors of width {width} where the paper has 300"


# semantic roles ----------------------------------------------------------------------------------


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


Predicates = tuple[dict[str, Split], Words, tuple[str, ...]]
"""Predicates of sentences, looked up; their words, and the names of labels."""


@functools.lru_cache(maxsize=1)
def _predicates(config: SRLData, dim: int) -> Predicates:
    sources, words = read_words("conll_srl", config, dim)
    if words.vectors is not None and config.vector_std is not None:
        matrix, from_file = words.vectors.matrix, words.vectors.found
        matrix = matrix * (config.vector_std / matrix[from_file].std())
        words = words._replace(vectors=dataclasses.replace(words.vectors, matrix=matrix))
    names = label_names(sources["train"])
    splits = {}
    for split, source in sources.items():
        tokens = [np.array(words.vocabulary.encode(x["tokens"]), np.int32) for x in source]
        labels = [encode_labels(x["labels"], names, strict=split == "train") for x in source]
        predicates = [np.array(x["is_predicate"], np.int32) for x in source]
        sequences = {"tokens": tokens, "labels": labels, "is_predicate": predicates}
        splits[split] = Split(source, sequences)
    return splits, words, names


def predicates(config: SRLData, dim: int) -> Predicates:
    """The predicates of a run; those of the last call are kept."""
    return _predicates(without_batches(config), dim)


def roles(config: SRLConfig) -> Experiment:
    """The run of a tagger."""
    splits, words, labels = predicates(config.data, config.model.embedding_dim)
    tokens = splits["train"].sequences["tokens"]
    rows = [i for i, one in enumerate(tokens) if len(one) <= config.data.max_len]
    train, validation, test = sequence_batches(
        splits, {"lengths": "tokens"}, config.data, rows=rows
    )
    model = SSANTagger(config.model, len(words.vocabulary), len(labels), words.matrix)
    width = max(one.edges[-1] for one in (train(config.train.seed), validation, test))
    drawn = config.data.embeddings == "none"

    def measure(params: Params) -> Json:
        run: Any = model.apply
        apply = functools.partial(
            jax.jit(lambda p, batch: run({"params": p}, batch).logits), params
        )
        record: Record = {}
        for name, batches in (("validation", validation), ("test", test)):
            record |= arguments(config, name, splits[name].source, batches, apply, labels)
        return record

    return Experiment(
        task=SSANTaggingTask(model, width),
        train=train,
        validation=validation,
        test=test,
        vocabulary=words.vocabulary.digest(),
        facts={"train_n": len(rows), "labels": len(labels), **words.facts()},
        substitute=joined(
            config.data.note,
            splits["test"].source.info.substitute,
            "random word vectors where the paper has GloVe 100-d" if drawn else None,
        ),
        measure=measure,
    )


def arguments(
    config: SRLConfig,
    split: str,
    source: gdata.Source,
    batches: gdata.SequenceBatches,
    apply: Callable[[Any], Any],
    labels: Sequence[str],
) -> Json:
    """F1 of arguments of a split by the rules of the CoNLL scorer.

    "role_counts" has matched, predicted and gold arguments of every test predicate, in the order of
    the file, for paired tests.
    """
    by_id = {example["example_id"]: example for example in source}
    counts: dict[str, dict[int, analysis.RoleCounts]] = {"greedy": {}, "constrained": {}}
    for batch in batches:
        logits = np.asarray(apply(batch))
        for row in np.flatnonzero(batch["weight"] > 0):
            example = by_id[int(batch["example_id"][row])]
            scores = logits[row, : len(example["tokens"])]
            ways = {"greedy": np.argmax(scores, axis=1)}
            if config.data.constrained:
                ways["constrained"] = analysis.constrained_labels(scores, labels)
            for way, numbers in ways.items():
                counts[way][example["example_id"]] = analysis.role_counts(
                    example["labels"], [labels[i] for i in numbers]
                )
    record: Record = {}
    for way, by_example in counts.items():
        if by_example:
            total = sum(by_example.values(), analysis.RoleCounts()).value()._asdict()
            record[f"{split}_roles_{way}"] = {k: round(v, 6) for k, v in total.items()}
    if split == "test":
        record["role_counts"] = [
            [c.matched, c.predicted, c.gold] for _, c in sorted(counts["greedy"].items())
        ]
    return record
