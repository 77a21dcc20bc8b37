"""A trained translator from a folder, and translation of texts."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import jax
import numpy as np

from gatedjax import data as gdata
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import NOT_NEGATIVE, at_least, check_options
from gatedjax._utils.json import from_json
from gatedjax._utils.limits import MOST_LENGTH
from gatedjax._utils.types import Params, Tree
from gatedjax.data.batches._texts import one_pass
from gatedjax.models import (
    SSANTranslationTask,
    SSANTranslator,
    SSANTranslatorConfig,
    translate,
)
from gatedjax.models.ssan.translation import STOP
from gatedjax.text.models._folders import BYTE_PAIRS, explain_faults, open_folder


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Options of the beam search for translations."""

    beam_size: Annotated[int, at_least(1)] = 4
    """Width of the beam; 1 is greedy search."""
    length_penalty: Annotated[float, NOT_NEGATIVE] = 0.6
    """Scores are divided by the length to this power."""
    extra: Annotated[int, at_least(1, MOST_LENGTH)] = 50
    """Largest number of pieces by which a translation may be longer than its source."""
    average: Annotated[int, at_least(1)] = 1
    """Number of the newest checkpoints that are averaged; 1 uses the best parameters."""
    batch_sentences: Annotated[int, at_least(1)] = 64
    """Number of sentences in a batch."""

    def __post_init__(self) -> None:
        """Raises ValueError for a number that is out of range."""
        check_options(self)


# A function of the module, so that it is compiled only once for each network and search.
@functools.partial(jax.jit, static_argnums=(0, 1), inline=True)
def _decode(model: SSANTranslator, search: SearchConfig, params: Params, batch: Tree) -> jax.Array:
    names = ("beam_size", "length_penalty", "extra")
    options = {name: getattr(search, name) for name in names}
    return translate(model, params, batch, **options).tokens[:, 0]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Translator:
    """A trained translator."""

    model: SSANTranslator
    params: Params
    bpe: gdata.BytePairs
    search: SearchConfig

    def decode(self, params: Params, batch: Tree) -> jax.Array:
        """Returns the best translations, int [B, L]; ids after the stop token have no meaning."""
        return _decode(self.model, self.search, params, batch)


def encode(bpe: gdata.BytePairs, texts: Sequence[str]) -> list[np.ndarray]:
    """Encodes each text as the ids of its pieces and the stop token, int32 [n]."""
    return [np.array([*ids, STOP], np.int32) for ids in bpe.encode_all(texts)]


def parameters_like(model: SSANTranslator) -> Tree:
    """Returns the shapes of the parameters of a network."""
    stop, length = np.full((1, 1), STOP, np.int32), np.ones(1, np.int32)
    batch: Tree = {"tokens": stop, "targets": stop, "lengths": length, "target_lengths": length}
    return jax.eval_shape(lambda: SSANTranslationTask(model).init(jax.random.key(0), batch))


def translate_texts(translator: Translator, texts: Sequence[str]) -> list[str]:
    """Translates texts with the beam search of a translator."""
    model, search = translator.model, translator.search
    ids = encode(translator.bpe, [text.strip() for text in texts])
    # An empty text has only the stop token. Its translation is empty without the network.
    real = [i for i, pieces in enumerate(ids) if len(pieces) > 1]
    translations = [""] * len(texts)
    if not real:
        return translations
    order = model.config.order
    if order.positions == "learned":
        longest = max(len(ids[i]) for i in real)
        if longest + search.extra > order.max_length:
            raise ValueError(
                f"a text must have at most {order.max_length - search.extra} pieces, because "
                f"model.max_length is {order.max_length} and its translation may have "
                f"{search.extra} more, got {longest}: shorten it"
            )
    for batch, rows in one_pass([ids[i] for i in real], search.batch_sentences):
        texts_of_batch = {name: batch[name] for name in ("tokens", "lengths")}
        tokens = np.asarray(translator.decode(translator.params, texts_of_batch))
        for row, index in rows:
            translations[real[index]] = translator.bpe.decode(tokens[row])
    return translations


def open_translator(
    folder: Path, *, bpe: Path | None = None, average: int | None = None
) -> Translator:
    """Opens a run or its export; `average` newest checkpoints are averaged, None as configured."""
    run_folder = open_folder(folder, "translation", BYTE_PAIRS)
    if run_folder.is_export and average is not None:
        raise ValueError(
            f"average must be None except for the work folder of a run, got {average!r} for the "
            f"export {folder}: leave it out"
        )
    with explain_faults(folder):
        settings = run_folder.config["config"]
        place = bpe or folder / BYTE_PAIRS
        pieces = gdata.BytePairs.load(place)
        # Other byte pairs number the pieces in another way, and the translation would be noise.
        if pieces.digest() != run_folder.config["vocabulary"]:
            raise ValueError(
                f"{place} must be the vocabulary that {folder} was trained with, got another: "
                "leave it out, or give the file of the run"
            )
        # The configuration of a run also has options of the training.
        known = {field.name for field in dataclasses.fields(SSANTranslatorConfig)}
        saved = {name: value for name, value in settings["model"].items() if name in known}
        model = SSANTranslator(from_json(SSANTranslatorConfig, saved), len(pieces))
        search = SearchConfig(**settings["search"])
    params = run_folder.params(
        parameters_like(model), search.average if average is None else average
    )
    return Translator(model, params, pieces, search)
