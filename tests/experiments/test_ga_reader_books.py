"""Books as tokens, names, nouns and cloze questions."""

import json

import pytest

from experiments.ga_reader import books
from experiments.ga_reader.__main__ import main
from experiments.ga_reader.books import sentences_of, tokens_of
from gatedjax import data

NAMES = ["Anna", "Bruno", "Clara", "David", "Emil", "Frida", "Gustav", "Hanna", "Igor", "Jana"]
NOUNS = ["house", "garden", "river", "table", "letter", "horse", "window", "bridge", "basket"]
NOUNS += ["bell", "crown", "lamp"]


def book(seed=0, length=300):
    """A book in which every name and noun is used often."""
    lines = []
    for i in range(length):
        a, b = NAMES[(i + seed) % 10], NAMES[(3 * i + 1) % 10]
        x, y = NOUNS[i % 12], NOUNS[(5 * i + seed) % 12]
        lines.append(f"In the {x} of {a} there was the {y} , and {b} saw a {x} and her {y} .")
    return "\n\n".join(" ".join(lines[i : i + 5]) for i in range(0, length, 5))


def library(folder, count=4):
    folder.mkdir(exist_ok=True)
    paths = [folder / f"book{i}.txt" for i in range(count)]
    for i, path in enumerate(paths):
        path.write_text(book(i), encoding="utf-8")
    return list(map(str, paths))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Don't you know Heidi's aunt?", "Do n't you know Heidi 's aunt ?"),
        ('"No," said Mr. Smith--a man.', "`` No , '' said Mr. Smith -- a man ."),
        ("“Yes…” he said — well.", "`` Yes… '' he said -- well ."),
        ("'Well,' said she.", "` Well , ' said she ."),
        ("A well-known U.S. 3,000...", "A well-known U.S. 3,000 ..."),
        ("XXXXX saw @placeholder.", "@placeholder saw @placeholder ."),
        ("", ""),
    ],
)
def test_tokens_are_those_of_the_childrens_book_test(text, want):
    assert " ".join(tokens_of(text)).replace(" … ", "… ") == want


def test_sentences_end_with_what_closes_behind_the_full_stop():
    tokens = tokens_of('"Why?" he asked. "Go!" Then (slowly.) he went')
    assert [" ".join(s) for s in sentences_of(tokens)] == [
        "`` Why ? '' he asked .",
        "`` Go ! ''",
        "Then ( slowly . ) he went",
    ]
    assert sentences_of([]) == []


def test_a_book_loses_headings_and_what_stands_around_it(tmp_path):
    path = tmp_path / "b.txt"
    text = (
        "Licence text here.\n*** START OF THE BOOK X ***\nCHAPTER I\n\nAnna came. She\r\nsat.\r\n"
    )
    path.write_bytes(f"\ufeff{text}\r\n*** END OF THE BOOK\nMore licence.".encode())
    assert [" ".join(s) for s in books.read_book(path)] == ["Anna came .", "She sat ."]
    path.write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"b\.txt must be UTF-8, .* byte 3"):
        books.read_book(path)
    path.write_text("CHAPTER ONE\n")
    with pytest.raises(ValueError, match=r"b\.txt must have at least 1 sentence"):
        books.read_book(path)


def test_names_are_capitalised_inside_and_nouns_close_what_a_determiner_opens(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text(book(), encoding="utf-8")
    sentences = books.read_book(path)
    assert books.names_of(sentences) == set(NAMES)
    assert books.nouns_of(sentences) == set(NOUNS)
    # a capital that only begins sentences or speeches is none; nor is one that is mostly small
    plain = [tokens_of(t) for t in ["Indeed it is.", 'He said: "Indeed."'] * 5]
    assert books.names_of(plain) == set()
    mixed = [tokens_of("the Bear saw a bear and a bear.")] * 5
    assert books.names_of(mixed) == set()
    adjectives = [tokens_of("the red house was red, and the house was big.")] * 5
    assert books.nouns_of(adjectives) == {"house"}


@pytest.mark.parametrize("count", [1, 4])
def test_questions_of_books_are_read_as_cbt_and_follow_its_rules(tmp_path, count, capsys):
    out = tmp_path / "out"
    paths = library(tmp_path / "books", count)
    assert main(["make-cloze", "--books", *paths, "--out", str(out)]) == 0
    assert "NE: train" in capsys.readouterr().out
    report = json.loads((out / "make_cloze.json").read_text())
    parts = report["books"]
    if count == 4:
        assert sorted(parts["train"] + parts["valid"] + parts["test"]) == [
            f"book{i}.txt" for i in range(4)
        ]
    for kind, words in (("NE", NAMES), ("CN", NOUNS)):
        for split, part in {"train": "train", "validation": "valid", "test": "test"}.items():
            source = data.load("cbt", split, manual_dir=out, kind=kind)
            counts = report[kind][part]
            assert counts["tried"] == sum(counts.values()) - counts["tried"]
            assert len(source) == source.report.lines == counts["written"] > 0
            assert source.report.notes == {}
            for example in source:
                assert len(example["candidates"]) == 10
                assert example["label"] >= 0
                assert example["answer"][0] in words
                assert set(example["tokens"]) >= {c[0] for c in example["candidates"]}


def test_the_same_seed_gives_the_same_files_and_another_one_others(tmp_path, capsys):
    paths = library(tmp_path / "books")
    files = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        args = ["--books", *paths, "--out", str(tmp_path / name), "--seed", str(seed)]
        assert main(["make-cloze", *args]) == 0
        files[name] = (tmp_path / name / "cbtest_NE_train.txt").read_bytes()
    assert files["a"] == files["b"] != files["c"]


def test_books_that_cannot_be_used_are_refused(tmp_path, capsys):
    short = tmp_path / "short.txt"
    short.write_text("Anna came. She sat.")
    for args, message in (
        (["--books", str(short)], "question of NE for train, got none from short.txt"),
        (["--books", str(tmp_path / "none.txt")], "none.txt"),
        (["--books", str(short), "--held-out", "0.5"], "--held-out must be in (0, 0.4]"),
        (["--books", str(short), str(short)], "--books must have different file names"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["make-cloze", *args, "--out", str(tmp_path / "out")])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
