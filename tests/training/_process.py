"""One of the processes of a run: python _process.py JSON. Prints the losses as its last line."""

import json
import sys

import jax

from gatedjax.training import DistributedConfig, OptimizerConfig, TrainConfig, fit, initialize
from tests.training._tiny import Data, Tiny

options = json.loads(sys.argv[1])
jax.config.update("jax_num_cpu_devices", options["devices"])
initialize(DistributedConfig(**options.get("distributed", {})))
losses = []


def fail(name, step):
    """An error in the middle of a run, as broken data would raise it."""
    if name == "step" and step == options.get("fail_at"):
        raise OSError("this file is broken")


class Shifted(Data):
    """The batches of later steps, as a process with other data has them."""

    def __getitem__(self, step):
        return super().__getitem__(step + options.get("shift", 0))


result = fit(
    Tiny(),
    Shifted(options.get("pause", 0.0), options.get("rows", 8)),
    [Data()[1000]],
    TrainConfig(
        **{"num_steps": 20, "log_every": 1, "eval_every": 10, "checkpoint_every": 5}
        | {"progress": False}
        | options.get("train", {}),
        optimizer=OptimizerConfig(learning_rate=options.get("learning_rate", 0.05)),
    ),
    options["workdir"],
    on_event=fail,
    on_log=lambda line: losses.append(line.get("loss")) if line["split"] == "train" else None,
)
print(json.dumps({"steps": result.steps, "stopped": result.stopped, "losses": losses,
                  "w": result.state.params["w"].tolist(),
                  "devices": jax.device_count(), "best": result.best_metrics}))  # fmt: skip
