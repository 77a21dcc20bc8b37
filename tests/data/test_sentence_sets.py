"""Sentence pairs, semantic roles, trees and parallel text: formats, malformed lines, counts."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from gatedjax import data
from gatedjax.__main__ import main
from gatedjax.data.sets import _srl, _treebank
from gatedjax.data.sets._all import SETS
from tests.data._same import assert_same_set, predicate_row

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
SICK = [
    HEADER,
    "1\tA dog runs\tAn animal runs\t4.5\tENTAILMENT",
    "2\tA dog runs\tNobody runs\t3.1\tCONTRADICTION\r",
]
SNLI = [
    {"gold_label": "neutral", "sentence1": "A dog runs.", "sentence2": "It's late."},
    {"gold_label": "-", "sentence1": "A dog runs.", "sentence2": "A cat runs."},
    {"gold_label": "entailment", "sentence1": "A dog runs.", "sentence2": "It moves."},
]
TREE = r"(TOP (S (NP (DT A) (NN film)) (VP (VBZ is) (ADJP (JJ 1\/2) (-LRB- -LRB-))) (. .)))"


TWO = [
    predicate_row(0, "He", "(ARG0*)", "(ARG0*)"),
    predicate_row(1, "wants", "(V*)", "*", lemma="want"),
    predicate_row(2, "to", "(ARG1*", "*"),
    predicate_row(3, "go", "*)", "(V*)", lemma="go"),
]
NONE = [predicate_row(0, "Yes"), predicate_row(1, ".")]


def conll(*blocks):
    lines = ["#begin document (d); part 000"]
    for block in blocks:
        lines += [*block, ""]
    return "\n".join([*lines, "#end document"]) + "\n"


@pytest.fixture
def raw(tmp_path):
    """Every set, three parts each."""
    folder = tmp_path / "raw"
    for name in ("sick", "snli", "srl", "treebank", "multi30k"):
        (folder / name).mkdir(parents=True)
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        (folder / "sick" / f"{name}.txt").write_text("\n".join(SICK), "utf-8")
    for part in ("train", "dev", "test"):
        (folder / "snli" / f"snli_1.0_{part}.jsonl").write_text(
            "\n".join(json.dumps(line) for line in SNLI), "utf-8"
        )
        (folder / "srl" / f"conll2012.{part}.conll").write_text(conll(TWO, NONE, TWO), "utf-8")
        (folder / "treebank" / f"ewt.{part}.trees").write_text(f"{TREE}\n", "utf-8")
    # The second file of a pair may have a fault too.
    for part, cow, kuh in (
        ("train", "", ""),
        ("val", "A cow.\n", "\n"),
        ("test_2016_flickr", "", ""),
    ):
        (folder / "multi30k" / f"{part}.en").write_text(f"A dog.\r\n A  cat. \n{cow}", "utf-8")
        (folder / "multi30k" / f"{part}.de").write_text(f"Ein Hund.\nEine Katze.\n{kuh}", "utf-8")
    return folder


def test_pairs_of_sentences_have_two_texts_and_a_class(raw):
    sick = data.load("sick", "train", manual_dir=raw)
    assert sick.info.class_names == ("entailment", "neutral", "contradiction")
    assert [(x["tokens"][-1], x["hypothesis"][0], x["label"]) for x in sick] == [
        ("runs", "An", 0),
        ("runs", "Nobody", 2),
    ]
    assert sick.report.lines == 2  # the header is none
    snli = data.load("snli", "test", manual_dir=raw)
    assert [x["hypothesis"] for x in snli] == [("It", "'s", "late", "."), ("It", "moves", ".")]
    assert [x["label"] for x in snli] == [1, 0]
    assert snli.report.skipped == {"no gold label": 1}
    assert snli.report.reconciles


def test_every_predicate_is_an_example_with_its_spans_and_labels(raw):
    source = data.load("conll_srl", "validation", manual_dir=raw)
    assert len(source) == 4
    first, second, third, _ = source
    assert first["tokens"] == second["tokens"] == ("He", "wants", "to", "go")
    assert first["labels"] == ("B-ARG0", "B-V", "B-ARG1", "I-ARG1")
    assert first["spans"] == ((0, 1, "ARG0"), (1, 2, "V"), (2, 4, "ARG1"))
    assert (first["predicate"], first["lemma"], first["is_predicate"]) == (1, "want", (0, 1, 0, 0))
    assert second["labels"] == ("B-ARG0", "O", "O", "B-V")
    assert second["is_predicate"] == (0, 0, 0, 1)
    # ids are those of the sentence, of which the one without a predicate has no example
    base = 100_000_000
    assert [x["example_id"] - base for x in source] == [0, 1, 2048, 2049]
    assert third["example_id"] - base == 2 * _srl.IDS_PER_SENTENCE
    assert source.report.lines == 3
    assert source.report.skipped == {"no predicate": 1}
    assert source.report.reconciles


def test_roles_are_read_from_folders_gzip_and_windows_lines(raw, tmp_path):
    plain = list(data.load("conll_srl", "test", manual_dir=raw))
    folder = tmp_path / "official"
    for part in ("train", "development", "test"):
        (folder / part / "bc").mkdir(parents=True)
        for name, block in (("b", NONE), ("c", TWO), ("a", TWO)):  # read in alphabetical order
            text = conll(block).replace("\n", "\r\n")
            file = folder / part / "bc" / f"{name}.v4_gold_conll"
            file.write_text(text, "utf-8", newline="")
        (folder / part / "bc" / "a.v4_auto_conll").write_text("not to be read", "utf-8")
    assert list(data.load("conll_srl", "test", manual_dir=folder)) == plain
    packed = tmp_path / "packed"
    packed.mkdir()
    for part in ("train", "dev", "test"):
        content = gzip.compress(conll(TWO, NONE, TWO).encode())
        (packed / f"ewt.{part}.conll.gz").write_bytes(content)
    source = data.load("conll_srl", "test", manual_dir=packed)
    assert list(source) == plain
    assert source.info.substitute == (
        "English Web Treebank PropBank: 3 sentences where the official file has 9,479"
    )


def test_a_tree_has_words_tags_and_constituents(raw):
    (example,) = data.load("ewt_trees", "train", manual_dir=raw)
    assert example["tokens"] == ("A", "film", "is", r"1\/2", "(", ".")
    assert example["tags"] == ("DT", "NN", "VBZ", "JJ", "-LRB-", ".")
    assert example["constituents"] == (
        *((0, 6, "TOP"), (0, 6, "S"), (0, 2, "NP"), (2, 5, "VP"), (3, 5, "ADJP")),
    )
    # Penn's own trees have a node without a label around them
    assert _treebank.parse("( (S (NN a) (NN b)))")[1].constituents[0] == (0, 2, "")


def test_parallel_lines_are_pairs_in_either_direction(raw):
    source = data.load("multi30k", "train", manual_dir=raw)
    assert [(x["text"], x["target"]) for x in source] == [
        ("A dog.", "Ein Hund."),
        ("A  cat.", "Eine Katze."),
    ]
    assert source[1]["tokens"] == ("A", "cat.")
    back = data.load("multi30k", "train", manual_dir=raw, source="de")
    assert (back[0]["text"], back[0]["target"]) == ("Ein Hund.", "A dog.")
    with pytest.raises(ValueError, match="source must be one of 'en', 'de', got 'fr'"):
        data.load("multi30k", "train", manual_dir=raw, source="fr")


def test_texts_of_different_length_are_an_error_that_names_both(raw):
    (raw / "multi30k" / "train.de").write_text("Ein Hund.\n", "utf-8")
    match = r"same number of lines, got 2 in .*train\.en and 1 in .*train\.de"
    with pytest.raises(ValueError, match=match):
        data.load("multi30k", "train", manual_dir=raw)
    for there, gone in (("en", "de"), ("de", "en")):
        (raw / "multi30k" / f"val.{there}").touch()
        (raw / "multi30k" / f"val.{gone}").unlink()
        with pytest.raises(FileNotFoundError, match=rf"val\.{there}: there is no val\.{gone} next"):
            data.load("multi30k", "validation", manual_dir=raw)


def test_a_pair_with_an_empty_side_is_set_aside_once(raw):
    (raw / "multi30k" / "train.en").write_bytes(b"A dog.\n\nA cow.\nA \xe9.\nA pig.\n")
    (raw / "multi30k" / "train.de").write_bytes(b"Ein Hund.\n\n\nEin E.\nEin Schwein.\n")
    source = data.load("multi30k", "train", manual_dir=raw)
    assert [x["example_id"] for x in source] == [0, 4]
    got = [(Path(q.file).name, q.line, q.reason) for q in source.quarantine]
    assert got == [
        ("train.en", 2, "empty line"),
        ("train.de", 3, "empty line"),
        ("train.en", 4, "not utf-8: byte 0xe9"),
    ]
    assert source.report.reconciles


def test_a_line_separator_inside_a_sentence_does_not_shift_the_pairs(raw):
    (raw / "multi30k" / "train.en").write_text("one\u2028still one\ntwo\x0b\n", "utf-8")
    (raw / "multi30k" / "train.de").write_text("eins\nzwei\n", "utf-8")
    source = data.load("multi30k", "train", manual_dir=raw)
    assert [x["target"] for x in source] == ["eins", "zwei"]
    (raw / "multi30k" / "train.en").write_text("\n\n", "utf-8")
    with pytest.raises(ValueError, match=r"no usable line, first .*train\.en:1"):
        data.load("multi30k", "train", manual_dir=raw)


def test_files_of_the_iwslt_organisers_lose_their_tags(tmp_path, capsys):
    for language, texts in (("en", ("Hi & bye .", "Yes .")), ("ro", ("Salut .", "Da ."))):
        tagged = f"<url>u</url>\n<title>t</title>\n{texts[0]}\n{texts[1]}\n"
        (tmp_path / f"train.tags.en-ro.{language}").write_text(tagged, "utf-8")
        escaped = texts[0].replace("&", "&amp;")
        for name in ("dev2010", "tst2010"):
            file = tmp_path / f"IWSLT14.TED.{name}.en-ro.{language}.xml"
            xml = f'<doc docid="1">\n<seg id="1"> {escaped} </seg>\n<seg id="2">{texts[1]}</seg>\n'
            file.write_text(f'{xml}<seg id="3"> cut\n</doc>\n', "utf-8")
    for split in ("train", "validation", "test"):
        source = data.load("iwslt14_en_ro", split, manual_dir=tmp_path)
        assert [x["text"] for x in source] == ["Hi & bye .", "Yes ."]
        assert source[1]["target"] == "Da ."
        cut = ["a segment without its end"] * (split != "train")
        assert [aside.reason for aside in source.quarantine] == cut
        assert source.info.substitute is None  # no official number of lines is published
    assert main(["data", "check", "iwslt14_en_ro", "--manual-dir", str(tmp_path)]) == 0
    assert "OK: every line" in capsys.readouterr().out


def test_kftt_is_read_out_of_its_archive(tmp_path):
    with tarfile.open(tmp_path / "kftt-data-1.0.tar.gz", "w:gz") as archive:
        for part in ("train", "dev", "test"):
            for language, text in (("en", "a temple\n"), ("ja", "寺\n")):
                entry = tarfile.TarInfo(f"kftt-data-1.0/data/tok/kyoto-{part}.{language}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
    (example,) = data.load("kftt", "validation", manual_dir=tmp_path)
    assert (example["text"], example["target"]) == ("a temple", "寺")
    assert len(data.load("kftt", "train", manual_dir=tmp_path)) == 1


NAMES = ["sick", "conll_srl", "ewt_trees", "multi30k"]


@pytest.mark.parametrize("name", NAMES)
def test_a_prepared_set_equals_the_raw_files(raw, tmp_path, name, capsys):
    bad = {
        "sick": ("sick/SICK_trial.txt", "no\ttab"),
        "conll_srl": ("srl/conll2012.dev.conll", "no columns"),
        "ewt_trees": ("treebank/ewt.dev.trees", "no tree"),
    }
    if name in bad:
        path = raw / bad[name][0]
        path.write_text(f"{path.read_text('utf-8').rstrip()}\n\n{bad[name][1]}\n", "utf-8")
    place = str(tmp_path / "tfds")
    assert main(["data", "prepare", name, "--manual-dir", str(raw), "--data-dir", place]) == 0
    for split in ("train", "validation", "test"):
        prepared = data.load(name, split, data_dir=place)
        assert_same_set(prepared, data.load(name, split, manual_dir=raw))
    for args in (["--manual-dir", str(raw)], ["--data-dir", place]):
        assert main(["data", "check", name, *args]) == 0
    assert "OK: every line that was read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "asked", "test"),
    [
        ("sick", ["sick_train.zip", "sick_trial.zip", "sick_test_annotated.zip"],
         "sick_test_annotated.zip/SICK_test_annotated.txt"),
        ("multi30k", [f"{part}.{end}.gz" for part in ("train", "val", "test_2016_flickr")
                      for end in ("en", "de")], "test_2016_flickr.en.gz"),
        ("kftt", ["kftt-data-1.0.tar.gz"],
         "kftt-data-1.0.tar.gz/kftt-data-1.0/data/tok/kyoto-test.en"),
        ("senteval_tree_depth", ["tree_depth.txt"], "tree_depth.txt"),
    ],
)  # fmt: skip
def test_a_download_asks_for_the_published_files(name, asked, test):
    files, urls = SETS[name].files, []
    found = files.download(lambda url: urls.append(url) or Path(url.removeprefix(files.url)))
    assert urls == [files.url + end for end in asked]
    assert list(found) == ["train", "validation", "test"]
    assert str(found["test"]) == test
