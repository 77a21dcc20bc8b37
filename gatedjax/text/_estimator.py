"""The base class of the models for texts: parameters, training, saving and loading."""

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from gatedjax._utils.choices import suggestion
from gatedjax._utils.types import Json
from gatedjax.export import BadFile, ModelCard
from gatedjax.text._labels import array_of
from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._lexicon_training import train_lexicon
from gatedjax.text._model import TrainedModel
from gatedjax.text._options import TextOptions, check_options
from gatedjax.text._prediction import LEXICON, STATES, TARGETS
from gatedjax.text._saved import load_model
from gatedjax.text._states_model import StatesModel
from gatedjax.text._states_training import train_states
from gatedjax.text._stored_options import options_from_json
from gatedjax.text._training import Data, train_model
from gatedjax.text._work_folder import WorkFolder

C = TypeVar("C", bound=type)


def explains_unknown_parameters(kind: C) -> C:
    """Changes a class so that an error about a parameter of its constructor names this class. A
    text classifier that gets vectors of an encoder and no model becomes a model of these vectors.
    """
    changed: Any = kind  # because mypy lets nobody assign a constructor
    init = changed.__init__

    @functools.wraps(init)
    def take(self: Any, *args: Any, **params: Any) -> None:
        if (message := _unknown_parameter(self, params)) is not None:
            raise TypeError(message)
        # The value that a user gives must stay, because `sklearn.clone` compares identities.
        has_vectors = params.get("states") is not None or params.get("encoder") is not None
        if has_vectors and not args and self._kind == "text":
            params.setdefault("model", STATES)
        init(self, *args, **params)

    changed.__init__ = take
    return kind


def _unknown_parameter(estimator: Any, params: Iterable[str]) -> str | None:
    """Returns a message about the first of `params` that is no parameter; None without one."""
    names = [field.name for field in dataclasses.fields(estimator)]
    for name in params:
        if name not in names:
            return (
                f"{type(estimator).__name__} has no parameter {name!r}.{suggestion(name, names)} "
                f"Its parameters are {', '.join(names)}."
            )
    return None


@explains_unknown_parameters
@dataclasses.dataclass(eq=False, repr=False)
class TextEstimator(TextOptions):
    """The base class of the classifiers and of the tagger, with the interface of scikit-learn."""

    _kind: ClassVar[str]

    def __post_init__(self) -> None:
        """Leaves the parameters unchanged, because `sklearn.clone` compares identities."""

    def get_params(self, deep: bool = True) -> Json:
        """Returns the parameters of the constructor, with the interface of scikit-learn.

        Args:
          deep: has no effect, because no parameter is itself a model with parameters.

        Returns:
          The value of each parameter by name.
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Sets parameters of the constructor.

        Args:
          **params: new values by name.

        Returns:
          The model itself.

        Raises:
          ValueError: for a name that is not a parameter.
        """
        if (message := _unknown_parameter(self, params)) is not None:
            raise ValueError(message)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @property
    def options(self) -> TextOptions:
        """The parameters of the constructor as `TextOptions`, the options of a training."""
        return TextOptions(**self.get_params())

    def save(
        self, folder: str | Path, *, card: ModelCard | None = None, overwrite: bool = False
    ) -> Path:
        """Writes the model to a folder, atomically.

        Args:
          folder: the new folder.
          card: a description of the model, which is written to its README.
          overwrite: True replaces an existing folder.

        Returns:
          The path of the folder.
        """
        return self._get_trained().save(folder, card=card, overwrite=overwrite)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        tokenizer: Callable[[str], Iterable[str]] | None = None,
        encoder: Callable[[list[str]], Iterable[Any]] | None = None,
    ) -> Self:
        """Loads a model that `save` or `gatedjax train` wrote; no code in the folder is executed.

        The parameters of the result are those of the training, except paths and functions, which a
        folder does not have.

        Args:
          folder: the folder of the model.
          tokenizer: the function from a text to its tokens with which the model was trained. A
            folder has no code, so that it must be passed again. It is compared with the tokens that
            the function gave for a sample text.
          encoder: the encoder with which the model was trained, for model="states". None reads
            vectors, but no texts.

        Returns:
          The trained model.

        Raises:
          FileNotFoundError, ValueError: if the folder does not have such a model, or needs another
            tokenizer or encoder.
        """
        trained = load_model(folder, (cls._kind,), tokenizer, encoder)
        try:
            params = options_from_json(trained.options)
        except ValueError as error:
            raise BadFile(f"{folder} must have the options of a training, got {error}") from error
        # The folder has no code, so that the functions are those of the caller.
        functions: Json = {"encoder": encoder, "tokenizer": tokenizer}
        estimator = cls(**{"model": trained.network, **params, **functions})
        estimator._take(trained)
        return estimator

    def _train(
        self, *tables: Data | None, workdir: str | Path | None = None, **arguments: Any
    ) -> Self:
        """Trains on training data, and validation and test data or None; returns the estimator."""
        options = self.options
        check_options(options, self._kind)
        table, validation, test = tables
        with _folder(workdir) as folder:
            trained = train_any(
                self._kind, table, options, folder, validation=validation, test=test, **arguments
            )
        self._take(trained)
        return self

    def _take(self, trained: TrainedModel | LexiconModel | StatesModel) -> None:
        # The names end with "_", because scikit-learn takes such attributes for results of a fit.
        self.model_ = trained
        self.classes_ = array_of(trained.classes)
        self.report_ = trained.report

    def _get_trained(self) -> Any:
        if not hasattr(self, "model_"):
            raise _not_fitted(
                f"{type(self).__name__} must be trained first, got an untrained model: call fit or "
                "train"
            )
        return self.model_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __repr__(self) -> str:
        """Returns the changed parameters; of a trained model also its classes and its density."""
        is_trained = hasattr(self, "model_")
        shown = (
            f"{field.name}={value!r}"
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) not in (field.default, {})
            or (is_trained and field.name == "model")
        )
        params = f"{type(self).__name__}({', '.join(shown)})"
        if not is_trained:
            return params
        facts = [f"{len(self.model_.classes)} classes"] if self.model_.classes else []
        if (density := self.report_.get("validation", {}).get("density")) is not None:
            facts.append(f"density {density:.2f}")
        return f"<{params}: {', '.join(facts) or 'trained'}>"


def train_any(
    kind: str,
    table: Any,
    options: TextOptions,
    folder: Path,
    *,
    progress: bool = False,
    **arguments: Any,
) -> TrainedModel | LexiconModel | StatesModel:
    """Trains the model that the options name; `folder` and `progress` are for a network."""
    if kind == "text" and options.model == STATES:
        return train_states(table, options, **arguments)
    for name in ("validation_states", "test_states"):
        if (given := arguments.pop(name, None)) is not None:
            raise ValueError(
                f"{name} must be None unless there are states of the training texts, got "
                f"{given!r:.60}: give states="
            )
    if kind in ("text", *TARGETS) and options.model == LEXICON:
        return train_lexicon(table, options, kind=kind, **arguments)
    return train_model(kind, table, options, folder, progress=progress, **arguments)


def _not_fitted(message: str) -> Exception:
    try:
        from sklearn.exceptions import NotFittedError
    except ImportError:
        return AttributeError(message)
    return NotFittedError(message)


@contextlib.contextmanager
def _folder(workdir: str | Path | None) -> Iterator[Path]:
    if workdir is None:
        with tempfile.TemporaryDirectory(prefix="gatedjax-") as path:
            yield Path(path)
        return
    with WorkFolder(Path(workdir).expanduser()) as folder:
        yield folder.path
