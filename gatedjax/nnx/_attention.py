"""Attention and gates for NNX."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from flax.core import freeze
from jaxtyping import Array, Bool, Float, Int, UInt

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax.functional._types import Dtype
from gatedjax.nn._selection import selector_estimator
from gatedjax.nnx._base import Module


class TokenScore(Module):
    """An unnormalised attention score for each token: `nn.TokenScore` as an NNX module.

        >>> TokenScore(8, "mlp1", rngs=nnx.Rngs(0))(jnp.ones((2, 5, 8))).shape
        (2, 5)

    Args:
      in_features: D, the width of the states.
      kind: "zhou" or "mlp1".
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.TokenScore`.
    """

    def __init__(
        self, in_features: int, kind: Any = "zhou", *, rngs: nnx.Rngs, **options: Any
    ) -> None:
        function = gnn.TokenScore(kind, **options, parent=None)
        super().__init__(function, [jnp.zeros((1, 1, in_features))], rngs=rngs)

    def __call__(self, states: Float[Array, "*B T D"]) -> Float[Array, "*B T"]:
        """Computes the scores of states, a vector per token."""
        return self._apply(states)


class AttentionPool(Module):
    """Attention that pools the states of a sequence: `nn.AttentionPool` as an NNX module.

        >>> pool = AttentionPool(8, rngs=nnx.Rngs(0))
        >>> pooled, weights = pool(jnp.ones((1, 4, 8)), gates=jnp.array([[1.0, 0.0, 1.0, 0.0]]))
        >>> print(pooled.shape, weights)
        (1, 8) [[0.5 0.  0.5 0. ]]

    Args:
      in_features: D, the width of the states.
      score: the kind of the `TokenScore`.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.AttentionPool`.
    """

    def __init__(
        self, in_features: int, score: Any = "zhou", *, rngs: nnx.Rngs, **options: Any
    ) -> None:
        function = gnn.AttentionPool(score, **options, parent=None)
        super().__init__(function, [jnp.zeros((1, 1, in_features))], rngs=rngs)

    def __call__(
        self,
        states: Float[Array, "*B T D"],
        mask: Bool[Array, "*B T"] | None = None,
        *,
        gates: Float[Array, "*B T"] | None = None,
        log_gates: Float[Array, "*B T"] | None = None,
        return_weights: bool | None = None,
    ) -> Any:
        """Pools the states of each row, see `nn.AttentionPool`.

        Args:
          states: a vector per position.
          mask: True at real positions.
          gates: hard gates; None means that all are open.
          log_gates: logarithms of soft gates instead of `gates`.
          return_weights: False returns only the pooled states; None means the option.

        Returns:
          (pooled, weights), or the pooled states.
        """
        return self._apply(
            states, mask, gates=gates, log_gates=log_gates, return_weights=return_weights
        )


class GatePredictor(Module):
    """The auxiliary network of GA-Net: `nn.GatePredictor` as an NNX module.

        >>> predictor = GatePredictor(8, "fnn", features=16, rngs=nnx.Rngs(0))
        >>> predictor(jnp.ones((1, 4, 8)), jnp.ones((1, 4), bool)).shape
        (1, 4)

    Args:
      in_features: D, the width of the vectors.
      kind: the network, "lstm", "fnn" or "att".
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.GatePredictor`.
    """

    def __init__(
        self, in_features: int, kind: Any = "lstm", *, rngs: nnx.Rngs, **options: Any
    ) -> None:
        function = gnn.GatePredictor(kind, **options, parent=None)
        inputs = [jnp.zeros((1, 1, in_features)), jnp.ones((1, 1), bool)]
        super().__init__(function, inputs, rngs=rngs)

    def __call__(self, xs: Float[Array, "B T D"], mask: Bool[Array, "B T"]) -> Float[Array, "B T"]:
        """Computes the log-odds of the gates; -inf (closed) at padding.

        Args:
          xs: a vector per token.
          mask: True at real tokens.
        """
        return self._apply(xs, mask)


class LocalPosition(Module):
    """The predicted centre of local attention: `nn.LocalPosition` as an NNX module.

        >>> centres = LocalPosition(8, rngs=nnx.Rngs(0))(jnp.zeros((2, 8)), jnp.array([5, 3]))
        >>> print(centres)
        [2. 1.]

    Args:
      in_features: D, the width of the states.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the options of `nn.LocalPosition`.
    """

    def __init__(self, in_features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        inputs = [jnp.zeros((1, in_features)), jnp.ones((1,), jnp.int32)]
        super().__init__(gnn.LocalPosition(**options, parent=None), inputs, rngs=rngs)

    def __call__(self, last: Float[Array, "*B D"], lengths: Int[Array, "*B"]) -> Float[Array, "*B"]:
        """Computes the centre of each row.

        Args:
          last: the last state of each row.
          lengths: the number of real positions of each row.
        """
        return self._apply(last, lengths)


class SourceToToken(Module):
    """Attention with a softmax for each feature: `nn.SourceToToken` as an NNX module.

        >>> SourceToToken(8, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 8))).shape
        (2, 8)

    Args:
      in_features: D, the width of the states.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the options of `nn.SourceToToken`.
    """

    def __init__(self, in_features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        function = gnn.SourceToToken(**options, parent=None)
        super().__init__(function, [jnp.zeros((1, 1, in_features))], rngs=rngs)

    def __call__(
        self, states: Float[Array, "*B N D"], mask: Bool[Array, "*B N"] | None = None
    ) -> Float[Array, "*B D"]:
        """Pools the tokens of each text; 0 for a text without tokens.

        Args:
          states: a vector per token.
          mask: True at real tokens.
        """
        return self._apply(states, mask)


class SelectiveSelfAttention(Module):
    """Attention in which each query selects keys: `nn.SelectiveSelfAttention` as an NNX module.

        >>> attention = SelectiveSelfAttention(2, 8, rngs=nnx.Rngs(0))
        >>> output, selection = attention(jnp.ones((1, 4, 8)))
        >>> attention.eval()
        >>> output.shape, attention(jnp.ones((1, 4, 8)), return_weights=False).shape
        ((1, 4, 8), (1, 4, 8))

    Args:
      num_heads: M, the number of heads.
      in_features: E, the width of the inputs.
      source_features: the width of the source of a cross-attention; None means `in_features`.
      rngs: the streams of the network: "params"; "gate" if the selector draws in training mode;
        and "dropout" with dropout.
      **options: the further options of `nn.SelectiveSelfAttention`.
    """

    def __init__(
        self,
        num_heads: int,
        in_features: int,
        *,
        source_features: int | None = None,
        rngs: nnx.Rngs,
        **options: Any,
    ) -> None:
        function = gnn.SelectiveSelfAttention(num_heads, **options, parent=None)
        estimator = selector_estimator(function.selector, function.temperature)
        is_drawn = {
            "gate": estimator is not None and estimator.rows > 0,
            "dropout": function.dropout > 0,
        }
        inputs = [jnp.zeros((1, 1, in_features))]
        streams = [name for name, is_needed in is_drawn.items() if is_needed]
        given = {}
        if source_features is not None:
            given = {"source": jnp.zeros((1, 1, source_features))}
        super().__init__(function, inputs, rngs=rngs, streams=streams, **given)
        self._in_features = in_features

    def __call__(
        self,
        inputs: Float[Array, "B Q D"],
        mask: Bool[Array, "B Q"] | None = None,
        *,
        source: Float[Array, "B N D2"] | F.AttentionCache | None = None,
        source_mask: Bool[Array, "B N"] | None = None,
        pair_mask: Bool[Array, "B M Q N"] | None = None,
        deterministic: bool | None = None,
        example_id: Int[Array, " B"] | None = None,
        temperature: float | Float[Array, ""] | None = None,
        dropout_bytes: UInt[Array, "B M Q N"] | None = None,
        return_weights: bool | None = None,
    ) -> Any:
        """Attends from the inputs to the inputs or to a source, see `nn.SelectiveSelfAttention`.

        Args:
          inputs: a vector per token.
          mask: True at real tokens.
          source: another sequence, or its `source_cache`; None means the inputs.
          source_mask: True at real tokens of source.
          pair_mask: True where a query may see a key.
          deterministic: False draws selections and dropout; None means the mode of the module.
          example_id: the examples to which the random bits belong; None means the row numbers.
          temperature: the temperature of the relaxation instead of the option.
          dropout_bytes: the random bytes of dropout; None draws them.
          return_weights: False returns only the output; None means the option.

        Returns:
          (output, selection), or the output.
        """
        return self._apply_noisy(
            inputs,
            mask,
            source=source,
            source_mask=source_mask,
            pair_mask=pair_mask,
            deterministic=deterministic,
            example_id=example_id,
            temperature=temperature,
            dropout_bytes=dropout_bytes,
            return_weights=return_weights,
        )

    def decode(
        self,
        cache: F.AttentionCache,
        inputs: Float[Array, "B n D"],
        mask: Bool[Array, "B n"] | None = None,
    ) -> tuple[F.AttentionCache, Float[Array, "B n D"]]:
        """Attends from the next tokens to those in a cache, in evaluation mode.

        Args:
          cache: the keys and values of the tokens before, see `initial_cache`.
          inputs: a vector per new token.
          mask: True at real tokens; None means that all are real.

        Returns:
          (cache with the new tokens, outputs), in the order of `jax.lax.scan`.
        """
        return self._apply(cache, inputs, mask, method="decode")

    def source_cache(
        self, source: Float[Array, "B N D2"], source_mask: Bool[Array, "B N"] | None = None
    ) -> F.AttentionCache:
        """Computes the keys and values of a source once, for many calls.

        Args:
          source: a vector per token of the source.
          source_mask: True at real tokens of the source.
        """
        return self._apply(source, source_mask, method="source_cache")

    def initial_cache(self, rows: int, size: int, dtype: Dtype | None = None) -> F.AttentionCache:
        """Returns an empty cache for a number of rows and tokens.

        Args:
          rows: B, rows of the batch.
          size: T, the number of tokens for which the cache has room.
          dtype: dtype of keys and values; None means that of the module.
        """
        return self._function.initial_cache(rows, size, self._in_features, dtype)


class AttentionGatedTransform(Module):
    """Gated layers that each attend to the words: `nn.AttentionGatedTransform` as an NNX module.

        >>> layers = AttentionGatedTransform(8, 3, rngs=nnx.Rngs(0))
        >>> states, gates, attention = layers(jnp.ones((1, 5, 8)))
        >>> states.shape, gates.shape, attention.shape
        ((1, 3, 8), (1, 2, 8), (1, 3, 5))

    Args:
      in_features: D, the width of the words.
      num_layers: L, the number of layers.
      key_features: the width of the keys; None means `in_features`.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.AttentionGatedTransform`.
    """

    def __init__(
        self,
        in_features: int,
        num_layers: int,
        *,
        key_features: int | None = None,
        rngs: nnx.Rngs,
        **options: Any,
    ) -> None:
        function = gnn.AttentionGatedTransform(num_layers, **options, parent=None)
        keys = jnp.zeros((1, 1, key_features or in_features))
        super().__init__(function, [jnp.zeros((1, 1, in_features))], rngs=rngs, keys=keys)

    def __call__(
        self,
        words: Float[Array, "*B N D"],
        mask: Bool[Array, "*B N"] | None = None,
        *,
        keys: Float[Array, "*B N K"] | None = None,
    ) -> tuple[Float[Array, "*B L D"], Float[Array, "*B L-1 D"], Float[Array, "*B S N"]]:
        """Runs the layers, see `nn.AttentionGatedTransform`.

        Args:
          words: the vectors that the attentions average.
          mask: True at real words.
          keys: the vectors from which the attentions compute their scores; None means the words.

        Returns:
          (states, gates, attention).
        """
        return self._apply(words, mask, keys=keys)


class GatedAttentionHop(Module):
    """A hop of a gated-attention reader: `nn.GatedAttentionHop` as an NNX module.

        >>> hop = GatedAttentionHop(8, 6, 5, rngs=nnx.Rngs(0))
        >>> output = hop(jnp.ones((1, 4, 8)), jnp.ones((1, 3, 6)))
        >>> output.gated.shape
        (1, 4, 10)

    Args:
      document_features: the width of the vectors of the document.
      query_features: the width of the vectors of the query.
      features: H, the width of a GRU per direction.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.GatedAttentionHop`.
    """

    def __init__(
        self,
        document_features: int,
        query_features: int,
        features: int,
        *,
        rngs: nnx.Rngs,
        **options: Any,
    ) -> None:
        # The options are static in compiled programs and must be hashable, which a dict is not.
        options |= {"gru": freeze(options.get("gru") or {})}
        function = gnn.GatedAttentionHop(features, **options, parent=None)
        inputs = [jnp.zeros((1, 1, width)) for width in (document_features, query_features)]
        super().__init__(function, inputs, rngs=rngs)

    def __call__(
        self,
        document: Float[Array, "B N D"],
        query: Float[Array, "B Q E"],
        document_mask: Bool[Array, "B N"] | None = None,
        query_mask: Bool[Array, "B Q"] | None = None,
    ) -> Any:
        """Runs the hop, see `nn.GatedAttentionHop`.

        Args:
          document: a vector per token of the document.
          query: a vector per token of the query.
          document_mask: True at real tokens of the document; None means that all are real.
          query_mask: True at real tokens of the query; None means that all are real.

        Returns:
          The states, the gated document and the attention, a `HopOutput`.
        """
        return self._apply(document, query, document_mask, query_mask)
