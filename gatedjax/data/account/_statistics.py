"""The overlap of two sources."""

from gatedjax.data.files._source import Source


def overlap(a: Source, b: Source) -> int:
    """Counts the texts of a source that also occur in another, such as the training split.

    Texts are the same if their lower-cased tokens are.

        >>> from gatedjax.data import load
        >>> overlap(load("polarity", "train"), load("polarity", "test"))
        0

    Args:
      a: the source to search, such as the training split.
      b: the source whose texts are counted.

    Returns:
      The number of examples of `b` with the text of an example of `a`.
    """
    seen = {" ".join(example["tokens"]).lower() for example in a}
    return sum(" ".join(example["tokens"]).lower() in seen for example in b)
