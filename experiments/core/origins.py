"""Where the examples of a run come from: one rule for the records of every paper."""

from collections.abc import Iterable, Sequence

from experiments.core.kinds import Record

NOT_RUN = "not run"
OFFICIAL = "official files"
BOOKS = "rebuilt from public-domain books by the published procedure"

_OWN = {
    "two_facts": "made by gatedjax",
    "polarity": "embedded in gatedjax",
    "digits": "embedded in scikit-learn",
}
"""Data sets that have no official files."""
_VECTORS = ("word vectors", "random word vectors")
"""How remarks begin that are about word vectors: the examples are what they are."""
# Before the reader of CBT's format knew rebuilt questions it only counted them, which called them a
# part of the official file. Nobody had the official ones where these records were made.
_EARLIER = {
    text: f"{BOOKS}: {text}"
    for text in (
        "41,191 questions where the official file has 108,719",
        "45,000 questions where the official file has 120,769",
    )
}


def joined(parts: Iterable[str | None]) -> str | None:
    """The remarks of several splits as one, each once; None without any.

    A remark that another one begins with says nothing more.
    """
    found = list(dict.fromkeys(part for part in parts if part))
    kept = [one for one in found if not any(o != one and o.startswith(one) for o in found)]
    return "; ".join(kept) or None


def substitute_of(record: Record) -> str | None:
    """What differs from the paper's data and word vectors, as the record should have it."""
    given = record.get("substitute")
    if given is None:
        return None
    return "; ".join(_EARLIER.get(part, part) for part in given.split("; "))


def _differences(record: Record) -> str | None:
    given = substitute_of(record) or ""
    return joined(part for part in given.split("; ") if not part.startswith(_VECTORS))


def origin_of(record: Record) -> str:
    """Where a record's examples come from; also of a record that is older than this question."""
    return _differences(record) or _OWN.get(record.get("data", ""), OFFICIAL)


def other_data(records: Iterable[Record]) -> bool:
    """Whether some of the records are of other data than the paper's."""
    return any(_differences(record) is not None for record in records)


def columns(records: Iterable[Record]) -> tuple[str, str]:
    """What tables call the paper's columns and ours; not of the same data, they say so."""
    return (
        ("paper, official data", "ours, other data") if other_data(records) else ("paper", "ours")
    )


def apart(cells: Sequence[str], kinds: Sequence[str], records: Iterable[Record]) -> list[list[str]]:
    """The rows of a system: one with the paper's numbers and ours, or one each on other data.

    Args:
      cells: of one row.
      kinds: of every cell: "paper", "ours", "data" for the name of the data set; anything else
        stands in both rows.
      records: of our runs.
    """
    quoted = any(cell != "-" for cell, kind in zip(cells, kinds, strict=True) if kind == "paper")
    if not quoted or not other_data(records):
        return [list(cells)]
    theirs, ours = list(cells), list(cells)
    for place, kind in enumerate(kinds):
        if kind == "data":
            ours[place] += ", other data"
        elif kind == "paper":
            ours[place] = "-"
        elif kind == "ours":
            theirs[place] = "-" if cells[place] == "-" else NOT_RUN
    return [theirs, ours]


def beside(
    name: str, quoted: Sequence[str], ours: Sequence[str], records: Iterable[Record]
) -> list[list[str]]:
    """`apart` of the name of a data set, the paper's cells and ours."""
    kinds = ["data", *("paper" for _ in quoted), *("ours" for _ in ours)]
    return apart([name, *quoted, *ours], kinds, records)
