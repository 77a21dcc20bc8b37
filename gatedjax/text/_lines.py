"""Text files that are read line by line; other files are refused, lines with bad bytes marked."""

import codecs
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from gatedjax._utils.limits import MOST_CHARACTERS as LONGEST
from gatedjax._utils.write import naming
from gatedjax.data.files._compressed import open_compressed
from gatedjax.text._table import fault

_BINARY = {
    b"\x89PNG": "an image (PNG)",
    b"\xff\xd8\xff": "an image (JPEG)",
    b"GIF8": "an image (GIF)",
    b"%PDF": "a PDF",
    b"PK\x03\x04": "a zip archive: its name must end with .zip, or .xlsx for a workbook",
    b"\x1f\x8b": "a file packed by gzip: its name must end with .gz",
    b"BZh91AY&SY": "a file packed by bzip2: its name must end with .bz2",
    b"\xfd7zXZ\x00": "a file packed by xz: its name must end with .xz",
    b"\x28\xb5\x2f\xfd": "a file packed by zstd: its name must end with .zst",
    b"ARROW1": "an Arrow file: its name must end with .arrow",
    b"PAR1": "a Parquet file: its name must end with .parquet",
    b"SQLite": "a database",
}
_WIDE = {  # UTF-32 comes first, because its mark begins with the mark of UTF-16.
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CONTROL = bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"})


def check_encoding(encoding: str) -> str:
    """Returns the name by which `open` skips a byte-order mark: "utf-8-sig" for "utf-8"."""
    try:
        codec = codecs.lookup(encoding)
        if not getattr(codec, "_is_text_encoding", True):
            raise LookupError
    except (LookupError, ValueError):
        message = f"encoding must be a text encoding of Python, such as 'utf-8', got {encoding!r}"
        raise ValueError(message) from None
    return "utf-8-sig" if codec.name == "utf-8" else codec.name


def limited_lines(text: TextIO) -> Iterator[str]:
    """Yields the lines of a text file with their ends; they are cut after `LONGEST` characters."""
    while line := text.readline(LONGEST):
        yield line
        # The rest of a line that is too long is skipped in pieces, so that the next line has the
        # correct number.
        remainder = line
        while remainder and len(remainder) == LONGEST and remainder[-1] not in "\r\n":
            remainder = text.readline(LONGEST)


def line_fault(line: str, encoding: str) -> str | None:
    """Returns the reason, a text, why a line of `limited_lines` cannot be used; None if it can."""
    if len(line) >= LONGEST:
        return f"longer than {LONGEST:,} characters"
    return fault(line, encoding)


def suggest_encoding(path: Path, encoding: str) -> str:
    """Returns the end of a message that names UTF-8 or cp1252 for undecodable bytes, or ""."""
    bad = decodable = 0
    # Values of a document are checked without the encoding of the file, see `read_label`.
    encoding = "utf-8" if encoding == "Unicode" else encoding
    try:
        codec = codecs.lookup(encoding).name
        # Quotes and accents in cp1252 are the usual bytes that are not UTF-8.
        fitting = [name for name in ("utf-8", "cp1252") if name != codec]
        file = TextFile(path, encoding)
        file.check()
        for _, line in file.lines():
            if line.isascii():
                continue
            escaped = "".join(c for c in line if "\udc80" <= c <= "\udcff")
            # A line with other characters shows that the encoding is correct for a part of the
            # file.
            if not escaped:
                decodable += 1
                continue
            bad += 1
            # UTF-8 is tested on the whole line, because its characters have several bytes. cp1252
            # decodes each byte separately, so the bad bytes suffice.
            raw = line.encode(codec, "surrogateescape")
            part = escaped.encode("ascii", "surrogateescape")
            fitting = [
                candidate
                for candidate in fitting
                if _fits(raw if candidate == "utf-8" else part, candidate)
            ]
    except (OSError, ValueError, LookupError):  # Data in memory or in Parquet have no encoding.
        return ""
    if not bad or not fitting:
        return ""
    name = fitting[0]
    mixed = f", but other lines have characters of {encoding}: the file mixes both" * bool(
        decodable
    )
    return f"; these bytes are characters of {name}: --encoding {name}{mixed}"


def _fits(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A text file, plain or compressed (.gz, .bz2, .xz, .zst, or .zip with a single file)."""

    path: Path
    encoding: str = "utf-8"

    @property
    def name(self) -> str:
        """The path of the file, as a string."""
        return str(self.path)

    def check(self) -> None:
        """Raises an error if there is no file, or if it is no text in this encoding."""
        codec = check_encoding(self.encoding)
        if not self.path.is_file():
            reason = "not a regular file" if self.path.exists() else "there is no such file"
            raise FileNotFoundError(f"{self.path}: {reason}")
        with open_compressed(self.path) as file:
            # The beginning suffices to recognise a file that is no text.
            start = file.read(1 << 13)
        if not start:
            raise ValueError(f"{self.path} must have a labelled text, got an empty file")
        wide = codec.startswith(("utf-16", "utf-32"))
        for magic, kind in _BINARY.items():
            if start.startswith(magic):
                raise ValueError(f"{self.path} must be a text file, got {kind}")
        for mark, name in _WIDE.items():
            if start.startswith(mark) and not wide:
                raise ValueError(
                    f"{self.path} must be {self.encoding}, got {name}: give --encoding {name}"
                )
        bad = len(start) - len(start.translate(None, _CONTROL))
        if bad > 8 and bad * 20 > len(start) and not wide:  # A text may have a few by mistake.
            hint = (
                "; for UTF-16 give --encoding utf-16-le or utf-16-be"
                if start.count(0) * 5 > len(start)
                else ""
            )
            raise ValueError(
                f"{self.path} must be a text file, got {bad:,} control characters in its first "
                f"{len(start):,} bytes{hint}"
            )

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yields the number from 1 and the text of each line, with its end. A byte that cannot be
        decoded becomes the surrogate U+DC00 + byte, for which `fault` returns a reason. Bytes below
        128 have no surrogate, and raise ValueError if UTF-16 or UTF-32 cannot decode them.
        """
        codec, number = check_encoding(self.encoding), 0
        try:
            with (
                naming(self.path),
                open_compressed(self.path) as file,
                # `newline` keeps the ends of the lines, because a field in quotes may have several
                # lines.
                io.TextIOWrapper(file, codec, errors="surrogateescape", newline="") as text,
            ):
                for line in limited_lines(text):
                    number += 1
                    yield number, line
        except UnicodeError as error:
            message = (
                f"{self.path} must be {self.encoding}, got other bytes in line {number + 1} or a "
                f"later line: {error}"
            )
            raise ValueError(message) from None

    def fault(self, line: str) -> str | None:
        """Returns the reason, a text, why a line of `lines` cannot be used; None if it can."""
        return line_fault(line, self.encoding)
