"""One of the processes of some runs: python _process.py JSON. Prints a line of JSON for each."""

import json
import sys

import jax
import numpy as np

from gatedjax.training import (
    DistributedConfig,
    OptimizerConfig,
    TrainConfig,
    _digests,
    fit,
    initialize,
    make_parallel,
)
from tests.training import _counting, test_model_state
from tests.training._tiny import Data, Tiny


class Shifted(Data):
    """The batches of later steps, as a process with other data has them.

    With `flip` the labels of one step are others, and the examples have the same ids.
    """

    def __init__(self, shift, flip, *given):
        super().__init__(*given)
        self.shift, self.flip = shift, flip

    def __getitem__(self, step):
        batch = super().__getitem__(step + self.shift)
        return batch | ({"label": 1 - batch["label"]} if step == self.flip else {})


class Scaled(Tiny):
    """A loss whose noise is larger, as with another dropout rate, or whose labels are turned."""

    def __init__(self, noise, turned):
        self.noise, self.turned = noise, turned

    def loss(self, params, batch, rngs):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(rngs["gate"], batch["example_id"])
        noise = self.noise * jax.vmap(jax.random.normal)(keys)[:, None]
        label = 1 - batch["label"] if self.turned else batch["label"]
        return super().loss(params, {**batch, "x": batch["x"] + noise, "label": label}, rngs)


def split_parameters():
    """The weights in equal parts on every other device, so on devices of all processes."""
    rule = lambda path, array: jax.sharding.PartitionSpec("data")  # noqa: E731
    return make_parallel("fsdp", jax.devices()[::2], param_sharding=rule)


def tiny(run):
    """Logistic regression; an error in the middle, as broken data would raise it."""
    losses = []

    def fail(name, step):
        if name == "step" and step == run.get("fail_at"):
            raise OSError("this file is broken")

    if "jax" in run:
        found = _digests.versions()
        _digests.versions = lambda: found | {"jax": run["jax"]}
    result = fit(
        Scaled(run["noise"], run.get("turned", False)) if "noise" in run else Tiny(),
        Shifted(run.get("shift", 0), run.get("flip"), run.get("pause", 0.0), run.get("rows", 8)),
        [Data()[1000], Shifted(0, run.get("flip_evaluation"))[1001]],
        TrainConfig(
            **{"num_steps": 20, "log_every": 1, "eval_every": 10, "checkpoint_every": 5}
            | {"progress": False, "best_metric": "accuracy"}
            | run.get("train", {}),
            optimizer=OptimizerConfig(learning_rate=run.get("learning_rate", 0.05)),
        ),
        run["workdir"],
        on_event=fail,
        on_log=lambda line: losses.append(line.get("loss")) if line["split"] == "train" else None,
        parallel=split_parameters() if run.get("split") else None,
    )
    return {
        "steps": result.steps,
        "stopped": result.stopped,
        "signal": result.signal,
        "losses": losses,
        "w": result.state.params["w"].tolist(),
        "devices": jax.device_count(),
        "best": result.best_metrics,
    }


def carried(run):
    """The task that carries a state."""
    result = _counting.train(run["workdir"], **run.get("train", {}))
    carry = jax.tree.map(lambda x: np.asarray(x).tolist(), result.state.carry)
    return {"w": float(result.state.params["w"]), "carry": carry, "best": result.best_metrics}


def stateful_model(run):
    """The task with a model state, and an optimizer that is evaluated elsewhere than it is."""
    result = test_model_state.train(run["workdir"], **run.get("train", {}))
    found = result.best_params, result.best_model_state, result.state.params
    return {"found": [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(found)]}


KINDS = {"carried": carried, "model_state": stateful_model}


def main(options):
    jax.config.update("jax_num_cpu_devices", options["devices"])
    initialize(DistributedConfig(**options.get("distributed", {})))
    for run in options["runs"]:
        try:
            kind = next((KINDS[name] for name in KINDS if run.get(name)), tiny)
            found = kind(run)
        except Exception as error:
            if not run.get("go_on"):
                raise
            found = {"refused": str(error)}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
