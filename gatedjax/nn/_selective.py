"""Self-attention whose keys a selector chooses."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from gatedjax import functional as F
from gatedjax._utils.types import Options, Tree
from gatedjax.functional._checks import check_that
from gatedjax.functional._pairs import both_allow, causal_pairs, check_key_mask, pair_mask_of
from gatedjax.functional._selective import Empty, attention_scores, weighted_values
from gatedjax.functional._types import Dtype
from gatedjax.gates import Estimator
from gatedjax.gates._train import Gates
from gatedjax.nn._attention_inputs import check_attention, heads_of, zero_padding
from gatedjax.nn._in_blocks import in_blocks
from gatedjax.nn._keys import example_keys
from gatedjax.nn._relative import Relative, local_start
from gatedjax.nn._selection import (
    Selection,
    Selector,
    draw_selection,
    selection_of,
    selection_record,
    selector_estimator,
)
from gatedjax.nn._types import Initializer

# "uniform unit scaling" of the authors' code
unit_scaling = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


class SelectiveSelfAttention(nn.Module):
    """Multi-head attention in which every query attends to the keys that it selects.

        e = Q K^T / sqrt(D/M),  s = Q_s K_s^T,  A ~ Bernoulli(sigmoid(s))
        W_ij = A_ij exp(e_ij) / sum_k A_ik exp(e_ik),  out = concat_heads(W V) W_o + b_o

    Parameters "query", "key", "value" and "out" have the shapes of flax's
    `MultiHeadDotProductAttention`, and selector="none" computes the same.

    Attributes:
      num_heads: M.
      features: D of the projections and of the output; None takes that of the inputs.
      selector: the estimator of `gatedjax.gates` by which A is drawn in training, by its name:
        "st_gumbel" ("st"), "soft_gumbel" ("soft"), "mean_field" ("expect"), "straight_through",
        "reinmax", "hard_concrete" and "hard_kuma"; "reinforce", hard draws without a gradient
        (train with `Selection.log_prob`); "leave_one_out", "arm" and "disarm", the same (train
        with `Selection.score`, from several passes); or any `gates.Pathwise`, an object. In
        evaluation A = [s > 0] for all of them. "none" has no selector.
      share_heads: one selection for all heads.
      causal: no query sees a key after its own; needed by `decode`.
      empty: what a query that selects nothing attends to (see `functional.selective_weights`).
      temperature: tau of the relaxation; a call may give another one.
      relative: b, a learned bias of e per head and offset j - i of the key, in e = Q K^T /
        sqrt(D/M) + b with or without a selector: "none", "learned" from 0, or "local" from a head
        that looks at the word before and one that looks at the word after.
      max_offset: K; keys that stand further away have the bias of this offset.
      dropout: on the weights.
      cap: bound of the gradient of keys that hard draws leave out, see
        `functional.selective_weights`; give 0 to networks of many layers, which 10 lets explode.
      renormalise: see `functional.selective_weights`.
      block: queries at a time, whose weights are computed again for the gradient: no array of
        [B, M, N, N] is ever stored. None takes all at once.
      remat: compute scores, noise and weights again for the gradient instead of storing them; on a
        CPU, whose compiler merges the two computations, use block.

    Streams: "gate" (training with a selector that draws) and "dropout" (training with dropout),
    keyed by example. In place of "gate" there may be "antithetic": of one key, both draw the same
    noise, with opposite signs.

    Reference: Geng et al. 2020, "How Does Selective Mechanism Improve Self-Attention Networks?",
      eqs. 2 to 5; the authors' code for what it leaves open ("st", heads with a selector each,
      temperature 0.5, no scaling of s).
    """

    num_heads: int = 8
    features: int | None = None
    selector: Selector = "st_gumbel"
    share_heads: bool = False
    causal: bool = False
    empty: Empty = "zero"
    temperature: float = 0.5
    relative: Relative = "none"
    max_offset: int = 8
    dropout: float = 0.0
    cap: float = 10.0
    renormalise: bool = True
    block: int | None = None
    remat: bool = False
    kernel_init: Initializer = unit_scaling
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def __call__(
        self,
        inputs: Float[Array, "B Q D"],
        mask: Bool[Array, "B Q"] | None = None,
        *,
        source: Float[Array, "B N D2"] | F.AttentionCache | None = None,
        source_mask: Bool[Array, "B N"] | None = None,
        pair_mask: Bool[Array, "B M Q N"] | None = None,
        deterministic: bool = True,
        example_id: Int[Array, " B"] | None = None,
        temperature: float | Float[Array, ""] | None = None,
        dropout_bytes: UInt[Array, "B M Q N"] | None = None,
    ) -> tuple[Float[Array, "B Q D"], Selection]:
        """Returns (output, what was selected); the output is 0 at padding.

        Args:
          inputs: one vector per token.
          mask: True at real tokens.
          source: what keys, values and keys of the selector are made of, another sequence, or what
            `source_cache` made of it; None is the inputs themselves.
          source_mask: True at its real tokens.
          pair_mask: True where a query may see a key, [B, Q, N] or with an axis of heads (any axis
            may be 1), beside the masks of padding. A query that sees nothing gathers 0.
          deterministic: False draws selections and dropout.
          example_id: what the random bits of a row are keyed to; None takes row numbers.
          temperature: instead of that of the module; it may be traced.
          dropout_bytes: the random bytes of dropout (see `functional.pair_bytes`), for networks
            that draw those of all layers at once; None draws them here, as `block` always does.

        Raises:
          flax.errors.InvalidRngError: if a stream that is needed was not given.
        """
        features = self._check(inputs, mask, source, source_mask)
        queries = zero_padding(self.dtype, inputs, mask)
        heads, read_mask = self._heads(queries, features, "query"), mask
        if isinstance(source, F.AttentionCache):
            heads, read_mask = heads | heads_of(source), source.mask
        elif source is not None:
            heads |= self._heads(zero_padding(self.dtype, source, source_mask), features, "key")
            read_mask = source_mask
        else:
            heads |= self._heads(queries, features, "key")
        estimator, draws_bytes = None, dropout_bytes is None or self.block is not None
        if not deterministic:
            tau = self.temperature if temperature is None else temperature
            estimator = selector_estimator(self.selector, tau)
        needed = {
            "gate": estimator is not None and estimator.rows > 0,
            "dropout": not deterministic and self.dropout > 0 and draws_bytes,
        }
        attend: Callable[..., Tree] = functools.partial(
            self._attend,
            mask=read_mask,
            keys=self._keys(inputs, example_id, needed),
            estimator=estimator,
            deterministic=deterministic,
        )
        shape = (inputs.shape[0], self.num_heads, inputs.shape[1], heads["key"].shape[2])
        pairs = pair_mask_of(pair_mask, False, shape)
        if source is not None and pairs is None:
            pairs = jnp.ones((1, 1, *shape[2:]), bool)  # for the number of keys is not of queries
        if self.block is not None:
            mixed, record = in_blocks(attend, heads, self.block, pairs)
        else:
            attend = jax.checkpoint(attend) if self.remat else attend
            mixed, record = attend(heads, jnp.arange(inputs.shape[1]), dropout_bytes, pairs)
        return self._output(mixed, mask, features), selection_of(record, mask)

    def decode(
        self,
        cache: F.AttentionCache,
        inputs: Float[Array, "B n D"],
        mask: Bool[Array, "B n"] | None = None,
    ) -> tuple[F.AttentionCache, Float[Array, "B n D"]]:
        """Attention of the next tokens, one or more, to those so far and to themselves.

        The outputs are those that `__call__` gives for the whole sequence at once without draws. In
        the order of `jax.lax.scan`: (cache, x_t) -> (cache, y_t).

        Args:
          cache: of the tokens before (see `initial_cache`).
          inputs: one vector per new token.
          mask: True at real tokens, which may be preceded by padding; None means all.

        Raises:
          ValueError: also unless causal is set, and if the cache is known to have no room; where
            its position is traced, outputs beyond its room are NaN.
        """
        if not self.causal:
            raise ValueError("decode needs causal=True")
        features = self._check(inputs, mask)
        message = "cache must have as many rows as inputs"
        check_that(cache.mask.shape[0] == inputs.shape[0], message, cache.mask, inputs)
        if (cache.selector_key is None) != (self.selector == "none"):
            raise ValueError("cache must be of this module, with keys of a selector if it has one")
        clean = zero_padding(self.dtype, inputs, mask)
        heads = self._heads(clean, features, "query")
        new = self._heads(clean, features, "key")
        positions = cache.position + jnp.arange(inputs.shape[1])
        cache = F.append_to_cache(cache, **new, mask=mask)
        mixed, _ = self._attend(
            heads | heads_of(cache),
            positions,
            mask=cache.mask,
            keys={},
        )
        return cache, self._output(mixed, mask, features)

    def source_cache(
        self,
        source: Float[Array, "B N D2"],
        source_mask: Bool[Array, "B N"] | None = None,
    ) -> F.AttentionCache:
        """Keys and values of a source that is read again and again, as by a decoder.

        Raises:
          ValueError: also if the module has no `features`, which the width of the source does not
            tell.
        """
        if self.features is None:
            raise ValueError("source_cache needs features, got None")
        check_that(source.ndim == 3, "source must be [B, N, D]", source)
        check_key_mask(source_mask, source.shape[:2], "source_mask")
        heads = self._heads(zero_padding(self.dtype, source, source_mask), self.features, "key")
        shape = source.shape[:2]
        real = (
            jnp.ones(shape, bool) if source_mask is None else jnp.broadcast_to(source_mask, shape)
        )
        return F.AttentionCache(**heads, mask=real, position=jnp.full((), shape[1], jnp.int32))

    @nn.nowrap
    def initial_cache(
        self, rows: int, size: int, features: int | None = None, dtype: Dtype | None = None
    ) -> F.AttentionCache:
        """A cache without tokens.

        Args:
          rows: B.
          size: T, how many tokens it has room for.
          features: width of the inputs, where the module has no `features`.
          dtype: of keys and values; None is that of the module or else of its parameters. A call
            without a dtype of its own computes in that of inputs and parameters together.
        """
        width = self.features or features
        if width is None or size < 1:
            raise ValueError(f"features and a size of at least 1 are needed, got {width}, {size}")

        def room(heads: int) -> Array:
            shape = (rows, heads, size, width // heads)
            return jnp.zeros(shape, dtype or self.dtype or self.param_dtype)

        return F.AttentionCache(
            key=room(self.num_heads),
            value=room(self.num_heads),
            mask=jnp.zeros((rows, size), bool),
            position=jnp.zeros((), jnp.int32),
            selector_key=None
            if self.selector == "none"
            else room(1 if self.share_heads else self.num_heads),
        )

    def _check(self, *arguments: Any) -> int:
        """Checks the module and its arguments; returns D."""
        return check_attention(self, *arguments)

    @nn.compact
    def _made(self, make: Callable[[], Array]) -> Array:
        """What a function makes with parameters of this module; flax lets one method make them."""
        return make()

    def _linear(self, name: str, inputs: Array, shape: Any, axis: Any = -1) -> Array:
        """The projection of that name."""
        types: Options = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        return self._made(
            lambda: nn.DenseGeneral(
                shape, axis=axis, kernel_init=self.kernel_init, name=name, **types
            )(inputs)
        )

    def _heads(
        self, inputs: Array, features: int, side: Literal["query", "key"]
    ) -> dict[str, Array]:
        """One vector per head [B, M, N, H] of every projection of queries, or of what they read."""
        head_shape = (self.num_heads, features // self.num_heads)
        shapes = dict.fromkeys(("query",) if side == "query" else ("key", "value"), head_shape)
        if self.selector != "none":
            shapes[f"selector_{side}"] = (1, features) if self.share_heads else head_shape
        heads = {
            name: jnp.swapaxes(self._linear(name, inputs, shape), 1, 2)
            for name, shape in shapes.items()
        }
        if side == "query" and self.relative != "none":
            start = local_start if self.relative == "local" else nn.initializers.zeros_init()
            shape = (self.num_heads, 2 * self.max_offset + 1)
            heads["relative_bias"] = self._made(
                lambda: self.param("relative_bias", start, shape, self.param_dtype)
            )
        return heads

    def _output(self, mixed: Array, mask: Array | None, features: int) -> Array:
        """What the heads gathered [B, M, Q, H] as [B, Q, D], 0 at padding."""
        output = self._linear("out", jnp.swapaxes(mixed, 1, 2), features, axis=(-2, -1))
        if mask is None:
            return output
        return jnp.where(mask[..., None], output, jnp.zeros_like(output))

    def _keys(
        self, inputs: Array, example_id: Array | None, needed: dict[str, bool]
    ) -> dict[str, Array]:
        """Returns the keys per example of the streams that this pass draws from."""
        streams = {name for name, is_needed in needed.items() if is_needed}
        if "gate" in streams and self.has_rng("antithetic") and not self.has_rng("gate"):
            streams = streams - {"gate"} | {"antithetic"}
        return {one: example_keys(self, one, example_id, len(inputs)) for one in sorted(streams)}

    def _attend(
        self,
        heads: dict[str, Array],
        positions: Int[Array, " Q"],
        dropout_bytes: Array | None = None,
        pairs: Array | None = None,
        *,
        mask: Array | None,
        keys: dict[str, Array],
        estimator: Estimator | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B M Q H"], dict[str, Array]]:
        """Attention of the queries at some positions, and what it was made of."""
        scores, allowed, value = self._scores(heads, positions, mask)
        pairs = both_allow(pairs, self._visible(positions, heads["key"].shape[2]))
        allowed = both_allow(allowed, pairs)
        if self.selector == "none":
            weights, record = F.masked_softmax(scores, allowed), {}
        else:
            logits = jnp.einsum(
                "bmqd,bmkd->bmqk",
                heads["selector_query"],
                heads["selector_key"],
                preferred_element_type=scores.dtype,
            )
            drawn = Gates(F.threshold_gates(logits), hard=True)
            if estimator is not None:
                drawn = draw_selection(estimator, logits, positions, keys)
            weights = self._weights(scores, drawn, allowed, positions)
            if pairs is not None and self.share_heads:  # it counts where any head may see the pair
                pairs = jnp.any(pairs, axis=1, keepdims=True)
            record = selection_record(logits, drawn, mask, pairs)
        record["weights"] = self._shown(weights)
        if "dropout" in keys:
            heads_of, size = weights.shape[1], weights.shape[-1]
            dropout_bytes = F.pair_bytes(keys["dropout"], heads_of, positions, size)
        if dropout_bytes is not None and not deterministic:
            weights = F.byte_dropout(weights, self.dropout, dropout_bytes)
        return self._mixed(weights, value), record

    def _scores(
        self, heads: dict[str, Array], positions: Int[Array, " Q"], mask: Array | None
    ) -> tuple[Array, Array | None, Array]:
        """Scores of the queries at some positions, which keys they may see, and the values."""
        query, key, value = (heads[name] for name in ("query", "key", "value"))
        scores, allowed, value = attention_scores(query, key, value, mask)
        if "relative_bias" in heads:
            keys = jnp.arange(scores.shape[-1])
            scores = scores + F.relative_bias(heads["relative_bias"], positions, keys)[None]
        return scores, allowed, value

    def _visible(self, positions: Int[Array, " Q"], size: int) -> Bool[Array, "1 1 Q N"] | None:
        """Pairs that the module lets see each other, whatever the masks; None is all of them."""
        return causal_pairs(positions, size)[None, None] if self.causal else None

    def _mixed(self, weights: Array, value: Array) -> Array:
        """What the queries gather [B, M, Q, H]."""
        return weighted_values(weights, value)

    def _shown(self, weights: Array) -> Array:
        """The weights as `Selection` has them."""
        return weights

    def _weights(
        self,
        scores: Array,
        drawn: Gates,
        allowed: Array | None,
        positions: Int[Array, " Q"],
    ) -> Array:
        """Attention weights under gates."""
        if drawn.logarithms is not None:
            log_gates = jnp.broadcast_to(drawn.logarithms, scores.shape)
            return F.relaxed_gated_softmax(scores, log_gates, allowed)
        return F.selective_weights(
            scores,
            drawn.values,
            allowed,
            hard=drawn.hard,
            empty=self.empty,
            cap=self.cap,
            renormalise=self.renormalise,
            positions=positions,
        )
