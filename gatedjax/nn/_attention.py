"""Modules that score, gate and pool the positions of a sequence."""

from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax._utils.fields import check_fields
from gatedjax._utils.types import Keywords
from gatedjax.functional._attention import pool_finite, softmax_where
from gatedjax.functional._checks import (
    check_floating,
    check_integers,
    check_mask,
    check_not_both,
    check_shape,
    check_that,
    wide_dtype,
)
from gatedjax.functional._recurrence import real_alone
from gatedjax.functional._types import Dtype
from gatedjax.nn._initializers import GLOROT, LECUN, ORTHOGONAL, ZEROS
from gatedjax.nn._recurrent import LSTM
from gatedjax.nn._types import Initializer, take_fields


class TokenScore(nn.Module):
    """An unnormalised attention score for each token.

    zhou: e_t = w . tanh(h_t);  mlp1: e_t = w . tanh(W h_t + b). h_t is the state of token t, a
    vector [D]; w, W and b are parameters.

        >>> import jax
        >>> scores, _ = TokenScore("mlp1").init_with_output(jax.random.key(0), jnp.ones((2, 5, 8)))
        >>> scores.shape
        (2, 5)

    Attributes:
      kind: "zhou" (Zhou et al. 2016), which has no parameters but w, or "mlp1".
      features: width of the hidden layer of "mlp1"; None means the width of the states.
      dtype: dtype of the products; None means the common dtype of inputs and parameters.
      param_dtype: dtype of the parameters.
      kernel_init: initialiser of w and W; None means Glorot-uniform for w, LeCun-normal for W.
      bias_init: initialiser of b.
    """

    kind: Literal["zhou", "mlp1"] = "zhou"
    features: int | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    kernel_init: Initializer | None = None
    bias_init: Initializer = ZEROS

    @nn.compact
    def __call__(self, states: Float[Array, "*B T D"]) -> Float[Array, "*B T"]:
        """Computes the scores of states.

        Args:
          states: h, a vector of width D for each of T tokens.

        Returns:
          e, a score for each token, in float32 or wider.

        Raises:
          ValueError: for an unknown `kind`.
        """
        check_fields(self)
        check_floating(states=states)
        types: Keywords = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        if self.kind == "mlp1":
            width, init = self.features or states.shape[-1], self.kernel_init or LECUN
            dense = nn.Dense(width, kernel_init=init, bias_init=self.bias_init, **types)
            states = dense(states)
        # The score has no bias, because a softmax does not change if all scores grow by the same
        # number.
        init = self.kernel_init or GLOROT
        score = nn.Dense(1, use_bias=False, kernel_init=init, **types)(jnp.tanh(states))
        # Scores are float32 or wider, because a softmax of bfloat16 scores loses digits.
        return score[..., 0].astype(wide_dtype(score))


class AttentionPool(nn.Module):
    """Attention that pools the states of a sequence, with or without gates.

    The result is c = sum_t alpha_t h_t for states h_t and attention weights alpha, the softmax of
    the scores of a `TokenScore` over the positions with open gates.

        >>> import jax
        >>> states, gates = jnp.ones((1, 4, 8)), jnp.array([[1.0, 0.0, 1.0, 0.0]])
        >>> pool = AttentionPool()
        >>> variables = pool.init(jax.random.key(0), states)
        >>> pooled, weights = pool.apply(variables, states, gates=gates)
        >>> print(pooled.shape, weights)
        (1, 8) [[0.5 0.  0.5 0. ]]

    Attributes:
      score: the equation of the scores, "zhou" or "mlp1", as in `TokenScore`.
      dtype, param_dtype: as in `TokenScore`.
      kernel_init: initialiser of the kernels of the scores; None means the defaults of
        `TokenScore`.
      bias_init: initialiser of the bias of "mlp1".
      return_weights: False returns the pooled states without the attention weights.
    """

    score: Literal["zhou", "mlp1"] = "zhou"
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    kernel_init: Initializer | None = None
    bias_init: Initializer = ZEROS
    return_weights: bool = True

    @nn.compact
    def __call__(
        self,
        states: Float[Array, "*B T D"],
        mask: Bool[Array, "*B T"] | None = None,
        *,
        gates: Float[Array, "*B T"] | None = None,
        log_gates: Float[Array, "*B T"] | None = None,
        return_weights: bool | None = None,
    ) -> Any:
        """Pools the states of each row.

        Args:
          states: h, a vector of width D for each of T positions.
          mask: True at real positions; None means all. States at padding, NaN included, have no
            effect.
          gates: hard gates, 1 at open and 0 at closed positions, for the softmax over the open
            positions; None means that all are open. In evaluation `functional.hard_gates` computes
            them, with at least one open gate per row.
          log_gates: logarithms of soft gates instead of `gates`, from
            `functional.log_gumbel_sigmoid` in training.
          return_weights: False returns only the pooled states; None means the attribute of the
            module.

        Returns:
          (pooled, weights): the weighted sums of the states [..., D], and the attention weights
          [..., T]. With return_weights=False only the pooled states.

        Raises:
          ValueError: if both `gates` and `log_gates` are given, or for an unknown `score`.
        """
        check_fields(self)
        check_not_both(gates=gates, log_gates=log_gates)
        check_that(jnp.ndim(states) >= 2, "states must be [..., T, D]", states)
        check_mask(mask, states.shape[:-1])
        # Padding must be finite, because the derivatives of the scores multiply it with 0.
        states = real_alone(states, mask)
        options = take_fields(self, "kernel_init", "bias_init", "dtype", "param_dtype")
        scores = TokenScore(self.score, **options)(states)
        if gates is not None:
            weights = F.gated_softmax(scores, gates, mask)
        elif log_gates is not None:
            weights = F.relaxed_gated_softmax(scores, log_gates, mask)
        else:
            weights = softmax_where(scores, mask)
        pooled = pool_finite(states, weights)
        has_weights = self.return_weights if return_weights is None else return_weights
        return (pooled, weights) if has_weights else pooled


class GatePredictor(nn.Module):
    """The auxiliary network of GA-Net, which predicts the log-odds that each gate is open.

    a_t are the log-odds of token t with the vector x_t; u, W_1, b_1 and b are parameters.

    lstm: a_t = u . h'_t + b with h' a one-layer bidirectional LSTM;
    fnn:  a_t = u . tanh(W_1 x_t + b_1) + b;
    att:  a_t = u . s_t + b with s single-head self-attention of width `features`.

        >>> import jax
        >>> xs, mask = jnp.ones((1, 4, 8)), jnp.array([[True, True, True, False]])
        >>> predictor = GatePredictor("fnn", features=16)
        >>> logits, _ = predictor.init_with_output(jax.random.key(0), xs, mask)
        >>> print(logits.shape, F.hard_gates(logits, mask)[0, 3])
        (1, 4) 0.0

    Attributes:
      kind: the network, "lstm", "fnn" or "att".
      features: hidden width (per direction for "lstm").
      positions: True if sinusoidal positions are added to the input of "att".
      bias_init: initialiser of b; 0 opens about half of the gates.
      dtype, param_dtype: as in `TokenScore`.
      kernel_init: initialiser of all kernels but the recurrent; None means Glorot-uniform for u and
        for the LSTM, LeCun-normal otherwise.
      recurrent_kernel_init: initialiser of the recurrent kernels of "lstm".

    Reference: Xue et al. 2020 (GA-Net), eq. 4 and "Auxiliary Network".
    """

    kind: Literal["lstm", "fnn", "att"] = "lstm"
    features: int = 100
    positions: bool = True
    bias_init: Initializer = ZEROS
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    kernel_init: Initializer | None = None
    recurrent_kernel_init: Initializer = ORTHOGONAL

    @nn.compact
    def __call__(
        self, xs: Float[Array, "B T D"], mask: Bool[Array, "B T"] | None = None
    ) -> Float[Array, "B T"]:
        """Computes the logits of the gates.

        In training `functional.log_gumbel_sigmoid` turns them into soft gates, and at test time
        `functional.hard_gates` into hard gates.

        Args:
          xs: x, a vector of width D for each of T tokens of B texts.
          mask: True at real tokens; None means all. Vectors at padding, NaN included, have no
            effect.

        Returns:
          a, the log-odds that the gate of each token is open, in float32 or wider; -inf (closed) at
          padding.

        Raises:
          ValueError: for an unknown `kind`.
        """
        check_fields(self)
        check_floating(xs=xs)
        mask = jnp.ones(xs.shape[:-1], bool) if mask is None else mask
        check_mask(mask, xs.shape[:-1])
        xs = jnp.where(mask[..., None], xs, 0)
        types: Keywords = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        if self.kind == "lstm":
            _, hidden = LSTM(
                self.features,
                bidirectional=True,
                kernel_init=self.kernel_init or GLOROT,
                recurrent_kernel_init=self.recurrent_kernel_init,
                **types,
            )(xs, mask)
        elif self.kind == "fnn":
            dense = nn.Dense(self.features, kernel_init=self.kernel_init or LECUN, **types)
            hidden = jnp.tanh(dense(xs))
        else:
            hidden = self._self_attention(xs, mask, types)
        init = self.kernel_init or GLOROT
        gate = nn.Dense(1, kernel_init=init, bias_init=self.bias_init, name="gate", **types)
        logits = gate(hidden)[..., 0]
        logits = logits.astype(wide_dtype(logits))
        # Log-odds of -inf close the gates of padding under all relaxations.
        return jnp.where(mask, logits, -jnp.inf)

    def _self_attention(self, xs: Array, mask: Array, types: Keywords) -> Array:
        """Returns the states s of "att", single-head self-attention: [B, T, features]."""
        if self.positions:
            # Self-attention does not see the order of the words without positions.
            xs = xs + F.sinusoids(np.arange(xs.shape[1]), xs.shape[2], xs.dtype)[None]
        query, key, value = (
            nn.Dense(self.features, kernel_init=self.kernel_init or LECUN, name=name, **types)(xs)
            for name in ("query", "key", "value")
        )
        scores = F.scaled_dot_product(query, key)
        # [B, 1, N]: the mask excludes keys and is the same for all queries.
        weights = softmax_where(scores, mask[:, None, :])
        return jnp.einsum("bqk,bkd->bqd", weights, value)


class LocalPosition(nn.Module):
    """The predicted centre of local attention, (len - 1) * sigmoid(v . tanh(W h_last)), from 0.

    len is the length of a text, h_last its last hidden state, and W and v are parameters. Call the
    module with h_last [B, H] and len [B] for B texts; it returns the centres [B].

        >>> import jax
        >>> last, lengths = jnp.zeros((2, 8)), jnp.array([5, 3])
        >>> centres, _ = LocalPosition().init_with_output(jax.random.key(0), last, lengths)
        >>> print(centres)
        [2. 1.]

    Attributes:
      dtype, param_dtype: as in `TokenScore`.
      kernel_init: initialiser of W and v.

    Reference: Luong et al. 2015, eq. 9, with the last hidden state as the query.
    """

    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    kernel_init: Initializer = LECUN

    @nn.compact
    def __call__(self, last: Float[Array, "*B D"], lengths: Int[Array, "*B"]) -> Float[Array, "*B"]:
        """Computes the centre of each row.

        Args:
          last: h_last, the last state of each row, of width D.
          lengths: len, the number of real positions of each row.

        Returns:
          The centre of each row, a real number in [0, len - 1], in float32 or wider; 0 for a length
          of 0.
        """
        check_floating(last=last)
        check_integers(lengths=lengths)
        check_shape(jnp.shape(last)[:-1], lengths=lengths)
        types = take_fields(self, "kernel_init", "dtype", "param_dtype")
        hidden = jnp.tanh(nn.Dense(last.shape[-1], use_bias=False, **types)(last))
        share = nn.Dense(1, use_bias=False, **types)(hidden)[..., 0]
        share = share.astype(wide_dtype(share))
        # The factor is len - 1 and not len, because positions count from 0. The maximum comes
        # first, because an unsigned 0 - 1 would be the largest integer.
        return (jnp.maximum(lengths, 1) - 1) * nn.sigmoid(share)


class SourceToToken(nn.Module):
    """Attention that pools tokens into a vector, with a separate softmax for each feature.

        l = W_2 elu(W_1 h + b_1) + b_2,  s_d = sum_n softmax_n(l_nd) h_nd

    h_nd is feature d of token n, and W_1, b_1, W_2 and b_2 are parameters.

        >>> import jax
        >>> pooled, _ = SourceToToken().init_with_output(jax.random.key(0), jnp.ones((2, 5, 8)))
        >>> pooled.shape
        (2, 8)

    Attributes:
      features: width of the hidden layer; None means the width of the states.
      kernel_init: initialiser of W_1 and W_2.
      dtype, param_dtype: as in `TokenScore`.
      bias_init: initialiser of b_1 and b_2.

    Reference: Shen et al. 2018 (DiSAN), source2token; Geng et al. 2020 (SSAN) for NLI.
    """

    features: int | None = None
    kernel_init: Initializer = GLOROT
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    bias_init: Initializer = ZEROS

    @nn.compact
    def __call__(
        self, states: Float[Array, "*B N D"], mask: Bool[Array, "*B N"] | None = None
    ) -> Float[Array, "*B D"]:
        """Pools the tokens of each text.

        Args:
          states: h, a vector of width D for each of N tokens.
          mask: True at real tokens; None means all. States at padding, NaN included, have no
            effect.

        Returns:
          s, a vector of width D per text; 0 for a text without tokens.
        """
        check_fields(self)
        check_mask(mask, states.shape[:-1])
        states = real_alone(states, mask)
        types = take_fields(self, "kernel_init", "bias_init", "dtype", "param_dtype")
        hidden = nn.elu(nn.Dense(self.features or states.shape[-1], **types)(states))
        return F.source_to_token(states, nn.Dense(states.shape[-1], **types)(hidden), mask)
