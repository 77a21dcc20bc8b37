"""One hop of a gated-attention reader."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gatedjax import functional as F
from gatedjax.functional._export import exportable
from gatedjax.functional._types import Dtype
from gatedjax.nn._recurrent import GRU


@exportable
class HopOutput(NamedTuple):
    """What a hop computed.

    Attributes:
      document: D, states of the document [B, N, 2H].
      query: Q, states of the query [B, Q, 2H].
      summary: the final states of both directions over the query [B, 2H].
      gated: X, what the next hop reads [B, N, 2H or 4H]; None for a hop without gating.
      attention: A [B, N, Q], or [B, N, 1] of ones without attention of tokens; None with gated.
    """

    document: Array
    query: Array
    summary: Array
    gated: Array | None
    attention: Array | None


class GatedAttentionHop(nn.Module):
    """Reads document and query with a bidirectional GRU each, then gates the one by the other.

    Attributes:
      features: H, the width of a GRU per direction.
      gating: see `functional.gated_attention`; None reads only, as the last hop does.
      token_attention: False gates every token with the same vector, the final states of the query.
      gru: further options of both `GRU`s, such as {"reset_after": True}.
      dtype: dtype of the products; None follows the input.
      param_dtype: dtype of the parameters.

    Reference: Dhingra et al. 2017, "Gated-Attention Readers for Text Comprehension", section 3.1.
    """

    features: int
    gating: F.Gating | None = "multiply"
    token_attention: bool = True
    gru: Any = None
    dtype: Dtype = None
    param_dtype: Dtype = jnp.float32

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
          document: what the hop below made of the document, or its word vectors.
          query: word vectors of the query.
          document_mask: True at real tokens of the document.
          query_mask: True at real tokens of the query.
        """
        options = {"dtype": self.dtype, "param_dtype": self.param_dtype, **(self.gru or {})}
        read = {
            name: GRU(self.features, bidirectional=True, name=name, **options)
            for name in ("document", "query")
        }
        _, states = read["document"](document, document_mask)
        ((ahead, back),), asked = read["query"](query, query_mask)
        summary = jnp.concatenate([ahead, back], axis=-1).astype(asked.dtype)
        if self.gating is None:
            return HopOutput(states, asked, summary, None, None)
        if self.token_attention:
            gated, attention = F.gated_attention(states, asked, query_mask, gating=self.gating)
        else:
            gated, attention = F.gated_attention(states, summary, gating=self.gating)
        return HopOutput(states, asked, summary, gated, attention)
