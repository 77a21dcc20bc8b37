"""`model="lexicon"`, the default for texts: fit, folder, commands and explanations."""

import json
import re
import shutil
import subprocess
import sys
from itertools import combinations, compress, pairwise

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.class_weight import compute_sample_weight

from gatedjax import TextClassifier
from gatedjax.__main__ import main
from gatedjax.analysis import faithfulness
from gatedjax.export import BadFile
from gatedjax.lexicon._lexicon import NOTHING_KNOWN
from gatedjax.text import _lexicon_training, _target_class
from gatedjax.text._calibration import choose_temperature, fit_temperature
from gatedjax.text._lexicon_explanation import find_examples
from gatedjax.text._lexicon_report import (
    count_equal,
    draw_curve,
    render_calibration,
    render_equal,
)
from gatedjax.text._lexicon_training import choose_stage
from gatedjax.text._model import TrainedModel
from gatedjax.text._saved import load_model
from gatedjax.text._target_class import ClassTarget
from tests.conftest import ROOT
from tests.text._own import TEXTS, reasons, write_csv

X, Y = map(list, zip(*TEXTS, strict=True))
QUERIES = ["a dull old film", "warm and new, here", "xyzzy", ""]


@pytest.fixture(scope="module")
def fitted():
    return TextClassifier().fit(X, Y)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that the command trained, beside the file that it was trained on."""
    place = tmp_path_factory.mktemp("lexicon")
    write_csv(place / "films.csv", TEXTS)
    args = ["train", str(place / "films.csv"), "--test", str(place / "films.csv")]
    assert main([*args, "--density", "0.4", "--out", str(place / "model")]) == 0
    return place / "model"


def test_it_is_the_default_and_learns(fitted):
    assert fitted.model == "lexicon"
    assert fitted.score(X, Y) == 1.0
    assert fitted.predict(QUERIES).tolist()[:2] == ["bad", "good"]
    assert "warm" in reasons(fitted, QUERIES)[1].kept
    probabilities = fitted.predict_proba(QUERIES)
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)


def test_the_example_of_the_card_loads_the_model(folder, monkeypatch):
    card = (folder / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(folder.parent)
    scope: dict = {}
    exec(compile(example, "README.md", "exec"), scope)
    assert scope["model"].predict(["a dull film"])[0] == "bad"
    # Neither a seed nor validation chose anything in a lexicon of a fixed density.
    assert "## Seeds\n\nNot stated.\n" in card
    assert "chosen by validation" not in card


def test_a_text_of_which_nothing_is_read_says_so():
    model = TextClassifier(density=0.3).fit(X, Y)
    (prediction,) = reasons(model, ["xyzzy"])
    assert (prediction.kept, prediction.density) == ([], 0)
    assert prediction.to_json()["note"] == NOTHING_KNOWN
    assert NOTHING_KNOWN in model.explain("xyzzy").render().lower()


def test_it_has_the_interface_of_scikit_learn(fitted):
    assert clone(fitted).get_params() == TextClassifier().get_params()
    assert len(cross_val_score(TextClassifier(), X, Y, cv=2)) == 2
    search = GridSearchCV(TextClassifier(), {"density": [0.3, 0.5]}, cv=2).fit(X, Y)
    assert search.best_score_ == 1.0
    pipeline = make_pipeline(FunctionTransformer(), TextClassifier()).fit(X, Y)
    assert pipeline.score(X, Y) == 1.0


def test_the_same_texts_give_the_same_bits(fitted, tmp_path):
    again = TextClassifier(seed=7).fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(QUERIES), fitted.predict_proba(QUERIES))
    loaded = TextClassifier.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), fitted.predict_proba(QUERIES))
    assert loaded.predict(QUERIES).tolist() == fitted.predict(QUERIES).tolist()
    assert loaded.report_ == json.loads(json.dumps(fitted.report_))


def test_density_fixes_the_share_of_open_words(fitted):
    sparse = TextClassifier(density=0.25).fit(X, Y)
    assert sparse.report_["density"] == 0.25
    assert sparse.report_["curve"][-1]["density"] == 0.25
    words = [sparse.model_.split(text) for text in X]
    assert np.concatenate(sparse.model_.lexicon.read(words).is_open).mean() <= 0.25
    assert len(fitted.report_["curve"]) >= 5


def choose(accuracies, count, metric="accuracy"):
    """The stage that is chosen by accuracies on so many texts."""
    best = {metric: max(accuracies), "n": count}
    return choose_stage(accuracies, ClassTarget(("x", "y")).allow_loss(best, metric))


def test_the_smallest_stage_near_the_best_is_chosen():
    assert choose([0.9, 0.896, 0.8], 10**6) == 1
    assert choose([0.9, 0.894, 0.8], 10**6) == 0
    assert choose([0.9, 0.896, 0.88, 0.9], 10**6) == 3
    # With 100 texts the standard error of 0.9 is 0.03.
    assert choose([0.9, 0.88, 0.871, 0.869], 100) == 2
    assert choose([1.0, 0.995, 0.99], 100) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": 3}, "num_steps must be left out for a lexicon, .* got 3: leave it out"),
        ({"embeddings": "a.txt"}, "embeddings must be left out for a lexicon"),
        ({"network": {"hidden": 4}}, "network must be left out for a lexicon"),
        ({"max_len": 10}, "max_len must be left out for a lexicon"),
        ({"density": 1.5}, r"density must be in \(0, 1\]"),
        ({"density": 0.001}, "density must leave a word open, got 0.001"),
        ({"model": "lexikon"}, "Did you mean 'lexicon'"),
        ({"class_weight": "even"}, "class_weight must be 'balanced' or None, got 'even'"),
        ({"best_metric": "f1"}, "best_metric must be one of 'accuracy', 'macro_f1', got 'f1'"),
        (
            {"model": "gru", "class_weight": "balanced"},
            "class_weight must be None unless model is 'lexicon'",
        ),
        ({"model": "gru", "best_metric": "macro_f1"}, "training={'best_metric': ...}"),
    ],
)
def test_options_without_an_effect_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(**options).fit(X, Y)


def test_words_of_one_class_or_none_known_are_refused_or_read(fitted):
    with pytest.raises(ValueError, match="at least two classes"):
        TextClassifier().fit(X[:4], ["a"] * 4)
    assert len(fitted.predict(["zzz qqq", "жжж", "天气"])) == 3


def test_the_parts_of_an_explanation_sum_to_the_scores(fitted):
    explanation = fitted.explain("a warm old film, now warm")
    reasons = explanation.reasons
    totals = np.array(reasons.bias) + np.sum(reasons.words, 0)
    totals = totals + sum(np.array(parts) for *_, parts in reasons.pairs)
    expected = np.exp(totals) / np.exp(totals).sum()
    np.testing.assert_allclose(expected, list(explanation.probabilities.values()), rtol=1e-9)
    assert reasons.is_same
    for is_open, parts, change in zip(
        explanation.kept, reasons.words, explanation.removed, strict=True
    ):
        assert is_open or not any(parts)
        assert is_open or change.probability == explanation.probability
    shown = explanation.render()
    assert "| warm" in shown
    assert "bit by bit" in shown
    assert "Open word or pair" in explanation.html()
    assert explanation.to_json()["reasons"]["classes"] == ["bad", "good"]


def test_the_report_compares_accuracies_and_counts_equal_answers(folder, capsys):
    report = json.loads((folder / "report.json").read_text())
    assert report["test"]["same_answer"] == {"texts": 48, "equal": 48}
    assert {"test", "kind"} == set(report["baseline"]) == set(report["character_baseline"])
    assert (folder / "curve.svg").read_text().startswith("<svg")
    assert main(["evaluate", str(folder), str(folder.parent / "films.csv")]) == 0
    first, second, third, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("48 texts: accuracy 1.0000 from ")
    assert second.endswith("because no known word is read: 0 of 48 texts")
    assert third == "the same answer from the open words alone: yes, bit by bit (48 texts)"
    assert render_equal({"texts": 5, "equal": 3}).endswith("NO, for 2 of 5 texts")


def test_unequal_answers_are_counted(fitted, monkeypatch):
    """The count is not 48 by construction: a splitter that changes the words is noticed."""
    lexicon, splitter = fitted.model_.lexicon, fitted.model_.splitter
    words = [splitter.split(text) for text in X]
    assert count_equal(lexicon, splitter, words) == 48
    monkeypatch.setattr(type(splitter), "split", lambda self, text: ["bright"])
    assert count_equal(lexicon, splitter, words) < 48


def test_the_curve_has_a_ring_at_the_model():
    curve = [{"words": 1.0, "accuracy": 0.9}, {"words": 0.5, "accuracy": 0.8}]
    picture = draw_curve(curve, 1)
    assert picture.count("<circle") == 3
    assert 'cx="220.0"' in picture.partition('r="6"')[0].rpartition("<circle")[2]


@pytest.mark.parametrize(
    "accuracies",
    [
        [0.862, 0.861, 0.848, 0.850, 0.846, 0.782, 0.728],
        [0.876, 0.869, 0.855, 0.858, 0.849],
        [0.8, 0.95, 0.7, 0.9, 0.6, 0.92, 0.6],
        [1.0] * 7,
    ],
)
def test_labels_of_the_curve_lie_neither_on_the_line_nor_on_labels(accuracies):
    shares = (1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1)[: len(accuracies)]
    curve = [
        {"words": share, "accuracy": accuracy}
        for share, accuracy in zip(shares, accuracies, strict=True)
    ]
    picture = draw_curve(curve, 2)
    texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="middle">\d\.', picture)
    labels = np.array(texts, float) - [0, 3.5]
    (line,) = re.findall(r'points="(.*?)"', picture)
    points = np.array([point.split(",") for point in line.split()], float)
    steps = np.linspace(0, 1, 500)[:, None]
    drawn = np.concatenate([a + steps * (b - a) for a, b in pairwise(points)])
    half = np.array([13, 4.5])  # half of the size of five digits
    assert len(labels) == len(accuracies)
    assert not (np.abs(drawn - labels[:, None]) < half).all(2).any()
    assert all((np.abs(a - b) >= 2 * half).any() for a, b in combinations(labels, 2))


def test_a_trained_model_says_what_it_is_and_its_first_sentence_is_true(folder):
    model = TextClassifier.load(folder)
    share = model.report_["validation"]["density"]
    assert repr(model) == (
        f"<TextClassifier(model='lexicon', density=0.4): 2 classes, density {share:.2f}>"
    )
    assert len(repr(model.model_)) < 100  # no arrays and no words
    first = TextClassifier.__doc__.partition("\n")[0]
    assert f"by default a {TextClassifier().model} with gates" in first


def test_the_commands_predict_and_explain_it(folder, capsys):
    assert main(["predict", str(folder), "a dull old film"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["label"], "dull" in line["kept"]) == ("bad", True)
    assert main(["predict", str(folder), "a dull old film", "", "--reasons"]) == 0
    line, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["classes"], empty["reasons"]) == (["bad", "good"], [])
    assert (empty["probability"], empty["note"]) == (0.5, NOTHING_KNOWN)
    np.testing.assert_allclose(empty["bias"], np.log([0.5, 0.5]), atol=1e-6)
    assert line["reasons"][0]["words"].split()[0] in line["kept"]
    effects = [abs(entry["parts"][0] - entry["parts"][1]) for entry in line["reasons"]]
    assert effects == sorted(effects, reverse=True)
    logits = np.sum([line["bias"], *(entry["parts"] for entry in line["reasons"])], 0)
    assert np.isclose(softmax(logits)[0], line["probability"], atol=1e-5)
    assert main(["explain", str(folder), "a dull old film"]) == 0
    shown = capsys.readouterr().out
    assert "bit by bit" in shown
    print(TextClassifier.load(folder).explain("a dull old film"))
    assert capsys.readouterr().out == shown
    assert main(["explain", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "bad: " in shown
    assert "| warm" in shown
    assert main(["explain", str(folder), "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    counts = {w["word"]: w["count"] for c in listing["classes"] for w in c["words"]}
    assert counts["dull"] == sum("dull" in text for text in X)


def test_a_command_of_networks_names_ganet(folder, capsys):
    films = str(folder.parent / "films.csv")
    with pytest.raises(SystemExit):
        main(["gates", "report", str(folder), "--file", films])
    assert "ganet" in capsys.readouterr().err
    with pytest.raises(BadFile, match="--model ganet"):
        TrainedModel.load(folder, ("text",))


def test_predict_and_explain_import_no_jax(folder):
    code = (
        "import sys\nfrom gatedjax.__main__ import main\n"
        "main(['predict', sys.argv[1], 'a dull film'])\n"
        "main(['explain', sys.argv[1], 'a dull film'])\n"
        "assert 'jax' not in sys.modules and 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda config, words: config.pop("lowercase"),
        lambda config, words: config.update(classes=["a", "b", "c"]),
        lambda config, words: config["model"].pop("threshold"),
        lambda config, words: words.update(units=[1]),
    ],
)
def test_a_damaged_folder_is_refused(folder, tmp_path, change):
    (tmp_path / "model").mkdir()
    for path in folder.iterdir():
        if path.name != "SHA256SUMS":
            (tmp_path / "model" / path.name).write_bytes(path.read_bytes())
    config, words = (tmp_path / "model" / n for n in ("config.json", "tokens.json"))
    values = json.loads(config.read_text()), json.loads(words.read_text())
    change(*values)
    config.write_text(json.dumps(values[0]))
    words.write_text(json.dumps(values[1]))
    with pytest.raises(BadFile):
        load_model(tmp_path / "model", ("text",))


@pytest.mark.parametrize("name", ["words.txt", "ngrams.txt"])
def test_a_folder_with_a_line_too_few_is_refused(folder, tmp_path, name):
    (tmp_path / "model").mkdir()
    for path in folder.iterdir():
        if path.name != "SHA256SUMS":
            (tmp_path / "model" / path.name).write_bytes(path.read_bytes())
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes().rpartition(b"\n")[0])
    with pytest.raises(BadFile):
        load_model(tmp_path / "model", ("text",))


@pytest.mark.parametrize("name", ["words", "ngrams"])
def test_a_word_that_occurs_twice_is_refused_by_its_name(name, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    path = tmp_path / "model" / f"{name}.txt"
    lines = path.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join([*lines[:-1], lines[0]]), encoding="utf-8")
    with pytest.raises(BadFile, match=f"{name} must be different, got {re.escape(repr(lines[0]))}"):
        load_model(tmp_path / "model", ("text",))


def test_numbers_that_overflow_in_a_prediction_are_refused(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["model"]["temperature"] = 1e-320
    path.write_text(json.dumps(config))
    with pytest.warns(RuntimeWarning, match="overflow"), pytest.raises(SystemExit):
        main(["predict", str(tmp_path / "model"), "a dull film"])
    output = capsys.readouterr()
    assert output.out == ""
    assert "the logits of a lexicon must be finite" in output.err


def test_several_scripts_in_a_text():
    texts = [f"{a} {b}天气好 film" for a in ("dull", "bright") for b in ("о фильме", "ก้า")] * 6
    model = TextClassifier().fit(texts, [text.split()[0] for text in texts])
    lexicon = model.model_.lexicon
    words = [model.model_.split(text) for text in texts]
    assert count_equal(lexicon, model.model_.splitter, words) == len(words)
    for text, gates in zip(words, lexicon.read(words).is_open, strict=True):
        assert set(compress(text, gates)) & {"dull", "bright"}


def test_weights_and_classes_change_the_fit():
    """A rare class gets texts that most others would get without the weights."""
    texts, labels = map(list, zip(*TEXTS[:30], strict=True))
    unsure = ["film", "unseen words"]
    rare = [labels.count(label) for label in ("bad", "good")]
    assert min(rare) < 0.7 * max(rare)
    column = int(np.argmin(rare))

    def probability(model):
        return model.predict_proba(unsure)[:, column]

    plain = TextClassifier(density=0.9).fit(texts, labels)
    balanced = TextClassifier(density=0.9, class_weight="balanced").fit(texts, labels)
    assert (probability(balanced) > probability(plain)).all()
    # The weights that "balanced" gives, by their definition in scikit-learn.
    weights = compute_sample_weight("balanced", labels)
    weighted = TextClassifier(density=0.9).fit(texts, labels, sample_weight=weights)
    np.testing.assert_array_equal(probability(weighted), probability(balanced))
    with pytest.raises(ValueError, match="a number for each of the 30 texts, got the shape"):
        TextClassifier().fit(texts, labels, sample_weight=[1.0])
    with pytest.raises(ValueError, match="sample_weight must be None unless model is 'lexicon'"):
        TextClassifier("gru").fit(texts, labels, sample_weight=weights)


def test_weights_stay_with_their_texts_if_a_text_is_set_aside():
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.1, 2, len(X))
    model = TextClassifier().fit(X, Y, sample_weight=weights)
    with pytest.warns(UserWarning, match="set aside"):
        other = TextClassifier().fit(["", *X], ["bad", *Y], sample_weight=[100, *weights])
    np.testing.assert_array_equal(other.predict_proba(QUERIES), model.predict_proba(QUERIES))


def test_the_metric_chooses_the_density():
    part = _lexicon_training.TextPart([["a"], ["b"], ["b"]] * 20, [], np.array([0, 1, 1] * 20))
    curve = [
        {"density": 1.0, "accuracy": 0.9, "macro_f1": 0.9},
        {"density": 0.5, "accuracy": 0.9, "macro_f1": 0.2},
    ]
    assert choose([s["accuracy"] for s in curve], len(part.labels)) == 1
    assert choose([s["macro_f1"] for s in curve], len(part.labels), "macro_f1") == 0
    model = TextClassifier(best_metric="macro_f1").fit(X, Y)
    assert all({"accuracy", "macro_f1", "density"} <= set(s) for s in model.report_["curve"])


def test_the_temperature_has_the_largest_likelihood():
    rng = np.random.default_rng(1)
    logits = 4 * rng.normal(size=(400, 3))
    labels = np.array([rng.choice(3, p=p) for p in softmax(logits / 3, 1)])
    temperature = fit_temperature(softmax(logits, 1), labels)
    assert 2.2 < temperature < 4

    def loss(t):
        rest = 1 / 402
        targets = np.where(np.eye(3)[labels] == 1, 1 - rest, rest / 2)
        return -np.mean(np.sum(targets * np.log(softmax(logits / t, 1)), 1))

    assert loss(temperature) <= min(loss(t) for t in np.geomspace(0.2, 9, 200)) + 1e-6
    assert 0.1 <= fit_temperature(np.array([[0.6, 0.4], [0.4, 0.6]]), np.array([0, 1])) < 1


def test_a_temperature_is_used_only_if_the_texts_are_evidence_for_it():
    rng = np.random.default_rng(0)
    used = {1.0: 0, 0.5: 0, 2.0: 0}
    for scale in used:
        for _ in range(50):
            probabilities = softmax(2 * rng.normal(size=(300, 4)), 1)
            labels = np.array([rng.choice(4, p=p) for p in probabilities])
            shown = softmax(scale * np.log(probabilities), 1)
            temperature, fitted = choose_temperature(shown, labels)
            assert temperature in (1.0, fitted)
            used[scale] += temperature != 1
    # The test has a level of about 5 %.
    assert used[1.0] < 8
    assert used[0.5] == used[2.0] == 50
    assert choose_temperature(np.array([[0.9, 0.1]]), np.array([0]))[0] == 1
    # The smoothed targets flatten the probabilities of six right predictions, without evidence.
    right = np.array([[0.95, 0.05]] * 5 + [[0.97, 0.03]])
    temperature, fitted = choose_temperature(right, np.zeros(6, int))
    assert temperature == 1
    assert fitted > 1.2


def test_the_report_has_the_temperature(monkeypatch, tmp_path):
    monkeypatch.setattr(_target_class, "choose_temperature", lambda *arguments: (1.75, 1.75))
    write_csv(tmp_path / "films.csv", TEXTS)
    args = ["train", str(tmp_path / "films.csv"), "--test", str(tmp_path / "films.csv")]
    assert main([*args, "--density", "0.4", "--out", str(tmp_path / "model")]) == 0
    report = json.loads((tmp_path / "model" / "report.json").read_text())
    model = load_model(tmp_path / "model", ("text",))
    assert model.lexicon.temperature == report["temperature"] == 1.75
    assert {"ece", "uncalibrated_ece"} <= set(report["test"])
    line = render_calibration(report, "test")
    assert line.startswith(f"probabilities: temperature {report['temperature']:.2f} from the valid")
    assert "fitted on these texts" in render_calibration(report | {"validation": report["test"]},
                                                         "validation")  # fmt: skip
    refused = report | {"temperature": 1.0, "fitted_temperature": 1.09}
    assert "no temperature, because 1.09 improves" in render_calibration(refused, "test")


def test_the_report_counts_copies(folder):
    report = json.loads((folder / "report.json").read_text())
    assert report["data"]["train"]["copies"] == 24
    assert report["data"]["train"]["conflicts"] == 0


def test_open_words_have_examples_of_their_class(folder, capsys):
    assert main(["explain", str(folder), "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    texts = {label: [text for text, of in TEXTS if of == label] for label in ("bad", "good")}
    shown = 0
    for entry in listing["classes"]:
        for word in entry["words"]:
            assert len(word["examples"]) == len(set(word["examples"])) <= 2
            for example in word["examples"]:
                assert word["word"] in example.split()
                assert example in texts[entry["label"]]
                shown += 1
    assert shown >= 4
    assert main(["explain", str(folder)]) == 0
    assert "dull old film here / dull old film there" in capsys.readouterr().out


def test_a_folder_works_without_its_examples(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "examples.json").unlink()
    assert main(["explain", str(tmp_path / "model"), "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert all(word["examples"] == [] for c in listing["classes"] for word in c["words"])
    (tmp_path / "model" / "examples.json").write_text('{"dull": 3}')
    with pytest.raises(BadFile):
        load_model(tmp_path / "model", ("text",))


def test_examples_are_short_extracts_of_the_shortest_texts():
    listing = {"classes": [{"label": "x", "words": [{"word": "w"}]}, {"label": "y", "words": []}]}
    long = [*(f"a{i}" for i in range(20)), "w", *("b" * 40 for _ in range(9))]
    texts = [long, ["w"], ["w", "u"], ["w", "v"], ["w", "y"]]
    found = find_examples(listing, texts, ["x", "x", "y", "x", "y"])
    assert found["w"][0] == "w v"
    assert found["w"][1].startswith("a15 a16 a17 a18 a19 w bbb")
    assert len(found["w"][1]) <= 120
    listing = {"classes": [{"label": "x", "words": [{"word": "好看"}]}]}
    texts = [["很", "好看", "!", "ok"]]
    assert find_examples(listing, texts, ["x"]) == {"好看": ["很好看 ! ok"]}


def test_a_prediction_below_the_limit_has_no_label(folder, capsys):
    args = ["predict", str(folder), "a dull old film", "qqq"]
    assert main(args) == 0
    plain = list(map(json.loads, capsys.readouterr().out.splitlines()))
    limit = (plain[0]["probability"] + plain[1]["probability"]) / 2
    assert main([*args, "--abstain", str(limit)]) == 0
    sure, unsure = map(json.loads, capsys.readouterr().out.splitlines())
    assert sure == plain[0]
    assert unsure["label"] is None
    assert unsure["probability"] == plain[1]["probability"]
    assert unsure["note"].endswith(f"the most probable is {plain[1]['label']}")
    with pytest.raises(SystemExit):
        main([*args, "--abstain", "1.5"])
    assert "--abstain must be in (0, 1], got 1.5" in capsys.readouterr().err


def test_faithfulness_names_the_measure_of_a_lexicon(fitted):
    for model in (fitted, fitted.model_, fitted.model_.lexicon):
        with pytest.raises(TypeError, match="for a lexicon use evaluate"):
            faithfulness(model, {}, {"tokens": [[1]], "lengths": [1]})
