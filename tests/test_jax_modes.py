"""Every public function of arrays under strict promotion, without `jit`, and with open shapes.

These are the three modes of JAX in which a program that works elsewhere can stop: no implicit
promotion of dtypes, loops that run in Python, and sizes that have no value while tracing.
"""

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export

from gatedjax import functional as F
from gatedjax import gates
from gatedjax.functional._checks import promote, wide_dtype
from tests.functional import _calls as of_functional
from tests.functional._calls import ROWS, STEPS
from tests.gates import _calls as of_gates
from tests.gates.test_modes import made, make_batch
from tests.tolerances import F32

CALLS = of_functional.calls() | of_gates.calls()
CLOSED_STEPS = {"enumerate", "Enumerate"}
"""Calls whose 2^n patterns need a known n: of them only the number of rows can be open."""
ONE_DTYPE = {"masked_scan"}
"""Calls whose arrays must share a dtype, in every mode."""

OWN_DERIVATIVES = {
    *("lstm", "gru", "rau", "masked_scan", "linear_cross_entropy", "clip_gradient"),
    *("gated_softmax", "selective_attention", "selective_weights", "gumbel_sigmoid"),
    *("sparsemax", "entmax15", "entmax", "budget", "soft_top_k", "hard_top_k", "attached"),
    *of_gates.ESTIMATORS,
}
"""Functions that state a derivative of their own, whose gradients are compared, too."""


def is_float(x):
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


def with_gradients(call, shared, rows):
    """The result, and the gradient of a sum of its finite numbers by every array of numbers."""
    leaves, tree = jax.tree.flatten((shared, rows))
    chosen = [i for i, leaf in enumerate(leaves) if is_float(leaf)]
    if not (call.differentiated and chosen):
        return call.function(shared, rows), []

    def loss(values):
        given = dict(zip(chosen, values, strict=True))
        arguments = [given.get(i, leaf) for i, leaf in enumerate(leaves)]
        found = call.function(*jax.tree.unflatten(tree, arguments))
        parts = [x.astype(jnp.float32) for x in jax.tree.leaves(found) if is_float(x)]
        finite = [jnp.where(jnp.isfinite(x), x, 0) for x in parts]
        return sum((jnp.sum(jnp.sin(x)) for x in finite), jnp.float32(0)), found

    gradient, found = jax.grad(loss, has_aux=True)([leaves[i] for i in chosen])
    return found, gradient


def program_of(name, shared, rows):
    """The text of the program with gradients, without the addresses of functions."""
    traced = jax.make_jaxpr(functools.partial(with_gradients, CALLS[name]))(shared, rows)
    return re.sub(r"0x[0-9a-f]+", "", str(traced))


def cast(tree, dtypes):
    """The arrays of float32 of a tree in these dtypes, in turn."""
    leaves, structure = jax.tree.flatten(tree)
    count = 0
    for i, leaf in enumerate(leaves):
        if np.asarray(leaf).dtype == np.float32:
            leaves[i] = np.asarray(leaf, dtypes[count % len(dtypes)])
            count += 1
    return jax.tree.unflatten(structure, leaves)


def assert_same(got, want):
    def compare(a, b):
        # Without a program a flag of a result is a Python bool.
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, **F32 if is_float(b) else {})

    jax.tree.map(compare, got, want)


def public(module):
    names = {name for name in dir(module) if not name.startswith("_")}
    return {name for name in names if not inspect.ismodule(getattr(module, name))}


def test_every_public_name_of_gates_is_in_the_table():
    called = {name.split(" ")[0] for name in of_gates.calls()} | set(of_gates.ON_HOST)
    # The table of functional has the names that gates offers, too.
    of_both = {name for name in public(gates) & public(F) if name not in called}
    assert called | set(of_gates.NOT_CALLED) == public(gates) - of_both
    assert not called & set(of_gates.NOT_CALLED)
    assert called >= {type(estimator).__name__ for estimator in of_gates.ESTIMATORS.values()}


@pytest.mark.parametrize("name", CALLS)
def test_strict_promotion_traces(name):
    call = CALLS[name]
    with jax.numpy_dtype_promotion("strict"):
        for dtypes in ([np.float32], [ml_dtypes.bfloat16]):
            jax.make_jaxpr(call.function)(*cast((call.shared, call.rows), dtypes))


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtypes",
    [[np.float32], [ml_dtypes.bfloat16, np.float32], [np.float32, np.float64]],
    ids=lambda dtypes: " ".join(np.dtype(dtype).name for dtype in dtypes),
)
def test_strict_promotion_makes_the_same_programs_with_gradients(dtypes):
    """The same program has the same values, so that nothing is compiled."""
    with jax.enable_x64(np.float64 in dtypes):
        for name, call in CALLS.items():
            given = cast((call.shared, call.rows), dtypes[-1:] if name in ONE_DTYPE else dtypes)
            with jax.numpy_dtype_promotion("strict"):
                found = program_of(name, *given)
            if dtypes == [np.float32]:
                assert found == program_of(name, *given), name


def test_the_common_dtype_is_that_of_jax_under_strict_promotion():
    half, single = np.ones(2, ml_dtypes.bfloat16), np.ones(2, np.float32)
    with jax.numpy_dtype_promotion("strict"):
        assert wide_dtype(half) == np.float32
        assert [x.dtype for x in promote(half, single, 0.5)] == [np.float32] * 3
        assert [x.dtype for x in promote(half, 0.5)] == [half.dtype] * 2


GROUPS = {"functional": set(of_functional.calls()), "gates": set(of_gates.calls())}


@functools.cache
def jitted(group):
    """Results and gradients of the calls of a group, by one program."""
    names = [name for name in CALLS if name in GROUPS[group]]

    def everything(shared, rows):
        return {
            name: with_gradients(CALLS[name], shared[name], rows[name])
            if name.split(" ")[0] in OWN_DERIVATIVES
            else CALLS[name].function(shared[name], rows[name])
            for name in names
        }

    arguments = tuple(
        {name: getattr(CALLS[name], field) for name in names} for field in ("shared", "rows")
    )
    function = jax.jit(everything)
    return function, arguments, jax.tree.map(np.asarray, function(*arguments))


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_without_jit_values_are_those_of_a_program(group):
    """Of the functions that state a derivative: the loops of JAX, which then run in Python."""
    _, _, want = jitted(group)
    for count, name in enumerate(one for one in want if one.split(" ")[0] in OWN_DERIVATIVES):
        call = CALLS[name]
        if count % 20 == 0:
            jax.clear_caches()  # of the programs of single operations
        with jax.disable_jit():
            found = call.function(call.shared, call.rows)
        assert_same(found, want[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["budget of shares", "hard_top_k", "lstm", "gated_softmax", "ARM"])
def test_without_jit_gradients_are_those_of_a_program(name):
    call = CALLS[name]
    with jax.disable_jit():
        found = with_gradients(call, call.shared, call.rows)
    assert_same(found, jitted(next(g for g in GROUPS if name in GROUPS[g]))[2][name])


def open_shapes(name, scope):
    """The arguments of a call with open numbers of rows and of steps."""
    rows, steps = export.symbolic_shape("b, t", scope=scope)

    def specified(array):
        sizes = np.shape(array)
        open_steps = {STEPS: STEPS if name in CLOSED_STEPS else steps}
        shape = [rows, *(open_steps.get(size, size) for size in sizes[1:])]
        return jax.ShapeDtypeStruct(tuple(shape), np.asarray(array).dtype)

    def closed(array):
        return jax.ShapeDtypeStruct(np.shape(array), np.asarray(array).dtype)

    call = CALLS[name]
    assert all(np.shape(array)[0] == ROWS for array in jax.tree.leaves(call.rows))
    return jax.tree.map(closed, call.shared), jax.tree.map(specified, call.rows)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_exported_programs_with_open_shapes_give_the_same_values_and_gradients(group):
    function, arguments, want = jitted(group)
    scope = export.SymbolicScope()
    shapes = {name: open_shapes(name, scope) for name in want}
    shared, rows = ({name: pair[i] for name, pair in shapes.items()} for i in (0, 1))
    data = export.export(function)(shared, rows).serialize()
    assert_same(export.deserialize(data).call(*arguments), want)


def of_open_widths(d, h, n):
    """Functions, and arguments whose features have open widths."""

    def shaped(*shape):
        return jax.ShapeDtypeStruct(shape, np.float32)

    heads = (shaped(2, 3, n, d),) * 3
    return {
        "selective_attention": (F.selective_attention, *heads, shaped(2, 3, n, n)),
        "lstm": (
            lambda xs, *weights: F.lstm(F.LSTMWeights(*weights), xs),
            *(shaped(2, n, d), shaped(d, 4 * h), shaped(h, 4 * h), shaped(4 * h)),
        ),
        "gru": (
            lambda xs, *weights: F.gru(F.GRUWeights(*weights), xs, reset_after=True),
            *(shaped(2, n, d), shaped(d, 3 * h), shaped(h, 3 * h), shaped(3 * h)),
        ),
    }


@pytest.mark.parametrize("name", of_open_widths(1, 1, 1))
def test_widths_of_features_may_be_open(name):
    function, *arguments = of_open_widths(*export.symbolic_shape("d, h, n"))[name]
    written = export.export(jax.jit(function))(*arguments)
    rng = np.random.default_rng(0)
    given = [rng.random(x.shape, np.float32) for x in of_open_widths(4, 5, 3)[name][1:]]
    assert_same(written.call(*given), jax.jit(function)(*given))


def test_patterns_of_an_open_number_of_gates_are_refused_by_name():
    (size,) = export.symbolic_shape("n")
    logits = jax.ShapeDtypeStruct((size,), np.float32)
    truth = jax.jit(lambda a: gates.enumerate(lambda g: jnp.sum(g), a).expectation)
    with pytest.raises(ValueError, match=r"logits .* known while tracing, got shape \(n,\)"):
        export.export(truth)(logits)


def of_host():
    """What the functions of the host that take a loss return, as numbers."""
    logits, weights = np.float32([0.3, -1.2, 2.0]), np.float32([1.0, -2.0, 0.5])
    estimators, key = [gates.DisARM(), gates.SoftGumbel()], jax.random.key(0)
    found = gates.report(of_gates.smooth, logits, estimators, weights, key=key, draws=4)
    study = next(gates.toys(4, estimators=estimators))
    return [[row.mse for row in rows] for rows in (found.rows, study.measured.rows)]


def of_network():
    """What the functions of the host that take a network return, as numbers."""
    model, params = made()
    batch = make_batch(np.array([3, 1]))
    modes = gates.gate_modes(model, params, batch, draws=2)
    measured = gates.measure(model, params, batch, [gates.DisARM()], texts=2, draws=4)
    return modes.modes["sample"].loss, [truth.loss for truth in modes.truths], measured.rows[0].mse


def assert_close(got, want):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), got, want)


@pytest.mark.slow
def test_functions_of_the_host_work_without_jit_and_under_strict_promotion():
    """A loss alone: of a network every operation would be a program."""
    want = of_host()
    jax.clear_caches()
    with jax.disable_jit(), jax.numpy_dtype_promotion("strict"):
        assert_close(of_host(), want)


@pytest.mark.slow
def test_functions_of_the_host_that_take_a_network_work_under_strict_promotion():
    want = of_network()
    jax.clear_caches()
    with jax.numpy_dtype_promotion("strict"):
        assert_close(of_network(), want)
