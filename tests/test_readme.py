"""The README's code runs as pasted, and its claims about size and speed hold."""

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT


def _blocks() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_its_first_block_names_the_two_commands_that_set_up_everything():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    commands = [line.partition("#")[0].strip() for line in first.splitlines()]
    assert [command for command in commands if command.startswith("make ")] == [
        "make demo",
        "make test",
    ]
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "make test" in steps
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name, needed in (("demo", ".plots"), ("test", ".dev")):
        assert re.search(rf"^{name}: \$\(VENV\)/{re.escape(needed)}$", makefile, re.MULTILINE)


def test_example_runs_as_pasted_and_prints_what_the_readme_says(capsys):
    example = _blocks()[0]
    assert sum(bool(line.strip()) for line in example.splitlines()) == 12
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == "(2, 8) (2, 5)"


def test_the_example_of_test_time_runs_after_the_first_one():
    scope: dict = {}
    for example in _blocks()[:2]:
        exec(compile(example, "README.md", "exec"), scope)
    states, scores, logits, lengths, _ = scope["args"]
    pooled = scope["attend_at_test"](states, scores, logits - 1, lengths)
    assert float(abs(pooled - 1).max()) < 1e-6  # though no gate is open by its sign


def test_the_example_of_gates_prints_what_the_readme_says(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    ((code, said),) = re.findall(
        r"```python\n(from gatedjax import gates.*?)```\s+It prints `(.*?)`", text, flags=re.DOTALL
    )
    imports = "import jax\nimport jax.numpy as jnp\n"
    exec(compile(imports + code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:flax")
def test_nnx_example_runs_after_the_first_one():
    scope: dict = {}
    exec(compile(_blocks()[0], "README.md", "exec"), scope)
    (pool,) = (block for block in _blocks() if "nnx" in block)
    exec(compile(pool, "README.md", "exec"), scope)
    assert scope["pooled"].shape == (2, 8)
    assert float(scope["weights"][1, 3:].sum()) == 0.0


@pytest.mark.slow
def test_import_adds_little_to_importing_jax_and_flax():
    code = (
        "import time, jax, jax.numpy, flax.linen, optax\n"
        "start = time.perf_counter()\n"
        "import gatedjax\n"
        "print(time.perf_counter() - start)\n"
    )
    seconds = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(seconds) < 0.6


@pytest.mark.slow
def test_import_of_every_subpackage_loads_no_heavy_extra():
    code = (
        "import sys, gatedjax\n"
        "for name in gatedjax.__all__[1:]: getattr(gatedjax, name)\n"
        "heavy = {'tensorflow', 'tensorflow_datasets', 'orbax.checkpoint', 'matplotlib', 'grain'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


def test_its_ratios_of_times_are_those_of_the_page_of_speed():
    speed = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .partition("\n## Speed\n")[2]
        .partition("\n## ")[0]
    )
    page = (ROOT / "docs/speed.md").read_text(encoding="utf-8")
    ratios = re.findall(r"\b\d\.\d\d\b", speed)
    assert len(ratios) >= 5
    assert [ratio for ratio in ratios if ratio not in page] == []


def test_the_table_of_papers_has_a_short_result_in_whole_sentences_for_each():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = text.split("| paper | idea | result of the runs here |")[1].split("\n\n")[0]
    results = [row.split("|")[3].strip() for row in rows.splitlines()[2:]]
    assert len(results) == 5
    for result in results:
        assert len(result.split()) <= 20, result
        assert result.endswith(".")
        assert re.search("reproduced|excluded|undecided|not run", result), result
