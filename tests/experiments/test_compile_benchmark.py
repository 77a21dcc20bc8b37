"""The benchmark of compile times: every network has a step, and sizes are those asked for."""

import json
from typing import get_args

import jax
import optax
import pytest

from experiments.benchmarks import _harness
from experiments.benchmarks import compile as benchmark
from gatedjax.models._classification import ClassifierTask
from gatedjax.training import init_state, make_train_step

TASKS = {model: benchmark.task_of(model, 1) for model in get_args(benchmark.Model)}
TASKS |= {f"flax {m}": ClassifierTask(benchmark.FlaxClassifier(m, 2)) for m in benchmark.FLAX}


@pytest.mark.slow
@pytest.mark.usefixtures("known_programs")
def test_one_turn_gives_every_figure(tmp_path):
    target = tmp_path / "figures.json"
    page = tmp_path / "page.md"
    page.write_text("\n".join(_harness.marks(benchmark.COMMAND)))
    options = benchmark.Options(
        models=("lstm",), layers=(1,), words=(4,), repeats=1, json=target, docs=page
    )
    rows = benchmark.main(options)
    assert [(row["model"], row["layers"], row["words"]) for row in rows] == [("lstm", 1, 4)]
    parts = [
        rows[0][f"{who}_{part}_s"] for who in ("ours", "flax") for part in ("trace", "compile")
    ]
    assert min(parts) > 0
    assert rows[0]["ratio"] == pytest.approx(sum(parts[2:]) / sum(parts[:2]))
    assert rows[0]["ours_temp_mib"] > 0
    assert "| lstm | " in page.read_text()
    assert json.loads(target.read_text())["rows"] == rows


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_every_network_has_a_step(name):
    batch, tx, key = benchmark.make_batch(name, 12), optax.sgd(0.1), jax.random.key(0)
    state = jax.eval_shape(lambda key: init_state(TASKS[name], tx, key, batch), key)
    new, metrics = jax.eval_shape(make_train_step(TASKS[name], tx), state, batch, key)
    assert jax.tree.structure(new) == jax.tree.structure(state)
    assert "accuracy" in metrics


@pytest.mark.slow
def test_depths_are_at_the_first_length_and_lengths_at_the_first_depth():
    options = benchmark.Options(layers=(1, 3), words=(5, 9, 7))
    assert benchmark.sizes(options) == [(1, 5), (3, 5), (1, 9), (1, 7)]
