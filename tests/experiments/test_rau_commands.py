"""The command of experiments.rau as a stranger meets it."""

import pytest

from experiments.rau.__main__ import main, parse


def test_unknown_preset_is_refused_with_a_suggestion(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--preset", "mnits"])
    assert stop.value.code == 2
    assert "Did you mean 'mnist'?" in capsys.readouterr().err


def test_options_that_are_not_given_come_from_the_preset():
    config = parse(["--preset", "mnist", "--model.cell", "gru"])
    assert (config.data.name, config.model.cell, config.train.num_steps) == ("mnist", "gru", 4300)
