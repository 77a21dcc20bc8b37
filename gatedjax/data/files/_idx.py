"""The idx format of MNIST's files: a magic number, the sizes, then the bytes."""

import struct

import numpy as np

from gatedjax.data.files._paths import AnyPath, read_bytes

_IMAGES, _LABELS = 0x0803, 0x0801


def _read_idx(path: AnyPath, magic: int, content: str) -> np.ndarray:
    """Reads an IDX file and returns its bytes as a uint8 array with the shape in its header."""
    data = read_bytes(path)
    if not data:
        raise ValueError(f"{path}: the file is empty; it must be an idx file of {content}")
    axes = magic & 0xFF
    header = 4 * (1 + axes)
    # A file of fewer than four bytes is padded, so that the comparison below refuses it by name.
    (start,) = struct.unpack(">I", data[:4].ljust(4, b"\0"))
    if start != magic:
        raise ValueError(
            f"{path}: an idx file of {content} must begin with 0x{magic:08x}, got 0x{start:08x}"
        )
    if len(data) < header:
        raise ValueError(
            f"{path}: an idx file must have a header of {header} bytes, got {len(data)}"
        )
    shape = struct.unpack(f">{axes}I", data[4:header])
    # The product of Python integers cannot overflow, whatever sizes a damaged header states.
    expected = header + int(np.prod(shape, dtype=object))
    if len(data) != expected:
        fault = "truncated idx file" if len(data) < expected else "bytes after the end of the data"
        raise ValueError(
            f"{path}: {fault}: it must have {expected:,} bytes, as its header states, got "
            f"{len(data):,}"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def count(path: AnyPath) -> int:
    """Returns the number of images or labels in the header of an IDX file; reads no items."""
    return int.from_bytes(read_bytes(path)[4:8], "big")


def read_images(path: AnyPath) -> np.ndarray:
    """Reads an IDX file of images and returns them, uint8 [n, rows, columns]."""
    return _read_idx(path, _IMAGES, "images")


def read_labels(path: AnyPath) -> np.ndarray:
    """Reads an IDX file of labels and returns them, uint8 [n]."""
    return _read_idx(path, _LABELS, "labels")
