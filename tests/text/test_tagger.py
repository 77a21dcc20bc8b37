"""`Tagger` and its commands: networks of a few numbers on sentences that NumPy makes."""

import json
import types

import numpy as np
import pytest

from gatedjax import Tagger
from gatedjax._commands import _training, evaluate, predict, train
from gatedjax.text.corpus._corpus import Rows
from gatedjax.text.corpus._shapes import ShapedVocabulary, common_shapes, is_unknown, shapes
from gatedjax.text.corpus._tagged import Scorer, find_usual_tags, is_bio
from gatedjax.text.models._tagging import windows, word_probabilities
from tests.text._measures import measure_classes

pytestmark = pytest.mark.slow

NETWORK = {"embedding_dim": 4, "hidden": 8, "filter_size": 8, "num_heads": 2, "num_layers": 1}
TRAINING = {"optimizer.learning_rate": 0.03}
OPTIONS = {
    "network": NETWORK,
    "training": TRAINING,
    "num_steps": 60,
    "max_len": 8,
    "batch_size": 16,
}
NAMES, PLACES = ["John", "Mary", "Anna"], [["Paris"], ["Rome"], ["New", "York"]]


def sentences(n, seed=0):
    """(words, tags) of "NAME VERB in PLACE", or of the place before the rest."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        place = PLACES[rng.integers(3)]
        rest = [NAMES[rng.integers(3)], ["lives", "works"][rng.integers(2)]]
        made.append(
            ([*rest, "in", *place], ["B-PER", "O", "O", "B-LOC", "I-LOC"][: 3 + len(place)])
        )
    return made


def written(path, made):
    """A file of three columns: the word, something else, its tag."""
    lines = ["".join(f"{w}\tX\t{t}\n" for w, t in zip(*one, strict=True)) for one in made]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """A tagger that starts from a file of vectors."""
    vectors, rng = tmp_path_factory.mktemp("vectors") / "vectors.txt", np.random.default_rng(0)
    rows = [[word, *map(str, rng.normal(size=4))] for word in ("John", "in", "Rome", "elsewhere")]
    vectors.write_text("".join(" ".join(row) + "\n" for row in rows))
    return Tagger.train(sentences(200), test=sentences(40, 1), vectors=vectors, **OPTIONS)


@pytest.fixture(scope="module")
def folder(tagger, tmp_path_factory):
    return tagger.save(tmp_path_factory.mktemp("tagger") / "model")


def test_a_tagger_learns_what_the_words_say(tagger):
    report = tagger.report_
    assert report["test"]["accuracy"] > 0.9
    assert report["test"]["n"] == sum(len(words) for words, _ in sentences(40, 1))
    assert report["test"]["sentences"] == report["data"]["test"]["n"] == 40
    kind = "the most frequent tag of each word"
    assert report["baseline"] == {"kind": kind, "validation": 1.0, "test": 1.0}
    assert list(tagger.classes_) == ["B-LOC", "B-PER", "I-LOC", "O"]


def test_words_stay_and_texts_are_split(tagger):
    one, other = tagger.predict([["John", "lives-in", "Rome!"], "Anna works in New York"])
    assert one.words == ("John", "lives-in", "Rome!")
    assert other.words == ("Anna", "works", "in", "New", "York")
    assert len(other.tags) == len(other.probabilities) == 5
    assert set(other.tags) <= set(tagger.classes_)
    for given, message, error in (
        (["a", " "], "sentence 1: the sentence has no word", ValueError),
        ([[3]], "sentence 0: a sentence must be a text or a list of word", ValueError),
        ("John", "a list of sentences, got the text", TypeError),
    ):
        with pytest.raises(error, match=message):
            tagger.predict(given)


def test_every_word_of_a_long_sentence_has_a_tag(tagger):
    words = tuple(["John", "lives", "in", "Rome"] * 5 + ["Anna"])
    (one,) = tagger.predict([words])
    assert one.words == words
    assert len(one.tags) == len(one.probabilities) == 21
    assert tagger.evaluate([*sentences(3), (["a"], [])])["aside"] == 1
    (whole,) = word_probabilities(tagger.model_, [words])
    # the words in the middle of the second window are told by that window alone
    (second,) = word_probabilities(tagger.model_, [words[4:12]])
    np.testing.assert_allclose(whole[6:10], second[2:6], rtol=1e-5)


def test_windows_part_the_words_among_them():
    for length in range(1, 30):
        for size in range(1, 10):
            found = windows(length, size)
            assert [i for _, _, a, b in found for i in range(a, b)] == [*range(length)]
            assert all(begin <= a < b <= end <= begin + size for begin, end, a, b in found)
    assert windows(10, 4) == [(0, 4, 0, 3), (2, 6, 3, 5), (4, 8, 5, 7), (6, 10, 7, 10)]


def test_a_saved_tagger_says_the_same(tagger, folder):
    loaded = Tagger.load(folder)
    some = [words for words, _ in sentences(3, 2)]
    assert loaded.predict(some) == tagger.predict(some)
    assert isinstance(loaded.model_.vocabulary, ShapedVocabulary)
    assert "elsewhere" in loaded.model_.vocabulary
    assert loaded.get_params()["lowercase"] is False
    command = types.SimpleNamespace(out=folder, data="t.conll")
    card = _training._card(command, "tags", tagger, tagger.model_)
    assert card.description == "A tagger (ssan) that `gatedjax train` made."
    assert card.data.startswith("t.conll: sentences 180 for train, 40 for test, 20 for validation.")
    assert card.metrics["test accuracy of the most frequent tag of each word"] == 1


# scores ------------------------------------------------------------------------------------------


def spans_of(tags):
    """By a loop over words: (kind, first, last) of every span."""
    found, place = set(), 0
    while place < len(tags):
        if tags[place] == "O":
            place += 1
            continue
        kind, first = tags[place][2:], place
        place += 1
        while place < len(tags) and tags[place] == f"I-{kind}":
            place += 1
        found.add((kind, first, place))
    return found


def test_scores_agree_with_loops():
    rng = np.random.default_rng(0)
    names = ("B-X", "B-Y", "I-X", "I-Y", "O")
    scorer, matched, ours, true = Scorer(names), 0, 0, 0
    rows = []
    for _ in range(60):
        n = int(rng.integers(1, 9))
        gold, probabilities = rng.integers(0, 5, n), rng.dirichlet(np.ones(5), n)
        best = np.where(rng.random(n) < 0.6, gold, probabilities.argmax(1))
        probabilities[np.arange(n), best] += 1
        probabilities /= probabilities.sum(1, keepdims=True)
        scorer.add(gold, probabilities, gold == 0)
        rows.append((gold, probabilities))
        a, b = (spans_of([names[i] for i in one]) for one in (gold, best))
        matched, ours, true = matched + len(a & b), ours + len(b), true + len(a)
    metrics = scorer.metrics()
    gold, probabilities = map(np.concatenate, zip(*rows, strict=True))
    wanted = measure_classes(gold, probabilities, names)
    for name in ("confusion", "per_class"):
        assert metrics[name] == wanted[name]
    for name in ("accuracy", "macro_f1", "nll", "brier", "ece"):
        assert metrics[name] == pytest.approx(wanted[name], abs=1e-6), name
    precision, recall = matched / ours, matched / true
    f1 = 2 * precision * recall / (precision + recall)
    spans = {"n": true, "precision": precision, "recall": recall, "f1": f1}
    assert {name: metrics["spans"][name] for name in spans} == pytest.approx(spans)
    right = (probabilities.argmax(1) == gold)[gold == 0]
    assert metrics["unknown"] == {"n": len(right), "accuracy": pytest.approx(right.mean())}


def test_spans_need_tags_that_mark_them():
    assert is_bio(["O", "B-X", "I-X"])
    assert is_bio(["B-X", "B-Y"])
    assert not is_bio(["O"])
    assert not is_bio(["NN", "O"])
    assert not is_bio(["B-", "O"])
    scorer = Scorer(["NN", "VB"])
    scorer.add(np.array([0]), np.array([[1.0, 0.0]]), np.array([False]))
    assert scorer.metrics()["spans"] is None
    assert scorer.metrics()["unknown"] == {"n": 0, "accuracy": None}


def test_the_rule_is_the_most_frequent_tag_of_a_word():
    rng = np.random.default_rng(1)
    words = [rng.integers(0, 6, n) for n in rng.integers(1, 9, 50)]
    tags = [rng.integers(0, 3, len(ids)) for ids in words]
    usual = find_usual_tags(Rows.join(words), Rows.join(tags), 8, 3)
    flat, all_tags = np.concatenate(words), np.concatenate(tags)
    for word in range(8):
        seen = all_tags[flat == word] if word < 6 else all_tags
        assert usual[word] == np.bincount(seen, minlength=3).argmax()


def test_unknown_words_are_told_by_their_shape():
    assert [one[1:] for one in shapes("Walking")] == ["Aa:ing", "Aa:ng", "Aa:"]
    assert [one[1:] for one in shapes("e-3")] == ["0-:e-3", "0-:-3", "0-:"]
    assert [shapes(word)[-1][1:] for word in ("USA", "I", "...", "-3")] == ["A:", "Aa:", ".:", "0:"]
    names = common_shapes(["walking", "talking", "sing", "Rome"])
    assert [name[1:] for name in names] == ["a:", "a:ing", "a:ng"]
    words = ShapedVocabulary(["the", *names], lowercase=False)
    assert words.encode(iter(["the", "making", "a", "Rome"])) == [2, 4, 3, 1]
    assert ShapedVocabulary(names, lowercase=True).encode(["MAKING"]) == [3]
    np.testing.assert_array_equal(is_unknown(words), [False, True, False, True, True, True])


# commands ----------------------------------------------------------------------------------------


def run(command, capsys, *args):
    """(status, standard output, standard error) of a command."""
    try:
        status = command.main([str(arg) for arg in args])
    except SystemExit as stopped:
        status = stopped.code
    return (status, *capsys.readouterr())


def test_the_commands_agree_with_the_class(tagger, folder, tmp_path, capsys):
    made = sentences(4, 3)
    path = written(tmp_path / "test.conll", made)
    status, out, _ = run(predict, capsys, folder, "--file", path)
    assert status == 0
    expected = tagger.predict([words for words, _ in made])
    assert [json.loads(line) for line in out.splitlines()] == [
        json.loads(json.dumps(one.to_json())) for one in expected
    ]
    status, out, _ = run(evaluate, capsys, folder, path, "--out", tmp_path / "m.json")
    assert status == 0
    assert "spans: f1" in out
    assert json.loads((tmp_path / "m.json").read_text()) == tagger.evaluate(path)
    status, _, error = run(evaluate, capsys, folder, path, "--tag", "1")
    assert status == 2
    assert "test.conll:1: tag must be a class of the model" in error
    path.write_text("John\nlives\n\nin\tX\nRome\n", encoding="utf-8")
    _, out, error = run(predict, capsys, folder, "--file", path)
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0]["words"] == ["John", "lives"]
    assert set(rows[1]) == {"error"}
    assert "1 of 2 lines" in error
    _, out, _ = run(predict, capsys, folder, "John lives in Rome")
    assert json.loads(out)["words"] == ["John", "lives", "in", "Rome"]


def test_train_asks_for_the_columns_of_tags(tmp_path, capsys):
    path = written(tmp_path / "t.conll", sentences(3))
    for args, message in (
        ("--text a", "--text, --label and --columns must be left out for files of tags"),
        ("--task text --tag 1", "--tag must be left out except for files of tags"),
        ("--share .2", "--share must be left out for the task 'tags'"),
        ("--model gru", "--model must be one of ssan, san for the task tags, got 'gru'"),
        ("--tag 1", "must have at least two tags for a tagger, got only 'X'"),
    ):
        status, _, error = run(train, capsys, path, "--out", tmp_path / "model", *args.split())
        assert (status, message in error) == (2, True), error
    assert [one.name for one in tmp_path.iterdir()] == ["t.conll"]
