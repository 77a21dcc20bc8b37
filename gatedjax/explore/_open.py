"""Opening of the models that the explorer shows, and the choice of their views."""

from pathlib import Path
from typing import Any

from gatedjax.explore._lexicon_view import LexiconView
from gatedjax.explore._views import PairView, ReaderView, TranslatorView, View
from gatedjax.text._folders import kind_of
from gatedjax.text._prediction import LEXICONS, STATES, TARGETS
from gatedjax.text._reader import Reader
from gatedjax.text._run import load_run
from gatedjax.text._saved import load_model
from gatedjax.text._translator import Translator, open_translator


def view_of(model: Any, *, tokenized: bool = False) -> View | None:
    """Returns the view of a model, or None for a classifier of single texts, which has no view.

    A view computes the content of the page for models that a page with one text and its gates does
    not fit.

    Args:
      model: a trained model: a `TrainedModel`, a `LexiconModel`, a `Reader` or a `Translator`.
      tokenized: True if texts for a reader are already tokens with spaces between them.

    Raises:
      ValueError: for a model of another kind.
    """
    if isinstance(model, Reader):
        return ReaderView(model, tokenized=tokenized)
    if isinstance(model, Translator):
        return TranslatorView(model)
    if model.kind in TARGETS:
        raise ValueError(
            f"model must have a class for each text, got one of the kind {model.kind!r}: "
            "`gatedjax explain` shows its words"
        )
    # A lexicon has the kind "text", so it is recognised before the kinds of networks.
    if getattr(model, "network", None) in LEXICONS:
        return LexiconView(model)
    if getattr(model, "network", None) == STATES:
        raise ValueError(
            "model must be a model that reads texts, got one that reads the vectors of an encoder: "
            "`gatedjax explain MODEL --states FILE` shows its open tokens"
        )
    if model.kind == "pair":
        return PairView(model)
    if model.kind != "text":
        raise ValueError(
            "model must be a classifier of texts or pairs, a reader or a translator, got a model "
            f"of the kind {model.kind!r}"
        )
    return None


def open_model(folder: Path) -> Any:
    """Opens a model that the explorer can show.

    Args:
      folder: the folder of a model, or the work folder of a run.

    Returns:
      The trained model: a `TrainedModel`, `Reader`, `Translator` or `LexiconModel`.

    Raises:
      FileNotFoundError, ValueError: if the folder does not have such a model.
    """
    kind = kind_of(folder)
    if kind == "cloze":
        return Reader.open(folder)
    if kind == "translation":
        return open_translator(folder)
    if kind == "run":
        return load_run(folder)
    return load_model(folder, ("text", "pair"))
