"""The clip inside a GRU binds the message of every gate: one step by hand."""

import jax
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax.functional import GRUWeights
from tests.functional.rau_oracle import sigmoid
from tests.tolerances import F64

D, H = 3, 8


def messages(weights, h, x, change, bound, reset_after):
    """What one step sends back to the sums inside r, z and c: a row's gradient of the biases."""
    w, u, b = weights[:3]
    sums, back = x @ w + b, h @ u
    r, z = (sigmoid((sums + back)[:, k * H : (k + 1) * H]) for k in (0, 1))
    inner = back[:, 2 * H :] if reset_after else (r * h) @ u[:, 2 * H :]
    c = np.tanh(sums[:, 2 * H :] + (r * inner if reset_after else inner))
    clip = lambda values: np.clip(values, -bound, bound)  # noqa: E731
    dz = clip(change * (c - h) * z * (1 - z))
    dc = clip(change * z * (1 - c**2))
    reset = dc * inner if reset_after else (dc @ u[:, 2 * H :].T) * h
    return clip(reset * r * (1 - r)), dz, dc


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
    h, change = 2 * h, 20 * change
    bound = 0.25
    want = messages(weights, h, x, change, bound, reset_after)
    loose = messages(weights, h, x, change, np.inf, reset_after)
    for clipped, free in zip(want, loose, strict=True):
        at = np.abs(clipped) == bound
        assert at.any()
        assert not at.all()
        assert np.abs(free).max() > 2 * bound
    options = {"reset_after": reset_after, "gradient_clip": bound}

    def scan(weights):
        return (F.gru(weights, x[:, None], initial=h, **options)[0] * change).sum()

    def step(weights):
        return (F.gru_step(weights, h, x, **options)[0] * change).sum()

    for gradient in jax.jit(lambda w: (jax.grad(scan)(w), jax.grad(step)(w)))(weights):
        np.testing.assert_allclose(gradient.bias, np.concatenate(want, -1)[0], **F64)
