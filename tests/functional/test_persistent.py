"""The kernels of the recurrences against the step in float64, in emulation and on a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.functional import emulator
from tests.functional._persistent_cases import (
    CASES,
    Case,
    cast,
    cotangents_of,
    draw,
    error_of,
    run,
    truth,
    with_gradients,
)
from tests.tolerances import BF16

on_gpu = pytest.mark.gpu
each_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
# each kind of cell and each number of blocks; the others are for a GPU, where they take no time
EMULATED = {
    name: case
    for name, case in CASES.items()
    if name not in ("lstm, 4 blocks", "gru", "gru, rows that begin and end at other steps", "rau")
}


def persistent(case, floats, masks):
    return run(case, floats, masks, implementation="persistent")


def check(case):
    """Compares results and gradients with the truth, and results without gradients."""
    floats, masks = draw(case)
    floats, cotangents = cast(floats, np.float32), cast(cotangents_of(case), np.float32)
    with jax.default_matmul_precision("highest"):
        results, gradients = with_gradients(persistent, case, floats, masks, cotangents)
        alone = jax.jit(lambda floats: persistent(case, floats, masks))(floats)
    want, want_gradients = truth(case)
    assert error_of(results, want) < 1e-6
    assert error_of(alone, want) < 1e-6
    assert error_of(gradients, want_gradients) < 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("case", EMULATED.values(), ids=list(EMULATED))
def test_the_kernels_compute_the_steps(case):
    with emulator.emulated(**case.plan) as launches:
        check(case)
    # Both directions are one launch.
    kernels = [launch.kernel for launch in launches if launch.grid[1] == case.directions]
    assert {"forward", "saving", "backward"} <= set(kernels)


@on_gpu
@each_case
def test_the_kernels_compute_the_steps_on_a_gpu(case, gpu):
    with emulator.planned(**case.plan):
        check(case)


@on_gpu
@pytest.mark.parametrize("name", ["lstm", "gru after", "gru, 4 blocks", "rau, 2 blocks"])
def test_two_runs_on_a_gpu_give_equal_bits(name, gpu):
    case = CASES[name]._replace(rows=32, steps=100)
    floats, masks = draw(case)
    floats, cotangents = cast(floats, np.float32), cast(cotangents_of(case), np.float32)
    found = [with_gradients(persistent, case, floats, masks, cotangents) for _ in range(2)]
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm, 2 blocks", "gru after", "gru, 4 blocks", "rau, 2 blocks"])
def test_the_order_of_the_threads_between_barriers_changes_no_bit(name):
    case = CASES[name]
    floats, masks = draw(case)
    floats, cotangents = cast(floats, np.float32), cast(cotangents_of(case), np.float32)
    with emulator.emulated(**case.plan):
        found = []
        for order in (0, 1):
            with emulator.ordered(order):
                found.append(with_gradients(persistent, case, floats, masks, cotangents))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_narrow_inputs_have_wide_states():
    case = CASES["gru"]._replace(with_mask=False)
    floats, masks = draw(case)
    floats = cast(floats, np.float32)
    floats["xs"] = floats["xs"].astype(jnp.bfloat16)

    def passes(implementation):
        results, pull = jax.vjp(
            lambda floats: run(case, floats, masks, implementation=implementation), floats
        )
        return results, pull(jax.tree.map(jnp.ones_like, results))[0]

    with emulator.emulated():
        (carries, outputs), gradients = passes("persistent")
    want = passes("scan")
    assert outputs.dtype == gradients["xs"].dtype == jnp.bfloat16
    assert carries[0].dtype == gradients["weights"][0].input.dtype == jnp.float32
    # The kernels do not round the state to the dtype of the inputs, and the scan does.
    assert error_of(((carries, outputs), gradients), cast(want, np.float64)) < BF16["rtol"]


@pytest.mark.parametrize(("rows", "steps"), [(2, 0), (0, 2)])
def test_without_steps_the_initial_carry_is_returned(rows, steps):
    case = Case("lstm", 4, rows=rows, steps=steps, with_mask=False)
    floats, masks = draw(case)
    with emulator.emulated() as launches:
        final, outputs = persistent(case, cast(floats, np.float32), masks)
    assert not launches
    assert outputs.shape == (rows, steps, 4)
    np.testing.assert_allclose(final.hidden, floats["initial"][0].hidden, rtol=1e-6)


@pytest.fixture
def gpu():
    if jax.default_backend() != "gpu":
        pytest.skip("no GPU")
