"""Self-attention with a separate softmax for each feature."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from gatedjax.functional._multi_dimensional import (
    multi_dimensional_scores,
    multi_dimensional_values,
)
from gatedjax.functional._pairs import both_allow
from gatedjax.nn._selective import SelectiveSelfAttention


class MultiDimensionalAttention(SelectiveSelfAttention):
    """Self-attention with additive scores and a separate softmax for each feature.

        e_ij = c tanh((W_q h_i + W_k h_j + b) / c) in R^D,  W_ijd = A_ij exp(e_ijd) / sum_k ..
        o_id = sum_j W_ijd h_jd

    All features share a single selection A. There is a single head, so set `num_heads` to 1. The
    projections "value" and "out" are additions: DiSAN averages the states themselves.

    Attributes:
      num_heads, features: 1, and D, the width of the output (None means that of the inputs).
      selector, temperature: the estimator that draws A in training ("none" has no selector), and
        tau of its relaxation.
      causal: True if no query sees the keys of later positions.
      empty: the rule for a query that selects no key.
      dropout: rate of dropout on the weights.
      score_scale: c, which bounds the scores.
      exclude_self: True if tokens cannot attend to themselves; `Selection` does not count the pair
        of a token with itself then.
      relative: must stay "none", because a relative bias belongs to a head.
      cap, renormalise, block, remat, kernel_init, bias_init, dtype, param_dtype,
        return_weights: see `SelectiveSelfAttention`.

    Reference: Shen et al. 2018 (DiSAN), token2token attention.
    """

    score_scale: float = 5.0
    exclude_self: bool = False

    def _check(self, *arguments: Any) -> int:
        features = super()._check(*arguments)
        if self.relative != "none":
            raise ValueError(
                f"relative must be 'none', got {self.relative!r}: a bias belongs to a head, and "
                "attention per feature has no heads"
            )
        return features

    def _scores(
        self, heads: dict[str, Array], positions: Int[Array, " Q"], mask: Bool[Array, "B N"] | None
    ) -> tuple[Array, Array, Array]:
        # The axis of heads has size 1 and is dropped.
        query, key, value = (heads[name][:, 0] for name in ("query", "key", "value"))
        # The scores are [B, D, Q, N]: the features take the place of the heads, because each
        # feature has a softmax.
        scores = multi_dimensional_scores(query, key, self.score_scale)
        size = key.shape[1]
        allowed = (jnp.ones((1, size), bool) if mask is None else mask)[:, None, None]
        return scores, allowed, value if mask is None else jnp.where(mask[..., None], value, 0)

    def _visible(self, positions: Int[Array, " Q"], size: int) -> Bool[Array, "1 1 Q N"] | None:
        pairs = super()._visible(positions, size)
        if not self.exclude_self:
            return pairs
        return both_allow(pairs, (positions[:, None] != jnp.arange(size)[None])[None, None])

    def _mix_values(self, weights: Array, value: Array) -> Array:
        return multi_dimensional_values(weights, value)[:, None]

    def _recorded_weights(self, weights: Array) -> Array:
        # The weights have an axis of features in the place of heads: the record has their mean.
        return jnp.mean(weights, axis=1, keepdims=True)
