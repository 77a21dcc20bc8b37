"""Text files that are read line by line; other files are refused, lines with bad bytes marked."""

import codecs
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from gatedjax._utils.limits import MOST_CHARACTERS as LONGEST
from gatedjax._utils.write import naming
from gatedjax.data.files._unpack import open_compressed

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


def fault(text: str, encoding: str = "Unicode") -> str | None:
    """Returns a text with the reason why a text cannot be used, or None if it can."""
    if "\0" in text:
        return "NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            if 0xDC80 <= code <= 0xDCFF:
                return f"not {encoding}: byte 0x{code - 0xDC00:02x}"
            return f"half of a surrogate pair: U+{code:04X}"
    return None


def read_lines(text: TextIO, encoding: str) -> Iterator[tuple[str, str | None]]:
    """Yields each line, cut after `LONGEST` characters, and why it cannot be used, or None."""
    while line := text.readline(LONGEST):
        is_long = len(line) >= LONGEST
        yield line, f"longer than {LONGEST:,} characters" if is_long else fault(line, encoding)
        # The rest of a line that is too long is skipped in pieces, so that the next line has the
        # correct number.
        while is_long and len(line) == LONGEST and line[-1] not in "\r\n":
            line = text.readline(LONGEST)


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A text file, plain or compressed (.gz, .bz2, .xz, .zst, or .zip with a single file)."""

    path: Path
    encoding: str = "utf-8"

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
        for magic, kind in _BINARY.items():
            if start.startswith(magic):
                raise ValueError(f"{self.path} must be a text file, got {kind}")
        if codec.startswith(("utf-16", "utf-32")):
            return
        for mark, name in _WIDE.items():
            if start.startswith(mark):
                raise ValueError(
                    f"{self.path} must be {self.encoding}, got {name}: give --encoding {name}"
                )
        bad = len(start) - len(start.translate(None, _CONTROL))
        if bad > 8 and bad * 20 > len(start):  # A text may have a few by mistake.
            is_wide = start.count(0) * 5 > len(start)
            hint = "; for UTF-16 give --encoding utf-16-le or utf-16-be" * is_wide
            raise ValueError(
                f"{self.path} must be a text file, got {bad:,} control characters in its first "
                f"{len(start):,} bytes{hint}"
            )

    def lines(self) -> Iterator[tuple[int, str, str | None]]:
        """Yields the number from 1 and the text of each line, with its end, and the reason why it
        cannot be used, or None. A byte that cannot be decoded becomes the surrogate U+DC00 + byte;
        bytes below 128 have none, and raise ValueError if UTF-16 or UTF-32 cannot decode them.
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
                for line, problem in read_lines(text, self.encoding):
                    number += 1
                    yield number, line, problem
        except UnicodeError as error:
            raise ValueError(
                f"{self.path} must be {self.encoding}, got other bytes in line {number + 1} or a "
                f"later line: {error}"
            ) from None


def suggest_encoding(path: Path, encoding: str) -> str:
    """Returns the end of a message that names UTF-8 or cp1252 for undecodable bytes, or ""."""
    # Values of a document are checked without the encoding of the file, see `read_label`.
    encoding = "utf-8" if encoding == "Unicode" else encoding
    # Quotes and accents in cp1252 are the usual bytes that are not UTF-8.
    names, is_bad, mixed = ["utf-8", "cp1252"], False, ""
    file = TextFile(path, encoding)
    try:
        file.check()
        for _, line, problem in file.lines():
            if problem is not None and problem.startswith("not "):
                is_bad, data = True, line.encode(encoding, "surrogateescape")
                names = [n for n in names if not fault(data.decode(n, "surrogateescape"))]
            elif not line.isascii():
                mixed = f", but other lines have characters of {encoding}: the file mixes both"
    except (OSError, ValueError):  # Data in memory or in Parquet have no encoding.
        return ""
    if not is_bad or not names:
        return ""
    return f"; these bytes are characters of {names[0]}: --encoding {names[0]}{mixed}"
