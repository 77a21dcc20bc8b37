"""Numbers of NumPy are options like those that are typed: they are kept as Python's."""

import dataclasses
import json
from collections import ChainMap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from gatedjax import export, functional, models, training
from gatedjax._utils.json import plain, to_json, to_json_values
from gatedjax._utils.run_files import read_json, write_json
from gatedjax.text import PairClassifier, Tagger, TextClassifier
from gatedjax.text._options import TextOptions, check_options
from gatedjax.text.estimators import _base as _estimator
from gatedjax.text.fit._network_options import train_config
from gatedjax.text.models._translator import SearchConfig
from gatedjax.training.identity import settings_of
from tests._grouped import CONFIGS, grouped, option, option_names

KINDS = CONFIGS | {"TextOptions": TextOptions, "SearchConfig": SearchConfig}


def as_numpy(value):
    """The same as NumPy has it."""
    if isinstance(value, tuple) and value:
        return np.array(value)
    for kind, number in ((bool, np.bool_), (int, np.int64), (float, np.float64), (str, np.str_)):
        if isinstance(value, kind):
            return number(value)
    return value


def values(config):
    return {name: option(config, name) for name in option_names(type(config))}


@pytest.mark.parametrize("name", KINDS)
def test_every_configuration_keeps_python_numbers(name):
    kind = KINDS[name]
    default = values(kind())
    made = grouped(kind, **{key: as_numpy(value) for key, value in default.items()})
    assert values(made) == default
    assert {key: type(value) for key, value in values(made).items()} == {
        key: type(value) for key, value in default.items()
    }
    json.dumps(to_json_values(made))
    hash(made)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.int8(3), 3),
        (np.float32(0.5), 0.5),
        (np.array(2), 2),
        (np.logspace(-2, -1, 2), (0.01, 0.1)),
        ((np.int64(1), (2, np.bool_(True))), (1, (2, True))),
        (jnp.int32(4), 4),
        (jnp.arange(2), (0, 1)),
        ("text", "text"),
        (None, None),
    ],
)
def test_numbers_become_those_of_python(value, wanted):
    assert plain(value) == wanted
    assert type(plain(value)) is type(wanted)
    assert repr(plain(value)) == repr(wanted)


def test_a_traced_value_stays_what_it_is():
    made = jax.jit(lambda rate: dataclasses.replace(RATE, decay_rate=rate).decay_rate)(0.25)
    assert made == 0.25


RATE = training.OptimizerConfig()


@pytest.mark.parametrize("bad", [2.5, np.float64(2.5), np.array(0.5), float("nan")])
def test_a_number_that_is_no_integer_is_refused_by_its_name(bad):
    for make, name in (
        (training.TrainConfig, "num_steps"),
        (training.OptimizerConfig, "warmup_steps"),
        (models.RAUConfig, "hidden"),
        (TextOptions, "max_len"),
    ):
        with pytest.raises(TypeError, match=f"^{name} must be an integer, got "):
            make(**{name: bad})
    with pytest.raises(TypeError, match=r"^seed must be an integer, got "):
        TextClassifier(seed=bad).fit(["a", "b"], ["x", "y"])
    assert repr(training.TrainConfig(num_steps=1e3).num_steps) == "1000"
    assert repr(TextOptions(min_count=np.float64(3)).min_count) == "3"


@pytest.mark.parametrize("kind", [TextClassifier, PairClassifier, Tagger])
def test_parameters_of_a_search_train_as_python_numbers(kind, monkeypatch):
    asked = []

    def train(kind, table, options, *rest, **more):
        check_options(options, kind)
        asked.append(options)

    monkeypatch.setattr(_estimator, "train_any", train)
    monkeypatch.setattr(kind, "_take", lambda self, trained: None)
    grid = {
        "seed": np.arange(2),
        "max_len": np.array([30]),
        "batch_size": np.int16([4]),
        "min_count": np.array([1]),
        "held_out": np.linspace(0.1, 0.1, 1),
        "lowercase": np.array([True]),
        "minutes": np.float32([0.5]),
        "num_steps": np.array([7]),
        "model": np.array([{"text": "ganet"}.get(kind._kind, "ssan")]),
        "network": [{"hidden": np.int64(8)} if kind is TextClassifier else None],
        "training": [{"optimizer.learning_rate": np.float32(0.5), "log_every": np.int64(3)}],
    }
    for given in ParameterGrid(grid):
        one = clone(kind()).set_params(**given)
        assert one.get_params()["seed"] is given["seed"]  # scikit-learn's clone wants that
        if kind is Tagger:
            kind.train([(["a"], ["x"])], **given)
        else:
            one.fit([("a", "b")[: 2 if kind is PairClassifier else 1]] * 2
                    if kind is PairClassifier else ["a", "b"], ["x", "y"])  # fmt: skip
    assert [options.seed for options in asked] == [0, 1]
    for options in asked:
        plain_values = dataclasses.asdict(dataclasses.replace(options, network=None, training=None))
        json.dumps(plain_values)
        assert {type(v) for v in plain_values.values()} <= {int, float, bool, str, type(None)}
        config = train_config(options, 5)
        json.dumps(dataclasses.asdict(config))
        assert (config.log_every, config.optimizer.learning_rate, config.seed) == (
            3, 0.5, options.seed,
        )  # fmt: skip


def test_settings_and_the_configuration_of_a_folder_may_have_them(tmp_path):
    given = {
        "fold": np.int64(3),
        "rate": np.float32(0.5),
        "name": np.str_("x"),
        "ids": (np.int8(1),),
        "steps": jnp.int32(4),
        "sizes": [np.arange(2), jnp.arange(2)],
    }
    wanted = {"fold": 3, "rate": 0.5, "name": "x", "ids": [1]}
    wanted |= {"steps": 4, "sizes": [[0, 1]] * 2}
    assert to_json_values(given) == wanted
    optimizer = training.OptimizerConfig(beta2=np.float32(0.5))
    inner = to_json_values({"a": (optimizer,), "b": ChainMap({"c": np.float64("inf")})})
    assert inner == {"a": [dataclasses.asdict(optimizer)], "b": {"c": float("inf")}}
    assert to_json(inner["b"], indent=0) == '{\n"c": null\n}'
    found = settings_of(given, training.TrainConfig(seed=np.int64(2)))
    assert json.loads(json.dumps(found))["fold"] == 3
    write_json(tmp_path / "a.json", given)
    assert read_json(tmp_path / "a.json") == wanted
    folder = export.save(tmp_path / "model", {"w": np.zeros(2, np.float32)}, config=given)
    config = export.read_config(folder)
    assert {name: config[name] for name in wanted} == wanted
    with pytest.raises(TypeError, match="config must be a value that JSON can store, got object"):
        export.save(tmp_path / "other", {"w": np.zeros(2)}, config={"a": object()})


@pytest.mark.slow
def test_a_length_may_be_a_number_of_numpy():
    lengths = np.array([1, 3])
    np.testing.assert_array_equal(
        functional.length_mask(lengths, np.int64(3)), functional.length_mask(lengths, 3)
    )
    with pytest.raises(TypeError, match="size must be an int known while tracing, got float64"):
        functional.length_mask(lengths, np.float64(3))
