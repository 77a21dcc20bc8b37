"""The overlap of two sources."""

from gatedjax.data.files._source import Source


def overlap(a: Source, b: Source) -> int:
    """Returns the number of examples of `b` whose text (lower-cased tokens) also occurs in `a`."""
    seen = {" ".join(example["tokens"]).lower() for example in a}
    return sum(" ".join(example["tokens"]).lower() in seen for example in b)
