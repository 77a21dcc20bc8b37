"""Word reordering detection: the sentences of a run and its task."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.ssan import paper
from experiments.ssan.config import ReorderingConfig, ReorderingData
from experiments.ssan.experiment import Experiment, Predictions, by_step
from gatedjax import data as gdata
from gatedjax.models import WordReorderingDetector, WordReorderingTask

SPLITS = ("train", "validation", "test")
KEPT = 0.9
"""Share of the published validation sentences that the training text is made of."""
SEED = 0
"""Of the moves: every run has the same sentences."""


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """Reordered sentences, encoded."""

    splits: dict[str, gdata.Encoded]
    columns: dict[str, dict[str, np.ndarray]]
    """By split: "insert" and "original"."""
    vocabulary: gdata.Vocabulary


def sources_of(config: ReorderingData) -> dict[str, gdata.Source]:
    """The three splits, reordered."""
    options: dict[str, Any] = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
    if config.text == "published":
        validation = gdata.load("word_reordering", "validation", **options)
        kept = int(KEPT * len(validation))
        restored = [
            gdata.restore_word(e["tokens"], e["insert"], e["original"]) for e in validation[:kept]
        ]
        train = gdata.word_reordering(restored, seed=SEED, copies=config.copies)
        held_out = gdata.Source(validation[kept:], validation.info)
        test = gdata.load("word_reordering", "test", **options)
        return {"train": train, "validation": held_out, "test": test}
    made = {}
    for number, split in enumerate(SPLITS):
        texts = gdata.load("multi30k", split, **options)
        made[split] = gdata.word_reordering(
            [words_of(example["text"]) for example in texts],
            seed=SEED + number,
            copies=config.copies if split == "train" else config.eval_copies,
            name="multi30k_reordered",
            split=split,
            base=number * 100_000_000,
        )
    return made


def words_of(text: str) -> Sequence[str]:
    """Words and punctuation of a raw sentence."""
    return gdata.tokenize(text)


def prepare(config: ReorderingData) -> Prepared:
    """Loads, reorders and encodes the splits; those of the last call are kept."""
    return _prepare(dataclasses.replace(config, batch_size=1, eval_batch_size=1, max_buckets=1))


@functools.lru_cache(maxsize=1)
def _prepare(config: ReorderingData) -> Prepared:
    sources = sources_of(config)
    # every sentence has its moves: a word of one sentence occurs so often
    often = (config.min_count - 1) * config.copies + 1
    vocabulary = gdata.Vocabulary.build([sources["train"]], min_count=often)
    encoded = {split: gdata.encode(source, vocabulary) for split, source in sources.items()}
    columns = {
        split: {
            name: np.array([example[name] for example in source], np.int32)
            for name in ("insert", "original")
        }
        for split, source in sources.items()
    }
    return Prepared(encoded, columns, vocabulary)


def batches(prepared: Prepared, config: ReorderingData, *, seed: int) -> list[Any]:
    """Training, validation and test batches; the last two are one ordered pass."""
    edges = gdata.plan_buckets(prepared.splits["train"].lengths, config.max_buckets)
    longest = max(int(split.lengths.max()) for split in prepared.splits.values())
    edges = (*edges[:-1], max(longest, edges[-1]))
    made = []
    for split in SPLITS:
        encoded, training = prepared.splits[split], split == "train"
        one = gdata.SequenceBatches(
            {"tokens": encoded.ids},
            encoded.example_ids,
            lengths={"lengths": "tokens"},
            columns=prepared.columns[split],
            batch_size=config.batch_size if training else config.eval_batch_size,
            bucket_edges=edges,
            seed=seed,
            shuffle=training,
        )
        made.append(one if training else one.eval())
    return made


def experiment(config: ReorderingConfig) -> Experiment:
    """The run of a detector."""
    prepared = prepare(config.data)
    train, validation, test = batches(prepared, config.data, seed=config.train.seed)
    model = WordReorderingDetector(config.model, len(prepared.vocabulary))
    return Experiment(
        task=WordReorderingTask(model),
        train=by_step(train, config.model),
        validation=validation,
        test=test,
        vocabulary=prepared.vocabulary.digest(),
        facts={
            "train_n": len(prepared.splits["train"]),
            "vocabulary_size": len(prepared.vocabulary),
        },
        substitute=paper.REORDERING_SUBSTITUTES[config.data.text],
        score=positions,
    )


def positions(predictions: Predictions) -> dict[str, Any]:
    """Which of the two positions of every test sentence are right, in the order of the file."""
    order = np.argsort(predictions["example_id"], kind="stable")
    return {
        f"{name}_string": "".join("1" if c > 0 else "0" for c in predictions[key][order])
        for name, key in {"insert": "insert_correct", "original": "original_correct"}.items()
    }
