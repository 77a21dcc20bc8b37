"""The view of a lexicon: its shares are the parts of the logits, and its gates are spellings."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax.data.text._units import Units
from gatedjax.explore._engine import Explorer
from gatedjax.explore._open import open_model
from gatedjax.explore._sentences import first_sentence, read_sentences
from gatedjax.text._read import open_table

pytest.importorskip("gatedjax.text._lexicon")

TEXT = "the dull film was not bright here"
WORDS = {"good": ("bright", "warm", "not dull"), "bad": ("dull", "slow", "not bright")}
ROWS = [
    (f"the {word} film {end}", label)
    for label, words in WORDS.items()
    for word in words
    for end in ("here", "now", "was old", "today", "at home", "again")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A lexicon of generated sentences, which takes no compiler."""
    from gatedjax.text import TextClassifier

    texts, labels = zip(*ROWS, strict=True)
    classifier = TextClassifier("lexicon").fit(list(texts), list(labels))
    place = tmp_path_factory.mktemp("lexicon") / "model"
    classifier._get_trained().save(place, overwrite=False)
    return place


@pytest.fixture(scope="module")
def shown(folder):
    return Explorer([open_model(folder)], ["lexicon"])


def test_shares_sum_to_the_logits_and_the_logits_give_the_probabilities(shown):
    (one,) = shown.answer({"text": TEXT})["models"]
    json.dumps(one, allow_nan=False)
    (model,) = shown.models
    parts = [np.array(line["values"]).sum(axis=1) for line in one["lines"]]
    logits = np.sum(parts, axis=0) + model.lexicon.share(model.split(TEXT)).bias
    shares = np.exp(logits - logits.max())
    np.testing.assert_allclose(one["probabilities"], shares / shares.sum(), atol=1e-9)
    (read,) = model.predict([(TEXT,)])
    assert (one["title"], one["share"]) == (read.label, pytest.approx(read.probability))


def test_a_gate_depends_only_on_the_spelling(shown):
    words = shown.models[0].split(TEXT)
    (one,) = shown.answer({"text": TEXT})["models"]
    (again,) = shown.answer({"text": " ".join([*reversed(words)])})["models"]
    line, reverse = one["lines"][0], again["lines"][0]
    assert line["tokens"] == words
    assert line["gates"] == reverse["gates"][::-1]
    assert True in line["gates"]
    closed = np.flatnonzero(~np.array(line["gates"]))
    assert not np.array(line["values"])[:, closed].any()


def test_texts_without_words_and_options_of_networks(shown):
    answer = shown.answer({"text": " "})
    assert (answer["models"], answer["notes"]) == ([None], ["No word yet: type a sentence."])
    assert shown.removal({"text": TEXT})["models"] == [None]
    with pytest.raises(ValueError, match="networks that classify single texts"):
        shown.check_gates("--html")
    assert shown.answer(shown.about()["example"])["models"][0] is not None


def test_the_page_opens_with_the_extract_of_a_training_text_with_the_most_open_words(shown):
    (model,) = shown.models
    about = shown.about()
    text, origin = about["example"]["text"], about["origin"]
    extracts = {text for texts in model.examples.values() for text in texts}
    gates = model.lexicon.read([model.split(extract) for extract in extracts]).is_open
    (own,) = model.lexicon.read([model.split(text)]).is_open
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
    from gatedjax.text import TextClassifier

    texts, labels = zip(*ROWS, strict=True)

    @functools.cache
    def fit(**options):
        return TextClassifier("lexicon", **options).fit(list(texts), list(labels)).model_

    return fit


def first_letters(text):
    return [word[:3] for word in text.split()]


def test_lexicons_of_different_kinds_of_tokens_are_not_compared(with_tokens, tmp_path, capsys):
    posts, words = with_tokens(tokens="social"), with_tokens(tokens="words")
    letters, own = with_tokens(tokens="characters"), with_tokens(tokenizer=first_letters)
    for other, kind in ((words, "'words'"), (letters, "'characters'"), (own, "first_letters'")):
        message = rf"same kind of tokens.*got 'social' \(a\) and '?[\w.:]*{kind} \(b\): train one"
        with pytest.raises(ValueError, match=message):
            Explorer([posts, other], ["a", "b"])
        # Two models of a kind are compared, also with a function of the user.
        assert len(Explorer([other, other], ["a", "b"]).views) == 2
    for name, model in (("posts", posts), ("words", words)):
        model.save(tmp_path / name, overwrite=False)
    args = ["explore", tmp_path / "posts", "--against", tmp_path / "words", "--no-browser"]
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, args)))
    error = capsys.readouterr().err
    assert (stop.value.code, error.count("\n")) == (2, 1)
    assert "got 'social' (posts) and 'words' (words): train one of them again" in error


def test_lexicons_with_different_learned_units_are_compared_with_a_note(with_tokens):
    model = with_tokens(tokens="social")
    learned = {
        name: dataclasses.replace(
            model.splitter,
            tokenizer=dataclasses.replace(model.splitter.tokenizer, units=Units(counts, 10)),
        )
        for name, counts in (("one", {"\u597d\u770b": 10}), ("two", {"\u597d": 5, "\u770b": 5}))
    }
    models = [dataclasses.replace(model, splitter=splitter) for splitter in learned.values()]
    assert [m.split("\u597d\u770b") for m in models] == [["\u597d\u770b"], ["\u597d", "\u770b"]]
    shown = Explorer(models, list(learned))
    note = "each of them learned its units from its training texts"
    assert [note in line for line in shown.answer({"text": "dull \u597d\u770b"})["notes"]] == [True]
    assert shown.answer({"text": TEXT})["notes"] == []


def test_labelled_sentences_have_the_predictions_of_the_lexicon(shown):
    shown.check_sentences("--file")
    rows = [*ROWS[::5], ("the dull film", "good"), ("no label", None), ("a film", "odd")]
    table = open_table(rows)
    first = first_sentence(shown, table)
    assert (first["text"], first["label"]) == ROWS[0]
    sentences = read_sentences(shown, table)
    about = sentences.about()
    assert (about["total"], about["orders"]) == (len(rows) - 2, ["error", "density"])
    (model,) = shown.models
    texts = [row["text"] for row in sentences.rows]
    reads = list(model.predict([(text,) for text in texts]))
    assert [row["predicted"] for row in sentences.rows] == [read.label for read in reads]
    np.testing.assert_allclose(
        [row["density"] for row in sentences.rows], [read.density for read in reads]
    )
    probabilities = model.probabilities([(text,) for text in texts])
    columns = [model.classes.index(row["label"]) for row in sentences.rows]
    np.testing.assert_allclose(
        [row["error"] for row in sentences.rows],
        1 - probabilities[np.arange(len(texts)), columns],
        atol=1e-6,
    )
    words = [len(model.split(text)) for text in texts]
    (curve,) = about["curves"]
    assert curve["accuracy"] == [np.mean([r["predicted"] == r["label"] for r in sentences.rows])]
    opened = np.dot([read.density for read in reads], words) / sum(words)
    assert curve["density"] == [pytest.approx(opened)]
    # The only sentence with a wrong label has the largest error.
    assert sentences.page("error", 0)["rows"][0]["text"] == "the dull film"


def test_a_lexicon_of_numbers_has_no_labelled_sentences_to_browse(shown):
    import copy

    other = copy.copy(shown)
    numbers = copy.copy(shown.models[0])
    object.__setattr__(numbers, "kind", "regression")
    other.models = [numbers]
    with pytest.raises(ValueError, match="--file must be left out unless the models are networks"):
        other.check_sentences("--file")


def test_a_notebook_shows_a_fitted_lexicon(monkeypatch):
    pytest.importorskip("anywidget")
    import gatedjax

    texts, labels = zip(*ROWS, strict=True)
    classifier = gatedjax.TextClassifier("lexicon").fit(list(texts), list(labels))
    widget = gatedjax.explorer(classifier, text=TEXT)
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    widget._handle_custom_msg({"id": "1", "message": {"do": "answer", "text": TEXT}}, [])
    (answer,) = sent
    (label,) = classifier.predict([TEXT])
    assert answer["answer"]["models"][0]["title"] == label
