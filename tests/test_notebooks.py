"""Notebooks equal their text copies, have outputs, and run."""

import importlib.util
import os
import re
import sys

import pytest

from tests._programs import environment
from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FEW = {"STEPS": 20, "DRAWS": 20, "FOLDS": 2}
"""Values of the parameters with which the tests run the notebooks."""
SMALL = """
import functools
import tests._programs
from gatedjax import data, training
from gatedjax.training import identity


@functools.cache
def load_few(*args, load=data.load, most=400):
    source = load(*args)
    if type(source) is not data.Source:
        return source
    every = range(0, len(source), -(-len(source) // most))
    return data.Source([source[i] for i in every], source.info)


def train_briefly(config=training.TrainConfig, **options):
    few = {"num_steps": 4, "log_every": 2, "eval_every": 2, "checkpoint_every": 4}
    return config(**options | few)


data.load, training.TrainConfig = load_few, train_briefly
identity.program_digest = lambda *_: ""
"""
"""Replaces what cells load by 400 examples of it, and their training by four steps, whose program
is lowered once: no cell resumes a run, which would need its digest. Programs share a context of
MLIR, as in the tests' processes."""


@pytest.fixture
def build():
    pytest.importorskip("nbformat")
    path = ROOT / "notebooks" / "build.py"
    spec = importlib.util.spec_from_file_location("notebooks_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebooks_equal_their_text_copies_and_hold_outputs_of_less_than_a_megabyte(
    build, monkeypatch, capsys
):
    assert NOTEBOOKS
    monkeypatch.setattr(sys, "argv", ["build.py", "--check"])
    assert build.main() == 0, capsys.readouterr().out


def test_outputs_stay_with_the_cells_that_have_not_changed(build, tmp_path):
    import nbformat

    source, target = tmp_path / "a.py", tmp_path / "a.ipynb"
    source.write_text('"""Copy."""\n\n# %%\nprint(1)\n\n# %%\nprint(2)\n', encoding="utf-8")
    node = build.notebook(source)
    code = [cell for cell in node.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, 1):
        cell.outputs = [nbformat.v4.new_output("stream", text=f"{number}\n")]
        cell.execution_count = number
    target.write_text(nbformat.writes(node), encoding="utf-8")
    assert build.faults(source, target) == []
    source.write_text('"""Copy."""\n\n# %%\nprint(1)\n\n# %%\nprint(3)\n', encoding="utf-8")
    assert build.faults(source, target) == ["it differs from a.py: run python notebooks/build.py"]
    again = build.notebook(source)
    build.keep_outputs(again, target)
    assert [len(cell.get("outputs", "")) for cell in again.cells] == [1, 0, 0]
    target.write_text(nbformat.writes(again), encoding="utf-8")
    (fault,) = build.faults(source, target)
    assert "--execute" in fault
    again.cells[2].outputs = [nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])]
    again.cells[2].execution_count = 2
    target.write_text(nbformat.writes(again) + " " * build.LIMIT, encoding="utf-8")
    failed, large = build.faults(source, target)
    assert failed == "a cell failed"
    assert "at most 1,000,000" in large


def test_links_follow_the_title(build):
    import nbformat

    for path in NOTEBOOKS:
        first, links, *_ = nbformat.read(path, as_version=4).cells
        assert first.source.startswith("# ")
        assert links.metadata["tags"] == ["links"]
        assert f"{build.REPOSITORY}/raw/main/notebooks/{path.name})" in links.source
        assert f"/github/{build.REPOSITORY}/blob/main/notebooks/{path.name})" in links.source
        assert "once the repository is public" in links.source


def test_a_reader_learns_the_aim_and_the_time_first_and_a_summary_last(build):
    import nbformat

    for path in NOTEBOOKS:
        book = nbformat.read(path, as_version=4)
        assert "**You learn**" in book.cells[0].source, path
        assert "**It takes**" in book.cells[0].source, path
        assert "## Summary" in book.cells[-1].source, path
        for cell in book.cells:
            if cell.cell_type == "code":
                assert not re.search("# (noqa|fmt:)", cell.source), path
                # A cell that only draws is folded, and a heading says what to see.
                if "suptitle" in cell.source or "plt.subplots" in cell.source:
                    assert cell.metadata.get("tags") == ["hide-input"], (path, cell.source)
                    assert "title" in cell.source, (path, cell.source)


def test_outputs_are_printed_texts_and_figures(build):
    import nbformat

    new = nbformat.v4.new_output
    texts = [new("stream", text=f"{letter}\n") for letter in "abc"]
    joined = build.join_streams([*texts[:2], new("display_data", data={}), texts[2]])
    assert [one.get("text") for one in joined] == ["a\nb\n", None, "c\n"]
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            for one in cell.get("outputs", ()):
                # Values that plotting calls return, and warnings, are no use to a reader.
                assert one.get("name") != "stderr", path
                assert set(one.get("data", "_")) != {"text/plain"}, (path, cell.source)
                for frame in re.findall("<iframe [^>]*>", one.get("data", {}).get("text/html", "")):
                    assert 'title="' in frame, path


def test_a_comment_or_a_line_break_does_not_change_a_cell(build):
    assert build.syntax("f(1, 2)  # a sum") == build.syntax("f(\n    1,\n    2,\n)")
    assert build.syntax("f(1, 2)") != build.syntax("f(2, 1)")


def execute(book, kernel):
    """Runs the cells of a notebook in a kernel that runs."""
    client = pytest.importorskip("nbclient").NotebookClient(book, timeout=600, km=kernel)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()


@pytest.fixture(scope="module")
def kernel():
    """One kernel for all: five would import the same libraries, and trace what they share."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    # one device, as a reader has: eight would share each of its small batches
    flags = os.environ["XLA_FLAGS"].replace("--xla_force_host_platform_device_count=8", "")
    with pytest.MonkeyPatch.context() as patch:
        # the kernel's own choice draws into the notebook
        patch.delenv("MPLBACKEND", raising=False)
        for name, value in environment(XLA_FLAGS=flags).items():
            patch.setenv(name, value)
        small = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SMALL)])
        owner = nbclient.NotebookClient(
            small,
            kernel_name="python3",
            resources={"metadata": {"path": str(ROOT / "notebooks")}},
        )
        with owner.setup_kernel(cleanup_kc=True):
            execute(small, owner.km)
            yield owner.km


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# the kernel's own libraries warn about event loops and platform folders, not we
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_notebook_runs(path, kernel):
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(path, as_version=4)
    # nothing that another notebook imported or computed is there by name; and as in the tests'
    # processes, cycles are searched for less often
    first = "%reset -f\n__import__('gc').set_threshold(50_000, 20, 20)"
    book.cells.insert(0, nbformat.v4.new_code_cell(first))
    # As papermill does it: a cell after the parameters replaces them.
    (place,) = (
        i for i, cell in enumerate(book.cells) if "parameters" in cell.metadata.get("tags", [])
    )
    names = re.findall(r"^(\w+) =", book.cells[place].source, re.MULTILINE)
    few = "\n".join(f"{name} = {FEW[name]}" for name in names)
    book.cells.insert(place + 1, nbformat.v4.new_code_cell(few))
    execute(book, kernel)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.get("execution_count") for cell in code)
    drawing = [cell for cell in code if "plot_" in cell.source or "plt.subplots" in cell.source]
    assert drawing
    for cell in drawing:
        shown = {kind for output in cell.outputs for kind in output.get("data", {})}
        assert "image/png" in shown, f"no figure is shown by: {cell.source}"
