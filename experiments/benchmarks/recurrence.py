"""The command `python -m experiments.benchmarks.recurrence`, which times recurrences.

It compares our recurrences with those of Flax, Haiku, Equinox, Keras and PyTorch. A busy machine
does not slow all contestants equally: if other work takes a core, a call of torch with two threads
may wait for a thread at each step and take 5 to 100 times as long. Therefore the table also shows
the fastest turn, marks a median far above it, and has no ratio for such a contestant.
"""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import tyro

from experiments.benchmarks import _harness
from experiments.benchmarks import _recurrence_peers as peers
from experiments.benchmarks._harness import markdown_table, replace_section
from experiments.core.config import at_least_1
from experiments.core.kinds import Json, Records
from experiments.core.records import read_json
from gatedjax._utils.options import Several, Unset

SIZES = ("32,231,100", "32,400,128", "32,1000,256", "20,35,650", "128,28,128")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """Times our LSTM, GRU and RAU against other libraries, in turns in a single process.

    Inputs are float32 and as wide as the state, with random lengths. The loss is the sum of the
    squared outputs; the gradients are those of the weights and the inputs. GFLOP/s count the matrix
    products, padding included, which "torch packed" leaves out; forward + backward counts as three
    forward passes. The peak is that of jnp.matmul of 2048 x 2048 in the same turns on the same
    devices. Memory is the arguments, results and scratch of the compiled forward + backward. A
    ratio is the time of the other over ours: above 1 ours is faster. "unstable" marks a median
    above 1.5 times the fastest turn: the machine was busy, and the command should be run again.
    """

    sizes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="B,T,H [B,T,H ...]")] = SIZES
    """The sizes: batch, time steps, hidden width per direction."""
    cells: tuple[peers.Cell, ...] = ("lstm", "gru", "rau")
    """The recurrences to time."""
    layers: int = 1
    """The number of layers of each network."""
    bidirectional: bool = False
    """Run all layers in both directions."""
    contestants: tuple[str, ...] = tuple(peers.CONTESTANTS)
    """The contestants. If a library is not installed, the table shows it."""
    queue: int = 1
    """The number of calls in a turn, of which only the last is waited for. With 1 a short call on a
    GPU takes as long as the host needs to start it."""
    devices: int = 1
    """The number of CPU devices that split the batch of JAX's contestants; torch keeps its
    threads."""
    docs: Unset[Path] = None
    """A Markdown file in which the tables are replaced, with the figures of this run or of
    --figures."""
    figures: Several[Path] = ()
    """Files written with --json. With them --docs is written from the files, and no recurrence is
    measured; later files win."""


COMMAND = "python -m experiments.benchmarks.recurrence --docs"
# A median above this many times the fastest turn reflects the machine, not the contestant.
UNSTABLE = 1.5
KINDS = ("forward", "train")
NOT_RUN = "not run"
# The encoder of GA-Net is added because it is the library's largest use of the LSTM.
_EXTRA: Records = [
    {"cell": "lstm", "batch": 32, "steps": 231, "hidden": 100, "layers": 2, "bidirectional": True}
]


def is_stable(row: Json, kind: str) -> bool:
    """Returns whether the median of a row is near its fastest turn."""
    return bool(row[f"{kind}_ms"] <= UNSTABLE * row[f"{kind}_min_ms"])


def _best(result: Json, names: tuple[str, ...], kind: str) -> str | None:
    measured_names = [name for name in names if f"{kind}_ms" in result["rows"].get(name, {})]
    return min(measured_names, key=lambda name: result["rows"][name][f"{kind}_ms"], default=None)


def ratio(result: Json, names: tuple[str, ...], kind: str, ours: str = peers.OURS) -> str:
    """Returns the time of the fastest of the named contestants over ours, or the reason why not."""
    rows, name = result["rows"], _best(result, names, kind)
    if name is None or f"{kind}_ms" not in rows.get(ours, {}):
        return NOT_RUN
    # A ratio that was measured on a busy machine would be read as a result.
    if not (is_stable(rows[ours], kind) and is_stable(rows[name], kind)):
        return "unstable"
    return f"{rows[name][f'{kind}_ms'] / rows[ours][f'{kind}_ms']:.2f}"


_HEADS = (
    "contestant",
    *("fwd, ms", "(fastest)", "/ ours", "GFLOP/s", "of peak"),
    *("+ bwd, ms", "(fastest)", "/ ours", "GFLOP/s", "of peak"),
    *("MB", "compile, s"),
)


def _digits(ms: float) -> str:
    return f"{ms:.1f}" if ms >= 1 else f"{ms:.3f}"


def _rows(result: Json) -> list[list[str]]:
    """Returns the rows of the table of a case."""
    lines = []
    for name, row in result["rows"].items():
        # A library without the cell would only add an empty row to its table.
        if row.get("missing") == peers.NO_CELL:
            continue
        if "missing" in row:
            lines.append([name, row["missing"], *[""] * (len(_HEADS) - 2)])
            continue
        cells = [name]
        for kind in KINDS:
            cells += [_digits(row[f"{kind}_{part}"]) for part in ("ms", "min_ms")]
            cells += [ratio(result, (name,), kind), f"{row[f'{kind}_gflops']:.1f}"]
            cells.append(f"{row[f'{kind}_gflops'] / result['gemm_gflops']:.0%}")
        for name, scale, digits in (("memory_bytes", 1e-6, 1), ("compile_s", 1.0, 2)):
            cells.append("" if row[name] is None else f"{scale * row[name]:.{digits}f}")
        lines.append(cells)
    return lines


def _title(result: Json) -> str:
    case = peers.Case(**result["case"])
    return (
        f"{case.cell.upper()} {case.size}, {case.devices} device(s), {result['real_steps']:.0%} of "
        f"the steps real, {case.gflop:.2f} GFLOP forward, peak {result['gemm_gflops']:.0f} GFLOP/s"
    )


def _pair(result: Json, names: tuple[str, ...], ours: str = peers.OURS) -> str:
    ratios = [ratio(result, names, kind, ours) for kind in KINDS]
    return ratios[0] if ratios[0] == ratios[1] == NOT_RUN else " / ".join(ratios)


def _times(result: Json, name: str) -> str:
    row = result["rows"].get(name, {})
    if "forward_ms" not in row:
        return NOT_RUN
    return " / ".join(_digits(row[f"{kind}_ms"]) for kind in KINDS)


def _memory(result: Json, ours: str, names: tuple[str, ...]) -> str:
    """Returns our memory over the least memory of the named contestants, in MB."""
    rows = [result["rows"].get(name, {}) for name in (ours, *names)]
    first, *peer_sizes = [row.get("memory_bytes") for row in rows]
    least = min((value for value in peer_sizes if value is not None), default=None)
    if first is None or least is None:
        return NOT_RUN
    return f"{1e-6 * first:.1f} / {1e-6 * least:.1f}"


def _summary(results: Records) -> list[str]:
    """Returns the two tables of ratios for a number of devices."""
    lines, raus = [], []
    for result in results:
        case = peers.Case(**result["case"])
        if case.cell == "rau":
            # Only this ratio has our time in the numerator.
            over = _pair(result, (peers.OURS,), peers.OUR_GRU)
            plain = _pair(result, ("scanned step",))
            memory = _memory(result, peers.OURS, (peers.OUR_GRU,))
            alone = _pair(result, (peers.PRODUCTS,))
            raus.append([case.size, _times(result, peers.OURS), over, plain, alone, memory])
            continue
        best = _best(result, peers.JAX_PEERS, "train")
        cell = case.cell.upper()
        names = {peers.OURS: cell}
        if case.cell == "gru":
            names[peers.RESET_AFTER] = f"{cell}, reset after"
        for ours, name in names.items():
            line = [case.size, name, _times(result, ours), _pair(result, peers.FLAX, ours)]
            line.append(_pair(result, peers.JAX_PEERS, ours) + (f" ({best})" if best else ""))
            line += [_pair(result, (f"torch {how}",), ours) for how in ("packed", "unpacked")]
            line.append(_pair(result, (peers.PRODUCTS,), ours))
            lines.append([*line, _memory(result, ours, peers.FLAX)])
    heads = (
        *("(B, T, H)", "cell", "ours, ms", "flax's best", "fastest JAX peer"),
        *("torch packed", "torch unpacked", "products alone", "MB, ours / flax"),
    )
    rau_heads = (
        *("(B, T, H)", "RAU, ms", "RAU / GRU", "plain scan / RAU"),
        *("products alone / RAU", "MB, RAU / GRU"),
    )
    return [*markdown_table(heads, lines, 2), "", *markdown_table(rau_heads, raus)]


def _key(case: Json) -> tuple[object, ...]:
    return tuple(sorted(case.items()))


def _about(file: Json) -> str:
    about = file["machine"]
    versions = ", ".join(f"{k} {v or 'not installed'}" for k, v in about["versions"].items())
    backend = about["backend"]
    if backend != "cpu":
        backend += f" ({about['device']})"
    return (
        f"Machine: {about['processor']}, {about['cores']} cores, backend {backend}. "
        f"Python {about['python']}, {versions}."
    )


def docs_section(files: Records, sizes: tuple[str, ...]) -> str:
    """Returns the tables in Markdown, from the contents of files written with --json. A later file
    replaces the cases of an earlier file. Raises ValueError if the files are of several kinds of
    device."""
    result_of = {_key(result["case"]): result for file in files for result in file["results"]}
    machines = [file["machine"] for file in files]
    kinds = {"CPU" if machine["backend"] == "cpu" else machine["device"] for machine in machines}
    if len(kinds) > 1:
        raise ValueError(f"figures must be of one kind of device, got {sorted(kinds)}")
    (kind,) = kinds
    cores = max(machine["cores"] for machine in machines) if kind == "CPU" else 1
    counts = sorted({1, cores} | {result["case"]["devices"] for result in result_of.values()})
    blocks = list(dict.fromkeys(map(_about, files)))
    loads = [load for result in result_of.values() for load in result["load"]]
    turns = {
        len(row["train_all_ms"])
        for result in result_of.values()
        for row in result["rows"].values()
        if "train_all_ms" in row
    }
    if loads and turns:
        blocks.append(
            f"Load average (this process included) {min(loads):.1f} to {max(loads):.1f}; "
            f"{' or '.join(map(str, sorted(turns)))} turns per contestant."
        )
    details = []
    for count in counts:
        full = {"layers": 1, "bidirectional": False, "devices": count}
        named = [
            {"cell": cell, **dict(zip(("batch", "steps", "hidden"), size, strict=True))}
            for size in (tuple(map(int, text.split(","))) for text in sizes)
            for cell in ("lstm", "gru", "rau")
        ]
        keys = {_key(full | case): full | case for case in named + _EXTRA}
        further_cases = {
            k: r["case"] for k, r in result_of.items() if r["case"]["devices"] == count
        }
        results = [
            result_of.get(key, {"case": case, "rows": {}})
            for key, case in (keys | further_cases).items()
        ]
        blocks += [
            f"### {count} {kind} device{'s' if count > 1 else ''}",
            "\n".join(_summary(results)),
        ]
        for result in results:
            if result["rows"]:
                table = "\n".join(markdown_table(_HEADS, _rows(result)))
                head = f"<details><summary>{_title(result)}</summary>"
                details.append(f"{head}\n\n{table}\n\n</details>")
    return "\n\n".join([*blocks, "### Every contestant", *(details or [NOT_RUN])])


def _make_gemm(devices: int, size: int = 2048) -> tuple[Callable[[], object], float]:
    replicated, split = peers.shardings(devices)
    rows = jax.device_put(jnp.ones((size, size), jnp.float32), split)
    matrix = jax.device_put(jnp.ones((size, size), jnp.float32), replicated)
    product = jax.jit(jnp.matmul, out_shardings=split)
    return lambda: product(rows, matrix), 2e-9 * size**3


def measure(case: peers.Case, contestants: list[str], repeats: int, queue: int = 1) -> Json:
    """Measures the named contestants on a case. A row is {"missing": reason}, or has compile_s,
    memory_bytes, and for the kinds "forward" and "train" (with the gradients) kind_ms (the median),
    kind_min_ms, kind_all_ms and kind_gflops."""
    load = os.getloadavg()[0]
    xs, lengths = peers.make_batch(case)
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
        # The product takes turns with the contestants, so that its peak is that of the same
        # minutes.
        measured = _harness.measure({"": gemm, **calls}, repeats, "", queue=queue)
        gemm_ms += measured.pop("")["all_ms"]
        for name, row in measured.items():
            # Our GRU in the table of the RAU has fewer products than the RAU.
            counted = dataclasses.replace(case, cell="gru") if name == peers.OUR_GRU else case
            rows[name] |= {f"{kind}_{part}": row[part] for part in ("ms", "min_ms", "all_ms")}
            rows[name][f"{kind}_gflops"] = 1e3 * passes * counted.gflop / row["ms"]
    return {
        "case": dataclasses.asdict(case),
        "real_steps": float(lengths.sum() / (case.batch * case.steps)),
        # A peak is the fastest turn, because other processes can only make a turn slower.
        "gemm_gflops": 1e3 * gemm_gflop / min(gemm_ms),
        "load": [load, os.getloadavg()[0]],
        "queue": queue,
        "rows": rows,
    }


def parse_size(text: str) -> tuple[int, int, int]:
    """Reads "B,T,H"; raises ValueError unless the text has three positive integers."""
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"sizes must be B,T,H with positive integers, got {text!r}")
    batch, steps, hidden = map(int, parts)
    return batch, steps, hidden


def make_cases(options: Options) -> list[peers.Case]:
    """Returns the cases of the options; raises ValueError for an impossible option."""
    at_least_1(options, "repeats", "layers", "devices", "queue")
    unknown = sorted(set(options.contestants) - set(peers.CONTESTANTS))
    if unknown:
        raise ValueError(f"contestants must be among {list(peers.CONTESTANTS)}, got {unknown}")
    cases = []
    for text in options.sizes:
        batch, steps, hidden = parse_size(text)
        if batch % options.devices:
            raise ValueError(f"devices must divide batch={batch}, got {options.devices}")
        shape: Json = {"batch": batch, "steps": steps, "hidden": hidden}
        shape |= {k: getattr(options, k) for k in ("layers", "bidirectional", "devices")}
        cases += [peers.Case(cell=cell, **shape) for cell in options.cells]
    return cases


def main(options: Options) -> Records:
    """Measures, prints and returns a result per cell and size, or only writes the document."""
    cases = make_cases(options)
    if options.figures:
        if options.docs is None:
            raise ValueError("docs must be a page to write the figures into, got None: give --docs")
        files = [read_json(path) for path in options.figures]
        replace_section(options.docs, COMMAND, docs_section(files, SIZES))
        return [result for file in files for result in file["results"]]
    _harness.use_devices(options.devices)
    if jax.device_count() < options.devices:
        raise ValueError(f"devices must be at most {jax.device_count()}, got {options.devices}")
    results: Records = []
    file: Json = {"machine": _harness.machine(), "results": results}
    with _harness.no_compilation_cache():
        for case in cases:
            names = list(options.contestants)
            results.append(measure(case, names, options.repeats, options.queue))
            title, lines = _title(results[-1]), _rows(results[-1])
            _harness.render(title, _HEADS, lines, wrap=False)
            # The file is written after each case, so that an interrupted command loses only the
            # last.
            _harness.write_figures(options.json, file)
    if options.docs is not None:
        replace_section(options.docs, COMMAND, docs_section([file], SIZES))
    return results


if __name__ == "__main__":
    _harness.command(main, Options)
