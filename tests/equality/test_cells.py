"""Which runs every table and figure of a paper trains: data, name and whole configuration.

A configuration is written as what it changes in the defaults of its kind, so that the golden file
holds all of it and a difference names the setting. `_cells` is the one place that knows how a
paper's command finds its cells.
"""

import contextlib
import dataclasses
import functools
import importlib
import io
import itertools
import tempfile
from collections import defaultdict
from typing import Any

import pytest
import tyro

from experiments.core.command import options_of
from experiments.core.paper import Job, Paper
from experiments.core.papers import PAPERS
from gatedjax._utils.json import to_json_values
from tests.equality._golden import golden, same

pytestmark = pytest.mark.slow

# beside every name without options: the options that make or choose cells
COMMANDS = {
    "agt": (
        "table1 --data trec sst2 polarity --num-steps 40 --cpu-devices 1",
        "table1 --embeddings none --manual-dir . --data-dir prepared",
        "ablation --data polarity --ablate-modes reuse_last_s zero",
        "optimizers --data polarity",
        "heads --data trec --seeds 1",
        "figure3 --data sst2 --rerun",
    ),
    "ga_net": (
        "table2 --data polarity --embeddings none --num-steps 40",
        "table2 --data trec --manual-dir . --data-dir prepared --seeds 1 --cpu-devices 1",
        "table3 --data sst2 --lanes 3 --embeddings other.txt",
        "table5 --data trec",
        "figure5 --data polarity --seeds 1",
    ),
    "ga_reader": (
        "table1 --corpus-vectors own.txt --data wdw --seeds 1",
        "table3 --data cnn",
        "table4 --corpus-vectors own.txt --embeddings none --hidden 24 --batch-size 16",
        "cbt --num-steps 4000 --learning-rate 1e-3 --eval-every 200 --cpu-devices 1",
        "figure2 --data cbt_cn --seeds 1 --manual-dir . --data-dir prepared",
        "figure3 --data toy --rerun",
    ),
    "rau": (
        "table1 --data mnist imdb_100 ptb_small --hidden 40 --num-steps 40 --cpu-devices 1",
        "table1 --data digits --learning-rate 0.01 --cells rau gru",
        "figure7 --learning-rate 0.0001 --manual-dir . --data-dir prepared",
        "variants --data imdb --forms feature_proj time_causal",
        "matched --data digits --seeds 1",
    ),
    "ssan": (
        "table1 --data nli srl_small mt_multi30k_small --num-steps 400 --seeds 2",
        "table1 --data nli mt_en_de --embeddings other.txt --note rebuilt --cpu-devices 1",
        "table2 --layers 1 6 --manual-dir . --data-dir prepared",
        "table3 --data wrd --layers 3 --num-steps 20000",
        "modes --data top_const",
        "sharing --data tree_depth",
    ),
}
# what options of a run make of it, so that two cells of these commands may differ in nothing else
BUDGETS = ("--num-steps", "--embeddings", "--hidden", "--batch-size", "--note")
# cells of a paper with the same settings and data: the records of one become those of the other
SAME = {
    "rau": [
        ["digits, gru", "digits, gru_lr0.01"],
        ["imdb, attention_feature_proj", "imdb, rau", "imdb, rau_lr1e-3"],
        ["imdb, gru", "imdb, gru_lr1e-3"],
        ["imdb, lstm", "imdb, lstm_lr1e-3"],
        ["mnist, attention_feature_proj", "mnist, rau"],
    ],
}
TRAIN_NOTHING = {
    "agt": {"render"},
    "ga_net": {"table1", "table4", "figure1", "figure4", "roar", "render"},
    "ga_reader": {"statistics", "curves", "render"},
    "rau": {"table2", "table4", "figure3", "figure4", "render"},
    "ssan": {
        *(f"table{n}" for n in (6, 7)),
        *(f"figure{n}" for n in range(2, 7)),
        *("selection_rate", "curves", "neighbours", "render"),
    },
}


def _paper(name: str) -> Paper:
    return importlib.import_module(f"experiments.{name}.paper").PAPER


@functools.cache
def _cells(paper: str, command: str) -> list[Any]:
    """The cells of a command: each has data, variant and the configuration of every seed."""
    made = options_of(_paper(paper))
    options = tyro.cli(made, args=[*command.split(), "--results", "nowhere"])
    with contextlib.redirect_stdout(io.StringIO()):
        return list(Job(_paper(paper), options).cells())


def _names(paper: str) -> tuple[str, ...]:
    """The tables and figures of a paper."""
    return (*_paper(paper).tables, "render")


def _flat(value: Any, above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, inner in value.items():
        path = f"{above}{name}"
        found |= _flat(inner, f"{path}.") if isinstance(inner, dict) else {path: inner}
    return found


def _changes(config: Any) -> dict[str, Any]:
    """The kind of a configuration, and all in which it is not the default of its kind."""
    default = _flat(to_json_values(type(config)()))
    given = _flat(to_json_values(config))
    assert default.keys() == given.keys()
    changed = {name: value for name, value in given.items() if value != default[name]}
    return {"kind": type(config).__name__, **changed}


def _seeds(cell: Any) -> dict[str, Any]:
    """The configurations of a cell; those that differ in the seed alone are one line."""
    found: dict[str, list[int]] = defaultdict(list)
    texts = {}
    for seed, config in cell.configs.items():
        assert config.train.seed == seed
        # by its text: a list has no hash
        one = _changes(dataclasses.replace(config, train=dataclasses.replace(config.train, seed=0)))
        found[repr(one)].append(seed)
        texts[repr(one)] = one
    return {",".join(map(str, seeds)): texts[text] for text, seeds in found.items()}


def _defaults(paper: str) -> dict[str, Any]:
    """The default of every kind of configuration that the presets of a paper have."""
    presets = _paper(paper).presets
    kinds = {type(config).__name__: type(config) for config in presets.values()}
    return {name: to_json_values(kind()) for name, kind in sorted(kinds.items())}


@functools.cache
def _presets(paper: str) -> dict[str, Any]:
    presets = _paper(paper).presets
    return {name: _changes(config) for name, config in presets.items()}


def _table(paper: str, command: str) -> dict[str, Any]:
    presets = _presets(paper)
    rows = {}
    for cell in _cells(paper, command):
        of_preset = presets[cell.data]
        seeds = {}
        for numbers, changes in _seeds(cell).items():
            assert changes["kind"] == of_preset["kind"]
            # None is the value of a setting that the preset changes and the cell has by default
            names = dict.fromkeys((*changes, *of_preset))
            pairs = {name: (changes.get(name, DEFAULT), of_preset.get(name)) for name in names}
            seeds[numbers] = {name: one for name, (one, known) in pairs.items() if one != known}
        name = f"{cell.data}, {cell.variant}"
        assert name not in rows, f"{paper} {command} has two cells {name}"
        rows[name] = seeds
    return rows


DEFAULT = "as by default"


def _commands(paper: str) -> list[str]:
    return [*_names(paper), *COMMANDS[paper]]


def found() -> dict[str, Any]:
    """Defaults, presets and cells of every paper."""
    result = {}
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        for paper in PAPERS:
            result[paper] = {
                "defaults": _defaults(paper),
                "presets": _presets(paper),
                "tables": {command: _table(paper, command) for command in _commands(paper)},
            }
    return result


def _runs(paper: str) -> dict[str, list[tuple[str, Any]]]:
    """Name of a cell -> the settings that records have, of every command without a budget."""
    found = defaultdict(list)
    for command in _commands(paper):
        if not any(option in command for option in BUDGETS):
            for cell in _cells(paper, command):
                config = next(iter(cell.configs.values()))
                found[f"{cell.data}, {cell.variant}"].append(_paper(paper).recorded(config))
    return found


def _same(paper: str) -> list[list[str]]:
    """The names that mean one run."""
    runs = _runs(paper)
    groups = defaultdict(set)
    for name, configs in runs.items():
        for config in configs:
            groups[repr(sorted(_flat(config).items()))].add(name)
    return sorted(sorted(names) for names in groups.values() if len(names) > 1)


@pytest.fixture(scope="module")
def wanted():
    return golden("cells")


@pytest.fixture(autouse=True)
def _empty(tmp_path, monkeypatch):
    # a file of word vectors that lies here would be read
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("paper", PAPERS)
def test_presets_and_defaults_are_what_they_were(paper, wanted):
    same(_defaults(paper), wanted[paper]["defaults"], paper)
    same(_presets(paper), wanted[paper]["presets"], paper)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_trains_the_cells_that_it_trained_in_their_order(paper, wanted):
    tables = wanted[paper]["tables"]
    assert list(tables) == _commands(paper)
    assert {name for name in _names(paper) if not tables[name]} == TRAIN_NOTHING[paper]
    for command in _commands(paper):
        cells = _table(paper, command)
        same(cells, tables[command], f"{paper}.tables {command}")
        assert list(cells) == list(tables[command]), command


@pytest.mark.parametrize("paper", PAPERS)
def test_names_and_runs_match_whatever_table_trains_them_but_where_that_is_stated(paper):
    assert _same(paper) == SAME.get(paper, [])
    for name, configs in _runs(paper).items():
        for one, other in itertools.pairwise(configs):
            assert one == other, name
