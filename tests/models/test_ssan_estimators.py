"""Training SSAN by any estimator: the old names, the exact gradient, a density that is held."""

import contextlib
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax import functional as F
from gatedjax import nn
from gatedjax.gates import ByValues, DisARM, Pathwise, Reinforce, ReinMax, _registry
from gatedjax.gates._registry import KINDS, NOT_OF_PAIRS, create_estimator
from gatedjax.gates._score import MultiPass
from gatedjax.training import init_state, make_train_step
from tests._drawn import drawn
from tests.models._losses import make, ssan_nli, ssan_probe, ssan_tagger, total_loss
from tests.models._passes import RNGS, in_numpy

N = 2
LENGTHS = np.array([2, 1], np.int32)
TINY = {"filter_size": 4, "num_heads": 1}
SILENT = {"dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}


@functools.cache
def batch():
    rows = {
        "tokens": np.array([[3, 5], [2, 0]]),
        "lengths": LENGTHS,
        "hypothesis": np.array([[4, 2], [6, 0]]),
        "hypothesis_lengths": LENGTHS,
        "is_predicate": np.array([[0, 1], [1, 0]]),
        "labels": np.array([[2, 0], [1, 0]]),
        "label": np.array([1, 0]),
        "example_id": np.array([5, 8]),
    }
    rows = {name: value.astype(np.int32) for name, value in rows.items()}
    return rows | {"weight": np.ones(2, np.float32)}


def probe(**options):
    return ssan_probe(**TINY | {"num_layers": 2, "head_hidden": ()} | SILENT | options)


def tagger(**options):
    return ssan_tagger(**TINY | {"num_layers": 2} | SILENT | options)


def nli(**options):
    return ssan_nli(**{"dropout": 0.0} | options)


MAKERS = {"probe": probe, "tagger": tagger, "nli": nli}


@functools.cache
def parameters(task):
    return drawn(task.init, batch(), std=0.5)


@pytest.mark.slow
def test_a_layer_takes_an_estimator_as_it_takes_its_name():
    words = np.ones((2, 3, 4), np.float32)

    def program_of(selector):
        layer = nn.SelectiveSelfAttention(num_heads=2, selector=selector)
        variables = jax.eval_shape(layer.init, jax.random.key(0), words)
        run = functools.partial(layer.apply, deterministic=False, rngs=RNGS)
        return str(jax.make_jaxpr(run)(variables, words))

    assert program_of("reinmax") == program_of(ReinMax())
    names = KINDS.keys() - NOT_OF_PAIRS
    assert len({program_of(name) for name in names}) == len(names)
    with pytest.raises(ValueError, match=r"selector must be .* or a gates.Pathwise, got DisARM"):
        program_of(DisARM())
    with pytest.raises(ValueError, match=r"selector must be .*'disarm'.*got 'rebar'"):
        program_of("rebar")


class Forced:
    """Draws that open and close the gates of a pass as a pattern says, layer by layer."""

    def __init__(self, pattern):
        self.left = iter(pattern)

    def __call__(self, keys, heads, queries, size):
        gates = next(self.left)[queries][:, :size]
        uniform = jnp.where(gates > 0, 1 - 1e-7, 1e-7)
        return jnp.broadcast_to(uniform, (len(keys), heads, *gates.shape))

    @contextlib.contextmanager
    def watched(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(F, "pair_uniform", self)
            yield


def by_patterns(name, options):
    """(Expected loss, its gradient): the network under every selection, each with its probability.

    The gates are forced, and constant.
    """
    task = MAKERS[name](**options | {"estimator": "leave_one_out"})
    params = parameters(task)
    layers = 2 if name == "nli" else len(task.model.config.gates.selective)
    every = np.array(list(itertools.product((0.0, 1.0), repeat=layers * N * N)), np.float32)
    rows = {key: jnp.asarray(value) for key, value in batch().items()}
    real = np.arange(N) < LENGTHS[:, None]
    pairs = real[:, None, :, None] & real[:, None, None, :]

    def weighed(params, pattern):
        """Losses of all examples under one selection, times its probability, and the latter."""
        forced = Forced(pattern)
        with forced.watched():
            one = task._run_pass(params, rows, RNGS)
        assert next(forced.left, None) is None
        log_probability = jnp.zeros(2)
        selected = [each for each in task._selections(one.output) if each.logits is not None]
        for selection, gates in zip(selected, pattern, strict=True):
            signs = jnp.where(gates > 0, 1.0, -1.0)[None, None]
            each = jax.nn.log_sigmoid(signs * selection.logits)
            # gates of padding are tossed, so that all patterns together have probability 1
            each = jnp.where(pairs, each, -jnp.log(2.0))
            log_probability = log_probability + jnp.sum(each, axis=(1, 2, 3))
        probability = jnp.exp(log_probability)
        return probability * one.total, probability

    def total(params):
        losses, chances = jax.vmap(weighed, (None, 0))(params, every.reshape(-1, layers, N, N))
        return jnp.sum(losses), jnp.sum(chances, axis=0)

    found = jax.jit(jax.value_and_grad(total, has_aux=True))(params)
    (value, chances), gradient = jax.tree.map(np.asarray, found)
    np.testing.assert_allclose(chances, 1, rtol=1e-5)
    return value, gradient


def directions(params):
    """What gradients are read along: all parameters, the selectors' alone, the multiplier."""
    rng = np.random.default_rng(3)
    whole = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), params)

    def only(word):
        return jax.tree.map_with_path(lambda path, x: x * (word in str(path)), whole)

    return [whole, only("selector_query"), only("selector_key"), only("multiplier")]


def along(gradient, direction):
    return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, direction)))


CASES = [
    (
        "probe",
        {"select_layers": (2,), "selected_weight": 0.2},
        {"estimator": "arm", "block": 1, "remat": True},
    ),
    (
        "tagger",
        {"select_layers": (1, 2), "density": 0.3, "entropy_weight": 0.3},
        {"estimator": "leave_one_out", "estimator_draws": 3},
    ),
    ("nli", {"t2t": "multi_dim", "density": 0.6}, {"estimator": "disarm"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shared", "own"), CASES)
def test_unbiased_estimators_train_by_the_exact_gradient_in_the_mean(name, shared, own):
    task = MAKERS[name](**shared, **own)
    params = parameters(task)
    lines = directions(params)
    value, gradient = by_patterns(name, shared)

    def one(key):
        cost = lambda p: total_loss(task, p, batch(), RNGS | {"gate": key})  # noqa: E731
        (found, metrics), slope = jax.value_and_grad(cost, has_aux=True)(params)
        # that of words has no terms of the selector
        metric = found if task.by_word else metrics["loss"].total
        return jnp.stack([found, *(along(slope, line) for line in lines)]), metric

    keys = jax.random.split(jax.random.key(3), 1500)
    drawn_values, metric = (np.asarray(x, np.float64) for x in jax.jit(jax.vmap(one))(keys))
    np.testing.assert_allclose(metric, drawn_values[:, 0], rtol=1e-5)
    truth = np.array([value, *(along(gradient, line) for line in lines)])
    error = drawn_values.std(axis=0, ddof=1) / np.sqrt(len(keys))
    assert (error[:4] > 0).all()
    off = np.abs(drawn_values.mean(axis=0) - truth)
    np.testing.assert_array_less(off, 4.5 * error + 1e-6)


@pytest.mark.slow
def test_the_passes_of_an_estimate_differ_in_the_selections_alone():
    """Where nothing depends on these, no draw of dropout does as if something did."""
    rates = dict.fromkeys(SILENT, 0.3)
    task = probe(estimator="leave_one_out", **rates)
    params = parameters(task)
    blind = jax.tree.map(np.array, params)
    blind["encoder"]["layer_1"]["attention"]["out"]["kernel"][:] = 0

    def slope(params, key):
        gradient = jax.grad(lambda p: total_loss(task, p, batch(), RNGS | {"gate": key})[0])(params)
        return gradient["encoder"]["layer_1"]["attention"]["selector_query"]["kernel"]

    slopes = jax.jit(jax.vmap(slope, in_axes=(None, 0)))
    keys = jax.random.split(jax.random.key(4), 8)
    assert np.abs(slopes(params, keys)).max() > 1e-3
    np.testing.assert_allclose(slopes(blind, keys), 0, atol=1e-7)


@pytest.mark.slow
def test_the_multiplier_is_a_parameter_where_a_density_is_held():
    assert "multiplier" not in parameters(nli())
    task = nli(density=0.2)
    params = parameters(task)
    assert params["multiplier"].shape == ()
    slopes = functools.partial(jax.value_and_grad, has_aux=True)
    call = in_numpy(lambda t, p: slopes(functools.partial(total_loss, t))(p, batch(), RNGS))
    (total, metrics), gradient = call(task, params)
    rest = {key: value for key, value in params.items() if key != "multiplier"}
    (plain, others), _ = call(nli(), rest)
    # the logits of evaluation, which nothing before the first selection changes
    output = in_numpy(lambda t, p: t.model.apply({"params": p}, batch()))(task, params)
    term = gap = 0.0
    for row, length in enumerate(LENGTHS):
        shares = [
            np.mean(1 / (1 + np.exp(-one.logits[row, 0, :length, :length].astype(np.float64))))
            for one in task._selections(output)
            if one.logits is not None
        ]
        off = np.mean(shares) - 0.2
        term, gap = term + (float(params["multiplier"]) + off) * off, gap + off
    np.testing.assert_allclose(total - plain, term, rtol=1e-4)
    # descent on it is ascent: the multiplier rises while too much is open
    np.testing.assert_allclose(gradient["multiplier"], -gap, rtol=1e-5)
    multiplier = metrics.pop("multiplier")
    np.testing.assert_allclose(multiplier.total / multiplier.count, params["multiplier"])
    assert metrics.keys() == others.keys()


def texts():
    """Four texts of up to six words for training."""
    rng = np.random.default_rng(1)
    lengths = np.array([6, 5, 6, 4], np.int32)
    tokens = rng.integers(2, 7, (4, 6)) * (np.arange(6) < lengths[:, None])
    ids = np.arange(4, dtype=np.int32)
    rows = {"tokens": tokens.astype(np.int32), "lengths": lengths, "label": ids % 2}
    return rows | {"example_id": ids, "weight": np.ones(4, np.float32)}


@functools.partial(jax.jit, static_argnums=(0, 1, 3))
def learn(task, tx, batch, steps, key):
    """(parameters, metrics of the last step)."""
    step = make_train_step(task, tx)
    state = init_state(task, tx, key, batch)
    state, metrics = jax.lax.scan(
        lambda state, _: step(state, batch, jax.random.key(1)), state, None, length=steps
    )
    return state.params, jax.tree.map(lambda values: values[-1], metrics)


@pytest.mark.slow
def test_training_reaches_the_density():
    shares = {}
    for density in (0.2, None):
        task = probe(density=density, num_layers=1, hidden=8, filter_size=8, num_heads=2)
        params, metrics = learn(task, optax.adam(3e-3), texts(), 1000, jax.random.key(0))
        output = in_numpy(lambda t, p: t.model.apply({"params": p}, texts()))(task, params)
        shares[density] = output.selections[0].probability.mean()
        assert ("multiplier" in metrics) == (density is not None)
    np.testing.assert_allclose(shares[0.2], 0.2, atol=0.05)
    assert abs(shares[None] - 0.2) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ssan_reordering", "ssan_translation", "ssan_tagger"])
def test_every_task_can_be_trained_by_values_of_its_loss(name):
    layers = {"num_layers": 2, "select_layers": (1, 2)}
    case = make(name, estimator="leave_one_out", density=0.2, **layers)
    cost = jax.value_and_grad(lambda p: total_loss(case.task, p, case.batch, RNGS), has_aux=True)
    (total, metrics), gradient = jax.eval_shape(cost, case.shapes)
    assert total.shape == ()
    assert {"multiplier", "selected_1", "selected_2"} < metrics.keys()
    _, predictions = jax.eval_shape(case.task.evaluate, case.shapes, case.batch)
    # examples, layers and heads
    assert predictions["selected_heads"].shape == predictions["empty_heads"].shape == (4, 2, 2)
    assert jax.tree.map(jnp.shape, gradient) == jax.tree.map(jnp.shape, case.shapes)


@pytest.mark.slow
def test_a_named_estimator_trains_pairs_or_is_refused():
    class ByOneValue(ByValues):
        """An estimator of a new class, for which a network of pairs has no gradient."""

    entry = _registry.ESTIMATORS[0]
    assert _registry.why_not_of_pairs(entry) == ""
    assert "no derivative" in _registry.why_not_of_pairs(entry._replace(kind=ByOneValue))
    able = {name for name in KINDS if name not in NOT_OF_PAIRS}
    trained = Pathwise | MultiPass | Reinforce
    assert {name for name in able if isinstance(create_estimator(name), trained)} == able
    assert able >= {"st_gumbel", "leave_one_out", "disarm", "reinforce", "hard_kuma"}
