"""Stacked and bidirectional recurrent layers, which run the masked scans of `functional`."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax._utils.fields import check_fields
from gatedjax._utils.types import Tree
from gatedjax.functional._attention import step_mask
from gatedjax.functional._checks import check_floating
from gatedjax.functional._devices import rows_like
from gatedjax.functional._directions import Unit, prepare, run_recurrences, split_carries
from gatedjax.functional._random import drop
from gatedjax.functional._recurrence import check_resets
from gatedjax.functional._recurrence import time_major as swap_time
from gatedjax.functional._types import Carry, Dtype
from gatedjax.nn._cells import Cell, GRUCell, LSTMCell, RAUCell
from gatedjax.nn._initializers import GLOROT, ORTHOGONAL, ZEROS
from gatedjax.nn._keys import example_keys, fold_keys, warn_unused
from gatedjax.nn._types import Initializer

DIRECTIONS = "forward", "backward"


class Layer(NamedTuple):
    """A layer of a stack."""

    weights: Sequence[Tree]  # of each direction
    unit: Unit | None = None  # a cell of the library
    unroll: Any = None  # (weights, xs, mask, **options) -> (carry, outputs) of any other cell
    features: int = 0  # the width of a mask of recurrent dropout
    dtype: Dtype | None = None  # of the inputs


def unroll_cell(
    step: Callable[..., Tree],
    start: Callable[[tuple[int, ...]], Carry],
    weights: Tree,
    xs: Array,
    mask: Array | None,
    *,
    initial: Carry,
    recurrent_dropout_mask: Array | None = None,
    implementation: F.RecurrenceImplementation = "auto",
    **options: Any,
) -> tuple[Carry, Array]:
    """Runs a cell over time: step(weights, carry, x) from `initial`, or from start(shape of x)."""
    if implementation == "persistent":
        raise ValueError(
            "implementation must be 'auto' or 'scan' for a cell without a kernel, got 'persistent'"
        )
    if recurrent_dropout_mask is not None:
        step = functools.partial(step, recurrent_dropout_mask=recurrent_dropout_mask)
    initial = start((xs.shape[0], *xs.shape[2:])) if initial is None else initial
    return F.masked_scan(functools.partial(step, weights), initial, xs, mask, **options)


def initial_of(cell: Any, *arguments: Any) -> Carry:
    """Returns cell.initialize_carry(*arguments); raises ValueError for a cell without it."""
    if not hasattr(cell, "initialize_carry"):
        raise ValueError(
            "initial must be the carries before the first step for a cell without "
            "initialize_carry, got None"
        )
    return cell.initialize_carry(*arguments)


def check_recurrent_dropout(cell: Callable[..., Any], rate: float) -> None:
    """Raises ValueError if a cell cannot take the mask of recurrent dropout."""
    # Only the cell knows which part of its carry enters products. Dropout of a whole carry would
    # multiply a state that a gate keeps by 1 / keep at each step.
    if "recurrent_dropout_mask" not in inspect.signature(cell).parameters:
        raise ValueError(
            "recurrent_dropout must be 0 for a cell whose call has no argument "
            f"recurrent_dropout_mask, got {rate} for {cell!r}"
        )


def run_layers(
    stack: Any,
    create_layer: Callable[[int, Array], Layer],
    make_keys: Callable[[int], Array] | None,
    xs: Array,
    mask: Array | None,
    *,
    lengths: Array | None = None,
    initial: Carry = None,
    resets: Array | None = None,
    reset_to: Carry = None,
    time_major: bool | None = None,
    return_carry: bool | None = None,
    gates: Array | None = None,
) -> Any:
    """Runs the layers of a `stack`, a module that has the options of `Recurrent` as attributes.
    `make_keys` returns new keys of dropout for a number of rows; None turns dropout off.
    """
    check_floating(xs=xs)
    for argument, its in {"initial": initial, "reset_to": reset_to}.items():
        if its is not None and len(its) != stack.num_layers:
            raise ValueError(
                f"{argument} must have a carry per layer ({stack.num_layers}), got {len(its)} "
                f"in {type(its).__name__}: give a tuple, such as the carries of another call"
            )
    time_major = stack.time_major if time_major is None else time_major
    if time_major:
        xs, mask, resets, gates = map(swap_time, (xs, mask, resets, gates))
    mask = step_mask(xs.shape[:2], mask, lengths)
    if resets is not None:
        check_resets(resets, xs.shape[:2])
    carries = []
    for index in range(stack.num_layers):
        layer = create_layer(index, xs)
        xs = xs.astype(layer.dtype or xs.dtype)
        if layer.unit is not None:
            if xs.ndim != 3:  # a cell of Flax may read images
                raise ValueError(f"xs must have 3 axes [B, T, D], got shape {xs.shape}")
            for weights in layer.weights:
                given = {name: its for name, its in weights._asdict().items() if its is not None}
                check_floating(xs=xs, **given)
        # Each layer takes new keys, because equal dropout in all layers would be correlated.
        keys = None if make_keys is None else make_keys(xs.shape[0])
        if keys is not None and index > 0 and stack.dropout > 0:
            xs = drop(xs, stack.dropout, keys)
        ways = []
        for way in range(1 + stack.bidirectional):
            options: dict[str, Any] = {"resets": resets, "reverse": way == 1}
            options |= (
                {"implementation": stack.implementation} if gates is None else {"gates": gates}
            )
            for name, its in {"initial": initial, "reset_to": reset_to}.items():
                carry = None if its is None else its[index]
                if carry is not None and stack.bidirectional:
                    carry = split_carries(f"{name}[{index}]", carry)[way]
                if carry is not None and layer.unit is not None:
                    layer.unit.check_carry(name, carry, (xs.shape[0], layer.features))
                options[name] = carry
            if keys is not None and stack.recurrent_dropout > 0:
                ones = rows_like(jnp.ones((xs.shape[0], layer.features), xs.dtype), xs)
                # The keys are folded so that the two directions drop different units.
                dropped = drop(ones, stack.recurrent_dropout, fold_keys(keys, 1 + way))
                options["recurrent_dropout_mask"] = dropped
            ways.append((layer.weights[way], options))
        if layer.unit is not None:
            calls = [prepare(layer.unit, its, xs, mask, **options) for its, options in ways]
            results = run_recurrences(calls)
        else:
            results = [layer.unroll(its, xs, mask, **options) for its, options in ways]
        ends, states = zip(*results, strict=True)
        carries.append(ends if stack.bidirectional else ends[0])
        xs = jnp.concatenate(states, axis=-1) if stack.bidirectional else states[0]
    outputs = swap_time(xs) if time_major else xs
    has_carry = stack.return_carry if return_carry is None else return_carry
    return (tuple(carries), outputs) if has_carry else outputs


class _Layer(nn.Module):
    """The scope of a layer, such as "layer_0", with a cell for each direction."""

    create_cell: Callable[..., Any]
    directions: tuple[str, ...]

    @nn.compact
    def __call__(self, xs: Array, make_key: Callable[[], Array]) -> list[Tree]:
        cells = [self.create_cell(parent=self, name=direction) for direction in self.directions]
        if isinstance(cells[0], Cell):
            return [cell.weights(xs, make_key, "xs") for cell in cells]
        if self.is_initializing():
            x = jnp.zeros((xs.shape[0], *xs.shape[2:]), xs.dtype)
            for cell in cells:
                cell(_start(cell, x.shape), x)
        return [cell.variables for cell in cells]


def _start(cell: Any, shape: tuple[int, ...]) -> Carry:
    # Flax's cells take a key, which is not used where the carry is zero.
    return initial_of(cell, jax.random.key(0), shape)


class _Stack(nn.Module):
    """The base class of `Recurrent`, `LSTM`, `GRU` and `RAU`, whose options are fields."""

    def _cell(self) -> Any:
        """Returns the cell, a module without a parent or a function."""
        raise NotImplementedError

    @nn.nowrap
    def initial_carry(self, rows: int) -> Tree:
        """Returns the carries before the first step.

        They are a tuple with a carry for each layer or, if bidirectional, a pair of carries
        (forward, backward). A carry is an array [B, H], for H hidden units, or a tuple of arrays
        such as an `LSTMState`: zeros in float32 or wider for the cells of this library.

        Args:
          rows: B, the number of rows of the batch.
        """
        check_fields(self, attn_hidden=0)
        stack: Any = self
        carry = _start(self._cell(), (rows, 1))
        return ((carry, carry) if stack.bidirectional else carry,) * stack.num_layers

    @nn.compact
    def __call__(
        self,
        xs: Float[Array, "B T D"],
        mask: Bool[Array, "B T"] | None = None,
        *,
        lengths: Int[Array, " B"] | None = None,
        initial: Carry = None,
        resets: Bool[Array, "B T"] | None = None,
        reset_to: Carry = None,
        deterministic: bool = True,
        example_id: Int[Array, " B"] | None = None,
        time_major: bool | None = None,
        return_carry: bool | None = None,
        gates: Float[Array, "B T"] | None = None,
    ) -> Any:
        """Runs the stack.

        Args:
          xs: inputs, a vector of width D for each of T positions of B rows.
          mask: True at real positions; None without lengths means that all are real.
          lengths: the number of real positions of each row, instead of mask.
          initial: the carries before the first step, in the form that this call returns (a tuple
            with a carry for each layer or, if bidirectional, a pair of carries); None means the
            first carry of the cell, which is zero in this library. A carry is an array [B, H] or a
            tuple of arrays such as an `LSTMState`.
          resets: True at the first step of each segment of a row, for all layers and directions:
            segments do not see each other (see `functional.lstm`).
          reset_to: the carries at the start of a segment, in the form of `initial`; None means
            `initial`. Without resets they have no effect.
          deterministic: True turns dropout off; False needs a "dropout" stream.
          example_id: a number for each row that identifies its example, to which the dropout bits
            belong; None means the row numbers.
          time_major: True for xs, mask, resets and outputs with the axes [T, B]; None means the
            attribute.
          return_carry: False returns only the outputs; None means the attribute.
          gates: in an LSTM, the share in [0, 1] by which each step moves the states of all layers
            (see `functional.skip_lstm`); None means 1.

        Returns:
          (carries, outputs): the final carries, a tuple with a carry for each layer or, if
          bidirectional, a pair of carries (forward, backward); and the states, of width H, of the
          last layer [B, T, H], or [B, T, 2H] if bidirectional, 0 at padding. With
          return_carry=False only the outputs.

        Raises:
          TypeError: if `features` or `num_layers` is not an integer.
          ValueError: if an option is out of range, carries have another number of layers, or gates
            are given together with resets or to a cell without them; for `recurrent_dropout` of a
            cell that does not take its mask.
        """
        stack: Any = self
        check_fields(self, attn_hidden=0)
        cell = self._cell()
        if gates is not None:
            if resets is not None:
                raise ValueError("resets must be None for gates, got an array")
            if not isinstance(cell, LSTMCell):
                kind = type(cell if isinstance(self, Recurrent) else self).__name__
                raise ValueError(f"gates must be None for {kind}: only LSTM has them")
        if stack.recurrent_dropout > 0:
            check_recurrent_dropout(cell, stack.recurrent_dropout)
        make_keys = None
        if stack.dropout > 0 or stack.recurrent_dropout > 0:
            if deterministic:
                warn_unused(self, "dropout")
            else:
                make_keys = functools.partial(example_keys, self, "dropout", example_id)
        directions = DIRECTIONS[: 1 + stack.bidirectional]
        # All parameters take their keys from the stream of this module, because the figures in the
        # documentation were measured with these initial values.
        make_key = functools.partial(self.make_rng, "params")

        def create_layer(index: int, xs: Array) -> Layer:
            if not isinstance(cell, nn.Module):
                weights: Any = [None] * len(directions)
                step: Any = functools.partial(_call, cell)
            else:
                weights = _Layer(cell.clone, directions, name=f"layer_{index}")(xs, make_key)
                step = cell.apply
            if not isinstance(cell, Cell):
                unroll = functools.partial(unroll_cell, step, functools.partial(_start, cell))
                return Layer(weights, unroll=unroll, features=getattr(cell, "features", 0))
            if gates is not None:
                return Layer(weights, None, _skip, cell.features, cell.dtype)
            return Layer(weights, cell._unit(weights[0]), None, cell.features, cell.dtype)

        return run_layers(
            self,
            create_layer,
            make_keys,
            xs,
            mask,
            lengths=lengths,
            initial=initial,
            resets=resets,
            reset_to=reset_to,
            time_major=time_major,
            return_carry=return_carry,
            gates=gates,
        )


def _call(step: Callable[..., Tree], _: None, carry: Carry, x: Array) -> Tree:
    return step(carry, x)


def _skip(
    weights: Any,
    xs: Array,
    mask: Array | None,
    *,
    gates: Array,
    resets: None,
    reset_to: Carry,
    **options: Any,
) -> Tree:
    del resets, reset_to  # `skip_lstm` has none
    return F.skip_lstm(weights, xs, gates, mask, **options)


class Recurrent(_Stack):
    """Layers of any recurrent cell, with masks, resets, directions and dropout.

    The cell computes a step, (carry, x [B, D]) -> (carry, output [B, H]) for B rows. It is a module
    with the protocol of Flax's cells (`flax.linen.RNNCellBase`), which is copied with new
    parameters for each layer and direction, or a function, such as the step of
    `functional.masked_scan`. `Recurrent(LSTMCell(5))` is `LSTM(5)`: a cell of this library runs by
    `functional.lstm`, `gru` or `rau`, with the kernel on a GPU, and any other cell by
    `functional.masked_scan`.

        >>> import jax
        >>> encoder = Recurrent(nn.MGUCell(5), num_layers=2, bidirectional=True)
        >>> xs, lengths = jnp.ones((2, 4, 3)), jnp.array([4, 2])
        >>> (carries, outputs), variables = encoder.init_with_output(
        ...     jax.random.key(0), xs, lengths=lengths
        ... )
        >>> print(outputs.shape, sorted(variables["params"]), outputs[1, 3].max())
        (2, 4, 10) ['layer_0', 'layer_1'] 0.0

    Attributes:
      cell: the cell. If it has no `initialize_carry`, the call needs `initial`. If its call takes
        the keyword `recurrent_dropout_mask`, [B, features] with 0 or 1 / keep, it can be used with
        recurrent dropout; it multiplies the hidden state with the mask where it enters products.
      num_layers: number of stacked layers.
      bidirectional: True runs both directions; outputs are [forward, backward] features.
      dropout: rate of dropout on the inputs of all layers but the first.
      recurrent_dropout: rate of the mask of recurrent dropout, the same at each step of a row.
      time_major: True means that the axes of inputs, masks, resets and outputs begin [T, B], for T
        steps of B rows.
      return_carry: False returns the outputs without the carries.
      implementation: "scan", a loop of XLA; "persistent", one launch for all steps on an NVIDIA
        GPU, for the cells of this library; or "auto", the faster of both.
    """

    cell: Any
    num_layers: int = 1
    bidirectional: bool = False
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    time_major: bool = False
    return_carry: bool = True
    implementation: F.RecurrenceImplementation = "auto"

    def _cell(self) -> Any:
        return self.cell.clone(parent=None) if isinstance(self.cell, nn.Module) else self.cell


class _OwnCell(_Stack):
    """The base class of `LSTM`, `GRU` and `RAU`; `_cell_class` of a subclass is its cell."""

    _cell_class: ClassVar[type[Cell]]
    features: int
    num_layers: int = 1
    bidirectional: bool = False
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    kernel_init: Initializer = GLOROT
    recurrent_kernel_init: Initializer = ORTHOGONAL
    bias_init: Initializer = ZEROS
    time_major: bool = False
    return_carry: bool = True
    implementation: F.RecurrenceImplementation = "auto"

    @nn.nowrap
    def _cell(self) -> Cell:
        # The cell has the options of the stack that are fields of it.
        names = {field.name for field in dataclasses.fields(self._cell_class) if field.init}
        options = {name: getattr(self, name) for name in names - {"parent", "name"}}
        return self._cell_class(**options, parent=None)


class LSTM(_OwnCell):
    """Layers of LSTM cells: `functional.lstm` with parameters.

    A call with inputs [B, T, D] returns the carries and the outputs [B, T, H] of the last layer.
    Input kernels are Glorot-uniform and recurrent kernels orthogonal per gate; biases are 0, except
    that of the forget gate. `carries[l]` is the final `LSTMState` of layer l, with the hidden state
    `hidden` and the cell state `cell`, both [B, H] for B rows, or, if bidirectional, a pair of them
    (forward, backward): `carries[0][0]` is then that of layer 0, forward.

        >>> import jax
        >>> xs, mask = jnp.ones((1, 4, 3)), jnp.array([[True, True, True, False]])
        >>> lstm = LSTM(features=5, bidirectional=True)
        >>> (carries, outputs), _ = lstm.init_with_output(jax.random.key(0), xs, mask)
        >>> print(outputs.shape, len(carries), carries[0][0].hidden.shape)
        (1, 4, 10) 1 (1, 5)

    Attributes:
      features: hidden width H per direction.
      num_layers, bidirectional, dropout, recurrent_dropout, time_major, return_carry,
        implementation: as in `Recurrent`.
      kernel_init, recurrent_kernel_init, bias_init: initialisers of input kernels, recurrent
        kernels and biases, applied to the block of each gate separately.
      dtype, param_dtype: dtype of the products (None follows the input), and of the parameters.
      forget_bias: number that is added to the initial bias of the forget gate.
    """

    _cell_class = LSTMCell
    forget_bias: float = 1.0


class GRU(_OwnCell):
    """Layers of GRU cells: `functional.gru` with parameters.

    A call with inputs [B, T, D] returns the carries and the outputs [B, T, H] of the last layer.
    Input kernels are Glorot-uniform and recurrent kernels orthogonal per gate. `carries[l]` is the
    final state [B, H] of layer l or, if bidirectional, a pair of them (forward, backward).

        >>> import jax
        >>> gru = GRU(features=5, num_layers=2)
        >>> variables = gru.init(jax.random.key(0), jnp.ones((1, 4, 3)))
        >>> carries, outputs = gru.apply(variables, jnp.ones((1, 4, 3)), lengths=jnp.array([2]))
        >>> print(outputs.shape, len(carries), outputs[0, 3])
        (1, 4, 5) 2 [0. 0. 0. 0. 0.]

    Attributes:
      features, num_layers, bidirectional, dropout, recurrent_dropout, kernel_init,
        recurrent_kernel_init, bias_init, time_major, return_carry, implementation, dtype,
        param_dtype: as in `LSTM`.
      reset_after: True applies the reset gate after the recurrent product (cuDNN's form), which
        adds a recurrent bias to the candidate.
      recurrent_bias: False leaves that bias out, as Lasagne does.
      gradient_clip: bound of the gradients inside each step, see `functional.gru_step`; None does
        not clip.
      gate_bias: number that is added to the initial bias of the reset gate and subtracted from that
        of the update gate. With 1, as in TensorFlow's cell, a new unit keeps more of its state.
    """

    _cell_class = GRUCell
    reset_after: bool = False
    recurrent_bias: bool = True
    gradient_clip: float | None = None
    gate_bias: float = 0.0


class RAU(_OwnCell):
    """Layers of recurrent attention units: `functional.rau` with parameters, in place of a `GRU`.

    A call with inputs [B, T, D] returns the carries and the outputs [B, T, H] of the last layer.
    Input kernels and the kernels of the attention are Glorot-uniform, recurrent kernels orthogonal
    per block; biases are 0. `carries[l]` is the final carry of layer l, the state [B, H] of B rows
    (an `RAUTimeState` for the attention "time_causal"), or, if bidirectional, a pair of them
    (forward, backward).

        >>> import jax
        >>> rau, xs = RAU(features=5, attention="concat"), jnp.ones((1, 4, 3))
        >>> (_, outputs), variables = jax.eval_shape(rau.init_with_output, jax.random.key(0), xs)
        >>> print(outputs.shape, variables["params"]["layer_0"]["forward"]["score_kernel"].shape)
        (1, 4, 5) (8, 8)

    Attributes:
      features, num_layers, bidirectional, dropout, recurrent_dropout, kernel_init,
        recurrent_kernel_init, bias_init, time_major, return_carry, implementation, dtype,
        param_dtype: as in `LSTM`.
      attention: the form of the attention: "feature_proj", "sigmoid", "concat", "matrix",
        "time_causal" or "additive_relu", with the equations of `functional.rau_step`.
      attn_hidden: width of a tanh layer before the attention logits; 0 omits the layer, except for
        "time_causal", which needs it and takes H. Must be 0 for "concat" and "matrix".
      rescale: True scales the attention weights to mean 1, which the paper does not do.
      reset_after: True applies the reset gate after the recurrent product.
      gate_bias: number that is added to the initial bias of the reset gate and subtracted from that
        of the update gate.
    """

    _cell_class = RAUCell
    attention: F.RAUAttention = "feature_proj"
    attn_hidden: int = 0
    rescale: bool = False
    reset_after: bool = False
    gate_bias: float = 0.0

    def attention_weights(
        self,
        xs: Float[Array, "B T D"],
        mask: Bool[Array, "B T"] | None = None,
        *,
        lengths: Int[Array, " B"] | None = None,
        resets: Bool[Array, "B T"] | None = None,
    ) -> Float[Array, "B T ..."]:
        """Computes the attention weights of all steps, without dropout.

        Args:
          xs: inputs, a vector of width D for each of T positions of B rows.
          mask: True at real positions; None without lengths means that all are real.
          lengths: the number of real positions of each row, instead of mask.
          resets: True at the first step of each segment of a row, where the state is set to zero;
            None means one segment.

        Returns:
          The attention weights, 0 at padding: [B, T, H], a weight for each of H features; with the
          attention "concat" [B, T, D + H], "matrix" [B, T, H, D + H], and "time_causal" [B, T, 1].

        Raises:
          ValueError: if the module has several layers or two directions.
        """
        # The inputs of a second layer are the outputs of the first, which this method does not
        # compute.
        if self.num_layers != 1 or self.bidirectional:
            raise ValueError(
                "attention_weights must be called with num_layers=1 and bidirectional=False, got "
                f"num_layers={self.num_layers} and bidirectional={self.bidirectional}"
            )
        xs = xs.astype(self.dtype or xs.dtype)
        # The cell has no parent, because it only reads parameters that the layers have created.
        cell = self._cell()
        params = {"params": self.variables["params"]["layer_0"]["forward"]}
        weights: Any = cell.apply(params, xs, method="weights")
        return F.rau_attention(weights, xs, mask, lengths=lengths, resets=resets, **cell._options())
