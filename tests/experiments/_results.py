"""What the tests of every paper's RESULTS.md share."""

import math


def rows_of(text, heading):
    """The cells of every line of the table under a heading."""
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def binomial_two_sided(b, c):
    """The exact McNemar p-value, by its definition."""
    tail = sum(math.comb(b + c, k) for k in range(min(b, c) + 1)) / 2 ** (b + c)
    return min(1.0, 2 * tail)
