"""Recurrent cells in the form of Flax, with the parameters of the recurrent layers."""

import functools
from collections.abc import Callable, Collection
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax._utils.fields import check_fields
from gatedjax._utils.types import PARAMETERS, Tree
from gatedjax.functional._checks import check_floating, wide_dtype, width_error
from gatedjax.functional._directions import Unit
from gatedjax.functional._gru import gru_unit
from gatedjax.functional._lstm import LSTM_UNIT
from gatedjax.functional._rau import initial_state, kinds_of, num_blocks, rau_unit, shapes_of
from gatedjax.functional._types import Carry, Dtype
from gatedjax.nn._initializers import GLOROT, ORTHOGONAL, ZEROS, per_gate
from gatedjax.nn._types import Initializer

Layout = tuple[Any, tuple[float, ...], dict[str, tuple[int, ...]]]


class Cell(nn.RNNCellBase):
    """The base class of `LSTMCell`, `GRUCell` and `RAUCell`. A subclass defines `_layout` (the
    class of the weights, numbers added to the initial biases of the gates, and the shapes of
    weights beyond kernels and bias), the `_unit` of `functional` for weights, and `_step`.
    """

    features: int
    kernel_init: Initializer = GLOROT
    recurrent_kernel_init: Initializer = ORTHOGONAL
    bias_init: Initializer = ZEROS
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def _layout(self, width: int) -> Layout:
        raise NotImplementedError

    @nn.nowrap
    def _unit(self, weights: Tree) -> Unit:
        raise NotImplementedError

    def _step(self) -> Callable[..., Tree]:
        raise NotImplementedError

    @nn.nowrap
    def _zeros(self, rows: int, dtype: Dtype = jnp.float32) -> Tree:
        return jnp.zeros((rows, self.features), dtype)

    @nn.nowrap
    def initialize_carry(self, rng: Any, input_shape: tuple[int, ...]) -> Tree:
        """Returns the carry before the first step.

        Args:
          rng: not used, because the carry is zero; None is enough.
          input_shape: the shape [..., D] of the inputs of a step, vectors of width D.

        Returns:
          The carry, zeros [..., H] for the hidden width H, or a tuple of arrays such as an
          `LSTMState`. It is float32, or float64 for a float64 `dtype`.
        """
        del rng
        if not isinstance(input_shape, tuple | list):
            raise TypeError(f"input_shape must be a tuple of sizes, got {input_shape!r}")
        check_fields(self, attn_hidden=0)
        wide = wide_dtype(self.dtype or self.param_dtype)
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[0], (*input_shape[:-1], leaf.shape[-1])),
            self._zeros(1, wide),
        )

    @property
    def num_feature_axes(self) -> int:
        """The number of axes of the features of an input, which is 1."""
        return 1

    @nn.compact
    def weights(
        self,
        inputs: Float[Array, "*B D"],
        make_key: Callable[[], Array] | None = None,
        argument: str = "inputs",
    ) -> Any:
        """Returns the parameters as weights of `functional`, and creates them at initialisation.

        Args:
          inputs: inputs of the cell, vectors of width D; only their shape is used.
          make_key: returns a new PRNG key for each parameter at initialisation; None takes the
            stream "params" of the cell.
          argument: the name of the inputs in messages.

        Returns:
          The weights, a named tuple of arrays such as an `LSTMWeights`.

        Raises:
          TypeError: if `features` is not an integer.
          ValueError: if an option is out of range, the parameters are for another width, or there
            are parameters that the options do not use, such as the recurrent bias of a GRU with
            reset_after=False.
        """
        check_fields(self, attn_hidden=0)
        width = inputs.shape[-1]
        kind, biases, shapes = self._layout(width)
        columns = len(biases) * self.features
        shapes = {
            "input": (width, columns),
            "recurrent": (self.features, columns),
            "bias": (columns,),
        } | shapes
        self._check_params(shapes, inputs, argument)
        starts = {
            "input": per_gate(self.kernel_init, (0.0,) * len(biases)),
            "recurrent": per_gate(self.recurrent_kernel_init, (0.0,) * len(biases)),
            "bias": per_gate(self.bias_init, biases),
        }
        fields = {}
        for field, shape in shapes.items():
            name = PARAMETERS[field]
            # Of the other parameters only biases have a single axis.
            other = self.bias_init if len(shape) == 1 else self.kernel_init
            init = starts.get(field, other)
            is_new = self.is_mutable_collection("params") and not self.has_variable("params", name)
            # A layer draws the parameters of all its cells from a common sequence of keys.
            if make_key is not None and is_new:
                value = init(make_key(), shape, self.param_dtype)
                fields[field] = self.param(name, lambda _, value=value: value)
            else:
                fields[field] = self.param(name, init, shape, self.param_dtype)
        return kind(**fields)

    def _check_params(self, fields: Collection[str], inputs: Array, argument: str) -> None:
        """Raises ValueError if the parameters are for other inputs or for other options."""
        source = "params" + "".join(f"[{part!r}]" for part in self.path)
        # The check comes first, because the message of Flax would blame the parameter.
        if self.has_variable("params", "kernel"):
            kernel = nn.meta.unbox(self.get_variable("params", "kernel"))
            if kernel.shape[0] != inputs.shape[-1]:
                raise width_error(argument, inputs, kernel.shape[0], f"{source}['kernel']")
        # Flax ignores other parameters: weights of PyTorch's GRU, with two biases, would compute
        # another function with reset_after=False.
        unused = [
            name
            for field, name in PARAMETERS.items()
            if field not in fields and self.has_variable("params", name)
        ]
        if unused:
            hint = ""
            if unused == ["recurrent_bias"]:
                option = "recurrent_bias" if getattr(self, "reset_after", False) else "reset_after"
                hint = f": pass {option}=True"
            raise ValueError(
                f"{source} must have only the parameters that the options use, got also "
                f"{', '.join(unused)}{hint}"
            )

    def __call__(
        self,
        carry: Carry,
        inputs: Float[Array, "*B D"],
        recurrent_dropout_mask: Float[Array, "*B H"] | None = None,
    ) -> tuple[Any, Float[Array, "*B H"]]:
        """Computes a step.

        Args:
          carry: the carry after the step before, with arrays [..., H] such as h of a GRU, or an
            `LSTMState`; `initialize_carry` returns the first.
          inputs: a vector of width D for each row of the batch.
          recurrent_dropout_mask: multiplies the hidden state that enters the recurrent products, 0
            or 1 / keep; None means all ones.

        Returns:
          (carry, output): the next carry, in the form and the dtypes of the given carry, and the
          hidden state of width H in the dtype of the products.
        """
        check_floating(inputs=inputs)
        inputs = jnp.asarray(inputs)
        inputs = inputs.astype(self.dtype or inputs.dtype)
        lead = inputs.shape[:-1]

        def to_rows(x: Array) -> Array:
            # The functions have a single batch axis; cells of Flax may have any number.
            return x if x.ndim == 2 else x.reshape(-1, x.shape[-1])

        old = jax.tree.map(jnp.asarray, carry)
        dropout = jax.tree.map(to_rows, recurrent_dropout_mask)
        new, output = self._step()(
            self.weights(inputs),
            jax.tree.map(to_rows, old),
            to_rows(inputs),
            recurrent_dropout_mask=dropout,
        )
        # A scan needs a carry of constant dtypes.
        new = jax.tree.map(lambda n, o: n.astype(o.dtype).reshape(o.shape), new, old)
        return new, output if len(lead) == 1 else output.reshape(*lead, self.features)


class LSTMCell(Cell):
    """A long short-term memory as a cell of Flax: `functional.lstm_step` with parameters.

    A layer of `LSTM` has the same parameters: the subtree "layer_0", "forward" of its
    parameters runs this cell. The carry is an `LSTMState` with the hidden state `hidden` [B, H] and
    the cell state `cell` [B, H] of B rows.

        >>> cell, xs = LSTMCell(features=5), jnp.ones((1, 4, 3))
        >>> states, variables = nn.RNN(cell).init_with_output(jax.random.key(0), xs)
        >>> print(states.shape, sorted(variables["params"]["cell"]))
        (1, 4, 5) ['bias', 'kernel', 'recurrent_kernel']

    Attributes:
      features: hidden width H.
      kernel_init, recurrent_kernel_init, bias_init: initialisers of the input kernel, of the
        recurrent kernel and of the bias, applied to the block of each gate separately.
      dtype, param_dtype: dtype of the products (None follows the input), and of the parameters.
      forget_bias: number that is added to the initial bias of the forget gate.
    """

    forget_bias: float = 1.0

    def _layout(self, width: int) -> Layout:
        return F.LSTMWeights, (0.0, self.forget_bias, 0.0, 0.0), {}  # the gates i, f, g, o

    @nn.nowrap
    def _zeros(self, rows: int, dtype: Dtype = jnp.float32) -> Tree:
        return F.LSTMState(super()._zeros(rows, dtype), super()._zeros(rows, dtype))

    @nn.nowrap
    def _unit(self, weights: Tree) -> Unit:
        return LSTM_UNIT

    def _step(self) -> Callable[..., Tree]:
        return F.lstm_step


class GRUCell(Cell):
    """A gated recurrent unit as a cell of Flax: `functional.gru_step` with parameters.

    A layer of `GRU` has the same parameters: the subtree "layer_0", "forward" of its parameters
    runs this cell. The carry is the hidden state.

        >>> cell, xs = GRUCell(features=5, reset_after=True), jnp.ones((1, 4, 3))
        >>> states, _ = nn.RNN(cell).init_with_output(jax.random.key(0), xs)
        >>> states.shape
        (1, 4, 5)

    Attributes:
      features, kernel_init, recurrent_kernel_init, bias_init, dtype, param_dtype: as in `LSTMCell`.
      reset_after, recurrent_bias, gradient_clip, gate_bias: as in `GRU`.
    """

    reset_after: bool = False
    recurrent_bias: bool = True
    gradient_clip: float | None = None
    gate_bias: float = 0.0

    def _layout(self, width: int) -> Layout:
        # Without reset_after the two biases of the candidate would only be added.
        has_second = self.reset_after and self.recurrent_bias
        shapes: dict[str, tuple[int, ...]] = {"recurrent_bias": (self.features,)}
        shapes = shapes if has_second else {}
        return F.GRUWeights, (self.gate_bias, -self.gate_bias, 0.0), shapes  # r, z, candidate

    @nn.nowrap
    def _unit(self, weights: Tree) -> Unit:
        return gru_unit(weights, **self._options())

    def _step(self) -> Callable[..., Tree]:
        return functools.partial(F.gru_step, **self._options())

    @nn.nowrap
    def _options(self) -> dict[str, Tree]:
        return {"reset_after": self.reset_after, "gradient_clip": self.gradient_clip}


class RAUCell(Cell):
    """A recurrent attention unit as a cell of Flax: `functional.rau_step` with parameters.

    A layer of `RAU` has the same parameters: the subtree "layer_0", "forward" of its parameters
    runs this cell. The carry is the hidden state [B, H] of B rows; that of "time_causal" is an
    `RAUTimeState`, which also has the log of the sum of exp of the logits so far and the number of
    steps so far, both [B, 1].

        >>> cell, x = RAUCell(features=5), jnp.ones((2, 3))
        >>> carry = cell.initialize_carry(None, x.shape)
        >>> (carry, output), _ = cell.init_with_output(jax.random.key(0), carry, x)
        >>> output.shape
        (2, 5)

    Attributes:
      features, recurrent_kernel_init, bias_init, dtype, param_dtype: as in `LSTMCell`.
      kernel_init: initialiser of the input kernel and of the kernels of the attention.
      attention, attn_hidden, rescale, reset_after, gate_bias: as in `RAU`.
    """

    attention: F.RAUAttention = "feature_proj"
    attn_hidden: int = 0
    rescale: bool = False
    reset_after: bool = False
    gate_bias: float = 0.0

    def _layout(self, width: int) -> Layout:
        h = self.features
        kinds = kinds_of(self.attention)
        kind: Any = kinds[-1] if self.attn_hidden else kinds[0]
        if self.attn_hidden and kind is not F.RAUHiddenWeights:
            raise ValueError(
                f"attn_hidden must be 0 for attention={self.attention!r}, got {self.attn_hidden}"
            )
        # "time_causal" compares steps and not features, so that a step has a single logit, in which
        # a bias would cancel.
        shapes = shapes_of(kind, self.attention, width, h, self.attn_hidden or h)
        if self.attention == "time_causal":
            del shapes["score_bias"]
        shapes |= {"recurrent_bias": (h,)} if self.reset_after else {}
        # Blocks r and z come first in all kinds of weights; the update gate gets the negative bias,
        # which keeps more of the old state.
        rest = [0.0] * (num_blocks(kind) - 2)
        return kind, (self.gate_bias, -self.gate_bias, *rest), shapes

    @nn.nowrap
    def _zeros(self, rows: int, dtype: Dtype = jnp.float32) -> Tree:
        return initial_state(self.attention, super()._zeros(rows, dtype))

    @nn.nowrap
    def _options(self) -> dict[str, Tree]:
        return {
            "attention": self.attention,
            "rescale": self.rescale,
            "reset_after": self.reset_after,
        }

    @nn.nowrap
    def _unit(self, weights: Tree) -> Unit:
        return rau_unit(weights, **self._options())

    def _step(self) -> Callable[..., Tree]:
        return functools.partial(F.rau_step, **self._options())
