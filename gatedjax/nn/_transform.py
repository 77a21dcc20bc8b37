"""The attention gated transformation: selection vectors and the gated layers that compose them."""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gatedjax import functional as F
from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._types import Dtype
from gatedjax.nn._types import Initializer


class AttentionGatedTransform(nn.Module):
    """Layers of which each selects from the words and composes that with the layer below.

    The weights of all layers are stacked in one array each, blocks T (gate) before f (candidate).

    Attributes:
      num_layers: L, the first of which only selects: y_0 = s_0.
      attention_features: width of the hidden layer of the attentions; None takes that of the words.
      gate_bias: bias of every gate at the start.
      share_attention_matrix: one W for the attentions of all layers.
      ablate_above: take the selection vectors away from the layers above this one; None keeps all.
      ablate_mode: what those layers are instead: "highway" layers, which see the layer below and
        nothing else; or the same layers with the last vector that is left ("reuse_last_s"), or
        with 0 ("zero").

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

    @nn.compact
    def __call__(
        self,
        words: Float[Array, "*B N D"],
        mask: Bool[Array, "*B N"] | None = None,
        *,
        keys: Float[Array, "*B N K"] | None = None,
    ) -> tuple[Float[Array, "*B L D"], Float[Array, "*B L-1 D"], Float[Array, "*B S N"]]:
        """Returns (states, gates, attention), all in float32 or wider.

        Args:
          words: what is selected.
          mask: True at real words.
          keys: what the attentions look at; None takes the words.

        Returns:
          y of every layer, T of the layers above the first, and the attention of the S layers that
          have one: all L, or ablate_above + 1.
        """
        top = self.num_layers - 1
        last = top if self.ablate_above is None else self.ablate_above
        if self.num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {self.num_layers}")
        if not 0 <= last <= top:
            raise ValueError(f"ablate_above must be in [0, {top}], got {last}")
        if self.ablate_mode not in ("highway", "reuse_last_s", "zero"):
            raise ValueError(
                f"ablate_mode must be 'highway', 'reuse_last_s' or 'zero', got {self.ablate_mode!r}"
            )
        words, keys = nn.dtypes.promote_dtype(words, keys, dtype=self.dtype)
        kernels, vectors = self._attentions(last + 1, (words if keys is None else keys).shape[-1])
        selected, attention = F.selection_vectors(
            words, kernels.astype(words.dtype), vectors, mask, keys=keys
        )
        if self.ablate_mode != "highway":
            selected = self._extended(selected)
        states, gates = self._gated(selected)
        missing = self.num_layers - selected.shape[-2]
        if missing:
            weights = self._highway(missing, words.shape[-1])
            more = F.highway_stack(states[..., -1, :].astype(words.dtype), weights)
            states, gates = (
                jnp.concatenate(pair, axis=-2) for pair in zip((states, gates), more, strict=True)
            )
        return states, gates, attention

    def _attentions(self, layers: int, width: int) -> tuple[Array, Array]:
        hidden = self.attention_features or width
        shape = (1 if self.share_attention_matrix else layers, width, hidden)
        glorot = nn.initializers.glorot_uniform(batch_axis=(0,))
        normal = nn.initializers.normal(hidden**-0.5)
        return (
            self.param("attention_kernel", glorot, shape, self.param_dtype),
            self.param("attention_vector", normal, (layers, hidden), self.param_dtype),
        )

    def _extended(self, selected: Float[Array, "*B S D"]) -> Float[Array, "*B L D"]:
        missing = self.num_layers - selected.shape[-2]
        fill = selected[..., -1:, :]
        if self.ablate_mode == "zero":
            fill = jnp.zeros_like(fill)
        return jnp.concatenate([selected, jnp.repeat(fill, missing, axis=-2)], axis=-2)

    def _gated(self, selected: Float[Array, "*B S D"]) -> tuple[Array, Array]:
        layers, width = selected.shape[-2] - 1, selected.shape[-1]
        if not layers:  # an array without elements would be no parameter
            states = selected.astype(wide_dtype(selected))
            return states, states[..., :0, :]
        square, kind = (layers, width, width), self.param_dtype
        # f reads [y; s]: both halves of its kernel have the fans of the whole
        weights = F.GatedStackWeights(
            input=self.param("input", _glorot_blocks(1, 2), (layers, width, 2 * width), kind),
            recurrent=self.param("recurrent", _glorot_blocks(2), square, kind),
            bias=self.param("bias", _gate_bias(self.gate_bias), (layers, 2 * width), kind),
        )
        return F.gated_stack(selected, weights)

    def _highway(self, layers: int, width: int) -> F.HighwayWeights:
        shape, init = (layers, width, 2 * width), _glorot_blocks(1, 1)
        bias = _gate_bias(self.gate_bias)
        return F.HighwayWeights(
            recurrent=self.param("highway_recurrent", init, shape, self.param_dtype),
            bias=self.param("highway_bias", bias, (layers, 2 * width), self.param_dtype),
        )


def _glorot_blocks(*inputs: int) -> Initializer:
    """Glorot-uniform blocks [L, D, H], each part of a matrix with so many times D rows."""

    def blocks(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        rows, columns = shape[-2], shape[-1] // len(inputs)
        limits = np.sqrt([6 / (times * rows + columns) for times in inputs])
        limit = jnp.asarray(np.repeat(limits, columns), dtype)
        return jax.random.uniform(key, shape, dtype, -1.0, 1.0) * limit[None, None]

    return blocks


def _gate_bias(value: float) -> Initializer:
    """A constant for the block of the gate, 0 for that of the candidate."""

    def bias(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        del key
        return jnp.zeros(shape, dtype).at[:, : shape[-1] // 2].set(value)

    return bias
