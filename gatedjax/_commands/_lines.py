"""Lines of standard input, lines of JSON, and predictions for people in a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gatedjax._utils.json import to_json
from gatedjax._utils.terminal import printable, render_count, say, wrap
from gatedjax._utils.types import Json
from gatedjax._utils.write import open_atomic

Write = Callable[[Any], object]
Line = tuple[Sequence[str] | None, str]
"""The texts of a line and "", or None and the reason why the line cannot be used."""
STANDARD_INPUT = "-"
"""The word that stands for standard input in place of texts or of a file."""


def read_piped(encoding: str) -> Iterator[Line]:
    """Yields ([text], "") for each line of standard input, or (None, reason)."""
    from gatedjax.text.sources._lines import check_encoding, read_lines

    codec = check_encoding(encoding)
    # A line with bytes in another encoding gets an error, and the remaining lines are read.
    sys.stdin.reconfigure(encoding=codec, errors="surrogateescape")  # type: ignore[union-attr]
    for line, problem in read_lines(sys.stdin, encoding):
        yield ([line.rstrip("\r\n")], "") if problem is None else (None, problem)


def json_line(value: Any, encoding: str = "utf-8") -> str:
    """Returns a line of JSON, with escapes for the characters that a terminal cannot show."""
    text = to_json(value, ensure_ascii=False)
    # JSON allows some characters that a terminal obeys, such as U+009B.
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _escape(c) for c in text)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(c if c.isascii() else _escape(c) for c in text)
    return text


def say_json(value: Any, *, flush: bool = True) -> None:
    """Prints a value as a line of JSON, in the encoding of standard output."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    say(json_line(value, encoding), flush=flush)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def in_turns(texts: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Splits the texts of a command line into tuples of `count` texts each, in their order."""
    if len(texts) % count:
        raise ValueError(
            f"TEXT must be premise and hypothesis in turns, got {render_count(len(texts), 'text')}"
        )
    return [tuple(texts[i : i + count]) for i in range(0, len(texts), count)]


@contextlib.contextmanager
def lines_to(path: Path | None) -> Iterator[Write]:
    """Yields a function that writes a value as a line of JSON."""
    if path is None:
        # A pipe is flushed when its buffer is full, because a flush for each line takes longer than
        # the line; a user at a terminal waits for each line.
        yield lambda value: say_json(value, flush=sys.stdout.isatty())
        return
    with open_atomic(path) as file:
        yield lambda value: file.write(f"{json_line(value)}\n".encode())


def show(title: str | None, line: Json) -> None:
    """Prints a prediction, given as its JSON, as a block that is no wider than the terminal."""
    titles = [] if title is None else [" ".join(title.split())]
    lines = [*titles, *(f"  {part}" for part in _render(line))]
    # Escapes are wider than the characters for which they stand.
    say(wrap(printable("\n".join(lines))), end="\n\n")


def _render(line: Json) -> Iterator[str]:
    """Yields the prediction and the remarks of a line of JSON."""
    if "error" in line:
        yield f"error: {line['error']}"
    elif "tags" in line:
        yield " ".join(f"{w}/{tag}" for w, tag in zip(line["words"], line["tags"], strict=True))
    elif "labels" in line:
        pairs = zip(line["labels"], line["probabilities"], strict=True)
        yield ", ".join(f"{label} {probability:.2f}" for label, probability in pairs) or "no label"
    elif "value" in line:
        yield f"{line['value']:.6g}"
    elif line["label"] is None:
        yield "no label"
    else:
        yield f"{line['label']} {line['probability']:.2f}"
    if "read" in line:
        yield f"read {line['share']:.0%} of the words: {_join(line['read']) or 'none'}"
    for name in ("unknown", "note"):
        if line.get(name):
            yield f"{name}: {_join(line[name])}"


def _join(words: Any) -> str:
    """Returns words, with a list of words for each text of a pair, or a note, as a text."""
    if isinstance(words, str):
        return words
    parts = words if words and isinstance(words[0], list) else [words]
    return " | ".join(", ".join(part) for part in parts)
