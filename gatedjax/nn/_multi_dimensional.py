"""Self-attention with a separate softmax for each feature."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._pairs import both_allow
from gatedjax.functional._recurrence import real_alone
from gatedjax.nn._selective import SelectiveSelfAttention


class MultiDimensionalAttention(SelectiveSelfAttention):
    """Self-attention with a softmax for each of D features (Shen et al. 2018, DiSAN).

        e_ij = c tanh((W_q h_i + W_k h_j + b) / c),  W_ijd = A_ij exp(e_ijd) / sum_k A_ik exp(e_ikd)

    All features share the selection A, and `num_heads` must be 1.
    """

    score_scale: float = 5.0  # c, which bounds the scores
    exclude_self: bool = False  # tokens cannot attend to themselves

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
        """Returns scores [B, D, Q, N], with features for heads, the mask and the values."""
        # The axis of heads has size 1 and is dropped.
        query, key, value = (heads[name][:, 0] for name in ("query", "key", "value"))
        # The scores are [B, D, Q, N]: the features take the place of the heads, because each
        # feature has a softmax.
        summed = query[..., :, None, :] + key[..., None, :, :]
        scores = jnp.tanh(summed.astype(wide_dtype(summed)) / self.score_scale)
        scores = jnp.moveaxis(self.score_scale * scores, -1, -3)
        size = key.shape[1]
        allowed = (jnp.ones((1, size), bool) if mask is None else mask)[:, None, None]
        return scores, allowed, real_alone(value, mask)

    def _visible(self, positions: Int[Array, " Q"], size: int) -> Bool[Array, "1 1 Q N"] | None:
        pairs = super()._visible(positions, size)
        if not self.exclude_self:
            return pairs
        return both_allow(pairs, (positions[:, None] != jnp.arange(size)[None])[None, None])

    def _mix_values(self, weights: Array, value: Array) -> Array:
        wide = value.astype(wide_dtype(value))
        mixed = jnp.einsum("...dqn,...nd->...qd", weights, wide)
        return mixed.astype(value.dtype)[:, None]

    def _recorded_weights(self, weights: Array) -> Array:
        # The weights have an axis of features in the place of heads: the record has their mean.
        return jnp.mean(weights, axis=1, keepdims=True)
