"""One of the processes of some runs: python _process.py JSON. Prints a line of JSON for each."""

import json
import sys

import jax
import numpy as np

from gatedjax.training import (
    DistributedConfig,
    OptimizerConfig,
    identity,
    initialize,
    make_parallel,
)
from tests.training._tiny import (
    Changed,
    Far,
    Memory,
    Normalised,
    Rows,
    Tiny,
    lines_to,
    run,
)


class Noisy(Tiny):
    """A loss whose noise is larger, as with another dropout rate, or whose labels are turned."""

    def __init__(self, noise, turned):
        self.noise, self.turned = noise, turned

    def loss(self, params, batch, rngs):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(rngs["gate"], batch["example_id"])
        noise = self.noise * jax.vmap(jax.random.normal)(keys)[:, None]
        label = 1 - batch["label"] if self.turned else batch["label"]
        return super().loss(params, {**batch, "x": batch["x"] + noise, "label": label}, rngs)


def data_of(options):
    """Batches, of which those of a later step, or the labels of a step, may be others."""
    flip = options.get("flip")
    data = Changed(
        lambda step, batch: {"label": 1 - batch["label"]} if step == flip else {},
        options.get("shift", 0),
    )
    data.pause, data.rows = options.get("pause", 0), options.get("rows", 8)
    return data


def split_parameters():
    """The weights in equal parts on every other device, so on devices of all processes."""
    rule = lambda path, array: jax.sharding.PartitionSpec("data")  # noqa: E731
    return make_parallel("fsdp", jax.devices()[::2], param_sharding=rule)


def tiny(options):
    """Logistic regression; an error in the middle, as broken data would raise it."""
    log, fail_at = [], options.get("fail_at")

    def hook(event, step, state, metrics):
        if event == "step" and step == fail_at:
            raise OSError("this file is broken")
        lines_to(log)(event, step, state, metrics)

    if "jax" in options:
        found = identity.versions()
        identity.versions = lambda: found | {"jax": options["jax"]}
    result = run(
        options["workdir"],
        Noisy(options["noise"], options.get("turned", False)) if "noise" in options else Tiny(),
        data_of(options),
        [data_of({})[1000], data_of({"flip": options.get("flip_evaluation")})[1001]],
        hook=hook,
        on=split_parameters() if options.get("split") else None,
        **{"num_steps": 20, "log_every": 1, "eval_every": 10, "checkpoint_every": 5}
        | {"parallel": "sharding"} | options.get("train", {}),
        optimizer=OptimizerConfig(learning_rate=options.get("learning_rate", 0.05)),
    )  # fmt: skip
    return {
        "steps": result.steps,
        "stopped": result.stopped,
        "signal": result.signal,
        "losses": [line["loss"] for line in log if line["split"] == "train"],
        "w": result.state.params["w"].tolist(),
        "devices": jax.device_count(),
        "best": result.best_metrics,
    }


def carried(options):
    """A task that carries rows, and one that shares arrays."""
    kind, steps = options["train"]["parallel"], options["train"]["num_steps"]
    given = {"parallel": kind, "num_steps": steps, "best_metric": "loss"}
    given |= {"optimizer": OptimizerConfig(learning_rate=0.05)}
    rows = run(f"{options['workdir']}-rows", Memory(), Rows(), [Rows()[7]], **given)
    shared = run(f"{options['workdir']}-shared", Normalised(), Far(), [Far()[1000]], **given)
    found = rows.state, rows.best_params, shared.state, shared.best_params, shared.best_shared
    return {"arrays": [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(found)]}


def main(options):
    jax.config.update("jax_num_cpu_devices", options["devices"])
    initialize(DistributedConfig(**options.get("distributed", {})))
    for one in options["runs"]:
        try:
            found = (carried if one.get("carried") else tiny)(one)
        except Exception as error:
            if not one.get("go_on"):
                raise
            found = {"refused": str(error)}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
