"""The benchmark of recurrences at a tiny size: who takes part, what is counted, what is written."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.benchmarks import _recurrence_peers as peers
from experiments.benchmarks import recurrence
from experiments.benchmarks import recurrence as report
from experiments.benchmarks._harness import marks, no_compilation_cache
from experiments.benchmarks._recurrence_peers import linear_recurrence
from gatedjax.functional import GRUWeights

B, T, H = 2, 3, 4
PACKAGES = {"haiku": "haiku", "equinox": "equinox", "keras": "keras", "torch": "torch"}
CUDNN = "jax cudnn"
# who has which cell
HAVE = {("lstm", name) for name in peers.CONTESTANTS if not name.startswith("gatedjax ")}
if jax.default_backend() != "gpu":
    HAVE -= {("lstm", CUDNN)}
HAVE |= {("gru", name) for _, name in HAVE if "optimised" not in name}
HAVE |= {("gru", "gatedjax reset_after"), ("rau", "gatedjax")}
HAVE |= {("rau", "gatedjax GRU"), ("rau", "scanned step"), ("rau", peers.PRODUCTS)}
ALL = [(cell, name) for cell in ("lstm", "gru", "rau") for name in peers.CONTESTANTS]


def make_case(cell="lstm", **options):
    return peers.Case(cell=cell, batch=B, steps=T, hidden=H, **options)


def row(ms, memory=2_000_000):
    times = {f"{k}_{n}": ms for k in ("forward", "train") for n in ("ms", "min_ms", "gflops")}
    return times | {"train_all_ms": [ms] * 3, "memory_bytes": memory, "compile_s": 0.5}


def figures(cell, rows, **options):
    """Returns what --json writes, for one case."""
    case = {"cell": cell, "batch": 128, "steps": 28, "hidden": 128, "layers": 1}
    case |= {"bidirectional": False, "devices": 1} | options
    result = {"case": case, "real_steps": 0.6, "gemm_gflops": 100.0, "load": [0.1, 0.2]}
    about = {"processor": "an abacus", "cores": 2, "backend": "cpu", "python": "3", "versions": {}}
    return {"machine": about, "results": [result | {"rows": rows}]}


@pytest.mark.parametrize(
    "options", [{}, {"layers": 2, "bidirectional": True}, {"devices": 2}], ids=str
)
def test_our_lstm_runs_in_every_shape(options):
    case = make_case(**options)
    runs = peers.run_gatedjax(case, *peers.make_batch(case))
    assert runs.forward().shape == (B, T, H * (1 + case.bidirectional))
    assert runs.compile_s > 0
    assert runs.memory_bytes > 4 * B * T * H


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "name"), ALL)
def test_contestants_give_outputs_and_finite_gradients_or_say_why_not(cell, name, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # read when it is imported
    if name.split()[0] in PACKAGES:
        pytest.importorskip(PACKAGES[name.split()[0]])
    case = make_case(cell)
    make = functools.partial(peers.CONTESTANTS[name], case, *peers.make_batch(case))
    if (cell, name) not in HAVE:
        with pytest.raises(peers.NotAvailable, match=f"{peers.NO_CELL}|wants a GPU|by the scan"):
            make()
        return
    with jax.numpy_rank_promotion("allow"):  # Keras relies on it
        runs = make()
    outputs = runs.forward()
    assert getattr(outputs, "result", outputs).shape == (B, T, H)  # PyTorch's are wrapped
    assert runs.train() is not None


@pytest.mark.parametrize("batch", [2, 5])  # feature-major and batch-major
def test_products_alone_are_a_linear_recurrence_with_its_gradients(batch, x64):
    rng = np.random.default_rng(0)
    xs, cotangent = rng.normal(size=(2, batch, T, H))
    weights = GRUWeights(*(rng.normal(size=s) for s in ((H, 3 * H), (H, 3 * H), (3 * H,))))

    def unrolled(weights, xs, reverse):
        h, states = jnp.zeros((batch, H)), [None] * T
        for t in reversed(range(T)) if reverse else range(T):
            sums = xs[:, t] @ weights.input + h @ weights.recurrent + weights.bias[None]
            h = states[t] = sum(jnp.split(sums, 3, axis=1))
        return h, jnp.stack(states, axis=1)

    changes = np.ones((batch, H)), cotangent

    @functools.partial(jax.jit, static_argnums=0)
    def both(unroll, weights, xs):
        results, pullback = jax.vjp(unroll, weights, xs)
        return results, pullback(changes)

    for reverse in (False, True):
        ours = both(functools.partial(linear_recurrence, mask=None, reverse=reverse), weights, xs)
        plain = both(functools.partial(unrolled, reverse=reverse), weights, xs)
        for got, expected in zip(*map(jax.tree.leaves, (ours, plain)), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_haiku_and_equinox_hold_the_state_at_padding():
    case = make_case("gru")
    xs, _ = peers.make_batch(case)
    lengths = np.array([2, 3], np.int32)
    for name in ("haiku", "equinox"):
        pytest.importorskip(name)
        run = peers.CONTESTANTS[name]
        moved = xs.copy()
        moved[0, 2] = 7
        outputs = [np.asarray(run(case, x, lengths).forward()) for x in (xs, moved)]
        np.testing.assert_array_equal(outputs[0][0, :2], outputs[1][0, :2])
        np.testing.assert_array_equal(outputs[0][1], outputs[1][1])


def test_a_contestant_whose_gradients_are_not_finite_takes_no_part():
    case = make_case()

    @jax.custom_vjp
    def wrong(params, xs, lengths):
        return xs * params

    wrong.defvjp(
        lambda params, xs, lengths: (xs * params, (params, xs)),
        lambda saved, dy: (saved[0] * np.nan, saved[1], None),
    )
    with pytest.raises(peers.NotAvailable, match="not finite"):
        peers.jax_runs(case, wrong, np.float32(2), *peers.make_batch(case))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (make_case("lstm"), 2 * B * T * (H * 4 * H + H * 4 * H)),
        (make_case("rau"), 2 * B * T * (H * 5 * H + H * 5 * H)),
        (
            make_case("gru", layers=2, bidirectional=True),
            2 * 2 * B * T * ((H + H) * 3 * H + (2 * H + H) * 3 * H),
        ),
    ],
)
def test_operations_are_those_of_the_products(case, expected):
    assert case.gflop == pytest.approx(1e-9 * expected)


@pytest.mark.slow
@pytest.mark.usefixtures("known_programs")
def test_measured_rows_agree_with_each_other(capsys, tmp_path):
    path = tmp_path / "figures.json"
    options = recurrence.Options(
        sizes=(f"{B},{T},{H}",), cells=("rau",), repeats=2, json=path, devices=2,
        contestants=("gatedjax", "gatedjax GRU", "flax"),
    )  # fmt: skip
    (result,) = recurrence.main(options)
    assert json.loads(path.read_text())["results"] == [result]
    assert result["rows"]["flax"] == {"missing": peers.NO_CELL}
    gflop = make_case("rau").gflop
    for name, share in (("gatedjax", 1), ("gatedjax GRU", 3 / 5)):
        row = result["rows"][name]
        for kind, passes in (("forward", 1), ("train", 3)):
            assert len(row[f"{kind}_all_ms"]) == 2
            assert row[f"{kind}_min_ms"] == min(row[f"{kind}_all_ms"]) <= row[f"{kind}_ms"]
            seconds = row[f"{kind}_ms"] / 1e3
            assert row[f"{kind}_gflops"] * seconds == pytest.approx(share * passes * gflop)
    assert "RAU (2, 3, 4), 2 device(s)" in capsys.readouterr().out


def test_compilation_is_timed_without_the_cache():
    before = jax.config.values["jax_enable_compilation_cache"]
    with no_compilation_cache():
        assert not jax.config.values["jax_enable_compilation_cache"]
    assert jax.config.values["jax_enable_compilation_cache"] == before


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    begin, end = marks(report.COMMAND)
    path.write_text(f"above\n{begin}\nold\n{end}\nbelow\n", encoding="utf-8")
    return path


def lines_of(path, start):
    return [line for line in path.read_text().splitlines() if line.startswith(start)]


def test_docs_get_ratios_between_the_markers_and_keep_the_rest(page, tmp_path):
    rows = {
        "gatedjax": row(10.0),
        "flax": row(20.0, 3_000_000),
        "flax nnx": row(15.0, 4_000_000),
        "keras": row(12.0),
        "haiku": {"missing": "not installed"},
        "products alone": row(7.0),
        "torch packed": row(30.0, None) | {"train_ms": 50.0},
    }
    raus = {"gatedjax": row(16.0), "gatedjax GRU": row(10.0), "scanned step": row(24.0)}
    paths = [tmp_path / "lstm.json", tmp_path / "rau.json"]
    for path, content in zip(paths, (figures("lstm", rows), figures("rau", raus)), strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")
    recurrence.main(recurrence.Options(figures=tuple(paths), docs=page))
    text = page.read_text()
    assert text.startswith("above\n")
    assert text.endswith("\nbelow\n")
    assert "old" not in text
    assert "an abacus, 2 cores" in text
    lstm, many = lines_of(page, "| (128, 28, 128) | LSTM |")
    assert lstm == (
        "| (128, 28, 128) | LSTM | 10.0 / 10.0 | 1.50 / 1.50 | 1.20 / 1.20 (keras) | "
        "3.00 / unstable | not run | 0.70 / 0.70 | 2.0 / 3.0 |"
    )
    assert many.count("not run") == 7
    (rau,) = lines_of(page, "| (128, 28, 128) | 1")
    assert (
        rau == "| (128, 28, 128) | 16.0 / 16.0 | 1.60 / 1.60 | 1.50 / 1.50 | not run | 2.0 / 2.0 |"
    )
    assert lines_of(page, "| haiku | not installed")
    assert lines_of(page, "| (32, 1000, 256) | LSTM | not run")
    once = text
    recurrence.main(recurrence.Options(figures=tuple(paths), docs=page))
    assert page.read_text() == once


def test_the_later_file_counts_and_a_case_of_its_own_gets_a_row(page):
    old, new = (figures("gru", {"gatedjax": row(ms)}, hidden=7, devices=2) for ms in (10.0, 20.0))
    report.replace_section(page, report.COMMAND, report.docs_section([old, new], ("1,2,3",)))
    (line,) = lines_of(page, "| (128, 28, 7) | GRU |")
    assert line.startswith("| (128, 28, 7) | GRU | 20.0 / 20.0 | not run")


@pytest.mark.slow
def test_a_page_without_markers_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("prose", encoding="utf-8")
    with pytest.raises(ValueError, match="must have the lines"):
        report.replace_section(path, report.COMMAND, "tables")
    assert path.read_text() == "prose"
