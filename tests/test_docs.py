"""The examples of the documentation run as pasted and print what the page says."""

import re
import shlex

import pytest

from gatedjax.__main__ import main
from tests.conftest import ROOT

PAGES = [
    ("training", 4),
    ("recurrence", 1),
    ("ga_reader", 1),
    ("agt", 1),
    pytest.param("ssan", 1, marks=pytest.mark.slow),
    pytest.param("parallel", 1, marks=pytest.mark.slow),
    pytest.param("export", 3, marks=pytest.mark.slow),
    pytest.param("own_text", 3, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("page", "count"), PAGES)
def test_examples_run_in_order_and_print_what_the_page_says(
    page, count, tmp_path, monkeypatch, capsys
):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    parts = re.findall(r"```python\n(.*?)```\s+This prints `(.*?)`", text, flags=re.DOTALL)
    assert len(parts) == text.count("```python") == count
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for code, printed in parts:
        exec(compile(code, f"{page}.md", "exec"), scope)
        assert capsys.readouterr().out.strip() == printed
    for line in re.findall(r"^gatedjax .*$", "".join(_shell(text)), flags=re.MULTILINE):
        assert main(shlex.split(line, comments=True)[1:]) == 0, line


def _shell(text):
    """The blocks of commands that run in the folder where the examples have written their files."""
    return re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
