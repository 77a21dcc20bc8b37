"""Explanations as JSON, in a terminal and as a page; what a text holds steers neither."""

import dataclasses
import html.parser
import json
import re
from pathlib import Path

import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax.text import RankedPart, Reasons, TextClassifier
from gatedjax.text.answers._explain import explain as explain_text
from gatedjax.text.answers._explanation import Change, Explanation, html_page
from gatedjax.text.answers._prediction import Prediction
from tests.equality._golden import written

ODD = ("<script>", '"quo\'te"', "new\nline", "\u202etfel", "\x1b[31m", "$articles", "שלום", "", "&")


def explain(tokens=("a", "dull", "film"), **changes):
    n = len(tokens)
    values = {
        "text": " ".join(tokens),
        "tokens": tokens,
        "probabilities": {"positive": 0.03, "negative": 0.97},
        "read": tuple(i > 0 for i in range(n)),
        "attention": tuple(2 * i / max(n * (n - 1), 1) for i in range(n)),
        "gates": tuple(i / n for i in range(n)),
        "flips": tuple(Change(label="negative", probability=0.9 - i / 100) for i in range(n)),
        "removed": tuple(
            Change(label="positive" if i == 1 else "negative", probability=0.4 if i == 1 else 0.95)
            for i in range(n)
        ),
    }
    answer = {"label": "negative", "probability": 0.97, "share": (n - 1) / n if n else 0.0}
    answer |= {name: changes.pop(name) for name in list(changes) if name in answer}
    prediction = Prediction(answer["label"], answer["probability"], [], answer["share"])
    return Explanation(prediction=prediction, **{**values, **changes})


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
    flips = changes_of(0.5, None, 0.25, label=1)
    e = explain(probabilities={1: 0.5, "1": 0.3, 2.5: 0.2}, label=1, flips=flips)
    told = e.to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["probabilities"][1] == {"label": "1", "probability": 0.3}
    assert told["read"] == [False, True, True]
    assert told["removed"][1] == {"label": "positive", "probability": 0.4}
    assert told["flips"][1:] == [None, {"label": 1, "probability": 0.25}]
    bare = explain(attention=None, gates=None, flips=None).to_json()
    assert bare["attention"] is bare["gates"] is bare["flips"] is None


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
    e = explain(text="a  dull\nfilm", probability=0.9999)
    page = Page(e.html())
    assert page.inside("title") == ["negative: a dull film"]
    assert page.inside("h2") == ["negative", " ", "99.9%"]  # no prediction is certain
    assert page.all("html") == [{"lang": "en"}]
    assert all(attrs["scope"] in ("col", "row") for attrs in page.all("th"))
    names = {attrs["id"] for attrs in page.all("h2")}
    assert [attrs["aria-labelledby"] for attrs in page.all("article")] == sorted(names)
    (region,) = (attrs for attrs in page.all("div") if "scroll" in attrs["class"])
    assert region["tabindex"] == "0"
    assert region["aria-label"]
    # what is closed and what changes the prediction is said in words or marks, too
    assert "a" in page.inside("del")
    assert "0.400 (-0.600), positive" in page.inside("td")
    assert {"yes", "no"} <= set(page.inside("td"))
    assert page.all("details") == [{"open": None}]
    assert all("aria-hidden" in a for a in page.all("span") if a.get("class") == "bar")


@pytest.fixture(scope="module")
def gapped():
    """A lexicon that reads "not" and "dull" and no other word, with a part for the pair."""
    rows = [
        (f"the film is {word} and {end}", label)
        for word, label in (("dull", "bad"), ("not dull", "good"), ("not fun", "bad"))
        for end in ("old", "new", "here", "there", "long", "short", "loud", "calm")
    ]
    model = TextClassifier(share=1.0).fit(*zip(*rows, strict=True)).model_
    is_read = np.isin(model.lexicon.words, ["not", "dull"])
    lexicon = dataclasses.replace(model.lexicon, is_read=is_read, threshold=1e9)
    return dataclasses.replace(model, lexicon=lexicon)


def test_a_pair_with_a_gap_is_written_with_it_and_marked_in_the_text(gapped):
    e = explain_text(gapped, ["it is not at all dull, not dull"])
    assert e.tokens == ("it", "is", "not", "at", "all", "dull", ",", "not", "dull")
    names = {item.places: item.name for item in e.ranked}
    assert names == {
        **{(i,): e.tokens[i] for i in (2, 5, 7, 8)}, (2, 5): "not ... dull", (7, 8): "not dull",
    }  # fmt: skip
    assert "| not ... dull " in e.render()
    page = Page(e.html())
    # The number of the pair is in the text at both words, and in the table.
    assert page.inside("sup") == ["1", "1", "1"]
    assert re.findall(r"<bdi>([^<]+)</bdi></?\w*><sup", e.html()) == ["not", "dull"]
    assert re.findall(r"<bdi>([^<]+)</bdi><sup", e.html()) == ["not ... dull"]
    assert "small number are a pair" in " ".join(page.inside("p"))


def test_what_every_text_has_is_the_prior(gapped, tmp_path, capsys):
    e = explain_text(gapped, ["it is not at all dull, not dull"])
    rows = [line.split("|")[1].strip() for line in e.render().splitlines() if "|" in line]
    assert rows[-2:] == ["the prior", "sum"]
    assert e.to_json()["reasons"]["prior"] == list(e.reasons.prior)
    gapped.save(tmp_path / "model", overwrite=False)
    assert main(["predict", str(tmp_path / "model"), "not at all dull", "--reasons"]) == 0
    line = json.loads(capsys.readouterr().out)
    total = np.sum([line["prior"], *(entry["parts"] for entry in line["reasons"])], 0)
    assert line["classes"][int(total.argmax())] == line["label"]


def changes_of(*probabilities, label="negative"):
    """A change to each probability; None is a gate that cannot be closed."""
    return tuple(None if p is None else Change(label=label, probability=p) for p in probabilities)


UNCHANGED = (*changes_of(0.97 + 1e-7), *changes_of(0.4, label="positive"), *changes_of(0.95))
SIZES = {"dull": 2.0, "film": 0.01, "here": -0.5}


def sized():
    """The parts of a lexicon, of which one is small."""
    parts = {word: (size, -size) for word, size in SIZES.items()}
    reasons = Reasons(
        classes=("bad", "good"), prior=(0.001, -0.001), words=tuple(parts.values()),
        pairs=(), is_same=True,
    )  # fmt: skip
    ranked = tuple(RankedPart(w, row, (i,)) for i, (w, row) in enumerate(parts.items()))
    return explain(tuple(SIZES), reasons=reasons, ranked=ranked, columns=(0, 1), read=(True,) * 3)


EXPLANATIONS = {
    "gates and attention": lambda: explain(),
    "attention alone": lambda: explain(gates=None, flips=None),
    "no word that is not read has an effect": lambda: explain(removed=UNCHANGED),
    "all words are read": lambda: explain(read=(True,) * 3, share=1.0),
    "no gates and no attention": lambda: explain(
        attention=None, gates=None, flips=None, read=(True,) * 3, share=1.0
    ),
    "the largest change is a rise": lambda: explain(removed=changes_of(0.975, 0.99, 0.965)),
    "the last open gate": lambda: explain(
        read=(False, True, False), flips=changes_of(0.9, None, 1)
    ),
    "a text that goes on": lambda: explain(gates=None, flips=None, cut=1200),
    "windows": lambda: explain(windows=(1, 1, 2)),
    "a share of pairs": lambda: explain(gates=None, share=0.5),
    "many words and classes": lambda: explain(
        tuple(f"w{i}" for i in range(61)), probabilities=dict.fromkeys(range(40), 1 / 40),
        label=0, probability=1 / 40, attention=None, gates=None, flips=None,
    ),
    "no words": lambda: explain((), text=" \n", removed=(), share=0.0),
    "parts of a lexicon": sized,
}  # fmt: skip
# The pages of the others have the sentences and the cells of the terminal.
PAGES = ("gates and attention", "attention alone", "no gates and no attention", "a share of pairs",
         "windows", "many words and classes", "no words", "parts of a lexicon")  # fmt: skip
SHOWN = Path(__file__).with_name("shown.json")


def found():
    """Of each explanation what a terminal and a page show; `python -m tests.text.test_show`."""
    result = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        for name, make in EXPLANATIONS.items():
            result[name] = {"terminal": make().render().splitlines()}
            if name in PAGES:
                page = make().html()
                body = page[page.index("<title>") : page.index("<style>")]
                body += page[page.index("<body>") :]
                lines = [line for line in body.splitlines() if line]
                lines = lines if len(lines) <= 60 else [*lines[:30], *lines[-30:]]
                result[name]["page"] = lines
    return result


def test_the_terminal_and_the_page_show_what_they_showed():
    wanted, here = json.loads(SHOWN.read_text(encoding="utf-8")), found()
    assert here.keys() == wanted.keys()
    for name, shown in wanted.items():
        for place, lines in shown.items():
            assert here[name][place] == lines, (name, place)
    assert EXPLANATIONS["the last open gate"]().to_json()["flips"][1] is None
    assert EXPLANATIONS["a text that goes on"]().to_json()["cut"] == 1200
    mixed = html_page([explain(removed=UNCHANGED), explain(), sized()], "mixed")
    for part in ("Underlined</span>: read by attention.", "have the probability", "Grey: less"):
        assert part in mixed
    assert "Grey" not in dataclasses.replace(sized(), ranked=sized().ranked[:1]).html()
    linear = explain(gates=None, read=(True,) * 3, unknown=(True, False, True), share=1.0)
    assert "3 of 3 words are read (100%), 2 of them unknown" in linear.render()
    assert "h1" in {tag for tag, _ in Page(html_page([], "nothing")).found}


@pytest.mark.parametrize(("width", "count"), [(90, 4), (70, 3), (60, 2), (40, 1)])
def test_a_narrow_terminal_shows_fewer_classes_with_whole_names(width, count, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    classes = ("delivery", "packaging", "payments", "returns", "others")
    # The second word is faint in the classes shown, although its part for a hidden class is large.
    rows = (0.5, -0.25, 0.0, 0.0, 0.0), (0.001, 0.0, 0.0, 0.0, 9.0)
    reasons = Reasons(classes=classes, prior=rows[0], words=rows, pairs=(), is_same=True)
    ranked = (RankedPart("dull", rows[0], (0,)), RankedPart("film", rows[1], (1,)))
    e = explain(("dull", "film"), reasons=reasons, ranked=ranked, columns=tuple(range(5)))
    assert e._view().faint == {1}
    head = next(line for line in e.render().splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in head.split("|")[2:-1]] == [f"for {c}" for c in classes[:count]]


def test_parts_below_one_percent_are_dim_where_the_terminal_has_colours(
    gapped, tmp_path, capsys, monkeypatch
):
    gapped.save(tmp_path / "model", overwrite=False)
    view = sized()._view()
    monkeypatch.setattr(Explanation, "_view", lambda self: view)
    command = ["explain", str(tmp_path / "model"), "dull"]
    assert main(command) == 0
    plain = capsys.readouterr().out
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[4:].split()[1] for line in lines if line.startswith("\x1b[2m")] == ["film"]
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in lines] == plain.splitlines()
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(command) == 0
    assert capsys.readouterr().out == plain


if __name__ == "__main__":
    SHOWN.write_text(written(found()), encoding="utf-8")
