"""The parts of the programs of `jax.make_jaxpr` that differ between versions of JAX."""

from typing import Any

from jax.extend.core import ClosedJaxpr


def as_closed(program: Any) -> Any:
    """Returns a program with its constants, a `ClosedJaxpr`."""
    return program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())


def count_scan_operands(equation: Any) -> tuple[int, int]:
    """Returns the numbers of constants and of carries of a `jax.lax.scan`. Its parameters differ
    between versions of JAX, its shapes do not: only scanned arrays have an axis of steps that the
    body lacks.
    """
    body = as_closed(equation.params["jaxpr"]).jaxpr

    def count_same(outside: Any, inside: Any) -> int:
        pairs = zip(outside, inside, strict=True)
        return sum(a.aval.ndim == b.aval.ndim for a, b in pairs)

    carries = count_same(equation.outvars, body.outvars)
    return count_same(equation.invars, body.invars) - carries, carries
