"""Tokenizers of models: what is learned, what a folder stores, what is refused."""

import dataclasses
import functools
import json
import random

import pytest

from gatedjax import TextClassifier
from gatedjax.__main__ import main
from gatedjax.text.corpus._corpus import read_training
from gatedjax.text.corpus._tokens import (
    Splitter,
    Tokenizer,
    choose_tokenizer,
    import_path,
    learn_units,
)
from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import Columns
from tests.data.test_posts import random_posts
from tests.explore._models import model as draw_model
from tests.lexicon.test_lexicon import random_texts
from tests.refusals import refused
from tests.text._own import options, reasons

HAN = [
    (f"{first}{second}电影 #新片", label)
    for label, words in (("bad", ("难看", "无聊")), ("good", ("好看", "精彩")))
    for first in words
    for second in ("的", "又", "很", "真")
] * 2


def commas(text):
    """A tokenizer of a user."""
    return [part.strip() for part in text.split(",")]


def upper_commas(text):
    """Another tokenizer of a user."""
    return [part.strip().upper() for part in text.split(",")]


def texts(rows):
    return lambda: (text for text, _ in rows)


@pytest.mark.parametrize("kind", ["words", "social", "characters", "bpe"])
def test_a_tokenizer_is_the_same_after_it_is_stored(kind):
    if kind == "bpe":
        pytest.importorskip("tokenizers")
    corpus, numbers = read_training(open_table(HAN), lowercase=True, tokens=kind)
    rule = numbers.tokenizer
    assert rule.kind == kind
    assert (rule.units is not None) == (kind in ("words", "social"))
    stored = json.loads(json.dumps(rule.to_json(), ensure_ascii=False))
    again = Tokenizer.from_json(stored)
    for text in ["好看的电影 #新片", "NEW words, 12:30", "", "@me 难看"]:
        assert again.split(text) == rule.split(text)
        assert rule.split(text, 2) == rule.split(text)[:2]
    words = list(numbers.ids)
    assert [words[i] for i in corpus.texts[0][0]] == list(rule.split(HAN[0][0]))
    if kind in ("words", "social"):
        assert {"难看", "无聊", "好看"} < set(numbers.ids)
    if kind == "social":
        assert "#新片" in numbers.ids


def test_texts_with_spaces_learn_no_units_and_are_read_once():
    passes = []
    table = open_table([("a dull film", "x"), ("ein sch\u00f6ner Film", "y")])

    def rows(columns):
        passes.append(columns)
        return table.source.rows(columns)

    counted = dataclasses.replace(table, source=dataclasses.replace(table.source, rows=rows))
    _, numbers = read_training(counted, lowercase=True)
    assert numbers.tokenizer == Tokenizer()
    assert len(passes) == 1


def test_units_are_learned_from_both_texts_of_a_pair():
    rows = [("a film", text, label) for text, label in HAN]
    table = open_table(rows, Columns(("premise", "hypothesis")))
    assert read_training(table, lowercase=True)[1].tokenizer.units is not None


def test_functions_of_users():
    assert import_path(commas) == "tests.text.test_tokens:commas"
    for function in (lambda text: text.split(), functools.partial(commas)):
        assert import_path(function) is None
    rule = choose_tokenizer(None, commas, texts(HAN), lowercase=True)
    assert rule.split("a b, c,") == ("a b", "c")


def test_a_function_is_passed_again_and_compared():
    stored = Tokenizer("custom", function=commas).to_json()
    assert Tokenizer.from_json(stored, commas).split("a, b") == ("a", "b")
    again = functools.partial(commas)  # the same tokens, another function
    assert Tokenizer.from_json(stored, again).split("a, b") == ("a", "b")


def test_a_network_gets_its_function_again(tmp_path):
    model = dataclasses.replace(draw_model(), tokenizer=Tokenizer("custom", function=commas))
    folder = model.save(tmp_path / "model", overwrite=False)
    assert TextClassifier.load(folder, tokenizer=commas).model_.tokenizer == model.tokenizer


@pytest.mark.slow
def test_a_model_keeps_its_tokens(tmp_path, capsys):
    # texts of five to seven words are read in windows
    chosen = options("gru", min_class=2, max_len=4)
    trained = TextClassifier.train(HAN, tokens="social", **chosen)
    trained.save(tmp_path / "social")
    again = TextClassifier.load(tmp_path / "social")
    assert again.tokens == "social"
    before, after = (reasons(model, ["真难看的电影 #新片"])[0] for model in (trained, again))
    assert before == after
    assert "#新片" in after.read
    assert "".join(after.read) == "真难看的电影#新片"
    assert 3 < len(after.read) < 8  # units, neither characters nor the whole run
    assert main(["predict", str(tmp_path / "social"), "好看"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in ("good", "bad")


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", ["words", "social", "characters"])
def test_tokens_stay_the_same_if_tokens_are_left_out(kind, lowercase):
    texts = ["天气好 今天天气好", "天气 今天", "สวัสดี ครับ สวัสดี"] * 3
    splitter = Splitter(learn_units(Tokenizer(kind), texts), lowercase)
    rng = random.Random(4)
    hard = [
        "a天@b.c",
        "x_y n't U.S. don't",
        "3️⃣ &amp;lt; <br />",
        "İI ﬁ www.天.org @天气",
        "a@b.c天",
    ]
    for text in [*hard, *random_texts()[::3]]:
        words = splitter.split(text)
        remaining = [word for word in words if rng.random() < 0.6]
        assert splitter.split(" ".join(remaining)) == remaining
        assert splitter.split_again(remaining) == remaining
    fresh = Splitter(splitter.tokenizer, lowercase)
    # The tokens of a text do not depend on the texts before it.
    assert [fresh.split(text) for text in reversed(hard)] == [*map(splitter.split, hard[::-1])]


def settle(splitter, token, rounds=8):
    """The tokens that do not change if they are split again, without a memory of tokens."""
    parts = [p.lower() if splitter.lowercase else p for p in splitter.tokenizer.split(token)]
    if parts == [token]:
        return parts
    return [p for part in parts if rounds for p in settle(splitter, part, rounds - 1)]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", ["words", "social", "characters"])
def test_a_memory_of_tokens_changes_no_token(kind, lowercase, monkeypatch):
    monkeypatch.setattr("gatedjax.text.corpus._tokens._MOST_FORMS", 50)
    splitter = Splitter(learn_units(Tokenizer(kind), ["天气好 今天天气好", "天气"] * 3), lowercase)
    for text in [*random_posts(100), *random_texts()[::9], "n't x_y a_b İstanbul"]:
        tokens = splitter.tokenizer.split(text)
        wanted = [token.lower() if lowercase else token for token in tokens]
        assert splitter.split(text) == [p for token in wanted for p in settle(splitter, token)]


def test_the_tokens_of_a_function_are_not_split_again():
    splitter = Splitter(Tokenizer("custom", function=commas))
    assert splitter.split("A b, c") == ["a b", "c"]
    assert splitter.split_again(["a b", "c"]) == ["a b", "c"]


@pytest.mark.parametrize("kind", ["words", "characters", "bpe", "custom"])
def test_a_lexicon_uses_every_tokenizer(kind, tmp_path):
    if kind == "bpe":
        pytest.importorskip("tokenizers")
    given = {"tokenizer": commas} if kind == "custom" else {"tokens": kind}
    rows = [(f"{word}, {thing}", word) for word in ("Dull", "Fine") for thing in "abcdefghij"]
    model = TextClassifier.train(rows, share=0.5, **given)
    report = model.report_["validation"]["same_answer"]
    assert report["equal"] == report["texts"] > 0
    model.save(tmp_path / "model")
    function = given.get("tokenizer")
    again = TextClassifier.load(tmp_path / "model", tokenizer=function)
    assert again.get_params()["tokens"] == given.get("tokens")
    query = ["Fine, film"]
    assert reasons(again, query) == reasons(model, query)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["tokens"] == kind
    if kind == "custom":
        assert "fine" in reasons(again, query)[0].read
        refused(lambda: TextClassifier.load(tmp_path / "model"), "tokenizer=commas")
