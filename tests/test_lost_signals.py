"""Signals during callbacks of the garbage collector, in which Python swallows exceptions."""

import contextlib
import gc
import os
import signal
import sys

import pytest

from gatedjax.__main__ import main
from gatedjax._utils import write
from gatedjax.text.corpus import _survey
from gatedjax.text.corpus._tokens import Splitter
from tests._slow import slow_but
from tests.text._own import TEXTS, write_csv


@contextlib.contextmanager
def collecting_at(place, name, number):
    """The first call of a function collects garbage, and a signal comes while it does."""
    sent = []

    def collect(phase, info):
        if phase == "start" and is_armed and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
            for _ in range(1000):
                pass

    def call(*args, **options):
        if not is_armed:
            is_armed.append(True)
            gc.collect()
        return real(*args, **options)

    is_armed = []
    real = getattr(place, name)
    gc.callbacks.append(collect)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, name, call)
            yield
    finally:
        gc.callbacks.remove(collect)
    assert sent == [number]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    place = tmp_path_factory.mktemp("signals")
    write_csv(place / "films.csv", TEXTS)
    assert main(["train", str(place / "films.csv"), "--out", str(place / "model")]) == 0
    return place


COMMANDS = ["look", "train", "evaluate", "predict", "explain"]


@pytest.mark.parametrize("command", slow_but(COMMANDS, "explain"))
def test_ctrl_c_during_a_collection_stops_every_command(command, here, tmp_path, capsys):
    data, model, out = str(here / "films.csv"), str(here / "model"), tmp_path / "out"
    args = {
        "look": [data],
        "train": [data, "--out", str(out)],
        "evaluate": [model, data],
        "predict": [model, "--file", data, "--out", str(out)],
        "explain": [model, "a dull film"],
    }[command]
    before = sys.unraisablehook
    place = (_survey, "survey_texts") if command == "look" else (Splitter, "split")
    with collecting_at(*place, signal.SIGINT):
        assert main([command, *args]) == 130
    assert capsys.readouterr().err.endswith("stopped\n")
    assert list(tmp_path.iterdir()) == []
    assert sys.unraisablehook == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name", "number", "status"),
    [(Splitter, "split", signal.SIGTERM, 143), (write, "_beside", signal.SIGINT, 130)],
)
def test_no_model_appears_after_a_signal_during_a_collection(
    place, name, number, status, here, tmp_path, capsys
):
    # `_beside` names the folder of the model, a few milliseconds before the model appears.
    with collecting_at(place, name, number):
        assert main(["train", str(here / "films.csv"), "--out", str(tmp_path / "m")]) == status
    assert capsys.readouterr().err.endswith("stopped\n")
    assert not (tmp_path / "m").exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.slow
def test_other_exceptions_of_callbacks_are_printed_as_before(here, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)

    def collect(phase, info):
        raise LookupError

    gc.callbacks.append(collect)
    try:
        assert main(["explain", str(here / "model"), "a dull film"]) == 0
        gc.collect()
    finally:
        gc.callbacks.remove(collect)
    assert {one.exc_type for one in seen} == {LookupError}
