"""Models for your texts: train, predict, evaluate, explain.

`gatedjax train reviews.csv --out model` and `TextClassifier` run the same code: `_read` reads files
and values in memory, `_corpus` replaces words by numbers, `_options` has the options of the command
and of the classes, `_buckets` chooses the shapes of batches, `_training` trains, and `_model`
predicts, saves and loads. `_lexicon` and `_lexicon_training` do the same for the default model,
`gatedjax.lexicon`, without JAX.
Names load on first use, so that commands which need only a few of them start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatedjax.text._classifier import PairClassifier as PairClassifier
    from gatedjax.text._classifier import TextClassifier as TextClassifier
    from gatedjax.text._prediction import LabelsPrediction as LabelsPrediction
    from gatedjax.text._prediction import Prediction as Prediction
    from gatedjax.text._prediction import ValuePrediction as ValuePrediction
    from gatedjax.text._read import Columns as Columns
    from gatedjax.text._show import Change as Change
    from gatedjax.text._show import Explanation as Explanation
    from gatedjax.text._show import Reasons as Reasons
    from gatedjax.text._states import EncodedText as EncodedText
    from gatedjax.text._states import States as States
    from gatedjax.text._states import read_states as read_states
    from gatedjax.text._states import save_states as save_states
    from gatedjax.text._tagger import Tagger as Tagger
    from gatedjax.text._tagging import Tagging as Tagging
    from gatedjax.text._target_estimators import (
        MultiLabelTextClassifier as MultiLabelTextClassifier,
    )
    from gatedjax.text._target_estimators import OrdinalTextClassifier as OrdinalTextClassifier
    from gatedjax.text._target_estimators import TextRegressor as TextRegressor
    from gatedjax.text._target_show import TargetExplanation as TargetExplanation

_MODULES = {
    "Change": "_show",
    "Columns": "_read",
    "EncodedText": "_states",
    "Explanation": "_show",
    "LabelsPrediction": "_prediction",
    "MultiLabelTextClassifier": "_target_estimators",
    "OrdinalTextClassifier": "_target_estimators",
    "PairClassifier": "_classifier",
    "Prediction": "_prediction",
    "Reasons": "_show",
    "States": "_states",
    "Tagger": "_tagger",
    "Tagging": "_tagging",
    "TargetExplanation": "_target_show",
    "TextClassifier": "_classifier",
    "TextRegressor": "_target_estimators",
    "ValuePrediction": "_prediction",
    "read_states": "_states",
    "save_states": "_states",
}

__all__ = [
    "Change",
    "Columns",
    "EncodedText",
    "Explanation",
    "LabelsPrediction",
    "MultiLabelTextClassifier",
    "OrdinalTextClassifier",
    "PairClassifier",
    "Prediction",
    "Reasons",
    "States",
    "Tagger",
    "Tagging",
    "TargetExplanation",
    "TextClassifier",
    "TextRegressor",
    "ValuePrediction",
    "read_states",
    "save_states",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"gatedjax.text.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'gatedjax.text' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
