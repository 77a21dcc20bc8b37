"""The options of a model of texts: one list for the classes, the command and both helps."""

import dataclasses
import inspect
import re

import pytest

from gatedjax.__main__ import main
from gatedjax.text import PairClassifier, Tagger, TextClassifier
from gatedjax.text._options import TextOptions

FIELDS = dataclasses.fields(TextOptions)


@pytest.mark.parametrize("cls", [TextClassifier, PairClassifier, Tagger])
def test_every_option_is_a_parameter_and_an_entry_of_the_docstring(cls):
    assert list(inspect.signature(cls).parameters) == [field.name for field in FIELDS]
    documented = re.findall(
        r"^      (\w+): ", cls.__doc__.partition("Attributes:")[0], re.MULTILINE
    )
    assert documented == [field.name for field in FIELDS]


def test_every_option_is_one_of_the_command_with_the_same_description(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["train", "--help-all"])
    shown = capsys.readouterr().out.replace(" ", "").replace("\n", "").replace("\u2502", "")
    for field in FIELDS[:-2]:  # --model.NAME and --train.NAME stand for the last two
        if field.name in ("tokenizer", "encoder"):  # functions, which no command line can have
            assert f"--{field.name}" not in shown
            continue
        name, text = field.name.replace("_", "-"), field.metadata["text"].replace(" ", "")
        assert re.search(rf"--{name}[A-Z{{,-][^.]*?{re.escape(text)}", shown), name


@pytest.mark.parametrize("cls", [TextClassifier, PairClassifier, Tagger])
def test_an_unknown_parameter_names_the_class_that_was_called(cls):
    message = f"{cls.__name__} has no parameter 'denisty'. Did you mean 'density'? Its parameters"
    with pytest.raises(TypeError, match=re.escape(message)):
        cls(denisty=0.2)
    with pytest.raises(ValueError, match=re.escape(message)):
        cls().set_params(denisty=0.2)
    assert cls("soft", seed=3).get_params()["model"] == "soft"


def test_models_with_equal_options_are_different_models():
    assert TextClassifier() != TextClassifier()
    assert len({TextClassifier(), TextClassifier()}) == 2
