"""Runs a recurrence without its padding, in every mode of JAX.

The loops of `Packed` are as long as the data says, so JAX cannot differentiate them in reverse, and
under `vmap` over masks it would hold every array at every step. Here they are given derivatives and
a way to be mapped: both are those of a form without such loops, which is the same function.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from gatedjax.functional._devices import run_core
from gatedjax.functional._recurrence import Form
from gatedjax.functional._types import Tree

Static: TypeAlias = tuple[Any, ...]
"""What is known while tracing; the first is a form, or several."""
# A loop is compiled for every width: more of them save little (docs/recurrence.md).
_WIDTHS = 4
_MASK = 2  # its place among the arguments


class Recurrence(NamedTuple):
    """The functions of a recurrence: a `jax.custom_vjp` and its two passes.

    All take what is static first; `core` and `forward` then the arguments: weights, inputs, mask
    and what else there is.
    """

    core: Callable[..., Tree]
    forward: Callable[..., Tree]
    backward: Callable[..., Tree]


def widths_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the numbers of rows that a step of [B, T] may run, from B down; none is all B."""
    if not all(isinstance(size, int) and size > 0 for size in shape):
        return ()  # jax.export may leave a size open
    batch = shape[0]
    return tuple(sorted({-(-batch * part // _WIDTHS) for part in range(1, _WIDTHS + 1)})[::-1])


def run_recurrence(
    recurrence: Recurrence,
    static: Static,
    arguments: tuple[Tree, ...],
    skip_padding: bool,
    *,
    reads_gates: bool = False,
) -> Tree:
    """The core of a recurrence in every mode (see `run_core`), without its padding if asked for.

    reads_gates: the backward pass reads a gate outside its loops, where rows of several widths
      cannot be turned: the form is batch-major then.
    """
    _, xs, mask, initial, *_ = arguments
    widths = widths_of(xs.shape[:2]) if skip_padding and mask is not None else ()
    if not widths:
        return run_core(recurrence.core, static, arguments, (xs, initial))
    static = _changed(static, widths=widths)
    if reads_gates:
        static = _changed(static, feature_major=False)
    return run_core(_run, (recurrence, static), arguments, (xs, initial))


def _changed(static: Static, **fields: Any) -> Static:
    forms, *others = static
    if isinstance(forms, Form):
        return forms._replace(**fields), *others
    return tuple(form._replace(**fields) for form in forms), *others


def _mapped(function: Callable[..., Tree], static: Static, *arguments: Tree) -> Tree:
    """function(static, *arguments), whose first argument holds the mask; by itself under `vmap`.

    Where masks are mapped over, every row is run at every step; else the loops are mapped as they
    are. What a forward pass stores so fits the backward pass, whatever else is mapped over.
    """

    @jax.custom_batching.custom_vmap
    def call(*arguments: Tree) -> Tree:
        return function(static, *arguments)

    @call.def_vmap
    def rule(size: int, batched: Tree, *arguments: Tree) -> Tree:
        axes = jax.tree.map(lambda mapped: 0 if mapped else None, batched)

        def lanes(static: Static, *arguments: Tree) -> Tree:
            run = functools.partial(function, static)
            return jax.vmap(run, in_axes=axes, axis_size=size)(*arguments)

        if batched[0][_MASK]:
            forms = static[0]
            batch = (forms if isinstance(forms, Form) else forms[0]).widths[0]
            found = lanes(_changed(static, widths=(batch,), whole=True), *arguments)
        else:
            found = _mapped(lanes, static, *arguments)
        return found, jax.tree.map(lambda _: True, found)

    return call(*arguments)


def _forward(recurrence: Recurrence, static: Static, arguments: Tree) -> tuple[Tree, Tree]:
    """Returns the results and what is stored; derivatives are those of the results."""

    def passes(static: Static, arguments: Tree) -> tuple[Tree, Tree]:
        results, (_, stored) = recurrence.forward(*static, *arguments)
        return results, stored

    @jax.custom_jvp
    def call(arguments: Tree) -> tuple[Tree, Tree]:
        return _mapped(passes, static, arguments)

    @call.defjvp
    def rule(primals: tuple[Tree], tangents: tuple[Tree]) -> tuple[Tree, Tree]:
        found = call(*primals)
        plain = functools.partial(passes, _changed(static, widths=()))
        change = jax.jvp(lambda arguments: plain(arguments)[0], primals, tangents)[1]
        return found, (change, jax.tree.map(jnp.zeros_like, found[1]))

    return call(arguments)


def _backward(
    recurrence: Recurrence, static: Static, arguments: Tree, stored: Tree, cotangents: Tree
) -> Tree:
    """Returns the gradients of the arguments, as a function of these and the cotangents alone."""

    def passes(static: Static, arguments: Tree, stored: Tree, cotangents: Tree) -> Tree:
        return recurrence.backward(*static, (arguments, stored), cotangents)

    @jax.custom_jvp
    def call(arguments: Tree, stored: Tree, cotangents: Tree) -> Tree:
        return _mapped(passes, static, arguments, stored, cotangents)

    @call.defjvp
    def rule(primals: tuple[Tree, ...], tangents: tuple[Tree, ...]) -> tuple[Tree, Tree]:
        whole = _changed(static, widths=())

        def plain(arguments: Tree, cotangents: Tree) -> Tree:
            return recurrence.backward(
                *whole, recurrence.forward(*whole, *arguments)[1], cotangents
            )

        change = jax.jvp(plain, primals[::2], tangents[::2])[1]
        return call(*primals), change

    return call(arguments, stored, cotangents)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _run(recurrence: Recurrence, static: Static, *arguments: Tree) -> Tree:
    def run(static: Static, arguments: Tree) -> Tree:
        return recurrence.core(*static, *arguments)

    return _mapped(run, static, arguments)


def _run_forward(recurrence: Recurrence, static: Static, *arguments: Tree) -> Tree:
    results, stored = _forward(recurrence, static, arguments)
    return results, (arguments, stored)


def _run_backward(
    recurrence: Recurrence, static: Static, residuals: tuple[Tree, Tree], cotangents: Tree
) -> Tree:
    return _backward(recurrence, static, *residuals, cotangents)


_run.defvjp(_run_forward, _run_backward)
