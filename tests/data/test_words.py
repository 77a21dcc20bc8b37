"""Tokens, vocabulary and word vectors."""

import bz2
import doctest
import gzip
import lzma
import unicodedata
import zipfile

import numpy as np
import pytest

from gatedjax import data
from gatedjax.data.batches import _encode
from gatedjax.data.sets import _all, _declaration, _reordering
from gatedjax.data.text import _fasttext, _tokenize, _units
from gatedjax.data.text._embeddings import words_in

INFO = data.SourceInfo("toy", "train", ("a", "b"))


def toy(*texts):
    return data.Source(
        [{"tokens": tuple(t.split()), "label": 0, "example_id": i} for i, t in enumerate(texts)],
        INFO,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't go.<br /><br/>It can’t be", "Do n't go . It ca n't be"),
        ("the U.S. won 1,000.50 (10:30)", "the U.S. won 1,000.50 ( 10:30 )"),
        ("wait.... what--ever", "wait ... what -- ever"),
        ("'quoted' they're I'd", "' quoted ' they 're I 'd"),
        ("naïve\tcafé\nsnake_case 90s", "naïve café snake _ case 90s"),
        ("", ""),
        ("  \n ", ""),
    ],
)
def test_tokenize_splits_as_glove_counts(text, words):
    assert data.tokenize(text) == tuple(words.split())
    assert data.tokenize(text, marks=True) == tuple(words.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("“Don’t,” said XXXXX (to 'em):", "`` Do n't , '' said @placeholder ( to ` em ) :"),
        ('"It--Mr. Fox\'s--cost $1,000.50."...', "`` It -- Mr. Fox 's -- cost $ 1,000.50 . '' ..."),
        ("XXXXXs well-made", "XXXXXs well-made"),
    ],
)
def test_books_are_split_like_the_treebank(text, words):
    assert _tokenize.treebank_tokens(text) == words.split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("यह फ़िल्म अच्छी है।", "यह फ़िल्म अच्छी है ।"),  # vowel signs, virama, nukta
        ("un cafe\u0301 bru\u0302le\u0301!", "un caf\u00e9 br\u00fbl\u00e9 !"),
        ("می\u200cخواهم خوب", "می\u200cخواهم خوب"),  # a joiner inside a word
        ("❤\ufe0f so good👍🏽", "❤\ufe0f so good 👍 🏽"),
        ("\u0301 alone", "\u0301 alone"),
    ],
)
def test_marks_stay_with_the_word_that_they_stand_in(text, words):
    normal = unicodedata.normalize("NFC", words)
    assert data.tokenize(text, marks=True) == tuple(normal.split(" "))
    again = data.tokenize(unicodedata.normalize("NFD", text), marks=True)
    assert again == tuple(normal.split(" "))


INTERNAL = (_all, _declaration, _encode, _fasttext, _reordering, _tokenize, _units)


@pytest.mark.parametrize("module", INTERNAL)
def test_examples_of_functions_that_are_not_exported_run(module):
    found = doctest.testmod(module)
    assert found.failed == 0 < found.attempted


def test_vocabulary_orders_by_count_then_word_and_folds_case():
    vocabulary = data.Vocabulary.build([toy("The b d", "the B c"), toy("a THE <pad> <unk>")])
    assert vocabulary.words == ("<pad>", "<unk>", "the", "b", "a", "c", "d")
    assert vocabulary.encode(("THE", "zzz", "c", "<pad>", "<unk>")) == [2, 1, 5, 1, 1]
    assert vocabulary.decode([2, 0, 1]) == ("the", "<pad>", "<unk>")
    assert "The" in vocabulary
    assert len(vocabulary) == 7


def test_vocabulary_limits_and_case():
    source = toy("A a b b b c")
    assert data.Vocabulary.build([source], min_count=2).words[2:] == ("b", "a")
    assert data.Vocabulary.build([source], max_size=3).words[2:] == ("b",)
    kept = data.Vocabulary.build([source], lowercase=False)
    assert kept.words[2:] == ("b", "A", "a", "c")
    assert kept.encode(("A", "C")) == [3, 1]
    for bad in ({"min_count": 0}, {"max_size": 1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            data.Vocabulary.build([source], **bad)
    with pytest.raises(ValueError, match="more than once"):
        data.Vocabulary(["a", "a"])


def test_vocabulary_survives_its_file_and_the_digest_tells_two_apart(tmp_path):
    vocabulary = data.Vocabulary.build([toy("é b b")])
    path = tmp_path / "new" / "vocabulary.json"
    vocabulary.save(path)
    again = data.Vocabulary.load(path)
    assert again.words == vocabulary.words
    assert again.digest() == vocabulary.digest()
    assert len(again.digest()) == 64
    assert list(path.parent.iterdir()) == [path]
    assert data.Vocabulary(["b", "é"]).digest() == vocabulary.digest()
    assert data.Vocabulary(["é", "b"]).digest() != vocabulary.digest()
    assert data.Vocabulary(["b", "é"], lowercase=False).digest() != vocabulary.digest()


GOOD = b"the 1 2 3\nfilm -0.5 0.25 1e-3\nthe 9 9 9\n"


@pytest.fixture
def vocabulary():
    return data.Vocabulary(["film", "zebra", "the"])


@pytest.mark.parametrize("kind", ["plain", "gz", "bom", "crlf"])
def test_vectors_come_from_the_file_and_the_rest_from_the_word(tmp_path, vocabulary, kind):
    path = tmp_path / ("v.txt.gz" if kind == "gz" else "v.txt")
    raw = {"gz": gzip.compress(GOOD), "bom": b"\xef\xbb\xbf" + GOOD}.get(kind, GOOD)
    path.write_bytes(GOOD.replace(b"\n", b"\r\n") if kind == "crlf" else raw)
    got = data.load_embeddings(path, vocabulary, dim=3)
    np.testing.assert_array_equal(got.matrix[4], [1, 2, 3])
    np.testing.assert_array_equal(got.matrix[2], np.array([-0.5, 0.25, 1e-3], np.float32))
    np.testing.assert_array_equal(got.matrix[0], 0)
    assert got.found.tolist() == [False, False, True, False, True]
    assert got.coverage == pytest.approx(2 / 3)
    assert got.matrix.dtype == np.float32
    oov = data.random_embeddings(vocabulary, 3)
    np.testing.assert_array_equal(got.matrix[[1, 3]], oov[[1, 3]])


def test_made_vectors_depend_on_seed_and_word_only():
    first = data.random_embeddings(data.Vocabulary(["a", "b", "c"]), 50, 1)
    second = data.random_embeddings(data.Vocabulary(["c", "a"]), 50, 1)
    np.testing.assert_array_equal(first[[2, 4, 1]], second[[3, 2, 1]])
    assert not np.array_equal(
        first, data.random_embeddings(data.Vocabulary(["a", "b", "c"]), 50, 2)
    )
    many = data.random_embeddings(data.Vocabulary([str(i) for i in range(2000)]), 20)[1:]
    assert np.abs(many).max() <= 0.25
    # a uniform variable on [-1/4, 1/4]: mean 0, variance 1/48
    assert abs(many.mean()) < 3e-3
    assert many.var() == pytest.approx(1 / 48, rel=0.03)
    np.testing.assert_array_equal(first[0], 0)


@pytest.mark.parametrize("first", ["2 3", "2 3 ", "2\t3", "\n2 3"])
def test_the_header_of_fasttext_and_word2vec_is_no_word(tmp_path, vocabulary, first):
    path = tmp_path / "v.vec"
    path.write_text(f"{first}\nthe 1 2 3 \nNew York 4 5 6 \n")
    got = data.load_embeddings(path, vocabulary, dim=3)
    np.testing.assert_array_equal(got.matrix[4], [1, 2, 3])
    assert words_in(path, 9) == (3, ["the"])


def test_the_width_is_that_of_the_lines_whose_words_have_no_space(tmp_path, vocabulary):
    path = tmp_path / "v.txt"
    path.write_text("New York 1 2 3\nat 7 1 2 3\nthe 1 2 3\nfilm 4 5 6\n. . . 1 2 3\n")
    assert words_in(path, 9) == (3, ["the", "film"])
    # Two widths are equally frequent.
    path.write_text("the 1 2 3\nat 7 1 2 3\n")
    assert words_in(path, 9) == (3, ["the"])
    path.write_text("New York 1 2 3\nthe 1 2 3\n")
    assert words_in(path, 9) == (3, ["the"])
    many = [f"w{i}" for i in range(150)]
    path.write_text("".join(f"{word} 1 2 3\n" for word in many))
    assert words_in(path, 120) == (3, many[:120])
    path.write_text("New York 1 2 3\nthe 1 2 3\n")
    np.testing.assert_array_equal(
        data.load_embeddings(path, vocabulary, dim=3).matrix[4], [1, 2, 3]
    )


@pytest.mark.parametrize("header", ["word a b c", "2 3 fasttext", "{}"])
def test_another_header_is_refused_by_its_line(tmp_path, vocabulary, header):
    path = tmp_path / "v.vec"
    path.write_text(f"{header}\nthe 1 2 3\nfilm 1 2 3\na 1 2 3\n")
    assert words_in(path, 9)[0] == 3
    with pytest.raises(ValueError, match="line 1: "):
        data.load_embeddings(path, vocabulary, dim=3)


@pytest.mark.parametrize("kind", ["xz", "bz2", "zip"])
def test_packed_vectors_are_unpacked(tmp_path, vocabulary, kind):
    path = tmp_path / f"v.txt.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("v.txt", GOOD)
    else:
        path.write_bytes({"xz": lzma, "bz2": bz2}[kind].compress(GOOD))
    got = data.load_embeddings(path, vocabulary, dim=3)
    np.testing.assert_array_equal(got.matrix[4], [1, 2, 3])
    assert words_in(path, 9) == (3, ["the", "film", "the"])
