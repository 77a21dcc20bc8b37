"""Stacks of gated layers: plain highway layers, and layers with selection vectors as inputs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from gatedjax.functional._checks import check_floating, check_shape, check_that, promote, wide_dtype
from gatedjax.functional._devices import run_core
from gatedjax.functional._export import exportable


def highway_mix(
    candidate: Float[Array, "..."], carry: Float[Array, "..."], gate: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Mixes two states by a gate: gate * candidate + (1 - gate) * carry.

        >>> print(highway_mix(jnp.ones(2), jnp.zeros(2), jnp.array([0.25, 1.0])))
        [0.25 1.  ]

    Args:
      candidate: f, the new state, chosen where the gate is 1.
      carry: y, the old state, kept where the gate is 0.
      gate: T in [0, 1], a number for each feature.

    Returns:
      The mix; the three arguments broadcast and are promoted to a common dtype.

    Reference: Srivastava, Greff and Schmidhuber 2015, "Highway Networks", eq. 3.
    """
    check_floating(candidate=candidate, carry=carry, gate=gate)
    weighted_candidate = jnp.multiply(*promote(gate, candidate))
    weighted_carry = jnp.multiply(*promote(1 - gate, carry))
    return jnp.add(*promote(weighted_candidate, weighted_carry))


@exportable
class GatedStackWeights(NamedTuple):
    """Weights of the layers 1 .. L-1 of `gated_stack`, with states of width D.

    The blocks of D columns are the gate T and the candidate f, in this order.

    Attributes:
      input: kernels [L-1, D, 2D] of both blocks that multiply the selection vector s_l.
      recurrent: kernels [L-1, D, D] of f that multiply the state y_{l-1} of the layer below.
      bias: biases of both blocks [L-1, 2D].
    """

    input: Array
    recurrent: Array
    bias: Array


@exportable
class HighwayWeights(NamedTuple):
    """Weights of L highway layers with states of width D.

    The blocks of D columns are the gate T and the candidate f, in this order.

    Attributes:
      recurrent: kernels [L, D, 2D] that multiply the state y_{l-1} of the layer below.
      bias: biases of both blocks [L, 2D].
    """

    recurrent: Array
    bias: Array


def gated_stack(
    selected: Float[Array, "*B L D"], weights: GatedStackWeights
) -> tuple[Float[Array, "*B L D"], Float[Array, "*B L-1 D"]]:
    """Applies layers that each combine the state so far with the next selection vector.

        y_0 = s_0;  T_l = sigmoid(s_l Wt_l + bt_l),  f_l = tanh([y_{l-1}; s_l] Wf_l + bf_l)
        y_l = T_l f_l + (1 - T_l) y_{l-1}

    Products with s_l do not depend on y, so they are formed for all layers at once. A scan over the
    layers computes the products of y with its half of Wf; its program does not grow with L.

        >>> weights = GatedStackWeights(
        ...     jnp.ones((3, 5, 10)), jnp.ones((3, 5, 5)), jnp.zeros((3, 10))
        ... )
        >>> states, gates = gated_stack(jnp.ones((2, 4, 5)), weights)
        >>> states.shape, gates.shape
        ((2, 4, 5), (2, 3, 5))

    Args:
      selected: the selection vectors s_0 .. s_{L-1}, one of width D for each of L layers (see
        `selection_vectors`).
      weights: the weights of the layers 1 .. L-1: input has the columns of Wt_l and of Wf_l that
        multiply s_l, recurrent has the part of Wf_l that multiplies y_{l-1}, and bias has bt_l and
        bf_l. Products are in the dtype of selected.

    Returns:
      (states, gates): the states y_0 .. y_{L-1} and the gates T_1 .. T_{L-1}, in float32 or wider.

    Reference: Guo 2017, "A Deep Network with Visual Text Composition Behavior", eqs. 2 to 4 and 8.
    """
    check_floating(selected=selected, **weights._asdict())
    selected = jnp.asarray(selected)
    fits = selected.ndim > 1 and selected.shape[-2] > 0
    check_that(fits, "selected must be [..., L, D] with L at least 1", selected)
    layers, width = selected.shape[-2] - 1, selected.shape[-1]
    check_shape((layers, width, 2 * width), input=weights.input)
    check_shape((layers, width, width), recurrent=weights.recurrent)
    check_shape((layers, 2 * width), bias=weights.bias)
    weights = jax.tree.map(jnp.asarray, weights)
    return run_core(_gated_stack, (), (selected, weights), selected, axes=selected.ndim - 2)


def _gated_stack(selected: Array, weights: GatedStackWeights) -> tuple[Array, Array]:
    """Computes `gated_stack` of `selected` [*B, L, D] without checks; returns (states, gates)."""
    dtype, wide, width = selected.dtype, wide_dtype(selected), selected.shape[-1]
    # [L-1, *B, 2D]: the layers are the first axis, because `lax.scan` runs over it.
    # A single large product for all layers uses the matrix units better than a small product in
    # each step of the scan.
    drive = jnp.einsum(
        "...ld,lde->l...e",
        selected[..., 1:, :],
        weights.input.astype(dtype),
        preferred_element_type=wide,
    )
    drive = drive + _per_layer(weights.bias, drive)
    # T_l depends on s_l and not on y, so all gates are known before the scan.
    gates = jax.nn.sigmoid(drive[..., :width])

    def layer(carry: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        kernel, gate, input_sum = inputs
        # The operands have the dtype of the inputs, but the carry stays in the wide dtype, because
        # rounding of the state would add up over the layers.
        candidate = jnp.tanh(_product(carry, kernel, dtype) + input_sum)
        state = highway_mix(candidate, carry, gate)
        return state, state

    first = selected[..., 0, :].astype(wide)
    _, states = lax.scan(layer, first, (weights.recurrent, gates, drive[..., width:]))
    # The scan returns the states from y_1 on, and y_0 is s_0 itself.
    states = jnp.concatenate([first[None], states])
    return jnp.moveaxis(states, 0, -2), jnp.moveaxis(gates, 0, -2)


def highway_stack(
    inputs: Float[Array, "*B D"], weights: HighwayWeights
) -> tuple[Float[Array, "*B L D"], Float[Array, "*B L D"]]:
    """Applies L highway layers; gate and candidate depend on the layer below only.

        T_l = sigmoid(y_{l-1} Wt_l + bt_l),  f_l = tanh(y_{l-1} Wf_l + bf_l)
        y_l = T_l f_l + (1 - T_l) y_{l-1}

        >>> weights = HighwayWeights(jnp.ones((3, 5, 10)), jnp.zeros((3, 10)))
        >>> states, gates = highway_stack(jnp.ones((2, 5)), weights)
        >>> states.shape, gates.shape
        ((2, 3, 5), (2, 3, 5))

    Args:
      inputs: y_0, the input of the first layer, a vector of width D.
      weights: Wt and Wf [L, D, 2D], side by side, and bt and bf [L, 2D]. Products are in the dtype
        of inputs.

    Returns:
      (states, gates): the states y_1 .. y_L and the gates T_1 .. T_L of the layers, in their order,
      in float32 or wider.

    Reference: Srivastava, Greff and Schmidhuber 2015, "Highway Networks".
    """
    check_floating(inputs=inputs, **weights._asdict())
    inputs = jnp.asarray(inputs)
    check_that(inputs.ndim > 0, "inputs must be [..., D]", inputs)
    layers, width = jnp.shape(weights.recurrent)[:1], inputs.shape[-1]
    check_shape((*layers, width, 2 * width), recurrent=weights.recurrent)
    check_shape((*layers, 2 * width), bias=weights.bias)
    weights = jax.tree.map(jnp.asarray, weights)
    return run_core(_highway_stack, (), (inputs, weights), inputs, axes=inputs.ndim - 1)


def _highway_stack(inputs: Array, weights: HighwayWeights) -> tuple[Array, Array]:
    """Computes `highway_stack` of `inputs` [*B, D] without checks; returns (states, gates)."""
    dtype, wide, width = inputs.dtype, wide_dtype(inputs), inputs.shape[-1]

    def layer(carry: Array, weights: HighwayWeights) -> tuple[Array, tuple[Array, Array]]:
        # Gate and candidate share a product, because both read the layer below.
        both = _product(carry, weights.recurrent, dtype)
        both = both + weights.bias.astype(wide).reshape((1,) * (both.ndim - 1) + (-1,))
        gate = jax.nn.sigmoid(both[..., :width])
        state = highway_mix(jnp.tanh(both[..., width:]), carry, gate)
        return state, (state, gate)

    _, (states, gates) = lax.scan(layer, inputs.astype(wide), weights)
    return jnp.moveaxis(states, 0, -2), jnp.moveaxis(gates, 0, -2)


def _product(carry: Array, kernel: Array, dtype: jnp.dtype) -> Array:
    return jnp.einsum(
        "...d,de->...e",
        carry.astype(dtype),
        kernel.astype(dtype),
        preferred_element_type=carry.dtype,
    )


def _per_layer(values: Array, like: Array) -> Array:
    shape = (values.shape[0], *(1,) * (like.ndim - 2), values.shape[1])
    return values.astype(like.dtype).reshape(shape)
