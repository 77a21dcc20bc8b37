"""`TextClassifier` and `PairClassifier`: forms of data, scikit-learn's tools and its checks."""

import json
import pickle
import types

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

from gatedjax import TextClassifier
from gatedjax.text import Columns, PairClassifier
from gatedjax.text._corpus import Numbers, read_corpus, say_corpus
from tests.text._own import PAIRS, TEXTS, options, reasons

X, Y = map(list, zip(*TEXTS, strict=True))
QUERIES = ["a dull film", "bright and warm", "old"]


def tiny(cls=TextClassifier):
    """One that trains for two steps."""
    kind = cls._kind
    return cls(**options("ssan" if kind == "pair" else "ganet", kind=kind))


@pytest.fixture(scope="module")
def fitted():
    return tiny().fit(X, Y)


@pytest.fixture(scope="module")
def pairs():
    return tiny(PairClassifier).fit([row[:2] for row in PAIRS], [row[2] for row in PAIRS])


@pytest.mark.slow
def test_every_form_of_the_same_data_gives_the_same_model(fitted, tmp_path):
    wanted = fitted.predict_proba(QUERIES)
    lines = tmp_path / "reviews.jsonl"
    lines.write_text("".join(json.dumps({"review": t, "mood": c}) + "\n" for t, c in TEXTS))
    named = {"columns": Columns(("review",), "mood")}
    for data, more in (
        (lines, named),
        ({"text": np.array(X), "label": np.array(Y)}, {}),
    ):
        model = TextClassifier.train(data, **more, **options())
        np.testing.assert_array_equal(model.predict_proba(QUERIES), wanted)


def test_predictions_are_an_array_of_labels(fitted):
    labels = fitted.predict(QUERIES)
    assert type(labels) is np.ndarray
    assert labels.dtype == fitted.classes_.dtype
    assert labels.tolist() == [one.label for one in reasons(fitted, QUERIES)]
    assert labels[0] in fitted.predict(QUERIES)
    assert "other" not in fitted.predict(QUERIES)
    assert np.mean(fitted.predict(X) == Y) == fitted.score(X, Y)
    assert fitted.predict([]).shape == (0,)
    probabilities = fitted.predict_proba(QUERIES)
    assert fitted.classes_.tolist() == ["bad", "good"]
    np.testing.assert_array_equal(fitted.classes_[probabilities.argmax(axis=1)], labels)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert (
        accuracy_score(Y, fitted.predict(X)) == fitted.score(X, Y) == fitted.score(X, np.array(Y))
    )


@pytest.mark.parametrize("labels", [(0, 1), (3, -2), (False, True), (0.5, 1.5)])
def test_labels_come_back_as_they_were(labels, monkeypatch):
    from gatedjax.text import _estimator

    # what is learned does not matter here
    monkeypatch.setattr(_estimator, "train_model", lambda kind, table, *rest, **more: list(table))
    model, taken = TextClassifier("ganet"), []
    monkeypatch.setattr(model, "_take", taken.extend)
    given = [labels[i % 2] for i in range(48)]
    model.fit(np.array(X), np.array(given))
    assert [one.label for one in taken] == given
    assert {type(one.label) for one in taken} == {type(labels[0])}


def test_texts_that_are_left_out_are_warned_of(monkeypatch):
    from gatedjax.text import _estimator

    def trained(kind, table, options, folder, *, say, **more):
        read = read_corpus(table, folder, "train", Numbers(lowercase=True))
        say_corpus(read, say)
        return read

    monkeypatch.setattr(_estimator, "train_model", trained)
    model = TextClassifier("ganet")
    monkeypatch.setattr(model, "_take", lambda read: None)
    with pytest.warns(UserWarning, match="2 lines set aside, as rows:49: no text"):
        model.fit([*X, "", " "], [i % 2 for i in range(len(X) + 2)])


def test_what_it_cannot_use_is_refused(fitted):
    with pytest.raises(ValueError, match="the same length, got 3 and 1"):
        tiny().fit(QUERIES, ["a"])
    with pytest.raises(TypeError, match="a list of texts, got the text 'one text'"):
        fitted.predict("one text")
    with pytest.raises(ValueError, match="the same length, got 3 and 1"):
        fitted.score(QUERIES, ["a"])
    for columns in ({"text": QUERIES}, types.SimpleNamespace(columns=["text"])):
        with pytest.raises(TypeError, match="X must be a list, an array or one column of a frame"):
            fitted.predict(columns)
    with pytest.raises(TypeError, match="y must be a list, an array or one column of a frame"):
        tiny().fit(QUERIES, {"label": ["a", "b", "a"]})
    with pytest.raises(TypeError, match="got 3 at position 1"):
        fitted.predict(["a", 3])
    with pytest.raises(ValueError, match="one dimension"):
        tiny().fit(QUERIES, [["a"], ["b"], ["c"]])
    for bad, message in (
        ({"model": "gannet"}, "Did you mean 'ganet'"),
        ({"network": {"hiden": 3}}, "Did you mean 'hidden'"),
        ({"training": {"optimizer.rate": 3}}, "names of options of OptimizerConfig, got 'rate'"),
        ({"density": 2.0}, r"must be in \(0, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            TextClassifier(**{"model": "ganet"} | bad).fit(X, Y)
    with pytest.raises(ValueError, match="Its parameters are model, "):
        TextClassifier().set_params(hidden=3)
    for method in ("predict", "predict_proba", "explain"):
        with pytest.raises(NotFittedError, match="must be trained first, got an untrained model"):
            getattr(TextClassifier(), method)(["a"])


def test_a_saved_one_predicts_the_same_bits(fitted, tmp_path):
    folder = fitted.save(tmp_path / "model")
    again = TextClassifier.load(folder)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.classes_.tolist() == fitted.classes_.tolist()
    assert (again.model, again.max_len) == (fitted.model, fitted.max_len)
    with pytest.raises(FileExistsError):
        fitted.save(folder)
    fitted.save(folder, overwrite=True)
    with pytest.raises(ValueError, match="holds a text classifier"):
        PairClassifier.load(folder)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))


def test_a_work_folder_keeps_the_run(fitted, tmp_path):
    model = tiny().fit(X, Y, workdir=tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints").is_dir()
    np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))


def test_evaluation_and_explanation_are_those_of_the_commands(fitted):
    report = fitted.evaluate(TEXTS)
    assert report["accuracy"] == fitted.score(X, Y)
    assert set(report["gate_modes"]) == {"sample", "threshold", "expected", "relaxed"}
    one = fitted.explain("a dull film")
    assert one.tokens == ("a", "dull", "film")
    assert one.label == fitted.predict(["a dull film"])[0]
    assert len(one.removed) == len(one.flips) == 3


def test_pairs(pairs, tmp_path):
    texts = [("a dog runs", "a cow runs"), ("a cat", "the cat")]
    found = pairs.predict(texts)
    assert set(found) <= {"same", "other"}
    assert all(len(one.kept) == 2 for one in reasons(pairs, texts))
    assert pairs.classes_.tolist() == ["other", "same"]
    assert pairs.predict_proba(texts).shape == (2, 2)
    again = PairClassifier.load(pairs.save(tmp_path / "m"))
    np.testing.assert_array_equal(again.predict_proba(texts), pairs.predict_proba(texts))
    with pytest.raises(ValueError, match="must be a tuple of 2 texts"):
        pairs.predict([("a", "b", "c")])
    assert pairs.explain(("a dog", "a cat")).tokens == ("a", "dog", "a", "cat")


def test_scikit_learn_knows_it_as_a_classifier(fitted):
    assert is_classifier(tiny())
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(tiny())
    copy = clone(fitted)
    assert not hasattr(copy, "model_")
    assert copy.get_params() == fitted.get_params()
    assert copy.set_params(seed=3) is copy
    assert copy.seed == 3
    assert repr(TextClassifier("soft", seed=3)) == "TextClassifier(model='soft', seed=3)"


@pytest.mark.slow
def test_scikit_learn_validates_and_searches():
    scores = cross_val_score(tiny(), X, Y, cv=2)
    assert len(scores) == 2
    assert all(0 <= score <= 1 for score in scores)
    one = StratifiedShuffleSplit(1, random_state=0)
    search = GridSearchCV(tiny(), {"seed": np.arange(1, 3)}, cv=one, scoring="neg_log_loss").fit(
        X, Y
    )
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(QUERIES).shape == (3,)


def test_it_is_the_end_of_a_pipeline(fitted):
    pipeline = make_pipeline(FunctionTransformer(lambda texts: [t.upper() for t in texts]), tiny())
    pipeline.fit(X, Y)
    assert pipeline.classes_.tolist() == ["bad", "good"]
    # words are folded, so that upper case changes nothing
    np.testing.assert_array_equal(pipeline.predict_proba(QUERIES), fitted.predict_proba(QUERIES))
    assert pipeline.score(X, Y) == fitted.score(X, Y)


# those of scikit-learn's checks that need no table of numbers
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_mixin_order",
    "check_estimators_unfitted",
    "check_do_not_raise_errors_in_init_or_set_params",
)


@pytest.mark.parametrize("cls", [TextClassifier, PairClassifier])
@pytest.mark.parametrize("name", CHECKS)
def test_checks_of_scikit_learn(name, cls):
    getattr(estimator_checks, name)(cls.__name__, cls())
