"""Sizes, rates, switches and choices of all public modules, networks and configurations.

The tables name a valid instance of each class, and the fields come from the classes, so that a new
class without an entry, or a new field without a check, fails.
"""

import dataclasses
import functools
import inspect
from typing import Any, Literal

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx

from gatedjax import models, training
from gatedjax import nn as gnn
from gatedjax import nnx as gnnx
from gatedjax._utils.choices import check_choices, choices_of
from gatedjax._utils.fields import check_fields, field_types, limits_of
from gatedjax._utils.limits import MOST_LAYERS, MOST_WIDTH
from gatedjax.text.models._translator import SearchConfig
from tests._grouped import CONFIGS, grouped
from tests.models import test_ga_reader
from tests.refusals import refused

XS, MASK, IDS = np.zeros((2, 3, 4), np.float32), np.ones((2, 3), bool), np.ones((2, 3), np.int32)
LENGTHS = np.array([3, 2], np.int32)
MODULES: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "Recurrent": ({"cell": nn.GRUCell(4)}, (XS,)),
    "AttentionGatedTransform": ({"num_layers": 2, "ablate_above": 1}, (XS,)),
    "AttentionPool": ({}, (XS,)),
    "CharacterEncoder": ({"num_characters": 5}, (IDS, LENGTHS)),
    "GatePredictor": ({"kind": "fnn"}, (XS, MASK)),
    "GatedAttentionHop": ({"features": 4}, (XS, XS)),
    "LocalPosition": ({}, (XS[:, 0], LENGTHS)),
    "SelectiveSelfAttention": ({"num_heads": 2}, (XS,)),
    "SourceToToken": ({}, (XS,)),
    "TokenScore": ({"kind": "mlp1"}, (XS,)),
    "WordEmbedding": ({"num_embeddings": 5, "features": 4}, (IDS,)),
}
for name in dir(gnn):
    # Every cell of the library has a layer with its name.
    if name.endswith("Cell"):
        MODULES |= {name: ({"features": 4}, ()), name[:-4]: ({"features": 4}, (XS,))}
"""By name of a module of `nn`: valid options, and inputs. Cells take their carry and a step."""
WIDTHS = {
    "GatedAttentionHop": {"document_features": 4, "query_features": 4},
    "SelectiveSelfAttention": {"in_features": 4, "source_features": 4},
    "AttentionGatedTransform": {"in_features": 4, "key_features": 4},
}
"""By name of a module of `nnx`: the widths of its inputs, if it has others than `in_features`."""
BATCH = {"tokens": IDS, "lengths": LENGTHS}
SMALL = {"hidden": 4, "embedding_dim": 4}
SSAN = {"hidden": 4, "filter_size": 4, "num_heads": 2, "num_layers": 1}
NETWORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "AGT": (models.AGTConfig(**SMALL), BATCH),
    "GANet": (grouped(models.GANetConfig, **SMALL), BATCH),
    "GAReader": (
        grouped(models.GAReaderConfig, **(test_ga_reader.SMALL | {"char_dim": 2})),
        test_ga_reader.make_batch(np.random.default_rng(0)),
    ),
    "RAUClassifier": (grouped(models.RAUConfig, **SMALL), BATCH),
    "RAULanguageModel": (grouped(models.RAUConfig, **SMALL), BATCH | {"targets": IDS}),
    "SSANEncoder": (grouped(models.SSANConfig, **SSAN), BATCH),
    "SSANNLI": (
        grouped(models.SSANNLIConfig, **SMALL),
        BATCH | {"hypothesis": IDS, "hypothesis_lengths": LENGTHS},
    ),
    "SSANProbe": (grouped(models.SSANProbeConfig, **SSAN), BATCH),
    "SSANTagger": (
        grouped(models.SSANTaggerConfig, **SSAN, embedding_dim=2),
        BATCH | {"is_predicate": IDS},
    ),
    "SSANTranslator": (
        grouped(models.SSANTranslatorConfig, **SSAN),
        BATCH | {"targets": IDS, "target_lengths": LENGTHS},
    ),
    "WordReorderingDetector": (grouped(models.WordReorderingConfig, **SSAN), BATCH),
}
"""By name of a network: a valid configuration, and a batch."""
NAN, INF, HUGE = float("nan"), float("inf"), 10**30
WRONG = {int: ["4", 2.5, True, NAN], float: ["0.1", True], bool: ["yes", 2], tuple: [0, "words"]}
"""By type of a field: values of another type."""
BOUNDED_BY_A_FUNCTION = {"OptimizerConfig", "DistributedConfig"}
"""`make_optimizer` and `initialize` check the numbers of these configurations."""


def public(module, base):
    return {
        name
        for name in dir(module)
        if inspect.isclass(getattr(module, name)) and issubclass(getattr(module, name), base)
    }


def initialize(name, **options):
    """Initialises a module of `nn` without computing."""
    valid, inputs = MODULES[name]
    module = getattr(gnn, name)(**(valid | options))
    if isinstance(module, nn.RNNCellBase):
        inputs = (module.initialize_carry(None, (2, 4)), XS[:, 0])
    return jax.eval_shape(module.init, jax.random.key(0), *inputs)


def construct(name, **options):
    """Constructs a module of `nnx` without computing."""
    valid = MODULES[name][0] | WIDTHS.get(name, {"in_features": 4}) | options
    if "cell" in valid:  # in NNX a function creates the cells
        valid["cell"] = functools.partial(nnx.GRUCell, hidden_features=4)
    return nnx.eval_shape(lambda: getattr(gnnx, name)(**valid, rngs=nnx.Rngs(0)))


def run(name, **options):
    """Initialises a network without computing; options of its configuration are not among them."""
    config, batch = NETWORKS[name]
    kind = getattr(models, name)
    sizes = {"vocab_size": 12, "num_classes": 2, "num_labels": 2, "num_characters": 5}
    valid = {key: sizes[key] for key in sizes if key in kind.__dataclass_fields__}
    module = kind(config, **(valid | options))
    return jax.eval_shape(module.init, jax.random.key(0), batch)


def bad_values(kind, name):
    """Yields (field, value, error) for the values that fields of a class of this library refuse."""
    for field, wanted, is_optional in field_types(kind):
        if wanted is None or field in ("name", "parent"):
            continue
        for value in WRONG[wanted]:
            yield field, value, TypeError
        if not is_optional:
            yield field, None, TypeError
        if name in BOUNDED_BY_A_FUNCTION:
            continue
        if wanted is int:
            yield field, -1, ValueError
        if wanted is float:
            yield field, NAN, ValueError
        if field.endswith("dropout"):
            yield field, 1.0, ValueError
            yield field, -0.1, ValueError


@pytest.mark.parametrize("name", MODULES)
def test_modules_refuse_options_by_name(name):
    initialize(name)
    for field, value, error in bad_values(getattr(gnn, name), name):
        refused(functools.partial(initialize, name, **{field: value}), field, error)
    for field, wanted, _ in field_types(getattr(gnn, name)):
        if wanted is int and field not in ("attn_hidden", "ablate_above"):
            call = functools.partial(initialize, name, **{field: 0})
            assert "got 0" in refused(call, f"{field}|at least")


@pytest.mark.parametrize("name", sorted(public(gnnx, nnx.Module)))
def test_nnx_modules_refuse_widths_and_options_by_name(name):
    construct(name)
    for field in WIDTHS.get(name, {"in_features": 4}):
        for value, error in ((0, ValueError), (2.5, TypeError), ("4", TypeError)):
            refused(functools.partial(construct, name, **{field: value}), field, error)
    for field, value, error in bad_values(getattr(gnn, name), name):
        if value is True:  # equal to 1, so that JAX may have the program already
            continue
        refused(functools.partial(construct, name, **{field: value}), field, error)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_refuse_sizes_by_name(name):
    kind = getattr(models, name)
    run(name)
    for field, value, error in bad_values(kind, name):
        refused(functools.partial(run, name, **{field: value}), field, error)
    for field, wanted, _ in field_types(kind):
        if wanted is int:
            refused(functools.partial(run, name, **{field: 0}), f"{field}|0")


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_refuse_options_by_name(name):
    kind = CONFIGS[name]
    groups = [
        f.default for f in dataclasses.fields(kind) if type(f.default).__module__ == kind.__module__
    ]
    for part in {kind, *map(type, groups)}:
        part()
        for field, value, error in bad_values(part, name):
            refused(functools.partial(part, **{field: value}), field, error)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_misspelt_choice_is_refused_by_its_name(name):
    kind, fields = CONFIGS[name], choices_of(CONFIGS[name])
    for field, (first, *_) in fields.items():
        # the options of an optimiser are checked where it is made
        with pytest.raises(ValueError, match=f"{field} must be one of .*{first}.*, got '{first} '"):
            training.make_optimizer(kind(**{field: f"{first} "}), 10)
    if "dtype" in fields:  # checks may compute in float64
        assert kind(dtype="float64").dtype == "float64"


@dataclasses.dataclass
class Choices:
    plain: Literal["a", "b"] = "a"
    optional: Literal["c"] | None = None
    several: tuple[Literal["d"], ...] = ()
    text: str = "x"


def test_none_is_a_choice_where_the_type_says_so_and_other_types_are_not_looked_at():
    assert choices_of(Choices) == {"plain": ("a", "b"), "optional": ("c", None)}
    check_choices(Choices(several=("e",)))
    refused(lambda: check_choices(Choices(plain=None)), "plain must be one of 'a', 'b', got None")


OUTSIDE = {
    "at least 0": (-1,), "at least 1": (0,), "at least 2": (1,), "at most 1,048,576": (1048577,),
    "finite": (NAN, INF, -INF), "positive": (0,), "positive and finite": (0, INF),
    "at least 0 and finite": (-0.5, INF), "in [0, 1)": (-0.1, 1), "in (0, 1)": (0, 1),
    "widths of layers": ((4, 0), (4, MOST_WIDTH + 1), (4,) * (MOST_LAYERS + 1)),
}  # fmt: skip
"""By text of a limit: the nearest values outside, at both ends."""
FIXED = [
    (models.GANetConfig, {
        "estimator_draws": (1,), "density": (0, 1), "temperature": (0, INF), "penalty": (-1e-4,),
        "local_half_width": (0, 1048577), "num_layers": (0, 1001), "pool_dropout": (-0.1, 1),
        "temperature_steps": (0, 2**31), "test_samples": (0, HUGE), "hidden": (HUGE,)}),
    (models.SSANConfig, {
        "cap": (-1, 1048577), "estimator_draws": (1,), "density": (0, 1), "max_offset": (0, HUGE),
        "max_length": (0, 1048577), "dropout": (1,), "block": (0,)}),
    (models.SSANTaggerConfig, {"label_smoothing": (1,)}),
    (models.RAUConfig, {
        "attn_hidden": (-1,), "init_scale": (0,), "gate_bias": (INF,), "embedding_dim": (HUGE,)}),
    (models.GAReaderConfig, {"char_dim": (-1,), "step_clip": (0, INF), "hops": (HUGE,)}),
    (models.AGTConfig, {
        "head_hidden": ((0,), (4, HUGE)), "dropout": (-0.1, 1), "attention_hidden": (HUGE,)}),
    (models.SSANProbeConfig, {"head_hidden": ((4,) * 2000,)}),
    (SearchConfig, {"beam_size": (HUGE,)}),
    (training.TrainConfig, {
        "seed": (-1, 2**32), "accumulate": (0, 65537), "max_skipped": (-1,),
        "early_stop_patience": (0,), "num_steps": (HUGE,), "seeds": (HUGE,)}),
]  # fmt: skip
"""Limits that a field must have, by its configuration, whatever it declares."""


@pytest.mark.parametrize("name", CONFIGS)
def test_a_limit_that_a_field_declares_is_checked_and_shown(name):
    kind = CONFIGS[name]
    shown = str(inspect.signature(kind))
    for field, limit in limits_of(kind):
        assert limit.text in shown
        if name != "OptimizerConfig":  # `make_optimizer` checks it
            most = getattr(limit.check, "keywords", {}).get("most")
            beyond = () if most is None else (most + 1,)
            for value in OUTSIDE[limit.text] + beyond:
                refused(functools.partial(kind, **{field: value}), f"{field}|got")


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [(kind, *pair) for kind, rows in FIXED for name in rows for pair in
     [(name, value) for value in rows[name]]],
)  # fmt: skip
def test_a_field_has_the_limits_that_it_needs(kind, field, value):
    refused(lambda: grouped(kind, **{field: value}), f"{field}|got")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (models.AGTConfig, "dropout"),
        (models.GANetConfig, "pool_dropout"),
        (models.RAUConfig, "state_dropout"),
        (models.SSANTaggerConfig, "label_smoothing"),
    ],
)
def test_a_traced_rate_is_refused(kind, name):
    def trace(rate):
        grouped(kind, **{name: rate})
        return rate

    refused(lambda: jax.eval_shape(trace, 0.5), f"{name}|known while tracing", TypeError)


@pytest.mark.parametrize(
    ("name", "field"), [("GRU", "recurrent_dropout"), ("SelectiveSelfAttention", "dropout")]
)
def test_a_traced_rate_of_a_module_is_refused(name, field):
    call = functools.partial(jax.eval_shape, lambda rate: initialize(name, **{field: rate}), 0.5)
    refused(call, f"{field}|known while tracing", TypeError)


def test_all_public_classes_are_in_the_tables():
    assert public(gnn, nn.Module) == MODULES.keys()
    assert public(gnnx, nnx.Module) <= MODULES.keys()
    assert public(models, nn.Module) == NETWORKS.keys()
    found = {(name, field) for name, kind in CONFIGS.items() for field in choices_of(kind)}
    assert {("GateConfig", "estimator"), ("SSANTaggerConfig", "norm")} < found
    assert {("TrainConfig", "best_mode"), ("OptimizerConfig", "schedule")} < found


def test_heads_must_divide_the_width_and_a_group_is_a_group():
    refused(lambda: models.GANetConfig(gates=3), "gates|GateConfig|dict|int", TypeError)
    refused(lambda: initialize("SelectiveSelfAttention", num_heads=3), "num_heads|4|3")
    refused(lambda: grouped(models.SSANConfig, hidden=4, num_heads=3), "num_heads|3")


def test_a_classifier_of_a_single_class_has_no_loss():
    task = models.AGTTask(models.AGT(NETWORKS["AGT"][0], vocab_size=12, num_classes=1))
    batch = BATCH | {"label": np.zeros(2, np.int32), "weight": np.ones(2), "example_id": LENGTHS}
    shapes = jax.eval_shape(task.init, jax.random.key(0), batch)
    rngs = {"dropout": jax.random.key(0)}
    call = functools.partial(jax.eval_shape, task.loss, shapes, batch, rngs)
    refused(call, "num_classes|2|1")


def test_valid_numbers_of_numpy_and_traced_numbers_pass():
    initialize("GRU", features=np.int64(3), dropout=np.float32(0.5), bidirectional=np.bool_(True))
    initialize("SelectiveSelfAttention", temperature=np.float32(0.5), causal=1)

    def scaled(temperature):
        module = gnn.SelectiveSelfAttention(2, temperature=temperature)
        return module.init_with_output(jax.random.key(0), XS)[0]

    jax.eval_shape(scaled, np.float32(0.5))


@pytest.mark.slow
def test_fields_of_a_subclass_of_a_user_are_not_checked():
    class Offset(gnn.GRU):
        offset: int = 0

    check_fields(Offset(4))
    refused(lambda: check_fields(Offset(0)), "features|1|0")
