"""Spans from BIO labels."""

from collections.abc import Sequence


def chunks(labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """Finds the spans (first word, word after the last, class) that BIO labels mark, in order. An
    "I-X" that does not follow a "B-X" or "I-X" of the same class X begins a new span.

        >>> chunks(["B-A", "I-A", "O", "I-B"])
        [(0, 2, 'A'), (3, 4, 'B')]
    """
    spans: list[tuple[int, int, str]] = []
    current, first = None, 0
    # The additional "O" closes a span that reaches the end of the sentence.
    for place, label in enumerate([*labels, "O"]):
        if label != "O" and label[:2] not in ("B-", "I-"):
            raise ValueError(f"labels must be 'O', 'B-X' or 'I-X', got {label!r}")
        role = None if label == "O" else label[2:]
        if current is not None and (role != current or label.startswith("B-")):
            spans.append((first, place, current))
            current = None
        if role is not None and current is None:
            current, first = role, place
    return spans
