"""Training until a batch is known by heart, as one program."""

import functools

import jax
import numpy as np

from gatedjax.training import init_state, make_train_step


@functools.partial(jax.jit, static_argnums=(0, 1, 3))
def _learn(task, tx, batch, steps, key):
    step = make_train_step(task, tx)
    state = init_state(task, tx, key, batch)
    state, metrics = jax.lax.scan(
        lambda state, _: step(state, batch, jax.random.key(1)), state, None, length=steps
    )
    evaluation, _ = task.evaluate(state.params, batch)
    return state.params, jax.tree.map(lambda values: values[-1], metrics), evaluation


def learn(task, tx, batch, steps):
    """(parameters, metrics of the last step, metrics of the evaluation) as NumPy arrays."""
    found = _learn(task, tx, batch, steps, jax.random.key(0))
    return jax.tree.map(np.asarray, found)
