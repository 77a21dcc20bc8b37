"""Pretrained vectors in a model of own texts: the option, the folder, the folds and the promise."""

import json
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gatedjax import TextClassifier
from gatedjax.__main__ import main
from gatedjax.export import BadFile
from gatedjax.text.models._lexicon import LexiconModel
from tests.lexicon.test_vectors import package as package  # a fixture
from tests.refusals import refused
from tests.text._own import TEXTS, X, Y, write_csv

GOOD, BAD = ("bright", "warm", "sunny", "kind"), ("dull", "slow", "gloomy", "mean")


def write_vectors(path, seed=0):
    """A file in which good and bad words are far from each other."""
    random = np.random.default_rng(seed)
    words = [*GOOD, *BAD, "film", "old", "new", "here", "there", "now"]
    sign = [1.0] * len(GOOD) + [-1.0] * len(BAD) + [0.0] * 6
    rows = np.stack([sign, *random.normal(size=(3, len(words))) / 9], 1).tolist()
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, rows, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def file(tmp_path):
    return write_vectors(tmp_path / "vectors.vec")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a model with vectors."""
    place = tmp_path_factory.mktemp("vectors")
    file = write_vectors(place / "vectors.vec")
    return TextClassifier(vectors=file, share=0.5).fit(X, Y).save(place / "model")


def test_a_network_has_the_width_of_the_vectors_in_a_file(file):
    model = TextClassifier("gru", vectors=file, network={"embedding_dim": 3})
    refused(lambda: model.fit(X, Y), "width of the word vectors in network must be 4|got 3")


def test_words_that_training_has_not_seen_are_understood_by_their_vectors(file):
    model = TextClassifier(vectors=file, share=1.0).fit(X, Y)
    texts = ["sunny new film", "gloomy new film", "a kind film", "a mean film"]
    assert model.predict(texts).tolist() == ["good", "bad", "good", "bad"]
    plain = TextClassifier(share=1.0).fit(X, Y)
    with_vectors, without = model.predict_proba(texts), plain.predict_proba(texts)
    assert (np.abs(with_vectors - 0.5) > np.abs(without - 0.5)).all()
    report = model.report_["vectors"]
    assert report == {"source": "vectors.vec", "words": report["words"], "used": True}
    assert report["words"] == 1.0
    assert "vectors" not in plain.report_


RAW = [
    "Sunny, new FILM http://t.co/x1 @warm #Gloomy!!",
    "mean\tand   kind &amp; slow \U0001f600",
    "電影很好看 film warm",
    "the dull\u0301 film ... \ud800 slow",
    *X[:6],
]


def check_folder(model, folder):
    model.save(folder)
    again = LexiconModel.load(folder)
    lexicon = model.model_.lexicon
    texts = [again.split(text) for text in RAW]
    assert (again.lexicon.read(texts).logits == lexicon.read(texts).logits).all()
    return again


def test_a_folder_has_the_vectors_of_a_file_and_not_its_path(file, tmp_path):
    folder = tmp_path / "model"
    check_folder(TextClassifier(vectors=file, share=0.5).fit(X, Y), folder)
    file.unlink()  # The folder needs no other file.
    assert LexiconModel.load(folder).lexicon.pieces.words
    for path in folder.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes()
    assert not (folder / "vector_tokenizer.json").exists()


def test_a_folder_has_the_tokenizer_of_a_package(package, tmp_path):
    folder = tmp_path / "model"
    model = TextClassifier(vectors="tinyvectors", share=0.5).fit(X, Y)
    again = check_folder(model, folder)
    assert again.report["vectors"]["source"] == "tinyvectors"
    (folder / "SHA256SUMS").unlink()
    (folder / "vector_tokenizer.json").write_text("{}")
    with pytest.raises(BadFile):
        LexiconModel.load(folder)


@pytest.mark.parametrize("damage", ["shape", "missing", "words", "twice", "name", "array"])
def test_a_damaged_folder_is_refused(saved, tmp_path, damage):
    folder = shutil.copytree(saved, tmp_path / "model")
    (folder / "SHA256SUMS").unlink()
    words, tensors = folder / "vector_words.txt", folder / "model.safetensors"
    arrays, config = load_file(tensors), json.loads((folder / "config.json").read_text())
    if damage == "shape":
        save_file({**arrays, "piece_weights": arrays["piece_weights"][:-1].copy()}, tensors)
    elif damage == "array":
        save_file({k: v for k, v in arrays.items() if k != "piece_weights"}, tensors)
    elif damage == "missing":
        words.unlink()
    elif damage == "words":
        words.write_text(words.read_text() + "\nmore")
    elif damage == "twice":
        words.write_text(words.read_text().replace("gloomy", "sunny"))
    else:
        config["vectors"] = "../words.txt"
        (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises((BadFile, FileNotFoundError)):
        LexiconModel.load(folder)


def many(number):
    """Texts of which the words say the class, in many copies that differ."""
    rows = [(f"{text} {n % 97} {n}", label) for n, (text, label) in enumerate(TEXTS * 30)]
    return map(list, zip(*rows[:number], strict=True))


@pytest.mark.slow
def test_from_1000_texts_on_folds_decide_whether_vectors_are_used(tmp_path):
    x, y = many(1000)
    random = np.random.default_rng(0)
    # The number of a text says nothing of its class, but these vectors are as long as it takes.
    names = [f"{n}" for n in range(1440)]
    lines = [f"{name} {' '.join(map(str, random.normal(size=30)))}" for name in names]
    path = tmp_path / "noise.txt"
    path.write_text("\n".join(lines))
    labels = np.array(y)
    labels[random.random(len(labels)) < 0.3] = "good"
    said = []
    table = list(zip(x, labels.tolist(), strict=True))
    model = TextClassifier.train(table, vectors=path, share=1.0, say=said.append)
    report = model.report_["vectors"]
    assert report["used"] == (report["with"] >= report["without"])
    line = next(line for line in said if line.startswith("vectors of noise.txt"))
    assert line.endswith("used" if report["used"] else "left out")
    assert report["used"] == (len(model.model_.lexicon.piece_weights) > 0)
    # A model that the folds refuse is that without the option, bit for bit.
    assert not report["used"]
    plain = TextClassifier.train(table, share=1.0)
    np.testing.assert_array_equal(plain.predict_proba(x), model.predict_proba(x))


@pytest.mark.slow
def test_the_command_names_vectors_where_texts_are_few_and_english(tmp_path, capsys, file):
    write_csv(tmp_path / "films.csv", TEXTS)
    args = ["train", str(tmp_path / "films.csv"), "--share", "0.5", "--out"]
    assert main([*args, str(tmp_path / "one")]) == 0
    hint = "--vectors wordllama has added 3 to 10 points"
    assert hint in re.sub(r"\s+", " ", capsys.readouterr().err)
    assert main([*args, str(tmp_path / "two"), "--vectors", str(file)]) == 0
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert hint not in said
    assert "vectors of vectors.vec: for 100.0% of the words" in said
    write_csv(tmp_path / "films.csv", [(f"фильм {text[:1]} кино", label) for text, label in TEXTS])
    assert main([*args, str(tmp_path / "three")]) == 0
    assert hint not in re.sub(r"\s+", " ", capsys.readouterr().err)


@pytest.mark.parametrize("model", ["lexicon", "gru"])
def test_vectors_that_do_not_exist_end_the_command_before_texts_are_read(model, tmp_path, capsys):
    args = ["train", str(tmp_path / "nowhere.csv"), "--out", str(tmp_path / "m"), "--model", model]
    for source, message in (
        ("no/file.vec", "no such file of word vectors"),
        ("nopackage", "pip install wordllama"),
    ):
        with pytest.raises(SystemExit) as end:
            main([*args, "--vectors", source])
        assert end.value.code == 2
        assert message in re.sub(r"\s+", " ", capsys.readouterr().err)
