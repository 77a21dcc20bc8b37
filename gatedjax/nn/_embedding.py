"""Word vectors."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from gatedjax.functional._checks import check_integers, wide_integers
from gatedjax.functional._devices import take_rows
from gatedjax.functional._types import Carry, Dtype
from gatedjax.nn._types import Initializer


class WordEmbedding(nn.Module):
    """Looks up word vectors; the padding id 0 is always the zero vector.

    An id outside of the vocabulary gives NaN, and so does one below 0.

    Attributes:
      num_embeddings: size of the vocabulary, padding included.
      features: width E.
      frozen: stop the gradient at the table.
      initial: a table to start from (pretrained vectors) [num_embeddings, features]; None draws
        uniform(-0.25, 0.25), or from `table_init`.
      table_init: an initialiser for a table without `initial`.
      dtype: dtype of the result.
      param_dtype: dtype of the table.
    """

    num_embeddings: int
    features: int
    frozen: bool = False
    initial: Carry = None
    table_init: Initializer | None = None
    dtype: Dtype = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, tokens: Int[Array, "*B"]) -> Float[Array, "*B E"]:
        """Returns the vectors of tokens."""
        check_integers(tokens=tokens)
        tokens = wide_integers(tokens)
        shape = (self.num_embeddings, self.features)
        if self.initial is not None and self.initial.shape != shape:
            raise ValueError(f"initial must have shape {shape}, got {self.initial.shape}")

        def start(key: Array) -> Array:
            if self.initial is not None:
                return jnp.asarray(self.initial, self.param_dtype)
            if self.table_init is not None:
                return self.table_init(key, shape, self.param_dtype)
            return jax.random.uniform(key, shape, self.param_dtype, -0.25, 0.25)

        table = self.param("table", start)
        # JAX counts an index below 0 from the end
        places = jnp.where(tokens < 0, self.num_embeddings, tokens)
        if self.frozen:
            table = lax.stop_gradient(table)
        vectors = take_rows(table, places).astype(self.dtype or table.dtype)
        return jnp.where((tokens != 0)[..., None], vectors, jnp.zeros_like(vectors))
