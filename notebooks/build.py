"""Writes notebooks from their text copies.

    python notebooks/build.py [--check|--execute] [NAME]

People edit and review the text copy: cells begin with `# %%`, and prose with
`# %% [markdown]`. Words after `# %%` are tags of the cell: `# %% parameters`
marks the numbers that papermill may replace, and `# %% hide-input` folds code
that only draws. A cell with links to the file and to Colab follows the first.

`--execute` runs the cells and stores their outputs; without it outputs stay
where a cell computes what it did, so that comments and line breaks may change.
`--check` compares, and requires outputs in all notebooks.
"""

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import nbformat

FOLDER = Path(__file__).resolve().parent
LIMIT = 1_000_000
"""Bytes of a notebook with its outputs."""
REPOSITORY = "OWNER/gatedjax"
"""The repository on GitHub. OWNER has to be replaced once the repository is public."""
LINKS = """
[Download this notebook](https://github.com/{repository}/raw/main/notebooks/{name}.ipynb) ·
[Open it in Colab](https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb)

Both links are right once the repository is public; until then `OWNER` stands in place of its owner.
On Colab, run these lines first:

```
!git clone --depth 1 https://github.com/{repository}
%cd gatedjax
%pip install '.[notebooks]'
%cd notebooks
```
"""


def links(name: str) -> nbformat.NotebookNode:
    """Returns the cell with the links of a notebook. The site has its own (docs/_ext)."""
    cell = nbformat.v4.new_markdown_cell(
        LINKS.strip().format(repository=REPOSITORY, name=name)
    )
    cell.metadata["tags"] = ["links"]
    cell["id"] = "links"
    return cell


def cells(text: str) -> list[nbformat.NotebookNode]:
    """Returns the cells of a text copy, without the text before the first mark."""
    collected = []
    for number, part in enumerate(text.split("\n# %%")[1:]):
        kind, _, body = part.partition("\n")
        body = body.strip("\n")
        if "[markdown]" in kind:
            prose = "\n".join(
                line.removeprefix("#").removeprefix(" ")
                for line in body.split("\n")
            )
            cell = nbformat.v4.new_markdown_cell(prose)
        else:
            cell = nbformat.v4.new_code_cell(body)
            if tags := kind.split():
                cell.metadata["tags"] = tags
            if "hide-input" in tags:
                # JupyterLab folds by this entry, and the site by the tag.
                cell.metadata["jupyter"] = {"source_hidden": True}
        cell["id"] = f"cell-{number}"
        collected.append(cell)
    return collected


def notebook(source: Path) -> nbformat.NotebookNode:
    """Makes the notebook of a text copy, without outputs."""
    first, *others = cells(source.read_text(encoding="utf-8"))
    node = nbformat.v4.new_notebook(cells=[first, links(source.stem), *others])
    node.metadata["kernelspec"] = {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    return node


def keep_outputs(node: nbformat.NotebookNode, target: Path) -> None:
    """Takes over the outputs of an earlier notebook for cells that compute the same."""
    if not target.exists():
        return
    before = {
        syntax(cell.source): cell
        for cell in nbformat.read(target, as_version=4).cells
        if cell.cell_type == "code"
    }
    for cell in node.cells:
        if cell.cell_type == "code" and syntax(cell.source) in before:
            cell.outputs = before[syntax(cell.source)].outputs
            cell.execution_count = before[syntax(cell.source)].execution_count


def syntax(source: str) -> str:
    """Returns the syntax tree of a cell as text, which has no comments and line breaks."""
    return ast.dump(ast.parse(source))


def execute(node: nbformat.NotebookNode) -> None:
    """Runs the cells of a notebook, and keeps the outputs that a reader needs.

    Times, progress and the objects that plotting calls return are left out.
    """
    import nbclient

    # The cells read files that are next to the notebook.
    where = {"metadata": {"path": str(FOLDER)}}
    nbclient.NotebookClient(
        node, timeout=3600, kernel_name="python3", resources=where
    ).execute()
    node.metadata.pop("language_info", None)
    for cell in node.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = join_streams(
                out
                for out in cell.outputs
                if out.get("name") != "stderr"
                and not (
                    out.output_type == "execute_result"
                    and set(out.data) == {"text/plain"}
                )
            )


def join_streams(
    outputs: Iterable[nbformat.NotebookNode],
) -> list[nbformat.NotebookNode]:
    """Joins printed texts that follow each other, because a kernel may send each line alone."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def faults(source: Path, target: Path) -> list[str]:
    """Lists the differences of a notebook from its text copy, and what it lacks."""
    if not target.exists():
        return ["there is none"]
    from_text, committed = notebook(source), nbformat.read(target, as_version=4)
    kinds = [
        [
            (cell.cell_type, cell.source, cell.metadata.get("tags"))
            for cell in book.cells
        ]
        for book in (from_text, committed)
    ]
    if kinds[0] != kinds[1]:
        return [f"it differs from {source.name}: run python notebooks/build.py"]
    code = [cell for cell in committed.cells if cell.cell_type == "code"]
    lacking = []
    if not all(cell.execution_count for cell in code):
        lacking.append(
            "cells without outputs: run python notebooks/build.py --execute"
        )
    if any(out.output_type == "error" for cell in code for out in cell.outputs):
        lacking.append("a cell failed")
    if target.stat().st_size > LIMIT:
        lacking.append(
            f"it has {target.stat().st_size:,} bytes, at most {LIMIT:,} are wanted"
        )
    return lacking


def main() -> int:
    """Builds or checks; returns the exit status."""
    args = sys.argv[1:]
    named = [arg for arg in args if not arg.startswith("--")]
    status = 0
    for source in sorted(FOLDER.glob("*.py")):
        if source.name == "build.py" or (named and source.stem not in named):
            continue
        target = source.with_suffix(".ipynb")
        if "--check" in args:
            for fault in faults(source, target):
                print(f"{target}: {fault}")
                status = 1
            continue
        node = notebook(source)
        if "--execute" in args:
            execute(node)
        else:
            keep_outputs(node, target)
        target.write_text(nbformat.writes(node) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
