"""The checks say which argument, what was wanted and what came; they work while tracing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.functional._checks import (
    check_axis,
    check_floating,
    check_mask,
    check_positive,
    check_same_shape,
    wide_dtype,
)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_every_float_is_floating(dtype):
    check_floating(scores=jnp.ones(2, dtype), gates=1.0)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.bool_, jnp.complex64])
def test_other_dtypes_are_refused_by_name(dtype):
    with pytest.raises(TypeError, match=f"gates must be floating point.*{jnp.dtype(dtype)}"):
        check_floating(scores=jnp.ones(2), gates=jnp.ones(2, dtype))


def test_same_shape_lists_every_argument_and_skips_none():
    check_same_shape(a=np.ones((2, 3)), b=None, c=jnp.ones((2, 3)))
    check_same_shape()
    with pytest.raises(ValueError, match=r"scores \(2, 3\), gates \(3,\), extra \(2, 3\)"):
        check_same_shape(scores=np.ones((2, 3)), gates=np.ones(3), extra=np.ones((2, 3)))


@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (2, 1), (1, 1)])
def test_mask_may_broadcast_along_its_own_axes(shape):
    check_mask(np.ones(shape, bool), (2, 3))
    check_mask(None, (2, 3))


@pytest.mark.parametrize("shape", [(), (3,), (3, 2), (2, 2), (1, 2, 3)])
def test_mask_of_another_rank_or_size_is_refused(shape):
    with pytest.raises(ValueError) as caught:
        check_mask(np.ones(shape, bool), (2, 3), "query_mask")
    for part in ("query_mask", "(2, 3)", str(shape)):
        assert part in str(caught.value)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_mask_must_be_bool(dtype):
    with pytest.raises(TypeError, match=f"mask must be bool.*{np.dtype(dtype)}"):
        check_mask(np.ones((2, 3), dtype), (2, 3))


def test_axis_is_counted_from_the_left():
    assert [check_axis(a, 3) for a in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    for axis, ndim in ((3, 3), (-4, 3), (0, 0)):
        with pytest.raises(ValueError, match=f"time_axis.*{axis}$"):
            check_axis(axis, ndim, "time_axis")


POSITIVE = [1, 0.5, 1e-30, np.float32(2), np.ones(3), jnp.float32(0.1)]
NOT_POSITIVE = [0, 0.0, -1.0, np.nan, np.inf, -np.inf, np.array([1.0, 0.0]), jnp.float32(-2)]


@pytest.mark.parametrize("number", POSITIVE)
def test_positive_finite_numbers_pass_inside_and_outside_of_jit(number):
    check_positive(temperature=number)

    @jax.jit
    def inside(x):
        check_positive(temperature=number, traced=x)
        return x

    inside(jnp.float32(-1.0))  # a traced value is not known yet


@pytest.mark.parametrize("number", NOT_POSITIVE)
def test_other_numbers_are_refused_by_name_inside_and_outside_of_jit(number):
    @jax.jit
    def inside(x):
        check_positive(width=1.0, temperature=number)
        return x

    with pytest.raises(ValueError, match="temperature must be positive and finite"):
        check_positive(width=1.0, temperature=number)
    with pytest.raises(ValueError, match="temperature must be positive and finite"):
        inside(1.0)


def test_reductions_are_float32_or_wider(x64):
    narrow, single, double = (jnp.ones(1, d) for d in (jnp.bfloat16, jnp.float32, jnp.float64))
    assert wide_dtype(narrow) == jnp.float32
    assert wide_dtype(narrow, single) == jnp.float32
    assert wide_dtype(jnp.ones(1, jnp.float16), narrow) == jnp.float32
    assert wide_dtype(narrow, double) == jnp.float64
