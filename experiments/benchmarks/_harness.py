"""What every benchmark does: contestants that take turns, medians, tables, files and documents.

All contestants of a benchmark run in one process and take turns, so that a busy machine slows them
alike; the ratios between them mean more than the milliseconds.
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
from jax.experimental.compilation_cache import compilation_cache
from rich.table import Table

from experiments.core.cli import parse_options
from experiments.core.curves import hardware
from experiments.core.kinds import Json
from gatedjax._utils.json import to_json
from gatedjax._utils.terminal import new_console
from gatedjax._utils.write import write_atomic

R = TypeVar("R")
Times = dict[str, list[float]]
"""Of every contestant, in milliseconds, turn by turn."""
PACKAGES = ("jax", "jaxlib", "flax", "dm-haiku", "equinox", "keras", "torch")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options that every benchmark has."""

    repeats: int = 7
    """Turns per contestant; the tables have their medians."""
    json: Path | None = None
    """Also write the figures to this file."""


def command(main: Callable[[Any], Any], options: type) -> None:
    """Runs a benchmark with the options of the command line; an impossible one ends it."""
    name = f"{Path(sys.argv[0]).parent.name}.{Path(sys.argv[0]).stem}".removesuffix(".__main__")
    prog = f"python -m experiments.{name}"
    try:
        main(parse_options(options, sys.argv[1:], prog))
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None


def in_turns(calls: Mapping[str, Callable[[], R]], repeats: int) -> dict[str, list[R]]:
    """Makes every call once to warm it up, then all of them in turn; returns what they return."""
    for call in calls.values():
        call()
    results: dict[str, list[R]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            results[name].append(call())
    return results


def times_ms(
    calls: Mapping[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Times calls that take turns, until their results are there."""

    def timed(call: Callable[[], object]) -> Callable[[], float]:
        def run() -> float:
            start = clock()
            jax.block_until_ready(call())
            return 1e3 * (clock() - start)

        return run

    return in_turns({name: timed(call) for name, call in calls.items()}, repeats)


def ratio(taken: Mapping[str, Sequence[float]], name: str, base: str) -> float:
    """The median over the turns of one contestant's time over another's."""
    return statistics.median(a / b for a, b in zip(taken[name], taken[base], strict=True))


def measure(
    calls: Mapping[str, Callable[[], object]],
    repeats: int,
    base: str,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Json]:
    """Times calls that take turns.

    Returns:
      For each call the median "ms", the fastest turn "min_ms", the turns "all_ms", and the "ratio":
      the median over the turns of its time over that of the call `base`.
    """
    taken = times_ms(calls, repeats, clock)
    return {
        name: {
            "ms": statistics.median(times),
            "min_ms": min(times),
            "all_ms": times,
            "ratio": ratio(taken, name, base),
        }
        for name, times in taken.items()
    }


def compiled(lowered: Any) -> tuple[Any, float]:
    """Compiles a lowered function; returns it and the seconds."""
    start = time.perf_counter()
    program = lowered.compile()
    return program, time.perf_counter() - start


def memory_of(program: Any, *parts: str) -> int | None:
    """Bytes of parts of a compiled program: "temp", "argument", "output"; None if unknown."""
    used = program.memory_analysis()
    return None if used is None else sum(getattr(used, f"{part}_size_in_bytes") for part in parts)


@contextlib.contextmanager
def no_compilation_cache() -> Iterator[None]:
    """Compiles everything afresh inside, so that the seconds are not those of reading a file."""
    enabled = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", enabled)
        compilation_cache.reset_cache()


def use_devices(count: int) -> None:
    """Makes JAX have count CPU devices, unless XLA_FLAGS has decided how many."""
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", count)


def machine() -> Json:
    """What the figures depend on."""
    versions: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    more = {"backend": jax.default_backend(), "versions": versions, "load": os.getloadavg()[0]}
    return {**hardware(), **more}


def about(machine: Json) -> str:
    """Returns the sentence that a document has of a machine."""
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
    """Prints a table whose first `texts` columns are left-aligned.

    A table that must not wrap has at least 150 columns, because cut numbers are worse than lines
    that the terminal wraps.
    """
    console = new_console()
    console.width = console.width if wrap else max(console.width, 150)
    table = Table(title=title, title_justify="left")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < texts else "right", no_wrap=not wrap)
    for line in lines:
        table.add_row(*line)
    console.print(table)


def markdown_table(heads: Sequence[str], lines: Sequence[list[str]], texts: int = 1) -> list[str]:
    """Lines of the same in Markdown."""
    rule = ["---"] * texts + ["---:"] * (len(heads) - texts)
    return ["| " + " | ".join(line) + " |" for line in [list(heads), rule, *lines]]


def write_figures(path: Path | None, figures: Any) -> None:
    """Writes what was measured, where that was asked for."""
    if path is not None:
        write_atomic(path, (to_json(figures, indent=1) + "\n").encode())


def marks(name: str) -> tuple[str, str]:
    """The lines before and after what a command writes into a document."""
    begin, end = (f"<!-- {which}: written by `{name}` -->" for which in ("begin", "end"))
    return begin, end


def replace_section(path: Path, name: str, section: str) -> None:
    """Replaces what is between the marks of a command in a Markdown file, which it has once."""
    begin, end = marks(name)
    text = path.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"docs must have the lines {begin!r} and {end!r} once, got {path}")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    write_atomic(path, f"{before}{begin}\n\n{section}\n\n{end}{after}".encode())
