"""Self-attention whose keys a selector chooses, and pooling with a softmax per feature."""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, UInt

from gatedjax import functional as F
from gatedjax._types import Options, Tree
from gatedjax.functional._attention_statistics import check_statistics, statistics_in_blocks
from gatedjax.functional._blocks import block_positions, join_queries, split_queries
from gatedjax.functional._checks import check_choice, check_mask, check_shape, check_that
from gatedjax.functional._export import exportable
from gatedjax.functional._pairs import both_allow, causal_pairs, check_key_mask, pair_mask_of
from gatedjax.functional._selective import Empty, attention_scores, weighted_values
from gatedjax.functional._skipping import skipping_attention
from gatedjax.functional._types import Dtype
from gatedjax.gates._named import EstimatorName, named
from gatedjax.gates._score import score
from gatedjax.nn._keys import example_keys
from gatedjax.nn._types import Initializer

Selector = Literal[
    "none",
    "st",
    "soft",
    "expect",
    "reinforce",
    "straight_through",
    "reinmax",
    "hard_concrete",
    "hard_kuma",
    "leave_one_out",
    "arm",
    "disarm",
]
Relative = Literal["none", "learned", "local"]
BY_VALUES = ("leave_one_out", "arm", "disarm")
"""Selectors that are trained by differences of the loss between several passes."""
_STRETCHED = ("hard_concrete", "hard_kuma")
_BY_DERIVATIVE = ("straight_through", "reinmax", *_STRETCHED)

LOCAL_BIAS = 4.0
"""Bias that a local head starts with, in nats: e^4 is the weight of 55 other words."""


def local_start(key: Array, shape: tuple[int, int], dtype: Dtype = jnp.float32) -> Array:
    """Biases [M, 2K + 1] of which head 0 starts at the word before and head 1 at the word after."""
    del key
    middle = shape[1] // 2
    return jnp.zeros(shape, dtype).at[[0, 1], [middle - 1, middle + 1]].set(LOCAL_BIAS)


# "uniform unit scaling" of the authors' code
unit_scaling = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


@exportable
@struct.dataclass
class Selection:
    """What one attention layer did. Fields of the selector are None where there is none.

    Attributes:
      weights: W [B, M, Q, N], 0 at padded keys; None for an attention in blocks or one
        that skips keys.
      gates: A of this pass [B, M, Q, N] (M = 1 for a shared selector), before the rule for queries
        that select nothing; None as weights.
      logits: log-odds of a selection, as gates.
      rate: share of the pairs that may see each other that were selected [B, M].
      empty: share of the real queries that selected nothing [B, M].
      selected: mean number of keys that a real query selected [B, M].
      entropy: mean entropy of the selection over pairs and heads [B], in nats.
      log_prob: mean log-probability of the selection over pairs and heads [B], in nats.
      probability: mean probability of a selection over pairs and heads [B].
      score: what a difference of the loss is multiplied with to train the selector [B]: its
        derivative with respect to every logit is the weight of the estimator, its value means
        nothing. None unless the selector is trained by values of the loss.
    """

    weights: Array | None = None
    gates: Array | None = None
    logits: Array | None = None
    rate: Array | None = None
    empty: Array | None = None
    selected: Array | None = None
    entropy: Array | None = None
    log_prob: Array | None = None
    probability: Array | None = None
    score: Array | None = None


class _Drawn(NamedTuple):
    """The gates of a pass.

    Attributes:
      gates: A.
      logarithms: of soft gates that are never 0, else None.
      hard: whether they are 0 or 1.
      slopes: weights of the logits in `Selection.score`, if it is to be there.
    """

    gates: Array
    logarithms: Array | None = None
    hard: bool = True
    slopes: Array | None = None


class SelectiveSelfAttention(nn.Module):
    """Multi-head attention in which every query attends to the keys that it selects.

        e = Q K^T / sqrt(D/M),  s = Q_s K_s^T,  A ~ Bernoulli(sigmoid(s))
        W_ij = A_ij exp(e_ij) / sum_k A_ik exp(e_ik),  out = concat_heads(W V) W_o + b_o

    Parameters "query", "key", "value" and "out" have the shapes of flax's
    `MultiHeadDotProductAttention`, and selector="none" computes the same.

    Attributes:
      num_heads: M.
      features: D of the projections and of the output; None takes that of the inputs.
      selector: how A is drawn in training: "st", hard draws under the gradient of the relaxation;
        "soft", the relaxation itself; "expect", sigmoid(s) without noise; "straight_through",
        "reinmax", "hard_concrete" and "hard_kuma" as the estimators of `gatedjax.gates`;
        "reinforce", hard draws without a gradient (train with `Selection.log_prob`);
        "leave_one_out", "arm" and "disarm", the same (train with `Selection.score`, from several
        passes). Otherwise A = [s > 0] for all of them. "none" has no selector.
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
      skip: without draws, multiply only keys that a query of a block selects, see
        `functional.skipping_selective_attention`: the outputs are the same, `Selection` has nothing
        over pairs. For a processor; training and `decode` are as without it.
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
    selector: Selector = "st"
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
    skip: bool = False
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
        queries = self._clean(inputs, mask)
        heads, read_mask = self._heads(queries, features, "query"), mask
        if isinstance(source, F.AttentionCache):
            heads, read_mask = heads | _heads_of(source), source.mask
        elif source is not None:
            heads |= self._heads(self._clean(source, source_mask), features, "key")
            read_mask = source_mask
        else:
            heads |= self._heads(queries, features, "key")
        drawn = dropout_bytes is not None and self.block is None
        attend: Callable[..., Tree] = functools.partial(
            self._attend,
            mask=read_mask,
            keys=self._keys(inputs, example_id, deterministic, drawn),
            temperature=self.temperature if temperature is None else temperature,
            deterministic=deterministic,
        )
        shape = (inputs.shape[0], self.num_heads, inputs.shape[1], heads["key"].shape[2])
        pairs = pair_mask_of(pair_mask, False, shape)
        if self.skip and deterministic and self.selector != "none":
            mixed, record = self._skipped(heads, read_mask, pairs)
            return self._output(mixed, mask, features), self._selection(record, mask)
        if source is not None and pairs is None:
            pairs = jnp.ones((1, 1, *shape[2:]), bool)  # for the number of keys is not of queries
        if self.block is not None:
            mixed, record = _in_blocks(attend, heads, self.block, pairs)
        else:
            attend = jax.checkpoint(attend) if self.remat else attend
            mixed, record = attend(heads, jnp.arange(inputs.shape[1]), dropout_bytes, pairs)
        return self._output(mixed, mask, features), self._selection(record, mask)

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
        clean = self._clean(inputs, mask)
        heads = self._heads(clean, features, "query")
        new = self._heads(clean, features, "key")
        positions = cache.position + jnp.arange(inputs.shape[1])
        cache = F.append_to_cache(cache, **new, mask=mask)
        mixed, _ = self._attend(
            heads | _heads_of(cache),
            positions,
            mask=cache.mask,
            keys={},
            temperature=self.temperature,
            deterministic=True,
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
        heads = self._heads(self._clean(source, source_mask), self.features, "key")
        shape = source.shape[:2]
        real = (
            jnp.ones(shape, bool) if source_mask is None else jnp.broadcast_to(source_mask, shape)
        )
        return F.AttentionCache(**heads, mask=real, position=jnp.full((), shape[1], jnp.int32))

    def statistics(
        self,
        inputs: Float[Array, "B N D"],
        mask: Bool[Array, "B N"] | None = None,
        *,
        pair_mask: Bool[Array, "B M N N"] | None = None,
        classes: Int[Array, "B N"] | None = None,
        num_classes: int = 0,
        top: int = 1,
        block: int = 128,
    ) -> F.AttentionStatistics:
        """Statistics of the weights that `__call__` has without draws, which are never whole.

        Args:
          inputs, mask, pair_mask: as of `__call__`.
          classes, num_classes, top, block: see `functional.streamed_attention_statistics`.
        """
        features = self._check(inputs, mask)
        clean = self._clean(inputs, mask)
        heads = self._heads(clean, features, "query") | self._heads(clean, features, "key")
        real, classes = check_statistics(inputs.shape[:2], mask, classes, num_classes, top, block)
        size = inputs.shape[1]
        pairs = pair_mask_of(pair_mask, False, (inputs.shape[0], self.num_heads, size, size))
        if pairs is not None:
            pairs = jnp.broadcast_to(pairs, (*pairs.shape[:2], size, pairs.shape[3]))

        def weigh(given: tuple[dict[str, Array], Array | None], positions: Array) -> Array:
            of_block, block_pairs = given
            options: Options = {"keys": {}, "temperature": self.temperature, "deterministic": True}
            _, record = self._attend(
                heads | of_block, positions, None, block_pairs, mask=mask, **options
            )
            return record["weights"]

        given = ({name: heads[name] for name in heads if name.endswith("query")}, pairs)
        return statistics_in_blocks(weigh, given, real, classes, top, block, num_classes)

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

    def _check(
        self,
        inputs: Array,
        mask: Array | None,
        source: Array | F.AttentionCache | None = None,
        source_mask: Array | None = None,
    ) -> int:
        """Checks the module and its arguments; returns D."""
        check_that(inputs.ndim == 3, "inputs must be [B, N, D]", inputs)
        check_key_mask(mask, inputs.shape[:2])
        features = self.features or inputs.shape[-1]
        if self.num_heads < 1 or features % self.num_heads:
            raise ValueError(f"num_heads must divide {features} features, got {self.num_heads}")
        check_choice(Selector, selector=self.selector)
        check_relative(self.relative, self.max_offset, self.num_heads)
        if self.block is not None and self.block < 1:
            raise ValueError(f"block must be at least 1, got {self.block}")
        if self.skip and (self.relative != "none" or not self.renormalise):
            raise ValueError("skip must be False with a relative bias or without renormalise")
        made = source is None or isinstance(source, F.AttentionCache)
        if made and source_mask is not None:
            raise ValueError("source_mask must be None without source, or with a cache of it")
        if source is None:
            return features
        if self.causal or self.empty == "self" or self.relative != "none":
            raise ValueError(
                "source must be None with causal=True, empty='self' or a relative bias: its places "
                "are not those of the inputs"
            )
        rows = inputs.shape[0]
        if isinstance(source, F.AttentionCache):
            shape = (rows, self.num_heads, source.mask.shape[1], features // self.num_heads)
            check_shape(shape, **{"source.key": source.key, "source.value": source.value})
            if (source.selector_key is None) != (self.selector == "none"):
                raise ValueError("source.selector_key must be there if the module has a selector")
        else:
            fits = source.ndim == 3 and source.shape[0] == rows
            check_that(fits, f"source must be [{rows}, N, D]", source)
            check_key_mask(source_mask, source.shape[:2], "source_mask")
        return features

    def _clean(self, inputs: Array, mask: Array | None) -> Array:
        """The inputs in the dtype of the products, 0 at padding."""
        (inputs,) = nn.dtypes.promote_dtype(inputs, dtype=self.dtype)
        if mask is None:
            return inputs
        return jnp.where(mask[..., None], inputs, jnp.zeros_like(inputs))

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
        self, inputs: Array, example_id: Array | None, deterministic: bool, drawn: bool
    ) -> dict[str, Array]:
        """Keys per example of the streams that this pass draws from."""
        if deterministic:
            return {}
        mirrored = self.has_rng("antithetic") and not self.has_rng("gate")
        streams = {
            "antithetic" if mirrored else "gate": self.selector not in ("none", "expect"),
            "dropout": self.dropout > 0 and not drawn,
        }
        return {
            name: example_keys(self, name, example_id, len(inputs))
            for name, needed in streams.items()
            if needed
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
        temperature: float | Array,
        deterministic: bool,
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
            drawn = _Drawn(F.threshold_gates(logits))
            if not deterministic:
                drawn = self._gates(logits, positions, keys, temperature)
            weights = self._weights(scores, drawn, allowed, positions)
            record = self._record(logits, drawn, mask, pairs)
        record["weights"] = self._shown(weights)
        if "dropout" in keys:
            heads_of, size = weights.shape[1], weights.shape[-1]
            dropout_bytes = F.pair_bytes(keys["dropout"], heads_of, positions, size)
        if dropout_bytes is not None and not deterministic:
            weights = F.byte_dropout(weights, self.dropout, dropout_bytes)
        return self._mixed(weights, value), record

    def _skipped(
        self, heads: dict[str, Array], mask: Array | None, pairs: Array | None
    ) -> tuple[Float[Array, "B M Q H"], dict[str, Array]]:
        """`_attend` without draws, from the keys that are selected."""
        return skipping_attention(
            (heads["query"], heads["key"], heads["value"]),
            (heads["selector_query"], heads["selector_key"]),
            mask,
            pairs,
            causal=self.causal,
            empty=self.empty,
            block=self.block,
        )

    def _record(
        self, logits: Array, drawn: _Drawn, mask: Array | None, pairs: Array | None
    ) -> dict[str, Array]:
        """What `Selection` is made of; over pairs, or summed over the keys of a query."""
        if pairs is not None and self.share_heads:  # a selection counts where any head may see it
            pairs = jnp.any(pairs, axis=1, keepdims=True)
        count = functools.partial(F.selection_counts, mask=mask, pair_mask=pairs)
        record = {
            "gates": drawn.gates,
            "logits": logits,
            "counts": count(drawn.gates),
            "entropies": F.selection_entropy(logits, mask, pair_mask=pairs),
            "log_probs": F.selection_log_prob(logits, drawn.gates, mask, pair_mask=pairs),
            "probabilities": count(jax.nn.sigmoid(logits)),
        }
        if pairs is not None:
            record["keys"] = count(jnp.ones((logits.shape[0], *pairs.shape[1:]), logits.dtype))
        if drawn.slopes is not None:
            record["score"] = count(jax.lax.stop_gradient(drawn.slopes) * logits)
        return record

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
        drawn: _Drawn,
        allowed: Array | None,
        positions: Int[Array, " Q"],
    ) -> Array:
        """Attention weights under gates."""
        if drawn.logarithms is not None:
            log_gates = jnp.broadcast_to(drawn.logarithms, scores.shape)
            return F.relaxed_gated_softmax(scores, log_gates, allowed)
        return F.selective_weights(
            scores,
            drawn.gates,
            allowed,
            hard=drawn.hard,
            empty=self.empty,
            cap=self.cap,
            renormalise=self.renormalise,
            positions=positions,
        )

    def _gates(
        self, logits: Array, positions: Array, keys: dict[str, Array], temperature: float | Array
    ) -> _Drawn:
        """The gates of a training pass."""
        if self.selector == "expect":
            return _Drawn(jax.nn.sigmoid(logits), jax.nn.log_sigmoid(logits), hard=False)
        mirrored = "antithetic" in keys
        key = keys["antithetic" if mirrored else "gate"]
        uniform = F.pair_uniform(key, logits.shape[1], positions, logits.shape[-1])
        uniform = 1 - uniform if mirrored else uniform
        if self.selector == "st":
            options: Options = {"temperature": temperature, "straight_through": True}
            return _Drawn(F.uniform_sigmoid(logits, uniform, **options))
        constant = jax.lax.stop_gradient(logits)
        if self.selector == "reinforce":
            return _Drawn(_hard(constant, uniform))
        noise = jnp.log(uniform) - jnp.log1p(-uniform)
        if self.selector == "soft":
            log_gates = F.log_gumbel_sigmoid(logits, noise, temperature=temperature)
            return _Drawn(jnp.exp(log_gates), log_gates, hard=False)
        name = cast(EstimatorName, self.selector)
        estimator: Any = named(name, temperature=temperature)
        if self.selector in _BY_DERIVATIVE:
            gates = estimator.gates(logits, noise)
            return _Drawn(gates, hard=self.selector not in _STRETCHED)
        gates = _hard(constant, uniform)
        if self.selector == "leave_one_out":
            return _Drawn(gates, slopes=score(constant, gates))
        pair = jnp.stack([gates, _hard(constant, 1 - uniform)])
        return _Drawn(gates, slopes=estimator.weights(constant, noise, pair))

    def _selection(self, record: dict[str, Array], mask: Array | None) -> Selection:
        if self.selector == "none":
            return Selection(weights=record.get("weights"))
        keys = record.get("keys")
        statistics = F.selection_statistics(record["counts"], mask, keys=keys)
        return Selection(
            weights=record.get("weights"),
            gates=record.get("gates"),
            logits=record.get("logits"),
            **statistics._asdict(),
            entropy=F.mean_over_pairs(record["entropies"], mask, keys=keys),
            log_prob=F.mean_over_pairs(record["log_probs"], mask, keys=keys),
            probability=F.mean_over_pairs(record["probabilities"], mask, keys=keys),
            score=_sum_over_queries(record.get("score"), mask),
        )


def check_relative(relative: str, max_offset: int, num_heads: int) -> None:
    """Raises ValueError unless these options of `SelectiveSelfAttention` go together."""
    check_choice(Relative, relative=relative)
    if max_offset < 1:
        raise ValueError(f"max_offset must be at least 1, got {max_offset}")
    if relative == "local" and num_heads < 2:
        raise ValueError(f"relative='local' needs num_heads of at least 2, got {num_heads}")


def _heads_of(cache: F.AttentionCache) -> dict[str, Array]:
    heads = {"key": cache.key, "value": cache.value}
    return heads if cache.selector_key is None else heads | {"selector_key": cache.selector_key}


def _hard(logits: Array, uniform: Array) -> Array:
    """[a + L > 0]."""
    return F.uniform_sigmoid(logits, uniform, straight_through=True)


def _sum_over_queries(values: Array | None, mask: Array | None) -> Array | None:
    """[B, M, N] as [B], without padding."""
    if values is None:
        return None
    if mask is not None:
        values = jnp.where(mask[:, None, :], values, 0)
    return jnp.sum(values, axis=(1, 2))


def _in_blocks(
    attend: Callable[..., tuple[Array, dict[str, Array]]],
    heads: dict[str, Array],
    block: int,
    pairs: Array | None,
) -> tuple[Array, dict[str, Array]]:
    """The attention of a few queries at a time, without the arrays over pairs."""
    size = heads["query"].shape[2]
    queries = [name for name in ("query", "selector_query") if name in heads]

    @jax.checkpoint
    def one(inputs: tuple[dict[str, Array], Array, Any]) -> tuple[Array, dict[str, Array]]:
        block_heads, positions, block_pairs = inputs
        mixed, record = attend(heads | block_heads, positions, None, block_pairs)
        return mixed, {k: v for k, v in record.items() if v.ndim == 3}

    if pairs is not None:
        whole = jnp.broadcast_to(pairs, (*pairs.shape[:2], size, pairs.shape[3]))
        pairs = split_queries(whole, block)
    of_queries = {name: split_queries(heads[name], block) for name in queries}
    mixed, record = jax.lax.map(one, (of_queries, block_positions(size, block), pairs))
    return join_queries(mixed, size), {k: join_queries(v, size) for k, v in record.items()}


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
