"""What models of own text refuse: options, texts, y, sentences, encoders, tokenizers."""

import functools
import json
import types

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    PairClassifier,
    Tagger,
    TextClassifier,
    TextRegressor,
)
from gatedjax._commands._columns import parse_thresholds
from gatedjax.text._options import TextOptions, check_options
from gatedjax.text.corpus._tokens import NeedsTokenizer, Tokenizer
from tests.refusals import each_row, refused
from tests.text import test_targets as targets
from tests.text._own import TEXTS, X, Y
from tests.text.test_states import encode_static, encode_with_neighbours
from tests.text.test_tokens import commas, upper_commas

QUERIES = ["a dull film", "bright and warm", "old"]


def options(kind="text", model="lexicon", **changes):
    return lambda: check_options(TextOptions(model, **changes), kind)


OPTIONS = {
    "lexicon": [
        (options(num_steps=3), "num_steps|left out for model='lexicon'|3|leave it out, or give"),
        (options(network={"hidden": 4}), "network|left out for model='lexicon'"),
        (options(max_len=10), "max_len|left out for model='lexicon'"),
        (options(share=1.5), "share|(0, 1]"),
        (options(model="lexikon"), "Did you mean 'lexicon'"),
        (options(class_weight="even"), "class_weight|'balanced'|None|'even'"),
        (options(best_metric="f1"), "best_metric|'accuracy', 'macro_f1'|'f1'"),
        (options(order=["a", "b"]), "order must be left out for the task"),
        (options(threshold={"a": 1.5}), "threshold|(0, 1)|1.5"),
        (options(threshold={}), "threshold must have a number"),
        (options(threshold=1), "threshold must be in (0, 1), got 1"),
        (options(tokens="word"), "tokens|'words'|'word'"),
        (options(tokens="social", tokenizer=commas), "tokens|tokenizer|'social'"),
    ],
    "network": [
        (options(model="gannet"), "Did you mean 'ganet'"),
        (options(model="gru", max_len=None), "max_len must be an integer", TypeError),
        (options(model="gru", class_weight="balanced"), "class_weight|left out for model='gru'"),
        (options(model="gru", best_metric="macro_f1"), "model='gru'|give model='lexicon'"),
        (options(model="gru", threshold={"a": 0.5}), "threshold|left out for model='gru'"),
        (options(model="ganet", network={"hiden": 3}), "Did you mean 'hidden'"),
        (options(model="ganet", training={"optimizer.rate": 3}), "OptimizerConfig|'rate'"),
        (options(model="ganet", share=0.0), "share|(0, 1]"),
    ],
    "linear": [
        (options(model="linear", **{name: value}), f"{name}|left out for model='linear'")
        for name, value in (("share", 0.5), ("best_metric", "macro_f1"), ("num_steps", 3),
                            ("vectors", __file__))
    ],
    "labels": [
        (options("labels", "ganet"), "model|'lexicon', 'linear'|the task 'labels'"),
        (options("labels", encoder=encode_static), "encoder|left out for"),
    ],
    "regression": [
        (options("regression", "gru"), "model|'lexicon', 'linear'|the task 'regression'"),
        (options("regression", class_weight="balanced"), "class_weight|left out for the task"),
        (options("regression", threshold=0.5), "threshold|left out for the task"),
    ],
    "ordinal": [
        (options("ordinal", best_metric="macro_f1"), "best_metric|left out for the task"),
        *((options("ordinal", order=one), "order must be a sequence") for one in ("abc", ["a"])),
    ],
    "pair": [(options("pair", "linear"), "'san' for the task 'pair'")],
    "tags": [
        (options("tags", "ssan", **{name: value}), "the task 'tags'")
        for name, value in (("tokens", "bpe"), ("tokenizer", commas), ("min_class", 2))
    ],
}  # fmt: skip


@functools.cache
def lexicon():
    return TextClassifier(share=0.4).fit(X, Y)


def columns_of(*names):
    return types.SimpleNamespace(columns=list(names))


CALLS = {
    "texts": [
        (lambda: TextClassifier(share=0.001).fit(X, Y), "share must leave a word to read|0.001"),
        (lambda: TextClassifier().fit(X[:4], ["a"] * 4), "at least two classes"),
        (lambda: TextClassifier().fit(QUERIES, ["a"]), "the same length|3|1"),
        (lambda: TextClassifier().fit(QUERIES, [["a"], ["b"], ["c"]]), "one dimension"),
        (lambda: TextClassifier().fit(QUERIES, {"label": ["a", "b", "a"]}),
         "y must be a list, an array or one column of a frame", TypeError),
        (lambda: TextClassifier().fit(X, Y, sample_weight=np.ones((48, 1))),
         "a number for each of the 48 texts|the shape"),
        (lambda: TextClassifier("gru").fit(X, Y, sample_weight=np.ones(48)),
         "sample_weight must be None for a network"),
        (lambda: lexicon().predict("one text"), "a list of texts|'one text'", TypeError),
        (lambda: lexicon().predict(["a", 3]), "3 at position 1", TypeError),
        *((lambda x=x: lexicon().predict(x), "X must be a list, an array or one column", TypeError)
          for x in ({"text": QUERIES}, columns_of("text"))),
        *((lambda share=share: TextClassifier.train(TEXTS, max_aside=share), "max_aside|[0, 1]")
          for share in (25, -1, float("nan"))),
        (lambda: lexicon().score(QUERIES, ["a"]), "the same length|3|1"),
        (lambda: lexicon().set_params(hidden=3), "Its parameters are model"),
        *((lambda name=name: getattr(TextClassifier(), name)(["a"]),
           "must be trained first|an untrained model", NotFittedError)
          for name in ("predict", "predict_proba", "explain")),
        (lambda: PairClassifier("linear").fit([("a", "b")], ["c"]), "'san' for the task 'pair'"),
    ],
    "two classes": [
        (lambda: TextClassifier(threshold=0.3).fit(X, Y),
         "for one of the two classes|0.3|name the class"),
        (lambda: TextClassifier(threshold={"a": 0.3}).fit(
            [f"{a} {b}" for a in "abc" for b in "xyz"], [a for a in "abc" for _ in "xyz"]),
         "threshold must be left out unless there are two classes"),
    ],
    "thresholds": [
        (lambda: parse_thresholds(["sport=.3", "money=.2", "sport=.4"]),
         "threshold must have a single number for each label"),
    ],
    "encoder": [
        (lambda: TextClassifier(model="states").fit(X, Y), "encoder must be a function", TypeError),
        *((lambda model=model: model.fit(X, Y), "encoder must be left out for model=")
          for model in (TextClassifier("lexicon", encoder=encode_static),
                        TextClassifier().set_params(encoder=encode_static),
                        TextClassifier("gru", encoder=encode_static))),
    ],
    "sentences": [
        (lambda data=data: Tagger.train(data, num_steps=2), parts)
        for data, parts in (
            ([(["a", "b"], ["X", "X"])] * 2, "at least two tags for a tagger|'X'"),
            ([(["a", "b", "c", "d"], ["X", "X", "X", "Y"])], "must have two sentences"),
            ([(["a", "b"], ["X", "Y"]), (["c"], ["Z"])], "3 different tags among 3"),
            ([(["a"], [])], "none: 1 sentence cannot be used, the first is the data:1"),
            ([(["a"], [" "])], "the first is the data:1: an empty word or tag"),
            ([], "the data must have a tagged sentence|none"),
        )
    ] + [
        *((lambda row=row: Tagger.train([row]), "sentence 1|a list of words", TypeError)
          for row in (("a b", "X Y"), (["a", ""], ["X", "Y"]), ([1], ["X"]))),
        (lambda: Tagger.train([(["a", "b"] * 9, ["X", "Y"] * 9)], validation=[(["a"], ["Z"])]),
         "the data:1: tag must be a class of the model"),
        (lambda: Tagger.train(3), "a path or a list of (words, tags)|int", TypeError),
    ],
    "tokenizers": [
        (lambda value=value: Tokenizer.from_json(value), parts)
        for value, parts in (
            ([], "tokens|[]"),
            ({"kind": "sociel"}, "tokens|'social'|'sociel'|Did you mean"),
            ({"kind": "words", "units": []}, "units"),
            ({"kind": "words", "units": {"a": 0}, "total": 3}, "units|0"),
            ({"kind": "words", "units": {"a": 1}}, "units"),
        )
    ] + [
        (lambda: Tokenizer("custom", function="words"), "tokenizer|tokens=|'words'", TypeError),
        (lambda: Tokenizer("custom", function=lambda text: text), "a list of texts"),
        (lambda: Tokenizer("custom", function=lambda text: [1]), "a list of texts|[1]"),
        *((lambda given=given: Tokenizer.from_json(*given), parts, NeedsTokenizer)
          for given, parts in (
              ((Tokenizer("custom", function=commas).to_json(),),
               "tests.text.test_tokens:commas|tokenizer=commas"),
              ((Tokenizer("custom", function=commas).to_json(), upper_commas), "commas|tokenizer"),
              ((Tokenizer("custom", function=lambda text: [text]).to_json(),),
               "without an import path"),
              ((None, commas), "'words'|leave it out"),
        )),
    ],
}  # fmt: skip


class NoValue:
    """A missing value like pandas.NA, whose comparisons are neither true nor false."""

    def __eq__(self, other):
        return self

    __hash__ = object.__hash__

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


def missing(y, value):
    return [*y[:2], value, *y[3:]]


LABELS = MultiLabelTextClassifier
HOLES, HOLE = [None, np.nan, np.inf, ""], "y|at position 2|leave the text out"
NUMBERS, GRADES, SETS = np.array(targets.NUMBERS), targets.GRADES, targets.SETS
ARRAY, GRADED = targets.Y, targets.rows_of("ordinal", targets.ROWS)
REFUSED_Y = {
    "labels": [
        *((LABELS(), missing(SETS, ["a", one]), HOLE) for one in HOLES),
        *((LABELS(), [["a"], one] * 120, "position 1: write|for a text without a label")
          for one in (None, np.nan)),
        (LABELS(), targets.Frame(ARRAY, ["a", "b", " a"]), "y|columns with different names|'a'"),
        (LABELS(), np.where(np.eye(240, 3, 1), np.nan, ARRAY), "y|nan in row 0, column 1|0 or 1"),
        (LABELS(), ARRAY[:, 0], "(240,)|y[:, None]"),
        (LABELS(), ["sport"] * 240, "list of the lists of labels"),
        (LABELS(), np.array([[NoValue(), 1]] * 240), "object of shape (240, 2)"),
        (LABELS(), np.full((240, 2), 3), "lists of labels"),
        (LABELS(), [[]] * 240, "must have a label, got none"),
        *((LABELS(), y, "y|lists|np.asarray(y)")
          for y in (ARRAY.tolist(), list(ARRAY), list(ARRAY == 1), [[0, 1], [1, 0]] * 120,
                    [[int(i > 9)] for i in range(240)], [[i > 9] for i in range(240)])),
        (LABELS(threshold={"tea": 0.5}), SETS, "threshold|labels of the texts|'tea'"),
    ],
    "numbers": [
        *((TextRegressor(), missing(targets.NUMBERS, one), HOLE) for one in HOLES),
        (TextRegressor(), NUMBERS[:, None], "y.ravel()"),
        (TextRegressor(), np.ones(240), "different numbers|got only 1"),
        (TextRegressor(), ["1_0", *NUMBERS[1:]], "y|finite numbers|'1_0' at position 0"),
        *((TextRegressor(share=0.3), unit * NUMBERS, "labels (y in Python)|give them in another")
          for unit in (1e300, 1e-300)),
    ],
    "grades": [
        *((OrdinalTextClassifier(), missing(GRADES, one), HOLE) for one in HOLES),
        (OrdinalTextClassifier(), np.array(GRADES)[:, None], "y.ravel()"),
        (OrdinalTextClassifier(), [grade for _, grade in GRADED], "an order|the grades"),
        (OrdinalTextClassifier(order=["none", "all"]), [grade for _, grade in GRADED],
         "order must have each label"),
    ],
    "classes": [(TextClassifier(), missing(GRADES, one), HOLE) for one in HOLES],
}  # fmt: skip
CALLS |= {
    f"y of {kind}": [
        (lambda model=model, y=y: model.fit(targets.X, y), parts) for model, y, parts in rows
    ]
    for kind, rows in REFUSED_Y.items()
}


@each_row(OPTIONS | CALLS)
def test_what_cannot_be_used_is_refused_by_its_name(call, parts, error):
    refused(call, parts, error)


def test_rows_of_an_indicator_are_refused_in_every_source(tmp_path):
    rows = list(zip(targets.X, ARRAY.tolist(), strict=True))
    refused(lambda: LABELS.train(rows), "got the indicator")
    lines = [json.dumps({"text": text, "label": row}) + "\n" for text, row in rows]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    refused(lambda: LABELS.train(tmp_path / "a.jsonl"), "got the indicator")
    refused(lambda: LABELS.train([(x, row[:1]) for x, row in rows]), "labels must be names")


def broken(change, to=X[2]):
    """An encoder whose result for a text, the third, is changed."""

    def encode(texts):
        results = encode_static(texts)
        return [change(*result) if text.startswith(to) else result
                for text, result in zip(texts, results, strict=True)]  # fmt: skip

    return encode


ENCODERS = [
    (broken(lambda t, v: (t, v[:-1])), "'dull old film now' has 4 tokens|(3, 12)"),
    (broken(lambda t, v: (t, v + np.inf)), "NaN or infinity for the text 'dull old film now'"),
    (broken(lambda t, v: (t, v[:, :3])), "the same width for each text|12"),
    (broken(lambda t, v: (" ".join(t), v)), "a list of texts as the tokens"),
    (broken(lambda t, v: (t, None)), "shape|()"),
    (broken(lambda t, v: t), "(tokens, vectors [T, D]) for each text"),
    (broken(lambda t, v: (t, v * 1j)), "vectors of real numbers|complex"),
    (lambda texts: encode_static(texts)[1:], "47 results for 48 texts"),
    (lambda texts: None, "a list|NoneType|'dull old film here'"),
    (lambda texts: [([], np.zeros((0, 3)))] * len(texts), "a labelled text"),
]


@pytest.mark.parametrize(("encoder", "parts"), ENCODERS)
def test_a_wrong_encoder_is_refused_with_the_text(encoder, parts):
    refused(lambda: TextClassifier(encoder=encoder).fit(X, Y), parts)


def test_another_encoder_than_that_of_the_training_is_refused(tmp_path):
    path = TextClassifier(encoder=encode_static, share=0.3).fit(X, Y).save(tmp_path / "model")

    def load(encoder=None):
        return TextClassifier.load(path, encoder=encoder)

    refused(lambda: load(encode_with_neighbours), "encode texts like|encode_static|other tokens")
    with_last = broken(lambda t, v: (t, v + np.eye(len(v))[:, -1:]), to="a fine film, not dull")
    refused(lambda: load(with_last), "other vectors")
    refused(lambda: load(lambda x: [(t, v[:, :3]) for t, v in encode_static(x)]), "the same width")
    refused(lambda: load(3), "encoder must be a function", TypeError)
    for ask in (lambda: load().predict(X), lambda: load().explain(X[0]),
                lambda: load().evaluate(TEXTS)):  # fmt: skip
        refused(ask, "load it in Python with|encoder=...")
    refused(lambda: load(encode_static).predict(encode_static(X)), "X|a list of texts", TypeError)
