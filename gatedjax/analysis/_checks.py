"""Checks of numbers in arrays; the message has the first number that is refused."""

import numpy as np


def check_numbers(
    name: str, values: np.ndarray, low: float = -np.inf, high: float = np.inf, where: str = ""
) -> None:
    """Raises ValueError unless all values are finite and in [low, high]; `where` completes the
    message, such as " at real words".
    """
    good = np.isfinite(values) & (values >= low) & (values <= high)
    if not np.all(good):
        condition = "finite" if low == -np.inf else f"finite and at least {low:g}"
        condition = f"in [{low:g}, {high:g}]" if high < np.inf else condition
        raise ValueError(f"{name} must be {condition}{where}, got {values[~good][0]}")
