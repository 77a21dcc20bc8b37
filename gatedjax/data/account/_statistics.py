"""The overlap of two sources."""

from gatedjax.data.files._source import Source


def overlap(a: Source, b: Source) -> int:
    """Counts the examples of `b` whose text (lower-cased words) also occurs in `a`."""
    seen = {" ".join(example["tokens"]).lower() for example in a}
    return sum(" ".join(example["tokens"]).lower() in seen for example in b)
