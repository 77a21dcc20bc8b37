"""Lazy rows against NumPy loops, row by row, and through every way in which `fit` trains."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax import nn as gnn
from gatedjax.models import RAUConfig, RAULanguageModel, RAULanguageTask
from gatedjax.training import (
    LazyRows,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    TrainState,
    fit,
    fit_lanes,
    init_state,
    lazy_rows,
    make_optimizer,
    make_parallel,
    make_train_step,
)
from tests.tolerances import BF16, F32, F64

SIZE, WIDTH = 12, 3
TABLE = "embed/table"
# row 0 is padding; 1 and 5 are in every batch, 5 twice; 2 once, 3 late; 9, 10, 11 never
BATCHES = np.array(
    [
        [[1, 5, 2, 0], [5, 1, 0, 0]],
        [[5, 5, 1, 1], [4, 0, 0, 0]],
        [[1, 0, 0, 0], [5, 4, 6, 5]],
        [[5, 1, 3, 7], [3, 8, 3, 0]],
        [[1, 1, 1, 1], [5, 0, 0, 0]],
    ],
    np.int32,
)
NEVER, ALWAYS = [9, 10, 11], [1, 5]

EMBED = gnn.WordEmbedding(SIZE, WIDTH)


class Words:
    """y = w . sum of the word vectors."""

    lookups = {TABLE: ("tokens",)}  # noqa: RUF012

    def init(self, key, batch):
        keys = jax.random.split(key)
        table = jax.random.normal(keys[0], (SIZE, WIDTH))
        return {"embed": {"table": table}, "w": jax.random.normal(keys[1], (WIDTH,))}

    def loss(self, params, batch, rngs):
        vectors = EMBED.apply({"params": params["embed"]}, batch["tokens"])
        each = (vectors.sum(1) @ params["w"] - batch["y"]) ** 2
        return jnp.sum(each * batch["weight"]), {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        return self.loss(params, batch, {})[1], {}


class Frozen(Words):
    frozen = ("embed",)


class Data:
    """Batches of four rows or so; a function of the step alone."""

    def __init__(self, seed=0):
        self.seed = seed

    def __getitem__(self, step):
        rng = np.random.default_rng([self.seed, step])
        return batch_of(rng.integers(0, SIZE - 3, (4, 5)).astype(np.int32))


def batch_of(tokens, y=None):
    count = len(tokens)
    return {
        "tokens": tokens,
        "y": np.arange(count, dtype=np.float32) if y is None else y,
        "weight": np.ones(count, np.float32),
        "example_id": np.arange(count, dtype=np.int32),
    }


def gradients(table, w, tokens, y):
    """Of the mean loss, in loops."""
    d_table, d_w = np.zeros_like(table), np.zeros_like(w)
    for row, target in zip(tokens, y, strict=True):
        total = sum((table[t] for t in row if t), np.zeros(WIDTH))
        slope = 2 * (total @ w - target) / len(tokens)
        d_w += slope * total
        for t in row:
            if t:
                d_table[t] += slope * w
    return d_table, d_w


def lazily(rule, table, w, clip):
    """Training in loops; rule(number, gradient, memory, t) changes one number of a parameter."""
    memory = {place: {"m": 0.0, "v": 0.0, "s": 0.1} for place in np.ndindex(SIZE + 1, WIDTH)}
    table, w = table.copy(), w.copy()
    for t, tokens in enumerate(BATCHES, 1):
        d_table, d_w = gradients(table, w, tokens, np.arange(len(tokens)))
        norm = np.sqrt(np.sum(d_table**2) + np.sum(d_w**2))
        shrink = clip / norm if norm > clip else 1.0
        for row in sorted(set(tokens.ravel().tolist())):
            for i in range(WIDTH):
                table[row, i] = rule(table[row, i], shrink * d_table[row, i], memory[row, i], t)
        for i in range(WIDTH):
            w[i] = rule(w[i], shrink * d_w[i], memory[SIZE, i], t)
    return table, w


def adamw(x, g, memory, t):
    memory["m"] = 0.9 * memory["m"] + 0.1 * g
    memory["v"] = 0.999 * memory["v"] + 0.001 * g * g
    m, v = memory["m"] / (1 - 0.9**t), memory["v"] / (1 - 0.999**t)
    return x - 0.1 * (m / (np.sqrt(v) + 1e-8) + 0.01 * x)


def adagrad(x, g, memory, t):
    memory["s"] += g * g
    return x - 0.1 * g / np.sqrt(memory["s"] + 1e-7)


def started(dtype=np.float64):
    rng = np.random.default_rng(1)
    table, w = rng.normal(size=(SIZE, WIDTH)), rng.normal(size=WIDTH)
    return table, w, {"embed": {"table": table.astype(dtype)}, "w": w.astype(dtype)}


def state_of(tx, dtype):
    params = started(dtype)[2]
    return TrainState(np.int32(0), params, jax.jit(tx.init)(params))


def stepped(tx, dtype=np.float64):
    """Parameters and optimiser state after the batches, by the step of `fit`."""
    state = state_of(tx, dtype)
    step = jax.jit(make_train_step(Words(), tx), donate_argnums=0)
    for tokens in BATCHES:
        state, metrics = step(state, batch_of(tokens), jax.random.key(0))
        assert float(metrics["skipped"].total) == 0
    return jax.device_get((state.params, state.opt_state))


def looped(tx, dtype=np.float64):
    """The same by a loop of one's own, with dense gradients."""
    start = state_of(tx, dtype)
    params, state = start.params, start.opt_state

    @jax.jit
    def update(params, state, batch):
        grads = jax.grad(lambda p: Words().loss(p, batch, {})[0] / len(batch["weight"]))(params)
        ids = {"ids": {TABLE: batch["tokens"]}} if isinstance(tx, LazyRows) else {}
        updates, state = tx.update(grads, state, params, **ids)
        return optax.apply_updates(params, updates), state

    for tokens in BATCHES:
        params, state = update(params, state, batch_of(tokens))
    return jax.device_get((params, state))


RULES = {
    "adamw": (adamw, OptimizerConfig(name="adamw", learning_rate=0.1, weight_decay=0.01)),
    "adagrad": (adagrad, OptimizerConfig(name="adagrad", learning_rate=0.1)),
}


@pytest.mark.parametrize("name", RULES)
def test_lazy_rows_equal_loops_over_the_rows_of_each_batch(name, x64):
    rule, config = RULES[name]
    config = dataclasses.replace(config, clip_norm=1.5, lazy_rows=True)
    table, w, _ = started()
    want = lazily(rule, table, w, clip=1.5)
    unclipped = lazily(rule, table, w, clip=1e9)
    assert abs(want[0] - unclipped[0]).max() > 1e-3  # it clips
    tx = make_optimizer(config, 10)
    for params, _ in (stepped(tx), looped(tx)):
        np.testing.assert_allclose(params["embed"]["table"], want[0], **F64)
        np.testing.assert_allclose(params["w"], want[1], **F64)
        np.testing.assert_array_equal(params["embed"]["table"][NEVER], table[NEVER])


def test_lazy_adagrad_and_sgd_are_adagrad_and_sgd_and_lazy_adam_is_not_adam(x64):
    for rule in (optax.adagrad(0.1), optax.sgd(0.1)):
        dense, lazy = looped(rule), stepped(lazy_rows(rule))
        assert jax.tree.structure(dense) == jax.tree.structure(lazy)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12), dense, lazy)
    # the gradient of w is that of all rows, so rows are told apart with w held still
    rule = optax.masked(optax.adam(0.1), {"embed": {"table": True}, "w": False})
    rule = optax.chain(rule, optax.masked(optax.set_to_zero(), {"embed": False, "w": True}))
    targets = stepped(lazy_rows(rule))[0]["embed"]["table"] - looped(rule)[0]["embed"]["table"]
    assert abs(targets[2]).max() > 0.05  # seen once: dense Adam goes on moving it
    np.testing.assert_array_equal(targets[NEVER], 0)


def test_a_row_that_every_batch_has_moves_as_under_dense_adam(x64):
    rule = optax.adam(0.1)
    rng = np.random.default_rng(2)
    table = {"embed": {"table": rng.normal(size=(SIZE, WIDTH))}}
    states = dict.fromkeys((False, True), jax.jit(rule.init)(table))
    params = {False: table, True: table}
    both = {False: rule, True: lazy_rows(rule)}

    def moved(lazy, grads, state, params, **more):
        change, state = both[lazy].update(grads, state, params, **more)
        return optax.apply_updates(params, change), state

    move = jax.jit(moved, static_argnums=0)
    for tokens in BATCHES:
        seen = np.isin(np.arange(SIZE), tokens)[:, None]
        grads = {"embed": {"table": rng.normal(size=(SIZE, WIDTH)) * seen}}
        for lazy in (False, True):
            more = {"ids": {TABLE: tokens}} if lazy else {}
            params[lazy], states[lazy] = move(lazy, grads, states[lazy], params[lazy], **more)
    dense, lazy = (np.asarray(params[which]["embed"]["table"]) for which in (False, True))
    np.testing.assert_allclose(lazy[ALWAYS], dense[ALWAYS], rtol=0, atol=1e-12)
    assert abs(lazy[[2, 4, 6]] - dense[[2, 4, 6]]).max(1).min() > 1e-3


def test_bfloat16_parameters_keep_their_dtype():
    rule = lazy_rows(optax.adam(0.1))
    half, full = stepped(rule, jnp.bfloat16)[0], stepped(rule, np.float32)[0]
    assert half["embed"]["table"].dtype == jnp.bfloat16
    wide = {"rtol": 5 * BF16["rtol"], "atol": 5 * BF16["atol"]}  # five roundings
    table = half["embed"]["table"].astype(np.float32)
    np.testing.assert_allclose(table, full["embed"]["table"], **wide)


def test_what_is_not_finite_changes_nothing_and_a_word_without_a_row_is_not_another_one():
    tx = lazy_rows(optax.adam(0.1))
    state = state_of(tx, np.float32)
    step = jax.jit(make_train_step(Words(), tx))
    words = [BATCHES[0] + SIZE, BATCHES[0] - 6]
    for batch in (batch_of(BATCHES[0], np.array([np.nan, 0], np.float32)), *map(batch_of, words)):
        new, metrics = step(state, batch, jax.random.key(0))
        assert float(metrics["skipped"].total) == 1
        jax.tree.map(np.testing.assert_array_equal, new.params, state.params)
        jax.tree.map(np.testing.assert_array_equal, new.opt_state, state.opt_state)
    rows = {"table": np.ones((2, WIDTH), np.float32), "table_rows": np.array([4, 7], np.int32)}
    found = jax.jit(EMBED.apply)({"params": rows}, np.array([4, 7, 5, 0, SIZE, -1], np.int32))
    np.testing.assert_array_equal(np.isnan(found).any(-1), [False, False, True, False, True, True])


@pytest.fixture(scope="module")
def config():
    return TrainConfig(
        num_steps=6, eval_every=6, checkpoint_every=3, best_metric="loss", best_mode="min",
        progress=False, parallel="single",
        optimizer=OptimizerConfig(learning_rate=0.1, clip_norm=1.0, lazy_rows=True),
    )  # fmt: skip


@pytest.fixture(scope="module")
def alone(config, tmp_path_factory):
    return fit(Words(), Data(), None, config, tmp_path_factory.mktemp("alone"))


def test_a_run_resumes_with_the_same_bits_and_dense_checkpoints(config, alone, tmp_path):
    fit(Words(), Data(), None, dataclasses.replace(config, num_steps=3), tmp_path)
    again = fit(Words(), Data(), None, config, tmp_path)
    jax.tree.map(np.testing.assert_array_equal, again.state, alone.state)
    dense = make_optimizer(dataclasses.replace(config.optimizer, lazy_rows=False), 6).init
    dense = jax.eval_shape(dense, alone.state.params)
    assert jax.tree.structure(dense) == jax.tree.structure(alone.state.opt_state)
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(alone.state.opt_state)]
    assert shapes == [leaf.shape for leaf in jax.tree.leaves(dense)]


@pytest.mark.parametrize(("kind", "accumulate"), [("sharding", 1), ("pmap", 1), ("single", 2)])
def test_every_kind_of_parallelism_trains_the_same_rows(config, alone, tmp_path, kind, accumulate):
    config = dataclasses.replace(config, parallel=kind, accumulate=accumulate)
    parallel = make_parallel(kind, jax.devices()[:3], accumulate=accumulate)
    found = fit(Words(), Data(), None, config, tmp_path, parallel=parallel)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **F32), found.state, alone.state)


def test_lanes_are_the_runs_that_they_would_be_alone(config, alone, tmp_path):
    lanes = fit_lanes(Words(), Data, None, dataclasses.replace(config, seeds=2), tmp_path)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **F32), lanes[0].state, alone.state)


def test_any_optimizer_of_optax_may_be_lazy(config, alone, tmp_path):
    plain = dataclasses.replace(config, optimizer=OptimizerConfig())
    tx = lazy_rows(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1)))
    found = fit(Words(), Data(), None, plain, tmp_path, optimizer=tx)
    jax.tree.map(np.testing.assert_array_equal, found.state.params, alone.state.params)


def test_what_cannot_be_lazy_is_refused_by_name(config, tmp_path):
    tx = lazy_rows(optax.adam(0.1))
    with pytest.raises(ValueError, match=r"frozen are \['embed/table'\]"):
        fit(Frozen(), Data(), None, config, tmp_path / "frozen")
    language = RAULanguageTask(RAULanguageModel(RAUConfig(), 10))
    with pytest.raises(ValueError, match="RAULanguageTask names none in `lookups`"):
        make_train_step(language, tx)

    class Elsewhere(Words):
        lookups = {"table": ("tokens",)}  # noqa: RUF012

    with pytest.raises(ValueError, match=r"lookups .* among \['embed/table', 'w'\], got \['table'"):
        jax.eval_shape(lambda: init_state(Elsewhere(), tx, jax.random.key(0), Data()[0]))
    for option in ({"ema_decay": 0.9}, {"reset_moments": True, "schedule": "staircase"}):
        with pytest.raises(ValueError, match="lazy_rows excludes reset_moments and ema_decay"):
            make_optimizer(OptimizerConfig(lazy_rows=True, **option), 10)

    class ByVocabulary(Words):
        def loss(self, params, batch, rngs):
            each = params["embed"]["table"][batch["tokens"]].sum((1, 2)) * params["w"].sum()
            return jnp.sum(each), {"loss": Ratio.of(each, batch["weight"])}

    state = state_of(tx, np.float32)
    with pytest.raises(ValueError, match="loss of ByVocabulary must find its words in 'embed/tab"):
        jax.eval_shape(make_train_step(ByVocabulary(), tx), state, Data()[0], jax.random.key(0))
    for names in ("tokens", ("words",)):
        words = Words()
        words.lookups = {TABLE: names}
        with pytest.raises(ValueError, match=r"lookups\['embed/table'\] must be a tuple of arrays"):
            jax.eval_shape(make_train_step(words, tx), state, Data()[0], jax.random.key(0))
    with pytest.raises(ValueError, match="inner must not sum gradients over steps"):
        jax.eval_shape(lazy_rows(optax.MultiSteps(optax.sgd(0.1), 2)).init, state.params)
    params = started(np.float32)[2]
    state = jax.eval_shape(tx.init, params)
    with pytest.raises(TypeError, match=r"ids\['embed/table'\] must be integers, got dtype bool"):
        tx.update(params, state, params, ids={TABLE: BATCHES[0] > 1})
    with pytest.raises(ValueError, match="lazy_rows needs ids in update"):
        optax.chain(tx).update(params, (state,), params)
    with pytest.raises(ValueError, match=r"ids must be of tables among .* got \['words'\]"):
        tx.update(params, state, params, ids={"words": BATCHES[0]})
    factored = lazy_rows(optax.scale_by_factored_rms(min_dim_size_to_factor=2))
    with pytest.raises(ValueError, match=r"state has the shape of 'embed/table', \[12, 3\], got"):
        jax.eval_shape(
            lambda p: factored.update(p, factored.init(p), p, ids={TABLE: BATCHES[0]}), params
        )
