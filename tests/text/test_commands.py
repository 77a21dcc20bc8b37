"""`gatedjax train`, `predict`, `evaluate`, `explain`: files, refusals, runs that are stopped."""

import contextlib
import functools
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gatedjax.text.fit._network as training_module
import gatedjax.text.fit._without_network as lexicon_module
from gatedjax import data, export
from gatedjax.__main__ import main
from gatedjax._commands import _columns, train
from gatedjax._utils.cli import refusals
from gatedjax.data import _prepared
from gatedjax.text import TextClassifier
from gatedjax.text._options import check_options
from gatedjax.text.models._network import TrainedModel
from gatedjax.text.sources import _open
from tests._programs import ROOT, environment
from tests.explore._models import pair as draw_pair
from tests.text._own import PAIRS, TEXTS, TRAPS, options, refused, write_csv

pytestmark = pytest.mark.slow

TINY = ["--model=ganet", "--model.hidden=4", "--model.aux-hidden=3", "--model.embedding-dim=6"]
EVERY = ["--train.eval-every=2", "--train.checkpoint-every=2", "--train.log-every=2"]
RUN = ["--train.parallel=single", *EVERY]
TINY += RUN
FAST = ["--num-steps", "8", *TINY]
ESCAPE = "\x1b]0;title\x07<script>alert(1)</script>"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with reviews, and the model of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("own")
    write_csv(folder / "reviews.csv", TEXTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "reviews.csv", "--out", "model", *FAST]) == 0
    return folder


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def jsonl(text):
    assert all(line.isprintable() for line in text.splitlines())
    return [json.loads(line) for line in text.splitlines()]


def test_training_leaves_one_folder_with_a_card_and_a_report(here):
    assert "model.run" not in names(here)
    config = export.read_config(here / "model")
    assert config["model"]["hidden"] == 4
    assert (config["classes"], config["network"]) == (["bad", "good"], "ganet")
    card = (here / "model" / "README.md").read_text()
    assert "validation accuracy of logistic regression on words" in card
    assert "from gatedjax import TextClassifier\n\nmodel = TextClassifier.load('model')" in card
    assert "The best parameters were chosen by validation" in card
    assert "## Seeds\n\n0\n" in card
    report = json.loads((here / "model" / "report.json").read_text())
    assert report["data"]["train"] == {"n": 44, "aside": 0, "copies": 24, "conflicts": 0}
    assert report["steps"] == 8
    leak = report["validation"]["leak"]
    assert leak["not_read"] == 0  # the network reads the open words only
    assert leak["read"] > 0
    assert leak["words_not_read"] + leak["words_read"] == 4 * 4


def test_standard_input_is_read_line_by_line(here, capsys, monkeypatch):
    def predict(*args):
        lines = ["dull film", "", "warm " + ESCAPE, "\xff" + ESCAPE, "bright\r"]
        stream = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode("latin-1")))
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(["predict", "model", *args]) == 0
        return jsonl(capsys.readouterr().out)

    found = predict()
    assert ["error" in one for one in found] == [False, False, False, True, False]
    assert found[3] == {"error": "not utf-8: byte 0xff"}
    again = predict("dull film", "", "warm " + ESCAPE, "bright")
    assert [*found[:3], found[4]] == again
    # A single dash is standard input, as TEXT and as --file, and a dash among texts is a text.
    assert predict("-") == predict("--file", "-") == found
    assert predict("-", "dull film")[1] == found[0]
    both = ["predict", "model", "-", "--file", "reviews.csv"]
    assert "TEXT or --file must be left out, got both" in refused(both, capsys)
    # the same rule for bytes that the shell hands over
    assert predict("dull film", "caf\udce9")[1] == {"error": "not utf-8: byte 0xe9"}
    said = refused(["explain", "model", "caf\udce9"], capsys)
    assert "got 'caf\\udce9': not utf-8: byte 0xe9" in said


def test_explanations_of_the_lines_of_standard_input(here, capsys, monkeypatch):
    def explain(content, *options):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        return main(["explain", "model", "-", *options])

    assert explain(b"dull film\n\nwarm\r\n", "--json") == 0
    found = jsonl(capsys.readouterr().out)
    assert [one["tokens"] for one in found] == [["dull", "film"], [], ["warm"]]
    assert main(["explain", "model", "dull film", "", "warm", "--json"]) == 0
    assert jsonl(capsys.readouterr().out) == found
    assert main(["explain", "model", "-", "warm", "--json"]) == 0  # a text beside another one
    assert [one["tokens"] for one in jsonl(capsys.readouterr().out)][1:] == [["warm"]]
    for content, message in (
        (b"", "TEXT - must be lines of standard input, got an empty input"),
        (b"dull\ncaf\xe9\n", "line 2 of standard input must be a text: not utf-8: byte 0xe9"),
    ):
        with pytest.raises(SystemExit, match="2"):
            explain(content)
        assert message in capsys.readouterr().err


def test_predictions_of_no_line_have_another_exit_status(here, tmp_path, capsys, monkeypatch):
    said = "2 of 2 lines could not be used (error), so there is no prediction"
    out = tmp_path / "out.jsonl"
    assert main(["predict", "model", "caf\udce9", "\udce9", "--out", str(out)]) == 1
    assert capsys.readouterr() == ("", f"{said}\n")
    assert jsonl(out.read_text()) == [{"error": "not utf-8: byte 0xe9"}] * 2
    path = tmp_path / "in.txt"
    path.write_bytes("\u201cdull\u201d\n\u201cwarm\u201d\n".encode("cp1252"))
    assert main(["predict", "model", "--file", str(path)]) == 1
    hint = "; these bytes are characters of cp1252: --encoding cp1252"
    assert capsys.readouterr().err == f"{said}{hint}\n"
    path.write_bytes("dull film\ndull \u201cfilm\u201d\n".encode("cp1252"))
    assert main(["predict", "model", "--file", str(path)]) == 0
    found = capsys.readouterr()
    assert ["error" in one for one in jsonl(found.out)] == [False, True]
    assert found.err == f"1 of 2 lines could not be used (error){hint}\n"
    assert main(["predict", "model", "--file", str(path), "--encoding", "cp1252"]) == 0
    assert capsys.readouterr().err == ""
    # An empty input has no line that could fail.
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["predict", "model", "-"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "txt"])
def test_a_file_gives_a_line_for_each_of_its_lines(ending, here, tmp_path, capsys):
    texts = [f"{word} film" for word in ("dull", "warm", "slow", "unknown")] * 3
    texts[5] = " "
    path, out = tmp_path / f"in.{ending}", tmp_path / "out.jsonl"
    if ending == "csv":
        write_csv(path, [(i, text) for i, text in enumerate(texts)], ("id", "text"))
    elif ending == "jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts) + "{broken\n")
    else:
        path.write_text("\n".join(texts) + "\n")
    args = ["predict", "model", "--file", str(path)]
    assert main([*args, "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    found = jsonl(out.read_text())
    assert len(found) == 12 + (ending == "jsonl")
    assert ["label" in one for one in found] == [True] * 12 + [False] * (ending == "jsonl")
    assert ["note" in one for one in found[:12]] == [i == 5 for i in range(12)]
    assert found[0] == found[4] == found[8]
    assert main(args) == 0
    assert jsonl(capsys.readouterr().out) == found
    assert "out.jsonl exists: --overwrite" in refused([*args, "--out", str(out)], capsys)
    assert main([*args, "--out", str(out), "--overwrite"]) == 0
    assert names(tmp_path) == sorted([path.name, "out.jsonl"])


@pytest.mark.parametrize("error", [OSError("the disk is full"), KeyboardInterrupt()])
def test_out_is_there_when_it_is_whole(error, here, tmp_path, monkeypatch, capsys):
    def broken(self, examples):
        yield next(predict(self, examples))
        raise error

    def check(*options):
        args = ["predict", "model", "warm", "dull", "--out", str(out), *options]
        if isinstance(error, OSError):
            assert "the disk is full" in refused(args, capsys)
        else:
            assert main(args) == 130
            assert capsys.readouterr() == ("", "stopped\n")

    predict, out = TrainedModel.predict, tmp_path / "out.jsonl"
    monkeypatch.setattr(TrainedModel, "predict", broken)
    check()
    assert names(tmp_path) == []
    out.write_text("old")
    check("--overwrite")
    assert out.read_text() == "old"
    assert names(tmp_path) == ["out.jsonl"]


COMMANDS_THAT_WRITE = {
    "predict": ["predict", "model", "warm", "--out"],
    "evaluate": ["evaluate", "model", "reviews.csv", "--out"],
    "explain": ["explain", "model", "warm", "--html"],
}


@pytest.mark.parametrize("command", COMMANDS_THAT_WRITE)
def test_a_link_is_written_to_and_a_folder_is_refused(command, here, tmp_path, capsys):
    args = COMMANDS_THAT_WRITE[command]
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    assert main([*args, str(link)]) == 0
    assert link.is_symlink()
    assert file.read_bytes() != b""
    capsys.readouterr()
    assert f"{tmp_path} must be a file, got a folder" in refused([*args, str(tmp_path)], capsys)
    assert names(tmp_path) == ["file", "link"]


def test_a_pipe_that_nobody_reads_ends_a_command_as_standard_output_does():
    with pytest.raises(BrokenPipeError), refusals({}):
        raise BrokenPipeError


def test_evaluation_agrees_with_prediction(here, tmp_path, capsys):
    bad = [("", "good"), ("\x01", "bad"), ("a", "")]
    path = write_csv(tmp_path / "test.csv", [*TEXTS, *bad])
    out = tmp_path / "metrics.json"
    assert "2 of 51 lines cannot be used (3.9%" in refused(["evaluate", "model", str(path)], capsys)
    args = ["evaluate", "model", str(path), "--out", str(out), "--max-aside", "0.06"]
    assert main(args) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "because no known word is read: 1 of 49 texts" in said
    metrics = json.loads(out.read_text())
    assert metrics["aside"] == 2
    # A text without a word is answered by the prior, and is right: its class is the first.
    assert (metrics["n"], metrics["by_prior"]) == (49, 1)
    assert 0 < metrics["leak"]["texts"] <= 48
    assert np.sum(metrics["confusion"]) == 49
    assert set(metrics["gate_modes"]) == {"sample", "threshold", "expected", "relaxed"}
    values = metrics["gate_modes"].values()
    assert metrics["gate_gap"] == pytest.approx(max(values) - min(values))
    assert metrics["gate_modes"]["threshold"] == pytest.approx(metrics["accuracy"])
    assert main(["predict", "model", *(text for text, _ in TEXTS)]) == 0
    found = jsonl(capsys.readouterr().out)
    right = [one["label"] == label for one, (_, label) in zip(found, TEXTS, strict=True)]
    assert metrics["accuracy"] == pytest.approx(np.mean([*right, True]))
    assert metrics["share"] == pytest.approx(np.mean([one["share"] for one in found]))


def test_an_explanation_agrees_with_predictions(here, tmp_path, capsys):
    def ask(*args):
        assert main([args[0], "model", *args[1:]]) == 0
        return jsonl(capsys.readouterr().out)[0]

    text = "a dull film " + ESCAPE
    one = ask("explain", "--json", text)
    assert one["tokens"][:3] == ["a", "dull", "film"]
    assert len(one["flips"]) == len(one["removed"]) == len(one["read"]) == len(one["tokens"])
    assert sum(one["attention"]) == pytest.approx(1, abs=1e-5)
    said = ask("predict", text)
    assert said["label"] == one["label"]
    assert said["read"] == [w for w, k in zip(one["tokens"], one["read"], strict=True) if k]
    without = ask("predict", "dull film " + ESCAPE)
    gone = without["probability"]
    gone = gone if without["label"] == one["label"] else 1 - gone
    assert one["removed"][0]["probability"] == pytest.approx(gone, abs=1e-5)
    page = tmp_path / "page.html"
    assert main(["explain", "model", text]) == 0
    assert main(["explain", "model", text, "--html", str(page)]) == 0
    for shown in (capsys.readouterr().out, page.read_text()):
        assert "dull" in shown
        assert not set(TRAPS) & set(shown)


@contextlib.contextmanager
def interrupted(step, act):
    """Training in which something happens at a step."""
    fit = training_module.fit

    def with_event(*args, hook, **options):
        def event(name, number, *rest):
            if (name, number) == ("step", step):
                act()
            return hook(name, number, *rest)

        return fit(*args, hook=event, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_module, "fit", with_event)
        yield


def same_model(folder, other):
    for name in ("model.safetensors", "vocabulary.json", "config.json", "report.json"):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize(
    ("model", "module", "name"),
    [
        ("lexicon", lexicon_module, "fit_lexicon"),
        ("lexicon", lexicon_module, "read_examples"),
        ("ganet", training_module, "network_config"),
    ],
)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_folder_if_nothing_can_be_continued(
    model, module, name, number, status, here, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, name, lambda *args, **options: signal.raise_signal(number))
    out = tmp_path / "new" / "cut"
    assert main(["train", "reviews.csv", "--model", model, "--out", str(out)]) == status
    assert capsys.readouterr().err.endswith("stopped\n")
    assert names(tmp_path) == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


KILLED = """
import os, signal, sys
from tests.text.test_commands import interrupted
from gatedjax.__main__ import main
from gatedjax._utils.cli import refusals
from gatedjax._commands import train
with interrupted(int(sys.argv[1]), lambda: os.kill(os.getpid(), signal.SIGKILL)):
    main(sys.argv[2:])
"""


def test_after_a_kill_the_same_command_continues_with_the_same_bits(
    here, tmp_path, capsys, whole_runs
):
    """And after Ctrl-C and SIGTERM; another command does not, and a named work folder is kept."""
    args = ["train", "reviews.csv", "--workdir", str(tmp_path / "run")]
    args += ["--out", str(tmp_path / "m"), *FAST]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, "5", *args], cwd=here, env=environment(),
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert names(tmp_path) == ["run"]

    def stop(number):
        signal.raise_signal(number)
        handlers.append(signal.getsignal(number))

    handlers = []
    for step, number, status in ((6, signal.SIGINT, 130), (7, signal.SIGTERM, 0)):
        with interrupted(step, functools.partial(stop, number)):
            assert main(args) == status
        assert "the same command continues" in capsys.readouterr().err
        assert names(tmp_path) == ["run"]
    # The system itself handles a second SIGTERM, so that it also ends a process that compiles.
    assert handlers[-1] == signal.SIG_DFL
    before = sorted(tmp_path.rglob("*"))
    renamed = write_csv(tmp_path / "renamed.csv", [(text, kind.upper()) for text, kind in TEXTS])
    changes = ["--max-len=3", "--held-out=0.101", "--batch-size=31", "--seed=1", "--train.seed=0"]
    for again, wanted in (
        ([*args, "--seed", "1"], "options.seed train.seed"),
        (
            [args[0], str(renamed), *args[2:], *changes],
            "options.batch_size options.classes options.held_out options.max_len options.seed",
        ),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(again)
        said = capsys.readouterr().err
        assert "another folder (--workdir DIR)" in said
        assert re.findall("  (.*): saved ", said) == wanted.split()
    renamed.unlink()
    assert before == sorted(tmp_path.rglob("*"))
    assert main(args) == 0
    assert names(tmp_path) == ["m", "run"]
    capsys.readouterr()
    assert f"{tmp_path}/m exists: --overwrite" in refused(args, capsys)
    assert main([*args, "--overwrite"]) == 0  # nothing is left to train
    same_model(tmp_path / "m", here / "model")


class Stopped(Exception):
    """Training was about to begin."""


def facts_of(folder, monkeypatch, **changes):
    """What the checkpoints of a training would know it by."""
    told = []

    def fit(*_args, settings, **_options):
        told.append(settings)
        raise Stopped

    monkeypatch.setattr(training_module, "fit", fit)
    with pytest.raises(Stopped):
        TextClassifier.train("reviews.csv", workdir=folder, **options(**changes))
    return told[0]


def test_every_option_that_changes_data_or_network_is_known(here, tmp_path, monkeypatch):
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for number, file in enumerate(files):
        file.write_text(f"film 1 0 0 0 0 {number}\ndull 0 1 0 0 0 0\nwarm 0 0 1 0 0 0\n")
    changes = [{}, {"max_len": 3}, {"held_out": 0.105}, {"batch_size": 31}, {"seed": 1}]
    changes += [{"min_count": 13}, {"max_words": 3}, {"lowercase": False}, {"share": 0.4}]
    changes += [{"vectors": file} for file in files]
    facts = [facts_of(tmp_path / "run", monkeypatch, **one) for one in changes]
    for number, one in enumerate(facts):
        assert one not in facts[:number], changes[number]
    assert facts_of(tmp_path / "run", monkeypatch, num_steps=3, minutes=1) == facts[0]


def test_minutes_stop_a_run_that_holds_its_share(here, tmp_path, monkeypatch, capsys):
    clock = iter(range(0, 100_000, 5))
    monkeypatch.setattr(training_module.time, "monotonic", lambda: float(next(clock)))
    out = tmp_path / "m"
    args = ["train", "reviews.csv", "--out", str(out), "--minutes", "0.5", "--share", "0.25", *TINY]
    assert main(args) == 0
    report = json.loads((out / "report.json").read_text())
    assert 1 <= report["steps"] <= 6  # thirty seconds of which every question takes five
    assert export.read_config(out)["model"]["gates"]["density"] == 0.25
    assert report["validation"]["share"] == pytest.approx(0.25, abs=0.15)
    assert main(["predict", str(out), "warm"]) == 0
    assert "label" in capsys.readouterr().out


def test_results_replace_no_input_and_no_file_of_another_kind(here, tmp_path, capsys):
    copy, table = tmp_path / "reviews.jsonl", write_csv(tmp_path / "table.csv", TEXTS)
    rows = [json.dumps({"text": text, "label": label}) for text, label in TEXTS]
    copy.write_text("\n".join(rows))
    old = {path: path.read_bytes() for path in (copy, table, here / "model" / "config.json")}
    evaluate = ["evaluate", "model", str(copy), "--out"]
    explain = ["explain", "model", "warm", "--html"]
    predict = ["predict", "model", "--file", str(table), "--overwrite", "--out"]
    for args, message in (
        ([*evaluate, str(copy)], "must be another file than"),
        ([*evaluate, "model/config.json"], "must be another file than"),
        ([*evaluate, str(table)], "no file that this command wrote"),
        ([*explain, str(table)], "no file that this command wrote"),
        ([*predict, str(table)], "must be another file than"),
        ([*predict, "model/config.json"], "must be another file than"),
    ):
        assert message in refused(args, capsys)
    assert {path: path.read_bytes() for path in old} == old
    for _ in range(2):  # a result of an earlier command is replaced
        assert main([*evaluate, str(tmp_path / "metrics.json")]) == 0
        assert main([*explain, str(tmp_path / "page.html")]) == 0


@pytest.mark.parametrize("name", ["two\nlines bad\udcff \U0001f468\u200d\U0001f467", " "])
def test_a_folder_may_have_any_name(name, tmp_path, capsys):
    path, out = write_csv(tmp_path / "films.csv", TEXTS), str(tmp_path / name)
    assert main(["train", str(path), "--out", out, "--share", "0.5"]) == 0
    assert main(["predict", out, "dull film"]) == 0
    assert jsonl(capsys.readouterr().out)[0]["label"] == "bad"


def test_pairs_are_two_columns_and_their_share_is_of_pairs_of_words(tmp_path, capsys):
    path = write_csv(tmp_path / "renamed.csv", [("a film", "dull", "neutral")], ("s1", "s2", "v"))
    out = str(draw_pair("ssan").save(tmp_path / "m", overwrite=False))
    columns = ["--text", "s1", "s2", "--label", "v"]
    # names of two columns say that there are pairs, and a folder before the data is no data
    (tmp_path / "run").mkdir()
    train = ["train", "--workdir", str(tmp_path / "run"), str(path), "--out", f"{out}2", *columns]
    assert "for the task 'pair', got 0.5: leave it out\n" in refused(
        [*train, "--model", "ssan", "--share", "0.5"], capsys
    )
    assert main(["predict", out, "a film", "a dull film"]) == 0
    (one,) = jsonl(capsys.readouterr().out)
    assert one["label"] in ("entailed", "neutral", "contradicted")
    assert len(one["read"]) == 2
    assert refused(["predict", out, "a dog"], capsys).rstrip().endswith("in turns, got 1 text")
    assert "in turns, got 1" in refused(["explain", out, "a dog"], capsys)
    for command in ("predict", "explain"):
        assert "got standard input, whose lines have no columns" in refused(
            [command, out, "-"], capsys
        )
    assert main(["evaluate", out, str(path), *columns]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^share: [01]\.\d{4} of the pairs of words are selected$", said, re.M)
    assert main(["explain", out, "a dog", "a cat", "--json"]) == 0
    assert jsonl(capsys.readouterr().out)[0]["tokens"] == ["a", "dog", "a", "cat"]
    said = refused(["evaluate", out, str(path), "--text", "s1", "--label", "v"], capsys)
    assert "--text must name two columns" in said


BAD_DATA = {
    "no column": ("review,sentiment\nx,y\n", "--text review --label sentiment"),
    "no words": ("text,label\n" + "\x01,x\n\x02,y\n" * 4, "a text without a word"),
    "escape": ("text,label\n" + f"a {ESCAPE},{ESCAPE}\n" * 8, "at least two classes"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused_in_one_line_and_nothing_is_written(name, tmp_path, capsys):
    content, message = BAD_DATA[name]
    path = tmp_path / "bad.csv"
    path.write_text(content)
    args = ["train", str(path), "--out", str(tmp_path / "deep" / "model"), *FAST]
    assert message in refused(args, capsys)
    assert names(tmp_path) == ["bad.csv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model=ganet", "--num-steps", "0"], "--num-steps must be at least 1"),
        (["--model=ganet", "--minutes", "0"], "--minutes must be positive"),
        (["--share", "1.5"], "--share must be in (0, 1]"),
        (["--held-out", "1"], "--held-out must be in (0, 1)"),
        (["--model=gru", "--cpu-devices", "500"], "--cpu-devices must be at most 128, got 500"),
        (["--model=gru", "--seed", "-1"], "--seed must be at least 0, got -1"),
        (["--model", "ganet", "--validation", "nowhere.csv"], "nowhere.csv"),
        (["--model", "ganet", "--encoding", "klingon"], "klingon"),
        (["--text", "text", "--task", "pair"], "--text must name two columns"),
        (["--model=gru", "--train.seeds", "2"], "unknown option --train.seeds"),
        *(
            (["--model=ganet", "--workdir", f"OUT{inside}"], "--workdir must not be in the folder")
            for inside in ("", "/run")
        ),
    ],
)
def test_bad_options_are_refused_in_one_line(options, message, here, tmp_path, capsys):
    out = str(tmp_path / "m")
    args = ["train", "reviews.csv", "--out", out]
    args += [option.replace("OUT", out) for option in options]
    args += RUN if "--model" in " ".join(options) else []
    assert message in refused(args, capsys)
    assert names(tmp_path) == []


def test_an_option_that_is_switched_off_arrives(here, tmp_path, monkeypatch):
    seen = []
    name = "gatedjax._commands._train_network.open_data"
    monkeypatch.setattr(name, lambda *args: seen.append(args[2]) or sys.exit(0))
    args = "--model.no_post_tanh --model ganet --minutes 3 --num-steps 4 --train.no-progress"
    with pytest.raises(SystemExit, match="0"):
        main(["train", "reviews.csv", "--out", str(tmp_path / "m"), *args.split(),
              "--train.optimizer.schedule=cosine"])  # fmt: skip
    (options,) = seen
    assert options.network == {"post_tanh": False}
    assert options.training == {"optimizer.schedule": "cosine", "progress": False}
    check_options(options, "text")  # steps end the schedule where minutes do not


def test_a_label_that_training_has_not_seen(here, tmp_path, capsys):
    path = write_csv(tmp_path / "test.csv", [("a film", "good"), ("b", ESCAPE)])
    args = ["train", "reviews.csv", "--out", str(tmp_path / "m"), *FAST, "--test", str(path)]
    assert "test.csv:3: label must be a class" in refused(args, capsys)
    assert "test.csv:3: label must be a class" in refused(["evaluate", "model", str(path)], capsys)
    assert names(tmp_path) == ["test.csv"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no file system that refuses all")
def test_a_place_that_cannot_be_written_is_found_before_the_training(here, capsys):
    message = refused(["train", "reviews.csv", "--out", "/proc/none"], capsys)
    assert "error: /proc must be a folder in which none can be made" in message


@pytest.mark.parametrize("command", ["predict", "evaluate", "explain"])
def test_a_folder_that_is_no_model(command, here, tmp_path, capsys):
    rest = ["reviews.csv"] if command == "evaluate" else ["a film"]
    for folder, message in (
        (tmp_path / "none", "no such folder"),
        (tmp_path, "lacks config.json"),
        ("reviews.csv", "reviews.csv must be the folder of a model, got a file"),
    ):
        assert message in refused([command, str(folder), *rest], capsys)
    newer = tmp_path / "newer"
    export.save(newer, {"w": np.zeros(1, np.float32)},
                config={"gatedjax": {"kind": "text", "format": 99}})  # fmt: skip
    assert "the newer gatedjax that wrote it" in refused([command, str(newer), *rest], capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--file", "nowhere.csv"], "nowhere.csv"),
        (["--file", "nowhere.txt"], "nowhere.txt"),
        (["--file", "reviews.csv", "text"], "TEXT or --file must be left out, got both"),
        (["--file", "reviews.csv", "--text", "label", "text"], "--text must name one column"),
        (["--file", "reviews.csv", "--text", "other"], "columns must include 'other'"),
        (["--file", "lines.txt", "--encoding", "klingon"], "klingon"),
        (["a", "--out", "no/where.jsonl"], "no"),
    ],
)
def test_what_cannot_be_predicted_is_refused(options, message, here, capsys):
    (here / "lines.txt").write_text("a film\n")
    said = refused(["predict", "model", *options], capsys)
    assert message in said
    assert "partial" not in said
    (here / "lines.txt").unlink()


def task_of(args):
    return train._choose(args)[0]


def test_the_task_is_that_of_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sentiment").mkdir()  # an option's value that is there, too
    write_csv(tmp_path / "pairs.csv", PAIRS, ("premise", "hypothesis", "sentiment"))
    for args in (["--label", "sentiment", "pairs.csv"], ["pairs.csv", "--label", "sentiment"]):
        assert task_of([*args, "--out", "m"]) == "pair"
    assert task_of(["--train.optimizer.name", "adam", "pairs.csv", "--out", "m"]) == "pair"
    assert task_of(["nowhere.csv", "--out", "m"]) == task_of(["--out", "m"]) == "text"
    asked = []
    monkeypatch.setattr(_columns, "infer_task", lambda name, **_: asked.append(name) or "pair")
    assert task_of(["--min_count", "2", "sick", "--out", "m"]) == "pair"
    assert asked == ["sick"]  # a set by its name


def test_the_names_of_options_stand_at_the_start_of_a_message(capsys):
    for message, wanted in (("network: no", "--network: no"), ("no network: no", "no network: no")):
        with pytest.raises(SystemExit), refusals({"network: ": "--network: "}):
            raise ValueError(message)
        assert capsys.readouterr().err == f"error: {wanted}\n"


@pytest.mark.parametrize(
    "command", [["train", "trec", "--out", "m"], ["evaluate", "model", "trec"]]
)
def test_a_set_that_is_not_there_is_prepared_by_another_command(
    command, here, capsys, tmp_path, monkeypatch
):
    def no_network(name, builder):
        raise ConnectionError("no network")

    monkeypatch.setattr(_prepared, "_check_network", no_network)
    monkeypatch.setattr(_open.gdata, "load", functools.partial(data.load, data_dir=tmp_path))
    said = refused(command, capsys)
    assert "name their folder (gatedjax data prepare NAME --manual-dir DIR)" in said


def test_files_without_a_header_are_predicted_and_measured(here, capsys):
    (here / "bare.csv").write_text("warm new film here,good\ndull old film now,bad\n")
    header = ["--columns", "text,label"]
    assert main(["predict", "model", "--file", "bare.csv", *header]) == 0
    assert len(jsonl(capsys.readouterr().out)) == 2
    assert main(["evaluate", "model", "bare.csv", *header]) == 0
    assert "2 texts: accuracy" in capsys.readouterr().out
    said = refused(["predict", "model", "--file", "bare.csv"], capsys)
    assert "--columns text," in said
    (here / "bare.csv").unlink()


def test_the_commands_of_the_readme_train_and_explain_the_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    train, explain = re.findall(r"^gatedjax (.* demo.*)$", readme, re.M)[:2]
    assert main(train.split()) == 0
    said = capsys.readouterr().err
    assert "demo (sentences of three authors): 4,735 texts in 3 classes" in said
    report = json.loads(Path("demo-model/report.json").read_text())
    assert (report["data"]["train"]["n"], report["data"]["test"]["n"]) == (4735, 1224)
    assert report["test"]["accuracy"] > 0.75  # the most frequent class has 0.41
    assert main(shlex.split(explain)) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Stevenson 0.9")
    rows = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("| ")]
    assert {"sea", "deck", "we"} <= set(rows)
