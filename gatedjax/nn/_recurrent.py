"""Stacked and bidirectional recurrent layers, which run the masked scans of `functional`."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax._utils.field_checks import check_fields
from gatedjax._utils.types import Keywords, Tree
from gatedjax.functional._checks import check_floating
from gatedjax.functional._devices import rows_like
from gatedjax.functional._directions import run_both, split_carries
from gatedjax.functional._recurrence import step_mask
from gatedjax.functional._recurrence import time_major as swap_time
from gatedjax.functional._types import Carry, Dtype
from gatedjax.nn._cells import Cell, GRUCell, LSTMCell, RAUCell
from gatedjax.nn._initializers import GLOROT, ORTHOGONAL, ZEROS
from gatedjax.nn._keys import example_keys, fold_keys, warn_unused
from gatedjax.nn._types import Initializer


class _Layer(nn.Module):
    """The scope of a layer, such as "layer_0", with a cell for each direction."""

    create_cell: Callable[..., Cell]
    directions: tuple[str, ...]

    @nn.compact
    def __call__(self, xs: Array, make_key: Callable[[], Array]) -> list[Tree]:
        return [
            self.create_cell(name=direction).weights(xs, make_key, "xs")
            for direction in self.directions
        ]


class _Recurrent(nn.Module):
    """The base class of `LSTM`, `GRU` and `RAU`; `_cell` of a subclass names its cell."""

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

    def _cell(self) -> tuple[type[Cell], Keywords]:
        raise NotImplementedError

    @nn.nowrap
    def _create_cell(self) -> Callable[..., Cell]:
        """Returns a function that creates a `Cell` from keywords such as `name`."""
        kind, options = self._cell()
        return functools.partial(
            kind,
            self.features,
            kernel_init=self.kernel_init,
            recurrent_kernel_init=self.recurrent_kernel_init,
            bias_init=self.bias_init,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            **options,
        )

    @nn.nowrap
    def initial_carry(self, rows: int) -> Tree:
        """Returns the carries before the first step: zeros in float32.

        They are a tuple with a carry for each layer or, if bidirectional, a pair of carries
        (forward, backward). A carry is an array [B, H], for H hidden units, or a tuple of arrays
        such as an `LSTMState`.

        Args:
          rows: B, the number of rows of the batch.
        """
        check_fields(self, attn_hidden=0)
        ways = 2 if self.bidirectional else 1
        # Carries are float32 in all dtypes, because they add up small changes over many steps.
        zeros = self._create_cell()(parent=None)._zeros(rows)
        layers = [(zeros,) * ways] * self.num_layers
        return tuple(pair if self.bidirectional else pair[0] for pair in layers)

    def _options(
        self,
        xs: Array,
        resets: Array | None,
        carries: tuple[Carry, ...],
        reverse: bool,
        keys: Array | None,
        gates: Array | None,
    ) -> Keywords:
        """Returns the keywords of `functional.lstm`, `gru` or `rau` for a direction of a layer."""
        initial, reset_to = carries
        options: Keywords = {"initial": initial}
        if gates is None:
            options |= {"implementation": self.implementation}
            options |= {"resets": resets, "reset_to": reset_to}
        else:
            options |= {"gates": gates}
        if keys is not None and self.recurrent_dropout > 0:
            # The keys are folded so that the two directions drop different units.
            its_keys = fold_keys(keys, 1 + int(reverse))
            ones = rows_like(jnp.ones((xs.shape[0], self.features), xs.dtype), xs)
            options["recurrent_dropout_mask"] = F.example_dropout(
                ones, self.recurrent_dropout, its_keys
            )
        return options

    def _unroll_gated(self) -> Callable[..., Tree]:
        raise ValueError(f"gates must be None for {type(self).__name__}: only LSTM has them")

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
            with a carry for each layer or, if bidirectional, a pair of carries); None means zeros.
            A carry is an array [B, H] or an `LSTMState`.
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
            are given together with resets or to a cell without them.
        """
        if gates is not None and resets is not None:
            raise ValueError("resets must be None for gates, got an array")
        check_fields(self, attn_hidden=0)
        check_floating(xs=xs)
        for argument, its in {"initial": initial, "reset_to": reset_to}.items():
            if its is not None and len(its) != self.num_layers:
                raise ValueError(
                    f"{argument} must have a carry per layer ({self.num_layers}), got {len(its)} "
                    f"in {type(its).__name__}: give a tuple, such as the carries of another call"
                )
        time_major = self.time_major if time_major is None else time_major
        if time_major:
            xs, mask, resets, gates = map(swap_time, (xs, mask, resets, gates))
        mask = step_mask(xs.shape[:2], mask, lengths)
        xs = xs.astype(self.dtype or xs.dtype)
        noisy = self.dropout > 0 or self.recurrent_dropout > 0
        if noisy and deterministic:
            warn_unused(self, "dropout")
        noisy = noisy and not deterministic
        carries = []
        directions = ("forward", "backward") if self.bidirectional else ("forward",)
        # All parameters take their keys from the stream of this module, because initial values then
        # are those that the figures in the documentation were measured with.
        make_key = functools.partial(self.make_rng, "params")
        for layer in range(self.num_layers):
            # Each layer takes new keys, because equal dropout in all layers would be correlated.
            keys = example_keys(self, "dropout", example_id, xs.shape[0]) if noisy else None
            if keys is not None and layer > 0:
                xs = F.example_dropout(xs, self.dropout, keys)
            starts = [None if its is None else its[layer] for its in (initial, reset_to)]
            scope = _Layer(self._create_cell(), directions, name=f"layer_{layer}")
            weights = scope(xs, make_key)
            # The weights are not cast here, because the functions cast only the factors of
            # products: biases and gradients stay wide.
            unroll = self._create_cell()(parent=None)._unroll()
            if gates is not None:
                unroll = self._unroll_gated()
            options = functools.partial(self._options, xs, resets, keys=keys, gates=gates)
            if not self.bidirectional:
                carry, xs = unroll(weights[0], xs, mask, **options(tuple(starts), reverse=False))
            else:
                names = f"initial[{layer}]", f"reset_to[{layer}]"
                both = zip(*map(split_carries, names, starts), strict=True)
                pairs = [options(*pair) for pair in zip(both, (False, True), strict=True)]
                results = run_both(unroll, weights, xs, mask, pairs)
                (ahead, forward_states), (back, backward_states) = results
                carry = (ahead, back)
                xs = jnp.concatenate([forward_states, backward_states], axis=-1)
            carries.append(carry)
        outputs = swap_time(xs) if time_major else xs
        has_carry = self.return_carry if return_carry is None else return_carry
        return (tuple(carries), outputs) if has_carry else outputs


class LSTM(_Recurrent):
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
      features, num_layers: hidden width H per direction, and number of stacked layers.
      bidirectional: True runs both directions; outputs are [forward, backward] features.
      dropout, recurrent_dropout: rates of dropout on the inputs of all layers but the first, and on
        the hidden state that enters the recurrent product.
      kernel_init, recurrent_kernel_init, bias_init: initialisers of input kernels, recurrent
        kernels and biases, applied to the block of each gate separately.
      time_major: True means that the axes of inputs, masks, resets and outputs begin [T, B], for T
        steps of B rows.
      return_carry: False returns the outputs without the carries.
      implementation: "scan", a loop of XLA; "persistent", one launch for all steps on an NVIDIA
        GPU; or "auto", the faster of both.
      dtype, param_dtype: dtype of the products (None follows the input), and of the parameters.
      forget_bias: number that is added to the initial bias of the forget gate.
    """

    forget_bias: float = 1.0

    def _cell(self) -> tuple[type[Cell], Keywords]:
        return LSTMCell, {"forget_bias": self.forget_bias}

    def _unroll_gated(self) -> Callable[..., Tree]:
        # The third argument of `skip_lstm` is its gates, where the recurrences have their mask.
        return lambda weights, xs, mask, **options: F.skip_lstm(weights, xs, mask=mask, **options)


class GRU(_Recurrent):
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

    reset_after: bool = False
    recurrent_bias: bool = True
    gradient_clip: float | None = None
    gate_bias: float = 0.0

    def _cell(self) -> tuple[type[Cell], Keywords]:
        return GRUCell, {
            "reset_after": self.reset_after,
            "recurrent_bias": self.recurrent_bias,
            "gradient_clip": self.gradient_clip,
            "gate_bias": self.gate_bias,
        }


class RAU(_Recurrent):
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

    attention: F.RAUAttention = "feature_proj"
    attn_hidden: int = 0
    rescale: bool = False
    reset_after: bool = False
    gate_bias: float = 0.0

    def _cell(self) -> tuple[type[Cell], Keywords]:
        return RAUCell, {
            "attention": self.attention,
            "attn_hidden": self.attn_hidden,
            "rescale": self.rescale,
            "reset_after": self.reset_after,
            "gate_bias": self.gate_bias,
        }

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
        cell = self._create_cell()(parent=None)
        params = {"params": self.variables["params"]["layer_0"]["forward"]}
        weights: Any = cell.apply(params, xs, method="weights")
        return F.rau_attention(
            weights,
            xs,
            mask,
            lengths=lengths,
            resets=resets,
            **cell._options(),
        )
