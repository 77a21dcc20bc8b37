"""Word vectors that are computed from the characters of words."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gatedjax import functional as F
from gatedjax._utils.fields import check_fields
from gatedjax.functional._checks import check_integers, check_shape, check_that
from gatedjax.functional._devices import take_rows
from gatedjax.functional._types import Dtype
from gatedjax.nn._initializers import GLOROT, ORTHOGONAL, ZEROS
from gatedjax.nn._recurrent import GRU
from gatedjax.nn._types import Initializer, take_fields


class CharacterEncoder(nn.Module):
    """A bidirectional GRU over the characters of a word: C(w) = W [z_forward; z_backward] + b.

    z_forward is the state of the forward GRU after the last real character of the word w, and
    z_backward the state of the backward GRU after the first. W and b are a dense layer. The GRU is
    most of the cost of a network, so pass each distinct word once and look up its vector at each
    occurrence.

        >>> import jax
        >>> encoder = CharacterEncoder(num_characters=30, features=8, hidden=4)
        >>> characters, lengths = jnp.array([[5, 7, 2], [9, 0, 0]]), jnp.array([3, 1])
        >>> init = encoder.init_with_output
        >>> vectors, _ = jax.eval_shape(init, jax.random.key(0), characters, lengths)
        >>> vectors.shape
        (2, 8)

    Attributes:
      num_characters: rows of the character table, one for each character id from 0, padding
        included; at least 2.
      features: E, the width of C(w).
      hidden: width of the state z of the GRU in each direction.
      char_features: width of a character's vector.
      gru: a dict of further options of `GRU`, such as {"reset_after": True}; None means none.
      dtype: dtype of the products; None means float32.
      param_dtype: dtype of the parameters.
      embedding_init: initialiser of the table of character vectors.
      kernel_init, bias_init: initialisers of W and b, and of kernels and biases of the GRU.
      recurrent_kernel_init: initialiser of the recurrent kernels of the GRU.

    Reference: Dhingra et al. 2017, "Gated-Attention Readers for Text Comprehension", section 3.1.4.
    """

    num_characters: int
    features: int = 50
    hidden: int = 25
    char_features: int = 25
    gru: Any = None
    dtype: Dtype = None
    param_dtype: Dtype = jnp.float32
    embedding_init: Initializer = nn.initializers.normal(0.01)
    kernel_init: Initializer = GLOROT
    recurrent_kernel_init: Initializer = ORTHOGONAL
    bias_init: Initializer = ZEROS

    @nn.compact
    def __call__(
        self, characters: Int[Array, "*B L"], lengths: Int[Array, "*B"]
    ) -> Float[Array, "*B E"]:
        """Computes the vectors of words.

        Args:
          characters: ids in [0, num_characters), L for each word, padded on the right.
          lengths: number of real characters of each word, in [0, L].

        Returns:
          C(w), a vector of width E for each word; zeros for a word of length 0.

        Raises:
          TypeError: if an argument has another dtype than integers.
          ValueError: if shapes do not fit, or `num_characters` is below 2.
        """
        # The smallest alphabet has the padding and a character.
        check_fields(self, num_characters=2)
        check_integers(characters=characters, lengths=lengths)
        check_that(characters.ndim > 0, "characters must be [..., L]", characters)
        check_shape(characters.shape[:-1], lengths=lengths)
        lead, size = characters.shape[:-1], characters.shape[-1]
        shape = (self.num_characters, self.char_features)
        table = self.param("embedding", self.embedding_init, shape, self.param_dtype)
        # The words of all axes become rows, because the GRU has a single batch axis.
        ids, lengths = characters.reshape(-1, size), lengths.reshape(-1)
        vectors = take_rows(table, ids).astype(self.dtype or table.dtype)
        options = take_fields(self, "dtype", "param_dtype", "kernel_init", "bias_init")
        more = options | take_fields(self, "recurrent_kernel_init") | dict(self.gru or {})
        reader = GRU(self.hidden, bidirectional=True, name="gru", **more)
        ((ahead, back),), _ = reader(vectors, F.length_mask(lengths, size))
        # Carries are float32 or wider in all dtypes, but the projection follows the dtype of the
        # vectors.
        both = jnp.concatenate([ahead, back], axis=-1).astype(vectors.dtype)
        dense = nn.Dense(self.features, name="projection", **options)
        # Words without characters fill up a batch, and the bias b would give them a vector.
        words = jnp.where((lengths > 0)[:, None], dense(both), 0)
        return words.reshape(*lead, self.features)
