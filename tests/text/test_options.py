"""The options of a model of texts: one list for the classes, the command and both helps."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from gatedjax.__main__ import main
from gatedjax._commands._train_network import options_of
from gatedjax._commands._training import LexiconOptions, text_options
from gatedjax.text import PairClassifier, Tagger, TextClassifier
from gatedjax.text._options import MODELS, TextOptions, check_options, uses
from gatedjax.text.answers._prediction import WITHOUT_NETWORK
from gatedjax.text.models._entries import networks

FIELDS = dataclasses.fields(TextOptions)


@pytest.mark.parametrize("cls", [TextClassifier, PairClassifier, Tagger])
def test_every_option_is_a_parameter_and_an_entry_of_the_docstring(cls):
    assert list(inspect.signature(cls).parameters) == [field.name for field in FIELDS]
    documented = re.findall(
        r"^      (\w+): ", cls.__doc__.partition("Attributes:")[0], re.MULTILINE
    )
    assert documented == [field.name for field in FIELDS]


PYTHON_ONLY = {"tokenizer", "encoder", "min_class"}


def test_every_option_is_one_of_the_command_with_the_same_default():
    missing = {field.name for field in FIELDS}
    for form in (LexiconOptions, options_of("text", "ganet", has_vectors=False)):
        command = form(data="texts.csv", out=Path("model"))
        missing -= {field.name for field in dataclasses.fields(form)}
        values = text_options(command, network=None, training=None)
        assert vars(values) == vars(TextOptions(command.model))
    assert missing - {"training"} == PYTHON_ONLY  # the group --train.NAME is the training


@pytest.mark.parametrize("cls", [TextClassifier, PairClassifier, Tagger])
def test_an_unknown_parameter_names_the_class_that_was_called(cls):
    message = f"{cls.__name__} has no parameter 'shrae'. Did you mean 'share'? Its parameters"
    with pytest.raises(TypeError, match=re.escape(message)):
        cls(shrae=0.2)
    with pytest.raises(ValueError, match=re.escape(message)):
        cls().set_params(shrae=0.2)
    assert cls("soft", seed=3).get_params()["model"] == "soft"
    assert cls(encoder=None).model == cls().model


def test_models_with_equal_options_are_different_models():
    assert TextClassifier() != TextClassifier()
    assert len({TextClassifier(), TextClassifier()}) == 2


REFUSED = {
    "lexicon": {
        "num-steps": "3", "minutes": "2", "max-len": "9", "min-count": "2", "max-words": "9",
        "batch-size": "4", "model.hidden": "3", "train.seed": "3",
        "order": "a,b",
    },
    "ganet": {"class-weight": "balanced", "best-metric": "macro_f1", "threshold": "0.3",
              "minutes": "2 --train.optimizer.schedule cosine"},
    "gru": {"share": "0.3"},
    "linear": {"share": "0.5", "minutes": "0.5"},
    "ssan --task pair": {"share": "0.3", "threshold": "0.3", "order": "a,b"},
    "ssan --task tags": {"tokens": "words", "threshold": "0.3"},
    "lexicon --task labels": {"class-weight": "balanced", "order": "a,b", "num-steps": "3"},
    "lexicon --task regression": {"best-metric": "macro_f1", "threshold": "0.3"},
}  # fmt: skip
"""Options that a model refuses, with a value."""
CASES = [(model, option) for model, options in REFUSED.items() for option in options]


@pytest.mark.parametrize(("model", "option"), CASES)
def test_a_refused_option_is_named_as_it_is_typed_and_left_out(model, option, tmp_path, capsys):
    path = tmp_path / "data.csv"
    path.write_text("text,label\na,b\nc,d\n")
    value = REFUSED[model][option].split()
    with pytest.raises(SystemExit, match="2"):
        main(["train", str(path), "--out", str(tmp_path / "model"), "--model", *model.split(),
              f"--{option}", *value])  # fmt: skip
    said = capsys.readouterr().err
    assert said.startswith(f"error: --{option} must be left out "), said
    wanted = {
        ("lexicon", "num-steps"): "add --model ganet",
        ("ganet", "minutes"): "give --num-steps",
        ("gru", "share"): "leave it out, or give --model lexicon or --model ganet",
        ("linear", "share"): "for a linear model, which reads all words",
        ("linear", "minutes"): "for a linear model, which has no network",
    }
    assert wanted.get((model, option), "") in said
    assert not re.search(r"\bNone\b|\w=\W|num_steps|max_len", said.replace(f"{tmp_path}", "")), said


def test_a_refused_option_names_the_models_that_use_it():
    for option, model, others in (
        ("share", "gru", "model='lexicon' or model='states' or model='ganet'"),
        ("num_steps", "lexicon", "model='ganet'"),
    ):
        with pytest.raises(ValueError, match=f"leave it out, or give {others}$"):
            check_options(TextOptions(model, **{option: 1}), "text")
    with pytest.raises(ValueError, match=r"for the task 'pair', got 1: leave it out$"):
        check_options(TextOptions("ssan", share=1), "pair")
    check_options(TextOptions(network={}), "text")  # no option of a network


@pytest.mark.parametrize("kind", ["text", "pair", "tags"])
def test_the_names_of_networks_are_those_of_their_entries(kind):
    named = [name for name in MODELS[kind] if name not in WITHOUT_NETWORK]
    assert named == list(networks(kind))
    gated = [name for name in named if networks(kind)[name].gated]
    assert gated == [name for name in uses("share", kind) if name not in WITHOUT_NETWORK]
