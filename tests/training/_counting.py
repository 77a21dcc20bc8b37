"""A task that carries a state."""

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax.training import OptimizerConfig, Ratio, TrainConfig, fit


class Memory:
    """Predicts y_t from m_t = 0.9 m_{t-1} + x_t, so that what came before decides what is seen."""

    def init(self, key, batch):
        return {"w": jax.random.normal(key, ())}

    def init_carry(self, batch):
        return {"memory": jnp.zeros(len(batch["weight"])), "seen": jnp.zeros(len(batch["weight"]))}

    def _step(self, params, batch, carry):
        old = jnp.where(batch["reset"], 0, carry["memory"])
        seen = jnp.where(batch["reset"], 0, carry["seen"]) + 1
        new = 0.9 * old + batch["x"]
        error = (params["w"] * new - batch["y"]) ** 2
        return error, {"memory": new, "seen": seen}

    def loss(self, params, batch, rngs, carry):
        error, carry = self._step(params, batch, carry)
        metrics = {"loss": Ratio.of(error, batch["weight"])}
        return metrics["loss"].total, (metrics, carry)

    def evaluate(self, params, batch, carry):
        error, carry = self._step(params, batch, carry)
        predictions = {"example_id": batch["example_id"], "seen": carry["seen"]}
        return {"loss": Ratio.of(error, batch["weight"])}, predictions, carry


class Rows:
    """Rows that go on from step to step for 7 steps, then begin anew; a function of the step."""

    def __init__(self, rows=6, poison=None):
        self.rows, self.poison = rows, poison

    def __getitem__(self, step):
        generator = np.random.default_rng([5, step])
        x, y = generator.normal(size=(2, self.rows)).astype(np.float32)
        if step == self.poison:
            x[0] = np.nan
        return {
            "x": x,
            "y": y,
            "reset": np.full(self.rows, step % 7 == 0),
            "example_id": np.arange(self.rows, dtype=np.int32) + self.rows * step,
            "weight": np.ones(self.rows, np.float32),
        }


def config(**changes):
    settings = {"num_steps": 20, "log_every": 1, "eval_every": 10, "checkpoint_every": 5}
    settings |= {"progress": False, "best_metric": "loss", "best_mode": "min"}
    return TrainConfig(optimizer=OptimizerConfig(learning_rate=0.05), **(settings | changes))


def train(workdir, given=None, **changes):
    """A run with an evaluation on five batches; given is the kind of parallelism itself."""
    data = [Rows()[step] for step in range(7, 12)]
    return fit(Memory(), Rows(), data, config(**changes), workdir, parallel=given)
