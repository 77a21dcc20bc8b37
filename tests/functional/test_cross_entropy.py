"""The fused softmax loss against a NumPy loop, optax and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.test_util import check_grads

from gatedjax.functional import linear_cross_entropy as cross_entropy
from tests.tolerances import BF16, F32, F64

N, H, V = 6, 4, 7


def linear_cross_entropy(states, kernel, bias, targets):
    """The function with its differentiable arguments first."""
    return cross_entropy(states, kernel, targets, bias=bias)


@jax.jit
def solve(parts, targets, weight):
    """The loss of every position and the gradients of its weighted sum, in one program."""
    nll, pull = jax.vjp(lambda *parts: linear_cross_entropy(*parts, targets), *parts)
    return nll, *pull(weight.astype(nll.dtype))


def solved(parts, targets, weight=None):
    weight = np.ones(targets.shape, np.float32) if weight is None else weight
    return jax.tree.map(np.asarray, solve(tuple(parts), targets, weight))


def arguments(rng, dtype=np.float32, rows=(N,), classes=V, scale=1.0):
    shapes = [(*rows, H), (H, classes), (classes,)]
    arrays = [np.asarray(rng.normal(size=shape) * scale, dtype) for shape in shapes]
    return *arrays, np.asarray(rng.integers(0, classes, rows), np.int32)


def oracle(states, kernel, bias, targets):
    """One position and one class at a time."""
    states, kernel, bias = (np.asarray(a, np.float64) for a in (states, kernel, bias))
    nll = np.zeros(targets.shape)
    for at in np.ndindex(*targets.shape):
        logits = [states[at] @ kernel[:, v] + bias[v] for v in range(len(bias))]
        top = max(logits)
        total = top + np.log(sum(np.exp(value - top) for value in logits))
        nll[at] = total - logits[int(targets[at])]
    return nll


def reference(states, kernel, bias, targets):
    logits = jnp.einsum("...h,hv->...v", states, kernel)
    logits = logits + bias.reshape((1,) * (logits.ndim - 1) + bias.shape)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets)


@pytest.mark.parametrize("rows", [(), (2, 3), (2, 0)])
@pytest.mark.usefixtures("x64")
def test_values_and_gradients_are_those_of_a_loop_and_of_optax(rows, np_rng):
    *parts, targets = arguments(np_rng, np.float64, rows)
    weight = np.asarray(np_rng.normal(size=rows))
    nll, *found = solved(parts, targets, weight)
    assert (nll.shape, nll.dtype) == (rows, np.float64)
    np.testing.assert_allclose(nll, oracle(*parts, targets), **F64)
    listed, zeros = targets.tolist() if targets.size else targets, np.zeros(V)
    plain = jax.jit(lambda *parts: cross_entropy(*parts, listed))(*parts[:2])
    np.testing.assert_allclose(plain, oracle(*parts[:2], zeros, targets), **F64)
    cost = lambda *parts: jnp.sum(reference(*parts, targets) * weight)  # noqa: E731
    wanted = jax.jit(jax.grad(cost, (0, 1, 2)))(*parts)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, **F64)


@pytest.mark.usefixtures("x64")
def test_first_and_second_derivatives_equal_finite_differences(np_rng):
    *parts, targets = arguments(np_rng, np.float64)
    weight = np.arange(1.0, N + 1)
    loss = lambda *parts: jnp.sum(linear_cross_entropy(*parts, targets) * weight)  # noqa: E731
    check_grads(jax.jit(loss), parts, order=2, modes=["rev"], rtol=1e-6, atol=1e-6)


def test_extreme_logits_give_finite_values_and_gradients():
    states, kernel = np.float32([[1e4], [-1e4], [1e4]]), np.float32([[1, -1, 0]])
    nll, *grads = solved((states, kernel, np.zeros(3, np.float32)), np.array([0, 0, 2]))
    np.testing.assert_allclose(nll, [0, 2e4, 1e4])
    np.testing.assert_allclose(grads[0], [[0], [-2], [1]])
    np.testing.assert_allclose(grads[1], [[2e4, -1e4, -1e4]])
    np.testing.assert_allclose(grads[2], [0, 1, -1])


def test_bfloat16_states_and_kernel_keep_their_dtype_in_the_gradient(np_rng):
    states, kernel, bias, targets = arguments(np_rng, scale=0.5)
    narrow = (states.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16), bias)
    nll, *found = solved(narrow, targets)
    assert nll.dtype == np.float32
    # the products of two bfloat16 numbers are exact in float32
    exact = [part.astype(np.float32) for part in narrow]
    np.testing.assert_allclose(nll, oracle(*exact, targets), **F32)
    assert [grad.dtype for grad in found] == [jnp.bfloat16, jnp.bfloat16, np.float32]
    for got, want in zip(found, solved(exact, targets)[1:], strict=True):
        np.testing.assert_allclose(got.astype(np.float32), want, **BF16)


@pytest.mark.parametrize("bad", [-1, V, -(2**31)])
def test_a_target_outside_is_nan_and_spoils_nothing_else(bad, np_rng):
    states, kernel, bias, targets = arguments(np_rng)
    kept = np.arange(N) != 2
    wrong = np.where(kept, targets, bad).astype(np.int32)
    nll, *found = solved((states, kernel, bias), wrong)
    np.testing.assert_array_equal(np.isnan(nll), ~kept)
    want, *without = solved((states[kept], kernel, bias), targets[kept])
    np.testing.assert_allclose(nll[kept], want, **F32)
    np.testing.assert_array_equal(found[0][2], 0.0)
    np.testing.assert_allclose(found[0][kept], without[0], **F32)
    for got, expected in zip(found[1:], without[1:], strict=True):
        np.testing.assert_allclose(got, expected, **F32)


def test_one_class_costs_nothing(np_rng):
    *parts, targets = arguments(np_rng, classes=1)
    nll, *found = solved(parts, targets)
    np.testing.assert_array_equal(nll, 0.0)
    for grad in found:
        # what the product gives and what the target takes cancel to rounding only
        np.testing.assert_allclose(grad, np.zeros_like(grad), atol=1e-6)


@pytest.mark.slow
def test_narrow_targets_may_count_up_to_the_number_of_classes(np_rng):
    states, kernel, bias, _ = arguments(np_rng, classes=256)
    targets = np.array([0, 255, 127, 128, 1, 254], np.uint8)
    got = solved((states, kernel, bias), targets)[0]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, oracle(states, kernel, bias, targets), **F32)
