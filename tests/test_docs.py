"""The examples of docs/training.md run as pasted and print what the page says."""

import re

from tests.conftest import ROOT


def test_examples_run_in_order_and_print_what_the_page_says(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    parts = re.findall(r"```python\n(.*?)```\s+This prints `(.*?)`", text, flags=re.DOTALL)
    assert len(parts) == text.count("```python") == 3
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for code, printed in parts:
        exec(compile(code, "training.md", "exec"), scope)
        assert capsys.readouterr().out.strip() == printed
