"""The API reference as Markdown: the public names, the lists of the pages, the docstrings.

Needs only gatedjax, so that tests can check the reference where Sphinx is not installed.
"""

import ast
import dataclasses
import doctest
import functools
import importlib
import inspect
import itertools
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

import equations

PAGES = Path(__file__).resolve().parent.parent / "api"
LISTS = re.compile(r"^```\{api\} ([\w.]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = ("Args", "Attributes", "Raises")
LABELS = (
    "Reference",
    "References",
    "Reference and deviations",
    "Deviation",
    "Deviations",
    "Memory",
)
LABELLED = re.compile(rf"^(?=(?:{'|'.join(LABELS)}): )", re.MULTILINE)


@functools.cache
def source_of(module: types.ModuleType) -> ast.Module:
    """Returns the syntax tree of a module."""
    return ast.parse(inspect.getsource(module))


def reexported(module: types.ModuleType) -> list[str]:
    """Returns the names that a package exports: `__all__`, or its imports of the form `x as x`."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    imported = [  # also those of names that load on first use, below `if TYPE_CHECKING`
        alias.name
        for node in ast.walk(source_of(module))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    return [*imported, *getattr(module, "_ON_FIRST_USE", ())]


@functools.cache
def public() -> dict[str, list[str]]:
    """Returns the public names of each public package of gatedjax, by its dotted name."""
    found: dict[str, list[str]] = {}
    waiting = ["gatedjax", "gatedjax.data.builders"]
    for package in waiting:
        module = importlib.import_module(package)
        names = reexported(module)
        inner = [name for name in names if isinstance(getattr(module, name), types.ModuleType)]
        waiting += [f"{package}.{name}" for name in inner]
        found[package] = [name for name in names if name not in inner and name != "TYPE_CHECKING"]
    return found


def listed(pages: Iterable[Path] | None = None) -> list[tuple[str, str]]:
    """Returns (package, name) of each entry in the lists of the pages."""
    pages = sorted(PAGES.glob("*.md")) if pages is None else pages
    return [
        (package, name)
        for page in pages
        for package, names in LISTS.findall(page.read_text(encoding="utf-8"))
        for name in expand(names)
    ]


def expand(names: str) -> list[str]:
    """Returns the names of a list; a word for a group becomes the classes of the group."""
    from gatedjax.gates import Pathwise
    from gatedjax.gates._registry import ESTIMATORS

    groups: dict[str, list[str]] = {"estimators-by-path": [], "estimators-by-score": []}
    for kind, *_ in ESTIMATORS:
        is_pathwise = Pathwise in kind.__mro__
        groups["estimators-by-path" if is_pathwise else "estimators-by-score"].append(kind.__name__)
    groups["all-builders"] = reexported(importlib.import_module("gatedjax.data.builders"))
    return [name for word in names.split() for name in groups.get(word, [word])]


def faults(pages: Iterable[Path] | None = None) -> list[str]:
    """Returns the faults of the lists: names that are missing, unknown, twice or undocumented."""
    found, seen = [], set()
    for package, name in listed(pages):
        if (package, name) in seen:
            found.append(f"{package}.{name} is listed twice")
        elif name not in public().get(package, ()):
            found.append(f"{package}.{name} is listed but not public")
        elif not document(package, name):
            found.append(f"{package}.{name} has no docstring")
        seen.add((package, name))
    for package, names in public().items():
        found += [
            f"{package}.{name} is on no page of docs/api"
            for name in names
            if (package, name) not in seen and not is_repeated(package, name)
        ]
    return found


def is_repeated(package: str, name: str) -> bool:
    """Returns whether a name has its entry in another package, which this package repeats."""
    item = getattr(importlib.import_module(package), name)
    others = [place for place in places().get(name, ()) if place != package]
    return any(getattr(importlib.import_module(place), name) is item for place in others)


@functools.cache
def places() -> dict[str, list[str]]:
    """Returns the packages that have an entry of a public name, by the name."""
    found: dict[str, list[str]] = {}
    for package, name in listed():
        found.setdefault(name, []).append(package)
    return found


def place_of(name: str, package: str) -> str | None:
    """Returns the dotted name of a name in a docstring of a package; None if it is not public."""
    *outer, last = name.split(".")
    candidates = places().get(last, [])
    if outer:
        candidates = [one for one in candidates if one.split(".")[-len(outer) :] == outer]
    elif package in candidates or last.islower():  # `fit` alone is a parameter or a method
        candidates = [package] if package in candidates else []
    return f"{candidates[0]}.{last}" if len(candidates) == 1 else None


# --- docstrings -------------------------------------------------------------------------------


def inline(text: str, package: str) -> str:
    """Converts prose of a docstring to Markdown: code spans stay, other characters are escaped."""
    parts = re.split(r"(`[^`]+`)", text)
    for i, part in enumerate(parts):
        if i % 2:
            name = part.strip("`")
            target = place_of(name, package) if re.fullmatch(r"[\w.]+", name) else None
            parts[i] = f"{{py:obj}}`{name} <{target}>`" if target else part
        else:
            parts[i] = re.sub(r"([\\*_\[\]<>{}|#$~^`])", r"\\\1", part)
    return "".join(parts)


def is_equation(lines: list[str]) -> bool:
    """Returns True for a paragraph without indentation that is an equation or has columns."""
    first = re.match(r"[^=]{1,40}? = ", lines[0])
    # a symbol, perhaps with indices and arguments, and no sentence before the equality sign
    symbol = first and re.fullmatch(
        r"\[?[\w']+(, [\w']+)*\]?(_\S+)?(\(\S*\))?(\[[^\]]*\])?", first.group(0)[:-3]
    )
    columns = sum(bool(re.search(r"\S {2,}\S", line)) for line in lines)
    return bool(symbol) or columns > len(lines) / 2


def fenced(lines: list[str]) -> list[str]:
    """Converts an indented block, which is an example in Python or an equation."""
    block = textwrap.dedent("\n".join(lines)).strip("\n")
    # `gain = loss(z, y)` would be a program too
    if not block.startswith(">>> ") and equations.latex(block) is not None:
        return equation(block.split("\n"))
    try:
        tree = ast.parse(re.sub(r"^>>> ", "", block, flags=re.MULTILINE))
        code = any(isinstance(n, ast.Import | ast.ImportFrom | ast.Call) for n in ast.walk(tree))
    except SyntaxError:
        code = block.startswith(">>> ")
    if not code and not block.startswith(">>> "):
        return equation(block.split("\n"))
    kind = "pycon" if block.startswith(">>> ") else "python"
    return [f"```{kind}", *block.split("\n"), "```", ""]


def equation(lines: list[str]) -> list[str]:
    """Converts an equation to LaTeX, or leaves it as it stands if it has words."""
    formula = equations.latex("\n".join(lines))
    if formula is None:
        return ["```text", *lines, "```", ""]
    return ["```{math}", formula, "```", ""]


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yields the paragraphs; indented lines around an empty line are a single paragraph."""
    block: list[str] = []
    for i, line in enumerate(lines):
        following = next((one for one in lines[i:] if one.strip()), "")
        if line.strip():
            if block and not block[-1].strip():
                block.append(line)
            elif block and block[-1][:4].isspace() != line[:4].isspace() and block[0][:1] != "-":
                yield block
                block = [line]
            else:
                block.append(line)
        elif block:
            if block[0][:4].isspace() and following[:4].isspace():
                block.append(line)
            else:
                yield block
                block = []
    if block:
        yield block


def prose(lines: list[str], package: str) -> list[str]:
    """Converts paragraphs, equations, lists, tables and examples."""
    out: list[str] = []
    for block in blocks(lines):
        if block[0].startswith(("    ", ">>> ")):
            # An equation is often followed by an example of the same indentation.
            start = next((i for i, line in enumerate(block) if ">>> " in line), 0)
            out += fenced(block[:start]) if start else []
            out += fenced(block[start:])
        elif block[0].startswith("|"):
            out += [*block, ""]
        elif block[0].startswith("- "):
            items = "\n".join(block).removeprefix("- ").split("\n- ")
            out += [*(f"- {inline(' '.join(item.split()), package)}" for item in items), ""]
        elif is_equation(block):
            out += equation(block)
        else:
            for part in re.split(LABELLED, "\n".join(block)):
                text = " ".join(part.split())
                label, colon, rest = text.partition(": ")
                if colon and label in LABELS:
                    out += [f"**{label}.** {inline(rest, package)}", ""]
                elif text:
                    out += [inline(text, package), ""]
    return out


def entries(lines: list[str], package: str) -> list[str]:
    """Converts the names of a section, such as Args, with their descriptions."""
    items: list[list[str]] = []
    for line in lines:
        if line.strip() and not line.startswith("  "):
            items.append([line])
        elif line.strip() and items:
            items[-1].append(line.strip())
    out = []
    for item in items:
        name, colon, text = " ".join(item).partition(": ")
        shown = ", ".join(f"`{one.strip()}`" for one in name.split(","))
        out.append(f"- {shown}: {inline(text, package)}" if colon else f"- {inline(name, package)}")
    return [*out, ""]


def markdown(docstring: str, package: str) -> list[str]:
    """Converts a docstring to lines of MyST Markdown.

    Args:
      docstring: its text; indentation is cleaned here.
      package: where names in backticks are looked up first.
    """
    lines, out, plain = inspect.cleandoc(docstring).split("\n"), [], []
    at = 0
    while at < len(lines):
        heading = re.fullmatch(r"([A-Z][a-z]+):", lines[at])
        following = lines[at + 1] if at + 1 < len(lines) else ""
        if not (heading and following.startswith("  ")):
            plain.append(lines[at])
            at += 1
            continue
        out += prose(plain, package)
        plain, end = [], at + 1
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith("  ")):
            end += 1
        body = textwrap.dedent("\n".join(lines[at + 1 : end])).strip("\n").split("\n")
        title = heading.group(1)
        out += [f"**{title}**", ""]
        out += entries(body, package) if title in SECTIONS else prose(body, package)
        at = end
    return out + prose(plain, package)


# --- imports of examples ----------------------------------------------------------------------


def importing(lines: list[str], module: types.ModuleType) -> list[str]:
    """Puts above each example of an entry the imports that it needs, so that it runs as pasted.

    Args:
      lines: an entry as Markdown.
      module: the module of the docstring, whose names the examples use.
    """
    out, defined = [], set[str]()
    for i, line in enumerate(lines):
        out.append(line)
        if line == "```pycon":
            block = "\n".join(lines[i + 1 : lines.index("```", i)]) + "\n"
            code = "".join(one.source for one in doctest.DocTestParser().get_examples(block))
            used, bound = names_of(code)
            missing = sorted(used - bound - defined & {*vars(module), *dir(module)})
            out += [f">>> {one}" for one in imports(missing, module)]
            defined |= bound
    return out


def names_of(code: str) -> tuple[set[str], set[str]]:
    """Returns the names that a program reads, and those that it defines."""
    used, bound = set(), set()
    nodes = list(ast.walk(ast.parse(code)))
    methods = [one for node in nodes if isinstance(node, ast.ClassDef) for one in node.body]
    for node in nodes:
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node not in methods:
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
    return used, bound


def imports(names: Iterable[str], module: types.ModuleType) -> list[str]:
    """Returns the lines that import names of a module from where users have them."""
    whole, parts = [], dict[str, list[str]]()
    for name in names:
        value = getattr(module, name)
        if not isinstance(value, types.ModuleType):
            parts.setdefault(home_of(name, value, module), []).append(name)
        elif value.__name__ == name:
            whole.append(f"import {name}")
        elif value.__name__.startswith("gatedjax."):
            package, _, last = value.__name__.rpartition(".")
            parts.setdefault(package, []).append(last if last == name else f"{last} as {name}")
        else:
            whole.append(f"import {value.__name__} as {name}")
    for home in sorted(parts):  # lines that fit into a page
        lists = textwrap.wrap(", ".join(parts[home]), 60, break_on_hyphens=False)
        whole += [f"from {home} import {names.rstrip(',')}" for names in lists]
    return whole


def home_of(name: str, value: object, module: types.ModuleType) -> str:
    """Returns the package that exports a value; for others the module that defines it."""
    origin = getattr(value, "__module__", None) or module.__name__
    homes = [
        place
        for place in places().get(name, ())
        if getattr(importlib.import_module(place), name) is value
    ]
    # `gatedjax` repeats names of `gatedjax.text`
    return max(homes, key=lambda home: (origin.startswith(home), len(home)), default=origin)


# --- signatures and members -------------------------------------------------------------------


def default_of(source: ast.expr, value: object, module: str) -> str:
    """Returns a default as a reader writes it: a number, not the name that a module has for it."""
    if not any(isinstance(node, ast.Name) for node in ast.walk(source)):
        return ast.unparse(source)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = [
            f"{one.name}={default_of(source, now, module)}"
            for one in dataclasses.fields(value)
            if (now := getattr(value, one.name)) != _default_value(one)
        ]
        return f"{type(value).__name__}({', '.join(changed)})"
    try:
        ast.literal_eval(repr(value))
    except (SyntaxError, ValueError):
        pass
    else:
        return repr(value)
    if isinstance(source, ast.Name) and not places().get(source.id):
        # a private name of a function or of a long value
        for place in (module, *_origins(module, source.id)):
            for node in source_of(importlib.import_module(place)).body:
                made = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
                if made and ast.unparse(node.targets[0]) == source.id:
                    return ast.unparse(node.value)
        return "..."
    return ast.unparse(source)


def _default_value(field: dataclasses.Field) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def document(package: str, name: str) -> str:
    """Returns the docstring of a public name; for a value, the string below its assignment."""
    item = getattr(importlib.import_module(package), name)
    if isinstance(item, type) or (callable(item) and hasattr(item, "__module__")):
        own = inspect.getdoc(item) or ""
        if typing.get_origin(item) is None:
            return own
    for module in (package, *_origins(package, name)):
        body = source_of(importlib.import_module(module)).body
        for node, below in itertools.pairwise(body):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", 0)
            if isinstance(target, ast.Name) and target.id == name and isinstance(below, ast.Expr):
                return ast.literal_eval(below.value) if _is_text(below.value) else ""
    return ""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _origins(package: str, name: str) -> Iterator[str]:
    for node in source_of(importlib.import_module(package)).body:
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            yield str(node.module)
            yield from _origins(str(node.module), name)


def definition(item: typing.Any) -> ast.AST | None:
    """Returns the syntax tree of a function or class, or None without a source."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(item)))
        return ast.parse(source).body[0]
    except (TypeError, OSError, SyntaxError, IndexError):
        return None


def signature(item: typing.Any, *, method: bool = False) -> str:
    """Returns the arguments and the result as in the source, with the shapes in the types."""
    node = definition(item)
    if not isinstance(node, ast.FunctionDef):
        try:
            return str(inspect.signature(item))
        except (TypeError, ValueError):
            return "()"
    given = node.args
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    if method and not static:
        (given.posonlyargs or given.args).pop(0)
    values = inspect.signature(inspect.unwrap(item)).parameters
    positional = [*given.posonlyargs, *given.args][-len(given.defaults) :]
    for shown, names in ((given.defaults, positional), (given.kw_defaults, given.kwonlyargs)):
        for i, (source, argument) in enumerate(zip(shown, names, strict=False)):
            if source is not None:
                text = default_of(source, values[argument.arg].default, item.__module__)
                shown[i] = ast.parse(text, mode="eval").body
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(given)}){result}"


def fields(item: type) -> dict[str, tuple[str, str, str]]:
    """Returns type, default and docstring of each field of a dataclass, named tuple or module."""
    found: dict[str, tuple[str, str, str]] = {}
    for base in reversed(item.__mro__):
        node = definition(base) if base.__module__.startswith("gatedjax") else None
        body = node.body if isinstance(node, ast.ClassDef) else []
        for one, below in itertools.zip_longest(body, body[1:]):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                name, kind = one.target.id, ast.unparse(one.annotation)
                if name.startswith("_") or kind.startswith(("ClassVar", "dataclasses.InitVar")):
                    continue
                text = isinstance(below, ast.Expr) and _is_text(below.value)
                default = ""
                if one.value and (value := _value_of(base, name)) is not dataclasses.MISSING:
                    default = default_of(one.value, value, base.__module__)
                found[name] = (kind, default, ast.literal_eval(below.value) if text else "")
    return found


def _without_limits(kind: str) -> str:
    """Returns the type T of `Annotated[T, limits]`, because limits would hide the names."""
    node = ast.parse(kind, mode="eval").body
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
        assert isinstance(node.slice, ast.Tuple)
        return ast.unparse(node.slice.elts[0])
    return kind


def _value_of(item: type, name: str) -> object:
    """Returns the default of a field of a dataclass or named tuple, MISSING without one."""
    if dataclasses.is_dataclass(item):
        found = {one.name: one for one in dataclasses.fields(item)}
        return _default_value(found[name]) if name in found else dataclasses.MISSING
    return getattr(item, "_field_defaults", vars(item)).get(name, dataclasses.MISSING)


def constructor(item: type) -> str:
    """Returns the arguments of the constructor of a class."""
    made = fields(item)
    init = item.__dict__.get("__init__")
    if (
        (not made or definition(init))
        and init is not None
        and isinstance(definition(init), ast.FunctionDef)
    ):
        return signature(init, method=True).partition(" -> None")[0]
    if made:
        shown = {
            name: f"{name}: {_without_limits(kind)}" + (f" = {default}" if default else "")
            for name, (kind, default, _) in made.items()
        }
        taken = inspect.signature(item).parameters
        keywords = [name for name in made if taken[name].kind is inspect.Parameter.KEYWORD_ONLY]
        parts = [shown[name] for name in made if name not in keywords]
        parts += ["*", *(shown[name] for name in keywords)] if keywords else []
        return f"({', '.join(parts)})"
    for base in item.__mro__[1:]:
        init = base.__dict__.get("__init__")
        ours = base.__module__.startswith("gatedjax") and init is not None
        if ours and init.__module__ != "typing":  # a protocol has an __init__ of typing
            return signature(init, method=True).partition(" -> None")[0]
    return "()" if dataclasses.is_dataclass(item) else ""


def members(item: type) -> Iterator[tuple[str, str, typing.Any]]:
    """Yields kind, name and object of each documented public method and property of a class."""
    seen = set()
    for base in item.__mro__:
        if not base.__module__.startswith("gatedjax"):
            continue
        for name, value in vars(base).items():
            public_name = not name.startswith("_") or name == "__call__"
            # the default of a field may be a function
            if name in seen or not public_name or name in vars(base).get("__annotations__", {}):
                continue
            seen.add(name)
            if isinstance(value, property | functools.cached_property):
                function = value.fget if isinstance(value, property) else value.func
                if function is not None and function.__doc__ and definition(function):
                    yield "property", name, function
            elif isinstance(value, classmethod | staticmethod):
                if value.__func__.__doc__ and definition(value.__func__):
                    kind = "classmethod" if isinstance(value, classmethod) else "staticmethod"
                    yield kind, name, value.__func__
            elif inspect.isfunction(value) and value.__doc__ and definition(value):
                yield "method", name, value


def received(item: typing.Any) -> list[type]:
    """Lists the classes that users get from a function or class and that no package exports."""
    found: list[type] = []
    waiting = [item]
    for one in waiting:
        scope = vars(sys.modules[one.__module__]) if hasattr(one, "__module__") else {}
        for name in re.findall(r"[A-Z]\w+", _annotations(one)):
            kind = scope.get(name)
            ours = isinstance(kind, type) and kind.__module__.startswith("gatedjax")
            if ours and kind not in found and kind is not one and not is_public(kind):
                found.append(kind)
                waiting.append(kind)
    return found


def is_public(kind: type) -> bool:
    """Returns True if a package exports a class."""
    packages = places().get(kind.__name__, ())
    return any(getattr(importlib.import_module(one), kind.__name__) is kind for one in packages)


def _annotations(item: typing.Any) -> str:
    """Returns the annotations of the results of a function, or of a class with its fields."""
    if not isinstance(item, type):
        return signature(item).rpartition(" -> ")[2]
    results = [signature(value).rpartition(" -> ")[2] for _, _, value in members(item)]
    return " ".join([constructor(item), *results])


def described(package: str, name: str, module: types.ModuleType | None = None) -> list[str]:
    """Returns the entry of a public name, and the entries of the classes that users get from it."""
    module = module or importlib.import_module(package)
    lines = _entry(package, name, module, [f":module: {package}"])
    for kind in received(getattr(module, name)):
        home = sys.modules[kind.__module__]
        options = [f":module: {home.__name__}", ":no-index:"]
        heading, *entry = _entry(package, kind.__name__, home, options)
        where = f"For annotations: `from {home.__name__} import {kind.__name__}`."
        lines += [heading, *entry[:3], where, "", *entry[3:]]
    return lines


def _entry(package: str, name: str, module: types.ModuleType, options: list[str]) -> list[str]:
    """Returns a directive of the Python domain with its content; `package` resolves names."""
    item = getattr(module, name)
    text = importing(markdown(document(module.__name__, name), package), _home(module, name))
    if isinstance(item, type):
        inner = list(text)
        own = {key: value for key, value in fields(item).items() if value[2]}
        if own and "**Attributes**" not in inner:
            inner += ["**Fields**", ""]
            for key, (_, _, about) in own.items():
                inner.append(f"- `{key}`: {inline(' '.join(about.split()), package)}")
            inner.append("")
        for kind, key, value in members(item):
            inner += _member(package, kind, key, value, options[1:])
        return [f"::::{{py:class}} {name}{constructor(item)}", *options, "", *inner, "::::", ""]
    if callable(item) and typing.get_origin(item) is None:
        return [f"::::{{py:function}} {name}{signature(item)}", *options, "", *text, "::::", ""]
    value = repr(item)
    shown = [f":value: {value}"] if len(value) < 200 and "\n" not in value else []
    return [f"::::{{py:data}} {name}", *options, *shown, "", *text, "::::", ""]


def _home(module: types.ModuleType, name: str) -> types.ModuleType:
    """Returns the module with the source of a public name, whose names its examples use."""
    origin = getattr(getattr(module, name), "__module__", None)
    places = [origin] if origin in sys.modules else list(_origins(module.__name__, name))
    return sys.modules[places[-1]] if places else module


def _member(package: str, kind: str, name: str, value: typing.Any, more: list[str]) -> list[str]:
    text = importing(markdown(value.__doc__, package), sys.modules[value.__module__])
    if kind == "property":
        node = definition(value)
        returns = getattr(node, "returns", None)
        options = [f":type: {ast.unparse(returns)}"] if returns is not None else []
        options += more
        return [f":::{{py:property}} {name}", *options, "", *text, ":::", ""]
    options = [f":{kind}:", *more] if kind != "method" else more
    called = signature(value, method=True)
    return [f":::{{py:method}} {name}{called}", *options, "", *text, ":::", ""]
