"""The attention gated transformation: selection vectors, and gated layers that compose them."""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gatedjax import functional as F
from gatedjax._utils.fields import check_fields
from gatedjax.functional._checks import check_floating, wide_dtype
from gatedjax.functional._types import Dtype
from gatedjax.nn._initializers import ZEROS, normal, per_layer
from gatedjax.nn._types import Initializer


class AttentionGatedTransform(nn.Module):
    """Gated layers that each attend to the words and compose the result with the layer below.

        y_l = T_l f_l + (1 - T_l) y_{l-1}

    y_l is the state of layer l, T_l its gate and f_l its candidate, which depends on y_{l-1} and on
    the selection vector s_l, the average of the words by the attention of the layer. The weights of
    all layers are stacked along the first axis, blocks T before f.

        >>> layers, words = AttentionGatedTransform(num_layers=3), jnp.ones((1, 5, 8))
        >>> outputs, _ = jax.eval_shape(layers.init_with_output, jax.random.key(0), words)
        >>> print([output.shape for output in outputs])
        [(1, 3, 8), (1, 2, 8), (1, 3, 5)]

    Attributes:
      num_layers: L, the number of layers; the first layer has no gate: y_0 = s_0.
      attention_features: width of the hidden layer of the attentions; None means the width of the
        words.
      gate_bias: number that is added to the initial bias of the gates.
      share_attention_matrix: True if the attentions of all layers share a single W.
      ablate_above: index, from 0, of the last layer with a selection vector; None means the top
        layer.
      ablate_mode: replacement of the layers above: "highway" layers, which see only the layer
        below; or the same gated layers with the last selection vector ("reuse_last_s") or with a
        vector of zeros ("zero").
      dtype: dtype of the products; None means the dtype of words and keys.
      param_dtype: dtype of the parameters.
      kernel_init: initialiser of all other kernels than `recurrent_kernel_init` has, applied to the
        block of each layer and gate separately; None means Glorot-uniform with the fans of the
        whole matrix, and normal(0, 1 / sqrt(A)) for the A entries of a scoring vector.
      recurrent_kernel_init: initialiser of the kernels that multiply the state of the layer below;
        None means Glorot-uniform with the fans of the whole matrix.
      bias_init: initialiser of the bias of a layer and gate, to which gate_bias is added.

    Reference: Guo 2017, "A Deep Network with Visual Text Composition Behavior".
    """

    num_layers: int
    attention_features: int | None = None
    gate_bias: float = 1.0
    share_attention_matrix: bool = False
    ablate_above: int | None = None
    ablate_mode: Literal["highway", "reuse_last_s", "zero"] = "highway"
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    kernel_init: Initializer | None = None
    recurrent_kernel_init: Initializer | None = None
    bias_init: Initializer = ZEROS

    @nn.compact
    def __call__(
        self,
        words: Float[Array, "*B N D"],
        mask: Bool[Array, "*B N"] | None = None,
        *,
        keys: Float[Array, "*B N K"] | None = None,
    ) -> tuple[Float[Array, "*B L D"], Float[Array, "*B L-1 D"], Float[Array, "*B S N"]]:
        """Runs the layers.

        Args:
          words: the vectors that the attentions average, of width D for each of N words.
          mask: True at real words; None means all.
          keys: the vectors from which the attentions compute their scores, of width K for each
            word; None means the words.

        Returns:
          (states, gates, attention), all in float32 or wider: the states y of all L layers, the
          gates T of the layers above the first, and the attention over the words of the S layers
          with a selection vector: S is L, or ablate_above + 1 if this option is given.

        Raises:
          ValueError: if an option is out of range.
        """
        check_fields(self, ablate_above=0)
        top = self.num_layers - 1
        last = top if self.ablate_above is None else self.ablate_above
        if not 0 <= last <= top:
            raise ValueError(f"ablate_above must be in [0, {top}], got {last}")
        check_floating(words=words, **({} if keys is None else {"keys": keys}))
        words, keys = nn.dtypes.promote_dtype(words, keys, dtype=self.dtype)
        kernels, vectors = self._attentions(last + 1, (words if keys is None else keys).shape[-1])
        selected, attention = F.selection_vectors(
            words, kernels.astype(words.dtype), vectors, mask, keys=keys
        )
        # The two other ablations keep the layers and replace only their selection vectors.
        if self.ablate_mode != "highway":
            selected = self._extend(selected)
        states, gates = self._gated(selected)
        # Highway layers take the place of the layers without a selection vector.
        missing = self.num_layers - selected.shape[-2]
        if missing:
            weights = self._highway(missing, words.shape[-1])
            highway = F.highway_stack(states[..., -1, :].astype(words.dtype), weights)
            states, gates = (
                jnp.concatenate(pair, axis=-2)
                for pair in zip((states, gates), highway, strict=True)
            )
        return states, gates, attention

    def _attentions(self, layers: int, width: int) -> tuple[Array, Array]:
        """Creates the parameters of the attentions of S layers: (kernels, vectors)."""
        hidden = self.attention_features or width
        shape = (1 if self.share_attention_matrix else layers, width, hidden)
        # The first axis stacks layers and has no part in the fans of a kernel.
        kernel, vector = nn.initializers.glorot_uniform(batch_axis=(0,)), normal(hidden**-0.5)
        # |tanh| is at most 1, so with this variance 1/A the first scores have at most variance 1.
        if self.kernel_init is not None:
            kernel, vector = per_layer(self.kernel_init), _column(self.kernel_init)
        return (
            self.param("attention_kernel", kernel, shape, self.param_dtype),
            self.param("score_kernel", vector, (layers, hidden), self.param_dtype),
        )

    def _extend(self, selected: Float[Array, "*B S D"]) -> Float[Array, "*B L D"]:
        missing = self.num_layers - selected.shape[-2]
        fill = selected[..., -1:, :]
        if self.ablate_mode == "zero":
            fill = jnp.zeros_like(fill)
        return jnp.concatenate([selected, jnp.repeat(fill, missing, axis=-2)], axis=-2)

    def _gated(self, selected: Float[Array, "*B S D"]) -> tuple[Array, Array]:
        """Applies the gated layers to selection vectors, and creates their parameters."""
        layers, width = selected.shape[-2] - 1, selected.shape[-1]
        if not layers:  # Flax has no parameters without elements.
            states = selected.astype(wide_dtype(selected))
            return states, states[..., :0, :]
        square, kind = (layers, width, width), self.param_dtype
        kernel = _layers_of(self.kernel_init, 1, 2)
        recurrent = _layers_of(self.recurrent_kernel_init, 2)
        bias = per_layer(self.bias_init, (self.gate_bias, 0.0))
        # Both halves of the kernel of f have the fans of the whole kernel, because f reads [y; s].
        weights = F.GatedStackWeights(
            input=self.param("kernel", kernel, (layers, width, 2 * width), kind),
            recurrent=self.param("recurrent_kernel", recurrent, square, kind),
            bias=self.param("bias", bias, (layers, 2 * width), kind),
        )
        return F.gated_stack(selected, weights)

    def _highway(self, layers: int, width: int) -> F.HighwayWeights:
        shape = (layers, width, 2 * width)
        init = _layers_of(self.recurrent_kernel_init, 1, 1)
        bias = per_layer(self.bias_init, (self.gate_bias, 0.0))
        return F.HighwayWeights(
            recurrent=self.param("highway_kernel", init, shape, self.param_dtype),
            bias=self.param("highway_bias", bias, (layers, 2 * width), self.param_dtype),
        )


def _layers_of(init: Initializer | None, *inputs: int) -> Initializer:
    """Returns `init` for kernels [L, D, n H] of n blocks, or for None a Glorot initialiser; block i
    then has the fan in inputs[i] D.
    """
    if init is not None:
        return per_layer(init, (0.0,) * len(inputs))

    def blocks(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        rows, columns = shape[-2], shape[-1] // len(inputs)
        # The Glorot limit is sqrt(6 / (fan in + fan out)), with the rows of the whole matrix as fan
        # in.
        limits = np.sqrt([6 / (times * rows + columns) for times in inputs])
        limit = jnp.asarray(np.repeat(limits, columns), dtype)
        return jax.random.uniform(key, shape, dtype, -1.0, 1.0) * limit[None, None]

    return blocks


def _column(init: Initializer) -> Initializer:
    """Returns an initialiser of vectors [L, A] that draws each by `init` as a kernel [A, 1]."""

    def initialize(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        # Metadata of a kernel [A, 1], such as names of axes, do not fit a vector.
        return nn.meta.unbox(per_layer(init)(key, (*shape, 1), dtype))[..., 0]

    return initialize
