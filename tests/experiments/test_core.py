"""What the engine promises to every paper, shown on a toy one."""

import dataclasses
import functools
import json
import shutil
import signal
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.core import columns, command, text
from experiments.core.config import value_at, with_changes
from experiments.core.experiment import Clock, Run, last
from experiments.core.paper import Job, TableOptions, TableRow, Variant
from experiments.core.records import read_json, write_json
from gatedjax import data as gdata
from gatedjax.training import NonFiniteError
from gatedjax.training.config import EmaState
from gatedjax.training.workdir import mark_run
from tests.conftest import ROOT
from tests.experiments._commands import left_out_of_help, plain, refused, run
from tests.experiments._results import rows_of
from tests.experiments._toy import PAPER as TOY
from tests.experiments._toy import Config, experiment
from tests.training._tiny import Data


@dataclasses.dataclass(frozen=True, kw_only=True)
class MoreOptions(TableOptions):
    """An option of the toy paper alone."""

    rows: int | None = None
    """Rows of a batch."""

    def changes(self, preset):
        return {} if self.rows is None else {"data.rows": self.rows}


PAPER = dataclasses.replace(TOY, options=MoreOptions, keys=("config", "seed", "test"), twins=True)
OPTIONS = command.options_of(PAPER)


def job_of(tmp_path, paper=PAPER, **options):
    folders = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    return Job(paper, OPTIONS(**{"what": "table1", "seeds": 2, **folders, **options}))


def record_of(config, correct="1101", **more):
    return {
        "data": config.preset,
        "seed": config.train.seed,
        "config": PAPER.recorded(config),
        "substitute": None,
        "test": {"accuracy": correct.count("1") / len(correct)},
        "test_n": len(correct),
        "correct": correct,
        "stopped": "done",
        "exit_code": 0,
        "signal": None,
        "steps": config.train.num_steps,
        **more,
    }


@pytest.fixture
def runs(monkeypatch):
    """Replaces training by the record that it would leave; holds the configurations asked for."""
    asked = []

    def fake(build, config, place, *, test=True):
        asked.append(config)
        return Run(None, None, record_of(config))

    monkeypatch.setattr(command, "run_one", fake)
    return asked


def run_cell(job, variant="plain"):
    command.run_cells(job, [job.cell("toy", variant)])


def test_a_whole_paper_has_fewer_than_sixty_lines():
    assert len((ROOT / "tests/experiments/_toy.py").read_text().splitlines()) < 60


# configurations ---------------------------------------------------------------------------------


def test_values_of_one_dataclass_are_replaced_together():
    @dataclasses.dataclass(frozen=True)
    class Pair:
        low: int = 0
        high: int = 1

        def __post_init__(self):
            if self.low >= self.high:
                raise ValueError("low must be below high")

    @dataclasses.dataclass(frozen=True)
    class Two:
        pair: Pair = Pair()
        name: str = "a"

    assert with_changes(Two(), {"pair.low": 4, "name": "b", "pair.high": 5}) == Two(Pair(4, 5), "b")
    assert with_changes(Two(), {"pair": Pair(7, 9), "pair.high": 8}) == Two(Pair(7, 8))
    assert with_changes(Two(), {}) == Two()
    with pytest.raises(ValueError, match="low must be below"):
        with_changes(Two(), {"pair.low": 4})
    with pytest.raises(ValueError, match="Pair has no field 'width', got 'width'"):
        with_changes(Two(), {"pair.width": 4})


def test_a_path_reads_dicts_and_lists_and_tells_nothing_of_what_is_not_there():
    record = {"test": {"accuracy": 0.5}, "f1": [0.1, 0.2]}
    assert value_at(record, "test.accuracy") == 0.5
    assert value_at(record, "f1.1") == 0.2
    for path in ("test.loss", "f1.2", "f1.x", "none.at.all", "test.accuracy.more"):
        assert value_at(record, path) is None


def test_no_option_undoes_what_defines_a_system(tmp_path):
    job = job_of(tmp_path, rows=4)
    narrow = Variant("narrow", "", {"data.rows": 2})
    assert [job.config("toy", one, 0).data.rows for one in ("plain", narrow)] == [4, 2]


def test_a_variant_has_the_records_of_the_one_that_it_is_the_same_as():
    assert PAPER.record_name("toy", "again") == "noisy"
    other = Variant("again", "", {"model.noise": 0.2}, same_as="noisy")
    paper = dataclasses.replace(PAPER, variants={**PAPER.variants, "again": other})
    assert paper.record_name("toy", "again") == "again"


# cells ------------------------------------------------------------------------------------------


def test_a_cell_runs_every_seed_once_and_more_seeds_only_the_new_ones(tmp_path, runs):
    job = job_of(tmp_path)
    run_cell(job)
    run_cell(job)
    assert [(c.train.seed, c.model.noise) for c in runs] == [(0, 0.0), (1, 0.0)]
    run_cell(job_of(tmp_path, seeds=4))
    assert [c.train.seed for c in runs] == [0, 1, 2, 3]
    assert job.store.get("toy", "plain", 0)["test"] == {"accuracy": 0.75}
    assert "exit_code" not in job.store.get("toy", "plain", 0)


def test_a_record_of_another_configuration_is_made_again_only_with_rerun(tmp_path, runs):
    run_cell(job_of(tmp_path))
    longer = {"num_steps": 8}
    with pytest.raises(ValueError, match=r"train.num_steps 6, wanted 8.*--results DIR.*--rerun"):
        run_cell(job_of(tmp_path, **longer))
    assert len(runs) == 2
    run_cell(job_of(tmp_path, **longer, rerun=True))
    assert [c.train.num_steps for c in runs] == [6, 6, 8, 8]
    assert job_of(tmp_path).store.get("toy", "plain", 0)["config"]["train"]["num_steps"] == 8


def test_one_seed_of_several_is_not_replaced_by_another_kind(tmp_path, runs):
    run_cell(job_of(tmp_path))
    with pytest.raises(ValueError, match=r"the record of seed 1 has train.num_steps 6, wanted 8"):
        run_cell(job_of(tmp_path, seeds=1, num_steps=8, rerun=True))
    assert len(runs) == 2


def test_a_finished_work_folder_of_the_same_run_is_taken_and_of_another_is_not(tmp_path, runs):
    job = job_of(tmp_path)
    for seed, steps in ((0, 6), (1, 5)):
        config = with_changes(job.config("toy", "plain", seed), {"train.num_steps": steps})
        folder = tmp_path / "runs" / f"toy-plain-seed{seed}"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(record_of(config, "0000")))
    run_cell(job)
    assert [c.train.seed for c in runs] == [1]
    assert [job.store.get("toy", "plain", s)["correct"] for s in (0, 1)] == ["0000", "1101"]


def test_the_same_run_of_another_table_is_taken_under_its_own_name(tmp_path, runs):
    job = job_of(tmp_path)
    run_cell(job, "noisy")
    assert len(runs) == 2
    run_cell(job, Variant("other_name", ""))
    assert len(runs) == 2
    assert job.store.get("toy", "other_name", 1) == job.store.get("toy", "noisy", 1)
    # nor are its seeds trained side by side
    run_cell(job_of(tmp_path, lanes=2), Variant("third_name", ""))
    assert job.store.get("toy", "third_name", 1) == job.store.get("toy", "noisy", 1)
    assert not (tmp_path / "runs").exists()


def test_rerun_starts_from_an_empty_work_folder(tmp_path, runs):
    run_cell(job_of(tmp_path))
    left = tmp_path / "runs" / "toy-plain-seed0" / "checkpoints"
    other = tmp_path / "runs" / "toy-noisy-seed0"
    for folder in (left, other):
        folder.mkdir(parents=True)
    with pytest.raises(FileExistsError, match="holds checkpoints and no lock of a run"):
        run_cell(job_of(tmp_path, rerun=True, seeds=1))
    mark_run(left.parent)
    run_cell(job_of(tmp_path, rerun=True, seeds=1))
    assert [c.train.seed for c in runs] == [0, 1, 0]
    assert not left.exists()
    assert other.exists()


def test_rerun_leaves_what_no_run_wrote(tmp_path, runs):
    workdir = tmp_path / "runs" / "toy-plain-seed0"
    workdir.mkdir(parents=True)
    mark_run(workdir)
    (workdir / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"got thesis\.txt, which no run wrote: move it"):
        run_cell(job_of(tmp_path, rerun=True, seeds=1))
    assert (workdir / "thesis.txt").read_text() == "mine"
    assert not runs


@pytest.mark.parametrize(("stopped", "left"), [("signal", []), ("done", ["toy-plain-seed0.json"])])
def test_a_signal_ends_a_table_and_leaves_the_records_of_finished_runs(
    stopped, left, tmp_path, monkeypatch, capsys
):
    ended = {"stopped": stopped, "exit_code": 130, "signal": 2}
    fake = lambda build, config, place, test=True: Run(None, None, record_of(config, **ended))  # noqa: E731
    monkeypatch.setattr(command, "run_one", fake)
    with pytest.raises(SystemExit) as stop:
        run_cell(job_of(tmp_path))
    assert stop.value.code == 130
    assert [path.name for path in (tmp_path / "results").rglob("*.json")] == left
    message = "stopped after this run" if left else "stopped after step 6; the same command"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"),
    [('{"config": ', "is damaged"), ('{"seed": 0}', "'config'"), ("", "")],
)
def test_a_damaged_record_is_named_and_nothing_is_trained_or_written(
    content, reason, tmp_path, runs, capsys
):
    job = job_of(tmp_path)
    path = job.store.path("toy", "plain", 1)
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    for args in (["render"], ["table1", "--seeds", "2"]):
        with pytest.raises(SystemExit) as stop:
            command.tables(PAPER, [*args, *folders])
        assert stop.value.code == 2
        message = capsys.readouterr().err
        assert str(path) in message
        assert reason in message
        assert "delete it" in message
    assert not (tmp_path / "results" / "RESULTS.md").exists()
    assert runs == []


def test_store_reads_records_in_the_order_of_seeds_and_tells_variants_apart(tmp_path):
    store = job_of(tmp_path).store
    for variant, seeds in (("noisy", (10, 2, 0)), ("noisy_more", (0,))):
        for seed in seeds:
            path = store.path("toy", variant, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record_of(with_changes(Config(), {"train.seed": seed}))))
    assert [record["seed"] for record in store.all("toy", "noisy")] == [0, 2, 10]
    assert list(store.variants("toy")) == ["noisy", "noisy_more"]
    assert store.get("toy", "noisy", 1) is None
    assert list(store.variants("wide")) == []


def rounded(value):
    """Numbers to four digits, wherever they are."""
    return json.loads(json.dumps(value), parse_float=lambda text: round(float(text), 4))


# real runs --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_table_trains_its_cells_and_shows_what_their_records_hold(tmp_path, capsys):
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    args = ["table1", "--seeds", "2", *folders]
    assert command.tables(PAPER, args) == 0
    records = {path.name: json.loads(path.read_text()) for path in tmp_path.rglob("runs/*.json")}
    assert sorted(records) == [f"toy-{v}-seed{s}.json" for v in ("noisy", "plain") for s in (0, 1)]
    record = records["toy-noisy-seed1.json"]
    assert (record["seed"], record["data"], record["train_n"]) == (1, "toy", 48)
    assert (record["parameters"], record["steps"], record["stopped"]) == (4, 6, "done")
    assert [point[0] for point in record["curve"]] == [3, 6]
    assert [point[0] for point in record["train_curve"]] == [2, 4, 6]
    assert {"test", "test_last", "hardware", "seconds", "origin", "best_step"} <= record.keys()
    text = (tmp_path / "results" / "RESULTS.md").read_text(encoding="utf-8")
    rows = {row[1]: row for row in rows_of(text, "Table 1")}
    mean = np.mean([records[f"toy-noisy-seed{s}.json"]["test"]["accuracy"] for s in (0, 1)])
    assert rows["noise"][3].startswith(f"{mean:.4f} ")
    assert rows["noise"][2] == "0.5000"
    assert rows["noise, again"][3] == rows["noise"][3]
    assert rows["noise"][4:6] != ["-", "-"]
    before = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("runs/*.json"))]
    assert command.tables(PAPER, args) == 0
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("runs/*.json"))] == before


@pytest.mark.slow
def test_seeds_side_by_side_leave_the_records_of_single_runs(tmp_path):
    # which parameters are tested is asked of every seed's own result, and so are lines of the log
    own = {"choose": last, "logged": lambda lines: {"logged": [line.get("loss") for line in lines]}}
    own["before"] = functools.partial(text.write_words, gdata.Vocabulary(["a"]), ())
    falling = {"schedule": "staircase", "decay_rate": 0.5, "decay_begin": 2, "decay_every": 1}

    def build(config):
        # The rate falls with the epochs of the data, and the record has what was asked for.
        changes = {f"optimizer.{name}": value for name, value in falling.items()}
        training = with_changes(config.train, changes)
        return dataclasses.replace(experiment(config), training=training, **own)

    paper = dataclasses.replace(PAPER, experiment=build)
    alone = job_of(tmp_path / "alone", paper=paper)
    together = job_of(tmp_path / "together", paper=paper, lanes=2)
    for job in (alone, together):
        run_cell(job, "noisy")
    assert (tmp_path / "together" / "runs" / "toy-noisy-seeds0to1" / "vocabulary.json").exists()
    for seed in (0, 1):
        one, lane = (job.store.get("toy", "noisy", seed) for job in (alone, together))
        assert one.keys() | {"lanes"} == lane.keys()
        assert lane["config"]["train"]["optimizer"]["schedule"] == "constant"
        same = ("config", "curve", "train_curve", "test", "parameters", "correct", "best_step",
                "chosen", "logged")  # fmt: skip
        np.testing.assert_equal(
            rounded({n: lane[n] for n in same}), rounded({n: one[n] for n in same})
        )


def test_the_last_parameters_are_those_that_evaluations_saw_and_are_in_no_folder(tmp_path):
    raw, average = {"w": np.zeros(2)}, {"w": np.ones(2)}
    for kept, wanted in (((), raw), ((EmaState(np.int32(3), average),), average)):
        result = SimpleNamespace(state=SimpleNamespace(params=raw, opt_state=kept))
        params, said = last(result, tmp_path / "of another process")
        np.testing.assert_array_equal(params["w"], wanted["w"])
        assert said == {"chosen": "last"}


def test_seeds_that_cannot_share_a_work_folder_are_refused_before_they_are_trained(tmp_path):
    class Alone(Config):
        allows_lanes = False

    config = with_changes(Alone(), {"workdir": str(tmp_path / "run"), "train.seeds": 2})
    with pytest.raises(ValueError, match=r"train\.seeds must be 1 .*, got 2"):
        command.runs_of(PAPER, config)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_is_printed_recorded_and_not_repeated(tmp_path, capsys):
    args = ["--workdir", str(tmp_path), "--train.num-steps", "4"]
    assert run(PAPER, args) == 0
    assert "done" in capsys.readouterr().out
    first = json.loads((tmp_path / "results.json").read_text())
    lines = (tmp_path / "metrics.jsonl").read_bytes()
    assert run(PAPER, args) == 0
    second = json.loads((tmp_path / "results.json").read_text())
    assert (tmp_path / "metrics.jsonl").read_bytes() == lines
    assert first["steps"] == second["steps"] == 4
    assert first["correct"] == second["correct"]
    assert str(tmp_path) not in json.dumps(first)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_the_seconds_of_a_run_are_those_of_all_its_sessions(seeds, tmp_path, monkeypatch):
    now, take, stops = [0.0], Data.__getitem__, [3]

    def taken(self, step):
        now[0] += 10
        if step in stops:
            stops.remove(step)
            signal.raise_signal(signal.SIGTERM)
        return take(self, step)

    monkeypatch.setattr(Data, "__getitem__", taken)
    monkeypatch.setattr(
        "experiments.core.experiment.time", SimpleNamespace(perf_counter=lambda: now[0])
    )
    config = with_changes(Config(), {"workdir": str(tmp_path), "train.seeds": seeds})
    first = command.runs_of(PAPER, config)[0].record
    assert first["stopped"] == "signal"
    assert "test_n" not in first
    assert first["seconds"] * seeds == now[0] > 40
    second = command.runs_of(PAPER, config)[0].record
    assert second["stopped"] == "done"
    assert second["seconds"] * seeds == now[0] > first["seconds"] * seeds + 20
    # where the checkpoints are gone a new run begins
    shutil.rmtree(tmp_path / "checkpoints")
    assert Clock(tmp_path).seconds == 0


@pytest.mark.slow
def test_a_process_that_is_not_the_first_needs_no_file_of_the_first(tmp_path, monkeypatch):
    refuse = lambda path: pytest.fail(f"{path} is on the disk of the first process")  # noqa: E731
    monkeypatch.setattr("experiments.core.experiment.is_main", lambda: False)
    monkeypatch.setattr("experiments.core.experiment.analysis.read_metrics", refuse)
    config = with_changes(Config(), {"workdir": str(tmp_path), "train.num_steps": 2})
    assert command.run_of(PAPER, config).record["test_n"] == 8


@pytest.mark.slow
def test_a_run_that_continued_on_another_machine_names_the_machine_of_its_start(tmp_path):
    config = with_changes(Config(), {"workdir": str(tmp_path), "train.num_steps": 2})
    assert "started_on" not in command.run_of(PAPER, config).record
    path = tmp_path / "environment.json"
    first = read_json(path)
    write_json(path, first | {"devices": ["NVIDIA H200"], "commit": "c0ffee"})
    (tmp_path / "results.json").unlink()  # otherwise the run is read instead of finished
    record = command.run_of(PAPER, config).record
    assert record["started_on"] == {
        "device": "NVIDIA H200",
        "processor": first["processor"],
        "jax": first["versions"]["jax"],
        "commit": "c0ffee",
    }
    row = TableRow(data="toy", label="toy", variant="a", title="a", records=[record])
    begun = f"begun on NVIDIA H200, jax {jax.__version__}; then cpu x"
    assert columns.hardware(row).startswith(begun)


# commands ---------------------------------------------------------------------------------------


def test_words_and_classes_stay_beside_the_checkpoints_of_the_run_that_they_are_of(
    tmp_path, monkeypatch
):
    first, second = (gdata.Vocabulary([word]) for word in ("a", "b"))
    text.write_words(first, ("no", "yes"), tmp_path)
    text.write_words(second, (), tmp_path)  # nothing was trained yet
    words = tmp_path / "vocabulary.json"
    assert gdata.Vocabulary.load(words).digest() == second.digest()
    assert json.loads((tmp_path / "classes.json").read_text()) == ["no", "yes"]
    monkeypatch.setattr(text.CheckpointStore, "latest", lambda store: 2)
    text.write_words(first, (), tmp_path)
    assert gdata.Vocabulary.load(words).digest() == second.digest()
    words.unlink()
    text.write_words(None, (), tmp_path)
    monkeypatch.setattr(text, "is_main", lambda: False)
    text.write_words(first, (), tmp_path)
    assert not words.exists()


def test_help_lists_options_tables_and_what_they_are(capsys):
    tables = lambda args: command.tables(PAPER, args)  # noqa: E731
    names = ("--data", "--seeds", "--lanes", "--rows", "--results", "table1", "figure1")
    assert left_out_of_help(tables, names, capsys) == []
    assert left_out_of_help(tables, ("table1: accuracy", "render: only rewrite"), capsys) == []
    one = functools.partial(run, PAPER)
    of_a_run = ("--model.noise", "--train.num-steps", "Train a toy")
    assert left_out_of_help(one, of_a_run, capsys) == []


def test_unknown_names_are_refused_with_a_suggestion(capsys):
    tables = functools.partial(command.tables, PAPER)
    one = functools.partial(run, PAPER)
    assert "Did you mean 'wide'?" in refused(one, ["--preset", "wid"], capsys)
    assert "Did you mean 'wide'?" in refused(tables, ["table1", "--data", "wid"], capsys)
    assert "--model.noise" in refused(one, ["--model.nois", "1"], capsys)
    assert "table1" in refused(tables, ["tabel1"], capsys)


def test_an_option_of_some_tables_is_refused_by_the_others(tmp_path, capsys):
    args = ["figure1", "--rows", "5", "--results", str(tmp_path / "results")]
    for owners, named in {
        ("table1",): "table1",
        ("table1", "table2", "table3"): "table1, table2 and table3",
    }.items():
        owning = type("Owning", (MoreOptions,), {"owned": {"rows": owners}})
        paper = dataclasses.replace(PAPER, options=owning)
        message = refused(lambda args, paper=paper: command.tables(paper, args), args, capsys)
        assert message == f"error: --rows is an option of {named}, not of figure1"


@pytest.mark.slow
def test_a_run_that_diverges_has_a_record_and_the_others_go_on(tmp_path, capsys):
    wild = {"train.optimizer.learning_rate": 3e38, "train.max_skipped": 1}
    variants = {**TOY.variants, "noisy": Variant("noisy", "noise", wild)}
    paper = dataclasses.replace(PAPER, variants=variants)
    folders = [f"--{name}={tmp_path / name}" for name in ("results", "runs")]
    table = ["table1", "--seeds", "1", *folders]
    assert command.tables(paper, table) == 0
    shown = capsys.readouterr()
    assert "toy, noisy, seed 0: 2 updates in a row" in shown.err
    kept = json.loads((tmp_path / "results" / "diverged" / "toy-noisy-seed0.json").read_text())
    assert (kept["stopped"], kept["seed"], kept["diverged"]) == ("diverged", 0, 3)
    assert kept["software"].keys() >= {"commit", "versions"}

    page = (tmp_path / "results" / "RESULTS.md").read_text()
    (row,) = [
        line for line in page.splitlines() if line.startswith("| Toy ") and "| noise " in line
    ]
    assert "diverged (n=1)" in row
    assert "not run" not in row
    assert "- Toy, noise (noisy), seed 0: the updates up to step 3 were not finite, at " in page
    assert page.count("n=1") >= 2  # the other system was trained after it

    # it is over: the same command trains nothing, a mended one with --rerun takes its place
    assert command.tables(paper, table) == 0
    assert "tables/" not in capsys.readouterr().out
    said = refused(lambda args: command.tables(PAPER, args), table, capsys)
    assert "the record of seed 0 has train.max_skipped 1, wanted 10" in plain(said)
    assert command.tables(PAPER, [*table, "--rerun"]) == 0
    assert not list((tmp_path / "results" / "diverged").iterdir())
    assert "diverged" not in (tmp_path / "results" / "RESULTS.md").read_text()


@pytest.mark.slow
def test_a_seed_that_diverges_beside_others_leaves_them_to_run_alone(tmp_path, monkeypatch, capsys):
    def together(*_, **__):
        raise NonFiniteError("seed 1: 2 updates in a row", 5)

    def alone(paper, config):
        if config.train.seed == 1:
            raise NonFiniteError("2 updates in a row", 5)
        return Run(None, None, record_of(config))

    monkeypatch.setattr(command, "run_lanes", together)
    monkeypatch.setattr(command, "run_of", alone)
    folders = [f"--{name}={tmp_path / name}" for name in ("results", "runs")]
    table = ["table1", "--seeds", "2", "--lanes", "2", *folders]
    assert command.tables(PAPER, table) == 0
    for folder, seed in (("runs", 0), ("diverged", 1)):
        names = {path.name for path in (tmp_path / "results" / folder).iterdir()}
        assert names == {f"toy-{one}-seed{seed}.json" for one in ("plain", "noisy")}
    # a record of before goes where a run that was asked for again has none
    monkeypatch.setattr(command, "run_of", lambda *_: together())
    assert command.tables(PAPER, [*table, "--lanes", "1", "--rerun"]) == 0
    assert not list((tmp_path / "results" / "runs").iterdir())
