"""Loading of the models that `gatedjax train` wrote. JAX is imported only for a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatedjax.export._folder import read_config
from gatedjax.export._kinds import check_kind
from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._prediction import LEXICON, STATES, TARGETS


def load_model(
    folder: str | Path, kinds: Sequence[str], tokenizer: Any = None, encoder: Any = None
) -> Any:
    """Loads a `LexiconModel`, a `StatesModel`, or the `TrainedModel` of a network. JAX is imported
    only for a network.
    """
    config = read_config(folder)
    kind = check_kind(config, kinds, folder)  # type: ignore[arg-type]
    if kind == "text" and config.get("network") == STATES:
        if tokenizer is not None:
            raise ValueError(
                "tokenizer must be None for a model of states, whose tokens are those of the "
                f"encoder, got {tokenizer!r}"
            )
        from gatedjax.text._states_model import StatesModel

        return StatesModel.load(folder, encoder)
    if encoder is not None:
        raise ValueError(f"encoder must be None for {folder}, which is no model of states")
    if kind in ("text", *TARGETS) and config.get("network") == LEXICON:
        return LexiconModel.load(folder, tokenizer)
    from gatedjax.text._model import TrainedModel

    return TrainedModel.load(folder, kinds, tokenizer)
