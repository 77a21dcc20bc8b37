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
    """A network as a static argument of compiled functions; networks are compared by identity.

    It is constructed with the network, a Flax module with the method `apply`.
    """

    def output(
        self, params: Params, tokens: Tree, lengths: Tree, *arguments: Tree, **options: Tree
    ) -> Tree:
        """Returns the output of the network, an object with `logits` [B, C], for B texts.

        C is the number of classes, and T the padded length of the texts.

        Args:
          params: the parameters of the network.
          tokens: the ids of the words, int [B, T], 0 at padding.
          lengths: int [B], the number of words of each text.
          *arguments: further positional arguments of the method that is run.
          **options: further options of `apply`, such as `method`, the name of the method that is
            run; without it `__call__` is run.
        """
        batch = {"tokens": tokens, "lengths": lengths}
        return self.model.apply({"params": params}, batch, *arguments, **options)


def _take_word_values(output: Tree, name: str, shape: tuple[int, ...]) -> Tree:
    """Returns the field `name` of a network's output as a number for each word, [B, T], or None.

    `shape` is (B, T), for B texts, padded to T words. The field is an array [B, ..., T]; all axes
    between the first and the last, such as layers, are averaged. It is None if the output has no
    such field or it has another shape.
    """
    value = getattr(output, name, None)
    if value is None or value.ndim < 2 or (value.shape[0], value.shape[-1]) != shape:
        return None
    return jnp.mean(value.reshape(shape[0], -1, shape[1]), axis=1) if value.ndim > 2 else value


@functools.partial(jax.jit, static_argnums=0)
def predict(network: StaticNetwork, params: Params, tokens: Tree, lengths: Tree) -> Tree:
    """Computes "logits" [B, C], and "attention", "gates", "gate_logits" [B, T] if there are any.

    `params` are the parameters of `network`, `tokens` are token ids int [B, T] of B texts, padded
    to T words, and `lengths` int [B] the numbers of words; C is the number of classes. Attention of
    several layers is averaged. The result is a dict with these keys. Gates are numbers in [0, 1],
    and gate logits are the log-odds that gates are open.
    """
    output = network.output(params, tokens, lengths)
    names = ["attention"]
    if getattr(output, "gate_logits", None) is not None:  # Only gates of words have logits.
        names += ["gates", "gate_logits"]
    fields = {name: _take_word_values(output, name, tokens.shape) for name in names}
    return {"logits": output.logits} | {k: v for k, v in fields.items() if v is not None}


@functools.partial(jax.jit, static_argnums=0)
def force(network: StaticNetwork, params: Params, tokens: Tree, lengths: Tree, gates: Tree) -> Tree:
    """Computes "logits" [B, C] and "attention" [B, T] with the gates set to `gates` [B, T].

    `params` are the parameters of `network`, `tokens` are token ids int [B, T] of B texts, padded
    to T words, and `lengths` int [B] the numbers of words; C is the number of classes. The result
    is a dict with these keys.
    """
    output = network.output(params, tokens, lengths, gates[None], method="with_gates")
    return {"logits": output.logits[0], "attention": output.attention[0]}


@functools.partial(jax.jit, static_argnums=0)
def gradient(network: StaticNetwork, params: Params, tokens: Tree, lengths: Tree) -> Tree:
    """Computes {"gradient": gradient times input [B, T]}, a score of each word.

    The score of word t is sum_e x_te d log p_j / d x_te, where j is the predicted class. `params`
    are the parameters of `network`, `tokens` are token ids int [B, T] of B texts, padded to T
    words, and `lengths` int [B] the numbers of words. The word vectors x_t are the output of the
    first layer that maps the tokens [B, T] to [B, T, E] with vectors of width E, and p_j is the
    probability of class j.

    Raises:
      ValueError: if the network has no such layer.
    """

    def run(shift: Tree) -> Tree:
        """Returns (sum of log p_j over the texts, word vectors [B, T, E]), j the predicted class.

        `shift` [B, T, E] is a displacement of the word vectors: it is added to the vectors, of
        width E, of the T words of B texts. None adds no shift.
        """
        vectors: list[Tree] = []

        def look(call: Callable[..., Tree], args: Tree, kwargs: Tree, context: Tree) -> Tree:
            """Calls a method for `nn.intercept_methods`, and stores the word vectors.

            `call` is the method, `args` and `kwargs` are its arguments, and `context` is Flax's
            description of the module and the method. Returns the result of the method. For the
            first layer that maps the tokens to vectors [B, T, E], these are appended to the list
            `vectors` of `run`, and the result is their sum with `shift` [B, T, E], the displacement
            of the word vectors, unless it is None.
            """
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
    """Draws uniform numbers in [0, 1), float [draws, B, size], `size` for each of B examples.

    The numbers of an example depend only on `key`, a PRNG key, and on its number in `ids` [B]. An
    example therefore has the same numbers in each batch.
    """

    def draw_row(number: Tree, draw: Tree) -> Tree:
        """Draws the numbers [size] of an example, uniform in [0, 1).

        `number` is the id of the example, and `draw` the number of the draw, from 0.
        """
        return jax.random.uniform(
            jax.random.fold_in(jax.random.fold_in(key, number), draw), (size,)
        )

    # The outer `vmap` maps over the draws, because they are the first axis of the result.
    draw_rows = jax.vmap(jax.vmap(draw_row, (0, None)), (None, 0))
    return draw_rows(ids, jnp.arange(draws))


def make_key(seed: int, *numbers: int) -> Tree:
    """Returns the JAX PRNG key of `seed`, with `numbers` folded in from left to right."""
    key = jax.random.key(seed)
    for number in numbers:
        key = jax.random.fold_in(key, number)
    return key


def random_scores(key: Tree, ids: np.ndarray, size: int, draws: int) -> np.ndarray:
    """Draws uniform numbers in [0, 1) for B examples, float64 NumPy [draws, B, size].

    `ids` are the ids [B] of the examples: an example has the same numbers in each batch. `key` is a
    PRNG key; None means `jax.random.key(0)`.
    """
    key = jax.random.key(0) if key is None else key
    # `fold_in` takes 32-bit numbers.
    return np.asarray(draw_uniform(key, ids.astype(np.uint32), size, draws), np.float64)


def over_rows(program: Callable[..., Tree], rows: int, *arrays: np.ndarray) -> Arrays:
    """Runs a compiled program over arrays, a number of rows at a time; equal rows run once.

    A row is an index of the first axis of all arrays, such as a text; "..." are any further axes.

    Args:
      program: a function of arrays [rows, ...] that returns a dict of arrays [rows, ...].
      rows: number of rows in a call; the last call is filled up with copies of a row, so that all
        calls have the same shapes.
      arrays: the arguments [M, ...], with the same number M of rows.

    Returns:
      The results of all rows, {name: [M, ...]}.
    """
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
