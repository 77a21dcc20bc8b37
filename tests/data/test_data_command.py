"""`python -m gatedjax data`: every raw line is used or named, splits compared, sets prepared."""

import dataclasses
import gzip
import io
import re
import tarfile
from pathlib import Path

import pytest

from gatedjax import data
from gatedjax.__main__ import main
from gatedjax._commands import _data_check
from gatedjax.data.files import _lines as _files
from gatedjax.data.sets import _sst, _trec
from gatedjax.data.sets._all import SETS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

GOOD = b"(3 (2 (2 A) (3 good)) (2 film))"
NEUTRAL = b"(2 (2 A) (2 film))"


def run(capsys, *args):
    """Runs a command; returns (status, stdout, stderr)."""
    try:
        status = main(["data", *map(str, args)])
    except SystemExit as stop:  # tyro
        status = stop.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def cells(out, first):
    """The cells of the first table row that starts with a word."""
    line = next(line for line in out.splitlines() if line.startswith(f"| {first} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture
def trees(tmp_path):
    folder = tmp_path / "raw" / "sst" / "trees"
    folder.mkdir(parents=True)
    for i, name in enumerate(("train", "dev", "test")):
        (folder / f"{name}.txt").write_bytes(b"(4 (2 number) (4 %d))\n" % i + NEUTRAL + b"\n")
    return folder


@pytest.fixture
def questions(tmp_path):
    folder = tmp_path / "raw" / "trec"
    folder.mkdir(parents=True)
    lines = [f"NUM:dist How far is {i} ?" for i in range(20)]
    (folder / "train_5500.label").write_text("\n".join(lines) + "\n", "latin-1")
    (folder / "TREC_10.label").write_text("LOC:city Where is it ?\n", "latin-1")
    return folder


@pytest.mark.slow
def test_polarity_needs_no_files(capsys):
    status, out, _ = run(capsys, "check", "polarity")
    assert status == 0
    assert cells(out, "train") == ["train", "made by gatedjax", "4000", "4000", "0", "4000"]
    assert "test texts that are also in train: 0 of 1000" in out
    status, out, _ = run(capsys, "prepare", "polarity")
    assert status == 0
    assert "nothing to prepare" in out


BAD_TREES = [
    (b"(3 (2 A) (3 g\0od))", "NUL character"),
    (b"(2 caf\xe9)", "not utf-8: byte 0xe9"),
    (b"", "empty line"),
]


def test_every_broken_tree_is_named_with_file_line_and_reason(trees, capsys):
    lines = [GOOD]
    for bad, _ in BAD_TREES:
        lines += [bad, NEUTRAL]
    path = trees / "train.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines))
    manual = trees.parent.parent
    status, out, _ = run(capsys, "check", "sst", "--manual-dir", manual)
    assert status == 0
    named = re.findall(rf"^  {re.escape(str(path))}:(\d+): (.*)$", out, re.MULTILINE)
    wanted = [(str(2 * i + 2), reason) for i, (_, reason) in enumerate(BAD_TREES)]
    assert named == wanted
    assert cells(out, "train") == ["train", "train.txt", "7", "4", "3", "8544"]
    assert "note: train.txt has 7 lines, the official file 8,544" in out
    splits = ("train", "validation", "test")
    assert cells(out, "label") == ["label", *(cell for split in splits for cell in (split, "%"))]
    # the neutral trees of the binary form are a column of their own
    status, out, _ = run(capsys, "check", "sst2", "--manual-dir", manual)
    assert status == 0
    assert cells(out, "train") == ["train", "train.txt", "7", "1", "3", "3", "8544"]


def test_strict_fails_on_a_quarantined_line_and_limit_shortens_the_list(trees, capsys):
    manual = trees.parent.parent
    status, out, _ = run(capsys, "check", "sst", "--manual-dir", manual, "--strict")
    assert status == 0
    (trees / "train.txt").write_bytes(GOOD + b"\nbad\nworse\nworst\n")
    args = ("check", "sst", "--manual-dir", manual, "--limit", 2)
    assert run(capsys, *args)[0] == 0
    status, out, _ = run(capsys, *args, "--strict")
    assert status == 1
    assert "FAILED: 3 quarantined (--strict)" in out
    assert "train.txt:3: " in out
    assert "train.txt:4: " not in out
    assert "and 1 more" in out


def test_a_truncated_gz_file_fails_and_the_other_files_are_still_read(trees, capsys):
    (trees / "train.txt").unlink()
    path = trees / "train.txt.gz"
    path.write_bytes(gzip.compress(b"\n".join([GOOD] * 50))[:-12])
    status, out, _ = run(capsys, "check", "sst", "--manual-dir", trees)
    assert status == 1
    assert f"{path}:0: truncated or damaged compressed file" in out
    assert "FAILED: train: " in out
    assert cells(out, "train")[2] == "unreadable"
    assert cells(out, "test")[2:5] == ["2", "2", "0"]


@pytest.mark.slow
def test_a_missing_part_fails_and_no_file_at_all_is_refused(trees, tmp_path, capsys):
    (trees / "dev.txt").unlink()
    status, out, _ = run(capsys, "check", "sst", "--manual-dir", trees)
    assert status == 1
    assert "FAILED: validation: no dev.txt (or dev.txt.gz)" in out
    (trees / "dev.txt").write_bytes(b"no tree\n")
    status, out, _ = run(capsys, "check", "sst", "--manual-dir", trees)
    assert status == 1
    assert "dev.txt: no usable line" in out
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (empty, tmp_path / "nowhere"):
        args = ("check", "sst", "--manual-dir", folder, "--data-dir", tmp_path / "tfds")
        status, _, err = run(capsys, *args)
        assert status == 2
        assert str(folder) in err
        assert not (tmp_path / "tfds").exists()


def test_the_check_fails_where_the_loader_loses_a_line(questions, capsys, monkeypatch):
    whole = SETS["trec"].read_rows

    def lossy(path, part):
        rows = whole(path, part)
        return _files.FileRows(rows.rows[:-1], rows.quarantine, rows.counted)

    monkeypatch.setitem(SETS, "trec", dataclasses.replace(SETS["trec"], read_rows=lossy))
    status, out, _ = run(capsys, "check", "trec", "--manual-dir", questions)
    assert status == 1
    assert "train_5500.label: 20 lines were read, 19 are accounted for" in out
    with pytest.raises(ValueError, match=r"not everything is accounted for: .*lines=20"):
        data.load("trec", "train", manual_dir=questions)


def test_overlap_repeats_and_contradictions_are_counted(trees, capsys):
    def tree(label, *words):
        return f"({label} {' '.join(f'(2 {word})' for word in words)})".encode()

    train = [tree(3, "A", "hit"), tree(1, "a", "Hit"), tree(3, "a", "hit"), tree(0, "Dull")]
    test = [tree(3, "a", "HIT"), tree(4, "dull"), tree(4, "fresh"), tree(2, "a", "hit")]
    (trees / "train.txt").write_bytes(b"\n".join([*train, NEUTRAL]))
    (trees / "test.txt").write_bytes(b"\n".join(test))
    report = _data_check.check("sst", manual_dir=trees)
    texts = report.texts
    assert _data_check.count_repeated(texts["train"]) == 2
    empty = texts["train"][0]._replace(length=0)
    assert _data_check.count_repeated([empty] * 2) == 0
    assert _data_check.count_conflicts(texts["train"]) == 1
    assert _data_check.count_conflicts([text for of in texts.values() for text in of]) == 2
    pairs = _data_check.list_overlap(texts["train"], texts["test"])
    assert [(first.place, second.place, second.text) for first, second in pairs] == [
        ("train.txt:1", "test.txt:1", "a hit"),
        ("train.txt:4", "test.txt:2", "dull"),
        ("train.txt:1", "test.txt:4", "a hit"),
    ]
    loaded = [data.load("sst", part, manual_dir=trees) for part in ("train", "test")]
    assert data.overlap(*loaded) == len(pairs)
    assert [text.label for text in texts["test"]].count(4) == 2
    assert _data_check.length_quantiles(texts["test"]) == [1, 1, 1, 1, 2, 2, 2, 2]
    _, out, _ = run(capsys, "check", "sst", "--manual-dir", trees)
    shared = "  test texts that are also in train: 3 of 4 (75.00%)\n"
    assert f"{shared}    test.txt:1 = train.txt:1: a hit\n" in out
    assert re.search(r"^\| train +\| +5 \| +0 \| +2 \| +1 \|$", out, re.MULTILINE)
    assert cells(out, "positive")[1:] == ["2", "40.0", "0", "0.0", "1", "25.0"]
    assert re.search(r"^\| tokens +\| shortest \| +5% \| .*longest \|", out, re.MULTILINE)


@pytest.fixture
def reviews(tmp_path):
    folder = tmp_path / "raw" / "aclImdb"
    for part in ("train", "test"):
        for label in ("neg", "pos"):
            (folder / part / label).mkdir(parents=True)
            for i in range(5):
                text = f"It's {label} {part} {i}."
                (folder / part / label / f"{i}_1.txt").write_text(text, "utf-8")
    (folder / "train" / "neg" / "2_1.txt").write_bytes(b"caf\xe9")
    (folder / "train" / "neg" / "3_1.txt").write_bytes(b"")
    (folder / "train" / "pos" / "4_1.txt.part").write_bytes(b"half a review")
    (folder / "train" / "pos" / "._0_1.txt").write_bytes(b"\0Mac")
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_every_file_beside_the_imdb_reviews_is_accounted_for(reviews, packed, capsys, tmp_path):
    where = reviews.parent
    if packed:
        where = tmp_path / "packed"
        where.mkdir()
        with tarfile.open(where / "aclImdb_v1.tar.gz", "w:gz") as archive:
            archive.add(reviews, "aclImdb")
            link = tarfile.TarInfo("aclImdb/test/pos/9_1.txt")
            link.type, link.linkname = tarfile.SYMTYPE, "0_1.txt"
            archive.addfile(link, io.BytesIO())
    status, out, _ = run(capsys, "check", "imdb", "--manual-dir", where)
    assert status == 0
    assert cells(out, "train")[2:5] == ["12", "9", "3"]
    assert cells(out, "test")[2:5] == (["11", "10", "1"] if packed else ["10", "10", "0"])
    assert re.search(r"train/neg/2_1.txt:0: not utf-8: byte 0xe9", out)
    assert re.search(r"train/pos/4_1.txt.part:0: not a review", out)
    assert re.search(r"train/pos/\._0_1.txt:0: not a review", out)
    assert not packed or "test/pos/9_1.txt:0: not a regular file" in out


def test_a_missing_folder_of_a_class_is_an_error(reviews):
    for file in (reviews / "test" / "neg").iterdir():
        file.unlink()
    (reviews / "test" / "neg").rmdir()
    with pytest.raises(ValueError, match="test/neg"):
        data.load("imdb", "test", manual_dir=reviews)


def test_prepare_reports_counts_and_where_the_quarantine_is(trees, tmp_path, capsys):
    (trees / "train.txt").write_bytes(GOOD + b"\nbad\n" + NEUTRAL + b"\n")
    args = ("sst2", "--data-dir", tmp_path / "tfds")
    status, out, err = run(capsys, "prepare", *args, "--manual-dir", trees)
    assert (status, err) == (0, "")
    assert cells(out, "train") == ["train", "3", "2", "1", "8544"]
    listed = re.search(r"Quarantined lines, 1 in all, .*listed in (.*metadata\.json)", out)
    assert "train.txt" in Path(listed.group(1)).read_text("utf-8")
    status, out, _ = run(capsys, "prepare", *args)
    assert status == 0
    assert "was already prepared in" in out
    # the account survives in the prepared set
    status, out, _ = run(capsys, "check", *args)
    assert status == 0
    assert cells(out, "train")[2:6] == ["3", "1", "1", "1"]
    assert "train.txt:2: text outside the brackets" in out


def test_prepare_from_broken_or_missing_files_writes_nothing(trees, tmp_path, capsys):
    target = tmp_path / "tfds"
    args = ("prepare", "sst", "--manual-dir", trees, "--data-dir", target)

    def refused(*words):
        status, _, err = run(capsys, *args)
        assert status == 2
        assert all(word in err for word in (*words, _sst.URL)), err
        assert not target.exists()

    good = (trees / "dev.txt").read_bytes()
    (trees / "dev.txt").unlink()
    refused("dev.txt", str(trees))
    (trees / "dev.txt.gz").write_bytes(gzip.compress(good * 20)[:-9])
    refused("dev.txt.gz: truncated")
    (trees / "dev.txt.gz").unlink()
    (trees / "dev.txt").write_bytes(b"no tree\n")
    refused("dev.txt must have a usable line, got none", "dev.txt:1")
    (trees / "dev.txt").write_bytes(good)
    assert run(capsys, *args)[0] == 0


def test_a_preparation_that_fails_half_way_leaves_nothing(trees, tmp_path, capsys, monkeypatch):
    target = tmp_path / "tfds"
    sst, calls = SETS["sst"], []

    def failing(path, part):
        calls.append(path)
        if len(calls) > 4:  # three files are read before; this is the second that is written
            raise OSError("No space left on device")
        return sst.read_rows(path, part)

    monkeypatch.setitem(SETS, "sst", dataclasses.replace(sst, read_rows=failing))
    args = ("prepare", "sst", "--manual-dir", trees, "--data-dir", target)
    status, _, err = run(capsys, *args)
    assert status == 2
    assert "No space left on device" in err
    assert not target.exists()
    monkeypatch.setitem(SETS, "sst", sst)
    assert run(capsys, *args)[0] == 0


def test_the_sets_of_tfds_say_that_they_need_tensorflow(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, _, err = run(capsys, "prepare", "imdb", "--data-dir", tmp_path / "tfds")
    assert status == 2
    assert "pip install tensorflow-cpu" in err
    assert not (tmp_path / "tfds").exists()


@pytest.mark.parametrize("command", ["prepare", "check"])
def test_an_unknown_name_gets_a_suggestion(command, tmp_path, capsys):
    status, _, err = run(capsys, command, "trek", "--manual-dir", tmp_path)
    assert status == 2
    assert "Did you mean 'trec'" in err


def test_the_list_names_every_set_and_no_command_is_an_error(capsys):
    status, out, _ = run(capsys, "list")
    assert status == 0
    assert all(name in out for name in data.names())
    assert _trec.URL in out
    assert run(capsys)[0] == 2
    assert run(capsys, "check", "trec", "--limit", "-1")[0] == 2


def test_check_without_files_and_without_a_prepared_set_says_so(capsys, tmp_path):
    status, _, err = run(capsys, "check", "imdb", "--data-dir", tmp_path)
    assert status == 2
    assert "no prepared set" in err


@pytest.mark.slow
def test_cloze_questions_are_checked_with_what_becomes_of_their_answers(tmp_path, capsys):
    lines = [f"{i} a cat and a dog ." for i in range(1, 21)]
    block = "\n".join([*lines, "21 the XXXXX sat\t{}\t\tcat|hen"])
    for name in ("train", "valid_2000ex", "test_2500ex"):
        text = "\n\n".join(block.format(answer) for answer in ("cat", "hen", "owl"))
        text += "\n\n1 x\n2 y\n"
        (tmp_path / f"cbtest_CN_{name}.txt").write_text(text, "utf-8")
    status, out, _ = run(capsys, "check", "cbt_cn", "--manual-dir", tmp_path)
    assert status == 0
    assert cells(out, "train")[:5] == ["train", "cbtest_CN_train.txt", "4", "3", "1"]
    assert "cbtest_CN_train.txt:68: 2 lines where a question has 21" in out
    assert cells(out, "answer does not occur")[1:3] == ["1", "33.3"]
    assert "Among the used of train: answer does not occur: 1, answer is no candidate: 1" in out
    assert "validation texts that are also in train: 3 of 3" in out
    # equal texts with other answers
    assert "label conflicts" in out
