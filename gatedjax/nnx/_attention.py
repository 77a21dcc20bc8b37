"""Attention and gates for NNX."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from flax.core import freeze
from jaxtyping import Array, Bool, Float, Int, UInt

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.field_checks import check_fields
from gatedjax.functional._types import Dtype
from gatedjax.nn._selection import selector_estimator
from gatedjax.nnx._base import Module, example_inputs


class TokenScore(Module):
    """An unnormalised attention score for each token: `nn.TokenScore` as an NNX module.

    zhou: e_t = w . tanh(h_t);  mlp1: e_t = w . tanh(W h_t + b) for the state h_t of token t. w, W
    and b are parameters.

        >>> TokenScore(8, "mlp1", rngs=nnx.Rngs(0))(jnp.ones((2, 5, 8))).shape
        (2, 5)

    Args:
      in_features: D, the width of the states.
      kind: "zhou", which has only the parameter w, or "mlp1".
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.TokenScore`, such as `features`, the width of the hidden
        layer of "mlp1".
    """

    def __init__(
        self, in_features: int, kind: Any = "zhou", *, rngs: nnx.Rngs, **options: Any
    ) -> None:
        function = gnn.TokenScore(kind, **options, parent=None)
        super().__init__(function, [example_inputs(in_features=in_features)], rngs=rngs)

    def __call__(self, states: Float[Array, "*B T D"]) -> Float[Array, "*B T"]:
        """Computes the scores e [*B, T], in float32 or wider, of states h.

        `states` has a vector of width D for each of T tokens.
        """
        return self._apply(states)


class AttentionPool(Module):
    """Attention that pools the states of a sequence: `nn.AttentionPool` as an NNX module.

        >>> pool = AttentionPool(8, rngs=nnx.Rngs(0))
        >>> pooled, weights = pool(jnp.ones((1, 4, 8)), gates=jnp.array([[1.0, 0.0, 1.0, 0.0]]))
        >>> print(pooled.shape, weights)
        (1, 8) [[0.5 0.  0.5 0. ]]

    Args:
      in_features: D, the width of the states.
      score: the equation of the attention scores, "zhou" or "mlp1", as in `TokenScore`.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.AttentionPool`, such as `return_weights`.
    """

    def __init__(
        self, in_features: int, score: Any = "zhou", *, rngs: nnx.Rngs, **options: Any
    ) -> None:
        function = gnn.AttentionPool(score, **options, parent=None)
        super().__init__(function, [example_inputs(in_features=in_features)], rngs=rngs)

    def __call__(
        self,
        states: Float[Array, "*B T D"],
        mask: Bool[Array, "*B T"] | None = None,
        *,
        gates: Float[Array, "*B T"] | None = None,
        log_gates: Float[Array, "*B T"] | None = None,
        return_weights: bool | None = None,
    ) -> Any:
        """Pools the states of each text by attention.

        Args:
          states: a vector of width D for each of T positions.
          mask: True at real positions; None means all.
          gates: hard gates, 1 at open and 0 at closed positions; None means that all are open.
          log_gates: logarithms of soft gates instead of `gates`; None means that there are none.
          return_weights: False returns only the pooled states; None means the option of the module.

        Returns:
          (pooled, weights): the weighted sums of the states [*B, D] and the attention weights
          [*B, T]; or only the pooled states.
        """
        return self._apply(
            states, mask, gates=gates, log_gates=log_gates, return_weights=return_weights
        )


class GatePredictor(Module):
    """The auxiliary network of GA-Net, which predicts gates: `nn.GatePredictor` as an NNX module.

        >>> predictor = GatePredictor(8, "fnn", features=16, rngs=nnx.Rngs(0))
        >>> predictor(jnp.ones((1, 4, 8)), jnp.ones((1, 4), bool)).shape
        (1, 4)

    Args:
      in_features: D, the width of the vectors.
      kind: the network: "lstm" (bidirectional), "fnn" (feed-forward) or "att" (self-attention).
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.GatePredictor`, such as `features`, the hidden width.
    """

    def __init__(
        self, in_features: int, kind: Any = "lstm", *, rngs: nnx.Rngs, **options: Any
    ) -> None:
        function = gnn.GatePredictor(kind, **options, parent=None)
        inputs = [example_inputs(in_features=in_features), jnp.ones((1, 1), bool)]
        super().__init__(function, inputs, rngs=rngs)

    def __call__(
        self, xs: Float[Array, "B T D"], mask: Bool[Array, "B T"] | None = None
    ) -> Float[Array, "B T"]:
        """Computes the log-odds [B, T] that each gate is open, in nats; -inf (closed) at padding.

        Args:
          xs: a vector of width D for each of T tokens of B texts.
          mask: True at real tokens; None means all.
        """
        return self._apply(xs, mask)


class LocalPosition(Module):
    """The predicted centre of local attention: `nn.LocalPosition` as an NNX module.

    The centre is (len - 1) * sigmoid(v . tanh(W h_last)) for the last state h_last of a text of
    length len; W and v are parameters.

        >>> centres = LocalPosition(8, rngs=nnx.Rngs(0))(jnp.zeros((2, 8)), jnp.array([5, 3]))
        >>> print(centres)
        [2. 1.]

    Args:
      in_features: D, the width of the states.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the options of `nn.LocalPosition`, such as `dtype`.
    """

    def __init__(self, in_features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        inputs = [example_inputs(in_features=in_features)[0], jnp.ones((1,), jnp.int32)]
        super().__init__(gnn.LocalPosition(**options, parent=None), inputs, rngs=rngs)

    def __call__(self, last: Float[Array, "*B D"], lengths: Int[Array, "*B"]) -> Float[Array, "*B"]:
        """Computes the centre of the attention of each text, a real number in [0, length - 1].

        Args:
          last: the last state of each text, of width D.
          lengths: the number of real positions of each text.
        """
        return self._apply(last, lengths)


class SourceToToken(Module):
    """Attention that pools tokens with a softmax per feature: `nn.SourceToToken` as an NNX module.

        >>> SourceToToken(8, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 8))).shape
        (2, 8)

    Args:
      in_features: D, the width of the states.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the options of `nn.SourceToToken`, such as `features`, the width of the hidden
        layer.
    """

    def __init__(self, in_features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        function = gnn.SourceToToken(**options, parent=None)
        super().__init__(function, [example_inputs(in_features=in_features)], rngs=rngs)

    def __call__(
        self, states: Float[Array, "*B N D"], mask: Bool[Array, "*B N"] | None = None
    ) -> Float[Array, "*B D"]:
        """Pools the tokens of each text to a vector; 0 for a text without tokens.

        Args:
          states: a vector of width D for each of N tokens.
          mask: True at real tokens; None means all.
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
      **options: the further options of `nn.SelectiveSelfAttention`, such as `selector`, the
        estimator that draws the selected keys in training, and `dropout`.
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
        check_fields(function, cap=0)
        # Some estimators, such as the mean field, draw no noise, so that they need no stream.
        estimator = selector_estimator(function.selector, function.temperature)
        is_drawn = {
            "gate": estimator is not None and estimator.rows > 0,
            "dropout": function.dropout > 0,
        }
        inputs = [example_inputs(in_features=in_features)]
        streams = [name for name, is_needed in is_drawn.items() if is_needed]
        given = {}
        if source_features is not None:
            given = {"source": example_inputs(source_features=source_features)}
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
          inputs: a vector of width D for each of Q tokens of B rows.
          mask: True at real tokens; None means all.
          source: another sequence, a vector of width D2 for each of N tokens, or the
            `AttentionCache` that `source_cache` returns for it; None means the inputs.
          source_mask: True at real tokens of source; None means all.
          pair_mask: True where a query may see a key, [B, Q, N] or with an axis of heads; None
            means all pairs.
          deterministic: False draws selections and dropout; None means the mode of the module.
          example_id: a number for each row that identifies its example, to which the random bits
            belong; None means the row numbers.
          temperature: the temperature of the relaxation; None means the option of the module.
          dropout_bytes: a random byte per head, query and key, for dropout; None draws them.
          return_weights: False returns only the output; None means the option of the module.

        Returns:
          (output, selection): the output [B, Q, D], 0 at padding, and an `nn.Selection` with the
          attention weights and the selected keys [B, M, Q, N] for M heads; or only the output.
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
        """Attends from the next tokens to the tokens in a cache, in evaluation mode.

        Args:
          cache: the keys and values of the tokens before, an `AttentionCache` from `initial_cache`
            or from the previous call.
          inputs: a vector of width D for each of n new tokens of B rows.
          mask: True at real tokens; None means that all are real.

        Returns:
          (cache with the new tokens, outputs [B, n, D]), in the order of `jax.lax.scan`.
        """
        return self._apply(cache, inputs, mask, method="decode")

    def source_cache(
        self, source: Float[Array, "B N D2"], source_mask: Bool[Array, "B N"] | None = None
    ) -> F.AttentionCache:
        """Computes the keys and values of a source once, for many calls as `source`.

        They are returned as an `AttentionCache`.

        Args:
          source: a vector of width D2 for each of N tokens of the source.
          source_mask: True at real tokens of the source; None means all.
        """
        return self._apply(source, source_mask, method="source_cache")

    def initial_cache(self, rows: int, size: int, dtype: Dtype | None = None) -> F.AttentionCache:
        """Returns an empty `AttentionCache` for a number of rows and tokens.

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
      **options: the further options of `nn.AttentionGatedTransform`, such as `attention_features`,
        the width of the hidden layer of the attentions.
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
        # Keys are passed even without `key_features`, because their width shapes the kernels.
        width = in_features if key_features is None else key_features
        keys = example_inputs(key_features=width)
        super().__init__(function, [example_inputs(in_features=in_features)], rngs=rngs, keys=keys)

    def __call__(
        self,
        words: Float[Array, "*B N D"],
        mask: Bool[Array, "*B N"] | None = None,
        *,
        keys: Float[Array, "*B N K"] | None = None,
    ) -> tuple[Float[Array, "*B L D"], Float[Array, "*B L-1 D"], Float[Array, "*B S N"]]:
        """Runs the layers, see `nn.AttentionGatedTransform`.

        Args:
          words: the vectors that the attentions average, of width D for each of N words.
          mask: True at real words; None means all.
          keys: the vectors from which the attentions compute their scores, of width K for each
            word; None means the words.

        Returns:
          (states, gates, attention): the states of all L layers, the gates of the layers above the
          first, and the attention over the words of the S layers with a selection vector; S is L
          unless the option `ablate_above` is given.
        """
        return self._apply(words, mask, keys=keys)


class GatedAttentionHop(Module):
    """A hop (layer) of a gated-attention reader: `nn.GatedAttentionHop` as an NNX module.

    Two bidirectional GRUs run over document and query, and gates from the query filter the states
    of the document.

        >>> hop = GatedAttentionHop(8, 6, 5, rngs=nnx.Rngs(0))
        >>> output = hop(jnp.ones((1, 4, 8)), jnp.ones((1, 3, 6)))
        >>> output.gated.shape
        (1, 4, 10)

    Args:
      document_features: the width of the vectors of the document.
      query_features: the width of the vectors of the query.
      features: H, the width of a GRU per direction.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.GatedAttentionHop`, such as `gating`: "multiply" (the
        default), "sum" or "concat" joins a token and its view of the query; None omits the gates.
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
        inputs = [
            example_inputs(document_features=document_features),
            example_inputs(query_features=query_features),
        ]
        super().__init__(function, inputs, rngs=rngs)

    def __call__(
        self,
        document: Float[Array, "B N D"],
        query: Float[Array, "B Q E"],
        document_mask: Bool[Array, "B N"] | None = None,
        query_mask: Bool[Array, "B Q"] | None = None,
    ) -> Any:
        """Runs the hop: both GRUs, and the gates from the query on the document.

        Args:
          document: a vector of width D for each of N tokens of the document.
          query: a vector of width E for each of Q tokens of the query.
          document_mask: True at real tokens of the document; None means that all are real.
          query_mask: True at real tokens of the query; None means that all are real.

        Returns:
          An `nn.HopOutput`: the states of the document GRU [B, N, 2H] and of the query GRU
          [B, Q, 2H], the final states of the query GRU [B, 2H] for B rows and GRUs of width H, the
          gated document [B, N, 2H or 4H], and the attention [B, N, Q] with the sum 1 over the query
          tokens, or ones [B, N, 1] with the option token_attention=False. The last two are None
          without gating.
        """
        return self._apply(document, query, document_mask, query_mask)
