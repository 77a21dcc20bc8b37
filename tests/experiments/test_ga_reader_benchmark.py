"""The benchmark of the GA Reader at a tiny size: both are one network, and what is written."""

import contextlib
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.benchmarks import _harness, ga_reader
from experiments.benchmarks._harness import marks
from tests.tolerances import F32

TINY = ga_reader.Sizes(batch=3, document=12, query=4, hidden=3, hops=2, embedding_dim=2)


def as_flax(params):
    """Our parameters under the names of Flax's cells."""
    found = {"embed": {"embedding": params["embed"]["embedding"].at[0].set(0.0)}}
    for hop in range(TINY.hops):
        for text in ("document", "query"):
            own = params[f"hop_{hop}"][text]
            for ours, theirs in (("forward", "ahead"), ("backward", "back")):
                blocks = {
                    part: jnp.split(own["layer_0"][ours][part], 3, axis=-1)
                    for part in ("kernel", "recurrent_kernel", "bias")
                }
                recurrent, zeros = blocks["recurrent_kernel"], jnp.zeros(TINY.hidden)
                cell = {"hn": {"kernel": recurrent[2], "bias": zeros}}
                for gate, number in (("r", 0), ("z", 1), ("n", 2)):
                    cell[f"i{gate}"] = {
                        "kernel": blocks["kernel"][number],
                        "bias": blocks["bias"][number],
                    }
                    if gate != "n":
                        cell[f"h{gate}"] = {"kernel": recurrent[number]}
                found[f"{text}_{hop}_{theirs}"] = cell
    return found


@pytest.mark.slow
def test_both_contestants_are_the_same_network():
    tasks, batch = ga_reader.make_tasks(TINY), ga_reader.make_batch(TINY)
    ours, peer = (tasks[name].model for name in (ga_reader.OURS, ga_reader.FLAX))
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(tasks[ga_reader.OURS].init, jax.random.key(0), batch)
    params = jax.tree.map(lambda s: jnp.asarray(rng.normal(size=s.shape), s.dtype), shapes)
    # Flax's z keeps the old state, ours takes the new one: sigmoid(-a) = 1 - sigmoid(a)
    flipped = jax.tree_util.tree_map_with_path(
        functools.partial(negate_update, TINY.hidden), params
    )
    theirs = as_flax(flipped)
    wanted = jax.eval_shape(tasks[ga_reader.FLAX].init, jax.random.key(0), batch)
    assert jax.tree.map(jnp.shape, theirs) == jax.tree.map(jnp.shape, wanted)
    one = jax.jit(lambda p: ours.apply({"params": p}, batch).logits)(params)
    two = jax.jit(lambda p: peer.apply({"params": p}, batch).logits)(theirs)
    np.testing.assert_allclose(one, two, **F32)
    assert np.ptp(np.asarray(one)) > 0.1


def negate_update(hidden, path, value):
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    if "layer_0" not in name:
        return value
    sign = np.ones(3 * hidden, np.float32)
    sign[hidden : 2 * hidden] = -1
    return value * (sign if value.ndim == 1 else sign[None])


@pytest.mark.slow
def test_the_figures_are_measured_written_and_shown(tmp_path, monkeypatch):
    # the time of a compilation is a figure, and a test of its own: here programs may be known
    kept = []
    known = lambda: contextlib.nullcontext(kept.append(1))  # noqa: E731
    monkeypatch.setattr(_harness, "no_compilation_cache", known)
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    begin, end = marks(ga_reader.COMMAND)
    page.write_text(f"above\n{begin}\nold\n{end}\nbelow\n", encoding="utf-8")
    monkeypatch.setattr(ga_reader, "SIZES", TINY)
    rows = ga_reader.main(ga_reader.Options(repeats=1, json=figures, docs=page))
    assert kept == [1] * 3
    assert json.loads(figures.read_text())["rows"] == rows
    assert [row["step of"] for row in rows] == [
        *(ga_reader.OURS, ga_reader.CLIPPED, ga_reader.FLAX),
    ]
    assert rows[0]["ratio"] == 1
    assert all(row["memory_bytes"] > 0 for row in rows)
    text = page.read_text(encoding="utf-8")
    assert "old" not in text
    assert text.startswith("above")
    assert text.endswith("below\n")
    assert "B 3, N 12, Q 4, H 3, K 2, 1 turns" in text
    assert text.count("\n| ") == 5
