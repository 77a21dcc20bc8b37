"""A page for each public name, and the tables of the packages that lead to them, as Markdown."""

import ast
import functools
import importlib
import inspect
import itertools
import re
import typing
from pathlib import Path

import reference

DOCS = reference.PAGES.parent


def folder_of(package: str) -> str:
    """Returns the folder of the pages of a package below docs/api."""
    return package.rpartition(".")[2]


def file_of(package: str, name: str) -> str:
    """Returns the file name, without its ending, of the page of a public name.

    A function with the name of a class in other letters has a longer file name, because some file
    systems do not distinguish them.
    """
    names = [other for place, other in reference.listed() if place == package and other != name]
    collides = name.islower() and name in {other.lower() for other in names}
    return f"{name}_function" if collides else name


def first_sentence(docstring: str) -> str:
    """Returns the first sentence of a docstring in a single line, without Markdown tables."""
    paragraph = inspect.cleandoc(docstring).partition("\n\n")[0]
    text = " ".join(paragraph.split())
    sentence = re.match(r".*?[.!?:](?= [A-Z(`]|$)", text)
    return (sentence.group() if sentence else text).rstrip(":").replace("|", "\\|")


def short_signature(item: typing.Any, length: int = 44) -> str:
    """Returns the arguments of a function or class, optional ones in brackets, cut at a length."""
    if not callable(item) or typing.get_origin(item) is not None:
        return ""
    called = reference.constructor(item) if isinstance(item, type) else reference.signature(item)
    try:
        node = ast.parse(f"def f{called}: ...").body[0]
    except SyntaxError:
        return ""
    assert isinstance(node, ast.FunctionDef)
    given = node.args
    plain = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    needed = len(plain) - len(given.defaults)
    required, optional, shown = plain[:needed], plain[needed:], ""
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        (required if default is None else optional).append(argument.arg)
    for i, name in enumerate(optional):
        longer = f"{shown}, {name}" if shown else name
        if len(", ".join(required)) + len(longer) > length:
            shown = f"{shown}, ..." if i else "..."
            break
        shown = longer
    rest = ", " * bool(required) + shown
    return f"({', '.join(required)}{f'[{rest}]' if shown else ''})"


def summary(package: str, names: list[str]) -> list[str]:
    """Returns a table of public names with their first sentences, and a menu of their pages."""
    module = importlib.import_module(package)
    lines = ["| name | summary |", "|---|---|"]
    for name in names:
        called = short_signature(getattr(module, name)).replace("[", "\\[").replace("]", "\\]")
        link = f"{{py:obj}}`{name} <{package}.{name}>`{called.replace('*', chr(92) + '*')}"
        about = reference.inline(first_sentence(reference.document(package, name)), package)
        lines.append(f"| {link} | {about} |")
    pages = [f"{folder_of(package)}/{file_of(package, name)}" for name in names]
    return [*lines, "", "```{toctree}", ":hidden:", "", *pages, "```", ""]


def page(package: str, name: str) -> str:
    """Returns the page of a public name."""
    lines = [
        f"# {name}".replace("_", "\\_"),
        "",
        f"```{{entry}} {package} {name}",
        "```",
        "",
    ]
    lines += examples(package, name)
    lines += [f"All names of [`{package}`](../{folder_of(package)}.md).", ""]
    return "\n".join(lines)


def write_pages(folder: Path = reference.PAGES) -> list[Path]:
    """Writes the page of each public name, removes pages of other names, and returns the paths."""
    written = {
        folder / folder_of(package) / f"{file_of(package, name)}.md": page(package, name)
        for package, name in reference.listed()
    }
    for path, text in written.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in set(folder.glob("*/*.md")) - set(written):
        path.unlink()
    return sorted(written)


def examples(package: str, name: str) -> list[str]:
    """Returns links to programs of the docs, and to docstrings, whose code uses a public name."""
    lines: list[str] = []
    if sections := uses().get((package, name)):
        lines.append("**Programs that use it**")
        lines.append("")
        for title, places in itertools.groupby(sections, key=lambda section: section[0]):
            links = [f"[{heading or title}](../../{target})" for _, heading, target in places]
            whole = links == [links[0]] and links[0].startswith(f"[{title}]")
            lines.append("- " + (links[0] if whole else f"{title}: {', '.join(links)}"))
        lines.append("")
    if others := examples_of().get((package, name)):
        links = [f"{{py:obj}}`{other} <{place}.{other}>`" for place, other in others]
        lines += [f"**Docstrings with an example of it:** {', '.join(links)}.", ""]
    return lines


@functools.cache
def uses() -> dict[tuple[str, str], list[tuple[str, str, str]]]:
    """Returns, by (package, name), the sections of the pages whose programs use a public name.

    A section is (title of the page, heading, target). The target is a path below docs with an
    anchor; the heading is empty for the part of a page before its first heading.
    """
    found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for path in sorted(DOCS.glob("*.md")):
        head, *sections = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        title, aliases = head.partition("\n")[0].removeprefix("# "), {}
        for number, section in enumerate([head, *sections]):
            heading = section.partition("\n")[0] if number else ""
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            target = f"{path.name}#{anchor}" if number else path.name
            code = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
            for file in re.findall(r"^```\{literalinclude\} (\S+)", section, re.MULTILINE):
                code.append((DOCS / file).read_text(encoding="utf-8"))
            for name in used_names("\n".join(code), aliases):
                found.setdefault(name, []).append((title, heading, target))
    return found


@functools.cache
def examples_of() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Returns, by (package, name), the other names of the package whose examples use a name."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for package, name in reference.listed():
        for word in reference.public()[package]:
            example = re.findall(
                r"^ *(?:>>>|\.\.\.) (.*)$", reference.document(package, name), re.MULTILINE
            )
            if word != name and re.search(rf"\b{word}\b(?!=)", "\n".join(example)):
                found.setdefault((package, word), []).append((package, name))
    return found


def used_names(code: str, aliases: dict[str, str]) -> list[tuple[str, str]]:
    """Returns (package, name) of each public name that a program uses.

    aliases has the modules of gatedjax by the names that earlier programs of the page import them
    as; imports of this program are added.
    """
    tree, names = ast.parse(code), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {a.asname: a.name for a in node.names if a.asname and "gatedjax" in a.name}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gatedjax"):
            for alias in node.names:
                if (full := f"{node.module}.{alias.name}") in reference.public():
                    aliases[alias.asname or alias.name] = full
                else:
                    names.append((str(node.module), alias.name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.append((aliases.get(node.value.id, ""), node.attr))
    known = (n if n[0] != "gatedjax" else ("gatedjax.text", n[1]) for n in names)
    return [name for name in dict.fromkeys(known) if name[1] in reference.public().get(name[0], ())]
