"""Inference on open words alone: the answers of a call, whatever fits into the slots."""

import functools

import jax
import numpy as np
import pytest

from gatedjax.models import GANet
from tests.models._passes import apply, in_numpy, make_batch
from tests.models.test_ga_net import QUIET, _oracle, draw, make_task, rngs
from tests.models.test_ga_net import sharpened as sharp
from tests.models.test_gates_on_input import deleted
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


def test_slots_for_all_words_and_draws_of_gates(np_rng):
    task, batch = make_task(gates_on="input"), make_batch(np_rng, LENGTHS)
    params = draw(task, gate_bias=0.0)
    want = apply(task.model, params, batch, rngs())
    assert 0 < want.gates.sum() < sum(LENGTHS)
    for capacity in (7, 99):
        found = compact(task.model, params, batch, rngs(), capacity=capacity)
        assert_answers_are_those_of_a_call(found, want)


def test_it_equals_loops_over_the_open_words(np_rng):
    task = make_task(test_gate="threshold", gates_on="input", num_layers=2, **QUIET)
    batch = make_batch(np_rng, (4, 7, 1, 8))
    params = sharp(draw(task, gate_bias=0.0), 20.0)
    found = compact(task.model, params, batch, capacity=6)
    for row, length in enumerate(batch["lengths"]):
        tokens, is_open = batch["tokens"][row, :length], found.gates[row, :length] > 0
        logits, of_open, _ = _oracle(params, tokens[is_open], np.ones(is_open.sum()))
        weights = np.zeros(length)
        weights[is_open] = of_open
        np.testing.assert_allclose(found.logits[row], logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.attention[row, :length], weights, rtol=1e-4, atol=1e-6)


def test_with_gates_on_the_input_it_is_the_text_without_its_closed_words(np_rng):
    task = make_task(test_gate="threshold", gates_on="input", empty="zeros")
    batch = make_batch(np_rng, (4, 7, 1, 0, 8))
    params = sharp(draw(task, gate_bias=0.0), 20.0)
    found = compact(task.model, params, batch, capacity=7)
    # a network whose gates are all open, on the words that are left
    rest, _ = deleted(batch, found.gates)
    again = compact(task.model, with_bias(params, 1e6), rest, capacity=7)
    np.testing.assert_allclose(found.logits, again.logits, **F32)


def test_what_has_no_single_draw_of_gates_is_refused(np_rng):
    batch = make_batch(np_rng)
    for config, message in (
        ({"system": "soft"}, "system must be 'ganet' for gates, got 'soft'"),
        ({}, "gates_on must be 'input' for compact"),
        (
            {"test_gate": "multi_sample", "gates_on": "input"},
            "test_gate must have a single draw .* 'multi_sample'",
        ),
    ):
        task = make_task(**config)
        params = jax.eval_shape(task.init, jax.random.key(0), batch)
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(lambda p, task=task: passed(task.model, p, batch, capacity=3), params)
    task = make_task(gates_on="input")
    params = jax.eval_shape(task.init, jax.random.key(0), batch)
    with pytest.raises(ValueError, match="capacity must be positive, got 0"):
        jax.eval_shape(lambda p: passed(task.model, p, batch, capacity=0), params)
