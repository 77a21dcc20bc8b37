"""The runs of inference between sentences and of semantic role labelling, with their examples."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from experiments.core.experiment import Experiment
from experiments.core.kinds import Json, Params, Record
from experiments.core.origins import join_remarks
from experiments.core.text import SPLITS, Texts, load_splits, vocabulary_parts
from experiments.ssan import reported
from experiments.ssan.config import NLIConfig, NLIData, SRLConfig, SRLData
from experiments.ssan.roles import constrained_labels, role_counts
from experiments.ssan.sentences import (
    Split,
    read_words,
    sequence_batches,
    without_batches,
)
from gatedjax import data as gdata
from gatedjax.analysis._scores import MatchCounts
from gatedjax.data.batches._texts import real_rows
from gatedjax.models import SSANNLI, SSANNLITask, SSANTagger, SSANTaggingTask

PAIR = {"lengths": "tokens", "hypothesis_lengths": "hypothesis"}
UNKNOWN = -1
"""The number of a label that is not in the training text, so that all predictions of it are
wrong."""


# Inference ---------------------------------------------------------------------------------------


def _sentences(source: gdata.Source) -> tuple[gdata.Source, gdata.Source]:
    second = [{**example, "tokens": example["hypothesis"]} for example in source]
    return source, gdata.Source(second, source.info)


@functools.lru_cache(maxsize=1)
def _pairs(config: NLIData, dim: int) -> Texts[Split]:
    """Reads and encodes pairs of sentences."""
    sources, words = read_words(
        functools.partial(load_splits, config.name, config), config, dim, texts=_sentences
    )

    def ids(example: Any, name: str) -> np.ndarray:
        # A sentence without words becomes a single unknown word, so that no sentence is empty.
        return np.array(words.vocabulary.encode(example[name]) or [1], np.int32)

    splits = {
        split: Split(
            source,
            {name: [ids(example, name) for example in source] for name in PAIR.values()},
            {"label": np.array([example["label"] for example in source])},
        )
        for split, source in sources.items()
    }
    return dataclasses.replace(words, splits=splits)


def find_short_pairs(split: Split, quantile: float) -> np.ndarray:
    """Returns the indices of pairs in which both sentences are at most as long as the quantile."""
    lengths = np.array([[len(x) for x in split.sequences[name]] for name in PAIR.values()])
    return np.flatnonzero(np.all(lengths <= np.quantile(lengths, quantile), axis=0))


def inference(config: NLIConfig) -> Experiment:
    """Returns the run of a classifier of pairs of sentences."""
    texts = _pairs(without_batches(config.data), config.model.embedding_dim)
    train, info = texts.splits["train"], texts.info
    rows = find_short_pairs(train, config.data.length_quantile)
    model = SSANNLI(config.model, len(texts.vocabulary), len(info.class_names), texts.embeddings)
    return Experiment(
        task=SSANNLITask(model),
        **sequence_batches(texts.splits, PAIR, config.data, rows=rows),
        **vocabulary_parts(texts.vocabulary, info.class_names),
        facts={"train_n": len(rows), **texts.facts(), "class_names": list(info.class_names)},
        labels=train.columns["label"][rows],
        substitute=join_remarks(
            [config.data.note, texts.substitute, *_describe_differences(config)]
        ),
    )


def _describe_differences(config: NLIConfig) -> Iterable[str]:
    if config.data.name != "snli":
        yield reported.SICK_SUBSTITUTE
    width = config.model.embedding_dim
    if config.data.embeddings == "none":
        yield f"random word vectors of width {width} where the paper has GloVe 300-d"
    elif width != 300:
        yield f"word vectors of width {width} where the paper has 300"


# Semantic roles ----------------------------------------------------------------------------------


def label_names(source: gdata.Source) -> tuple[str, ...]:
    """Returns the labels of a source: "O" first, then B- and I- of each role."""
    roles = sorted({role for example in source for _, _, role in example["spans"]})
    return ("O", *(f"{kind}-{role}" for role in roles for kind in "BI"))


def encode_labels(labels: Sequence[str], names: Sequence[str], *, strict: bool) -> np.ndarray:
    """Returns the numbers of BIO labels, int32 [n]. `strict` raises ValueError for a label outside
    of names, which otherwise becomes `UNKNOWN`."""
    number = {name: i for i, name in enumerate(names)}
    if strict and (outside := [label for label in labels if label not in number]):
        raise ValueError(
            f"labels must be among the {len(names)} labels of training, got {outside[0]!r}"
        )
    return np.array([number.get(label, UNKNOWN) for label in labels], np.int32)


Predicates = tuple[Texts[Split], tuple[str, ...]]
"""The encoded predicates of sentences, and the names of labels."""


@functools.lru_cache(maxsize=1)
def _predicates(config: SRLData, dim: int) -> Predicates:
    sources, words = read_words(functools.partial(load_splits, "conll_srl", config), config, dim)
    names = label_names(sources["train"])
    splits = {}
    for split, source in sources.items():
        tokens = [np.array(words.vocabulary.encode(x["tokens"]), np.int32) for x in source]
        labels = [encode_labels(x["labels"], names, strict=split == "train") for x in source]
        predicates = [np.array(x["is_predicate"], np.int32) for x in source]
        sequences = {"tokens": tokens, "labels": labels, "is_predicate": predicates}
        splits[split] = Split(source, sequences)
    return dataclasses.replace(words, splits=splits), names


def predicates(config: SRLData, dim: int) -> Predicates:
    """Returns the encoded predicates of a run; the last result is cached."""
    return _predicates(without_batches(config), dim)


def roles(config: SRLConfig) -> Experiment:
    """Returns the run of a tagger of semantic roles."""
    texts, labels = predicates(config.data, config.model.embedding_dim)
    tokens = texts.splits["train"].sequences["tokens"]
    rows = [i for i, text in enumerate(tokens) if len(text) <= config.data.max_len]
    batches = sequence_batches(texts.splits, {"lengths": "tokens"}, config.data, rows=rows)
    evaluation = {name: batches[name] for name in SPLITS[1:]}
    model = SSANTagger(config.model, len(texts.vocabulary), len(labels), texts.embeddings)
    width = max(
        part.edges[-1] for part in (batches["train"](config.train.seed), *evaluation.values())
    )
    # Records of the English Web Treebank only have the note about its test part, so it comes first.
    files = texts.info.substitute or texts.substitute
    vector_note = None
    if config.data.embeddings == "none":
        vector_note = "random word vectors where the paper has GloVe 100-d"

    def measure(params: Params) -> Json:
        run: Any = model.apply
        apply = functools.partial(
            jax.jit(lambda p, batch: run({"params": p}, batch).logits), params
        )
        record: Record = {}
        for name, one_pass in evaluation.items():
            source = texts.splits[name].source
            record |= arguments(config, name, source, one_pass, apply, labels)
        return record

    return Experiment(
        task=SSANTaggingTask(model, width),
        **batches,
        **vocabulary_parts(texts.vocabulary, labels),
        facts={"train_n": len(rows), "labels": len(labels), **texts.facts()},
        substitute=join_remarks([config.data.note, files, vector_note]),
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
    """Scores the arguments of a split by the rules of the CoNLL scorer. Returns F1 of the greedy
    labels, and of the constrained labels if the configuration has them. For the test split also
    "role_counts", the counts (matched, predicted, gold) of each predicate in the order of the file,
    for paired tests."""
    by_id = {example["example_id"]: example for example in source}
    counts: dict[str, dict[int, MatchCounts]] = {"greedy": {}, "constrained": {}}
    for batch in batches:
        logits = np.asarray(apply(batch))
        for row, number in real_rows(batch):
            example = by_id[number]
            scores = logits[row, : len(example["tokens"])]
            ways = {"greedy": np.argmax(scores, axis=1)}
            if config.data.constrained:
                ways["constrained"] = constrained_labels(scores, labels)
            for way, numbers in ways.items():
                counts[way][example["example_id"]] = role_counts(
                    example["labels"], [labels[i] for i in numbers]
                )
    record: Record = {}
    for way, by_example in counts.items():
        if by_example:
            total = sum(by_example.values(), MatchCounts()).value()._asdict()
            record[f"{split}_roles_{way}"] = {k: round(v, 6) for k, v in total.items()}
    if split == "test":
        record["role_counts"] = [
            [c.matched, c.predicted, c.gold] for _, c in sorted(counts["greedy"].items())
        ]
    return record
