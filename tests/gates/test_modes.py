"""A GA-Net under all patterns of its gates, against loops over them, and what is made of it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax import gates
from gatedjax.gates import _report
from gatedjax.models import GANet, GANetConfig, GANetTask
from gatedjax.text import _gate_patterns
from gatedjax.text import gate_modes as _modes
from tests._grouped import grouped
from tests.gates import _oracles
from tests.models._passes import forced
from tests.tolerances import F32, F64

WORDS, CLASSES = 9, 3
LENGTHS = np.array([3, 12, 1, 5, 14])


def config(**changes):
    small = {"hidden": 2, "num_layers": 1, "aux": "fnn", "aux_hidden": 3, "embedding_dim": 4}
    return grouped(GANetConfig, **{**small, "gate_bias_init": -1.0, "test_samples": 3} | changes)


def make_batch(lengths=LENGTHS):
    rng = np.random.default_rng(1)
    width = int(max(lengths)) + 1  # a column that no text has
    return {
        "tokens": rng.integers(2, WORDS, (len(lengths), width)).astype(np.int32),
        "lengths": np.asarray(lengths, np.int32),
        "label": (np.arange(len(lengths)) % CLASSES).astype(np.int32),
        "example_id": np.arange(10, 10 + len(lengths), dtype=np.int32),
        "weight": np.ones(len(lengths), np.float32),
    }


def made(**changes):
    """A network with drawn parameters that say something."""
    model = GANet(config(**changes), WORDS, CLASSES)
    like = jax.eval_shape(lambda key: model.init(key, make_batch())["params"], jax.random.key(0))
    rng = np.random.default_rng(2)
    return model, jax.tree.map(lambda x: rng.normal(0, 1.2, x.shape).astype(x.dtype), like)


def every_pattern(n):
    """All of them, the first gate the lowest bit."""
    return np.array(list(itertools.product([0, 1], repeat=n)), np.float32)[:, ::-1]


compiled_loss = jax.jit(lambda *args: as_loss(*args))


class Head:
    """tanh and a matrix, of any precision."""

    def __call__(self, params, pooled):
        return jnp.tanh(pooled) @ params


HEAD = Head()


def held_text(n, rng, width=12, spread=1.0):
    logits = np.where(np.arange(width) < n, rng.normal(size=width), -np.inf)
    states = np.where(np.arange(width)[:, None] < n, rng.normal(size=(width, 4)), 0)
    scores = np.where(np.arange(width) < n, spread * rng.normal(size=width), 0)
    return _gate_patterns.PatternInputs(
        states, scores, logits, rng.normal(size=CLASSES), np.int32(1), np.int32(n)
    )


def as_loss(g, matrix, states, scores, closed):
    """The same by softmax over the open words, for one pattern."""
    weights = F.gated_softmax(scores, g)
    scored = jnp.where(jnp.any(g > 0), jnp.tanh(weights @ states) @ matrix, closed)
    return -jax.nn.log_softmax(scored)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "spread"), [(12, 1.0), (11, 300.0), (7, 1.0), (1, 1.0)])
def test_in_float64_every_field_is_that_of_enumerate(n, spread, np_rng, x64):
    held, matrix = held_text(n, np_rng, spread=spread), np_rng.normal(size=(4, CLASSES))
    found = _gate_patterns.text_truth(HEAD, matrix, held, 0.7)
    args = (matrix, held.states, held.scores, held.closed)
    real = np.arange(12) < n
    want = gates.enumerate(as_loss, np.where(real, held.logits, 0), *args, mask=real)
    tolerance = {"rtol": 1e-9, "atol": 1e-11}  # sums of 4,096 in another order
    np.testing.assert_allclose(found.loss, want.expectation, **tolerance)
    np.testing.assert_allclose(found.variance, want.variance, **tolerance)
    np.testing.assert_allclose(found.gradient, want.gradient[:n], **tolerance)
    np.testing.assert_allclose(found.effects, want.effects[:n], **tolerance)
    np.testing.assert_allclose(found.best_loss, want.modes["best"], **tolerance)
    np.testing.assert_array_equal(found.best, want.best[:n] > 0)


def test_certain_gates_and_centres_change_nothing(np_rng, x64):
    held, matrix = held_text(5, np_rng), np_rng.normal(size=(4, CLASSES))
    logits = held.logits.copy()
    logits[:2] = np.inf, -np.inf
    held = held._replace(logits=logits)
    found, moved = (_gate_patterns.text_truth(HEAD, matrix, held, c) for c in (0.0, 5.0))
    losses = np.array([compiled_loss(g, matrix, held.states[:5], held.scores[:5], held.closed)
                       for g in every_pattern(5).astype(float)])  # fmt: skip
    p = _oracles.sigmoid(logits[:5])
    weights = np.prod(np.where(every_pattern(5) > 0, p, 1 - p), axis=1)
    np.testing.assert_allclose(found.loss, weights @ losses, **F64)
    np.testing.assert_allclose(found.variance, weights @ (losses - found.loss) ** 2, **F64)
    np.testing.assert_array_equal(found.gradient[:2], [0, 0])
    for a, b in zip(found, moved, strict=True):
        np.testing.assert_allclose(a, b, **F64)


def test_a_loss_that_is_not_finite_is_refused(np_rng):
    held = held_text(3, np_rng)
    with pytest.raises(ValueError, match="finite for all patterns"):
        _gate_patterns.text_truth(HEAD, np.full((4, CLASSES), np.nan, np.float32), held, 0.0)


def by_loops(model, params, batch, row):
    """(losses, right, probabilities) of every pattern of one text, and its log-odds."""
    n = int(batch["lengths"][row])
    one = {name: batch[name][[row]] for name in ("tokens", "lengths", "example_id")}
    patterns = np.zeros((1 << n, 1, batch["tokens"].shape[1]), np.float32)
    patterns[:, 0, :n] = every_pattern(n)
    output = forced(model, params, one, patterns)
    logits = np.asarray(output.logits, np.float64)[:, 0]
    log_p = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
    label = batch["label"][row]
    a = np.asarray(output.gate_logits, np.float64)[0, :n]
    return -log_p[:, label], logits.argmax(axis=1) == label, np.exp(log_p), a


@pytest.mark.slow
@pytest.mark.parametrize("empty", ["max_gate", "soft", "zeros"])
def test_every_text_is_what_a_loop_over_its_patterns_finds(empty):
    model, params = made(empty=empty)
    batch = make_batch()
    found = gates.gate_modes(model, params, batch, draws=4)
    np.testing.assert_array_equal(found.rows, np.arange(5))
    for row in (0, 2, 3):
        losses, right, probabilities, a = by_loops(model, params, batch, row)
        truth, p = found.truths[row], _oracles.sigmoid(a)
        open_gates = every_pattern(len(a)) > 0
        weights = np.prod(np.where(open_gates, p, 1 - p), axis=1)
        assert weights[0] > 0.01, "the closed pattern must count"
        np.testing.assert_allclose(truth.loss, weights @ losses, **F32)
        np.testing.assert_allclose(truth.variance, weights @ (losses - truth.loss) ** 2, **F32)
        np.testing.assert_allclose(truth.right, weights @ right, **F32)
        np.testing.assert_allclose(truth.probabilities, weights @ probabilities, **F32)
        gradient = (weights * losses) @ (open_gates - p)
        np.testing.assert_allclose(truth.gradient, gradient, rtol=1e-4, atol=1e-6)
        if jax.default_backend() == "cpu":  # elsewhere rounding chooses between patterns that tie
            np.testing.assert_array_equal(truth.best, open_gates[np.argmin(losses)])
        best = int(np.argmax(np.all(open_gates == truth.best, axis=1)))
        np.testing.assert_allclose(losses[best], losses.min(), **F32)
        np.testing.assert_allclose(truth.best_loss, losses[best], **F32)
        assert truth.best_right == right[best]
        threshold = found.modes["threshold"].loss[0, row]
        np.testing.assert_allclose(
            threshold, losses[np.argmax(np.all(open_gates == (a > 0), axis=1))], **F32
        )


@pytest.fixture(scope="module")
def trained():
    model, params = made()
    return model, params, gates.gate_modes(model, params, make_batch(), draws=3)


@pytest.mark.slow
def test_the_draws_are_those_of_the_evaluation(trained):
    model, params, found = trained
    metrics, _ = jax.jit(GANetTask(model).evaluate)(params, make_batch())
    rows = {row.mode: row for row in found.table()}
    for mode in ("sample", "threshold", "expected", "relaxed"):
        assert abs(rows[mode].loss - metrics[f"loss_{mode}"].value()) < 1e-5
        assert abs(rows[mode].accuracy - metrics[f"accuracy_{mode}"].value()) < 1e-6
        assert abs(rows[mode].density - metrics[f"density_{mode}"].value()) < 1e-6


def test_the_table_holds_means_and_errors_of_the_draws(trained):
    _, _, found = trained
    rows = {row.mode: row for row in found.table()}
    assert list(rows) == [
        "sample", "exact", "marginal", "threshold", "best", "expected", "relaxed"
    ]  # fmt: skip
    exact = np.mean([one.loss for one in found.truths])
    np.testing.assert_allclose(rows["exact"].loss, exact, **F64)
    by_draw = found.modes["sample"].loss.astype(np.float64).mean(axis=1)
    error = by_draw.std(ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(rows["sample"].loss_error, error, **F64)
    np.testing.assert_allclose(rows["sample"].gap, by_draw.mean() - exact, **F64)
    chosen = [t.probabilities[label] for t, label in zip(found.truths, found.labels, strict=True)]
    np.testing.assert_allclose(rows["marginal"].loss, np.mean(-np.log(chosen)), **F64)
    assert rows["best"].loss < min(row.loss for row in rows.values() if row.mode != "best")
    assert rows["marginal"].loss < rows["exact"].loss  # Jensen
    deviation = np.sqrt(sum(one.variance for one in found.truths)) / 5
    share = np.array([one.right for one in found.truths])
    spread = np.sqrt(np.sum(share * (1 - share))) / 5
    np.testing.assert_allclose(found.one_draw, (deviation, spread), **F64)


@pytest.mark.slow
def test_many_draws_come_to_the_exact_expectation(trained):
    model, params, _ = trained
    found = gates.gate_modes(model, params, make_batch(), draws=1000, key=jax.random.key(7))
    rows = {row.mode: row for row in found.table()}
    assert abs(rows["sample"].gap) < 4 * rows["sample"].loss_error
    assert abs(rows["sample"].accuracy - rows["exact"].accuracy) < 4 * rows["sample"].accuracy_error
    by_draw = found.modes["sample"].loss.mean(axis=1)
    np.testing.assert_allclose(by_draw.std(), found.one_draw[0], rtol=0.1)


@pytest.mark.slow
def test_long_and_weightless_texts_are_left_out(trained):
    model, params, whole = trained
    batch = make_batch()
    batch["weight"][0] = 0
    found = gates.gate_modes(model, params, batch, draws=3, longest=12)
    np.testing.assert_array_equal(found.rows, [1, 2, 3])
    assert found.left_out == 1
    for one, other in zip(found.truths, whole.truths[1:4], strict=True):
        np.testing.assert_allclose(one.loss, other.loss, **F32)
    np.testing.assert_allclose(
        found.modes["sample"].loss, whole.modes["sample"].loss[:, 1:4], **F32
    )


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"system": "soft"}, {}, "must be a GA-Net with gates, got the system 'soft'"),
        ({"gates_on": "input"}, {}, "gates_on='attention', got 'input'"),
        ({}, {"draws": 1}, "draws must be at least 2, got 1"),
        ({}, {"longest": 25}, r"longest must be in \[1, 24\], got 25"),
        ({}, {"temperature": 0.0}, "temperature"),
        ({}, {"lengths": [13, 14]}, "1 to 12 words, got 2 longer texts, the shortest of 13 words"),
    ],
)
def test_what_cannot_be_done_is_refused(changes, options, message):
    model = GANet(config(**changes), WORDS, CLASSES)
    batch = make_batch(options.pop("lengths", LENGTHS))
    if "1 to 12" in message:
        options = {"longest": 12}
    with pytest.raises(ValueError, match=message):
        gates.gate_modes(model, {}, batch, **options)


def test_what_has_no_label_no_text_and_no_draw_is_refused():
    model, batch = GANet(config(), WORDS, CLASSES), make_batch()
    with pytest.raises(ValueError, match="label"):
        gates.gate_modes(model, {}, {k: batch[k] for k in ("tokens", "lengths")})
    for few, message in (({"texts": 0}, "1, got 0"), ({"draws": 1}, "2, got 1")):
        with pytest.raises(ValueError, match=f"{next(iter(few))} must be at least {message}"):
            gates.measure(model, {}, batch, **few)


@pytest.mark.slow
def test_measured_gradients_are_those_of_the_estimator(trained):
    model, params, whole = trained
    batch = make_batch()
    estimators = [gates.MeanField(), gates.LeaveOneOut(2)]
    seen = []
    found = gates.measure(
        model, params, batch, estimators, texts=2, draws=16, on_estimator=seen.append
    )
    assert seen == estimators
    assert (found.texts, found.draws) == (2, 16)
    exact = [whole.truths[i].gradient for i in (0, 4)]  # the first and the last text
    np.testing.assert_allclose(found.gradient, np.sqrt(np.mean([g @ g for g in exact])), rtol=1e-4)
    # the mean-field gradient by finite differences of the loss at sigmoid(a)
    biases = []
    for row, truth in zip((0, 4), exact, strict=True):
        a = whole.logits[row]
        one = {name: batch[name][[row]] for name in ("tokens", "lengths", "example_id")}
        step = 1e-2
        moved = a + step * np.concatenate([np.eye(len(a)), -np.eye(len(a))])
        soft = np.zeros((len(moved), 1, batch["tokens"].shape[1]), np.float32)
        soft[:, 0, : len(a)] = _oracles.sigmoid(moved)
        logits = np.float64(forced(model, params, one, soft).logits[:, 0])
        losses = -(logits - np.log(np.exp(logits).sum(1)[:, None]))[:, batch["label"][row]]
        slope = (losses[: len(a)] - losses[len(a) :]) / (2 * step)
        biases.append(slope - truth)
    want = np.sqrt(np.mean([b @ b for b in biases]))
    mean_field, unbiased = found.rows
    np.testing.assert_allclose(mean_field.bias, want, rtol=2e-3)
    assert mean_field.variance == mean_field.error == 0
    assert mean_field.shown_biased
    # An estimate without draws has the noise of rounding: 16 units of the size of the losses.
    truths = [whole.truths[row] for row in (0, 4)]
    sizes = [abs(truth.loss) + np.sqrt(truth.variance) for truth in truths]
    squares = (16 * np.finfo(np.float32).eps * np.array(sizes)) ** 2
    numbers = np.array([len(b) for b in biases])
    mean, spread = numbers @ squares, 2 * numbers @ squares**2
    # the cube root of Wilson and Hilferty
    part = spread / (9 * mean**2)
    z = (np.cbrt(sum(b @ b for b in biases) / mean) - (1 - part)) / np.sqrt(part)
    np.testing.assert_allclose(mean_field.z, z, rtol=1e-2)
    assert (unbiased.evaluations, unbiased.z < 4) == (2, True)


def test_the_summary_is_that_of_the_samples(np_rng):
    samples = [
        _report.Sample(np_rng.normal(0.3, 1, (50, n)), np_rng.normal(size=n), 1e-9, n + 1)
        for n in (3, 5)
    ]
    row = _report.summarize(gates.ARM(), samples)
    off = [s.estimates - s.exact for s in samples]
    means = [np.sum(x.mean(0) ** 2) for x in off]
    variances = [np.sum(s.estimates.var(0, ddof=1)) for s in samples]
    mses = [np.mean(np.sum(x**2, 1)) for x in off]
    np.testing.assert_allclose(row.bias, np.sqrt(np.mean(means)), **F64)
    np.testing.assert_allclose(row.error, np.sqrt(np.mean(variances) / 50), **F64)
    np.testing.assert_allclose(row.variance, np.mean(variances), **F64)
    np.testing.assert_allclose(row.mse, np.mean(mses), **F64)
    np.testing.assert_allclose(row.mse_per_evaluation, (4 * mses[0] + 6 * mses[1]) / 2, **F64)
    cosines = [
        np.mean(
            s.estimates @ s.exact / np.linalg.norm(s.estimates, axis=1) / np.linalg.norm(s.exact)
        )
        for s in samples
    ]
    np.testing.assert_allclose(row.cosine, np.mean(cosines), **F64)
    assert row.evaluations == 5


@pytest.mark.slow
@pytest.mark.parametrize("scale", [(1.0, 1.0, 1.0), (1.0, 0.1, 0.01)])
def test_z_is_a_normal_number_of_estimators_without_bias(scale, np_rng):
    def z(shift):
        found = np_rng.normal(size=(3, 400, 3)) * scale + shift
        exact = np.zeros(3)
        return _report.summarize(
            gates.ARM(), [_report.Sample(one, exact, 0.0, 1) for one in found]
        ).z

    found = np.array([z(0.0) for _ in range(1000)])
    assert abs(found.mean()) < 0.15
    assert abs(found.std() - 1) < 0.15
    assert found.max() < _report.SHOWN
    assert min(z(0.8) for _ in range(20)) > _report.SHOWN


def test_what_is_within_rounding_is_exact(np_rng):
    exact = np.array([0.5, -0.25])
    near = exact + 1e-8 * np_rng.uniform(-1, 1, (20, 2))
    row = _report.summarize(gates.DisARM(), [_report.Sample(near, exact, 1e-7, 2)])
    assert (row.bias, row.error, row.z, row.variance, row.mse) == (0, 0, 0, 0, 0)
    np.testing.assert_allclose(row.cosine, 1, **F64)
    off = _report.summarize(gates.MeanField(), [_report.Sample(near + 0.1, exact, 1e-7, 1)])
    assert (off.shown_biased, off.variance, off.error) == (True, 0, 0)


@pytest.mark.slow
def test_the_second_text_of_another_length_compiles_nothing(trained, caplog):
    model, params, _ = trained
    network = _modes.StaticGANet(model)
    for n in (12, 11, 3):
        caplog.clear()
        texts = _modes.Texts.of(make_batch([14, n]), 20)
        with jax.log_compiles():
            for _, held, modes in _modes.encode_texts(
                network, params, texts, 3, jax.random.key(0), 1.0
            ):
                list(_modes.compute_truths(network, params, held, modes["threshold"].loss[0]))
    assert not [r for r in caplog.records if "Compiling" in r.getMessage()]
