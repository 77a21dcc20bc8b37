"""The house keeps its order: no circle among modules, and the arrows of docs/architecture.md."""

import ast
import functools
import re

import pytest

from tests.conftest import ROOT

PACKAGES = ("gatedjax", "experiments")
DEFERRED = 15
"""So many imports of experiments may wait inside functions, for the time that a start takes."""


@functools.cache
def modules():
    """Every module by its dotted name."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = {path: path.relative_to(ROOT).with_suffix("").parts for path in paths}
    return {
        ".".join(parts[:-1] if parts[-1] == "__init__" else parts): path
        for path, parts in names.items()
    }


def _imported(name, node):
    """The modules of ours that an import statement reads."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name in modules()]
    base = node.module or ""
    inner = [f"{base}.{alias.name}" for alias in node.names]
    below = [one for one in inner if one in modules()]
    # a name that is no module is read from the package itself
    return below + ([base] if base in modules() and len(below) < len(inner) else [])


@functools.cache
def imports():
    """(module, imported module, whether the import waits inside a function) of every import."""
    edges = []
    for name, path in modules().items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = set(ast.iter_child_nodes(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                edges += [(name, other, node not in top) for other in _imported(name, node)]
    return edges


def circles(edges):
    """Groups of names that reach each other: Tarjan's strongly connected components."""
    targets = {}
    for source, target in edges:
        targets.setdefault(source, set()).add(target)
    index, low, stack, groups = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(targets.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1 or name in targets.get(name, ()):
                groups.append(sorted(group))

    for name in sorted({one for edge in edges for one in edge}):
        if name not in index:
            visit(name)
    return groups


def test_circles_are_found_where_there_are_some():
    assert circles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "e")]) == [
        ["a", "b", "c"],
        ["e"],
    ]
    assert circles([("a", "b"), ("a", "c"), ("b", "c")]) == []


def test_no_circle_of_imports_also_of_those_inside_functions():
    assert circles({(name, other) for name, other, _ in imports() if name != other}) == []


def test_few_imports_of_experiments_wait_inside_functions():
    waiting = [(a, b) for a, b, late in imports() if late and b.startswith("experiments")]
    assert len(waiting) <= DEFERRED, waiting


def test_the_library_knows_nothing_of_the_experiments():
    assert [a for a, b, _ in imports() if a[:8] == "gatedjax" and b[:11] == "experiments"] == []


def _room(name, rooms):
    """The deepest room of the page that a module is in; None for the modules of no room."""
    inside = [room for room in rooms if name == room or name.startswith(f"{room}.")]
    return max(inside, key=len, default=None)


def test_the_arrows_of_the_page_are_those_of_the_imports():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = {}
    for room, uses in re.findall(r"^\| `([\w.]+)` \|[^|]*\| ([^|]*) \|$", page, re.MULTILINE):
        drawn[room] = set(re.findall(r"`([\w.]+)`", uses))
    assert drawn, "docs/architecture.md has no table of rooms"
    found = {room: set() for room in drawn}
    for name, other, _ in imports():
        a, b = _room(name, drawn), _room(other, drawn)
        if a and b and a != b:
            found[a].add(b)
    for room in drawn:
        assert drawn[room] == found[room], room
    assert circles([(a, b) for a, uses in drawn.items() for b in uses]) == []


@pytest.mark.parametrize("room", ["gatedjax.functional", "experiments.core"])
def test_every_module_of_a_package_stands_in_a_room_of_the_page(room):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert f"| `{room}` |" in page
