"""Thin Flax Linen modules: they own parameters and call `gatedjax.functional`.

In the annotations B is the number of examples of a batch, also called its rows, and *B stands for
any number of leading axes.

The modules raise the errors of the functions that they call. A section "Raises" lists only the
errors that a module adds.
"""

from gatedjax.nn._attention import AttentionPool as AttentionPool
from gatedjax.nn._attention import GatePredictor as GatePredictor
from gatedjax.nn._attention import LocalPosition as LocalPosition
from gatedjax.nn._attention import SourceToToken as SourceToToken
from gatedjax.nn._attention import TokenScore as TokenScore
from gatedjax.nn._cells import GRUCell as GRUCell
from gatedjax.nn._cells import LSTMCell as LSTMCell
from gatedjax.nn._cells import RAUCell as RAUCell
from gatedjax.nn._characters import CharacterEncoder as CharacterEncoder
from gatedjax.nn._embedding import WordEmbedding as WordEmbedding
from gatedjax.nn._hop import GatedAttentionHop as GatedAttentionHop
from gatedjax.nn._recurrent import GRU as GRU
from gatedjax.nn._recurrent import LSTM as LSTM
from gatedjax.nn._recurrent import RAU as RAU
from gatedjax.nn._recurrent import Recurrent as Recurrent
from gatedjax.nn._selection import Selection as Selection
from gatedjax.nn._selective import SelectiveSelfAttention as SelectiveSelfAttention
from gatedjax.nn._transform import AttentionGatedTransform as AttentionGatedTransform
