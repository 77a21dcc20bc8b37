"""Recurrent layers and cells for NNX."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from gatedjax import nn as gnn
from gatedjax._utils.field_checks import check_fields
from gatedjax.functional._types import Carry
from gatedjax.nnx._base import Module, example_inputs


class _Recurrent(Module):
    """The base class of `LSTM`, `GRU` and `RAU`, which are layers of recurrent cells."""

    def __init__(self, function: Any, in_features: int, rngs: nnx.Rngs) -> None:
        check_fields(function, attn_hidden=0)
        is_noisy = function.dropout > 0 or function.recurrent_dropout > 0
        inputs = (example_inputs(in_features=in_features),)
        super().__init__(function, inputs, rngs=rngs, streams=("dropout",) if is_noisy else ())

    def initial_carry(self, rows: int) -> Any:
        """Returns the carries before the first step for `rows` rows of a batch, zeros in float32.

        They are a tuple with a carry for each layer or, if bidirectional, a pair of carries
        (forward, backward). For B = rows and H hidden units, a carry is an array [B, H]; that of an
        LSTM is an `LSTMState`, a pair (hidden state, cell state) of such arrays.
        """
        return self._function.initial_carry(rows)

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
        """Runs the stack, see the call of the module of `gatedjax.nn` with the same name.

        Args:
          xs: inputs, a vector of width D for each of T positions of B rows.
          mask: True at real positions; None without lengths means that all are real.
          lengths: the number of real positions of each row of the batch, instead of mask.
          initial: the carries before the first step, in the form that this call returns; None means
            zeros.
          resets: True at the first step of each segment of a row, where the carries are replaced by
            `reset_to`; None means one segment.
          reset_to: the carries at the start of a segment, in the form of `initial`; None means
            `initial`.
          deterministic: True turns dropout off; None means the mode of the module.
          example_id: a number for each row that identifies its example, to which the dropout bits
            belong; None means the row numbers.
          time_major: True for xs, mask, resets and outputs with the axes [T, B]; None means the
            option of the module.
          return_carry: False returns only the outputs; None means the option of the module.

        Returns:
          (carries, outputs): the final carries, a tuple with a carry for each layer or, if
          bidirectional, a pair of carries (forward, backward); and the outputs: the states
          [B, T, H], of width H, of the last layer, or [B, T, 2H] if bidirectional, 0 at padding.
          With return_carry=False only the outputs.
        """
        return self._apply_noisy(
            xs,
            mask,
            lengths=lengths,
            initial=initial,
            resets=resets,
            reset_to=reset_to,
            deterministic=deterministic,
            example_id=example_id,
            time_major=time_major,
            return_carry=return_carry,
        )


class LSTM(_Recurrent):
    """Layers of LSTM cells: `nn.LSTM` as an NNX module.

        >>> lstm = LSTM(3, 5, bidirectional=True, rngs=nnx.Rngs(0))
        >>> carries, outputs = lstm(jnp.ones((2, 4, 3)), lengths=jnp.array([4, 2]))
        >>> outputs.shape, lstm.layer_0.backward.kernel.shape
        ((2, 4, 10), (3, 20))

    Args:
      in_features: D, the width of the inputs.
      features: H, the hidden width per direction.
      rngs: the streams of the network, "params" and, with dropout, "dropout".
      **options: the further options of `nn.LSTM`, such as `num_layers` or `dropout`.
    """

    def __init__(self, in_features: int, features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        super().__init__(gnn.LSTM(features, **options, parent=None), in_features, rngs)


class GRU(_Recurrent):
    """Layers of GRU cells: `nn.GRU` as an NNX module.

        >>> gru = GRU(3, 5, reset_after=True, return_carry=False, rngs=nnx.Rngs(0))
        >>> gru(jnp.ones((2, 4, 3))).shape
        (2, 4, 5)

    Args:
      in_features: D, the width of the inputs.
      features: H, the hidden width per direction.
      rngs: the streams of the network, "params" and, with dropout, "dropout".
      **options: the further options of `nn.GRU`, such as `num_layers` or `dropout`.
    """

    def __init__(self, in_features: int, features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        super().__init__(gnn.GRU(features, **options, parent=None), in_features, rngs)


class RAU(_Recurrent):
    """Layers of recurrent attention units: `nn.RAU` as an NNX module.

        >>> rau = RAU(3, 5, rngs=nnx.Rngs(0))
        >>> (state,), outputs = rau(jnp.ones((2, 4, 3)))
        >>> state.shape, rau.attention_weights(jnp.ones((2, 4, 3))).shape
        ((2, 5), (2, 4, 5))

    Args:
      in_features: D, the width of the inputs.
      features: H, the hidden width per direction.
      rngs: the streams of the network, "params" and, with dropout, "dropout".
      **options: the further options of `nn.RAU`, such as `num_layers`, or `attention`, the form of
        the attention: "feature_proj" (the default), "sigmoid", "concat", "matrix", "time_causal" or
        "additive_relu".
    """

    def __init__(self, in_features: int, features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        super().__init__(gnn.RAU(features, **options, parent=None), in_features, rngs)

    def attention_weights(
        self,
        xs: Float[Array, "B T D"],
        mask: Bool[Array, "B T"] | None = None,
        *,
        lengths: Int[Array, " B"] | None = None,
        resets: Bool[Array, "B T"] | None = None,
    ) -> Float[Array, "B T ..."]:
        """Computes the attention weights of all steps, without dropout.

        The module must have a single layer and a single direction.

        Args:
          xs: inputs, a vector of width D for each of T positions of B rows.
          mask: True at real positions; None without lengths means that all are real.
          lengths: the number of real positions of each row, instead of mask.
          resets: True at the first step of each segment of a row, where the state is set to zero;
            None means one segment.

        Returns:
          The attention weights, 0 at padding: [B, T, H], a weight for each of H features; with the
          attention "concat" [B, T, D + H], "matrix" [B, T, H, D + H], and "time_causal" [B, T, 1].
        """
        options = {"lengths": lengths, "resets": resets, "method": "attention_weights"}
        return self._apply(xs, mask, **options)


class _Cell(Module, nnx.RNNCellBase):
    """The base class of `LSTMCell`, `GRUCell` and `RAUCell`, which run in `flax.nnx.RNN`."""

    def __init__(self, function: Any, in_features: int, rngs: nnx.Rngs) -> None:
        row = jnp.squeeze(example_inputs(in_features=in_features), axis=0)
        # Only the widths matter for the parameters, so that a single row is enough.
        inputs = (function.initialize_carry(None, row.shape), row)
        super().__init__(function, inputs, rngs=rngs)

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

    def __call__(
        self, carry: Carry, inputs: Float[Array, "*B D"]
    ) -> tuple[Any, Float[Array, "*B H"]]:
        """Computes a step.

        Args:
          carry: the carry after the step before, with arrays [*B, H] for the hidden width H.
          inputs: a vector of width D for each row of the batch.

        Returns:
          (carry, output): the next carry, in the form of the given carry, and the hidden state of
          width H.
        """
        return self._apply(carry, inputs)


class LSTMCell(_Cell):
    """A long short-term memory: `nn.LSTMCell` as an NNX module.

        >>> cell = LSTMCell(3, 5, rngs=nnx.Rngs(0))
        >>> nnx.RNN(cell)(jnp.ones((2, 4, 3))).shape
        (2, 4, 5)

    Args:
      in_features: D, the width of the inputs.
      features: H, the hidden width.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.LSTMCell`, such as `forget_bias`.
    """

    def __init__(self, in_features: int, features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        super().__init__(gnn.LSTMCell(features, **options, parent=None), in_features, rngs)


class GRUCell(_Cell):
    """A gated recurrent unit: `nn.GRUCell` as an NNX module.

        >>> cell = GRUCell(3, 5, rngs=nnx.Rngs(0))
        >>> carry, output = cell(cell.initialize_carry((2, 3)), jnp.ones((2, 3)))
        >>> output.shape
        (2, 5)

    Args:
      in_features: D, the width of the inputs.
      features: H, the hidden width.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.GRUCell`, such as `reset_after`: True applies the reset
        gate after the recurrent product.
    """

    def __init__(self, in_features: int, features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        super().__init__(gnn.GRUCell(features, **options, parent=None), in_features, rngs)


class RAUCell(_Cell):
    """A recurrent attention unit: `nn.RAUCell` as an NNX module.

        >>> cell = RAUCell(3, 5, attention="concat", rngs=nnx.Rngs(0))
        >>> nnx.RNN(cell)(jnp.ones((2, 4, 3))).shape
        (2, 4, 5)

    Args:
      in_features: D, the width of the inputs.
      features: H, the hidden width.
      rngs: the streams of the network; "params" draws the parameters.
      **options: the further options of `nn.RAUCell`, such as `attention`, the form of the
        attention: "feature_proj" (the default), "sigmoid", "concat", "matrix", "time_causal" or
        "additive_relu".
    """

    def __init__(self, in_features: int, features: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        super().__init__(gnn.RAUCell(features, **options, parent=None), in_features, rngs)
