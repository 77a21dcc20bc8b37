"""Binary models of fastText: a tiny file, vectors of known and unknown words, and damaged files."""

import struct

import numpy as np
import pytest

from gatedjax import data
from gatedjax.data.text._embeddings import words_in
from gatedjax.data.text._fasttext import FastTextFile, hash_ngram, list_ngrams
from gatedjax.data.text._vocabulary import Vocabulary
from gatedjax.text import TextClassifier
from tests.text._own import TEXTS, options

WORDS, BUCKET, DIM = ["</s>", "film", "caf\u00e9"], 50, 3
MATRIX = np.arange((len(WORDS) + BUCKET) * DIM, dtype=np.float32).reshape(-1, DIM) / 7


def pack_model(
    *, version=12, model=1, shortest=2, longest=3, bucket=BUCKET, matrix=MATRIX, quantised=0,
    dim=DIM, magic=793712314, labels=("__label__x",)
):  # fmt: skip
    parts = [struct.pack("<2i", magic, version)]
    parts += [struct.pack("<12i", dim, 5, 5, 1, 5, 1, 2, model, bucket, shortest, longest, 100)]
    parts += [struct.pack("<d", 1e-4)]
    parts += [struct.pack("<3i2q", len(WORDS) + len(labels), len(WORDS), len(labels), 99, -1)]
    entries = [*((word, 0) for word in WORDS), *((label, 1) for label in labels)]
    parts += [word.encode() + b"\0" + struct.pack("<qb", 7, kind) for word, kind in entries]
    parts += [struct.pack("<b2q", quantised, *matrix.shape), matrix.astype("<f4").tobytes()]
    parts += [struct.pack("<b2q", 0, 1, dim), np.zeros(dim, "<f4").tobytes()]
    return b"".join(parts)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "vectors.bin"
    file.write_bytes(pack_model())
    return file


def list_slowly(word, shortest, longest):
    """All substrings of <word> of these lengths, except the single marks."""
    text = f"<{word}>"
    grams = {text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
    chosen = {gram for gram in grams if shortest <= len(gram) <= longest} - {"<", ">"}
    return sorted(
        text[i:j]
        for i in range(len(text))
        for j in range(i + 1, len(text) + 1)
        if text[i:j] in chosen
    )


@pytest.mark.parametrize("word", ["a", "film", "caf\u00e9", "\u597d\u770b", "\U0001f600x", ""])
@pytest.mark.parametrize(("shortest", "longest"), [(3, 6), (1, 2), (0, 3), (2, 0)])
def test_ngrams_are_the_substrings_with_marks(word, shortest, longest):
    ngrams = [ngram.decode() for ngram in list_ngrams(word.encode(), shortest, longest)]
    assert sorted(ngrams) == list_slowly(word, shortest, longest)


def hash_slowly(ngram):
    """FNV-1a with signed bytes, in the arithmetic of C."""
    with np.errstate(over="ignore"):
        value = np.uint32(2166136261)
        for byte in np.frombuffer(ngram, np.int8):
            value = np.uint32(value ^ np.uint32(np.int32(byte).view(np.uint32)))
            value = np.uint32(value * np.uint32(16777619))
    return int(value)


@pytest.mark.parametrize("ngram", [b"", b"a", b"foobar", "\u00e9".encode(), b"\xff\x80\x7f"])
def test_the_hash_extends_the_sign_of_bytes(ngram):
    assert hash_ngram(ngram) == hash_slowly(ngram)


def test_the_hash_of_ascii_is_the_published_fnv_1a():
    # The test vectors of the authors of FNV.
    assert hash_ngram(b"a") == 0xE40C292C
    assert hash_ngram(b"foobar") == 0xBF9CF968


def test_a_vector_is_the_mean_of_the_word_and_its_ngrams(path):
    model = FastTextFile(path)
    assert model.words == WORDS
    for word in ("film", "caf\u00e9", "films", "\u597d"):
        rows = [WORDS.index(word)] if word in WORDS else []
        rows += [len(WORDS) + hash_slowly(g.encode()) % BUCKET for g in list_slowly(word, 2, 3)]
        np.testing.assert_allclose(model.vector(word), MATRIX[rows].mean(0), rtol=1e-6)
    np.testing.assert_array_equal(model.vector("</s>"), MATRIX[0])


def test_a_model_without_ngrams_has_vectors_of_its_words_only(tmp_path):
    file = tmp_path / "v.bin"
    # Version 11 wrote the lengths of n-grams for classifiers that have none.
    for content in (
        pack_model(longest=0, matrix=MATRIX[: len(WORDS)]),
        pack_model(version=11, model=3, matrix=MATRIX[: len(WORDS)]),
    ):
        file.write_bytes(content)
        model = FastTextFile(file)
        np.testing.assert_array_equal(model.vector("film"), MATRIX[1])
        assert model.vector("films") is None


def test_load_embeddings_reads_the_model(path, tmp_path):
    vocabulary = Vocabulary(["film", "films"])
    loaded = data.load_embeddings(path, vocabulary, dim=DIM)
    assert loaded.found.tolist() == [False, False, True, True]
    model = FastTextFile(path)
    np.testing.assert_array_equal(loaded.matrix[3], model.vector("films"))
    assert not loaded.matrix[0].any()
    assert words_in(path, 2) == (DIM, WORDS[:2])
    with pytest.raises(ValueError, match="must have 4 values, got 3"):
        data.load_embeddings(path, vocabulary, dim=4)
    file = tmp_path / "words.bin"
    file.write_bytes(pack_model(longest=0, matrix=MATRIX[: len(WORDS)]))
    loaded = data.load_embeddings(file, vocabulary, dim=DIM, seed=3)
    expected = data.random_embeddings(vocabulary, DIM, seed=3)
    np.testing.assert_array_equal(loaded.matrix[[1, 3]], expected[[1, 3]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a model of fastText"),
        (b"3 2\nthe 0.1 0.2\n", "must be a model of fastText"),
        (pack_model(magic=1), "must be a model of fastText"),
        (pack_model(version=13), "version 11 or 12 .* got 13"),
        (pack_model(quantised=1), "must not be quantised"),
        (pack_model(dim=4), "rows of 3 numbers, and 53 of 4 are needed"),
        (pack_model(bucket=60), "the matrix has 53 rows"),
        (pack_model(bucket=-1), "damaged"),
        (pack_model(dim=0), "the width is 0"),
        (pack_model()[:20], "truncated"),
        (pack_model()[:100], "damaged|truncated"),
        (pack_model()[:400], "the matrix is not complete"),
    ],
)
def test_damaged_and_other_files_are_refused(tmp_path, content, message):
    file = tmp_path / "v.bin"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        FastTextFile(file)


def test_a_number_that_is_not_finite_is_refused(tmp_path):
    file = tmp_path / "v.bin"
    file.write_bytes(pack_model(matrix=np.full_like(MATRIX, np.nan)))
    with pytest.raises(ValueError, match="must be finite, got NaN or infinity for 'film'"):
        FastTextFile(file).vector("film")


@pytest.mark.slow
def test_a_classifier_is_trained_on_the_vectors(tmp_path):
    # Two steps on six numbers, with the shapes of the tests of the networks.
    file = tmp_path / "v.bin"
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(len(WORDS) + BUCKET, 6)).astype(np.float32)
    file.write_bytes(pack_model(dim=6, matrix=matrix))
    lines = []
    model = TextClassifier.train(
        TEXTS, **options("bilstm", vectors=file, num_steps=2), say=lines.append
    )
    assert "100.0% of theirs have a vector" in "\n".join(lines)
    assert model.predict(["a dull film"])[0] in ("good", "bad")
