"""The committed files, and how something is compared with them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).with_name("golden")
WIDTH = 100


def golden(name: str) -> Any:
    """What a golden file has; a missing one is a failure, not a first run."""
    path = GOLDEN / f"{name}.json"
    assert path.is_file(), f"{path} is missing: python -m tests.equality {name} writes it"
    return json.loads(path.read_text(encoding="utf-8"))


def as_json(value: Any) -> Any:
    """A value as it is when it was written and read."""
    return json.loads(json.dumps(value, default=str))


def written(value: Any) -> str:
    """JSON with one line for whatever fits into one, so that a diff names what changed."""
    return _lines(as_json(value), "") + "\n"


def _lines(value: Any, above: str) -> str:
    short = json.dumps(value, ensure_ascii=False)
    if len(above) + len(short) <= WIDTH or not isinstance(value, dict | list) or not value:
        return short
    inner = above + " "
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(k)}: {_lines(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{above}}}"
    return "[\n" + ",\n".join(inner + _lines(v, inner) for v in value) + f"\n{above}]"


def same(found: Any, wanted: Any, where: str) -> None:
    """Compares exactly, and names the first place that differs."""
    found = as_json(found)
    assert type(found) is type(wanted), f"{where}: found {found}, wanted {wanted}"
    if isinstance(wanted, dict):
        new, gone = sorted(found.keys() - wanted.keys()), sorted(wanted.keys() - found.keys())
        assert not [*new, *gone], f"{where}: new {new}, gone {gone}"
        for name in wanted:
            same(found[name], wanted[name], f"{where}, {name}")
    else:
        assert found == wanted, f"{where}: found {found}, wanted {wanted}"


def not_smaller(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compares lists of names that may grow and not shrink."""
    assert wanted, "the golden file is empty"
    for where, names in wanted.items():
        assert where in found, f"{where} is gone"
        gone = sorted(set(names) - set(found[where]))
        assert not gone, f"{where} has lost {gone}"


def digest(*values: Any) -> str:
    """Of arrays with their dtypes and shapes, bit for bit, and of numbers and texts."""
    state = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            state.update(f"{value.dtype.str}{value.shape}".encode())
            state.update(np.ascontiguousarray(value).tobytes())
        else:
            state.update(repr(value).encode())
    return state.hexdigest()[:16]


def leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree of dicts by their paths."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        inner = leaves(value) if hasattr(value, "items") else {"": value}
        found |= {f"{name}/{path}".rstrip("/"): leaf for path, leaf in inner.items()}
    return found


def shapes(tree: Any) -> dict[str, str]:
    """Path -> dtype and shape of the leaves of parameters."""
    return {
        path: f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"
        for path, leaf in sorted(leaves(tree).items())
    }
