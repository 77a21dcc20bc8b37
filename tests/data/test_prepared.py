"""The TFDS form: our builders without TensorFlow, and the official sets where they are prepared."""

import dataclasses
import functools
import http.server
import shutil
import subprocess
import sys
import threading
import zipfile

import pytest

from gatedjax import data
from gatedjax.data import _prepared
from gatedjax.data.sets import _trec
from gatedjax.data.sets._all import SETS
from tests.data._same import assert_same_set

TREES = "(3 (2 A) (3 hit))\n(2 A (2 B))\n(1 (2 A) (1 bore))\n(2 (2 A) (2 film))\n"
QUESTIONS = "NUM:dist How far ?\nBAD:x Why ?\nLOC:city Where ?\n" * 10

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    (folder / "trees").mkdir(parents=True)
    for name in ("train", "dev", "test"):
        (folder / "trees" / f"{name}.txt").write_text(TREES, "utf-8")
    with zipfile.ZipFile(folder / "trainDevTestTrees_PTB.zip", "w") as archive:
        for name in ("train", "dev", "test"):
            archive.write(folder / "trees" / f"{name}.txt", f"trees/{name}.txt")
    for name in _trec.FILES.values():
        (folder / name).write_text(QUESTIONS, "utf-8")
    return folder


def move(monkeypatch, name, url):
    """Gives a set another address."""
    declared = SETS[name]
    files = dataclasses.replace(declared.files, url=url)
    monkeypatch.setitem(SETS, name, dataclasses.replace(declared, files=files))


@pytest.fixture
def site(raw, monkeypatch):
    """The official addresses, on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(raw))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_address[1]}/"
        for name in ("sst", "trec"):
            move(monkeypatch, name, root)
        yield root
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "split"), [("sst1", "train"), ("sst2", "test"), ("trec", "train")]
)
def test_a_downloaded_set_equals_the_raw_files(site, raw, tmp_path, name, split):
    prepared = data.load(name, split, data_dir=tmp_path / "tfds")
    direct = data.load(name, split, manual_dir=raw)
    assert_same_set(prepared, direct)
    assert prepared.quarantine
    assert "tensorflow" not in sys.modules


@pytest.mark.slow
def test_a_prepared_set_is_read_without_a_network(site, tmp_path, monkeypatch):
    first = data.load("trec", "test", data_dir=tmp_path / "tfds")
    move(monkeypatch, "trec", "http://127.0.0.1:9/")
    assert list(data.load("trec", "test", data_dir=tmp_path / "tfds")) == list(first)
    # and it serves where manual_dir lacks the files
    empty = tmp_path / "empty"
    empty.mkdir()
    again = data.load("trec", "test", data_dir=tmp_path / "tfds", manual_dir=empty)
    assert list(again) == list(first)


@pytest.mark.parametrize(
    ("name", "record", "content"),
    [
        ("imdb_reviews", {"text": b"fine"}, "fine"),
        ("ag_news_subset", {"title": b"A", "description": b"b #36;1"}, "A b$1"),
        ("snli", {"premise": b"A dog.", "hypothesis": b"A cat."}, ("A dog.", "A cat.")),
    ],
)
def test_a_record_of_tfds_is_a_row_or_set_aside_by_its_number(name, record, content):
    good, bad = record | {"label": 1}, dict.fromkeys(record, b"caf\xe9") | {"label": 0}
    rows = SETS[name].tfds_rows([good, bad, good], "test")
    assert [(row.index, row.label, row.content) for row in rows.rows] == [
        (0, 1, content), (2, 1, content)
    ]  # fmt: skip
    assert [(aside.file, aside.line) for aside in rows.quarantine] == [(name, 2)]


def test_no_network_and_no_files_says_where_to_get_them(tmp_path, monkeypatch):
    move(monkeypatch, "sst", "http://127.0.0.1:9/")
    with pytest.raises(FileNotFoundError, match=r"trainDevTestTrees_PTB.zip.*manual_dir"):
        data.load("sst", "train", data_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


IMPORTS = """
import sys
import gatedjax.analysis
assert not {"matplotlib", "jax", "rich", "flax"} & set(sys.modules)
import gatedjax.data
assert not {"tensorflow_datasets", "grain", "tensorflow"} & set(sys.modules)
import gatedjax.data.builders, tensorflow_datasets
print(*(tensorflow_datasets.builder_cls(name).__module__ for name in ("sst", "trec")))
"""


@pytest.mark.slow
def test_an_import_loads_no_more_than_it_needs_and_tfds_keeps_its_own_trec():
    run = [sys.executable, "-c", IMPORTS]
    ours, theirs = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert ours == "gatedjax.data.builders"
    assert theirs.startswith("tensorflow_datasets.")


def test_cloze_questions_survive_preparation_with_their_account(tmp_path, capsys):
    from gatedjax.__main__ import main

    raw = tmp_path / "raw"
    raw.mkdir()
    lines = [f"{i} a cat and a dog ." for i in range(1, 21)]
    good = "\n".join([*lines, "21 the XXXXX sat\tcat\t\tcat|dog|cat"])
    bad = "\n".join([*lines, "21 nobody sat\tcat\t\tcat|dog"])
    for name in ("train", "valid_2000ex", "test_2500ex"):
        (raw / f"cbtest_NE_{name}.txt").write_text(f"{good}\n\n{bad}\n\n{good}\n", "utf-8")
    args = ["--manual-dir", str(raw), "--data-dir", str(tmp_path / "tfds")]
    assert main(["data", "prepare", "cbt", *args]) == 0
    out = capsys.readouterr().out
    assert "Downloading" not in out
    row = next(line for line in out.splitlines() if "| train " in line)
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "train",
        "3",
        "2",
        "1",
        "108719",
    ]
    prepared = data.load("cbt_ne", "train", data_dir=tmp_path / "tfds")
    assert_same_set(prepared, data.load("cbt_ne", "train", manual_dir=raw))
    assert prepared.report.notes == {"repeated candidates": 2}
    (aside,) = prepared.quarantine
    assert (aside.file, aside.line) == ("cbtest_NE_train.txt", 43)


def test_question_files_are_prepared_part_by_part(tmp_path):
    import tensorflow_datasets as tfds

    from gatedjax.data import builders

    text = "x\n\na cat .\n\n@placeholder sat\n\ncat\n\ncat:cat\ndog:dog\n"
    for i, part in enumerate(("training", "validation", "test")):
        folder = tmp_path / "raw" / "wdw" / part
        folder.mkdir(parents=True)
        (folder / "a.question").write_text(text.replace("sat", f"sat {i}"), "utf-8")
        (folder / "b.question").write_text("x\n", "utf-8")
    builder = builders.WdwStrict(data_dir=str(tmp_path / "tfds"), file_format="array_record")
    config = tfds.download.DownloadConfig(manual_dir=str(tmp_path / "raw"))
    builder.download_and_prepare(download_config=config)
    for i, split in enumerate(("train", "validation", "test")):
        source = data.load("wdw", split, data_dir=tmp_path / "tfds")
        assert [x["query"][-1] for x in source] == [str(i)]
        assert [(q.file, q.line) for q in source.quarantine] == [("b.question", 3)]
        assert list(source) == list(data.load("wdw", split, manual_dir=tmp_path / "raw"))
    # without a part, the others are no set
    shutil.rmtree(tmp_path / "raw" / "wdw" / "validation")
    builder = builders.WdwStrict(data_dir=str(tmp_path / "less"), file_format="array_record")
    with pytest.raises(FileNotFoundError, match="wdw_strict cannot be downloaded"):
        builder.download_and_prepare(download_config=config)


def test_sets_that_no_program_can_download_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(_prepared, "_check_network", lambda name, builder: None)
    with pytest.raises(FileNotFoundError, match=r"cannot be downloaded.*who_did_what"):
        data.load("wdw", "train", data_dir=tmp_path)
