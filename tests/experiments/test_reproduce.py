"""`python -m experiments reproduce`: its plan, its costs, its time, and what it verifies."""

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from experiments.core import command, reproduce, verify
from experiments.core import plan as planning
from experiments.core import pool as pools
from experiments.core.config import changed
from experiments.core.curves import curve, first_losses, software
from experiments.core.paper import Figure, Table, Variant, variants
from experiments.core.plan import VALUES, Costs, Wanted, make_plan, value_of
from experiments.core.records import RESULTS
from gatedjax import data as gdata
from gatedjax.training.lock import WorkdirLock
from tests._programs import environment
from tests.conftest import ROOT
from tests.experiments import _toy, _toy_slow
from tests.experiments._commands import plain, refused
from tests.experiments._results import config_of, record_of, save

HERE = ("cpu", "this one")
OTHER = ("cpu", "another")

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


def wanted_of(tmp_path, paper=PAPER, seeds=3, **options):
    return Wanted(
        papers=[paper], seeds=seeds, results=tmp_path / "results", runs=tmp_path / "runs",
        options=options,
    )  # fmt: skip


def write_record(tmp_path, variant, seed, *, seconds=6.0, steps=6, on=HERE, config=None, **more):
    """The record that a run would leave, as far as a plan reads it."""
    if config is None:
        changes = PAPER.variants[variant].changes | {"train.seed": seed}
        config = changed(PAPER.presets["toy"], changes)
    record = {
        "config": PAPER.recorded(config), "seed": seed, "test": {"accuracy": 1.0}, "correct": "11",
        "data": "toy", "substitute": None, "steps": steps, "seconds": seconds,
        "hardware": {"platform": on[0], "processor": on[1]}, **more,
    }  # fmt: skip
    path = tmp_path / "results" / "toy" / "runs" / f"toy-{variant}-seed{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return path


def planned(tmp_path, **options):
    return make_plan(wanted_of(tmp_path, **options), here=HERE)


# the plan ---------------------------------------------------------------------------------------


def test_the_most_valuable_runs_are_first_and_of_equal_value_the_cheapest(tmp_path):
    write_record(tmp_path, "plain", 0, seconds=12.0)
    write_record(tmp_path, "solo", 0, seconds=3.0)
    found = planned(tmp_path)
    assert [(t.cell.variant, t.seed, t.value) for t in found.tasks] == [
        ("noisy", 0, "verdict"),
        ("plain", 1, "second seed"), ("noisy", 1, "second seed"),
        ("solo", 1, "second seed of a table"),
        ("solo", 2, "further seed"), ("plain", 2, "further seed"), ("noisy", 2, "further seed"),
        ("drawn", 0, "figure"), ("drawn", 1, "figure"), ("drawn", 2, "figure"),
    ]  # fmt: skip
    assert found.present == 2
    assert found.left_out == []
    assert {task.name for task in found.tasks} >= {"toy/toy/noisy/0"}


def test_every_kind_of_run_has_a_value():
    assert [value_of(n, True, False) for n in (0, 1, 2)] == [VALUES[0], VALUES[1], "further seed"]
    assert [value_of(n, False, False) for n in (0, 1, 5)] == [VALUES[2], VALUES[3], "further seed"]
    assert value_of(0, True, True) == "figure"


def test_a_plan_writes_nothing_and_takes_the_record_of_the_same_run_for_free(tmp_path):
    paper = dataclasses.replace(PAPER, twins=True)
    changes = PAPER.variants["noisy"].changes | {"model.noise": 0.6}
    write_record(tmp_path, "solo", 0, config=changed(PAPER.presets["toy"], changes))
    paper = dataclasses.replace(paper, tables={"figure1": PAPER.tables["figure1"]})
    before = sorted(tmp_path.rglob("*"))
    task = next(t for t in planned(tmp_path, paper=paper).tasks if t.name == "toy/toy/drawn/0")
    assert (task.cost.seconds, task.cost.source) == (0.0, "the same run has a record")
    assert sorted(tmp_path.rglob("*")) == before


def test_records_of_other_settings_leave_their_cell_out_and_say_why(tmp_path):
    other = changed(PAPER.presets["toy"], {"model.noise": 0.25})
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
        return changed(
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
    record = record_of(paper, changed(paper.presets["mnist"], changes), "10", cell="gru")
    save(paper.store(tmp_path / "results" / "rau"), "mnist", "gru", [record])
    monkeypatch.setattr(planning, "why_no_data", lambda paper, config: None)
    found = make_plan(wanted_of(tmp_path, paper=paper, seeds=2), here=HERE)
    assert {task.job.options.learning_rate for task in found.tasks} == {None}
    ((name, why),) = found.left_out
    assert name == "rau/mnist/gru"
    assert "has train.optimizer.learning_rate 0.5" in why


@pytest.mark.parametrize("name", ["ga_reader", "rau", "ssan", "ga_net"])
def test_a_worker_makes_the_run_that_was_planned(name, tmp_path, monkeypatch):
    """With the rate, the width and the budget that the plan took from the records."""
    paper, made = planning.paper_named(name), []
    monkeypatch.setattr(planning, "why_no_data", lambda paper, config: None)
    monkeypatch.setattr(command, "prepare_cpu", lambda devices: None)
    monkeypatch.setattr(command, "run_cells", lambda job, cells: made.extend(cells))
    wanted = Wanted(
        papers=[paper], seeds=5, results=RESULTS, runs=tmp_path, options={"cpu_devices": 1}
    )
    tasks = make_plan(wanted, here=HERE).tasks
    for task in {(t.job.options.what, t.cell.data): t for t in tasks}.values():
        assert command.tables(paper, pools.arguments(task)) == 0
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
    paper = dataclasses.replace(PAPER, presets={"toy": preset}, options=Options)
    config = changed(preset, {"model.noise": 0.0, "data.embeddings": "small.txt"})
    write_record(tmp_path, "plain", 0, config=config)
    found = planned(tmp_path, paper=paper)
    assert {task.config.data.embeddings for task in found.tasks} == {"small.txt"}
    assert found.left_out == []
    asked = planned(tmp_path, paper=paper, embeddings="large.txt")
    assert {task.config.data.embeddings for task in asked.tasks} == {"large.txt"}
    assert [name for name, _ in asked.left_out] == ["toy/toy/plain"]


# costs ------------------------------------------------------------------------------------------


def test_costs_are_of_this_machine_else_scaled_else_measured_else_of_a_neighbour(tmp_path):
    folder = tmp_path / "results" / "toy"
    write_record(tmp_path, "plain", 0, seconds=6.0)
    write_record(tmp_path, "plain", 1, seconds=12.0)
    write_record(tmp_path, "plain", 2, seconds=60.0)
    write_record(tmp_path, "solo", 0, seconds=18.0, on=OTHER)
    costs = Costs.of([folder], HERE)
    assert costs.cost("toy", "plain", 100).seconds == pytest.approx(200)  # the median
    assert costs.cost("toy", "plain", 100).source == "records, this machine"
    alone = costs.cost("toy", "solo", 100)
    assert alone.seconds == pytest.approx(300)
    assert alone.source == "records, cpu another, not scaled"
    # a cell that both machines ran says that this one takes 2 s where the other takes 0.5 s
    write_record(tmp_path, "plain", 3, seconds=3.0, on=OTHER)
    costs = Costs.of([folder], HERE)
    scaled = costs.cost("toy", "solo", 100)
    assert scaled.seconds == pytest.approx(1200)
    assert scaled.source == "records, cpu another, times 4.00"
    near = costs.cost("toy", "noisy", 100)
    assert near.seconds == pytest.approx(1200)  # the slowest on these data
    assert near.source.endswith("of solo")
    costs.measured["toy", "noisy"] = (0.25, 20)
    assert costs.cost("toy", "noisy", 100) == planning.Cost(25.0, "20 steps measured")
    assert costs.cost("wide", "plain", 100).seconds is None


def test_a_checkpoint_makes_what_is_left_cheaper(tmp_path):
    write_record(tmp_path, "plain", 0, seconds=12.0)
    (tmp_path / "runs" / "toy" / "tables" / "toy-plain-seed1" / "checkpoints" / "4").mkdir(
        parents=True
    )
    tasks = {task.name: task for task in planned(tmp_path).tasks}
    task = tasks["toy/toy/plain/1"]
    assert (task.done, task.steps) == (4, 6)
    assert task.left == pytest.approx(12.0 * 2 / 6)
    assert tasks["toy/toy/plain/2"].left == pytest.approx(12.0)


def test_what_a_run_has_cost_tells_what_others_will(tmp_path):
    """A machine of the same name may be slower than the records say."""
    write_record(tmp_path, "plain", 0, seconds=6.0)
    write_record(tmp_path, "noisy", 0, seconds=12.0)
    write_record(tmp_path, "solo", 0, seconds=5.0, on=OTHER)
    measured = {"toy/toy/drawn": [0.5, 20]}
    plan = make_plan(wanted_of(tmp_path), measured, here=HERE).tasks
    left = lambda tasks: {t.cell.variant: (t.left, t.cost.source) for t in tasks}  # noqa: E731
    assert {name: seconds for name, (seconds, _) in left(plan).items()} == {
        "plain": 6.0, "noisy": 12.0, "solo": 5.0, "drawn": 3.0,
    }  # fmt: skip
    assert planning.recosted(plan, plan, []) == list(plan)
    ended = [task for task in plan if task.name == "toy/toy/plain/1"]
    write_record(tmp_path, "plain", 1, seconds=15.0)  # two and a half times as long
    after = planning.recosted(plan, plan, ended)
    assert [task.name for task in after] == [task.name for task in plan]
    assert left(after) == {
        "plain": (15.0, "a run that ended"),
        "noisy": (30.0, "records, this machine, times 2.50"),
        "solo": (
            5.0,
            "records, cpu another, not scaled",
        ),  # records of another kind say nothing of it
        "drawn": (3.0, "20 steps measured"),
    }
    # from the estimates of the plan, not from those that were scaled
    assert planning.recosted(after, plan, ended) == after


def test_what_a_run_has_cost_is_all_that_is_known_where_there_were_no_records(tmp_path):
    plan = planned(tmp_path).tasks
    assert {task.left for task in plan} == {None}
    write_record(tmp_path, "plain", 0, seconds=18.0)
    after = planning.recosted(plan, plan, [t for t in plan if t.name == "toy/toy/plain/0"])
    assert {task.left for task in after} == {18.0}
    assert {task.cost.source for task in after} == {
        "a run that ended", "a run that ended, of plain",
    }  # fmt: skip
    diverged = [task for task in plan if task.name == "toy/toy/solo/0"]  # it has no record
    assert planning.recosted(plan, plan, diverged) == list(plan)


def test_only_what_fits_is_begun_but_what_has_begun_goes_on(tmp_path):
    write_record(tmp_path, "plain", 0, seconds=100.0)
    one, two = (t for t in planned(tmp_path).tasks if t.cell.variant == "plain")
    pool = pools.Pool([], 1, 60.0, False, lambda name, what: None)
    assert not pool.fits(one)
    assert pool.fits(dataclasses.replace(two, done=1))
    assert pool.fits(dataclasses.replace(two, cost=planning.Cost(None, "unknown")))
    assert pool.fits(dataclasses.replace(two, cost=planning.Cost(59.0, "records")))
    pool.tasks = [one, two]
    pool.run()  # returns at once: there is no process to wait for
    assert pool.too_long == [one, two]


# the command ------------------------------------------------------------------------------------


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The command of the toy paper; returns its folders as options."""
    for module, name, value in _toy_slow.in_place_of_papers():
        monkeypatch.setattr(module, name, value)
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    return ["--papers", "toy", *folders]


BAD = {
    "--papers tay": "--papers: no paper 'tay'. Did you mean 'toy'? Papers: toy.",
    "--hours 0": "--hours must be above 0, got 0",
    "--hours nan": "--hours must be above 0, got nan",
    "--workers 0": "--workers must be at least 1, got 0",
    "--seeds 0": "--seeds must be at least 1, got 0",
    "--measure -1": "--measure must be at least 0, got -1",
    "--manual-dir none-such": "--manual-dir none-such: there is no such folder",
    "--verify toy/plain/0": "wants PAPER/DATA/VARIANT/SEED, as ga_net/trec/soft/0, got 'toy/pl",
    "--verify tay/toy/plain/0": "no paper 'tay'. Papers: toy.",
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


def test_a_folder_that_cannot_be_written_is_refused(toy, monkeypatch, capsys):
    monkeypatch.setattr(reproduce.os, "access", lambda path, mode: False)
    assert "cannot be written" in refused(reproduce.main, toy, capsys)


def test_where_every_set_is_missing_nothing_is_begun(toy, monkeypatch, capsys):
    monkeypatch.setattr(planning, "why_no_data", lambda paper, config: "not here")
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
    assert "2 runs of unknown cost" in text
    assert list(tmp_path.iterdir()) == []


def test_the_missing_runs_are_made_once_and_shown_in_the_page(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    args = [*toy, "--seeds", "1", "--workers", "2", "--measure", "0"]
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
    monkeypatch.setattr(pools, "command_of", lambda task: [sys.executable, "-c", code])
    assert reproduce.main([*toy, "--seeds", "1", "--workers", "1", "--measure", "0"]) == 1
    out = plain(capsys.readouterr().out)
    assert "0 done, 0 stopped, 2 failed; 0 not begun" in out
    assert out.count(": no [/b] here") == 2
    assert sorted(path.name for path in tmp_path.rglob("logs/*")) == [
        "toy-noisy-seed0.log", "toy-plain-seed0.log",
    ]  # fmt: skip


def test_a_terminal_shows_every_run_at_work_and_its_step(tmp_path):
    (task, *_) = planned(tmp_path, seeds=1).tasks
    task.workdir.mkdir(parents=True)
    lines = '{"split": "train", "step": 2}\n{"split": "train", "step": 4}\n{"spl'
    (task.workdir / "metrics.jsonl").write_text(lines)
    console = Console(force_terminal=True, file=io.StringIO(), width=100, highlight=False)
    view = reproduce.View(console)
    pool = pools.Pool([task], 1, 3600.0, False, lambda name, what: None)
    pool.running = [pools.Worker(task, None, tmp_path / "log", None, time.monotonic())]
    with view.open():
        view.begun(pool.running[0])
        view.tick(pool)
    text = plain(console.file.getvalue())
    assert "0 done, 1 to go, 1 h 00 min left" in text
    assert f"{task.name} 4 6 0 s" in " ".join(text.replace("┃", " ").split())
    assert f"begun: {task.name} (?)" in text


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


@pytest.mark.slow
def test_a_short_run_tells_the_cost_where_no_record_does(tmp_path, toy, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(_toy_slow.PAUSE, "0.05")
    task = planned(tmp_path, paper=_toy_slow.PAPER, cpu_devices=1).tasks[0]
    rate = pools.measured_rate(task, 10)
    assert 0.05 <= rate < 0.5
    assert not (tmp_path / "results").exists()


def start(tmp_path, *args, pause="0.1"):
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    return subprocess.Popen(
        [sys.executable, "-m", _toy_slow.MODULE, *folders, "--seeds", "1", "--workers", "2",
         "--measure", "0", *args],
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
    assert ("another machine or other cores (cpu another one there" in text) == other
    assert "│ 12 │" not in text


@pytest.mark.parametrize(("step", "change", "status"), [(50, 1e-4, 1), (51, 1e-4, 0), (51, 0.1, 1)])
def test_what_is_first_logged_after_the_first_steps_may_round(step, change, status, capsys):
    there = verify.Recorded([(step, 2.0)], 1, True)
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
    assert "an unknown number of usable cores there" in text
    assert "verdict: equal, in all digits" in text


def test_an_older_record_is_compared_by_its_curve(toy, tmp_path, lines, capsys):
    recorded(tmp_path, lines, old=True)  # three lines a point
    assert reproduce.main([*toy, "--verify", "toy/toy/noisy/0"]) == 0
    assert "verdict: equal, in the 6 digits that the record has" in plain(capsys.readouterr().out)
    path = recorded(tmp_path, lines, old=True)
    record = json.loads(path.read_text())
    del record["train_curve"]
    path.write_text(json.dumps(record))
    text = refused(reproduce.main, [*toy, "--verify", "toy/toy/noisy/0"], capsys)
    assert "older than curves of the training loss" in text


def test_a_record_with_an_option_that_is_gone_cannot_be_repeated(toy, tmp_path, lines, capsys):
    path = recorded(tmp_path, lines)
    record = json.loads(path.read_text())
    record["config"]["model"]["gone"] = 3
    path.write_text(json.dumps(record))
    text = refused(reproduce.main, [*toy, "--verify", "toy/toy/noisy/0"], capsys)
    assert "model.gone 3, which cannot be set today" in text


def test_a_configuration_is_read_back_from_its_record(lines):
    config = changed(
        _toy_slow.PRESETS["toy"], {"model.noise": 0.7, "train.seed": 4, "data.rows": 4}
    )
    record = {"config": _toy_slow.PAPER.recorded(config)}
    again = verify.recorded_config(_toy_slow.PAPER, "toy", record)
    assert _toy_slow.PAPER.recorded(again) == record["config"]


def test_word_vectors_may_lie_elsewhere_but_are_those_of_the_record(tmp_path, capsys, monkeypatch):
    paper = planning.paper_named("agt")
    config = changed(config_of(paper, "sst1", 0), {"data.embeddings": "mine/vectors.txt"})
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
    assert "the record has data.embeddings vectors.txt, not other.txt" in text
    assert trained == ["elsewhere/vectors.txt"]
