"""The long short-term memory: its equation, a step, and a masked scan."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._cell_scan import Cell, Product, Terms, run_cell, run_forward, terms_of
from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._directions import Unit, kind_of, register, run_recurrences
from gatedjax.functional._export import exportable
from gatedjax.functional._persistent._backend import RecurrenceImplementation
from gatedjax.functional._recurrence import check_state, check_weights, dropout_mask
from gatedjax.functional._types import ArrayLike, Carry


@exportable
class LSTMWeights(NamedTuple):
    """Weights of an LSTM; kernels multiply from the right, in blocks of H columns.

    The blocks are, in this order, the input gate i, the forget gate f, the candidate g and the
    output gate o. D is the width of the inputs and H that of the hidden state.

    Attributes:
      input: the kernel W of the inputs [D, 4H].
      recurrent: the kernel U of the hidden state [H, 4H].
      bias: the biases b of the blocks [4H].
    """

    input: Float[Array, "D 4H"]
    recurrent: Float[Array, "H 4H"]
    bias: Float[Array, "4H"]


@exportable
class LSTMState(NamedTuple):
    """The carry of an LSTM, for B rows and H hidden units.

    Attributes:
      hidden: the hidden state h [B, H], which is also the output of a step.
      cell: the cell state c [B, H].
    """

    hidden: Float[Array, "B H"]
    cell: Float[Array, "B H"]


def lstm_step(
    weights: LSTMWeights,
    carry: LSTMState,
    x: Float[Array, "B D"],
    *,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
) -> tuple[LSTMState, Float[Array, "B H"]]:
    """Computes a step of a long short-term memory.

    [i, f, g, o] = x W + (m h) U + b
    c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')

        >>> weights = LSTMWeights(jnp.ones((3, 16)), jnp.ones((4, 16)), jnp.zeros(16))
        >>> carry = LSTMState(jnp.zeros((2, 4)), jnp.zeros((2, 4)))
        >>> carry, output = lstm_step(weights, carry, jnp.ones((2, 3)))
        >>> carry.cell.shape, output.shape
        ((2, 4), (2, 4))

    Args:
      weights: W, U and b, each for the four blocks side by side.
      carry: h and c before the step; B is the number of rows of the batch and H the hidden width.
      x: inputs of width D; the products are formed in its dtype.
      recurrent_dropout_mask: m, a multiplicative mask of h, 0 or 1 / keep; None means all ones.

    Returns:
      (carry, output): h' and c' in float32, or in float64 for float64 inputs; and h' in the dtype
      of x, in the order of `jax.lax.scan`.

    Reference: Hochreiter and Schmidhuber 1997; forget gate of Gers et al. 2000, no peepholes.
    """
    _, hidden = _check(weights, x, "B D")
    shape = (jnp.shape(x)[0], hidden)
    _check_carry("carry", carry, shape)
    x = jnp.asarray(x)
    carry = LSTMState(*(jnp.asarray(value, wide_dtype(x.dtype)) for value in carry))
    dropout = dropout_mask(recurrent_dropout_mask, shape, wide_dtype(x.dtype))
    new = _advance(None, terms_of(CELL, weights, x, dropout), carry)
    return new, new.hidden.astype(x.dtype)


# The equation of `lstm_step` and of the scan of `lstm`, forwards and backwards. The kernel for GPUs
# (recurrence.cu, the kind "lstm") repeats it and its derivative. A term with weights [H] of its own
# reads terms.weights["name"] here; the name is in `CELL` and is a field of `LSTMWeights`, with its
# shape in `_check` and, for modules, in `nn.LSTMCell._layout`, and with a name in `PARAMETERS`.
# Without the kernel, `kind_of` returns None for it.
def _advance(_: None, terms: Terms, carry: LSTMState) -> LSTMState:
    i, f, g, o = terms.sums(0, terms.drop(carry.hidden))
    c = terms.sigmoid(f) * carry.cell + terms.sigmoid(i) * terms.tanh(g)
    return LSTMState(terms.sigmoid(o) * jnp.tanh(c), c)


CELL = Cell(_advance, None, 4, (Product((0, 1, 2, 3)),))


def _check_carry(name: str, carry: Carry, shape: tuple[int, int]) -> None:
    if not isinstance(carry, LSTMState):
        raise TypeError(f"{name} must be an LSTMState, got {type(carry).__name__}")
    check_state(f"{name}.hidden", carry.hidden, shape)
    check_state(f"{name}.cell", carry.cell, shape)


def lstm(
    weights: LSTMWeights,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    initial: LSTMState | None = None,
    resets: Bool[Array, "B T"] | None = None,
    reset_to: LSTMState | None = None,
    reverse: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
    implementation: RecurrenceImplementation = "auto",
) -> tuple[LSTMState, Float[Array, "B T H"]]:
    """Runs an LSTM over time, `lstm_step` at each step of a batch of rows.

    The carry stays unchanged where the mask is False, which may be at any step. Padding therefore
    changes no result, and the final carry is the state after the last real step of each row.

        >>> weights = LSTMWeights(jnp.ones((3, 16)), jnp.ones((4, 16)), jnp.zeros(16))
        >>> final, outputs = lstm(weights, jnp.ones((2, 5, 3)), lengths=jnp.array([5, 2]))
        >>> final.hidden.shape, outputs.shape
        ((2, 4), (2, 5, 4))

    Args:
      weights: the parameters, of any floating dtype; their gradients have the same dtype.
      xs: inputs, a vector of width D at each of T steps of B rows; the products are formed in their
        dtype (bfloat16 saves time on accelerators), carries and gates in float32 (float64 for
        float64 inputs).
      mask: True at real steps; None means all.
      lengths: instead of mask, the number of real steps of each row (see `length_mask`).
      initial: the carry before the first step; None means zeros.
      resets: True at the first step of each segment of a row, see below; None means one segment.
      reset_to: the carry at the start of a segment; None means initial. Pass zeros if initial is
        the final carry of the chunk before. Unused without resets.
      reverse: run from the last step to the first; outputs stay in the order of xs.
      recurrent_dropout_mask: multiplies the hidden state that enters the recurrent product, the
        same at every step (variational dropout), with the scale 1 / keep already in it.
      implementation: "scan", a loop of XLA; "persistent", one launch for all steps on an NVIDIA
        GPU; or "auto", the faster of both (see `recurrence_backend`).

    Returns:
      The final carry (float32 or float64) and the hidden state of every step in the dtype of xs,
      0 where the mask is False. A row without a real step returns its initial carry.

    Resets separate the segments of a row. At a step with resets=True the carry is replaced by
    reset_to before the step; with reverse=True after the step, before the last step of the previous
    segment. Each segment of a packed row then has the outputs and gradients of a run from reset_to,
    in both directions. Only the segment that runs first (with reverse=True the last of the row)
    starts from initial. The final carry belongs to the segment that runs last. A reset at a padded
    step has no effect.

    Reverse-mode derivatives of any order are supported, and forward over reverse; forward mode
    alone (`jax.jvp`, `jax.jacfwd`) is not: scan `lstm_step` for it.

    Reference: as `lstm_step`; recurrent dropout of Gal and Ghahramani 2016.
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
        recurrent_dropout_mask=recurrent_dropout_mask,
        implementation=implementation,
    )
    return run_recurrences((call,))[0]


def _check(weights: LSTMWeights, xs: ArrayLike, axes: str) -> tuple[int, int]:
    return check_weights(LSTMWeights, 4, weights, xs, axes)


# The kernel and the name come from `kind_of`, so that `recurrence_backend` answers for this call.
LSTM_UNIT = Unit(
    *kind_of("lstm"), run_cell, run_forward, CELL, lambda h: LSTMState(h, h), _check_carry
)
check_call = register(lstm, _check, lambda _: LSTM_UNIT)
