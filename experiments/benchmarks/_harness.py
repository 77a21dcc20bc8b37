"""The parts that all benchmarks share: turns of contestants, medians, tables, files, documents.

All contestants of a benchmark run in a single process and take turns, so that a busy machine slows
all of them. The ratios between contestants therefore mean more than the milliseconds.
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from rich.table import Table

from experiments.core.cli import parse_options
from experiments.core.curves import hardware
from experiments.core.kinds import Json, Records
from gatedjax._utils.json import to_json
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import new_console
from gatedjax._utils.write import write_atomic
from gatedjax.training import keep_freed_memory

R = TypeVar("R")
Times = dict[str, list[float]]
"""The milliseconds of each turn, by contestant."""
_MOST_COLUMNS = 1000
"""No table is wider."""
CLOCKS = {"wall": time.perf_counter, "process": time.process_time}
PACKAGES = ("jax", "jaxlib", "flax", "dm-haiku", "equinox", "keras", "torch")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options that all benchmarks have."""

    repeats: int = 7
    """The number of turns per contestant. Tables show the medians."""
    json: Unset[Path] = None
    """A file for the figures, in addition to the table."""


def command(main: Callable[[Any], Any], options: type) -> None:
    """Runs a benchmark with the options of the command line. A ValueError of the benchmark ends the
    program with its message."""
    # Training runs do the same. It holds for all contestants, because they run in this process.
    keep_freed_memory()
    # `sys.argv[0]` is the path of the module that `python -m` runs.
    name = f"{Path(sys.argv[0]).parent.name}.{Path(sys.argv[0]).stem}".removesuffix(".__main__")
    prog = f"python -m experiments.{name}"
    try:
        main(parse_options(options, sys.argv[1:], prog))
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None


def in_turns(calls: Mapping[str, Callable[[], R]], repeats: int) -> dict[str, list[R]]:
    """Calls all functions once to warm up, and then in turns. Returns the results of each function,
    turn by turn."""
    # The first call of each function is not measured, because it may compile.
    for call in calls.values():
        call()
    results: dict[str, list[R]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            # The contestants take turns, because the load and the clock rate of a machine drift
            # over minutes.
            results[name].append(call())
    return results


def times_ms(
    calls: Mapping[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
    queue: int = 1,
) -> Times:
    """Measures the milliseconds of calls that take turns, until their results are ready. Of the
    `queue` calls of a turn only the last is waited for. Returns the milliseconds of a call in each
    turn, by name."""

    def with_clock(call: Callable[[], object]) -> Callable[[], float]:
        def run() -> float:
            start = clock()
            for _ in range(queue - 1):
                call()
            # JAX returns before the device is done, so the clock must wait for the result.
            jax.block_until_ready(call())
            return 1e3 * (clock() - start) / queue

        return run

    return in_turns({name: with_clock(call) for name, call in calls.items()}, repeats)


def ratio(times: Mapping[str, Sequence[float]], name: str, base: str) -> float:
    """Returns the median over the turns of the time of `name` over the time of `base`."""
    # The ratio is taken within a turn, where both calls saw the same load. The median ignores turns
    # in which another process interfered.
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


def measure(
    calls: Mapping[str, Callable[[], object]],
    repeats: int,
    base: str,
    clock: Callable[[], float] = time.perf_counter,
    queue: int = 1,
) -> dict[str, Json]:
    """Measures calls that take turns. Returns for each call the median "ms", the fastest turn
    "min_ms", the turns "all_ms", and the "ratio": the median over the turns of its time over the
    time of the call `base`. See `times_ms` for `queue`."""
    times_of = times_ms(calls, repeats, clock, queue)
    return {
        name: {
            "ms": statistics.median(times),
            "min_ms": min(times),
            "all_ms": times,
            "ratio": ratio(times_of, name, base),
        }
        for name, times in times_of.items()
    }


def compile_timed(lowered: Any) -> tuple[Any, float]:
    """Compiles a lowered function; returns the program and the seconds."""
    start = time.perf_counter()
    program = lowered.compile()
    return program, time.perf_counter() - start


def memory_of(program: Any, *parts: str) -> int:
    """Returns the bytes of parts of a compiled program: "temp", "argument" and "output"."""
    used = program.memory_analysis()
    return sum(getattr(used, f"{part}_size_in_bytes") for part in parts)


def draw_lengths(rng: np.random.Generator, rows: int, size: int) -> np.ndarray:
    """Draws the lengths of texts between 3/4 of the padded length and all of it."""
    lengths = rng.integers(max(1, 3 * size // 4), size + 1, rows).astype(np.int32)
    # The first row has the full length, because batches are padded to their longest row.
    lengths[0] = size
    return lengths


class Steps:
    """A training step, compiled without JAX's cache, whose calls go on from its last state."""

    def __init__(self, step: Callable[..., Any], state: Any, batch: Any, key: jax.Array) -> None:
        with no_compilation_cache():
            lowered = jax.jit(step, donate_argnums=0).lower(state, batch, key)
            self._program, self.compile_s = compile_timed(lowered)
        # Results are not counted because they take the place of the state, which is donated.
        self.memory_bytes = memory_of(self._program, "temp", "argument")
        self._state, self._rest = state, (batch, key)

    def __call__(self) -> Any:
        """Makes a step."""
        self._state, metrics = self._program(self._state, *self._rest)
        return self._state, metrics


@contextlib.contextmanager
def no_compilation_cache() -> Iterator[None]:
    """Switches the compilation cache off inside, so that programs are compiled and not read."""
    # A cached program would report the time of reading a file as the time of compilation.
    enabled = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", enabled)
        compilation_cache.reset_cache()


def use_devices(count: int) -> None:
    """Gives JAX `count` CPU devices, unless XLA_FLAGS sets their number."""
    # The flag of the user has priority, and JAX refuses both settings at once.
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", count)


def machine() -> Json:
    """Returns a description of the machine: hardware, backend, versions of packages, and load."""
    versions: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    state = {"backend": jax.default_backend(), "versions": versions, "load": os.getloadavg()[0]}
    return {**hardware(), **state}


def about(machine: Json) -> str:
    """Returns the sentence about a machine in a document."""
    return (
        f"{machine['device']} x{machine['devices']}, {machine['cores']} cores, load "
        f"{machine['load']:.1f}, jax {machine['jax']}."
    )


def render(
    title: str,
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    texts: int = 1,
    *,
    wrap: bool = True,
) -> None:
    """Prints a table. A table that must not wrap is as wide as its cells, because cut numbers are
    worse than lines that the terminal wraps. The first `texts` columns are aligned to the left.
    `wrap=False` forbids line breaks in cells."""
    console = new_console()
    table = Table(title=title, title_justify="left")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < texts else "right", no_wrap=not wrap)
    for line in lines:
        table.add_row(*line)
    if not wrap:
        terminal, console.width = console.width, _MOST_COLUMNS
        console.width = max(terminal, console.measure(table).maximum)
    console.print(table)


def markdown_table(heads: Sequence[str], lines: Sequence[list[str]], texts: int = 1) -> list[str]:
    """Returns the lines of a table in Markdown, with arguments as in `render`."""
    rule = ["---"] * texts + ["---:"] * (len(heads) - texts)
    return ["| " + " | ".join(line) + " |" for line in [list(heads), rule, *lines]]


def parse_sets(entries: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Returns the files of each set; raises ValueError for an entry that is not NAME=TRAIN,TEST."""
    sets = {}
    for entry in entries:
        name, equals, files = entry.partition("=")
        train, comma, test = files.partition(",")
        if not (equals and comma and name and train and test):
            raise ValueError(f"sets must be NAME=TRAIN,TEST, got {entry!r}")
        sets[name] = (train, test)
    return sets


def write_figures(path: Path | None, figures: Any) -> None:
    """Writes the figures as JSON, unless the path is None."""
    if path is not None:
        write_atomic(path, (to_json(figures, indent=1) + "\n").encode())


def publish(
    options: Any,
    rows: Records,
    title: str,
    heads: Sequence[str],
    lines: Sequence[list[str]],
    *,
    command: str | None = None,
    intro: str = "",
    texts: int = 1,
    wrap: bool = True,
) -> None:
    """Prints a table, see `render`, and writes `rows` as JSON. A command whose options have `docs`
    also writes the table into its section of that document, below the intro and the machine."""
    render(title, heads, lines, texts, wrap=wrap)
    found = machine()
    if command is not None and options.docs is not None:
        table = "\n".join(markdown_table(heads, lines, texts))
        replace_section(options.docs, command, f"{intro} {about(found)}\n\n{table}")
    write_figures(options.json, {"machine": found, "rows": rows})


def marks(name: str) -> tuple[str, str]:
    """Returns the lines before and after the section of a command in a document."""
    begin, end = (f"<!-- {which}: written by `{name}` -->" for which in ("begin", "end"))
    return begin, end


def replace_section(path: Path, name: str, section: str) -> None:
    """Replaces the section of a command in a Markdown file. Raises ValueError unless the file has
    both marks once."""
    begin, end = marks(name)
    text = path.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{path} must have the lines {begin!r} and {end!r} once, in this order")
    before, tail = text.split(begin)
    after = tail.split(end)[1]
    write_atomic(path, f"{before}{begin}\n\n{section}\n\n{end}{after}".encode())
