"""The run of a translator."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax

from experiments.core.experiment import Experiment, best
from experiments.core.kinds import Batch, Json, Record
from experiments.core.origins import join_remarks
from experiments.core.text import load_splits
from experiments.ssan.config import TranslationConfig, TranslationData
from experiments.ssan.sentences import Split, sequence_batches, without_batches
from gatedjax import data as gdata
from gatedjax import models
from gatedjax.analysis._scores import corpus_bleu
from gatedjax.text.models._folders import BYTE_PAIRS, open_folder
from gatedjax.text.models._translator import (
    Translator,
    encode,
    parameters_like,
    translate_texts,
)
from gatedjax.training import FitResult, average_params, restore_params

SIDES = {"tokens": "text", "targets": "target"}
LENGTHS = {"lengths": "tokens", "target_lengths": "targets"}


@functools.lru_cache(maxsize=1)
def _corpus(config: TranslationData) -> tuple[dict[str, Split], gdata.BytePairs]:
    """Reads a parallel corpus and encodes it as byte pairs, with the stop token after each text."""
    options = {"source": config.source} if config.source else {}
    sources = load_splits(config.name, config, **options)
    if config.bpe is not None:
        bpe = gdata.BytePairs.load(config.bpe)
    else:
        texts = (x[side] for x in sources["train"] for side in SIDES.values())
        bpe = gdata.BytePairs.train(texts, config.vocabulary_size)
    splits = {
        split: Split(
            source,
            {name: encode(bpe, [x[side] for x in source]) for name, side in SIDES.items()},
        )
        for split, source in sources.items()
    }
    return splits, bpe


def experiment(config: TranslationConfig) -> Experiment:
    """Returns the run of a translator. Raises ValueError if all training pairs are too long, or if
    the run whose parameters this run starts with has another vocabulary."""
    data = config.data
    if config.init_from is not None and data.bpe is None:
        # The parameters of the other run only fit the pieces of its vocabulary.
        data = dataclasses.replace(data, bpe=str(Path(config.init_from) / BYTE_PAIRS))
    splits, bpe = _corpus(without_batches(data))
    both = zip(*splits["train"].sequences.values(), strict=True)
    # Long pairs are left out of training only; validation and test keep all pairs.
    rows = [i for i, pair in enumerate(both) if max(map(len, pair)) <= data.max_len]
    if not rows:
        raise ValueError(
            f"data.max_len must be at least the length of a training pair, got {data.max_len}: all "
            "pairs are longer"
        )
    model = models.SSANTranslator(config.model, len(bpe))
    search = {"search": dataclasses.asdict(config.search)}
    task, facts = models.SSANTranslationTask(model), Json()
    if config.init_from is not None:
        task, facts = start_from(model, Path(config.init_from), bpe)

    def choose(result: FitResult, workdir: Path) -> tuple[Any, Json]:
        # Without averaging the best checkpoint is used as it is.
        if config.search.average == 1:
            return best(result, workdir)
        params, steps = average_params(workdir, result.best_params, config.search.average)
        return params, {"averaged_steps": list(steps)}

    return Experiment(
        task=task,
        **sequence_batches(splits, LENGTHS, data, rows=rows),
        vocabulary=bpe.digest(),
        facts={
            "train_n": len(rows),
            "left_out": len(splits["train"].source) - len(rows),
            "vocabulary_size": len(bpe),
            **search,
            **facts,
        },
        for_export=search,
        substitute=join_remarks([data.note, *(part.info.substitute for part in splits.values())]),
        before=functools.partial(keep_vocabulary, bpe),
        choose=choose,
        measure=lambda params: measure(Translator(model, params, bpe, config.search), splits),
    )


def keep_vocabulary(bpe: gdata.BytePairs, workdir: Path) -> None:
    """Writes the vocabulary into the work folder; raises ValueError if another is there."""
    place = workdir / BYTE_PAIRS
    if not place.exists():
        bpe.save(place)
    elif gdata.BytePairs.load(place).digest() != bpe.digest():
        raise ValueError(
            f"{place} must be the vocabulary of this run, got the vocabulary of another run: use "
            f"another workdir, or that vocabulary (--data.bpe {place})"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class BegunTask(models.SSANTranslationTask):
    """A task that starts with given parameters; leaves that are only shapes are drawn."""

    given: Any

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the initial parameters."""

        def leaf(start: Any, fresh: Any) -> Any:
            return fresh if isinstance(start, jax.ShapeDtypeStruct) else jax.numpy.asarray(start)

        return jax.tree.map(leaf, self.given, super().init(key, batch))


def start_from(
    model: models.SSANTranslator, other: Path, bpe: gdata.BytePairs
) -> tuple[BegunTask, Json]:
    """Returns the task that starts with the parameters of another run, and a record of the run and
    of the parameters that were not loaded. Raises ValueError if that run has another vocabulary."""
    if open_folder(other, "translation", BYTE_PAIRS).config["vocabulary"] != bpe.digest():
        raise ValueError(
            f"init_from must be a run with the vocabulary of data.bpe, got {other} with another"
        )
    params, fresh = restore_params(other, parameters_like(model), partial=True)
    return BegunTask(model, params), {"init_from": {"run": other.name, "not_loaded": fresh}}


def measure(translator: Translator, splits: dict[str, Split]) -> Json:
    """Translates the validation and test texts and computes BLEU by sacrebleu. Returns BLEU, the
    signature of sacrebleu, examples of translations, and "bleu_statistics", the counts of each test
    sentence for paired tests (see `bleu.bleu_of`)."""
    record: Record = {}
    for name in ("validation", "test"):
        source = splits[name].source
        texts = translate_texts(translator, [x["text"] for x in source])
        scored = corpus_bleu(texts, [x["target"] for x in source])
        record[f"{name}_bleu"] = round(scored.score, 4)
        record["bleu_signature"] = scored.signature
        if name == "test":
            record["bleu_statistics"] = scored.statistics
            record["examples"] = [
                [x["text"], text, x["target"]]
                for x, text in zip(source[:5], texts[:5], strict=True)
            ]
    return record
