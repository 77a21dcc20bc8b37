"""The benchmark of AGT counts the products of the network, and measures."""

import json

import jax
import pytest

from experiments.benchmarks import agt
from gatedjax.models import AGT, AGTConfig


@pytest.mark.slow
def test_the_counted_products_are_those_of_the_compiled_network():
    """Against XLA's own count for the program, in which the element-wise work is a few percent."""
    config = AGTConfig(num_layers=4)
    batch = {"tokens": jax.numpy.ones((8, 10), int), "lengths": jax.numpy.full(8, 10)}
    model = AGT(config, 20, 5)
    params = model.init(jax.random.key(0), batch)
    stack = jax.jit(model.apply).lower(params, batch).compile().cost_analysis()["flops"]
    shapes = agt.shapes(config, 8, 10, 5)
    counted = 0
    for number, (count, rows, inner, columns) in enumerate(shapes):
        # XLA counts the body of the scan over layers once
        count = 1 if number in (4, 5) else count
        counted += 2 * count * rows * inner * columns
    assert counted == pytest.approx(stack, rel=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("known_programs")
def test_one_turn_gives_every_figure(tmp_path, monkeypatch):
    target = tmp_path / "figures.json"
    monkeypatch.setattr(agt, "CASES", (agt.Case(vocabulary=10, batch=2, words=3, layers=2),))
    rows = agt.main(agt.Options(repeats=1, json=target))
    assert [row["vocabulary"] for row in rows] == [10]
    for name in ("step", "fit_step"):  # there is one turn
        found = rows[0]["rows"]
        ratio = found[name]["ms"] / found["products"]["ms"]
        assert found[name]["ratio"] == pytest.approx(ratio)
    assert json.loads(target.read_text())["rows"] == rows
