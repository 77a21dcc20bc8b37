"""What a person sees while a run trains: a bar on a terminal, a line per log elsewhere."""

import datetime
import sys
import time
from typing import TYPE_CHECKING, Any

from gatedjax._utils.terminal import new_console, say

if TYPE_CHECKING:
    from rich.progress import Progress

SHOWN = ("loss", "accuracy", "density")


def summary(metrics: dict[str, Any]) -> str:
    """The few numbers that fit on a line."""
    parts = [f"{name} {metrics[name]:.4f}" for name in SHOWN if metrics.get(name) is not None]
    for name, unit in (("steps_per_s", "steps/s"), ("tokens_per_s", "tokens/s")):
        if metrics.get(name):
            parts.append(f"{metrics[name]:,.1f} {unit}" if unit == "steps/s" else
                         f"{metrics[name]:,.0f} {unit}")  # fmt: skip
    if metrics.get("padding") is not None:
        parts.append(f"padding {metrics['padding']:.0%}")
    return ", ".join(parts)


class ProgressView:
    """Progress of one run.

    Args:
      total: steps in all.
      start: the step that the run starts from.
      enabled: False prints nothing.
    """

    def __init__(self, total: int, start: int, enabled: bool) -> None:
        self._enabled = enabled
        self._console = new_console(stderr=True)
        self._bar: Progress | None = None
        self._start = time.monotonic()
        self._first = start
        self._total = total
        if enabled and self._console.is_terminal:
            # only a terminal has a bar: a help and a run in the background start sooner
            from rich import progress

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(bar_width=24),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[left]}", markup=False),
                progress.TextColumn("{task.fields[note]}", markup=False),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("train", total=total, completed=start, left="", note="")
            self._bar.start()

    def phase(self, name: str) -> None:
        """Shows what is going on: train, compile, evaluate, save."""
        if self._bar is not None:
            self._bar.update(self._task, description=name)

    def step(self, step: int) -> None:
        """Moves the bar."""
        if self._bar is not None:
            left = self._left(step)
            clock = "" if left is None else str(datetime.timedelta(seconds=round(left)))
            self._bar.update(self._task, completed=step, left=clock)

    def once(self, seconds: float, steps: int = 0) -> None:
        """Leaves out of the estimate what does not come again: compilation, and steps within it."""
        self._start += seconds
        self._first += steps

    def _left(self, step: int) -> float | None:
        """Seconds to the end, from the steps and evaluations so far; None before there are any."""
        done = step - self._first
        if done < 1:
            return None
        return (time.monotonic() - self._start) / done * (self._total - step)

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Shows the metrics of the last interval."""
        note = summary(metrics)
        if self._bar is not None:
            self._bar.update(self._task, note=note)
        elif self._enabled:
            left = self._left(step)
            note += "" if left is None else f", {left:.0f} s left"
            say(f"step {step}/{self._total}: {note}", file=sys.stderr)

    def message(self, text: str) -> None:
        """Prints a line that stays."""
        if self._enabled:
            self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def notice(self, text: str) -> None:
        """Prints a line on standard error, also where progress is not shown."""
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
