"""A trained translator out of a folder, and how it translates texts."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from gatedjax import data as gdata
from gatedjax import export
from gatedjax._utils.groups import groups_of, option_names
from gatedjax._utils.numbers import make_plain
from gatedjax._utils.types import Json, Params, Tree
from gatedjax.data.batches._sequences import one_pass
from gatedjax.export._tensors import check_finite
from gatedjax.models import (
    SSANTranslationTask,
    SSANTranslator,
    SSANTranslatorConfig,
    translate,
)
from gatedjax.models._checks import check_at_least
from gatedjax.models.ssan.translation import STOP
from gatedjax.text._folders import BYTE_PAIRS, described, is_exported, opened
from gatedjax.training import CheckpointStore, average_params, load_params
from gatedjax.training.log import read_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How translations are searched."""

    beam_size: int = 4
    """Targets that are followed; 1 is greedy search."""
    length_penalty: float = 0.6
    """Exponent of the length that scores are divided by."""
    extra: int = 50
    """A translation has at most so many pieces more than its source."""
    average: int = 1
    """Translate with the mean of so many of the newest checkpoints; 1 takes the best parameters."""
    batch_sentences: int = 64
    """Sentences that are translated at once."""

    def __post_init__(self) -> None:
        """Refuses a search that finds nothing."""
        make_plain(self)
        check_at_least(self, 1, "beam_size", "extra", "average", "batch_sentences")
        if not 0 <= self.length_penalty < float("inf"):
            raise ValueError(f"length_penalty must be at least 0, got {self.length_penalty}")


# compiled once for each network and search, whatever asks for it
@functools.partial(jax.jit, static_argnums=(0, 1), inline=True)
def _decode(model: SSANTranslator, search: SearchConfig, params: Params, batch: Tree) -> jax.Array:
    return translate(
        model,
        params,
        batch,
        beam_size=search.beam_size,
        length_penalty=search.length_penalty,
        extra=search.extra,
    ).tokens[:, 0]


@dataclasses.dataclass(frozen=True, eq=False)
class Translator:
    """A trained network, ready to translate."""

    model: SSANTranslator
    params: Params
    bpe: gdata.BytePairs
    search: SearchConfig

    def decode(self, params: Params, batch: Tree) -> jax.Array:
        """The best translation of each row of a batch [B, L]; a pure function of its arguments."""
        return _decode(self.model, self.search, params, batch)


def encode(bpe: gdata.BytePairs, texts: Sequence[str]) -> list[np.ndarray]:
    """Ids of texts, the stop token at the end."""
    return [np.array([*ids, STOP], np.int32) for ids in bpe.encode_all(texts)]


def parameters_like(model: SSANTranslator) -> Tree:
    """Shapes of the parameters."""
    one, length = np.full((1, 1), STOP, np.int32), np.ones(1, np.int32)
    batch: Tree = {"tokens": one, "targets": one, "lengths": length, "target_lengths": length}
    return jax.eval_shape(lambda: SSANTranslationTask(model).init(jax.random.key(0), batch))


def translate_texts(translator: Translator, texts: Sequence[str]) -> list[str]:
    """Translates texts, in their order; an empty one stays empty, a too long one is refused."""
    model, search = translator.model, translator.search
    ids = encode(translator.bpe, [text.strip() for text in texts])
    real = [i for i, one in enumerate(ids) if len(one) > 1]
    translations = [""] * len(texts)
    if not real:
        return translations
    order = model.config.order
    if order.positions == "learned":
        longest = max(len(ids[i]) for i in real)
        if longest + search.extra > order.max_length:
            raise ValueError(
                f"model.max_length {order.max_length}: a text has {longest} pieces, and its "
                f"translation may have {search.extra} more (--search.extra)"
            )
    decode = functools.partial(_decode, translator.model, search)
    for batch, rows in one_pass([ids[i] for i in real], search.batch_sentences):
        tokens = np.asarray(decode(translator.params, {n: batch[n] for n in ("tokens", "lengths")}))
        for row, index in rows:
            translations[real[index]] = translator.bpe.decode(tokens[row])
    return translations


def load_run(workdir: Path, *, bpe: Path | None = None, average: int | None = None) -> Translator:
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
    pieces = _pieces(bpe or workdir / BYTE_PAIRS, digest, workdir, record["vocabulary_size"])
    model = _model(record["config"]["model"], pieces)
    search = SearchConfig(**record["search"])
    like = parameters_like(model)
    count = search.average if average is None else average
    if count == 1:
        params, _ = load_params(workdir, like)
    else:
        params, _ = average_params(workdir, like, count)
    check_finite(params, workdir)
    return Translator(model, params, pieces, search)


def open_translator(
    folder: Path, *, bpe: Path | None = None, average: int | None = None
) -> Translator:
    """Reads what `gatedjax export` wrote of such a run, or, as `load_run`, the run itself."""
    if not is_exported(folder):
        return load_run(folder, bpe=bpe, average=average)
    config = opened(folder, "translation", BYTE_PAIRS)
    if average is not None:
        raise ValueError(
            f"{folder} holds one set of parameters: average is for the work folder of a run"
        )
    with described(folder):
        settings = config["config"]
        pieces = _pieces(bpe or folder / BYTE_PAIRS, config["vocabulary"], folder)
        model = _model(settings["model"], pieces)
        search = SearchConfig(**settings["search"])
        params, _ = export.load(folder, parameters_like(model))
    return Translator(model, params, pieces, search)


def _pieces(place: Path, digest: str, folder: Path, size: int | None = None) -> gdata.BytePairs:
    """The byte pairs of a file, if they are those of a digest; `size` is what the network has."""
    pieces = gdata.BytePairs.load(place)
    if pieces.digest() != digest:
        network = "" if size is None else f", the network {size:,}"
        raise ValueError(
            f"{place} is not the vocabulary that {folder} was trained with: it has "
            f"{len(pieces):,} pieces{network}, or others"
        )
    return pieces


def _model(settings: Json, pieces: gdata.BytePairs) -> SSANTranslator:
    known = {*option_names(SSANTranslatorConfig), *groups_of(SSANTranslatorConfig)}
    saved: Json = {name: value for name, value in settings.items() if name in known}
    return SSANTranslator(SSANTranslatorConfig(**saved), len(pieces))


def saved_vocabulary(workdir: Path) -> str:
    """Digest of the vocabulary that a run was trained with, as its checkpoints have it."""
    store = CheckpointStore(workdir / "checkpoints")
    step = store.latest()
    if step is None:
        raise FileNotFoundError(f"{workdir}: no checkpoint is there")
    return store.record(step)["metadata"]["vocabulary"]
