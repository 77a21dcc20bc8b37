"""Models for your texts: train, predict, evaluate, explain.

`gatedjax train reviews.csv --out model` and `TextClassifier` run the same code. A text passes
the packages in this order: `sources` reads rows of files and values, `corpus` splits texts into
tokens and into parts for training and validation, `fit` trains one of the `models`, `targets`
decides and measures predictions, and `answers` predicts, explains and evaluates. `estimators` are
the classes with the interface of scikit-learn.
Names load on first use, so that commands which need only a few of them start quickly.
"""

from typing import TYPE_CHECKING

from gatedjax._utils import lazy as _lazy

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
else:
    __getattr__, __dir__, __all__ = _lazy.attach(__name__)
