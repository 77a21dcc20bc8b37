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
from tests.experiments._commands import parse

OPTIONS = options_of(PAPER)


def cells_of(**options):
    return list(Job(PAPER, OPTIONS(**options)).cells())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_whole_evaluations_and_as_the_command_line_shows_it(name):
    config = PRESETS[name]
    assert parse(PAPER, [f"--preset={name}"]) == config
    assert config.preset == name
    assert config.train.num_steps % config.train.eval_every == 0
    assert config.train.checkpoint_every == config.train.eval_every
    # a language model carries a state from step to step
    assert config.allows_lanes == (config.data.name in TRAIN_EXAMPLES)
    if config.data.name in TRAIN_EXAMPLES:
        epoch = -(-TRAIN_EXAMPLES[config.data.name] // config.data.batch_size)
        assert config.train.num_steps % epoch == 0


def test_the_settings_of_imdb_are_those_of_the_paper():
    config = PRESETS["imdb"]
    assert (config.model.embedding_dim, config.model.hidden, config.data.batch_size) == (
        100,
        128,
        128,
    )
    assert config.model.dropouts.embedding_dropout == config.model.dropouts.state_dropout == 0.5
    assert (config.data.vocabulary_size, config.data.max_len, config.data.held_out) == (
        20_000,
        400,
        0.2,
    )


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


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ({"what": "table1", "data": ("mnist",), "hidden": 28}, ["mnist-rau_hidden28"]),
        (
            {"what": "table1", "data": ("ptb_small",), "learning_rate": 0.5},
            ["ptb_small-rau_lr0.5"],
        ),
        ({"what": "table3"}, ["mnist-rau"]),
        ({"what": "figure5"}, ["fashion_mnist-rau_long"]),
        ({"what": "long"}, ["mnist-rau_long", "fashion_mnist-rau_long"]),
        ({"what": "faster"}, ["ptb_small-rau_faster"]),
        ({"what": "figure6", "data": ("ptb_small",)}, ["ptb_small-rau"]),
        ({"what": "figure7"}, ["imdb-rau_lr1e-5"]),
        ({"what": "learning_rates"}, [f"imdb-rau_lr{r}" for r in ("1e-3", "1e-4", "1e-5")]),
        ({"what": "matched"}, ["mnist-rau_matched", "fashion_mnist-rau_matched"]),
        ({"what": "table2"}, []),
        ({"what": "render"}, []),
    ],
)
def test_a_table_trains_its_own_cells(args, wanted):
    cells = cells_of(cells=("rau",), **args)
    assert [f"{cell.data}-{cell.variant}" for cell in cells] == wanted
    assert {cell.configs[0].model.cell for cell in cells} <= {"rau"}
