"""What is particular to the RAU; `test_recurrence` runs the suite of all recurrences on it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from tests._slow import slow_but
from tests.functional.passes import check_gradients, close, draw_like, passes
from tests.functional.rau_oracle import numpy_rau_step
from tests.tolerances import BF16, F32, F64

B, T, D, H, K = 3, 6, 4, 5, 7
MASK = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]], bool)
ATTENTIONS = ("feature_proj", "concat", "matrix", "time_causal", "sigmoid", "additive_relu")
# Form and whether its logits come from a tanh layer.
PLAIN_FORMS = [(name, name == "time_causal") for name in ATTENTIONS]
SMALL_FORMS = [("feature_proj", False), ("matrix", False), ("time_causal", True)]
FORMS = [*PLAIN_FORMS, ("feature_proj", True), ("sigmoid", True), ("additive_relu", True)]
each_form = pytest.mark.parametrize(("attention", "inner"), slow_but(FORMS, *SMALL_FORMS))
each_plain_form = pytest.mark.parametrize(
    ("attention", "inner"), slow_but(PLAIN_FORMS, *SMALL_FORMS)
)
# reverse, rescale, reset_after
VARIANTS = [(False, False, False), (True, True, True)]
each_variant = pytest.mark.parametrize(("reverse", "rescale", "reset_after"), VARIANTS)
# steps and width, without a mask, a dropout mask or an initial state
SHAPES = [(0, H), (3, 1)]


def make(rng, attention, inner, dtype=np.float32, *, d=D, h=H, reset_after=False):
    """Weights of a form."""

    def draw(*shape):
        return (rng.normal(size=shape) * 0.6).astype(dtype)

    def core(blocks):
        return {
            "input": draw(d, blocks * h),
            "recurrent": draw(h, blocks * h),
            "bias": draw(blocks * h),
            "recurrent_bias": draw(h) if reset_after else None,
        }

    if inner:
        s = 1 if attention == "time_causal" else h
        score = {"score": draw(K, s), "score_bias": draw(s)}
        return F.RAUHiddenWeights(**core(4), hidden=draw(d + h, K), hidden_bias=draw(K), **score)
    score = {"score": draw(d + h, d + h), "score_bias": draw(d + h)}
    if attention == "concat":
        return F.RAUConcatWeights(**core(3), **score, value=draw(d + h, h), value_bias=draw(h))
    if attention == "matrix":
        return F.RAUMatrixWeights(**core(3), **score, affinity=draw(h, d + h))
    return F.RAUWeights(**core(5))


def oracle(weights, xs, mask, initial, drop, *, reverse=False, **options):
    """Final carry and outputs, one row and one step at a time; analytic."""
    kind = np.result_type(*jax.tree.leaves((weights, xs, initial, drop)))
    timed = isinstance(initial, F.RAUTimeState)
    final = jax.tree.map(lambda leaf: np.array(leaf, kind), initial)
    hidden, outputs = hidden_of(final), np.zeros((*xs.shape[:2], hidden_of(initial).shape[1]), kind)
    for row in range(len(xs)):
        # one logit stands for the steps before, which were so many
        past = [final.log_norm[row]] if timed else []
        more = final.steps[row, 0] - 1 if timed else 0
        for t in range(xs.shape[1])[:: -1 if reverse else 1]:
            if mask[row, t]:
                step = functools.partial(numpy_rau_step, weights, hidden[row], past=past, more=more)
                hidden[row] = outputs[row, t] = step(xs[row, t], drop[row], **options)
        if timed and len(past) > 1:
            top = np.max(np.ravel(past))
            final.log_norm[row] = top + np.log(np.sum(np.exp(np.ravel(past) - top)))
            final.steps[row] = more + len(past)
    return final, outputs


def state_for(attention, hidden, log_norm=-np.inf, steps=0.0):
    if attention != "time_causal":
        return hidden
    column = np.ones_like(hidden[:, :1])
    return F.RAUTimeState(hidden, column * log_norm, column * steps)


def hidden_of(carry):
    return carry.hidden if isinstance(carry, F.RAUTimeState) else carry


@functools.cache
def single(attention):
    """The passes of one form in float32, that of bfloat16 inputs and p, in one program."""
    unroll = functools.partial(F.rau, attention=attention)
    weigh = functools.partial(F.rau_attention, attention=attention)

    @jax.jit
    def run(arguments, mask, cotangents):
        weights, xs, *rest = arguments
        low = (weights, xs.astype(jnp.bfloat16), mask)
        narrow = unroll(*low, initial=rest[0], recurrent_dropout_mask=rest[1])
        p = weigh(weights, xs, mask, rescale=attention != "sigmoid")
        return *passes(unroll, arguments, mask, cotangents), narrow, p

    return run


@functools.cache
def double(attention):
    """The passes of both variants and of all small shapes in float64, in one program."""

    def options_of(variant):
        reverse, rescale, reset_after = variant
        rescale = rescale and attention != "sigmoid"
        return {"reverse": reverse, "rescale": rescale, "reset_after": reset_after}

    @jax.jit
    def run(variants, shapes):
        found = {
            variant: passes(
                functools.partial(F.rau, attention=attention, **options_of(variant)), *a
            )
            for variant, a in variants.items()
        }
        small = {}
        for shape, (weights, xs, cotangents) in shapes.items():
            call = functools.partial(F.rau, attention=attention)
            result, pull = jax.vjp(call, weights, xs)
            small[shape] = result, pull(cotangents)
        return found, small

    return run, options_of


@functools.cache
def solved(attention, inner):
    """Arguments, results and the oracle of every variant and shape, in float64."""
    rng = np.random.default_rng(0)
    run, options_of = double(attention)
    variants, shapes, oracles = {}, {}, {}
    for variant in VARIANTS:
        weights = make(rng, attention, inner, np.float64, reset_after=variant[2])
        # the second time as if 2 steps had been before
        before = {"log_norm": 0.3, "steps": 2.0} if variant[0] else {}
        initial = state_for(attention, rng.normal(size=(B, H)), **before)
        arguments = (weights, rng.normal(size=(B, T, D)), initial)
        arguments += (rng.integers(0, 2, size=(B, H)) * 1.5,)
        cotangents = draw_like((initial, rng.normal(size=(B, T, H))), rng)
        if attention == "time_causal" and not before:  # a row without steps stays at -inf
            column = np.zeros((B, 1))
            cotangents = (F.RAUTimeState(cotangents[0].hidden, column, column), cotangents[1])
        variants[variant] = (arguments, MASK, cotangents)
        oracles[variant] = functools.partial(
            lambda w, x, i, d, **o: oracle(w, x, MASK, i, d, attention=attention, **o),
            **options_of(variant),
        )
    for steps, width in SHAPES:
        weights = make(rng, attention, inner, np.float64, h=width)
        xs, hidden = rng.normal(size=(B, steps, D)), np.zeros((B, width))
        zeros = jax.tree.map(np.zeros_like, state_for(attention, hidden, 0.0))
        shapes[steps, width] = (weights, xs, (zeros, rng.normal(size=(B, steps, width))))
    with jax.enable_x64(True):
        found, small = jax.tree.map(np.asarray, run(variants, shapes))
    return variants, oracles, found, shapes, small


@pytest.mark.slow
@each_form
@each_variant
def test_values_equal_a_numpy_loop(attention, inner, reverse, rescale, reset_after):
    key = (reverse, rescale, reset_after)
    variants, oracles, found, *_ = solved(attention, inner)
    want = oracles[key](*variants[key][0])
    for got in found[key][:2]:
        assert got[1].dtype == np.float64
        close(got, want, **F64)


@each_form
@each_variant
def test_gradients_equal_complex_steps(attention, inner, reverse, rescale, reset_after, np_rng):
    key = (reverse, rescale, reset_after)
    variants, oracles, found, *_ = solved(attention, inner)
    arguments, mask, cotangents = variants[key]
    gradients = found[key][2]
    if attention == "time_causal" and not reverse:  # -inf has no neighbours to step to
        zeros = np.zeros((B, 1))
        initial = gradients[2]._replace(log_norm=zeros, steps=zeros)
        gradients = (*gradients[:2], initial, gradients[3])
    check_gradients(gradients, oracles[key], arguments, cotangents, np_rng, **F64)
    np.testing.assert_array_equal(gradients[1][~mask], 0.0)
    if attention == "time_causal" and not reverse:  # the bias shifts all scores alike
        np.testing.assert_allclose(gradients[0].score_bias, 0.0, atol=1e-12)
        gradients = (gradients[0]._replace(score_bias=None), *gradients[1:])
    for leaf in jax.tree.leaves((gradients[:2], gradients[3])):
        assert np.abs(leaf).max() > 1e-6


def ordinary(rng, attention, inner):
    """Arguments of `single` from the state that None stands for, and cotangents of ones."""
    initial = state_for(attention, np.zeros((B, H), np.float32))
    xs = rng.normal(size=(B, T, D)).astype(np.float32)
    drop = np.ones((B, H), np.float32)
    arguments = (make(rng, attention, inner), xs, initial, drop)
    zeros = jax.tree.map(np.zeros_like, initial)
    return arguments, (zeros, np.ones((B, T, H), np.float32))


@pytest.mark.parametrize(("steps", "width"), SHAPES)
@each_plain_form
def test_no_step_and_one_unit(steps, width, attention, inner, np_rng):
    *_, shapes, small = solved(attention, inner)
    weights, xs, cotangents = shapes[steps, width]
    got, gradients = small[steps, width]

    def run(weights, xs):
        initial, ones = state_for(attention, np.zeros((B, width))), np.ones((B, width))
        mask = np.ones((B, steps), bool)
        return oracle(weights, xs, mask, initial, ones, attention=attention)

    close(got, run(weights, xs), **F64)
    check_gradients(gradients, run, (weights, xs), cotangents, np_rng, **F64)


@pytest.mark.slow
@each_plain_form
def test_states_stay_in_bounds_for_extreme_inputs(attention, inner, np_rng):
    (weights, xs, *rest), cotangents = ordinary(np_rng, attention, inner)
    found = single(attention)((weights, xs * np.float32(1e6), *rest), MASK, cotangents)
    (_, outputs), (_, again), gradients, *_ = jax.tree.map(np.asarray, found)
    leaves = jax.tree.leaves((outputs, again, gradients[:2], hidden_of(gradients[2]), gradients[3]))
    assert all(np.isfinite(leaf).all() for leaf in leaves)
    if attention != "additive_relu":
        assert np.abs(outputs).max() <= 1


@each_plain_form
def test_a_non_finite_input_stays_in_its_row_and_after_its_step(attention, inner, np_rng):
    (weights, xs, *rest), cotangents = ordinary(np_rng, attention, inner)
    run, full = single(attention), np.ones_like(MASK)
    want = np.asarray(run((weights, xs, *rest), full, cotangents)[0][1])
    xs[1, 3] = [np.nan, np.inf, -np.inf, 0]
    got = np.array(run((weights, xs, *rest), full, cotangents)[0][1])
    assert not np.isfinite(got[1, 3]).all()
    got[1, 3:] = want[1, 3:]
    np.testing.assert_array_equal(got, want)


@each_plain_form
def test_bfloat16_inputs_stay_close_and_the_attention_shown_is_that_of_the_loop(
    attention, inner, np_rng
):
    arguments, cotangents = ordinary(np_rng, attention, inner)
    (want_final, want), *_, (final, outputs), p = single(attention)(arguments, MASK, cotangents)
    rows = []
    options = {"attention": attention, "rescale": attention != "sigmoid", "shown": rows}
    oracle(arguments[0], arguments[1], MASK, *arguments[2:], **options)
    np.testing.assert_allclose(p[MASK], rows, **F32)
    np.testing.assert_array_equal(p[~MASK], 0)
    assert outputs.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(final)} == {jnp.dtype(np.float32)}
    np.testing.assert_allclose(np.asarray(outputs, np.float32), want, **BF16)
    np.testing.assert_allclose(hidden_of(final), hidden_of(want_final), **BF16)


def test_bfloat16_drifts_little_over_5000_steps(np_rng):
    weights = jax.tree.map(lambda w: w * np.float32(0.5), make(np_rng, "feature_proj", False))
    xs = np_rng.normal(size=(2, 5000, D)).astype(np.float32)
    low, high = jax.jit(lambda w, x: (F.rau(w, x.astype(jnp.bfloat16))[0], F.rau(w, x)[0]))(
        weights, xs
    )
    np.testing.assert_allclose(low, high, atol=1e-2)


@pytest.mark.parametrize("attention", ["concat", "time_causal"])
def test_a_carried_state_continues_and_both_directions_stack(attention, np_rng):
    (weights, xs, *rest), cotangents = ordinary(np_rng, attention, attention == "time_causal")
    unroll = functools.partial(F.rau, attention=attention)
    full = np.ones((B, T), bool)
    final, outputs = single(attention)((weights, xs, *rest), full, cotangents)[0]

    @jax.jit
    def run(weights, xs):
        middle, first = unroll(weights, xs[:, :2])
        last, second = unroll(weights, xs[:, 2:], initial=middle)
        both = F.bidirectional(unroll, weights, weights, xs)[1]
        back = unroll(weights, xs[:, ::-1])[1][:, ::-1]
        return last, first, second, both, back

    last, first, second, both, back = run(weights, xs)
    np.testing.assert_allclose(np.concatenate([first, second], 1), outputs, **F32)
    close(last, final, **F32)
    np.testing.assert_allclose(both, np.concatenate([outputs, back], -1), **F32)
