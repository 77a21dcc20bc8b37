"""A trained translator out of a folder, and how it translates texts."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from gatedjax import data as gdata
from gatedjax._utils.groups import groups_of, option_names
from gatedjax._utils.numbers import make_plain
from gatedjax._utils.types import Json, Params, Tree
from gatedjax.data.batches._sequences import one_pass
from gatedjax.models import (
    SSANTranslationTask,
    SSANTranslator,
    SSANTranslatorConfig,
    translate,
)
from gatedjax.models._checks import check_at_least
from gatedjax.models.ssan.translation import STOP
from gatedjax.text._folders import BYTE_PAIRS, described, open_folder


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


def open_translator(
    folder: Path, *, bpe: Path | None = None, average: int | None = None
) -> Translator:
    """Reads the translator of a run, or of its export.

    Args:
      folder: the work folder of the run, or what `gatedjax export` wrote of it.
      bpe: the file of the byte pairs, which must be those of the run; None takes the folder's own.
      average: of a run, how many of the newest checkpoints the parameters are the mean of; None
        takes the number that the run was tested with.

    Raises:
      FileNotFoundError, ValueError: for a folder that holds no such run, or other byte pairs.
    """
    found = open_folder(folder, "translation", BYTE_PAIRS)
    if found.is_export and average is not None:
        raise ValueError(
            f"{folder} holds one set of parameters: average is for the work folder of a run"
        )
    with described(folder):
        settings = found.config["config"]
        place = bpe or folder / BYTE_PAIRS
        pieces = gdata.BytePairs.load(place)
        if pieces.digest() != found.config["vocabulary"]:
            raise ValueError(f"{place} is not the vocabulary that {folder} was trained with")
        model = _model(settings["model"], pieces)
        search = SearchConfig(**settings["search"])
    params = found.params(parameters_like(model), search.average if average is None else average)
    return Translator(model, params, pieces, search)


def _model(settings: Json, pieces: gdata.BytePairs) -> SSANTranslator:
    known = {*option_names(SSANTranslatorConfig), *groups_of(SSANTranslatorConfig)}
    saved: Json = {name: value for name, value in settings.items() if name in known}
    return SSANTranslator(SSANTranslatorConfig(**saved), len(pieces))
