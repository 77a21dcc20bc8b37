"""The sentences of runs and their batches; the runs of probes and of word reordering detection."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.core.experiment import Experiment, Predictions
from experiments.core.kinds import Config, Json, Record
from experiments.core.origins import join_remarks
from experiments.core.text import (
    SPLITS,
    Texts,
    check_embeddings,
    common_edges,
    find_embeddings,
    in_batches,
    load_splits,
    read_embeddings,
    read_texts,
    vocabulary_parts,
)
from experiments.ssan import reported
from experiments.ssan.config import ProbeConfig, ReorderingConfig, ReorderingData
from gatedjax import analysis, models
from gatedjax import data as gdata
from gatedjax.analysis._scores import ratio

TRAINED_SHARE = 0.9
"""The share of the published validation sentences that become training sentences."""
SEED = 0
"""The seed of the moves, so that all runs have the same sentences."""


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """The encoded examples of a split: ids of each example, and numbers for it, by name."""

    source: gdata.Source
    sequences: dict[str, list[np.ndarray]]
    columns: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def info(self) -> gdata.SourceInfo:
        """Returns the name and the classes of the data set."""
        return self.source.info


def without_batches(config: Config) -> Any:
    """Returns a configuration of data with all batch sizes equal to 1. Configurations that differ
    only in batch sizes become equal, so that a cache reads their data once."""
    # These options affect only how the encoded examples are grouped.
    names = ("batch_size", "eval_batch_size", "batch_tokens", "eval_batch_tokens", "max_buckets")
    return dataclasses.replace(config, **{n: 1 for n in names if hasattr(config, n)})


def read_words(
    read_sources: Callable[[], dict[str, gdata.Source]],
    config: Config,
    dim: int,
    *,
    texts: Callable[[gdata.Source], Iterable[gdata.Source]] = lambda source: [source],
    copies: int = 1,
) -> tuple[dict[str, gdata.Source], Texts[Any]]:
    """Reads a data set, counts its words and reads their vectors; the splits are not encoded yet.
    Words that are not in the file of the vectors have random vectors. `texts` maps a split to
    the texts with the words to count, and `copies` is the number of times that the training text
    repeats a sentence. Returns the splits by name, and the vocabulary with word vectors."""
    path = find_embeddings(config.embeddings, config.manual_dir)
    check_embeddings(path, dim)
    sources = read_sources()
    # With a file of vectors the words of the other splits are known, like the words of new texts.
    counted = SPLITS if path is not None else SPLITS[:1]
    vocabulary = gdata.Vocabulary.build(
        [text for split in counted for text in texts(sources[split])],
        # The words of a single sentence count `copies`.
        min_count=(config.min_count - 1) * copies + 1,
    )
    if path is None:
        return sources, Texts({}, vocabulary)
    vectors = read_embeddings(path, vocabulary, dim=dim)
    matrix, std = vectors.matrix, getattr(config, "vector_std", None)
    if std is not None:
        matrix = matrix * (std / matrix[vectors.found].std())
    return sources, Texts({}, vocabulary, matrix, vectors.coverage)


def sequence_batches(
    splits: Mapping[str, Split],
    lengths: Mapping[str, str],
    config: Config,
    *,
    rows: Any = None,
    edges: Sequence[int] | None = None,
) -> Json:
    """Returns the batches of an experiment in which examples have several sequences each. `lengths`
    maps the name of the lengths in a batch to the name of the sequences. Returns "train", a
    function from a seed to training batches, and the batches "validation" and "test"."""

    def batches(name: str, seed: int = 0) -> gdata.SequenceBatches:
        split, training = splits[name], name == "train"
        # The training may be restricted to some rows, but evaluation always uses all examples.
        used = np.arange(len(split.source)) if rows is None or not training else np.array(rows)
        sizes = {"batch_size": "batch_size", "batch_tokens": "max_tokens"}
        part = "" if training else "eval_"
        return gdata.SequenceBatches(
            {key: [texts[i] for i in used] for key, texts in split.sequences.items()},
            np.array([split.source[int(i)]["example_id"] for i in used]),
            lengths=lengths,
            columns={key: values[used] for key, values in split.columns.items()},
            bucket_edges=edges,
            max_buckets=config.max_buckets,
            seed=seed,
            shuffle=training,
            **{to: getattr(config, part + of) for of, to in sizes.items() if hasattr(config, of)},
        )

    evaluation = {name: batches(name).eval() for name in SPLITS[1:]}
    return {"train": functools.partial(batches, "train"), **evaluation}


def probe_texts(config: ProbeConfig) -> Texts:
    """Reads and encodes the sentences of a probe, and builds their vocabulary."""
    data = config.data
    return read_texts(
        "senteval_probing", data, vocabulary={"min_count": data.min_count}, load={"task": data.name}
    )


def probe(config: ProbeConfig) -> Experiment:
    """Returns the run of a probe."""
    texts = probe_texts(config)
    train, validation, test = in_batches(texts.splits, config.data)
    training = texts.splits["train"]
    classes = training.info.class_names
    # The official files have as many sentences, so the remark is of other files with fewer.
    small = reported.SMALL_PROBE if len(training) < reported.PROBE_SENTENCES else None
    return Experiment(
        task=models.SSANProbeTask(
            models.SSANProbe(config.model, len(texts.vocabulary), len(classes))
        ),
        train=train,
        validation=validation,
        test=test,
        **vocabulary_parts(texts.vocabulary, classes),
        facts={
            "train_n": len(training),
            "vocabulary_size": len(texts.vocabulary),
            "class_names": list(classes),
        },
        labels=training.labels,
        substitute=join_remarks([config.data.note, small]),
        score=functools.partial(scores, classes=classes),
    )


def scores(predictions: Predictions, classes: tuple[str, ...]) -> Json:
    """Computes the scores of a probe for its record. They are F1 by class and its averages, the
    support, the confusion matrix, and F1 of the paper's groups of classes if the probe has them."""
    label, predicted = predictions["label"], predictions["predicted"]
    by_class = analysis.class_scores(label, predicted, len(classes))
    confusion = np.zeros((len(classes), len(classes)), int)
    # `confusion[label, predicted] += 1` would count a repeated pair only once.
    np.add.at(confusion, (label, predicted), 1)
    groups = {
        name: [classes.index(member) for member in members if member in classes]
        for name, members in reported.TOP_GROUPS.items()
    }
    record = {
        "confusion": confusion.tolist(),
        "support": by_class.support.tolist(),
        "f1": [round(float(value), 6) for value in by_class.f1],
        "f1_micro": by_class.accuracy,
        "f1_weighted": by_class.weighted,
        "f1_macro": by_class.macro,
    }
    if any(groups.values()):
        grouped = group_scores(label, predicted, groups, len(classes))
        record["groups"] = {name: list(values) for name, values in grouped.items()}
    return record


def group_scores(
    label: np.ndarray, predicted: np.ndarray, groups: Mapping[str, Sequence[int]], num_classes: int
) -> dict[str, tuple[float, float]]:
    """Computes two F1 scores of each group of classes: of its classes averaged by support, and of
    the group as a single class. A class outside of all groups stays a class, and no class is in two
    groups."""
    scores = analysis.class_scores(label, predicted, num_classes)
    # Numbers below len(groups) stand for groups, so that other classes keep different numbers.
    merged = np.arange(len(groups), len(groups) + num_classes)
    for number, members in enumerate(groups.values()):
        merged[np.asarray(members, int)] = number
    of_groups = analysis.class_scores(
        merged[np.asarray(label)], merged[np.asarray(predicted)], len(groups) + num_classes
    )
    result = {}
    for number, (name, members) in enumerate(groups.items()):
        classes = np.asarray(members, int)
        average = ratio(scores.f1[classes] @ scores.support[classes], scores.support[classes].sum())
        result[name] = (float(average), float(of_groups.f1[number]))
    return result


def _with_note_of_files(files: gdata.Source, moved: gdata.Source) -> gdata.Source:
    info = dataclasses.replace(moved.info, substitute=files.info.substitute)
    return gdata.Source(moved, info)


def restore_word(tokens: Sequence[str], insert: int, original: int) -> tuple[str, ...]:
    """Undoes the move of a word: puts token `insert` back in front of token `original`."""
    words = list(tokens)
    word = words.pop(insert)
    # `original` counts positions before the removal, so that it is one too large behind the removed
    # word.
    words.insert(original if original < insert else original - 1, word)
    return tuple(words)


def reorder_splits(config: ReorderingData) -> dict[str, gdata.Source]:
    """Reads and reorders the sentences of the three splits."""
    if config.text == "multi30k":
        return {
            split: _with_note_of_files(
                texts,
                gdata.word_reordering(
                    [gdata.tokenize(example["text"]) for example in texts],
                    seed=SEED + number,
                    copies=config.copies if split == "train" else config.eval_copies,
                    name="multi30k_reordered",
                    split=split,
                    # Splits have separate ranges of example ids.
                    base=number * 100_000_000,
                ),
            )
            for number, (split, texts) in enumerate(load_splits("multi30k", config).items())
        }
    if config.text == "files":
        return load_splits("word_reordering", config)
    validation, test = load_splits("word_reordering", config, SPLITS[1:]).values()
    size = int(TRAINED_SHARE * len(validation))
    # The words are put back first, because `word_reordering` moves a word of a sentence in its
    # original order.
    restored = [restore_word(e["tokens"], e["insert"], e["original"]) for e in validation[:size]]
    return {
        "train": _with_note_of_files(
            validation, gdata.word_reordering(restored, seed=SEED, copies=config.copies)
        ),
        # Validation and test keep their published moves, so that their accuracies can be compared
        # with the paper.
        "validation": gdata.Source(validation[size:], validation.info),
        "test": test,
    }


@functools.lru_cache(maxsize=1)
def _reordering_texts(config: ReorderingData, dim: int) -> Texts:
    read_sources = functools.partial(reorder_splits, config)
    sources, words = read_words(read_sources, config, dim, copies=config.copies)
    encoded = {split: gdata.encode(source, words.vocabulary) for split, source in sources.items()}
    return dataclasses.replace(words, splits=encoded)


def reordering_texts(config: ReorderingConfig) -> Texts:
    """Returns the reordered and encoded sentences of a run; the last result is cached."""
    width = config.model.embedding_dim
    dim = config.model.hidden if width is None else width
    return _reordering_texts(without_batches(config.data), dim)


def reordering(config: ReorderingConfig) -> Experiment:
    """Returns the run of a detector of reordered words."""
    texts = reordering_texts(config)
    places = ("insert", "original")
    splits = {
        name: Split(
            part.source,
            {"tokens": part.ids},
            {
                place: np.array([example[place] for example in part.source], np.int32)
                for place in places
            },
        )
        for name, part in texts.splits.items()
    }
    lengths = {name: part.lengths for name, part in texts.splits.items()}
    edges = common_edges(lengths, config.data.max_buckets)
    return Experiment(
        task=models.WordReorderingTask(
            models.WordReorderingDetector(config.model, len(texts.vocabulary), texts.embeddings)
        ),
        **sequence_batches(splits, {"lengths": "tokens"}, config.data, edges=edges),
        **vocabulary_parts(texts.vocabulary),
        facts={"train_n": len(lengths["train"]), "vocabulary_size": len(texts.vocabulary)}
        | ({} if texts.coverage is None else {"embedding_coverage": texts.coverage}),
        substitute=join_remarks(
            [
                config.data.note,
                reported.REORDERING_SUBSTITUTES[config.data.text],
                texts.substitute,
            ]
        ),
        score=positions,
    )


def positions(predictions: Predictions) -> Json:
    """Returns the correctness of both positions as strings of "1" and "0". The test sentences are
    in the order of the file."""
    order = np.argsort(predictions["example_id"], kind="stable")
    return {
        f"{name}_string": "".join("1" if c > 0 else "0" for c in predictions[key][order])
        for name, key in {"insert": "insert_correct", "original": "original_correct"}.items()
    }


def sentence_of_each(record: Record) -> np.ndarray | None:
    """Returns the number of the source sentence of each test example of a record. The moves of a
    sentence have successive example ids, in the order of a record's examples. Published test
    sentences have a single move each, and the other data sets have no moves. Returns int [test_n],
    or None if the examples are independent."""
    data = record["config"]["data"]
    if data.get("text") != "multi30k":
        return None
    return np.arange(record["test_n"]) // data["eval_copies"]


def sentences(config: ProbeConfig | ReorderingConfig) -> Texts:
    """Returns the texts of a run with an encoder of whole sentences."""
    return probe_texts(config) if isinstance(config, ProbeConfig) else reordering_texts(config)
