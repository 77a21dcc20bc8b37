"""Inference on open words alone: the answers of a call, whatever fits into the slots."""

import functools

import numpy as np
import pytest

from gatedjax.models import GANet
from tests.models._passes import apply, in_numpy, make_batch
from tests.models.test_ga_net import draw, make_task, rngs
from tests.models.test_ga_net import sharpened as sharp
from tests.tolerances import F32

LENGTHS = (4, 7, 1, 0, 8)


def passed(model, params, batch, keys=None, *, capacity):
    method = functools.partial(GANet.compact, capacity=capacity)
    return model.apply({"params": params}, batch, rngs=keys, method=method)


compact = in_numpy(passed, static_argnames="capacity")


def with_bias(params, bias):
    """More or fewer open gates, in the same program."""
    gate = params["auxiliary"]["gate"]
    gate = gate | {"bias": np.full_like(gate["bias"], bias)}
    return params | {"auxiliary": params["auxiliary"] | {"gate": gate}}


def assert_answers_are_those_of_a_call(found, want):
    for name in ("logits", "attention", "gates", "gate_logits", "closed"):
        a, b = getattr(found, name), getattr(want, name)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        np.testing.assert_allclose(a, b, **F32, err_msg=name)
    assert found.scores is None


@pytest.mark.slow
@pytest.mark.parametrize("empty", ["max_gate", "soft", "zeros"])
def test_it_is_a_call_that_computes_less(empty, np_rng):
    config = {"gates_on": "input", "empty": empty, "num_layers": 2}
    task, batch = make_task(test_gate="threshold", **config), make_batch(np_rng, LENGTHS)
    few, slots = sharp(draw(task, gate_bias=0.0), 20.0), 5
    most = []
    # some open; none (the rule for empty rows); all, which do not fit
    for bias in (0.0, -1e6, 1e6):
        params = with_bias(few, bias)
        want = apply(task.model, params, batch)
        found = compact(task.model, params, batch, capacity=slots)
        assert_answers_are_those_of_a_call(found, want)
        most.append(int(want.gates.sum(-1).max()))
        assert most[0] < max(LENGTHS)
    assert 0 < most[0] <= slots < most[2]
    assert most[1] == (1 if empty == "max_gate" else 0)


@pytest.mark.slow
def test_slots_for_all_words_and_draws_of_gates(np_rng):
    task, batch = make_task(gates_on="input"), make_batch(np_rng, LENGTHS)
    params = draw(task, gate_bias=0.0)
    want = apply(task.model, params, batch, rngs())
    assert 0 < want.gates.sum() < sum(LENGTHS)
    for capacity in (7, 99):
        found = compact(task.model, params, batch, rngs(), capacity=capacity)
        assert_answers_are_those_of_a_call(found, want)
