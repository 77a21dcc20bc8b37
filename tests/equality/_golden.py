"""The committed files, and how something is compared with them."""

import difflib
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def differences(
    before: Any, after: Any, where: str, tolerance: float, least: float = 1e-3
) -> list[str]:
    """Names every place where two values of JSON differ, with both values.

    Numbers may differ by the tolerance times the larger one, or times `least`; without a tolerance
    they also have the same type.
    """
    numbers = [
        isinstance(one, int | float) and not isinstance(one, bool) for one in (before, after)
    ]
    if all(numbers) and tolerance:
        same = abs(before - after) <= tolerance * max(abs(before), abs(after), least)
        return [] if same else [f"{where}: before {before}, after {after}"]
    if isinstance(before, dict) and isinstance(after, dict):
        changed = [
            f"{where}, {name}: gone, before {shown(before[name])}"
            for name in before
            if name not in after
        ]
        changed += [
            f"{where}, {name}: new, after {shown(after[name])}"
            for name in after
            if name not in before
        ]
        shared = [name for name in before if name in after]
        return changed + [
            line
            for name in shared
            for line in differences(before[name], after[name], f"{where}, {name}", tolerance, least)
        ]
    if isinstance(before, list) and isinstance(after, list):
        if all(isinstance(one, str) for one in [*before, *after]):
            lines = difflib.unified_diff(before, after, "before", "after", lineterm="", n=0)
            return [f"{where}:\n  " + "\n  ".join(list(lines)[2:])] if before != after else []
        if len(before) != len(after):
            return [f"{where}: before {shown(before)}, after {shown(after)}"]
        pairs = enumerate(zip(before, after, strict=True))
        return [
            line
            for place, (one, other) in pairs
            for line in differences(one, other, f"{where}, {place}", tolerance, least)
        ]
    same = type(before) is type(after) and before == after
    return [] if same else [f"{where}: before {shown(before)}, after {shown(after)}"]


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]} ..."


def same(found: Any, wanted: Any, where: str) -> None:
    """Compares exactly; a failure names all places that differ."""
    # `pytest.fail`, because an assertion would print the list twice
    if changed := differences(wanted, as_json(found), where, 0):
        pytest.fail("\n".join(changed), pytrace=False)


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
