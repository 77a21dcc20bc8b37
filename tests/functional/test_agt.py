"""Selection vectors and gated stacks against loops written from spec section 2 of AGT."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from tests.functional.passes import check_gradients
from tests.functional.rau_oracle import sigmoid
from tests.tolerances import BF16, F32, F64

N, D, L, A, K = 4, 3, 3, 2, 5
# Lengths 4, 1 and 0.
MASK = np.arange(N)[None, :] < np.array([4, 1, 0])[:, None]


def select_rows(words, kernels, vectors, mask, keys=None):
    """m_ln = w_l . tanh(k_n W_l), a = softmax over real words, s_l = sum_n a_ln b_n; analytic."""
    keys = words if keys is None else keys
    rows, layers = len(words), len(vectors)
    kind = np.result_type(words, kernels, vectors, keys)
    attention = np.zeros((rows, layers, words.shape[1]), kind)
    selected = np.zeros((rows, layers, words.shape[2]), kind)
    for row in range(rows):
        real = [n for n in range(words.shape[1]) if mask[row, n]]
        for layer in range(layers):
            kernel = kernels[layer if len(kernels) > 1 else 0]
            score = {n: vectors[layer] @ np.tanh(keys[row, n] @ kernel) for n in real}
            total = sum(np.exp(score[n]) for n in real)
            for n in real:
                attention[row, layer, n] = np.exp(score[n]) / total
                selected[row, layer] += attention[row, layer, n] * words[row, n]
    return selected, attention


def gated_rows(selected, kernels, recurrent, bias):
    """y_0 = s_0, y_l = T_l f_l + (1 - T_l) y_{l-1} of one text [L, D], layer by layer; analytic."""
    width = selected.shape[-1]
    states, gates = [selected[0]], []
    for s, own, back, b in zip(selected[1:], kernels, recurrent, bias, strict=True):
        gate = sigmoid(s @ own[:, :width] + b[:width])
        # [y; s] Wf with Wf the two halves on top of each other
        whole = np.concatenate([back, own[:, width:]])
        candidate = np.tanh(np.concatenate([states[-1], s]) @ whole + b[width:])
        states.append(gate * candidate + (1 - gate) * states[-1])
        gates.append(gate)
    return np.stack(states), np.stack(gates)


def highway_rows(inputs, kernels, bias):
    """The same with gate and candidate of y alone; analytic."""
    width, state, states, gates = len(inputs), inputs, [], []
    for own, b in zip(kernels, bias, strict=True):
        gate = sigmoid(state @ own[:, :width] + b[:width])
        state = gate * np.tanh(state @ own[:, width:] + b[width:]) + (1 - gate) * state
        states.append(state)
        gates.append(gate)
    return np.stack(states), np.stack(gates)


@functools.partial(jax.jit, static_argnums=0)
def with_gradients(function, arguments, cotangents):
    outputs, pull = jax.vjp(function, *arguments)
    return outputs, pull(cotangents)


def check_against(function, oracle, arguments, rng):
    want = oracle(*arguments)
    cotangents = tuple(rng.normal(size=o.shape) for o in want)
    found = with_gradients(function, arguments, cotangents)
    got, gradients = jax.tree.map(np.asarray, found)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == jnp.float64
        np.testing.assert_allclose(one, other, **F64)
    check_gradients(gradients, oracle, arguments, cotangents, rng, **F64)


def masked_selection(words, kernels, vectors, keys=None):
    return F.selection_vectors(words, kernels, vectors, MASK, keys=keys)


@pytest.mark.parametrize(("matrices", "width"), [(L, None), (1, K)], ids=["own", "shared keys"])
def test_selection_and_its_gradient_equal_the_loop(matrices, width, np_rng, x64):
    shapes = [(3, N, D), (matrices, width or D, A), (L, A)] + ([(3, N, K)] if width else [])
    arguments = tuple(np_rng.normal(size=shape) for shape in shapes)
    for of_words in arguments[::3]:
        of_words[~MASK] = np.nan

    def oracle(words, kernels, vectors, keys=None):
        return select_rows(words, kernels, vectors, MASK, keys)

    check_against(masked_selection, oracle, arguments, np_rng)


def draw_stack(rng, layers=L):
    inner = layers - 1
    shapes = [(inner, D, 2 * D), (inner, D, D), (inner, 2 * D)]
    return tuple(rng.normal(size=shape) for shape in shapes)


def stack(selected, *weights):
    return F.gated_stack(selected, F.GatedStackWeights(*weights))


def test_gated_stack_and_its_gradient_equal_the_loop(np_rng, x64):
    arguments = (np_rng.normal(size=(2, L, D)), *draw_stack(np_rng))

    def oracle(selected, *weights):
        rows = [gated_rows(text, *weights) for text in selected]
        return tuple(np.stack(part) for part in zip(*rows, strict=True))

    check_against(stack, oracle, arguments, np_rng)


def test_highway_stack_and_its_gradient_equal_the_loop(np_rng, x64):
    arguments = tuple(np_rng.normal(size=shape) for shape in [(2, D), (L, D, 2 * D), (L, 2 * D)])

    def oracle(inputs, *weights):
        rows = [highway_rows(text, *weights) for text in inputs]
        return tuple(np.stack(part) for part in zip(*rows, strict=True))

    def function(inputs, *weights):
        return F.highway_stack(inputs, F.HighwayWeights(*weights))

    check_against(function, oracle, arguments, np_rng)


@functools.partial(jax.jit, static_argnames="dtype")
def everything(words, kernels, vectors, weights, mask, dtype="float32"):
    words, kernels = words.astype(dtype), kernels.astype(dtype)
    selected, attention = F.selection_vectors(words, kernels, vectors, mask)
    highway = F.HighwayWeights(weights.input, weights.bias)
    return (
        selected,
        attention,
        F.gated_stack(selected, weights),
        F.highway_stack(selected[..., 0, :], highway),
    )


def draw(rng, rows=3, words=N, scale=1.0):
    arrays = [(rows, words, D), (L, D, A), (L, A)]
    first = [jnp.asarray(rng.normal(size=shape) * scale, jnp.float32) for shape in arrays]
    return *first, F.GatedStackWeights(*(jnp.asarray(w, jnp.float32) for w in draw_stack(rng)))


@pytest.mark.slow
def test_leading_axes_are_those_of_the_flat_call(np_rng):
    words, *weights = draw(np_rng, rows=6)
    mask = np.tile(MASK, (2, 1))
    flat = everything(words, *weights, mask)
    folded = everything(words.reshape(2, 3, N, D), *weights, mask.reshape(2, 3, N))
    chex.assert_trees_all_close(
        jax.tree.map(lambda a: a.reshape(6, *a.shape[2:]), folded), flat, **F32
    )
    chex.assert_trees_all_close(
        everything(words[0], *weights, mask[0]), jax.tree.map(lambda a: a[0], flat), **F32
    )


@jax.jit
def selection_gradient(words, kernels, vectors, mask):
    def total(*arguments):
        selected, attention = F.selection_vectors(*arguments, mask)
        return jnp.sum(jnp.sin(selected)) + jnp.sum(attention**2)

    return jax.grad(total, argnums=(0, 1, 2))(words, kernels, vectors)


def test_a_row_without_words_selects_nothing_and_one_word_is_selected_whole(np_rng):
    words, *weights = draw(np_rng)
    selected, attention, (states, gates), _ = everything(words, *weights, MASK)
    np.testing.assert_array_equal(attention[1, :, 0], 1.0)
    np.testing.assert_allclose(selected[1], np.tile(words[1, :1], (L, 1)), **F32)
    np.testing.assert_array_equal(selected[2], 0.0)
    assert np.all(np.isfinite(states[2]))
    assert np.all(np.isfinite(gates[2]))
    # the last row alone: no gradient at all
    for gradient in selection_gradient(words, *weights[:2], MASK & (np.arange(3) > 1)[:, None]):
        np.testing.assert_array_equal(gradient, 0.0)


def test_scores_of_ten_thousand_give_one_hot_attention_and_finite_gradients(np_rng):
    words, kernels, vectors, weights = draw(np_rng)
    words = words.at[0, 1].set(words[0, 0])
    full = np.ones_like(MASK)
    attention = np.asarray(everything(words, kernels, 1e4 * vectors, weights, full)[1])
    assert np.all(np.isfinite(attention))
    # row 0 has two equal words, which are as good as each other in every layer
    np.testing.assert_array_equal(attention[0, :, 0], attention[0, :, 1])
    np.testing.assert_array_equal(attention[1:].max(-1), 1.0)
    np.testing.assert_allclose(attention.sum(-1), 1.0, **F32)
    for gradient in selection_gradient(words, kernels, 1e4 * vectors, full):
        assert np.all(np.isfinite(gradient))


def test_stacks_keep_states_and_gates_in_float32_under_bfloat16_products(np_rng):
    arguments = draw(np_rng)
    *_, wide_gated, wide_highway = everything(*arguments, MASK)
    *_, gated, highway = everything(*arguments, MASK, dtype="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves((gated, highway))} == {jnp.dtype("float32")}
    # three layers of bfloat16 products on top of each other
    chex.assert_trees_all_close((gated, highway), (wide_gated, wide_highway), atol=3 * BF16["atol"])


def test_one_layer_is_its_selection_vector(np_rng):
    selected = jnp.asarray(np_rng.normal(size=(2, 1, D)), jnp.float32)
    states, gates = stack(selected, *draw_stack(np_rng, layers=1))
    np.testing.assert_array_equal(states, selected)
    assert gates.shape == (2, 0, D)


def count_equations(jaxpr) -> int:
    inner = [
        part
        for equation in jaxpr.eqns
        for value in equation.params.values()
        for part in (value if isinstance(value, tuple | list) else [value])
        if hasattr(part, "eqns") or hasattr(part, "jaxpr")
    ]
    return len(jaxpr.eqns) + sum(count_equations(getattr(i, "jaxpr", i)) for i in inner)


def test_the_program_does_not_grow_with_the_number_of_layers():
    def program(layers):
        weights = F.GatedStackWeights(
            *(np.ones((layers - 1, *shape)) for shape in [(D, 2 * D), (D, D), (2 * D,)])
        )
        highway = F.HighwayWeights(weights.input, weights.bias)
        words, kernels, vectors = (np.ones(s) for s in [(2, N, D), (layers, D, A), (layers, A)])

        def total(words, kernels, vectors, weights, highway):
            states, _ = F.gated_stack(F.selection_vectors(words, kernels, vectors)[0], weights)
            return jnp.sum(F.highway_stack(states[:, -1], highway)[0])

        grad = jax.grad(total, argnums=(0, 1, 2, 3, 4))
        return count_equations(
            jax.make_jaxpr(grad)(words, kernels, vectors, weights, highway).jaxpr
        )

    assert program(30) == program(3) > 50


@pytest.mark.parametrize("gate", [0.0, 1.0])
def test_highway_mix_keeps_the_carry_or_takes_the_candidate(gate):
    candidate, carry = np.float32([0.1, 3.0]), np.float32([-7.0, 1e-9])
    got = F.highway_mix(candidate, carry, np.float32(gate))
    np.testing.assert_array_equal(got, candidate if gate else carry)
    np.testing.assert_allclose(F.highway_mix(candidate, carry, 0.25), candidate / 4 + carry * 0.75)
