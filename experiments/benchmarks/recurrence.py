"""Times the recurrences against those of Flax and PyTorch.

All contestants run in this process and take turns, so that a busy machine slows them alike; the
figures are medians over the turns, and the ratios between them mean more than the milliseconds.

A busy machine does not slow them quite alike: where other work takes a core, a two-threaded torch
call may wait for its preempted thread at every step and take 5 to 100 times as long. So the
fastest turn is kept beside the median, a median far above it is marked, and no ratio is given.
"""

import dataclasses
import functools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import lax
from rich.console import Console
from rich.table import Table

from gatedjax.functional import (
    GRUWeights,
    LSTMState,
    LSTMWeights,
    bidirectional,
    gru,
    gru_step,
    length_mask,
    lstm,
    lstm_step,
)

Cell = Literal["lstm", "gru"]
OURS = "gatedjax"
# A median above this many times the fastest turn says more about the machine than the contestant.
UNSTABLE = 1.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One network and one size of batch; the width of the inputs is that of the state."""

    cell: Cell
    batch: int
    steps: int
    hidden: int
    num_layers: int = 1
    both_ways: bool = False

    @property
    def title(self) -> str:
        """What the table is headed with."""
        ways = ", bidirectional" if self.both_ways else ""
        return (
            f"{self.cell.upper()}, {self.num_layers} layer(s){ways}, "
            f"B {self.batch}, T {self.steps}, H {self.hidden}, float32, with lengths"
        )


@dataclasses.dataclass(frozen=True)
class Runs:
    """A contestant ready to run: calls that return when their result is there."""

    forward: Callable[[], object]
    train: Callable[[], object]


class NotAvailable(Exception):
    """A peer is not installed, or has no such network."""


def make_batch(case: Case, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs [B, T, D] and lengths [B], log-normal as in text, one of them T."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(0.6 * case.steps), 0.4, case.batch)
    lengths = np.clip(lengths.astype(np.int32), 1, case.steps)
    lengths[0] = case.steps
    xs = rng.normal(size=(case.batch, case.steps, case.hidden))
    return xs.astype(np.float32), lengths


def _jax_runs(apply: Callable[..., Any], params: Any, xs: Any, lengths: Any) -> Runs:
    """Compiles the forward pass, and it with the gradients of params and inputs.

    The loss is the sum of the squared outputs of real steps.
    """
    xs, lengths = jnp.asarray(xs), jnp.asarray(lengths)

    def loss(params: Any, xs: jax.Array, lengths: jax.Array) -> jax.Array:
        outputs = apply(params, xs, lengths)
        real = length_mask(lengths, xs.shape[1])[..., None]
        return jnp.sum(jnp.where(real, outputs, 0) ** 2)

    forward = jax.jit(apply)
    train = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    return Runs(
        lambda: jax.block_until_ready(forward(params, xs, lengths)),
        lambda: jax.block_until_ready(train(params, xs, lengths)),
    )


def _make_weights(case: Case, seed: int = 0) -> list[list[Any]]:
    """Returns weights[layer][direction]."""
    rng = np.random.default_rng(seed)
    make: Any = LSTMWeights if case.cell == "lstm" else GRUWeights
    width = (4 if case.cell == "lstm" else 3) * case.hidden
    ways = 2 if case.both_ways else 1

    def one(features: int) -> Any:
        shapes = (features, width), (case.hidden, width), (width,)
        return make(*(jnp.asarray(rng.normal(size=s) * 0.1, jnp.float32) for s in shapes))

    widths = [case.hidden] + [ways * case.hidden] * (case.num_layers - 1)
    return [[one(features) for _ in range(ways)] for features in widths]


def _stack(unroll: Callable[..., Any], params: Any, xs: jax.Array, lengths: jax.Array) -> Any:
    mask = length_mask(lengths, xs.shape[1])
    for layer in params:
        if len(layer) == 2:
            forward, backward = layer
            xs = bidirectional(unroll, forward, backward, xs, mask)[1]
        else:
            xs = unroll(layer[0], xs, mask)[1]
    return xs


def run_gatedjax(case: Case, xs: Any, lengths: Any, **options: Any) -> Runs:
    """Our fast scan."""
    unroll: Callable[..., Any] = lstm if case.cell == "lstm" else gru
    unroll = functools.partial(unroll, **options)
    return _jax_runs(functools.partial(_stack, unroll), _make_weights(case), xs, lengths)


def run_reset_after(case: Case, xs: Any, lengths: Any) -> Runs:
    """Our fast scan of the unit that Flax and PyTorch have."""
    if case.cell != "gru":
        raise NotAvailable("a GRU only")
    return run_gatedjax(case, xs, lengths, reset_after=True)


def run_scanned_step(case: Case, xs: Any, lengths: Any) -> Runs:
    """Our step under a plain scan, differentiated by JAX."""
    step: Callable[..., Any] = lstm_step if case.cell == "lstm" else gru_step

    def unroll(weights: Any, xs: jax.Array, mask: jax.Array, *, reverse: bool = False) -> Any:
        def body(carry: Any, inputs: Any) -> Any:
            x, keep = inputs
            new = step(weights, carry, x)
            held = jax.tree.map(lambda n, o: jnp.where(keep[:, None], n, o), new, carry)
            return held, jnp.where(keep[:, None], jax.tree.leaves(new)[0], 0)

        zeros = jnp.zeros((xs.shape[0], case.hidden), xs.dtype)
        initial = LSTMState(zeros, zeros) if case.cell == "lstm" else zeros
        steps = (jnp.swapaxes(xs, 0, 1), mask.T)
        carry, outputs = lax.scan(body, initial, steps, reverse=reverse)
        return carry, jnp.swapaxes(outputs, 0, 1)

    return _jax_runs(functools.partial(_stack, unroll), _make_weights(case), xs, lengths)


class _FlaxStack(nn.Module):
    cell: Any
    case: Case

    @nn.compact
    def __call__(self, xs: Any, lengths: Any) -> Any:
        for _ in range(self.case.num_layers):
            ways = [nn.RNN(self.cell(self.case.hidden)) for _ in range(1 + self.case.both_ways)]
            layer: Any = nn.Bidirectional(ways[0], ways[1]) if self.case.both_ways else ways[0]
            xs = layer(xs, seq_lengths=lengths)
        return xs


def run_flax(case: Case, xs: Any, lengths: Any, *, cells: dict[str, Any]) -> Runs:
    """Flax Linen."""
    if case.cell not in cells:
        raise NotAvailable("not in Flax")
    module = _FlaxStack(cells[case.cell], case)
    params = jax.jit(module.init)(jax.random.key(0), jnp.asarray(xs), jnp.asarray(lengths))
    return _jax_runs(module.apply, params, xs, lengths)


def run_torch(case: Case, xs: Any, lengths: Any, *, packed: bool) -> Runs:
    """PyTorch on the CPU; without packing, padding is computed and in the loss like any step."""
    try:
        import torch
    except ImportError as error:
        raise NotAvailable("not installed") from error
    network = (torch.nn.LSTM if case.cell == "lstm" else torch.nn.GRU)(
        case.hidden,
        case.hidden,
        case.num_layers,
        batch_first=True,
        bidirectional=case.both_ways,
    )
    inputs = torch.from_numpy(xs.copy()).requires_grad_()
    sizes = torch.from_numpy(lengths)

    def forward() -> Any:
        if not packed:
            return network(inputs)[0]
        sequence = torch.nn.utils.rnn.pack_padded_sequence(
            inputs, sizes, batch_first=True, enforce_sorted=False
        )
        return torch.nn.utils.rnn.pad_packed_sequence(
            network(sequence)[0], batch_first=True, total_length=case.steps
        )[0]

    def evaluate() -> Any:
        with torch.no_grad():
            return forward()

    def train() -> Any:
        return torch.autograd.grad((forward() ** 2).sum(), [inputs, *network.parameters()])

    return Runs(evaluate, train)


# A contestant: (case, xs, lengths) -> Runs, or NotAvailable. The first is compared with the others.
CONTESTANTS: dict[str, Callable[..., Runs]] = {
    OURS: run_gatedjax,
    "gatedjax reset_after": run_reset_after,
    "scanned step": run_scanned_step,
    "flax": functools.partial(run_flax, cells={"lstm": nn.LSTMCell, "gru": nn.GRUCell}),
    "flax optimised": functools.partial(run_flax, cells={"lstm": nn.OptimizedLSTMCell}),
    "torch packed": functools.partial(run_torch, packed=True),
    "torch unpacked": functools.partial(run_torch, packed=False),
}


def _times_ms(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Runs every call once to compile it, then all of them in turn."""
    for call in calls.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append(1e3 * (time.perf_counter() - start))
    return taken


def measure(case: Case, contestants: list[str], repeats: int, seed: int = 0) -> dict[str, Any]:
    """Times the named contestants on one case.

    Returns:
      {"case": ..., "rows": {name: row}}; a row has forward_ms and train_ms (medians),
      forward_min_ms and train_min_ms, all turns in forward_all_ms and train_all_ms, or "missing".
    """
    xs, lengths = make_batch(case, seed)
    rows: dict[str, dict[str, Any]] = {}
    ready: dict[str, Runs] = {}
    for name in contestants:
        try:
            ready[name] = CONTESTANTS[name](case, xs, lengths)
            rows[name] = {}
        except NotAvailable as reason:
            rows[name] = {"missing": str(reason)}
    for kind in ("forward", "train"):
        calls = {name: getattr(runs, kind) for name, runs in ready.items()}
        for name, taken in _times_ms(calls, repeats).items():
            rows[name][f"{kind}_ms"] = statistics.median(taken)
            rows[name][f"{kind}_min_ms"] = min(taken)
            rows[name][f"{kind}_all_ms"] = taken
    real = float(lengths.sum() / (case.batch * case.steps))
    return {"case": dataclasses.asdict(case), "real_steps": real, "rows": rows}


def is_stable(row: dict[str, Any], kind: str) -> bool:
    """Says whether the median of a row is near its fastest turn."""
    return bool(row[f"{kind}_ms"] <= UNSTABLE * row[f"{kind}_min_ms"])


def render(case: Case, result: dict[str, Any]) -> Table:
    """Returns the table of one case; a ratio below 1 means that we are faster."""
    table = Table(title=f"{case.title} ({result['real_steps']:.0%} real)", title_justify="left")
    table.add_column("contestant")
    for name in ("forward ms", "(fastest)", "ours / it", "fwd + bwd ms", "(fastest)", "ours / it"):
        table.add_column(name, justify="right")
    ours = result["rows"].get(OURS, {})
    for name, row in result["rows"].items():
        if "missing" in row:
            table.add_row(name, row["missing"])
            continue
        cells = []
        for kind in ("forward", "train"):
            median, fastest = row[f"{kind}_ms"], row[f"{kind}_min_ms"]
            ratio = ""
            if not is_stable(row, kind):
                ratio = "unstable"
            elif f"{kind}_ms" in ours and is_stable(ours, kind):
                ratio = f"{ours[f'{kind}_ms'] / median:.2f}"
            cells += [f"{median:.1f}", f"{fastest:.1f}", ratio]
        table.add_row(name, *cells)
    return table


def parse_size(text: str) -> tuple[int, int, int]:
    """Reads "B,T,H"; raises ValueError naming what is wrong."""
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"sizes must be B,T,H with positive integers, got {text!r}")
    batch, steps, hidden = map(int, parts)
    return batch, steps, hidden


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Time our LSTM and GRU against Flax and PyTorch, all in one process and taking turns.

    The LSTM has two bidirectional layers, the GRU one layer in one direction. Inputs are float32
    and as wide as the state, with random lengths. The loss is the sum of the squared outputs, the
    gradients are those of the weights and the inputs. Ratios below 1 mean that ours is faster;
    "unstable" marks a median above 1.5 times the fastest turn: the machine was busy, run it again.
    """

    sizes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="B,T,H [B,T,H ...]")] = ("32,231,100",)
    """Sizes: batch, time steps, hidden width per direction."""
    cells: tuple[Cell, ...] = ("lstm", "gru")
    """The recurrences to time."""
    contestants: tuple[str, ...] = tuple(CONTESTANTS)
    """Who takes part; a peer that is not installed is reported as such."""
    repeats: int = 7
    """Turns per contestant; the table has their medians."""
    seed: int = 0
    """Seed of the inputs and lengths."""
    json: Path | None = None
    """Also write the figures to this file."""


def main(options: Options) -> list[dict[str, Any]]:
    """Measures, prints and returns one result per cell and size."""
    if options.repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {options.repeats}")
    unknown = sorted(set(options.contestants) - set(CONTESTANTS))
    if unknown:
        raise ValueError(f"contestants must be among {list(CONTESTANTS)}, got {unknown}")
    sizes = [parse_size(text) for text in options.sizes]
    console, results = Console(), []
    for batch, steps, hidden in sizes:
        for cell in options.cells:
            case = Case(
                cell=cell,
                batch=batch,
                steps=steps,
                hidden=hidden,
                num_layers=2 if cell == "lstm" else 1,
                both_ways=cell == "lstm",
            )
            results.append(measure(case, list(options.contestants), options.repeats, options.seed))
            console.print(render(case, results[-1]))
    if options.json is not None:
        machine = {
            "jax": jax.__version__,
            "backend": jax.default_backend(),
            "devices": jax.device_count(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
        }
        text = json.dumps({"machine": machine, "results": results}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    try:
        main(tyro.cli(Options))
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
