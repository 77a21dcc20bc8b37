"""`--states` and `encoder=`: gates on the token vectors of an encoder, and their leak."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from gatedjax.__main__ import main
from gatedjax.export import BadFile
from gatedjax.text import EncodedText, TextClassifier, read_states, save_states
from gatedjax.text._states import locate_tokens, remove_tokens
from tests._programs import environment
from tests.text._own import TEXTS, reasons, write_csv

X, Y = map(list, zip(*TEXTS, strict=True))
WIDTH = 12
NAMES = ["--states", "--validation-states", "--test-states"]


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
    return TextClassifier(encoder=encode_static, density=0.3).fit(X, Y)


@pytest.fixture(scope="module")
def contextual():
    lines = []
    model = TextClassifier.train(
        TEXTS, test=TEXTS, encoder=encode_with_neighbours, density=0.3, say=lines.append
    )
    return model, lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that the command trained on a file of states."""
    place = tmp_path_factory.mktemp("states")
    write_csv(place / "films.csv", TEXTS)
    save_states(place / "films.npz", encode_with_neighbours(X))
    args = ["train", str(place / "films.csv"), "--test", str(place / "films.csv")]
    args += ["--states", str(place / "films.npz"), "--test-states", str(place / "films.npz")]
    assert main([*args, "--density", "0.4", "--out", str(place / "model")]) == 0
    return place


def test_a_static_encoder_has_no_leak_and_keeps_the_words_with_the_class(static):
    assert static.report_["leak"]["largest_change"] == 0.0
    assert static.score(X, Y) == 1.0
    predictions = reasons(static, ["a dull old film", "warm and new here"])
    assert [p.label for p in predictions] == ["bad", "good"]
    assert "dull" in predictions[0].kept
    assert predictions[0].to_json()["kept"] == predictions[0].kept
    # The open words as a new text have the same bits.
    rest = [" ".join(prediction.kept) for prediction in reasons(static, X)]
    np.testing.assert_array_equal(static.predict_proba(rest), static.predict_proba(X))


def test_a_contextual_encoder_has_a_leak_that_is_printed(contextual):
    model, lines = contextual
    leak = model.report_["leak"]
    assert 0 < leak["texts"] <= len(TEXTS)
    assert leak["largest_change"] > 0.01
    printed = "\n".join(lines)
    assert "the closed tokens removed, and the rest encoded again" in printed
    assert "the same answer" not in printed
    assert "kept" not in printed
    assert "of the words" not in printed
    line = reasons(model, X[:1])[0].to_json()
    assert "kept" not in line
    assert line["open"]
    evaluated = model.evaluate(TEXTS)
    assert evaluated["states_leak"] == leak
    assert evaluated["accuracy"] == model.report_["test"]["accuracy"]


def test_the_leak_is_the_change_without_the_closed_tokens(contextual):
    model, _ = contextual
    changes = []
    for text, prediction in zip(X, reasons(model, X), strict=True):
        # The special token has no characters, so that it is never removed.
        opened = [token for token in prediction.kept if token != "[CLS]"]
        best = model.classes_.tolist().index(prediction.label)
        if " ".join(opened) == text:
            continue
        after = model.predict_proba([" ".join(opened)])[0, best]
        changes.append(abs(model.predict_proba([text])[0, best] - after))
    assert model.report_["leak"]["mean_change"] == pytest.approx(np.mean(changes), abs=1e-6)


def test_the_parts_of_an_explanation_sum_to_the_logits(static, contextual):
    for model in (static, contextual[0]):
        explanation = model.explain("a dull old film")
        reasons = explanation.reasons
        logits = np.array(reasons.bias) + np.sum(reasons.words, axis=0)
        probabilities = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(
            [explanation.probabilities[c] for c in model.classes_], probabilities, rtol=1e-12
        )
        assert reasons.is_same
    assert "bit by bit" in static.explain("a dull old film").render()
    printed = contextual[0].explain("a dull old film").render()
    assert "words are open" in printed
    assert "encoded again, are" in printed
    assert "bit by bit" not in printed
    page = contextual[0].explain("a dull old film").html()
    assert "its gate is open" in page
    assert "read (its" not in page


def test_encoded_texts_stand_in_place_of_texts(static):
    encoded = encode_static(X)
    np.testing.assert_array_equal(static.predict_proba(encoded), static.predict_proba(X))
    fitted = TextClassifier(model="states", density=0.3).fit(encoded, Y)
    np.testing.assert_array_equal(fitted.predict_proba(encoded), static.predict_proba(X))
    assert fitted.report_["leak"] is None
    assert "kept" not in reasons(fitted, encoded[:1])[0].to_json()
    with pytest.raises(ValueError, match=r"give --states FILE .*encoder=\.\.\."):
        fitted.predict(X)
    with pytest.raises(ValueError, match="vectors of the width 12"):
        fitted.predict([(["a"], np.ones((1, 3)))])
    assert cross_val_score(TextClassifier(model="states"), encoded, Y, cv=2).mean() > 0.9
    assert clone(static).encoder is encode_static


def test_a_saved_model_has_the_same_bits_and_compares_the_encoder(static, tmp_path):
    path = static.save(tmp_path / "model")
    loaded = TextClassifier.load(path, encoder=encode_static)
    assert loaded.model == "states"
    assert loaded.density == 0.3
    np.testing.assert_array_equal(loaded.predict_proba(X), static.predict_proba(X))
    assert reasons(loaded, X[:1]) == reasons(static, X[:1])
    with pytest.raises(ValueError, match=r"encode texts like .*encode_static, got other tokens"):
        TextClassifier.load(path, encoder=encode_with_neighbours)
    with pytest.raises(ValueError, match="got other vectors"):
        TextClassifier.load(path, encoder=lambda x: [(t, v + 1) for t, v in encode_static(x)])
    with pytest.raises(TypeError, match="encoder must be a function"):
        TextClassifier.load(path, encoder=3)
    without = TextClassifier.load(path)
    np.testing.assert_array_equal(without.predict_proba(encode_static(X)), static.predict_proba(X))
    (path / "encoder.json").write_text("{")
    with pytest.raises(BadFile):
        TextClassifier.load(path)


def test_the_commands(folder, capsys):
    model, states = str(folder / "model"), str(folder / "films.npz")
    report = json.loads((folder / "model" / "report.json").read_text())
    assert report["leak"] is None
    assert report["test"]["accuracy"] == 1.0
    assert set(report["baseline"]) == {"kind", "test"}
    out = folder / "out.json"
    args = ["evaluate", model, str(folder / "films.csv"), "--states", states, "--out", str(out)]
    assert main(args) == 0
    printed = capsys.readouterr().out
    assert "of the tokens are open" in printed
    assert "closed tokens may have shaped the vectors" in printed
    assert json.loads(out.read_text())["accuracy"] == 1.0
    assert main(["predict", model, "--states", states, "--reasons"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["label"] for line in lines] == Y
    assert {reason["words"] for reason in lines[0]["reasons"]} == set(lines[0]["open"])
    few = folder / "few.npz"
    save_states(few, encode_with_neighbours(X[:2]), overwrite=True)
    assert main(["explain", model, "--states", str(few)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("Closed tokens may have shaped the vectors") == 2
    assert main(["explain", model, "--states", str(few), "--json"]) == 0
    assert "leak" in json.loads(capsys.readouterr().out.splitlines()[0])["reasons"]


def test_training_prints_that_the_leak_cannot_be_measured(folder, capsys):
    args = ["train", str(folder / "films.csv"), "--states", str(folder / "films.npz")]
    assert main([*args, "--out", str(folder / "other")]) == 0
    printed = capsys.readouterr().err
    assert "cannot be measured without the encoder" in printed
    assert "the same model with all tokens" in printed
    assert "<- chosen" in printed


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["predict", "MODEL", "a film"], "give --states FILE"),
        (["predict", "MODEL", "a film", "--states", "STATES"],
         "texts or --states must be left out, got both"),
        (["explain", "MODEL", "a film"], "give --states FILE"),
        (["explain", "MODEL"], "give --states FILE"),
        (["evaluate", "MODEL", "FILMS"], "give --states FILE"),
        (["explore", "MODEL", "--no-browser"], "reads the vectors of an encoder"),
        (["explore", "MODEL", "--html", "x.html"], "--states FILE --html x.html writes a page"),
        (["gates", "report", "MODEL", "--file", "FILMS"], "got a model without one"),
        (["train", "FILMS", "--out", "new", "--states", "STATES", "--embeddings", "x"],
         "--embeddings must be left out for --model 'states'"),
        (["train", "FILMS", "--out", "new", "--states", "STATES", "--model", "ganet"],
         "--states must be left out unless --model 'states'"),
        (["train", "FILMS", "--out", "new", "--states", "STATES", "--tokens", "words"],
         "those of the encoder"),
        (["train", "FILMS", "--out", "new", "--states", "STATES", "--model.hidden", "3"],
         "--model.hidden must be left out for a model of states"),
        (["train", "FILMS", "--out", "new", "--model", "states"], "must be the file"),
        (["train", "FILMS", "--out", "new", "--states", "STATES", "--test", "FILMS"],
         "must be the file with the vectors of the test texts"),
        (["train", "FILMS", "--out", "new", "--states", "STATES", "--test-states", "STATES"],
         "must be left out unless there are test texts"),
        (["train", "FILMS", "--out", "new", "--test-states", "STATES"],
         "must be left out unless there are states"),
        (["train", "FILMS", "--out", "new", "--states", "missing.npz"], "no such file of states"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(folder, tmp_path, monkeypatch, capsys, args, message):
    monkeypatch.chdir(tmp_path)
    names = {"MODEL": "model", "STATES": "films.npz", "FILMS": "films.csv"}
    with pytest.raises(SystemExit) as stopped:
        main([str(folder / names[arg]) if arg in names else arg for arg in args])
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()


def test_a_prediction_from_states_imports_no_jax(folder):
    code = (
        "import sys; from gatedjax.__main__ import main; "
        "assert main(sys.argv[1:]) == 0; assert 'jax' not in sys.modules"
    )
    args = [sys.executable, "-c", code, "predict", str(folder / "model")]
    args += ["--states", str(folder / "films.npz")]
    done = subprocess.run(args, capture_output=True, text=True, env=environment(), check=True)
    assert len(done.stdout.splitlines()) == len(TEXTS)


def broken(change):
    """An encoder whose result for the third text is changed."""

    def encode(texts):
        results = encode_static(texts)
        return [change(*result) if text == X[2] else result
                for text, result in zip(texts, results, strict=True)]  # fmt: skip

    return encode


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (broken(lambda t, v: (t, v[:-1])), r"'dull old film now' has 4 tokens .* \(3, 12\)"),
        (broken(lambda t, v: (t, v * np.nan)), "NaN or infinity for the text 'dull old film now'"),
        (broken(lambda t, v: (t, v[:, :3])), "the same width for each text, got 12 and, for"),
        (broken(lambda t, v: (" ".join(t), v)), "a list of texts as the tokens"),
        (broken(lambda t, v: (t, None)), "vectors of shape|an array of numbers"),
        (broken(lambda t, v: t), r"\(tokens, vectors \[T, D\]\) for each text"),
        (lambda texts: encode_static(texts)[1:], "got 47 results for 48 texts"),
        (lambda texts: [([], np.zeros((0, 3)))] * len(texts), "must have a text with a token"),
    ],
)
def test_a_wrong_encoder_is_refused_with_the_text(encoder, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(encoder=encoder).fit(X, Y)


def test_records_without_a_label_or_token_do_not_shift_the_states(tmp_path):
    rows = [(" ", "bad"), *TEXTS[:24], ("nothing", ""), *TEXTS[24:], ("!", "good")]
    path = write_csv(tmp_path / "films.csv", rows)
    path.write_text(path.read_text() + "\n\n")
    encoded = encode_static([text for text, _ in rows[:-1]])
    save_states(tmp_path / "films.npz", [*encoded, ([], np.zeros((0, WIDTH)))])
    model = TextClassifier.train(path, states=tmp_path / "films.npz", max_aside=0.1)
    assert model.report_["data"]["train"]["aside"] == 5  # with the two empty lines
    assert model.evaluate(path, states=tmp_path / "films.npz")["accuracy"] == 1.0
    save_states(tmp_path / "short.npz", encoded)
    with pytest.raises(ValueError, match=r"the 51 records of .* got the states of 50 texts"):
        TextClassifier.train(path, states=tmp_path / "short.npz", max_aside=0.1)


def test_states_of_other_texts_are_noticed(tmp_path):
    save_states(tmp_path / "s.npz", encode_static([f"unrelated {i} token" for i in range(len(X))]))
    lines = []
    TextClassifier.train(TEXTS, states=tmp_path / "s.npz", say=lines.append)
    assert "are these the states of these texts" in "\n".join(lines)


GOOD = {
    "vectors": np.ones((3, 2), np.float16),
    "offsets": np.array([0, 1, 3]),
    "tokens": np.array(["a", "b", "c"]),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": np.array(["a", "b", "c"], object)}, "pickled Python objects"),
        ({"tokens": np.array([1, 2, 3])}, "tokens must be texts"),
        ({"tokens": np.array(["a", "b"])}, "a token for each of the 3 vectors, got 2"),
        ({"vectors": np.ones((3, 2), int)}, "vectors must be floating-point numbers"),
        ({"vectors": np.ones(3)}, "vectors must be floating-point numbers"),
        ({"vectors": np.array([[1, 1], [1, 1], [1, np.inf]])}, r"token 1 of text 1 \('c'\)"),
        ({"offsets": np.array([0, 1, 2])}, "end with the number of vectors"),
        ({"offsets": np.array([0, 4, 3])}, "must not fall"),
        ({"offsets": np.array([0.0, 3.0])}, "offsets must be integers"),
        ({"offsets": None}, "got no offsets"),
    ],
)
def test_files_of_states_are_checked(tmp_path, change, message):
    arrays = {name: value for name, value in (GOOD | change).items() if value is not None}
    np.savez(tmp_path / "s.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_states(tmp_path / "s.npz")


def test_files_of_states_are_read_and_written(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "s.npz", **GOOD)
    states = read_states(tmp_path / "s.npz")
    assert [text.tokens for text in states] == [["a"], ["b", "c"]]
    assert states[-1].vectors.dtype == np.float16
    path = save_states(tmp_path / "t.npz", states)
    np.testing.assert_array_equal(read_states(path).vectors, states.vectors)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save_states(path, states)
    with pytest.raises(ValueError, match=r"end with \.npz"):
        save_states(tmp_path / "t.npy", states)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="must be a complete"):
        read_states(path)
    monkeypatch.setenv("GATEDJAX_UNPACK_LIMIT", "100")
    np.savez_compressed(tmp_path / "zeros.npz", **(GOOD | {"vectors": np.zeros((10_000, 2))}))
    with pytest.raises(ValueError, match="unpacks to more than"):
        read_states(tmp_path / "zeros.npz")


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("Unseen film", ["[CLS]", "un", "##seen", "film", "[SEP]"], "Un film"),
        ("a film, a", ["\u2581a", "\u2581film", ",", "\u2581a"], "a film a"),
        ("a a a", ["a", "a", "a"], "a a"),
        ("\u0130stanbul", ["istanbul"], "\u0130stanbul"),
    ],
)
def test_the_characters_of_tokens_are_removed(text, tokens, expected):
    middle = [i == len(tokens) // 2 for i in range(len(tokens))]
    assert remove_tokens(text, tokens, middle) == expected
    assert len(locate_tokens(text, tokens)) == len(tokens)


def test_weights_of_texts_and_classes(static):
    wrong = [*Y, *("good" if label == "bad" else "bad" for label in Y)]
    model = TextClassifier(encoder=encode_static, density=0.5)
    model.fit([*X, *X], wrong, sample_weight=np.r_[np.ones(len(X)), np.zeros(len(X))])
    assert model.score(X, Y) == 1.0
    with pytest.raises(ValueError, match="at least 0"):
        model.fit(X, Y, sample_weight=-np.ones(len(X)))
    assert TextClassifier(encoder=encode_static, class_weight="balanced").fit(X, Y).score(X, Y) == 1


def test_an_encoded_text_is_a_pair():
    assert EncodedText(["a"], np.ones((1, 2)))[0] == ["a"]


def test_the_chosen_density_is_nearly_as_accurate_as_the_best():
    # The class is the sign of a sum over all tokens, so that closing tokens costs accuracy.
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 12, 3))
    labels = np.where(vectors[:, :, 0].sum(1) > 0, "up", "down").tolist()
    rows = vectors.astype(np.float32)
    texts = [([f"t{n}_{i}" for i in range(12)], row) for n, row in enumerate(rows)]
    report = TextClassifier(model="states").fit(texts, labels).report_
    accuracies = [stage["accuracy"] for stage in report["curve"]]
    best, count = max(accuracies), report["data"]["validation"]["n"]
    allowed = max(0.005, (best * (1 - best) / count) ** 0.5)
    assert min(accuracies) < best - allowed
    chosen = next(s for s in report["curve"] if s["density"] == report["density"])
    assert chosen["accuracy"] >= best - allowed - 1e-9
