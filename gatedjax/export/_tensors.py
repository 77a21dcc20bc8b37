"""Trees of arrays by dotted names, and parameters in `safetensors` files, checked first."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gatedjax._utils.types import Tree
from gatedjax._utils.write import write_atomic

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


# Deeper trees would raise RecursionError.
MAX_DEPTH = 100


class ParamsMismatch(ValueError):
    """Raised if parameters do not have the expected names, shapes or dtypes."""


class Leaf(NamedTuple):
    """The dtype and the shape of an array, without its values."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def name_fault(name: str) -> str | None:
    """Returns the fault of a dotted name, such as "looks like a path", or None."""
    if not all(name.split(".")):
        return "has an empty part between its dots"
    if name.count(".") >= MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} deep"
    # Other readers of the file might use names as paths that leave a folder.
    if "/" in name or "\\" in name or name.startswith("~"):
        return "looks like a path"
    if not name.isprintable():
        return "has characters that cannot be printed"
    return None


def flatten(tree: Tree, argument: str = "params") -> dict[str, Tree]:
    """Returns the arrays of a tree by dotted name: {"a": {"b": x}} becomes {"a.b": x}. Parts of
    other containers are named by their position or field; a Python number becomes an array.
    """
    flat: dict[str, Tree] = {}
    for name, leaf in _named_leaves(tree, "", argument):
        kind = type(leaf).__name__
        if not name:
            raise TypeError(
                f"{argument} must be a dict, list, tuple or dataclass of arrays, got {kind}"
            )
        if fault := name_fault(name):
            raise ValueError(f"{argument} must not have the name {name!r}, which {fault}")
        if name in flat:
            raise ValueError(f"{argument} must have each name once, got {name!r} twice")
        is_number = isinstance(leaf, bool | int | float)
        if not is_number and not (hasattr(leaf, "dtype") and hasattr(leaf, "shape")):
            raise TypeError(f"{argument} must have arrays as leaves, got {kind} at {name!r}")
        flat[name] = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    if not flat:
        kind = type(tree).__name__
        raise ValueError(f"{argument} must hold at least one array, got an empty {kind}")
    return flat


def _named_leaves(node: Tree, name: str, argument: str) -> Iterator[tuple[str, Tree]]:
    if isinstance(node, np.ndarray | np.generic):
        yield name, node
    elif isinstance(node, dict):
        for key, child in node.items():
            if not isinstance(key, str):
                raise TypeError(f"{argument} must have str keys, got {key!r} below {name!r}")
            if "." in key:
                raise ValueError(
                    f"{argument} must have keys without dots, got {key!r} below {name!r}"
                )
            inner = f"{name}.{key}" if name else key
            # Checked before the children, because a deep tree would raise RecursionError.
            if fault := name_fault(inner):
                raise ValueError(f"{argument} must not have the name {inner!r}, which {fault}")
            yield from _named_leaves(child, inner, argument)
    else:
        import jax  # Imported here, because dicts of NumPy arrays need no JAX.

        for path, leaf in jax.tree_util.tree_leaves_with_path(node):
            inner = jax.tree_util.keystr(path, simple=True, separator=".")
            yield ".".join(part for part in (name, inner) if part), leaf


def fill(like: Tree, flat: Mapping[str, Tree]) -> Tree:
    """Returns the tree `like` with the arrays of `flat`, by the names of `flatten`."""
    import jax

    return jax.tree_util.tree_map_with_path(
        lambda path, _: flat[jax.tree_util.keystr(path, simple=True, separator=".")], like
    )


def unflatten(flat: Mapping[str, Tree]) -> dict[str, Tree]:
    """Builds nested dicts of arrays, the inverse of `flatten` for a tree of dicts."""
    tree: dict[str, Tree] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                break
        if not isinstance(node, dict) or last in node:
            raise ValueError(
                f"the name {name!r} must be an array or a dict of arrays, got both: rename one"
            )
        node[last] = value
    return tree


def leaves(flat: Mapping[str, Tree]) -> dict[str, Leaf]:
    """Returns the dtype and shape of each array in the result of `flatten`."""
    return {name: Leaf(str(x.dtype), tuple(x.shape)) for name, x in flat.items()}


def check_same(got: Mapping[str, Leaf], expected: Mapping[str, Leaf], where: str) -> None:
    """Raises ParamsMismatch if two sets of parameters differ in names, dtypes or shapes."""
    lines = [
        f"  {name}: wanted {expected.get(name, 'nothing')}, got {got.get(name, 'nothing')}"
        for name in sorted(got.keys() | expected.keys())
        if got.get(name) != expected.get(name)
    ]
    if lines:
        raise ParamsMismatch(f"{where} does not hold the expected parameters:\n" + "\n".join(lines))


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
        tuples, dataclasses and other pytrees. Names in the file are dotted ("backbone.kernel",
        "layers.0.kernel"); the kinds of the containers are not in the file.

    Returns:
      The path.

    Raises:
      TypeError: for a leaf that is neither an array nor a number, a key that is not a string, or a
        dtype that the format does not support, such as PRNG keys; the message names it.
      ValueError: if a name cannot be restored, or there are no arrays.
    """
    path = Path(path)
    write_atomic(path, encode_params(params)[0])
    return path


def encode_params(params: Tree) -> tuple[bytes, dict[str, np.ndarray]]:
    """Returns the content of a `safetensors` file, and its arrays by their names in the file."""
    from safetensors.numpy import save

    flat = flatten(params)
    for name, value in flat.items():
        if str(value.dtype).startswith("key<"):
            raise TypeError(f"params must hold plain arrays, got {value.dtype} at {name!r}")
        if value.dtype.name not in _DTYPES.values():
            raise TypeError(
                f"params[{name!r}] must have a dtype that files can hold ("
                f"{', '.join(_DTYPES.values())}), got {value.dtype}"
            )
    # Contiguous, because `safetensors` ignores strides.
    arrays = {name: np.require(value, requirements="C") for name, value in flat.items()}
    return save(arrays, metadata={"format": "flax"}), arrays


def load_params(path: str | Path, like: Tree = None) -> Tree:
    """Reads parameters from a `safetensors` file, also from files of strangers.

    Args:
      path: the .safetensors file, for example that of `save_params`.
      like: parameters, or their `jax.eval_shape`, with the names, shapes and dtypes that the file
        must have; they are compared before an array is read. None accepts all names, shapes and
        dtypes.

    Returns:
      NumPy arrays in the containers of `like`, or without it in nested dicts by the parts of their
      names ("layers.0.kernel" is in ["layers"]["0"]["kernel"]).

    Raises:
      FileNotFoundError: if the file does not exist.
      BadFile: if the file is damaged, or is not a `safetensors` file.
      ParamsMismatch: if the file differs from like.
    """
    path = Path(path)
    header = read_header(path)
    if like is not None:
        check_same(header, leaves(flatten(like, "like")), str(path))
        return fill(like, load_flat(path))
    try:
        # Names that contradict each other are refused before arrays are read.
        unflatten(header)
    except ValueError as error:
        raise BadFile(f"{path}: {error}") from None
    return unflatten(load_flat(path))


def read_header(path: Path) -> dict[str, Leaf]:
    """Returns the dtype and shape of each array in a `safetensors` file."""
    with _open(path) as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        header = {}
        for name, part in parts.items():
            if fault := name_fault(name):
                raise BadFile(f"{path} must not have the name {name[:200]!r}, which {fault}")
            if (dtype := part.get_dtype()) not in _DTYPES:
                raise BadFile(
                    f"{path}: {name!r} must have a dtype of {', '.join(_DTYPES)}, got {dtype!r}"
                )
            header[name] = Leaf(_DTYPES[dtype], tuple(part.get_shape()))
    return header


def load_flat(path: str | Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a `safetensors` file of any library, by their names in the file."""
    path = Path(path)
    if any(leaf.dtype == "bfloat16" for leaf in read_header(path).values()):
        import ml_dtypes  # noqa: F401 - NumPy knows this dtype after the import.
    with _open(path) as file:
        try:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except ValueError as error:  # of a shape that NumPy does not have
            raise BadFile(f"{path} is damaged: {error}") from error


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Opens a `safetensors` file, whose header and size are checked by `safetensors`."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        with safe_open(path, "numpy") as file:
            yield file
    except SafetensorError as error:
        with path.open("rb") as file:
            start = file.read(4)
        pickled = ""
        if start == b"PK\x03\x04" or start[:1] == b"\x80":
            pickled = ". It looks like a pickle (torch.save), which is never loaded: it can run any"
            pickled += " code"
        raise BadFile(
            f"{path} is damaged, or not a safetensors file: {str(error)[:500]}{pickled}"
        ) from None


def check_finite(params: Tree, where: str | Path) -> None:
    """Raises BadFile, with its dotted name, for the first parameter that is not finite."""
    for name, value in flatten(params).items():
        array = np.asarray(value)
        if array.dtype.kind not in "biu" and not np.isfinite(array).all():
            count = array.size - np.count_nonzero(np.isfinite(array))
            raise BadFile(
                f"{where}: the parameter {name!r} must be finite, got {count:,} of {array.size:,} "
                "numbers that are NaN or infinite: train the model again, or take an older copy"
            )


def check_outputs(outputs: Iterable[np.ndarray], params: Tree) -> None:
    """Raises ValueError if outputs of a model are not finite, and names its largest parameter,
    because finite parameters can be so large that the numbers computed from them overflow.
    """
    if all(np.isfinite(array).all() for array in outputs):
        return
    arrays = {name: np.asarray(value) for name, value in flatten(params).items()}
    sizes = {
        name: float(np.abs(array).max(initial=0))
        for name, array in arrays.items()
        if array.dtype.kind not in "biu"
    }
    name = max(sizes, key=sizes.__getitem__)
    raise ValueError(
        f"the outputs of the model must be finite, got NaN or infinity for a text: computing with "
        f"its parameters overflows, of which {name!r} has the largest number, {sizes[name]:.3g}: "
        "train the model again, or take an older copy"
    )
