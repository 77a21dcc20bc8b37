"""Pretrained vectors in a lexicon: loops over texts, the promise, and the sources of vectors."""

import dataclasses
import gzip
import itertools
import pickle
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from gatedjax.data.text._vocabulary import SPECIALS, Vocabulary
from gatedjax.lexicon import (
    ClassHead,
    LabelHead,
    OrdinalHead,
    RealHead,
    fit_lexicon,
    fit_weights,
)
from gatedjax.lexicon._vectors import Pieces, Vectors, check_source, embed_words, read_vectors
from tests.data.test_fasttext import WORDS as FASTTEXT_WORDS
from tests.data.test_fasttext import pack_model
from tests.lexicon.test_lexicon import LABELS, TEXTS, naive_counts

RNG = np.random.default_rng(0)
TYPES = list(dict.fromkeys(itertools.chain.from_iterable(TEXTS)))
# One word of the texts has no vector, and two words are in no training text.
NAMES = (*(word for word in TYPES if word != "slow"), "gloomy", "sunny")
VECTORS = Vectors(Pieces(words=NAMES), RNG.normal(size=(len(NAMES), 5)).astype(np.float32))
QUERIES = [
    ["a", "gloomy", "and", "dull", "dull", "film"],
    ["sunny", "slow"],
    ["fine", "#gloomy", "@sunny", "fine", "xqx"],
    ["xqx"],
    [],
    *TEXTS[:20],
]


def naive_vector(word):
    """The vector of a word, or None."""
    name = word.lstrip("#@") or word
    return VECTORS.matrix[NAMES.index(name)].astype(float) if name in NAMES else None


def naive_mean():
    rows = [naive_vector(word) for words in TEXTS for word in words]
    return np.mean([row for row in rows if row is not None], 0)


def naive_row(lexicon, words):
    """The features of a text and the sum of its vectors, both divided by the length of the first,
    one number after the other."""
    counts = naive_counts(lexicon, words)
    row = np.zeros(len(lexicon.scale))
    for column, count in counts.items():
        row[column] = float(lexicon.scale[column]) * (1 + np.log(count))
    length = np.sqrt((row**2).sum()) or 1.0
    total, mean = np.zeros(5), naive_mean()
    for word in dict.fromkeys(words):
        if (vector := naive_vector(word)) is not None:
            total += vector - mean
    return row / length, total / length


def naive_square(lexicon, words):
    """|f|^2 of the features of words, pairs and letters."""
    counts = naive_counts(lexicon, words)
    return sum((float(lexicon.scale[c]) * (1 + np.log(n))) ** 2 for c, n in counts.items())


def naive_score(lexicon, words):
    """W f / |f| plus the mean weights of the pieces of each different word / |f|."""
    row, _ = naive_row(lexicon, words)
    square = naive_square(lexicon, words)
    score = row @ lexicon.weights.astype(float)
    for word in dict.fromkeys(words):
        name = word.lstrip("#@") or word
        if name in lexicon.pieces.words:
            part = lexicon.piece_weights[lexicon.pieces.words.index(name)]
            score = score + part.astype(float) / np.sqrt(square)
    return score


def lexicons(shares=(1.0, 0.5), vectors=VECTORS):
    return list(fit_lexicon(TEXTS, LABELS, 2, shares, vectors=vectors))


@pytest.mark.parametrize("number", [0, 1])
def test_logits_are_those_of_a_loop_over_words(number):
    lexicon = lexicons()[number]
    reading = lexicon.read(QUERIES)
    assert np.concatenate(reading.is_read[5:]).all() == (number == 0)
    for words, is_read, is_prior, logits in zip(
        QUERIES, reading.is_read, reading.is_prior, reading.logits, strict=True
    ):
        if is_prior:
            continue
        score = naive_score(lexicon, list(itertools.compress(words, is_read)))
        expected = lexicon.head.add_bias(score[None], lexicon.bias.astype(float))[0]
        np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)


# Below 500 texts the vectors have on average the length of the other features, then half of it.
@pytest.mark.slow
@pytest.mark.parametrize(("copies", "length"), [(1, 1.0), (7, 0.5)])
def test_the_fit_is_logistic_regression_on_the_rows_of_a_loop(copies, length):
    # A last word without a vector changes no mean over the vectors of the words.
    texts = [[*words, f"end{n % 7}"] for n, words in enumerate(TEXTS * copies)]
    labels = np.tile(LABELS, copies)
    (lexicon,) = fit_lexicon(texts, labels, 2, [1.0], vectors=VECTORS)
    rows, sums = map(np.array, zip(*(naive_row(lexicon, words) for words in texts), strict=True))
    sums *= length / np.sqrt((sums**2).sum(1).mean())
    features, head = np.concatenate([rows, sums], 1), ClassHead(2)
    weights, bias = fit_weights(features, labels, 2, head.inverse_penalty, head=head)
    expected = head.add_bias(features @ weights, bias)
    np.testing.assert_allclose(lexicon.read(texts).logits, expected, rtol=0.01, atol=0.01)
    without = next(fit_lexicon(texts, labels, 2, [1.0]))
    assert np.abs(without.read(texts).logits - expected).max() > 0.05


@pytest.mark.slow
def test_removing_unread_words_changes_no_bit_in_any_batch():
    lexicon = lexicons([0.4])[0]
    random = np.random.default_rng(1)
    words = [*TYPES, "gloomy", "sunny", "#gloomy", "@sunny", "xqx", "dulls"]
    texts = [random.choice(words, random.integers(1, 12)).tolist() for _ in range(300)]
    reading = lexicon.read(texts)
    assert 0.1 < np.concatenate(reading.is_read).mean() < 0.9
    kept = [
        list(itertools.compress(text, read))
        for text, read in zip(texts, reading.is_read, strict=True)
    ]
    # Another process reads the words in another order, so that their numbers differ.
    fresh = pickle.loads(pickle.dumps(lexicon))
    again = fresh.read(kept[::-1])
    one_by_one = [fresh.read([text]).logits[0] for text in kept]
    has_words = [bool(text) for text in kept]
    assert (again.logits[::-1] == reading.logits)[has_words].all()
    assert (np.array(one_by_one) == reading.logits)[has_words].all()


HEADS = {
    "classes": (ClassHead(3), np.arange(len(TEXTS)) % 3),
    "two classes": (ClassHead(2), LABELS),
    "labels": (LabelHead(2), np.stack([LABELS, np.arange(len(TEXTS)) % 2], 1).astype(bool)),
    "numbers": (RealHead(0.0, 1.0), LABELS * 2.0 + np.arange(len(TEXTS)) / 99),
    "grades": (OrdinalHead(3), np.arange(len(TEXTS)) % 3),
}


@pytest.mark.parametrize("name", HEADS)
def test_parts_sum_to_the_logits(name):
    head, targets = HEADS[name]
    for lexicon in fit_lexicon(TEXTS, targets, 0, [1.0, 0.5], head=head, vectors=VECTORS):
        lexicon = dataclasses.replace(lexicon, temperatures=(1.5, 1.2, 1.1, 1.4))
        assert np.abs(lexicon.piece_weights).max() > 0
        for words, logits in zip(QUERIES, lexicon.read(QUERIES).logits, strict=True):
            parts = lexicon.parts(words)
            total = parts.bias + parts.words.sum(0) + parts.pairs.sum(0)
            np.testing.assert_allclose(total, logits, rtol=1e-9, atol=1e-9)


def test_the_part_of_an_unknown_word_is_divided_among_its_places():
    (lexicon,) = lexicons([1.0])
    more = dataclasses.replace(lexicon, pieces=Pieces(), piece_weights=None)
    words = ["film", "sunny", "sunny"]
    with_vector, without = lexicon.parts(words), more.parts(words)
    square = naive_square(lexicon, words)
    weight = lexicon.piece_weights[NAMES.index("sunny")].astype(float)
    expected = lexicon.head.expand(weight[None])[0] / np.sqrt(square) / 2
    for place in (1, 2):
        difference = with_vector.words[place] - without.words[place]
        np.testing.assert_allclose(difference, expected, rtol=1e-9)


def test_the_list_of_words_has_their_vectors():
    (lexicon,) = lexicons([1.0])
    weights = lexicon.head.centre(lexicon.piece_weights.astype(float))
    more = dataclasses.replace(lexicon, pieces=Pieces(), piece_weights=None)
    for word, difference in zip(
        lexicon.words, lexicon.word_parts() - more.word_parts(), strict=False
    ):
        expected = weights[NAMES.index(word)] if word in NAMES else 0 * weights[0]
        np.testing.assert_allclose(difference, expected, atol=1e-12)


@pytest.mark.parametrize(("weight", "is_read"), [(1e3, True), (0, False)])
def test_a_vector_may_decide_whether_an_unknown_word_is_read(weight, is_read):
    lexicon = lexicons([0.3])[0]
    weights = lexicon.piece_weights.copy()
    weights[NAMES.index("sunny")] = weight
    lexicon = dataclasses.replace(lexicon, piece_weights=weights, threshold=lexicon.threshold + 1)
    known = next(itertools.compress(lexicon.words, lexicon.is_read))
    assert lexicon.read([[known, "sunny"]]).is_read[0].tolist() == [True, is_read]


def write_text(path, header=False, names=NAMES):
    lines = [
        f"{name} {' '.join(map(repr, row.tolist()))}"
        for name, row in zip(names, VECTORS.matrix, strict=True)
    ]
    head = [f"{len(lines)} 5"] if header else []
    content = "\n".join([*head, *lines, ""]).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize(
    ("name", "header"), [("a.vec", True), ("a.txt", False), ("a.vec.gz", True)]
)
def test_text_files_give_the_vectors_of_their_words(tmp_path, name, header):
    vectors = read_vectors(write_text(tmp_path / name, header), [*TYPES, "#gloomy", "nowhere"])
    assert set(vectors.pieces.words) == set(NAMES)
    for word in NAMES:
        row = vectors.matrix[vectors.pieces.words.index(word)]
        np.testing.assert_array_equal(row, VECTORS.matrix[NAMES.index(word)])
    split = vectors.pieces.split(["gloomy", "#gloomy", "nowhere", "#"])
    assert np.diff(split.starts).tolist() == [1, 1, 0, 0]


def test_a_model_of_fasttext_has_vectors_of_words_that_it_does_not_list(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(pack_model())
    vectors = read_vectors(path, ["unheard", *FASTTEXT_WORDS])
    assert "unheard" in vectors.pieces.words
    assert np.isfinite(vectors.matrix).all()


def test_sources_that_do_not_exist_are_refused_with_what_to_type(tmp_path):
    for source in (tmp_path / "no.vec", "nowhere.txt", tmp_path):
        with pytest.raises(FileNotFoundError, match="no such file of word vectors"):
            check_source(source)
    with pytest.raises(ImportError, match=r"got 'nopackage'.*pip install wordllama"):
        check_source("nopackage")
    with pytest.raises(ImportError, match="got 'gzip'"):
        check_source("gzip")  # a module without files
    with pytest.raises(ValueError, match=r"a single matrix of vectors .* got 0 and 0 files"):
        read_vectors("json", TYPES)
    with pytest.raises(ValueError, match="for at least one word of the texts"):
        read_vectors(write_text(tmp_path / "b.vec"), ["nowhere"])


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that fails when it is imported, with vectors of three letters each."""
    tokenizers = pytest.importorskip("tokenizers")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=60, initial_alphabet=list("abcdefghijklmnopqrstuvwxyz?"), special_tokens=["?"]
    )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="?"))
    tokenizer.train_from_iterator([" ".join(words) for words in TEXTS], trainer)
    folder = tmp_path / "tinyvectors"
    (folder / "weights").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    tokenizer.enable_truncation(1)
    tokenizer.enable_padding(length=30)
    tokenizer.save(str(folder / "my_tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    size = tokenizer.get_vocab_size()
    matrix = np.random.default_rng(2).normal(size=(size, 4)).astype(np.float16)
    save_file({"m": matrix}, folder / "weights" / "m.safetensors")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder, tokenizer, matrix


@pytest.mark.slow
def test_a_package_gives_the_mean_of_the_pieces_without_being_imported(package):
    _, tokenizer, matrix = package
    vectors = read_vectors("tinyvectors", TYPES)
    assert "tinyvectors" not in sys.modules
    texts = [["gloomy", "film"], ["#moving", "slowly", "film"], *TEXTS]
    (lexicon,) = lexicons([1.0], vectors)
    weights = lexicon.piece_weights.astype(float)
    for words in texts:
        square = naive_square(lexicon, words)
        expected = naive_row(lexicon, words)[0] @ lexicon.weights.astype(float)
        for word in dict.fromkeys(words):
            ids = tokenizer.encode(word.lstrip("#")).ids
            expected = expected + np.mean(weights[ids], 0) / np.sqrt(square)
        logits = lexicon.read([words]).logits[0]
        expected = lexicon.head.add_bias(expected[None], lexicon.bias.astype(float))[0]
        np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    # The weights of pieces are a linear function of their vectors.
    rows = np.concatenate([matrix.astype(float), np.ones((len(matrix), 1))], 1)
    solution, *_ = np.linalg.lstsq(rows, weights, rcond=None)
    np.testing.assert_allclose(rows @ solution, weights, atol=1e-3 * np.abs(weights).max())
    assert lexicon.read([["\ud800", "film"]]).logits.shape == (1, 2)


def test_words_of_many_pieces_are_not_cut_and_special_words_have_no_vector(package):
    _, tokenizer, matrix = package
    found = embed_words(read_vectors("tinyvectors", ()), Vocabulary(["gloomily"]))
    assert found.found.tolist() == [False] * len(SPECIALS) + [True]
    pieces = tokenizer.encode("gloomily").ids
    assert len(pieces) > 1
    np.testing.assert_allclose(found.matrix[-1], matrix[pieces].astype(float).mean(0), rtol=1e-5)


def test_a_package_with_other_files_is_refused(package):
    folder, _, matrix = package
    save_file({"m": matrix[:-1].copy()}, folder / "weights" / "m.safetensors")
    with pytest.raises(ValueError, match="a vector for each piece of the tokenizer"):
        read_vectors("tinyvectors", TYPES)
    save_file({"m": matrix}, folder / "other.safetensors")
    with pytest.raises(ValueError, match=r"a single matrix .* got 2 and 1 files"):
        read_vectors("tinyvectors", TYPES)
