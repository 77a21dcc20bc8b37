"""What `recurrence` times: cases, and calls compiled alike for every contestant on JAX."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.benchmarks._harness import compiled, memory_of
from experiments.core.kinds import Array, Params
from gatedjax.functional import length_mask

Cell = Literal["lstm", "gru", "rau"]
BLOCKS = {"lstm": 4, "gru": 3, "rau": 5}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One network and one size of batch; the width of the inputs is that of the state."""

    cell: Cell
    batch: int
    steps: int
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    devices: int = 1

    @property
    def widths(self) -> list[int]:
        """Width of the inputs of every layer."""
        return [self.hidden] + [(1 + self.bidirectional) * self.hidden] * (self.layers - 1)

    @property
    def size(self) -> str:
        """B, T, H, and what is not one layer in one direction."""
        stack = f", {self.layers} layers" if self.layers > 1 else ""
        ways = ", bidirectional" if self.bidirectional else ""
        return f"({self.batch}, {self.steps}, {self.hidden}){stack}{ways}"

    @property
    def gflop(self) -> float:
        """10^9 operations of the forward pass: matrix products only, padding included."""
        each = sum(2 * BLOCKS[self.cell] * self.hidden * (d + self.hidden) for d in self.widths)
        return 1e-9 * self.batch * self.steps * (1 + self.bidirectional) * each


@dataclasses.dataclass(frozen=True)
class Runs:
    """A contestant ready to run."""

    forward: Callable[[], object]
    train: Callable[[], object]
    compile_s: float | None = None
    memory_bytes: int | None = None


class NotAvailable(Exception):
    """A peer is not installed, has no such network, or gives wrong gradients."""


def make_batch(case: Case, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs [B, T, D] and lengths [B], log-normal as in text, one of them T."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(0.6 * case.steps), 0.4, case.batch)
    lengths = np.clip(lengths.astype(np.int32), 1, case.steps)
    lengths[0] = case.steps
    xs = rng.normal(size=(case.batch, case.steps, case.hidden))
    return xs.astype(np.float32), lengths


def shardings(devices: int) -> tuple[NamedSharding, NamedSharding]:
    """Returns the shardings of what every device has whole, and of what is split by rows."""
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    return NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))


def jax_runs(
    case: Case, apply: Callable[..., Any], params: Params, xs: Array, lengths: Array
) -> Runs:
    """Compiles the forward pass, and it with the gradients of params and inputs.

    The loss is the sum of the squared outputs of real steps.

    Raises:
      NotAvailable: if a gradient is not finite or not of the shape of its argument.
    """
    whole, split = shardings(case.devices)
    params = jax.device_put(params, whole)
    xs, lengths = jax.device_put((xs, lengths), split)

    def loss(params: Params, xs: jax.Array, lengths: jax.Array) -> jax.Array:
        outputs = apply(params, xs, lengths)
        real = length_mask(lengths, xs.shape[1])[..., None]
        return jnp.sum(jnp.where(real, outputs, 0) ** 2)

    arguments = (params, xs, lengths)
    forward = jax.jit(apply, out_shardings=split).lower(*arguments).compile()
    gradients = jax.value_and_grad(loss, argnums=(0, 1))
    trained = jax.jit(gradients, out_shardings=(whole, (whole, split)))
    train, compile_s = compiled(trained.lower(*arguments))
    memory = memory_of(train, "temp", "argument", "output")
    value, found = train(*arguments)
    wanted = jax.tree.leaves((params, xs))
    leaves = jax.tree.leaves(found)
    if [leaf.shape for leaf in leaves] != [leaf.shape for leaf in wanted]:
        raise NotAvailable("gradients of another shape")
    if not all(bool(jnp.isfinite(leaf).all()) for leaf in [value, *leaves]):
        raise NotAvailable("gradients not finite")
    return Runs(
        lambda: forward(*arguments),
        lambda: train(*arguments),
        compile_s,
        None if memory is None else case.devices * memory,
    )


def held_scan(
    step: Callable[..., Any], initial: Any, xs: jax.Array, mask: jax.Array, reverse: bool
) -> tuple[Any, jax.Array]:
    """Scans step(carry, x [B, D]) -> carry, whose first leaf is the output, held at padding."""

    def body(carry: Any, inputs: Any) -> Any:
        x, keep = inputs
        new = step(carry, x)
        kept = jax.tree.map(lambda n, o: jnp.where(keep[:, None], n, o), new, carry)
        return kept, jnp.where(keep[:, None], jax.tree.leaves(new)[0], 0)

    carry, outputs = lax.scan(body, initial, (jnp.swapaxes(xs, 0, 1), mask.T), reverse=reverse)
    return carry, jnp.swapaxes(outputs, 0, 1)
