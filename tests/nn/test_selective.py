"""SelectiveSelfAttention and SourceToToken: what the modules add to the functions."""

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import nn as gnn
from tests._drawn import drawn
from tests.tolerances import F32

B, N, D, M = 3, 5, 8, 2
MASK = np.arange(N) < np.array([5, 3, 0])[:, None]
IDS = np.array([4, 9, 2])
RNGS = {"gate": jax.random.key(3), "dropout": jax.random.key(4)}


@pytest.fixture
def inputs(np_rng):
    return np_rng.normal(size=(B, N, D)).astype(np.float32)


def made(inputs, **options):
    module = gnn.SelectiveSelfAttention(M, **options)
    return module, filled(module, inputs, MASK)


def filled(module, *inputs):
    return drawn(module.init, *inputs, std=0.3)


def run(module, variables, inputs, mask=MASK, ids=IDS, *, train=True, **options):
    call = jax.jit(
        lambda v, x: module.apply(
            v, x, mask, deterministic=not train, example_id=ids, rngs=RNGS if train else {},
            **options,
        )
    )  # fmt: skip
    return jax.tree.map(np.asarray, call(variables, inputs))


def test_without_a_selector_it_is_the_attention_of_flax(inputs):
    module, variables = made(inputs, selector="none")
    reference = nn.MultiHeadDotProductAttention(M)
    shapes = jax.eval_shape(reference.init, jax.random.key(1), inputs)
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(jnp.shape, shapes)

    @jax.jit
    def other(variables, inputs):
        return reference.apply(variables, inputs, mask=nn.make_attention_mask(MASK, MASK))

    wanted = np.asarray(other(variables, inputs))
    got, found = run(module, variables, inputs, train=False)
    np.testing.assert_allclose(got[MASK], wanted[MASK], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[~MASK], 0)
    assert found.gates is None


BY_DERIVATIVE = ("straight_through", "reinmax", "hard_concrete", "hard_kuma")
BY_VALUES = ("leave_one_out", "arm", "disarm")


@pytest.mark.slow
@pytest.mark.parametrize(
    "selector", ["st_gumbel", "soft_gumbel", "mean_field", "reinforce", *BY_DERIVATIVE, *BY_VALUES]
)
def test_training_draws_and_inference_thresholds(selector, inputs):
    module, variables = made(inputs, selector=selector)

    @jax.jit
    def passes(variables):
        def loss(v):
            found = module.apply(v, inputs, MASK, deterministic=False, rngs=RNGS)
            return jnp.sum(found[0] ** 2), found

        gradient, found = jax.grad(loss, has_aux=True)(variables)
        return *found, gradient, module.apply(variables, inputs, MASK)[1]

    output, found, gradient, hard = jax.tree.map(np.asarray, passes(variables))
    pairs = np.broadcast_to(MASK[:, None, :, None] & MASK[:, None, None, :], found.gates.shape)
    p = 1 / (1 + np.exp(-found.logits))
    values = np.asarray(found.gates)[pairs]
    if selector == "mean_field":
        np.testing.assert_allclose(found.gates, p, **F32)
    elif selector == "soft_gumbel":
        assert ((values > 0) & (values < 1)).all()
    elif selector.startswith("hard_"):
        assert ((values > 0) & (values < 1)).any()
        assert {0.0, 1.0} < set(np.unique(values))
        assert values.min() == 0
        assert values.max() == 1
    else:
        assert set(np.unique(values)) == {0.0, 1.0}
    np.testing.assert_allclose(found.weights[2], 0)
    np.testing.assert_array_equal(output[2], 0)
    np.testing.assert_array_equal(hard.gates, (hard.logits > 0).astype(np.float32))
    size = sum(float(np.abs(g).sum()) for k, g in gradient["params"].items() if "selector" in k
               for g in jax.tree.leaves(g))  # fmt: skip
    assert np.isfinite(size)
    # those by values of the loss give the selector no gradient through the output
    assert (size > 0) == (selector not in ("reinforce", *BY_VALUES))


@pytest.mark.slow
@pytest.mark.parametrize("selector", BY_VALUES)
def test_a_score_has_the_slopes_of_its_estimator(selector, inputs):
    """In NumPy, from the gates of two passes under opposite noise."""
    module, variables = made(inputs, selector=selector)

    @jax.jit
    def passed(variables, inputs):
        both = [{name: RNGS["gate"]} for name in ("gate", "antithetic")]
        run = lambda rngs: module.apply(  # noqa: E731
            variables, inputs, MASK, deterministic=False, example_id=IDS, rngs=rngs
        )[1]
        return [run(rngs) for rngs in both]

    first, second = jax.tree.map(np.asarray, passed(variables, inputs))
    a, b, c = (np.asarray(x, np.float64) for x in (first.logits, first.gates, second.gates))
    np.testing.assert_array_equal(first.logits, second.logits)
    # one of two opposite draws is open where an open gate is likelier, and else one is closed
    assert (np.where(a > 0, b + c > 0, b + c < 2)).all()
    assert (b != c).any()
    pairs = MASK[:, None, :, None] & MASK[:, None, None, :]
    p = 1 / (1 + np.exp(-a))
    chance = np.where(pairs, p, 0).mean(1).sum((1, 2)) / np.maximum(MASK.sum(1) ** 2, 1)
    np.testing.assert_allclose(first.probability, chance, rtol=1e-5)
    if selector == "arm":  # the noise itself, which is nowhere to be seen
        np.testing.assert_allclose(first.score, -second.score, **F32)
        inside = np.where(pairs, np.abs(a) / 2, 0).sum((1, 2, 3))
        assert (np.abs(first.score) <= inside).all()
        return
    slopes = {"leave_one_out": b - p, "disarm": (b - c) / 2 / (1 + np.exp(-np.abs(a)))}[selector]
    wanted = np.where(pairs, slopes * a, 0).sum((1, 2, 3))
    np.testing.assert_allclose(first.score, wanted, rtol=1e-4, atol=1e-5)


def test_training_needs_keys_and_inference_none(inputs):
    module, variables = made(inputs, selector="st_gumbel", dropout=0.1)
    for rngs in ({}, {"gate": RNGS["gate"]}, {"dropout": RNGS["dropout"]}):
        with pytest.raises(flax.errors.InvalidRngError):
            jax.eval_shape(
                lambda v, x: module.apply(v, x, MASK, deterministic=False, rngs=rngs),  # noqa: B023
                variables,
                inputs,
            )
    _, found = run(module, variables, inputs, train=False)
    drop = {"dropout_bytes": np.zeros((B, M, N, N), np.uint8)}  # which would drop everything
    cut = run(module.clone(renormalise=False), variables, inputs, train=False, **drop)[1].weights
    total = np.sum(cut, axis=-1, keepdims=True)
    np.testing.assert_allclose(cut, total * found.weights, **F32)
    assert np.any((total > 0) & (total < 0.9))
    # a selector that is not trained draws nothing
    module = module.clone(selector="threshold", dropout=0.0)
    jax.eval_shape(lambda v, x: module.apply(v, x, MASK, deterministic=False), variables, inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "empty"),
    [({"block": 2}, "self"), ({"remat": True}, "zero")],
)
def test_blocks_and_recomputation_change_nothing(options, empty, inputs):
    bias = {"relative": "learned", "max_offset": 2}
    shared = {"selector": "st_gumbel", "dropout": 0.2, "empty": empty} | bias
    module, variables = made(inputs, **shared)
    other = gnn.SelectiveSelfAttention(M, **shared, **options)

    @jax.jit
    def both(variables, inputs):
        def inner(v, module):
            output, found = module.apply(
                v, inputs, MASK, deterministic=False, example_id=IDS, rngs=RNGS
            )
            return jnp.sum(output**2), (output, found)

        return [jax.grad(inner, has_aux=True)(variables, each) for each in (module, other)]

    found = jax.tree.map(np.asarray, both(variables, inputs))
    (gradient, (output, found)), (same_gradient, (same, same_found)) = found
    np.testing.assert_allclose(same, output, **F32)
    total = np.sum(found.weights, axis=-1)  # the weights are recorded before their dropout
    np.testing.assert_allclose(total, total > 0, **F32)
    for name in ("rate", "empty", "entropy", "log_prob", "probability"):
        np.testing.assert_allclose(getattr(same_found, name), getattr(found, name), **F32)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), same_gradient, gradient
    )
    assert ("block" in options) == (same_found.weights is None)


@pytest.mark.slow
def test_a_step_in_blocks_takes_less_than_half_the_memory():
    """Of two layers. `remat` takes as much as none on a CPU, whose compiler merges the products
    that were to be computed again; it cannot merge those inside the loop over blocks."""
    shape = jax.ShapeDtypeStruct((1, 128, 16), jnp.float32)

    def memory(block):
        module = gnn.SelectiveSelfAttention(4, block=block)

        def cost(variables, xs):
            for _ in range(2):
                options = {"deterministic": False, "rngs": {"gate": jax.random.key(0)}}
                xs, _ = module.apply(variables, xs, **options)
            return jnp.sum(xs**2)

        variables = jax.eval_shape(module.init, jax.random.key(0), shape)
        compiled = jax.jit(jax.grad(cost)).lower(variables, shape).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(32) < 0.5 * memory(None)


@pytest.mark.slow
def test_local_heads_start_at_the_words_before_and_after(inputs):
    """Of M = 3 heads; with equal products a weight is that of the biases alone."""
    module = gnn.SelectiveSelfAttention(3, D + 1, selector="none", relative="local", max_offset=2)
    params = jax.jit(module.init)(jax.random.key(0), inputs)["params"]
    table = np.asarray(params["relative_bias"])
    np.testing.assert_array_equal(table, [[0, 4, 0, 0, 0], [0, 0, 0, 4, 0], [0, 0, 0, 0, 0]])
    params["query"] = jax.tree.map(jnp.zeros_like, params["query"])
    weights = run(module, {"params": params}, inputs, train=False)[1].weights
    for row, length in enumerate(MASK.sum(1)):
        for head, beside in enumerate((-1, 1, None)):
            e = np.zeros((length, length))
            for i in range(length):
                if beside is not None and 0 <= i + beside < length:
                    e[i, i + beside] = 4
            wanted = np.exp(e) / np.exp(e).sum(1, keepdims=True)
            np.testing.assert_allclose(weights[row, head, :length, :length], wanted, **F32)
            np.testing.assert_array_equal(weights[row, head, :, length:], 0)


@pytest.mark.slow
def test_a_shared_selector_selects_the_same_for_all_heads(inputs):
    module, variables = made(inputs, selector="st_gumbel", share_heads=True)
    assert variables["params"]["selector_query"]["kernel"].shape == (D, 1, D)
    _, found = run(module, variables, inputs)
    assert found.gates.shape == (B, 1, N, N)
    closed = np.broadcast_to(np.asarray(found.gates) == 0, found.weights.shape)
    np.testing.assert_array_equal(np.asarray(found.weights)[closed], 0)
    own = made(inputs, selector="st_gumbel")[1]["params"]["selector_query"]
    # both have 2 (d^2 + d) numbers of their own
    size = sum(x.size for x in jax.tree.leaves(own))
    assert (
        size
        == D * D + D
        == sum(x.size for x in jax.tree.leaves(variables["params"]["selector_key"]))
    )


@pytest.mark.slow
def test_a_temperature_may_be_traced(inputs):
    module, variables = made(inputs, selector="soft_gumbel", temperature=0.5)
    call = jax.jit(
        lambda v, t: module.apply(v, inputs, MASK, deterministic=False, rngs=RNGS, temperature=t)[0]
    )
    half, two = (np.asarray(call(variables, t)) for t in (0.5, 2.0))
    np.testing.assert_allclose(half, run(module, variables, inputs, ids=np.arange(B))[0], **F32)
    assert np.abs(half - two).max() > 1e-4


@pytest.mark.parametrize("size", [0, 1])
def test_texts_of_no_word_and_of_one(size, inputs):
    inputs = inputs[:2, :size]
    module = gnn.SelectiveSelfAttention(M, selector="st_gumbel")
    variables = filled(module, np.ones((1, 1, D), np.float32))
    output, found = run(module, variables, inputs, np.ones((2, size), bool), None)
    assert output.shape == (2, size, D)
    assert np.isfinite(output).all()
    assert np.isfinite(found.rate).all()


@pytest.mark.slow
def test_parameters_start_with_kernels_of_unit_gain_and_biases_of_zero(inputs):
    module = gnn.SelectiveSelfAttention(M, selector="st_gumbel")
    params = jax.jit(module.init)(jax.random.key(1), inputs, MASK)["params"]
    for value in params.values():
        np.testing.assert_array_equal(value["bias"], 0.0)
    kernels = np.stack([np.ravel(value["kernel"]) for value in params.values()])
    np.testing.assert_allclose(np.std(kernels), D**-0.5, rtol=0.1)
    assert np.abs(kernels).max() <= np.sqrt(3 / D)  # uniform
