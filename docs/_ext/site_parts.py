"""Extensions of Sphinx for this site: the API reference with its checks, and pictures."""

import importlib
import inspect
import json
import os
import sys
from pathlib import Path

import drawing
import ideas
import links
import name_pages
import reference
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri
from sphinx.util.typing import ExtensionMetadata

from gatedjax.gates import _registry


def note_source(directive: SphinxDirective, package: str, name: str) -> None:
    """Makes Sphinx read the page of a directive again when the source of a name has changed."""
    module = importlib.import_module(package)
    try:
        path = inspect.getsourcefile(inspect.unwrap(getattr(module, name)))
    except TypeError:
        path = None
    directive.env.note_dependency(path or str(module.__file__))


class Api(SphinxDirective):
    """A table of public names of the package in the argument, and the menu of their pages."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Parses the result of `name_pages.summary`."""
        package, names = self.arguments[0], reference.expand(" ".join(self.content))
        for name in names:
            note_source(self, package, name)
        return self.parse_text_to_nodes("\n".join(name_pages.summary(package, names)))


class Entry(SphinxDirective):
    """The entry of a public name: signature, equation, arguments, example, link to the source."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Parses the result of `reference.described`."""
        note_source(self, *self.arguments)
        return self.parse_text_to_nodes("\n".join(reference.described(*self.arguments)))


class Package(SphinxDirective):
    """The docstring of a package."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parses the docstring."""
        module = importlib.import_module(self.arguments[0])
        self.env.note_dependency(str(module.__file__))
        lines = reference.importing(
            reference.markdown(module.__doc__ or "", module.__name__), module
        )
        lines += [f":::{{py:module}} {self.arguments[0]}", ":::"]
        return self.parse_text_to_nodes("\n".join(lines))


class Estimators(SphinxDirective):
    """The table of the estimators of `gatedjax.gates`; the content is for readers of the file."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Parses the table."""
        self.env.note_dependency(str(_registry.__file__))
        return self.parse_text_to_nodes(_registry.table_of_estimators())


class Mermaid(SphinxDirective):
    """A flowchart, without the arrows that follow from others."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draws the flowchart."""
        picture = drawing.svg("\n".join(self.content), "which part uses which")
        note = "Arrows that follow from others are left out."
        return [nodes.raw("", picture, format="html"), nodes.caption("", note)]


class Ideas(SphinxTransform):
    """Puts the pictures of the papers' ideas into their pages, so that they have its colours.

    An image in a file would follow the operating system instead of the theme of the page.
    """

    default_priority = 210

    def apply(self, **options: object) -> None:
        """Replaces the images of a page that are such pictures."""
        for node in list(self.document.findall(nodes.image)):
            name = Path(node["uri"]).stem.removeprefix("idea_")
            if Path(node["uri"]).name == f"idea_{name}.svg" and name in ideas.IDEAS:
                self.env.note_dependency(str(ideas.IMAGES / f"idea_{name}.svg"))
                picture = ideas.inline((ideas.IMAGES / f"idea_{name}.svg").read_text("utf-8"))
                node.replace_self(nodes.raw("", picture, format="html"))


def link_notebook(app: Sphinx, page: str, source: list[str]) -> None:
    """Replaces the links in a notebook by links that are right on this site.

    The download is a file of the site. The link to Colab needs the address of the repository, which
    only GitHub Actions knows (docs/conf.py).
    """
    if Path(app.env.doc2path(page)).suffix != ".ipynb":
        return
    notebook = json.loads(source[0])
    name = Path(page).name
    lines = f"{{download}}`Download this notebook <{name}.ipynb>`"
    if repository := os.environ.get("GITHUB_REPOSITORY", ""):
        colab = f"https://colab.research.google.com/github/{repository}/blob/main"
        lines += f" · [Open it in Colab]({colab}/notebooks/{name}.ipynb)"
    for cell in notebook["cells"]:
        if "links" in cell["metadata"].get("tags", []):
            # Text of several lines is a list in the files that nbformat writes.
            text = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            *_, colab_lines = text.partition("On Colab")
            if repository:
                lines += "\n\nOn Colab" + colab_lines.replace("OWNER/gatedjax", repository)
            cell["source"] = lines
    source[0] = json.dumps(notebook)


def link_measurements(app: Sphinx, page: str, source: list[str]) -> None:
    """Makes links to the files of measurements downloads, because they are no pages of the site."""
    folder = "../experiments/results/benchmarks/"
    source[0] = source[0].replace(f"]({folder}", f"](path:{folder}")


def link_figures(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Replaces the targets of thumbnails by the copies of the figures that the site has.

    Sphinx copies the files of images to one folder, and leaves the `target` of an image as written.
    """
    folder = relative_uri(app.builder.get_target_uri(page), app.builder.imagedir)
    for image in doctree.findall(nodes.image):
        link, copies = image.parent, app.env.images.get(image["uri"])
        is_figure = isinstance(link, nodes.reference) and copies is not None
        if is_figure and Path(link.get("refuri", "")).name == Path(image["uri"]).name:
            link["refuri"] = f"{folder}/{copies[1]}"


def unlink_namesakes(app: Sphinx, doctree: nodes.document) -> None:
    """Removes links of types in signatures to names of other packages that are something else."""
    for signature in doctree.findall(addnodes.desc_signature):
        item: object = importlib.import_module(signature["module"])
        for part in signature["fullname"].split("."):
            item = getattr(item, part, None)
        scope: dict[str, object] = {}
        for base in reversed(getattr(item, "__mro__", (item,))):  # fields may be inherited
            scope |= vars(sys.modules.get(getattr(base, "__module__", ""), object))
        for link in list(signature.findall(addnodes.pending_xref)):
            name = link["reftarget"]
            package, _, found = (reference.place_of(name, link["py:module"]) or "").rpartition(".")
            linked = getattr(importlib.import_module(package), found) if package else None
            if package and scope.get(name, linked) is not linked:
                link.replace_self(link.children)


def add_anchors(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Adds the anchors of a page to which the pages of the source link.

    `sphinx.ext.viewcode` names an anchor after the package of the first name that it met in a
    source file. Names of another package, and classes that users only receive, lack this anchor.
    """
    sources = getattr(app.env, "_viewcode_modules", {}).values()
    wanted = {
        name: f"{package}.{name}"
        for _, _, used, package in filter(None, sources)
        for name, owner in used.items()
        if owner == page
    }
    for signature in doctree.findall(addnodes.desc_signature):
        anchor = wanted.pop(signature.get("fullname"), None)
        if anchor is not None and anchor not in signature["ids"]:
            signature["ids"].append(anchor)


def check_links(app: Sphinx, error: Exception | None) -> None:
    """Raises ExtensionError if a link in the finished pages leads to no file or anchor."""
    broken = [] if error or app.builder.name != "html" else links.broken_links(Path(app.outdir))
    if broken:
        lines = "\n".join(broken[:20])
        raise ExtensionError(f"{len(broken)} links lead nowhere, the first of them:\n{lines}")


def check(app: Sphinx) -> None:
    """Writes the pages of the public names; raises ExtensionError if the lists have faults."""
    faults = reference.faults()
    if faults:
        raise ExtensionError("docs/api: " + "; ".join(faults))
    name_pages.write_pages()


def setup(app: Sphinx) -> ExtensionMetadata:
    """Registers the extensions; Sphinx calls this function."""
    app.add_directive("api", Api)
    app.add_directive("entry", Entry)
    app.add_directive("package", Package)
    app.add_directive("mermaid", Mermaid)
    app.add_directive("estimators", Estimators)
    app.add_transform(Ideas)
    app.connect("builder-inited", check)
    app.connect("source-read", link_notebook)
    app.connect("source-read", link_measurements)
    app.connect("doctree-read", unlink_namesakes)
    app.connect("doctree-resolved", link_figures)
    app.connect("doctree-resolved", add_anchors)
    app.connect("build-finished", check_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
