"""Translation: the pairs of a run, its task, and how a trained run translates."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.core.records import read_json
from experiments.ssan.experiment import Experiment, by_step
from experiments.ssan.task_config import SearchConfig, TranslationConfig, TranslationData
from gatedjax import data as gdata
from gatedjax.models import (
    SSANTranslationTask,
    SSANTranslator,
    SSANTranslatorConfig,
    translate,
)
from gatedjax.models.ssan_translation import STOP
from gatedjax.training import average_params, load_params

SPLITS = ("train", "validation", "test")
LENGTHS = {"lengths": "tokens", "target_lengths": "targets"}
BPE = "bpe.json"
"""Name of the vocabulary in a work folder."""


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A parallel corpus in pieces, each text with the stop token at its end."""

    sources: dict[str, gdata.Source]
    sequences: dict[str, dict[str, list[np.ndarray]]]
    """By split: "tokens" and "targets"."""
    bpe: gdata.BytePairs


def prepare(config: TranslationData) -> Prepared:
    """Loads the splits, learns or reads byte pairs, and encodes; the last call is kept."""
    return _prepare(dataclasses.replace(config, batch_tokens=1, eval_batch_tokens=1))


@functools.lru_cache(maxsize=1)
def _prepare(config: TranslationData) -> Prepared:
    options: dict[str, Any] = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
    if config.source:
        options["source"] = config.source
    sources = {split: gdata.load(config.name, split, **options) for split in SPLITS}
    if config.bpe is not None:
        bpe = gdata.BytePairs.load(config.bpe)
    else:
        texts = (x[side] for x in sources["train"] for side in ("text", "target"))
        bpe = gdata.BytePairs.train(texts, config.vocabulary_size)
    sequences = {
        split: {
            name: encode(bpe, [example[side] for example in source])
            for name, side in (("tokens", "text"), ("targets", "target"))
        }
        for split, source in sources.items()
    }
    return Prepared(sources, sequences, bpe)


def encode(bpe: gdata.BytePairs, texts: Sequence[str]) -> list[np.ndarray]:
    """Ids of texts, the stop token at the end."""
    return [np.array([*ids, STOP], np.int32) for ids in bpe.encode_all(texts)]


def batches(
    prepared: Prepared, config: TranslationData, *, seed: int
) -> list[gdata.SequenceBatches]:
    """Training, validation and test batches; the last two are one ordered pass."""
    made = []
    for split in SPLITS:
        source, training = prepared.sources[split], split == "train"
        sequences = prepared.sequences[split]
        rows = list(range(len(source)))
        if training:
            both = [sequences[name] for name in LENGTHS.values()]
            rows = [i for i in rows if max(len(side[i]) for side in both) <= config.max_len]
            if not rows:
                raise ValueError(f"data.max_len {config.max_len}: every training pair is longer")
        ids = np.array([source[i]["example_id"] for i in rows])
        one = gdata.SequenceBatches(
            {name: [texts[i] for i in rows] for name, texts in sequences.items()},
            ids,
            lengths=LENGTHS,
            max_tokens=config.batch_tokens if training else config.eval_batch_tokens,
            max_buckets=config.max_buckets,
            seed=seed,
            shuffle=training,
        )
        made.append(one if training else one.eval())
    return made


def experiment(config: TranslationConfig) -> Experiment:
    """The run of a translator.

    Raises:
      ValueError: if the run that it begins with has another vocabulary.
    """
    data = config.data
    if config.init_from is not None and data.bpe is None:
        data = dataclasses.replace(data, bpe=str(Path(config.init_from) / BPE))
    prepared = prepare(data)
    train, validation, test = batches(prepared, config.data, seed=config.train.seed)
    model = SSANTranslator(config.model, len(prepared.bpe))
    task: Any = SSANTranslationTask(model)
    facts: dict[str, Any] = {}
    if config.init_from is not None:
        task, facts["init_from"] = _begun(task, config, prepared, train[0])
    notes = [config.data.note, prepared.sources["test"].info.substitute]
    kept = len(train.columns["example_id"])

    def choose(workdir: Path, best: Any) -> tuple[Any, dict[str, Any]]:
        if config.search.average == 1:
            return best, {}
        params, steps = average_params(workdir, best, config.search.average)
        return params, {"averaged_steps": list(steps)}

    return Experiment(
        task=task,
        train=by_step(train, config.model),
        validation=validation,
        test=test,
        vocabulary=prepared.bpe.digest(),
        facts={
            "train_n": kept,
            "left_out": len(prepared.sources["train"]) - kept,
            "vocabulary_size": len(prepared.bpe),
            "search": dataclasses.asdict(config.search),
            **facts,
        },
        substitute="; ".join(note for note in notes if note) or None,
        before=functools.partial(keep_vocabulary, prepared.bpe),
        choose=choose,
        measure=functools.partial(measure, config, prepared, model),
    )


def keep_vocabulary(bpe: gdata.BytePairs, workdir: Path) -> None:
    """Writes the vocabulary into the work folder.

    Raises:
      ValueError: if another one is there.
    """
    place = workdir / BPE
    if not place.exists():
        bpe.save(place)
    elif gdata.BytePairs.load(place).digest() != bpe.digest():
        raise ValueError(
            f"{place} is the vocabulary of another run; use another workdir, or that vocabulary "
            "(--data.bpe)"
        )


class _Begun:
    """A task whose parameters begin with given ones."""

    def __init__(self, task: SSANTranslationTask, params: Any) -> None:
        self._task, self._params = task, params

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def init(self, key: Any, batch: Any) -> Any:
        """Returns the given parameters."""
        return jax.tree.map(jax.numpy.asarray, self._params)


def _begun(
    task: SSANTranslationTask, config: TranslationConfig, prepared: Prepared, batch: Any
) -> tuple[_Begun, dict[str, Any]]:
    """The task with the parameters of another run, and which of its own it keeps."""
    other = Path(config.init_from or "")
    if saved_vocabulary(other) != prepared.bpe.digest():
        raise ValueError(f"init_from {other}: that run has another vocabulary than data.bpe")
    fresh = jax.jit(task.init)(jax.random.key(config.train.seed), batch)
    params, fresh_ones = load_params(other, jax.device_get(fresh), partial=True)
    return _Begun(task, params), {"run": other.name, "not_loaded": fresh_ones}


def measure(
    config: TranslationConfig, prepared: Prepared, model: SSANTranslator, params: Any
) -> dict[str, Any]:
    """BLEU of validation and test texts, by sacrebleu.

    "bleu_statistics" has the counts of every test sentence (lengths, matched and all n-grams), for
    paired tests.
    """
    from experiments.ssan.bleu import corpus_bleu

    record: dict[str, Any] = {}
    for split in ("validation", "test"):
        source = prepared.sources[split]
        found = run_translations(
            model, params, prepared.bpe, [x["text"] for x in source], config.search
        )
        scored = corpus_bleu(found, [x["target"] for x in source])
        record[f"{split}_bleu"] = round(scored.score, 4)
        record["bleu_signature"] = scored.signature
        if split == "test":
            record["bleu_statistics"] = scored.statistics
            record["examples"] = [
                [x["text"], text, x["target"]]
                for x, text in zip(source[:5], found[:5], strict=True)
            ]
    return record


def run_translations(
    model: SSANTranslator,
    params: Any,
    bpe: gdata.BytePairs,
    texts: Sequence[str],
    search: SearchConfig,
) -> list[str]:
    """Translates texts, in their order; an empty text stays empty.

    Raises:
      ValueError: if a text is longer than a table of learned positions allows.
    """
    ids = encode(bpe, [text.strip() for text in texts])
    real = [i for i, one in enumerate(ids) if len(one) > 1]
    found = [""] * len(texts)
    if not real:
        return found
    if model.config.positions == "learned":
        longest = max(len(ids[i]) for i in real)
        if longest + search.extra > model.config.max_length:
            raise ValueError(
                f"model.max_length {model.config.max_length}: a text has {longest} pieces, and its "
                f"translation may have {search.extra} more (--search.extra)"
            )
    decode = jax.jit(
        lambda params, batch: translate(
            model,
            params,
            batch,
            beam_size=search.beam_size,
            length_penalty=search.length_penalty,
            extra=search.extra,
        ).tokens[:, 0]
    )
    data = gdata.SequenceBatches(
        {"tokens": [ids[i] for i in real]},
        np.array(real),
        lengths={"lengths": "tokens"},
        batch_size=min(search.batch_sentences, len(real)),
        max_buckets=4,
        shuffle=False,
    ).eval()
    for batch in data:
        tokens = np.asarray(decode(params, {n: batch[n] for n in ("tokens", "lengths")}))
        for row in np.flatnonzero(batch["weight"] > 0):
            found[int(batch["example_id"][row])] = bpe.decode(tokens[row])
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """A finished run, ready to translate."""

    model: SSANTranslator
    params: Any
    bpe: gdata.BytePairs
    search: SearchConfig


def load_run(workdir: Path, *, bpe: Path | None = None, average: int | None = None) -> Trained:
    """Reads a finished run of translation.

    Args:
      workdir: of the run.
      bpe: another file of its vocabulary.
      average: of how many checkpoints (default: as the run was tested).

    Raises:
      FileNotFoundError: if it is no work folder of a finished run.
      ValueError: if the vocabulary is not that of the run.
    """
    place = workdir / "results.json"
    if not place.exists():
        raise FileNotFoundError(f"{place}: no finished run of translation is there")
    record = read_json(place)
    if "search" not in record:
        raise ValueError(
            f"{workdir} is not of a run of translation but of {record.get('data')!r}: it takes one "
            "that python -m experiments.ssan --preset mt_multi30k (or another mt_) has made"
        )
    record = read_json(place, "config", "search", "vocabulary_size")
    wanted = saved_vocabulary(workdir)
    pieces = gdata.BytePairs.load(bpe or workdir / BPE)
    if pieces.digest() != wanted:
        raise ValueError(
            f"{bpe or workdir / BPE} is not the vocabulary that {workdir} was trained with: it has "
            f"{len(pieces):,} pieces, the network {record['vocabulary_size']:,}, or others"
        )
    fields = {field.name for field in dataclasses.fields(SSANTranslatorConfig)}
    saved = {k: v for k, v in record["config"]["model"].items() if k in fields}
    saved["select_layers"] = tuple(saved["select_layers"])
    model = SSANTranslator(SSANTranslatorConfig(**saved), len(pieces))
    search = SearchConfig(**record["search"])
    batch: Any = _tiny_batch()
    like = jax.eval_shape(lambda: SSANTranslationTask(model).init(jax.random.key(0), batch))
    count = search.average if average is None else average
    if count == 1:
        params, _ = load_params(workdir, like)
    else:
        params, _ = average_params(workdir, like, count)
    return Trained(model, params, pieces, search)


def saved_vocabulary(workdir: Path) -> str:
    """Digest of the vocabulary that a run was trained with, as its checkpoints have it."""
    from gatedjax.training import CheckpointStore

    store = CheckpointStore(workdir / "checkpoints")
    step = store.latest()
    if step is None:
        raise FileNotFoundError(f"{workdir}: no checkpoint is there")
    return store.record(step)["metadata"]["vocabulary"]


def _tiny_batch() -> dict[str, Any]:
    one = np.full((1, 1), STOP, np.int32)
    length = np.ones(1, np.int32)
    return {"tokens": one, "targets": one, "lengths": length, "target_lengths": length}
