"""The progress display of a run: a bar on a terminal, and a line per log elsewhere."""

import datetime
import sys
import time
from typing import TYPE_CHECKING, Any

from gatedjax._utils.terminal import new_console, say

if TYPE_CHECKING:
    from rich.progress import Progress

SHOWN = ("loss", "accuracy", "density")


def format_metrics(metrics: dict[str, Any]) -> str:
    """Returns the most important metrics as text, as "loss 0.5000, 12.0 steps/s, padding 3%"."""
    parts = [f"{name} {metrics[name]:.4f}" for name in SHOWN if metrics.get(name) is not None]
    for name, unit, digits in (("steps_per_s", "steps/s", 1), ("tokens_per_s", "tokens/s", 0)):
        if metrics.get(name):
            parts.append(f"{metrics[name]:,.{digits}f} {unit}")
    if metrics.get("padding") is not None:
        parts.append(f"padding {metrics['padding']:.0%}")
    return ", ".join(parts)


class ProgressView:
    """The progress display of a run."""

    def __init__(self, total: int, start: int, enabled: bool) -> None:
        self._enabled = enabled
        self._console = new_console(stderr=True)
        self._bar: Progress | None = None
        self._start = time.monotonic()
        self._first, self._total = start, total
        if enabled and self._console.is_terminal:
            # rich.progress is imported only for a terminal, because the import takes time.
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
        """Shows the name of the present phase on the bar."""
        if self._bar is not None:
            self._bar.update(self._task, description=name)

    def step(self, step: int) -> None:
        """Moves the bar to a step, the number of steps so far."""
        if self._bar is not None:
            seconds = self._seconds_left(step)
            clock = "" if seconds is None else str(datetime.timedelta(seconds=round(seconds)))
            self._bar.update(self._task, completed=step, left=clock)

    def once(self, seconds: float, steps: int = 0) -> None:
        """Excludes time that does not recur, such as compilation, from the estimate."""
        # Moving the start forward removes the time from the mean time of a step.
        self._start += seconds
        self._first += steps

    def _seconds_left(self, step: int) -> float | None:
        done = step - self._first
        if done < 1:
            return None
        return (time.monotonic() - self._start) / done * (self._total - step)

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Shows the metrics of the last interval, on the bar or as a line."""
        note = format_metrics(metrics)
        if self._bar is not None:
            self._bar.update(self._task, note=note)
        elif self._enabled:
            seconds = self._seconds_left(step)
            note += "" if seconds is None else f", {seconds:.0f} s left"
            say(f"step {step}/{self._total}: {note}", file=sys.stderr)

    def message(self, text: str) -> None:
        """Prints the line `text` above the bar, if the display is enabled."""
        if self._enabled:
            self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def notice(self, text: str) -> None:
        """Prints the line `text` on standard error, even if the display is not enabled."""
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.stop()
