"""Times the recurrences against those of Flax, Haiku, Equinox, Keras and PyTorch.

A busy machine does not slow the contestants quite alike: where other work takes a core, a
two-threaded torch call may wait for its preempted thread at every step and take 5 to 100 times as
long. So the fastest turn is kept beside the median, a median far above it is marked, and no ratio
is given.
"""

import dataclasses
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import tyro

from experiments.benchmarks import _harness
from experiments.benchmarks import _recurrence_peers as peers
from experiments.benchmarks._recurrence_report import console_table, write_docs
from experiments.core.config import at_least_1
from experiments.core.kinds import Json, Records
from experiments.core.records import read_json
from gatedjax._terminal import new_console

SIZES = ("32,231,100", "32,400,128", "32,1000,256", "20,35,650", "128,28,128")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Time our LSTM, GRU and RAU against other libraries, all in one process and taking turns.

    Inputs are float32 and as wide as the state, with random lengths. The loss is the sum of the
    squared outputs, the gradients are those of the weights and the inputs. GFLOP/s count the matrix
    products, padding included, which all but "torch packed" compute; forward + backward counts as
    three forward passes. The peak is that of jnp.matmul of 2048 x 2048 in the same turns on the
    same devices. Memory is the arguments, results and scratch of the compiled forward + backward.
    A ratio is the time of the other over ours: above 1 ours is faster. "unstable" marks a median
    above 1.5 times the fastest turn: the machine was busy, run it again.
    """

    sizes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="B,T,H [B,T,H ...]")] = SIZES
    """Sizes: batch, time steps, hidden width per direction."""
    cells: tuple[peers.Cell, ...] = ("lstm", "gru", "rau")
    """The recurrences to time."""
    layers: int = 1
    """Layers of every network."""
    bidirectional: bool = False
    """Run every layer in both directions."""
    contestants: tuple[str, ...] = tuple(peers.CONTESTANTS)
    """Who takes part; a peer that is not installed is reported as such."""
    repeats: int = 7
    """Turns per contestant; the table has their medians."""
    devices: int = 1
    """CPU devices that JAX's contestants split the batch over; torch keeps its threads."""
    seed: int = 0
    """Seed of the inputs and lengths."""
    json: Path | None = None
    """Also write the figures to this file, after every case."""
    docs: Path | None = None
    """Rewrite the tables in this file, from the figures of this run or those of --figures."""
    figures: tuple[Path, ...] = ()
    """Files written with --json: write --docs from them and measure nothing; later ones win."""


def _make_gemm(devices: int, size: int = 2048) -> tuple[Callable[[], object], float]:
    """Returns a square product, its rows split over the devices, and its GFLOP."""
    whole, split = peers.shardings(devices)
    left = jax.device_put(jnp.ones((size, size), jnp.float32), split)
    right = jax.device_put(jnp.ones((size, size), jnp.float32), whole)
    product = jax.jit(jnp.matmul, out_shardings=split)
    return lambda: product(left, right), 2e-9 * size**3


def measure(case: peers.Case, contestants: list[str], repeats: int, seed: int = 0) -> Json:
    """Times the named contestants on one case.

    A row is {"missing": why} or has, for kind "forward" and "train" (with the gradients), kind_ms
    (the median), kind_min_ms, kind_all_ms and kind_gflops, and compile_s and memory_bytes.
    """
    load = os.getloadavg()[0]
    xs, lengths = peers.make_batch(case, seed)
    rows: dict[str, Json] = {}
    ready: dict[str, peers.Runs] = {}
    for name in contestants:
        try:
            ready[name] = peers.CONTESTANTS[name](case, xs, lengths)
        except peers.NotAvailable as reason:
            rows[name] = {"missing": str(reason)}
            continue
        rows[name] = {k: getattr(ready[name], k) for k in ("compile_s", "memory_bytes")}
    gemm, gemm_gflop = _make_gemm(case.devices)
    gemm_ms = []
    for kind, passes in (("forward", 1), ("train", 3)):
        calls = {name: getattr(runs, kind) for name, runs in ready.items()}
        times = _harness.times_ms({"": gemm, **calls}, repeats)
        gemm_ms += times.pop("")
        for name, taken in times.items():
            counted = dataclasses.replace(case, cell="gru") if name == peers.OUR_GRU else case
            median = statistics.median(taken)
            rows[name][f"{kind}_ms"] = median
            rows[name][f"{kind}_min_ms"] = min(taken)
            rows[name][f"{kind}_all_ms"] = taken
            rows[name][f"{kind}_gflops"] = 1e3 * passes * counted.gflop / median
    return {
        "case": dataclasses.asdict(case),
        "real_steps": float(lengths.sum() / (case.batch * case.steps)),
        "gemm_gflops": 1e3 * gemm_gflop / min(gemm_ms),
        "load": [load, os.getloadavg()[0]],
        "rows": rows,
    }


def parse_size(text: str) -> tuple[int, int, int]:
    """Reads "B,T,H"; raises ValueError naming what is wrong."""
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"sizes must be B,T,H with positive integers, got {text!r}")
    batch, steps, hidden = map(int, parts)
    return batch, steps, hidden


def make_cases(options: Options) -> list[peers.Case]:
    """Returns the cases of the options; raises ValueError where an option is impossible."""
    at_least_1(options, "repeats", "layers", "devices")
    unknown = sorted(set(options.contestants) - set(peers.CONTESTANTS))
    if unknown:
        raise ValueError(f"contestants must be among {list(peers.CONTESTANTS)}, got {unknown}")
    cases = []
    for text in options.sizes:
        batch, steps, hidden = parse_size(text)
        if batch % options.devices:
            raise ValueError(f"devices must divide the batch {batch}, got {options.devices}")
        shape: Json = {"batch": batch, "steps": steps, "hidden": hidden}
        shape |= {k: getattr(options, k) for k in ("layers", "bidirectional", "devices")}
        cases += [peers.Case(cell=cell, **shape) for cell in options.cells]
    return cases


def main(options: Options) -> Records:
    """Measures, prints and returns one result per cell and size; or only writes the docs."""
    cases = make_cases(options)
    if options.figures:
        if options.docs is None:
            raise ValueError("figures are for --docs, got none")
        files = [read_json(path) for path in options.figures]
        write_docs(options.docs, files, SIZES)
        return [result for file in files for result in file["results"]]
    _harness.use_devices(options.devices)
    if jax.device_count() < options.devices:
        raise ValueError(f"devices must be at most {jax.device_count()}, got {options.devices}")
    console = new_console()
    console.width = max(console.width, 150)  # numbers that are cut off are worse than wrapped lines
    results: Records = []
    file: Json = {"machine": _harness.machine(), "results": results}
    with _harness.no_compilation_cache():
        for case in cases:
            results.append(measure(case, list(options.contestants), options.repeats, options.seed))
            console.print(console_table(results[-1]))
            _harness.write_figures(options.json, file)
    if options.docs is not None:
        write_docs(options.docs, [file], SIZES)
    return results


if __name__ == "__main__":
    _harness.command(main, Options)
