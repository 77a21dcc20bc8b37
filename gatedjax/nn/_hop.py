"""A hop of a gated-attention reader."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gatedjax import functional as F
from gatedjax._utils.fields import check_fields
from gatedjax.functional._checks import check_floating, check_mask
from gatedjax.functional._export import exportable
from gatedjax.functional._types import Dtype
from gatedjax.nn._initializers import GLOROT, ORTHOGONAL, ZEROS
from gatedjax.nn._recurrent import GRU
from gatedjax.nn._types import Initializer, take_fields


@exportable
class HopOutput(NamedTuple):
    """The result of a `GatedAttentionHop`.

    Attributes:
      document: states of the document GRU, both directions, at the N document tokens of B rows
        [B, N, 2H], where H is the width of a direction.
      query: states of the query GRU, both directions, at the Q query tokens [B, Q, 2H].
      summary: the final states of both directions of the query GRU [B, 2H].
      gated: X, the gated document [B, N, 2H or 4H], the input of the next hop; None without gating.
      attention: A [B, N, Q], the weights of each document token over the query tokens, which sum to
        1; or ones [B, N, 1] if `token_attention` is False; None without gating.
    """

    document: Array
    query: Array
    summary: Array
    gated: Array | None
    attention: Array | None


class GatedAttentionHop(nn.Module):
    """Two bidirectional GRUs, over document and query, and gates from the query on the document.

        >>> import jax
        >>> document, query = jnp.ones((1, 6, 8)), jnp.ones((1, 3, 8))
        >>> hop = GatedAttentionHop(features=5)
        >>> output, _ = jax.eval_shape(hop.init_with_output, jax.random.key(0), document, query)
        >>> print(output.gated.shape, output.attention.shape)
        (1, 6, 10) (1, 6, 3)

    Attributes:
      features: H, the width of a GRU per direction.
      gating: the operation that joins a document token and its view of the query, "multiply", "sum"
        or "concat" (see `functional.gated_attention`); None omits the gates, as in the last hop of
        the reader.
      token_attention: False gates all tokens with the same vector, the final states of the query.
      gru: a dict of further options of both `GRU`s, such as {"reset_after": True}; None means none.
      dtype: dtype of the products; None follows the input.
      param_dtype: dtype of the parameters.
      kernel_init, recurrent_kernel_init, bias_init: initialisers of the input kernels, of the
        recurrent kernels and of the biases of both GRUs, applied to the block of each gate.

    Reference: Dhingra et al. 2017, "Gated-Attention Readers for Text Comprehension", section 3.1.
    """

    features: int
    gating: F.Gating | None = "multiply"
    token_attention: bool = True
    gru: Any = None
    dtype: Dtype = None
    param_dtype: Dtype = jnp.float32
    kernel_init: Initializer = GLOROT
    recurrent_kernel_init: Initializer = ORTHOGONAL
    bias_init: Initializer = ZEROS

    @nn.compact
    def __call__(
        self,
        document: Float[Array, "B N D"],
        query: Float[Array, "B Q E"],
        document_mask: Bool[Array, "B N"] | None = None,
        query_mask: Bool[Array, "B Q"] | None = None,
    ) -> HopOutput:
        """Runs the hop.

        Args:
          document: a vector of width D for each of N document tokens: the word vectors, or the
            field `gated` of the `HopOutput` of the previous hop.
          query: word vectors of width E of the Q query tokens.
          document_mask: True at real tokens of the document; None means that all are real.
          query_mask: True at real tokens of the query; None means that all are real.

        Returns:
          A `HopOutput` for B rows: `document`, the states of the document GRU [B, N, 2H]; `query`,
          those of the query GRU [B, Q, 2H]; `summary`, the final states of the query GRU [B, 2H];
          `gated`, the gated document [B, N, 2H or 4H]; and `attention` [B, N, Q], with the sum 1
          over the query tokens. The last two are None without gating.
        """
        check_fields(self)
        check_floating(document=document, query=query)
        check_mask(document_mask, document.shape[:-1], "document_mask")
        check_mask(query_mask, query.shape[:-1], "query_mask")
        names = ("dtype", "param_dtype", "kernel_init", "recurrent_kernel_init", "bias_init")
        options = take_fields(self, *names) | dict(self.gru or {})
        grus = {
            name: GRU(self.features, bidirectional=True, name=name, **options)
            for name in ("document", "query")
        }
        _, states = grus["document"](document, document_mask)
        ((ahead, back),), query_states = grus["query"](query, query_mask)
        # Final carries are float32 or wider in all dtypes.
        summary = jnp.concatenate([ahead, back], axis=-1).astype(query_states.dtype)
        # The last hop of a reader only encodes, because no further hop would read a gated document.
        if self.gating is None:
            return HopOutput(states, query_states, summary, None, None)
        if self.token_attention:
            gated, attention = F.gated_attention(
                states, query_states, query_mask, gating=self.gating
            )
        else:
            gated, attention = F.gated_attention(states, summary, gating=self.gating)
        return HopOutput(states, query_states, summary, gated, attention)
