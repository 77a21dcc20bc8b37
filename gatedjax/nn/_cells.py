"""Recurrent cells in the form of Flax, with the parameters of the recurrent layers."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax._utils.field_checks import check_fields
from gatedjax._utils.types import Tree
from gatedjax._utils.weight_names import PARAMETERS
from gatedjax.functional._checks import check_floating, wide_dtype
from gatedjax.functional._rau_step import initial_state
from gatedjax.functional._recurrence import check_width
from gatedjax.functional._types import Carry, Dtype
from gatedjax.nn._initializers import GLOROT, ORTHOGONAL, ZEROS, per_gate
from gatedjax.nn._types import Initializer


class Cell(nn.RNNCellBase):
    """The base class of `LSTMCell`, `GRUCell` and `RAUCell`. A subclass defines `_kind` (the class
    of the weights), `_gate_biases` (added to the initial biases, a number for each gate), `_shapes`
    (of weights beyond kernels and bias), and the functions `_unroll` and `_step`.
    """

    features: int
    kernel_init: Initializer = GLOROT
    recurrent_kernel_init: Initializer = ORTHOGONAL
    bias_init: Initializer = ZEROS
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def _kind(self) -> Callable[..., Tree]:
        raise NotImplementedError

    def _gate_biases(self) -> tuple[float, ...]:
        raise NotImplementedError

    def _shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        raise NotImplementedError

    @nn.nowrap
    def _unroll(self) -> Callable[..., Tree]:
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
        # The check comes first, because the message of Flax would blame the parameter.
        if self.has_variable("params", "kernel"):
            kernel = nn.meta.unbox(self.get_variable("params", "kernel"))
            source = "params" + "".join(f"[{part!r}]" for part in (*self.path, "kernel"))
            check_width(kernel.shape[0], source, **{argument: inputs})
        width = inputs.shape[-1]
        shapes = self._shapes(width)
        self._check_all_used({"input", "recurrent", "bias", *shapes})
        biases, hidden = self._gate_biases(), self.features
        blocks, columns = (0.0,) * len(biases), len(biases) * hidden

        def param(field: str, init: Initializer, shape: tuple[int, ...]) -> Array:
            name = PARAMETERS[field]
            is_new = self.is_mutable_collection("params") and not self.has_variable("params", name)
            # A layer draws the parameters of all its cells from a common sequence of keys.
            if make_key is not None and is_new:
                key = make_key()
                return self.param(name, lambda _: init(key, shape, self.param_dtype))
            return self.param(name, init, shape, self.param_dtype)

        fields = {
            "input": param("input", per_gate(self.kernel_init, blocks), (width, columns)),
            "recurrent": param(
                "recurrent", per_gate(self.recurrent_kernel_init, blocks), (hidden, columns)
            ),
            "bias": param("bias", per_gate(self.bias_init, biases), (columns,)),
        }
        for field, shape in shapes.items():
            # Only biases have a single axis.
            init = self.bias_init if len(shape) == 1 else self.kernel_init
            fields[field] = param(field, init, shape)
        return self._kind()(**fields)

    def _check_all_used(self, fields: set[str]) -> None:
        """Raises ValueError if there are parameters that are not in `fields`."""
        # Flax ignores other parameters: weights of PyTorch's GRU, with two biases, would compute
        # another function with reset_after=False.
        unused = [
            name
            for field, name in PARAMETERS.items()
            if field not in fields and self.has_variable("params", name)
        ]
        if unused:
            source = "params" + "".join(f"[{part!r}]" for part in self.path)
            hint = ""
            if unused == ["recurrent_bias"]:
                option = "recurrent_bias" if getattr(self, "reset_after", False) else "reset_after"
                hint = f": pass {option}=True"
            raise ValueError(
                f"{source} must have only the parameters that the options use, got also "
                f"{', '.join(unused)}{hint}"
            )

    def __call__(
        self, carry: Carry, inputs: Float[Array, "*B D"]
    ) -> tuple[Any, Float[Array, "*B H"]]:
        """Computes a step.

        Args:
          carry: the carry after the step before, with arrays [..., H] such as h of a GRU, or an
            `LSTMState`; `initialize_carry` returns the first.
          inputs: a vector of width D for each row of the batch.

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
        new, output = self._step()(
            self.weights(inputs), jax.tree.map(to_rows, old), to_rows(inputs)
        )
        # A scan needs a carry of constant dtypes.
        new = jax.tree.map(lambda n, o: n.astype(o.dtype).reshape(o.shape), new, old)
        return new, output if len(lead) == 1 else output.reshape(*lead, self.features)


class LSTMCell(Cell):
    """A long short-term memory as a cell of Flax: `functional.lstm_step` with parameters.

    The parameters are those of a layer of `LSTM`: the subtree "layer_0", "forward" of its
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

    def _kind(self) -> Callable[..., Tree]:
        return F.LSTMWeights

    def _gate_biases(self) -> tuple[float, ...]:
        return 0.0, self.forget_bias, 0.0, 0.0  # the gates i, f, g, o

    def _shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        return {}

    @nn.nowrap
    def _zeros(self, rows: int, dtype: Dtype = jnp.float32) -> Tree:
        return F.LSTMState(super()._zeros(rows, dtype), super()._zeros(rows, dtype))

    @nn.nowrap
    def _unroll(self) -> Callable[..., Tree]:
        return F.lstm

    def _step(self) -> Callable[..., Tree]:
        return F.lstm_step


class GRUCell(Cell):
    """A gated recurrent unit as a cell of Flax: `functional.gru_step` with parameters.

    The parameters are those of a layer of `GRU`: the subtree "layer_0", "forward" of its parameters
    runs this cell. The carry is the hidden state.

        >>> cell, xs = GRUCell(features=5, reset_after=True), jnp.ones((1, 4, 3))
        >>> states, _ = nn.RNN(cell).init_with_output(jax.random.key(0), xs)
        >>> states.shape
        (1, 4, 5)

    Attributes:
      features: hidden width H.
      kernel_init, recurrent_kernel_init, bias_init: initialisers of the input kernel, of the
        recurrent kernel and of the bias, applied to the block of each gate separately.
      dtype, param_dtype: dtype of the products (None follows the input), and of the parameters.
      reset_after: True applies the reset gate after the recurrent product, which adds a recurrent
        bias to the candidate.
      recurrent_bias: False leaves that bias out.
      gradient_clip: bound of the gradients inside a step, see `functional.gru_step`; None does not
        clip.
      gate_bias: number that is added to the initial bias of the reset gate and subtracted from that
        of the update gate.
    """

    reset_after: bool = False
    recurrent_bias: bool = True
    gradient_clip: float | None = None
    gate_bias: float = 0.0

    def _kind(self) -> Callable[..., Tree]:
        return F.GRUWeights

    def _gate_biases(self) -> tuple[float, ...]:
        return self.gate_bias, -self.gate_bias, 0.0  # r, z and the candidate

    def _shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        # Without reset_after the two biases of the candidate would only be added.
        has_second = self.reset_after and self.recurrent_bias
        return {"recurrent_bias": (self.features,)} if has_second else {}

    @nn.nowrap
    def _unroll(self) -> Callable[..., Tree]:
        return functools.partial(F.gru, **self._options())

    def _step(self) -> Callable[..., Tree]:
        return functools.partial(F.gru_step, **self._options())

    @nn.nowrap
    def _options(self) -> dict[str, Tree]:
        return {"reset_after": self.reset_after, "gradient_clip": self.gradient_clip}


class RAUCell(Cell):
    """A recurrent attention unit as a cell of Flax: `functional.rau_step` with parameters.

    The parameters are those of a layer of `RAU`: the subtree "layer_0", "forward" of its parameters
    runs this cell. The carry is the hidden state [B, H] of B rows; that of "time_causal" is an
    `RAUTimeState`, which also has the log of the sum of exp of the logits so far and the number of
    steps so far, both [B, 1].

        >>> cell, x = RAUCell(features=5), jnp.ones((2, 3))
        >>> carry = cell.initialize_carry(None, x.shape)
        >>> (carry, output), _ = cell.init_with_output(jax.random.key(0), carry, x)
        >>> output.shape
        (2, 5)

    Attributes:
      features: hidden width H.
      kernel_init, recurrent_kernel_init, bias_init: initialisers of the input kernel and of the
        kernels of the attention, of the recurrent kernel, and of the biases; those of the gates are
        applied to the block of each gate separately.
      dtype, param_dtype: dtype of the products (None follows the input), and of the parameters.
      attention: the form of the attention: "feature_proj", "sigmoid", "concat", "matrix",
        "time_causal" or "additive_relu" (see `functional.rau_step`).
      attn_hidden: width of a tanh layer before the attention logits; 0 omits the layer, except for
        "time_causal", which needs it and takes H. Must be 0 for "concat" and "matrix".
      rescale: True scales the attention weights to mean 1.
      reset_after: True applies the reset gate after the recurrent product.
      gate_bias: number that is added to the initial bias of the reset gate and subtracted from that
        of the update gate.
    """

    attention: F.RAUAttention = "feature_proj"
    attn_hidden: int = 0
    rescale: bool = False
    reset_after: bool = False
    gate_bias: float = 0.0

    def _kind(self) -> Any:
        hidden = self.attn_hidden or self.attention == "time_causal"
        kinds = {"concat": F.RAUConcatWeights, "matrix": F.RAUMatrixWeights}
        return kinds.get(self.attention, F.RAUHiddenWeights if hidden else F.RAUWeights)

    def _gate_biases(self) -> tuple[float, ...]:
        # The form of the attention decides the fields: feature forms without a hidden layer have
        # their attention as a block of the kernels, all other forms have separate kernels.
        blocks = {F.RAUWeights: 5, F.RAUHiddenWeights: 4}.get(self._kind(), 3)
        # Blocks r and z come first in all kinds of weights; the update gate gets the negative bias,
        # which keeps more of the old state.
        return (self.gate_bias, -self.gate_bias, *[0.0] * (blocks - 2))

    def _shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Returns {field: shape} of the attention's weights and of the recurrent bias."""
        h, joined = self.features, width + self.features
        if self.attn_hidden and self.attention in ("concat", "matrix"):
            raise ValueError(
                f"attn_hidden must be 0 for attention={self.attention!r}, got {self.attn_hidden}"
            )
        kind, is_timed = self._kind(), self.attention == "time_causal"
        inner = self.attn_hidden or (h if is_timed else 0)
        shapes: dict[str, tuple[int, ...]] = {}
        # "time_causal" compares steps and not features, so that a step has a single logit.
        if inner:
            scores = 1 if is_timed else h
            shapes = {"hidden": (joined, inner), "hidden_bias": (inner,), "score": (inner, scores)}
            shapes |= {} if is_timed else {"score_bias": (scores,)}
        elif kind is not F.RAUWeights:
            shapes = {"score": (joined, joined), "score_bias": (joined,)}
            if kind is F.RAUConcatWeights:
                shapes |= {"value": (joined, h), "value_bias": (h,)}
            else:
                shapes |= {"affinity": (h, joined)}
        return shapes | ({"recurrent_bias": (h,)} if self.reset_after else {})

    @nn.nowrap
    def _zeros(self, rows: int, dtype: Dtype = jnp.float32) -> Tree:
        return initial_state(self.attention, rows, self.features, dtype)

    @nn.nowrap
    def _options(self) -> dict[str, Tree]:
        return {
            "attention": self.attention,
            "rescale": self.rescale,
            "reset_after": self.reset_after,
        }

    @nn.nowrap
    def _unroll(self) -> Callable[..., Tree]:
        return functools.partial(F.rau, **self._options())

    def _step(self) -> Callable[..., Tree]:
        return functools.partial(F.rau_step, **self._options())
