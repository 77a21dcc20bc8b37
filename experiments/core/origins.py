"""The origin of the examples of a run, by the same rule for the records of all papers."""

from collections.abc import Iterable, Sequence

from experiments.core.kinds import Record

NOT_RUN = "not run"
OFFICIAL = "official files"

_OWN = {
    "two_facts": "made by gatedjax",
    "polarity": "embedded in gatedjax",
    "digits": "embedded in scikit-learn",
}
"""The origins of data sets that have no official files."""
_VECTORS = ("word vectors", "random word vectors")
"""The beginnings of remarks about word vectors, which do not change the origin of the examples."""
_LONG = ("imdb",)
"""The data sets with texts so long that a limit of their length leaves words unread."""


def join_remarks(parts: Iterable[str | None]) -> str | None:
    """Joins the remarks of several splits by "; ", each once; None without a remark. A remark is
    left out if another remark begins with it."""
    remarks = list(dict.fromkeys(part for part in parts if part))
    longest = [
        remark
        for remark in remarks
        if not any(o != remark and o.startswith(remark) for o in remarks)
    ]
    return "; ".join(longest) or None


def remarks_of(record: Record) -> list[str]:
    """Returns the differences from the paper's data and word vectors."""
    return (record.get("substitute") or "").split("; ")


def _differences(record: Record) -> str | None:
    """Returns the differences from the paper's data, not of the word vectors; or None."""
    return join_remarks(part for part in remarks_of(record) if not part.startswith(_VECTORS))


def origin_of(record: Record) -> str:
    """Returns the origin of the examples of a record, also for records without remarks."""
    return _differences(record) or _OWN.get(record.get("data", ""), OFFICIAL)


def other_data(records: Iterable[Record]) -> bool:
    """Returns True if a record has other data than the paper."""
    return any(_differences(record) is not None for record in records)


def marks_of(records: Sequence[Record]) -> tuple[str, ...]:
    """Returns short marks for cut texts and other word vectors, which may carry a result. All
    records of a row have the same settings, so the first has the marks of the row."""
    if not records:
        return ()
    marks = [
        # The name of a file is too long for a mark; the section on the data has it.
        part.split(" where ")[0] if " of width" in part[:22] else "other word vectors"
        for part in remarks_of(records[0])
        if part.startswith(_VECTORS)
    ]
    data = records[0]["config"].get("data", {})
    if data.get("name") in _LONG and data.get("max_len") is not None:
        marks.insert(0, f"texts cut at {data['max_len']} words")
    return tuple(marks)


def columns(records: Iterable[Record]) -> tuple[str, str]:
    """Returns the headings of the paper's columns and of ours. If a record has other data than the
    paper, the headings name this difference."""
    return (
        ("paper, official data", "ours, other data") if other_data(records) else ("paper", "ours")
    )


def split_row(
    cells: Sequence[str], kinds: Sequence[str], records: Iterable[Record]
) -> list[list[str]]:
    """Returns the rows of a system: a single row, or a row for the paper and a row for other data.
    `kinds` has the kind of each cell: "paper", "ours", or "data" for the name of the data set; a
    cell of any other kind stands in both rows."""
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
    """Returns the rows with the name of a data set, the paper's cells and ours, see `split_row`."""
    kinds = ["data", *("paper" for _ in quoted), *("ours" for _ in ours)]
    return split_row([name, *quoted, *ours], kinds, records)
