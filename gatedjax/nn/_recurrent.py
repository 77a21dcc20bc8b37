"""Stacked, bidirectional recurrent layers over the fast masked scans."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F

Initializer = Callable[..., Array]
Dtype = Any


def _per_gate(init: Initializer, gates: int) -> Initializer:
    """Initialises every gate's block on its own: fans and orthogonality belong to one gate."""

    def blocks(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        width = shape[-1] // gates
        keys = jax.random.split(key, gates)
        return jnp.concatenate([init(k, (*shape[:-1], width), dtype) for k in keys], axis=-1)

    return blocks


def _forget_bias(value: float) -> Initializer:
    def bias(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        del key
        blocks = jnp.zeros((4, shape[-1] // 4), dtype).at[1].set(value)
        return blocks.reshape(shape)

    return bias


class _Recurrent(nn.Module):
    """What LSTM and GRU share: layers, directions, dropout. Subclasses own the weights.

    Attributes:
      features: hidden width H per direction.
      num_layers: stacked layers.
      bidirectional: run both directions; outputs are [forward, backward] features.
      dropout: on the input of every layer but the first.
      recurrent_dropout: on the hidden state that enters the recurrent product, one mask per
        example for all time steps.
      dtype: dtype of the products; carries and reductions stay float32. None follows the input.
      param_dtype: dtype of the parameters.
    """

    features: int
    num_layers: int = 1
    bidirectional: bool = False
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def _weights(self, name: str, width: int) -> Any:
        raise NotImplementedError

    def _unroll(self) -> Callable[..., Any]:
        raise NotImplementedError

    def _direction(
        self,
        name: str,
        xs: Array,
        mask: Array | None,
        initial: Any,
        reverse: bool,
        keys: Array | None,
    ) -> tuple[Any, Array]:
        options: dict[str, Any] = {"initial": initial, "reverse": reverse}
        if keys is not None and self.recurrent_dropout > 0:
            # bernoulli's key is folded so that the two directions drop different units
            own = jax.vmap(lambda k: jax.random.fold_in(k, 1 + int(reverse)))(keys)
            ones = jnp.ones((xs.shape[0], self.features), xs.dtype)
            options["recurrent_dropout_mask"] = F.example_dropout(ones, self.recurrent_dropout, own)
        weights = jax.tree.map(lambda w: w.astype(xs.dtype), self._weights(name, xs.shape[-1]))
        return self._unroll()(weights, xs, mask, **options)

    @nn.compact
    def __call__(
        self,
        xs: Float[Array, "B T D"],
        mask: Bool[Array, "B T"] | None = None,
        *,
        initial: Any = None,
        deterministic: bool = True,
        example_id: Int[Array, "B"] | None = None,
    ) -> tuple[Any, Float[Array, "B T F"]]:
        """Runs the stack.

        Args:
          xs: inputs.
          mask: True at real positions.
          initial: carries as this call returns them (a tuple over layers, each a pair over
            directions if bidirectional); None is zeros.
          deterministic: True turns dropout off; otherwise a "dropout" stream is needed.
          example_id: keys the dropout bits to the example; None takes the row number.

        Returns:
          (carries, outputs) with F = H, or 2H if bidirectional.
        """
        if self.num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {self.num_layers}")
        if initial is not None and len(initial) != self.num_layers:
            raise ValueError(
                f"initial must hold one carry per layer ({self.num_layers}), got {len(initial)}"
            )
        xs = xs.astype(self.dtype or xs.dtype)
        noisy = not deterministic and (self.dropout > 0 or self.recurrent_dropout > 0)
        ids = jnp.arange(xs.shape[0]) if example_id is None else example_id
        carries = []
        for layer in range(self.num_layers):
            keys = F.example_keys(self.make_rng("dropout"), ids) if noisy else None
            if keys is not None and layer > 0:
                xs = F.example_dropout(xs, self.dropout, keys)
            start = None if initial is None else initial[layer]
            run = functools.partial(self._direction, xs=xs, mask=mask, keys=keys)
            if not self.bidirectional:
                carry, xs = run(f"layer_{layer}", initial=start, reverse=False)
            else:
                first, second = (None, None) if start is None else start
                ahead, left = run(f"layer_{layer}_forward", initial=first, reverse=False)
                back, right = run(f"layer_{layer}_backward", initial=second, reverse=True)
                carry, xs = (ahead, back), jnp.concatenate([left, right], axis=-1)
            carries.append(carry)
        return tuple(carries), xs


class LSTM(_Recurrent):
    """LSTM layers: `functional.lstm` with parameters. Returns (carries, outputs).

    Input kernels are Glorot-uniform and recurrent kernels orthogonal per gate; biases are 0, the
    forget gate's 1.
    """

    forget_bias: float = 1.0

    def _weights(self, name: str, width: int) -> F.LSTMWeights:
        h, d = self.features, self.param_dtype
        glorot = _per_gate(nn.initializers.glorot_uniform(), 4)
        orthogonal = _per_gate(nn.initializers.orthogonal(), 4)
        return F.LSTMWeights(
            input=self.param(f"{name}_input", glorot, (width, 4 * h), d),
            recurrent=self.param(f"{name}_recurrent", orthogonal, (h, 4 * h), d),
            bias=self.param(f"{name}_bias", _forget_bias(self.forget_bias), (4 * h,), d),
        )

    def _unroll(self) -> Callable[..., Any]:
        return F.lstm


class GRU(_Recurrent):
    """GRU layers: `functional.gru` with parameters. Returns (carries, outputs).

    Attributes:
      reset_after: apply the reset gate after the recurrent product (cuDNN's form), which adds a
        recurrent bias to the candidate.
    """

    reset_after: bool = False

    def _weights(self, name: str, width: int) -> F.GRUWeights:
        h, d = self.features, self.param_dtype
        glorot = _per_gate(nn.initializers.glorot_uniform(), 3)
        orthogonal = _per_gate(nn.initializers.orthogonal(), 3)
        zeros = nn.initializers.zeros_init()
        return F.GRUWeights(
            input=self.param(f"{name}_input", glorot, (width, 3 * h), d),
            recurrent=self.param(f"{name}_recurrent", orthogonal, (h, 3 * h), d),
            bias=self.param(f"{name}_bias", zeros, (3 * h,), d),
            recurrent_bias=self.param(f"{name}_recurrent_bias", zeros, (h,), d)
            if self.reset_after
            else None,
        )

    def _unroll(self) -> Callable[..., Any]:
        return functools.partial(F.gru, reset_after=self.reset_after)
