"""`python -m experiments reproduce`: the plan, the runs at once, the time, and `--verify`."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from experiments.core import command, reproduce, verify
from experiments.core import plan as planning
from experiments.core.config import value_at, with_changes
from experiments.core.curves import curve, first_losses, software
from experiments.core.paper import Figure, Job, Table, Variant, variants
from experiments.core.plan import OPTIONS, VALUES, make_plan, value_of
from gatedjax import data as gdata
from gatedjax.training.lock import WorkdirLock
from tests._programs import environment
from tests.conftest import ROOT
from tests.experiments import _toy, _toy_slow
from tests.experiments._commands import plain, refused
from tests.experiments._results import config_of, record_of, save

SOLO = Table(title="Solo", data=("toy",), variants=("solo",), columns=_toy.COLUMNS[:2])
PAPER = dataclasses.replace(
    _toy.PAPER,
    tables={
        "figure1": Figure(draw=lambda job: None, data=("toy",), variants=("drawn", "plain")),
        "solo": SOLO,
        "table1": _toy.TABLE,
    },
    variants=variants(
        *_toy.PAPER.variants.values(),
        Variant("solo", "solo", {"model.noise": 0.5}),
        Variant("drawn", "drawn", {"model.noise": 0.6}),
    ),
)


def planned(tmp_path, paper=PAPER, seeds=3, **options):
    folders = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    return make_plan([paper], seeds=seeds, **folders, **options)


def write_record(tmp_path, variant, seed, *, config=None, **more):
    """The record that a run would leave, as far as a plan reads it."""
    if config is None:
        changes = PAPER.variants[variant].changes | {"train.seed": seed}
        config = with_changes(PAPER.presets["toy"], changes)
    record = {
        "config": PAPER.recorded(config), "seed": seed, "test": {"accuracy": 1.0}, "correct": "11",
        "data": "toy", "substitute": None, "steps": 6, "seconds": 6.0,
        "hardware": {"platform": "cpu"}, **more,
    }  # fmt: skip
    path = tmp_path / "results" / "toy" / "runs" / f"toy-{variant}-seed{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return path


# the plan ---------------------------------------------------------------------------------------


def test_comparisons_are_first_then_second_seeds_more_seeds_and_figures(tmp_path):
    write_record(tmp_path, "plain", 0)
    write_record(tmp_path, "solo", 0)
    found = planned(tmp_path)
    assert [(t.cell.variant, t.seed, t.value) for t in found.tasks] == [
        ("noisy", 0, "verdict"),
        ("plain", 1, "second seed"), ("noisy", 1, "second seed"),
        ("plain", 2, "third seed"), ("noisy", 2, "third seed"),
        ("solo", 1, "second seed of a table"), ("solo", 2, "further seed"),
        ("drawn", 0, "figure"), ("drawn", 1, "figure"), ("drawn", 2, "figure"),
    ]  # fmt: skip
    assert found.present == 2
    assert found.left_out == []
    assert {task.name for task in found.tasks} >= {"toy/toy/noisy/0"}


def test_every_kind_of_run_has_a_value():
    compared = [value_of(n, True, False) for n in (0, 1, 2, 3)]
    assert compared == [*VALUES[:3], "further seed"]
    assert [value_of(n, False, False) for n in (0, 1, 5)] == [*VALUES[3:5], "further seed"]
    assert value_of(0, True, True) == "figure"


def test_records_of_other_settings_leave_their_cell_out_and_say_why(tmp_path):
    other = with_changes(PAPER.presets["toy"], {"model.noise": 0.25})
    write_record(tmp_path, "plain", 0, config=other)
    found = planned(tmp_path)
    assert "plain" not in {task.cell.variant for task in found.tasks}
    ((name, why),) = found.left_out
    assert name == "toy/toy/plain"
    assert why == (
        "other settings: toy, plain: the record of seed 0 has model.noise 0.25, wanted 0.0"
    )


def steps_of(plan):
    return {(task.cell.variant, task.seed): task.config.train.num_steps for task in plan.tasks}


def test_missing_rows_have_the_budget_of_those_that_stand_beside_them(tmp_path):
    def shorter(variant, steps):
        return with_changes(
            PAPER.presets["toy"], PAPER.variants[variant].changes | {"train.num_steps": steps}
        )

    write_record(tmp_path, "plain", 0, config=shorter("plain", 9))
    found = planned(tmp_path)
    assert found.left_out == []
    steps = steps_of(found)
    assert steps["noisy", 0] == steps["plain", 1] == 9
    assert steps["solo", 0] == 6  # no table has it beside the other two
    # what was asked for is not changed, nor what records do not agree on
    asked = planned(tmp_path, num_steps=7)
    assert steps_of(asked)["noisy", 0] == 7
    assert [name for name, _ in asked.left_out] == ["toy/toy/plain"]
    write_record(tmp_path, "noisy", 0, config=shorter("noisy", 8))
    assert sorted(name for name, _ in planned(tmp_path).left_out) == [
        "toy/toy/noisy",
        "toy/toy/plain",
    ]
    # a run that collapsed says nothing
    write_record(tmp_path, "noisy", 0, config=shorter("noisy", 8), predicted_classes=[9, 0])
    assert steps_of(planned(tmp_path))["plain", 2] == 9


def test_an_option_that_makes_rows_of_its_own_is_not_taken_from_the_records(tmp_path, monkeypatch):
    paper = planning.paper_named("rau")
    changes = {"train.optimizer.learning_rate": 0.5, "model.cell": "gru"}
    record = record_of(paper, with_changes(paper.presets["mnist"], changes), "10", cell="gru")
    save(paper.store(tmp_path / "results" / "rau"), "mnist", "gru", [record])
    monkeypatch.setattr(planning, "missing_data", lambda paper, config: None)
    found = planned(tmp_path, paper=paper, seeds=2)
    assert {task.job.options.learning_rate for task in found.tasks} == {None}
    ((name, why),) = found.left_out
    assert name == "rau/mnist/gru"
    assert "has train.optimizer.learning_rate 0.5" in why


GIVEN = {
    "num_steps": 40, "eval_every": 20, "learning_rate": 0.5, "batch_size": 8, "fraction": 0.5,
    "max_doc_len": 50, "hidden": 7, "note": "rebuilt", "embeddings": "small.txt",
}  # fmt: skip


@pytest.mark.parametrize("name", ["agt", "ga_reader", "rau", "ssan", "ga_net"])
def test_a_worker_makes_the_run_that_was_planned(name, tmp_path, monkeypatch):
    """With the rate, the width and the budget that the plan took from the records."""
    paper, made = planning.paper_named(name), []
    kind = command.options_of(paper)
    what = {"agt": "ablation", "rau": "table1", "ssan": "recipe"}.get(name, "table2")
    fields = {field.name for field in dataclasses.fields(kind)}
    given = {k: v for k, v in GIVEN.items() if k in fields and k not in kind.owned}
    job = Job(paper, kind(what=what, seeds=1, cpu_devices=1, **given))
    cell = next(job.cells())
    record = record_of(paper, cell.configs[0], "11", system="", cell="")
    save(paper.store(tmp_path / "results" / name), cell.data, cell.variant, [record])
    monkeypatch.setattr(planning, "missing_data", lambda paper, config: None)
    monkeypatch.setattr(command, "prepare_cpu", lambda devices: None)
    monkeypatch.setattr(command, "run_cells", lambda job, cells: made.extend(cells))
    tasks = [task for task in planned(tmp_path, paper=paper, cpu_devices=1).tasks
             if (task.job.options.what, task.cell.data) == (what, cell.data)]  # fmt: skip
    assert tasks
    # the data sets of some tables have no word vectors
    given = {k: v for k, v in given.items() if value_at(record["config"], OPTIONS[k]) == v}
    assert "num_steps" in given
    for task in tasks[:2]:
        assert {k: getattr(task.job.options, k) for k in given} == given
        assert command.tables(paper, task.arguments()) == 0
        assert made.pop() == task.cell


def test_data_that_are_not_here_leave_their_cells_out_and_nothing_is_read(tmp_path, monkeypatch):
    def build(config):
        gdata.load("trec", "train", manual_dir=config.data.manual_dir)
        raise AssertionError("it was read")

    paper = dataclasses.replace(PAPER, experiment=build)
    manual = tmp_path / "raw"
    manual.mkdir()
    found = planned(tmp_path, paper=paper, manual_dir=str(manual))
    assert found.tasks == []
    assert {why[:33] for _, why in found.left_out} == {"no data: data set 'trec', train: "}
    for name in ("train_5500.label", "TREC_10.label"):
        (manual / name).write_text("NUM:dist How far ?\n")
    found = planned(tmp_path, paper=paper, manual_dir=str(manual))
    assert len(found.tasks) == 12


def test_word_vectors_are_those_of_the_records_of_a_data_set(tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Rows(_toy.Rows):
        embeddings: str = "large.txt"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(PAPER.options):
        embeddings: str | None = None
        """File."""

    preset = _toy.Config(data=Rows())
    start = dataclasses.replace(PAPER.start, presets={"toy": preset})
    paper = dataclasses.replace(PAPER, start=start, options=Options)
    config = with_changes(preset, {"model.noise": 0.0, "data.embeddings": "small.txt"})
    write_record(tmp_path, "plain", 0, config=config)
    found = planned(tmp_path, paper=paper)
    assert {task.config.data.embeddings for task in found.tasks} == {"small.txt"}
    assert found.left_out == []
    asked = planned(tmp_path, paper=paper, embeddings="large.txt")
    assert {task.config.data.embeddings for task in asked.tasks} == {"large.txt"}
    assert [name for name, _ in asked.left_out] == ["toy/toy/plain"]


# the command ------------------------------------------------------------------------------------


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The command of the toy paper; returns its folders as options."""
    for module, name, value in _toy_slow.in_place_of_papers():
        monkeypatch.setattr(module, name, value)
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    return ["--papers", "toy", *folders]


BAD = {
    "--papers tay": "--papers: unknown paper 'tay'. Did you mean 'toy'? Papers: toy.",
    "--hours 0": "--hours must be above 0, got 0",
    "--hours nan": "--hours must be above 0, got nan",
    "--workers 0": "--workers must be at least 1, got 0",
    "--seeds 0": "--seeds must be at least 1, got 0",
    "--manual-dir none-such": "--manual-dir none-such: there is no such folder",
    "--verify toy/plain/0": "PAPER/DATA/VARIANT/SEED, such as ga_net/trec/soft/0, got 'toy/pl",
    "--verify tay/toy/plain/0": "unknown paper 'tay'. Papers: toy.",
    "--verify toy/toy/plain/7": "there is no record",
}


@pytest.mark.parametrize("line", BAD)
def test_what_cannot_be_done_is_refused_before_anything_is_trained(line, toy, tmp_path, capsys):
    text = refused(reproduce.main, [*toy, *line.split()], capsys)
    assert text.startswith("error: ")
    assert BAD[line] in text
    assert not (tmp_path / "results").exists()


def test_a_second_reproduction_into_the_same_folder_is_refused(toy, tmp_path, capsys):
    (tmp_path / "results").mkdir()
    lock = WorkdirLock(tmp_path / "results")
    try:
        text = refused(reproduce.main, toy, capsys)
    finally:
        lock.release()
    assert f"is being written by another run (process {os.getpid()}" in text
    assert "use another folder (--results DIR)" in text


def test_where_every_set_is_missing_nothing_is_begun(toy, monkeypatch, capsys):
    monkeypatch.setattr(planning, "missing_data", lambda paper, config: "no data: not here")
    with pytest.raises(SystemExit) as stop:
        reproduce.main(toy)
    assert stop.value.code == 2
    shown = capsys.readouterr()
    assert "no data: not here" in plain(shown.out)
    assert "error: nothing can be trained" in shown.err


def test_the_help_is_short(toy, capsys):
    with pytest.raises(SystemExit) as stop:
        reproduce.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 60
    assert all(f"--{name}" in text for name in ("papers", "hours", "workers", "plan", "verify"))


def test_the_plan_is_shown_and_nothing_else_is_done(toy, tmp_path, capsys):
    assert reproduce.main([*toy, "--plan", "show", "--seeds", "1"]) == 0
    text = plain(capsys.readouterr().out)
    assert "2 runs are missing, 0 have a record" in text
    assert "toy/toy/plain/0" in text
    assert list(tmp_path.iterdir()) == []


def test_the_missing_runs_are_made_once_and_shown_in_the_page(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    args = [*toy, "--seeds", "1", "--workers", "2"]
    assert reproduce.main(args) == 0
    out = capsys.readouterr().out
    assert "2 done, 0 stopped, 0 failed; 0 not begun" in out
    records = sorted((tmp_path / "results" / "toy" / "runs").iterdir())
    assert [path.name for path in records] == ["toy-noisy-seed0.json", "toy-plain-seed0.json"]
    page = (tmp_path / "results" / "toy" / "RESULTS.md").read_text()
    assert "not run" not in page.split("## Table 1")[1]
    record = json.loads(records[1].read_text())
    assert record["software"]["versions"]["gatedjax"]
    assert record["hardware"]["processor"]
    assert [step for step, _ in record["first_losses"]] == list(range(2, 51, 2))
    times = [path.stat().st_mtime_ns for path in records]
    assert reproduce.main(args) == 0
    assert "nothing is missing" in capsys.readouterr().out
    assert [path.stat().st_mtime_ns for path in records] == times


def test_a_run_that_fails_is_named_with_its_last_words_and_the_others_go_on(
    toy, monkeypatch, tmp_path, capsys
):
    code = "print('first'); print('no [/b] here'); raise SystemExit(2)"
    monkeypatch.setattr(reproduce, "command_of", lambda task: [sys.executable, "-c", code])
    assert reproduce.main([*toy, "--seeds", "1", "--workers", "1"]) == 1
    out = plain(capsys.readouterr().out)
    assert "0 done, 0 stopped, 2 failed; 0 not begun" in out
    assert out.count(": no [/b] here") == 2
    assert sorted(path.name for path in tmp_path.rglob("logs/*")) == [
        "toy-noisy-seed0.log", "toy-plain-seed0.log",
    ]  # fmt: skip


def test_a_folder_that_cannot_be_written_ends_every_run(toy, tmp_path, capsys):
    logs = tmp_path / "runs" / "toy" / "tables" / "logs"
    logs.parent.mkdir(parents=True)
    logs.write_text("")
    assert str(logs) in refused(reproduce.main, [*toy, "--workers", "2"], capsys)
    assert not list(tmp_path.glob("results/toy/runs/*"))


def test_one_cell_of_a_table_is_made_alone_and_another_name_is_refused(tmp_path, capsys):
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    args = ["table1", "--seeds", "2", *folders, "--cell"]
    assert command.tables(_toy.PAPER, [*args, "toy/noisy/1"]) == 0
    left = [p for p in (tmp_path / "results").rglob("*") if p.is_file()]
    assert [path.name for path in left] == ["toy-noisy-seed1.json"]
    assert capsys.readouterr().out.splitlines()[-1] == f"record: {left[0]}"
    assert command.tables(_toy.PAPER, [*args, "toy/noisy/1"]) == 0
    assert capsys.readouterr().out == f"record: {left[0]}\n"  # made before: nothing is trained
    for name in ("toy/none/0", "toy/noisy/2", "toy/noisy", "noisy", "toy/noisy/x"):
        text = refused(lambda given: command.tables(_toy.PAPER, given), [*args, name], capsys)
        assert "cell must be DATA/VARIANT/SEED of a run of table1 with 2 seeds" in text
        assert f"got '{name}'; its cells are toy/plain, toy/noisy" in text


def start(tmp_path, *args, pause="0.1"):
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    return subprocess.Popen(
        [sys.executable, "-m", _toy_slow.MODULE, *folders, "--seeds", "1", "--workers", "2", *args],
        cwd=ROOT, env=environment(**{_toy_slow.PAUSE: pause}), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def wait_for(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


def saved_steps(tmp_path):
    """The newest checkpoint of every run."""
    found = {}
    for path in tmp_path.glob("runs/toy/tables/toy-*-seed0/checkpoints/*"):
        if path.name.isdecimal():
            run = path.parts[-3]
            found[run] = max(found.get(run, 0), int(path.name))
    return found


@pytest.mark.slow
def test_a_stopped_reproduction_saves_its_runs_and_the_same_command_goes_on(tmp_path):
    """Stopped by a signal, killed by the system, and whole at the third call."""
    runs, before = tmp_path / "results" / "toy" / "runs", {}

    def further():
        found = saved_steps(tmp_path)
        return len(found) == 2 and all(found[run] >= before.get(run, 5) + 5 for run in found)

    for number in (signal.SIGTERM, signal.SIGKILL):
        process = start(tmp_path, pause="0.5")
        wait_for(further)
        process.send_signal(number)
        text, _ = process.communicate(timeout=60)
        assert process.returncode == (0 if number == signal.SIGTERM else -9)
        if number == signal.SIGTERM:
            assert "0 done, 2 stopped, 0 failed" in text
            assert "the same command continues" in text
        # the system tells the workers of a killed one
        time.sleep(0 if number == signal.SIGTERM else 3)
        assert not runs.exists() or not list(runs.iterdir())
        before = saved_steps(tmp_path)
    process = start(tmp_path, pause="0")
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    assert "from step" in text
    assert "2 done, 0 stopped, 0 failed; 0 not begun" in text
    unbroken = verify.first_lines(_toy_slow.PAPER, _toy_slow.PRESETS["toy"], 50)
    record = json.loads((runs / "toy-noisy-seed0.json").read_text())
    assert record["first_losses"] == first_losses(unbroken)


@pytest.mark.slow
def test_the_time_is_kept(tmp_path):
    process = start(tmp_path, "--hours", str(25 / 3600), pause="2")
    began = time.monotonic()
    text, _ = process.communicate(timeout=90)
    assert time.monotonic() - began < 60
    assert process.returncode == 0
    assert "0 done, 2 stopped, 0 failed" in text
    assert "the same command continues" in text


# verifying --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lines():
    """The log of the first steps of the toy run."""
    return verify.first_lines(_toy_slow.PAPER, _toy_slow.PRESETS["toy"], 50)


def recorded(tmp_path, lines, *, old=False, **more):
    config = _toy_slow.PRESETS["toy"]
    record = {"train_curve": curve(lines, "train", 10)}
    if not old:
        record |= {"first_losses": first_losses(lines)}
    hardware = {**verify.hardware()}
    found = {"hardware": hardware, "software": software(), **record, **more}
    return write_record(tmp_path, "noisy", 0, config=config, **found)


def test_an_unchanged_record_is_equal_in_every_digit(toy, tmp_path, lines, capsys):
    recorded(tmp_path, lines)
    assert len(lines) == 25
    assert reproduce.main([*toy, "--verify", "toy/toy/noisy/0"]) == 0
    text = plain(capsys.readouterr().out)
    assert "equal means all digits" in text
    assert "verdict: equal, in all digits" in text


@pytest.mark.parametrize(
    ("change", "other", "status"), [(1e-7, False, 1), (1e-7, True, 0), (0.1, True, 1)]
)
def test_a_changed_loss_is_not_equal_but_another_machine_may_round(
    change, other, status, toy, tmp_path, lines, capsys
):
    path = recorded(tmp_path, lines)
    record = json.loads(path.read_text())
    record["first_losses"][3][1] += change
    if other:
        record["hardware"]["processor"] = "another one"
    path.write_text(json.dumps(record))
    assert reproduce.main([*toy, "--verify", "toy/toy/noisy/0", "--num-steps", "10"]) == status
    text = plain(capsys.readouterr().out)
    assert ("verdict: NOT equal" in text) == bool(status)
    assert ("another machine or other cores (processor another one there" in text) == other
    assert "step 10:" in text
    assert "step 12:" not in text


@pytest.mark.parametrize(("step", "change", "status"), [(50, 1e-4, 1), (51, 1e-4, 0), (51, 0.1, 1)])
def test_what_is_first_logged_after_the_first_steps_may_round(step, change, status, capsys):
    there = [(step, 2.0)]
    assert verify.report("toy", there, [(step, 2.0 + change)], []) == status
    text = plain(capsys.readouterr().out)
    assert "up to step 50, within 0.001 of the loss after it" in text
    assert ("verdict: NOT equal" in text) == bool(status)


def test_a_record_that_does_not_say_the_cores_it_could_use_may_round(toy, tmp_path, lines, capsys):
    path = recorded(tmp_path, lines)
    record = json.loads(path.read_text())
    del record["hardware"]["usable_cores"]
    path.write_text(json.dumps(record))
    assert reproduce.main([*toy, "--verify", "toy/toy/noisy/0"]) == 0
    text = plain(capsys.readouterr().out)
    assert "usable cores unknown there" in text
    assert "verdict: equal, in all digits" in text


def test_a_stopped_comparison_has_no_verdict(toy, tmp_path, lines, monkeypatch, capsys):
    recorded(tmp_path, lines)
    stopped = SimpleNamespace(stopped="signal")
    monkeypatch.setattr(verify.gtraining, "fit", lambda *args, **options: stopped)
    assert reproduce.main([*toy, "--verify", "toy/toy/noisy/0"]) == 130
    assert "verdict" not in capsys.readouterr().out


def test_an_older_record_is_compared_by_its_curve(toy, tmp_path, lines, capsys):
    recorded(tmp_path, lines, old=True)  # three lines a point
    assert reproduce.main([*toy, "--verify", "toy/toy/noisy/0"]) == 0
    assert "verdict: equal, in the 6 digits that the record has" in plain(capsys.readouterr().out)
    path = recorded(tmp_path, lines, old=True)
    record = json.loads(path.read_text())
    del record["train_curve"]
    path.write_text(json.dumps(record))
    text = refused(reproduce.main, [*toy, "--verify", "toy/toy/noisy/0"], capsys)
    assert "must have the training loss of the first steps" in text


def test_a_record_with_an_option_that_is_gone_cannot_be_repeated(toy, tmp_path, lines, capsys):
    path = recorded(tmp_path, lines)
    record = json.loads(path.read_text())
    record["config"]["model"]["gone"] = 3
    path.write_text(json.dumps(record))
    text = refused(reproduce.main, [*toy, "--verify", "toy/toy/noisy/0"], capsys)
    assert "the record has model.gone 3, wanted no such option" in text


def test_a_configuration_is_read_back_from_its_record(lines):
    config = with_changes(
        _toy_slow.PRESETS["toy"], {"model.noise": 0.7, "train.seed": 4, "data.rows": 4}
    )
    record = {"config": _toy_slow.PAPER.recorded(config)}
    again = verify.recorded_config(_toy_slow.PAPER, "toy", record, {})
    assert _toy_slow.PAPER.recorded(again) == record["config"]


def test_word_vectors_may_lie_elsewhere_but_are_those_of_the_record(tmp_path, capsys, monkeypatch):
    paper = planning.paper_named("agt")
    config = with_changes(config_of(paper, "sst1", 0), {"data.embeddings": "mine/vectors.txt"})
    first = {"first_losses": [[50, 1.5]], "hardware": verify.hardware(), "system": "agt"}
    save(paper.store(tmp_path / "agt"), "sst1", "agt", [record_of(paper, config, "11", **first)])
    trained = []

    def first_lines(paper, config, last):
        trained.append(config.data.embeddings)
        return [{"split": "train", "step": last, "loss": 1.5}]

    monkeypatch.setattr(verify, "first_lines", first_lines)
    asked = ["--results", str(tmp_path), "--verify", "agt/sst1/agt/0", "--embeddings"]
    assert reproduce.main([*asked, "elsewhere/vectors.txt"]) == 0
    assert "verdict: equal" in plain(capsys.readouterr().out)
    text = refused(reproduce.main, [*asked, "other.txt"], capsys)
    assert "the record has data.embeddings vectors.txt, wanted other.txt" in text
    assert trained == ["elsewhere/vectors.txt"]
