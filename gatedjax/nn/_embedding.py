"""Word vectors."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from gatedjax.functional._checks import check_integers, wide_integers
from gatedjax.functional._devices import on_rows, take_rows
from gatedjax.functional._types import Carry, Dtype
from gatedjax.nn._types import Initializer


class WordEmbedding(nn.Module):
    """Looks up word vectors; the padding id 0 is always the zero vector.

    Beside a table of some rows alone stand their ids, the parameter "table_rows" (see
    `training.task.table_lookups`): in order, each once. A word that is not among them gives NaN,
    as an id outside of the vocabulary does, one below 0 too.

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

        ids: Any = self.get_variable("params", "table_rows")
        if ids is None:
            table, places = self.param("table", start), tokens
        else:
            table = self.get_variable("params", "table")
            find = functools.partial(_places, size=self.num_embeddings)
            places = on_rows(find, ids, tokens, rows=tokens, axes=tokens.ndim)
        # JAX counts an index below 0 from the end
        places = jnp.where(tokens < 0, self.num_embeddings, places)
        if self.frozen:
            table = lax.stop_gradient(table)
        vectors = take_rows(table, places).astype(self.dtype or table.dtype)
        return jnp.where((tokens != 0)[..., None], vectors, jnp.zeros_like(vectors))


def _places(ids: Int[Array, " U"], tokens: Int[Array, "*B"], size: int) -> Int[Array, "*B"]:
    """Where the tokens stand among the ids, which fill up with size; beyond them if nowhere."""
    places = jnp.searchsorted(ids, tokens, method="scan_unrolled")
    found = (jnp.take(ids, places, mode="clip") == tokens) & (tokens < size)
    return jnp.where(found, places, len(ids))
