"""Opening of the models that the explorer shows, and the choice of their views."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatedjax.explore._lexicon_view import LexiconView
from gatedjax.explore._pair_view import PairView
from gatedjax.explore._reader_view import ReaderView
from gatedjax.explore._states_view import StatesView
from gatedjax.explore._translator_view import TranslatorView
from gatedjax.explore._views import View
from gatedjax.text._folders import kind_of
from gatedjax.text._prediction import LEXICON, STATES, TARGETS
from gatedjax.text._reader import Reader
from gatedjax.text._run import load_run
from gatedjax.text._saved import load_model
from gatedjax.text._states import EncodedText
from gatedjax.text._translator import Translator, open_translator


def view_of(
    model: Any, *, tokenized: bool = False, states: Sequence[EncodedText] | None = None
) -> View | None:
    """Returns the view of a model, or None for a classifier of single texts, which has no view."""
    if getattr(model, "network", None) == STATES:
        return StatesView(model, states)
    if states is not None:
        raise ValueError(
            f"states must be None for a model that reads texts, got {states!r:.60}: leave it out"
        )
    if isinstance(model, Reader):
        return ReaderView(model, tokenized=tokenized)
    if isinstance(model, Translator):
        return TranslatorView(model)
    # A lexicon has the kind "text", so it is recognised before the kinds of networks.
    if getattr(model, "network", None) == LEXICON:
        return LexiconView(model)
    if model.kind == "pair":
        return PairView(model)
    if model.kind != "text":
        raise ValueError(
            "model must be a classifier of texts or pairs, a reader or a translator, got a model "
            f"of the kind {model.kind!r}"
        )
    return None


def open_model(folder: Path) -> Any:
    """Opens a model that the explorer can show."""
    kind = kind_of(folder)
    if kind == "cloze":
        return Reader.open(folder)
    if kind == "translation":
        return open_translator(folder)
    if kind == "run":
        return load_run(folder)
    return load_model(folder, ("text", "pair", *TARGETS))
