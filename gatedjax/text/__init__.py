"""Texts of your own: train, predict, evaluate, explain.

`gatedjax train reviews.csv --out model` and the classes here are the same thing; `_read` reads what
people have, `_corpus` numbers it, `_training` trains, `_model` predicts and is what a folder holds.
"""

from gatedjax.text._classifier import PairClassifier as PairClassifier
from gatedjax.text._classifier import Predictions as Predictions
from gatedjax.text._classifier import TextClassifier as TextClassifier
from gatedjax.text._model import Prediction as Prediction
from gatedjax.text._read import Columns as Columns
from gatedjax.text._show import Change as Change
from gatedjax.text._show import Explanation as Explanation
