"""What is particular to the RAU; `test_recurrence` runs the suite of all recurrences on it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.test_util import check_grads

from gatedjax import functional as F
from tests.functional.rau_oracle import numpy_rau_step
from tests.tolerances import BF16, F32, F64

B, T, D, H, K = 3, 6, 4, 5, 7
MASK = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]], bool)
ATTENTIONS = ("feature_proj", "concat", "matrix", "time_causal", "sigmoid", "additive_relu")
# Form and whether its logits come from a tanh layer.
SMALL_FORMS = [("feature_proj", False), ("matrix", False), ("time_causal", True)]
FORMS = [
    *((name, name == "time_causal") for name in ATTENTIONS),
    ("feature_proj", True),
    ("sigmoid", True),
    ("additive_relu", True),
]
each_form = pytest.mark.parametrize(("attention", "inner"), FORMS)


def make(rng, attention, inner, dtype=jnp.float32, *, d=D, h=H, reset_after=False):
    """Weights of a form."""

    def draw(*shape):
        return jnp.asarray(rng.normal(size=shape) * 0.6, dtype)

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
    """Final hidden states and outputs, one row and one step at a time."""
    weights = jax.tree.map(np.asarray, weights)
    hidden, outputs = np.array(initial), np.zeros((*xs.shape[:2], initial.shape[1]))
    for row in range(len(xs)):
        past = []
        for t in range(xs.shape[1])[:: -1 if reverse else 1]:
            if mask[row, t]:
                step = functools.partial(numpy_rau_step, weights, hidden[row], past=past)
                hidden[row] = outputs[row, t] = step(np.asarray(xs[row, t]), drop[row], **options)
    return hidden, outputs


def state_for(attention, hidden):
    if attention != "time_causal":
        return hidden
    column = jnp.zeros_like(hidden[:, :1])
    return F.RAUTimeState(hidden, column - jnp.inf, column)


def hidden_of(carry):
    return carry.hidden if isinstance(carry, F.RAUTimeState) else carry


@each_form
@pytest.mark.parametrize(
    ("reverse", "rescale", "reset_after"), [(False, False, False), (True, True, True)]
)
@pytest.mark.usefixtures("x64")
def test_values_equal_a_numpy_loop(attention, inner, reverse, rescale, reset_after, np_rng):
    rescale = rescale and attention != "sigmoid"
    weights = make(np_rng, attention, inner, jnp.float64, reset_after=reset_after)
    xs, initial = jnp.asarray(np_rng.normal(size=(B, T, D))), np_rng.normal(size=(B, H))
    drop = np_rng.integers(0, 2, size=(B, H)) * 1.5
    options = {
        "attention": attention,
        "rescale": rescale,
        "reset_after": reset_after,
        "reverse": reverse,
    }
    final, outputs = jax.jit(functools.partial(F.rau, **options))(
        weights,
        xs,
        jnp.asarray(MASK),
        initial=state_for(attention, jnp.asarray(initial)),
        recurrent_dropout_mask=jnp.asarray(drop),
    )
    want_final, want = oracle(weights, xs, MASK, initial, drop, **options)
    np.testing.assert_allclose(outputs, want, **F64)
    np.testing.assert_allclose(hidden_of(final), want_final, **F64)


@each_form
@pytest.mark.usefixtures("x64")
def test_gradients_equal_finite_differences(attention, inner, np_rng):
    weights = make(np_rng, attention, inner, jnp.float64)
    xs = jnp.asarray(np_rng.normal(size=(2, 3, D)))
    mask = jnp.array([[True, True, True], [False, True, False]])

    initial = jnp.asarray(np_rng.normal(size=(2, H)))
    if attention == "time_causal":  # as if 2 steps had been before
        column = jnp.ones((2, 1))
        initial = F.RAUTimeState(initial, column * 0.3, column * 2)

    def loss(weights, xs, initial):
        final, outputs = F.rau(weights, xs, mask, initial=initial, attention=attention)
        return jnp.sum(jnp.sin(jnp.arange(outputs.size)).reshape(outputs.shape) * outputs) + (
            jnp.sum(hidden_of(final) ** 2)
        )

    arguments = (weights, xs, initial)
    check_grads(jax.jit(loss), arguments, order=1, modes=["rev"], rtol=1e-6, atol=1e-6)


@each_form
def test_padding_changes_no_value_and_no_gradient(attention, inner, np_rng):
    weights = make(np_rng, attention, inner)
    xs = jnp.asarray(np_rng.normal(size=(B, T, D)), jnp.float32)
    mask = jnp.asarray(MASK)

    def loss(weights, xs, mask):
        final, outputs = F.rau(weights, xs, mask, attention=attention)
        return jnp.sum(outputs**2) + jnp.sum(hidden_of(final)), (hidden_of(final), outputs)

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, want), grads = run(weights, xs, mask)
    padded = jnp.pad(jnp.where(mask[..., None], xs, 1e4), ((0, 0), (0, 2), (0, 0)))
    (_, got), padded_grads = run(weights, padded, jnp.pad(mask, ((0, 0), (0, 2))))
    np.testing.assert_array_equal(got[0][2], 0.0)
    np.testing.assert_array_equal(got[1][:, T:], 0.0)
    np.testing.assert_allclose(got[0], want[0], **F32)
    np.testing.assert_allclose(got[1][:, :T], want[1], **F32)
    for value, expected in zip(jax.tree.leaves(padded_grads), jax.tree.leaves(grads), strict=True):
        assert np.isfinite(value).all()
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(("steps", "width"), [(0, H), (1, H), (3, 1)])
def test_no_step_one_step_and_one_unit(attention, steps, width, np_rng):
    weights = make(np_rng, attention, attention == "time_causal", h=width)
    xs = jnp.asarray(np_rng.normal(size=(B, steps, D)), jnp.float32)
    final, outputs = F.rau(weights, xs, attention=attention)
    zeros, ones = np.zeros((B, width)), np.ones((B, width))
    options = {"attention": attention}
    want_final, want = oracle(weights, xs, np.ones((B, steps), bool), zeros, ones, **options)
    np.testing.assert_allclose(outputs, want, **F32)
    np.testing.assert_allclose(hidden_of(final), want_final, **F32)
    grads = jax.grad(lambda w: jnp.sum(F.rau(w, xs, attention=attention)[1]))(weights)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


def test_the_first_step_is_z_times_both_candidates_halved(np_rng):
    w = make(np_rng, "feature_proj", False)
    x = jnp.asarray(np_rng.normal(size=(B, D)), jnp.float32)
    _, z, c, a, u = jnp.split(x @ w.input + w.bias[None], 5, axis=1)
    want = jax.nn.sigmoid(z) * (jnp.tanh(c) + jnp.tanh(jax.nn.softmax(a) * u)) / 2
    got = F.rau_step(w, jnp.zeros((B, H)), x)
    np.testing.assert_allclose(got, want, **F32)
    other = w._replace(input=w.input.at[:, :H].add(1.0), bias=w.bias.at[:H].add(1.0))
    np.testing.assert_array_equal(F.rau_step(other, jnp.zeros((B, H)), x), got)  # no reset gate


def test_without_values_a_step_is_a_gru_with_half_the_candidate(np_rng):
    w = make(np_rng, "feature_proj", False)
    w = w._replace(**{k: getattr(w, k).at[..., 4 * H :].set(0.0) for k in w._fields[:3]})
    h, x = (jnp.asarray(np_rng.normal(size=(B, n)), jnp.float32) for n in (H, D))
    gru = F.GRUWeights(*(part[..., : 3 * H] for part in w[:3]))
    z = jax.nn.sigmoid((x @ w.input + h @ w.recurrent + w.bias[None])[:, H : 2 * H])
    want = (F.gru_step(gru, h, x) + (1 - z) * h) / 2
    np.testing.assert_allclose(F.rau_step(w, h, x), want, **F32)


def test_the_first_weight_of_time_causal_is_one(np_rng):
    w = make(np_rng, "time_causal", True)
    x = jnp.asarray(np_rng.normal(size=(B, D)), jnp.float32)
    carry = F.rau_step(w, state_for("time_causal", jnp.zeros((B, H))), x, attention="time_causal")
    _, z, c, u = jnp.split(x @ w.input + w.bias[None], 4, axis=1)
    want = jax.nn.sigmoid(z) * (jnp.tanh(c) + jnp.tanh(u)) / 2
    np.testing.assert_allclose(carry.hidden, want, **F32)
    np.testing.assert_array_equal(carry.steps, 1.0)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_states_stay_in_bounds_for_extreme_inputs(attention, np_rng):
    weights = make(np_rng, attention, attention == "time_causal")
    xs = jnp.asarray(np_rng.normal(size=(B, T, D)), jnp.float32) * 1e6
    mask = jnp.asarray(MASK)
    outputs = jax.jit(functools.partial(F.rau, attention=attention))(weights, xs, mask)[1]
    grads = jax.grad(lambda w, x: jnp.sum(F.rau(w, x, mask, attention=attention)[1]), (0, 1))(
        weights, xs
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((outputs, grads)))
    if attention != "additive_relu":
        assert np.abs(outputs).max() <= 1


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_non_finite_input_stays_in_its_row_and_after_its_step(attention, np_rng):
    weights = make(np_rng, attention, attention == "time_causal")
    xs = np_rng.normal(size=(B, T, D)).astype(np.float32)
    run = jax.jit(functools.partial(F.rau, weights, attention=attention))
    want = run(jnp.asarray(xs))[1]
    xs[1, 3] = [np.nan, np.inf, -np.inf, 0]
    got = np.array(run(jnp.asarray(xs))[1])
    assert not np.isfinite(got[1, 3]).all()
    got[1, 3:] = want[1, 3:]
    np.testing.assert_array_equal(got, want)


@each_form
def test_bfloat16_inputs_stay_close_with_float32_carries(attention, inner, np_rng):
    weights = make(np_rng, attention, inner)
    xs = jnp.asarray(np_rng.normal(size=(B, T, D)), jnp.float32)
    run = jax.jit(functools.partial(F.rau, weights, mask=jnp.asarray(MASK), attention=attention))
    final, outputs = run(xs.astype(jnp.bfloat16))
    want_final, want = run(xs)
    assert outputs.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(final)} == {jnp.dtype(jnp.float32)}
    np.testing.assert_allclose(outputs.astype(jnp.float32), want, **BF16)
    np.testing.assert_allclose(hidden_of(final), hidden_of(want_final), **BF16)


def test_bfloat16_drifts_little_over_5000_steps(np_rng):
    weights = jax.tree.map(lambda w: w * 0.5, make(np_rng, "feature_proj", False))
    xs = jnp.asarray(np_rng.normal(size=(2, 5000, D)), jnp.float32)
    low = jax.jit(F.rau)(weights, xs.astype(jnp.bfloat16))[0]
    np.testing.assert_allclose(low, jax.jit(F.rau)(weights, xs)[0], atol=1e-2)


@pytest.mark.parametrize(("attention", "inner"), SMALL_FORMS)
def test_vmap_equals_a_loop(attention, inner, np_rng):
    many = [make(np_rng, attention, inner) for _ in range(2)]
    xs = jnp.asarray(np_rng.normal(size=(B, T, D)), jnp.float32)

    def loss(weights):
        return jnp.sum(F.rau(weights, xs, jnp.asarray(MASK), attention=attention)[1] ** 2)

    got = jax.jit(jax.vmap(jax.grad(loss)))(jax.tree.map(lambda *w: jnp.stack(w), *many))
    for k, weights in enumerate(many):
        want = jax.jit(jax.grad(loss))(weights)
        for value, expected in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(value[k], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["feature_proj", "time_causal"])
def test_sharded_and_pmapped_batches_give_the_same_numbers(attention, np_rng):
    weights = make(np_rng, attention, attention == "time_causal")
    xs = jnp.asarray(np_rng.normal(size=(16, T, D)), jnp.float32)
    mask = jnp.asarray(np_rng.integers(0, 2, size=(16, T)), bool)

    def loss(weights, xs, mask):
        return jnp.sum(F.rau(weights, xs, mask, attention=attention)[1] ** 2)

    want = jax.jit(jax.grad(loss))(weights, xs, mask)
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
    parts = (jax.device_put(xs, rows), jax.device_put(mask, rows))
    got = jax.jit(jax.grad(loss))(weights, *parts)
    split = (part.reshape(8, 2, *part.shape[1:]) for part in (xs, mask))
    each = jax.pmap(jax.grad(loss), in_axes=(None, 0, 0))(weights, *split)
    for g, e, w in zip(*map(jax.tree.leaves, (got, each, want)), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(np.sum(np.asarray(e), 0), w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["concat", "time_causal"])
def test_a_carried_state_continues_and_both_directions_stack(attention, np_rng):
    weights = make(np_rng, attention, attention == "time_causal")
    xs = jnp.asarray(np_rng.normal(size=(B, T, D)), jnp.float32)
    run = functools.partial(F.rau, attention=attention)
    final, outputs = run(weights, xs)
    middle, first = run(weights, xs[:, :2])
    last, second = run(weights, xs[:, 2:], initial=middle)
    np.testing.assert_allclose(np.concatenate([first, second], 1), outputs, **F32)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **F32), last, final)
    _, both = F.bidirectional(run, weights, weights, xs)
    back = run(weights, xs[:, ::-1])[1][:, ::-1]
    np.testing.assert_allclose(both, np.concatenate([outputs, back], -1), **F32)


def test_the_literal_softmax_over_all_steps_is_refused_with_a_reason(np_rng):
    weights = make(np_rng, "feature_proj", False)
    with pytest.raises(ValueError, match=r"not causal and cannot be computed.*'time_causal'"):
        F.rau(weights, jnp.ones((B, T, D)), attention="time")


@pytest.mark.parametrize(
    ("attention", "options", "error", "message"),
    [
        ("other", {}, ValueError, "attention must be one of .*time_causal.*, got 'other'"),
        ("sigmoid", {"rescale": True}, ValueError, "rescale must be False .*sigmoid"),
        ("feature_proj", {"rescale": np.inf}, TypeError, "rescale must be True or False, got inf"),
        ("feature_proj", {"reset_after": 1}, TypeError, "reset_after must be True or False, got 1"),
        ("concat", {}, TypeError, "weights must be RAUConcatWeights .* got RAUWeights"),
        ("time_causal", {}, TypeError, "weights must be RAUHiddenWeights .* got RAUWeights"),
    ],
)
def test_bad_options_are_named(attention, options, error, message, np_rng):
    weights = make(np_rng, "feature_proj", False)
    with pytest.raises(error, match=message):
        F.rau(weights, jnp.ones((B, T, D)), attention=attention, **options)
    with pytest.raises(error, match=message):
        F.rau_step(weights, jnp.ones((B, H)), jnp.ones((B, D)), attention=attention, **options)


@pytest.mark.parametrize(
    ("attention", "field", "shape"),
    [
        ("concat", "value", (D + H, D)),
        ("concat", "score", (D, D + H)),
        ("matrix", "affinity", (H,)),
        ("time_causal", "hidden", (H, K)),
        ("time_causal", "hidden", ()),
        ("time_causal", "score", (K, H)),
    ],
)
def test_weights_of_the_wrong_shape_are_named(attention, field, shape, np_rng):
    weights = make(np_rng, attention, attention == "time_causal")
    weights = weights._replace(**{field: jnp.ones(shape)})
    with pytest.raises(ValueError, match=rf"{field}\w* must have shape"):
        F.rau(weights, jnp.ones((B, T, D)), attention=attention)


def test_carries_of_the_wrong_kind_and_no_units_are_refused(np_rng):
    xs, hidden = jnp.ones((B, T, D)), jnp.ones((B, H))
    plain, timed = make(np_rng, "sigmoid", False), make(np_rng, "time_causal", True)
    state = state_for("time_causal", hidden)
    with pytest.raises(TypeError, match=r"initial must be an array .* got RAUTimeState"):
        F.rau(plain, xs, initial=state)
    with pytest.raises(TypeError, match="initial must be a RAUTimeState"):
        F.rau(timed, xs, initial=hidden, attention="time_causal")
    with pytest.raises(ValueError, match=r"initial.log_norm must have shape \(3, 1\)"):
        F.rau(timed, xs, initial=state._replace(log_norm=hidden), attention="time_causal")
    with pytest.raises(ValueError, match="hidden width of at least 1"):
        F.rau(make(np_rng, "feature_proj", False, h=0), xs)
