"""Several processes are one run only if they were given the same; they say so before a step."""

import dataclasses
import json
from typing import Any

import jax
import numpy as np

from gatedjax.training.config import TrainConfig
from gatedjax.training.distributed import gather_text
from gatedjax.training.identity import as_json, describe, described, flatten
from gatedjax.training.manifest import leaf_hash
from gatedjax.training.task import Batch

# What a process may have for itself: it changes no number and no moment of the run.
_OWN = ("progress", "tensorboard", "keep_checkpoints", "profile_steps")
_SHOWN = 12


class ProcessMismatch(ValueError):
    """The processes of one run were given different settings or data."""


def given(
    identity: dict[str, Any], config: TrainConfig, first: Batch, params: Any, evaluates: bool
) -> dict[str, Any]:
    """What the processes of a run must share, by name: settings, first batch, parameters.

    Args:
      identity: settings of the run, see `identity`.
      config: how this process trains.
      first: the batch of step 0.
      params: shapes and dtypes of the parameters.
      evaluates: whether there are evaluations.
    """
    train = flatten(as_json(dataclasses.asdict(config)), "train")
    settings = train | {
        name.replace("config.train.", "train.", 1): value
        for name, value in flatten(identity).items()
    }
    arrays = {name: np.asarray(value) for name, value in first.items()}
    return (
        {k: v for k, v in settings.items() if k.removeprefix("train.") not in _OWN}
        | {f"first batch, {k}": f"{describe(v)} {leaf_hash(v)[:12]}" for k, v in arrays.items()}
        | {f"parameters, {k}": v for k, v in described(params).items()}
        | {"evaluation data": evaluates}
    )


def agree(what: dict[str, Any]) -> None:
    """Refuses processes that were not given the same; every process must call it at this point.

    Args:
      what: values by name, as JSON holds them.

    Raises:
      ProcessMismatch: on every process, naming the processes and the fields.
    """
    texts = gather_text(json.dumps(what, sort_keys=True))
    if len(set(texts)) == 1:
        return
    first, *others = map(json.loads, texts)
    lines = [
        f"  process {number}: {name} is {other.get(name, 'not there')!r}, "
        f"process 0 has {first.get(name, 'nothing')!r}"
        for number, other in enumerate(others, 1)
        for name in sorted(first.keys() | other.keys())
        if first.get(name) != other.get(name)
    ]
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise ProcessMismatch(
        f"the {jax.process_count()} processes of this run must be given the same:\n"
        + "\n".join(lines[:_SHOWN] + more)
    )
