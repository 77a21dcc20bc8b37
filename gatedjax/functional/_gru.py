"""The gated recurrent unit: its equation, a step, and a masked scan."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._cell_scan import (
    Blocks,
    Cell,
    Product,
    Terms,
    run_cell,
    run_forward,
    terms_of,
)
from gatedjax.functional._checks import check_positive, wide_dtype
from gatedjax.functional._directions import Unit, kind_of, register, run_recurrences
from gatedjax.functional._export import exportable
from gatedjax.functional._persistent._backend import RecurrenceImplementation
from gatedjax.functional._recurrence import (
    check_recurrent_bias,
    check_state,
    check_weights,
    dropout_mask,
)
from gatedjax.functional._types import ArrayLike


@exportable
class GRUWeights(NamedTuple):
    """Weights of a GRU; kernels multiply from the right, in blocks of H columns.

    The blocks are, in this order, the reset gate r, the update gate z and the candidate c. D is the
    width of the inputs and H that of the hidden state.

    Attributes:
      input: the kernel W of the inputs [D, 3H].
      recurrent: the kernel U of the hidden state [H, 3H].
      bias: the biases b of the blocks [3H].
      recurrent_bias: a second bias of c [H], for reset_after only; None means zeros.
    """

    input: Float[Array, "D 3H"]
    recurrent: Float[Array, "H 3H"]
    bias: Float[Array, "3H"]
    recurrent_bias: Float[Array, " H"] | None = None


def gru_step(
    weights: GRUWeights,
    hidden: Float[Array, "B H"],
    x: Float[Array, "B D"],
    *,
    reset_after: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
    gradient_clip: float | None = None,
) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
    """Computes a step of a gated recurrent unit.

    r = sigmoid(x W_r + (m h) U_r + b_r);  z = sigmoid(x W_z + (m h) U_z + b_z)
    c = tanh(x W_c + (r m h) U_c + b_c);   h' = (1 - z) h + z c

    With reset_after the reset gate acts on the product instead, as in cuDNN:
    c = tanh(x W_c + b_c + r ((m h) U_c + recurrent_bias)).

        >>> weights = GRUWeights(jnp.ones((3, 12)), jnp.ones((4, 12)), jnp.zeros(12))
        >>> carry, output = gru_step(weights, jnp.zeros((2, 4)), jnp.ones((2, 3)))
        >>> carry.shape, output.shape
        ((2, 4), (2, 4))

    Args:
      weights: W, U and b; `recurrent_bias` (None means zeros) only with reset_after.
      hidden: h, the hidden state before the step; B is the number of rows of the batch and H the
        hidden width.
      x: inputs of width D; the products are formed in its dtype.
      reset_after: apply the reset gate after the recurrent product.
      recurrent_dropout_mask: m, a multiplicative mask of h, 0 or 1 / keep; None means all ones.
      gradient_clip: clip the gradients of the sums inside r, z and c elementwise to
        [-gradient_clip, gradient_clip], before they reach x, h and the weights; None means no
        clipping.

    Returns:
      (carry, output): h' in float32, or in float64 for float64 inputs; and h' in the dtype of x,
      in the order of `jax.lax.scan`.

    Raises:
      ValueError: also if recurrent_bias is given without reset_after.

    Reference: Cho et al. 2014.
    Deviation: z multiplies the candidate; in some texts it multiplies the old state.
    """
    _, size = _check(weights, x, "B D", reset_after=reset_after, gradient_clip=gradient_clip)
    check_state("hidden", hidden, (jnp.shape(x)[0], size))
    x = jnp.asarray(x)
    wide = wide_dtype(x.dtype)
    dropout = dropout_mask(recurrent_dropout_mask, jnp.shape(hidden), wide)
    terms = terms_of(_cell(reset_after, gradient_clip), weights, x, dropout)
    new = _advance(reset_after, terms, jnp.asarray(hidden, wide))
    return new, new.astype(x.dtype)


# The equation of `gru_step` and of the scan of `gru`, forwards and backwards. The kernel for GPUs
# (recurrence.cu, the kinds "gru_before" and "gru_after") repeats it and its derivative.
def _advance(reset_after: bool, terms: Terms, h: Array) -> Array:
    z, c, _ = gates_of(reset_after, terms, h)
    # Equal to (1 - z) h + z c, with a product less.
    return h + z * (c - h)


def gates_of(reset_after: bool, terms: Terms, h: Array) -> tuple[Array, Array, Blocks]:
    """Returns z and the candidate c of `gru_step`, and the sums of blocks behind r, z and c."""
    r, z, *blocks = terms.sums(0, terms.drop(h))
    r, z = terms.sigmoid(terms.clip(r)), terms.sigmoid(terms.clip(z))
    if reset_after:
        (product,) = terms.sums(1, terms.drop(h))
        sums = terms.x[2] + r * product
    else:
        (sums,) = terms.sums(1, r * terms.drop(h))
    return z, terms.tanh(terms.clip(sums)), tuple(blocks)


def products_of(num_blocks: int, reset_after: bool) -> tuple[Product, Product]:
    """Returns the products of `gates_of`: the blocks r, z and all behind c; then c."""
    # The reset gate multiplies the second product, or its factor h, which then waits for the first.
    return Product((0, 1, *range(3, num_blocks))), Product((2,), has_input=not reset_after)


def _cell(reset_after: bool, gradient_clip: float | None) -> Cell:
    if gradient_clip is not None:
        check_positive(gradient_clip=gradient_clip)
        # The bound is part of the static arguments, which must be hashable.
        gradient_clip = float(gradient_clip)
    return Cell(_advance, reset_after, 3, products_of(3, reset_after), gradient_clip)


def gru(
    weights: GRUWeights,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    initial: Float[Array, "B H"] | None = None,
    resets: Bool[Array, "B T"] | None = None,
    reset_to: Float[Array, "B H"] | None = None,
    reverse: bool = False,
    reset_after: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
    gradient_clip: float | None = None,
    implementation: RecurrenceImplementation = "auto",
) -> tuple[Float[Array, "B H"], Float[Array, "B T H"]]:
    """Runs `gru_step` over time, with a custom backward pass.

        >>> weights = GRUWeights(jnp.ones((3, 12)), jnp.ones((4, 12)), jnp.zeros(12))
        >>> final, outputs = gru(weights, jnp.ones((2, 5, 3)), lengths=jnp.array([5, 2]))
        >>> final.shape, outputs.shape
        ((2, 4), (2, 5, 4))

    Args:
      weights, xs, mask, lengths, initial, resets, reset_to, reverse, implementation: as in `lstm`,
        with the same effect of padding; the carry is the hidden state h.
      reset_after: apply the reset gate after the recurrent product, see `gru_step`.
      recurrent_dropout_mask: multiplies the hidden state that enters the recurrent products, the
        same at every step (variational dropout), with the scale 1 / keep already in it.
      gradient_clip: bounds the gradients of the sums inside the gates of every step, see
        `gru_step`; None does not clip.

    Returns:
      The final carry and the hidden state of every step, as `lstm` does.

    Derivatives as of `lstm`; for forward mode alone scan `gru_step`.

    Reference: as `gru_step`; recurrent dropout of Gal and Ghahramani 2016.
    """
    call = check_call(
        weights,
        xs,
        mask,
        lengths=lengths,
        initial=initial,
        resets=resets,
        reset_to=reset_to,
        reverse=reverse,
        reset_after=reset_after,
        recurrent_dropout_mask=recurrent_dropout_mask,
        gradient_clip=gradient_clip,
        implementation=implementation,
    )
    return run_recurrences((call,))[0]


def _check(
    weights: GRUWeights,
    xs: ArrayLike,
    axes: str,
    *,
    reset_after: bool = False,
    gradient_clip: float | None = None,
) -> tuple[int, int]:
    """Checks the weights and options against xs [..., D]; returns (D, H)."""
    del gradient_clip  # `_cell` checks it
    sizes = check_weights(GRUWeights, 3, weights, xs, axes)
    check_recurrent_bias(weights.recurrent_bias, reset_after)
    return sizes


def gru_unit(
    _: GRUWeights, *, reset_after: bool = False, gradient_clip: float | None = None
) -> Unit:
    """Returns the `Unit` of `gru`."""
    kind, name = kind_of("gru", reset_after=reset_after)
    cell = _cell(reset_after, gradient_clip)
    return Unit(kind, name, run_cell, run_forward, cell, lambda h: h, check_state, cell.bound)


check_call = register(gru, _check, gru_unit)
