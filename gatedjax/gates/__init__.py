"""Gates that can be trusted: gradients of expectations over Bernoulli gates, and the exact truth.

`expectation` turns a loss of gates and an estimator into a function whose gradient is the estimate,
`enumerate` computes what is exactly true of up to 20 gates, and `report` measures estimators
against it. Functions in, functions out; everything but `report` composes under `jit`, `grad` and
`vmap`, and works under strict dtype promotion and in programs of `jax.export` with an open number
of rows. Gates are [n], logits their log-odds in nats; masks are bool with True = real. The number n
may be open, too, except where all 2^n patterns are enumerated.

| estimator | unbiased | evaluations | needs the derivative of the loss |
|---|---|---|---|
| `SoftGumbel`, `STGumbel`, `StraightThrough`, `ReinMax` | no | 1 | yes |
| `HardConcrete`, `HardKuma`, `MeanField` | no | 1 | yes |
| `Reinforce` | yes | 1 | no |
| `LeaveOneOut` | yes | k | no |
| `ARM`, `DisARM` | yes | 2 | no |
| `LocalExpectation` | yes | n + 1 | no |
| `Rebar` | yes | 3 | yes |
| `Relax` | yes | 1, and 2 of its critic | no |
| `Enumerate` | yes, exact | 2^n | no |

Networks train with every one of them by one road: `train` estimates the loss of a batch, and `draw`
makes the gates of one pass. An estimator of your own is a `Pathwise`, which defines `gates`, a
`ByValues`, which defines `gradient`, or any other `Estimator`.

Of a trained GA-Net, `gate_modes` computes loss and accuracy under every kind of gate, the exact
expectation over all patterns among them, and `measure` bias and variance of estimators at its
parameters; both are defined in `gatedjax.text.gate_modes`, above the networks. `toys` studies the
classic problems alike, and `plot_studies` draws either.

Maps from scores to gates without noise, with exact derivatives: `sparsemax`, `entmax15`, `entmax`,
`budget`, `soft_top_k`, `hard_top_k`; a row without a real position gives zeros.
"""

import typing as _typing

from gatedjax._utils.removed import MOVED as _MOVED
from gatedjax._utils.removed import removed_from as _removed_from
from gatedjax.analysis import plot_studies as plot_studies
from gatedjax.gates._control import Rebar as Rebar
from gatedjax.gates._control import Relax as Relax
from gatedjax.gates._enumerate import Enumerate as Enumerate
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
from gatedjax.gates._pathwise import MeanField as MeanField
from gatedjax.gates._pathwise import ReinMax as ReinMax
from gatedjax.gates._pathwise import SoftGumbel as SoftGumbel
from gatedjax.gates._pathwise import STGumbel as STGumbel
from gatedjax.gates._pathwise import StraightThrough as StraightThrough
from gatedjax.gates._report import report as report
from gatedjax.gates._score import ARM as ARM
from gatedjax.gates._score import DisARM as DisARM
from gatedjax.gates._score import LeaveOneOut as LeaveOneOut
from gatedjax.gates._score import LocalExpectation as LocalExpectation
from gatedjax.gates._score import Reinforce as Reinforce
from gatedjax.gates._slopes import attached as attached
from gatedjax.gates._stretched import HardConcrete as HardConcrete
from gatedjax.gates._stretched import HardKuma as HardKuma
from gatedjax.gates._study import Study as Study
from gatedjax.gates._toys import toys as toys
from gatedjax.gates._train import Gates as Gates
from gatedjax.gates._train import draw as draw
from gatedjax.gates._train import train as train

if not _typing.TYPE_CHECKING:
    __getattr__ = _removed_from(__name__)

    def __dir__() -> list[str]:
        return sorted([*globals(), *_MOVED[__name__]])
