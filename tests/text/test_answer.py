"""`gatedjax answer`: a run and its export answer alike; other folders are refused."""

import io
import json
import re
import sys

import pytest

from gatedjax import export
from gatedjax.__main__ import main
from gatedjax.text.models._reader import Reader, question
from tests._programs import Plugin
from tests.text._own import refused
from tests.text._runs import DOCUMENT, QUESTION, reader_run


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run and its export."""
    place = tmp_path_factory.mktemp("reader")
    run, out = reader_run(place / "run"), place / "model"
    assert main(["export", str(run), "--out", str(out)]) == 0
    return run, out


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "d.txt"
    path.write_text(DOCUMENT, encoding="utf-8")
    return ["--document", str(path), *QUESTION]


@pytest.mark.slow
def test_an_export_holds_the_words_with_their_digests(folders):
    run, out = folders
    for name in ("vocabulary.json", "characters.json"):
        assert export.read_file(out, name) == (run / name).read_bytes()
        assert f"  {name}\n" in (out / "SHA256SUMS").read_text()
    config = export.read_config(out)
    assert config["gatedjax"] == {"kind": "cloze", "format": 1}
    assert config["config"] == json.loads((run / "config.json").read_text())["config"]


@pytest.mark.slow
def test_the_run_and_the_export_answer_alike(folders, document, capsys, tmp_path):
    run, out = folders
    asked = [*document, "house"]
    assert main(["answer", str(run), *asked]) == 0
    wanted = capsys.readouterr().out
    assert re.match(r"0\.\d{4}  (Anna|Emil|house)  \(1 x\)\n", wanted)
    assert "hop 1 attends to" in wanted
    assert "    4  Anna saw the [house] . Then Emil went to the\n" in wanted
    compiled = Plugin.running.counts.total()
    assert main(["answer", str(out), *asked]) == 0
    assert capsys.readouterr().out == wanted
    # the most probable candidate, the place and the words of the question with most attention first
    seen = re.findall(
        r"attends to: \S+ ([\d.]+), \S+ ([\d.]+), \S+ ([\d.]+), \S+ ([\d.]+)\n", wanted
    )
    assert len(seen) == 3
    for numbers in (
        re.findall(r"^(0\.\d{4})", wanted, re.M),
        re.findall(r"^  (0\.\d{3})", wanted, re.M),
        *seen,
    ):
        assert list(numbers) == sorted(numbers, reverse=True)
    # their networks are equal
    assert Plugin.running.counts.total() == compiled
    assert main(["answer", str(run), *asked, "--top", "1", "--tokenized"]) == 0
    tokens = capsys.readouterr().out
    assert "house  (not in the document)" in tokens  # it is the word "house."
    assert tokens.count("attends to") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "d.txt"]


@pytest.mark.slow
def test_a_candidate_of_several_words_counts_where_it_occurs_as_a_whole(
    folders, document, capsys, tmp_path
):
    def ask(*candidates):
        args = ["answer", str(folders[1]), *document, "--candidates", *candidates]
        assert main(args) == 0
        shown = capsys.readouterr().out.split("\n\nWhere")[0].split("\n")
        return {line[8:]: float(line[:6]) for line in shown}

    (tmp_path / "d.txt").write_text(
        "The house saw Anna. Then Emil went to the house of the garden."
    )
    found = ask("the house", "Emil")
    source = question(
        "The house saw Anna . Then Emil went to the house of the garden .",
        "@placeholder saw the house .",
        ["Emil", "the", "house"],
    )
    reader = Reader.open(folders[1]).with_words([*source[0]["tokens"], *source[0]["query"]])
    (reading,) = reader.answer_questions(source)
    weights = {place.position: place.weight for place in reading.places}
    # The positions of "the house" are 9 and 10; "house" at 1 and "the" at 12 are parts alone.
    assert sorted(weights) == [1, 6, 9, 10, 12]
    phrase = weights[9] + weights[10]
    share = phrase / (phrase + weights[6])
    assert found == {
        "the house  (1 x)": pytest.approx(share, abs=1e-4),
        "Emil  (1 x)": pytest.approx(1 - share, abs=1e-4),
    }
    absent = "the garden of  (not in the document)"
    assert ask("the garden of", "Anna") == {"Anna  (1 x)": 1, absent: 0}
    said = refused(["answer", str(folders[1]), *document, "--candidates", "house the"], capsys)
    assert "candidates must occur in the document as a whole and letter by letter" in said


def test_other_folders_are_refused_by_what_they_are(folders, document, capsys, tmp_path):
    _, out = folders
    (tmp_path / "empty").mkdir()
    params, config = export.load(out)
    config["gatedjax"] |= {"kind": "text"}
    for folder, message in {
        tmp_path / "nowhere": "there is no such folder",
        tmp_path / "empty": "a folder with neither model.safetensors",
        export.save(tmp_path / "changed", params, config=config): "holds a text classifier, which "
        "must be read with gatedjax predict",
    }.items():
        line = refused(["answer", str(folder), *document], capsys)
        assert line.startswith(f"error: {folder}")
        assert message in line
    line = refused(["translate", str(out)], capsys)
    content = "a reader that answers questions, which must be read with gatedjax answer"
    assert line == f"error: {out} holds {content}\n"


def test_a_document_on_standard_input_has_the_limit_of_a_file(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("gatedjax._commands.answer.MOST_TEXT_BYTES", 20)
    place = tmp_path / "nowhere"
    for size, message in ((21, "the bytes of the document must be at most 20, got 21"),
                          (20, f"{place}: there is no such folder")):  # fmt: skip
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a" * size)))
        assert message in refused(["answer", str(place), "--document", "-", *QUESTION], capsys)


def test_a_run_without_its_words_is_exported_as_a_run(folders, capsys, tmp_path):
    run = reader_run(tmp_path / "run")
    (run / "vocabulary.json").unlink()
    assert main(["export", str(run), "--out", str(tmp_path / "out")]) == 0
    assert export.read_config(tmp_path / "out")["gatedjax"]["kind"] == "run"


@pytest.mark.slow
def test_wrong_options_of_an_answer_are_refused(folders, document, capsys, tmp_path):
    args = ["answer", str(folders[1]), *document]
    text, path, figure = (tmp_path / name for name in ("text.txt", "d.txt", "map.png"))
    # Without the check all vectors of unknown words would be random.
    text.write_text("this is no file of vectors but a text\n" * 3)
    figure.write_text("notes of the user")
    for more, message in (
        (["--top", "-1"], "--top must be at least 0, got -1"),
        (["--figure", str(figure.with_suffix(""))], "no file that this command wrote"),
        (["--candidates", "Anna", "Otto", "--vectors", str(text)],
         "must have lines of a word and 4 values, got none"),
    ):  # fmt: skip
        if "Otto" in more:
            path.write_text(path.read_text().replace("Emil", "Otto"))
        assert message in refused([*args, *more], capsys)
    assert figure.read_text() == "notes of the user"
