"""`model="lexicon"`, the default for texts: fit, folder, commands and explanations."""

import collections
import dataclasses
import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.utils.class_weight import compute_sample_weight

from gatedjax import TextClassifier
from gatedjax.__main__ import main
from gatedjax._utils.terminal import count_columns
from gatedjax.analysis import faithfulness
from gatedjax.export import BadFile
from gatedjax.lexicon import SHARES, ClassHead, OrdinalHead, Readings, fit_lexicon
from gatedjax.text.answers._report import (
    count_equal,
    draw_curve,
    render_equal,
)
from gatedjax.text.answers._words import find_examples
from gatedjax.text.fit._stages import choose_share, split_folds
from gatedjax.text.models._saved import load_model
from gatedjax.text.targets._calibration import apply_temperatures, choose_temperatures
from gatedjax.text.targets._class import ClassTarget
from tests.text._measures import choose_temperature, readings
from tests.text._own import TEXTS, X, Y, write_csv

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
    assert main([*args, "--share", "0.4", "--out", str(place / "model")]) == 0
    return place / "model"


@pytest.mark.slow
def test_the_example_of_the_card_loads_the_model(folder, monkeypatch):
    card = (folder / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(folder.parent)
    scope: dict = {}
    exec(compile(example, "README.md", "exec"), scope)
    assert scope["model"].predict(["a dull film"])[0] == "bad"
    # Neither a seed nor validation chose anything in a lexicon of a fixed share.
    assert "## Seeds\n\nNot stated.\n" in card
    assert "chosen by validation" not in card


@pytest.mark.slow
def test_the_same_texts_give_the_same_bits(fitted, tmp_path):
    again = TextClassifier(seed=7).fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(QUERIES), fitted.predict_proba(QUERIES))
    assert fitted.predict_proba(QUERIES).dtype == np.float32
    loaded = TextClassifier.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), fitted.predict_proba(QUERIES))
    assert loaded.predict(QUERIES).tolist() == fitted.predict(QUERIES).tolist()
    assert loaded.report_ == json.loads(json.dumps(fitted.report_))


@pytest.mark.slow
def test_density_fixes_the_share_of_open_words(fitted):
    sparse = TextClassifier(share=0.25).fit(X, Y)
    assert sparse.report_["share"] == 0.25
    assert [entry["asked"] for entry in sparse.report_["curve"]] == [1.0, 0.25]
    words = [sparse.model_.split(text) for text in X]
    assert np.concatenate(sparse.model_.lexicon.read(words).is_read).mean() <= 0.25
    assert [entry["asked"] for entry in fitted.report_["curve"]] == list(SHARES)
    # Validation texts choose the share in place of folds.
    held = [(f"{text} again", label) for text, label in zip(X[:20], Y[:20], strict=True)]
    model = TextClassifier.train(list(zip(X, Y, strict=True)), validation=held)
    assert {entry["n"] for entry in model.report_["curve"]} == {20}
    assert {entry["n"] for entry in fitted.report_["curve"]} == {len(X)}


def curve_of(*entries, n=1000):
    """A curve of (loss, standard error, texts that the prior answers)."""
    return [{"loss": a, "error": b, "by_prior": c, "n": n} for a, b, c in entries]


@pytest.mark.slow
@pytest.mark.parametrize("worse", [0.0, 1.0])
def test_folds_choose_the_rank_of_the_words_at_the_share_of_a_user(worse, monkeypatch):
    ranks = []

    def fit(*args, pseudo_count, **kwargs):
        ranks.append(pseudo_count)
        first, *rest = fit_lexicon(*args, pseudo_count=pseudo_count, **kwargs)
        yield first
        for lexicon, count in zip(rest, np.resize(pseudo_count, len(rest)), strict=True):
            yield dataclasses.replace(lexicon, weights=lexicon.weights * (-1) ** (count == worse))

    monkeypatch.setattr("gatedjax.text.fit._without_network.fit_lexicon", fit)
    TextClassifier(share=0.5).fit(X, Y)
    # Three folds of both ranks, then the training texts without and with those of validation.
    assert ranks == [(0.0, 1.0)] * 3 + [1.0 - worse] * 2
    ranks.clear()
    TextClassifier().fit(X, Y)
    assert set(ranks) == {0.0}


def test_the_smallest_share_that_is_surely_good_enough_is_chosen():
    every = (0.0, 0.001, 3)
    assert choose_share(curve_of(every, (0.004, 0.003, 3), (0.02, 0.003, 3)), 0.01) == (1, False)
    # The second share may be good enough, but the texts do not show it.
    assert choose_share(curve_of(every, (0.004, 0.003, 3), (0.008, 0.003, 3)), 0.01) == (1, True)
    assert choose_share(curve_of(every, (0.02, 0.001, 3), (-0.01, 0.001, 3)), 0.01) == (2, False)
    # One more text in twenty may be answered by the prior, here 50.
    assert choose_share(curve_of(every, (0.0, 0.001, 53)), 0.01) == (1, False)
    assert choose_share(curve_of(every, (0.0, 0.001, 54)), 0.01) == (0, False)


def test_the_error_of_a_difference_is_that_of_pairs():
    """The oracle draws texts anew: the same texts are right for both models."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 2000)
    guesses = np.where(rng.random(2000) < 0.8, labels, 1 - labels)
    others = np.where(rng.random(2000) < 0.1, 1 - guesses, guesses)
    target = ClassTarget(("x", "y"))
    one, other = (Readings.of_outputs(np.eye(2)[g], np.eye(2)[g]) for g in (guesses, others))
    differences = (guesses == labels) - (others == labels).astype(float)
    draws = differences[rng.integers(0, 2000, (4000, 2000))].mean(1)
    assert target.compare(labels, one, other) == pytest.approx(draws.std(), rel=0.1)
    # Weights of 4 are four copies for the mean, but not for its error.
    four = np.full(2000, 4.0)
    for weights in (None, four):  # of models that never differ, as if they did on one text
        assert target.compare(labels, one, one, weights) == pytest.approx(1 / 2000)
    assert target.compare(labels, one, other, four) == pytest.approx(
        target.compare(labels, one, other)
    )


def test_folds_keep_copies_together_and_classes_in_proportion():
    rng = np.random.default_rng(1)
    texts = [f"text {i}" for i in rng.integers(0, 400, 900)]
    strata = np.array([int(text[5:]) % 4 == 0 for text in texts]).astype(int)
    folds = split_folds(strata, texts)
    different = set(zip(texts, folds.tolist(), strict=True))
    assert len(different) == len(set(texts))
    counts = collections.Counter((fold, int(text[5:]) % 4 == 0) for text, fold in different)
    for stratum in (False, True):
        sizes = [counts[fold, stratum] for fold in range(3)]
        assert max(sizes) - min(sizes) <= 1


def test_unequal_answers_are_counted(fitted, monkeypatch):
    """The count is not 48 by construction: a splitter that changes the words is noticed."""
    lexicon, splitter = fitted.model_.lexicon, fitted.model_.splitter
    words = [splitter.split(text) for text in X]
    monkeypatch.setattr("gatedjax.text.answers._report._CHUNK", 7)
    assert count_equal(lexicon, splitter, words) == 48
    monkeypatch.setattr(type(splitter), "split", lambda self, text: ["bright"])
    assert count_equal(lexicon, splitter, words) < 48
    changed = render_equal({"texts": 5, "equal": 3})
    assert changed.endswith(" CHANGED the probabilities of 2 of 5 texts.")


def test_the_curve_has_a_ring_at_the_model():
    curve = [{"asked": a, "share": a, "accuracy": 0.8 + a / 10} for a in (1.0, 0.5, 0.49, 0.1)]
    picture = draw_curve(curve, 1, "accuracy", "accuracy")
    assert picture.count("<circle") == 5
    # A share that is too near to that of the model has no label.
    assert re.findall(r">(0\.\d+)<", picture) == ["0.900", "0.850", "0.810"]
    assert 'cx="220.0"' in picture.partition('r="6"')[0].rpartition("<circle")[2]
    # Labels are below a low point and above a high one, which the range of the picture has.
    for values, heights, labels in (
        ((0.0, 0.3), ["200.0", "54.3"], [("218.0", "0.000"), ("44.3", "0.300")]),
        ((12.5, 12.5), ["115.0"] * 2, [("105.0", "12.5")] * 2),
    ):
        curve = [{"share": a, "mae": b} for a, b in zip((1.0, 0.5), values, strict=True)]
        picture = draw_curve(curve, 0, "mae", "MAE")
        assert re.findall(r'cy="([\d.]+)" r="3"', picture) == heights
        assert re.findall(r'y="([\d.]+)" text-anchor="middle">(\d+\.\d+)<', picture) == labels


def test_a_trained_model_says_what_it_is_and_its_first_sentence_is_true(folder):
    model = TextClassifier.load(folder)
    share = model.report_["validation"]["share"]
    assert repr(model) == (
        f"<TextClassifier(model='lexicon', share=0.4): 2 classes, share {share:.2f}>"
    )
    assert len(repr(model.model_)) < 100  # no arrays and no words
    first = TextClassifier.__doc__.partition("\n")[0]
    assert f"by default a {TextClassifier().model} with gates" in first


def changed_json(name, change):
    def run(folder):
        value = json.loads((folder / name).read_text())
        change(value)
        (folder / name).write_text(json.dumps(value))

    return run


def changed_lines(name, change):
    def run(folder):
        lines = (folder / name).read_text(encoding="utf-8").split("\n")
        (folder / name).write_text("\n".join(change(lines)), encoding="utf-8")

    return run


DAMAGE = {
    "no lowercase": (changed_json("config.json", lambda c: c.pop("lowercase")), ""),
    "lowercase": (changed_json("config.json", lambda c: c.update(lowercase="false")), "lowercase"),
    "classes": (changed_json("config.json", lambda c: c.update(classes=["a", "b", "c"])), ""),
    "threshold": (changed_json("config.json", lambda c: c["model"].pop("threshold")), ""),
    "report": (lambda folder: (folder / "report.json").write_text("[]"), "a JSON object, got"),
    "units": (changed_json("tokens.json", lambda t: t.update(units=[1])), ""),
    "examples": (lambda folder: (folder / "examples.json").write_text('{"dull": 3}'), ""),
    **{
        f"{name}, {fault}": (changed_lines(f"{name}.txt", change), message)
        for name in ("words", "ngrams")
        for fault, change, message in (
            ("a line too few", lambda lines: lines[:-1], ""),
            ("twice", lambda lines: [*lines[:-1], lines[0]], f"{name} must be different, got '"),
        )
    },
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused(folder, tmp_path, damage):
    change, message = DAMAGE[damage]
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    change(tmp_path / "model")
    with pytest.raises(BadFile, match=message or None):
        load_model(tmp_path / "model", ("text",))


def test_numbers_that_overflow_in_a_prediction_are_refused(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    change = changed_json("config.json", lambda c: c["model"].update(temperatures=[1e-320] * 4))
    change(tmp_path / "model")
    with pytest.warns(RuntimeWarning, match="overflow"), pytest.raises(SystemExit):
        main(["predict", str(tmp_path / "model"), "a dull film"])
    output = capsys.readouterr()
    assert output.out == ""
    assert "the logits of a lexicon must be finite" in output.err


@pytest.mark.slow
def test_weights_and_classes_change_the_fit():
    """A rare class gets texts that most others would get without the weights."""
    texts, labels = map(list, zip(*TEXTS[:30], strict=True))
    unsure = ["film", "unseen words"]
    rare = [labels.count(label) for label in ("bad", "good")]
    assert min(rare) < 0.7 * max(rare)
    column = int(np.argmin(rare))

    def probability(model):
        return model.predict_proba(unsure)[:, column]

    plain = TextClassifier(share=0.9).fit(texts, labels)
    balanced = TextClassifier(share=0.9, class_weight="balanced").fit(texts, labels)
    assert (probability(balanced) > probability(plain)).all()
    # The weights that "balanced" gives, by their definition in scikit-learn.
    weights = compute_sample_weight("balanced", labels)
    weighted = TextClassifier(share=0.9).fit(texts, labels, sample_weight=weights)
    np.testing.assert_array_equal(probability(weighted), probability(balanced))


@pytest.mark.slow
def test_weights_stay_with_their_texts_if_a_text_is_set_aside():
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.1, 2, len(X))
    model = TextClassifier().fit(X, Y, sample_weight=weights)
    with pytest.warns(UserWarning, match="set aside"):
        other = TextClassifier().fit(["", *X], ["bad", *Y], sample_weight=[100, *weights])
    np.testing.assert_array_equal(other.predict_proba(QUERIES), model.predict_proba(QUERIES))


@pytest.mark.slow
def test_the_metric_chooses_the_density():
    # Many texts of a class hide that the texts of another are missed without their words.
    texts = [f"plain words number {i} of these" for i in range(300)]
    rare = [f"plain words word{i} and word{i + 1}" for i in range(9)]
    labels = ["often"] * 300 + ["seldom"] * 9
    for metric in ("accuracy", "macro_f1"):
        curve = TextClassifier(best_metric=metric).fit(texts + rare, labels).report_["curve"]
        losses = [curve[0][metric] - entry[metric] for entry in curve]
        assert losses == pytest.approx([entry["loss"] for entry in curve])


def test_the_temperature_has_the_largest_likelihood():
    rng = np.random.default_rng(1)
    logits = 4 * rng.normal(size=(400, 3))
    labels = np.array([rng.choice(3, p=p) for p in softmax(logits / 3, 1)])
    temperature = choose_temperature(softmax(logits, 1), labels)
    assert 2.2 < temperature < 4

    def loss(t):
        rest = 1 / 402
        targets = np.where(np.eye(3)[labels] == 1, 1 - rest, rest / 2)
        return -np.mean(np.sum(targets * np.log(softmax(logits / t, 1)), 1))

    assert loss(temperature) <= min(loss(t) for t in np.geomspace(0.2, 9, 200)) + 1e-6
    assert 0.1 <= choose_temperature(np.array([[0.6, 0.4], [0.4, 0.6]]), np.array([0, 1])) < 1


@pytest.mark.slow
def test_a_temperature_is_used_only_if_the_texts_are_evidence_for_it():
    rng = np.random.default_rng(0)
    used = {1.0: 0, 0.5: 0, 2.0: 0}
    for scale in used:
        for _ in range(25):
            probabilities = softmax(2 * rng.normal(size=(300, 4)), 1)
            labels = np.array([rng.choice(4, p=p) for p in probabilities])
            shown = softmax(scale * np.log(probabilities), 1)
            used[scale] += choose_temperature(shown, labels) != 1
    # The test has a level of about 5 %.
    assert used[1.0] < 5
    assert used[0.5] == used[2.0] == 25
    assert choose_temperature(np.array([[0.9, 0.1]]), np.array([0])) == 1
    # The smoothed targets flatten the probabilities of six right predictions, without evidence.
    right = np.array([[0.95, 0.05]] * 5 + [[0.97, 0.03]])
    assert choose_temperature(right, np.zeros(6, int)) == 1


def test_the_temperature_of_grades_divides_scores_and_thresholds_alike():
    rng = np.random.default_rng(3)
    scores, bias = 2 * rng.normal(size=(4000, 1)), np.array([-4.0, 1.0])
    # P(y > k) = sigmoid(z - t_k)
    grades = (rng.random((4000, 1)) < 1 / (1 + np.exp(bias - scores))).sum(1)
    found = readings(np.zeros((4000, 3)), 3 * scores)._replace(
        is_read=[np.ones(6, bool)] * 4000, is_prior=np.zeros(4000, bool)
    )
    thresholds = np.tile(3 * bias, (4000, 1))
    assert choose_temperatures(OrdinalHead(3), thresholds, found, grades)[1] == pytest.approx(
        3, rel=0.1
    )


def test_each_number_of_words_has_its_temperature():
    """Scores that are too large by a factor, which is larger for texts with few words read."""
    rng = np.random.default_rng(2)
    counts = rng.choice([1, 2, 4, 9], 4000)
    factors = np.array([4.0, 3.0, 2.0, 1.5])[np.searchsorted([1, 2, 5], counts)]
    logits = 2 * rng.normal(size=(4000, 2))
    labels = np.array([rng.choice(2, p=p) for p in softmax(logits, 1)])
    logits *= factors[:, None]
    found = readings(softmax(logits, 1), logits)._replace(
        is_read=[np.ones(n, bool) for n in counts], is_prior=np.zeros(4000, bool)
    )
    bias, few = np.zeros((4000, 1)), np.flatnonzero(counts == 1)[:5]
    temperatures, common = choose_temperatures(ClassHead(2), bias, found, labels)
    assert temperatures == pytest.approx([4, 3, 2, 1.5], rel=0.2)
    # weights have no unit: a hundredth each is the evidence of all texts
    light = choose_temperatures(ClassHead(2), bias, found, labels, np.full(4000, 0.01))
    np.testing.assert_allclose(light[0], temperatures, rtol=1e-6)
    calibrated = apply_temperatures(ClassHead(2), bias, found, temperatures)
    np.testing.assert_allclose(calibrated.logits[few], logits[few] / temperatures[0])
    # Without a text the temperature is that of all texts, and five texts hardly move it.
    rows = np.concatenate([few, np.flatnonzero(counts == 9)])
    rest = found._replace(
        probabilities=found.probabilities[rows],
        logits=logits[rows],
        is_read=[found.is_read[i] for i in rows],
        is_prior=found.is_prior[rows],
    )
    temperatures, common = choose_temperatures(ClassHead(2), bias[rows], rest, labels[rows])
    assert temperatures[1] == temperatures[2] == common
    assert common * 0.9 < temperatures[0] < 1.5 * common


def test_a_folder_works_without_its_examples(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "examples.json").unlink()
    assert main(["explain", str(tmp_path / "model"), "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert all(word["examples"] == [] for c in listing["classes"] for word in c["words"])


def test_examples_are_short_extracts_of_the_shortest_texts():
    listing = {"classes": [{"label": "x", "words": [{"word": "w"}]}, {"label": "y", "words": []}]}
    long = [*(f"a{i}" for i in range(20)), "w", *("b" * 40 for _ in range(9))]
    texts = [long, ["w"], ["w", "u"], ["w", "v"], ["w", "y"]]
    found = find_examples(listing, texts, list(map(frozenset, "xxyxy")))
    assert found["w"][0] == "w v"
    assert found["w"][1].startswith("a15 a16 a17 a18 a19 w bbb")
    assert len(found["w"][1]) <= 120
    listing = {"classes": [{"label": "x", "words": [{"word": "好看"}]}]}
    texts = [["ok", "很", "好看", "!", *"abcdefg"], *([c, "好看", *"abcd"] for c in "yz")]
    assert find_examples(listing, texts[:1], [frozenset("x")]) == {"好看": ["ok 很好看 ! a b c d"]}
    shortest = {"好看": ["y 好看 a b c d", "z 好看 a b c d"]}
    assert find_examples(listing, texts, [frozenset("x")] * 3) == shortest


def test_a_prediction_below_the_limit_has_no_label(folder, capsys):
    def predict(*args):
        assert main(["predict", str(folder), *args]) == 0
        return list(map(json.loads, capsys.readouterr().out.splitlines()))

    texts = ["a dull old film", "qqq"]
    plain = predict(*texts)
    limit = str((plain[0]["probability"] + plain[1]["probability"]) / 2)
    sure, unsure = predict(*texts, "--abstain", limit)
    assert sure == plain[0]
    assert (unsure["label"], unsure["probability"]) == (None, plain[1]["probability"])
    assert unsure["note"].endswith(f"the most probable is {plain[1]['label']}")
    # A probability that is the limit itself is not below it.
    assert predict(texts[0], "--abstain", str(plain[0]["probability"])) == plain[:1]
    # A threshold predicts "good", whose probability is below the limit; "bad" reaches it.
    options = [texts[0], "--threshold", "good=0.0001", "--abstain"]
    for more in ([], ["--reasons"]):
        (line,) = predict(*options, limit, *more)
        assert line["label"] == "good"
        assert line["probability"] < float(limit)
        assert "note" not in line
    (line,) = predict(*options, "1")
    assert line["label"] is None
    assert line["note"].endswith("most probable is bad")
    with pytest.raises(SystemExit):
        main(["predict", str(folder), *texts, "--abstain", "1.5"])
    assert "--abstain must be in (0, 1], got 1.5" in capsys.readouterr().err


def test_faithfulness_names_the_measure_of_a_lexicon(fitted):
    for model in (fitted, fitted.model_, fitted.model_.lexicon):
        with pytest.raises(TypeError, match="for a lexicon use evaluate"):
            faithfulness(model, {}, {"tokens": [[1]], "lengths": [1]})


@pytest.mark.slow
def test_no_line_of_a_command_is_wider_than_the_terminal(tmp_path, capsys, monkeypatch):
    """With long names of classes, one of them Chinese, and long words."""
    wide = 60
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(wide))
    names = ["a name of a class that is by far too long for a column", "分类" * 20, "x" * 90]
    names += [f"the class with the number {n}" for n in range(5)]
    rows = [
        (f"word{n} {'long' * 30}{n} {x} with | and {y} story", name)
        for n, name in enumerate(names)
        for x, y in itertools.product("abcd", "efgh")
    ]
    write_csv(Path("films.csv"), rows)
    train = ["train", "films.csv", "--out", "model", "--share", "0.5", "--test", "films.csv"]
    for args in (train, ["explain", "model"], ["explain", "model", rows[0][0]],
                 ["evaluate", "model", "films.csv"]):  # fmt: skip
        assert main(args) == 0
        said = capsys.readouterr()
        printed = said.out or said.err
        assert max(map(count_columns, printed.splitlines())) <= wide, args
        assert "…" in printed or args is train
