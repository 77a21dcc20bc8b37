"""A table of word vectors."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from gatedjax._utils.fields import check_fields
from gatedjax.functional._checks import integers_of
from gatedjax.functional._devices import take_rows
from gatedjax.functional._types import Carry, Dtype
from gatedjax.nn._initializers import symmetric_uniform
from gatedjax.nn._types import Initializer


class WordEmbedding(nn.Module):
    """A table of word vectors, in which the padding id 0 always has the zero vector.

    An id outside of the vocabulary, negative ids included, gives NaN.

        >>> import jax
        >>> words = WordEmbedding(num_embeddings=100, features=4)
        >>> vectors, _ = words.init_with_output(jax.random.key(0), jnp.array([[7, 99, 0]]))
        >>> print(vectors.shape, vectors[0, 2])
        (1, 3, 4) [0. 0. 0. 0.]

    Attributes:
      num_embeddings: size of the vocabulary, padding included.
      features: E, the width of a vector.
      frozen: True stops the gradient at the table, so that training does not change it.
      initial: pretrained vectors [num_embeddings, features] as the initial table; None draws the
        table from `embedding_init`.
      dtype: dtype of the result; None means the dtype of the table.
      param_dtype: dtype of the table.
      embedding_init: initialiser of a table without `initial`.
    """

    num_embeddings: int
    features: int
    frozen: bool = False
    initial: Carry = None
    dtype: Dtype = None
    param_dtype: Dtype = jnp.float32
    embedding_init: Initializer = symmetric_uniform(0.25)

    @nn.compact
    def __call__(self, tokens: Int[Array, "*B"]) -> Float[Array, "*B E"]:
        """Looks up the vectors of tokens.

        Args:
          tokens: word ids in [0, num_embeddings), of any shape; 0 is padding.

        Returns:
          The vectors, with their width E as an additional last axis.

        Raises:
          TypeError: if tokens are not integers.
          ValueError: if `initial` has another shape than the table.
        """
        check_fields(self)
        tokens = integers_of("tokens", tokens)
        shape = (self.num_embeddings, self.features)
        if self.initial is not None and (got := np.shape(self.initial)) != shape:
            raise ValueError(f"initial must have shape {shape}, got {got}")
        start = self.embedding_init
        if self.initial is not None:
            start = lambda _, __, dtype: jnp.asarray(self.initial, dtype)  # noqa: E731
        table = self.param("embedding", start, shape, self.param_dtype)
        # A negative id must not find a word, but JAX counts negative indices from the end.
        places = jnp.where(tokens < 0, self.num_embeddings, tokens)
        if self.frozen:
            table = lax.stop_gradient(table)
        vectors = take_rows(table, places).astype(self.dtype or table.dtype)
        # Padding is set to 0 here and not in the table, because training could change a row.
        return jnp.where((tokens != 0)[..., None], vectors, 0)
