"""The house keeps its order: no circle among modules, and only the arrows of `USES`."""

import ast
import functools
import re

import pytest

from tests._sources import dotted, trees
from tests.conftest import ROOT

DEFERRED = 0
"""So many imports of experiments may wait inside functions, for the time that a start takes."""


USES = {
    "functional": "",
    "nn": "functional gates",
    "nnx": "functional nn",
    "training": "",
    "models": "functional gates nn training",
    "gates": "functional analysis",
    "analysis": "",
    "export": "functional analysis",
    "data.files": "",
    "data.text": "data.files",
    "data.sets": "data.files data.text",
    "data.batches": "data.files data.text data.sets",
    "data": "data.files data.text data.sets data.batches",
    "lexicon": "data.text",
    "text": (
        "lexicon functional gates training models analysis export data.files data.text "
        "data.sets data.batches data"
    ),
    "explore": "data.sets data.text data.batches functional lexicon models text",
    "_commands": (
        "training gates analysis explore export data.files data.sets data.text data text"
    ),
    "experiments.core": "training analysis data text",
    "experiments.ga_net": "training models text analysis data experiments.core",
    "experiments.agt": "training models analysis data.text data experiments.core",
    "experiments.rau": "functional training models analysis data experiments.core",
    "experiments.ga_reader": (
        "training models analysis data.text data.files data text experiments.core"
    ),
    "experiments.ssan": (
        "functional training models analysis data.batches data.files data text experiments.core"
    ),
    "experiments.benchmarks": "functional nn training models lexicon text experiments.core",
}
"""The rooms that a room imports; the names without `experiments` are packages of gatedjax."""

CEILINGS = {"text": 12_300, "lexicon": 3_040, "explore": 2_635, "_commands": 3_062} | {
    "data": 7_185,
    "export": 1_667,
    "_utils": 1_781,
    "training": 4_499,
    "models": 5_495,
    "gates": 3_435,
    "analysis": 5_103,
    "functional": 6_878,
    "nn": 2_770,
    "nnx": 695,
    "../experiments": 18_410,
}
"""Most lines of the modules of a room. A ceiling falls with its room. It rises only by the lines of
something that users can name: an estimator, a cell, a data set, a paper, an option."""


@functools.cache
def modules():
    """Every module by its dotted name."""
    return {dotted(path): path for path in trees()}


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
        tree = trees()[path]
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


@pytest.mark.slow
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


def _full(room):
    return room if room.startswith("experiments") else f"gatedjax.{room}"


def _page():
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_a_room_imports_the_rooms_that_are_listed_and_no_others():
    listed = {_full(room): set(map(_full, uses.split())) for room, uses in USES.items()}
    found = {room: set() for room in listed}
    for name, other, _ in imports():
        a, b = _room(name, listed), _room(other, listed)
        if a and b and a != b:
            found[a].add(b)
    for room in listed:
        assert listed[room] == found[room], room
    assert circles([(a, b) for a, uses in listed.items() for b in uses]) == []


def test_the_page_describes_every_room():
    assert set(re.findall(r"^\| `([\w.]+)` \|", _page(), re.MULTILINE)) == set(map(_full, USES))


def test_the_picture_of_the_page_has_arrows_of_imports_only():
    rooms = {"experiments": ["experiments.core"], "commands, explore": ["_commands", "explore"]}
    rooms |= {"text, export": ["text", "export"], "nn, nnx": ["nn", "nnx"]}
    rooms |= {"data": [room for room in USES if room[:4] == "data"]}
    drawn = re.findall(r'\["(.+?)"\] --> \w+\["(.+?)"\]', _page())
    assert drawn
    for source, target in drawn:
        sources, targets = rooms.get(source, [source]), rooms.get(target, [target])
        assert any(set(USES[a].split()) & set(targets) for a in sources), (source, target)


@pytest.mark.parametrize("room", CEILINGS)
def test_a_room_has_no_more_lines_than_its_ceiling(room):
    files = (ROOT / "gatedjax" / room).rglob("*.py")
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    assert lines <= CEILINGS[room], "shorten the room, or raise its ceiling by a new ability"
    assert lines > 0.97 * CEILINGS[room], "lower the ceiling: the room has become smaller"


def _questions():
    """The rows of the page's first table."""
    return [
        line for line in _page().splitlines() if re.match(r"\| (where|which|how|in|what) ", line)
    ]


@pytest.mark.parametrize("row", _questions(), ids=lambda row: row.split("?")[0].strip("| "))
def test_an_answer_of_the_page_names_files_and_names_that_are_there(row):
    codes = re.findall(r"`([^`]+)`", row)
    places = [re.sub("NAME|PAPER", "*", code) for code in codes if "/" in code]
    found = [path for place in places for path in ROOT.glob(place)]
    assert all(any(ROOT.glob(place)) for place in places), places
    folders = {path if path.is_dir() else path.parent for path in found}
    for name in (code for code in codes if re.fullmatch(r"\w+\.(py|cu)", code)):
        assert any((folder / name).exists() for folder in folders), name
    texts = [
        path.read_text(encoding="utf-8")
        for folder in folders or {ROOT / "gatedjax"}
        for path in folder.rglob("*.py")
    ]
    for name in (code for code in codes if re.fullmatch(r"_?[A-Za-z]\w*(\.\w+)?", code)):
        if not name.endswith((".py", ".cu")) and name not in ("gatedjax", "experiments", "train"):
            last = name.rpartition(".")[2]
            defined = re.compile(rf"^ *(def|class) {last}\b|^[^(\n]*\b{last}\b[^(\n]*=", re.M)
            assert any(map(defined.search, texts)), name
