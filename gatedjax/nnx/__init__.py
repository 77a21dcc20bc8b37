"""NNX modules: recurrence, attention and gates for networks of `flax.nnx`.

Each module has the name, the options and the equation of a module of `gatedjax.nn`, and its
parameters have the same paths: the state of `nnx.LSTM` is the "params" of `nn.LSTM`. The widths of
the inputs and `rngs` are arguments of the constructor, so that no example inputs are needed. `help`
shows all options of a module, and the first of `AttentionPool`, `TokenScore` and `GatePredictor` is
the first in `gatedjax.nn`, too.
`train()` and `eval()` switch dropout and drawn gates on and off; as in `flax.nnx`, a new module is
in training mode. A module draws from a stream of its own, which starts from `rngs`.

The arguments have the names of `gatedjax.nn`: `features` is the `hidden_features` or
`out_features` of `flax.nnx`, and `in_features` is the same in both. In the calls of `LSTM`, `GRU`
and `RAU`, `lengths` is the `seq_lengths` of `flax.nnx.RNN`, and `initial` its `initial_carry`.
"""

from gatedjax.nnx._attention import AttentionGatedTransform as AttentionGatedTransform
from gatedjax.nnx._attention import AttentionPool as AttentionPool
from gatedjax.nnx._attention import GatedAttentionHop as GatedAttentionHop
from gatedjax.nnx._attention import GatePredictor as GatePredictor
from gatedjax.nnx._attention import LocalPosition as LocalPosition
from gatedjax.nnx._attention import SelectiveSelfAttention as SelectiveSelfAttention
from gatedjax.nnx._attention import SourceToToken as SourceToToken
from gatedjax.nnx._attention import TokenScore as TokenScore
from gatedjax.nnx._recurrent import GRU as GRU
from gatedjax.nnx._recurrent import LSTM as LSTM
from gatedjax.nnx._recurrent import RAU as RAU
from gatedjax.nnx._recurrent import GRUCell as GRUCell
from gatedjax.nnx._recurrent import LSTMCell as LSTMCell
from gatedjax.nnx._recurrent import RAUCell as RAUCell
from gatedjax.nnx._recurrent import Recurrent as Recurrent
