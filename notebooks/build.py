"""Writes every notebook from its text copy: `python notebooks/build.py`, or `--check` to compare.

The text copy (cells after `# %%`, prose after `# %% [markdown]`) is what is edited and reviewed;
the notebook holds no outputs.
"""

import sys
from pathlib import Path

import nbformat

FOLDER = Path(__file__).resolve().parent


def cells(text: str) -> list[nbformat.NotebookNode]:
    """The cells of a text copy; what stands before the first mark is left out."""
    found = []
    for number, part in enumerate(text.split("\n# %%")[1:]):
        kind, _, body = part.partition("\n")
        body = body.strip("\n")
        if "[markdown]" in kind:
            prose = "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.split("\n"))
            cell = nbformat.v4.new_markdown_cell(prose)
        else:
            cell = nbformat.v4.new_code_cell(body)
        cell["id"] = f"cell-{number}"
        found.append(cell)
    return found


def notebook(source: Path) -> str:
    """The notebook of a text copy, as JSON."""
    node = nbformat.v4.new_notebook(cells=cells(source.read_text(encoding="utf-8")))
    node.metadata["kernelspec"] = {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    return nbformat.writes(node) + "\n"


def main() -> int:
    """Builds or checks; returns the exit status."""
    status = 0
    for source in sorted(FOLDER.glob("*.py")):
        if source.name == "build.py":
            continue
        target = source.with_suffix(".ipynb")
        wanted = notebook(source)
        if "--check" in sys.argv[1:]:
            if not target.exists() or target.read_text(encoding="utf-8") != wanted:
                print(f"{target} differs from {source}: run python notebooks/build.py")
                status = 1
        else:
            target.write_text(wanted, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
