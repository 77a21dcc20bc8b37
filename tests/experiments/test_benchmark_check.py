"""The check of ratios against the committed ones, with made-up measurements."""

import itertools
import json

import pytest

from experiments.benchmarks import __main__ as watch


@pytest.fixture
def turns(monkeypatch):
    """One watched ratio whose measurements are given, one after the other."""

    def give(*measurements):
        given = itertools.chain(measurements)
        one = watch.Watched(says="ours / theirs", measure=lambda repeats: next(given))
        monkeypatch.setattr(watch, "WATCHED", {"one": one})

    return give


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "PATH", tmp_path / "results" / "ratios.json")
    return watch.PATH


def committed(turns, path, measurement=(0.9, 1.0, 1.1)):
    turns(measurement)
    watch.main(watch.Options(write=True))
    return json.loads(path.read_text())


def test_written_are_median_quartiles_and_machine(turns, path):
    file = committed(turns, path, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert file["ratios"] == {"one": {"median": 3.0, "low": 2.0, "high": 4.0}}
    assert {"processor", "versions", "load"} <= file["machine"].keys()


@pytest.mark.parametrize(
    ("now", "word"), [([1.02, 1.1, 1.2], "as before"), ([0.5, 0.5, 0.5], "better")]
)
def test_what_is_not_beyond_noise_passes(turns, path, capsys, now, word):
    before = committed(turns, path)
    turns(now)
    (row,) = watch.main(watch.Options(check=True))
    assert row["median"] == now[1]
    assert word in capsys.readouterr().out
    assert json.loads(path.read_text()) == before


def test_what_is_slower_twice_fails_and_is_named(turns, path, capsys):
    committed(turns, path)
    turns([1.5, 1.5, 1.5], [1.4, 1.4, 1.4])
    with pytest.raises(SystemExit, match="worse than the committed ratios beyond noise: one"):
        watch.main(watch.Options(check=True))
    shown = capsys.readouterr().out
    assert "WORSE" in shown
    assert "1.40" in shown


def test_a_busy_moment_is_measured_again(turns, path, capsys):
    committed(turns, path)
    turns([5.0, 5.0, 5.0], [1.0, 1.0, 1.0])
    watch.main(watch.Options(check=True))
    assert "as before" in capsys.readouterr().out


def test_another_processor_is_named(turns, path, capsys):
    file = committed(turns, path)
    path.write_text(json.dumps(file | {"machine": {"processor": "abacus"}}))
    turns([1.0])
    watch.main(watch.Options(check=True))
    assert "of another processor: abacus" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check": True, "write": True}, "check or write must be False"),
        ({"check": True}, "must have committed ratios for check, got none"),
        ({"repeats": 0}, "repeats must be at least 1"),
    ],
)
@pytest.mark.usefixtures("path")
def test_impossible_options_are_refused(turns, options, message):
    turns([1.0])
    with pytest.raises(ValueError, match=message):
        watch.main(watch.Options(**options))


def test_ratios_that_are_no_longer_watched_go_and_broken_ones_are_refused(turns, path):
    file = committed(turns, path)
    one = file["ratios"]["one"]
    path.write_text(json.dumps(file | {"ratios": {"one": one, "of old": one}}))
    turns([2.0], [float("nan")])
    watch.main(watch.Options(write=True))
    assert list(json.loads(path.read_text())["ratios"]) == ["one"]
    with pytest.raises(ValueError, match="ratios of times must be finite, got"):
        watch.main(watch.Options(write=True))


def test_the_scripts_of_the_start_name_only_what_exists():
    for script in watch.SCRIPTS.values():
        compile(script, "script", "exec")
    assert "gatedjax" not in watch.SCRIPTS["plain"]
