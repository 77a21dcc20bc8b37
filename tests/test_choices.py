"""A misspelt choice is refused from Python too, by every public configuration."""

import dataclasses
import re
from typing import Literal

import pytest

from gatedjax import training
from gatedjax._utils.choices import check_choices, choices_of
from tests._grouped import CONFIGS

CHOICES = [(name, field) for name, kind in CONFIGS.items() for field in choices_of(kind)]


def test_the_fields_are_found():
    assert {"GANetConfig", "RAUConfig", "AGTConfig", "GAReaderConfig"} < CONFIGS.keys()
    assert {("GateConfig", "estimator"), ("SSANTaggerConfig", "norm")} < set(CHOICES)
    assert {("TrainConfig", "best_mode"), ("OptimizerConfig", "schedule")} < set(CHOICES)


@pytest.mark.parametrize(("name", "field"), CHOICES, ids=[".".join(pair) for pair in CHOICES])
def test_a_misspelt_choice_is_refused_by_its_name(name, field):
    kind = CONFIGS[name]
    first = choices_of(kind)[field][0]
    # the options of an optimiser are checked where it is made
    with pytest.raises(ValueError, match=f"{field} must be one of .*{first}.*, got '{first} '"):
        training.make_optimizer(kind(**{field: f"{first} "}), 10)


@pytest.mark.parametrize("name", [name for name, field in CHOICES if field == "dtype"])
def test_checks_may_compute_in_float64(name):
    assert CONFIGS[name](dtype="float64").dtype == "float64"


@dataclasses.dataclass
class Options:
    plain: Literal["a", "b"] = "a"
    optional: Literal["c"] | None = None
    several: tuple[Literal["d"], ...] = ()
    text: str = "x"


def test_none_is_a_choice_where_the_type_says_so_and_other_types_are_not_looked_at():
    assert choices_of(Options) == {"plain": ("a", "b"), "optional": ("c", None)}
    check_choices(Options(several=("e",)))
    message = re.escape("plain must be one of 'a', 'b', got None")
    with pytest.raises(ValueError, match=message):
        check_choices(Options(plain=None))
