"""Tables of bad input: calls that must be refused, and what the message must name.

A table maps what is called to rows (call, parts) or (call, parts, error); without an error it is
ValueError. The parts, between bars, are the names and numbers that a reader of the message needs:
the argument, what was wanted, what came. The other words of a message are free.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

Row = tuple[Callable[..., Any], str] | tuple[Callable[..., Any], str, type[Exception]]


def refused(call: Callable[[], Any], parts: str, error: type[Exception] = ValueError) -> str:
    """Checks that a call raises an error whose message has every part as a whole word.

    Returns:
      The message.
    """
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    for part in parts.split("|"):
        found = re.search(rf"(?<!\w){re.escape(part)}(?!\w)", message)
        assert found, f"{part!r} is not in the message {message!r}"
    return message


def each_row(table: Mapping[str, Sequence[Row]]) -> pytest.MarkDecorator:
    """Parametrizes a test over the rows of a table; the id of a row is its key and its parts."""
    rows = [
        pytest.param(call, parts, *(error or [ValueError]), id=f"{key}: {parts}")
        for key, those in table.items()
        for call, parts, *error in those
    ]
    return pytest.mark.parametrize(("call", "parts", "error"), rows)
