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

    h_i is the vector [D] of token i, and W_q, W_k and b are parameters. A_ij is 1 if query i
    selects key j, else 0; all features share a single selection A. There is a single head, so set
    `num_heads` to 1. The projections "value" and "out" are additions: DiSAN averages the states
    themselves.

    Attributes:
      num_heads, features: 1, and D, the width of the output (None means that of the inputs).
      selector, temperature: the estimator that draws A in training, such as "st_gumbel" or
        "reinforce" (`SelectiveSelfAttention` lists the names; "none" has no selector), and tau of
        its relaxation.
      causal: True if no query sees the keys of later positions.
      empty: the rule for a query that selects no key: it attends to no key ("zero"), to the key at
        its position ("self") or to all keys ("all").
      dropout: rate of dropout on the weights.
      score_scale: c, which bounds the scores.
      exclude_self: True if tokens cannot attend to themselves; `Selection` does not count the pair
        of a token with itself then.
      relative: must stay "none", because a relative bias belongs to a head.
      cap: bounds the gradient of keys that hard draws leave out by exp(cap).
      renormalise: False multiplies the softmax of e by A without a second normalisation.
      block, remat: options that save memory: the number of queries that are processed at a time
        (None means all), and True to compute scores, noise and weights again for the gradient.
      kernel_init, bias_init: initialisers of the projections.
      dtype, param_dtype: dtype of the products (None means the common dtype of inputs and
        parameters), and of the parameters.
      return_weights: False returns the output without the `Selection`.

    Reference: Shen et al. 2018 (DiSAN), token2token attention.
    """

    score_scale: float = 5.0
    exclude_self: bool = False

    def _check(self, *arguments: Any) -> int:
        """Raises ValueError for options or arguments that do not fit; returns the width D.

        D is the width of the output. The arguments are the inputs [B, N, E] of N tokens of B rows
        with width E and the mask [B, N] of a call, and its source and source_mask.
        """
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
        """Returns (scores, mask, values): a score for each feature, and the values to be averaged.

        There are B rows, Q queries, N keys and D features. `heads` are the projections by name:
        "query" [B, 1, Q, D], "key" and "value", both [B, 1, N, D]. `positions` belong to the
        queries and are not used. The mask [B, N] is True at real keys; None means that all are.

        The scores are [B, D, Q, N] with the features in the place of heads, the returned mask
        [B or 1, 1, 1, N] is True at real keys, and the values are [B, N, D], 0 at padding.
        """
        # The axis of heads has size 1 and is dropped.
        query, key, value = (heads[name][:, 0] for name in ("query", "key", "value"))
        # The scores are [B, D, Q, N]: the features take the place of the heads, because each
        # feature has a softmax.
        scores = multi_dimensional_scores(query, key, self.score_scale)
        size = key.shape[1]
        allowed = (jnp.ones((1, size), bool) if mask is None else mask)[:, None, None]
        return scores, allowed, value if mask is None else jnp.where(mask[..., None], value, 0)

    def _visible(self, positions: Int[Array, " Q"], size: int) -> Bool[Array, "1 1 Q N"] | None:
        """Returns True for the pairs of a query and a key that `causal` and `exclude_self` allow.

        `causal` excludes keys at later positions than the query, and `exclude_self` the key at its
        position. `positions` are the positions of the Q queries among the keys, and `size` is the
        number N of keys. A result of None means all pairs.
        """
        pairs = super()._visible(positions, size)
        if not self.exclude_self:
            return pairs
        return both_allow(pairs, (positions[:, None] != jnp.arange(size)[None])[None, None])

    def _mix_values(self, weights: Array, value: Array) -> Array:
        """Averages values [B, N, D] with the weights [B, D, Q, N] of each feature: [B, 1, Q, D].

        There are B rows, D features, Q queries and N keys.
        """
        return multi_dimensional_values(weights, value)[:, None]

    def _recorded_weights(self, weights: Array) -> Array:
        """Returns the mean of the weights [B, D, Q, N] over the D features: [B, 1, Q, N].

        There are B rows, Q queries and N keys; the axis of size 1 stands for a single head.
        """
        # The weights have an axis of features in the place of heads: the record has their mean.
        return jnp.mean(weights, axis=1, keepdims=True)
