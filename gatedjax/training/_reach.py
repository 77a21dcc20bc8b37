"""Detection of parameters that no gradient reaches, by the program of the gradient."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax.extend.core import Jaxpr, Literal

from gatedjax._utils.jaxprs import as_closed, count_scan_operands
from gatedjax.training._transforms import call_update
from gatedjax.training.step import init_carry, step_rngs
from gatedjax.training.task import Batch, call_loss, frozen_parameters

# Larger constants, such as tables of word vectors, count as nonzero, because a search takes time.
_LOOKED_AT = 1 << 20
# Operations with a result of 0 if all of their operands are 0.
_LINEAR = {
    "add", "add_any", "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p",
    "cumsum", "neg", "pad", "psum", "psum2", "psum_invariant", "reduce_precision", "reduce_sum",
    "reshape", "rev", "sharding_constraint", "slice", "squeeze", "sub", "transpose",
}  # fmt: skip
# Operations with a result of 0 if any of their operands is 0.
_PRODUCTS = {"conv_general_dilated", "dot_general", "mul"}
# Operations that call another program with all of their operands, and the parameter that has it.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "remat2": "jaxpr",
          "checkpoint": "jaxpr", "custom_jvp_call": "call_jaxpr",
          "custom_vjp_call": "call_jaxpr"}  # fmt: skip


def unreached_parameters(
    task: Any, state: Any, batch: Batch, check: Callable[..., None] | None = None
) -> frozenset[str]:
    """Returns the paths of parameters with a gradient of 0 for all inputs, as "embed/kernel". A
    gradient that is 0 only for some inputs, as behind a closed gate, does not count.
    """

    def loss(params: Any, batch: Batch, rngs: Any, carry: Any, model_state: Any) -> Any:
        results = call_loss(task, params, batch, rngs, carry, model_state)
        if check is not None:
            check(*results)
        return results[0]

    rngs = jax.eval_shape(lambda: step_rngs(jax.random.key(0), 0))
    # The carry has as many rows as this batch.
    carry = jax.eval_shape(lambda: init_carry(task, batch))
    program = jax.make_jaxpr(jax.grad(loss))(state.params, batch, rngs, carry, state.model_state)
    zero = _inner(program, [False] * len(program.jaxpr.invars))
    named = zip(_by_path(state.params).items(), zero, strict=True)
    return frozenset(path for (path, leaf), is_zero in named if is_zero and math.prod(leaf.shape))


@dataclasses.dataclass
class Reach:
    """The parameters that no gradient has reached so far, except for frozen parameters."""

    task: Any
    state: Any
    paths: frozenset[str]

    @classmethod
    def begin(
        cls,
        task: Any,
        tx: optax.GradientTransformation,
        state: Any,
        paths: frozenset[str],
        is_new: bool,
    ) -> "Reach | None":
        """Returns a `Reach` that watches unreached parameters up to the first line of the log."""
        frozen = frozen_parameters(task)
        unreached = {p for p in paths if not any(f"{p}/".startswith(f"{at}/") for at in frozen)}
        if unreached and is_new:
            unreached -= _not_updated(tx, state)
        return cls(task, state, frozenset(unreached)) if unreached and is_new else None

    def look(self, batch: Batch) -> None:
        """Removes the parameters that the gradient reaches; called for each new shape."""
        if self.paths:
            self.paths &= unreached_parameters(self.task, self.state, batch)

    def refuse(self) -> None:
        """Raises ValueError if `paths` is not empty: no gradient has reached these parameters."""
        paths = sorted(self.paths)
        if not paths:
            return
        suffix = f" and {len(paths) - 8} more" if paths[8:] else ""
        shown_paths = ", ".join(map(repr, paths[:8])) + suffix
        raise ValueError(
            f"no gradient reaches these parameters of {type(self.task).__name__}: {shown_paths}. "
            "Statistics of a model, such as those of BatchNorm, are no parameters: the loss must "
            "return them as model state (gatedjax.training.ModelStateTask). Parameters that are "
            "to stay as they are must be in the attribute frozen of the task: "
            f"frozen = ({paths[0]!r},)"
        )


def _by_path(params: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in leaves}


def _not_updated(tx: optax.GradientTransformation, state: Any) -> set[str]:
    """Returns the paths of the parameters with an update of 0, or of the unchanged gradient."""

    def update(grads: Any, params: Any, opt_state: Any) -> Any:
        # Some optimisers require a value. It does not change which parameters are updated.
        value_fn = lambda params: optax.tree.norm(params) ** 2  # noqa: E731
        extra = {"value": value_fn(params), "grad": grads, "value_fn": value_fn}
        return call_update(tx, grads, opt_state, params, **extra)[0]

    program = jax.make_jaxpr(update)(state.params, state.params, state.opt_state)
    zero = _inner(program, [False] * len(program.jaxpr.invars))
    gradients = program.jaxpr.invars
    named = zip(_by_path(state.params), program.jaxpr.outvars, zero, gradients, strict=False)
    # `optax.masked` passes on the gradient of a masked parameter itself.
    return {path for path, new, is_zero, grad in named if is_zero or new is grad}


def _zeros(jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[bool]) -> list[bool]:
    """Returns for each result of a program True if it is 0 for all values of its inputs."""
    zero_of = dict(zip(jaxpr.invars, inputs, strict=True))
    zero_of |= {v: _is_zero(x) for v, x in zip(jaxpr.constvars, consts, strict=True)}

    def look_up(atom: Any) -> bool:
        return _is_zero(atom.val) if isinstance(atom, Literal) else zero_of.get(atom, False)

    for equation in jaxpr.eqns:
        outputs = _results(equation, [look_up(atom) for atom in equation.invars])
        zero_of.update(zip(equation.outvars, outputs, strict=True))
    return [look_up(atom) for atom in jaxpr.outvars]


def _results(equation: Any, zero: list[bool]) -> list[bool]:
    """Returns for each result of an operation True if it must be 0."""
    name, params, count = equation.primitive.name, equation.params, len(equation.outvars)
    if name in _LINEAR:
        return [all(zero)] * count
    if name in _PRODUCTS:
        return [any(zero)] * count
    # Only the first operand has the values; the second is a divisor, or has indices.
    if name in ("div", "gather", "dynamic_slice"):
        return [zero[0]] * count
    # The first operand only chooses between the remaining operands.
    if name == "select_n":
        return [all(zero[1:])] * count
    # The other operands are indices.
    if name == "dynamic_update_slice":
        return [zero[0] and zero[1]] * count
    if name.startswith("scatter"):
        return [zero[0] and zero[2]] * count
    # The first operand is the number of the branch. A result is 0 only if it is 0 in all branches.
    if name == "cond":
        branches = [_inner(branch, zero[1:]) for branch in params["branches"]]
        return [all(results) for results in zip(*branches, strict=True)]
    if name == "scan":
        return _scan_results(equation, zero)
    if name in _CALLS and _CALLS[name] in params:
        return _inner(params[_CALLS[name]], zero)
    return [False] * count


def _inner(program: Any, zero: list[bool]) -> list[bool]:
    program = as_closed(program)
    return _zeros(program.jaxpr, program.consts, zero)


def _scan_results(equation: Any, zero: list[bool]) -> list[bool]:
    """Returns for each result of a scan True if it must be 0: a carry begins with 0 and stays 0."""
    consts, carried = count_scan_operands(equation)
    # A carry may become nonzero only in a later iteration, so the body is searched until the carry
    # that is known to be 0 does not shrink any more.
    while True:
        outputs = _inner(equation.params["jaxpr"], zero)
        carry = zero[consts : consts + carried]
        after = [a and b for a, b in zip(carry, outputs[:carried], strict=True)]
        if after == carry:
            return after + outputs[carried:]
        zero = [*zero[:consts], *after, *zero[consts + carried :]]


def _is_zero(value: Any) -> bool:
    if not hasattr(value, "dtype"):
        return isinstance(value, (int, float)) and value == 0
    # PRNG keys have no zero and truth values no gradient, so both count as nonzero.
    is_number = jax.dtypes.issubdtype(value.dtype, np.number)
    return is_number and np.size(value) <= _LOOKED_AT and not np.any(np.asarray(value))
