"""The base class of the models for texts: parameters, training, saving and loading."""

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from gatedjax._utils.choices import suggestion
from gatedjax._utils.types import Json
from gatedjax.export import BadFile, ModelCard
from gatedjax.text._options import TextOptions, check_options, options_from_json
from gatedjax.text.answers._prediction import STATES, WITHOUT_NETWORK
from gatedjax.text.fit._fit import train_any
from gatedjax.text.models._saved import load_model
from gatedjax.text.sources._labels import array_of

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
        if params.get("encoder") is not None and not args and self._kind == "text":
            params.setdefault("model", STATES)
        init(self, *args, **params)

    changed.__init__ = take
    return kind


def _unknown_parameter(estimator: Any, params: Iterable[str]) -> str | None:
    """Returns a message about the first unknown name in `params`, or None."""
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

        The result has the parameters of the training, except paths and functions, which a folder
        does not store.

        Args:
          folder: the folder of the model.
          tokenizer: the function from a text to its tokens with which the model was trained. A
            folder contains no code, so pass it again. Its tokens for a sample text are compared
            with the tokens in training.
          encoder: the encoder with which the model was trained, for model="states". A
            folder contains no code, so pass it again.

        Returns:
          The trained model.

        Raises:
          FileNotFoundError, ValueError: if the folder contains no such model, or needs another
            tokenizer or encoder.
        """
        trained = load_model(folder, (cls._kind,), tokenizer, encoder)
        try:
            params = options_from_json(trained.options)
        except ValueError as error:
            raise BadFile(f"{folder} must have the options of a training, got {error}") from error
        # The folder has no code, so the caller passes the functions again.
        functions: Json = {"encoder": encoder, "tokenizer": tokenizer}
        estimator = cls(**{"model": trained.network, **params, **functions})
        estimator._take(trained)
        return estimator

    def _train(
        self,
        data: Any,
        validation: Any = None,
        test: Any = None,
        *,
        opener: Callable[[Any], Any],
        workdir: str | Path | None = None,
        **arguments: Any,
    ) -> Self:
        """Trains on data that `opener` opens as tables; returns the estimator."""
        options = self.options
        table = opener(data)
        parts = {"validation": validation, "test": test}
        parts = {name: None if part is None else opener(part) for name, part in parts.items()}
        check_options(options, self._kind)
        with contextlib.ExitStack() as stack:
            folder = None if workdir is None else Path(workdir).expanduser()
            if options.model not in WITHOUT_NETWORK:
                # Its module imports JAX, which only a network needs.
                from gatedjax.text.fit._network import work_folder

                if folder is None:
                    made = tempfile.TemporaryDirectory(prefix="gatedjax-")
                    folder = Path(stack.enter_context(made))
                else:
                    stack.enter_context(work_folder(folder))
            self._take(train_any(self._kind, table, options, folder, **parts, **arguments))
        return self

    def _take(self, trained: Any) -> None:
        # The names end with "_", because scikit-learn takes such attributes for results of a fit.
        self.model_ = trained
        self.classes_ = array_of(trained.classes)
        self.report_ = trained.report

    def _get_trained(self) -> Any:
        if not hasattr(self, "model_"):
            from sklearn.exceptions import NotFittedError  # slow to import

            raise NotFittedError(
                f"{type(self).__name__} must be trained first, got an untrained model: call fit or "
                "train"
            )
        return self.model_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __repr__(self) -> str:
        """Returns the changed parameters; of a trained model also its classes and its share."""
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
        if (share := self.report_.get("validation", {}).get("share")) is not None:
            facts.append(f"share {share:.2f}")
        return f"<{params}: {', '.join(facts) or 'trained'}>"
