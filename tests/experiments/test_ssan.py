"""SSAN's commands and tables: options, cells, records, and runs on tiny texts."""

import json

import numpy as np
import pytest

from experiments.core import text
from experiments.core.command import options_of
from experiments.core.config import with_changes
from experiments.core.paper import Job
from experiments.ssan import analyses, tables
from experiments.ssan.__main__ import main
from experiments.ssan.config import PRESETS, with_budget
from experiments.ssan.paper import PAPER
from experiments.ssan.sentences import scores, sentence_of_each
from gatedjax import analysis
from gatedjax import data as gdata
from tests.experiments._commands import parse, refused

TINY = ("--model.num-layers", "1", "--model.hidden", "8", "--model.filter-size", "8",
        "--model.num-heads", "2", "--data.max-buckets", "1", "--data.batch-size", "8",
        "--data.eval-batch-size", "8", "--cpu-devices", "1", "--train.num-steps", "4",
        "--train.eval-every", "2", "--train.checkpoint-every", "4", "--train.log-every", "1",
        "--train.optimizer.warmup-steps", "1")  # fmt: skip


@pytest.mark.parametrize(("layers", "selective"), [([], ()), (["2", "3"], (2, 3))])
def test_layers_of_a_network_select_as_they_are_named(layers, selective):
    config = parse(PAPER, ["--model.gates.select-layers", *layers])
    assert config.model.gates.selective == selective


@pytest.mark.parametrize(
    ("data", "asked", "local"),
    [
        ("bshift", True, True),
        ("bshift", False, False),
        ("tree_depth", True, False),
    ],
)
def test_figures_look_into_the_networks_that_tables_train(
    data, asked, local, tmp_path, monkeypatch
):
    opened = {}
    monkeypatch.setattr(
        analyses.attention,
        "load_encoder",
        lambda config, workdir: opened.setdefault(workdir.name, config.model),
    )
    options = options_of(PAPER)(what="figure2", runs=tmp_path, local=asked)
    found = analyses.load_encoders(Job(PAPER, options), data)
    end = "_local" if local else ""
    assert list(opened) == [f"{data}-san{end}-seed0", f"{data}-ssan_layer1{end}-seed0"]
    assert list(found) == ["san", "ssan_layer1"]  # tables know them by these names
    assert {model.order.relative for model in opened.values()} == {"local" if local else "none"}
    assert [model.gates.selective for model in opened.values()] == [(), (1,)]
    shown = analyses.title_of("bshift", {"local": local})
    assert shown == ("BShift, local heads and a linear head" if local else "BShift")


@pytest.mark.slow
def test_distances_are_drawn_from_recorded_shares_without_the_networks(
    tmp_path, monkeypatch, capsys
):
    shares = {"san": [0.25, 0.75], "ssan_layer1": [0.5, 0.5]}
    entries = {
        name: {"shares": s, "per_neighbour": s, "empty_rate": 0.0} for name, s in shares.items()
    }
    path = tmp_path / "attention" / "figure2-bshift.json"
    path.parent.mkdir()
    text_of = json.dumps({"sentences": 2, "layer": 1, "local": True, **entries})
    path.write_text(text_of)
    plotted = {}
    draw = analyses.analysis.plot_distances
    monkeypatch.setattr(
        analyses.analysis,
        "plot_distances",
        lambda counts, stem, **how: plotted.update(counts) or draw(counts, stem, **how),
    )
    args = ["figure2", "--data", "bshift", "--results", str(tmp_path), "--runs", str(tmp_path)]
    assert tables.main(args) == 0
    assert "the networks are not in" in capsys.readouterr().out
    assert {name: counts.shares().tolist() for name, counts in plotted.items()} == {
        "SAN": shares["san"],
        "SSAN, layer 1": shares["ssan_layer1"],
    }
    assert (tmp_path / "figure2.png").exists()
    assert path.read_text() == text_of
    # The record answers only for the networks, the layer and the mean over heads that it is of.
    for other in (["--layer", "2"], ["--no-local"], ["--head", "0"], ["--rerun"]):
        assert "finished run" in refused(tables.main, [*args, *other], capsys)


def test_a_budget_shortens_the_warm_up_and_keeps_ten_evaluations():
    train = with_budget(PRESETS["bshift"].train, 1_000)
    assert (train.num_steps, train.eval_every, train.optimizer.warmup_steps) == (1_000, 100, 250)
    assert with_budget(train, 2).optimizer.warmup_steps == 0


def job(what, **options):
    return Job(PAPER, options_of(PAPER)(what=what, **options))


@pytest.mark.parametrize("steps", [["--train.num-steps", "20"], ["--train.num_steps=20"]])
def test_fewer_steps_shorten_the_warm_up_as_in_the_tables(steps, capsys):
    config = parse(PAPER, steps)
    assert config.train.optimizer.warmup_steps == 5
    assert "--train.optimizer.warmup-steps sets it" in capsys.readouterr().err
    in_tables = job("recipe", num_steps=20).config("bshift", "san", 0)
    assert in_tables.train.optimizer == config.train.optimizer
    asked = parse(PAPER, [*steps, "--train.optimizer.warmup-steps", "10"])
    assert asked.train.optimizer.warmup_steps == 10
    usual = parse(PAPER, ["--train.num-steps", "31000"])
    assert usual.train.optimizer.warmup_steps == 4_000
    assert capsys.readouterr().err == ""


def test_several_seeds_are_for_the_tables_and_a_mean_of_checkpoints_is_of_one_run(capsys):
    message = refused(main, ["--preset", "bshift", "--train.seeds", "2"], capsys)
    assert "python -m experiments.ssan.tables table2 --seeds N" in message
    mean = PRESETS["mt_multi30k"]
    assert PRESETS["bshift"].allows_lanes
    assert not mean.allows_lanes
    assert with_changes(mean, {"search.average": 1}).allows_lanes


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        ("nli", {"model.embedding_dim": 4}),
        ("srl", {"model.embedding_dim": 4, "model.hidden": 8}),
        ("wrd_cited", {"model.embedding_dim": 4}),
        ("bshift", {}),
        ("wrd_small", {}),
    ],
)
def test_a_file_of_word_vectors_says_their_width(data, changes, tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("a 1 2 3 4\n")
    config = job("table1", embeddings=str(file)).config(data, "ssan_layer1", 0)
    assert config.model == with_changes(PRESETS[data], changes).model
    wanted = "none" if data == "wrd_small" else str(file)
    assert getattr(config.data, "embeddings", str(file)) == wanted


def record(variant, seed, right, **more):
    config = job("table2").config("bshift", variant, seed)
    accuracy = right.count("1") / len(right)
    return {
        "data": "bshift", "system": "san", "seed": seed, "config": PAPER.recorded(config),
        "validation": {"accuracy": 0.5}, "test_n": len(right), "correct": right, "steps": 10,
        "test": {"accuracy": accuracy, "selected_1": 0.4, "empty_1": 0.01},
        "best_step": 5, "substitute": "other texts", "cell": variant, **more,
    }  # fmt: skip


@pytest.mark.slow
def test_curves_are_of_the_networks_that_learned(tmp_path, capsys, monkeypatch):
    store, drawn = PAPER.store(tmp_path), []
    (tmp_path / "runs").mkdir()
    plot = analyses.analysis.plot_lines
    monkeypatch.setattr(
        analyses.analysis,
        "plot_lines",
        lambda one, *a, **kw: (drawn.append(one), plot(one, *a, **kw)),
    )
    for variant, seed, reached in (("san_local", 0, 0.75), ("ssan_layer1_local", 0, 0.625),
                                   ("ssan_layer1_local", 1, 0.875), ("san", 0, 0.5),
                                   ("ssan_layer2_local_bounded", 0, 0.875)):  # fmt: skip
        more = {"curve": [[5, 0.7, 0.5], [10, 0.6, reached]], "train_curve": [[10, 0.5, 0.8]]}
        if "ssan" in variant:
            more["selection_curve"] = {"1": [[10, reached / 2, 0.0]]}
        if variant == "san":  # collapsed
            more |= {"train_curve": [[10, 0.6931, 0.5]], "label_entropy": 0.693147}
        store.path("bshift", variant, seed).write_text(
            json.dumps(record(variant, seed, "01" * 10, **more))
        )
    assert tables.main(["curves", "--results", str(tmp_path)]) == 0
    panels, apart = drawn
    layer1 = [(5, 0.5, 0.0), (10, 0.75, pytest.approx(0.125 * 2**0.5))]
    assert panels["validation accuracy"] == {
        "SAN, local heads": [(5, 0.5, None), (10, 0.75, None)],
        "SSAN, layer 1, local heads": layer1,
    }
    deviation = pytest.approx(0.0625 * 2**0.5)
    assert panels["selected pairs"]["SSAN, layer 1, local heads"] == [(10, 0.375, deviation)]
    assert apart["selected pairs"] == {
        "SAN, local heads": [],
        "SSAN, layer 2, local heads, bounded": [(10, 0.4375, None)],
    }
    page = (tmp_path / "RESULTS.md").read_text()
    for name in ("curves_bshift", "curves_bshift_bounded"):
        assert (tmp_path / f"{name}.png").stat().st_size > 1_000
        assert f"- [{name}]({name}.png): BShift, " in page
    with pytest.raises(SystemExit):
        tables.main(["curves", "--data", "top_const", "--results", str(tmp_path)])
    assert "must have a record of a run on top_const that learned" in capsys.readouterr().err


def test_moves_of_one_sentence_are_one_example_of_the_tests(tmp_path):
    texts = [[f"w{i}" for i in range(size)] for size in (7, 3, 6, 8)]  # the second is too short
    moved = gdata.word_reordering(texts, copies=4, base=100)
    ids = [example["example_id"] for example in moved]
    right = "1111" * 2 + "0000"

    def made(variant, correct, seed):
        config = PAPER.recorded(job("table3").config("wrd_small", variant, seed))
        return record("san", seed, correct) | {"config": config, "data": "wrd_small"}

    one = made("san", right, 0)
    sentences = sentence_of_each(one)
    _, wanted = np.unique((np.array(ids) - 100) // 4, return_inverse=True)
    np.testing.assert_array_equal(sentences, wanted)
    published = PAPER.recorded(job("table3").config("wrd_published", "san", 0))
    assert sentence_of_each(one | {"config": published}) is None
    (tmp_path / "runs").mkdir()
    store = PAPER.store(tmp_path)
    for variant, correct in {"san": "0000" * 3, "ssan_layer1": right}.items():
        for seed in (0, 1):
            path = store.path("wrd_small", variant, seed)
            path.write_text(json.dumps(made(variant, correct, seed) | {"cell": variant}))
    rows = PAPER.tables["table3"].rows(PAPER, store)
    (found,) = (row.comparison for row in rows if row.comparison is not None)
    assert found.exact == ()
    want = analysis.two_way_test([[1, 1, 0]] * 2, [[0, 0, 0]] * 2)
    assert found.test[:6] == pytest.approx(want[:6])


def test_scores_of_a_probe_have_groups_where_the_paper_has_them():
    classes = ("NP_VP_.", "OTHER", "WHNP_SQ_.")
    predictions = {"label": np.array([0, 0, 1, 2]), "predicted": np.array([0, 1, 1, 2])}
    found = scores(predictions, classes)
    assert found["confusion"] == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert found["groups"]["Decl."][0] == pytest.approx(2 / 3)
    assert found["groups"]["Clau."] == [0.0, 0.0]
    assert "groups" not in scores(predictions, ("5", "6", "7"))
    assert json.dumps(found)


@pytest.fixture
def texts(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(9)]
    lines = []
    for split, size in (("tr", 24), ("va", 8), ("te", 9)):
        plain = [[words[i] for i in rng.integers(9, size=7)] for _ in range(size)]
        for example in gdata.bigram_shift(plain, seed=size):
            lines.append(f"{split}\t{'IO'[example['label']]}\t{' '.join(example['tokens'])}")
    (tmp_path / "bigram_shift.txt").write_text("\n".join(lines) + "\n")
    for part in ("va", "te"):
        plain = [[words[i] for i in rng.integers(9, size=7)] for _ in range(20)]
        made = gdata.word_reordering(plain, seed=len(part))
        for kind, rows in (
            ("x", [" ".join(e["tokens"]) for e in made]),
            ("y", [f"{e['insert']} {e['original']}" for e in made]),
        ):
            (tmp_path / f"word_order.txt.{part}.{kind}").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.mark.slow
def test_neighbours_tell_an_inverted_order_and_nothing_of_drawn_labels(tmp_path):
    rng = np.random.default_rng(0)
    lines = []
    for split, size in (("tr", 400), ("va", 100), ("te", 100)):
        # the words of a sentence count upwards, so every inversion makes a pair that no other has
        starts = rng.integers(20, size=size)
        plain = [[f"w{start + i}" for i in range(7)] for start in starts]
        for example in gdata.bigram_shift(plain, seed=size):
            lines.append(f"{split}\t{'IO'[example['label']]}\t{' '.join(example['tokens'])}")
    args = ["neighbours", "--data", "bshift", "--manual-dir", str(tmp_path), "--cpu-devices", "1"]
    reached = {}
    for name in ("inverted", "drawn"):
        if name == "drawn":
            lines = ["\t".join([x.split("\t")[0], "IO"[rng.integers(2)], x.split("\t")[2]])
                     for x in lines]  # fmt: skip
        (tmp_path / "bigram_shift.txt").write_text("\n".join(lines) + "\n")
        text._read_texts.cache_clear()
        assert tables.main([*args, "--results", str(tmp_path / name)]) == 0
        found = json.loads((tmp_path / name / "attention" / "neighbours-bshift.json").read_text())
        reached[name] = found["test"]
        page = (tmp_path / name / "RESULTS.md").read_text()
        assert f"is right on {100 * found['test']:.2f} % of the test sentences" in page
    assert reached["inverted"] > 0.95
    assert 0.3 < reached["drawn"] < 0.7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "options"),
    [
        (
            "bshift",
            ["--model.gates.estimator", "soft_gumbel", "--model.gates.final-temperature", "0.2"],
        ),
        ("wrd_published", ["--model.gates.estimator", "reinforce"]),
    ],
)
def test_a_run_from_the_command_line(preset, options, texts, tmp_path, capsys):
    work = tmp_path / "work"
    args = ["--preset", preset, "--workdir", str(work), "--data.manual-dir", str(texts)]
    assert main([*args, *TINY, *options]) == 0
    made = json.loads((work / "results.json").read_text())
    assert made["test_n"] == (9 if preset == "bshift" else 20)
    assert set(made["correct"]) <= {"0", "1"}
    assert (made["system"], made["parameters_of_selectors"]) == ("ssan", 2 * (64 + 8))
    assert made["selected_heads"]
    assert made["selection_curve"]["1"]
    assert made["config"]["model"]["gates"]["select_layers"] == [1]


@pytest.fixture
def small(monkeypatch):
    """The preset of table 2 with a small network."""
    preset = with_changes(
        PRESETS["bshift"],
        {f"model.{name}": 8 for name in ("hidden", "filter_size")}
        | {"model.num_layers": 1, "model.num_heads": 2}
        | {"data.batch_size": 8, "data.eval_batch_size": 8, "data.max_buckets": 1},
    )
    monkeypatch.setitem(PRESETS, "bshift", preset)


def command(texts, tmp_path, what, *more):
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    args = [what, "--num-steps", "4", "--manual-dir", str(texts), "--cpu-devices", "1", *folders]
    assert tables.main([*args, "--note", "made for a test", *more]) == 0


@pytest.mark.slow
def test_a_table_is_trained_and_shown_with_its_figures(texts, tmp_path, small, capsys):
    command(texts, tmp_path, "table2", "--layers", "1")
    shown = capsys.readouterr().out
    assert "bshift, san_local, seed 0" in shown
    assert "quoted, not trained here" in shown
    standard = PAPER.store(tmp_path / "results").get("bshift", "san_local", 0)
    assert (standard["system"], standard["parameters_of_selectors"]) == ("san", 0)
    assert "selected_heads" not in standard
    assert standard["config"]["model"]["gates"]["select_layers"] == [0]
    # a figure of other data than its own does not take its place
    command(texts, tmp_path, "figure4", "--data", "bshift")
    drawn = {path.name for path in (tmp_path / "results").glob("figure*")}
    assert drawn == {"figure4_bshift.png", "figure4_bshift.svg"}
    page = (tmp_path / "results" / "RESULTS.md").read_text()
    assert "made for a test" in page
    assert "[figure4](figure4_bshift.png): BShift, local heads" in page
