"""Labelled texts in a workbook's first sheet with cells, which openpyxl reads row by row."""

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from gatedjax._utils.missing import missing
from gatedjax.data.files._unpack import allowance, too_large
from gatedjax.text.sources._csv import open_grid
from gatedjax.text.sources._table import Source

ENDS = (".xlsx", ".xlsm")


def open_workbook(path: Path, header: tuple[str, ...] | None) -> Source:
    """Opens a workbook; `header` has the names of a sheet without a header."""
    name = next((sheet for sheet, _, row in _cells(path) if row), str(path))
    return open_grid(name, lambda: ((number, row) for _, number, row in _cells(path)), header)


def _cells(path: Path) -> Iterator[tuple[str, int, tuple[object, ...]]]:
    """Yields the name of the sheet, and the number and the cells of each row from the first with a
    value; an empty row has none. A damaged file raises errors of many types in openpyxl, also while
    rows are read.
    """
    try:
        import openpyxl
    except ImportError:
        raise ValueError(missing(f"{path} needs", "openpyxl")) from None
    try:
        # The sizes bound the memory, because zipfile unpacks no more than the sizes it lists.
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > allowance(path):
            raise too_large(path, allowance(path))
        # With `data_only` a formula has the value that was stored with the workbook.
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        with contextlib.closing(book):
            for sheet in book.worksheets:
                name = f"{path} [{sheet.title}]" if len(book.worksheets) > 1 else str(path)
                width = 0
                for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
                    is_filled = any(value is not None and str(value).strip() for value in row)
                    width = width or len(row) * is_filled
                    if width:
                        # Empty cells at the end of a row are not stored.
                        cells = (*row, *[None] * (width - len(row)))[:width]
                        yield name, number, cells if is_filled else ()
                if width:
                    return
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise ValueError(
            f"{path} must be a workbook that openpyxl can read, got a damaged file or another "
            f"format: {error}"
        ) from error
