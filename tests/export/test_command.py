"""`python -m gatedjax export`: the best parameters of a run's checkpoint, in a folder."""

import json

import numpy as np
import pytest

from gatedjax import export
from gatedjax.__main__ import main
from gatedjax.training import CheckpointStore

BEST = {"dense": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}}


def _run(workdir, seeds=1, **more):
    store = CheckpointStore(workdir / "checkpoints")
    record = {
        "runs": [{"best_step": 20, "best_metrics": {"accuracy": 0.75}} | more] * seeds,
        "identity": {"settings": {"train": {"seed": 3}, "hidden": 7}},
    }
    store.save(30, record, state={"params": BEST, "step": np.int32(30)}, best={"params": BEST})
    store.close()
    return workdir


def _command(capsys, *args):
    status = main(["export", *map(str, args)])
    return status, *capsys.readouterr()


@pytest.fixture
def workdir(tmp_path):
    return _run(tmp_path / "run")


@pytest.mark.slow
def test_a_run_becomes_a_folder(workdir, tmp_path, capsys):
    results = {"best_step": 20, "data": "polarity", "test": {"accuracy": 0.625}}
    (workdir / "results.json").write_text(json.dumps(results))
    options = (workdir, "--out", tmp_path / "out", "--licence", "Apache-2.0")
    status, out, _ = _command(capsys, *options)
    assert status == 0
    assert out == f"{tmp_path / 'out'}: 6 parameters of checkpoint 30\n"
    params, config = export.load(tmp_path / "out", like=BEST)
    np.testing.assert_array_equal(params["dense"]["kernel"], BEST["dense"]["kernel"])
    assert config.pop("gatedjax") == {"kind": "run", "format": 1}
    assert config == {"train": {"seed": 3}, "hidden": 7}
    card = tmp_path / "out" / "README.md"
    for part in ("# run\n", "step 20", "polarity", "0.75", "0.625", "## Seeds\n\n3\n", "Apache-2"):
        assert part in card.read_text()
    status, _, err = _command(capsys, *options)
    assert status == 2
    assert "--overwrite replaces it" in err
    # the results of another step are left out
    (workdir / "results.json").write_text(json.dumps(results | {"best_step": 10}))
    assert _command(capsys, *options, "--overwrite")[0] == 0
    assert "0.75" in card.read_text()
    assert "0.625" not in card.read_text()


def test_what_cannot_be_exported_is_said(workdir, tmp_path, capsys):
    out = tmp_path / "out"
    for folder, more, message in (
        (tmp_path / "none", (), "no checkpoint in "),
        (workdir, ("--step", "10"), ": it has [30]"),
        (_run(tmp_path / "lanes", seeds=2), (), "several seeds"),
    ):
        status, _, err = _command(capsys, folder, "--out", out, *more)
        assert (status, message in err) == (2, True), err
    (file,) = (workdir / "checkpoints" / "30").glob("record/metadata")
    file.write_bytes(b"damaged")
    assert _command(capsys, workdir, "--out", out)[0] == 1
    assert not out.exists()
