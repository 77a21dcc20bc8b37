"""The clip inside a GRU binds every message of every step, against gradients by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax.functional import GRUWeights
from tests.functional.rau_oracle import sigmoid
from tests.tolerances import F64

N, D, H = 5, 3, 8


def test_clip_gradient_is_the_identity_with_a_bounded_gradient():
    x = np.float32([-3.0, 0.5, 2.0])
    value, pull = jax.vjp(lambda x: F.clip_gradient(x, 0.1), x)
    np.testing.assert_array_equal(value, x)
    np.testing.assert_allclose(pull(np.float32([-3.0, 0.05, 2.0]))[0], [-0.1, 0.05, 0.1])


def clipped_rows(weights, xs, mask, change, bound, reset_after, start=0):
    """Gradients of a GRU by hand, step by step backwards, every message clipped as it is made."""
    w, u, b = (np.asarray(x, np.float64) for x in weights[:3])
    rows, steps, _ = xs.shape
    size = len(u)
    h = np.zeros((rows, size)) + start
    tape = []
    for t in range(steps):
        sums = xs[:, t] @ w + b
        back = h @ u
        r, z = (sigmoid((sums + back)[:, k * size : (k + 1) * size]) for k in (0, 1))
        inner = back[:, 2 * size :] if reset_after else (r * h) @ u[:, 2 * size :]
        c = np.tanh(sums[:, 2 * size :] + (r * inner if reset_after else inner))
        tape.append((h, r, z, c, inner))
        h = np.where(mask[:, t, None], (1 - z) * h + z * c, h)
    dw, du, db, dxs = np.zeros_like(w), np.zeros_like(u), np.zeros_like(b), np.zeros_like(xs)
    dh = np.zeros((rows, size))
    for t in reversed(range(steps)):
        keep = mask[:, t, None]
        h, r, z, c, inner = tape[t]
        new = np.where(keep, dh + change[:, t], 0)
        clip = lambda x: np.clip(x, -bound, bound)  # noqa: E731
        dz = clip(new * (c - h) * z * (1 - z))
        dc = clip(new * z * (1 - c**2))
        if reset_after:
            dr = clip(dc * inner * r * (1 - r))
            through = np.concatenate([dr, dz, dc * r], -1)
            du += h.T @ through
            hidden = through @ u.T
        else:
            reset = dc @ u[:, 2 * size :].T
            dr = clip(reset * h * r * (1 - r))
            both = np.concatenate([dr, dz], -1)
            du += np.concatenate([h.T @ both, (r * h).T @ dc], -1)
            hidden = reset * r + both @ u[:, : 2 * size].T
        gates = np.concatenate([dr, dz, dc], -1)
        dw += xs[:, t].T @ gates
        db += gates.sum(0)
        dxs[:, t] = gates @ w.T
        dh = np.where(keep, new * (1 - z) + hidden, dh)
    return dw, du, db, dxs


@pytest.mark.parametrize("reset_after", [False, True])
def test_a_gru_clips_every_message_of_every_step(reset_after, np_rng, x64):
    bound, size = 0.05, 4
    weights = GRUWeights(
        *(np_rng.normal(size=s) for s in [(D, 3 * size), (size, 3 * size), (3 * size,)])
    )
    xs, mask = np_rng.normal(size=(3, N, D)), np.arange(N) < np.array([4, 4, 0])[:, None]
    change = np_rng.normal(size=(3, N, size))

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def gradients(scanned, bound):
        options = {"reset_after": reset_after, "gradient_clip": bound}

        def loss(weights, xs):
            if not scanned:
                return jnp.sum(F.gru(weights, xs, mask, **options)[1] * change)
            total, h = 0.0, jnp.zeros((3, size))
            for t in range(N):
                new, _ = F.gru_step(weights, h, xs[:, t], **options)
                h = jnp.where(mask[:, t, None], new, h)
                total += jnp.sum(jnp.where(mask[:, t, None], h * change[:, t], 0))
            return total

        (dw, du, db, _), dxs = jax.grad(loss, (0, 1))(weights, xs)
        return dw, du, db, dxs

    want = clipped_rows(weights, xs, mask, change, bound, reset_after)
    loose = clipped_rows(weights, xs, mask, change, 1e9, reset_after)
    plain = gradients(False, None)
    for scanned in (False, True):
        for a, b in zip(gradients(scanned, bound), want, strict=True):
            np.testing.assert_allclose(a, b, **F64)
    for a, b, c in zip(plain, loose, want, strict=True):
        np.testing.assert_allclose(a, b, **F64)
        assert np.abs(a - c).max() > 1e-3


@pytest.mark.parametrize("reset_after", [False, True])
def test_the_clip_binds_in_the_reset_gate_the_update_gate_and_the_candidate(
    reset_after, np_rng, x64
):
    # the message of the reset gate is made from that of the candidate after its clip: only a large
    # recurrent kernel and state bring it to the bound again, with gates that are not saturated
    own, recurrent = (np.repeat(scale, H) for scale in ((0.1, 0.1, 0.5), (0.2, 0.2, 3.0)))
    weights = GRUWeights(
        np_rng.normal(size=(D, 3 * H)) * own,
        np_rng.normal(size=(H, 3 * H)) * recurrent,
        np_rng.normal(size=3 * H) * own,
    )
    x, h, change = (np_rng.normal(size=(1, size)) for size in (D, H, H))
    h, change, bound = 2 * h, 20 * change, 0.25

    def messages(bound):
        # of a row of one step they are the gradient of the biases
        step = (x[:, None], np.ones((1, 1), bool), change[:, None])
        return np.split(clipped_rows(weights, *step, bound, reset_after, h)[2], 3)

    want = messages(bound)
    for clipped, free in zip(want, messages(np.inf), strict=True):
        at = np.abs(clipped) == bound
        assert at.any()
        assert not at.all()
        assert np.abs(free).max() > 2 * bound

    @jax.jit
    def gradient(weights):
        def cost(weights):
            options = {"initial": h, "reset_after": reset_after, "gradient_clip": bound}
            return (F.gru(weights, x[:, None], **options)[0] * change).sum()

        return jax.grad(cost)(weights)

    np.testing.assert_allclose(gradient(weights).bias, np.concatenate(want), **F64)
