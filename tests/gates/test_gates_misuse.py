"""Bad input is refused by name, with what came and what it would cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from tests.gates._cases import ESTIMATORS, name

KEY = jax.random.key(0)
ZEROS = np.zeros(3, np.float32)


def total(g):
    return jnp.sum(g)


def traced(loss, estimator, logits=ZEROS, **options):
    """The checks that are made while tracing, and nothing else."""
    return jax.eval_shape(lambda a: gates.expectation(loss, estimator)(a, KEY, **options), logits)


@pytest.mark.parametrize("tau", [0.0, -1.0, np.inf, np.nan])
@pytest.mark.parametrize(
    "estimator", [gates.SoftGumbel, gates.STGumbel, gates.Rebar, gates.HardConcrete]
)
def test_a_temperature_that_is_not_positive_is_refused(estimator, tau):
    with pytest.raises(ValueError, match="tau must be positive and finite"):
        estimator(tau=tau)


@pytest.mark.parametrize("eta", [np.inf, np.nan])
def test_a_weight_that_is_not_finite_is_refused(eta):
    with pytest.raises(ValueError, match="eta must be finite, got"):
        gates.Rebar(eta=eta)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (gates.DisARM, r"got the class DisARM: write DisARM\(\)"),
        ("disarm", "members unbiased, needs_gradient, rows, evaluations, surrogate .*got 'disarm'"),
    ],
)
def test_what_is_no_estimator_is_refused(estimator, words):
    with pytest.raises(ValueError, match=f"^estimator must .*{words}"):
        gates.expectation(total, estimator)
    with pytest.raises(ValueError, match=f"^estimator must .*{words}"):
        gates.report(total, ZEROS, [estimator], key=KEY)


class Own:
    """An estimator as far as its members go."""

    unbiased, needs_gradient, rows = True, False, 2

    def evaluations(self, n):
        return 2

    def surrogate(self, objective, logits, noise):
        return objective.values((logits[None] + noise > 0).astype(logits.dtype))


@pytest.mark.parametrize(
    ("member", "value", "kind"),
    [
        ("rows", lambda self: 2, "a value, got a method"),
        ("needs_gradient", lambda self: False, "a value, got a method"),
        ("evaluations", 2, "a method"),
    ],
)
def test_members_of_another_kind_are_refused(member, value, kind):
    changed = type("Changed", (Own,), {member: value})
    with pytest.raises(ValueError, match=f"^estimator.{member} must be {kind}"):
        gates.expectation(total, changed())


class Patterns(gates.ByValues):
    """An estimator whose patterns have a wrong shape."""

    def __init__(self, shape):
        self.shape = shape

    def patterns(self, logits, noise):
        return jnp.ones(self.shape)

    def gradient(self, logits, noise, patterns, values):
        return logits


@pytest.mark.parametrize("shape", [(3,), (0, 3), (2, 4), (1, 2, 3)])
def test_patterns_of_another_shape_are_refused_before_the_loss_is_computed(shape):
    words = r"patterns of the estimator must have shape \(k, 3\), a row for each"
    with pytest.raises(ValueError, match=words):
        traced(total, Patterns(shape))
    keys, logits = jax.random.split(KEY, 2), np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match=words):
        gates.train(Patterns(shape), logits, keys, lambda g: (g.sum(-1), None))


def test_estimators_that_a_report_cannot_use_are_refused_by_name():
    def report(estimators):
        return gates.report(total, ZEROS, estimators, key=KEY, draws=2)

    with pytest.raises(TypeError, match=r"must be a list, got DisARM\(\): write \[DisARM\(\)\]"):
        report(gates.DisARM())
    with pytest.raises(TypeError, match=r"must be hashable, got Reinforce.*frozen=True"):
        report([gates.Reinforce(np.zeros(1, np.float32))])


def test_an_estimate_that_is_no_scalar_is_refused():
    with pytest.raises(ValueError, match=r"surrogate must return a scalar, got \(2,\)"):
        traced(total, Own())
    with pytest.raises(ValueError, match=r"value must be a scalar, got \(2,\)"):
        gates.attached(jnp.ones(2), ZEROS, ZEROS)
    with pytest.raises(ValueError, match=r"the same shape, got logits \(3,\), gradient \(2, 3\)"):
        gates.attached(jnp.float32(1), ZEROS, jnp.ones((2, 3)))
    with pytest.raises(TypeError, match="value must be floating"):
        gates.attached(jnp.int32(1), ZEROS, ZEROS)


def test_estimators_may_come_from_a_generator():
    estimators = (one for one in [gates.Reinforce(), gates.DisARM()])
    assert len(gates.report(total, ZEROS, estimators, key=KEY, draws=2).rows) == 2


def test_options_without_such_a_value_are_refused():
    with pytest.raises(ValueError, match="k must be at least 2, got 1"):
        gates.LeaveOneOut(1)
    for bounds in ({"low": 0.1}, {"high": 1.0}):
        with pytest.raises(ValueError, match="low must be below 0 and high above 1"):
            gates.HardKuma(**bounds)
    with pytest.raises(ValueError, match="temperature must be positive"):
        gates.enumerate(total, ZEROS, temperature=0)
    with pytest.raises(ValueError, match="chunks must be at least 1, got 0"):
        gates.enumerate(total, ZEROS, chunks=0)
    with pytest.raises(ValueError, match="draws must be at least 2, got 1"):
        gates.report(total, ZEROS, [], key=KEY, draws=1)


def test_more_than_twenty_gates_say_what_they_would_cost():
    with pytest.raises(ValueError, match=r"at most 20, got 21 gates.*2,097,152 evaluations.*chunk"):
        gates.enumerate(total, np.zeros(21, np.float32))
    with pytest.raises(ValueError, match=r"n must be at most 30, got 31 gates"):
        gates.enumerate(total, np.zeros(31, np.float32), chunks=1024)
    with pytest.raises(ValueError, match="got 22 gates"):
        traced(total, gates.Enumerate(), np.zeros(22, np.float32))
    with pytest.raises(ValueError, match="got 21 gates"):
        gates.report(total, np.zeros(21, np.float32), [], key=KEY)
    # real gates count, and chunks are consent
    mask = np.arange(40) < 3
    found = gates.enumerate(total, np.zeros(40, np.float32), mask=mask)
    assert float(found.expectation) == 1.5
    found = gates.enumerate(total, np.zeros(21, np.float32), chunks=256)
    np.testing.assert_allclose(found.expectation, 10.5, rtol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_a_loss_that_returns_a_vector_is_refused(estimator):
    with pytest.raises(ValueError, match=r"loss must return a scalar, got \(3,\)"):
        traced(lambda g: g, estimator)


def test_so_it_is_by_the_oracle_and_the_report():
    with pytest.raises(ValueError, match=r"loss must return a scalar, got \(3,\)"):
        gates.enumerate(lambda g: 2 * g, ZEROS)
    with pytest.raises(ValueError, match=r"loss must return a scalar, got \(3,\)"):
        gates.report(lambda g: 2 * g, ZEROS, ESTIMATORS, key=KEY)
    with pytest.raises(TypeError, match="loss must return a real number, got dtype complex64"):
        gates.enumerate(lambda g: jnp.sum(g) * 1j, ZEROS)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_at_one_pattern_names_it(value):
    def broken(g):
        return jnp.where((g[0] == 1) & (g[1] == 0) & (g[3] == 1), value, jnp.sum(g))

    mask = np.array([1, 1, 0, 1], bool)
    with pytest.raises(
        ValueError, match=rf"finite for all patterns, got {value} at gates \[1, 0, 0, 1\]"
    ):
        gates.enumerate(broken, np.zeros(4, np.float32), mask=mask)
    with pytest.raises(ValueError, match=r"at gates \[1, 0, 0, 1\]"):
        gates.report(broken, np.zeros(4, np.float32), [gates.DisARM()], key=KEY, mask=mask)
    hidden = jax.jit(lambda a: gates.enumerate(broken, a).expectation)(np.zeros(4, np.float32))
    assert not np.isfinite(hidden)


@jax.jit
def inside_jit(g):
    return jnp.sum(g > 0.5) * 1.0


@pytest.mark.parametrize(
    "loss",
    [
        inside_jit,
        lambda g: jnp.sum(jnp.round(g)),
        lambda g: jnp.sum(jax.lax.stop_gradient(g) ** 2),
        lambda g: jnp.argmax(g),
        lambda g: jnp.any(g > 0),
        lambda g: jax.lax.fori_loop(0, 2, lambda i, c: c + jnp.floor(g[i]), 0.0),
    ],
    ids=["jit", "round", "stop", "argmax", "bool", "loop"],
)
def test_a_discrete_loss_is_refused_where_its_derivative_is_needed_and_nowhere_else(loss):
    for estimator in (gates.ReinMax(), gates.MeanField(), gates.Rebar()):
        with pytest.raises(ValueError, match=f"derivative .* {name(estimator)}, got"):
            traced(loss, estimator)
    gradient = jax.jit(jax.grad(gates.expectation(loss, gates.DisARM())))(ZEROS, KEY)
    assert gradient.shape == (3,)
    assert np.all(np.isfinite(gradient))


def test_logits_and_masks_of_another_kind_are_refused_by_name():
    for call in (
        lambda *a, **b: traced(total, gates.DisARM(), *a, **b),
        lambda *a, **b: gates.enumerate(total, *a, **b),
        lambda *a, **b: gates.report(total, a[0], [], key=KEY, **b),
        lambda *a, **b: gates.HardConcrete().penalty(*a, **b),
    ):
        with pytest.raises(ValueError, match=r"the same shape, got logits \(3,\), mask \(4,\)"):
            call(ZEROS, mask=np.ones(4, bool))
        with pytest.raises(TypeError, match="mask must be bool"):
            call(ZEROS, mask=np.ones(3, np.float32))
        with pytest.raises(TypeError, match="logits must be floating point, got dtype int32"):
            call(np.zeros(3, np.int32))
        with pytest.raises(ValueError, match=r"logits must have shape \[n\].*got \(2, 3\)"):
            call(np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gates.expectation(3, gates.DisARM()), "loss must be a function"),
        (lambda: gates.enumerate(ZEROS, ZEROS), "loss must be a function"),
        (lambda: gates.enumerate(total, ZEROS, draws=2.5), "draws must be an integer, got 2.5"),
        (lambda: gates.enumerate(total, ZEROS, chunks="2"), "chunks must be an integer, got '2'"),
        (
            lambda: gates.report(total, ZEROS, [], key=KEY, draws="3"),
            "draws must be an integer, got '3'",
        ),
        (lambda: gates.LeaveOneOut(2.5), "k must be an integer, got 2.5"),
        (lambda: gates.HardKuma(low="a"), "low must be a number, got 'a'"),
        (lambda: gates.Rebar(eta="a"), "eta must be a number, got 'a'"),
        (lambda: gates.Reinforce(baseline=None), "baseline must be an array of numbers"),
        (lambda: gates.SoftGumbel(tau="a"), "tau must be a number, got 'a'"),
        (lambda: gates.entmax(ZEROS, "a"), "alpha must be a number, got 'a'"),
        (lambda: gates.budget(ZEROS, None), "k must be an array of numbers, got NoneType"),
        (lambda: gates.draw(gates.DisARM(), [0.0], ZEROS), "logits must be an array"),
    ],
)
def test_values_of_another_type_are_refused_by_name(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_arguments_of_rows_that_do_not_fit_are_refused():
    rows, keys = np.zeros((2, 3), np.float32), jax.random.split(KEY, 2)

    def reader(g):
        return jnp.sum(g, axis=-1), None

    with pytest.raises(ValueError, match=r"logits and noise must have the same shape"):
        gates.draw(gates.DisARM(), rows, ZEROS)
    with pytest.raises(ValueError, match=r"same shape, got logits \(2, 3\), mask \(3,\)"):
        gates.train(gates.DisARM(), rows, keys, reader, np.ones(3, bool))
    with pytest.raises(TypeError, match="rows must be a tuple of arrays"):
        gates.train(gates.DisARM(), rows, keys, reader, rows=ZEROS)
