"""`load`: names, splits, raw files, malformed lines, and the counts of the real sets."""

import collections
import tarfile
import zipfile

import numpy as np
import pytest

from experiments.ga_net.figures import count_texts
from gatedjax import data
from gatedjax.data.sets import _ag_news, _declaration, _sst, _trec

TREE = "(3 (2 (2 A) (3 good)) (2 (2 film) (2 .)))"
NEUTRAL = "(2 (2 A) (2 film))"


@pytest.fixture
def sst_dir(tmp_path):
    trees = tmp_path / "sst" / "trees"
    trees.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        (trees / f"{name}.txt").write_text(f"{TREE}\n{NEUTRAL}\n", encoding="utf-8")
    return tmp_path


def test_sst_reads_words_labels_and_phrases_off_the_tree(sst_dir):
    fine = data.load("sst1", "train", manual_dir=sst_dir)
    assert fine[0] == {
        "tokens": ("A", "good", "film", "."),
        "label": 3,
        "example_id": 0,
        "tree": TREE,
    }
    assert fine.info.class_names[3] == "positive"
    phrases = data.load("sst", "train", manual_dir=sst_dir, level="phrase")
    got = [(" ".join(x["tokens"]), x["label"], x["tree"]) for x in phrases]
    assert got[:4] == [
        ("A good film .", 3, TREE),
        ("A good", 2, "(2 (2 A) (3 good))"),
        ("A", 2, "(2 A)"),
        ("good", 3, "(3 good)"),
    ]
    assert len(phrases) == 7 + 3
    assert len({x["example_id"] for x in phrases}) == len(phrases)


def test_binary_sst_skips_neutral_and_says_so(sst_dir):
    source = data.load("sst2", "validation", manual_dir=sst_dir)
    assert [x["label"] for x in source] == [1]
    assert source.info.class_names == ("negative", "positive")
    assert source.report.skipped == {"neutral": 1}
    assert source.report.reconciles
    assert source[0]["example_id"] == 100_000_000


def test_escaped_words_are_restored():
    escaped = ["-LRB-", r"and\/or", r"\*", "-RRB-", "-LCB-", "-RCB-", "-LSB-", "-RSB-"]
    _, (_, words, _) = _sst.parse(f"(2 {' '.join(f'(2 {word})' for word in escaped)})")
    assert words == ("(", "and/or", "*", *"){}[]")


def test_a_no_break_space_is_part_of_a_word():
    _, (_, words, _) = _sst.parse("(2 (2 9\u00a01\\/2) (2 weeks))")
    assert words == ("9\u00a01/2", "weeks")


def test_a_question_may_be_empty_or_stand_behind_a_tab():
    assert _trec.parse("NUM:count\tHow many ?") == (5, ("count", "How many ?"))
    assert _trec.parse("LOC:city ") == (4, ("city", ""))


@pytest.mark.parametrize("folder", ["", "sst", "sst/trees"])
def test_manual_dir_may_be_the_folder_of_the_set_or_its_parent(sst_dir, folder):
    assert len(data.load("sst", "test", manual_dir=sst_dir / folder)) == 2


def test_the_sst_archive_is_read_as_it_is_downloaded(sst_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("zip")
    with zipfile.ZipFile(folder / "trainDevTestTrees_PTB.zip", "w") as archive:
        archive.write(sst_dir / "sst" / "trees" / "train.txt", "trees/train.txt")
    packed = data.load("sst", "train", manual_dir=folder)
    assert list(packed) == list(data.load("sst", "train", manual_dir=sst_dir))
    with pytest.raises(ValueError, match=r"must contain trees/dev.txt"):
        data.load("sst", "validation", manual_dir=folder)
    (folder / "trainDevTestTrees_PTB.zip").write_bytes(b"PK\3\4 cut")
    with pytest.raises(ValueError, match="damaged zip"):
        data.load("sst", "train", manual_dir=folder)


def test_a_file_cut_short_is_named_as_a_substitute_and_refused_by_strict(sst_dir):
    source = data.load("sst", "train", manual_dir=sst_dir)
    assert source.info.substitute == "2 lines where the official file has 8,544"
    with pytest.raises(ValueError, match="2 lines where"):
        data.load("sst", "train", manual_dir=sst_dir, strict=True)


def test_ag_news_rows_are_cleaned(tmp_path):
    rows = [
        '"3","Oil up","Haiti #39;s oil costs  #36;10\\a barrel &lt;A HREF=""x""&gt;AP&lt;/A&gt;"',
        '"1","",""',
    ]
    (tmp_path / "test.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    source = data.load("ag_news", "test", manual_dir=tmp_path)
    words = ["Oil", "up", "Haiti", "'s", "oil", "costs", "$", "10", "a", "barrel", "AP"]
    assert source[0]["tokens"] == tuple(words)
    assert source[0]["label"] == 2
    assert source[1]["tokens"] == ()
    assert _ag_news.clean("AT amp;T", " apos;yes quot;") == "AT&T 'yes\""
    far = f"a <{'b' * 201}> c"
    assert _ag_news.clean(far, "<b>") == far


@pytest.fixture
def imdb_dir(tmp_path):
    for part in ("train", "test"):
        for label in ("neg", "pos"):
            folder = tmp_path / "aclImdb" / part / label
            folder.mkdir(parents=True)
            for i in range(10):
                (folder / f"{i}_1.txt").write_text(f"It's {label} {part} {i}.<br />", "utf-8-sig")
    (tmp_path / "aclImdb" / "test" / "pos" / "3_1.txt").write_bytes(b"caf\xe9")
    return tmp_path


def test_imdb_is_the_same_from_the_folder_and_the_archive(imdb_dir, tmp_path_factory):
    archive = tmp_path_factory.mktemp("archive") / "imdb" / "aclImdb_v1.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(imdb_dir / "aclImdb", "aclImdb")
    for split, size in (("train_full", 20), ("train", 18), ("validation", 2), ("test", 19)):
        folder = data.load("imdb_reviews", split, manual_dir=imdb_dir)
        packed = data.load("imdb", split, manual_dir=archive.parent.parent)
        assert len(folder) == size
        assert list(folder) == list(packed)
    assert folder[0]["tokens"] == ("It", "'s", "neg", "test", "0", ".")
    assert folder[0]["label"] == 0
    assert "not utf-8" in folder.quarantine[0].reason
    assert folder.report.reconciles
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"tar.gz: truncated"):
        data.load("imdb", "train", manual_dir=archive.parent)


def test_the_held_out_split_is_a_fixed_stratified_tenth(tmp_path):
    labels = ["NUM"] * 100 + ["LOC"] * 50 + ["HUM"] * 10
    text = "".join(f"{label}:x What is {i} ?\n" for i, label in enumerate(labels))
    (tmp_path / "train_5500.label").write_text(text, "utf-8")
    train, held, full = (
        data.load("trec", split, manual_dir=tmp_path)
        for split in ("train", "validation", "train_full")
    )
    ids = [{x["example_id"] for x in source} for source in (train, held, full)]
    assert ids[0] | ids[1] == ids[2] == set(range(160))
    assert not ids[0] & ids[1]
    counts = collections.Counter(train.info.class_names[x["label"]] for x in held)
    assert counts == {"NUM": 10, "LOC": 5, "HUM": 1}
    again = data.load("trec", "validation", manual_dir=tmp_path)
    assert list(again) == list(held)
    assert train.report.used == len(train) + len(held)
    for split, size in (("train", 120), ("validation", 40)):
        assert len(data.load("trec", split, manual_dir=tmp_path, held_out=0.25)) == size
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"held_out must be in \(0, 1\)"):
            data.load("trec", "train", manual_dir=tmp_path, held_out=share)


@pytest.mark.parametrize("fraction", [0.1, 0.25])
def test_stratified_split_shares_every_class_to_the_nearest_example(fraction, np_rng):
    labels = np_rng.integers(0, 5, 237)
    kept, held = _declaration.stratified_split(labels, fraction, seed=3)
    assert sorted([*kept, *held]) == list(range(237))
    assert len(held) == round(237 * fraction)
    share = np.bincount(labels[held], minlength=5) - fraction * np.bincount(labels, minlength=5)
    assert np.abs(share).max() < 1
    with pytest.raises(ValueError, match="fraction"):
        _declaration.stratified_split(labels, 1.0)


def test_statistics_and_overlap_count_by_hand(sst_dir):
    source = data.load("sst1", "test", manual_dir=sst_dir)
    got = count_texts(source)
    assert (got["n"], got["mean_length"], got["max_length"], got["vocabulary_size"]) == (2, 3, 4, 4)
    assert got["class_counts"]["positive"] == got["class_counts"]["neutral"] == 1
    other = data.Source([{"tokens": ("a", "FILM"), "label": 0, "example_id": 0}], source.info)
    assert data.overlap(source, other) == 1
    assert data.overlap(other, source) == 1


def test_a_source_is_a_sequence(sst_dir):
    source = data.load("sst", "test", manual_dir=sst_dir)
    assert source[-1] == source[1]
    assert source[:1] == [source[0]]
    with pytest.raises(IndexError):
        source[2]
