"""The passes of a recurrence in one program, and its gradients by complex steps."""

import jax
import numpy as np


def draw_like(tree, rng):
    return jax.tree.map(lambda leaf: rng.normal(size=np.shape(leaf)).astype(leaf.dtype), tree)


def close(got, want, **tolerance):
    for value, expected in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(value, expected, **tolerance)


def complex_step(function, point, cotangent):
    """The gradient of sum(cotangent * function(point)), exact to rounding for an analytic one."""
    gradient = np.zeros(point.shape)
    for index in np.ndindex(point.shape):
        moved = point.astype(complex)
        moved[index] += 1e-30j
        gradient[index] = np.sum(cotangent * function(moved)).imag / 1e-30
    return gradient


def slope(function, point, path, rng):
    """A direction in one leaf, and the exact derivatives of all results along it."""
    leaves, tree = jax.tree.flatten(point)
    direction = rng.normal(size=leaves[path].shape)
    leaves[path] = leaves[path] + 1e-30j * direction
    moved = function(*jax.tree.unflatten(tree, leaves))
    return direction, [leaf.imag * 1e30 for leaf in jax.tree.leaves(moved)]


def check_gradients(gradients, function, point, cotangents, rng, **tolerance):
    """Compares the gradients of every leaf with complex steps of an analytic function."""
    point = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), point)
    for path, gradient in enumerate(jax.tree.leaves(gradients)):
        direction, moved = slope(function, point, path, rng)
        pairs = zip(jax.tree.leaves(cotangents), moved, strict=True)
        want = sum(np.sum(np.where(c == 0, 0, c * m)) for c, m in pairs)
        np.testing.assert_allclose(np.sum(gradient * direction), want, **tolerance)


def passes(unroll, arguments, mask, cotangents):
    """The pass without gradients, the one with them, and its gradients."""

    def call(weights, xs, initial, drop):
        return unroll(weights, xs, mask, initial=initial, recurrent_dropout_mask=drop)

    found, pull = jax.vjp(call, *arguments)
    return call(*arguments), found, pull(cotangents)
