"""`encoder=`: gates on the token vectors of an encoder, and their leak."""

import hashlib

import numpy as np
import pytest
from sklearn.base import clone

from gatedjax.__main__ import main
from gatedjax.export import BadFile
from gatedjax.text import TextClassifier
from gatedjax.text.models._states import locate_tokens, remove_tokens
from tests.text._own import TEXTS, X, Y, reasons, write_csv

WIDTH = 12


def vector_of(word):
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest)).normal(size=WIDTH).astype(np.float32)


def encode_static(texts):
    """A vector for each word, whatever its neighbours are."""
    return [
        (words, np.array([vector_of(w.lower()) for w in words]).reshape(-1, WIDTH))
        for words in (text.split() for text in texts)
    ]


def encode_with_neighbours(texts):
    """A vector that also has the mean of the text, with a special token at the start."""
    results = []
    for text in texts:
        words = ["[CLS]", *text.split()]
        vectors = np.array([vector_of(word.lower()) for word in words])
        results.append((words, 0.5 * vectors + 2 * vectors.mean(0)))
    return results


@pytest.fixture(scope="module")
def static():
    return TextClassifier(encoder=encode_static, share=0.3).fit(X, Y)


@pytest.fixture(scope="module")
def contextual():
    return TextClassifier.train(TEXTS, test=TEXTS, encoder=encode_with_neighbours, share=0.3)


@pytest.fixture(scope="module")
def folder(static, tmp_path_factory):
    place = tmp_path_factory.mktemp("states")
    write_csv(place / "films.csv", TEXTS)
    static.save(place / "model")
    return place


def test_a_static_encoder_has_no_leak_and_keeps_the_words_with_the_class(static):
    assert static.report_["leak"]["largest_change"] == 0.0
    assert static.explain(X[0]).reasons.leak == ""
    assert static.score(X, Y) == 1.0
    predictions = reasons(static, ["a dull old film", "warm and new here"])
    assert [p.label for p in predictions] == ["bad", "good"]
    assert "dull" in predictions[0].read
    assert predictions[0].to_json()["read"] == predictions[0].read
    # The open words as a new text have the same bits.
    rest = [" ".join(prediction.read) for prediction in reasons(static, X)]
    np.testing.assert_array_equal(static.predict_proba(rest), static.predict_proba(X))


def test_the_leak_is_the_change_without_the_closed_tokens(contextual):
    model = contextual
    leak = model.report_["leak"]
    assert 0 < leak["texts"] <= len(TEXTS)
    assert model.evaluate(TEXTS)["states_leak"] == leak
    assert "also depend on words that are not read" in reasons(model, X[:1])[0].to_json()["note"]
    assert "Underlined</span>: read." in model.explain(X[0]).html()
    changes = []
    for text, prediction in zip(X, reasons(model, X), strict=True):
        # The special token has no characters, so that it is never removed.
        opened = [token for token in prediction.read if token != "[CLS]"]
        best = model.classes_.tolist().index(prediction.label)
        if " ".join(opened) == text:
            continue
        after = model.predict_proba([" ".join(opened)])[0, best]
        changes.append(abs(model.predict_proba([text])[0, best] - after))
    assert model.report_["leak"]["mean_change"] == pytest.approx(np.mean(changes), abs=1e-6)


def test_a_saved_model_has_the_same_bits_and_compares_the_encoder(static, tmp_path):
    path = static.save(tmp_path / "model")
    loaded = TextClassifier.load(path, encoder=encode_static)
    assert loaded.model == "states"
    assert loaded.share == 0.3
    np.testing.assert_array_equal(loaded.predict_proba(X), static.predict_proba(X))
    assert reasons(loaded, X[:1]) == reasons(static, X[:1])
    assert clone(loaded).get_params() == loaded.get_params()
    (path / "encoder.json").write_text("{")
    with pytest.raises(BadFile):
        TextClassifier.load(path)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["predict", "MODEL", "a film"], "load it in Python with"),
        (["explain", "MODEL", "a film"], "load it in Python with"),
        (["explain", "MODEL"], "TEXT must be given"),
        (["evaluate", "MODEL", "FILMS"], "load it in Python with"),
        (["explore", "MODEL", "--no-browser"], "load it in Python with"),
        (["gates", "report", "MODEL", "--file", "FILMS"], "train --model ganet` trains"),
    ],
)
def test_the_commands_have_no_encoder(folder, capsys, args, message):
    names = {"MODEL": "model", "FILMS": "films.csv"}
    with pytest.raises(SystemExit) as stopped:
        main([str(folder / names[arg]) if arg in names else arg for arg in args])
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_records_without_a_label_or_token_do_not_shift_the_states(tmp_path):
    rows = [(" ", "bad"), *TEXTS[:24], ("nothing", ""), *TEXTS[24:], ("!", "good")]
    path = write_csv(tmp_path / "films.csv", rows)
    path.write_text(path.read_text() + "\n\n")

    def encode(texts):
        return [([], np.zeros((0, 5))) if text == "!" else one
                for text, one in zip(texts, encode_static(texts), strict=True)]  # fmt: skip

    model = TextClassifier.train(path, encoder=encode, max_aside=0.1)
    assert model.report_["data"]["train"]["aside"] == 5  # with the two empty lines
    assert model.evaluate(path)["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("Unseen film", ["[CLS]", "un", "##seen", "film", "[SEP]"], "Un film"),
        ("a film, a", ["\u2581a", "\u2581film", "\u0120,", "\u2581a"], "a film a"),
        ("oldnewold", ["old", "new</w>", "old"], "old old"),
        ("a film", ["a", "##", "film"], "a film"),
        ("\u0130 film, dull", ["\u0130", "film", "dull"], "\u0130 , dull"),
    ],
)
def test_the_characters_of_tokens_are_removed(text, tokens, expected):
    middle = [i == len(tokens) // 2 for i in range(len(tokens))]
    assert remove_tokens(text, tokens, middle) == expected
    assert len(locate_tokens(text, tokens)) == len(tokens)
