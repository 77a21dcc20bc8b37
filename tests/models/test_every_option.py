"""Every option of every network has an effect: on its parameters, its gradient or its evaluation.

Programs are traced and compared as text; nothing is compiled.
"""

import functools
import itertools
import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jax
import numpy as np
import pytest
from jax.interpreters.partial_eval import dce_jaxpr

from tests._grouped import option_names, option_paths
from tests.models._losses import MAKERS, ROWS, rates_of, total_loss
from tests.models._passes import RNGS
from tests.models.test_every_dropout import case

# a minute of tracing
pytestmark = pytest.mark.slow
# what an option needs beside it to have an effect
NEEDS: dict[str, dict[str, Any]] = {
    "ssan_probe.select_layers": {"num_layers": 2},
    "ga_net.score": {"system": "soft"},
    "ga_net.local_half_width": {"system": "local"},
    "ga_net.local_renormalise": {"system": "local"},
    "ga_net.aux_positions": {"aux": "att"},
    "ga_net.estimator_draws": {"estimator": "leave_one_out"},
    "ga_net.temperature_steps": {"final_temperature": 0.1},
    "agt.ablate_mode": {"ablate_above": 1},
    "rau.forget_bias": {"cell": "lstm"},
    "ga_reader.init": {"hops": 1},
    "ssan_probe.temperature_steps": {"final_temperature": 0.1},
    "ssan_probe.estimator_draws": {"estimator": "leave_one_out"},
    "ssan_probe.max_length": {"positions": "learned"},
    "ssan_probe.max_offset": {"relative": "learned"},
    "ssan_probe.reward_penalty": {"estimator": "reinforce"},
    "ssan_nli.temperature_steps": {"final_temperature": 0.1},
    "ssan_nli.estimator_draws": {"estimator": "leave_one_out"},
    "ssan_nli.reward_penalty": {"estimator": "reinforce"},
    "ssan_nli.score_scale": {"t2t": "multi_dim"},
    "ssan_nli.exclude_self": {"t2t": "multi_dim"},
}
# values where the next one of the kind would not do; several must differ from one another as well
VALUES: dict[str, tuple[Any, ...]] = {
    "ga_net.density": (0.3, 0.4),
    "ga_net.estimator": ("reinmax", "disarm"),
    "ga_net.final_temperature": (0.1,),
    "agt.dropout_sites": (("words",), ("head",)),
    "agt.head_hidden": ((4,),),
    "agt.ablate_above": (0, 1),
    "rau.init_scale": (0.1,),
    "rau.attn_hidden": (2,),
    "ga_reader.step_clip": (10.0,),
    "ssan_probe.select_layers": ((0,), (2,), (1, 2)),
    "ssan_probe.final_temperature": (0.1,),
    "ssan_probe.estimator": ("reinmax", "leave_one_out", "disarm"),
    "ssan_probe.density": (0.3, 0.4),
    "ssan_probe.hidden": (8,),
    "ssan_probe.num_heads": (4,),
    "ssan_probe.block": (2,),
    "ssan_probe.head_hidden": ((5,),),
    "ssan_nli.select_layers": ((0,),),
    "ssan_nli.final_temperature": (0.1,),
    "ssan_nli.estimator": ("reinmax", "leave_one_out", "disarm"),
    "ssan_nli.density": (0.3, 0.4),
    "ssan_nli.hidden": (6,),
    "ssan_nli.num_heads": (2,),
    "ssan_reordering.embedding_dim": (4, 6),
}
# one layer is enough but where layers are chosen
SMALLER: dict[str, dict[str, Any]] = {
    "ga_net": {"num_layers": 1},
    "rau": {"num_layers": 1},
    "rau_language": {"num_layers": 1},
    "ga_reader": {"hops": 2},
    "ssan_probe": {"num_layers": 1},
    "ssan_translation": {"decoder_layers": 1},
}
# two widths of the tagger are tied; characters need arrays in the batch; some word vectors are
# frozen only if they are pretrained. Rates of dropout are those of test_every_dropout
SKIPPED = {
    "ssan_tagger.embedding_dim",
    "ga_reader.char_dim",
    "ga_reader.char_hidden",
    "ga_reader.char_features",
    "ssan_nli.freeze_embeddings",
}
# the same network under options of a class that another one has already
SHARED = {
    "rau_language": "rau",
    "ssan_reordering": "ssan_probe",
    "ssan_tagger": "ssan_probe",
    "ssan_translation": "ssan_probe",
}


def fields_of(name: str) -> list[str]:
    """The options that a network does not share with one that is tested on them."""
    config = case(name).task.model.config
    names = option_names(type(config))
    if name in SHARED:
        other = case(SHARED[name]).task.model.config
        # but every network has word vectors of its own, and every task says what it freezes
        own = {"freeze_embeddings"}
        shared = option_names(type(other))
        names = [one for one in names if one in own or one not in shared]
    rates = rates_of(config)
    return [one for one in names if one not in rates and f"{name}.{one}" not in SKIPPED]


EVERY = [(name, field) for name in MAKERS for field in fields_of(name)]


def values_of(name: str, field: str, config: Any) -> tuple[Any, ...]:
    """Other values of an option than that of the configuration."""
    if f"{name}.{field}" in VALUES:
        return VALUES[f"{name}.{field}"]
    group, _, _ = option_paths(type(config))[field].rpartition(".")
    owner = getattr(config, group) if group else config
    kind, now = get_type_hints(type(owner))[field], getattr(owner, field)
    if get_origin(kind) is Literal:
        return tuple(value for value in get_args(kind) if value not in (now, "float64"))
    if isinstance(now, bool):
        return (not now,)
    if isinstance(now, int):
        return (now + 1,)
    assert isinstance(now, float), f"{name}.{field} needs an entry in VALUES, it is {now!r}"
    return (now / 2 + 0.1,)


def traced(function, *arguments) -> tuple[str, Any]:
    """The program of a function, with its constants, without addresses and without what does not
    reach a result; shapes of its results.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    needed, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    keys = RNGS["gate"].dtype  # the same in all
    constants = [np.asarray(value).tobytes() for value in closed.consts if value.dtype != keys]
    return re.sub(r" at 0x[0-9a-f]+", "", str(needed)) + str(constants), shapes


def programs(name: str, options: dict[str, Any]):
    """The parts of a network that an option may change, the quickest to trace first."""
    one = case(name, **SMALLER.get(name, {}) | options)
    # a changing temperature is one of steps
    batch = one.batch | {"step": np.full(ROWS, 3, np.int32)}
    task, carry = one.task, one.carried
    init, shapes = traced(task.init, RNGS["gate"], batch)
    yield init + str(getattr(task, "frozen", ""))
    cost = lambda params: total_loss(task, params, batch, RNGS, *carry)[0]  # noqa: E731
    for part in (cost, lambda params: task.evaluate(params, batch, *carry), jax.grad(cost)):
        yield traced(part, shapes)[0]


class Programs:
    """The programs of a network that options are compared with, each traced once."""

    def __init__(self, name: str, needed: dict[str, Any]) -> None:
        self.rest, self.seen = programs(name, needed), []

    def part(self, number: int) -> str | None:
        """One of them, or None behind the last."""
        while len(self.seen) <= number:
            self.seen.append(next(self.rest, None))
        return self.seen[number]


@functools.cache
def usual(name: str, **needed: Any) -> Programs:
    """Those of a network under what an option needs."""
    return Programs(name, needed)


@pytest.mark.parametrize("name", ["ga_net", "rau", "ssan_probe"])
def test_the_same_options_make_the_same_programs(name):
    for part, again in enumerate(programs(name, {})):
        assert again == usual(name).part(part)


@pytest.mark.parametrize(("name", "field"), EVERY, ids=[".".join(pair) for pair in EVERY])
def test_every_option_changes_the_network(name, field):
    needed = NEEDS.get(f"{name}.{field}", {})
    config = case(name, **SMALLER.get(name, {}) | needed).task.model.config
    values = values_of(name, field, config)
    seen = [programs(name, needed | {field: value}) for value in values]
    for part in itertools.count():
        first = usual(name, **needed).part(part)
        assert first is not None, f"{field} has no effect, or two of its values have the same"
        if len({first, *(next(one) for one in seen)}) == 1 + len(values):
            return
