"""Attention and gates for NNX."""

import inspect
from typing import Any

import jax.numpy as jnp

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.types import Tree
from gatedjax.functional._types import Dtype
from gatedjax.nn._selection import selector_estimator
from gatedjax.nnx._base import Module, example_inputs


class TokenScore(Module, of=gnn.TokenScore, arguments="kind"):
    """An unnormalised attention score for each token: `nn.TokenScore` as an NNX module.

    zhou: e_t = w . tanh(h_t);  mlp1: e_t = w . tanh(W h_t + b) for the state h_t of token t. w, W
    and b are parameters.

        >>> from flax import nnx
        >>> TokenScore("mlp1", in_features=8, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 8))).shape
        (2, 5)
    """


class AttentionPool(Module, of=gnn.AttentionPool, arguments="score"):
    """Attention that pools the states of a sequence: `nn.AttentionPool` as an NNX module.

    >>> from flax import nnx
    >>> pool = AttentionPool(in_features=8, rngs=nnx.Rngs(0))
    >>> pooled, weights = pool(jnp.ones((1, 4, 8)), gates=jnp.array([[1.0, 0.0, 1.0, 0.0]]))
    >>> print(pooled.shape, weights)
    (1, 8) [[0.5 0.  0.5 0. ]]
    """


class GatePredictor(Module, of=gnn.GatePredictor, arguments="kind"):
    """The auxiliary network of GA-Net, which predicts gates: `nn.GatePredictor` as an NNX module.

    >>> from flax import nnx
    >>> predictor = GatePredictor("fnn", features=16, in_features=8, rngs=nnx.Rngs(0))
    >>> predictor(jnp.ones((1, 4, 8)), jnp.ones((1, 4), bool)).shape
    (1, 4)
    """

    def _examples(self, **widths: Any) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
        return (example_inputs(widths["in_features"]), jnp.ones((1, 1), bool)), {}


class LocalPosition(Module, of=gnn.LocalPosition, arguments="in_features"):
    """The predicted centre of local attention: `nn.LocalPosition` as an NNX module.

    The centre is (len - 1) * sigmoid(v . tanh(W h_last)) for the last state h_last of a text of
    length len; W and v are parameters.

        >>> from flax import nnx
        >>> centres = LocalPosition(8, rngs=nnx.Rngs(0))(jnp.zeros((2, 8)), jnp.array([5, 3]))
        >>> print(centres)
        [2. 1.]
    """

    def _examples(self, **widths: Any) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
        return (example_inputs(widths["in_features"])[0], jnp.ones((1,), jnp.int32)), {}


class SourceToToken(Module, of=gnn.SourceToToken, arguments="in_features"):
    """Attention that pools tokens with a softmax per feature: `nn.SourceToToken` as an NNX module.

    >>> from flax import nnx
    >>> SourceToToken(8, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 8))).shape
    (2, 8)
    """


class SelectiveSelfAttention(
    Module,
    of=gnn.SelectiveSelfAttention,
    arguments="num_heads in_features",
    methods="decode source_cache",
):
    """Attention in which each query selects keys: `nn.SelectiveSelfAttention` as an NNX module.

    `rngs` needs the stream "gate" if the selector draws in training mode, and "dropout" with
    dropout.

        >>> from flax import nnx
        >>> attention = SelectiveSelfAttention(2, 8, rngs=nnx.Rngs(0))
        >>> output, selection = attention(jnp.ones((1, 4, 8)))
        >>> attention.eval()
        >>> output.shape, attention(jnp.ones((1, 4, 8)), return_weights=False).shape
        ((1, 4, 8), (1, 4, 8))

    Args:
      in_features: E, the width of the inputs.
      source_features: the width of the source of a cross-attention; None means `in_features`.
    """

    _widths = Module._widths | {"source_features": None}

    def _streams_of(self, function: Any) -> list[str]:
        # Some estimators, such as the mean field, draw no noise, so that they need no stream.
        estimator = selector_estimator(function.selector, function.temperature)
        is_drawn = {
            "gate": estimator is not None and estimator.rows > 0,
            "dropout": function.dropout > 0,
        }
        return [name for name, is_needed in is_drawn.items() if is_needed]

    def _examples(self, **widths: Any) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
        source = widths["source_features"]
        named_inputs = {} if source is None else {"source": example_inputs(source)}
        return (example_inputs(widths["in_features"]),), named_inputs

    def initial_cache(self, rows: int, size: int, dtype: Dtype | None = None) -> F.AttentionCache:
        """Returns an empty `AttentionCache` for a number of rows and tokens.

        Args:
          rows: B, rows of the batch.
          size: T, the number of tokens for which the cache has room.
          dtype: dtype of keys and values; None means that of the module.
        """
        width = self._input_widths["in_features"]
        return self._function.initial_cache(rows, size, width, dtype)


class AttentionGatedTransform(
    Module, of=gnn.AttentionGatedTransform, arguments="in_features num_layers"
):
    """Gated layers that each attend to the words: `nn.AttentionGatedTransform` as an NNX module.

        >>> from flax import nnx
        >>> layers = AttentionGatedTransform(8, 3, rngs=nnx.Rngs(0))
        >>> states, gates, attention = layers(jnp.ones((1, 5, 8)))
        >>> states.shape, gates.shape, attention.shape
        ((1, 3, 8), (1, 2, 8), (1, 3, 5))

    Args:
      in_features: D, the width of the words.
      key_features: the width of the keys; None means `in_features`.
    """

    _widths = Module._widths | {"key_features": None}

    def _examples(self, **widths: Any) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
        # Keys are passed even without `key_features`, because their width shapes the kernels.
        words = example_inputs(widths["in_features"])
        keys = widths["key_features"]
        return (words,), {"keys": words if keys is None else example_inputs(keys)}


class GatedAttentionHop(
    Module, of=gnn.GatedAttentionHop, arguments="document_features query_features features"
):
    """A hop (layer) of a gated-attention reader: `nn.GatedAttentionHop` as an NNX module.

    Two bidirectional GRUs run over document and query, and gates from the query filter the states
    of the document.

        >>> from flax import nnx
        >>> hop = GatedAttentionHop(8, 6, 5, rngs=nnx.Rngs(0))
        >>> output = hop(jnp.ones((1, 4, 8)), jnp.ones((1, 3, 6)))
        >>> output.gated.shape
        (1, 4, 10)

    Args:
      document_features: the width of the vectors of the document.
      query_features: the width of the vectors of the query.
    """

    _widths = dict.fromkeys(("document_features", "query_features"), inspect.Parameter.empty)

    def _examples(self, **widths: Any) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
        return tuple(map(example_inputs, widths.values())), {}
