"""Self-attention with a selector of keys."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from gatedjax import functional as F
from gatedjax._utils.types import Keywords, Tree
from gatedjax.functional._checks import check_positive, check_that
from gatedjax.functional._dot_product import pair_products, weighted_values
from gatedjax.functional._pairs import both_allow, causal_pairs, check_key_mask, pair_mask_of
from gatedjax.functional._selective import Empty, attention_scores
from gatedjax.functional._types import Dtype
from gatedjax.gates import Estimator
from gatedjax.gates._train import Gates
from gatedjax.nn._attention_inputs import (
    Relative,
    check_attention,
    heads_of,
    local_start,
    zero_padding,
)
from gatedjax.nn._in_blocks import in_blocks
from gatedjax.nn._initializers import ZEROS
from gatedjax.nn._keys import example_keys, warn_unused
from gatedjax.nn._selection import (
    Selector,
    draw_selection,
    selection_of,
    selection_record,
    selector_estimator,
)
from gatedjax.nn._types import Initializer

# The authors' code has this initialiser under the name "uniform unit scaling".
unit_scaling = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


class SelectiveSelfAttention(nn.Module):
    """Multi-head attention in which each query attends to the keys that it selects.

        e = Q K^T / sqrt(D/M),  s = Q_s K_s^T,  A ~ Bernoulli(sigmoid(s))
        W_ij = A_ij exp(e_ij) / sum_k A_ik exp(e_ik),  out = concat_heads(W V) W_o + b_o

    Q, K, V, Q_s and K_s are linear projections of the inputs, e are the scores, s the log-odds that
    query i selects key j, A the drawn selections (0 or 1, or between for a relaxation), and W the
    attention weights.

    The parameters "query", "key", "value" and "out" have the shapes of Flax's
    `MultiHeadDotProductAttention`, and with selector="none" the output is the same.

        >>> xs, mask = jnp.ones((1, 4, 8)), jnp.array([[True, True, True, False]])
        >>> attention = SelectiveSelfAttention(num_heads=2)
        >>> variables = attention.init(jax.random.key(0), xs, mask)
        >>> output, selection = attention.apply(
        ...     variables, xs, mask, deterministic=False, rngs={"gate": jax.random.key(1)}
        ... )
        >>> print(output.shape, selection.gates.shape)
        (1, 4, 8) (1, 2, 4, 4)

    Streams: "gate" (training with a selector that draws) and "dropout" (training with dropout),
    with a key per example. With the same key, a stream "antithetic" in place of "gate" draws the
    same noise with the opposite sign.

    Attributes:
      num_heads: M, the number of heads; must divide D.
      features: D, the width of the projections and of the output; None means the width of the
        inputs.
      selector: the estimator of `gatedjax.gates` that draws A in training. Trained by the gradient
        are the names of estimators along the path, such as "st_gumbel" and "mean_field", and any
        `gates.Pathwise` object. "reinforce" draws hard gates without a gradient (train with
        `Selection.log_prob`), and so do "leave_one_out", "arm" and "disarm" (train with
        `Selection.score`, from several passes). In evaluation A = [s > 0] for all of them.
        "threshold" has A = [s > 0] in training too, without noise and without a gradient of s, for
        a selector that is not trained. "none" has no selector.
      share_heads: True if all heads share a single selection.
      causal: True if no query sees the keys of later positions; needed by `decode`.
      empty: the rule for a query that selects no key: it attends to no key ("zero"), to the key at
        its position ("self") or to all keys ("all").
      temperature: tau of the relaxation; the argument of a call takes precedence.
      relative: b, a learned bias of e per head and offset j - i of the key, in e = Q K^T /
        sqrt(D/M) + b with or without a selector: "none"; "learned", initially 0; or "local", where
        initially a head attends to the word before and another to the word after.
      max_offset: K, the largest offset with a separate bias; keys further away have the bias of
        this offset.
      dropout: rate of dropout on the weights.
      cap: bound of the gradient of keys that hard draws leave out, see
        `functional.selective_weights`; use 0 for networks with many layers, because their gradients
        explode with 10.
      renormalise: False multiplies softmax(e) by A, without a second normalisation.
      block: number of queries that are processed at a time. The weights of a block are computed
        again for the gradient, so that no array over all pairs of tokens is ever stored. None
        processes all queries at once.
      remat: True computes scores, noise and weights again for the gradient instead of storing them.
        Use block on a CPU, because its compiler merges the two computations.
      kernel_init: initialiser of the projections.
      dtype: dtype of the products; None means the common dtype of inputs and parameters.
      param_dtype: dtype of the parameters.
      bias_init: initialiser of the biases of the projections.
      return_weights: False returns the output without the weights and selections.

    Reference: Geng et al. 2020, "How Does Selective Mechanism Improve Self-Attention Networks?",
      eqs. 2 to 5. Details that the paper leaves open follow the authors' code ("st_gumbel", a
      selector per head, temperature 0.5, no scaling of s).
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
    bias_init: Initializer = ZEROS
    return_weights: bool = True

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
        return_weights: bool | None = None,
    ) -> Any:
        """Attends from the inputs to the inputs, or to another sequence.

        Args:
          inputs: a vector of width D for each of Q tokens of B rows, the queries.
          mask: True at real tokens; None means all.
          source: another sequence, a vector of width D2 for each of N tokens, from which keys,
            values and the keys of the selector are computed, or the `AttentionCache` that
            `source_cache` returns for it; None means the inputs.
          source_mask: True at real tokens of source; None means all.
          pair_mask: True where a query may see a key, [B, Q, N] or with an axis of M heads (any
            axis may be 1), in addition to the masks of padding. A query that sees no key attends to
            0.
          deterministic: False draws selections from the PRNG stream "gate" and dropout from
            "dropout"; True opens the keys whose log-odds s are above 0.
          example_id: a number for each row that identifies its example, to which the random bits
            belong; None means the row numbers.
          temperature: tau of the relaxation, instead of the attribute of the module (None); may be
            traced.
          dropout_bytes: the random bytes of dropout (see `functional.pair_bytes`), for networks
            that draw the bytes of all layers at once; None draws them here. With `block` they are
            always drawn here.
          return_weights: False returns only the output, as in Flax's
            `MultiHeadDotProductAttention`; None means the attribute.

        Returns:
          (output, selection): the output [B, Q, D], 0 at padding, and a `Selection` with the
          attention weights and selected keys [B, M, Q, N] of M heads. With return_weights=False
          only the output.

        Raises:
          flax.errors.InvalidRngError: if a stream that is needed is missing.
        """
        features = self._check(inputs, mask, source, source_mask)
        # Padding is set to 0 first, because NaN at padding would spread by products.
        queries = zero_padding(self.dtype, inputs, mask)
        heads, read_mask = self._heads(queries, features, "query"), mask
        if isinstance(source, F.AttentionCache):
            heads, read_mask = heads | heads_of(source), source.mask
        elif source is not None:
            heads |= self._heads(zero_padding(self.dtype, source, source_mask), features, "key")
            read_mask = source_mask
        else:
            heads |= self._heads(queries, features, "key")
        if temperature is not None:
            check_positive(temperature=temperature)
        estimator, draws_bytes = None, dropout_bytes is None or self.block is not None
        if not deterministic:
            tau = self.temperature if temperature is None else temperature
            estimator = selector_estimator(self.selector, tau)
        else:
            gate = ["gate", "antithetic"] if self.selector not in ("none", "threshold") else []
            warn_unused(self, *gate, *["dropout"] * (self.dropout > 0))
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
            # Without pairs the statistics would take the number of queries for that of keys.
            pairs = jnp.ones((1, 1, *shape[2:]), bool)
        if self.block is not None:
            mixed, record = in_blocks(attend, heads, self.block, pairs)
        else:
            attend = jax.checkpoint(attend) if self.remat else attend
            mixed, record = attend(heads, jnp.arange(inputs.shape[1]), dropout_bytes, pairs)
        output = self._output(mixed, mask, features)
        has_weights = self.return_weights if return_weights is None else return_weights
        return (output, selection_of(record, mask)) if has_weights else output

    def decode(
        self,
        cache: F.AttentionCache,
        inputs: Float[Array, "B n D"],
        mask: Bool[Array, "B n"] | None = None,
    ) -> tuple[F.AttentionCache, Float[Array, "B n D"]]:
        """Attends from the next tokens to the tokens in a cache and to themselves.

        The outputs equal the deterministic outputs of `__call__` for the whole sequence.

        Args:
          cache: the keys and values of the tokens before (see `initial_cache`).
          inputs: a vector of width D for each of n new tokens of B rows.
          mask: True at real tokens, which may be preceded by padding; None means that all are real.

        Returns:
          (cache with the new tokens, outputs [B, n, D]), in the order of `jax.lax.scan`.

        Raises:
          ValueError: also if `causal` is False, and if the cache has no room for the tokens. Under
            `jit`, where the position of the cache is traced, outputs beyond its room are NaN.
        """
        if not self.causal:
            raise ValueError("causal must be True for decode, got False")
        features = self._check(inputs, mask)
        message = "cache must have as many rows as inputs"
        check_that(cache.mask.shape[0] == inputs.shape[0], message, cache.mask, inputs)
        if (cache.selector_key is None) != (self.selector == "none"):
            requirement = "None" if self.selector == "none" else "an array"
            got = "None" if cache.selector_key is None else "an array"
            raise ValueError(
                f"cache.selector_key must be {requirement} for selector={self.selector!r}, "
                f"got {got}: create the cache by initial_cache of this module"
            )
        clean = zero_padding(self.dtype, inputs, mask)
        heads = self._heads(clean, features, "query")
        new = self._heads(clean, features, "key")
        # Positions count from the first token of the sequence, so that causal masks and relative
        # biases are those of the whole sequence.
        positions = cache.position + jnp.arange(inputs.shape[1])
        cache = F.append_to_cache(cache, **new, mask=mask)
        mixed, _ = self._attend(heads | heads_of(cache), positions, mask=cache.mask, keys={})
        return cache, self._output(mixed, mask, features)

    def source_cache(
        self, source: Float[Array, "B N D2"], source_mask: Bool[Array, "B N"] | None = None
    ) -> F.AttentionCache:
        """Computes the keys and values of a source once, for many calls, as in a decoder.

        Args:
          source: a vector of width D2 for each of N tokens of the source.
          source_mask: True at real tokens of the source; None means all.

        Returns:
          An `AttentionCache` with the keys and values, to be passed as `source` of a call.

        Raises:
          ValueError: also if `features` is None, because the width of the inputs is unknown here.
        """
        if self.features is None:
            raise ValueError("features must be an integer for source_cache, got None")
        check_that(source.ndim == 3, "source must be [B, N, D]", source)
        check_key_mask(source_mask, source.shape[:2], "source_mask")
        heads = self._heads(zero_padding(self.dtype, source, source_mask), self.features, "key")
        shape = source.shape[:2]
        real = (
            jnp.ones(shape, bool) if source_mask is None else jnp.broadcast_to(source_mask, shape)
        )
        # The cache of a source is full: its position is its length.
        return F.AttentionCache(**heads, mask=real, position=jnp.full((), shape[1], jnp.int32))

    @nn.nowrap
    def initial_cache(
        self, rows: int, size: int, features: int | None = None, dtype: Dtype | None = None
    ) -> F.AttentionCache:
        """Returns an empty `AttentionCache`, with room for the keys and values of `size` tokens.

        Args:
          rows: B, rows of the batch.
          size: T, the number of tokens for which the cache has room.
          features: width of the inputs, needed if the attribute `features` is None.
          dtype: dtype of keys and values; None means the `dtype` of the module or, if that is None,
            its `param_dtype`. A module without a dtype computes in the common dtype of inputs and
            parameters.

        Raises:
          ValueError: if the width is unknown, or size is below 1.
        """
        width = self.features or features
        if width is None:
            raise ValueError("features must be an integer for initial_cache, got None")
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")

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
        return check_attention(self, *arguments)

    @nn.compact
    def _create(self, make: Callable[[], Array]) -> Array:
        return make()  # Flax demands a single compact method

    def _linear(self, name: str, inputs: Array, shape: Any, axis: Any = -1) -> Array:
        """Applies the linear projection `name`, such as "query", to the inputs [B, N, D]."""
        types: Keywords = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        return self._create(
            lambda: nn.DenseGeneral(
                shape,
                axis=axis,
                kernel_init=self.kernel_init,
                bias_init=self.bias_init,
                name=name,
                **types,
            )(inputs)
        )

    def _heads(
        self, inputs: Array, features: int, side: Literal["query", "key"]
    ) -> dict[str, Array]:
        """Computes the projections of the inputs [B, N, D] by name, each [B, M, N, H]."""
        head_shape = (self.num_heads, features // self.num_heads)
        shapes = dict.fromkeys(("query",) if side == "query" else ("key", "value"), head_shape)
        if self.selector != "none":
            shapes[f"selector_{side}"] = (1, features) if self.share_heads else head_shape
        heads = {
            name: jnp.swapaxes(self._linear(name, inputs, shape), 1, 2)
            for name, shape in shapes.items()
        }
        # The relative bias belongs to the scores, so that only one of the two sides computes it.
        if side == "query" and self.relative != "none":
            start = local_start if self.relative == "local" else nn.initializers.zeros_init()
            shape = (self.num_heads, 2 * self.max_offset + 1)
            heads["relative_bias"] = self._create(
                lambda: self.param("relative_bias", start, shape, self.param_dtype)
            )
        return heads

    def _output(self, mixed: Array, mask: Array | None, features: int) -> Array:
        output = self._linear("out", jnp.swapaxes(mixed, 1, 2), features, axis=(-2, -1))
        # The bias b_o would give padding a vector.
        if mask is None:
            return output
        return jnp.where(mask[..., None], output, jnp.zeros_like(output))

    def _keys(
        self, inputs: Array, example_id: Array | None, needed: dict[str, bool]
    ) -> dict[str, Array]:
        """Returns the PRNG keys of the streams that this pass draws from: {stream: keys [B]}."""
        streams = {name for name, is_needed in needed.items() if is_needed}
        # Either stream is enough, because both draw the same noise up to the sign.
        if "gate" in streams and self.has_rng("antithetic") and not self.has_rng("gate"):
            streams = streams - {"gate"} | {"antithetic"}
        return {
            stream: example_keys(self, stream, example_id, len(inputs))
            for stream in sorted(streams)
        }

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
        """Attends from the Q queries at some positions to N keys, with M heads of width H."""
        scores, allowed, value = self._scores(heads, positions, mask)
        pairs = both_allow(pairs, self._visible(positions, heads["key"].shape[2]))
        allowed = both_allow(allowed, pairs)
        if self.selector == "none":
            weights, record = F.masked_softmax(scores, allowed), {}
        else:
            # The logits s are not divided by sqrt(H), as in the paper and the authors' code.
            logits = pair_products(heads["selector_query"], heads["selector_key"])
            gates = Gates(F.threshold_gates(logits), hard=True)
            if estimator is not None:
                gates = draw_selection(estimator, logits, positions, keys)
            weights = self._weights(scores, gates, allowed, positions)
            # A shared selection counts for a pair that any of the heads may see.
            if pairs is not None and self.share_heads:
                pairs = jnp.any(pairs, axis=1, keepdims=True)
            record = selection_record(logits, gates, mask, pairs)
        # The record has the weights without dropout, which is noise of training and not attention.
        record["weights"] = self._recorded_weights(weights)
        if "dropout" in keys:
            heads_of, size = weights.shape[1], weights.shape[-1]
            dropout_bytes = F.pair_bytes(keys["dropout"], heads_of, positions, size)
        if dropout_bytes is not None and not deterministic:
            weights = F.byte_dropout(weights, self.dropout, dropout_bytes)
        return self._mix_values(weights, value), record

    def _scores(
        self, heads: dict[str, Array], positions: Int[Array, " Q"], mask: Array | None
    ) -> tuple[Array, Array | None, Array]:
        """Returns the scores of queries, True where they may see a key, and the values."""
        query, key, value = (heads[name] for name in ("query", "key", "value"))
        scores, allowed, value = attention_scores(query, key, value, mask)
        if "relative_bias" in heads:
            keys = jnp.arange(scores.shape[-1])
            scores = scores + F.relative_bias(heads["relative_bias"], positions, keys)[None]
        return scores, allowed, value

    def _visible(self, positions: Int[Array, " Q"], size: int) -> Bool[Array, "1 1 Q N"] | None:
        return causal_pairs(positions, size)[None, None] if self.causal else None

    def _mix_values(self, weights: Array, value: Array) -> Array:
        return weighted_values(weights, value)

    def _recorded_weights(self, weights: Array) -> Array:
        return weights

    def _weights(
        self, scores: Array, gates: Gates, allowed: Array | None, positions: Int[Array, " Q"]
    ) -> Array:
        """Computes the attention weights [B, M, Q, N] from scores of this shape under gates."""
        if gates.logarithms is not None:
            log_gates = jnp.broadcast_to(gates.logarithms, scores.shape)
            return F.relaxed_gated_softmax(scores, log_gates, allowed)
        return F.selective_weights(
            scores,
            gates.values,
            allowed,
            hard=gates.hard,
            empty=self.empty,
            cap=self.cap,
            renormalise=self.renormalise,
            positions=positions,
        )
