"""Parameters in a `safetensors` file, whose header is checked before arrays are read."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax._utils.types import Tree
from gatedjax._utils.write import write_atomic
from gatedjax.export._names import Leaf, check_same, host_arrays, name_fault, unflatten
from gatedjax.export._structure import (
    check_kinds,
    put_like,
    put_together,
    read_kinds,
    take_apart,
    written,
)

# The limit of the format; a header of this length describes a million arrays.
HEADER_LIMIT = 100_000_000
MAX_RANK = 64

_DTYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
# NumPy knows bfloat16 only if ml_dtypes is imported, so its size is written here.
_BYTES = {
    name: 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize for name, dtype in _DTYPES.items()
}


class BadFile(ValueError):
    """Raised for a file that is damaged or has another format."""


def save_params(path: str | Path, params: Tree) -> Path:
    """Writes parameters to a `safetensors` file, atomically.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "params.safetensors")
        >>> _ = save_params(path, {"layer": {"kernel": np.ones((2, 3))}})
        >>> load_params(path)["layer"]["kernel"].shape
        (2, 3)

    Args:
      path: the file; an existing file is replaced.
      params: a tree of arrays and Python numbers, in dicts with string keys, lists, tuples, named
        tuples, dataclasses and other pytrees; nodes may be None or empty. Names in the file are
        dotted ("backbone.kernel", "layers.0.kernel"); its metadata describe the containers.

    Returns:
      The path.

    Raises:
      TypeError: for a leaf that is neither an array nor a number, a key that is not a string, or a
        dtype that the format does not support, such as PRNG keys; the message names it.
      ValueError: if a name cannot be restored, or there are no arrays.
    """
    from safetensors.numpy import save

    path = Path(path)
    leaves, kinds = take_apart(params)
    flat = host_arrays(leaves)
    for name, value in flat.items():
        if value.dtype.name not in _DTYPES.values():
            raise TypeError(
                f"params[{name!r}] must have a dtype that files can hold ("
                f"{', '.join(_DTYPES.values())}), got {value.dtype}"
            )
    write_atomic(path, save(flat, metadata={"format": "flax"} | written(kinds)))
    return path


def load_params(path: str | Path, like: Tree = None) -> Tree:
    """Reads parameters from a `safetensors` file.

    Args:
      path: the .safetensors file, for example that of `save_params`.
      like: parameters, or their `jax.eval_shape`, with the names, shapes and dtypes that the file
        must have; they are compared before an array is read. None accepts all names, shapes and
        dtypes.

    Returns:
      NumPy arrays in the containers of `like`, or without it in the dicts, lists and tuples that
      were saved. Other mappings become dicts.

    Raises:
      FileNotFoundError: if the file does not exist.
      BadFile: if the file is damaged, or is not a `safetensors` file.
      ParamsMismatch: if the file differs from like.
      ValueError: without like, for a file with a named tuple, a dataclass or another class, because
        files may not choose classes.
    """
    expected = None if like is None else take_apart(like, "like")[0]
    path = Path(path)
    header, metadata = _read_header(path)
    try:
        # Names that contradict each other are refused before arrays are read.
        unflatten(header)
        kinds = read_kinds(metadata)
    except ValueError as error:
        raise BadFile(f"{path}: {error}") from None
    if expected is not None:
        stated = {name: Leaf(str(x.dtype), tuple(x.shape)) for name, x in expected.items()}
        check_same(header, stated, str(path))
        return put_like(like, _load_arrays(path), "like")
    check_kinds(kinds, str(path))
    arrays = _load_arrays(path)
    try:
        return put_together(arrays, kinds)
    except ValueError as error:
        raise BadFile(f"{path} is damaged: {error}") from None


def check_finite(params: Tree, where: str | Path) -> None:
    """Raises BadFile, with its dotted name, for the first parameter that is not finite."""
    for name, value in take_apart(params)[0].items():
        array = np.asarray(value)
        if array.dtype.kind not in "biu" and not np.isfinite(array).all():
            count = array.size - np.count_nonzero(np.isfinite(array))
            raise BadFile(
                f"{where}: the parameter {name!r} must be finite, got {count:,} of {array.size:,} "
                "numbers that are NaN or infinite: train the model again, or take an older copy"
            )


def check_outputs(outputs: Iterable[np.ndarray], params: Tree) -> None:
    """Raises ValueError if outputs of a model are not finite, and names its largest parameter.

    Finite parameters can be so large that the numbers computed from them overflow.

    Args:
      outputs: arrays such as the probabilities and the gates of texts.
      params: the parameters of the model, a tree of arrays.
    """
    if all(np.isfinite(array).all() for array in outputs):
        return
    leaves = {name: np.asarray(value) for name, value in take_apart(params)[0].items()}
    sizes = {
        name: float(np.abs(array).max(initial=0))
        for name, array in leaves.items()
        if array.dtype.kind not in "biu"
    }
    name = max(sizes, key=sizes.__getitem__)
    raise ValueError(
        f"the outputs of the model must be finite, got NaN or infinity for a text: computing with "
        f"its parameters overflows, of which {name!r} has the largest number, {sizes[name]:.3g}: "
        "train the model again, or take an older copy"
    )


def load_flat(path: str | Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a `safetensors` file of any library, by their names in the file."""
    read_header(Path(path))
    return _load_arrays(Path(path))


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise BadFile(f"{path} is damaged: {error}") from error


def read_header(path: Path) -> dict[str, Leaf]:
    """Returns the dtype and shape of each array in a `safetensors` file."""
    return _read_header(path)[0]


def _read_header(path: Path) -> tuple[dict[str, Leaf], dict[str, Tree]]:
    """Returns (leaves, metadata) of a `safetensors` file, the leaves checked against its bytes."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        # Eight bytes are the length of the header, and the ninth is its first character.
        start = file.read(9)
        length = int.from_bytes(start[:8], "little")
        fault = None
        if size < 10:
            fault = f"it must have at least 10 bytes, got {size}"
        elif length > HEADER_LIMIT:
            fault = f"its header must have at most {HEADER_LIMIT} bytes, got {length}"
        # The length is checked before the header is read, because a forged length would fill the
        # memory.
        elif length > size - 8:
            fault = f"its header must fit into its {size} bytes, got a length of {length}"
        elif start[8:9] != b"{":
            fault = f"its header must start with '{{', got {start[8:9]!r}"
        if fault:
            raise BadFile(f"{path} is not a safetensors file: {fault}{_other_format(start)}")
        file.seek(8)
        text = file.read(length)
    try:
        entries = json.loads(text, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is damaged: its header must be JSON ({error})") from None
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise BadFile(f"{path} is damaged: __metadata__ must be an object, got {_short(metadata)}")
    try:
        return _check_entries(entries, size - 8 - length), metadata
    except ValueError as error:
        raise BadFile(f"{path} is damaged: {error}") from None


def _other_format(start: bytes) -> str:
    if start[:4] == b"PK\x03\x04" or start[:1] == b"\x80":
        return ". It looks like a pickle (torch.save), which is never loaded: it can run any code"
    return ""


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Tree]:
    entries: dict[str, Tree] = {}
    for name, value in pairs:
        if name in entries:
            raise ValueError(f"the name {_short(name)} must occur once, got it again")
        entries[name] = value
    return entries


def _short(value: Tree) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _natural(value: Tree) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _check_entries(entries: Mapping[str, Tree], data_size: int) -> dict[str, Leaf]:
    """Returns the leaves of a header; the arrays must cover the data without gaps."""
    leaves_of: dict[str, Leaf] = {}
    places = []
    for name, entry in entries.items():
        short_name = _short(name)
        if fault := name_fault(name):
            raise ValueError(f"its arrays must not have the name {short_name}, which {fault}")
        fields = ("dtype", "shape", "data_offsets")
        if not isinstance(entry, dict) or set(entry) != set(fields):
            raise ValueError(
                f"{short_name} must have the fields {', '.join(fields)}, got {_short(entry)}"
            )
        dtype, shape, offsets = (entry[field] for field in fields)
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            names = ", ".join(_DTYPES)
            raise ValueError(f"{short_name} must have a dtype of {names}, got {_short(dtype)}")
        if not isinstance(shape, list) or not all(map(_natural, shape)):
            raise ValueError(f"{short_name} must have a shape of sizes, got {_short(shape)}")
        if len(shape) > MAX_RANK:
            raise ValueError(f"{short_name} must have at most {MAX_RANK} axes, got {len(shape)}")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_natural, offsets)):
            raise ValueError(f"{short_name} must have two data_offsets, got {_short(offsets)}")
        wanted_size = math.prod(shape) * _BYTES[dtype]
        if offsets[1] - offsets[0] != wanted_size:
            raise ValueError(
                f"{short_name} must have {wanted_size} bytes for {dtype}{shape}, got the "
                f"data_offsets {offsets}"
            )
        places.append((*offsets, name))
        leaves_of[name] = Leaf(_DTYPES[dtype], tuple(shape))
    position = 0
    for begin, end, name in sorted(places):
        if begin != position:
            fault = "overlaps the array before it" if begin < position else "leaves a gap before it"
            raise ValueError(
                f"{_short(name)} must begin at byte {position}, got [{begin}, {end}], which {fault}"
            )
        position = end
    if position != data_size:
        raise ValueError(f"its data must have {position} bytes for its arrays, got {data_size}")
    return leaves_of
