"""A declared set is loaded, checked, prepared and opened without a line of code elsewhere."""

import dataclasses
import pickle
import re
from pathlib import Path

import pytest

from gatedjax import data
from gatedjax._commands import _data_check
from gatedjax.data.sets import _all, _cloze
from gatedjax.data.sets._all import SETS
from tests.conftest import ROOT
from tests.data._same import assert_same_set


def _example_of_the_page():
    """The data set that docs/extending.md declares, from the code of the page."""
    text = (ROOT / "docs" / "extending.md").read_text("utf-8")
    (code,) = (block for block in re.findall(r"```\n(.*?)```", text, re.S) if "DECLARED" in block)
    scope: dict = {}
    exec(compile(code, "extending.md", "exec"), scope)
    (declared,) = scope["DECLARED"]
    # a test leaves nothing behind in TFDS
    return dataclasses.replace(declared, tfds=dataclasses.replace(declared.tfds, registered=False))


TOY = _example_of_the_page()


@pytest.fixture
def raw(tmp_path, monkeypatch):
    monkeypatch.setitem(SETS, TOY.name, TOY)
    folder = tmp_path / "raw" / "headlines"
    folder.mkdir(parents=True)
    lines = [f"{TOY.classes[i % 2]}\ttext {i}\n" for i in range(20)]
    (folder / "train.tsv").write_text("".join([*lines, "music\tnew record\n"]), "utf-8")
    (folder / "test.tsv").write_text("".join(lines[:3]), "utf-8")
    return folder.parent


def test_it_is_loaded_with_a_held_out_part_and_an_account(raw):
    train, held, test = (
        data.load(TOY.name, split, manual_dir=raw) for split in ("train", "validation", "test")
    )
    assert [len(part) for part in (train, held, test)] == [18, 2, 3]
    assert (train.report.lines, train.report.used) == (21, 20)
    assert [(q.line, q.reason) for q in train.quarantine] == [
        (21, "section 'music' is not in sport, world")
    ]
    assert test.info.substitute is None
    wanted = {"tokens": ("text", "2"), "label": 0, "example_id": 200_000_002, "text": "text 2"}
    assert test[2] == wanted


def test_it_is_checked(raw):
    report = _data_check.check(TOY.name, manual_dir=raw)
    assert report.problems == ()
    assert list(report.texts) == ["train", "validation", "test"]
    assert len(report.texts["test"]) == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_its_prepared_form_has_the_same_examples_and_account(raw, tmp_path, monkeypatch):
    from gatedjax.data import _prepared, builders

    builder = builders.builder_class(TOY.name, {"": TOY})
    assert builder.builder_configs == {}
    monkeypatch.setitem(builders.BUILDERS, TOY.name, builder)
    _prepared.prepare(TOY.name, data_dir=tmp_path / "tfds", manual_dir=raw)
    for split in ("train", "validation", "test"):
        prepared = data.load(TOY.name, split, data_dir=tmp_path / "tfds")
        assert_same_set(prepared, data.load(TOY.name, split, manual_dir=raw))


def test_every_file_that_declares_a_set_is_listed():
    folder = Path(_all.__file__).parent
    declaring = {file.stem for file in folder.glob("*.py") if "\nDECLARED = " in file.read_text()}
    assert declaring == set(_all._FILES)


def test_a_set_is_read_in_one_way_from_its_tfds_form():
    for name, declared in SETS.items():
        assert (declared.tfds is None) != (declared.tfds_rows is None), name


def test_sources_can_be_pickled(tmp_path):
    (tmp_path / "multi30k").mkdir()
    for language, text in (("en", "one\ntwo\n"), ("de", "eins\nzwei\n")):
        (tmp_path / "multi30k" / f"train.{language}").write_text(text, encoding="utf-8")
    pairs = data.load("multi30k", "train", manual_dir=tmp_path)
    questions = data.load("two_facts", "test")
    for source in (pairs, questions):
        assert pickle.loads(pickle.dumps(source))[1] == source[1]
    assert pickle.loads(pickle.dumps(_cloze._of_row)) is _cloze._of_row
