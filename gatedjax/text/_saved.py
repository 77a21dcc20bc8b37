"""Loading of the models that `gatedjax train` wrote. JAX is imported only for a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatedjax.export._folder import read_config
from gatedjax.export._kinds import check_kind
from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._prediction import LEXICONS, TARGETS


def load_model(folder: str | Path, kinds: Sequence[str], tokenizer: Any = None) -> Any:
    """Loads a `LexiconModel`, or the `TrainedModel` of a network.

    JAX is imported only for a network.

    Args:
      folder: the folder of the model.
      kinds: the accepted kinds of models, among "text", "pair", "tags" and `TARGETS`.
      tokenizer: the function that splits texts, for a model that was trained with one; else None.

    Raises:
      FileNotFoundError, ValueError: if the folder does not have a model, has another kind of model,
        is damaged, or was written by a newer version.
    """
    config = read_config(folder)
    kind = check_kind(config, kinds, folder)  # type: ignore[arg-type]
    if kind in ("text", *TARGETS) and config.get("network") in LEXICONS:
        return LexiconModel.load(folder, tokenizer)
    from gatedjax.text._model import TrainedModel

    return TrainedModel.load(folder, kinds, tokenizer)
