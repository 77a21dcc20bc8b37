"""Support of `gatedjax verify-resume` inside a run: a kill at a chosen moment, and digests.

Environment variables turn both on. They change neither the options nor the numbers of a run.
"""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax._utils.json import to_json
from gatedjax.training.identity import named_leaves
from gatedjax.training.manifest import leaf_hash

KILL_AT = "GATEDJAX_KILL_AT"
"""EVENT:STEP[:SECONDS], as in "step:17" or "save:20:0.01": SIGKILL at this event, or later."""

DIGESTS = "GATEDJAX_DIGESTS"
"""Path of a file to which each finished `fit` appends a JSON line of digests."""

RESUMES = "GATEDJAX_RESUMES"
"""Path of a file to which each `fit` that continues a checkpoint appends the step."""

NEXT_BATCHES = 3


def note_resume(step: int) -> None:
    """Appends the step from which a run continues to the file in GATEDJAX_RESUMES, if it is set."""
    target = os.environ.get(RESUMES)
    if target:
        with open(target, "a", encoding="utf-8") as file:
            file.write(f"{step}\n")


def add_kill(on_event: Callable[[str, int], None] | None) -> Callable[[str, int], None]:
    """Returns `on_event`, extended to kill this process at the moment in GATEDJAX_KILL_AT."""
    moment = os.environ.get(KILL_AT)
    if not moment:
        return on_event or (lambda name, step: None)
    event, number, *delay = moment.split(":")
    seconds = float(delay[0]) if delay else 0.0

    def call(name: str, step: int) -> None:
        if on_event is not None:
            on_event(name, step)
        if name == event and step == int(number):
            if seconds:
                # SIGKILL cannot be caught, so that the process dies without cleaning up, as in a
                # power cut.
                timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
                # A run that ends sooner must not wait for the timer.
                timer.daemon = True
                timer.start()
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    return call


def tree_digests(tree: Any) -> dict[str, str]:
    """Returns the SHA-256 (dtype, shape and bytes) of each array of a tree by its dotted name."""
    return {name: leaf_hash(np.asarray(leaf)) for name, leaf in named_leaves(tree).items()}


# Fields of metrics.jsonl that differ from run to run, because they are times and speeds.
_CLOCK = ("time", "steps_per_s", "tokens_per_s", "compile_s", "padding")


def _metric_lines(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{k: v for k, v in line.items() if k not in _CLOCK} for line in lines]


def write_digests(
    state: Any, best: Any, record: Any, batches: Iterator[Any], workdir: Path | None
) -> None:
    """Appends digests of the end of a run to the file in GATEDJAX_DIGESTS, if it is set."""
    target = os.environ.get(DIGESTS)
    if not target:
        return
    step = int(record["step"])
    next_batches = {}
    # A list may have exactly as many batches as the run has steps.
    with contextlib.suppress(IndexError):
        for number, batch in zip(range(step, step + NEXT_BATCHES), batches, strict=False):
            next_batches[str(number)] = tree_digests(batch)
    line = {
        "parameters": tree_digests(state.params),
        "optimiser state": tree_digests(state.opt_state),
        "carried state": tree_digests(state.carry),
        "model state": tree_digests(state.model_state),
        "best parameters": tree_digests(best),
        "data position": {"step": step, "state.step": int(state.step)},
        "next batches": next_batches,
        "record": record,
        "metrics": [] if workdir is None else _metric_lines(workdir / "metrics.jsonl"),
    }
    with open(target, "a", encoding="utf-8") as file:
        file.write(to_json(line, sort_keys=True) + "\n")
