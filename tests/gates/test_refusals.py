"""Bad input is refused by name, with what came and what it would cost."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from tests.gates._cases import ESTIMATORS, name
from tests.refusals import each_row, refused

KEY, KEYS = jax.random.key(0), jax.random.split(jax.random.key(0), 2)
ZEROS, ROWS = np.zeros(3, np.float32), np.zeros((2, 3), np.float32)
INTS, REAL = np.ones((2, 3), np.int32), np.ones((2, 3), bool)
NAN, INF = float("nan"), float("inf")


def total(g):
    return jnp.sum(g)


def vector(g):
    return 2 * g


def reader(g):
    return jnp.sum(g, axis=-1), None


def traced(loss=total, estimator=None, logits=ZEROS, **options):
    """The checks that are made while tracing, and nothing else."""
    chosen = estimator or gates.DisARM()
    return lambda: jax.eval_shape(
        lambda a: gates.expectation(loss, chosen)(a, KEY, **options), logits
    )


def expected(estimator, loss=total):
    return lambda: gates.expectation(loss, estimator)


def reported(estimators=(), logits=ZEROS, loss=total, **options):
    return lambda: gates.report(loss, logits, estimators, **({"key": KEY} | options))


def enumerated(logits=ZEROS, loss=total, **options):
    return lambda: gates.enumerate(loss, logits, **options)


def trained(estimator=None, logits=ROWS, *more, **options):
    chosen = estimator or gates.DisARM()
    return lambda: gates.train(chosen, logits, KEYS, reader, *more, **options)


def made(kind, **options):
    return functools.partial(kind, **options)


class Own:
    """An estimator as far as its members go."""

    unbiased, needs_gradient, rows = True, False, 2

    def evaluations(self, n):
        return 2

    def surrogate(self, objective, logits, noise):
        return objective.values((logits[None] + noise > 0).astype(logits.dtype))


def changed(**members):
    return expected(type("Changed", (Own,), members)())


class Patterns(gates.ByValues):
    """An estimator whose patterns have a wrong shape."""

    def __init__(self, shape):
        self.shape = shape

    def patterns(self, logits, noise):
        return jnp.ones(self.shape)

    def gradient(self, logits, noise, patterns, values):
        return logits


def broken(value):
    """A loss that is not finite where the gates 0 and 3 are open and gate 1 is closed."""
    return lambda g: jnp.where((g[0] == 1) & (g[1] == 0) & (g[3] == 1), value, jnp.sum(g))


FOUR, MASK = np.zeros(4, np.float32), np.array([1, 1, 0, 1], bool)
MEMBERS = "estimator|unbiased|needs_gradient|rows|evaluations|surrogate|'disarm'"
TEMPERED = (gates.SoftGumbel, gates.STGumbel, gates.Rebar, gates.HardConcrete)
TAKES_LOGITS = {
    "expectation": lambda a, **b: traced(logits=a, **b),
    "enumerate": enumerated,
    "report": lambda a, **b: reported((), a, **b),
    "penalty": lambda a, **b: functools.partial(gates.HardConcrete().penalty, a, **b),
}
TABLE = {
    "options": [
        *(
            (made(kind, tau=tau), f"tau|positive and finite|{tau}")
            for kind in TEMPERED
            for tau in (0.0, -1.0, INF, NAN)
        ),
        (made(gates.Rebar, eta=INF), "eta|finite|inf"),
        (made(gates.Rebar, eta=NAN), "eta|finite|nan"),
        (made(gates.Rebar, eta="a"), "eta|a number|'a'", TypeError),
        (made(gates.LeaveOneOut, k=1), "k|at least 2|1"),
        (made(gates.LeaveOneOut, k=2.5), "k|an integer|2.5", TypeError),
        *(
            row
            for kind in (gates.HardConcrete, gates.HardKuma)
            for row in [
                (made(kind, low=0.1), "low|below 0|high|above 1"),
                (made(kind, high=1.0), "low|below 0|high|above 1"),
                (made(kind, low="a"), "low|a number|'a'", TypeError),
            ]
        ),
        (made(gates.Reinforce, baseline=None), "baseline|an array of numbers", TypeError),
        (made(gates.SoftGumbel, tau="a"), "tau|a number|'a'", TypeError),
        (lambda: gates.entmax(ZEROS, "a"), "alpha|a number|'a'", TypeError),
        (lambda: gates.budget(ZEROS, None), "k|an array of numbers|NoneType", TypeError),
        (enumerated(temperature=0), "temperature|positive"),
        (enumerated(draws=0), "draws|positive|0"),
        (reported(chunks=0), "chunks|at least 1|0"),
        (enumerated(chunks=0), "chunks|at least 1|0"),
        (enumerated(chunks="2"), "chunks|an integer|'2'", TypeError),
        (enumerated(draws=2.5), "draws|an integer|2.5", TypeError),
        (reported(draws=1), "draws|at least 2|1"),
        (reported(draws="3"), "draws|an integer|'3'", TypeError),
        (lambda: next(gates.toys(draws=1)), "draws|at least 2|1"),
    ],
    "maps": [
        (lambda: gates.sparsemax(INTS), "scores|int32", TypeError),
        (lambda: gates.sparsemax(ROWS, ROWS), "mask|bool|float32", TypeError),
        (lambda: gates.sparsemax(ROWS, REAL[:, :2]), "mask|(2, 3)|(2, 2)"),
        (lambda: gates.entmax15(ROWS, REAL[0]), "mask|(2, 3)|(3,)"),
        (lambda: gates.entmax15(ROWS, axis=2), "axis|2"),
        (lambda: gates.entmax(ROWS, 0.9), "alpha|at least 1|0.9"),
        (lambda: gates.entmax(ROWS, NAN), "alpha|nan"),
        (lambda: gates.entmax(ROWS, np.array([[1.0], [0.5]])), "alpha|0.5"),
        (lambda: gates.entmax(ROWS, np.ones((2, 3))), "alpha|(2, 1)|(2, 3)"),
        (lambda: gates.entmax(INTS, 1.2), "scores|int32", TypeError),
        (lambda: gates.entmax(ROWS, 1.2, REAL[:, :2]), "mask|(2, 2)"),
        *((lambda k=k: gates.budget(ROWS, k), f"k|[0, 3]|{k}") for k in (-0.5, 3.5, NAN)),
        (lambda: gates.budget(ROWS, np.ones(2)), "k|(2, 1)|(2,)"),
        (lambda: gates.budget(ROWS, 1, axis=3), "axis|3"),
        (lambda: gates.budget(ROWS, 1, REAL[:, :2]), "mask|(2, 2)"),
        (lambda: gates.soft_top_k(ROWS, 4), "k|[0, 3]|4"),
        (lambda: gates.soft_top_k(ROWS, 1, temperature=0.0), "temperature|positive|0.0"),
        (lambda: gates.soft_top_k(ROWS, 1, temperature=np.ones(2)), "temperature|()|(2,)"),
        (lambda: gates.soft_top_k(ROWS, 1, ROWS), "mask|bool", TypeError),
        (lambda: gates.hard_top_k(ROWS, 1.0), "k|integers", TypeError),
        (lambda: gates.hard_top_k(ROWS, 4), "k|[0, 3]|4"),
        (lambda: gates.hard_top_k(ROWS, 1, temperature=0.0), "temperature|positive"),
        (lambda: gates.hard_top_k(ROWS, 1, REAL[:1, :2]), "mask|(1, 2)"),
    ],
    "estimators": [
        (expected(gates.DisARM), "estimator|DisARM|write DisARM"),
        (reported([gates.DisARM]), "estimator|DisARM|write DisARM"),
        (expected("disarm"), MEMBERS),
        (reported(["disarm"]), MEMBERS),
        (changed(rows=lambda self: 2), "estimator.rows|a value|a method"),
        (changed(needs_gradient=lambda self: False), "estimator.needs_gradient|a value|a method"),
        (changed(evaluations=2), "estimator.evaluations|a method"),
        (reported(gates.DisARM()), "estimators|a list|write [DisARM()]", TypeError),
        (
            reported([gates.Reinforce(np.zeros(1, np.float32))], draws=2),
            "estimators|hashable|Reinforce|frozen=True",
            TypeError,
        ),
        *(
            (traced(estimator=Patterns(shape)), f"patterns of the estimator|(k, 3)|{shape}")
            for shape in [(3,), (0, 3), (2, 4), (1, 2, 3)]
        ),
        (trained(Patterns((2, 4))), "patterns of the estimator|(k, 3)"),
    ],
    "estimates": [
        (traced(estimator=Own()), "surrogate|a scalar|(2,)"),
        (lambda: gates.attached(jnp.ones(2), ZEROS, ZEROS), "value|a scalar|(2,)"),
        (lambda: gates.attached(jnp.float32(1), ZEROS, ROWS), "logits (3,)|gradient (2, 3)"),
        (lambda: gates.attached(jnp.int32(1), ZEROS, ZEROS), "value|floating", TypeError),
    ],
    "more than twenty gates": [
        (
            enumerated(np.zeros(21, np.float32)),
            "at most 20|21 gates|2,097,152 evaluations|8,388,608 bytes",
        ),
        (enumerated(np.zeros(31, np.float32), chunks=1024), "n|at most 30|31 gates"),
        (traced(estimator=gates.Enumerate(), logits=np.zeros(22, np.float32)), "22 gates"),
        (reported((), np.zeros(21, np.float32)), "21 gates"),
    ],
    "losses": [
        *((traced(vector, estimator), "loss|a scalar|(3,)") for estimator in ESTIMATORS),
        (enumerated(loss=vector), "loss|a scalar|(3,)"),
        (reported(ESTIMATORS, loss=vector), "loss|a scalar|(3,)"),
        (enumerated(loss=lambda g: jnp.sum(g) * 1j), "loss|a real number|complex64", TypeError),
        (expected(gates.DisARM(), 3), "loss|a function", TypeError),
        (enumerated(loss=ZEROS), "loss|a function", TypeError),
        (
            enumerated(FOUR, broken(NAN), mask=MASK),
            "finite for all patterns|nan|gates [1, 0, 0, 1]",
        ),
        (enumerated(FOUR, broken(INF), mask=MASK), "inf|gates [1, 0, 0, 1]"),
        (
            reported([gates.DisARM()], FOUR, broken(NAN), mask=MASK),
            "gates [1, 0, 0, 1]",
        ),
    ],
    "logits and masks": [
        *(
            row
            for call in TAKES_LOGITS.values()
            for row in (
                (call(ZEROS, mask=np.ones(4, bool)), "the same shape|logits (3,)|mask (4,)"),
                (call(ZEROS, mask=np.ones(3, np.float32)), "mask|bool", TypeError),
                (call(np.zeros(3, np.int32)), "logits|floating point|int32", TypeError),
                (call(ROWS), "logits|[n]|(2, 3)"),
            )
        ),
        (lambda: gates.draw(gates.DisARM(), [0.0], ZEROS), "logits|an array", TypeError),
        (lambda: gates.draw(gates.DisARM(), ROWS, ZEROS), "logits|noise|the same shape"),
        *(
            (
                functools.partial(gates.draw, kind(np.ones(2, np.float32)), ROWS, ROWS),
                "temperature|(2, 3)|(2,)",
            )
            for kind in (gates.SoftGumbel, gates.STGumbel)
        ),
        (trained(None, ROWS, np.ones(3, bool)), "same shape|logits (2, 3)|mask (3,)"),
        (trained(rows=ZEROS), "rows|a tuple of arrays", TypeError),
    ],
}


@each_row(TABLE)
def test_bad_input_is_refused_by_name(call, parts, error):
    refused(call, parts, error)


@pytest.mark.slow
def test_what_is_close_to_a_refusal_is_accepted():
    estimators = (one for one in [gates.Reinforce(), gates.DisARM()])
    assert len(reported(estimators, draws=2)().rows) == 2
    # real gates count, and chunks are consent
    found = enumerated(np.zeros(40, np.float32), mask=np.arange(40) < 3)()
    assert float(found.expectation) == 1.5
    found = enumerated(np.zeros(21, np.float32), chunks=256)()
    np.testing.assert_allclose(found.expectation, 10.5, rtol=1e-6)
    traced(estimator=gates.Enumerate(256), logits=np.zeros(21, np.float32))()
    hidden = jax.jit(lambda a: gates.enumerate(broken(NAN), a).expectation)(FOUR)
    assert not np.isfinite(hidden)


@jax.jit
def inside_jit(g):
    return jnp.sum(g > 0.5) * 1.0


DISCRETE = {
    "jit": inside_jit,
    "round": lambda g: jnp.sum(jnp.round(g)),
    "stop": lambda g: jnp.sum(jax.lax.stop_gradient(g) ** 2),
    "argmax": jnp.argmax,
    "bool": lambda g: jnp.any(g > 0),
    "loop": lambda g: jax.lax.fori_loop(0, 2, lambda i, c: c + jnp.floor(g[i]), 0.0),
}


@pytest.mark.parametrize("loss", DISCRETE.values(), ids=DISCRETE)
def test_a_discrete_loss_is_refused_where_its_derivative_is_needed_and_nowhere_else(loss):
    for estimator in (gates.ReinMax(), gates.MeanField(), gates.Rebar()):
        refused(traced(loss, estimator), f"derivative|{name(estimator)}")
    gradient = jax.jit(jax.grad(gates.expectation(loss, gates.DisARM())))(ZEROS, KEY)
    assert gradient.shape == (3,)
    assert np.all(np.isfinite(gradient))
