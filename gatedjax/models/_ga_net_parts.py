"""The arrays that the parts of GA-Net pass on, and the rules that they share."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Key

from gatedjax import functional as F
from gatedjax._utils.types import Output, Tree
from gatedjax.functional._export import exportable
from gatedjax.functional._types import Carry
from gatedjax.gates._train import Gates
from gatedjax.models._ga_net_config import GANetConfig
from gatedjax.models._types import Batch
from gatedjax.nn._keys import example_keys


@exportable
@struct.dataclass
class GANetOutput:
    """What one pass computed. Gate fields are None for the baselines.

    Attributes:
      logits: class scores [B, C], float32.
      attention: alpha [B, T]; None for "bilstm".
      gates: g [B, T] used in this pass, 0 at padding.
      gate_logits: a [B, T], -inf at padding.
      scores: e [B, T]; None for "bilstm".
      closed: bool [B], rows in which every gate was closed before the `empty` rule.
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
    """The arrays of a batch that do not depend on the gates, so that every gate mode shares them.

    Attributes:
      states: h [B, T, D]; with its scores None until the gates are known, where those act on the
        input.
      last: the last states of both directions [B, D].
      mask: True at real words [B, T].
      scores: e [B, T]; None for "bilstm".
      gate_logits: a [B, T], -inf at padding; None for the baselines.
      words: word vectors [B, T, E], where the gates act on them.
    """

    states: Any
    last: Any
    mask: Array
    scores: Any
    gate_logits: Any
    words: Any = None


def merge_directions(
    merge: str, carries: Carry, states: Float[Array, "B T 2H"]
) -> tuple[Float[Array, "B T D"], Float[Array, "B D"]]:
    """Returns one state per word, and the last state, of both directions of an LSTM.

    Args:
      merge: "concat" or "sum".
      carries: of every layer, in both directions.
      states: of the top layer, forward then backward features.
    """
    forward, backward = (carry.hidden.astype(states.dtype) for carry in carries[-1])
    if merge == "concat":
        return states, jnp.concatenate([forward, backward], axis=-1)
    hidden = forward.shape[-1]
    return states[..., :hidden] + states[..., hidden:], forward + backward


def pool_states(
    config: GANetConfig, states: Float[Array, "*S B T D"], weights: Float[Array, "*S B T"]
) -> Float[Array, "*S B D"]:
    """Returns c = sum_t alpha_t h_t, or tanh(c), of one pass or of several draws."""
    pool = F.attention_pool
    if weights.ndim == states.ndim:  # several draws over the same states
        pool = jax.vmap(pool, (None, 0))
    pooled = pool(states, weights)
    return jnp.tanh(pooled) if config.post_tanh else pooled


def open_one(
    config: GANetConfig, encoded: Encoded, gates: Gates
) -> tuple[Float[Array, "*S B T"], Bool[Array, "*S B"] | None]:
    """Opens the likeliest gate of a row without an open one, where `gates.empty` says so.

    Returns:
      The gates, and which rows had no open one; None for gates that are never closed.
    """
    values = gates.values
    if not gates.hard:
        return values, None
    opened, closed = F.ensure_open(
        values, like(encoded.gate_logits, values), like(encoded.mask, values)
    )
    return (opened if config.gates.empty == "max_gate" else values), closed


def keys_of(module: nn.Module, batch: Batch, stream: str) -> Key[Array, " B"]:
    """Returns the PRNG key of every example of a stream."""
    return example_keys(module, stream, batch.get("example_id"), batch["tokens"].shape[0])


def like(array: Array, other: Array) -> Array:
    """Returns the array with the leading axes of the other."""
    return jnp.broadcast_to(array, other.shape)


def first_draw(output: Output) -> Tree:
    """Returns the output of the first of several draws."""
    names = ("logits", "attention", "gates", "closed")
    values = {name: getattr(output, name) for name in names}
    return output.replace(**{k: None if v is None else v[0] for k, v in values.items()})


def mean_log_probability(logits: Float[Array, "S B C"]) -> Float[Array, "B C"]:
    """Returns the log of the class probabilities averaged over draws, in log space."""
    return jax.nn.logsumexp(nn.log_softmax(logits), axis=0) - jnp.log(logits.shape[0])
