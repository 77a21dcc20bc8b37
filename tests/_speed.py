"""The speed of this machine: limits of time are multiples of it, so that a slow one passes too."""

import time


def seconds_of_python(passes: int) -> float:
    """Returns the processor time of a plain loop: 0.08 s a million passes on a fast machine."""
    began, total = time.process_time(), 0
    for number in range(passes):
        total += number * number % 7
    return time.process_time() - began
