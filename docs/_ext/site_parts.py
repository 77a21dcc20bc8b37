"""What the site adds to Sphinx: the API reference, flowcharts, and the check that nothing lacks."""

import importlib
import inspect

import drawing
import reference
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata


class Api(SphinxDirective):
    """The entries of public names, one in each line, of the package that is the argument."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Parses what `reference.described` writes."""
        package = self.arguments[0]
        module = importlib.import_module(package)
        lines: list[str] = []
        for name in " ".join(self.content).split():
            try:
                path = inspect.getsourcefile(inspect.unwrap(getattr(module, name)))
            except TypeError:
                path = None
            self.env.note_dependency(path or str(module.__file__))
            lines += reference.described(package, name)
        return self.parse_text_to_nodes("\n".join(lines))


class Package(SphinxDirective):
    """What the docstring of a package says, and how it is imported."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parses the docstring."""
        module = importlib.import_module(self.arguments[0])
        self.env.note_dependency(str(module.__file__))
        lines = reference.markdown(module.__doc__ or "", self.arguments[0])
        lines += [f":::{{py:module}} {self.arguments[0]}", ":::"]
        return self.parse_text_to_nodes("\n".join(lines))


class Mermaid(SphinxDirective):
    """A flowchart, without the arrows that follow from others."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draws it."""
        picture = drawing.svg("\n".join(self.content), "which part uses which")
        note = "Arrows that follow from others are left out."
        return [nodes.raw("", picture, format="html"), nodes.caption("", note)]


def check(app: Sphinx) -> None:
    """Fails the build where the reference lacks a public name, or has one that is none."""
    faults = reference.faults()
    if faults:
        raise ExtensionError("docs/api: " + "; ".join(faults))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Sphinx calls this."""
    app.add_directive("api", Api)
    app.add_directive("package", Package)
    app.add_directive("mermaid", Mermaid)
    app.connect("builder-inited", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
