"""The speed of this machine: limits of time are multiples of it, so that a slow one passes too."""

import time


def seconds_of_python(passes: int) -> float:
    """Return the processor time of a plain loop of `passes`; 0.08 to 0.25 s for a million."""
    began, total = time.process_time(), 0
    for number in range(passes):
        total += number * number % 7
    return time.process_time() - began
