"""The page in a notebook: the same script, with messages of the kernel instead of a server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gatedjax._utils.missing import missing
from gatedjax._utils.types import Json
from gatedjax.explore._engine import Explorer, open_model
from gatedjax.explore._sentences import Session
from gatedjax.explore._server import page_file
from gatedjax.text.models._network import TrainedModel
from gatedjax.text.models._reader import Reader
from gatedjax.text.models._translator import Translator
from gatedjax.text.sources._open import open_table


def explorer(model: Any, against: Any = None, *, text: str = "", data: object = None) -> Any:
    """Makes a widget that shows the words on which a prediction rests, and can force their gates.

        >>> from gatedjax.text import TextClassifier
        >>> labels = {"dull": "bad", "slow": "bad", "warm": "good", "bright": "good"}
        >>> rows = [(f"{word} film {n}", label) for word, label in labels.items() for n in "abcde"]
        >>> widget = explorer(TextClassifier.train(rows), text="a dull film")

    Args:
      model: a trained model of this library for texts: a `TextClassifier`, `PairClassifier`,
        `MultiLabelTextClassifier`, `TextRegressor` or `OrdinalTextClassifier`, or the folder of
        such a model, a reader or a translator.
      against: a second model, which is shown for comparison.
      text: the text that is shown first. By default it is the sentence of `data` with the largest
        error. Without `data` it is an extract of a training text for a lexicon, and frequent words
        of the vocabulary for a network.
      data: labelled texts to browse: the path of a file (.csv, .jsonl, ...), rows (text, label), a
        frame or a dict of columns, or another form that `TextClassifier.evaluate` accepts.

    Returns:
      A widget of anywidget; its attribute `state` is the current state of the page.

    Raises:
      ImportError: if anywidget is not installed (`pip install anywidget`).
      TypeError, ValueError: if model is not a model for texts.
    """
    # A missing package is reported before a model is loaded, which may take long.
    kind = _widget_class()
    sources = [model] if against is None else [model, against]
    models = [_load_trained(source) for source in sources]
    names = [getattr(source, "network", type(source).__name__.lower()) for source in models]
    engine = Explorer(models, names)
    if data is None:
        return kind(Session(engine), {"text": text})
    engine.check_sentences("data")
    return kind(Session(engine, open_table(data)), {"text": text})


def _load_trained(model: Any) -> Any:
    """Returns the trained model of a classifier or of a folder, see `Explorer.models`."""
    if isinstance(model, TrainedModel | Reader | Translator):
        return model
    if hasattr(model, "_get_trained"):
        return model._get_trained()
    if isinstance(model, str) or hasattr(model, "__fspath__"):
        return open_model(Path(model))
    raise TypeError(
        f"model must be a TextClassifier or the folder of one, got {model!r:.40}: pass a trained "
        "model"
    )


def answer_message(session: Session, content: Any) -> Json:
    """Answers {"id", "message"} of the widget's page with {"id", "answer"} or {"id", "error"}."""
    number = content.get("id") if isinstance(content, Mapping) else None
    message = content.get("message") if isinstance(content, Mapping) else None
    if not isinstance(message, Mapping):
        return {"id": number, "error": f"message must be an object, got {message!r:.40}"}
    try:
        return {"id": number, "answer": session.ask(message)}
    except ValueError as error:
        return {"id": number, "error": str(error)}


def _widget_class() -> Any:
    """Returns the class `Widget(session, state)` of the explorer in a notebook."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise ImportError(missing("explorer() needs", "anywidget")) from error

    class Widget(anywidget.AnyWidget):
        """The explorer in a notebook, a widget of anywidget."""

        _esm = page_file("explorer.js").decode()
        _css = page_file("explorer.css").decode()
        state = traitlets.Dict().tag(sync=True)

        def __init__(self, session: Session, state: Json) -> None:
            super().__init__(state=state)
            self.on_msg(
                lambda widget, content, buffers: self.send(answer_message(session, content))
            )

    return Widget
