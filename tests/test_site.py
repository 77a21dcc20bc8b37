"""The site: every public name has its entry, links lead somewhere, docstrings become Markdown."""

import doctest
import functools
import importlib
import importlib.util
import json
import re
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from experiments.core.verdict import WORDS, mark
from tests.conftest import ROOT

EXTENSIONS = ROOT / "docs" / "_ext"
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "experiments/results/**/*.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
    # Sphinx writes a page for each public name into the folders of docs/api.
    if "_build" not in path.parts and path.parent.parent != ROOT / "docs" / "api"
)
LINK = re.compile(r"(?<!\\)\[[^\]]*\]\((?!https?:|mailto:)([^)\s]+)\)")
FENCED = re.compile(r"^(```+|:::+).*?^\1$", re.MULTILINE | re.DOTALL)


@functools.cache
def load(name):
    sys.path.insert(0, str(EXTENSIONS))  # the extensions import each other by their names
    spec = importlib.util.spec_from_file_location(name, EXTENSIONS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(EXTENSIONS))
    return module


def pasted(reference, docstring, module):
    """The blocks of code that the page of a docstring shows."""
    lines = reference.markdown(docstring, "gatedjax")
    return blocks(reference.importing(lines, importlib.import_module(module)))


def blocks(lines):
    return re.findall(r"^```py\w+\n(.*?)^```", "\n".join(lines), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def reference():
    return load("reference")


@pytest.fixture(scope="module")
def name_pages():
    return load("name_pages")


def test_links_that_lead_nowhere_are_found(tmp_path):
    broken_links = load("links").broken_links
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="a/b.html#c d"></a><a href="#top"></a><a href="https://x"></a>'
        '<a href="a/b.html#no"></a><img src="a/none.png"><script async src="https://x/y.js">'
    )
    (tmp_path / "a" / "b.html").write_text('<p id="c d"></p><a href="../index.html?q=1#top"></a>')
    assert broken_links(tmp_path) == [
        "index.html: https://x/y.js",
        "index.html: a/b.html#no",
        "index.html: a/none.png",
    ]


def test_every_public_name_is_on_one_page_of_the_reference_with_its_docstring(reference):
    assert reference.faults() == []
    assert sum(map(len, reference.public().values())) > 300


def test_classes_that_users_only_receive_stand_beside_what_returns_them(reference):
    lines = "\n".join(reference.described("gatedjax.analysis", "distance_counts"))
    _, entry = lines.split("{py:class} DistanceCounts(mass: np.ndarray")
    assert "`from gatedjax.analysis._self_attention import DistanceCounts`" in entry
    assert "{py:method} shares() -> np.ndarray\n:no-index:" in entry


def test_a_name_that_lacks_is_found_and_so_is_one_that_is_none(reference, tmp_path):
    page = tmp_path / "nn.md"
    page.write_text("```{api} gatedjax.nn\nGRU LSTM\nLSTM\nTransformer\n```\n", encoding="utf-8")
    found = reference.faults([page])
    assert "gatedjax.nn.LSTM is listed twice" in found
    assert "gatedjax.nn.Transformer is listed but not public" in found
    assert "gatedjax.nn.RAU is on no page of docs/api" in found
    assert not any("gatedjax.nn.GRU " in one for one in found)
    # the top level repeats what `text` has
    assert not any(one.startswith("gatedjax.TextClassifier ") for one in found)


def test_a_docstring_becomes_markdown_without_markup_of_its_own(reference):
    text = """Joins *B x_1 with `gru_step` and `jit`.

    y = x W_1 + [b]

c' = tanh(x),  d  = 1

Args:
  x, y: inputs [*B, T]; see
    `length_mask`.

Returns:
  c [*B].

Reference: Somebody 2000.
Deviation: none.
"""
    lines = reference.markdown(text, "gatedjax.functional")
    assert lines[0] == (
        r"Joins \*B x\_1 with {py:obj}`gru_step <gatedjax.functional.gru_step>` and `jit`."
    )
    assert lines[2:5] == ["```{math}", r"y = x \, W _{1} + [ b ]", "```"]
    assert r"c' = \tanh ( x ) , \quad d \quad = 1" in lines
    target = "{py:obj}`length_mask <gatedjax.functional.length_mask>`"
    assert rf"- `x`, `y`: inputs \[\*B, T\]; see {target}." in lines
    assert r"c \[\*B\]." in lines
    assert "**Reference.** Somebody 2000." in lines
    assert "**Deviation.** none." in lines


@pytest.mark.slow
def test_each_public_name_has_a_page_and_a_row_of_a_table(name_pages, reference, tmp_path):
    (tmp_path / "nn").mkdir()
    (tmp_path / "nn" / "Removed.md").write_text("# Removed\n", encoding="utf-8")
    pages = name_pages.write_pages(tmp_path)
    assert len(pages) == len(reference.listed())
    assert sorted(tmp_path.rglob("*.md")) == pages  # the page of a name that is gone is removed
    assert len({str(path).lower() for path in pages}) == len(pages)
    text = (tmp_path / "functional" / "gru.md").read_text(encoding="utf-8")
    assert "```{entry} gatedjax.functional gru\n```" in text
    assert "[Flax NNX](../../own_loop.md#flax-nnx)" in text
    text = (tmp_path / "functional" / "LSTMWeights.md").read_text(encoding="utf-8")
    assert "{py:obj}`lstm_step <gatedjax.functional.lstm_step>`" in text
    lines = name_pages.summary("gatedjax.functional", ["masked_softmax"])
    assert lines[2] == (
        r"| {py:obj}`masked_softmax <gatedjax.functional.masked_softmax>`(scores\[, mask, axis\]) "
        "| Computes a softmax over the positions where mask is True; exactly 0 elsewhere. |"
    )
    assert "functional/masked_softmax" in lines


def test_programs_use_the_names_that_they_import(name_pages):
    aliases = {}
    code = "from gatedjax import functional as F, nn\nimport gatedjax.gates as g\nF.gru; nn.GRU"
    found = name_pages.used_names(code, aliases)
    assert found == [("gatedjax.functional", "gru"), ("gatedjax.nn", "GRU")]
    later = name_pages.used_names("g.DisARM(); F.other; from gatedjax.text import Tagger", aliases)
    assert later == [("gatedjax.text", "Tagger"), ("gatedjax.gates", "DisARM")]


def test_an_equation_and_its_example_are_two_blocks(reference):
    lines = reference.markdown("Adds.\n\n    y = x + 1\n\n    >>> 1 + 1\n    2\n", "gatedjax.nn")
    assert lines[2:5] == ["```{math}", "y = x + 1", "```"]
    assert lines[6:] == ["```pycon", ">>> 1 + 1", "2", "```", ""]
    lines = reference.fenced(["    y = x, where x is real"])
    assert lines == ["```text", "y = x, where x is real", "```", ""]


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        ("p_i^b_i = 1 / (2 s^2)", r"p _{i} ^{b _{i}} = 1 / ( 2 \, s ^{2} )"),
        ("r = 2^(-2 f(d / 2))", r"r = 2 ^{- 2 \, f ( d / 2 )}"),
        ("P(a <= alpha) = sigmoid(x1')", r"P ( a \le \alpha ) = \mathrm{sigmoid} ( x_{1}' )"),
        ("a = 1\nb != a", r"\begin{aligned} & a = 1 \\ & b \ne a \end{aligned}"),
        ("loss = score_fn(x)", None),
        ("b in {0, 1} = 2", None),
        ("a key", None),
    ],
)
def test_formulas_become_latex_and_sentences_do_not(equation, expected):
    assert load("equations").latex(equation) == expected


def test_examples_of_docstrings_are_python_and_equations_are_not(reference):
    assert reference.fenced(["    fit(task, data)"])[0] == "```python"
    assert reference.fenced(["    >>> 1 + 1", "    2"])[0] == "```pycon"
    assert (
        reference.fenced(["    a_i = softmax_j(d_i . q_j),  v_i = sum_j a_ij q_j"])[0]
        == "```{math}"
    )


@pytest.mark.slow
def test_entries_show_plain_defaults_and_the_examples_that_are_tested(reference):
    tested = {
        block
        for path in (ROOT / "gatedjax").rglob("*.py")
        if ">>> " in path.read_text("utf-8")
        for name in [".".join(path.relative_to(ROOT).with_suffix("").parts)]
        for found in doctest.DocTestFinder().find(importlib.import_module(name))
        for block in pasted(reference, found.docstring, name)
    }
    for package, name in reference.listed():
        lines = reference.described(package, name)
        assert set(blocks(lines)) <= tested, name
        for line in lines:
            if "{py:" in line[:12]:
                assert not re.search(r"_option\(|field\(|= ?(_|[A-Z]{4}(?!\w*\())", line), line


def test_an_entry_imports_what_its_example_uses(reference):
    lines = reference.described("gatedjax.functional", "masked_softmax")
    at = lines.index("```pycon")
    assert lines[at + 1 : at + 3] == [
        ">>> import jax.numpy as jnp",
        ">>> from gatedjax.functional import masked_softmax",
    ]
    from gatedjax.nn import _recurrent

    assert reference.imports(["F", "nn"], _recurrent) == [
        "import flax.linen as nn",
        "from gatedjax import functional as F",
    ]
    code = "class A:\n    def f(self, x): return f(x, y)\nz = [a for a in b]"
    assert reference.names_of(code) == ({"f", "x", "y", "a", "b"}, {"A", "self", "x", "z", "a"})


def test_signatures_are_those_of_the_source(reference):
    from gatedjax import functional, gates, models, nn, text, training

    shown = reference.signature(functional.length_mask)
    assert shown == "(lengths: Int[Array, '*B'], size: int) -> Bool[Array, '*B size']"
    assert "gate_bias: float = 0.0" in reference.constructor(nn.GRU)
    assert "parent" not in reference.constructor(nn.GRU)
    assert reference.constructor(gates.DisARM) == "()"
    shown = reference.constructor(training.TrainConfig)
    assert shown.startswith("(*, num_steps: int = 1000, ")
    assert "optimizer: OptimizerConfig = OptimizerConfig()" in shown
    shown = reference.constructor(text.TextClassifier)
    assert shown.startswith("(model: str = 'lexicon', *, vectors: str | Path | None = None, ")
    assert "max_aside: float=0.01, " in reference.signature(text.TextClassifier.train)
    shown = reference.constructor(models.SSANTaggerConfig)
    assert "gates: SelectorConfig = SelectorConfig()" in shown
    assert "SSANDropout(dropout=0.2)" in shown


def test_the_picture_leaves_out_arrows_that_follow_from_others():
    drawing = load("drawing")
    chart = 'flowchart LR\n  a["A"] --> b["B"]\n  b["B"] --> c["C<"]\n  a["A"] --> c["C<"]'
    labels, arrows = drawing.arrows_of(chart)
    assert drawing.direct(arrows) == {("a", "b"), ("b", "c")}
    assert drawing.ranks(labels, arrows) == {"a": 0, "b": 1, "c": 2}
    picture = drawing.svg(chart, "a & b")
    assert picture.count("<path marker") == 2
    assert "C&lt;" in picture
    assert "a &amp; b" in picture
    with pytest.raises(ValueError, match="got '  a --> b'"):
        drawing.arrows_of("flowchart LR\n  a --> b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files_and_headings(page):
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
            assert anchor in slugs, link


def test_the_gallery_shows_ten_figures_and_all_runs_have_their_page():
    cards = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    chosen = re.findall(r"^:::\{image\} (.+)$", cards, re.MULTILINE)
    assert len(chosen) == len(set(chosen)) == 10
    assert all((ROOT / "docs" / path).is_file() for path in chosen)
    text = (ROOT / "docs" / "all_runs.md").read_text(encoding="utf-8")
    results = ROOT / "experiments" / "results"
    pages = {
        path.relative_to(ROOT).as_posix()
        for name in ("RESULTS.md", "TUNING.md")
        for path in results.rglob(name)
    }
    assert set(re.findall(r"\]\(\.\./(.+?)\)", text)) == pages
    assert set(re.findall(r"<\.\./(.+)>", text)) == {page[:-3] for page in pages}


def test_the_menu_has_five_entries():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (menu,) = re.findall(r"```\{toctree\}\n:hidden:\n\n(.*?)```", text, re.DOTALL)
    entries = ["Guide", "Concepts", "Papers", "Reference", "Project"]
    assert [line.partition(" <")[0] for line in menu.splitlines()] == entries


def test_the_pictures_of_the_ideas_are_those_of_their_script():
    ideas = load("ideas")
    committed = {path.stem for path in ideas.IMAGES.glob("idea_*.svg")}
    assert committed == {f"idea_{name}" for name in ideas.IDEAS}
    for name, draw in ideas.IDEAS.items():
        picture = draw()
        assert (ideas.IMAGES / f"idea_{name}.svg").read_text("utf-8") == picture, name
        assert "prefers-color-scheme" in picture
        assert "prefers-color-scheme" not in ideas.inline(picture)
        assert ElementTree.fromstring(ideas.inline(picture)).tag.endswith("svg")


def test_the_menu_of_the_papers_has_the_five_papers():
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    (menu,) = re.findall(r"```\{toctree\}\n:hidden:\n\n(.*?)```", text, re.DOTALL)
    papers = ["ga_net", "agt", "rau", "ga_reader", "ssan"]
    assert menu.split() == [*papers, "gallery", "reproduce", "all_runs"]
    for name in papers:
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert page.count(f"](images/idea_{name}.svg)") == 1
        believe = page.split("## Did the claims hold?\n")[1].split("\n## ")[0]
        assert len(re.findall("^- ", believe, re.MULTILINE)) == 5
        assert set(re.findall(r'<span class="[^"]+">. [a-z ]+</span>', believe)) <= set(
            map(mark, WORDS)
        )
        assert f'experiments/results/{name}/RESULTS.md\n:start-after: "## Claims"' in page


@pytest.mark.parametrize("repository", ["", "someone/gatedjax"])
def test_the_links_of_a_notebook_are_right_on_the_site(monkeypatch, repository):
    pytest.importorskip("sphinx")
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    path = ROOT / "notebooks" / "gates.ipynb"
    app = SimpleNamespace(env=SimpleNamespace(doc2path=lambda page: f"{page}.ipynb"))
    source = [path.read_text(encoding="utf-8")]
    load("site_parts").link_notebook(app, "notebooks/gates", source)
    first, links, *others = json.loads(source[0])["cells"]
    assert links["source"].startswith("{download}`Download this notebook <gates.ipynb>`")
    assert "OWNER" not in links["source"]
    colab = f"/github/{repository}/blob/main/notebooks/gates.ipynb)"
    assert (colab in links["source"]) == bool(repository)
    assert (f"git clone --depth 1 https://github.com/{repository}" in links["source"]) == bool(
        repository
    )
    before = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [first, *others] == [before[0], *before[2:]]


def test_no_page_of_the_site_asks_another_machine_for_scripts_or_fonts():
    conf = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    assert 'mathjax_path = "mathjax/tex-chtml.js"' in conf  # a file of the site
    assert "nb_ipywidgets_js: dict = {}" in conf


PAGES = ("extending", "export", "gates", "libraries", "masks", "parallel", "recurrence")
PAGES += ("reproduce", "encoders", "own_text", "own_text_files", "start", "training", "trust")
PAGES += ("agt", "ga_net", "ga_reader", "papers", "rau", "ssan")


@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_has_at_most_80_columns(page):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*\n((?:.*\n)*?)```$", text, re.MULTILINE)
    assert blocks
    assert [line for block in blocks for line in block.splitlines() if len(line) > 80] == []
