"""States and their answers: the same numbers as the network's own, unpadded."""

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest

import gatedjax
from gatedjax.data.text._units import Units
from gatedjax.explore import _sentences
from gatedjax.explore._engine import LONGEST, Explorer, Programs, describe_library
from gatedjax.explore._gates import gates_of
from gatedjax.explore._removal import MOST_REMOVED, summarize_effects
from gatedjax.explore._sentences import first_sentence, read_sentences, thresholds_of
from gatedjax.explore._session import Session
from gatedjax.explore._state import State, check_state
from gatedjax.explore._widget import answer_message
from gatedjax.text._buckets import COARSE, width_of
from gatedjax.text._explanation import explain_texts
from gatedjax.text._read import open_table
from gatedjax.text._tokens import Tokenizer, split_words
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
    assert answer["tokens"] == list(TOKENS)
    json.dumps(answer, allow_nan=False)
    (gated, soft), made = answer["models"], both.models[0]
    free = free_gates(np.array(gated["open"]), state)
    forced = {int(i): float(is_open) for i, is_open in state.get("forced", {}).items()}
    gates = [forced.get(i, gate) for i, gate in enumerate(free)]
    is_soft = state["mode"] in ("expected", "relaxed")
    same(gated, pure(made, TOKENS, gates, soft=is_soft))
    np.testing.assert_allclose(gated["gates"], gates, atol=TIGHT)
    base, _ = pure(made, TOKENS, free, soft=is_soft)
    np.testing.assert_allclose(gated["base"], base, atol=TIGHT)
    assert gated["density"] == pytest.approx(np.mean(gates), abs=TIGHT)
    (read,) = both.models[1].read_texts([(TEXT,)])
    np.testing.assert_allclose(soft["probabilities"], read.probabilities, atol=TIGHT)
    assert soft["gates"] is None


def test_a_model_whose_gates_act_on_its_input_answers_too():
    made = model(gates_on="input")
    alone = Explorer([made], ["input"])
    for mode, gates in (("threshold", [1, 0, 1, 0, 1, 0, 1]), ("expected", None)):
        forced = {} if gates is None else {str(i): bool(g) for i, g in enumerate(gates)}
        (one,) = alone.answer({"text": TEXT, "mode": mode, "forced": forced})["models"]
        same(one, pure(made, TOKENS, gates or one["open"], soft=gates is None))


def test_all_gates_shut_and_which_rule_then_holds(both):
    shut = {str(i): False for i in range(len(TOKENS))}
    one = both.answer({"text": TEXT, "forced": shut})["models"][0]
    assert one["rule"] == "max_gate"
    assert [i for i, kept in enumerate(one["kept"]) if kept] == [int(np.argmax(one["open"]))]
    same(one, pure(both.models[0], TOKENS, [0.0] * len(TOKENS)))


def test_forced_gates_that_are_no_words_are_passed(both):
    wanted = both.answer({"text": TEXT})["models"]
    assert both.answer({"text": TEXT, "forced": {"99": True}})["models"] == wanted


def test_empty_unknown_and_long_texts(both):
    empty = both.answer({"text": " \n"})
    assert empty["models"] == []
    assert "No word" in empty["notes"][0]
    strange = both.answer({"text": "xyzzy <script>"})
    assert "knows none of these words" in strange["notes"][0]
    assert strange["models"][0]["known"] == [False] * 4
    some = both.answer({"text": "a xyzzy"})
    assert some["notes"] == []
    assert some["models"][0]["known"] == [True, False]


def test_five_thousand_words_are_cut_and_it_is_said():
    short = Explorer([model(max_len=20)], ["short"])
    answer = short.answer({"text": "dull " * 5000})
    assert answer["words"] == 5000
    assert len(answer["tokens"]) == LONGEST
    assert "5,000 words; the first 1,000" in answer["notes"][0]
    assert "reads the first 20 words" in answer["notes"][1]
    assert len(answer["models"][0]["gates"]) == 20


def test_padded_lengths_are_few():
    lengths = {width_of(n, 400, COARSE) for n in range(1, 401)}
    assert lengths == {*COARSE[:3], 400}
    assert width_of(3, 5, COARSE) == 16
    assert width_of(300, 2000, COARSE) == 1024


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
        ({"forced": []}, "forced must be an object"),
        ({"forced": {"-1": True}}, "forced must map"),
        ({"forced": {"1": 1}}, "forced must map"),
        ({"forced": {"9" * 5000: True}}, "forced must map"),
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


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="of the kind 'tags'"):
        Explorer([_Tagger()], ["tagger"])
    with pytest.raises(ValueError, match="a name for each of the"):
        Explorer([], [])


class _Tagger:
    kind = "tags"


ROWS = [(f"{first} {second} film {third}", label)
        for label, words in (("bad", ("dull", "slow")), ("good", ("bright", "warm")))
        for first in words for second in ("old", "a") for third in ("here", "now", "")]  # fmt: skip


@pytest.fixture(scope="module")
def sentences(both):
    return read_sentences(both, open_table(ROWS), leaks=10)


def test_the_curve_is_accuracy_under_thresholds(both, sentences):
    gated, soft = sentences.curves
    assert gated["density"][-1] == 1.0
    assert gated["density"] == sorted(gated["density"])
    for density, accuracy, threshold in zip(*gated.values(), strict=True):
        right = opened = words = 0
        for text, label in ROWS:
            # at 0 the curve has all gates open, whatever their probability
            one = both.answer({"text": text, "threshold": threshold})["models"][0]
            right += both.models[0].classes[int(np.argmax(one["probabilities"]))] == label
            opened += sum(one["gates"])
            words += len(one["gates"])
        assert accuracy == pytest.approx(right / len(ROWS))
        assert density == pytest.approx(opened / words)
    assert soft["density"] == [1.0]


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


def test_sentences_come_in_their_order(both, sentences):
    about = sentences.about()
    assert (about["total"], about["leaks"], about["more"]) == (len(ROWS), 10, False)
    page = sentences.page("error", 0)
    errors = [row["error"] for row in page["rows"]]
    assert errors == sorted(errors, reverse=True)
    assert page["total"] == len(ROWS)
    assert sentences.page("leak", 0)["total"] == 10
    worst = page["rows"][0]
    said = both.answer({"text": worst["text"]})["models"][0]["probabilities"]
    assert worst["error"] == pytest.approx(1 - said[both.models[0].classes.index(worst["label"])])


def test_the_leak_is_the_change_without_the_shut_words(both, sentences):
    made = both.models[0]
    for row, (text, _) in zip(sentences.rows[:3], ROWS, strict=False):
        tokens = split_words(text)
        (read,) = made.read_texts([(text,)])
        kept = tuple(word for word, keep in zip(tokens, read.masks[0], strict=True) if keep)
        alone, _ = pure(made, kept, [1.0] * len(kept))
        best = int(np.argmax(read.probabilities))
        assert row["leak"] == pytest.approx(abs(read.probabilities[best] - alone[best]), abs=TIGHT)


def test_sentences_are_capped_and_unknown_labels_passed(both, monkeypatch):
    few = read_sentences(both, open_table([("a film", "ugly"), *ROWS]), most=3)
    assert (few.total, few.has_more) == (3, True)
    with pytest.raises(ValueError, match="must have a sentence with a label of the model"):
        read_sentences(both, open_table([("a film", "ugly"), ("b", "odd")]))
    assert few.page("density", 2)["begin"] == 2
    with pytest.raises(ValueError, match="begin must be"):
        few.page("error", -1)
    with pytest.raises(ValueError, match="order must be"):
        few.page("text", 0)
    assert _sentences.PAGE == 20


def test_a_session_answers_questions_and_refuses_others(both):
    session = Session(both, lambda: read_sentences(both, open_table(ROWS), leaks=0))
    about = session.ask({"do": "about"})
    assert [one["gated"] for one in about["models"]] == [True, False]
    assert about["sentences"]
    with pytest.raises(ValueError, match="must be read before a page"):
        session.ask({"do": "page", "order": "error"})
    while not (found := session.ask({"do": "sentences"}))["ready"]:
        session._thread.join()
    assert found["total"] == len(ROWS)
    assert found["orders"] == ["error", "density"]
    assert session.ask({"do": "page", "order": "error"})["begin"] == 0
    with pytest.raises(ValueError, match="do must be"):
        session.ask({"do": "leave"})
    with pytest.raises(ValueError, match="must be started with labelled sentences"):
        Session(both).ask({"do": "sentences"})


def test_a_file_that_cannot_be_read_is_said_on_the_page(both):
    session = Session(both, lambda: read_sentences(both, open_table([("a", "ugly"), ("b", "x")])))
    while not (found := session.ask({"do": "sentences"}))["ready"]:
        session._thread.join()
    assert "must have a sentence with a label" in found["failed"]


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


def test_a_widget_of_two_models_and_sentences(monkeypatch, tmp_path):
    pytest.importorskip("anywidget")
    model("ganet", seed=5).save(tmp_path / "model", overwrite=False)
    shown = gatedjax.explorer(model(), tmp_path / "model", data=ROWS)
    sent = []
    monkeypatch.setattr(shown, "send", lambda content, buffers=None: sent.append(content))
    shown._handle_custom_msg({"id": "1", "message": {"do": "about"}}, [])
    about = sent[0]["answer"]
    assert [one["name"] for one in about["models"]] == ["ganet (1)", "ganet (2)"]
    assert about["sentences"]


def test_without_anywidget_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ImportError, match="pip install anywidget"):
        gatedjax.explorer(model())


def test_what_is_no_model_is_refused():
    pytest.importorskip("anywidget")
    with pytest.raises(TypeError, match="got 3: pass a trained model"):
        gatedjax.explorer(3)


def test_programs_are_shared_by_texts_of_like_length(both):
    programs = Programs(both.models[0])
    for text in ("a", TEXT, "dull " * 16):
        programs.with_gates(split_words(text), [np.ones(len(split_words(text)))] * 2)
    assert programs._text_program._cache_size() == 1


@pytest.mark.parametrize("name", ["agt", "ssan", "bilstm"])
def test_layers_are_those_of_the_network(name):
    made = model(name)
    shown = Explorer([made], [name])
    answer = shown.answer({"text": TEXT})["models"][0]
    (read,) = made.read_texts([(TEXT,)])
    np.testing.assert_allclose(answer["probabilities"], read.probabilities, atol=TIGHT)
    (layers,) = shown.layers({"text": TEXT})["models"]
    json.dumps(layers, allow_nan=False)
    batch = {
        "tokens": np.array([made.vocabulary.encode(TOKENS)], np.int32),
        "lengths": np.array([len(TOKENS)], np.int32),
    }
    output = jax.jit(made.module.apply)({"params": made.params}, batch)
    if name == "bilstm":
        assert layers is None
        assert answer["attention"] is None
    elif name == "agt":
        values = [layer["values"] for layer in layers]
        np.testing.assert_allclose(values, output.attention[0], atol=TIGHT)
    else:
        assert layers[1]["name"] == "Layer 1, head 2"
        (selection,) = output.selections
        for head, layer in enumerate(layers):
            np.testing.assert_allclose(layer["pairs"], selection.weights[0, head], atol=6e-5)
            chosen = selection.gates[0, head % selection.gates.shape[1]] > 0.5
            np.testing.assert_array_equal(layer["selected"], chosen)
    assert shown.layers({"text": " "})["models"] == [None]


def test_the_words_of_a_page_are_those_of_the_tokenizer():
    social = dataclasses.replace(model(), tokenizer=Tokenizer("social"))
    answer = Explorer([social], ["social"]).answer({"text": "#dull film, isn't it", "mode": "open"})
    assert answer["tokens"] == ["#dull", "film", ",", "isn't", "it"]
    with pytest.raises(ValueError, match=r"kind of tokens.*got 'words' \(a\) and 'social' \(b\)"):
        Explorer([model(), social], ["a", "b"])
    # The page shows the words of a network once, so that learned units must be equal too.
    learned = [
        dataclasses.replace(model(), tokenizer=Tokenizer(units=Units({unit: 3}, 9)))
        for unit in ("\u597d", "\u770b")
    ]
    with pytest.raises(
        ValueError, match="got a and b, whose tokens of the kind 'words' were learned"
    ):
        Explorer(learned, ["a", "b"])


def effects_by_hand(made, state, *, soft=False):
    """The effect of each word from the network's own calls, a shorter text at a time."""

    def probabilities(places):
        tokens = [TOKENS[i] for i in places]
        p = np.array(Explorer([made], ["alone"]).programs[0].likely(tuple(tokens)))
        noise = np.random.default_rng(state.get("seed", 0)).logistic(size=len(TOKENS))
        odds = np.log(p / (1 - p)) + [noise[i] for i in places]
        free = {
            "threshold": p > 0.5,
            "sample": odds > 0,
            "expected": p,
            "relaxed": 1 / (1 + np.exp(-odds / made.config.gates.temperature)),
        }[state["mode"]]
        forced = state.get("forced", {})
        gates = [float(forced.get(str(i), g)) for i, g in zip(places, free, strict=True)]
        return pure(made, tokens, gates, soft=soft)[0]

    everything = list(range(len(TOKENS)))
    whole = probabilities(everything)
    changes = [
        whole - probabilities([i for i in everything if i != removed]) for removed in everything
    ]
    best = int(np.argmax(whole))
    return best, np.array(changes)


@pytest.mark.parametrize(
    "state",
    [
        {"mode": "threshold", "forced": {"1": True, "4": False}},
        {"mode": "sample", "seed": 5, "forced": {"6": True}},
        {"mode": "expected", "forced": {"0": False}},
        {"mode": "relaxed", "seed": 3},
    ],
)
def test_an_effect_is_the_change_without_the_word(both, state):
    soft = state["mode"] in ("expected", "relaxed")
    best, changes = effects_by_hand(both.models[0], state, soft=soft)
    (gated, _) = both.removal({"text": TEXT, **state})["models"]
    json.dumps(gated, allow_nan=False)
    assert gated["class"] == best
    np.testing.assert_allclose(gated["effects"], changes[:, best], atol=TIGHT)
    for speaks_for, change in zip(gated["speaks_for"], changes, strict=True):
        assert speaks_for == (best if change[best] >= 0 else int(np.argmax(change)))


def test_effects_of_a_model_without_gates_are_those_of_explain(both):
    made = both.models[1]
    explanation = explain_texts(made, [TEXT])
    result = both.removal({"text": TEXT})["models"][1]
    assert made.classes[result["class"]] == explanation.label
    wanted = [explanation.probability - change.probability for change in explanation.removed]
    np.testing.assert_allclose(result["effects"], wanted, atol=TIGHT)


def test_effects_of_a_gated_model_are_those_of_explain(both):
    explanation = explain_texts(both.models[0], [TEXT])
    result = both.removal({"text": TEXT})["models"][0]
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


def test_effects_of_long_and_short_texts_share_a_program(both):
    programs = Programs(both.models[0])
    for text in (TEXT, "a dull film", "dull " * 16):
        programs.removal.effects(split_words(text), State(forced={0: True}))
    # one for the text itself and one for the texts without a word
    assert programs._text_program._cache_size() == 2


def test_a_page_opens_with_the_first_labelled_sentence(both):
    table = open_table([("a strange film", "ugly"), *ROWS])
    first = first_sentence(both, table)
    assert (first["text"], first["label"]) == ROWS[0]
    assert first_sentence(both, open_table([("a", "ugly"), ("b", "odd")])) is None
    session = Session(both, lambda: None, lambda: first)
    assert session.ask({"do": "about"})["first"] == first


def test_a_page_without_sentences_opens_with_known_words(both):
    about = Session(both).ask({"do": "about"})
    assert about["first"] is None
    words = about["example"]["text"].split()
    assert words == ["a", "dull", "film", "bright", "warm", "slow", "old", "story"]
    assert all(word in both.models[0].vocabulary for word in words)


@pytest.mark.parametrize(
    ("urls", "address"),
    [
        (None, ""),
        (["Source, https://example.org/source", "Docs, https://example.org/docs"],
         "https://example.org/source"),
        (["Odd, javascript:alert(1)"], ""),
    ],
)  # fmt: skip
def test_the_foot_of_the_page_has_the_address_of_the_package(urls, address, monkeypatch):
    class Metadata:
        def get_all(self, name):
            return urls if name == "Project-URL" else None

    monkeypatch.setattr("importlib.metadata.metadata", lambda name: Metadata())
    library = describe_library()
    assert library == {"name": "gatedjax", "version": gatedjax.__version__, "address": address}
