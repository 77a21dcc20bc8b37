"""The estimators, each with its oracle."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import gates
from tests.gates import _oracles

WEIGHTS = np.array([1.0, -2.0, 0.5, 1.5])
LOGITS = np.array([0.3, -1.2, 2.0, 0.1])


def critic(z):
    """A control variate that is no relaxation of any loss; finite where a logit is not."""
    return 0.8 * jnp.sum(jax.nn.sigmoid(z)) ** 2


def numpy_critic(z):
    return 0.8 * np.sum(_oracles.sigmoid(z)) ** 2


ORACLES = {
    gates.SoftGumbel(): _oracles.soft_gumbel,
    gates.STGumbel(): _oracles.st_gumbel,
    gates.StraightThrough(): _oracles.straight_through,
    gates.ReinMax(): _oracles.reinmax,
    gates.MeanField(): _oracles.mean_field,
    gates.HardConcrete(): _oracles.hard_concrete,
    gates.HardKuma(): _oracles.hard_kuma,
    gates.Reinforce(0.4): lambda f, a, noise: _oracles.reinforce(f, a, noise, 0.4),
    gates.LeaveOneOut(3): _oracles.leave_one_out,
    gates.ARM(): _oracles.arm,
    gates.DisARM(): _oracles.disarm,
    gates.LocalExpectation(): _oracles.local_expectation,
    gates.Rebar(0.7, 0.9): lambda f, a, noise: _oracles.rebar(f, a, noise, 0.7, 0.9),
    gates.Relax(critic): lambda f, a, noise: _oracles.relax(f, a, noise, numpy_critic),
    gates.Enumerate(): _oracles.exact,
}
ESTIMATORS = list(ORACLES)
UNBIASED = [one for one in ESTIMATORS if one.unbiased]
BIASED = [one for one in ESTIMATORS if not one.unbiased]


def name(estimator):
    return type(estimator).__name__


def smooth(g, weights):
    """`_oracles.smooth`."""
    return jax.nn.sigmoid(g @ weights + g[0] * g[1] * 2 - 0.7) + 0.3 * g[2] ** 3


@functools.partial(jax.jit, static_argnums=(0, 1))
def _at_noise(loss, estimator, logits, noise, args):
    def one(a, rows):
        return estimator.surrogate(gates.Objective(loss, args, a.dtype), a, rows)

    return jax.vmap(jax.value_and_grad(one), in_axes=(None, 0))(logits, noise)


def at_noise(loss, estimator, logits, noise, *args):
    """The values [draws] and gradients [draws, n] of an estimator at noise [draws, rows, n]."""
    return jax.tree.map(np.asarray, _at_noise(loss, estimator, logits, noise, args))


@functools.partial(jax.jit, static_argnums=(0, 1))
def solve(loss, estimator, logits, keys, args, mask=None):
    """Values and gradients of the logits and of every argument, for every key."""
    expected = gates.expectation(loss, estimator)

    def one(key):
        call = lambda a, *rest: expected(a, key, *rest, mask=mask)  # noqa: E731
        return jax.value_and_grad(call, argnums=tuple(range(1 + len(args))))(logits, *args)

    return jax.vmap(one)(keys)


def solved(*arguments):
    return jax.tree.map(np.asarray, solve(*arguments))


def keys(count=6):
    return jax.random.split(jax.random.key(1), count)


def cut_row(g, weights):
    return jnp.tanh(jnp.sum(g * weights))
