"""Options in groups: their old names still set, read, replace, restore and type them."""

import copy
import dataclasses
import json
import pickle

import pytest

from experiments.agt.config import AGTRunConfig as AGTRun
from experiments.core.cli import parse
from experiments.core.config import public_config, with_changes
from experiments.ga_net.config import PRESETS, START
from experiments.ssan.config import PRESETS as SSAN_PRESETS
from experiments.ssan.config import START as SSAN_START
from gatedjax import models
from gatedjax._utils.groups import grouped_names, groups_of, option_names, with_groups
from gatedjax._utils.json import to_json_values
from gatedjax.text._model import networks
from gatedjax.text._options import TextOptions, network_config

CONFIGS = {
    name: value
    for name, value in vars(models).items()
    if name.endswith("Config") and groups_of(value)
}
OTHER = {
    "GANetConfig": ("gates", {"temperature": 0.5, "estimator": "arm"}),
    "GAReaderConfig": ("characters", {"char_dim": 3}),
    "RAUConfig": ("dropouts", {"state_dropout": 0.5}),
    "SSANConfig": ("order", {"positions": "learned", "max_length": 7}),
    "SSANNLIConfig": ("gates", {"select_layers": (0,)}),
    "SSANProbeConfig": ("gates", {"select_layers": (2, 3), "selector": "soft"}),
    "SSANTaggerConfig": ("dropouts", {"relu_dropout": 0.5}),
    "SSANTranslatorConfig": ("memory", {"block": 4, "remat": True}),
    "WordReorderingConfig": ("gates", {"density": 0.25}),
}
"""A group of each configuration, and values of its options that are not the defaults."""


def both(name):
    """The same configuration by the old names of its options, and by its group."""
    kind, (group, options) = CONFIGS[name], OTHER[name]
    given = dataclasses.replace(getattr(kind(), group), **options)
    return kind(**options), kind(**{group: given})


def test_no_configuration_of_a_network_has_more_than_16_fields():
    kinds = [value for name, value in vars(models).items() if name.endswith("Config")]
    every = {*kinds, *(group for kind in kinds for group in groups_of(kind).values())}
    assert len(every) > 15
    assert {kind.__name__: len(dataclasses.fields(kind)) for kind in every
            if len(dataclasses.fields(kind)) > 16} == {}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_old_names_set_and_read_the_options_of_a_group(name):
    (group, options), (old, new) = OTHER[name], both(name)
    assert old == new != CONFIGS[name]()
    assert hash(old) == hash(new)
    assert {key: getattr(old, key) for key in options} == options
    assert {key: getattr(getattr(old, group), key) for key in options} == options
    assert dataclasses.replace(CONFIGS[name](), **options) == new
    # the rest of the group stays
    first, *_ = options
    default = {first: getattr(CONFIGS[name](), first)}
    assert dataclasses.replace(old, **default) == CONFIGS[name](**{**options, **default})


@pytest.mark.parametrize("name", CONFIGS)
def test_copies_and_files_have_the_same_options(name):
    _, config = both(name)
    for made in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert made == config
    flat, nested = to_json_values(config), dataclasses.asdict(config)
    assert list(flat) == option_names(CONFIGS[name])
    assert flat == to_json_values({option: getattr(config, option) for option in flat})
    for written in (flat, nested):
        assert CONFIGS[name](**json.loads(json.dumps(written))) == config
    # as it was pickled before there were groups
    restored = object.__new__(CONFIGS[name])
    restored.__setstate__(flat)
    assert restored == config


def test_a_subclass_keeps_its_own_defaults_of_a_group():
    assert models.SSANTaggerConfig(attention_dropout=0.3).dropouts.dropout == 0.2
    assert models.SSANTaggerConfig(dropouts={"attention_dropout": 0.3}).dropout == 0.2


def test_what_is_no_group_is_refused_by_its_name():
    with pytest.raises(
        TypeError, match="gates must be a GateConfig or a dict of its options, got SelectorConfig"
    ):
        models.GANetConfig(gates=models.SelectorConfig())
    with pytest.raises(TypeError, match="'temprature'"):
        models.GANetConfig(temprature=0.5)
    with pytest.raises(TypeError, match="'temprature'"):
        models.GANetConfig(gates={"temprature": 0.5})
    with pytest.raises(AttributeError, match="'temprature'"):
        _ = models.GANetConfig().temprature


def test_properties_of_a_group_are_read_too():
    config = models.SSANConfig(select_layers=(3, 1), selector="reinforce")
    assert config.selective == (1, 3)
    assert config.estimation == config.selector_of(3) == "reinforce"


@pytest.mark.parametrize(
    ("start", "presets", "preset", "args"),
    [
        (START, PRESETS, "trec", ["--model.temperature", "0.5", "--model.pool_dropout=0.25"]),
        (SSAN_START, SSAN_PRESETS, "srl", ["--model.select-layers", "2", "3", "--model.remat"]),
        (SSAN_START, SSAN_PRESETS, "nli", ["--model.density", "0.25"]),
    ],
)
def test_old_names_on_the_command_line_are_those_of_the_group(start, presets, preset, args):
    shared = {key: getattr(start, key) for key in ("name", "about", "presets", "default")}
    names = dict(grouped_names(type(presets[preset])))
    old = [(arg, *arg.partition("=")) for arg in args]
    new = [names.get(n.replace("_", "-"), n) + sign + value for _, n, sign, value in old]
    assert new != args
    made = parse(["--preset", preset, *args], **shared)
    assert made == parse(["--preset", preset, *new], **shared)
    assert made.model != presets[preset].model


def test_a_flag_is_closed_by_its_old_name():
    shared = {key: getattr(SSAN_START, key) for key in ("name", "about", "presets", "default")}
    shared["presets"] = {"bshift": with_changes(SSAN_PRESETS["bshift"], {"model.remat": True})}
    assert not parse(["--model.no-remat"], **shared).model.memory.remat


def test_changes_by_old_and_new_paths_are_made_together():
    # in between, an estimator without a layer that selects would be refused
    config = with_changes(SSAN_PRESETS["bshift"], {"model.select_layers": (0,)})
    changes = {"model.gates.estimator": "leave_one_out", "model.select_layers": (1, 2)}
    model = with_changes(config, changes).model
    assert (model.gates.select_layers, model.estimator) == ((1, 2), "leave_one_out")
    with pytest.raises(ValueError, match="SSANProbeConfig has no field 'temprature'"):
        with_changes(SSAN_PRESETS["bshift"], {"model.temprature": 1.0})


def test_a_dict_of_a_group_changes_only_its_options():
    preset = with_changes(PRESETS["trec"], {"model.temperature": 0.25})
    changes = {"model.gates": {"test_samples": 9}, "model.penalty": 3e-3}
    gates = dataclasses.replace(preset.model.gates, test_samples=9, penalty=3e-3)
    assert with_changes(preset, changes).model.gates == gates
    assert gates.temperature == 0.25

    options = {"gates": {"temperature": 0.5}, "dropouts.pool_dropout": 0.1, "penalty": 3e-3}
    entry = networks("text")["ganet"]
    made = network_config(TextOptions(network=options, density=0.3), entry, 8)
    expected = dataclasses.replace(entry.width(entry.config, 8), temperature=0.5, pool_dropout=0.1,
                                   penalty=3e-3, density=0.3)  # fmt: skip
    assert made == expected


def test_replacing_a_group_by_some_of_its_options_is_refused():
    config = models.GANetConfig(temperature=0.5, penalty=1e-3)
    with pytest.raises(TypeError, match=r"gates must have all options .* such as test_samples=9"):
        dataclasses.replace(config, gates={"test_samples": 9})
    whole = dataclasses.asdict(dataclasses.replace(config, test_samples=9).gates)
    assert dataclasses.replace(config, gates=whole).gates.temperature == 0.5


def test_groups_do_not_show_in_what_a_run_records():
    config = with_changes(PRESETS["trec"], {"model.gates.temperature": 0.5})
    model = public_config(config)["model"]
    assert model == to_json_values(config.model)
    assert model["temperature"] == 0.5
    assert "gates" not in model
    # where there are no groups it is what dataclasses makes of it
    assert to_json_values(AGTRun()) == to_json_values(dataclasses.asdict(AGTRun()))


def test_an_unknown_option_is_refused_with_similar_ones():
    with pytest.raises(
        TypeError, match="'dropout': did you mean embedding_dropout or layer_dropout"
    ):
        models.RAUConfig(dropout=0.1)
    with pytest.raises(TypeError, match="'num_layer': did you mean num_layers"):
        models.RAUConfig(num_layer=2)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzzz'$"):
        models.RAUConfig(zzzz=2)


def test_a_default_of_its_own_needs_no_name_twice():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Inner:
        width: int = 1
        names: tuple[str, ...] = ()

    @with_groups
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Outer:
        inner: Inner = Inner(width=2)
        depth: int = 3

    assert option_names(Outer) == ["width", "names", "depth"]
    assert Outer(names=["a"]) == Outer(inner=Inner(width=2, names=("a",)))
    assert dict(grouped_names(Outer))["--no-width"] == "--inner.no-width"
