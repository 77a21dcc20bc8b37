"""Lines that cannot be used: they are counted and shown; a source with too many is refused."""

import collections
import math
import re
from pathlib import Path

from gatedjax.text._lines import suggest_encoding
from gatedjax.text._table import WITHOUT_DATA, Aside

MAX_ASIDE = 0.01
"""Default of `max_aside`: the largest share of the lines that may be set aside."""
_BYTE = re.compile(r"not (\S+): byte 0x")
# Lines, files and different reasons have limits, so that a source with a million bad lines needs no
# more memory than a source with a few.
_KEPT, _SHOWN, _FILES, _REASONS = 5, 3, 3, 100


def check_share(max_aside: float) -> None:
    """Raises ValueError unless `max_aside`, a greatest share of lines, is a number in [0, 1]."""
    if not 0 <= max_aside <= 1:
        raise ValueError(f"max_aside must be in [0, 1], got {max_aside}")


class Asides:
    """A counter of the lines (or other records) of a source that are set aside, by the reason."""

    def __init__(self, name: str, unit: str = "lines") -> None:
        self._name, self._unit = name, unit
        self.count = self._lost = 0
        self.first: list[Aside] = []
        self.reasons: collections.Counter[str] = collections.Counter()
        self._first_lost: list[Aside] = []
        self._encodings: dict[str, str] = {}

    def add(self, aside: Aside) -> None:
        """Counts a line that is set aside, and stores it in `first` if it is among the first."""
        self.count += 1
        known = aside.reason in self.reasons or len(self.reasons) < _REASONS
        self.reasons[aside.reason if known else "other reasons"] += 1
        if len(self.first) < _KEPT:
            self.first.append(aside)
        if aside.reason in WITHOUT_DATA:
            return
        self._lost += 1
        if len(self._first_lost) < _SHOWN:
            self._first_lost.append(aside)
        # The search for an encoding reads a file again, so it is limited to a few files.
        if len(self._encodings) < _FILES and (match := _BYTE.match(aside.reason)):
            self._encodings[aside.where] = match.group(1)

    def check(self, used: int, max_aside: float) -> None:
        """Raises ValueError if the share of unusable records, without empty lines and repeated
        headers, is too large.
        """
        total = self._lost + used
        if not self._lost or self._lost / total <= max_aside:
            return
        reasons = "; ".join(map(str, self._first_lost))
        # The share is rounded up, so that the value that the message suggests suffices.
        share = math.ceil(100 * self._lost / total) / 100
        raise ValueError(
            f"{self._name}: {self._lost:,} of {total:,} {self._unit} cannot be used "
            f"({self._lost / total:.1%}, must be at most {max_aside:.1%}): {reasons}"
            f"{self._hint()}; max_aside={share:.2f} leaves them out"
        )

    def make_empty_error(self, record: str) -> ValueError:
        """Returns the error for a source without a `record`, such as "a labelled text"."""
        if not self.first:
            return ValueError(f"{self._name} must have {record}, got none")
        return ValueError(
            f"{self._name} must have {record}, got none: {self.count:,} {self._unit} cannot be "
            f"used, the first is {self.first[0]}{self._hint()}"
        )

    def _hint(self) -> str:
        # Files with different encodings get no hint, because the option holds for all files.
        hints = {suggest_encoding(Path(where), name) for where, name in self._encodings.items()}
        return hints.pop() if len(hints) == 1 else ""
