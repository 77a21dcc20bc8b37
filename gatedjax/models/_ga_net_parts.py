"""The arrays that pass between the parts of GA-Net, and the functions that the parts share."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from gatedjax import functional as F
from gatedjax._utils.types import Output, Tree
from gatedjax.functional._export import exportable
from gatedjax.gates._train import Gates
from gatedjax.models._ga_net_config import GANetConfig


@exportable
@struct.dataclass
class GANetOutput:
    """The output of a `GANet` for B texts of T words; gate fields are None for the baselines.

    C is the number of classes. For several draws of the gates the fields have a leading axis of
    draws, except gate_logits and, unless the gates act on the input, scores.

    Attributes:
      logits: class scores [B, C], float32.
      attention: the attention weights alpha [B, T]; None for "bilstm".
      gates: the gates g of this pass [B, T], 0 at padding.
      gate_logits: the log-odds a of open gates [B, T], -inf at padding.
      scores: the attention scores e [B, T]; None for "bilstm".
      closed: bool [B], True for texts with all gates closed, before the option `gates.empty` opens
        the most probable gate ("max_gate") or shows all words to attention ("soft").
    """

    logits: Array
    attention: Array | None = None
    gates: Array | None = None
    gate_logits: Array | None = None
    scores: Array | None = None
    closed: Array | None = None


@exportable
@struct.dataclass
class Encoded:
    """The arrays of a batch that do not depend on the gates, so that all gate modes share them.

    The batch has B texts of T words. D is the width of the states and E that of the word vectors.

    Attributes:
      states: the states h of the words [B, T, D]; if the gates act on the input, None until the
        gates are drawn, like scores.
      last: the last states of both directions [B, D].
      mask: True at real words [B, T].
      scores: the attention scores e [B, T]; None for "bilstm".
      gate_logits: the log-odds a of open gates [B, T], -inf at padding; None for the baselines.
      words: word vectors [B, T, E] if the gates act on the input, else None.
    """

    states: Any
    last: Any
    mask: Array
    scores: Any
    gate_logits: Any
    words: Any = None


def open_one(
    config: GANetConfig, encoded: Encoded, gates: Gates
) -> tuple[Float[Array, "*S B T"], Bool[Array, "*S B"]]:
    """Opens the likeliest of hard gates where all are closed; returns gates and closed texts."""
    values = gates.values
    logits, mask = (
        jnp.broadcast_to(its, values.shape) for its in (encoded.gate_logits, encoded.mask)
    )
    open_gates, closed = F.ensure_open(values, logits, mask)
    return (open_gates if config.gates.empty == "max_gate" else values), closed


def first_draw(output: Output) -> Tree:
    """Returns the `GANetOutput` of the first draw, from a `GANetOutput` with an axis of draws."""
    names = ("logits", "attention", "gates", "closed")
    values = {name: getattr(output, name) for name in names}
    return output.replace(**{k: None if v is None else v[0] for k, v in values.items()})


def mean_log_probability(logits: Float[Array, "S B C"]) -> Float[Array, "B C"]:
    """Returns the logarithm of the mean class probabilities over S draws of the gates."""
    # In log space a small probability does not underflow to log 0.
    return jax.nn.logsumexp(nn.log_softmax(logits), axis=0) - jnp.log(logits.shape[0])
