"""Tiny labelled texts, and how a tiny network is trained on them."""

import csv
import itertools

import pytest

from gatedjax.__main__ import main

TEXTS = [
    (f"{first} {second} film {third}", label)
    for label, words in (("bad", ("dull", "slow")), ("good", ("bright", "warm")))
    for first, second, third in itertools.product(words, ("old", "new"), ("here", "there", "now"))
] * 2
"""48 texts of four words, all of one padded length: two programs train on them."""
X, Y = map(list, zip(*TEXTS, strict=True))
PAIRS = [
    (f"a {animal} runs", f"a {other} runs", "same" if animal == other else "other")
    for animal in ("dog", "cat", "cow")
    for other in ("dog", "cat", "cow")
] * 4
SMALL = {"ganet": {"hidden": 4, "aux_hidden": 3}, "gru": {"hidden": 4}, "bilstm": {"hidden": 4}}
"""Options of the networks; word vectors are six numbers wide."""
TRAINING = {"parallel": "single", "checkpoint_every": 2, "eval_every": 2, "log_every": 2}


def options(model="ganet", *, kind="text", **changes):
    """Of a classifier that trains for two steps."""
    if kind == "pair":
        network = {"hidden": 8, "embedding_dim": 6}
    else:
        network = {**SMALL[model], "embedding_dim": 6}
    return {"model": model, "num_steps": 2, "network": network, "training": TRAINING} | changes


def reasons(model, texts):
    """The predictions of texts with their open words, as the command writes them."""
    examples = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
    return list(model.model_.predict(examples))


def write_csv(path, rows, header=("text", "label")):
    """A file of them."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


TRAPS = "\x1b\x07\x9b\x7f"


def refused(args, capsys):
    """The one line by which a command refuses, with status 2."""
    with pytest.raises(SystemExit) as stop:
        main(args)
    said = capsys.readouterr()
    assert (stop.value.code, said.out) == (2, ""), said
    assert said.err.count("\n") == 1, said.err
    assert not set(TRAPS) & set(said.err)
    return said.err
