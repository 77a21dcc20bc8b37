"""Scores, gates and pooling over a sequence."""

from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax._utils.types import Options
from gatedjax.functional._checks import check_mask, wide_dtype
from gatedjax.functional._types import Dtype
from gatedjax.nn._recurrent import LSTM
from gatedjax.nn._types import Initializer


class TokenScore(nn.Module):
    """One unnormalised attention score per token.

    zhou: e_t = w . tanh(h_t);  mlp1: e_t = w . tanh(W h_t + b).

    Attributes:
      kind: "zhou" (Zhou et al. 2016, no further parameters) or "mlp1".
      features: width of the hidden layer of "mlp1"; None takes that of the states.
    """

    kind: Literal["zhou", "mlp1"] = "zhou"
    features: int | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, states: Float[Array, "*B T D"]) -> Float[Array, "*B T"]:
        """Returns scores in float32 or wider."""
        if self.kind not in ("zhou", "mlp1"):
            raise ValueError(f"kind must be 'zhou' or 'mlp1', got {self.kind!r}")
        if self.kind == "mlp1":
            width = self.features or states.shape[-1]
            states = nn.Dense(width, dtype=self.dtype, param_dtype=self.param_dtype)(states)
        score = nn.Dense(
            1, use_bias=False, kernel_init=nn.initializers.glorot_uniform(),
            dtype=self.dtype, param_dtype=self.param_dtype,
        )(jnp.tanh(states))  # fmt: skip
        return score[..., 0].astype(wide_dtype(score))


class AttentionPool(nn.Module):
    """Attention over states, optionally gated: scores, weights and the weighted sum.

    Attributes:
      score: kind of `TokenScore`.
    """

    score: Literal["zhou", "mlp1"] = "zhou"
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        states: Float[Array, "*B T D"],
        mask: Bool[Array, "*B T"] | None = None,
        *,
        gates: Float[Array, "*B T"] | None = None,
        log_gates: Float[Array, "*B T"] | None = None,
    ) -> tuple[Float[Array, "*B D"], Float[Array, "*B T"]]:
        """Returns (pooled, weights).

        Args:
          states: h.
          mask: True at real positions. What stands elsewhere, NaN included, has no effect.
          gates: hard gates, or None: in evaluation those of `functional.hard_gates`, which leaves
            no row without an open gate.
          log_gates: logarithms of soft gates, or None: in training those of
            `functional.log_gumbel_sigmoid`. At most one of the two is given.
        """
        if gates is not None and log_gates is not None:
            raise ValueError("give gates or log_gates, not both")
        check_mask(mask, states.shape[:-1])
        if mask is not None:  # the derivatives of the scores meet padding, too
            states = jnp.where(mask[..., None], states, jnp.zeros_like(states))
        scores = TokenScore(self.score, dtype=self.dtype, param_dtype=self.param_dtype)(states)
        if gates is not None:
            weights = F.gated_softmax(scores, gates, mask)
        elif log_gates is not None:
            weights = F.relaxed_gated_softmax(scores, log_gates, mask)
        else:
            weights = F.masked_softmax(scores, mask)
        return F.attention_pool(states, weights), weights


class GatePredictor(nn.Module):
    """The auxiliary network of GA-Net: the log-odds that each gate is open.

    lstm: a_t = u . h'_t + b with h' a one-layer bidirectional LSTM;
    fnn:  a_t = u . tanh(W_1 x_t + b_1) + b;
    att:  a_t = u . s_t + b with s single-head self-attention of width `features`.

    Attributes:
      kind: which of the three.
      features: hidden width (per direction for "lstm").
      positions: add sinusoidal positions to the input of "att".
      bias_init: b at the start; 0 opens about half of the gates.

    Reference: Xue et al. 2020 (GA-Net), eq. 4 and "Auxiliary Network".
    """

    kind: Literal["lstm", "fnn", "att"] = "lstm"
    features: int = 100
    positions: bool = True
    bias_init: float = 0.0
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, xs: Float[Array, "B T D"], mask: Bool[Array, "B T"]) -> Float[Array, "B T"]:
        """Returns gate logits in float32 or wider; -inf (closed) at padding.

        What stands at padding, NaN included, has no effect. `functional.log_gumbel_sigmoid` takes
        the logits in training, `functional.hard_gates` at test time.
        """
        check_mask(mask, xs.shape[:-1])
        xs = jnp.where(mask[..., None], xs, jnp.zeros_like(xs))
        types: Options = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        if self.kind == "lstm":
            _, hidden = LSTM(self.features, bidirectional=True, **types)(xs, mask)
        elif self.kind == "fnn":
            hidden = jnp.tanh(nn.Dense(self.features, **types)(xs))
        elif self.kind == "att":
            hidden = self._self_attention(xs, mask, types)
        else:
            raise ValueError(f"kind must be 'lstm', 'fnn' or 'att', got {self.kind!r}")
        logits = nn.Dense(
            1,
            kernel_init=nn.initializers.glorot_uniform(),
            bias_init=nn.initializers.constant(self.bias_init),
            name="gate",
            **types,
        )(hidden)[..., 0]
        logits = logits.astype(wide_dtype(logits))
        return jnp.where(mask, logits, -jnp.inf)

    def _self_attention(self, xs: Array, mask: Array, types: Options) -> Array:
        if self.positions:
            xs = xs + F.sinusoids(np.arange(xs.shape[1]), xs.shape[2], xs.dtype)[None]
        query = nn.Dense(self.features, name="query", **types)(xs)
        key = nn.Dense(self.features, name="key", **types)(xs)
        value = nn.Dense(self.features, name="value", **types)(xs)
        scores = F.scaled_dot_product(query, key)
        weights = F.masked_softmax(scores, mask[:, None, :])
        return jnp.einsum("bqk,bkd->bqd", weights, value)


class LocalPosition(nn.Module):
    """The centre of local attention: (len - 1) * sigmoid(v . tanh(W h_last)), 0-based.

    Reference: Luong et al. 2015, eq. 9, with the last hidden state as the query.
    """

    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, last: Float[Array, "*B D"], lengths: Int[Array, "*B"]) -> Float[Array, "*B"]:
        """Returns a real-valued position inside the sequence, float32 or wider."""
        types: Options = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        hidden = jnp.tanh(nn.Dense(last.shape[-1], use_bias=False, **types)(last))
        share = nn.Dense(1, use_bias=False, **types)(hidden)[..., 0]
        share = share.astype(wide_dtype(share))
        # in this order, for unsigned lengths of 0
        return (jnp.maximum(lengths, 1) - 1) * nn.sigmoid(share)


class SourceToToken(nn.Module):
    """Pools tokens into one vector with a softmax of its own for every feature.

        l = W_2 elu(W_1 h + b_1) + b_2,  s_d = sum_n softmax_n(l_nd) h_nd

    Attributes:
      features: width of the hidden layer; None takes that of the states.

    Reference: Shen et al. 2018 (DiSAN), source2token; Geng et al. 2020 (SSAN) for NLI.
    """

    features: int | None = None
    kernel_init: Initializer = nn.initializers.glorot_uniform()
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, states: Float[Array, "*B N D"], mask: Bool[Array, "*B N"] | None = None
    ) -> Float[Array, "*B D"]:
        """Returns s; 0 for a text without tokens. Padding, NaN included, has no effect."""
        check_mask(mask, states.shape[:-1])
        if mask is not None:
            states = jnp.where(mask[..., None], states, jnp.zeros_like(states))
        types: Options = {
            "kernel_init": self.kernel_init,
            "dtype": self.dtype,
            "param_dtype": self.param_dtype,
        }
        hidden = nn.elu(nn.Dense(self.features or states.shape[-1], **types)(states))
        return F.source_to_token(states, nn.Dense(states.shape[-1], **types)(hidden), mask)
