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
from gatedjax.functional._checks import check_choice, check_mask, check_that
from gatedjax.functional._selective import Empty, attention_scores, weighted_values
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


@struct.dataclass
class Selection:
    """What one attention layer did. Fields of the selector are None where there is none.

    Attributes:
      weights: W [B, M, N, N], 0 at padded keys; None for an attention in blocks.
      gates: A of this pass [B, M, N, N] (M = 1 for a shared selector), before the rule for queries
        that select nothing; None for an attention in blocks.
      logits: log-odds of a selection, as gates.
      rate: share of the real pairs that were selected [B, M].
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
    """Multi-head self-attention in which every query attends to the keys that it selects.

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
      empty: what a query that selects nothing attends to (see `functional.selective_weights`).
      temperature: tau of the relaxation; a call may give another one.
      relative: b, a learned bias of e per head and offset j - i of the key, in e = Q K^T /
        sqrt(D/M) + b with or without a selector: "none", "learned" from 0, or "local" from a head
        that looks at the word before and one that looks at the word after.
      max_offset: K; keys that stand further away have the bias of this offset.
      dropout: on the weights.
      cap, renormalise: see `functional.selective_weights`.
      block: queries at a time, whose weights are computed again for the gradient: no array of
        [B, M, N, N] is ever stored. None takes all at once.
      remat: compute scores, noise and weights again for the gradient instead of storing them.

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

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        mask: Bool[Array, "B N"] | None = None,
        *,
        deterministic: bool = True,
        example_id: Int[Array, " B"] | None = None,
        temperature: float | Float[Array, ""] | None = None,
        dropout_bytes: UInt[Array, "B M N N"] | None = None,
    ) -> tuple[Float[Array, "B N D"], Selection]:
        """Returns (output, what was selected); the output is 0 at padding.

        Args:
          inputs: one vector per token.
          mask: True at real tokens.
          deterministic: False draws selections and dropout.
          example_id: what the random bits of a row are keyed to; None takes row numbers.
          temperature: instead of that of the module; it may be traced.
          dropout_bytes: the random bytes of dropout (see `functional.pair_bytes`), for networks
            that draw those of all layers at once; None draws them here, as `block` always does.

        Raises:
          flax.errors.InvalidRngError: if a stream that is needed was not given.
        """
        features = self.features or inputs.shape[-1]
        self._check(inputs, features, mask)
        (inputs,) = nn.dtypes.promote_dtype(inputs, dtype=self.dtype)
        if mask is not None:
            inputs = jnp.where(mask[..., None], inputs, jnp.zeros_like(inputs))
        head_shape = (self.num_heads, features // self.num_heads)
        shapes = dict.fromkeys(("query", "key", "value"), head_shape)
        if self.selector != "none":
            shared = (1, features) if self.share_heads else head_shape
            shapes |= {"selector_query": shared, "selector_key": shared}
        heads = {name: self._project(name, inputs, shape) for name, shape in shapes.items()}
        if self.relative != "none":
            start = local_start if self.relative == "local" else nn.initializers.zeros_init()
            columns = 2 * self.max_offset + 1
            heads["relative_bias"] = self.param(
                "relative_bias", start, (self.num_heads, columns), self.param_dtype
            )
        drawn = dropout_bytes is not None and self.block is None
        keys = self._keys(inputs, example_id, deterministic, drawn)
        tau = self.temperature if temperature is None else temperature
        attend: Callable[..., Tree] = functools.partial(
            self._attend, mask=mask, keys=keys, temperature=tau, deterministic=deterministic
        )
        if self.block is not None:
            mixed, record = _in_blocks(attend, heads, self.block)
        else:
            attend = jax.checkpoint(attend) if self.remat else attend
            mixed, record = attend(heads, jnp.arange(inputs.shape[1]), dropout_bytes)
        output = nn.DenseGeneral(
            features,
            axis=(-2, -1),
            kernel_init=self.kernel_init,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            name="out",
        )(jnp.swapaxes(mixed, 1, 2))
        if mask is not None:
            output = jnp.where(mask[..., None], output, jnp.zeros_like(output))
        return output, self._selection(record, mask)

    def _check(self, inputs: Array, features: int, mask: Array | None) -> None:
        check_that(inputs.ndim == 3, "inputs must be [B, N, D]", inputs)
        check_mask(mask, inputs.shape[:2])
        if self.num_heads < 1 or features % self.num_heads:
            raise ValueError(f"num_heads must divide {features} features, got {self.num_heads}")
        check_choice(Selector, selector=self.selector)
        check_relative(self.relative, self.max_offset, self.num_heads)
        if self.block is not None and self.block < 1:
            raise ValueError(f"block must be at least 1, got {self.block}")

    def _project(self, name: str, inputs: Array, shape: tuple[int, int]) -> Array:
        """One vector per head [B, M, N, H]."""
        heads = nn.DenseGeneral(
            shape,
            kernel_init=self.kernel_init,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            name=name,
        )(inputs)
        return jnp.swapaxes(heads, 1, 2)

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
        *,
        mask: Array | None,
        keys: dict[str, Array],
        temperature: float | Array,
        deterministic: bool,
    ) -> tuple[Float[Array, "B M Q H"], dict[str, Array]]:
        """Attention of the queries at some positions, and what it was made of."""
        scores, allowed, value = self._scores(heads, positions, mask)
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
            record = {
                "gates": drawn.gates,
                "logits": logits,
                "counts": F.selection_counts(drawn.gates, mask),
                "entropies": F.selection_entropy(logits, mask),
                "log_probs": F.selection_log_prob(logits, drawn.gates, mask),
                "probabilities": F.selection_counts(jax.nn.sigmoid(logits), mask),
            }
            if drawn.slopes is not None:
                sloped = jax.lax.stop_gradient(drawn.slopes) * logits
                record["score"] = F.selection_counts(sloped, mask)
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
        statistics = F.selection_statistics(record["counts"], mask)
        return Selection(
            weights=record.get("weights"),
            gates=record.get("gates"),
            logits=record.get("logits"),
            **statistics._asdict(),
            entropy=F.mean_over_pairs(record["entropies"], mask),
            log_prob=F.mean_over_pairs(record["log_probs"], mask),
            probability=F.mean_over_pairs(record["probabilities"], mask),
            score=_sum_over_queries(record.get("score"), mask),
        )


def check_relative(relative: str, max_offset: int, num_heads: int) -> None:
    """Raises ValueError unless these options of `SelectiveSelfAttention` go together."""
    check_choice(Relative, relative=relative)
    if max_offset < 1:
        raise ValueError(f"max_offset must be at least 1, got {max_offset}")
    if relative == "local" and num_heads < 2:
        raise ValueError(f"relative='local' needs num_heads of at least 2, got {num_heads}")


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
    attend: Callable[..., tuple[Array, dict[str, Array]]], heads: dict[str, Array], block: int
) -> tuple[Array, dict[str, Array]]:
    """The attention of a few queries at a time, without the arrays over pairs."""
    size = heads["query"].shape[2]
    blocks = -(-size // block)
    queries = [name for name in ("query", "selector_query") if name in heads]

    def split(array: Array) -> Array:
        spare = blocks * block - size
        padded = jnp.pad(array, ((0, 0), (0, 0), (0, spare), (0, 0)))
        parts = padded.reshape(*array.shape[:2], blocks, block, array.shape[-1])
        return jnp.moveaxis(parts, 2, 0)

    def join(array: Array) -> Array:
        joined = jnp.moveaxis(array, 0, 2)
        return joined.reshape(*joined.shape[:2], blocks * block, *joined.shape[4:])[:, :, :size]

    @jax.checkpoint
    def one(inputs: tuple[dict[str, Array], Array]) -> tuple[Array, dict[str, Array]]:
        block_heads, positions = inputs
        mixed, record = attend(heads | block_heads, positions)
        return mixed, {k: v for k, v in record.items() if v.ndim == 3}

    positions = jnp.arange(blocks * block).reshape(blocks, block)
    mixed, record = jax.lax.map(one, ({name: split(heads[name]) for name in queries}, positions))
    return join(mixed), {name: join(value) for name, value in record.items()}


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
        """Returns s; 0 for a text without tokens."""
        types: Options = {
            "kernel_init": self.kernel_init,
            "dtype": self.dtype,
            "param_dtype": self.param_dtype,
        }
        hidden = nn.elu(nn.Dense(self.features or states.shape[-1], **types)(states))
        return F.source_to_token(states, nn.Dense(states.shape[-1], **types)(hidden), mask)
