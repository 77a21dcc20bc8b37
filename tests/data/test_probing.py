"""Probing tasks and word reordering: formats, malformed lines, generators."""

import gzip

import numpy as np
import pytest

from experiments.ssan.sentences import restore_word
from gatedjax import data
from gatedjax._commands._data_check import check
from gatedjax.data import _prepared
from gatedjax.data.files._lines import FileRow
from gatedjax.data.sets._probing import classes_of
from gatedjax.data.sets._reordering import move_word
from tests.data._same import assert_same_set

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

LINES = [
    "tr\t7\tA film that works .",
    "tr\t10\tIt does .",
    "tr\t8\tYes",
    "va\t10\tA short one .",
    "te\t7\tAnother , at last .",
    "te\t8\tThe end .",
]
X = ["b a c d e f", "a b c d e f", "a c b d e f", "a b c d f e"]
Y = ["0 2", "0 3", "1 3", "3 0"]


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "probing").mkdir()
    (tmp_path / "wrd").mkdir()
    packed = gzip.compress("".join(f"{line}\n" for line in LINES).encode())
    (tmp_path / "probing" / "tree_depth.txt.gz").write_bytes(packed)
    for part in ("va", "te"):
        for kind, lines in (("x", X), ("y", Y)):
            (tmp_path / "wrd" / f"word_order.txt.{part}.{kind}").write_text("\n".join(lines) + "\n")
    return tmp_path


def load(raw, split, **options):
    return data.load("senteval_probing", split, task="tree_depth", manual_dir=raw, **options)


def test_a_probe_has_the_labels_of_its_training_part_in_their_order(raw):
    parts = {split: load(raw, split) for split in ("train", "validation", "test")}
    assert [len(part) for part in parts.values()] == [3, 1, 2]
    for part in parts.values():
        assert part.info.class_names == ("7", "8", "10")
        assert part.info.name == "senteval_tree_depth"
    assert [e["label"] for e in parts["train"]] == [0, 2, 1]
    assert parts["test"][0]["tokens"] == ("Another", ",", "at", "last", ".")
    assert parts["validation"][0]["example_id"] == 100_000_000
    assert "3 lines where the official file has 100,000" in parts["train"].info.substitute
    names = [FileRow(0, 0, (name, "")) for name in ("x", "10", "9")]
    assert (classes_of([]), classes_of(names)) == ((), ("9", "10", "x"))
    same = data.load("senteval_tree_depth", "test", manual_dir=raw)
    assert [e["label"] for e in same] == [e["label"] for e in parts["test"]]


def test_the_check_names_the_lines_of_the_file_of_all_parts(tmp_path):
    marks = ["tr", "va", "te", "tr", "te", "va"]
    lines = [f"{mark}\tO\tsentence {number} ." for number, mark in enumerate(marks, 1)]
    (tmp_path / "bigram_shift.txt").write_text("\n".join(lines) + "\n")
    texts = check("senteval_bigram_shift", manual_dir=tmp_path).texts
    found = {
        split: [int(text.place.split(":")[-1]) for text in part] for split, part in texts.items()
    }
    assert found == {"train": [1, 4], "validation": [2, 6], "test": [3, 5]}


def test_a_label_that_no_training_line_has_is_named(raw):
    path = raw / "probing" / "tree_depth.txt.gz"
    path.write_bytes(gzip.compress("\n".join([*LINES, "te\t99\tToo deep ."]).encode()))
    with pytest.raises(ValueError, match=r"label of example 200000002 .* got '99'"):
        load(raw, "test")


@pytest.mark.parametrize("name", ["senteval_tree_depth", "word_reordering"])
def test_prepared_sets_are_the_raw_ones(name, raw, tmp_path):
    prepared = tmp_path / "tfds"
    _prepared.prepare(name, data_dir=prepared, manual_dir=raw)
    for split in ("validation", "test"):
        got = data.load(name, split, data_dir=prepared)
        assert_same_set(got, data.load(name, split, manual_dir=raw))


def test_published_reorderings_are_read_with_their_labels(raw):
    test = data.load("word_reordering", "test", manual_dir=raw)
    assert test[0] == {
        "tokens": ("b", "a", "c", "d", "e", "f"), "label": 0, "example_id": 200_000_000,
        "insert": 0, "original": 2,
    }  # fmt: skip
    assert len(test) == 4
    with pytest.raises(FileNotFoundError, match=r"word_order\.txt\.tr"):
        data.load("word_reordering", "train", manual_dir=raw)


def test_reorderings_that_cannot_be_are_set_aside(raw):
    path = raw / "wrd" / "word_order.txt.te.y"
    path.write_text("6 0\n0 1\n2\n3 0\n")
    test = data.load("word_reordering", "test", manual_dir=raw)
    assert [e["example_id"] - 200_000_000 for e in test] == [3]
    assert [(q.line, q.reason.split()[0]) for q in test.quarantine] == [
        (1, "insert"), (2, "insert"), (3, "'2'"),
    ]  # fmt: skip
    assert "nothing was moved" in test.quarantine[1].reason
    path.write_text("0 2\n")
    with pytest.raises(ValueError, match=r"got 4"):
        data.load("word_reordering", "test", manual_dir=raw)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"word_order\.txt\.te\.y next to it"):
        data.load("word_reordering", "test", manual_dir=raw)


def test_every_move_is_undone_by_its_labels():
    words = tuple("abcdefg")
    for out in range(6):
        for into in range(6):
            if out == into:
                with pytest.raises(ValueError, match="different numbers"):
                    move_word(words, out, into)
                continue
            moved, insert, original = move_word(words, out, into)
            # the labels by what they mean
            assert moved[insert] == words[out]
            assert moved[original] == words[out + 1]
            assert original not in (insert, insert + 1)
            assert restore_word(moved, insert, original) == words
    with pytest.raises(ValueError, match="different numbers"):
        move_word(words, 6, 0)


def test_generated_reorderings_restore_their_sentences_and_move_every_way():
    sentences = [tuple(f"w{i}{j}" for j in range(n)) for i, n in enumerate((5, 6, 20, 49, 50) * 20)]
    named = {"name": "moved", "split": "test", "base": 100}
    made = data.word_reordering(sentences, seed=3, copies=4, **named)
    used = [s for s in sentences if 6 <= len(s) <= 49]
    assert len(made) == 4 * len(used)
    restored = [restore_word(e["tokens"], e["insert"], e["original"]) for e in made]
    assert restored == [s for s in used for _ in range(4)]
    assert (made.info.name, made.info.split) == ("moved", "test")
    # the first sentence is left out
    assert [e["example_id"] for e in made][:5] == [104, 105, 106, 107, 108]
    assert len({e["example_id"] for e in made}) == len(made)
    shift = [e["insert"] - e["original"] for e in made]
    assert min(shift) < -5
    assert max(shift) > 5
    again = data.word_reordering(sentences, seed=3, copies=4, base=100)
    assert list(again) == list(made)
    assert list(data.word_reordering(sentences, seed=4, copies=4, base=100)) != list(made)
    with pytest.raises(ValueError, match="copies"):
        data.word_reordering(sentences, copies=0)


def test_drawn_moves_are_uniform():
    made = data.word_reordering([tuple("abcdef")] * 4_000)
    pairs = {}
    for e in made:
        pairs[e["insert"], e["original"]] = pairs.get((e["insert"], e["original"]), 0) + 1
    # 20 moves, 200 expected of each, standard deviation 13.8
    assert len(pairs) == 20
    assert all(130 < n < 270 for n in pairs.values())


def test_inverted_bigrams_differ_in_two_neighbours_that_may_be_swapped():
    rng = np.random.default_rng(0)
    pool = ["the", "The", "film", ",", ".", "works", "well"]
    sentences = [[pool[i] for i in rng.integers(len(pool), size=9)] for _ in range(600)]
    made = data.bigram_shift(sentences, seed=1, name="shifted", split="test", base=100)
    assert made.info == data.SourceInfo("shifted", "test", ("I", "O"))
    assert [e["example_id"] for e in made] == list(range(100, 700))
    for words, example in zip(sentences, made, strict=True):
        changed = [i for i, w in enumerate(words) if example["tokens"][i] != w]
        if example["label"] == 1:
            assert not changed
            continue
        i = example["position"]
        assert changed == [i, i + 1]
        assert i > 0
        assert example["tokens"][i : i + 2] == (words[i + 1], words[i])
        assert {words[i], words[i + 1]}.isdisjoint({",", "."})
        assert words[i].lower() != words[i + 1].lower()
    share = np.mean([e["label"] == 0 for e in made])
    assert 0.4 < share < 0.55
    short = data.bigram_shift([[], ["One"], ["Two", "words"], ["a", ",", "b", "."]] * 20)
    assert all(e["label"] == 1 for e in short)
