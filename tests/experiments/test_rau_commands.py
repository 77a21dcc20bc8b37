"""The commands of experiments.rau as a stranger meets them."""

import dataclasses

import pytest

from experiments.core.command import options_of
from experiments.core.paper import Job
from experiments.rau.config import PRESETS, TRAIN_EXAMPLES
from experiments.rau.figures import matched_width, network
from experiments.rau.paper import HEAVY, LIGHT, PAPER
from gatedjax.models import RAUConfig
from tests._grouped import grouped

OPTIONS = options_of(PAPER)


def cells_of(**options):
    return list(Job(PAPER, OPTIONS(**options)).cells())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_of_images_is_whole_epochs(name):
    config = PRESETS[name]
    # a language model carries a state from step to step
    assert config.allows_lanes == (config.data.name in TRAIN_EXAMPLES)
    if config.data.name in TRAIN_EXAMPLES:
        epoch = -(-TRAIN_EXAMPLES[config.data.name] // config.data.batch_size)
        assert config.train.num_steps % epoch == 0


@pytest.mark.parametrize(("cell", "gates"), [("gru", 3), ("lstm", 4), ("rau", 5)])
@pytest.mark.parametrize(("data", "width"), [("mnist", 28), ("imdb", 100)])
def test_counted_parameters_are_those_of_the_equations(cell, gates, data, width):
    config = dataclasses.replace(PRESETS[data].model, cell=cell)
    n = config.hidden
    recurrent = gates * (n * (width + n) + n)
    classes = 2 if data == "imdb" else 10
    assert network(config, data) == (recurrent + n * classes + classes, recurrent)


@pytest.mark.parametrize("cell", ["rau", "lstm"])
def test_no_other_width_is_nearer_to_the_parameters_of_the_gru(cell):
    target = network(grouped(RAUConfig, cell="gru"), "mnist")[0]

    def distance(hidden):
        return abs(network(grouped(RAUConfig, cell=cell, hidden=hidden), "mnist")[0] - target)

    width = matched_width("mnist", cell)
    assert distance(width) == min(distance(hidden) for hidden in (width - 1, width, width + 1))
    assert distance(width) < target / 50
    assert matched_width("mnist", "gru") == 128


@pytest.mark.slow
def test_matrix_is_left_out_unless_it_is_asked_for(capsys):
    def asked(**options):
        cells = cells_of(what="variants", **options)
        return [(cell.variant, cell.configs[0].model) for cell in cells]

    plain = asked()
    assert capsys.readouterr().out.count("matrix: left out") == 1
    assert len(plain) == 9
    assert {model.attention for _, model in plain} == set(LIGHT)
    assert [v for v, _ in plain if "rescale" in v] == [v for v, m in plain if m.rescale]
    assert [(v, m.cell, m.attention, m.rescale) for v, m in asked(forms=HEAVY)] == [
        ("attention_matrix", "rau", "matrix", False),
        ("attention_matrix_rescale", "rau", "matrix", True),
    ]
