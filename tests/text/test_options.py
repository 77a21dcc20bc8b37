"""The options of a model of texts: one list for the classes, the command and both helps."""

import dataclasses
import inspect
import re

import pytest

from gatedjax.__main__ import main
from gatedjax.text import PairClassifier, Tagger, TextClassifier
from gatedjax.text._options import TextOptions, check_options

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


REFUSED = {
    "lexicon": {
        "num-steps": "3", "minutes": "2", "max-len": "9", "min-count": "2", "max-words": "9",
        "batch-size": "4", "embeddings": "v.txt", "model.hidden": "3", "train.seed": "3",
        "order": "a,b",
    },
    "ganet": {"class-weight": "balanced", "best-metric": "macro_f1", "threshold": "0.3",
              "states": "s.npz", "minutes": "2 --train.optimizer.schedule cosine"},
    "gru": {"density": "0.3"},
    "ssan --task pair": {"density": "0.3", "threshold": "0.3", "order": "a,b"},
    "ssan --task tags": {"tokens": "words", "min-class": "2", "threshold": "0.3"},
    "lexicon --task labels": {"class-weight": "balanced", "order": "a,b", "num-steps": "3"},
    "lexicon --task regression": {"min-class": "2", "best-metric": "macro_f1", "threshold": "0.3"},
    "states --states s.npz": {"tokens": "words", "num-steps": "3", "model.hidden": "3"},
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
    assert not re.search(r"\bNone\b|\w=\W|num_steps|max_len", said.replace(f"{tmp_path}", "")), said


@pytest.mark.parametrize("option", ["embeddings", "num_steps", "max_len", "batch_size"])
def test_what_a_lexicon_does_not_have_is_the_reason(option):
    given = {"embeddings": "v.txt", "num_steps": 3, "max_len": 9, "batch_size": 4}
    lacks = {"embeddings": "vectors", "max_len": "limit"}.get(option, "steps")
    with pytest.raises(ValueError, match=f"^{option} must be left out .* which has no {lacks}"):
        check_options(TextOptions(**{option: given[option]}), "text")
