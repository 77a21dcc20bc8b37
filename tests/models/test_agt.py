"""AGT: the whole network against loops, its baselines and ablations, invariances."""

import jax
import numpy as np
import pytest

from gatedjax.models import AGT, AGTConfig, AGTTask
from tests._drawn import drawn
from tests.functional.test_agt import gated_rows, highway_rows, select_rows
from tests.models._passes import apply, count_without_words, loss, make_batch
from tests.tolerances import F32

SMALL = {
    "num_layers": 3,
    "hidden": 4,
    "attention_hidden": 3,
    "embedding_dim": 5,
    "head_hidden": (6,),
}
ids = lambda variant: "-".join(map(str, variant.values())) or "agt"  # noqa: E731


def make_task(vocab_size=20, **config) -> AGTTask:
    return AGTTask(AGT(AGTConfig(**(SMALL | config)), vocab_size=vocab_size, num_classes=3))


def draw(task, batch):
    return drawn(task.init, batch)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({}, 2_390_005),
        ({"share_attention_matrix": True}, 2_390_005 - 14 * 200 * 200),
        ({"attend_raw": True}, 2_390_005 + 15 * 100 * 200),
        ({"num_layers": 1}, 60_200 + 40_200 + 41_205),
        ({"system": "highway"}, 60_200 + 40_200 + 14 * 2 * 40_200 + 41_205),
        ({"system": "average"}, 300 * 200 + 200 + 1_005),
    ],
    ids=lambda value: ids(value) if isinstance(value, dict) else "",
)
def test_parameter_counts_are_those_of_the_equations(config, count, np_rng):
    task = AGTTask(AGT(AGTConfig(**config), vocab_size=20, num_classes=5))
    assert count_without_words(task, make_batch(np_rng)) == count


def oracle(config, params, tokens):
    """Logits of one text without padding, in float64."""
    params = jax.tree.map(lambda p: np.asarray(p, np.float64), params)
    vectors = params["embed"]["embedding"][tokens]
    if config.system == "average":
        state = vectors.sum(0) / max(len(tokens), 1)
    else:
        words = np.tanh(vectors @ params["projection"]["kernel"] + params["projection"]["bias"])
        own = params["transform"]
        (selected,), _ = select_rows(
            words[None],
            own["attention_kernel"],
            own["score_kernel"],
            np.ones((1, len(tokens)), bool),
            vectors[None] if config.attend_raw else None,
        )
        missing = config.num_layers - len(selected)
        if config.ablate_mode != "highway":
            fill = selected[-1:] * (config.ablate_mode == "reuse_last_s")
            selected = np.concatenate([selected, *[fill] * missing])
        state = selected[0]
        if len(selected) > 1:
            state = gated_rows(selected, own["kernel"], own["recurrent_kernel"], own["bias"])[0][-1]
        if len(selected) < config.num_layers:
            more = highway_rows(state, own["highway_kernel"], own["highway_bias"])
            state = more[0][-1]
    for number in range(len(config.head_hidden)):
        layer = params[f"head_{number}"]
        state = np.tanh(state @ layer["kernel"] + layer["bias"])
    return state @ params["classifier"]["kernel"] + params["classifier"]["bias"]


@pytest.mark.parametrize(
    "config",
    [
        {"head_hidden": (6, 2)},
        {"share_attention_matrix": True, "attend_raw": True, "head_hidden": ()},
        {"ablate_above": 1},
        {"ablate_above": 2},
        {"ablate_above": 1, "ablate_mode": "reuse_last_s"},
        {"ablate_above": 0, "ablate_mode": "zero"},
        {"num_layers": 1},
        {"system": "highway"},
        {"system": "average"},
    ],
    ids=ids,
)
def test_logits_equal_the_loop_over_words_and_layers(config, np_rng):
    shortest = 0 if config == {"system": "average"} else 1
    task, batch = make_task(**config), make_batch(np_rng, (4, 7, shortest))
    params = draw(task, batch)
    output = apply(task.model, params, batch)
    for row, length in enumerate(batch["lengths"]):
        want = oracle(task.model.config, params, np.asarray(batch["tokens"][row, :length]))
        np.testing.assert_allclose(output.logits[row], want, **F32)
    if config.get("system") == "average":
        assert output.states is output.gates is output.attention is None
    else:
        layers = task.model.config.num_layers
        attending = 1 if "system" in config else config.get("ablate_above", layers - 1) + 1
        assert output.attention.shape == (3, attending, 8)
        assert output.gates.shape == (3, layers - 1, 4)
        assert output.states.shape == (3, layers, 4)


@pytest.mark.slow
def test_one_word_has_all_attention_and_a_text_without_words_is_finite(np_rng):
    task, batch = make_task(), make_batch(np_rng, lengths=(1, 0, 0))
    params = draw(task, batch)
    output = apply(task.model, params, batch)
    np.testing.assert_array_equal(output.attention[0, :, 0], 1.0)
    np.testing.assert_array_equal(output.attention[1:], 0.0)
    np.testing.assert_array_equal(output.states[1:, 0], 0.0)
    _, gradient = loss(task, params, batch)
    for leaf in jax.tree.leaves((output, gradient)):
        assert np.all(np.isfinite(leaf))


@pytest.mark.slow
def test_gates_start_at_the_sigmoid_of_their_bias_and_every_matrix_at_glorot(np_rng):
    sizes = {"hidden": 40, "attention_hidden": 20, "num_layers": 5}
    task, batch = make_task(**sizes), make_batch(np_rng)
    params = jax.jit(task.init)(jax.random.key(0), batch)
    gates = apply(task.model, params, batch).gates
    np.testing.assert_allclose(np.mean(gates), 0.731, atol=0.02)
    own = params["transform"]
    np.testing.assert_array_equal(own["bias"], np.repeat([[1.0] * 40 + [0.0] * 40], 4, axis=0))
    matrices = {
        # name: (values of one layer, rows and columns of the matrix that they belong to)
        "W": (own["attention_kernel"], 40, 20),
        "gate": (own["kernel"][..., :40], 40, 40),
        "f of s": (own["kernel"][..., 40:], 80, 40),
        "f of y": (own["recurrent_kernel"], 80, 40),
    }
    for name, (values, rows, columns) in matrices.items():
        limit = np.sqrt(6 / (rows + columns))
        for layer in np.asarray(values):
            top = np.abs(layer).max()
            assert 0.97 * limit < top <= limit, name
            np.testing.assert_allclose(layer.std(), limit / np.sqrt(3), rtol=0.06, err_msg=name)
    np.testing.assert_allclose(own["score_kernel"].std(), 20**-0.5, rtol=0.2)
