"""Pairs, readers and translators: what the page shows is what the library itself finds."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from gatedjax.explore._engine import Explorer, open_model
from gatedjax.explore._offline import offline_page
from gatedjax.explore._state import State
from gatedjax.explore._views import PAIRED, grid
from gatedjax.models import SSANTranslator
from gatedjax.text.answers._explain import explain
from gatedjax.text.models._reader import Reader, question
from gatedjax.text.models._translator import encode, parameters_like, translate_texts
from tests.explore._models import model, pair
from tests.text._runs import LINES, drawn, reader_run, translator_run

TIGHT = 1e-5
DOCUMENT = "Anna saw the house. Then Emil , a gardener , went to the garden."
STATE = {"text": DOCUMENT, "question": "XXXXX saw the house.", "candidates": "Anna\nEmil\n\nBob"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of a reader and of a translator, which needs a library of its own."""
    pytest.importorskip("tokenizers")
    place = tmp_path_factory.mktemp("runs")
    return reader_run(place / "reader"), translator_run(place / "translator")


@pytest.fixture(scope="module")
def readers(runs):
    return Explorer([open_model(runs[0])], ["reader"])


@pytest.fixture(scope="module")
def translators(runs):
    # with parameters that say something
    made = open_model(runs[1])
    params = drawn(parameters_like(made.model), 22)
    return Explorer([dataclasses.replace(made, params=params)], ["translator"])


@pytest.mark.slow
def test_a_reader_answers_as_gatedjax_answer_does(readers, runs):
    answer = readers.answer(STATE)
    json.dumps(answer, allow_nan=False)
    (one,) = answer["models"]
    source = question(
        "Anna saw the house . Then Emil , a gardener , went to the garden .",
        "@placeholder saw the house .",
        ["Anna", "Emil", "Bob"],
    )
    words = source[0]["tokens"]
    reader = Reader.open(runs[0]).with_words([*words, *source[0]["query"]])
    (reading,) = reader.answer_questions(source)
    np.testing.assert_allclose(one["probabilities"], reading.probabilities, atol=TIGHT)
    assert one["classes"] == ["Anna", "Emil", "Bob"]
    assert one["details"] == ["1 \u00d7", "1 \u00d7", "not in the document"]
    assert one["title"] == reading.candidates[reading.best]
    hop, last = one["lines"]
    assert hop["tokens"] == list(words)
    assert hop["of"] == list(reading.query)
    assert [word for word, known in zip(words, hop["known"], strict=True) if not known] == [
        ",", "a", "gardener", ",", "garden",
    ]  # fmt: skip
    values = np.array(hop["values"])
    assert values.shape == (len(reading.query), len(words))
    np.testing.assert_allclose(values.sum(axis=0), 1, atol=6e-4)
    shares = np.array(last["values"])
    total = sum(shares[place.position] for place in reading.places)
    assert {place.position for place in reading.places} == {
        i for i, is_marked in enumerate(hop["marked"]) if is_marked
    }
    for place in reading.places:
        np.testing.assert_allclose(values[:, place.position], place.hops[0], atol=6e-5)
        assert shares[place.position] / total == pytest.approx(place.weight, abs=1e-4)


def test_a_candidate_of_several_words_has_a_frame_where_it_occurs_as_a_whole(readers):
    answer = readers.answer(STATE | {"candidates": "the house\nthe gardener\nEmil"})
    (one,) = answer["models"]
    assert one["details"] == ["1 \u00d7", "not in the document", "1 \u00d7"]
    last = one["lines"][-1]
    pairs = zip(last["tokens"], last["marked"], strict=True)
    framed = [word for word, is_marked in pairs if is_marked]
    assert framed == ["the", "house", "Emil"]
    assert one["probabilities"][1] == 0
    notes = readers.answer(STATE | {"candidates": "house the"})["notes"]
    assert "a candidate must occur as a whole" in notes[0]


def test_edits_of_a_question_compile_nothing(readers):
    view = readers.views[0]
    before = view._program._cache_size()
    for word in ("here", "gardening", "@begin"):
        edited = STATE | {"text": f"Emil went {word}", "candidates": f"Emil\n{word}"}
        assert readers.answer(edited)["models"][0]["lines"]
    assert view._program._cache_size() == max(before, 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"text": " "}, "No document yet"),
        ({"question": ""}, "No question yet"),
        ({"question": "who saw it?"}, "no @placeholder"),
        ({"question": "XXXXX " + "a " * 126}, "at most 126 words here, not 127"),
        ({"candidates": "\n"}, "No candidate yet"),
        ({"candidates": "\n".join(map(str, range(129)))}, "at most 128 candidates, not 129"),
        ({"candidates": "anna"}, "letter by letter"),
    ],
)
def test_why_a_question_has_no_answer(readers, changes, says):
    answer = readers.answer(STATE | changes)
    assert says in answer["notes"][0]
    assert answer["models"] == [None]


@pytest.mark.slow
def test_a_long_document_is_cut_and_tokens_stay_as_they_are(runs):
    shown = Explorer([open_model(runs[0])], ["reader"], tokenized=True)
    state = {"text": "@e1 " * 1200, "question": "@placeholder saw", "candidates": "@e1"}
    answer = shown.answer(state)
    assert answer["notes"] == ["The document has 1,200 words; the first 1,000 are read."]
    assert answer["models"][0]["lines"][0]["tokens"] == ["@e1"] * 1000


@pytest.mark.slow
def test_a_translation_is_that_of_gatedjax_translate(translators):
    (wanted,) = translate_texts(translators.models[0], [LINES[0]])
    (one,) = translators.answer({"text": LINES[0]})["models"]
    assert one["title"] == wanted != ""
    (pieces,) = one["lines"]
    assert "".join(pieces["tokens"]) == LINES[0].replace(" ", "")
    (layers,) = translators.layers({"text": LINES[0]})["models"]
    json.dumps(layers, allow_nan=False)
    names = [layer["name"] for layer in layers]
    assert names == [
        "Alignment: last layer, mean of heads",
        *("Decoder layer 1, head 1", "Decoder layer 1, head 2"),
        *("Encoder layer 1, head 1", "Encoder layer 1, head 2"),
    ]
    assert layers[0]["columns"] == [*LINES[0].split(), "</s>"]
    assert " ".join(layers[0]["rows"]) == wanted
    for layer in layers[:3]:
        np.testing.assert_allclose(np.sum(layer["pairs"], axis=1), 1, atol=1e-3)
    np.testing.assert_allclose(
        layers[0]["pairs"], np.mean([layers[1]["pairs"], layers[2]["pairs"]], axis=0), atol=1e-4
    )
    assert layers[3]["selected"] is not None
    assert layers[0]["uniform"] == 1 / len(layers[0]["columns"])


@pytest.mark.slow
def test_the_alignment_is_what_the_decoder_attends_to(translators, monkeypatch):
    """Gathered with these weights, the values are what the layer's own attention gives."""
    view = translators.views[0]
    (ids,) = encode(view._translator.bpe, [LINES[1]])
    ids = tuple(map(int, ids))
    target = (4, 5, 3)
    weights, selections = view._aligning(ids, target)
    made: SSANTranslator = view._translator.model
    batch = {
        "tokens": np.array([ids], np.int32), "lengths": np.array([len(ids)], np.int32),
        "targets": np.array([target], np.int32), "target_lengths": np.array([3], np.int32),
    }  # fmt: skip
    params = view._translator.params
    whole = jax.jit(lambda p, b: made.apply({"params": p}, b, capture_intermediates=True))
    output, seen = whole(params, batch)
    seen = seen["intermediates"]["decoder_0"]["source_attention"]
    # what the heads gather is W v, and out projects it
    value = seen["value"]["__call__"][0][0]
    mixed = np.einsum("mtn,nmd->tmd", weights[0], value)
    out = params["decoder_0"]["source_attention"]["out"]
    wanted = np.einsum("tmd,mdk->tk", mixed, out["kernel"]) + out["bias"]
    np.testing.assert_allclose(seen["__call__"][0][0], wanted, atol=1e-4)
    for one, other in zip(selections, output.selections, strict=True):
        size = len(ids)
        np.testing.assert_allclose(one.weights[:, :, :size, :size], other.weights, atol=TIGHT)
    # a word has the mean over its own pieces; the last of this target is the stop token
    monkeypatch.setattr(view, "_translating", lambda ids: target)
    shown = view.layers(State(text=LINES[1]))
    words, columns = (np.array(view._translator.bpe.words(of)) for of in (target[:-1], ids[:-1]))
    for head, layer in zip(weights[0], shown[1:3], strict=True):
        for word, row in enumerate(layer["pairs"]):
            mean = head[np.flatnonzero(words == word)].mean(axis=0)
            wanted = [mean[:-1][columns == column].sum() for column in range(columns[-1] + 1)]
            np.testing.assert_allclose(row, [*wanted, mean[-1]], atol=1e-4)


def test_what_is_not_translated(translators):
    assert translators.answer({"text": " "})["notes"] == ["No word yet: type a sentence."]
    long = translators.answer({"text": "A dog runs. " * 300})
    assert "at most 255 can be translated here" in long["notes"][0]
    assert long["models"] == translators.layers({"text": " "})["models"] == [None]


@pytest.fixture(scope="module")
def paired():
    """Two networks of pairs, of which the first selects."""
    return Explorer([pair("ssan"), pair("san", seed=2)], ["ssan", "san"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ssan", "san"])
def test_a_pair_is_read_as_prediction_reads_it(paired, name):
    place = ["ssan", "san"].index(name)
    state = {"text": "a dull film", "hypothesis": "the film , here , is slow"}
    one = paired.answer(state)["models"][place]
    (read,) = paired.models[place].read([tuple(state.values())])
    np.testing.assert_allclose(one["probabilities"], read.probabilities, atol=TIGHT)
    for line, tokens, is_read in zip(one["lines"], read.tokens, read.masks, strict=True):
        assert line["tokens"] == list(tokens)
        if name == "san":
            assert line["marked"] is None
        else:
            np.testing.assert_array_equal(line["marked"], is_read)
    layers = paired.layers(state)["models"][place]
    assert [len(layer["pairs"]) for layer in layers] == [3, 7]
    for layer in layers:
        assert (layer["selected"] is None) == (name == "san")
        # what selects nothing attends to nothing
        chosen = np.any(layer["selected"], axis=1) if name == "ssan" else 1
        np.testing.assert_allclose(np.sum(layer["pairs"], axis=1), chosen, atol=1e-3)
    if name == "ssan":
        chosen = [np.mean(layer["selected"]) for layer in layers]
        assert read.share == pytest.approx(np.mean(chosen), abs=TIGHT)
        assert f"{read.share:.3f} of the pairs" in one["note"]


@pytest.mark.slow
def test_pairs_that_are_not_there_or_too_long():
    shown = Explorer([pair("ssan", max_len=50)], ["pair"])
    answer = shown.answer({"text": "a " * 60})
    assert answer["notes"] == [
        "The first text has 60 words; the first 50 are read.",
        "The second text has no word yet.",
    ]
    assert answer["models"] == shown.layers({"text": "a"})["models"] == [None]
    (layers,) = shown.layers({"text": "a " * 60, "hypothesis": "b"})["models"]
    assert (len(layers[0]["pairs"]), layers[0]["cut"]) == (PAIRED, True)
    assert grid("", np.ones((2, PAIRED + 1)), "ab", "c" * (PAIRED + 1))["cut"]


def test_what_only_gates_have_is_refused(readers):
    with pytest.raises(ValueError, match="of the same kind"):
        Explorer([model(), pair("san")], ["text", "pair"])
    with pytest.raises(ValueError, match="networks that classify single texts"):
        offline_page(readers, "a film")


@pytest.mark.slow
def test_effects_of_a_pair_are_those_of_explain(paired):
    made = paired.models[0]
    texts = ["a dull film", "the film here is slow"]
    state = {"text": texts[0], "hypothesis": texts[1]}
    result = paired.removal(state)["models"][0]
    explanation = explain(made, texts)
    assert made.classes[result["class"]] == explanation.label
    wanted = [explanation.probability - change.probability for change in explanation.removed]
    assert [len(effects) for effects in result["lines"]] == [3, 5]
    np.testing.assert_allclose(np.concatenate(result["lines"]), wanted, atol=TIGHT)
    assert paired.removal({**state, "hypothesis": "film"})["models"] == [None, None]
    assert paired.removal({**state, "hypothesis": "film " * 65})["models"] == [None, None]
