"""The command `python -m experiments.benchmarks --check`, which finds ratios that became worse.

A ratio is our time over the time of a yardstick. Both take turns in a single process, so that the
ratio depends on the machine far less than milliseconds do. `--write` stores the measured ratios as
the committed ratios of later comparisons.
"""

import dataclasses
import functools
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.benchmarks import _harness, agt, compact_attention, recurrence, ssan
from experiments.benchmarks import _recurrence_peers as peers
from experiments.core.config import at_least_1
from experiments.core.kinds import Json, Records
from experiments.core.records import RESULTS, read_json, write_json
from gatedjax._utils.terminal import say

PATH = RESULTS / "benchmarks" / "ratios.json"
TOLERANCE = 1.10
"""The factor by which the lower quartile of a ratio may exceed the upper quartile of the committed
ratio."""
Turns = Sequence[float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watched:
    """A ratio and its measurement."""

    says: str
    """Our program and the yardstick, in words."""
    measure: Callable[[int], Turns]
    """Function of the number of turns that returns the ratio of each turn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Measures the ratios that must not get worse, and compares them with the committed ratios.

    A ratio is our time over the time of the yardstick; below 1 ours is faster. The table has the
    median of the turns and their quartiles. "WORSE" means that the lower quartile is more than 10 %
    above the upper quartile of the committed turns, in two measurements. The exit status is then 1.
    Committed ratios of another processor are compared as well, with a note.
    """

    check: bool = False
    """Compare with the committed ratios."""
    write: bool = False
    """Write the measured ratios to the file of committed ratios."""
    repeats: int = 9
    """The number of turns."""


def _by_turn(rows: Mapping[str, Json], ours: str, base: str, times: str = "all_ms") -> Turns:
    return [a / b for a, b in zip(rows[ours][times], rows[base][times], strict=True)]


def _measure_recurrence(cell: peers.Cell, size: str, yardstick: str, repeats: int) -> Turns:
    batch, steps, hidden = recurrence.parse_size(size)
    case = peers.Case(cell=cell, batch=batch, steps=steps, hidden=hidden)
    rows = recurrence.measure(case, [peers.OURS, yardstick], repeats)["rows"]
    return _by_turn(rows, peers.OURS, yardstick, "train_all_ms")


def _measure_ssan(repeats: int, *, train: bool) -> Turns:
    programs = ssan.programs(("st",), 512, train=train, rows=4)
    rows = _harness.measure(programs, repeats, ssan.BASE)
    return _by_turn(rows, "st", ssan.BASE)


def _measure_compact(repeats: int) -> Turns:
    case = compact_attention.Case(score="mlp1", steps=231, density=0.2)
    return _by_turn(compact_attention.measure(case, repeats)["rows"], "compact", "dense")


def _measure_agt(repeats: int) -> Turns:
    rows = agt.measure(agt.CASES[0], repeats)["rows"]
    return _by_turn(rows, "step", "products")


# The script of a plain scan only needs JAX, so that the ratio shows the price of the library.
_START = """
import jax, jax.numpy as jnp
{more}
xs, w, u = jnp.ones((2, 3, 4)), jnp.ones((4, 16)), jnp.ones((4, 16))
{call}
jax.block_until_ready(jax.jit(run)(xs, w, u))
"""
_PLAIN = """
def step(carry, x, w, u):
    c, h = carry
    i, f, g, o = jnp.split(x @ w + h @ u, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return (c, jax.nn.sigmoid(o) * jnp.tanh(c)), h
def run(xs, w, u):
    zeros = jnp.zeros((2, 4))
    return jax.lax.scan(lambda s, x: step(s, x, w, u), (zeros, zeros), jnp.swapaxes(xs, 0, 1))
"""
_OURS = """
def run(xs, w, u):
    return F.lstm(F.LSTMWeights(w, u, jnp.zeros(16)), xs)
"""
SCRIPTS = {
    "ours": _START.format(more="import gatedjax.functional as F", call=_OURS),
    "plain": _START.format(more="", call=_PLAIN),
}


def _measure_start(repeats: int) -> Turns:
    """Measures the seconds from the start of Python to the first result of a compiled LSTM."""

    # Each start needs a new process, because a module is imported only once in a process.
    def once(script: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", script], check=True)
        return time.perf_counter() - start

    calls = {name: functools.partial(once, script) for name, script in SCRIPTS.items()}
    seconds = _harness.in_turns(calls, repeats)
    return [a / b for a, b in zip(seconds["ours"], seconds["plain"], strict=True)]


def _watch_recurrence(cell: peers.Cell, size: str, yardstick: str) -> Watched:
    return Watched(
        says=f"{cell.upper()} ({size}), forward and backward / {yardstick}",
        measure=lambda repeats: _measure_recurrence(cell, size, yardstick, repeats),
    )


PLAIN_SCAN = "scanned step"
WATCHED: dict[str, Watched] = {
    "lstm": _watch_recurrence("lstm", "32,231,100", "flax optimised"),
    "lstm_wide_batch": _watch_recurrence("lstm", "128,28,128", "flax optimised"),
    "lstm_plain": _watch_recurrence("lstm", "32,231,100", PLAIN_SCAN),
    "gru": _watch_recurrence("gru", "32,231,100", "flax"),
    "rau": _watch_recurrence("rau", "32,231,100", peers.OUR_GRU),
    "ssan_train": Watched(
        says="selective / standard attention, forward and backward",
        measure=lambda repeats: _measure_ssan(repeats, train=True),
    ),
    "ssan_infer": Watched(
        says="selective / standard attention, inference",
        measure=lambda repeats: _measure_ssan(repeats, train=False),
    ),
    "compact": Watched(
        says="pooling of open words at density .2 / of all", measure=_measure_compact
    ),
    "agt": Watched(says="step of AGT, 300 words / its products alone", measure=_measure_agt),
    "start": Watched(
        says="import and first LSTM / a scan by hand with JAX alone", measure=_measure_start
    ),
}


def summary(turns: Turns) -> Json:
    """Returns the median and the quartiles of ratios, rounded."""
    # NaN is neither better nor worse, so that a broken measurement would pass the check.
    if not np.isfinite(turns).all():
        raise ValueError(f"ratios of times must be finite, got {list(turns)}")
    low, middle, high = (float(np.quantile(turns, q)) for q in (0.25, 0.5, 0.75))
    return {"median": round(middle, 4), "low": round(low, 4), "high": round(high, 4)}


def verdict(now: Json, committed: Json | None) -> str:
    """Returns the verdict on a ratio against the committed ratio. It is "new", "WORSE", "better" or
    "as before"."""
    if committed is None:
        return "new"
    if now["low"] > TOLERANCE * committed["high"]:
        return "WORSE"
    return "better" if TOLERANCE * now["high"] < committed["low"] else "as before"


def measure_ratio(name: str, repeats: int, committed: Json | None) -> Json:
    """Measures a ratio, twice if it seems worse, because a busy moment is not a regression. Returns
    the summary with the smaller lower quartile."""
    now = summary(WATCHED[name].measure(repeats))
    if verdict(now, committed) == "WORSE":
        again = summary(WATCHED[name].measure(repeats))
        now = min(now, again, key=lambda summary_of_turns: summary_of_turns["low"])
    return now


def _line(name: str, now: Json, committed: Json | None) -> list[str]:
    texts = [
        "-"
        if ratio is None
        else f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
        for ratio in (committed, now)
    ]
    return [name, WATCHED[name].says, *texts, verdict(now, committed)]


def main(options: Options) -> Records:
    """Measures, prints, compares and writes the ratios. Raises ValueError for options that
    contradict each other or the file, and SystemExit if a ratio became worse."""
    at_least_1(options, "repeats")
    if options.check and options.write:
        raise ValueError("check or write must be False, got both: give one of the two")
    stored: Json = read_json(PATH) if PATH.exists() else {"ratios": {}}
    if options.check and not stored["ratios"]:
        raise ValueError(
            f"{PATH} must have committed ratios for check, got none: create it with --write"
        )
    machine = _harness.machine()
    processor = stored.get("machine", machine)["processor"]
    if processor != machine["processor"]:
        say(f"the committed ratios are of another processor: {processor}")
    committed = stored["ratios"] if options.check else {}
    now = {name: measure_ratio(name, options.repeats, committed.get(name)) for name in WATCHED}
    lines = [_line(name, ratio, committed.get(name)) for name, ratio in now.items()]
    heads = ("ratio", "ours / yardstick", "committed", "now", "verdict")
    _harness.render("ratios of times, below 1 ours is faster", heads, lines, 2)
    if options.write:
        PATH.parent.mkdir(parents=True, exist_ok=True)
        write_json(PATH, {"machine": machine, "ratios": now})
        say(f"wrote {PATH}")
    worse = [name for name, ratio in now.items() if verdict(ratio, committed.get(name)) == "WORSE"]
    if worse:
        raise SystemExit(f"error: worse than the committed ratios beyond noise: {', '.join(worse)}")
    return [{"name": name, **ratio} for name, ratio in now.items()]


if __name__ == "__main__":
    _harness.command(main, Options)
