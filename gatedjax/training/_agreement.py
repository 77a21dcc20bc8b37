"""Comparison of the settings, data and parameters of the processes that form a run."""

import hashlib
import itertools
import json
from typing import Any

import jax

from gatedjax._utils.json import to_json_values
from gatedjax.training._checks import iterate_batches
from gatedjax.training._digests import array_digests
from gatedjax.training.config import TrainConfig
from gatedjax.training.distributed import gather_text
from gatedjax.training.identity import describe_arrays, flatten
from gatedjax.training.task import Batch

# Processes may differ in these options, because they change neither numbers nor their order.
_OWN = ("progress", "tensorboard", "keep_checkpoints", "profile_steps")
_SHOWN = 12


class ProcessMismatch(ValueError):
    """Raised if the processes of a run have different settings, packages, data or parameters.

    The message lists the processes and the values.
    """


def collect_shared_values(
    settings: dict[str, Any],
    config: TrainConfig,
    digests: dict[str, Any],
    params: Any,
    eval_data: Any,
    step: str | None,
) -> dict[str, Any]:
    """Returns the values that the processes of a run must share, by name."""
    settings = flatten({"train": to_json_values(config)}) | flatten(settings)
    later_batches = Seen(0)
    # Only hashes are compared between the processes, so that no batch is sent over the network.
    batches = iter(()) if eval_data is None else iterate_batches(eval_data)
    for batch in itertools.islice(batches, 1, None):
        later_batches.add(batch)
    return (
        {k: v for k, v in settings.items() if k.removeprefix("train.") not in _OWN}
        | {f"software, {k}": v for k, v in digests["software"].items()}
        | {f"program of {k}": digests.get(k) for k in ("init", "loss", "evaluate")}
        | {"program of a step": step, "evaluation data": "evaluate" in digests}
        | {f"first batch, {k}": v for k, v in digests["train_data"].items()}
        | {f"first evaluation batch, {k}": v for k, v in digests["eval_data"].items()}
        | {f"later evaluation batches, {k}": v for k, v in later_batches.digests().items()}
        | {f"parameters, {k}": v for k, v in describe_arrays(params).items()}
    )


class Seen:
    """Hashes of all arrays of the batches since the last comparison of the processes."""

    def __init__(self, step: int) -> None:
        self._first = step + 1
        self._hashes: dict[str, Any] = {}

    def add(self, batch: Batch) -> None:
        """Adds the arrays in the batch of a step to their hashes."""
        for name, digest in array_digests(batch).items():
            self._hashes.setdefault(name, hashlib.sha256()).update(digest.encode())

    def digests(self) -> dict[str, str]:
        """Returns a dict from the path of each array to a hash, a text of 12 hex digits."""
        return {name: digest.hexdigest()[:12] for name, digest in self._hashes.items()}

    def compare(self, step: int, params: Any) -> None:
        """Compares batches and parameters with the other processes; all processes must call it."""
        since = f"batches of steps {self._first} to {step}"
        arrays = {f"{since}, {k}": v for k, v in self.digests().items()}
        values = array_digests(params)
        agree(arrays | {f"parameters after step {step}, {k}": v for k, v in values.items()})
        self._first, self._hashes = step + 1, {}


def agree(values: dict[str, Any]) -> None:
    """Raises ProcessMismatch on all processes unless their values are equal; all must call it."""
    # Each process compares the texts of all processes, so that all processes raise the error. If
    # only a single process raised it, the remaining processes would wait for it in the next
    # exchange without end.
    texts = gather_text(json.dumps(values, sort_keys=True))
    if len(set(texts)) == 1:
        return
    first, *other_values = map(json.loads, texts)
    lines = [
        f"  process {number}: {name} is {other.get(name, 'not there')!r}, "
        f"process 0 has {first.get(name, 'nothing')!r}"
        for number, other in enumerate(other_values, 1)
        for name in sorted(first.keys() | other.keys())
        if first.get(name) != other.get(name)
    ]
    tail = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise ProcessMismatch(
        f"the {jax.process_count()} processes of this run must be given the same:\n"
        + "\n".join(lines[:_SHOWN] + tail)
    )
