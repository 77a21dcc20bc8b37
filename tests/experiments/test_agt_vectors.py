"""Word vectors trained on film reviews; the training itself is gensim's."""

import sys
import types

import numpy as np
import pytest

from experiments.agt import vectors
from gatedjax import data as gdata
from tests.experiments._commands import refused

REVIEW = 'It isn\'t well-made, "Mr. <br />X" said.'


@pytest.fixture
def texts(tmp_path):
    """Reviews and trees as they are unpacked."""
    for part in ("train", "test"):
        for label in ("pos", "neg"):
            folder = tmp_path / "imdb" / "aclImdb" / part / label
            folder.mkdir(parents=True)
            for i in range(10):
                (folder / f"{i}_1.txt").write_text(f"{REVIEW} {label}{part}", encoding="utf-8")
    (tmp_path / "sst" / "trees").mkdir(parents=True)
    (tmp_path / "sst" / "trees" / "train.txt").write_text("(3 (2 A) (4 -LRB-))\n", encoding="utf-8")
    return tmp_path


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    for name, value in {"vector_size": 3, "epochs": 2}.items():
        monkeypatch.setitem(vectors.SKIP_GRAM, name, value)


class Words:
    """What is asked of gensim."""

    def __init__(self, texts, **settings):
        assert settings["epochs"] == 2
        self.index_to_key = sorted({word for text in texts for word in text})
        rows = np.arange(len(self.index_to_key) * settings["vector_size"], dtype=np.float32)
        self.vectors = rows.reshape(len(self.index_to_key), -1) + 1
        self.wv = self

    def __len__(self):
        return len(self.index_to_key)


def command(texts, out, *more):
    return ["--manual-dir", str(texts), "--out", str(out), *more]


def test_the_file_is_one_of_word_vectors(texts, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gensim.models", types.SimpleNamespace(Word2Vec=Words))
    out = texts / "reviews.3d.txt"
    assert vectors.main(command(texts, out)) == 0
    assert "words of 3 numbers" in capsys.readouterr().out
    words = [line.split(" ")[0] for line in out.read_text("utf-8").splitlines()]
    assert {"n't", "well-made", "``", "''", "mr.", "x", "a", "postrain", "negtest"} <= set(words)
    assert not {"br", "<", "It", "A"} & set(words)
    vocabulary = gdata.Vocabulary.build([[{"tokens": words}]])
    read = gdata.load_embeddings(out, vocabulary, dim=3)
    assert read.coverage == 1
    rows = np.loadtxt(out, usecols=(1, 2, 3), comments=None)
    np.testing.assert_allclose(np.sqrt(np.mean(rows**2)), vectors.SPREAD, atol=1e-3)
    np.testing.assert_allclose(rows[0, 2] / rows[0, 0], 3, rtol=0.05)  # all are scaled alike


def test_the_vectors_of_another_file_stand_before_the_trained_ones(texts, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gensim.models", types.SimpleNamespace(Word2Vec=Words))
    glove = texts / "glove.2d.txt"
    # a header, a word twice, words that no text can have, and a word with a space
    rows = ["mr. 0.25 -1.5", "mr. 9.0 9.0", "<unk> 1.0 1.0", "Mr. 1.0 1.0", ". . 1.0 1.0"]
    rows = [*rows, "elsewhere 2.0 0.5"]
    glove.write_text("\n".join([f"{len(rows)} 2", *rows, ""]), encoding="utf-8")
    plain, both = texts / "plain.txt", texts / "both.txt"
    assert vectors.main(command(texts, plain)) == 0
    assert vectors.main(command(texts, both, "--beside", str(glove))) == 0
    assert "words of 5 numbers" in capsys.readouterr().out
    alone = dict(line.split(" ", 1) for line in plain.read_text("utf-8").splitlines())
    joined = dict(line.split(" ", 1) for line in both.read_text("utf-8").splitlines())
    assert joined.keys() == alone.keys() | {"elsewhere"}
    zero = "0.0000"
    for word, row in joined.items():
        first = {"mr.": "0.2500 -1.5000", "elsewhere": "2.0000 0.5000"}.get(word, f"{zero} {zero}")
        assert row == f"{first} {alone.get(word, ' '.join([zero] * 3))}"


def test_another_file_that_has_no_vectors_is_refused_before_the_training(texts, capsys):
    files = {
        "no.txt": None,
        "empty.txt": b"",
        "bad.txt": b"a 1.0 2.0\nb 1.0 x\n",
        "glove.zip": b"PK\x03\x04 not text",
        "short.txt": b"a 1.0 2.0\nb 1.0\n",
    }
    for name, content in files.items():
        if content is not None:
            (texts / name).write_bytes(content)
        args = command(texts, texts / "new.txt", "--beside", str(texts / name))
        assert name in refused(vectors.main, args, capsys)
    assert not (texts / "new.txt").exists()


def test_nothing_is_overwritten(texts, capsys):
    out = texts / "there.txt"
    out.write_text("mine", encoding="utf-8")
    assert "there.txt, which exists" in refused(vectors.main, command(texts, out), capsys)
    assert out.read_text("utf-8") == "mine"


def test_what_is_missing_is_named(texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    message = refused(vectors.main, command(texts, tmp_path / "new.txt"), capsys)
    assert "pip install gensim" in message
    monkeypatch.setitem(sys.modules, "gensim.models", types.SimpleNamespace(Word2Vec=Words))
    assert "imdb" in refused(vectors.main, command(texts / "sst", tmp_path / "new.txt"), capsys)
    assert "no such folder" in refused(vectors.main, command(texts, tmp_path / "no/x"), capsys)


def test_gensim_trains_the_same_vectors_twice(texts, monkeypatch):
    pytest.importorskip("gensim")
    monkeypatch.setitem(vectors.SKIP_GRAM, "min_count", 1)
    outs = [texts / "one.txt", texts / "two.txt"]
    for out in outs:
        assert vectors.main(command(texts, out)) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()
