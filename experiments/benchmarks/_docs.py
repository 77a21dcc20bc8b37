"""Tables that a command writes into the documentation, between two marks."""

from pathlib import Path


def marks(command: str) -> tuple[str, str]:
    """The lines before and after what `command` writes."""
    begin, end = (f"<!-- {which}: written by `{command}` -->" for which in ("begin", "end"))
    return begin, end


def replace_section(path: Path, command: str, section: str) -> None:
    """Replaces what is between the marks of a command in a Markdown file.

    Raises:
      ValueError: if the file does not have both marks once, in order.
    """
    begin, end = marks(command)
    text = path.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"docs must have the lines {begin!r} and {end!r} once, got {path}")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    path.write_text(f"{before}{begin}\n\n{section}\n\n{end}{after}", encoding="utf-8")


def markdown_table(heads: tuple[str, ...], lines: list[list[str]], texts: int = 1) -> list[str]:
    """Rows of a table whose first `texts` columns are left-aligned."""
    rule = ["---"] * texts + ["---:"] * (len(heads) - texts)
    return ["| " + " | ".join(line) + " |" for line in [list(heads), rule, *lines]]
