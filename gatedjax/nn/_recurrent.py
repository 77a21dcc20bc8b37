"""Stacked and bidirectional recurrent layers, which run the masked scans of `functional`."""

import functools
import numbers
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax._utils.types import Keywords, Tree
from gatedjax.functional._checks import check_positive, check_rate
from gatedjax.functional._devices import rows_like
from gatedjax.functional._rau_step import initial_state
from gatedjax.functional._recurrence import check_width, step_mask
from gatedjax.functional._types import Carry, Dtype
from gatedjax.nn._keys import example_keys, fold_keys
from gatedjax.nn._types import Initializer

# The initialisers are module constants and cached, because Flax traces the initialiser of each
# parameter whenever it traces a network: JAX traces the same function only once for each shape.
_glorot, _orthogonal = nn.initializers.glorot_uniform(), nn.initializers.orthogonal()


@functools.cache
def _per_gate(init: Initializer, gates: int) -> Initializer:
    """Returns an initialiser that applies `init` to the block of each gate separately.

    A kernel [K, gates H] has a block of H columns for each gate; `gates` is their number. Fans and
    orthogonality belong to a single gate.
    """

    @functools.partial(jax.jit, static_argnums=(1, 2), inline=True)
    def blocks(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        width = shape[-1] // gates
        keys = jax.random.split(key, gates)
        return jnp.concatenate([init(k, (*shape[:-1], width), dtype) for k in keys], axis=-1)

    return blocks


@functools.cache
def _uniform(scale: float) -> Initializer:
    def uniform(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -scale, scale)

    return uniform


@functools.cache
def _normal(std: float) -> Initializer:
    return nn.initializers.normal(std)


@functools.cache
def _bias(*values: float) -> Initializer:
    """Returns an initialiser of a bias, with a constant for the block of each gate.

    values are the constants, in the order of the blocks.
    """

    @functools.partial(jax.jit, static_argnums=(1, 2), inline=True)
    def bias(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        del key
        blocks = jnp.broadcast_to(
            jnp.array(values, dtype)[:, None], (len(values), shape[-1] // len(values))
        )
        return blocks.reshape(shape)

    return bias


def _both_directions(name: str, carries: Any) -> tuple[Any, Any]:
    """Returns the carries (forward, backward) of a layer; (None, None) if `carries` is None.

    Raises:
      ValueError: if carries are not a tuple or list of two, such as the carry of a single
        direction; the message contains `name`, the name of the argument.
    """
    if carries is None:
        return None, None
    # An LSTMState is also a tuple of two arrays, but it is the carry of one direction; named tuples
    # have `_fields`.
    is_pair = isinstance(carries, tuple | list) and not hasattr(carries, "_fields")
    if not is_pair or len(carries) != 2:
        raise ValueError(
            f"{name} must be (forward, backward), the carries of both directions, "
            f"got {type(carries).__name__} of {len(carries)}"
        )
    return carries[0], carries[1]


class _Recurrent(nn.Module):
    """The base class of `LSTM`, `GRU` and `RAU`, with layers, directions and dropout.

    A subclass defines the weights.

    Attributes:
      features: hidden width H per direction.
      num_layers: number of stacked layers.
      bidirectional: True runs both directions; outputs are [forward, backward] features.
      dropout: rate of dropout on the inputs of all layers but the first.
      recurrent_dropout: rate of dropout on the hidden state that enters the recurrent product, with
        the same mask for all time steps of an example.
      init_scale: draws all kernels from uniform(-init_scale, init_scale) instead of the scheme of
        the class, as is usual for language models; must be positive and finite.
      init_distribution: "normal" makes init_scale the standard deviation of a normal distribution
        with mean 0, as in Lasagne.
      dtype: dtype of the products; biases, carries and reductions stay float32. None follows the
        input.
      param_dtype: dtype of the parameters, and of their gradients.
    """

    features: int
    num_layers: int = 1
    bidirectional: bool = False
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    init_scale: float | None = None
    init_distribution: Literal["uniform", "normal"] = "uniform"
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def _weights(self, name: str, width: int) -> Tree:
        raise NotImplementedError

    def _unroll(self) -> Callable[..., Tree]:
        raise NotImplementedError

    def _unroll_gated(self) -> Callable[..., Tree]:
        raise ValueError(f"gates must be None for {type(self).__name__}: only LSTM has them")

    # Carries are float32 in all dtypes, because they add up small changes over many steps.
    def _zeros(self, rows: int) -> Tree:
        return jnp.zeros((rows, self.features))

    def _initializers(self) -> tuple[Initializer, Initializer]:
        """Returns (input, recurrent), the initialisers of both kernels of a single gate.

        Raises ValueError for an unknown distribution, and for a scale that is missing or not
        positive.
        """
        distributions: Keywords = {"uniform": _uniform, "normal": _normal}
        if self.init_distribution not in distributions:
            names = ", ".join(map(repr, distributions))
            raise ValueError(
                f"init_distribution must be one of {names}, got {self.init_distribution!r}"
            )
        if self.init_scale is None:
            if self.init_distribution != "uniform":
                raise ValueError(
                    "init_scale must be a positive number for init_distribution="
                    f"{self.init_distribution!r}, got None"
                )
            return _glorot, _orthogonal
        check_positive(init_scale=self.init_scale)
        draw = distributions[self.init_distribution](self.init_scale)
        return draw, draw

    @nn.nowrap
    def initial_carry(self, rows: int) -> Tree:
        """Returns the carries before the first step: zeros in float32, in the form of `initial`.

        Args:
          rows: B, rows of the batch.
        """
        ways = 2 if self.bidirectional else 1
        layers = [tuple(self._zeros(rows) for _ in range(ways)) for _ in range(self.num_layers)]
        return tuple(pair if self.bidirectional else pair[0] for pair in layers)

    def _direction(
        self,
        name: str,
        xs: Array,
        mask: Array | None,
        resets: Array | None,
        carries: tuple[Carry, ...],
        reverse: bool,
        keys: Array | None,
        gates: Array | None,
    ) -> tuple[Tree, Array]:
        initial, reset_to = carries
        options: Keywords = {"initial": initial, "reverse": reverse}
        if gates is None:
            options |= {"resets": resets, "reset_to": reset_to}
        else:
            options["gates"] = gates
        if keys is not None and self.recurrent_dropout > 0:
            # The keys are folded so that the two directions drop different units.
            its_keys = fold_keys(keys, 1 + int(reverse))
            ones = rows_like(jnp.ones((xs.shape[0], self.features), xs.dtype), xs)
            options["recurrent_dropout_mask"] = F.example_dropout(
                ones, self.recurrent_dropout, its_keys
            )
        kernel = f"{name}_input"
        # The check comes first, because the message of Flax would blame the parameter, not xs.
        if self.has_variable("params", kernel):
            check_width(self.get_variable("params", kernel).shape[0], f"params[{kernel!r}]", xs=xs)
        # The weights are not cast here, because the functions cast only the factors of products:
        # biases and gradients stay wide.
        unroll = self._unroll() if gates is None else self._unroll_gated()
        return unroll(self._weights(name, xs.shape[-1]), xs, mask=mask, **options)

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
        gates: Float[Array, "B T"] | None = None,
    ) -> tuple[Any, Float[Array, "B T F"]]:
        """Runs the stack.

        Args:
          xs: inputs, a vector per position.
          mask: True at real positions; None without lengths means that all are real.
          lengths: the number of real positions of each row, instead of mask.
          initial: the initial carries, in the form that this call returns (a tuple over layers,
            each a pair over directions if bidirectional); None means zeros.
          resets: True at the first step of each segment of a row, for all layers and directions:
            segments do not see each other (see `functional.lstm`).
          reset_to: the initial carries of the segments, in the form of `initial`; None means
            `initial`. Without resets they have no effect.
          deterministic: True turns dropout off; False needs a "dropout" stream.
          example_id: the examples to which the dropout bits belong; None means the row numbers.
          gates: in an LSTM, the share in [0, 1] by which each step moves the states of all layers
            (see `functional.skip_lstm`); None means 1.

        Returns:
          (carries, outputs): the final carries, and the states with F = H, or 2H if bidirectional.

        Raises:
          TypeError: if `features` or `num_layers` is not an integer.
          ValueError: if an option is out of range, carries have another number of layers, or gates
            are given together with resets or to a cell without them.
        """
        if gates is not None and resets is not None:
            raise ValueError("resets must be None for gates, got an array")
        for name in ("features", "num_layers"):
            if not isinstance(size := getattr(self, name), numbers.Integral):
                raise TypeError(f"{name} must be an integer, got {size!r}")
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        check_rate(self.dropout, "dropout")
        check_rate(self.recurrent_dropout, "recurrent_dropout")
        for argument, its in {"initial": initial, "reset_to": reset_to}.items():
            if its is not None and len(its) != self.num_layers:
                raise ValueError(
                    f"{argument} must have a carry per layer ({self.num_layers}), got {len(its)}"
                )
        mask = step_mask(xs.shape[:2], mask, lengths)
        xs = xs.astype(self.dtype or xs.dtype)
        noisy = not deterministic and (self.dropout > 0 or self.recurrent_dropout > 0)
        carries = []
        for layer in range(self.num_layers):
            # Each layer takes new keys, because equal dropout in all layers would be correlated.
            keys = example_keys(self, "dropout", example_id, xs.shape[0]) if noisy else None
            if keys is not None and layer > 0:
                xs = F.example_dropout(xs, self.dropout, keys)
            starts = [None if its is None else its[layer] for its in (initial, reset_to)]
            run = functools.partial(
                self._direction, xs=xs, mask=mask, resets=resets, keys=keys, gates=gates
            )
            if not self.bidirectional:
                carry, xs = run(f"layer_{layer}", carries=tuple(starts), reverse=False)
            else:
                names = f"initial[{layer}]", f"reset_to[{layer}]"
                forward_carries, backward_carries = zip(
                    *map(_both_directions, names, starts), strict=True
                )
                ahead, forward_states = run(
                    f"layer_{layer}_forward", carries=forward_carries, reverse=False
                )
                back, backward_states = run(
                    f"layer_{layer}_backward", carries=backward_carries, reverse=True
                )
                carry = (ahead, back)
                xs = jnp.concatenate([forward_states, backward_states], axis=-1)
            carries.append(carry)
        return tuple(carries), xs


class LSTM(_Recurrent):
    """Layers of LSTM cells: `functional.lstm` with parameters.

    Input kernels are Glorot-uniform and recurrent kernels orthogonal per gate; biases are 0, except
    that of the forget gate. `carries[l]` is the final `LSTMState` of layer l or, if bidirectional,
    a pair of them (forward, backward): `carries[0][0]` is then that of layer 0, forward.

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
      init_scale: bound of "uniform", deviation of "normal" kernels; None keeps the scheme above.
      init_distribution: "uniform" or "normal", the distribution of kernels for an init_scale.
      dtype, param_dtype: dtype of the products (None follows the input), and of the parameters.
      forget_bias: initial bias of the forget gate.
    """

    forget_bias: float = 1.0

    def _weights(self, name: str, width: int) -> F.LSTMWeights:
        h, d = self.features, self.param_dtype
        glorot, orthogonal = (_per_gate(init, 4) for init in self._initializers())
        return F.LSTMWeights(
            input=self.param(f"{name}_input", glorot, (width, 4 * h), d),
            recurrent=self.param(f"{name}_recurrent", orthogonal, (h, 4 * h), d),
            bias=self.param(f"{name}_bias", _bias(0, self.forget_bias, 0, 0), (4 * h,), d),
        )

    def _zeros(self, rows: int) -> F.LSTMState:
        return F.LSTMState(super()._zeros(rows), super()._zeros(rows))

    def _unroll(self) -> Callable[..., Tree]:
        return F.lstm

    def _unroll_gated(self) -> Callable[..., Tree]:
        return F.skip_lstm


class GRU(_Recurrent):
    """Layers of GRU cells: `functional.gru` with parameters.

    Input kernels are Glorot-uniform and recurrent kernels orthogonal per gate. `carries[l]` is the
    final state [B, H] of layer l or, if bidirectional, a pair of them (forward, backward).

        >>> gru = GRU(features=5, num_layers=2)
        >>> variables = gru.init(jax.random.key(0), jnp.ones((1, 4, 3)))
        >>> carries, outputs = gru.apply(variables, jnp.ones((1, 4, 3)), lengths=jnp.array([2]))
        >>> print(outputs.shape, len(carries), outputs[0, 3])
        (1, 4, 5) 2 [0. 0. 0. 0. 0.]

    Attributes:
      features, num_layers: hidden width H per direction, and number of stacked layers.
      bidirectional: True runs both directions; outputs are [forward, backward] features.
      dropout, recurrent_dropout: rates of dropout on the inputs of all layers but the first, and on
        the hidden state that enters the recurrent product.
      init_scale: bound of "uniform", deviation of "normal" kernels; None keeps the scheme above.
      init_distribution: "uniform" or "normal", the distribution of kernels for an init_scale.
      dtype, param_dtype: dtype of the products (None follows the input), and of the parameters.
      reset_after: True applies the reset gate after the recurrent product (cuDNN's form), which
        adds a recurrent bias to the candidate.
      recurrent_bias: False leaves that bias out, as Lasagne does.
      gradient_clip: bound of the gradients inside each step, see `functional.gru_step`; None does
        not clip.
      gate_bias: initial bias of the reset gate; its negative is the initial bias of the update
        gate. All other biases are 0. With 1, as in TensorFlow's cell, a new unit keeps more of its
        state.
    """

    reset_after: bool = False
    recurrent_bias: bool = True
    gradient_clip: float | None = None
    gate_bias: float = 0.0

    def _weights(self, name: str, width: int) -> F.GRUWeights:
        h, d = self.features, self.param_dtype
        glorot, orthogonal = (_per_gate(init, 3) for init in self._initializers())
        zeros = nn.initializers.zeros_init()
        return F.GRUWeights(
            input=self.param(f"{name}_input", glorot, (width, 3 * h), d),
            recurrent=self.param(f"{name}_recurrent", orthogonal, (h, 3 * h), d),
            bias=self.param(f"{name}_bias", _bias(self.gate_bias, -self.gate_bias, 0), (3 * h,), d),
            # Without reset_after the two biases of the candidate would only be added.
            recurrent_bias=self.param(f"{name}_recurrent_bias", zeros, (h,), d)
            if self.reset_after and self.recurrent_bias
            else None,
        )

    def _unroll(self) -> Callable[..., Tree]:
        return functools.partial(
            F.gru, reset_after=self.reset_after, gradient_clip=self.gradient_clip
        )


class RAU(_Recurrent):
    """Layers of recurrent attention units: `functional.rau` with parameters, in place of a `GRU`.

    Input kernels and the kernels of the attention are Glorot-uniform, recurrent kernels orthogonal
    per block; biases are 0. `carries[l]` is the final carry of layer l or, if bidirectional, a pair
    of them (forward, backward).

        >>> rau, xs = RAU(features=5, attention="concat"), jnp.ones((1, 4, 3))
        >>> (_, outputs), variables = jax.eval_shape(rau.init_with_output, jax.random.key(0), xs)
        >>> print(outputs.shape, variables["params"]["layer_0_score"].shape)
        (1, 4, 5) (8, 8)

    Attributes:
      features, num_layers: hidden width H per direction, and number of stacked layers.
      bidirectional: True runs both directions; outputs are [forward, backward] features.
      dropout, recurrent_dropout: rates of dropout on the inputs of all layers but the first, and on
        the hidden state that enters the recurrent product.
      init_scale: bound of "uniform", deviation of "normal" kernels; None keeps the scheme above.
      init_distribution: "uniform" or "normal", the distribution of kernels for an init_scale.
      dtype, param_dtype: dtype of the products (None follows the input), and of the parameters.
      attention: the form of the attention, see `functional.rau_step`.
      attn_hidden: width of a tanh layer before the attention logits; 0 omits the layer, except for
        "time_causal", which needs it and takes H. Must be 0 for "concat" and "matrix".
      rescale: True scales the attention weights to mean 1, which the paper does not do.
      reset_after: True applies the reset gate after the recurrent product.
      gate_bias: initial bias of the reset gate and, negated, of the update gate.
    """

    attention: F.RAUAttention = "feature_proj"
    attn_hidden: int = 0
    rescale: bool = False
    reset_after: bool = False
    gate_bias: float = 0.0

    def _kind(self) -> Tree:
        hidden = self.attn_hidden or self.attention == "time_causal"
        kinds = {"concat": F.RAUConcatWeights, "matrix": F.RAUMatrixWeights}
        return kinds.get(self.attention, F.RAUHiddenWeights if hidden else F.RAUWeights)

    def _weights(self, name: str, width: int) -> Tree:
        h, joined = self.features, width + self.features
        glorot, orthogonal = self._initializers()
        if self.attn_hidden < 0:
            raise ValueError(f"attn_hidden must be at least 0, got {self.attn_hidden}")
        if self.attn_hidden and self.attention in ("concat", "matrix"):
            raise ValueError(
                f"attn_hidden must be 0 for attention={self.attention!r}, got {self.attn_hidden}"
            )
        # The form of the attention decides the fields: feature forms without a hidden layer have
        # their attention as a block of the kernels, all other forms have separate kernels.
        timed = self.attention == "time_causal"
        inner = self.attn_hidden or (h if timed else 0)
        kind = self._kind()
        blocks = {F.RAUWeights: 5, F.RAUHiddenWeights: 4}.get(kind, 3)
        shapes: dict[str, tuple[int, ...]] = {}
        if inner:
            scores = 1 if timed else h
            shapes = {"hidden": (joined, inner), "hidden_bias": (inner,), "score": (inner, scores)}
            shapes |= {} if timed else {"score_bias": (scores,)}
        elif kind is not F.RAUWeights:
            shapes = {"score": (joined, joined), "score_bias": (joined,)}
            if kind is F.RAUConcatWeights:
                shapes |= {"value": (joined, h), "value_bias": (h,)}
            else:
                shapes |= {"affinity": (h, joined)}

        # Blocks r and z come first in all kinds of weights; the update gate gets the negative bias,
        # which keeps more of the old state.
        gates = _bias(self.gate_bias, -self.gate_bias, *[0] * (blocks - 2))

        def param(field: str, init: Initializer, shape: tuple[int, ...]) -> Array:
            # The shape distinguishes biases and kernels, because only biases have a single axis.
            if len(shape) == 1:
                init = gates if field == "bias" else nn.initializers.zeros_init()
            return self.param(f"{name}_{field}", init, shape, self.param_dtype)

        return kind(
            input=param("input", _per_gate(glorot, blocks), (width, blocks * h)),
            recurrent=param("recurrent", _per_gate(orthogonal, blocks), (h, blocks * h)),
            bias=param("bias", glorot, (blocks * h,)),
            **{field: param(field, glorot, shape) for field, shape in shapes.items()},
            recurrent_bias=param("recurrent_bias", glorot, (h,)) if self.reset_after else None,
        )

    def _zeros(self, rows: int) -> Tree:
        return initial_state(self.attention, rows, self.features, jnp.float32)

    def _unroll(self) -> Callable[..., Tree]:
        return functools.partial(
            F.rau, attention=self.attention, rescale=self.rescale, reset_after=self.reset_after
        )

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
          xs: inputs, a vector per position.
          mask: True at real positions.
          lengths: the number of real positions of each row, instead of mask.
          resets: True at the first step of each segment of a row.

        Returns:
          The weights, of the shapes of `functional.rau_attention`.

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
        kind = self._kind()
        fields: dict[str, Tree] = {
            f: self.get_variable("params", f"layer_0_{f}") for f in kind._fields
        }
        return F.rau_attention(
            kind(**fields),
            xs,
            mask,
            lengths=lengths,
            resets=resets,
            attention=self.attention,
            rescale=self.rescale,
            reset_after=self.reset_after,
        )
