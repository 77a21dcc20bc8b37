"""Models for your texts: train, predict, evaluate, explain.

`gatedjax train reviews.csv --out model` and `TextClassifier` run the same code. A text passes
the packages in this order: `sources` reads rows of files and values, `corpus` splits texts into
tokens and into parts for training and validation, `fit` trains one of the `models`, `targets`
decides and measures predictions, and `answers` predicts, explains and evaluates. `estimators` are
the classes with the interface of scikit-learn.
Names load on first use, so that commands which need only a few of them start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatedjax.text.answers._explanation import Change as Change
    from gatedjax.text.answers._explanation import Explanation as Explanation
    from gatedjax.text.answers._explanation import RankedPart as RankedPart
    from gatedjax.text.answers._explanation import Reasons as Reasons
    from gatedjax.text.answers._prediction import LabelsPrediction as LabelsPrediction
    from gatedjax.text.answers._prediction import Prediction as Prediction
    from gatedjax.text.answers._prediction import ValuePrediction as ValuePrediction
    from gatedjax.text.answers._words import WordWeight as WordWeight
    from gatedjax.text.estimators._classifier import PairClassifier as PairClassifier
    from gatedjax.text.estimators._classifier import TextClassifier as TextClassifier
    from gatedjax.text.estimators._tagger import Tagger as Tagger
    from gatedjax.text.estimators._targets import (
        MultiLabelTextClassifier as MultiLabelTextClassifier,
    )
    from gatedjax.text.estimators._targets import OrdinalTextClassifier as OrdinalTextClassifier
    from gatedjax.text.estimators._targets import TextRegressor as TextRegressor
    from gatedjax.text.models._tagging import Tagging as Tagging
    from gatedjax.text.sources._table import Columns as Columns

_NAMES = {
    "answers._explanation": "Change Explanation RankedPart Reasons",
    "answers._prediction": "LabelsPrediction Prediction ValuePrediction",
    "answers._words": "WordWeight",
    "estimators._classifier": "PairClassifier TextClassifier",
    "estimators._tagger": "Tagger",
    "estimators._targets": "MultiLabelTextClassifier OrdinalTextClassifier TextRegressor",
    "models._tagging": "Tagging",
    "sources._table": "Columns",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"gatedjax.text.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'gatedjax.text' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
