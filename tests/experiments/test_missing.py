"""`python -m experiments missing`: the commands of the runs that the tables lack."""

import dataclasses
import json
import shlex
import subprocess
import sys

import pytest

from experiments.core import command, missing
from experiments.core.config import value_at, with_changes
from experiments.core.missing import OPTIONS, VALUES, missing_runs, paper_named
from experiments.core.paper import Figure, Job, Table, Variant, variants
from gatedjax import data as gdata
from tests.experiments import _toy
from tests.experiments._commands import refused
from tests.experiments._results import record_of, save

SOLO = Table(title="Solo", data=("toy",), variants=("solo",), columns=_toy.COLUMNS[:2])
PAPER = dataclasses.replace(
    _toy.PAPER,
    tables={
        "figure1": Figure(after=lambda job: None, data=("toy",), variants=("drawn", "plain")),
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
    """The missing runs in the order of their value, and the reasons of the cells left out."""
    folders = tmp_path / "results", tmp_path / "runs"
    found, left_out = missing_runs(paper, *folders, {"seeds": seeds, **options})
    return sorted(found, key=lambda run: VALUES.index(run.value)), left_out


def seed_of(run):
    return next(iter(run.cell.configs))


def config_of(run):
    return run.cell.configs[seed_of(run)]


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


def test_comparisons_are_first_then_second_seeds_more_seeds_and_figures(tmp_path):
    write_record(tmp_path, "plain", 0)
    write_record(tmp_path, "solo", 0)
    found, left_out = planned(tmp_path)
    assert [(run.cell.variant, seed_of(run), run.value) for run in found] == [
        ("noisy", 0, "verdict"),
        ("plain", 1, "second seed"), ("noisy", 1, "second seed"),
        ("plain", 2, "third seed"), ("noisy", 2, "third seed"),
        ("solo", 1, "second seed of a table"), ("solo", 2, "further seed"),
        ("drawn", 0, "figure"), ("drawn", 1, "figure"), ("drawn", 2, "figure"),
    ]  # fmt: skip
    assert left_out == {}
    assert missing.value_of(3, True, False) == "further seed"


def test_a_comparison_that_only_the_page_makes_comes_first_too(tmp_path):
    pairs = dataclasses.replace(SOLO, pair=lambda data, name: (name, "plain"))
    for page, value in (((), VALUES[3]), ((pairs,), "verdict"), ((lambda _: [pairs],), "verdict")):
        found, _ = planned(tmp_path, dataclasses.replace(PAPER, page=page), seeds=1)
        assert [run.value for run in found if run.cell.variant == "solo"] == [value]


def steps_of(found):
    return {(run.cell.variant, seed_of(run)): config_of(run).train.num_steps for run in found}


def test_missing_rows_have_the_budget_of_those_that_stand_beside_them(tmp_path):
    def shorter(variant, steps):
        return with_changes(
            PAPER.presets["toy"], PAPER.variants[variant].changes | {"train.num_steps": steps}
        )

    write_record(tmp_path, "plain", 0, config=shorter("plain", 9))
    found, left_out = planned(tmp_path)
    assert left_out == {}
    steps = steps_of(found)
    assert steps["noisy", 0] == steps["plain", 1] == 9
    assert steps["solo", 0] == 6  # no table has it beside the other two
    # An option has priority, and nothing is taken on which records disagree.
    asked, left_out = planned(tmp_path, num_steps=7)
    assert steps_of(asked)["noisy", 0] == 7
    assert left_out == {
        "other settings: toy, plain: the record of seed 0 has train.num_steps 9, wanted 7":
        ["toy/toy/plain"]
    }  # fmt: skip
    write_record(tmp_path, "noisy", 0, config=shorter("noisy", 8))
    _, left_out = planned(tmp_path)
    assert {name for names in left_out.values() for name in names} == {
        "toy/toy/noisy",
        "toy/toy/plain",
    }
    # A run that collapsed shows nothing about its settings.
    write_record(tmp_path, "noisy", 0, config=shorter("noisy", 8), predicted_classes=[9, 0])
    assert steps_of(planned(tmp_path)[0])["plain", 2] == 9


@pytest.mark.slow
def test_an_option_that_makes_rows_of_its_own_is_not_taken_from_the_records(tmp_path, monkeypatch):
    paper = paper_named("rau")
    paper = dataclasses.replace(paper, tables={"table1": paper.tables["table1"]})
    changes = {"train.optimizer.learning_rate": 0.5, "model.cell": "gru"}
    record = record_of(paper, with_changes(paper.presets["mnist"], changes), "10", cell="gru")
    save(paper.store(tmp_path / "results" / "rau"), "mnist", "gru", [record])
    monkeypatch.setattr(missing, "missing_data", lambda paper, config: None)
    found, left_out = planned(tmp_path, paper=paper, seeds=2)
    assert {run.job.options.learning_rate for run in found} == {None}
    ((why, names),) = left_out.items()
    assert names == ["rau/mnist/gru"]
    assert "has train.optimizer.learning_rate 0.5" in why


GIVEN = {
    "num_steps": 40, "eval_every": 20, "learning_rate": 0.5, "batch_size": 8,
    "hidden": 7, "note": "rebuilt of books", "embeddings": "small.txt",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agt", "ga_reader", "rau", "ssan", "ga_net"])
def test_a_command_makes_the_run_that_is_missing(name, tmp_path, monkeypatch):
    """With the rate, the width and the budget that were taken from the records."""
    paper, made = paper_named(name), []
    what = {"agt": "ablation", "rau": "table1", "ssan": "recipe"}.get(name, "table2")
    paper = dataclasses.replace(paper, tables={what: paper.tables[what]})
    kind = command.options_of(paper)
    fields = {field.name for field in dataclasses.fields(kind)}
    given = {k: v for k, v in GIVEN.items() if k in fields and k not in kind.owned}
    job = Job(paper, kind(what=what, seeds=1, cpu_devices=1, **given))
    cell = next(job.cells())
    record = record_of(paper, cell.configs[0], "11", system="", cell="")
    save(paper.store(tmp_path / "results" / name), cell.data, cell.variant, [record])
    monkeypatch.setattr(missing, "missing_data", lambda paper, config: None)
    monkeypatch.setattr(command, "prepare_cpu", lambda devices: None)
    monkeypatch.setattr(command, "run_cells", lambda job, cells: made.extend(cells))
    found, _ = planned(tmp_path, paper=paper, cpu_devices=1)
    found = [run for run in found if run.cell.data == cell.data]
    assert found
    # The data sets of some tables have no word vectors.
    given = {k: v for k, v in given.items() if value_at(record["config"], OPTIONS[k]) == v}
    assert "num_steps" in given
    for run in found[:2]:
        assert {k: getattr(run.job.options, k) for k in given} == given
        python, dash_m, module, *arguments = shlex.split(run.command("python"))
        assert (python, dash_m, module) == ("python", "-m", f"experiments.{name}.tables")
        assert command.tables(paper, arguments) == 0
        assert made.pop() == run.cell


def test_data_that_are_not_here_leave_their_cells_out_and_nothing_is_read(tmp_path):
    def build(config):
        gdata.load("trec", "train", manual_dir=config.data.manual_dir)
        raise AssertionError("it was read")

    paper = dataclasses.replace(PAPER, experiment=build)
    manual = tmp_path / "raw"
    manual.mkdir()
    found, left_out = planned(tmp_path, paper=paper, manual_dir=str(manual))
    assert found == []
    assert {why[:33] for why in left_out} == {"no data: data set 'trec', train: "}
    for name in ("train_5500.label", "TREC_10.label"):
        (manual / name).write_text("NUM:dist How far ?\n")
    assert len(planned(tmp_path, paper=paper, manual_dir=str(manual))[0]) == 12


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
    found, left_out = planned(tmp_path, paper=paper)
    assert {config_of(run).data.embeddings for run in found} == {"small.txt"}
    assert left_out == {}
    found, left_out = planned(tmp_path, paper=paper, embeddings="large.txt")
    assert {config_of(run).data.embeddings for run in found} == {"large.txt"}
    assert list(left_out.values()) == [["toy/toy/plain"]]


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The command of the toy paper; returns its folders as options."""
    monkeypatch.setattr(missing, "PAPERS", {"toy": None})
    monkeypatch.setattr(missing, "paper_named", lambda name: _toy.PAPER)
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    return ["--papers", "toy", "toy", *folders]


def test_where_every_set_is_missing_the_status_is_2(toy, monkeypatch, capsys):
    monkeypatch.setattr(missing, "missing_data", lambda paper, config: "no data: not here")
    with pytest.raises(SystemExit) as stop:
        missing.main(toy)
    assert stop.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "left out: toy/toy/plain, toy/toy/noisy: no data: not here" in shown.err
    assert "error: nothing can be trained" in shown.err


@pytest.mark.parametrize("name", ["one", "other"])
def test_lines_begin_with_the_interpreter_that_runs_and_are_in_order(
    name, toy, tmp_path, monkeypatch, capsys
):
    for folder in ("one", "other"):  # two environments of one interpreter
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python").symlink_to(sys.executable)
    program = str(tmp_path / "one" / "python")
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setenv("PATH", str(tmp_path / name))
    assert missing.main([*toy, "--seeds", "2"]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert {line[0] for line in lines} == {"python" if name == "one" else program}
    cells = [line[line.index("--cell") + 1] for line in lines]
    assert cells == ["toy/plain/0", "toy/noisy/0", "toy/plain/1", "toy/noisy/1"]


@pytest.mark.slow
def test_the_lines_write_the_records_and_the_page_is_rendered(toy, tmp_path, monkeypatch, capsys):
    """With `xargs`, which reads the lines as docs/reproduce.md shows it."""
    assert missing.main([*toy, "--seeds", "1"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "missing: 2 runs\n"
    assert [line.partition(" table1 ")[2].split()[1] for line in shown.out.splitlines()] == [
        "toy/plain/0", "toy/noisy/0",
    ]  # fmt: skip
    assert not (tmp_path / "results").exists()
    echo = ["xargs", "-d", "\n", "-P", "2", "-I{}", "sh", "-c", "echo {}"]
    done = subprocess.run(echo, input=shown.out, capture_output=True, text=True, check=True)
    lines = sorted(done.stdout.splitlines())
    assert lines == sorted(shown.out.splitlines())
    for line in lines:
        assert command.tables(_toy.PAPER, shlex.split(line)[3:]) == 0
    records = sorted((tmp_path / "results" / "toy" / "runs").iterdir())
    assert [path.name for path in records] == ["toy-noisy-seed0.json", "toy-plain-seed0.json"]
    record = json.loads(records[1].read_text())
    assert record["software"]["versions"]["gatedjax"]
    assert record["software"]["commit"] is None or len(record["software"]["commit"]) == 40
    assert record["hardware"]["usable_cores"] >= 1
    assert [step for step, _ in record["first_losses"]] == [2, 4, 6]
    folder = tmp_path / "results" / "toy"
    assert command.tables(_toy.PAPER, ["render", "--results", str(folder)]) == 0
    assert "not run" not in (folder / "RESULTS.md").read_text().split("## Table 1")[1]
    capsys.readouterr()
    assert missing.main([*toy, "--seeds", "1"]) == 0
    assert capsys.readouterr() == ("", "missing: 0 runs\n")


@pytest.mark.slow
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
