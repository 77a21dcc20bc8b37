"""`gatedjax gates report`: classic problems, a run, one's own model, refusals, interruption."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from gatedjax import analysis, gates
from gatedjax import data as gdata
from gatedjax.__main__ import main
from gatedjax._utils.json import to_json_values
from gatedjax.gates import _toys
from gatedjax.models import GANet, GANetConfig
from gatedjax.text import gate_modes
from gatedjax.text.models._entries import TEXT
from gatedjax.text.models._network import TrainedModel
from tests._grouped import grouped
from tests.text._own import TEXTS, write_csv
from tests.text._runs import drawn, saved

NAMES = ["gates_report.json", "gates_report.png", "gates_report.svg"]
SMALL = {"hidden": 2, "num_layers": 1, "aux": "fnn", "aux_hidden": 3, "embedding_dim": 4}
SHORT = 5
FEW = ["--texts", "2", "--draws", "8", "--samples", "4"]


def make_run(workdir, *, name="polarity", **changes):
    """Of a network that nobody trained."""
    workdir.mkdir()
    words = gdata.Vocabulary.build([gdata.load("polarity", "train")])
    words.save(workdir / "vocabulary.json")
    classes = gdata.load("polarity", "train").info.class_names
    (workdir / "classes.json").write_text(json.dumps(classes))
    config = grouped(GANetConfig, **{**SMALL, **changes})
    batch = {"tokens": np.zeros((1, 2), np.int32), "lengths": np.ones(1, np.int32)}
    model = GANet(config, len(words), 2)
    like = jax.eval_shape(lambda key: model.init(key, batch)["params"], jax.random.key(0))
    data = {"name": name, "max_len": None, "truncate_side": "right"}
    settings = {"model": to_json_values(config), "data": data, "train": {"seed": 0}}
    return saved(workdir, drawn(like, 0), {"config": settings, "vocabulary": words.digest()})


def make_model(folder, network="ganet"):
    """What `gatedjax train` writes, of a network that nobody trained."""
    words = gdata.Vocabulary(["old", "new", "film", "here", "there", "now", "dull", "warm"])
    config = dataclasses.replace(TEXT[network].config, hidden=4, aux_hidden=3, embedding_dim=6)
    # The exact modes need the states of all words, which gates on the input do not read.
    if network == "ganet":
        on_attention = dataclasses.replace(config.gates, gates_on="attention")
        config = dataclasses.replace(config, gates=on_attention)
    model = TrainedModel(
        kind="text", network=network, config=config, vocabulary=words, classes=("bad", "good"),
        params={}, max_len=30, prior=(0.5, 0.5),
    )  # fmt: skip
    params = drawn(jax.eval_shape(model._init), 1)
    dataclasses.replace(model, params=params).save(folder, overwrite=False)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gates")
    make_run(folder / "run")
    make_model(folder / "model")
    longer = "old film " * 15
    write_csv(folder / "test.csv", [*TEXTS[:5], (longer, "good"), ("", "bad")])
    write_csv(folder / "long.csv", [(longer, "good")])
    write_csv(folder / "other.csv", [("old film", "so so")])
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    few = lambda tau=0.5: (gates.DisARM(),)  # noqa: E731
    monkeypatch.setattr(gate_modes, "standard_estimators", few)
    return place


def report(*args):
    return main(["gates", "report", *map(str, args)])


def read(folder):
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    return json.loads((folder / NAMES[0]).read_text())["studies"]


# The estimators have these figures in test_exact_values.
TABLE = {
    "(b - 0.49)^2, theta 0": (5.000e-3, 2.500e-5),
    "(b - 0.45)^2, theta 0": (2.500e-2, 6.250e-4),
    "(b - 0.49)^2, theta 1": (3.932239e-3, 2.386e-5),
}
"""Gradient and variance of LeaveOneOut(2) on problems of one gate."""


@pytest.mark.slow
def test_the_toys_are_those_of_the_table(tmp_path, monkeypatch, capsys):
    few = (gates.LeaveOneOut(2), gates.Reinforce(), gates.StraightThrough())
    monkeypatch.setattr(_toys, "standard_estimators", lambda tau: few)
    out = tmp_path / "a" / "b"
    assert report("--toy", "--out", out) == 0
    said = capsys.readouterr().out
    studies = {study["title"]: study for study in read(out)}
    assert len(studies) == 6
    for title, (gradient, variance) in TABLE.items():
        study = studies[title]
        assert f"## {title}\n" in said
        np.testing.assert_allclose(study["gradient"], [gradient], rtol=1e-4)
        np.testing.assert_allclose(study["estimators"][0]["variance"], variance, rtol=0.05)
        shown = [row["shown_biased"] for row in study["estimators"]]
        assert shown == [False, False, title.endswith("1")], title
    liu = next(study for title, study in studies.items() if title.startswith("Liu"))
    np.testing.assert_allclose(liu["gradient"], [-0.0450], rtol=1e-4)
    np.testing.assert_allclose(liu["estimators"][1]["variance"], 0.43842, rtol=0.05)
    steep = next(study for title, study in studies.items() if "disagree" in title)
    modes = {row["mode"]: row for row in steep["modes"]}
    losses = {mode: row["loss"] for mode, row in modes.items()}
    p = 1 / (1 + np.exp(-0.4))
    sigmoid = lambda k: 1 / (1 + np.exp(6 - 4 * k))  # noqa: E731
    chances = {k: c * p**k * (1 - p) ** (3 - k) for k, c in enumerate((1, 3, 3, 1))}
    exact, square = (sum(c * sigmoid(k) ** power for k, c in chances.items()) for power in (1, 2))
    np.testing.assert_allclose(losses["exact"], exact, rtol=1e-5)
    np.testing.assert_allclose(losses["threshold"], sigmoid(3), rtol=1e-5)
    np.testing.assert_allclose(losses["best"], sigmoid(0), rtol=1e-4)
    np.testing.assert_allclose(losses["expected"], sigmoid(3 * p), rtol=1e-5)
    assert abs(losses["sample"] - exact) < 0.02
    soft = 1 / (1 + np.exp(-(0.4 + np.random.default_rng(0).logistic(size=(3, 20_000))) / 0.5))
    assert abs(losses["relaxed"] - sigmoid(soft.sum(axis=0)).mean()) < 0.02
    np.testing.assert_allclose(steep["variance"], square - exact**2, rtol=1e-4)
    error = np.sqrt(steep["variance"] / 16_384)
    np.testing.assert_allclose(modes["sample"]["loss_error"], error, rtol=0.05)
    np.testing.assert_allclose(modes["threshold"]["gap"], sigmoid(3) - exact, rtol=1e-4)
    assert modes["relaxed"]["title"] == "relaxed, tau 0.5, mean of 16,384 draws"
    assert (steep["logits"], steep["texts"], steep["draws"]) == ([0.4] * 3, 1, 16_384)
    np.testing.assert_allclose(steep["gradient_norm"], np.linalg.norm(steep["gradient"]))
    first, other = (
        next(gates.toys(64, estimators=[], key=key)) for key in map(jax.random.key, (0, 1))
    )
    assert first.modes[0].loss != other.modes[0].loss


@pytest.mark.slow
def test_a_run_and_its_export_are_measured_on_its_test_set(here, tmp_path, capsys):
    before = sorted(path.name for path in (here / "run").iterdir())
    short = (*FEW, "--longest", SHORT)
    assert report("--workdir", "run", "--preset", "polarity", *short) == 0
    said = capsys.readouterr().out
    after = sorted(path.name for path in (here / "run").iterdir())
    (study,) = json.loads((here / "run" / NAMES[0]).read_text())["studies"]
    for path in map((here / "run").joinpath, NAMES):
        path.unlink()
    assert after == sorted(before + NAMES)
    lengths = np.array([len(one["tokens"]) for one in gdata.load("polarity", "test")])
    assert study["texts_in_modes"] == np.sum(lengths <= SHORT) == len(study["by_text"]["loss"])
    assert study["texts_left_out"] == np.sum(lengths > SHORT) > 0
    for wanted in ("sampled, mean of 4 draws", "exact expectation", "One draw of the gates",
                   f"Left out of everything, with more than {SHORT} words: ",
                   "wrote run/gates_report.json"):  # fmt: skip
        assert wanted in said
    exact = next(row for row in study["modes"] if row["mode"] == "exact")
    np.testing.assert_allclose(exact["loss"], np.mean(study["by_text"]["loss"]), rtol=1e-9)
    assert [row["estimator"] for row in study["estimators"]] == ["DisARM()"]
    assert main(["export", "run", "--out", str(tmp_path / "exported")]) == 0
    assert report(tmp_path / "exported", *short, "--out", tmp_path / "out") == 0
    (exported,) = read(tmp_path / "out")
    assert {**exported, "title": study["title"]} == study


@pytest.mark.slow
def test_ones_own_model_is_measured_on_a_file(here, tmp_path, capsys):
    before = sorted(path.name for path in (here / "model").iterdir())
    assert report("model", "--file", "test.csv", *FEW, "--out", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "Left out of everything, with more than 20 words: 1." in said
    assert "Lines that could not be used: 1." in said
    (study,) = read(tmp_path / "out")
    assert (study["texts_in_modes"], study["texts_left_out"], study["lines_aside"]) == (5, 1, 1)
    model = TrainedModel.load("model", ("text",))
    p = model.probabilities([(text,) for text, _ in TEXTS[:5]])
    labels = [model.classes.index(label) for _, label in TEXTS[:5]]
    found = -np.log(p[np.arange(5), labels])
    np.testing.assert_allclose(study["by_text"]["loss_threshold"], found, rtol=1e-5)
    assert sorted(path.name for path in (here / "model").iterdir()) == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "exactly one of MODEL, --workdir and --toy must"),
        (["model", "--toy"], "exactly one of"),
        (["--toy", "--file", "test.csv"], "--file must be left out for --toy, got test.csv"),
        (["--workdir", "run", "--file", "test.csv"], "--file must be left out for the run run"),
        (["run", "--file", "test.csv"], "--file must be left out for the run run, got test.csv"),
        (["--toy", "--draws", "1"], "--draws must be at least 2, got 1"),
        (["--workdir", "run", "--texts", "0"], "--texts must be at least 1, got 0"),
        (["--workdir", "run", "--samples", "1"], "--samples must be at least 2, got 1"),
        (["--workdir", "run", "--tau", "0"], "--tau must be positive and finite, got 0.0"),
        (["--workdir", "run", "--longest", "25"], "--longest must be in [1, 24], got 25"),
        (["--workdir", "run", "--longest", "1"], "the shortest of "),
        (["--workdir", "run", "--preset", "trec"], "must be 'polarity', on which run was trained"),
        (["--workdir", "run", "--out", "test.csv"], "a folder, got the file test.csv"),
        (["--workdir", "nowhere"], "nowhere: there is no such folder"),
        (["--workdir", "empty"], "empty must be the folder of a model"),
        (["--workdir", "model", "--preset", "trec"], "must be the work folder of a run, got model"),
        (["model"], "--file must be given for model"),
        (["model", "--preset", "trec", "--file", "test.csv"], "--preset must be left out for"),
        (["model", "--file", "none.csv"], "none.csv: there is no such file"),
        (["model", "--file", "long.csv"], "words, got 1 longer texts, the shortest of 30 words"),
        (["model", "--file", "other.csv"], "class of the model ('bad', 'good'), got 'so so'"),
        (["model", "--file", "test.csv", "--text", "words"], "words"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(args, message, here, capsys):
    before = sorted(here.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        report(*args)
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert message in said.err.splitlines()[-1]
    assert said.err.splitlines()[-1].startswith("error: ")
    assert said.out == ""
    assert sorted(here.rglob("*")) == before


def test_networks_without_gates_are_refused(here, tmp_path, capsys):
    make_run(tmp_path / "run", system="soft")
    make_model(tmp_path / "model", "soft")
    for args in (["--workdir", tmp_path / "run"], [tmp_path / "model", "--file", "test.csv"]):
        with pytest.raises(SystemExit):
            report(*args)
        assert "with gates, got the network 'soft'" in capsys.readouterr().err


@pytest.mark.slow
def test_other_runs_and_damage_are_refused(here, tmp_path, capsys):
    def refused(change):
        folder = tmp_path / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(here / "run", folder)
        change(folder)
        with pytest.raises(SystemExit):
            report("--workdir", folder)
        return capsys.readouterr().err.splitlines()[-1]

    no_words = refused(lambda folder: (folder / "vocabulary.json").unlink())
    assert "of GA-Net over texts, got a folder without vocabulary.json" in no_words
    other = gdata.Vocabulary(["a", "b"])
    assert "must be the vocabulary" in refused(lambda f: other.save(f / "vocabulary.json"))
    assert "no checkpoint in" in refused(
        lambda f: [shutil.rmtree(step) for step in (f / "checkpoints").iterdir()]
    )
    classes = json.dumps(["x", "y"])
    assert "must name the classes" in refused(lambda f: (f / "classes.json").write_text(classes))
    make_run(tmp_path / "onto", gates_on="input")
    with pytest.raises(SystemExit):
        report("--workdir", tmp_path / "onto")
    assert "gates_on='attention', got 'input'" in capsys.readouterr().err
    words = gdata.Vocabulary(["a"])
    words.save(tmp_path / "vocabulary.json")
    bare = {"config": {"model": {"hidden": 3}, "data": {"name": "ptb"}}}
    bare["vocabulary"] = words.digest()
    (tmp_path / "classes.json").write_text(classes)
    saved(tmp_path, {"w": np.zeros(1, np.float32)}, bare)
    with pytest.raises(SystemExit):
        report("--workdir", tmp_path)
    assert (
        "must be the work folder of a run of python -m experiments.ga_net"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_an_interruption_leaves_nothing(here, tmp_path, monkeypatch, capsys):
    def stop(*args, **options):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    monkeypatch.setattr(gate_modes, "gate_modes", stop)
    assert report("model", "--file", "test.csv", *FEW, "--out", out) == 130
    assert not out.exists()
    monkeypatch.setattr("os.replace", stop)
    monkeypatch.setattr(_toys, "standard_estimators", lambda tau: ())
    assert report("--toy", "--draws", "4", "--out", out) == 130
    assert list(out.iterdir()) == []


@pytest.mark.slow
def test_without_matplotlib_there_is_no_figure(tmp_path, monkeypatch, capsys):
    def missing(*args):
        raise ImportError("plots need matplotlib: pip install matplotlib")

    monkeypatch.setattr(analysis, "plot_studies", missing)
    monkeypatch.setattr(_toys, "standard_estimators", lambda tau: ())
    assert report("--toy", "--draws", "4", "--out", tmp_path) == 0
    assert "no figure: plots need matplotlib" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == NAMES[:1]
