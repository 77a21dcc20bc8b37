"""A model in a folder: whole or absent, checked when read, with a card that says how to load it."""

import dataclasses
import hashlib
import os
import re
import stat

import jax
import numpy as np
import pytest

from gatedjax import data, export
from gatedjax.export._card import check_kind, facts_of
from gatedjax.models import GANetConfig
from tests._grouped import grouped

PARAMS = {"dense": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}}
CARD = export.ModelCard(
    name="GA-Net | sentiment",
    description="Classifies sentences.",
    data="The embedded polarity corpus.",
    metrics={"test accuracy": 0.912345678, "a | b": 1.0},
    seeds=(0, 1),
    licence="Apache-2.0",
)


def test_params_and_config_come_back(tmp_path):
    config = {"model": grouped(GANetConfig, hidden=7), "steps": [1, 2]}
    folder = export.save(tmp_path / "deep" / "model", PARAMS, config=config, card=CARD)
    params, got = export.load(folder, like=jax.eval_shape(lambda: PARAMS))
    np.testing.assert_array_equal(params["dense"]["kernel"], PARAMS["dense"]["kernel"])
    assert grouped(GANetConfig, **got["model"]) == grouped(GANetConfig, hidden=7)
    assert got["steps"] == [1, 2]
    files = ["README.md", "SHA256SUMS", "config.json", "model.safetensors"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize(("bad", "dtype"), [(np.nan, "float32"), (-np.inf, "bfloat16")])
def test_parameters_that_are_not_finite_are_refused(tmp_path, bad, dtype):
    broken = {"dense": {"kernel": np.array([1, bad, 2], dtype), "ids": np.array([1])}}
    message = r"the parameter 'dense\.kernel' must be finite, got 1 of 3"
    with pytest.raises(export.BadFile, match=f"params: {message}"):
        export.save(tmp_path / "new", broken, config={})
    assert not list(tmp_path.iterdir())
    folder = export.save(tmp_path / "model", PARAMS, config={})
    export.save_params(folder / "model.safetensors", broken)
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(export.BadFile, match=rf"model\.safetensors: {message}"):
        export.load(folder)


def test_card_says_what_is_known(tmp_path):
    card = dataclasses.replace(CARD, data=f"{CARD.data} caf\udce9.csv")  # a name that is no text
    params = PARAMS | {"bias": np.ones(2)}
    config = {"hidden": 3, "fence": "```"}
    folder = export.save(tmp_path / "model", params, config=config, card=card)
    text = (folder / "README.md").read_text(encoding="utf-8")
    for part in (
        hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "# GA-Net | sentiment\n",
        "tags: [jax, flax]\n",
        'license: "apache-2.0"',
        r"The embedded polarity corpus. caf\udce9.csv",
        "0.912346",
        "## Seeds\n\n0, 1\n",
        "8 numbers in 2 arrays.",
        "````json\n",
        "dense.kernel",
        '"hidden": 3',
    ):
        assert part in text
    export.load(folder)
    for name in ("lexicon", "linear"):
        folder = export.save(tmp_path / name, PARAMS, config={"network": name}, card=CARD)
        assert "tags" not in (folder / "README.md").read_text()
    folder = export.save(tmp_path / " ", PARAMS, config={})  # a name that is no title
    assert "# model\n" in (folder / "README.md").read_text()


def test_the_cards_example_runs_and_card_and_digests_may_change(tmp_path, monkeypatch):
    folder = export.save(tmp_path / "model", PARAMS, config={})
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    scope: dict = {}
    exec(compile(example, "README.md", "exec"), scope)
    assert scope["params"]["dense"]["kernel"].shape == (2, 3)
    (folder / "README.md").write_text("mine")
    export.load(folder)
    sums = folder / "SHA256SUMS"
    sums.write_text(sums.read_text().replace("  ", " *"))  # as `sha256sum --binary` writes it
    export.load(folder)
    sums.unlink()
    export.load(folder)


def test_files_are_as_readable_as_their_neighbours(tmp_path):
    old = os.umask(0o022)
    try:
        folder = export.save(tmp_path / "model", PARAMS, config={})
        export.save_params(tmp_path / "alone.safetensors", PARAMS)
        data.Vocabulary(["a"]).save(tmp_path / "vocab.json")
        os.umask(0o027)
        export.save_params(tmp_path / "group.safetensors", PARAMS)
    finally:
        os.umask(old)
    files = [*folder.iterdir(), tmp_path / "alone.safetensors", tmp_path / "vocab.json"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o644}
    assert stat.S_IMODE((tmp_path / "group.safetensors").stat().st_mode) == 0o640


def test_an_existing_folder_is_kept_unless_told_otherwise(tmp_path):
    folder = export.save(tmp_path / "model", PARAMS, config={"n": 1})
    with pytest.raises(FileExistsError, match="overwrite=True"):
        export.save(folder, PARAMS, config={"n": 2})
    assert export.load(folder)[1] == {"n": 1}
    export.save(folder, PARAMS, config={"n": 3}, overwrite=True)
    assert export.load(folder)[1] == {"n": 3}
    (folder / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match=r"save did not write: thesis\.tex"):
        export.save(folder, PARAMS, config={}, overwrite=True)
    # a list of digests that is not one of a model
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").touch()
    (mine / "SHA256SUMS").write_text(f"{hashlib.sha256().hexdigest()}  thesis.tex\n")
    with pytest.raises(FileExistsError, match=r"save did not write: thesis\.tex"):
        export.save(mine, PARAMS, config={}, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "model"]


def test_a_link_to_a_folder_stays_and_leads_to_the_new_model(tmp_path):
    (tmp_path / "link").symlink_to("far")
    for number in (1, 2):
        folder = export.save(tmp_path / "link", PARAMS, config={"n": number}, overwrite=True)
        assert folder == tmp_path / "link"
        assert folder.is_symlink()
        assert export.load(tmp_path / "far")[1] == {"n": number}
        assert "# link" in (folder / "README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "link"]


def test_a_file_and_folders_with_the_names_of_a_model_are_not_removed(tmp_path):
    file = tmp_path / "config.json"
    file.write_text("mine")
    for place in (file, file / "model"):
        with pytest.raises(NotADirectoryError, match=r"config\.json must be a folder, got a file"):
            export.save(place, PARAMS, config={}, overwrite=True)
    assert file.read_text() == "mine"
    folder = export.save(tmp_path / "model", PARAMS, config={})
    (folder / "README.md").unlink()
    (folder / "README.md").mkdir()
    with pytest.raises(FileExistsError, match=r"did not write: README\.md"):
        export.save(folder, PARAMS, config={}, overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failed_save_changes_nothing(tmp_path, monkeypatch, overwrite):
    folder = tmp_path / "model"
    if overwrite:
        export.save(folder, PARAMS, config={"n": 1})
    real, calls = os.fsync, []

    def fail_late(*args):
        calls.append(args)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return real(*args)

    monkeypatch.setattr(os, "fsync", fail_late)
    with pytest.raises(OSError, match="No space left"):
        export.save(folder, PARAMS, config={"n": 2}, overwrite=overwrite)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == (["model"] if overwrite else [])
    if overwrite:
        assert export.load(folder)[1] == {"n": 1}


FILES = {"vocabulary.json": b'{"words": []}\n', "classes.json": b"[]\n"}


def test_further_files_are_digested_read_and_replaced(tmp_path):
    folder = export.save(tmp_path / "model", PARAMS, config={"n": 1}, files=FILES)
    assert {name: export.read_file(folder, name) for name in FILES} == FILES
    assert export.read_config(folder) == export.load(folder)[1] == {"n": 1}
    assert "vocabulary.json" in (folder / "README.md").read_text()
    export.save(folder, PARAMS, config={"n": 2}, files={"one.json": b"1"}, overwrite=True)
    assert not (folder / "vocabulary.json").exists()
    assert export.read_file(folder, "one.json") == b"1"
    # what was edited is not what `save` wrote: it is somebody's work
    (folder / "one.json").write_bytes(b"2")
    with pytest.raises(FileExistsError, match=r"save did not write: one\.json"):
        export.save(folder, PARAMS, config={}, overwrite=True)


def test_a_further_file_that_was_changed_is_found(tmp_path):
    folder = export.save(tmp_path / "model", PARAMS, config={}, files=FILES)
    (folder / "classes.json").write_bytes(b"[1]\n")
    for read in (export.load, lambda one: export.read_file(one, "classes.json")):
        with pytest.raises(export.BadFile, match=r"classes\.json is damaged"):
            read(folder)
    (folder / "classes.json").unlink()
    export.load(folder)
    with pytest.raises(FileNotFoundError, match=r"lacks classes\.json"):
        export.read_file(folder, "classes.json")
    (folder / "more.json").touch()
    with pytest.raises(export.BadFile, match=r"must have a line for more\.json"):
        export.read_file(folder, "more.json")
    (folder / "SHA256SUMS").unlink()
    assert export.read_file(folder, "more.json") == b""
    with pytest.raises(ValueError, match="name must be that of a file in the folder"):
        export.read_file(folder, "../model/config.json")


def test_a_kind_is_what_was_written():
    assert check_kind(facts_of("pair"), ("text", "pair"), "model") == "pair"
    with pytest.raises(ValueError, match="kind must be one of 'text'"):
        facts_of("poem")
