"""An LSTM that skips the steps of closed gates, with a derivative with respect to the gates."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._attention import step_mask
from gatedjax.functional._checks import check_numbers, check_that, check_values, wide_dtype
from gatedjax.functional._lstm import LSTMState, LSTMWeights, lstm_step
from gatedjax.functional._masked_scan import masked_scan


def skip_lstm(
    weights: LSTMWeights,
    xs: Float[Array, "B T D"],
    gates: Float[Array, "B T"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    initial: LSTMState | None = None,
    reverse: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
) -> tuple[LSTMState, Float[Array, "B T H"]]:
    """Runs an LSTM whose state moves at each step only by the share of a gate.

        (h', c')   = lstm_step(x_t, h_{t-1}, c_{t-1})
        (h_t, c_t) = g_t (h', c') + (1 - g_t) (h_{t-1}, c_{t-1})
        y_t        = h'

    A gate of 0 skips the step and a gate of 1 is a step of `lstm`. For gates of 0 and 1 the states
    and the outputs at open gates are therefore those of `lstm` on the open steps alone. The output
    at a closed gate is the state that the step would have given. The loss has a derivative with
    respect to all gates, also the closed ones, as straight-through estimators need it.

        >>> weights = LSTMWeights(jnp.ones((1, 8)), jnp.ones((2, 8)), jnp.zeros(8))
        >>> xs, gates = jnp.array([[[1.0], [9.0], [2.0]]]), jnp.array([[1.0, 0.0, 1.0]])
        >>> from gatedjax.functional import lstm
        >>> final, _ = skip_lstm(weights, xs, gates)
        >>> short, _ = lstm(weights, xs[:, ::2])
        >>> print(jnp.allclose(final.cell, short.cell))
        True

    Args:
      weights: the parameters of `lstm_step`.
      xs: inputs x, a vector of width D at each of T steps of B rows; the products are formed in
        their dtype.
      gates: g, the share of each step, in [0, 1].
      mask, lengths, initial, reverse, recurrent_dropout_mask: as in `lstm`.

    Returns:
      The final `LSTMState`, with arrays [B, H] of H hidden units, and the outputs y [B, T, H], 0 at
      padding, in the dtype of xs.

    Reference: Campos et al. 2018, "Skip RNN", eq. 6, with gates that are given.
    Deviations: the output of a skipped step is the new state and not the old one.
    """
    xs = jnp.asarray(xs)
    check_numbers(gates=gates)
    check_that(jnp.shape(gates) == xs.shape[:2], f"gates must have shape {xs.shape[:2]}", gates)
    # The check comes before the conversion, after which no value is known under `jit`.
    real = step_mask(xs.shape[:2], mask, lengths)
    check_values("gates", gates, real, lambda g: (g < 0) | (g > 1), "be in [0, 1]")
    gates = jnp.asarray(gates)
    wide = wide_dtype(xs.dtype)
    if initial is None:
        zeros = jnp.zeros((xs.shape[0], jnp.shape(weights.recurrent)[0]), wide)
        initial = LSTMState(zeros, zeros)

    def step(carry: LSTMState, inputs: tuple[Array, Array]) -> tuple[LSTMState, Array]:
        x, gate = inputs
        new, _ = lstm_step(weights, carry, x, recurrent_dropout_mask=recurrent_dropout_mask)
        share = gate[:, None].astype(wide)
        # This form has the bits of `new` at gate 1, which old + g (new - old) has not.
        moved = (share * n + (1 - share) * old for n, old in zip(new, carry, strict=True))
        return LSTMState(*moved), new.hidden

    final, outputs = masked_scan(step, initial, (xs, gates), mask, lengths=lengths, reverse=reverse)
    return final, outputs.astype(xs.dtype)
