"""Linear regression, and a loop of one's own that trains it with any optimizer of Optax."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gatedjax.training import Ratio, TrainConfig

CONFIG = TrainConfig(
    num_steps=4, log_every=2, eval_every=2, checkpoint_every=2, best_metric="loss",
    best_mode="min", progress=False, parallel="single",
)  # fmt: skip
assert_close = functools.partial(chex.assert_trees_all_close, rtol=1e-4, atol=1e-5)
W = np.array([[1.0, -2.0], [0.5, 1.0], [2.0, 0.0]], np.float32)


class Plane:
    """Linear regression with a weight and an offset."""

    dtype = jnp.float32

    def init(self, key, batch):
        return {"w": np.ones((3, 2), self.dtype), "b": np.zeros(2, self.dtype)}

    def loss(self, params, batch, rngs):
        predicted = batch["x"] @ params["w"] + params["b"][None]
        each = ((predicted - batch["y"]) ** 2).sum(-1).astype(jnp.float32)
        return (each * batch["weight"]).sum(), {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        return self.loss(params, batch, {})[1], {}


class Data:
    def __getitem__(self, step):
        x = np.random.default_rng([6, step]).normal(size=(8, 3)).astype(np.float32)
        ids = np.arange(8, dtype=np.int32) + 8 * step
        return {"x": x, "y": x @ W + 1, "example_id": ids, "weight": np.ones(8, np.float32)}


EVALUATION = [Data()[1000]]


def mean_error(params):
    """The loss on the evaluation data, by NumPy."""
    (batch,) = EVALUATION
    return (((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2).sum(-1)).mean()


def loop(tx, steps, given=()):
    """Parameters and state after some steps of a loop of one's own, as NumPy arrays."""
    params = Plane().init(None, None)
    state = jax.jit(tx.init)(params)

    @jax.jit
    def step(params, state, batch):
        mean = lambda params: Plane().loss(params, batch, {})[0] / 8  # noqa: E731
        value, grad = jax.value_and_grad(mean)(params)
        extra = {"value": value, "grad": grad, "value_fn": mean}
        extra = {name: extra[name] for name in given}
        updates, state = tx.update(grad, state, params, **extra)
        return optax.apply_updates(params, updates), state

    for number in range(steps):
        params, state = step(params, state, Data()[number])
    return jax.device_get((params, state))
