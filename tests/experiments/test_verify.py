"""`python -m experiments verify`: the first losses of a record against those of a new run."""

from types import SimpleNamespace

import pytest

from experiments.__main__ import main
from experiments.core import command, verify
from experiments.core.config import with_changes
from experiments.core.curves import curve, first_losses, hardware, machine_differences, software
from experiments.core.missing import paper_named
from experiments.core.verify import Point, recorded_losses
from tests.experiments import _toy
from tests.experiments._commands import plain, refused
from tests.experiments._results import config_of, record_of, save

CONFIG = with_changes(_toy.PRESETS["toy"], {"train.num_steps": 60, "train.eval_every": 20})


@pytest.fixture(scope="module")
def lines():
    """The log of the first steps of the toy run."""
    return verify.first_lines(_toy.PAPER, CONFIG, 50)


@pytest.fixture
def record(tmp_path, monkeypatch, lines):
    """Writes the record of the toy run with changes; returns the arguments that verify it."""
    monkeypatch.setattr(verify, "PAPERS", {"toy": None})
    monkeypatch.setattr(verify, "paper_named", lambda name: _toy.PAPER)

    def write(**changes):
        facts = {"hardware": hardware(), "software": software()}
        facts |= {"first_losses": first_losses(lines), "train_curve": curve(lines, "train", 10)}
        record = record_of(_toy.PAPER, CONFIG, "11") | facts | changes
        save(_toy.PAPER.store(tmp_path / "toy"), "toy", "noisy", [record])
        return ["toy/toy/noisy/0", "--results", str(tmp_path)]

    return write


def verified(args, capsys):
    """The exit status and the text of the command."""
    status = verify.main(args)
    return status, plain(capsys.readouterr().out)


@pytest.mark.slow
def test_an_unchanged_record_is_equal_in_every_digit(record, lines, capsys):
    assert len(lines) == 25
    status, text = verified(record(), capsys)
    assert status == 0
    assert "step 50:" in text
    assert "same kind of machine, cores and packages: equal means all digits" in text
    assert text.endswith("verdict: equal, in all digits of the record")


@pytest.mark.parametrize(
    ("step", "change", "other", "status", "verdict"),
    [
        (8, 1e-7, {}, 1, "NOT equal, from step 8 on"),
        (8, 1e-7, {"processor": "other"}, 0, "equal, within 0.001, with other digits from step 8"),
        (8, 0.1, {"processor": "other"}, 1, "NOT equal, from step 8 on"),
        (8, 1e-7, {"usable_cores": 64}, 0, "equal, within 0.001, with other digits from step 8"),
        (8, 0, {"usable_cores": None}, 0, "equal, in all digits of the record"),
    ],
)
def test_a_changed_loss_counts_by_the_machine(
    step, change, other, status, verdict, record, lines, capsys
):
    losses = [[at, loss + change * (at == step)] for at, loss in first_losses(lines)]
    machine = {fact: value for fact, value in (hardware() | other).items() if value is not None}
    args = record(first_losses=losses, hardware=machine)
    found, text = verified([*args, "--num-steps", "10"], capsys)
    assert (found, f"verdict: {verdict}" in text) == (status, True)
    for name in other:
        assert f"another machine, or other cores or packages ({name.replace('_', ' ')}" in text
    assert ("usable cores unknown there" in text) == (None in other.values())
    assert "step 10:" in text
    assert "step 12:" not in text


def test_two_numbers_of_cores_are_told_apart_after_step_50(capsys):
    """As TREC's untuned BiLSTM: step 50 may be equal where step 100 is not."""
    there = [Point(50, 1.25), Point(100, 0.687913, 50, is_rounded=True)]
    for again, other, status, verdict in (
        ([1.25, 0.71], ["usable cores 1 there, 2 here"], 1, "NOT equal, from step 100 on"),
        ([1.25, 0.687914], [], 0, "equal, within 0.001, with other digits from step 100 on"),
        ([1.2500001, 0.687913], [], 1, "NOT equal, from step 50 on"),
        ([1.2512, 0.687913], ["x"], 0, "equal, within 0.001, with other digits from step 50 on"),
        ([1.25, 0.71], [], 1, "NOT equal, from step 100 on"),
        ([1.25, float("nan")], ["jax 1 there, 2 here"], 1, "NOT equal, from step 100 on"),
    ):
        assert verify.report("run", there, again, other) == status
        text = plain(capsys.readouterr().out)
        assert text.endswith(f"verdict: {verdict}")
        assert ("; ".join(other) or "same kind of machine, cores and packages") in text


def test_a_record_is_compared_by_its_losses_and_then_by_its_curve(lines):
    record = {
        "first_losses": first_losses(lines, 10),
        "train_curve": [[6, 9.0, None], [12, 3.0, None], [18, 2.0, None], [24, 1.0, None]],
    }
    points = recorded_losses(record, 20)
    assert [(point.step, point.after) for point in points] == [
        (2, 0), (4, 0), (6, 0), (8, 0), (10, 0), (12, 6), (18, 12),
    ]  # fmt: skip
    assert recorded_losses(record, 1) == points[:1]
    logged = [(11, 1.0), (12, 2.0), (13, 4.0)]
    assert points[5].repeated(logged) == 1.5
    assert points[0].repeated([(1, 5.0), (2, 1.0)]) == 1.0
    # The first losses end inside a group of the curve, 8 to 12.
    again = {"first_losses": first_losses(lines, 10), "train_curve": curve(lines, "train", 10)}
    logged = first_losses(lines, 50)
    assert all(point.repeated(logged) == point.loss for point in recorded_losses(again, 50))


def test_an_older_record_is_compared_by_its_curve(record, capsys):
    status, text = verified(record(first_losses=None, lanes=2), capsys)
    assert status == 0
    assert "(2 seeds in one program there, 1 here)" in text
    assert "verdict: equal, in all digits of the record" in text
    text = refused(verify.main, record(first_losses=None, train_curve=None), capsys)
    assert "must have the training loss of the first steps" in text


def test_a_stopped_comparison_has_no_verdict(record, monkeypatch, capsys):
    stopped = SimpleNamespace(stopped="signal")
    monkeypatch.setattr(verify.gtraining, "fit", lambda *args, **options: stopped)
    assert main(["verify", *record()]) == 130
    assert capsys.readouterr() == ("", "stopped\n")


def test_a_record_with_an_option_that_is_gone_cannot_be_repeated(record, capsys):
    settings = _toy.PAPER.recorded(CONFIG)
    settings["model"]["gone"] = 3
    message = "the record has model.gone 3, wanted no such option"
    assert message in refused(verify.main, record(config=settings), capsys)


def test_word_vectors_may_lie_elsewhere_but_are_those_of_the_record(tmp_path, capsys, monkeypatch):
    paper = paper_named("agt")
    config = with_changes(config_of(paper, "sst1", 0), {"data.embeddings": "mine/vectors.txt"})
    there = hardware() | {"devices": 3}
    first = {"first_losses": [[50, 1.5]], "hardware": there, "system": "agt"}
    first |= {"train_curve": []}
    save(paper.store(tmp_path / "agt"), "sst1", "agt", [record_of(paper, config, "11", **first)])
    trained, devices = [], []
    monkeypatch.setattr(verify, "prepare_cpu", devices.append)

    def first_lines(paper, config, last):
        trained.append(config.data.embeddings)
        return [{"split": "train", "step": last, "loss": 1.5}]

    monkeypatch.setattr(verify, "first_lines", first_lines)
    asked = ["agt/sst1/agt/0", "--results", str(tmp_path), "--embeddings"]
    status, text = verified([*asked, "elsewhere/vectors.txt"], capsys)
    assert status == 0
    assert "verdict: equal" in text
    text = refused(verify.main, [*asked, "other.txt"], capsys)
    assert "the record has data.embeddings vectors.txt, wanted other.txt" in text
    assert (trained, devices) == (["elsewhere/vectors.txt"], [3, 3])


@pytest.mark.slow
def test_a_run_says_on_what_other_machine_its_record_was_made(record, tmp_path, capsys):
    """In the table that repeats it, or adds a seed to its cell; unknown facts are not named."""
    folders = ["--results", str(tmp_path / "toy"), "--runs", str(tmp_path / "runs")]
    args = ["table1", *folders, "--cell", "toy/noisy/1", "--num-steps", "60"]
    note = "note: the record of seed 0 was made elsewhere (usable cores 64 there, "
    elsewhere = hardware() | {"usable_cores": 64}
    packages = {"software": {"versions": software()["versions"] | {"optax": "0.0"}}}
    settings = _toy.PAPER.recorded(with_changes(_toy.PRESETS["toy"], {"train.num_steps": 60}))
    del elsewhere["processor"]
    record(hardware=elsewhere, config=settings, **packages)
    assert command.tables(_toy.PAPER, args) == 0
    shown = capsys.readouterr().err
    assert shown.startswith(note)
    assert "; optax 0.0 there, " in shown
    assert "processor" not in shown
    record(config=settings)
    assert command.tables(_toy.PAPER, [*args[:-3], "toy/noisy/2", *args[-2:]]) == 0
    assert capsys.readouterr().err == ""
    here = {"hardware": hardware(), "software": {"versions": dict(software()["versions"])}}
    here["software"]["versions"]["gatedjax"] = "0"  # results do not depend on its number
    assert machine_differences(here) == []
    # the first losses are those of the machine on which a run was started
    start = {"started_on": {"device": "other", "processor": "old", "jax": "0"}}
    found = [line.partition(" there")[0] for line in machine_differences(here | start)]
    assert found == ["processor old", "jax 0"]
