"""`gatedjax explore`: what it writes, serves and refuses."""

import dataclasses
import json
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.request
import webbrowser
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import jax
import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax._utils.json import to_json_values
from gatedjax.data import Vocabulary
from gatedjax.explore._engine import Explorer
from gatedjax.explore._server import Server
from gatedjax.text.models._network import load_run
from tests._programs import environment
from tests.explore._models import TEXT, WORDS, model, pair
from tests.text import _runs
from tests.text._own import write_csv
from tests.text._runs import reader_run, saved


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with models of texts, and a run of GA-Net beside a soft one."""
    folder = tmp_path_factory.mktemp("models")
    model().save(folder / "ganet", overwrite=False)
    model("soft").save(folder / "soft", overwrite=False)
    pair("san").save(folder / "pair", overwrite=False)
    run_of(model(), folder / "run")
    run_of(model("soft"), folder / "run" / "soft")
    return folder


def run_of(made, workdir):
    workdir.mkdir()
    words = Vocabulary(WORDS)
    words.save(workdir / "vocabulary.json")
    (workdir / "classes.json").write_text(json.dumps(made.classes))
    settings = {"model": to_json_values(made.config), "data": {"name": "own", "max_len": None}}
    saved(workdir, made.params, {"config": settings, "vocabulary": words.digest()})
    return workdir


def explore(*args):
    """The exit status."""
    try:
        return main(["explore", *map(str, args)])
    except SystemExit as end:
        return end.code


def refused(capsys, *args):
    assert explore(*args) == 2
    return capsys.readouterr().err


@pytest.fixture
def stopped(monkeypatch):
    """Ctrl-C as soon as the page is served; nothing is compiled beside it."""
    asked = []

    def serve(self, *args):
        asked.append(self.ask({"do": "about"}))
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", serve)
    monkeypatch.setattr(Explorer, "warm_up", lambda self: [])
    return asked


@pytest.mark.slow
def test_it_prints_the_address_and_ends_with_ctrl_c(place, stopped, capsys):
    assert explore(place / "ganet", "--against", place / "soft", "--no-browser") == 0
    said = capsys.readouterr()
    assert re.match(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/\n", said.out)
    assert said.err == "stopped\n"
    (about,) = stopped
    assert [one["name"] for one in about["models"]] == ["ganet", "soft"]
    assert not about["sentences"]


def test_without_a_browser_the_address_is_enough(place, stopped, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or False)
    token = "a-token-of-my-own"
    assert explore(place / "ganet", "--token", token, "--text", "a # film") == 0
    assert f"/{token}/#text=a%20%23%20film\n" in capsys.readouterr().out
    assert len(opened) == 1


def test_the_token_is_not_on_the_command_line_of_the_browser(place, stopped, capsys, monkeypatch):
    seen = []

    def opened(address):
        path = Path(url2pathname(urlparse(address).path))
        seen.append((address, path, stat.S_IMODE(path.stat().st_mode), path.read_text()))
        return True

    def serve(self, *args):
        end = time.monotonic() + 60
        while not seen and time.monotonic() < end:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", opened)
    monkeypatch.setattr(Server, "serve_forever", serve)
    token = "a-token-of-my-own"
    assert explore(place / "ganet", "--token", token, "--text", "secret") == 0
    address, path, mode, page = seen[0]
    assert address.startswith("file://")
    assert not any(word in address for word in (token, "secret"))
    assert mode == 0o600
    printed = capsys.readouterr().out.splitlines()[0]
    assert f'<meta http-equiv="refresh" content="0; url={printed}">' in page
    assert not path.exists()


@pytest.mark.slow
def test_a_run_stands_beside_another(place, stopped, capsys):
    assert explore(place / "run", "--against", place / "run" / "soft", "--no-browser") == 0
    assert [one["name"] for one in stopped[0]["models"]] == ["run", "soft"]
    made, found = model(), load_run(place / "run")
    assert found.classes == made.classes
    # the last of two steps is saved doubled
    np.testing.assert_allclose(
        found.params["classifier"]["kernel"], 2 * made.params["classifier"]["kernel"]
    )
    assert found.probabilities([(TEXT,)]).shape == (1, 2)
    assert explore(place / "ganet", "--against", place / "run", "--no-browser") == 0


@pytest.mark.slow
def test_runs_whose_parameters_are_not_finite_are_refused(tmp_path, stopped, capsys, monkeypatch):
    made = model()
    bias = np.full_like(made.params["classifier"]["bias"], np.nan)
    broken = {**made.params, "classifier": {**made.params["classifier"], "bias": bias}}
    run = run_of(dataclasses.replace(made, params=broken), tmp_path / "run")
    assert "the parameter 'classifier.bias' must be finite, got 2 of 2" in refused(
        capsys, run, "--no-browser"
    )
    fill = lambda like, seed: jax.tree.map(lambda x: np.full(x.shape, np.nan, x.dtype), like)  # noqa: E731
    monkeypatch.setattr(_runs, "drawn", fill)
    reader = reader_run(tmp_path / "reader")
    assert "numbers that are NaN or infinite" in refused(capsys, reader, "--no-browser")


@pytest.mark.slow
def test_readers_and_pairs_are_served_too(place, stopped, tmp_path):
    reader = reader_run(tmp_path / "reader")
    for folder in (reader, place / "pair"):
        assert explore(folder, "--no-browser", "--text", "a film") == 0
    fields = [[field["name"] for field in about["fields"]] for about in stopped]
    assert fields == [["text", "question", "candidates"], ["text", "hypothesis"]]


@pytest.mark.slow
def test_bad_input_is_refused_in_one_line(place, tmp_path, capsys):
    made = place / "ganet"
    write_csv(place / "two.csv", [("a film", "bad"), ("a story", "good")])
    cases = {
        "there is no such folder": [tmp_path / "nothing"],
        "a folder with neither": [tmp_path],
        "--port must be at most 65,535, got 70,000": [made, "--port", 70000],
        "--token must have at least 16": [made, "--token", "short"],
        "there is no such file": [made, "--file", tmp_path / "no.csv"],
        "--text must have a word": [made, "--html", tmp_path / "x.html"],
        "for x.html": [made, "--html", tmp_path / "no" / "x.html", "--text", "a"],
        "at most 12 words for a page without a server, got 13": [
            made, "--html", tmp_path / "x.html", "--text", "a " * 13,
        ],
        "must be about one text of a network": [
            made, "--html", tmp_path / "x.html", "--text", "a", "--file", place / "two.csv",
        ],
        "--file must be left out unless the models are": [place / "pair", "--file", "a.csv"],
        "`gatedjax explain` writes pages of classifiers of pairs": [
            place / "pair", "--html", tmp_path / "x.html",
        ],
        "must be of the same kind": [made, "--against", place / "pair"],
    }  # fmt: skip
    for message, args in cases.items():
        error = refused(capsys, *args)
        assert message in error
        assert error.count("\n") == 1
    assert "MODEL" in refused(capsys)
    assert not list(tmp_path.iterdir())


def test_what_is_no_run_of_ga_net(place, tmp_path, capsys):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text(json.dumps({"config": {}}))
    assert "must be the work folder of a run of GA-Net over texts" in refused(capsys, tmp_path)
    for name in ("vocabulary.json", "classes.json"):
        (tmp_path / name).write_bytes((place / "run" / name).read_bytes())
    record = json.loads((place / "run" / "config.json").read_text())
    record["config"]["model"]["odd"] = 1
    (tmp_path / "config.json").write_text(json.dumps(record))
    assert "must describe a model of this kind" in refused(capsys, tmp_path)
    record["config"]["model"].pop("odd")
    record["vocabulary"] = "0"
    (tmp_path / "config.json").write_text(json.dumps(record))
    assert "must be the vocabulary" in refused(capsys, tmp_path)


@pytest.mark.slow
def test_a_process_serves_and_ends_with_ctrl_c(place):
    command = [sys.executable, "-m", "gatedjax", "explore", place / "ganet", "--no-browser"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment(), stdout=pipe, stderr=pipe, text=True
    ) as process:
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(address) as page:
            assert b"explorer.js" in page.read()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "stopped\n")
