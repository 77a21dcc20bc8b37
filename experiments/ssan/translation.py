"""Translation: the pairs of a run and its task; and `python -m experiments.ssan translate`."""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import jax
import numpy as np
import tyro

from experiments.core.cli import refusals, show_version
from experiments.core.experiment import Experiment
from experiments.core.kinds import Batch, Json, Params, Record
from experiments.core.origins import joined
from experiments.core.records import read_json
from experiments.ssan.bleu import corpus_bleu
from experiments.ssan.config import SearchConfig, TranslationConfig, TranslationData
from experiments.ssan.sentences import Split, load, one_pass, sequence_batches, without_batches
from gatedjax import data as gdata
from gatedjax import models
from gatedjax._terminal import say
from gatedjax.models.ssan_translation import STOP
from gatedjax.training import CheckpointStore, average_params, load_params

SIDES = {"tokens": "text", "targets": "target"}
LENGTHS = {"lengths": "tokens", "target_lengths": "targets"}
BPE = "bpe.json"
"""Name of the vocabulary in a work folder."""


@functools.lru_cache(maxsize=1)
def _corpus(config: TranslationData) -> tuple[dict[str, Split], gdata.BytePairs]:
    """A parallel corpus in pieces, each text with the stop token at its end."""
    options = {"source": config.source} if config.source else {}
    sources = load(config.name, config, **options)
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


def encode(bpe: gdata.BytePairs, texts: Sequence[str]) -> list[np.ndarray]:
    """Ids of texts, the stop token at the end."""
    return [np.array([*ids, STOP], np.int32) for ids in bpe.encode_all(texts)]


def experiment(config: TranslationConfig) -> Experiment:
    """The run of a translator; refuses to begin with a run of another vocabulary."""
    data = config.data
    if config.init_from is not None and data.bpe is None:
        data = dataclasses.replace(data, bpe=str(Path(config.init_from) / BPE))
    splits, bpe = _corpus(without_batches(data))
    both = zip(*splits["train"].sequences.values(), strict=True)
    rows = [i for i, pair in enumerate(both) if max(map(len, pair)) <= data.max_len]
    if not rows:
        raise ValueError(f"data.max_len {data.max_len}: every training pair is longer")
    model = models.SSANTranslator(config.model, len(bpe))
    task, facts = models.SSANTranslationTask(model), Json()
    if config.init_from is not None:
        task, facts = begun(model, Path(config.init_from), bpe)

    def choose(workdir: Path, best: Any) -> tuple[Any, Json]:
        if config.search.average == 1:
            return best, {}
        params, steps = average_params(workdir, best, config.search.average)
        return params, {"averaged_steps": list(steps)}

    return Experiment(
        task=task,
        **sequence_batches(splits, LENGTHS, data, rows=rows),
        vocabulary=bpe.digest(),
        facts={
            "train_n": len(rows),
            "left_out": len(splits["train"].source) - len(rows),
            "vocabulary_size": len(bpe),
            "search": dataclasses.asdict(config.search),
            **facts,
        },
        substitute=joined([data.note, splits["test"].info.substitute]),
        before=functools.partial(keep_vocabulary, bpe),
        choose=choose,
        measure=lambda params: measure(Trained(model, params, bpe, config.search), splits),
    )


def keep_vocabulary(bpe: gdata.BytePairs, workdir: Path) -> None:
    """Writes the vocabulary into the work folder; refuses where another one is there."""
    place = workdir / BPE
    if not place.exists():
        bpe.save(place)
    elif gdata.BytePairs.load(place).digest() != bpe.digest():
        raise ValueError(
            f"{place} is the vocabulary of another run; use another workdir, or that vocabulary "
            "(--data.bpe)"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class BegunTask(models.SSANTranslationTask):
    """Begins with the given parameters; those that are only shapes are drawn."""

    given: Any

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns parameters."""

        def leaf(given: Any, fresh: Any) -> Any:
            return fresh if isinstance(given, jax.ShapeDtypeStruct) else jax.numpy.asarray(given)

        return jax.tree.map(leaf, self.given, super().init(key, batch))


def begun(
    model: models.SSANTranslator, other: Path, bpe: gdata.BytePairs
) -> tuple[BegunTask, Json]:
    """The task with the parameters of another run, and which of its own it keeps."""
    if saved_vocabulary(other) != bpe.digest():
        raise ValueError(f"init_from {other}: that run has another vocabulary than data.bpe")
    params, fresh = load_params(other, parameters_like(model), partial=True)
    return BegunTask(model, params), {"init_from": {"run": other.name, "not_loaded": fresh}}


def parameters_like(model: models.SSANTranslator) -> Any:
    """Shapes of the parameters."""
    one, length = np.full((1, 1), STOP, np.int32), np.ones(1, np.int32)
    batch: Batch = {"tokens": one, "targets": one, "lengths": length, "target_lengths": length}
    return jax.eval_shape(lambda: models.SSANTranslationTask(model).init(jax.random.key(0), batch))


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """A finished run, ready to translate."""

    model: models.SSANTranslator
    params: Params
    bpe: gdata.BytePairs
    search: SearchConfig


def measure(trained: Trained, splits: dict[str, Split]) -> Json:
    """BLEU of validation and test texts, by sacrebleu.

    "bleu_statistics" has the counts of every test sentence, for paired tests, see `bleu.Scored`.
    """
    record: Record = {}
    for name in ("validation", "test"):
        source = splits[name].source
        texts = run_translations(trained, [x["text"] for x in source])
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


def run_translations(trained: Trained, texts: Sequence[str]) -> list[str]:
    """Translates texts, in their order; an empty one stays empty, a too long one is refused."""
    model, search = trained.model, trained.search
    ids = encode(trained.bpe, [text.strip() for text in texts])
    real = [i for i, one in enumerate(ids) if len(one) > 1]
    translations = [""] * len(texts)
    if not real:
        return translations
    if model.config.positions == "learned":
        longest = max(len(ids[i]) for i in real)
        if longest + search.extra > model.config.max_length:
            raise ValueError(
                f"model.max_length {model.config.max_length}: a text has {longest} pieces, and its "
                f"translation may have {search.extra} more (--search.extra)"
            )
    decode = jax.jit(
        lambda params, batch: models.translate(
            model,
            params,
            batch,
            beam_size=search.beam_size,
            length_penalty=search.length_penalty,
            extra=search.extra,
        ).tokens[:, 0]
    )
    for batch, rows in one_pass([ids[i] for i in real], search.batch_sentences):
        tokens = np.asarray(decode(trained.params, {n: batch[n] for n in ("tokens", "lengths")}))
        for row, index in rows:
            translations[real[index]] = trained.bpe.decode(tokens[row])
    return translations


def load_run(workdir: Path, *, bpe: Path | None = None, average: int | None = None) -> Trained:
    """Reads a finished run of translation; refuses another one, or another vocabulary.

    `average` is how many checkpoints the parameters are the mean of (default: as it was tested).
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
    digest = saved_vocabulary(workdir)
    pieces = gdata.BytePairs.load(bpe or workdir / BPE)
    if pieces.digest() != digest:
        raise ValueError(
            f"{bpe or workdir / BPE} is not the vocabulary that {workdir} was trained with: it has "
            f"{len(pieces):,} pieces, the network {record['vocabulary_size']:,}, or others"
        )
    fields = {field.name for field in dataclasses.fields(models.SSANTranslatorConfig)}
    saved = {k: v for k, v in record["config"]["model"].items() if k in fields}
    saved["select_layers"] = tuple(saved["select_layers"])
    model = models.SSANTranslator(models.SSANTranslatorConfig(**saved), len(pieces))
    search = SearchConfig(**record["search"])
    like = parameters_like(model)
    count = search.average if average is None else average
    if count == 1:
        params, _ = load_params(workdir, like)
    else:
        params, _ = average_params(workdir, like, count)
    return Trained(model, params, pieces, search)


def saved_vocabulary(workdir: Path) -> str:
    """Digest of the vocabulary that a run was trained with, as its checkpoints have it."""
    store = CheckpointStore(workdir / "checkpoints")
    step = store.latest()
    if step is None:
        raise FileNotFoundError(f"{workdir}: no checkpoint is there")
    return store.record(step)["metadata"]["vocabulary"]


# the command --------------------------------------------------------------------------------------

PROG = "python -m experiments.ssan translate"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateConfig:
    """Translates the lines of standard input with a finished run."""

    workdir: Path
    """Work folder of the run."""
    beam_size: int | None = None
    """Targets that are followed (default: as the run was tested); 1 is greedy search."""
    length_penalty: float | None = None
    """Exponent of the length that scores are divided by (default: as the run was tested)."""
    average: int | None = None
    """Use the mean of so many of the newest checkpoints (default: as the run was tested)."""
    batch_sentences: int | None = None
    """Sentences that are translated at once (default: as the run was tested)."""
    bpe: Path | None = None
    """File of the run's byte pairs (default: that in the work folder)."""
    references: Path | None = None
    """Text to score the translations against: BLEU is printed to standard error."""


def main(args: list[str], lines: TextIO = sys.stdin, out: TextIO = sys.stdout) -> int:
    """Runs the command; returns its exit status."""
    show_version(args)
    options = tyro.cli(TranslateConfig, args=args, prog=PROG)
    changes = {
        name: value
        for name in ("beam_size", "length_penalty", "batch_sentences")
        if (value := getattr(options, name)) is not None
    }
    with refusals():
        references = None
        if options.references is not None:
            references = lines_of(options.references.read_text("utf-8"))
        trained = load_run(options.workdir, bpe=options.bpe, average=options.average)
        search = dataclasses.replace(trained.search, average=1, **changes)
        texts = lines_of(lines.read())
        if references is not None and len(references) != len(texts):
            raise ValueError(
                f"{options.references} has {len(references):,} lines, the input {len(texts):,}"
            )
        translations = run_translations(dataclasses.replace(trained, search=search), texts)
    # a file gets the translations as they are; a terminal is not to obey them
    write = say if out.isatty() else print
    for text in translations:
        write(text, file=out)
    if references is not None:
        scored = corpus_bleu(translations, references)
        say(f"BLEU {scored.score:.2f} {scored.signature}", file=sys.stderr)
    return 0


def lines_of(text: str) -> list[str]:
    r"""The lines of a text; only "\n" and "\r\n" end one."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
