"""The RAU language model: costs against a NumPy loop, windows, dropout."""

import functools

import jax
import numpy as np
import pytest

from gatedjax.functional import RAUWeights
from gatedjax.models import RAUConfig, RAULanguageModel, RAULanguageTask
from gatedjax.training import Carried, to_floats
from tests._drawn import drawn
from tests._grouped import grouped
from tests._weights import weights_of
from tests.functional.passes import close
from tests.functional.rau_oracle import numpy_rau_step
from tests.functional.test_recurrence import numpy_gru, numpy_lstm
from tests.models._losses import total_loss
from tests.models._passes import in_numpy
from tests.tolerances import F32

V, H, E = 7, 4, 3
CELLS = ("rau", "gru", "lstm")
CARRIED = [{"cell": "lstm"}, {"attention": "time_causal"}]
ids = lambda config: "-".join(map(str, config.values()))  # noqa: E731


def make_task(**config) -> RAULanguageTask:
    network = grouped(RAUConfig, **({"hidden": H, "embedding_dim": E, "num_layers": 2} | config))
    return RAULanguageTask(RAULanguageModel(network, vocab_size=V))


def make_batch(rng, lengths=(5, 3, 0), size=5):
    lengths = np.asarray(lengths, np.int32)
    shape = (len(lengths), size)
    tokens, targets = (rng.integers(0, V, shape).astype(np.int32) for _ in range(2))
    return {
        "tokens": tokens,
        "targets": targets,
        "token_weight": (np.arange(size) < lengths[:, None]).astype(np.float32),
        "lengths": lengths,
        "reset": np.zeros(len(lengths), bool),
        "example_id": np.arange(10, 10 + len(lengths), dtype=np.int32),
        "weight": (lengths > 0).astype(np.float32),
    }


def draw(task, batch, rng):
    return drawn(task.init, batch, std=0.6, rng=rng)


@functools.cache
def _zeros(task, rows):
    return jax.tree.map(
        np.asarray, task.init_carried(None, {"tokens": np.zeros((rows, 1), np.int32)}).rows
    )


def zeros(task, batch):
    """The carry of the beginning."""
    return _zeros(task, len(batch["tokens"]))


@functools.partial(in_numpy, static_argnames="train")
def score(task, params, batch, carry, *, train=False):
    keys = {"dropout": jax.random.key(3)} if train else {}
    return task.model.apply(
        {"params": params}, batch, carry, train=train, rngs=keys, method="score"
    )


@functools.partial(in_numpy, static_argnames="train")
def forward(task, params, batch, carry, *, train=False):
    keys = {"dropout": jax.random.key(3)} if train else {}
    return task.model.apply({"params": params}, batch, carry, train=train, rngs=keys)


evaluate = in_numpy(lambda task, *rest: task.evaluate(*rest))
gradient = in_numpy(
    lambda task, *rest: jax.value_and_grad(functools.partial(total_loss, task), has_aux=True)(*rest)
)


def oracle(cell, params, tokens, targets):
    """What each token of one row costs, from the equations, starting at the zero state."""
    params = jax.tree.map(lambda p: np.asarray(p, np.float64), params)
    layers = [weights_of(RAUWeights, params["recurrent"], layer)[:3] for layer in range(2)]
    states = [(np.zeros(H), np.zeros(H)) if cell == "lstm" else (np.zeros(H),) for _ in layers]
    step = {
        "rau": lambda weights, h, x, drop: (numpy_rau_step(RAUWeights(*weights), *h, x, drop),),
        "gru": numpy_gru,
        "lstm": numpy_lstm,
    }[cell]
    costs = []
    for token, target in zip(tokens, targets, strict=True):
        x = params["embed"]["embedding"][token]
        for k, weights in enumerate(layers):
            states[k] = step(weights, states[k], x, 1.0)
            x = states[k][0]
        logits = x @ params["kernel"] + params["bias"]
        costs.append(np.log(np.sum(np.exp(logits))) - logits[target])
    return np.array(costs)


# costs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", CELLS)
def test_costs_are_those_of_a_numpy_loop(cell, np_rng):
    task, batch = make_task(cell=cell), make_batch(np_rng)
    params, carry = draw(task, batch, np_rng), zeros(task, batch)
    want = [
        oracle(cell, params, tokens[:n], targets[:n])
        for tokens, targets, n in zip(
            batch["tokens"], batch["targets"], batch["lengths"], strict=True
        )
    ]
    metrics, predictions, _ = evaluate(task, params, batch, Carried(carry))
    np.testing.assert_allclose(predictions["nll"], [row.sum() for row in want], **F32)
    np.testing.assert_array_equal(predictions["tokens"], [5, 3, 0])
    np.testing.assert_array_equal(predictions["example_id"], batch["example_id"])
    assert metrics["loss"].count == metrics["perplexity"].count == 8
    mean = np.concatenate(want).mean()
    assert to_floats(metrics) == pytest.approx({"loss": mean, "perplexity": np.exp(mean)}, rel=1e-5)
    costs = score(task, params, batch, carry)[0]
    for got, row in zip(costs, want, strict=True):
        np.testing.assert_allclose(got[: len(row)], row, **F32)


def test_the_score_is_the_cross_entropy_of_the_logits(np_rng):
    task, batch = make_task(), make_batch(np_rng)
    params = draw(task, batch, np_rng)
    output = forward(task, params, batch, None)
    assert (output.logits.shape, output.logits.dtype) == ((3, 5, V), np.float32)
    want = (
        np.log(np.exp(output.logits).sum(-1))
        - np.take_along_axis(output.logits, batch["targets"][..., None], axis=-1)[..., 0]
    )
    costs, carry = score(task, params, batch, zeros(task, batch))
    # what stands beyond the end has no part in it
    np.testing.assert_allclose(costs, want * batch["token_weight"], **F32)
    close(output.carry, carry, **F32)
    np.testing.assert_array_equal(output.states[1, 3:], 0.0)


@pytest.mark.slow
def test_the_loss_is_the_summed_cost_times_the_steps_and_padding_has_no_part(np_rng):
    task, batch = make_task(), make_batch(np_rng)
    params, carry = draw(task, batch, np_rng), zeros(task, batch)
    (total, (metrics, _)), grads = gradient(task, params, batch, {}, Carried(carry))
    costs = score(task, params, batch, carry)[0]
    summed = np.sum(np.asarray(costs) * batch["token_weight"])
    np.testing.assert_allclose(total, 5 * summed, **F32)
    np.testing.assert_allclose(metrics["loss"].total, summed, **F32)
    assert metrics["loss"].count == 8
    # not even a target that does not exist
    padding = batch["token_weight"] == 0
    other = batch | {
        "tokens": np.where(padding, V - 1 - batch["tokens"], batch["tokens"]),
        "targets": np.where(padding, -5, batch["targets"]),
    }
    (again, _), others = gradient(task, params, other, {}, Carried(carry))
    assert again == total
    close(others, grads, rtol=0)


# windows -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("config", CARRIED, ids=ids)
def test_two_windows_equal_one_and_a_reset_row_begins_anew(config, np_rng):
    task = make_task(**config)
    whole = make_batch(np_rng, lengths=(20, 20, 13), size=20)
    halves = []
    for k in range(2):
        part = {name: whole[name][:, k * 10 :][:, :10] for name in ("tokens", "targets")}
        lengths = np.clip(whole["lengths"] - 10 * k, 0, 10)
        halves.append(whole | part | {"lengths": lengths})
    params, zero = draw(task, whole, np_rng), zeros(task, whole)
    costs, final = score(task, params, whole, zero)
    left, middle = score(task, params, halves[0], zero)
    right, last = score(task, params, halves[1], middle)
    real = np.arange(20) < whole["lengths"][:, None]
    joined = np.concatenate([left, right], axis=1)
    np.testing.assert_allclose(joined[real], costs[real], **F32)
    close(last, final, **F32)
    # row 1 begins anew, the others go on
    reset = halves[1] | {"reset": np.array([False, True, False])}
    mixed, end = score(task, params, reset, middle)
    fresh, start = score(task, params, halves[1], zero)
    assert not np.allclose(fresh[1], right[1], rtol=1e-3)
    for row, (want, carry) in enumerate([(right, last), (fresh, start), (right, last)]):
        np.testing.assert_array_equal(mixed[row], want[row])
        one = functools.partial(jax.tree.map, lambda leaf, row=row: leaf[row])
        close(one(end), one(carry), rtol=0)


@pytest.mark.parametrize("config", CARRIED, ids=ids)
def test_padding_changes_no_cost_and_no_carry(config, np_rng):
    task = make_task(**config)
    batch = make_batch(np_rng, lengths=(10, 4, 0), size=10)
    params, zero = draw(task, batch, np_rng), zeros(task, batch)
    start = score(task, params, batch | {"lengths": np.full(3, 10)}, zero)[1]
    costs, carry = score(task, params, batch, start)
    real = batch["token_weight"] > 0
    filler = {k: np.where(real, batch[k], V - 1 - batch[k]) for k in ("tokens", "targets")}
    longer = {k: np.pad(filler[k], ((0, 0), (0, 10)), constant_values=1) for k in filler}
    for other in (filler, longer):
        found, end = score(task, params, batch | other, start)
        np.testing.assert_allclose(found[:, :10][real], costs[real], **F32)
        close(end, carry, **F32)
    close(
        jax.tree.map(lambda c: c[2], (carry, start)), jax.tree.map(lambda c: c[2], (start, start))
    )


# dropout -------------------------------------------------------------------------------------

NOISY = {"embedding_dropout": 0.5, "layer_dropout": 0.5, "state_dropout": 0.5}


@pytest.mark.slow
def test_dropout_bits_belong_to_the_example(np_rng):
    task, batch = make_task(**NOISY), make_batch(np_rng, lengths=(5, 5, 5))
    batch |= {name: np.repeat(batch[name][:1], 3, axis=0) for name in ("tokens", "targets")}
    params, carry = draw(task, batch, np_rng), zeros(task, batch)
    run = functools.partial(score, task, params, train=True)
    costs = np.asarray(run(batch | {"example_id": np.array([8, 8, 9])}, carry)[0])
    np.testing.assert_array_equal(costs[0], costs[1])
    assert not np.allclose(costs[0], costs[2], rtol=1e-2)
    moved = np.asarray(run(batch | {"example_id": np.array([9, 4, 8])}, carry)[0])
    np.testing.assert_array_equal(moved[[2, 0]], costs[[0, 2]])


@pytest.mark.parametrize("name", NOISY)
def test_every_step_has_its_own_dropout_mask(name, np_rng):
    # without memory: h_t = tanh(W x_t), so that only the mask can tell two steps apart
    task = make_task(cell="gru", **{name: 0.5})
    batch = make_batch(np_rng, lengths=(12,), size=12) | {"tokens": np.full((1, 12), 3)}
    params = draw(task, batch, np_rng)
    own = params["recurrent"]
    for layer in range(2):
        own[f"layer_{layer}"]["forward"]["recurrent_kernel"] *= 0
        own[f"layer_{layer}"]["forward"]["bias"][H : 2 * H] = 1e3
    still = np.asarray(forward(task, params, batch, None).states[0])
    np.testing.assert_allclose(still, np.repeat(still[:1], 12, axis=0), **F32)
    assert np.all(still != 0)
    states = np.asarray(forward(task, params, batch, None, train=True).states[0])
    assert len(np.unique(states.round(5), axis=0)) > 2
    if name == "state_dropout":
        np.testing.assert_allclose(states, np.where(states == 0, 0, 2 * still), **F32)


def test_training_without_dropout_needs_no_random_bits(np_rng):
    task, batch = make_task(), make_batch(np_rng)
    params, carry = draw(task, batch, np_rng), zeros(task, batch)
    total, _ = jax.eval_shape(
        functools.partial(total_loss, task), params, batch, {}, Carried(carry)
    )
    assert total.shape == ()


# parameters ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_init_scale_bounds_every_kernel_and_biases_are_zero(np_rng):
    network = grouped(RAUConfig, hidden=20, embedding_dim=20, num_layers=2, init_scale=0.05)
    task = RAULanguageTask(RAULanguageModel(network, vocab_size=50))
    params = jax.jit(task.init)(jax.random.key(1), make_batch(np_rng))
    assert set(params) == {"embed", "recurrent", "kernel", "bias"}
    for leaf in jax.tree.leaves(params):
        if leaf.ndim == 1:
            np.testing.assert_array_equal(leaf, 0.0)
        else:
            assert 0.048 < np.max(leaf) <= 0.05
            assert -0.05 <= np.min(leaf) < -0.048


@pytest.mark.parametrize(
    ("cell", "count"), [("gru", 4_491_200), ("lstm", 4_651_600), ("rau", 4_812_000)]
)
def test_parameter_counts_of_the_small_model(cell, count, np_rng):
    # words and softmax 200 x 10,000 + 200 x 10,000 + 10,000; two layers of 3, 4 or 5 blocks
    assert count == 4_010_000 + 2 * {"gru": 3, "lstm": 4, "rau": 5}[cell] * (400 * 200 + 200)
    network = grouped(RAUConfig, cell=cell, hidden=200, embedding_dim=200, num_layers=2)
    task = RAULanguageTask(RAULanguageModel(network, vocab_size=10_000))
    params = jax.eval_shape(task.init, jax.random.key(0), make_batch(np_rng))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count
