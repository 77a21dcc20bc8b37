"""The examples of the documentation run as pasted and print what the page says."""

import ast
import doctest
import importlib
import itertools
import os
import re
import runpy
import shlex
import types
from pathlib import Path

import jax
import pytest

from gatedjax import data
from gatedjax.__main__ import main
from gatedjax.text.fit import _network_options
from gatedjax.text.sources import _open
from tests.conftest import ROOT
from tests.test_site import load, pasted

PAGES = [
    ("training", 8),
    ("recurrence", 8),
    ("masks", 2),
    ("ga_net", 1),
    ("rau", 1),
    ("libraries", 5),
    ("start", 2),
    ("ga_reader", 1),
    ("agt", 1),
    ("gates", 7),
    ("ssan", 4),
    ("parallel", 3),
    ("export", 4),
    ("own_text", 2),
    ("own_text_files", 1),
    ("own_text_labels", 1),
    ("own_text_limits", 1),
    ("encoders", 1),
    ("own_loop", 3),
]


def _write_the_files_of_a_reader():
    """Writes the files that commands name. An example must not replace them."""
    words = {"negative": "dull lifeless flat tedious", "positive": "fine moving bright brilliant"}
    films = ["text,label"] + [
        f"a {one} {two} {thing},{label}"
        for label in words
        for one, two in itertools.permutations(words[label].split(), 2)
        for thing in ("film", "story", "cast", "plot")
    ]
    news = [(f"goal {i}", "sport") for i in range(8)] + [(f"bank {i}", "money") for i in range(8)]
    files = {
        "reviews.csv": films,
        "test.csv": films,
        "news.txt": [f"__label__{name} {text}" for text, name in news],
        "stars.csv": ["text,stars", *(f"{text},{int(name == 'sport')}" for text, name in news)],
    }
    for name, lines in files.items():
        Path(name).write_text("\n".join(lines), encoding="utf-8")


def _load_few(*args):
    """Loads every twelfth text of a data set; what commands print about it is not compared."""
    source = data.load(*args)
    return data.Source(source[::12], source.info)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "count"), PAGES)
def test_examples_run_in_order_and_print_what_the_page_says(
    page, count, tmp_path, monkeypatch, capsys, request
):
    """Commands that name a data set, such as the demo, read every twelfth of its texts here."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    parts = re.findall(r"```python\n(.*?)```\s+This prints `(.*?)`", text, flags=re.DOTALL)
    assert len(parts) == text.count("```python") == count
    if page == "training":  # it shows what a run on the checkpoint of another one says
        request.getfixturevalue("whole_runs")
    monkeypatch.chdir(tmp_path)
    # a hundred lines of text are learned in fewer steps than the default budget has
    monkeypatch.setattr(_network_options, "_FEWEST_STEPS", 80)
    few = types.SimpleNamespace(load=_load_few, names=data.names)
    monkeypatch.setattr(_open, "gdata", few)
    _write_the_files_of_a_reader()
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    scope: dict = {}
    for code, printed in parts:
        exec(compile(code, f"{page}.md", "exec"), scope)
        assert capsys.readouterr().out.strip() == printed
    assert all(path.read_bytes() == content for path, content in files.items())
    commands = "".join(_shell(text)).replace("\\\n", " ")
    for line in re.findall(r"^gatedjax .*$", commands, flags=re.MULTILINE):
        assert main(shlex.split(line, comments=True)[1:]) == 0, line


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted((ROOT / "gatedjax").rglob("*.py"))
        if ">>> " in path.read_text("utf-8")
    ],
    ids=lambda path: path.stem,
)
def test_examples_of_docstrings_run_as_pasted_from_the_reference(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    runner = doctest.DocTestRunner()
    for found in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        shown = []
        for block in pasted(load("reference"), found.docstring, name):
            example = doctest.DocTestParser().get_doctest(block, {}, found.name, str(path), 0)
            shown += [one.source for one in example.examples]
            runner.run(example)  # in an empty namespace
        assert {one.source for one in found.examples} <= set(shown)
    assert runner.tries
    assert runner.failures == 0


PROGRAMS = sorted((ROOT / "docs" / "programs").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_of_researchers_run_and_their_checks_hold(path, monkeypatch):
    code = path.read_text(encoding="utf-8")
    assert len(code.splitlines()) <= 60
    assert re.search(r"\bassert", ast.unparse(ast.parse(code).body[-1]))  # ends with its check
    if "import equinox" in code:
        pytest.importorskip("equinox")
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])  # restored after the program
    with jax.numpy_rank_promotion("allow"):  # as outside these tests
        runpy.run_path(str(path), run_name="__main__")


def test_the_page_of_programs_shows_each_of_them():
    text = (ROOT / "docs" / "own_loop.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```\{literalinclude\} programs/(\w+)\.py$", text, re.MULTILINE)
    assert sorted(shown) == [path.stem for path in PROGRAMS]
    assert all(f"](programs/{name}.py)" in text for name in shown)


def peers():
    """The blocks of PyTorch and what they print."""
    text = (ROOT / "docs" / "libraries.md").read_text(encoding="utf-8")
    return re.findall(r"```py\n(import torch.*?)```\s+This prints `(.*?)`", text, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "printed"), peers())
@pytest.mark.filterwarnings("ignore")
def test_examples_of_other_libraries_print_what_the_page_says(code, printed, capsys):
    pytest.importorskip("torch")
    exec(compile(code, "libraries.md", "exec"), {})
    assert capsys.readouterr().out.strip() == printed


def _shell(text):
    """The blocks of commands that run beside the files of a reader."""
    return re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
