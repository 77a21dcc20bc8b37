"""An explanation as a page without scripts, in light and dark style, and for a terminal."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gatedjax._utils.page import MARKED_WORDS, render_page
from gatedjax._utils.terminal import clean, count_columns, measure_width, printable, wrap
from gatedjax.analysis._text import render_table
from gatedjax.text.sources._labels import Label


class Word(NamedTuple):
    """A word of an explained text, with its marks."""

    text: str
    is_read: bool
    is_unknown: bool
    shade: float  # its attention as a share of the largest in the text
    mark: str = ""  # the numbers of its pairs with a gap


class Cell(NamedTuple):
    """A cell in the table of an explanation."""

    text: str
    bar: float | None = None  # the length of a bar behind the text, from 0 to 1
    is_marked: bool = False  # another class, or a word that is not read
    mark: str = ""  # the number of a pair with a gap


@dataclass(frozen=True, kw_only=True)
class View:
    """An explanation as words, sentences and a table; its texts are not yet escaped."""

    title: str
    headline: str  # the title with all probabilities
    percent: str  # the probability of a class, or ""
    words: Sequence[Word]
    sentences: Sequence[str]
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    faint: frozenset[int]  # the rows of small parts
    rule: str
    classes: Sequence[tuple[Label, float]]  # the most probable first
    has_gates: bool
    name_place: int  # the column with the names of the rows


def show_word(token: str) -> str:
    """Returns a word with control characters escaped, or "(empty)"."""
    return printable(token).replace("\n", "\\n").replace("\t", "\\t") or "(empty)"


def render_view(view: View) -> str:
    """Formats an explanation for a terminal: sentences, and a table that fits the width."""
    most = measure_width()
    headers = [clean(header) for header in view.headers]
    rows = [[clean(cell.text) for cell in row] for row in view.rows]
    parts = [*map(clean, (view.headline, *view.sentences)), ""]
    count = _count_columns(headers, rows, most) if view.rule else len(headers)
    parts.append(render_table(headers[:count], [row[:count] for row in rows], width=most))
    parts += [f"{clean(view.rule)}\n"] if view.rule else []
    return wrap("\n".join(parts))


def _count_columns(headers: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> int:
    """Returns how many columns fit with their whole heads, at least the words and a class."""
    widths = [max(map(count_columns, column)) for column in zip(headers, *rows, strict=True)]
    widths[0] = count_columns(headers[0])
    ends = [sum(widths[:count]) + 3 * count + 1 for count in range(3, len(widths) + 1)]
    return 2 + sum(end <= most for end in ends)


def style_view(view: View) -> Any:
    """Formats an explanation for a terminal with colours: a rich text, with the small parts dim."""
    from rich.text import Text

    rendered = printable(render_view(view))
    lines = rendered.splitlines(keepends=True)
    # The rows of the table are the only lines that begin with a bar; two are its heading.
    rows = [place for place, line in enumerate(lines) if line.startswith("|")][2:]
    faint = {rows[row] for row in view.faint}
    return Text.assemble(*((line, "dim" * (i in faint)) for i, line in enumerate(lines)))


# Largest number of classes that a page lists, and of words in a table that is not folded.
_MOST_CLASSES, _MOST_WORDS = 10, 60


def make_page(views: Sequence[View], title: str, legend: Sequence[str]) -> str:
    """Makes a page of escaped texts; the sentences of the legend are HTML."""
    articles = "\n".join(_make_article(view, number) for number, view in enumerate(views, 1))
    page_title = printable(clean(title))
    body = f"""<main>
<h1>{_escape(page_title)}</h1>
<p class="legend">{" ".join(legend)}</p>
{articles}
</main>"""
    return render_page(page_title, body, _STYLE)


def _make_article(view: View, number: int) -> str:
    percent = f' <span class="share">{view.percent}</span>' if view.percent else ""
    # The table of a long text is folded at first, so that the next text is reached by scrolling.
    is_unfolded = " open" if len(view.words) <= _MOST_WORDS else ""
    return "\n".join(
        [
            f'<article aria-labelledby="e{number}">',
            f'<h2 id="e{number}"><bdi>{_escape(view.title)}</bdi>{percent}</h2>',
            # The language of the text is unknown, and its letters decide the direction of writing.
            f'<p class="text" lang="" dir="auto">{" ".join(_mark_words(view)) or "(empty)"}</p>',
            f"<p>{_escape(' '.join(filter(None, (*view.sentences, view.rule))))}</p>",
            f"<details{is_unfolded}>",
            f"<summary>Word by word ({len(view.words)})</summary>",
            f'<div class="scroll" role="region" tabindex="0" aria-label="Words of text {number}">',
            *_make_table(view.headers, view.rows, view.name_place, view.faint),
            "</div>",
            "</details>",
            *_list_classes(view),
            "</article>",
        ]
    )


def _mark_words(view: View) -> Iterator[str]:
    """Yields the words of a text, which are struck through if they are not read."""
    for word in view.words:
        # A word of a language written from right to left must not turn the order of its neighbours.
        text = f"<bdi>{_escape(show_word(word.text))}</bdi>"
        mark = " unknown" * word.is_unknown
        number = _make_mark(word.mark)
        # The tag differs too, for screen readers and for readers who see no colours.
        if not word.is_read:
            yield f'<del class="closed{mark}">{text}</del>'
            continue
        tag = "strong" if view.has_gates else "span"
        yield f'<{tag} class="w{mark}" style="--a:{word.shade:.3f}">{text}</{tag}>{number}'


def _make_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    name_place: int,
    faint: frozenset[int] = frozenset(),
) -> Iterator[str]:
    heads = (f'<th scope="col">{_escape(head[:1].upper() + head[1:])}</th>' for head in headers)
    yield f"<table>\n<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>"
    for number, row in enumerate(rows):
        cells = (_make_cell(cell, place == name_place) for place, cell in enumerate(row))
        tag = '<tr class="faint">' if number in faint else "<tr>"
        yield f"{tag}{''.join(cells)}</tr>"
    yield "</tbody>\n</table>"


def _make_cell(cell: Cell, is_name: bool) -> str:
    text = _escape(cell.text)
    if is_name:
        style = ' class="closed"' if cell.is_marked else ""
        return f'<th scope="row" lang=""{style}><bdi>{text}</bdi>{_make_mark(cell.mark)}</th>'
    bar = ""
    if cell.bar is not None:
        bar = f'<span class="bar" style="--a:{cell.bar:.3f}" aria-hidden="true"></span>'
    return f'<td class="{"other " * cell.is_marked}n">{text}{bar}</td>'


def _make_mark(number: str) -> str:
    return f'<sup class="pair">{number}</sup>' if number else ""


def _list_classes(view: View) -> Iterator[str]:
    """Yields the table of the probabilities of the most probable classes, and the others' sum."""
    shown, others = view.classes[:_MOST_CLASSES], view.classes[_MOST_CLASSES:]
    if shown:
        rows = [[Cell(str(label)), Cell(f"{share:.3f}", bar=share)] for label, share in shown]
        yield from _make_table(("class", "probability"), rows, 0)
    if others:
        yield f"<p>{len(others)} more classes together: {sum(p for _, p in others):.3f}</p>"


def _escape(text: str) -> str:
    return html.escape(printable(text), quote=True)


_STYLE = (
    MARKED_WORDS
    + """
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 52rem; }
h2 { font-size: 1.15rem; margin: 0; overflow-wrap: anywhere; }
.share { font-weight: normal; color: var(--closed); }
article { margin: 2.5rem 0; padding-top: 1rem; border-top: 1px solid var(--rule); }
.text { font: 1.15rem/2 Georgia, serif; }
.w { border-bottom: 2px solid var(--line); border-radius: 0.2em 0.2em 0 0; font-weight: inherit; }
.faint { color: var(--closed); }
.pair { color: var(--line); font: 0.7rem/1 system-ui, sans-serif; }
.unknown { border-bottom: 2px dotted; }
.legend { border: 1px solid var(--rule); border-radius: 0.3em; padding: 0.4rem 0.8rem; }
summary { cursor: pointer; margin: 0.5rem 0; }
.scroll { overflow-x: auto; max-width: 100%; }
:focus-visible { outline: 2px solid var(--line); outline-offset: 2px; }
table { border-collapse: collapse; margin: 0.5rem 0 1rem; font-size: 0.92rem; }
th, td { text-align: start; padding: 0.15rem 0.9rem 0.15rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: baseline; }
tbody th { font-weight: normal; overflow-wrap: anywhere; }
.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
.other { color: var(--other); font-weight: bold; }
.bar { display: inline-block; margin-inline-start: 0.6em; height: 0.6em; vertical-align: baseline;
  width: calc(var(--a) * 6rem); background: var(--line); }
"""
)
