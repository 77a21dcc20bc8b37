"""Calls in the form of the release before: the same result with a warning, or a refusal."""

import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax import gates
from gatedjax._utils.old_calls import accepts_old_name, accepts_positional

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(3, 4)).astype(np.float32)
MASK = np.arange(4)[None, :] < np.array([[4], [2], [0]])
LENGTHS = np.array([4, 2, 0])
POSITION = np.float32([1.5, 0.0, 0.0])
GATES = (SCORES > 0).astype(np.float32)
STATES = RNG.normal(size=(3, 2)).astype(np.float32)
KERNEL, BIAS = RNG.normal(size=(2, 5)).astype(np.float32), np.arange(5, dtype=np.float32)
TARGETS = np.array([0, 4, 2])
COUNTS = RNG.uniform(size=(1, 1, 4)).astype(np.float32)
NUM_KEYS = np.full((1, 1, 4), 4, np.float32)
KEY, DISARM = jax.random.key(0), [gates.DisARM()]


def product(b, factor=1.0):
    return factor * jnp.prod(b)


# the function, its new form as the warning names it, the old call, the new call
OLD = {
    "sample_gates": (
        "sample_gates(logits, *, key)",
        lambda: F.sample_gates(SCORES, KEY),
        lambda: F.sample_gates(SCORES, key=KEY),
    ),
    "open_indices": (
        "open_indices(gates, mask=None, *, capacity)",
        lambda: F.open_indices(GATES, 3),
        lambda: F.open_indices(GATES, capacity=3),
    ),
    "open_indices with a mask": (
        "open_indices(gates, mask=None, *, capacity)",
        lambda: F.open_indices(GATES, np.int64(3), MASK),
        lambda: F.open_indices(GATES, MASK, capacity=3),
    ),
    "linear_cross_entropy": (
        "linear_cross_entropy(states, kernel, targets, *, bias=None, mask=None)",
        lambda: F.linear_cross_entropy(STATES, KERNEL, BIAS, TARGETS),
        lambda: F.linear_cross_entropy(STATES, KERNEL, TARGETS, bias=BIAS),
    ),
    "linear_cross_entropy with targets by keyword": (
        "linear_cross_entropy(states, kernel, targets, *, bias=None, mask=None)",
        lambda: F.linear_cross_entropy(STATES, KERNEL, BIAS, targets=TARGETS, mask=LENGTHS > 0),
        lambda: F.linear_cross_entropy(STATES, KERNEL, TARGETS, bias=BIAS, mask=LENGTHS > 0),
    ),
    "local_attention_weights": (
        "local_attention_weights(scores, position, half_width, mask=None, *, lengths=None",
        lambda: F.local_attention_weights(SCORES, POSITION, 1.0, LENGTHS),
        lambda: F.local_attention_weights(SCORES, POSITION, 1.0, lengths=LENGTHS),
    ),
    "soft_top_k": (
        "soft_top_k(scores, k, mask=None, axis=-1, *, temperature=1.0)",
        lambda: gates.soft_top_k(SCORES, 2, 0.5),
        lambda: gates.soft_top_k(SCORES, 2, temperature=0.5),
    ),
    "soft_top_k with a mask and an axis": (
        "soft_top_k(scores, k, mask=None, axis=-1, *, temperature=1.0)",
        lambda: gates.soft_top_k(SCORES, 1, 2, MASK, 0),
        lambda: gates.soft_top_k(SCORES, 1, MASK, 0, temperature=2),
    ),
    "soft_top_k of an array as temperature": (
        "soft_top_k(scores, k, mask=None, axis=-1, *, temperature=1.0)",
        lambda: gates.soft_top_k(SCORES, 2, np.float32(0.5), mask=MASK),
        lambda: gates.soft_top_k(SCORES, 2, MASK, temperature=np.float32(0.5)),
    ),
    "report": (
        "report(loss, logits, estimators, *args, key, draws=4096",
        lambda: gates.report(product, SCORES[0], DISARM, KEY, 2.0, draws=2).rows[0].bias,
        lambda: gates.report(product, SCORES[0], DISARM, 2.0, key=KEY, draws=2).rows[0].bias,
    ),
    "selection_statistics": (
        "selection_statistics(counts, mask=None, *, num_keys=None)",
        lambda: F.selection_statistics(COUNTS, keys=NUM_KEYS),
        lambda: F.selection_statistics(COUNTS, num_keys=NUM_KEYS),
    ),
    "mean_over_pairs": (
        "mean_over_pairs(sums, mask=None, *, num_keys=None)",
        lambda: F.mean_over_pairs(COUNTS, keys=NUM_KEYS),
        lambda: F.mean_over_pairs(COUNTS, num_keys=NUM_KEYS),
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_an_old_call_warns_and_gives_the_result_of_the_new_call(name):
    form, old, new = OLD[name]
    with pytest.warns(DeprecationWarning, match="only until the next release") as warned:
        got = old()
    (warning,) = warned
    assert form in str(warning.message)
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        want = new()
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_old_calls_under_jit_and_vmap_give_the_results_of_the_new_calls():
    @jax.jit
    def run(scores, tau, lengths, targets):
        soft = jax.vmap(gates.soft_top_k, (0, None, None, 0))(scores, 2, tau, MASK)
        local = jax.vmap(F.local_attention_weights, (0, 0, None, 0))(scores, POSITION, 1.0, lengths)
        nll = jax.vmap(F.linear_cross_entropy, (0, None, None, 0))(STATES, KERNEL, BIAS, targets)
        return soft, local, nll

    with pytest.warns(DeprecationWarning, match="the call is now"):
        soft, local, nll = run(SCORES, np.float32(0.5), LENGTHS, TARGETS)
    np.testing.assert_allclose(soft, gates.soft_top_k(SCORES, 2, MASK, temperature=0.5), rtol=1e-6)
    want = F.local_attention_weights(SCORES, POSITION, 1.0, lengths=LENGTHS)
    np.testing.assert_allclose(local, want, rtol=1e-6)
    want = F.linear_cross_entropy(STATES, KERNEL, TARGETS, bias=BIAS)
    np.testing.assert_allclose(nll, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.sample_gates(SCORES), "key"),
        (lambda: F.sample_gates(SCORES, KEY, key=KEY), "positional argument"),
        (lambda: F.open_indices(GATES), "capacity"),
        (lambda: F.open_indices(GATES, 3, capacity=3), "mask must be bool"),
        (lambda: F.linear_cross_entropy(STATES, KERNEL), "targets"),
        (lambda: F.linear_cross_entropy(STATES, KERNEL, TARGETS, BIAS, bias=BIAS), "positional"),
        (lambda: F.linear_cross_entropy(STATES, KERNEL, BIAS), "targets must be integers"),
        (lambda: F.local_attention_weights(SCORES, POSITION, 1.0, GATES, lengths=LENGTHS), "mask"),
        (lambda: gates.soft_top_k(SCORES, 2, SCORES), "mask must be bool"),
        (lambda: gates.soft_top_k(SCORES, 2, 0.5, temperature=0.5), "mask must be bool"),
        (lambda: gates.report(product, SCORES[0], [], 2.0), "key"),
        (lambda: F.mean_over_pairs(COUNTS, keys=NUM_KEYS, num_keys=NUM_KEYS), "num_keys"),
    ],
)
def test_a_call_of_neither_form_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_a_bool_scalar_is_no_temperature():
    with pytest.raises(ValueError, match="mask"):
        gates.soft_top_k(SCORES, 2, True)


def test_the_bias_of_cross_entropy_is_optional():
    nll = F.linear_cross_entropy(STATES, KERNEL, TARGETS)
    want = F.linear_cross_entropy(STATES, KERNEL, TARGETS, bias=np.zeros(5, np.float32))
    np.testing.assert_array_equal(nll, want)


HEADS = RNG.normal(size=(1, 2, 4, 4)).astype(np.float32)
CACHE = F.AttentionCache(0 * HEADS, 0 * HEADS, np.zeros((1, 4), bool), jnp.int32(0))
BY_POSITION = {
    "attention_pool": lambda *m, **n: F.attention_pool(SCORES[..., None], SCORES, *m, **n),
    "append_to_cache": lambda *m, **n: F.append_to_cache(
        CACHE, HEADS, HEADS, *(m and (None, *m)), **n
    )[:4],
    "compact_attention_pool": lambda *m, **n: F.compact_attention_pool(
        lambda h: h[..., 0], SCORES[..., None], GATES, *m, capacity=2, **n
    ),
    "selective_attention": lambda *m, **n: F.selective_attention(
        HEADS, HEADS, HEADS, HEADS**2, *m, **n
    ),
    "relaxed_selective_attention": lambda *m, **n: F.relaxed_selective_attention(
        HEADS, HEADS, HEADS, -(HEADS**2), *m, **n
    ),
    "hard_top_k": lambda *m, **n: gates.hard_top_k(SCORES, 2, *m, **n),
    "local_attention_weights": lambda *m, **n: F.local_attention_weights(
        SCORES, POSITION, 1.0, *m, **n
    ),
}


@pytest.mark.parametrize("name", BY_POSITION)
def test_a_mask_is_positional_or_keyword(name):
    call = BY_POSITION[name]
    mask = MASK[1:2] if "selective" in name or name == "append_to_cache" else MASK
    jax.tree.map(np.testing.assert_array_equal, call(mask), call(mask=mask))


@pytest.mark.parametrize("module", [F, gates])
def test_the_order_of_arguments_follows_one_rule(module):
    """Keys and temperatures are keyword-only, masks positional, except before *args."""
    drawn_from = ("logistic_noise", "gumbel_noise", "example_keys")
    for name, function in inspect.getmembers(module, inspect.isfunction):
        parameters = inspect.signature(function).parameters
        has_args = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
        for argument, parameter in parameters.items():
            keyword_only = parameter.kind is parameter.KEYWORD_ONLY
            if argument == "temperature":
                assert keyword_only, name
            if argument == "key" and name not in drawn_from and "query" not in parameters:
                assert keyword_only or name == "append_to_cache", name
            # The bias of linear_cross_entropy is optional, and its mask stands behind it.
            if argument == "mask" and not has_args and name != "linear_cross_entropy":
                assert not keyword_only, name


def test_new_names_of_the_helper_do_not_change_the_signature():
    @accepts_positional("key", 1)
    @accepts_old_name("old", "new")
    def function(x, *, key, new=0):
        """Adds."""
        return x + key + new

    assert str(inspect.signature(function)) == "(x, *, key, new=0)"
    assert function.__doc__ == "Adds."
    with pytest.warns(DeprecationWarning, match="key as a positional argument.*function"):
        assert function(1, 2) == 3
    with pytest.warns(DeprecationWarning, match="new under its former name old"):
        assert function(1, key=2, old=4) == 7
