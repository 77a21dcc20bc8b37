"""Every committed page of results is what its paper's command makes of the committed records."""

import collections
import difflib
import importlib
import re
import shutil
from xml.etree import ElementTree

import pytest

from experiments.core import chart, summary, verdict
from experiments.core.papers import PAPERS
from tests._slow import slow_but
from tests.conftest import ROOT

RESULTS = ROOT / "experiments" / "results"
PAGES = sorted(str(path.parent.relative_to(RESULTS)) for path in RESULTS.rglob("RESULTS.md"))


def rendered(folder, copy):
    """What the command of a folder's paper writes from a copy of the folder."""
    shutil.copytree(RESULTS / folder, copy)
    page = copy / "RESULTS.md"
    page.unlink()
    tables = importlib.import_module(f"experiments.{folder.split('/')[0]}.tables")
    assert tables.main(["render", "--results", str(copy)]) == 0
    return page.read_bytes()


def test_every_paper_has_a_page():
    assert {page.split("/")[0] for page in PAGES} == set(PAPERS)
    longer = {"ssan/bshift_10000", "ssan/bshift_31260", "ssan/wrd_20000", "ssan/books"}
    longer |= {"ga_reader/steps_4000", "ga_reader/epochs_10", "ga_net/imdb_8_epochs"}
    assert longer < set(PAGES)


@pytest.mark.parametrize("folder", slow_but(PAGES, "agt", "ga_net"))
def test_a_page_is_rendered_from_its_records_byte_for_byte(folder, tmp_path):
    wanted = (RESULTS / folder / "RESULTS.md").read_bytes()
    found = rendered(folder, tmp_path / "results")
    lines = (text.decode().splitlines() for text in (wanted, found))
    assert found == wanted, "\n".join(difflib.unified_diff(*lines, lineterm="", n=0))


@pytest.mark.parametrize("folder", PAGES)
def test_a_page_is_short_at_first_and_has_no_verdict_of_fewer_than_three_seeds(folder):
    text = (RESULTS / folder / "RESULTS.md").read_text(encoding="utf-8")
    short, table = text.split("## ")[1:3]
    assert short.startswith("In short\n")
    assert table.startswith("Claims\n")
    lines = [line for line in short.splitlines()[1:] if line.strip()]
    assert 4 <= len(lines) <= 13
    assert lines[0].startswith("**")
    assert lines[1].startswith("**Of ")
    assert lines[-1] == summary.NOTE
    rows = [row for row in table.splitlines() if row.startswith("|")][2:]
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[2].startswith(tuple(map(verdict.mark, verdict.WORDS))), row
        few = re.search(r"\(n=[12]\)", cells[4])
        if few:
            assert cells[2].startswith(f"{verdict.mark('undecided')}; these runs"), row
            assert cells[6] == cells[8] == cells[11] == cells[13] == "-", row
    assert " beats " not in text
    assert f"Of {len(rows)} comparisons" in lines[1]


@pytest.mark.parametrize("name", sorted(PAPERS))
def test_the_chart_of_a_paper_has_the_rows_of_its_records(name):
    paper = importlib.import_module(f"experiments.{name}.paper").PAPER
    store = paper.store()
    findings = paper.findings(store)
    panels = chart.panels_of(findings, paper.judged_numbers(store))
    wanted = [
        text
        for panel in panels
        for claim, rows in panel.groups.items()
        for text in (claim, *(text for row in rows for text in (row.label, row.end)))
    ]
    root = ElementTree.parse(RESULTS / name / "claims.svg")
    found = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    missing = collections.Counter(wanted) - collections.Counter(found)
    assert not missing, f"type `python -m experiments.{name}.tables chart`"


def test_records_hold_nothing_of_one_machine():
    for path in sorted(RESULTS.glob("**/*.json")):
        assert not re.search(r'"(/|~|[A-Z]:\\)', path.read_text(encoding="utf-8")), path
