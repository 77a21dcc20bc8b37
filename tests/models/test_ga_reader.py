"""GA Reader: the whole network against loops, its baselines, candidates, invariances."""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest

from gatedjax.models import GAReader, GAReaderConfig, GAReaderTask, ga_reader_optimizer
from gatedjax.models._cloze import ClozeBatch
from gatedjax.training import OptimizerConfig, evaluate, make_parallel
from tests._drawn import drawn
from tests._grouped import grouped
from tests._slow import slow_but
from tests.models import _passes
from tests.models._losses import total_loss
from tests.models._passes import Recording, apply, count_without_words, in_numpy
from tests.tolerances import F32, F64

SMALL = {
    "hops": 2,
    "hidden": 3,
    "embedding_dim": 4,
    "char_dim": 0,
    "char_hidden": 2,
    "char_features": 3,
}
VOCABULARY, CHARACTERS = 20, 7
name_of = lambda variant: "-".join(map(str, variant.values())) or "default"  # noqa: E731


def make_task(**config) -> GAReaderTask:
    config = grouped(GAReaderConfig, **(SMALL | config))
    characters = CHARACTERS if config.characters.char_dim else 0
    return GAReaderTask(GAReader(config, VOCABULARY, num_characters=characters))


def make_batch(rng, documents=(6, 4, 1), queries=(4, 3, 2), size=7, asked=5, listed=False):
    """The candidates are words; the first is in every document, two of them share a token."""
    rows = len(documents)
    lengths = {"document": np.asarray(documents, np.int32), "query": np.asarray(queries, np.int32)}
    batch = {"cloze": np.asarray([max(q - 1 - i, 0) for i, q in enumerate(queries)], np.int32)}
    for name, width in (("document", size), ("query", asked)):
        real = np.arange(width)[None, :] < lengths[name][:, None]
        batch[name] = (rng.integers(2, 9, real.shape) * real).astype(np.int32)
        batch[f"{name}_lengths"] = lengths[name]
    occurrence = rng.random((rows, size, 3)) < 0.4
    occurrence[:, 0, :2] = True
    occurrence[0, :, 2] = False
    if listed:
        places = np.full((rows, 3, size), -1, np.int32)
        for row, candidate in np.ndindex(rows, 3):
            found = np.flatnonzero(occurrence[row, :, candidate])
            places[row, candidate, : len(found)] = found
        batch["candidate_positions"] = places
    else:
        batch["occurrence"] = occurrence
    batch["candidate_mask"] = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1]], bool)[:rows]
    # the words of each example: those of both texts by their id
    letters = np.array([0, 3, 1, 2, 3, 4, 1, 2, 3], np.int32)
    spelling = np.array([[(w * (p + 1)) % 6 + 1 for p in range(4)] for w in range(9)])
    batch["word_characters"] = np.stack(
        [spelling * (np.arange(4) < letters[:, None])] * rows
    ).astype(np.int32)
    batch["word_lengths"] = np.stack([letters] * rows)
    batch["document_words"], batch["query_words"] = batch["document"], batch["query"]
    batch["label"] = np.array([1, 0, 1], np.int32)[:rows]
    batch["weight"] = np.ones(rows, np.float32)
    batch["example_id"] = np.arange(10, 10 + rows, dtype=np.int32)
    return batch


def draw(task, batch, dtype=np.float32):
    return drawn(task.init, batch, std=0.7, dtype=dtype)


def pass_of_the_loss(task, params, batch):
    """((loss, (metrics, output of the network)), gradient), the network being compiled once."""
    keys = {"dropout": jax.random.key(3)}

    def loss(p):
        recording = Recording(task.model)
        total, metrics = total_loss(dataclasses.replace(task, model=recording), p, batch, keys)
        return total, (metrics, recording.output)

    return jax.value_and_grad(loss, has_aux=True)(params)


whole_pass = in_numpy(pass_of_the_loss)


def loss_and_gradient(task, params, batch):
    (loss, (metrics, _)), grads = whole_pass(task, params, batch)
    return (loss, metrics), grads


def program(function, *args):
    """What is traced, as text, to be compared with that of another function."""
    return re.sub(r"0x[0-9a-f]+", "", str(jax.make_jaxpr(function)(*args)))


# -- the network as loops over tokens, in float64; analytic, so that it has exact derivatives --


def gru_states(params, name, xs, reset_after):
    """The state after every step of one direction."""
    w, u, b = (params["layer_0"][name][k] for k in ("kernel", "recurrent_kernel", "bias"))
    size = len(u)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    h, states = np.zeros(size, w.dtype), []
    for x in xs:
        a, v = x @ w + b, h @ u
        r, z = sigmoid((a + v)[:size]), sigmoid((a + v)[size : 2 * size])
        inner = r * v[2 * size :] if reset_after else (r * h) @ u[:, 2 * size :]
        h = (1 - z) * h + z * np.tanh(a[2 * size :] + inner)
        states.append(h)
    return np.array(states).reshape(len(xs), size)


def both_ways(params, xs, reset_after):
    """(states of both directions at every token, final states)."""
    ahead = gru_states(params, "forward", xs, reset_after)
    back = gru_states(params, "backward", xs[::-1], reset_after)[::-1]
    return np.concatenate([ahead, back], -1), np.concatenate([ahead[-1], back[0]])


def oracle(config, params, example):
    """Pr of every candidate of one example without padding."""
    vectors = {}
    for name in ("document", "query"):
        vectors[name] = params["embed"]["embedding"][example[name]]
        if config.characters.char_dim:
            own = params["characters"]
            spelled = []
            for row in example[f"{name}_words"]:
                ids = example["word_characters"][row][: example["word_lengths"][row]]
                _, final = both_ways(own["gru"], own["embedding"][ids], config.reset_after)
                spelled.append(final @ own["projection"]["kernel"] + own["projection"]["bias"])
            vectors[name] = np.concatenate([vectors[name], spelled], -1)
    xs = vectors["document"]
    for k in range(1, config.hops + 1):
        own = params[f"hop_{k - 1}"]
        last = k == config.hops
        if last and config.feature:
            flags = [int(token in example["query"]) for token in example["document"]]
            xs = np.concatenate([xs, params["feature_embedding"][flags]], -1)
        if config.gating == "none" and not last:
            xs, _ = both_ways(own, xs, config.reset_after)
            continue
        document, _ = both_ways(own["document"], xs, config.reset_after)
        query, final = both_ways(own["query"], vectors["query"], config.reset_after)
        if last:
            break
        gated = []
        for token in document:
            if config.token_attention:
                weights = np.exp(query @ token)
                view = (weights / weights.sum()) @ query
            else:
                view = final
            gated.append(
                {"multiply": token * view, "sum": token + view}.get(
                    config.gating, np.concatenate([token, view])
                )
            )
        xs = np.array(gated)
    pointer = final if config.query_vector == "final" else query[example["cloze"]]
    weights = np.exp(document @ pointer)
    scores = np.array([weights[places].sum() for places in example["places"]])
    union = sorted(set().union(*example["places"]))
    return scores / (scores.sum() if config.aggregation == "paper" else weights[union].sum())


def examples_of(batch):
    """The rows of a batch without their padding."""
    batch = {name: np.asarray(value) for name, value in batch.items()}
    for row in range(len(batch["cloze"])):
        one = {name: value[row] for name, value in batch.items()}
        for name in ("document", "query"):
            length = one[f"{name}_lengths"]
            one[name], one[f"{name}_words"] = one[name][:length], one[f"{name}_words"][:length]
        if "occurrence" in one:
            places = [list(np.flatnonzero(flags)) for flags in one["occurrence"].T]
        else:
            places = [[p for p in listed if p >= 0] for listed in one["candidate_positions"]]
        one["places"] = [
            [p for p in found if p < one["document_lengths"]] if real else []
            for found, real in zip(places, one["candidate_mask"], strict=True)
        ]
        yield one


def oracle_loss(config, params, batch):
    """Sum of -log Pr(answer)."""
    examples = list(examples_of(batch))
    return sum(-np.log(oracle(config, params, one)[one["label"]]) for one in examples)


@pytest.mark.parametrize(
    ("listed", "config"),
    slow_but(
        [
            (False, {"hops": 1, "query_vector": "final"}),
            (True, {"hops": 3, "char_dim": 2, "feature": True}),
            (True, {"gating": "concat", "aggregation": "code", "reset_after": False}),
            (False, {"gating": "sum", "hops": 3, "char_dim": 2}),
            (False, {"token_attention": False, "gating": "concat", "hops": 3}),
            (False, {"gating": "none", "hops": 3, "feature": True, "query_vector": "final"}),
        ],
        (False, {"hops": 1, "query_vector": "final"}),
        (True, {"hops": 3, "char_dim": 2, "feature": True}),
        (True, {"gating": "concat", "aggregation": "code", "reset_after": False}),
    ),
    ids=lambda value: name_of(value) if isinstance(value, dict) else "",
)
def test_probabilities_and_gradients_equal_the_loop(listed, config, np_rng, x64):
    task = make_task(dropout=0.0, dtype="float64", **config)
    batch = make_batch(np_rng, listed=listed)
    arrays = draw(task, batch, np.float64)
    (loss, (metrics, output)), grads = whole_pass(task, arrays, batch)
    c = task.model.config
    # the table's row of padding is the zero vector, which the loop never reads
    for row, one in enumerate(examples_of(batch)):
        want = oracle(c, arrays, one)
        np.testing.assert_allclose(np.exp(output.logits[row]), want, **F64)
        if c.aggregation == "paper":
            np.testing.assert_allclose(np.exp(output.logits[row]).sum(), 1.0, **F64)
            shares = np.array([output.document_attention[row][at].sum() for at in one["places"]])
            np.testing.assert_allclose(shares / shares.sum(), want, **F64)
    if c.gating == "none" or c.hops == 1:
        assert output.attention == ()
    elif not c.token_attention:  # all tokens see the final states
        np.testing.assert_array_equal(output.attention[0], np.ones((3, 7, 1)))
    np.testing.assert_allclose(loss, oracle_loss(c, arrays, batch), **F64)
    assert metrics["loss"].count == 3
    for _ in range(3):
        change = jax.tree.map(lambda p: np_rng.normal(size=p.shape), arrays)
        moved = jax.tree.map(lambda p, d: p + 1e-30j * d, arrays, change)
        slope = np.imag(oracle_loss(c, moved, batch)) * 1e30
        got = sum(
            np.vdot(d, g) for d, g in zip(*map(jax.tree.leaves, (change, grads)), strict=True)
        )
        np.testing.assert_allclose(got, slope, **F64)


@pytest.mark.slow
def test_one_hop_is_the_same_program_whatever_the_gating(np_rng):
    batch = make_batch(np_rng)
    params = draw(make_task(hops=1), batch)

    def whole(**config):
        task = make_task(hops=1, dropout=0.0, **config)
        return program(functools.partial(pass_of_the_loss, task), params, batch)

    programs = {whole(gating=gating) for gating in ("multiply", "sum", "concat", "none")}
    assert len(programs) == 1
    assert whole(aggregation="code") not in programs


# -- parameters --------------------------------------------------------------------------------


def gru_size(width, hidden):
    return 2 * 3 * hidden * (width + hidden + 1)


WORDS_128 = 3 * gru_size(100, 128)
CHARACTER_PART = CHARACTERS * 25 + gru_size(25, 25) + 51 * 50


@pytest.mark.parametrize(
    ("config", "want"),
    [
        ({"char_dim": 0}, WORDS_128 + gru_size(100, 128) + 2 * gru_size(256, 128)),
        ({"char_dim": 0, "hops": 1}, 2 * gru_size(100, 128)),
        (
            {"char_dim": 0, "gating": "concat"},
            WORDS_128 + gru_size(100, 128) + 2 * gru_size(512, 128),
        ),
        (
            {"char_dim": 0, "gating": "none"},
            2 * gru_size(100, 128) + 2 * gru_size(256, 128),
        ),
        (
            {"feature": True},
            CHARACTER_PART + 4 * gru_size(150, 128) + gru_size(256, 128) + gru_size(258, 128) + 4,
        ),
    ],
    ids=lambda value: name_of(value) if isinstance(value, dict) else "",
)
def test_parameter_counts_are_those_of_the_equations(config, want, np_rng):
    whole = {"char_features": 50, "char_hidden": 25, "char_dim": 25, "hidden": 128, "hops": 3}
    task = make_task(**(whole | {"embedding_dim": 100} | config))
    assert count_without_words(task, make_batch(np_rng)) == want


@pytest.mark.slow
def test_kernels_start_as_the_program_of_the_paper_drew_them(np_rng):
    batch = make_batch(np_rng)
    task = make_task(hidden=40, embedding_dim=40, char_dim=2, feature=True)
    params = jax.jit(task.init)(jax.random.key(0), batch)
    own = params["hop_0"]["query"]
    own = own["layer_0"]["forward"]
    for name in ("kernel", "recurrent_kernel"):
        kernel = np.asarray(own[name])
        np.testing.assert_allclose(kernel.std(), 0.1, rtol=0.05)
        assert np.abs(kernel).max() > 0.2
    np.testing.assert_array_equal(own["bias"], 0.0)
    assert 0 < np.abs(params["feature_embedding"]).max() < 0.05
    assert 0 < np.abs(params["characters"]["embedding"]).max() < 0.05
    np.testing.assert_array_equal(params["characters"]["projection"]["bias"], 0.0)
    assert "kernel_init" not in grouped(GAReaderConfig, init="glorot_orthogonal").gru_options()


# -- invariances -------------------------------------------------------------------------------


@pytest.mark.slow
def test_empty_documents_and_queries_have_finite_gradients_and_no_loss(np_rng):
    task = make_task(dropout=0.0, feature=True, char_dim=2)
    batch = make_batch(np_rng, documents=(6, 0, 3), queries=(4, 3, 2))
    batch |= {
        "query_lengths": np.array([4, 3, 0], np.int32),
        "word_lengths": batch["word_lengths"] * np.array([[1], [0], [1]], np.int32),
    }
    params = draw(task, batch)
    (loss, (metrics, output)), grads = whole_pass(task, params, batch)
    assert np.isfinite(loss)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
    assert np.isneginf(output.logits[1]).all()
    np.testing.assert_array_equal(output.document_attention[1], 0.0)
    # without a gap all real tokens are attended to alike
    np.testing.assert_allclose(output.document_attention[2, :3], 1 / 3, **F32)
    assert metrics["loss"].count == 2
    assert metrics["unanswerable"].total == 1


def test_a_question_without_a_gap_may_fill_up_a_batch(np_rng):
    batch = make_batch(np_rng) | {"cloze": np.array([3, 9, -1], np.int32)}
    empty = {"query_lengths": np.array([4, 0, 0], np.int32)}
    for filler in ({"weight": np.float32([1, 0, 0])}, empty):
        given = {name: value for name, value in batch.items() if name != "weight"} | filler
        found = ClozeBatch.of(given, characters=False).at_cloze(np.ones((3, 5, 2), np.float32))
        np.testing.assert_array_equal(found, [[1, 1], [0, 0], [0, 0]])
    without = make_batch(np_rng, queries=(0, 0, 0), asked=0) | {"weight": np.zeros(3, np.float32)}
    states = ClozeBatch.of(without, characters=False).at_cloze(np.ones((3, 0, 2), np.float32))
    np.testing.assert_array_equal(states, np.zeros((3, 2)))


def test_the_optimiser_is_that_of_the_program():
    found = ga_reader_optimizer(7, learning_rate=0.1, clip_norm=3.0, reset_moments=True)
    assert found == OptimizerConfig(
        name="adam", learning_rate=0.1, schedule="staircase", decay_rate=0.5, decay_begin=21,
        decay_every=7, clip_norm=3.0, reset_moments=True,
    )  # fmt: skip


# -- the task ----------------------------------------------------------------------------------


def unanswerable(batch):
    """Row 0: an answer that is no candidate; row 1: one that is masked; row 2: nothing occurs."""
    occurrence = batch["occurrence"] & np.array([True, True, False])[:, None, None]
    return batch | {"label": np.array([-1, 2, 0], np.int32), "occurrence": occurrence}


@pytest.mark.slow
def test_examples_without_an_answer_are_not_trained_on_and_count_as_wrong(np_rng):
    task = make_task(dropout=0.0)
    batch = make_batch(np_rng)
    params = draw(task, batch)
    (loss, metrics), grads = loss_and_gradient(task, params, unanswerable(batch))
    assert loss == 0
    assert all((g == 0).all() for g in jax.tree.leaves(grads))
    assert (metrics["loss"].count, metrics["unanswerable"].total) == (0, 3)
    metrics, predictions = _passes.evaluate(task, params, unanswerable(batch))
    assert (metrics["accuracy"].total, metrics["accuracy"].count) == (0, 3)
    np.testing.assert_array_equal(predictions["correct"], 0.0)
    assert predictions["predicted"][2] == 0
    # the first real candidate where none occurs
    masked = unanswerable(batch) | {"candidate_mask": np.arange(9).reshape(3, 3) != 6}
    assert _passes.evaluate(task, params, masked)[1]["predicted"][2] == 1
    # one row of them changes nothing for the others
    batch["occurrence"][2, 0, 2] = True  # the last candidate occurs
    for row, outside in ((0, -1), (2, 3)):
        here = np.arange(3) == row
        mixed = batch | {"label": np.where(here, np.int32(outside), batch["label"])}
        (one, first), grads = loss_and_gradient(task, params, mixed)
        (two, second), others = loss_and_gradient(
            task, params, batch | {"weight": np.float32(~here)}
        )
        assert one == two
        assert first["loss"] == second["loss"]
        jax.tree.map(np.testing.assert_array_equal, grads, others)


@pytest.mark.slow
def test_evaluation_reports_every_example(np_rng):
    task = make_task()
    batch = make_batch(np_rng)
    params = draw(task, batch)
    metrics, rows = evaluate(task, params, [batch], make_parallel("single"))
    output = apply(task.model, params, batch)
    np.testing.assert_array_equal(rows["predicted"], output.logits.argmax(-1))
    np.testing.assert_array_equal(rows["correct"], rows["predicted"] == batch["label"])
    assert metrics["accuracy"] == pytest.approx(rows["correct"].mean())
    assert metrics["unanswerable"] == 0
    for name in ("example_id", "label", "weight"):
        np.testing.assert_array_equal(rows[name], batch[name])


@pytest.mark.slow
def test_the_step_clip_bounds_what_a_step_passes_on(np_rng):
    batch = make_batch(np_rng)
    loose, tight = make_task(dropout=0.0), make_task(dropout=0.0, step_clip=1e-3)
    params = draw(loose, batch)
    (_, plain), (_, bounded) = (loss_and_gradient(task, params, batch) for task in (loose, tight))
    bias = bounded["hop_1"]["document"]["layer_0"]["forward"]["bias"]
    # 3 examples of at most 6 steps
    assert 0 < np.abs(bias).max() <= 18e-3
    assert np.abs(plain["hop_1"]["document"]["layer_0"]["forward"]["bias"]).max() > 18e-3
