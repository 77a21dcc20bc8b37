"""SSAN's commands and tables: options, cells, records, and runs on tiny texts."""

import json

import numpy as np
import pytest

from experiments.core import text
from experiments.core.command import options_of
from experiments.core.config import with_changes
from experiments.core.paper import Job
from experiments.core.records import differences
from experiments.ssan import analyses, tables
from experiments.ssan.__main__ import main
from experiments.ssan.config import PRESETS, with_budget
from experiments.ssan.paper import PAPER, VARIANTS, task_cases, task_rows
from experiments.ssan.sentences import scores, sentence_of_each
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.training.config import learning_rate_of
from tests.experiments._commands import parse, refused

TINY = ("--model.num-layers", "1", "--model.hidden", "8", "--model.filter-size", "8",
        "--model.num-heads", "2", "--data.max-buckets", "1", "--data.batch-size", "8",
        "--data.eval-batch-size", "8", "--cpu-devices", "1", "--train.num-steps", "4",
        "--train.eval-every", "2", "--train.checkpoint-every", "4", "--train.log-every", "1",
        "--train.optimizer.warmup-steps", "1", "--train.parallel", "single")  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_its_baseline(preset):
    assert PRESETS[preset].model.gates.selective == (1,)
    config = parse(PAPER, ["--preset", preset, "--model.gates.select-layers", "0"])
    assert config.preset == preset
    assert config.model.gates.selective == ()


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


def test_cells_of_the_tables():
    def cells(what, **options):
        return [(cell.data, cell.variant) for cell in job(what, **options).cells()]

    assert cells("table2", layers=(1,)) == [
        ("bshift", "san_local"),
        ("bshift", "ssan_layer1_local"),
    ]
    assert len(cells("table3")) == 14
    assert cells("table4") == [("tree_depth", "san"), ("tree_depth", "ssan_layer1")]
    drawn = [variant for _, variant in cells("modes", modes=("st", "soft"))]
    assert drawn == ["san", "ssan_layer1", "ssan_soft"]
    assert cells("selection_rate") == []
    mended = {
        "san_local": ((0,), "local", ()),
        **{f"ssan_layer{n}_local": ((n,), "local", ()) for n in range(1, 7)},
        "san_linear": ((0,), "none", ()),
        "ssan_layer1_linear": ((1,), "none", ()),
        "san_local_rectified": ((0,), "local", (128, 128)),
    }
    halves = ["san_linear", "ssan_layer1_linear", "san_local_rectified"]
    assert cells("table2") == [("bshift", name) for name in mended if name not in halves]
    few = [variant for _, variant in cells("table2", layers=(6,))]
    assert few == ["san_local", "ssan_layer6_local"]
    assert cells("bound", layers=(4,)) == [
        ("bshift", "san_local"),
        ("bshift", "ssan_layer4_local_bounded"),
        ("wrd_small", "san"),
        ("wrd_small", "ssan_layer4_bounded"),
    ]
    bound = {cell.variant: cell.configs[0].model for cell in job("bound", layers=(4,)).cells()}
    assert {name: (m.gates.cap, m.gates.select_layers) for name, m in bound.items()} == {
        "san_local": (10, (0,)), "ssan_layer4_local_bounded": (0, (4,)),
        "san": (10, (0,)), "ssan_layer4_bounded": (0, (4,)),
    }  # fmt: skip
    assert bound["ssan_layer4_local_bounded"].order.relative == "local"
    cited = {cell.variant: cell.configs[0] for cell in job("cited").cells()}
    assert {(cell.data, cell.variant) for cell in job("cited").cells()} == {
        ("wrd_cited", name) for name in cited
    }
    assert {
        name: (gates.cap, gates.freeze_selector, gates.select_layers)
        for name, gates in ((name, config.model.gates) for name, config in cited.items())
    } == {
        "san": (10, False, (0,)), "ssan_layer1": (10, False, (1,)),
        "ssan_layer1_bounded": (0, False, (1,)), "ssan_layer1_fixed": (10, True, (1,)),
    }  # fmt: skip
    recipe = [variant for _, variant in cells("recipe")]
    assert recipe == ["san", "ssan_layer1", "ssan_soft", "ssan_expect", *halves, "san_local"]
    for name, wanted in mended.items():
        config = job("table2", num_steps=3_000).config("bshift", name, 0)
        model = config.model
        assert (model.gates.select_layers, model.order.relative, model.head_hidden) == wanted
        assert config.train.optimizer.warmup_steps == 300
    # a budget of fewer steps shortens the recipe's warm-up too, as it does of the preset
    brief = job("table2", num_steps=400).config("bshift", "san_local", 0).train
    assert (brief.num_steps, brief.optimizer.warmup_steps) == (400, 100)
    preset = PRESETS["bshift_local"]
    table = job("table2").config("bshift", "ssan_layer1_local", 0)
    assert (preset.model, preset.data) == (table.model, table.data)
    assert preset.train == table.train
    short = job("table2", num_steps=40, note="other texts")
    for variant in VARIANTS:
        config = short.config("bshift", variant, 3)
        assert config.train.seed == 3
        assert bool(config.model.gates.selective) == variant.startswith("ssan")
        others = [short.config("bshift", other, 3) for other in VARIANTS if other != variant]
        saved = PAPER.recorded(config)
        assert all(differences(saved, PAPER.recorded(other)) for other in others)


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


def test_the_cited_training_has_a_constant_rate_and_no_dropout():
    config = job("cited", num_steps=400).config("wrd_cited", "ssan_layer1_fixed", 1)
    optimizer = config.train.optimizer
    assert (optimizer.name, learning_rate_of(optimizer, 400)) == ("adam", 1e-4)
    assert config.data.batch_size == 500
    assert config.model.freeze_embeddings
    rates = ("dropout", "attention_dropout", "relu_dropout")
    assert [getattr(config.model.dropouts, name) for name in rates] == [0, 0, 0]


def record(variant, seed, right, **more):
    config = job("table2").config("bshift", variant, seed)
    accuracy = right.count("1") / len(right)
    return {
        "data": "bshift", "system": "san", "seed": seed, "config": PAPER.recorded(config),
        "validation": {"accuracy": 0.5}, "test_n": len(right), "correct": right, "steps": 10,
        "test": {"accuracy": accuracy, "selected_1": 0.4, "empty_1": 0.01},
        "best_step": 5, "substitute": "other texts", "cell": variant, **more,
    }  # fmt: skip


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
    assert panels["selected pairs"] == {
        "SAN, local heads": [],
        "SSAN, layer 1, local heads": [(10, 0.375, pytest.approx(0.0625 * 2**0.5))],
    }
    assert apart["selected pairs"] == {
        "SAN, local heads": [],
        "SSAN, layer 2, local heads, bounded": [(10, 0.4375, None)],
    }
    assert (tmp_path / "curves_bshift.png").stat().st_size > 1_000
    assert (tmp_path / "curves_bshift_bounded.png").stat().st_size > 1_000
    link = "- [curves_bshift](curves_bshift.png): BShift, validation accuracy and selected pairs "
    link += "while training, of all networks that learned their training data, selectors with a "
    link += "bounded gradient apart."
    page = (tmp_path / "RESULTS.md").read_text()
    assert link in page
    assert "of selectors with a bounded gradient and of networks without a selector." in page
    with pytest.raises(SystemExit):
        tables.main(["curves", "--data", "top_const", "--results", str(tmp_path)])
    assert "must have a record of a run on top_const that learned" in capsys.readouterr().err


def test_a_selector_trained_by_reward_has_a_row_of_table1_where_somebody_ran_it(tmp_path):
    (tmp_path / "runs").mkdir()
    store = PAPER.store(tmp_path)
    seeds = (0, 1, 2)
    right = {"san": "0" * 60, "ssan_layer1": "0" * 54 + "1" * 6, "ssan_reinforce": "1" * 60}
    for variant, correct in right.items():
        for seed in seeds:
            config = PAPER.recorded(job("table1").config("nli_sick", variant, seed))
            one = record("san", seed, correct) | {"config": config, "data": "nli_sick"}
            path = store.path("nli_sick", variant, seed)
            path.write_text(json.dumps(one | {"cell": variant}))
    rows = task_rows(store)
    assert [row.data for row in rows if row.variant == "ssan_reinforce"] == ["nli_sick", "mt_en_de"]
    trained = {row.variant: row for row in rows if row.data == "nli_sick"}
    assert {name: 100 * row.shift.difference for name, row in trained.items()} == {
        "ssan_layer1": pytest.approx(10), "ssan_reinforce": pytest.approx(100),
    }  # fmt: skip
    text = PAPER.tables["table1"].text(PAPER, store)
    (line,) = (line for line in text.splitlines() if "SICK, selector trained by reward" in line)
    assert "+100.00" in line
    (case,) = (one for one in task_cases("c", store) if one.label.startswith("SICK"))
    assert (case.seeds, case.paper) == (3, pytest.approx(0.7))
    assert case.test.p_value < 0.05
    (task,) = (one for one in task_cases("c", store) if one.label == "KFTT En-Ja")
    assert (task.seeds, task.unit) == (0, "BLEU")

    # another seed turns the difference round: the seeds decide, not the examples
    path = store.path("nli_sick", "san", seeds[-1])
    more = {"correct": "0" * 53 + "1" * 7, "test": {"accuracy": 7 / 60}}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    path = store.path("nli_sick", "ssan_layer1", seeds[0])
    more = {"correct": "0" * 20 + "1" * 40, "test": {"accuracy": 40 / 60}}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    (case,) = (one for one in task_cases("c", store) if one.label.startswith("SICK"))
    assert case.test.low < 0 < case.difference
    (row,) = (
        row for row in task_rows(store) if row.data == "nli_sick" and row.variant == "ssan_layer1"
    )
    assert row.shift.by_seed == pytest.approx((2 / 3, 0.1, -1 / 60))


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
        | {"model.num_layers": 1, "model.num_heads": 2, "train.parallel": "single"}
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
