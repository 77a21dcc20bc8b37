"""Explanations as JSON, in a terminal and as a page; what a text holds steers neither."""

import html.parser
import json
import re

import pytest

from gatedjax.text._show import Change, Explanation, html_page

ODD = ("<script>", '"quo\'te"', "new\nline", "\u202etfel", "\x1b[31m", "$articles", "שלום", "", "&")


def explain(tokens=("a", "dull", "film"), **changes):
    n = len(tokens)
    values = {
        "text": " ".join(tokens),
        "tokens": tokens,
        "label": "negative",
        "probability": 0.97,
        "probabilities": {"positive": 0.03, "negative": 0.97},
        "kept": tuple(i > 0 for i in range(n)),
        "density": (n - 1) / n if n else 0.0,
        "attention": tuple(2 * i / max(n * (n - 1), 1) for i in range(n)),
        "gates": tuple(i / n for i in range(n)),
        "flips": tuple(Change(label="negative", probability=0.9 - i / 100) for i in range(n)),
        "removed": tuple(
            Change(label="positive" if i == 1 else "negative", probability=0.4 if i == 1 else 0.95)
            for i in range(n)
        ),
    }
    return Explanation(**{**values, **changes})


class Page(html.parser.HTMLParser):
    """Elements with the text inside, and a check that they nest."""

    VOID = ("meta",)

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.stack, self.found, self.texts = [], [], []
        self.feed(page)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        assert len(attrs) == len(dict(attrs))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.texts.append((tuple(self.stack), data))

    def all(self, tag):
        return [attrs for name, attrs in self.found if name == tag]

    def inside(self, tag):
        return [data for stack, data in self.texts if tag in stack]


def test_json_has_everything_and_is_json():
    e = explain(probabilities={1: 0.5, "1": 0.3, 2.5: 0.2}, label=1)
    told = e.to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["probabilities"][1] == {"label": "1", "probability": 0.3}
    assert told["kept"] == [False, True, True]
    assert told["removed"][1] == {"label": "positive", "probability": 0.4}
    bare = explain(attention=None, gates=None, flips=None).to_json()
    assert bare["attention"] is bare["gates"] is bare["flips"] is None


def test_the_terminal_has_a_row_a_word():
    lines = explain().render().splitlines()
    assert lines[0] == "negative 0.970 (of negative 0.970, positive 0.030)"
    assert lines[1] == "2 of 3 words are open (67%)."
    assert '"film" does most (0.880 (-0.090))' in lines[3]
    assert lines[4] == 'Removing one of these changes the prediction: "dull".'
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[6:]]
    assert rows[0] == ["word", "open", "gate", "attention", "", "if flipped", "if removed"]
    assert rows[3] == ["dull", "yes", "0.33", "0.333", "#####", "0.890 (-0.080)",
                       "0.400 (-0.570), positive"]  # fmt: skip
    assert len(rows) == 5


UNCHANGED = (
    Change(label="negative", probability=0.97 + 1e-7),
    Change(label="positive", probability=0.4),
    Change(label="negative", probability=0.95),
)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "open"),
        ({"gates": None, "flips": None}, "open"),
        ({"removed": UNCHANGED}, "read"),
        ({"removed": UNCHANGED, "gates": None, "flips": None}, "read"),
        ({"kept": (True,) * 3, "density": 1.0}, "read"),
    ],
)
def test_words_are_read_only_if_the_remaining_words_have_no_effect(changes, name):
    e = explain(**changes)
    lines = e.render().splitlines()
    assert lines[1].split(" (")[0].endswith(f"words are {name}")
    header = next(line for line in lines if line.startswith("| word"))
    assert header.split("|")[2].strip() == name
    page = Page(e.html())
    heads = [d for s, d in page.texts if s[-1:] == ("th",) and "thead" in s]
    assert heads[1] == name.capitalize()
    told = 'changes the probability too, by up to 0.020 ("a").'
    assert (told in lines[2]) == (told in " ".join(page.inside("p"))) == (name != "read")
    legend = page.inside("p")
    assert any(": read" in text for text in legend) == (name == "read")


def test_the_largest_change_does_most_whatever_its_direction():
    removed = tuple(Change(label="negative", probability=p) for p in (0.975, 0.99, 0.965))
    assert '"dull" does most (0.990 (+0.020))' in explain(removed=removed).render()


def test_the_last_open_gate_has_no_flip():
    flips = (
        Change(label="negative", probability=0.9),
        None,
        Change(label="negative", probability=1),
    )
    e = explain(kept=(False, True, False), flips=flips)
    shown = e.render()
    assert "The last open gate cannot be closed" in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("| dull")]
    assert [cell.strip() for cell in row.split("|")][6] == "-"
    assert '"a" does most (0.900 (-0.070))' in shown
    assert e.to_json()["flips"][1] is None
    assert "–" in Page(e.html()).inside("td")


def test_words_that_are_left_out_are_in_the_legend_and_those_cut_off_are_counted():
    e = explain(gates=None, flips=None, cut=1200)
    legend = " ".join(Page(e.html()).inside("p"))
    assert "Struck through" in legend
    assert "gate" not in legend
    assert "The text goes on for 1,200 words that are not used." in e.render()
    assert e.to_json()["cut"] == 1200


def test_a_network_without_gates_or_attention_has_fewer_columns():
    e = explain(attention=None, gates=None, flips=None, kept=(True,) * 3, density=1.0)
    shown = e.render()
    assert "gate" not in shown.lower()
    assert "attention" not in shown
    assert "3 words, all of them read." in shown
    page = Page(e.html())
    heads = [d for s, d in page.texts if s[-1:] == ("th",) and "thead" in s]
    assert heads == ["Word", "Read", "If removed", "Class", "Probability"]
    assert not re.search("gate|attention|shade:", "".join(page.inside("body")), re.IGNORECASE)


def test_nothing_in_a_text_steers_the_terminal():
    shown = explain(ODD, label="\x1b[2J", probabilities={"\x1b[2J": 0.97, "\u202e": 0.03}).render()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    assert len({len(line) for line in shown.splitlines() if line.startswith("|")}) == 1


def test_everything_on_the_page_is_escaped():
    odd = "".join(ODD)
    e = explain(
        (*ODD, odd, '"><img src=x onerror=alert(1)>', "</style>", "\ud800", "\u2028"),
        text=odd,
        label=odd,
        probabilities={odd: 0.97, "<b>": 0.03},
    )
    page = html_page([e, e], f"$legend {odd} </title>")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)
    page.encode("utf-8")
    parsed = Page(page)
    assert {tag for tag, _ in parsed.found} <= {
        "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "article",
        "strong", "span", "del", "bdi", "table", "thead", "tbody", "tr", "th", "td", "details",
        "summary", "div",
    }  # fmt: skip
    for _, attrs in parsed.found:
        assert not {name for name in attrs if name.startswith("on") or name in ("src", "href")}
    for word in ("<script>", "new\\nline", "\\u202etfel", "\\x1b[31m", "$articles", "שלום",
                 "(empty)", "\\ud800"):  # fmt: skip
        assert parsed.inside("bdi").count(word) >= 4  # in the text and in the table, twice
    assert parsed.inside("title")[0].startswith("$legend <script>")


def test_the_page_loads_and_runs_nothing():
    page = explain().html()
    head = page[: page.index("<style>")]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', head)[1]
    assert policy == (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|https?:", page)
    assert "prefers-color-scheme: dark" in page


def test_the_page_can_be_read_without_eyes_or_colours():
    page = Page(explain().html())
    assert page.all("html") == [{"lang": "en"}]
    assert all(attrs["scope"] in ("col", "row") for attrs in page.all("th"))
    names = {attrs["id"] for attrs in page.all("h2")}
    assert [attrs["aria-labelledby"] for attrs in page.all("article")] == sorted(names)
    (region,) = (attrs for attrs in page.all("div") if "scroll" in attrs["class"])
    assert region["tabindex"] == "0"
    assert region["aria-label"]
    # what is closed and what changes the prediction is said in words or marks, too
    assert "a" in page.inside("del")
    assert "0.400 (-0.570), positive" in page.inside("td")
    assert {"yes", "no"} <= set(page.inside("td"))
    assert page.all("details") == [{"open": None}]
    assert all("aria-hidden" in a for a in page.all("span") if a.get("class") == "bar")


def test_shades_grow_with_attention():
    page = Page(explain().html())
    shades = [attrs["style"] for attrs in page.all("strong")]
    assert shades == ["--a:0.500", "--a:1.000"]


def test_long_texts_are_folded_and_many_classes_summed():
    words = tuple(f"w{i}" for i in range(200))
    e = explain(words, probabilities=dict.fromkeys(range(40), 1 / 40), label=0, probability=1 / 40)
    page = Page(e.html())
    assert page.all("details") == [{}]
    assert "30 more classes together: 0.750" in page.inside("p")
    assert "0: w0 w1" in page.inside("title")[0]
    assert len(page.inside("title")[0]) < 70


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "<b>"])
def test_a_text_without_words(text):
    e = explain((), text=text, removed=(), density=0.0)
    assert "The text has no word." in e.render()
    assert any("The text has no word." in part for part in Page(e.html()).inside("p"))
    assert json.dumps(e.to_json())


def test_no_explanations_are_a_page():
    assert "h1" in {tag for tag, _ in Page(html_page([], "nothing")).found}


def test_lengths_must_agree():
    with pytest.raises(
        ValueError, match=r"gates must have an entry for each of the 3 words, got 2"
    ):
        explain(gates=(0.1, 0.2))
    with pytest.raises(ValueError, match="removed must have"):
        explain(removed=())


def test_a_share_of_pairs_is_not_told_as_one_of_words():
    words = explain(gates=None)
    assert "2 of 3 words are open (67%)." in words.render()
    pairs = explain(gates=None, density=0.5)
    told = "2 of 3 words are selected by more than half of the words; 50% of all pairs are."
    assert told in pairs.render()
    assert "(50%)" not in pairs.render()
