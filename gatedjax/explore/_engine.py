"""The computations of the explorer: the answers to a page about one model or two, as JSON."""

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from gatedjax._utils.types import Json
from gatedjax._version import __version__
from gatedjax.explore._effects import MOST_REMOVED
from gatedjax.explore._lexicon_view import LexiconView, LinearView, StatesView
from gatedjax.explore._network_view import NetworkView
from gatedjax.explore._pair_view import PairView
from gatedjax.explore._reader_view import ReaderView
from gatedjax.explore._state import Mode, State, check_state
from gatedjax.explore._translator_view import TranslatorView
from gatedjax.explore._views import View
from gatedjax.text.answers._prediction import LEXICON, LINEAR, STATES, TARGETS
from gatedjax.text.models._folders import kind_of
from gatedjax.text.models._network import load_run
from gatedjax.text.models._reader import Reader
from gatedjax.text.models._saved import load_model
from gatedjax.text.models._translator import Translator, open_translator


def view_of(model: Any, name: str, *, tokenized: bool = False) -> View:
    """Returns the view of a model with its name on the page."""
    if isinstance(model, Reader):
        return ReaderView(model, name, tokenized=tokenized)
    if isinstance(model, Translator):
        return TranslatorView(model, name)
    # A lexicon has the kind "text", so it is recognised before the kinds of networks.
    views = {
        LEXICON: LexiconView,
        LINEAR: LinearView,
        STATES: StatesView,
        "pair": PairView,
        "text": NetworkView,
    }
    view: Any = views.get(getattr(model, "network", "")) or views.get(model.kind)
    if view is None:
        raise ValueError(
            "model must be a classifier of texts or pairs, a reader or a translator, got a model "
            f"of the kind {model.kind!r}"
        )
    shown: View = view(model, name)
    return shown


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


@dataclasses.dataclass(eq=False)
class Explorer:
    """The models that a page shows; `answer` may be called by several threads at a time."""

    models: Sequence[Any]  # one or two: TrainedModel, LexiconModel, StatesModel, Reader, Translator
    names: Sequence[str]
    tokenized: bool = False  # texts for a reader are tokens with spaces between them

    def __post_init__(self) -> None:
        # Two models of the same name could not be distinguished on the page.
        if len(set(self.names)) < len(self.names):
            self.names = [f"{name} ({number})" for number, name in enumerate(self.names, 1)]
        self.views = [
            view_of(model, name, tokenized=self.tokenized)
            for model, name in zip(self.models, self.names, strict=True)
        ]
        self._check_sides()
        self._closed = False

    def _check_sides(self) -> None:
        """Raises ValueError if two models cannot stand side by side."""
        if len({type(view) for view in self.views}) > 1:
            classes = [set(model.classes) for model in self.models if hasattr(model, "classes")]
            is_labelled = all(view.labelled for view in self.views)
            if not is_labelled or any(names != classes[0] for names in classes):
                got = " and ".join(f"{view.name} ({view.network})" for view in self.views)
                raise ValueError(
                    "models must be of the same kind, or classify single texts into the same "
                    f"classes, got {got}"
                )
        rules = [view.tokenizer for view in self.views if view.gated]
        if any(rule != rules[0] for rule in rules):
            raise ValueError(
                "networks with gates must split texts into the same tokens, because they share the "
                f"gates that you force, got {' and '.join(self.names)}: show each of them on its "
                "own page"
            )

    def about(self) -> Json:
        """Returns the constants of the page, for JSON."""
        first = self.views[0]
        return {
            "models": [view.about() for view in self.views],
            "modes": list(get_args(Mode)) if any(view.gated for view in self.views) else [],
            "effects": MOST_REMOVED,
            "fields": list(first.fields),
            "title": first.title,
            "example": first.example(),
            "origin": first.describe_example(),
            "library": {"name": "gatedjax", "version": __version__},
        }

    def answer(self, message: Mapping[str, Any]) -> Json:
        """Computes the answer to a state of the page."""
        state = self._begin(message)
        answers = [view.answer(state) for view in self.views]
        # Two models may have the same note, which is shown once.
        notes = list(dict.fromkeys(note for notes_of_view, _ in answers for note in notes_of_view))
        words = [list(map(str.lower, view.split(state.text))) for view in self.views]
        if any(other != words[0] for other in words):
            notes.append("The models split this text into different words.")
        return {"notes": notes, "models": [answer for _, answer in answers]}

    def layers(self, message: Mapping[str, Any]) -> Json:
        """Computes the attention in each layer of each model; None for a model without layers."""
        state = self._begin(message)
        return {"models": [view.layers(state) for view in self.views]}

    def removal(self, message: Mapping[str, Any]) -> Json:
        """Computes the effect of each word: the change of the prediction when it is removed."""
        state = self._begin(message)
        return {"models": [view.effects(state) for view in self.views]}

    def _begin(self, message: Mapping[str, Any]) -> State:
        state = check_state(message)
        self.check_open()
        return state

    def warm_up(self) -> list[threading.Thread]:
        """Starts a thread for each model that compiles its programs for short texts."""
        closed = (lambda: self._closed,)
        warm_ups = [view.warm_up for view in self.views]
        # Daemon threads, because the end of the process should not wait for them.
        threads = [threading.Thread(target=run, args=closed, daemon=True) for run in warm_ups]
        for thread in threads:
            thread.start()
        return threads

    def close(self, seconds: float = -1) -> bool:
        """Prevents new computations, and waits at most `seconds` for running ones (-1: no limit),
        because a process that ends while a thread computes is aborted. True if none is running.
        """
        self._closed = True
        # A list, because `all` would not close the views after the first that is still running.
        results = [view.close(seconds) for view in self.views]
        return all(results)

    def check_sentences(self, name: str) -> None:
        """Raises ValueError unless the models are networks or lexicons with a class for a text."""
        if not all(view.labelled for view in self.views):
            raise ValueError(
                f"{name} must be left out unless the models are networks or lexicons that classify "
                f"single texts, got {self.views[0].network}"
            )

    def check_open(self) -> None:
        """Raises ValueError if the explorer has been closed."""
        if self._closed:
            raise ValueError("the explorer must be open, got a closed one: start it again")
