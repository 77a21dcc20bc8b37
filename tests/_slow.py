"""Cases of parametrised tests of which only some run without the slow tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """The cases in their order, all but the fast ones marked as slow.

    Args:
      cases: what `parametrize` takes.
      fast: cases, or the first values of those that are tuples.
    """
    named = [
        (case, (case, case[0])) if isinstance(case, tuple) else ((case,), (case,)) for case in cases
    ]
    for one in fast:
        assert any(one in names for _, names in named), f"no case is {one!r}"
    return [
        pytest.param(*values, marks=() if any(n in fast for n in names) else pytest.mark.slow)
        for values, names in named
    ]
