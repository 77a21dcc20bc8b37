"""The base class of the models for texts: parameters, training, saving and loading."""

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from gatedjax._utils.types import Json
from gatedjax.export import ModelCard
from gatedjax.text._labels import array_of
from gatedjax.text._model import TrainedModel
from gatedjax.text._options import TextOptions, check_options, suggestion
from gatedjax.text._training import Data, train_model
from gatedjax.text._work_folder import WorkFolder

C = TypeVar("C", bound=type)


def explains_unknown_parameters(kind: C) -> C:
    """Lets the constructor of an estimator name the class that was called, not its base class."""
    changed: Any = kind  # because mypy lets nobody assign a constructor
    init = changed.__init__

    @functools.wraps(init)
    def take(self: Any, *args: Any, **params: Any) -> None:
        if (message := _unknown_parameter(self, params)) is not None:
            raise TypeError(message)
        init(self, *args, **params)

    changed.__init__ = take
    return kind


def _unknown_parameter(estimator: Any, params: Iterable[str]) -> str | None:
    """Returns a message about the first name that is not a parameter; None if there is none."""
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
    """A model with the interface of scikit-learn; its parameters are those of `TextOptions`."""

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
        """The parameters as `TextOptions`."""
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
          The path of the folder; see `gatedjax.export.save`.
        """
        return self._get_trained().save(folder, card=card, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Loads a model that `save` or `gatedjax train` wrote; no code in the folder is executed.

        Args:
          folder: the folder of the model.

        Returns:
          The trained model.

        Raises:
          FileNotFoundError, ValueError: if the folder does not have such a model.
        """
        # The folder has only the options that a prediction needs. The other options get their
        # defaults.
        trained = TrainedModel.load(folder, (cls._kind,))
        estimator = cls(
            model=trained.network,
            max_len=trained.max_len,
            lowercase=trained.vocabulary.lowercase,
        )
        estimator._take(trained)
        return estimator

    def _train(
        self, *tables: Data | None, workdir: str | Path | None = None, **arguments: Any
    ) -> Self:
        """Trains on the first of three tables; see `train_model`."""
        options = self.options
        check_options(options, self._kind)
        table, validation, test = tables
        with _folder(workdir) as folder:
            trained = train_model(
                self._kind,
                table,  # type: ignore[arg-type]
                options,
                folder,
                validation=validation,
                test=test,
                **arguments,
            )
        self._take(trained)
        return self

    def _take(self, trained: TrainedModel) -> None:
        self.model_ = trained
        self.classes_ = array_of(trained.classes)
        self.report_ = trained.report

    def _get_trained(self) -> TrainedModel:
        if not hasattr(self, "model_"):
            raise _not_fitted(f"this {type(self).__name__} is not trained: call fit or train first")
        return self.model_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __repr__(self) -> str:
        fields = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        changed = (f"{field.name}={value!r}" for field, value in fields if value != field.default)
        return f"{type(self).__name__}({', '.join(changed)})"


def _not_fitted(message: str) -> Exception:
    """Returns the NotFittedError of scikit-learn with a message, which its tools expect.

    Without scikit-learn it returns an AttributeError.
    """
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
