"""States and their answers: the same numbers as the network's own, unpadded."""

import dataclasses
import json
import sys
import threading
import time
import types

import jax
import numpy as np
import pytest

import gatedjax
from gatedjax.data.text._units import Units
from gatedjax.explore import _sentences
from gatedjax.explore._effects import MOST_REMOVED, summarize_effects
from gatedjax.explore._engine import Explorer
from gatedjax.explore._network_view import NetworkView
from gatedjax.explore._sentences import Session, read_sentences
from gatedjax.explore._state import State, check_state, gates_of
from gatedjax.explore._views import thresholds_of
from gatedjax.explore._widget import answer_message
from gatedjax.text.answers._explain import explain
from gatedjax.text.corpus._tokens import Tokenizer, split_words
from gatedjax.text.sources._open import open_table
from tests.explore._models import TEXT, model, pure

TOKENS = split_words(TEXT)
TIGHT = 1e-5


@pytest.fixture(scope="module")
def both():
    """A gated model and one without gates."""
    return Explorer([model(), model("soft", seed=2)], ["gated", "soft"])


def same(answer, wanted):
    probabilities, attention = wanted
    np.testing.assert_allclose(answer["probabilities"], probabilities, atol=TIGHT)
    np.testing.assert_allclose(answer["attention"], attention, atol=TIGHT)


def free_gates(p, state):
    """Of every mode, from its words."""
    noise = np.random.default_rng(state.get("seed", 0)).logistic(size=len(p))
    odds = np.log(p / (1 - p))
    kept = sorted(range(len(p)), key=lambda i: -p[i])[: round(state.get("density", 0.5) * len(p))]
    return {
        "threshold": [float(x > state.get("threshold", 0.5)) for x in p],
        "density": [float(i in kept) for i in range(len(p))],
        "sample": [float(a > -n) for a, n in zip(odds, noise, strict=True)],
        "open": [1.0] * len(p),
        "expected": list(p),
        "relaxed": [1 / (1 + np.exp(-(a + n))) for a, n in zip(odds, noise, strict=True)],
    }[state["mode"]]


@pytest.mark.parametrize(
    "state",
    [
        {"mode": "threshold"},
        {"mode": "threshold", "threshold": 0.45, "forced": {"1": True, "4": False}},
        {"mode": "density", "density": 0.3, "forced": {"0": True}},
        {"mode": "sample", "seed": 7, "forced": {"2": False}},
        {"mode": "expected", "forced": {"1": False, "5": True}},
        {"mode": "relaxed", "seed": 3},
        {"mode": "open", "forced": {"0": False}},
    ],
)
def test_an_answer_is_that_of_the_network_itself(both, state):
    answer = both.answer({"text": TEXT, **state})
    assert [one["tokens"] for one in answer["models"]] == [list(TOKENS)] * 2
    json.dumps(answer, allow_nan=False)
    (gated, soft), made = answer["models"], both.models[0]
    free = free_gates(np.array(gated["open"]), state)
    forced = {int(i): float(is_open) for i, is_open in state.get("forced", {}).items()}
    gates = [forced.get(i, gate) for i, gate in enumerate(free)]
    is_soft = state["mode"] in ("expected", "relaxed")
    same(gated, pure(made, TOKENS, gates, soft=is_soft))
    np.testing.assert_allclose(gated["gates"], gates, atol=TIGHT)
    assert gated["free"] == [gate > 0.5 for gate in free]
    base, _ = pure(made, TOKENS, free, soft=is_soft)
    np.testing.assert_allclose(gated["base"], base, atol=TIGHT)
    assert gated["share"] == pytest.approx(np.mean(gates), abs=TIGHT)
    (read,) = both.models[1].read([(TEXT,)])
    np.testing.assert_allclose(soft["probabilities"], read.probabilities, atol=TIGHT)
    assert soft["gates"] is None


@pytest.mark.slow
def test_a_model_whose_gates_act_on_its_input_answers_too():
    made = model(gates_on="input")
    gates = [1, 0, 1, 0, 1, 0, 1]
    forced = {str(i): bool(gate) for i, gate in enumerate(gates)}
    (one,) = Explorer([made], ["input"]).answer({"text": TEXT, "forced": forced})["models"]
    same(one, pure(made, TOKENS, gates))


def test_all_gates_shut_and_which_rule_then_holds(both):
    shut = {str(i): False for i in range(len(TOKENS))}
    one = both.answer({"text": TEXT, "forced": shut})["models"][0]
    assert one["rule"] == "max_gate"
    assert [i for i, is_read in enumerate(one["read"]) if is_read] == [int(np.argmax(one["open"]))]
    same(one, pure(both.models[0], TOKENS, [0.0] * len(TOKENS)))
    soft = both.answer({"text": TEXT, "forced": shut, "mode": "expected"})["models"][0]
    assert soft["rule"] is None


def test_empty_unknown_and_long_texts(both):
    empty = both.answer({"text": " \n"})
    assert empty["models"] == [None, None]
    assert "No word" in empty["notes"][0]
    strange = both.answer({"text": "xyzzy <script>"})
    assert "knows none of these words" in strange["notes"][0]
    assert strange["models"][0]["known"] == [False] * 4
    some = both.answer({"text": "a xyzzy"})
    assert some["notes"] == []
    assert some["models"][0]["known"] == [True, False]
    assert both.answer({"text": "a xyzzy", "forced": {"2": True}}) == some  # there is no such word
    assert both.layers({"text": TEXT})["models"] == [None, None]
    answer = Explorer([model(max_len=20)], ["short"]).answer({"text": "dull " * 5000})
    assert "5,000 words; the first 1,000" in answer["notes"][0]
    assert "reads the first 20 words" in answer["notes"][1]
    (one,) = answer["models"]
    assert len(one["tokens"]) == len(one["gates"]) == 20


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"text": 3}, "text must be a string"),
        ({"mode": "x"}, "mode must be one of"),
        ({"mode": []}, "mode must be one of"),
        ({"threshold": 2}, "threshold must be a number in"),
        ({"density": float("nan")}, "density must be"),
        ({"seed": True}, "seed must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**32}, "seed must be"),
        ({"forced": []}, "forced must be an object"),
        ({"forced": {"-1": True}}, "forced must be an object"),
        ({"forced": {"\u0663": True}}, "forced must be an object"),
        ({"forced": {"1": 1}}, "forced must be an object"),
        ({"forced": {"9" * 5000: True}}, "forced must be an object"),
    ],
)
def test_what_is_no_state_is_named(message, says):
    with pytest.raises(ValueError, match=says):
        check_state(message)


def test_draws_follow_their_seed_and_no_length():
    p = np.full(60, 0.5, np.float32)
    draw = lambda n, seed: gates_of(p[:n], State(mode="sample", seed=seed), 1.0)  # noqa: E731
    assert 10 < draw(60, 1).sum() < 50
    np.testing.assert_array_equal(draw(60, 1), draw(60, 1))
    np.testing.assert_array_equal(draw(60, 1)[:40], draw(40, 1))
    assert (draw(60, 1) != draw(60, 2)).any()
    odds = np.random.default_rng(1).logistic(size=60) / 2.0  # at temperature 2
    relaxed = gates_of(p, State(mode="relaxed", seed=1), 2.0)
    np.testing.assert_allclose(relaxed, 1 / (1 + np.exp(-odds)), rtol=1e-6)
    for density, wanted in ((0.0, [1, 0, 0]), (0.5, [1, 1, 0])):  # at least a word; the first
        state = State(mode="density", density=density)
        assert gates_of(p[:3], state, 1.0).tolist() == wanted


def test_other_models_are_refused_equal_names_numbered_and_a_closed_page_answers_nothing(both):
    with pytest.raises(ValueError, match="of the kind 'tags'"):
        Explorer([types.SimpleNamespace(kind="tags")], ["tagger"])
    shown = Explorer(both.models, ["a", "a"])
    assert [one["name"] for one in shown.about()["models"]] == ["a (1)", "a (2)"]
    assert shown.close()
    with pytest.raises(ValueError, match="the explorer must be open"):
        shown.answer({"text": TEXT})


ROWS = [(f"{first} {second} film {third}", label)
        for label, words in (("bad", ("dull", "slow")), ("good", ("bright", "warm")))
        for first in words for second in ("old", "a") for third in ("here", "now", "")]  # fmt: skip


@pytest.fixture(scope="module")
def sentences(both):
    return read_sentences(both, open_table(ROWS), leaks=10)


@pytest.mark.slow
def test_the_curve_is_accuracy_under_thresholds(both, sentences):
    gated, soft = sentences.curves
    assert gated["share"][-1] == 1.0
    assert gated["share"] == sorted(gated["share"])
    classes = both.models[0].classes
    for share, accuracy, threshold in list(zip(*gated.values(), strict=True))[::5]:
        # at 0 the curve has all gates open, whatever their probability
        found = [both.answer({"text": text, "threshold": threshold})["models"][0]
                 for text, _ in ROWS]  # fmt: skip
        right = [
            classes[int(np.argmax(one["probabilities"]))] == label
            for one, (_, label) in zip(found, ROWS, strict=True)
        ]
        assert accuracy == pytest.approx(np.mean(right))
        assert share == pytest.approx(np.mean(np.concatenate([one["gates"] for one in found])))
    assert (soft["share"], soft["threshold"]) == ([1.0], [0.0])


def test_thresholds_lie_between_probabilities_and_open_a_share_of_them(np_rng):
    values = np.round(np_rng.random(200), 2).astype(np.float32)
    values[:20] = np.nextafter(values[20:40], np.float32(1))  # the same words in another batch
    shares = np.array([0.02, 0.25, 0.5, 0.9, 1.0])
    found = thresholds_of(values, shares)
    assert np.abs(values[:, None] - found).min() > 1e-3
    # ties are on one side
    most = np.array([np.mean(values == v) for v in np.unique(np.round(values, 2))]).max()
    assert (np.abs((values[:, None] > found).mean(0) - shares) <= 2 * most + 1 / 200).all()
    assert thresholds_of(np.full(3, 0.5, np.float32), [0.5]) == 0.5


def test_sentences_have_the_errors_of_the_first_model(both, sentences):
    about = sentences.about()
    assert (len(about["rows"]), about["leaks"], about["more"]) == (len(ROWS), 10, False)
    assert [(row["text"], row["label"]) for row in about["rows"]] == ROWS
    assert sum(row["leak"] is not None for row in about["rows"]) == 10
    # Gates are open above 0.5. Without "dull", whose gate is 0.51, the next lower threshold of the
    # curve opens "now" with its 0.48.
    few = [row for row in ROWS if "dull" not in row[0]]
    worst = max(about["rows"], key=lambda row: row["error"])
    for row in (worst, *read_sentences(both, open_table(few), leaks=0).about()["rows"]):
        said = both.answer({"text": row["text"]})["models"][0]["probabilities"]
        right = said[both.models[0].classes.index(row["label"])]
        assert row["error"] == pytest.approx(1 - right, abs=TIGHT)


@pytest.mark.slow
def test_the_leak_is_the_change_without_the_shut_words(both, sentences):
    made = both.models[0]
    for row, (text, _) in zip(sentences.rows[:3], ROWS, strict=False):
        tokens = split_words(text)
        (read,) = made.read([(text,)])
        kept = tuple(word for word, keep in zip(tokens, read.masks[0], strict=True) if keep)
        alone, _ = pure(made, kept, [1.0] * len(kept))
        best = int(np.argmax(read.probabilities))
        assert row["leak"] == pytest.approx(abs(read.probabilities[best] - alone[best]), abs=TIGHT)


@pytest.mark.slow
def test_sentences_are_capped_and_unknown_labels_passed(both, monkeypatch):
    few = read_sentences(both, open_table([("a film", "ugly"), *ROWS]), most=3)
    assert (len(few.rows), few.has_more) == (3, True)
    with pytest.raises(ValueError, match="must have a sentence with a label of the model"):
        read_sentences(both, open_table([("a film", "ugly"), ("b", "odd")]))


def with_classifier(made, scale=1.0, shift=0.0):
    """The model with other logits, times a scale and with a shift of the second."""
    layer = made.params["classifier"]
    bias = scale * layer["bias"] + np.array([0, shift], np.float32)
    layer = {**layer, "kernel": scale * layer["kernel"], "bias": bias}
    return dataclasses.replace(made, params={**made.params, "classifier": layer})


def log_odds(made, texts):
    """Of the second class, for the words of each text."""
    reads = [read.probabilities for read in made.read_tokens([(tuple(text),) for text in texts])]
    return np.array([np.log(p[1]) - np.log(p[0]) for p in reads])


@pytest.mark.slow
def test_a_word_decides_the_sentences_whose_class_changes_without_it(both):
    # Half of the sentences have either class, so that some word decides some sentence.
    middle = np.median(log_odds(both.models[0], [split_words(text) for text, _ in ROWS]))
    made = with_classifier(both.models[0], shift=-middle)
    sentences = read_sentences(Explorer([made], ["even"]), open_table(ROWS), leaks=0)
    decided = sentences.find_all()
    assert decided  # a word decides some sentence, so that the test can fail
    for word in ("dull", "Film", "xyzzy"):
        found = sentences.find(word)
        assert found["has"] == [
            i for i, (text, _) in enumerate(ROWS) if word.lower() in text.split()
        ]
        by_hand = []
        for number in found["has"]:
            tokens = [token for token in split_words(ROWS[number][0]) if token != word.lower()]
            (read,) = made.read_tokens([(tuple(tokens),)])
            if (
                made.classes[int(read.probabilities.argmax())]
                != sentences.rows[number]["predicted"]
            ):
                by_hand.append(number)
        assert found["decided"] == by_hand == decided.get(word.lower(), [])
    with pytest.raises(ValueError, match="word must be a string"):
        sentences.find(3)


def test_a_session_answers_questions_and_refuses_others(both):
    def read(session):
        while not (found := session.ask({"do": "sentences"}))["ready"]:
            session._thread.join()
        return found

    session = Session(both, open_table([("a strange film", "ugly"), *ROWS]), leaks=0)
    about = session.ask({"do": "about"})
    assert [one["gated"] for one in about["models"]] == [True, False]
    assert about["sentences"]
    with pytest.raises(ValueError, match="must be read before a word is looked up"):
        session.ask({"do": "word", "word": "dull"})
    found = read(session)
    assert len(found["rows"]) == len(ROWS)
    assert found["orders"] == ["error", "share"]
    assert len(session.ask({"do": "word", "word": "dull"})["has"]) == 6
    with pytest.raises(ValueError, match="do must be"):
        session.ask({"do": "leave"})
    with pytest.raises(ValueError, match="must be started with labelled sentences"):
        Session(both).ask({"do": "sentences"})
    # the page opens with the first sentence that has a label of the model, else with an example
    assert about["first"] | {"text": ROWS[0][0], "label": ROWS[0][1]} == about["first"]
    alone = Session(both).ask({"do": "about"})
    assert alone["first"] is None
    text = " ".join(alone["example"]["text"].split())
    assert text == "a dull film bright warm slow old story"
    wrong = Session(both, open_table([("a", "ugly"), ("b", "x")]))
    assert wrong.ask({"do": "about"})["first"] is None
    assert "must have a sentence with a label" in read(wrong)["failed"]


def test_sentences_are_read_once_however_many_ask(monkeypatch):
    """Two tabs of the page ask at the same time; the second must wait for the lock."""
    reads, start = [], threading.Barrier(4)

    class Slow(threading.Thread):
        """A thread that takes a while to make, in which others would see that there is none."""

        def __init__(self, *args, **options):
            time.sleep(0.05)
            super().__init__(*args, **options)

    def ask():
        start.wait()
        session.ask({"do": "sentences"})

    askers = [threading.Thread(target=ask) for _ in range(4)]
    monkeypatch.setattr(_sentences.threading, "Thread", Slow)
    monkeypatch.setattr(_sentences, "read_sentences", lambda *args, **options: reads.append(1))
    session = _sentences.Session(None, [])
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    session._thread.join()
    assert len(reads) == 1


def test_messages_of_a_notebook(both):
    session = Session(both)
    message = {"do": "answer", "text": TEXT, "forced": {"1": True}}
    assert answer_message(session, {"id": 4, "message": message}) == {
        "id": 4,
        "answer": session.ask(message),
    }
    assert "do must be" in answer_message(session, {"id": 5, "message": {}})["error"]
    assert answer_message(session, {"id": 6})["error"] == "message must be an object, got None"
    assert answer_message(session, None)["id"] is None


@pytest.mark.slow
def test_the_widget_answers_what_the_page_sends(monkeypatch):
    pytest.importorskip("anywidget")
    shown = gatedjax.explorer(model(), text=TEXT)
    sent = []
    monkeypatch.setattr(shown, "send", lambda content, buffers=None: sent.append(content))
    shown._handle_custom_msg({"id": "1", "message": {"do": "answer", "text": TEXT}}, [])
    (answer,) = sent
    assert answer["id"] == "1"
    same(
        answer["answer"]["models"][0], pure(model(), TOKENS, answer["answer"]["models"][0]["gates"])
    )
    assert "export default" in shown._esm
    assert shown.state == {"text": TEXT}
    with pytest.raises(TypeError, match="got 3: pass a trained model"):
        gatedjax.explorer(3)


def test_without_anywidget_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ImportError, match="pip install anywidget"):
        gatedjax.explorer(model())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agt", "ssan"])
def test_layers_are_those_of_the_network(name):
    made = model(name)
    shown = Explorer([made], [name])
    answer = shown.answer({"text": TEXT})["models"][0]
    (read,) = made.read([(TEXT,)])
    np.testing.assert_allclose(answer["probabilities"], read.probabilities, atol=TIGHT)
    (layers,) = shown.layers({"text": TEXT})["models"]
    json.dumps(layers, allow_nan=False)
    batch = {
        "tokens": np.array([made.vocabulary.encode(TOKENS)], np.int32),
        "lengths": np.array([len(TOKENS)], np.int32),
    }
    output = jax.jit(made.module.apply)({"params": made.params}, batch)
    if name == "agt":
        values = [layer["values"] for layer in layers]
        np.testing.assert_allclose(values, output.attention[0], atol=TIGHT)
    else:
        assert layers[1]["name"] == "Layer 1, head 2"
        (selection,) = output.selections
        for head, layer in enumerate(layers):
            np.testing.assert_allclose(layer["pairs"], selection.weights[0, head], atol=6e-5)
            chosen = selection.gates[0, head % selection.gates.shape[1]] > 0.5
            np.testing.assert_array_equal(layer["selected"], chosen)
            assert layer["uniform"] == 1 / len(TOKENS)
    assert shown.layers({"text": " "})["models"] == [None]


@pytest.mark.slow
def test_the_words_of_a_page_are_those_of_the_tokenizer():
    social = dataclasses.replace(model(), tokenizer=Tokenizer("social"))
    answer = Explorer([social], ["social"]).answer({"text": "#dull film, isn't it", "mode": "open"})
    assert answer["models"][0]["tokens"] == ["#dull", "film", ",", "isn't", "it"]
    with pytest.raises(ValueError, match=r"split texts into the same tokens, .*, got a and b"):
        Explorer([model(), social], ["a", "b"])
    # Networks share the gates that are forced, so that learned units must be equal too.
    learned = [
        dataclasses.replace(model(), tokenizer=Tokenizer(units=Units({unit: 3}, 9)))
        for unit in ("\u597d", "\u770b")
    ]
    with pytest.raises(ValueError, match="must split texts into the same tokens"):
        Explorer(learned, ["a", "b"])
    ungated = dataclasses.replace(model("soft"), tokenizer=Tokenizer("social"))
    answer = Explorer([model(), ungated], ["a", "b"]).answer({"text": "#dull film"})
    assert [one["tokens"] for one in answer["models"]] == [["#", "dull", "film"], ["#dull", "film"]]
    assert answer["notes"] == ["The models split this text into different words."]


def effects_by_hand(made, state, *, soft=False):
    """The class, and the change of each class from the network's own calls, a text at a time."""
    likely = NetworkView(made, "alone").likely
    noise = np.random.default_rng(state.get("seed", 0)).logistic(size=len(TOKENS))

    def probabilities(places):
        tokens = [TOKENS[i] for i in places]
        p = np.array(likely(tuple(tokens)))
        free = p if soft else np.log(p / (1 - p)) + noise[places] > 0
        forced = state["forced"]
        gates = [float(forced.get(str(i), g)) for i, g in zip(places, free, strict=True)]
        return pure(made, tokens, gates, soft=soft)[0]

    everything = list(range(len(TOKENS)))
    whole = probabilities(everything)
    changes = [whole - probabilities([i for i in everything if i != gone]) for gone in everything]
    return int(np.argmax(whole)), np.array(changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "state",
    [
        {"mode": "sample", "seed": 5, "forced": {"1": True, "6": False}},
        {"mode": "expected", "forced": {"0": False}},
    ],
)
def test_an_effect_is_the_change_without_the_word(both, state):
    best, changes = effects_by_hand(both.models[0], state, soft=state["mode"] == "expected")
    (gated, _) = both.removal({"text": TEXT, **state})["models"]
    json.dumps(gated, allow_nan=False)
    assert gated["class"] == best
    np.testing.assert_allclose(gated["effects"], changes[:, best], atol=TIGHT)
    for speaks_for, change in zip(gated["speaks_for"], changes, strict=True):
        assert speaks_for == (best if change[best] >= 0 else int(np.argmax(change)))


@pytest.mark.parametrize("place", [0, 1])
def test_effects_are_those_of_explain(both, place):
    made = both.models[place]
    explanation = explain(made, [TEXT])
    result = both.removal({"text": TEXT})["models"][place]
    assert made.classes[result["class"]] == explanation.label
    wanted = [explanation.probability - change.probability for change in explanation.removed]
    np.testing.assert_allclose(result["effects"], wanted, atol=TIGHT)


@pytest.mark.parametrize("text", ["", "film", "film " * (MOST_REMOVED + 1)])
def test_texts_without_effects(both, text):
    assert both.removal({"text": text})["models"] == [None, None]


def test_a_word_against_a_class_of_three_speaks_for_the_class_that_it_raises():
    whole = np.array([0.5, 0.3, 0.2])
    without = np.array([[0.6, 0.1, 0.3], [0.4, 0.5, 0.1], [0.5, 0.25, 0.25]])
    result = summarize_effects(whole, without)
    np.testing.assert_allclose(result["effects"], [-0.1, 0.1, 0.0], atol=1e-12)
    assert result["speaks_for"] == [1, 0, 0]


def test_effects_of_a_saturated_network_are_in_log_odds(both):
    made = both.models[1]
    (whole,) = log_odds(made, [TOKENS])
    sure = with_classifier(made, scale=25 / abs(whole))
    (result,) = Explorer([sure], ["sure"]).removal({"text": TEXT})["models"]
    assert result["unit"] == "log-odds"
    shorter = [(*TOKENS[:i], *TOKENS[i + 1 :]) for i in range(len(TOKENS))]
    (read, *without) = (one.probabilities for one in sure.read_tokens(
        [(tokens,) for tokens in (TOKENS, *shorter)]))  # fmt: skip
    best = int(read.argmax())
    # In float32 the probability is so near to 1 that no word changes it by a digit of the page.
    assert np.abs([read[best] - one[best] for one in without]).max() < 5e-4
    assert np.abs(result["effects"]).max() > 0.5
    wanted = (log_odds(sure, [TOKENS]) - log_odds(sure, shorter)) * (1 if best else -1)
    np.testing.assert_allclose(result["effects"], wanted, atol=1e-4)
    assert both.removal({"text": TEXT})["models"][1]["unit"] == "probability"


@pytest.mark.slow
def test_effects_of_long_and_short_texts_share_a_program(both):
    view = NetworkView(both.models[0], "gated")
    for text in (TEXT, "a dull film", "dull " * 16):
        view.effects(State(text=text, forced={0: True}))
    # one for the text itself and one for the texts without a word
    assert view._text_program._cache_size() == 2
