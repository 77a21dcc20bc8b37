"""Loading of the models that `gatedjax train` wrote. JAX is imported only for a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatedjax.export._card import check_kind
from gatedjax.export._folder import read_config
from gatedjax.text.answers._prediction import LEXICON, OF_WORDS, STATES, TARGETS
from gatedjax.text.models._lexicon import LexiconModel, LinearModel


def load_model(
    folder: str | Path, kinds: Sequence[str], tokenizer: Any = None, encoder: Any = None
) -> Any:
    """Loads a `LexiconModel`, a `LinearModel`, a `StatesModel`, or the `TrainedModel` of a network.
    JAX is imported only for a network.
    """
    config = read_config(folder)
    kind = check_kind(config, kinds, folder)  # type: ignore[arg-type]
    if kind == "text" and config.get("network") == STATES:
        if tokenizer is not None:
            raise ValueError(
                "tokenizer must be None for a model of states, whose tokens are those of the "
                f"encoder, got {tokenizer!r}"
            )
        from gatedjax.text.models._states import StatesModel

        return StatesModel.load(folder, encoder)
    if encoder is not None:
        raise ValueError(f"encoder must be None for {folder}, which is no model of states")
    if kind in ("text", *TARGETS) and config.get("network") in OF_WORDS:
        model = LexiconModel if config["network"] == LEXICON else LinearModel
        return model.load(folder, tokenizer)
    from gatedjax.text.models._network import TrainedModel

    return TrainedModel.load(folder, kinds, tokenizer)
