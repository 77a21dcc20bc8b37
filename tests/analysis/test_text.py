"""Marked text in the terminal and in HTML, and Markdown tables."""

import html.parser
import io

import numpy as np
import pytest
from rich.console import Console

from gatedjax import analysis

TOKENS = ("not", "<b>", "good", "&", "quiet")
WEIGHTS = np.array([0.1, 0.0, 0.9, 0.0, 0.0, 0.7])  # one more than words: padding
GATES = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])


def printed(text, **options):
    stream = io.StringIO()
    Console(file=stream, width=200, **options).print(text)
    return stream.getvalue()


class Page(html.parser.HTMLParser):
    """Collects the text per element, and checks that elements nest."""

    VOID = ("meta", "br")

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.stack, self.found = [], []
        self.feed(page)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.stack.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack.pop()[0] == tag

    def handle_data(self, data):
        if self.stack and data.strip():
            self.found.append((self.stack[-1][0], self.stack[-1][1], data.strip()))

    def of(self, tag, name=None):
        return [
            text for t, attrs, text in self.found if t == tag and name in (None, attrs.get("class"))
        ]


def test_plain_text_has_brackets_around_open_words():
    text = analysis.highlight_terminal(TOKENS, WEIGHTS, GATES, plain=True)
    assert text.plain == "[not] <b> [good] & quiet"
    assert printed(text, color_system=None).strip() == text.plain


def test_terminal_text_keeps_the_words_and_styles_the_open_ones():
    text = analysis.highlight_terminal(TOKENS, WEIGHTS / 10, GATES)
    assert text.plain == " ".join(TOKENS)
    styles = {text.plain[s.start : s.end]: str(s.style) for s in text.spans}
    assert all(styles[word] == "dim" for word in ("<b>", "&", "quiet"))
    # the shade grows with the weight
    assert styles["not"] == "bold #000000 on #deebf7"
    assert styles["good"] == "bold #ffffff on #08306b"
    coloured = printed(text, force_terminal=True, color_system="truecolor")
    assert "\x1b[1;" in coloured
    assert printed(text, color_system=None).strip() == text.plain


def test_without_gates_words_above_the_uniform_weight_are_marked():
    text = analysis.highlight_terminal(("a", "b", "c"), [0.2, 0.5, 0.3], None, plain=True)
    assert text.plain == "a [b] c"
    styled = analysis.highlight_terminal(("a", "b", "c"), [0.2, 0.5, 0.3])
    assert [str(span.style).split()[0] for span in styled.spans] == ["#000000", "bold", "#ffffff"]


@pytest.mark.parametrize("gates", [None, np.zeros(2)])
def test_weights_that_are_all_zero_are_legal(gates):
    for plain, weights in ((False, [0.0, 0.0]), (True, [0.5, 0.5])):  # of uniform ones none is more
        assert analysis.highlight_terminal(("a", "b"), weights, gates, plain=plain).plain == "a b"
    assert analysis.highlight_terminal((), [], None if gates is None else []).plain == ""
    assert "--a:0.000" in analysis.highlight_html([("", ("a",), [0.0], None)], "t")


def test_words_cannot_steer_the_terminal():
    text = analysis.highlight_terminal(("a\x1b[2J", "b\nc", "\u202ed"), [1, 1, 1], [1, 1, 1])
    assert "\x1b" not in text.plain
    assert "\u202e" not in text.plain
    assert "b c" in text.plain
    # console markup in a word is a word
    assert "[red]" in printed(analysis.highlight_terminal(("[red]",), [1], [1]), color_system=None)


def test_page_marks_open_and_closed_words_and_escapes_everything():
    examples = [('cap "<i>"', TOKENS, WEIGHTS, GATES)]
    source = analysis.highlight_html(examples, "a <title> & more")
    page = Page(source)
    assert "not" in page.of("strong")
    assert "good" in page.of("strong")
    assert page.of("span", "closed")[-3:] == ["<b>", "&", "quiet"]
    assert page.of("figcaption") == ['cap "<i>"']
    assert page.of("h1") == page.of("title") == ["a <title> & more"]
    assert "<b>" not in source
    assert "<script" not in source
    assert "://" not in source  # nothing is loaded
    assert source.startswith("<!doctype html>")
    assert '<html lang="en">' in source
    assert '<meta charset="utf-8">' in source
    assert "open gate" in source


def test_page_shades_by_weight_and_gives_the_number():
    source = analysis.highlight_html([("", ("a", "b"), [0.25, 0.75], None)], "t")
    assert '--a:0.333" title="weight 0.2500">a<' in source
    assert '--a:1.000" title="weight 0.7500">b<' in source
    assert "open gate" not in source  # no legend for what is not there


def test_page_of_no_examples_is_complete():
    Page(analysis.highlight_html([], "none"))


def test_table_is_aligned_and_numbers_are_at_the_right():
    wide = "电影\uff26e\u0301a"  # 8 columns
    got = analysis.render_table(
        ["data", "acc", "note"],
        [["imdb", "0.9", None], ["x|y", "0.85 ± 0.01 (n=3)", "a\nb"], [wide, "-", "a\\b"]],
    )
    assert got.splitlines() == [
        "| data     |               acc | note |",
        "| -------- | ----------------: | ---- |",
        "| imdb     |               0.9 |      |",
        "| x\\|y     | 0.85 ± 0.01 (n=3) | a b  |",
        f"| {wide} |                 - | a\\\\b |",
    ]
    assert got.endswith("\n")


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        (["1", "2.5"], True),
        (["-", "1,234", "not run"], True),
        (["+0.01", "-1e-5", "2.4G", "40 %"], True),
        (["1", "a"], False),
        (["-", ""], False),
        (["1 of 2"], False),
    ],
)
def test_columns_of_numbers_are_recognised(cells, numeric):
    rule = analysis.render_table(["h"], [[cell] for cell in cells]).splitlines()[1]
    assert rule.endswith(": |") == numeric


def test_a_table_that_is_cut_has_its_width():
    rows = [["film number one", "long " * 9, 1234]]
    lines = analysis.render_table(["name", "text", "n"], rows, width=44).splitlines()
    assert {len(line) for line in lines} == {44}
    assert lines[2] == "| film number one | long long long… | 1234 |"  # the widest is cut


def test_table_without_rows_has_its_head():
    assert analysis.render_table(["a", "b"], []).splitlines() == ["| a   | b   |", "| --- | --- |"]
