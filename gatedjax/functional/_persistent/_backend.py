"""The choice between the kernels and the scan, with its reason."""

import dataclasses
import functools
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax.functional._persistent import _launch
from gatedjax.functional._persistent._compiler import KERNELS
from gatedjax.functional._persistent._launch import Variant
from gatedjax.functional._persistent._plan import KINDS, Card, Kind, Plan, choose_plan
from gatedjax.functional._types import Dtype

RecurrenceImplementation = Literal["auto", "scan", "persistent"]
"""The implementations of a recurrence: "persistent" is a single launch on a GPU."""

LEAST_STEPS = 8
"""Sequences that are shorter run by the scan with "auto", because a launch takes longer there."""

_LOG = logging.getLogger("gatedjax.functional")


@dataclasses.dataclass(frozen=True)
class RecurrenceBackend:
    """The implementation that a recurrence uses.

    Attributes:
      implementation: "scan" or "persistent".
      reason: the reason for the choice, such as "implementation='scan' was given".
    """

    implementation: str
    reason: str


class Request(NamedTuple):
    """The properties of a call that decide about its implementation."""

    kind: str | None  # a key of `KINDS`, or None without a kernel
    name: str
    batch: Any  # no int if `jax.export` leaves it open, like steps and hidden
    steps: Any
    hidden: Any
    dtype: Dtype
    directions: int = 1
    has_restarts: bool = False
    has_dropout: bool = False
    bound: float | None = None  # of the gradients inside a step
    scale: float = 1.0  # the sum of the attention weights of "rau" in a step


def choose_backend(
    request: Request, implementation: RecurrenceImplementation
) -> tuple[RecurrenceBackend, Variant | None]:
    """Returns the implementation of a call, and the variant of the kernels if they are used."""
    if implementation == "scan":
        return RecurrenceBackend("scan", "implementation='scan' was given"), None
    variant = _find_variant(request, implementation)
    if isinstance(variant, Variant):
        return RecurrenceBackend("persistent", f"one launch on {variant.card.name}"), variant
    reason = variant
    # An empty sequence has nothing to launch, and the result of the scan is its initial carry.
    if implementation == "persistent" and 0 not in (request.batch, request.steps):
        raise ValueError(
            f"implementation must be 'auto' or 'scan' for this call of {request.name}, because "
            f"{reason}; got 'persistent'"
        )
    _log_once(request.name, reason)
    return RecurrenceBackend("scan", reason), None


def _find_variant(request: Request, implementation: str) -> Variant | str:
    """Returns the variant of the kernels for a call, or a sentence why the scan runs it."""
    # The trial comes last, because it compiles kernels, which takes seconds.
    kind = None if request.kind is None else KINDS[request.kind]
    if kind is None:
        return f"there is no kernel for {request.name}"
    sizes = request.batch, request.steps, request.hidden
    if not all(isinstance(size, int) for size in sizes):
        return "the sizes are not known while tracing"
    if 0 in (request.batch, request.steps):
        return "there are no steps"
    if (dtype := jnp.dtype(request.dtype)).name not in ("float32", "bfloat16", "float16"):
        return f"the kernels compute in float32, and the inputs are {dtype.name}"
    card = find_card()
    if isinstance(card, str):
        return card
    plan = choose_plan(kind, request.hidden, request.batch, request.directions, card)
    if plan is None:
        return f"the weights of width {request.hidden} do not fit in the registers of {card.name}"
    if implementation == "auto":
        if request.steps < LEAST_STEPS:
            return f"a scan of fewer than {LEAST_STEPS} steps is as fast"
        if plan.blocks(request.batch, request.directions) > card.processors:
            return f"{request.batch} rows do not fit on {card.name} at the same time"
    variant = Variant(
        kind, request.has_restarts, request.has_dropout, request.bound, request.scale, card
    )
    error = _trial_error(variant, plan)
    return variant if error is None else error


@functools.cache
def find_card() -> Card | str:
    """Returns the first GPU of JAX as a `Card`, or a sentence why the kernels cannot use it."""
    if (backend := jax.default_backend()) != "gpu":
        return f"the backend is {backend}, and the kernels need an NVIDIA GPU"
    device: Any = jax.devices()[0]
    parts = str(getattr(device, "compute_capability", "")).split(".")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return f"{device.device_kind} has no compute capability of NVIDIA"
    capability = int(parts[0]), int(parts[1])
    if capability < (8, 0):
        return f"{device.device_kind} is older than compute capability 8.0"
    return Card(device.device_kind, capability, int(getattr(device, "core_count", 0) or 64))


@functools.cache
def _log_once(name: str, reason: str) -> None:
    _LOG.debug("%s runs by the scan: %s", name, reason)


@functools.cache
def _trial_error(variant: Variant, plan: Plan) -> str | None:
    """Compiles and runs the kernels of a plan once; returns the reason if they cannot be used."""
    # A trial is safer than a list of versions, because the custom call for PTX is internal to XLA.
    # A new thread has no trace, no mesh and no configuration of the caller.
    with ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(_run_trial, variant, plan).result()
        except Exception as error:  # each failure means that the scan must run
            first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
            return f"the trial of the kernels failed: {first_line[:300]}"
    return None


def _run_trial(variant: Variant, plan: Plan) -> None:
    """Runs a step with U = 0, x W + b = 0.5 and its backward pass; raises for wrong numbers."""
    hidden, kind = plan.hidden, variant.kind
    sizes = {
        "b": 1,
        "t": 1,
        "d": 1,
        "h": hidden,
        "g": kind.gates * hidden,
        "s": kind.saved * hidden,
    }
    device = jax.devices(None if _launch.PLATFORM == "cuda" else _launch.PLATFORM)[0]

    def shape_of(axes: str) -> tuple[int, ...]:
        return tuple(sizes[axis] for axis in axes) or (1,)

    def run(kernel: str, values: dict[int, np.ndarray]) -> list[np.ndarray]:
        """Returns the result arrays of a kernel for operands of zeros and `values`."""
        operand_axes, result_axes = _launch.axes_of(variant, kernel)
        operands = [np.zeros(shape_of(axes), np.float32) for axes in operand_axes]
        for place, value in values.items():
            operands[place] = value
        shapes = [jax.ShapeDtypeStruct(shape_of(axes), jnp.float32) for axes in result_axes]
        grid = plan.blocks(1, 1), 1
        call = functools.partial(_launch.call_kernel, variant, plan, kernel, grid, shapes)
        meta = np.array([1, 1], np.int32)
        arrays = jax.device_put((meta, *operands), device)
        return jax.device_get(jax.jit(lambda *operands: call(operands))(*arrays))

    reverse, flags = np.zeros(1, np.uint8), np.ones((1, 1, 1), np.uint8)
    sums = np.full(shape_of("btdg"), 0.5, np.float32)
    expected = _expected_state(kind, variant.scale / hidden)
    for kernel in KERNELS[:2]:
        states = run(kernel, {0: reverse, 1: sums, 3: flags})[0]
        if not np.allclose(states, expected, rtol=1e-5):
            raise ValueError(f"states of {kernel} must be {expected}, got {states.ravel()[0]}")
    gradients = run(KERNELS[2], {0: reverse, 2: flags})
    # With saved gates of 0 and no cotangents all gradients are 0.
    if np.any(gradients[0] != 0):
        raise ValueError("gradients without cotangents must be 0, got nonzero gradients")


def _expected_state(kind: Kind, attention: float) -> float:
    sigmoid, tanh = 1 / (1 + np.exp(-0.5)), np.tanh(0.5)
    if kind.name == "lstm":
        return float(sigmoid * np.tanh(sigmoid * tanh))
    candidate = (tanh + np.tanh(0.5 * attention)) / 2 if kind.name == "rau" else tanh
    return float(sigmoid * candidate)
