"""Recurrent layers and cells for NNX."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.fields import check_fields, check_size
from gatedjax._utils.types import Tree
from gatedjax.functional._checks import check_shape
from gatedjax.functional._types import Carry
from gatedjax.nn._recurrent import (
    DIRECTIONS,
    Layer,
    check_recurrent_dropout,
    initial_of,
    run_layers,
    unroll_cell,
)
from gatedjax.nnx._base import Module, check_streams, example_inputs


class _Layers(Module):
    """The base class of `LSTM`, `GRU` and `RAU`, which are layers of recurrent cells."""

    def _streams_of(self, function: Any) -> list[str]:
        return ["dropout"] if function.dropout > 0 or function.recurrent_dropout > 0 else []


class LSTM(_Layers, of=gnn.LSTM, arguments="in_features features", methods="initial_carry"):
    """Layers of LSTM cells: `nn.LSTM` as an NNX module.

    With dropout `rngs` needs the stream "dropout".

        >>> lstm = LSTM(3, 5, bidirectional=True, rngs=nnx.Rngs(0))
        >>> carries, outputs = lstm(jnp.ones((2, 4, 3)), lengths=jnp.array([4, 2]))
        >>> outputs.shape, lstm.layer_0.backward.kernel.shape
        ((2, 4, 10), (3, 20))
    """


class GRU(_Layers, of=gnn.GRU, arguments="in_features features", methods="initial_carry"):
    """Layers of GRU cells: `nn.GRU` as an NNX module.

    With dropout `rngs` needs the stream "dropout".

        >>> gru = GRU(3, 5, reset_after=True, return_carry=False, rngs=nnx.Rngs(0))
        >>> gru(jnp.ones((2, 4, 3))).shape
        (2, 4, 5)
    """


class RAU(
    _Layers, of=gnn.RAU, arguments="in_features features", methods="initial_carry attention_weights"
):
    """Layers of recurrent attention units: `nn.RAU` as an NNX module.

    With dropout `rngs` needs the stream "dropout".

        >>> rau = RAU(3, 5, rngs=nnx.Rngs(0))
        >>> (state,), outputs = rau(jnp.ones((2, 4, 3)))
        >>> state.shape, rau.attention_weights(jnp.ones((2, 4, 3))).shape
        ((2, 5), (2, 4, 5))
    """


class _Cell(Module, nnx.RNNCellBase):
    """The base class of `LSTMCell`, `GRUCell` and `RAUCell`, which run in `flax.nnx.RNN`."""

    def _examples(self, **widths: Any) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
        row = example_inputs(widths["in_features"])[0]
        return (self._function.initialize_carry(None, row.shape), row), {}

    def initialize_carry(
        self, input_shape: tuple[int, ...], rngs: Any = None, carry_init: Any = None
    ) -> Any:
        """Returns the carry before the first step.

        It is zeros [..., H] for the hidden width H; that of an `LSTMCell` is an `LSTMState`, a pair
        (hidden state, cell state) of such arrays.

        Args:
          input_shape: the shape [..., D] of the inputs of a step, vectors of width D.
          rngs: not used, because the carry is zero.
          carry_init: must be None.

        Raises:
          ValueError: if `carry_init` is given.
        """
        del rngs
        if carry_init is not None:
            raise ValueError(
                f"carry_init must be None, got {carry_init!r}: the first carry is zero; pass "
                "another one as initial_carry"
            )
        return self._function.initialize_carry(None, input_shape)

    @property
    def num_feature_axes(self) -> int:
        """The number of axes of the features of an input, which is 1."""
        return 1


class LSTMCell(_Cell, of=gnn.LSTMCell, arguments="in_features features"):
    """A long short-term memory: `nn.LSTMCell` as an NNX module.

    >>> cell = LSTMCell(3, 5, rngs=nnx.Rngs(0))
    >>> nnx.RNN(cell)(jnp.ones((2, 4, 3))).shape
    (2, 4, 5)
    """


class GRUCell(_Cell, of=gnn.GRUCell, arguments="in_features features"):
    """A gated recurrent unit: `nn.GRUCell` as an NNX module.

    >>> cell = GRUCell(3, 5, rngs=nnx.Rngs(0))
    >>> carry, output = cell(cell.initialize_carry((2, 3)), jnp.ones((2, 3)))
    >>> output.shape
    (2, 5)
    """


class RAUCell(_Cell, of=gnn.RAUCell, arguments="in_features features"):
    """A recurrent attention unit: `nn.RAUCell` as an NNX module.

    >>> cell = RAUCell(3, 5, attention="concat", rngs=nnx.Rngs(0))
    >>> nnx.RNN(cell)(jnp.ones((2, 4, 3))).shape
    (2, 4, 5)
    """


class _Layer(nnx.Module):
    """The cells of a layer, in an attribute for each direction."""

    def __init__(self, cells: dict[str, Any]) -> None:
        for direction, cell in cells.items():
            setattr(self, direction, cell)


class Recurrent(nnx.Module):
    """Layers of any recurrent cell: `nn.Recurrent` for the cells of NNX.

    The cell computes a step, (carry, x [B, D]) -> (carry, output [B, H]) for B rows, as in
    `flax.nnx.RNN`. A cell of this library runs by `functional.lstm`, `gru` or `rau`, with the
    kernel on a GPU, and any other cell by `functional.masked_scan`. The random streams of a cell
    start anew at each call.

        >>> cell = functools.partial(nnx.OptimizedLSTMCell, hidden_features=5)
        >>> encoder = Recurrent(cell, 3, num_layers=2, bidirectional=True, rngs=nnx.Rngs(0))
        >>> carries, outputs = encoder(jnp.ones((2, 4, 3)), lengths=jnp.array([4, 2]))
        >>> print(outputs.shape, encoder.layer_1.backward.in_features, outputs[1, 3].max())
        (2, 4, 10) 10 0.0

    Args:
      cell: a function that creates a cell, cell(in_features, rngs=rngs), called for each layer and
        direction. The cell has `initialize_carry`, or the call needs `initial`. If its call takes
        the keyword `recurrent_dropout_mask`, [B, features] with 0 or 1 / keep, it can be used with
        recurrent dropout; it multiplies the hidden state with the mask where it enters products.
      in_features: D, the width of the inputs.
      num_layers, bidirectional, dropout, recurrent_dropout, time_major, return_carry,
        implementation: as in `nn.Recurrent`.
      rngs: the streams of the network, "params" and, with dropout, "dropout".

    Raises:
      ValueError: also for a cell without `initialize_carry` in several layers.
    """

    def __init__(
        self,
        cell: Callable[..., Any],
        in_features: int,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        time_major: bool = False,
        return_carry: bool = True,
        implementation: F.RecurrenceImplementation = "auto",
        rngs: nnx.Rngs,
    ) -> None:
        check_size(in_features=in_features)
        options = gnn.Recurrent(
            None,
            num_layers,
            bidirectional,
            dropout,
            recurrent_dropout,
            time_major,
            return_carry,
            implementation,
            parent=None,
        )
        check_fields(options)
        is_noisy = dropout > 0 or recurrent_dropout > 0
        streams = ("dropout",) if is_noisy else ()
        check_streams(rngs, streams)
        self._options, self._is_noisy, self.deterministic = options, is_noisy, False
        self.rngs = nnx.Rngs(**{name: rngs[name]() for name in streams})
        width = in_features
        for index in range(num_layers):
            cells = {name: cell(width, rngs=rngs) for name in DIRECTIONS[: 1 + bidirectional]}
            if recurrent_dropout > 0:
                check_recurrent_dropout(cells["forward"], recurrent_dropout)
            setattr(self, f"layer_{index}", _Layer(cells))
            if index + 1 < num_layers:
                width = _output_width(cells["forward"], width) * len(cells)

    def __call__(
        self,
        xs: Float[Array, "B T D"],
        mask: Bool[Array, "B T"] | None = None,
        *,
        lengths: Int[Array, " B"] | None = None,
        initial: Carry = None,
        resets: Bool[Array, "B T"] | None = None,
        reset_to: Carry = None,
        deterministic: bool | None = None,
        example_id: Int[Array, " B"] | None = None,
        time_major: bool | None = None,
        return_carry: bool | None = None,
    ) -> Any:
        """Runs the stack, see the call of `nn.Recurrent`, which has the same arguments.

        `deterministic` turns dropout off; None means the mode of the module.
        """
        deterministic = self.deterministic if deterministic is None else deterministic
        make_keys = None
        if self._is_noisy and not deterministic:

            def make_keys(rows: int) -> Array:
                ids = jnp.arange(rows) if example_id is None else example_id
                check_shape((rows,), example_id=ids)
                return F.example_keys(self.rngs.dropout(), ids)

        return run_layers(
            self._options,
            self._create_layer,
            make_keys,
            xs,
            mask,
            lengths=lengths,
            initial=initial,
            resets=resets,
            reset_to=reset_to,
            time_major=time_major,
            return_carry=return_carry,
        )

    def _create_layer(self, index: int, xs: Array) -> Layer:
        layer = getattr(self, f"layer_{index}")
        cells = [getattr(layer, name) for name in DIRECTIONS[: 1 + self._options.bidirectional]]
        if isinstance(cells[0], _Cell):
            linen: Any = cells[0]._function
            weights = [cell._apply(xs, method="weights") for cell in cells]
            return Layer(weights, linen._unit(weights[0]), None, linen.features, linen.dtype)
        unroll = functools.partial(unroll_cell, _call, functools.partial(_start, cells[0]))
        features = getattr(cells[0], "features", 0)
        return Layer([nnx.split(cell) for cell in cells], None, unroll, features)


def _call(parts: Any, carry: Carry, x: Array, **options: Any) -> Tree:
    # A new copy is called at each step, because the loop may not change the cell itself.
    return nnx.merge(*parts)(carry, x, **options)


def _start(cell: Any, shape: tuple[int, ...]) -> Carry:
    # Cells of Flax need streams for this, which are not used where the carry is zero.
    return initial_of(cell, shape, nnx.Rngs(0))


def _output_width(cell: Any, width: int) -> int:
    x = jnp.zeros((1, width))
    output = jax.eval_shape(lambda: _call(nnx.split(cell), _start(cell, x.shape), x)[1])
    return int(output.shape[-1])
