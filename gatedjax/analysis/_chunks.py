"""Spans out of BIO labels."""

from collections.abc import Sequence


def chunks(labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """The spans that BIO labels stand for, in order.

    An I- that does not go on the span before it begins one of its own.

    Args:
      labels: "O", "B-X" and "I-X".

    Raises:
      ValueError: for any other label.
    """
    spans: list[tuple[int, int, str]] = []
    current, first = None, 0
    for place, label in enumerate([*labels, "O"]):
        if label != "O" and label[:2] not in ("B-", "I-"):
            raise ValueError(f"labels must be O, B-X or I-X, got {label!r}")
        role = None if label == "O" else label[2:]
        if current is not None and (role != current or label.startswith("B-")):
            spans.append((first, place, current))
            current = None
        if role is not None and current is None:
            current, first = role, place
    return spans
