"""Gradients of expectations over Bernoulli gates, and the exact values to check them against.

`expectation` takes a loss of gates and an estimator and returns a function with the estimate as its
gradient. `enumerate` computes the exact moments and gradients for up to 20 gates, and `report`
measures estimators against them. All functions except `report` compose under `jit`, `grad` and
`vmap`, and work under strict dtype promotion and in programs of `jax.export` with an open number of
rows. Gates have shape [n], logits are their log-odds in nats, and masks are bool with True = real.
The number n may be open, too, except where all 2^n patterns are enumerated.

{estimators}

Networks train with any estimator through the same two functions: `train` estimates the loss of a
batch, and `draw` draws the gates of one pass. To write an estimator, subclass `Pathwise` and define
`gates`, subclass `ByValues` and define `gradient`, or implement the protocol `Estimator`.

For a trained GA-Net, `gate_modes` computes loss and accuracy under each gate mode, including the
exact expectation over all patterns, and `measure` computes bias and variance of estimators at the
parameters of the network; both are defined in `gatedjax.text.gate_modes`, above the networks.
`toys` studies the classic problems of gradient estimation in the same way, and `plot_studies` draws
the results of both.

Maps from scores to gates without noise, with exact derivatives, are `sparsemax`, `entmax15`,
`entmax`, `budget`, `soft_top_k` and `hard_top_k`; a row without a real position gives zeros. The
relaxations and hard gates of `gatedjax.functional`, such as `gumbel_sigmoid` and `hard_gates`, can
be imported from here too.
"""

import importlib as _importlib
import typing as _typing

from gatedjax.analysis import plot_studies as plot_studies
from gatedjax.functional import ensure_open as ensure_open
from gatedjax.functional import gate_penalty as gate_penalty
from gatedjax.functional import gumbel_noise as gumbel_noise
from gatedjax.functional import gumbel_sigmoid as gumbel_sigmoid
from gatedjax.functional import gumbel_softmax as gumbel_softmax
from gatedjax.functional import hard_gates as hard_gates
from gatedjax.functional import log_gumbel_sigmoid as log_gumbel_sigmoid
from gatedjax.functional import logistic_noise as logistic_noise
from gatedjax.functional import sample_gates as sample_gates
from gatedjax.functional import threshold_gates as threshold_gates
from gatedjax.functional import uniform_sigmoid as uniform_sigmoid
from gatedjax.gates._enumerate import enumerate as enumerate
from gatedjax.gates._estimator import ByValues as ByValues
from gatedjax.gates._estimator import Estimator as Estimator
from gatedjax.gates._estimator import Pathwise as Pathwise
from gatedjax.gates._expectation import expectation as expectation
from gatedjax.gates._maps import budget as budget
from gatedjax.gates._maps import entmax as entmax
from gatedjax.gates._maps import entmax15 as entmax15
from gatedjax.gates._maps import hard_top_k as hard_top_k
from gatedjax.gates._maps import soft_top_k as soft_top_k
from gatedjax.gates._maps import sparsemax as sparsemax
from gatedjax.gates._objective import Objective as Objective
from gatedjax.gates._registry import *  # noqa: F403
from gatedjax.gates._registry import table_of_estimators as _table_of_estimators
from gatedjax.gates._report import Study as Study
from gatedjax.gates._report import report as report
from gatedjax.gates._slopes import attached as attached
from gatedjax.gates._toys import toys as toys
from gatedjax.gates._train import Gates as Gates
from gatedjax.gates._train import draw as draw
from gatedjax.gates._train import train as train

# Without docstrings (python -OO) there is nothing to complete.
__doc__ = __doc__ and __doc__.replace("{estimators}", _table_of_estimators())

if not _typing.TYPE_CHECKING:
    # These two need the text models, which import this package.
    _ON_FIRST_USE = ("gate_modes", "measure")

    def __getattr__(name):
        if name in _ON_FIRST_USE:
            return getattr(_importlib.import_module("gatedjax.text.gate_modes"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    # `from gatedjax.gates import *` finds names that are loaded on first use only in `__all__`.
    __all__ = [*(name for name in globals() if not name.startswith("_")), *_ON_FIRST_USE]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
