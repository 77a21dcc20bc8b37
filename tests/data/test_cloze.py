"""Cloze files: every question used or set aside with its line, oddities counted, both layouts."""

import gzip
import tarfile

import pytest

from gatedjax import data
from gatedjax.data.files._lines import LineError
from gatedjax.data.sets import _cbt, _cloze

CANDIDATES = "cat|dog|hen"
QUESTION = "\n\n".join(
    [
        "http://x",
        "the cat saw @entity1 .",
        "who saw @placeholder ?",
        "@entity1",
        "@entity1:Bo\ncat:C",
    ]
)


def block(query="the XXXXX sat", answer="cat", candidates=CANDIDATES, words="a cat and a dog ."):
    lines = [f"{i} {words}" for i in range(1, 21)]
    return [*lines, f"21 {query}\t{answer}\t\t{candidates}"]


def write(folder, blocks, name="cbtest_NE_train.txt", end="\n", last="\n"):
    text = (end + end).join(end.join(lines) for lines in blocks) + last
    (folder / name).write_bytes(text.encode())
    return folder


def questions(folder, files, top="cnn/questions", part="test"):
    place = folder / top / part
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_a_cbt_question_becomes_document_query_candidates_and_label(tmp_path):
    source = data.load(
        "cbt_ne", "train", manual_dir=write(tmp_path, [block(), block(answer="dog")])
    )
    first, second = source
    assert first["tokens"] == ("a", "cat", "and", "a", "dog", ".") * 20
    assert first["query"] == ("the", "@placeholder", "sat")
    assert first["candidates"] == (("cat",), ("dog",), ("hen",))
    assert (first["answer"], first["label"], first["example_id"]) == (("cat",), 0, 0)
    assert (second["label"], second["example_id"]) == (1, 1)
    assert source.report.lines == source.report.used == 2
    assert source.info.substitute == "2 questions where the official file has 108,719"


@pytest.mark.parametrize("name", sorted(_cbt.MADE_OF_BOOKS))
def test_questions_beside_an_account_of_their_making_are_no_part_of_the_official_file(
    tmp_path, name
):
    folder = write(tmp_path, [block()])
    (train,) = folder.rglob("cbtest_NE_train.txt")
    train.with_name(_cbt.FILES["NE"]["test"]).write_bytes(train.read_bytes())
    train.with_name(name).write_text("{}")
    for split in ("train", "test"):
        found = data.load("cbt_ne", split, manual_dir=folder).info.substitute
        assert found.startswith(_cbt.MADE_OF_BOOKS[name] + ": 1 questions where the official file")
    with pytest.raises(ValueError, match="books"):
        data.load("cbt_ne", "train", manual_dir=folder, strict=True)


@pytest.mark.parametrize("kind", ["NE", "CN"])
def test_the_family_name_and_its_option_mean_one_of_the_sets(tmp_path, kind):
    write(tmp_path, [block()], f"cbtest_{kind}_test_2500ex.txt")
    source = data.load("cbt", "test", manual_dir=tmp_path, kind=kind)
    assert source.info.name == f"cbt_{kind.lower()}"
    assert source[0]["example_id"] == 200_000_000
    with pytest.raises(ValueError, match="kind of 'cbt' must be one of 'NE', 'CN', got 'XX'"):
        data.load("cbt", "test", manual_dir=tmp_path, kind="XX")


def test_a_lost_empty_line_changes_nothing(tmp_path):
    blocks = [block(), block(query="XXXXX ran")]
    want = list(data.load("cbt_ne", "train", manual_dir=write(tmp_path, blocks)))
    joined = write(tmp_path, [[*blocks[0], *blocks[1]]])
    assert list(data.load("cbt_ne", "train", manual_dir=joined)) == want


def test_oddities_are_used_and_counted(tmp_path):
    blocks = [
        block(),
        block(query="XXXXX saw XXXXX"),
        block(candidates="cat|dog|cat|hen|dog"),
        block(answer="hen"),
        block(answer="owl"),
        block(candidates="hen|owl", answer="owl"),
    ]
    source = data.load("cbt_ne", "train", manual_dir=write(tmp_path, blocks))
    assert [x["label"] for x in source] == [0, 0, 0, 2, -1, 1]
    assert [x["status"] for x in source] == [0, 0, 0, 1, 2, 1]
    assert source[2]["candidates"] == (("cat",), ("dog",), ("hen",))
    assert source[1]["query"] == ("@placeholder", "saw", "@placeholder")
    assert source.report.notes == {
        "answer does not occur": 2,
        "answer is no candidate": 1,
        "no candidate occurs": 1,
        "some candidate does not occur": 5,
        "repeated candidates": 1,
        "several placeholders": 1,
    }
    assert source.report.used == 6


def test_question_files_are_read_from_the_folder_and_the_archive(tmp_path):
    files = {"b.question": QUESTION, "a.question": QUESTION.replace("\n", "\r\n")}
    files["c.question.gz"] = gzip.compress(QUESTION.encode())
    files["d.question.gz"] = files["c.question.gz"][:-9]
    questions(tmp_path, files)
    source = data.load("cnn_dm_cloze", "test", manual_dir=tmp_path)
    assert list(data.load("cnn_cloze", "test", manual_dir=tmp_path / "cnn")) == list(source)
    assert [q.reason[:20] for q in source.quarantine] == ["truncated or damaged"]
    assert [x["example_id"] for x in source] == [200_000_000 + i for i in range(3)]
    assert all({**x, "example_id": 0} == {**source[0], "example_id": 0} for x in source)
    assert source[0]["tokens"] == ("the", "cat", "saw", "@entity1", ".")
    assert source[0]["candidates"] == (("@entity1",), ("cat",))
    assert source[0]["label"] == 0
    packed = tmp_path / "packed"
    (packed / "cnn").mkdir(parents=True)
    with tarfile.open(packed / "cnn" / "cnn.tgz", "w:gz") as archive:
        archive.add(tmp_path / "cnn" / "questions", "cnn/questions")
    assert list(data.load("cnn_cloze", "test", manual_dir=packed)) == list(source)


def test_who_did_what_has_candidates_of_several_tokens(tmp_path):
    text = QUESTION.replace("@entity1:Bo", "the cat:The Cat").replace("\n\n@entity1\n", "\n\ncat\n")
    questions(tmp_path, {"a.question": text}, top="wdw_relaxed", part="training")
    source = data.load("wdw", "train", manual_dir=tmp_path / "wdw_relaxed", kind="relaxed")
    assert source[0]["candidates"] == (("the", "cat"), ("cat",))
    assert source[0]["label"] == 1
    encoded = data.encode_cloze(source, data.cloze_vocabulary([source]))
    # "cat" is a token of both candidates
    assert encoded.occurrences[0].tolist() == [[0, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("\n".join(QUESTION.split("\n")[:4]), 5, "no query: the file has 3 lines"),
        ("\n".join(QUESTION.split("\n")[:7]), 9, "no candidate: the file has 7 lines"),
        (QUESTION.replace("@placeholder", "x"), 5, "the query has no @placeholder"),
        (QUESTION.replace("cat:C", "cat"), 10, "not a candidate: no colon in 'cat'"),
        (QUESTION.replace("the cat saw @entity1 .", " "), 3, "the document is empty"),
        (QUESTION.replace("cat", "c\xe9t").encode("latin-1"), 0, "not utf-8: byte 0xe9"),
    ],
)
def test_a_broken_question_file_is_set_aside(tmp_path, text, line, reason):
    questions(tmp_path, {"a.question": text, "b.question": QUESTION, ".DS\x1bStore": "x"})
    source = data.load("cnn_cloze", "test", manual_dir=tmp_path)
    place = tmp_path / "cnn" / "questions" / "test"
    got = [(q.file, q.line, q.reason) for q in source.quarantine]
    assert got[0] == (f"{place}/a.question", line, reason)
    assert got[1] == (f"{place}/.DS\x1bStore", 0, "not a question: no .question file")
    assert str(source.quarantine[1]).isprintable()
    assert source.report.lines == 3
    assert [x["example_id"] for x in source] == [200_000_001]


def test_runs_of_spaces_and_tabs_separate_tokens_and_a_no_break_space_does_not():
    made = _cloze.question(" a\t b  c\xa0d ", " @placeholder  e", " a ", [" a ", "b"])
    assert made.document.split(" ") == ["a", "b", "c\xa0d"]
    assert made == _cloze.Question("a b c\xa0d", "@placeholder e", "a", ("a", "b"), 0)
    assert _cloze.question("a cat", "@placeholder", "big cat", ["big cat"]).status == _cloze.OCCURS
    with pytest.raises(LineError, match="@placeholder"):
        _cloze.question("a", "b", "a", ["a"])
