"""What holds for the commands of every paper: versions, lists, folders, and the words of errors."""

import gzip
import importlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import experiments.__main__ as listing
import gatedjax.__main__ as library
from experiments.core import text
from experiments.core.cli import RUN_OPTIONS, TABLE_OPTIONS
from experiments.core.config import with_changes
from experiments.core.papers import BENCHMARKS, PAPERS
from gatedjax import __version__
from gatedjax import data as gdata
from tests.conftest import ROOT
from tests.experiments._commands import parse, plain, refused

TABLES = sorted(PAPERS)


def command(paper, part="__main__"):
    return importlib.import_module(f"experiments.{paper}.{part}").main


def test_experiments_lists_every_paper_and_command(capsys):
    assert listing.main([]) == 0
    shown = capsys.readouterr().out
    folders = {p.parent.name for p in (ROOT / "experiments").glob("*/tables.py")}
    assert set(PAPERS) == folders
    for paper in folders:
        assert f"python -m experiments.{paper} --preset" in shown
        assert f"python -m experiments.{paper}.tables" in shown
        for name in PAPERS[paper].commands:
            module = f"experiments.{paper}{name.split()[0]}" if name.startswith(".") else None
            assert module is None or importlib.util.find_spec(module), module
    files = {p.stem for p in (ROOT / "experiments" / "benchmarks").glob("[!_]*.py")}
    assert list(BENCHMARKS) == sorted(files)
    assert f"benchmarks.NAME, with {', '.join(BENCHMARKS)}" in shown


def test_a_paper_as_an_argument_is_pointed_to_its_command(capsys):
    assert listing.main(["ga-net"]) == 2
    assert "python -m experiments.ga_net, with a dot" in capsys.readouterr().err
    assert listing.main(["resnet"]) == 2
    assert "unknown paper 'resnet'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "main",
    [
        library.main,
        listing.main,
        *(command(paper) for paper in PAPERS),
        *(command(paper, "tables") for paper in PAPERS),
    ],
)
def test_every_command_says_its_version(main, capsys):
    try:
        status = main(["--version"])
    except SystemExit as stop:
        status = stop.code
    assert status == 0
    assert capsys.readouterr().out == f"gatedjax {__version__}\n"


@pytest.mark.parametrize("paper", TABLES)
def test_a_preset_is_whole_evaluations_and_as_the_command_line_shows_it(paper):
    value = importlib.import_module(f"experiments.{paper}.paper").PAPER
    for name, config in value.presets.items():
        assert parse(value, ["--preset", name]) == config
        assert config.preset == name
        assert config.train.num_steps % config.train.eval_every == 0
        assert config.train.checkpoint_every % config.train.eval_every == 0


@pytest.mark.parametrize("paper", TABLES)
def test_records_hold_nothing_of_one_machine(paper):
    value = importlib.import_module(f"experiments.{paper}.paper").PAPER
    for preset in value.presets.values():
        files = {"manual_dir": "data", "data_dir": "tfds", "embeddings": "glove.txt.gz"}
        there = {name: file for name, file in files.items() if hasattr(preset.data, name)}
        changes = {f"data.{name}": f"/somewhere/{file}" for name, file in there.items()}
        recorded = value.recorded(with_changes(preset, {"workdir": "/somewhere/w", **changes}))
        assert "somewhere" not in json.dumps(recorded)
        assert recorded["data"].get("embeddings", "glove.txt") == "glove.txt"


@pytest.mark.parametrize(
    ("paper", "name"),
    [("agt", "polarity"), ("ga_net", "polarity"), ("ga_reader", "toy"), ("rau", "digits")],
)
def test_a_preset_of_few_validation_examples_chooses_by_loss(paper, name):
    preset = importlib.import_module(f"experiments.{paper}.config").PRESETS[name]
    assert len(gdata.load(preset.data.name, "validation")) < 2000
    assert (preset.train.best_metric, preset.train.best_mode) == ("loss", "min")


@pytest.mark.parametrize("paper", ["ga_net", "rau"])
def test_a_folder_of_raw_files_that_is_not_there_is_named_as_such(paper, tmp_path, capsys):
    nowhere = tmp_path / "nowhere"
    message = refused(command(paper), [f"--data.manual-dir={nowhere}"], capsys)
    assert message == f"error: --data.manual-dir {nowhere}: there is no such folder"
    message = refused(command(paper, "tables"), ["render", f"--manual-dir={nowhere}"], capsys)
    assert message == f"error: --manual-dir {nowhere}: there is no such folder"


@pytest.mark.parametrize(("paper", "below"), [("agt", ""), ("ssan", "deeper/still")])
def test_a_workdir_that_is_a_file_is_refused_before_the_data_are_read(
    paper, below, tmp_path, capsys
):
    file = tmp_path / "file"
    file.touch()
    message = refused(command(paper), ["--workdir", str(file / below)], capsys)
    assert "Errno" not in message
    assert message.endswith(f"{file} must be a folder, got a file")
    for option in ("--runs", "--results"):
        args = ["render", option, str(file / below)]
        message = refused(command(paper, "tables"), args, capsys)
        assert message.endswith(f"{file} must be a folder, got a file")
    assert file.read_bytes() == b""


@pytest.mark.parametrize(
    ("paper", "data"),
    [("agt", "trec"), ("ga_net", "trec"), ("ga_reader", "cbt_ne"), ("ssan", "nli_sick")],
)
def test_tables_name_their_own_option_for_word_vectors(paper, data, tmp_path, capsys):
    what = {"agt": "table1", "ga_reader": "cbt", "ssan": "table1", "ga_net": "table2"}[paper]
    args = [what, "--data", data, "--embeddings", str(tmp_path / "no.txt"), "--seeds", "1"]
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    message = refused(command(paper, "tables"), [*args, *folders], capsys)
    assert "there is no such file of word vectors" in message
    assert "--embeddings none" in message
    assert "--data.embeddings" not in message


def test_one_default_folder_for_two_runs_is_refused_with_the_option(tmp_path, monkeypatch, capsys):
    from gatedjax.training import CheckpointMismatch

    def other(*_, **__):
        raise CheckpointMismatch("w holds another run:\n  x\nUse another workdir, or the settings.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("experiments.core.experiment.fit", other)
    message = refused(command("rau"), ["--train.seed", "1"], capsys)
    assert "Use another folder (--workdir DIR; without it" in message
    message = refused(
        command("rau", "tables"), ["table1", "--data", "digits", "--results", "r"], capsys
    )
    assert "Use another folder of work folders (--runs DIR)" in message


def test_the_library_still_says_what_the_commands_translate():
    sources = [p.read_text("utf-8") for p in (ROOT / "gatedjax").rglob("*.py")]
    for argument in RUN_OPTIONS.keys() | TABLE_OPTIONS.keys():
        assert any(argument in source for source in sources), argument


# word vectors ----------------------------------------------------------------------------------


def words(*names):
    return gdata.Vocabulary(list(names))


def test_vectors_are_looked_for_beside_the_data_sets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packed = Path("raw/glove/v.txt.gz")
    packed.parent.mkdir(parents=True)
    packed.write_bytes(gzip.compress(b"a 1 2 3 \r\n"))
    assert text.find_embeddings("v.txt", "raw") == packed
    assert text.find_embeddings(str(tmp_path / "v.txt"), "raw") == tmp_path / "v.txt"
    assert text.width_of(packed) == 3
    packed.write_bytes(packed.read_bytes()[:12])
    assert text.width_of(packed) is None  # the loader describes the fault
    assert text.find_embeddings("none", "raw") is None


def test_an_empty_file_of_vectors_is_refused_before_the_texts_are_read(tmp_path, capsys):
    (tmp_path / "glove.txt").touch()
    args = ["--preset", "trec", "--data.manual-dir", str(tmp_path), "--data.embeddings"]
    message = refused(command("ga_net"), [*args, "glove.txt", "--workdir", str(tmp_path)], capsys)
    assert "glove.txt is empty" in message


def test_vectors_of_other_words_are_refused_and_coverage_is_printed(tmp_path, capsys):
    file = tmp_path / "glove.txt"
    file.write_text("chat 1 2\na 3 4\n")
    vectors = text.read_embeddings(file, words("a", "b"), dim=2)
    np.testing.assert_array_equal(vectors.found, [False, False, True, False])
    said = capsys.readouterr()
    assert said.err == f"word vectors: 1 of 2 words (50.0%) are in {file}\n"
    assert said.out == ""
    with pytest.raises(ValueError, match="a vector for none of the 2 words"):
        text.read_embeddings(file, words("dog", "cat"), dim=2)


def test_every_paper_reads_word_vectors_by_the_one_function_that_prints_coverage():
    users = {
        str(path.relative_to(ROOT / "experiments"))
        for path in (ROOT / "experiments").rglob("*.py")
        if "load_embeddings(" in path.read_text("utf-8")
    }
    assert users == {"core/text.py"}


# folders of other runs -------------------------------------------------------------------------


def test_an_export_names_the_option_of_the_command(tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.safetensors").touch()
    assert library.main(["export", str(tmp_path), "--out", str(out)]) == 2
    assert plain(capsys.readouterr().err) == f"error: {out} exists: --overwrite replaces it"
    file = tmp_path / "file"
    file.touch()
    assert library.main(["export", str(tmp_path), "--out", str(file / "x")]) == 2
    assert plain(capsys.readouterr().err) == f"error: {file} must be a folder, got a file"


def test_a_folder_that_verify_resume_would_keep_must_be_new(tmp_path, capsys):
    assert library.main(["verify-resume", "--keep", str(tmp_path), "--", "x"]) == 2
    assert f"--keep must be a new folder, got {tmp_path}, which exists" in capsys.readouterr().err
