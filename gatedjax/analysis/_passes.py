"""Compiled passes of a text classifier, and measures of rationales by deletion of words.

The network is an object with `apply({"params": params}, {"tokens": .., "lengths": ..})` that
returns an object with `logits`. Networks are compared by identity, so that the programs of a
network are compiled once. Only this module of `gatedjax.analysis` needs JAX, and it is imported on
first use.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from gatedjax._utils.tracing import ByIdentity
from gatedjax._utils.types import Params, Tree
from gatedjax.analysis._checks import mask_before

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
    wide = gates.astype(jnp.float32)[None]
    output = network.output(params, tokens, lengths, wide, method="with_gates")
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


@dataclasses.dataclass(frozen=True)
class Runner:
    """A network with its parameters, and the options of its passes."""

    network: StaticNetwork
    params: Params
    rows: int  # the largest number of texts in a pass
    deletion: str  # "remove" removes words, "unk" replaces them by `unk`
    unk: int

    def run(self, program: Callable[..., Any], *arrays: np.ndarray) -> Arrays:
        """Computes the arrays of `predict`, `force` or `gradient` for texts."""
        function = functools.partial(program, self.network, self.params)
        return over_rows(function, self.rows, *arrays)

    def compute_scores(
        self, source: str, tokens: np.ndarray, lengths: np.ndarray, first: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Computes scores that rank the words by their importance, float64 [B, T]."""
        if source == "gradient":
            values = self.run(gradient, tokens, lengths)["gradient"]
        elif source == "attention" and "gates" in first and "attention" in first:
            all_open = mask_before(lengths, tokens.shape[1])
            values = self.run(force, tokens, lengths, all_open)["attention"]
        else:
            name = "gate_logits" if source == "gates" else "attention"
            if name not in first:
                raise ValueError(
                    f"model must have {source} for each word, got the fields {sorted(first)}: give "
                    "scores, or use another source"
                )
            values = first[name]
        return np.asarray(values, np.float64)

    def measure(
        self,
        tokens: np.ndarray,
        lengths: np.ndarray,
        ranks: Mapping[str, list[np.ndarray]],  # per draw [N, T], 0 for the most important word
        shares: tuple[float, ...],
        open_words: np.ndarray | None,
        gated: bool,
    ) -> tuple[np.ndarray, np.ndarray, Arrays]:
        """Returns predicted classes [N], their probabilities [N], and for each rationale pairs of
        measures [P, 2, N]: (comprehensiveness, sufficiency) at each share, and for a model with
        open words the same at the density, and with gates (leak, flipped).
        """
        real = mask_before(lengths, tokens.shape[1])
        # A product such as 0.07 * 100 is slightly above the whole number, and would be rounded up
        # too far.
        counts = [np.ceil(np.round(q * lengths, 9)).astype(int) for q in shares]
        masks_of: dict[str, list[list[np.ndarray]]] = {}
        for name, per_draw in ranks.items():
            masks_of[name] = [[draw < count[:, None] for count in counts] for draw in per_draw]
            if open_words is not None:
                size = open_words.sum(axis=1, keepdims=True)
                for masks, draw in zip(masks_of[name], per_draw, strict=True):
                    masks.append(open_words if name == "own" else draw < size)
        flat = [mask for draws in masks_of.values() for masks in draws for mask in masks]
        keep = [real, *itertools.chain.from_iterable((real & ~mask, mask) for mask in flat)]
        shortened = [self._delete(tokens, lengths, mask)[:2] for mask in keep]
        # All shortened texts run in one call, because rationales share many of them and equal texts
        # run only once.
        pool = [np.concatenate(arrays) for arrays in zip(*shortened, strict=True)]
        shape = len(keep), len(tokens), -1
        probabilities = _softmax(self.run(predict, *pool)["logits"]).reshape(shape)
        # The first mask deletes no word, so that its probabilities belong to the whole texts.
        predicted = probabilities[0].argmax(axis=-1)
        of_class = np.take_along_axis(probabilities, predicted[None, :, None], axis=-1)[..., 0]
        # The masks come in the same order as above: for each draw and share first the text without
        # the words, then only the words.
        drops = iter((of_class[0] - of_class[1:]).reshape(-1, 2, len(tokens)))
        measures = {}
        for name, draws in masks_of.items():
            pairs = [[next(drops) for _ in masks] for masks in draws]
            if gated:
                for pairs_of_draw, masks in zip(pairs, draws, strict=True):
                    # The last mask of a draw is its rationale at the density.
                    leak = self._measure_leak(tokens, lengths, masks[-1], predicted)
                    pairs_of_draw.append(leak)
            measures[name] = np.mean(pairs, axis=0)
        return predicted, of_class[0], measures

    def _measure_leak(
        self, tokens: np.ndarray, lengths: np.ndarray, is_open: np.ndarray, predicted: np.ndarray
    ) -> np.ndarray:
        """Computes the gate leak, and 1 where the predicted class changes with it or 0, [2, N]."""
        fewer, shorter, moved = self._delete(tokens, lengths, is_open)
        # A call fills its last pass with copies, so that a call for both texts needs fewer passes.
        pairs = (tokens, fewer), (lengths, shorter), (is_open, moved)
        both = map(np.concatenate, pairs)
        before, after = _softmax(self.run(force, *both)["logits"]).reshape(2, len(tokens), -1)
        change = np.take_along_axis(before - after, predicted[:, None], axis=-1)[:, 0]
        return np.stack([np.abs(change), before.argmax(-1) != after.argmax(-1)])

    def _delete(
        self, tokens: np.ndarray, lengths: np.ndarray, keep: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Deletes words where `keep` is False; returns the new tokens, lengths and word mask."""
        if self.deletion == "unk":
            real = mask_before(lengths, tokens.shape[1])
            return np.where(keep | ~real, tokens, self.unk).astype(tokens.dtype), lengths, keep
        # False sorts before True, so that the remaining words move to the front in their order.
        order = np.argsort(~keep, axis=1, kind="stable")
        num_left = keep.sum(axis=1)
        stay = np.arange(tokens.shape[1])[None] < num_left[:, None]
        fewer = np.where(stay, np.take_along_axis(tokens, order, axis=1), 0)
        # A network cannot read a text without a word.
        fewer[num_left == 0, 0] = self.unk
        return fewer.astype(tokens.dtype), np.maximum(num_left, 1).astype(lengths.dtype), stay


def _softmax(logits: np.ndarray) -> np.ndarray:
    # The measures are small differences of probabilities, which float32 would round.
    return special.softmax(logits.astype(np.float64), axis=-1)
