"""`TextClassifier` and `PairClassifier`: forms of data, scikit-learn's tools and its checks."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    PairClassifier,
    Tagger,
    TextClassifier,
    TextRegressor,
)
from gatedjax.text.estimators import _base, _classifier
from gatedjax.text.models import _tagging
from gatedjax.text.sources._table import Columns, Record
from tests._programs import environment
from tests.explore._models import model as draw_model
from tests.explore._models import pair as draw_pair
from tests.text._own import TEXTS, X, Y, reasons, write_csv
from tests.text.test_states import encode_static

QUERIES = ["a dull film", "bright and warm", "old"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A network that nobody trained."""
    folder = tmp_path_factory.mktemp("untrained") / "model"
    return TextClassifier.load(draw_model().save(folder, overwrite=False))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrained") / "pairs"
    return PairClassifier.load(draw_pair("ssan").save(folder, overwrite=False))


@pytest.mark.slow
def test_predictions_are_an_array_of_labels(fitted):
    labels = fitted.predict(QUERIES)
    assert type(labels) is np.ndarray
    assert labels.dtype == fitted.classes_.dtype
    assert labels.tolist() == [one.label for one in reasons(fitted, QUERIES)]
    assert fitted.predict([]).shape == (0,)
    probabilities = fitted.predict_proba(QUERIES)
    assert fitted.classes_.tolist() == ["bad", "good"]
    np.testing.assert_array_equal(fitted.classes_[probabilities.argmax(axis=1)], labels)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    score = np.mean(fitted.predict(X) == Y)
    assert score == fitted.score(X, Y) == fitted.score(X, np.array(Y))


def test_a_saved_one_predicts_the_same_bits(fitted, tmp_path):
    folder = fitted.save(tmp_path / "model")
    again = TextClassifier.load(folder)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.classes_.tolist() == fitted.classes_.tolist()
    assert (again.model, again.max_len) == (fitted.model, fitted.max_len)
    with pytest.raises(FileExistsError):
        fitted.save(folder)
    fitted.save(folder, overwrite=True)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.slow
def test_pairs(pairs, tmp_path, monkeypatch):
    texts = [("a dull film", "a slow film"), ("a story", "the old story")]
    found = pairs.predict(texts)
    assert set(found) <= {"entailed", "neutral", "contradicted"}
    assert all(len(one.read) == 2 for one in reasons(pairs, texts))
    assert pairs.classes_.tolist() == ["entailed", "neutral", "contradicted"]
    assert pairs.predict_proba(texts).shape == (2, 3)
    again = PairClassifier.load(pairs.save(tmp_path / "m"))
    np.testing.assert_array_equal(again.predict_proba(texts), pairs.predict_proba(texts))
    with pytest.raises(ValueError, match="must be a tuple of 2 texts"):
        pairs.predict([("a", "b", "c")])
    for one in (("a dull", "a film"), ["a dull", "a film"]):
        assert pairs.explain(one).tokens == ("a", "dull", "a", "film")
    with pytest.raises(ValueError, match="a text must be a str, got 3"):
        pairs.explain(("a dull", 3))
    with pytest.raises(ValueError, match="holds a classifier of pairs"):
        TextClassifier.load(tmp_path / "m")
    # `fit` hands over two columns and the labels
    monkeypatch.setattr(_base, "train_any", lambda kind, table, *rest, **more: (kind, [*table]))
    monkeypatch.setattr(PairClassifier, "_take", lambda self, given: taken.extend(given))
    taken = []
    PairClassifier().fit(texts, ["same", "other"])
    assert taken == ["pair", [Record(i, x, y, "rows") for i, x, y in zip(
        (1, 2), texts, ("same", "other"), strict=True)]]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "content", "options"),
    [
        (TextClassifier, "a.csv", b"a,b\nx,caf\xe9\n", {"columns": Columns(("b",), "a")}),
        (Tagger, "a.conll", b"x caf\xe9\n", {"word": 1, "tag": 0}),
    ],
)
def test_columns_encoding_and_parts_arrive(kind, name, content, options, tmp_path, monkeypatch):
    path = tmp_path / name
    path.write_bytes(content)
    monkeypatch.setattr(_base, "train_any", lambda _, table, *rest, **more: more | {"train": table})
    monkeypatch.setattr(kind, "_take", lambda self, given: setattr(self, "model_", given))
    monkeypatch.setattr(_classifier, "evaluate_model", lambda _, table: table)
    monkeypatch.setattr(_tagging, "evaluate_tags", lambda _, table: table)
    options = options | {"encoding": "cp1252"}
    model = kind.train(path, validation=path, max_aside=0.5, **options)
    given = model.model_
    assert (given["test"], given["max_aside"]) == (None, 0.5)
    for part in (given["train"], given["validation"], model.evaluate(path, **options)):
        (row,) = part
        found = (row.words, row.tags) if kind is Tagger else (row.inputs, (row.label,))
        assert found == (("caf\u00e9",), ("x",))


def test_scikit_learn_knows_it_as_a_classifier(fitted):
    assert is_classifier(TextClassifier())
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(TextClassifier("ganet"))
    assert repr(TextClassifier("soft", seed=3)) == "TextClassifier(model='soft', seed=3)"


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


WITHOUT_JAX = """
import sys
from gatedjax.__main__ import main

slow = {"jax", "flax", "optax", "orbax", "tensorflow"}
fast = {"sklearn", "scipy", "pyarrow", "pandas", "polars", "datasets"}

def check(*args, absent=fast):
    assert not args or main([*args]) == 0
    assert not (slow | absent) & set(sys.modules), (args, (slow | absent) & set(sys.modules))

for model in ("lexicon", "labels", "numbers", "grades"):
    check("predict", model, "a dull film")
    check("predict", model, "--file", "films.csv")
    check("explain", model, "a dull film")
check("predict", "linear", "a dull film", absent={"sklearn"})
from gatedjax import PairClassifier, Tagger, TextClassifier, TextRegressor
check(absent={"sklearn"})
try:
    TextClassifier.load("states").predict(["a dull film"])
except ValueError as error:
    assert "encoder=" in str(error)
check("look", "films.csv", "--json", absent=set())
check("train", "films.csv", "--out", "model", absent=set())
"""


@pytest.mark.slow
def test_a_model_without_a_network_is_trained_and_used_without_jax(tmp_path):
    """Nor is scikit-learn, SciPy or a package of tables imported to use one."""
    write_csv(tmp_path / "films.csv", TEXTS)
    numbers = [1.0 if label == "bad" else 2.0 for label in Y]
    for name, model, y in (
        ("lexicon", TextClassifier(share=0.4), Y),
        ("linear", TextClassifier("linear"), Y),
        ("states", TextClassifier(encoder=encode_static, share=0.4), Y),
        ("labels", MultiLabelTextClassifier(share=0.4), [[label] for label in Y]),
        ("numbers", TextRegressor(share=0.4), numbers),
        ("grades", OrdinalTextClassifier(share=0.4), numbers),
    ):
        model.fit(X, y).save(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX], cwd=tmp_path, env=environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
