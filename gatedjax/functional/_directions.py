"""Runs of prepared recurrences: the choice of an implementation, and both directions at once."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax._utils.choices import check_choice
from gatedjax.functional._attention import step_mask
from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._devices import run_core, target_platform
from gatedjax.functional._persistent._backend import (
    RecurrenceBackend,
    RecurrenceImplementation,
    Request,
    choose_backend,
)
from gatedjax.functional._persistent._core import Floats, Masks, Static, run_directions
from gatedjax.functional._recurrence import (
    Restarts,
    check_resets,
    dropout_mask,
    restarts,
)
from gatedjax.functional._types import ArrayLike, Carry, Dtype, Tree, Weights


class Unit(NamedTuple):
    """`lstm`, `gru` or `rau` with its options: all of a call but the arrays."""

    kind: str | None  # a key of `KINDS`, or None without a kernel for GPUs
    name: str  # the recurrence and its options, for messages
    core: Callable[..., Tree]  # (spec, reverse, unroll, *arguments) -> (final, outputs)
    forward: Callable[..., Tree]  # the same scan, which JAX differentiates in all modes
    spec: Any  # the equation, known while tracing
    start: Callable[[Array], Carry]  # the first carry, from a hidden state of zeros [B, H]
    check_carry: Callable[[str, Carry, tuple[int, int]], None]
    bound: float | None = None  # of the gradients inside a step
    scale: float = 1.0  # the sum of the attention weights of "rau" in a step


class Recurrence(NamedTuple):
    """A call for one direction, with checked arguments."""

    unit: Unit
    reverse: bool
    implementation: RecurrenceImplementation
    arguments: tuple[Tree, ...]  # weights, xs, mask, initial, dropout, `Restarts`


_PREPARE: dict[Callable[..., Any], Callable[..., Recurrence]] = {}


def register(
    unroll: Callable[..., Any], check: Callable[..., Any], create: Callable[..., Unit]
) -> Callable[..., Recurrence]:
    """Registers `lstm`, `gru` or `rau`; returns the function that checks the arguments of a call.

    `check` checks the weights, and `create` returns the `Unit`; both take the options.
    """
    _PREPARE[unroll] = functools.partial(_prepare, check, create)
    return _PREPARE[unroll]


def _prepare(
    check: Callable[..., Any],
    create: Callable[..., Unit],
    weights: Weights,
    xs: ArrayLike,
    mask: ArrayLike = None,
    *,
    lengths: ArrayLike = None,
    initial: Carry = None,
    resets: ArrayLike = None,
    reset_to: Carry = None,
    reverse: bool = False,
    recurrent_dropout_mask: ArrayLike = None,
    implementation: RecurrenceImplementation = "auto",
    **options: Any,
) -> Recurrence:
    """Checks the arguments of a call; returns it with inputs of 0 at padding."""
    check_choice(RecurrenceImplementation, implementation=implementation)
    check(weights, xs, "B T D", **options)
    unit = create(weights, **options)
    steps = jnp.shape(xs)[:2]
    rows = steps[0], jnp.shape(weights.recurrent)[0]
    mask = step_mask(steps, mask, lengths)
    if resets is not None:
        check_resets(resets, steps)
    for name, carry in {"initial": initial, "reset_to": reset_to}.items():
        if carry is not None:
            unit.check_carry(name, carry, rows)
    dropout = dropout_mask(recurrent_dropout_mask, rows, wide_dtype(xs))
    return prepare(
        unit,
        weights,
        xs,
        mask,
        initial=initial,
        resets=resets,
        reset_to=reset_to,
        reverse=reverse,
        recurrent_dropout_mask=dropout,
        implementation=implementation,
    )


def prepare(
    unit: Unit,
    weights: Weights,
    xs: ArrayLike,
    mask: Array | None,
    *,
    initial: Carry = None,
    resets: ArrayLike = None,
    reset_to: Carry = None,
    reverse: bool = False,
    recurrent_dropout_mask: ArrayLike = None,
    implementation: RecurrenceImplementation = "auto",
) -> Recurrence:
    """Returns a call with inputs of 0 at padding, without checks."""
    weights, xs = jax.tree.map(jnp.asarray, (weights, xs))
    wide = wide_dtype(xs)
    if initial is None:
        initial = unit.start(jnp.zeros((xs.shape[0], weights.recurrent.shape[0]), wide))
    initial = jax.tree.map(lambda leaf: jnp.asarray(leaf, wide), initial)
    if resets is None:  # a single segment, which starts with initial
        begins = Restarts(None, jax.tree.map(lambda _: None, initial))
    else:
        begins = restarts(resets, reset_to, initial, mask, reverse)
    dropout = recurrent_dropout_mask
    dropout = None if dropout is None else jnp.asarray(dropout, wide)
    if mask is not None:
        xs = jnp.where(mask[..., None], xs, 0)
    arguments = weights, xs, mask, initial, dropout, begins
    return Recurrence(unit, reverse, implementation, arguments)


def kind_of(
    recurrence: str, *, reset_after: bool = False, attention: str = "feature_proj"
) -> tuple[str | None, str]:
    """Returns the kernel for GPUs, None if there is none, and a name for messages."""
    if recurrence == "lstm":
        return "lstm", "lstm"
    if recurrence == "gru":
        return ("gru_after", "gru with reset_after") if reset_after else ("gru_before", "gru")
    name = f"rau with attention={attention!r}{' and reset_after' * reset_after}"
    return ("rau" if attention == "feature_proj" and not reset_after else None), name


def recurrence_backend(
    recurrence: Literal["lstm", "gru", "rau"],
    batch: int,
    steps: int,
    hidden: int,
    *,
    dtype: Dtype = jnp.float32,
    directions: int = 1,
    reset_after: bool = False,
    attention: str = "feature_proj",
    implementation: RecurrenceImplementation = "auto",
) -> RecurrenceBackend:
    """Returns the implementation that a call of a recurrence uses, and the reason.

    The first question for a size on a GPU compiles and runs the kernels once.

        >>> recurrence_backend("lstm", 32, 231, 100, implementation="scan")
        RecurrenceBackend(implementation='scan', reason="implementation='scan' was given")

    Args:
      recurrence: the name of the function, "lstm", "gru" or "rau".
      batch: B, the rows of the batch.
      steps: T, the length of the rows.
      hidden: H, the hidden width.
      dtype: the dtype of the inputs.
      directions: 2 for both directions of `bidirectional` or of a bidirectional module.
      reset_after: True if a `gru` or `rau` applies the reset gate after the recurrent product.
      attention: the form of the attention of a `rau`, such as "feature_proj" (see `rau_step`).
      implementation: the argument of the call: "scan", a loop of XLA; "persistent", one launch for
        all steps on an NVIDIA GPU; or "auto", the faster of both.

    Returns:
      An object with `implementation`, "scan" or "persistent", and `reason`, a sentence.

    Raises:
      ValueError: also if "persistent" is asked for and not available.
    """
    check_choice(Literal["lstm", "gru", "rau"], recurrence=recurrence)
    check_choice(RecurrenceImplementation, implementation=implementation)
    kind, name = kind_of(recurrence, reset_after=reset_after, attention=attention)
    request = Request(kind, name, batch, steps, hidden, dtype, directions)
    return choose_backend(request, implementation)[0]


def run_recurrences(calls: Sequence[Recurrence]) -> list[tuple[Carry, Array]]:
    """Runs one or two directions over the same inputs; returns (final, outputs) of each."""
    # Both directions have the same inputs, mask and options, so that the first stands for both.
    unit = calls[0].unit
    weights, xs, mask, _, dropout, _ = calls[0].arguments
    batch, steps = xs.shape[:2]
    hidden = weights.recurrent.shape[0]
    starts = tuple(call.arguments[3] for call in calls)
    begins = [call.arguments[5] for call in calls]
    request = Request(
        unit.kind,
        unit.name,
        batch,
        steps,
        hidden,
        xs.dtype,
        len(calls),
        begins[0].goes_on is not None,
        dropout is not None,
        unit.bound,
        unit.scale,
    )
    _, variant = choose_backend(request, calls[0].implementation)
    is_cpu = target_platform() == "cpu"
    # On a GPU the time is that of the launches, of which an unrolled loop has fewer. A number of
    # steps that `jax.export` leaves open is no int, and cannot be unrolled.
    unroll = 1 if is_cpu or not isinstance(steps, int) else 4
    statics = tuple((call.unit.spec, call.reverse, unroll) for call in calls)
    if variant is None:
        # For the same reason one loop runs both directions there.
        if len(calls) == 2 and not is_cpu:
            arguments = tuple(call.arguments for call in calls)
            return list(run_core(_scan_both, (unit.core, statics[0]), arguments, (xs, starts)))
        return [
            run_core(unit.core, static, call.arguments, (xs, start))
            for call, static, start in zip(calls, statics, starts, strict=True)
        ]
    static = Static(
        variant, tuple(call.reverse for call in calls), unit.core, unit.forward, statics
    )
    masks = Masks(mask, tuple(its.goes_on for its in begins))
    floats = Floats(
        xs,
        tuple(call.arguments[0] for call in calls),
        starts,
        tuple(call.arguments[4] for call in calls),
        tuple(its.carry for its in begins),
    )
    return list(run_core(run_directions, (static,), (masks, floats), (xs, floats.initial)))


def _scan_both(
    core: Callable[..., Tree], static: tuple[Any, ...], forward: Tree, backward: Tree
) -> tuple[Tree, Tree]:
    """Returns (final, outputs) of both directions from one loop, the second over reversed time."""

    def reverse(array: Array | None) -> Array | None:
        return None if array is None else jnp.flip(array, axis=1)

    weights, xs, mask, initial, dropout, begins = backward
    begins = begins._replace(goes_on=reverse(begins.goes_on))
    turned = weights, reverse(xs), reverse(mask), initial, dropout, begins
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), forward, turned)
    run = functools.partial(core, *static)
    final, outputs = jax.vmap(lambda arguments: run(*arguments))(stacked)
    first, second = (jax.tree.map(operator.itemgetter(d), final) for d in range(2))
    return (first, outputs[0]), (second, jnp.flip(outputs[1], axis=1))


def bidirectional(
    unroll: Callable[..., tuple[Carry, Array]],
    forward: Weights,
    backward: Weights,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    resets: Bool[Array, "B T"] | None = None,
    initial: tuple[Carry, Carry] | None = None,
    reset_to: tuple[Carry, Carry] | None = None,
    **options: Any,
) -> tuple[tuple[Carry, Carry], Float[Array, "B T 2H"]]:
    """Runs a recurrence in both directions over the same inputs.

        >>> from gatedjax.functional import GRUWeights, gru
        >>> weights = GRUWeights(jnp.ones((3, 12)), jnp.ones((4, 12)), jnp.zeros(12))
        >>> xs = jnp.ones((2, 5, 3))
        >>> carries, outputs = bidirectional(gru, weights, weights, xs, reset_after=True)
        >>> outputs.shape
        (2, 5, 8)

    Args:
      unroll: `lstm`, `gru`, `rau`, or a function with the same first arguments.
      forward: weights of the direction from the first step to the last, such as `GRUWeights`.
      backward: weights of the direction from the last step to the first.
      xs: inputs, a vector of width D at each of T steps of B rows.
      mask: True at real steps; None means all. The carry stays unchanged at padding, so the
        backward direction starts at the last real step of its row.
      lengths: instead of mask, the number of real steps of each row.
      resets: True at the first step of each segment of a row, for both directions (see `lstm`).
      initial: the carries (forward, backward) before the first step; None means zeros.
      reset_to: the carries (forward, backward) at the start of a segment; None means `initial`.
      **options: further options of `unroll` for both directions, such as `reset_after` of a GRU;
        not `reverse`. `lstm`, `gru` and `rau` run both directions in one launch if they do not run
        by the scan (see `recurrence_backend`).

    Returns:
      The final carries (forward, backward), in the form that `unroll` returns, and the outputs: at
      each step the H forward features, then the H backward features.

    Raises:
      TypeError: if `reverse` is given.
      ValueError: if `initial` or `reset_to` is no pair of carries.
    """
    if "reverse" in options:
        raise TypeError("reverse must be left to bidirectional, which runs both directions")
    # A user's `unroll` need not have the arguments lengths, initial, resets and reset_to.
    if lengths is not None:
        mask = step_mask(jnp.shape(xs)[:2], mask, lengths)
    if resets is not None:
        options["resets"] = resets
    carries = {
        name: split_carries(name, pair)
        for name, pair in {"initial": initial, "reset_to": reset_to}.items()
        if pair is not None
    }
    starts = [{name: pair[way] for name, pair in carries.items()} for way in range(2)]
    pairs = list(zip((forward, backward), starts, (False, True), strict=True))
    # The options of a `functools.partial` are unpacked, because only the function is registered.
    function: Any = unroll
    shared = options
    while isinstance(function, functools.partial) and not function.args:
        shared = dict(function.keywords) | shared
        function = function.func
    check = _PREPARE.get(function)
    if check is None:  # a function of the user
        results = [
            unroll(its, xs, mask, **(options | start), **({"reverse": True} if reverse else {}))
            for its, start, reverse in pairs
        ]
    else:
        calls = [
            check(its, xs, mask, **(shared | start | {"reverse": reverse}))
            for its, start, reverse in pairs
        ]
        results = run_recurrences(calls)
    (forward_carry, forward_out), (backward_carry, backward_out) = results
    outputs = jnp.concatenate([forward_out, backward_out], axis=-1)
    return (forward_carry, backward_carry), outputs


def split_carries(name: str, carries: Any) -> tuple[Any, Any]:
    """Returns the carries (forward, backward) of a layer; (None, None) if `carries` is None."""
    if carries is None:
        return None, None
    # An LSTMState is also a tuple of two arrays, but it is the carry of one direction; named tuples
    # have `_fields`.
    is_pair = isinstance(carries, tuple | list) and not hasattr(carries, "_fields")
    if not is_pair or len(carries) != 2:
        raise ValueError(
            f"{name} must be (forward, backward), the carries of both directions, "
            f"got {type(carries).__name__} of {len(carries)}"
        )
    return carries[0], carries[1]
