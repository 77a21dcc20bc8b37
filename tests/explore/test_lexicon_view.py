"""The view of a lexicon: its shares are the parts of the logits, and its gates are spellings."""

import dataclasses
import functools
import json
import re

import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax.data.text._units import Units
from gatedjax.explore import _offline
from gatedjax.explore._engine import Explorer, open_model
from gatedjax.explore._offline import offline_page
from gatedjax.explore._sentences import first_sentence, read_sentences
from gatedjax.text import TextClassifier, TextRegressor
from gatedjax.text.corpus._tokens import Splitter
from gatedjax.text.sources._open import open_table
from tests.explore._models import model, of_classes, pair
from tests.text._own import write_csv

TEXT = "the dull film was not bright here"
WORDS = {"good": ("bright", "warm", "not dull"), "bad": ("dull", "slow", "not bright")}
ROWS = [
    (f"the {word} film {end}", label)
    for label, words in WORDS.items()
    for word in words
    for end in ("here", "now", "was old", "today", "at home", "again")
]
TABLE = [list(column) for column in zip(*ROWS, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A lexicon of generated sentences, which takes no compiler."""
    return TextClassifier().fit(*TABLE).save(tmp_path_factory.mktemp("lexicon") / "model")


@pytest.fixture(scope="module")
def shown(folder):
    return Explorer([open_model(folder)], ["lexicon"])


@pytest.mark.slow
def test_parts_sum_to_the_logits_and_gates_depend_only_on_the_spelling(shown):
    (one,) = shown.answer({"text": TEXT})["models"]
    json.dumps(one, allow_nan=False)
    (model,) = shown.models
    words = model.split(TEXT)
    parts = [np.array(line["values"]).sum(axis=1) for line in one["lines"]]
    logits = np.sum(parts, axis=0) + model.lexicon.parts(words).bias
    shares = np.exp(logits - logits.max())
    np.testing.assert_allclose(one["probabilities"], shares / shares.sum(), atol=1e-9)
    (read,) = model.predict([(TEXT,)])
    assert (one["title"], one["share"]) == (read.label, pytest.approx(read.probability))
    (again,) = shown.answer({"text": " ".join([*reversed(words)])})["models"]
    line, reverse = one["lines"][0], again["lines"][0]
    assert line["tokens"] == words
    assert line["read"] == reverse["read"][::-1]
    assert True in line["read"]
    assert not np.array(line["values"])[:, ~np.array(line["read"])].any()


def test_texts_without_words_and_options_of_networks(shown):
    answer = shown.answer({"text": " "})
    assert (answer["models"], answer["notes"]) == ([None], ["No word yet: type a sentence."])
    assert shown.removal({"text": TEXT})["models"] == [None]
    assert shown.about()["modes"] == []
    assert shown.answer(shown.about()["example"])["models"][0] is not None


def test_the_page_opens_with_the_extract_of_a_training_text_with_the_most_words_read(shown):
    (model,) = shown.models
    about = shown.about()
    text, origin = about["example"]["text"], about["origin"]
    extracts = {text for texts in model.examples.values() for text in texts}
    gates = model.lexicon.read([model.split(extract) for extract in extracts]).is_read
    (own,) = model.lexicon.read([model.split(text)]).is_read
    assert text in extracts
    assert sum(own) == max(map(sum, gates)) > 0
    assert "training text" in origin["note"]
    assert {label for row, label in ROWS if text in row} == {origin["label"]}
    bare = Explorer([dataclasses.replace(model, examples={})], ["lexicon"]).about()
    assert bare["example"]["text"].split()[0] in model.lexicon.words
    assert "frequent words" in bare["origin"]["note"]
    assert bare["origin"]["label"] is None


@pytest.fixture(scope="module")
def with_tokens():
    """A function from options of a lexicon to a fitted lexicon with them."""

    @functools.cache
    def fit(**options):
        return TextClassifier(**options).fit(*TABLE).model_

    return fit


def first_letters(text):
    return [word[:3] for word in text.split()]


DIFFERENT = "The models split this text into different words."


@pytest.mark.slow
def test_lexicons_of_different_tokens_have_their_own_words(with_tokens):
    posts, letters = with_tokens(tokens="social"), with_tokens(tokens="characters")
    for other in (letters, with_tokens(tokenizer=first_letters)):
        answer = Explorer([posts, other], ["a", "b"]).answer({"text": TEXT})
        words = [one["lines"][0]["tokens"] for one in answer["models"]]
        assert words == [posts.split(TEXT), other.split(TEXT)]
        assert answer["notes"] == [DIFFERENT]
    # The units of languages without spaces are learned from the training texts.
    learned = {
        name: Splitter(dataclasses.replace(posts.splitter.tokenizer, units=Units(counts, 10)))
        for name, counts in (("one", {"\u597d\u770b": 10}), ("two", {"\u597d": 5, "\u770b": 5}))
    }
    models = [dataclasses.replace(posts, splitter=splitter) for splitter in learned.values()]
    assert [m.split("\u597d\u770b") for m in models] == [["\u597d\u770b"], ["\u597d", "\u770b"]]
    shown = Explorer(models, list(learned))
    assert shown.answer({"text": "dull \u597d\u770b"})["notes"] == [DIFFERENT]
    assert shown.answer({"text": TEXT})["notes"] == []


@pytest.mark.slow
def test_a_lexicon_stands_beside_a_network_of_the_same_classes(shown):
    (lexicon,) = shown.models
    both = Explorer([lexicon, model()], ["lexicon", "network"])
    of_lexicon, of_network = both.answer({"text": TEXT, "forced": {"1": True}})["models"]
    assert of_lexicon == shown.answer({"text": TEXT})["models"][0]
    alone = Explorer([model()], ["network"])
    assert of_network == alone.answer({"text": TEXT, "forced": {"1": True}})["models"][0]
    weights = both.removal({"text": TEXT})["models"]
    assert weights == [None, *alone.removal({"text": TEXT})["models"]]
    sentences = read_sentences(both, open_table(ROWS[::5]))
    assert [len(curve["share"]) > 1 for curve in sentences.curves] == [False, True]
    for other in (of_classes(3), pair("san")):
        with pytest.raises(ValueError, match="same kind, or classify single texts into the same"):
            Explorer([lexicon, other], ["lexicon", "other"])


def test_a_word_that_is_switched_off_is_not_in_the_text(shown):
    text = "the dull film was not bright here , dull"
    (whole,) = shown.answer({"text": text})["models"]
    (one,) = shown.answer({"text": text, "off": ["dull", "absent"]})["models"]
    (without,) = shown.answer({"text": "the film was not bright here ,"})["models"]
    for name in ("probabilities", "title", "share", "best"):
        assert one[name] == without[name]
    assert one["before"] == {name: whole[name] for name in ("title", "share")}
    assert one["probabilities"] != whole["probabilities"]
    words, remaining = one["lines"][0], without["lines"][0]
    assert words["tokens"] == whole["lines"][0]["tokens"]
    assert words["off"] == [token == "dull" for token in words["tokens"]]
    places = np.flatnonzero(~np.array(words["off"]))
    for name in ("read", "known"):
        assert [words[name][i] for i in places] == remaining[name]
    np.testing.assert_array_equal(np.array(words["values"])[:, places], remaining["values"])
    assert not np.array(words["values"])[:, words["off"]].any()
    assert not np.array(words["read"])[words["off"]].any()
    # A pair whose words were apart is a pair of the shorter text.
    pairs, others = ([line["values"] for line in made["lines"][1:]] for made in (one, without))
    assert pairs == others
    # Without all its words a text has the prior.
    (empty,) = shown.answer({"text": "dull dull", "off": ["dull"]})["models"]
    np.testing.assert_allclose(empty["probabilities"], shown.models[0].lexicon.prior)
    with pytest.raises(ValueError, match="off must be a list of words"):
        shown.answer({"text": text, "off": "dull"})


def test_a_pair_with_a_gap_has_a_number_at_its_words(shown):
    (model,) = shown.models
    is_read = np.isin(model.lexicon.words, ["not", "dull"])
    lexicon = dataclasses.replace(model.lexicon, is_read=is_read, threshold=1e9)
    view = Explorer([dataclasses.replace(model, lexicon=lexicon)], ["lexicon"])
    words, pairs = view.answer({"text": "not at all dull , not dull"})["models"][0]["lines"]
    assert pairs["tokens"] == ["not ... dull", "not dull"]
    assert pairs["marks"] == ["1", ""]
    assert words["marks"] == ["1", "", "", "1", "", "", ""]


def page_data(page):
    return json.loads(re.search(r'id="gatedjax-data">(.*?)</script>', page.decode(), re.S)[1])


def test_a_page_without_a_server_has_the_texts_of_a_file(shown, folder, tmp_path, capsys):
    write_csv(tmp_path / "test.csv", ROWS)
    page = tmp_path / "page.html"
    assert main(["explore", str(folder), "--file", str(tmp_path / "test.csv"),
                 "--html", str(page)]) == 0  # fmt: skip
    assert capsys.readouterr().out.startswith(f"wrote {page} (")
    data = page_data(page.read_bytes())
    sentences = read_sentences(shown, open_table(ROWS))
    assert list(data["answers"]) == list(dict.fromkeys(text for text, _ in ROWS))
    assert data["decided"] == sentences.find_all() != {}
    assert len(data["sentences"]["rows"]) == len(ROWS)
    for text, answer in data["answers"].items():
        (one,), (wanted,) = answer["models"], shown.answer({"text": text})["models"]
        assert one["title"] == wanted["title"]
        np.testing.assert_allclose(one["probabilities"], wanted["probabilities"], rtol=1e-5)
        for line, other in zip(one["lines"], wanted["lines"], strict=True):
            np.testing.assert_allclose(line["values"], other["values"], rtol=1e-5)
    assert not any(about["switched"] for about in data["about"]["models"])


def test_a_page_has_as_many_texts_as_its_size_allows(shown, monkeypatch):
    monkeypatch.setattr(_offline, "MOST_BYTES", 120_000)
    page = offline_page(shown, "", open_table(ROWS))
    assert len(page) < 120_000
    data = page_data(page)
    rows = data["sentences"]["rows"]
    assert data["sentences"]["more"]
    assert 0 < len(rows) < len(ROWS)
    assert {row["text"] for row in rows} <= set(data["answers"])
    # of a text, or of an example
    data = page_data(offline_page(shown, TEXT))
    assert (list(data["answers"]), data["sentences"]) == ([TEXT], None)
    assert list(page_data(offline_page(shown, ""))["answers"]) == [shown.about()["example"]["text"]]
    # a text cannot end the script that holds it
    page = offline_page(shown, "a </script> <!-- film")
    assert page_data(page)["text"] == "a </script> <!-- film"
    assert b"<!-- film" not in page
    with pytest.raises(ValueError, match="text must have a word"):
        offline_page(shown, " ")
    both = Explorer([*shown.models, model()], ["lexicon", "network"])
    with pytest.raises(ValueError, match="must be of lexicons, or of networks"):
        offline_page(both, TEXT)


def test_labelled_sentences_have_the_predictions_of_the_lexicon(shown):
    rows = [*ROWS[::5], ("the dull film", "good"), ("no label", None), ("a film", "odd")]
    table = open_table(rows)
    first = first_sentence(shown, table)
    assert (first["text"], first["label"]) == ROWS[0]
    about = read_sentences(shown, table).about()
    (model,) = shown.models
    examples = [(text,) for text, label in rows if label in model.classes]
    reads, chances = list(model.predict(examples)), model.probabilities(examples)
    for row, read, own in zip(about["rows"], reads, chances, strict=True):
        assert (row["predicted"], row["share"]) == (read.label, pytest.approx(read.share))
        assert row["error"] == pytest.approx(1 - own[model.classes.index(row["label"])], abs=1e-6)
    (curve,) = about["curves"]
    assert curve["accuracy"] == [np.mean([r["predicted"] == r["label"] for r in about["rows"]])]
    words = [len(model.split(text)) for (text,) in examples]
    share = np.average([read.share for read in reads], weights=words)
    assert curve["share"] == [pytest.approx(share)]
    # The only sentence with a wrong label has the largest error.
    assert max(about["rows"], key=lambda row: row["error"])["text"] == "the dull film"


@pytest.mark.slow
def test_a_lexicon_of_numbers_has_no_labelled_sentences_to_browse():
    numbers = TextRegressor.train([(text, len(text)) for text, _ in ROWS])
    other = Explorer([numbers.model_], ["numbers"])
    with pytest.raises(ValueError, match="--file must be left out unless the models are networks"):
        other.check_sentences("--file")
