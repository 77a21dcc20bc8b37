"""Pytrees of arbitrary containers as flat dotted names and the kinds of their containers."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from gatedjax._utils.json import to_json
from gatedjax._utils.types import Tree
from gatedjax.export._names import name_fault, unflatten

_NUMBERS = (bool, int, float)
_PLAIN = {kind.__name__: kind for kind in (list, tuple, dict, type(None), *_NUMBERS)}
_KEY = "gatedjax.structure"


def take_apart(tree: Tree, argument: str = "params") -> tuple[dict[str, Tree], dict[str, str]]:
    """Returns (arrays, kinds), both by dotted names of keys, positions and fields. kinds has
    "list", "tuple" or the class of each container ("" is the tree), and the type of each Python
    number; dicts with entries have none.
    """
    if _parts(tree, argument, "") is None:
        kind = type(tree).__name__
        raise TypeError(
            f"{argument} must be a dict, list, tuple or dataclass of arrays, got {kind}"
        )
    flat: dict[str, Tree] = {}
    kinds: dict[str, str] = {}
    _collect(tree, "", flat, kinds, argument)
    if not flat:
        kind = type(tree).__name__
        raise ValueError(f"{argument} must hold at least one array, got an empty {kind}")
    return flat, kinds


def _collect(
    node: Tree, name: str, flat: dict[str, Tree], kinds: dict[str, str], argument: str
) -> None:
    """Adds the arrays below `node` to `flat`, and the types of containers to `kinds`."""
    parts = _parts(node, argument, name)
    # The exact type is compared, because np.float64 is a subclass of float, but is saved as an
    # array.
    if parts is None and type(node) not in _NUMBERS:
        if not (hasattr(node, "dtype") and hasattr(node, "shape")):
            kind = type(node).__name__
            raise TypeError(f"{argument} must have arrays as leaves, got {kind} at {name!r}")
        flat[name] = node
        return
    is_dict = isinstance(node, Mapping)
    if not is_dict or not parts:
        kinds[name] = "dict" if is_dict else _kind(node)
    if parts is None:
        flat[name] = np.asarray(node)
        return
    for key, child in parts:
        inner = f"{name}.{key}" if name else key
        if "." in key:
            raise ValueError(f"{argument} must have keys without dots, got {key!r} below {name!r}")
        if fault := name_fault(inner):
            raise ValueError(f"{argument} must not have the name {inner!r}, which {fault}")
        if inner in flat or inner in kinds:
            raise ValueError(f"{argument} must have each name once, got {inner!r} twice")
        _collect(child, inner, flat, kinds, argument)


def _kind(node: Tree) -> str:
    kind = type(node)
    return kind.__name__ if kind in _PLAIN.values() else f"{kind.__module__}.{kind.__qualname__}"


def _parts(node: Tree, argument: str, name: str) -> list[tuple[str, Tree]] | None:
    """Returns (name, child) of each child of a container; None if `node` is a leaf."""
    if isinstance(node, Mapping):
        for key in node:
            if not isinstance(key, str):
                raise TypeError(f"{argument} must have str keys, got {key!r} below {name!r}")
        return list(node.items())
    if isinstance(node, np.ndarray):  # A file of arrays is read without JAX.
        return None
    pairs, _ = _one_level(node)
    if any(not path for path, _ in pairs):
        return None
    return [(_key_name(path[0]), child) for path, child in pairs]


def _one_level(node: Tree) -> tuple[list[tuple[Any, Tree]], Any]:
    """Returns ([(JAX key path, child)], tree definition); a leaf has itself with the path ()."""
    import jax

    # All parts of the node count as leaves, so that only a single level is taken apart.
    return jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda part: part is not node)


def _key_name(key: Any) -> str:
    # The classes of JAX for keys, positions and fields have different attributes.
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def check_kinds(kinds: Mapping[str, str], where: str) -> None:
    """Raises ValueError unless all containers are dicts, lists, tuples or None."""
    for name, kind in kinds.items():
        if kind not in _PLAIN:
            at = f" at {name!r}" if name else ""
            raise ValueError(
                f"{where} must hold only dicts, lists, tuples and numbers, because a file cannot "
                f"choose a class, got {kind[:200]!r}{at}: pass like=, a tree of the same structure"
            )


def put_together(flat: Mapping[str, np.ndarray], kinds: Mapping[str, str]) -> Tree:
    """Builds a tree, the inverse of `take_apart` for built-in containers."""
    holders = {prefix for name in (*flat, *kinds) for prefix in _prefixes(name)}
    # An empty container has no array in the file, so only its kind shows that it exists.
    empty: dict[str, Tree] = {}
    for name, kind in kinds.items():
        if name and name not in flat and name not in holders:
            empty[name] = None if kind == "NoneType" else {}
    tree = unflatten({**flat, **empty})

    def build(name: str, node: Tree) -> Tree:
        kind = kinds.get(name)
        if isinstance(node, dict):
            parts = {k: build(f"{name}.{k}" if name else k, v) for k, v in node.items()}
            if kind in (None, "dict"):
                return parts
            # A damaged file may lack positions of a list.
            if kind not in ("list", "tuple") or set(parts) != set(map(str, range(len(parts)))):
                raise ValueError(f"{name!r} must be a {kind}, got the parts {sorted(parts)}")
            ordered = [parts[str(i)] for i in range(len(parts))]
            return ordered if kind == "list" else tuple(ordered)
        if kind is None or node is None:
            return node
        return _number(name, kind, node)

    return build("", tree)


def _prefixes(name: str) -> list[str]:
    return [name[:i] for i, letter in enumerate(name) if letter == "."]


def _number(name: str, kind: str, array: np.ndarray) -> Tree:
    number = array.item() if array.shape == () else array
    if type(number).__name__ != kind:
        raise ValueError(f"{name!r} must be a {kind}, got {array.dtype}{list(array.shape)}")
    return number


def put_like(like: Tree, flat: Mapping[str, np.ndarray], argument: str) -> Tree:
    """Builds a tree with the containers of `like` and the arrays of `flat`."""

    def build(name: str, node: Tree) -> Tree:
        parts = _parts(node, argument, name)
        if parts is None:
            is_number = type(node) in _NUMBERS
            return _number(name, _kind(node), flat[name]) if is_number else flat[name]
        built = {key: build(f"{name}.{key}" if name else key, child) for key, child in parts}
        if isinstance(node, Mapping):
            return built
        import jax

        return jax.tree.unflatten(_one_level(node)[1], list(built.values()))

    return build("", like)


def written(kinds: Mapping[str, str]) -> dict[str, str]:
    """Returns {"gatedjax.structure": the kinds as JSON}, the metadata of a file."""
    return {_KEY: to_json(kinds, sort_keys=True)} if kinds else {}


def read_kinds(metadata: Mapping[str, str]) -> dict[str, str]:
    """Reads the types of containers and numbers from the metadata, name -> text, of a file."""
    try:
        kinds = json.loads(metadata.get(_KEY, "{}"))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"its structure must be JSON ({error})") from None
    if not isinstance(kinds, dict) or not all(isinstance(kind, str) for kind in kinds.values()):
        raise ValueError(f"its structure must be an object of names and kinds, got {kinds!r:.80}")
    for name in filter(None, kinds):
        if fault := name_fault(name):
            raise ValueError(f"its structure must not have the name {name[:200]!r}, which {fault}")
    return kinds
