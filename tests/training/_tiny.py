"""A run of `fit` in a process of its own, to be killed: python _tiny.py WORKDIR [PAUSE].

And what tests of `fit` say of a run: its log, its bits, and events at which something happens.
"""

import json
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np

from gatedjax.training import FitResult, OptimizerConfig, Ratio, TrainConfig, fit


class Tiny:
    """Logistic regression with noise that belongs to the example."""

    def init(self, key, batch):
        return {"w": jax.random.normal(key, (batch["x"].shape[-1],))}

    def loss(self, params, batch, rngs):
        draw = lambda i: jax.random.normal(jax.random.fold_in(rngs["gate"], i), ())  # noqa: E731
        logit = batch["x"] @ params["w"] + 0.1 * jax.vmap(draw)(batch["example_id"])
        each = jax.nn.softplus(logit) - logit * batch["label"]
        return (each * batch["weight"]).sum(), {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        correct = ((batch["x"] @ params["w"] > 0) == (batch["label"] > 0)).astype(np.float32)
        return {"accuracy": Ratio.of(correct, batch["weight"])}, {
            "correct": correct,
            "example_id": batch["example_id"],
        }


class Data:
    """A few rows a step; a function of the step alone. A pause makes the run last."""

    def __init__(self, pause=0.0, rows=8):
        self.pause, self.rows = pause, rows

    def __len__(self):
        return 6

    def __getitem__(self, step):
        time.sleep(self.pause)
        generator = np.random.default_rng([3, step])
        x = generator.normal(size=(self.rows, 4)).astype(np.float32)
        return {
            "x": x,
            "label": (x[:, 0] > x[:, 1]).astype(np.float32),
            "example_id": np.arange(self.rows, dtype=np.int32) + self.rows * step,
            "weight": np.ones(self.rows, np.float32),
        }


def lines(workdir, split=None):
    """The lines of a log, or those of one kind, without what takes time; nothing but JSON."""

    def refuse(word):
        raise ValueError(f"not JSON: {word}")

    text = (Path(workdir) / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line, parse_constant=refuse) for line in text]
    timing = ("time", "steps_per_s", "compile_s")
    found = [{k: v for k, v in line.items() if k not in timing} for line in found]
    return [line for line in found if split in (None, line["split"])]


def interrupt(*at, number=signal.SIGTERM):
    """An `on_event` that sends this process a signal, once: a second one would end it.

    Args:
      at: the name of an event and perhaps its step.
    """
    sent = []

    def send(*event):
        if event[: len(at)] == at and not sent:
            sent.append(event)
            signal.raise_signal(number)

    return send


def train(workdir: str, pause: float = 0.0) -> FitResult:
    """Sixty steps; log, evaluation and checkpoints do not fall together."""
    config = TrainConfig(
        num_steps=60, log_every=7, eval_every=10, checkpoint_every=4, progress=False,
        best_metric="accuracy", optimizer=OptimizerConfig(learning_rate=0.05),
    )  # fmt: skip
    return fit(Tiny(), Data(pause), [Data()[1000]], config, workdir)


if __name__ == "__main__":
    sys.exit(train(sys.argv[1], float(sys.argv[2])).exit_code)
