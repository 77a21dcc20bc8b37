"""The overlap of two sources."""

from gatedjax.data.files._source import Source


def overlap(a: Source, b: Source) -> int:
    """Returns the number of examples of source `b` with the text of an example of source `a`.

    Texts are the same if their lower-cased tokens are.

        >>> from gatedjax.data import load
        >>> overlap(load("polarity", "train"), load("polarity", "test"))
        0
    """
    seen = {" ".join(example["tokens"]).lower() for example in a}
    return sum(" ".join(example["tokens"]).lower() in seen for example in b)
