"""Compiled passes of a text classifier, for analysis that runs a network many times.

The network is an object with `apply({"params": params}, {"tokens": .., "lengths": ..})` that
returns an object with `logits`. Networks are compared by identity, so that the programs of a
network are compiled once. Only this module of `gatedjax.analysis` needs JAX, and it is imported on
first use.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from gatedjax._utils.identity import ByIdentity
from gatedjax._utils.types import Params, Tree

Arrays = dict[str, np.ndarray]


class StaticNetwork(ByIdentity):
    """A network as a static argument of compiled functions; networks are compared by identity."""

    def output(
        self, params: Params, tokens: Tree, lengths: Tree, *arguments: Tree, **options: Tree
    ) -> Tree:
        """Returns the network's output, with `logits` [B, C]; `options` go to `apply`."""
        batch = {"tokens": tokens, "lengths": lengths}
        return self.model.apply({"params": params}, batch, *arguments, **options)


def _take_word_values(output: Tree, name: str, shape: tuple[int, ...]) -> Tree:
    value = getattr(output, name, None)
    if value is None or value.ndim < 2 or (value.shape[0], value.shape[-1]) != shape:
        return None
    # The axes between texts and words, such as layers, are averaged.
    return jnp.mean(value.reshape(shape[0], -1, shape[1]), axis=1) if value.ndim > 2 else value


@functools.partial(jax.jit, static_argnums=0)
def predict(network: StaticNetwork, params: Params, tokens: Tree, lengths: Tree) -> Tree:
    """Computes "logits" [B, C], and "attention", "gates", "gate_logits" [B, T] if there are any."""
    output = network.output(params, tokens, lengths)
    names = ["attention"]
    if getattr(output, "gate_logits", None) is not None:  # Only gates of words have logits.
        names += ["gates", "gate_logits"]
    fields = {name: _take_word_values(output, name, tokens.shape) for name in names}
    return {"logits": output.logits} | {k: v for k, v in fields.items() if v is not None}


@functools.partial(jax.jit, static_argnums=0)
def force(network: StaticNetwork, params: Params, tokens: Tree, lengths: Tree, gates: Tree) -> Tree:
    """Computes "logits" [B, C] and "attention" [B, T] with the gates set to `gates` [B, T]."""
    output = network.output(params, tokens, lengths, gates[None], method="with_gates")
    return {"logits": output.logits[0], "attention": output.attention[0]}


@functools.partial(jax.jit, static_argnums=0)
def gradient(network: StaticNetwork, params: Params, tokens: Tree, lengths: Tree) -> Tree:
    """Computes {"gradient": [B, T]}: for each word t sum_e x_te d log p_j / d x_te, where j is the
    predicted class and the vectors x [B, T, E] are the output of the first layer that maps the
    tokens [B, T] to such an array.
    """

    def run(shift: Tree) -> Tree:
        """Returns (sum of log p_j over the texts, word vectors [B, T, E])."""
        vectors: list[Tree] = []

        def look(call: Callable[..., Tree], args: Tree, kwargs: Tree, context: Tree) -> Tree:
            """Calls a method for `nn.intercept_methods`, and stores the word vectors."""
            del context
            out = call(*args, **kwargs)
            ids: Tree = args[0] if args else None
            if vectors or getattr(ids, "shape", None) != tokens.shape:
                return out
            if not jnp.issubdtype(ids.dtype, jnp.integer) or getattr(out, "ndim", 0) != 3:
                return out
            vectors.append(out)
            return out if shift is None else out + shift

        with nn.intercept_methods(look):
            logits = network.output(params, tokens, lengths).logits
        if not vectors:
            raise ValueError(
                "model must have a layer that maps tokens [B, T] to vectors [B, T, E], got "
                f"{type(network.model).__name__} without this layer: use another source"
            )
        best = jax.lax.stop_gradient(jnp.argmax(logits, axis=-1, keepdims=True))
        return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), best, axis=-1)), vectors[0]

    # Only the network determines the shape of the word vectors, so a first trace returns it.
    _, shape = jax.eval_shape(lambda: run(None))
    # The gradient with respect to a shift of 0 is that with respect to the word vectors, wherever
    # the network computes them.
    slope, vectors = jax.grad(run, has_aux=True)(jnp.zeros(shape.shape, shape.dtype))
    return {"gradient": jnp.sum(slope * vectors, axis=-1)}


@functools.partial(jax.jit, static_argnums=(2, 3))
def draw_uniform(key: Tree, ids: Tree, size: int, draws: int) -> Tree:
    """Draws numbers [draws, B, size] in [0, 1), for an example a function of `key` and its id."""

    def draw_row(number: Tree, draw: Tree) -> Tree:
        return jax.random.uniform(
            jax.random.fold_in(jax.random.fold_in(key, number), draw), (size,)
        )

    # The outer `vmap` maps over the draws, because they are the first axis of the result.
    draw_rows = jax.vmap(jax.vmap(draw_row, (0, None)), (None, 0))
    return draw_rows(ids, jnp.arange(draws))


def make_key(seed: int, *numbers: int) -> Tree:
    """Returns the JAX PRNG key of `seed`, with `numbers` folded in from left to right."""
    return functools.reduce(jax.random.fold_in, numbers, jax.random.key(seed))


def random_scores(key: Tree, ids: np.ndarray, size: int, draws: int) -> np.ndarray:
    """Draws uniform numbers in [0, 1) for B examples, float64 NumPy [draws, B, size]."""
    key = jax.random.key(0) if key is None else key
    # `fold_in` takes 32-bit numbers.
    return np.asarray(draw_uniform(key, ids.astype(np.uint32), size, draws), np.float64)


def over_rows(program: Callable[..., Tree], rows: int, *arrays: np.ndarray) -> Arrays:
    """Runs a compiled program over arrays, a number of rows at a time; equal rows run once."""
    # Rows with equal bytes have equal results, because the programs draw no random numbers.
    places: dict[bytes, int] = {}
    inverse = [
        places.setdefault(b"".join(part.tobytes() for part in row), len(places))
        for row in zip(*arrays, strict=True)
    ]
    first = np.unique(inverse, return_index=True)[1]
    results: list[Tree] = []
    for begin in range(0, len(first), rows):
        chunk = first[begin : begin + rows]
        # The last call is filled up, because another shape would be compiled.
        filled = np.concatenate([chunk, np.repeat(chunk[:1], rows - len(chunk))])
        out = jax.device_get(program(*(array[filled] for array in arrays)))
        results.append({name: np.asarray(value)[: len(chunk)] for name, value in out.items()})
    return {name: np.concatenate([part[name] for part in results])[inverse] for name in results[0]}
