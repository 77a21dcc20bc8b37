"""Products in bfloat16: a network of each paper stays near float32, and returns float32."""

import functools

import jax
import numpy as np
import pytest

from tests.models._losses import make, total_loss
from tests.models._passes import RNGS, in_numpy

pytestmark = pytest.mark.slow


@in_numpy
def log_probs_of(task, params, batch):
    logits = task.model.apply({"params": params}, batch).logits
    return logits, jax.nn.log_softmax(logits)


@pytest.mark.parametrize(
    "name", ["agt", "ga_net", "ga_reader", "rau", "rau_language", "ssan_translation"]
)
def test_bfloat16_products_are_near_and_results_are_float32(name):
    wide, narrow = make(name), make(name, dtype="bfloat16")
    (_, want), (raw, got) = (
        log_probs_of(one.task, wide.params, wide.batch) for one in (wide, narrow)
    )
    assert raw.dtype == np.float32
    real = np.isfinite(want)
    np.testing.assert_array_equal(np.isfinite(got), real)
    np.testing.assert_allclose(np.exp(got[real]), np.exp(want[real]), atol=2e-3)
    assert not np.array_equal(got, want)
    graded = jax.value_and_grad(functools.partial(total_loss, narrow.task), has_aux=True)
    (total, _), slopes = jax.eval_shape(graded, wide.shapes, wide.batch, RNGS, *wide.carried)
    assert {leaf.dtype for leaf in jax.tree.leaves((total, slopes))} == {np.dtype(np.float32)}
