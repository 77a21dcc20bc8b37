"""Passes of a network or a task as compiled programs, and what a test looks at in one."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax.functional import _random
from gatedjax.models import GANet
from tests.models._losses import total_loss

RNGS = {"dropout": jax.random.key(1), "gate": jax.random.key(2)}
# every draw of random bits that belongs to examples; the keys are this argument of it, and of its
# core, which modules and networks call
DRAWS = {
    "example_dropout": 2,
    "feature_bytes": 0,
    "pair_bytes": 0,
    "pair_uniform": 0,
    "example_noise": 0,
}
CORES = {"example_dropout": _random.drop, "example_noise": _random.noise_of}


@functools.cache
def _users(core: Callable[..., Any]) -> list[Any]:
    modules = [module for name, module in sys.modules.items() if name.startswith("gatedjax.")]
    return [module for module in modules if vars(module).get(core.__name__) is core]


def watch(patch: pytest.MonkeyPatch, name: str, watched: Callable[..., Any]) -> None:
    """Replaces a draw by watched(draw), its core wherever a module has it."""
    core = CORES.get(name)
    if core is None:
        patch.setattr(F, name, watched(getattr(F, name)))
        return
    for module in _users(core):
        patch.setattr(module, core.__name__, watched(getattr(module, core.__name__)))


def in_numpy(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compiled whole, and its results as NumPy arrays, whose parts are no programs.

    The first argument is static: a network or a task.
    """
    compiled = jax.jit(function, static_argnums=0, **options)
    return lambda *args, **kwargs: jax.tree.map(np.asarray, compiled(*args, **kwargs))


@functools.partial(in_numpy, static_argnames=("train", "attention"))
def apply(model, params, batch, keys=None, *, train=False, **options):
    """The output of a pass with the given keys, or in training with those of this module."""
    keys = (RNGS if train else {}) if keys is None else keys
    # a pass without dropout takes no stream for it
    streams = {name: key for name, key in keys.items() if train or name != "dropout"}
    return model.apply({"params": params}, batch, train=train, rngs=streams, **options)


evaluate = in_numpy(lambda task, params, batch: task.evaluate(params, batch))
# of a GA-Net under given gates
forced = in_numpy(
    lambda model, params, batch, gates: model.apply(
        {"params": params}, batch, gates, method=GANet.with_gates
    )
)
# ((loss, metrics), gradient)
loss = in_numpy(
    lambda task, params, batch: jax.value_and_grad(
        functools.partial(total_loss, task), has_aux=True
    )(params, batch, RNGS)
)


def count_without_words(task, batch) -> int:
    """The number of the parameters without the table of word vectors."""
    shapes = jax.eval_shape(task.init, jax.random.key(0), batch)
    return sum(s.size for name in shapes.keys() - {"embed"} for s in jax.tree.leaves(shapes[name]))


def make_batch(rng, lengths=(4, 7, 1), size=8):
    """A batch of texts with a vocabulary of 20 words and 3 classes."""
    lengths = np.asarray(lengths, np.int32)
    real = np.arange(size)[None, :] < lengths[:, None]
    return {
        "tokens": (rng.integers(2, 20, real.shape) * real).astype(np.int32),
        "lengths": lengths,
        "label": rng.integers(0, 3, len(lengths)).astype(np.int32),
        "example_id": np.arange(10, 10 + len(lengths), dtype=np.int32),
        "weight": np.ones(len(lengths), np.float32),
    }


class Recording:
    """A model that keeps what its last pass returned."""

    def __init__(self, model: Any) -> None:
        self.model, self.output = model, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """The pass of the model."""
        self.output = self.model.apply(*args, **kwargs)
        return self.output
