"""Attention as text: words marked in the terminal and in HTML, and tables in Markdown."""

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.page import MARKED_WORDS, render_page
from gatedjax._utils.terminal import clean, count_columns, cut_columns
from gatedjax._utils.write import write_text
from gatedjax.analysis._checks import check_numbers

if TYPE_CHECKING:
    from rich.text import Text

# Sequential blues with the text colour that is legible on each (contrast at least 4.5).
_SHADES = (
    ("#deebf7", "#000000"),
    ("#9ecae1", "#000000"),
    ("#6baed6", "#000000"),
    ("#2171b5", "#ffffff"),
    ("#08306b", "#ffffff"),
)
# A cell such as "93.5 ± 0.2 (n=3)" counts as a number, so that its column is aligned to the right.
_NUMBER = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?\s*+[%kMG]?\s*+(±.*|\(n=.*\))?")


# Texts of a table are not cut to fewer columns.
_LEAST_TEXT = 8


def highlight_terminal(
    tokens: Sequence[str],
    weights: ArrayLike,
    gates: ArrayLike | None = None,
    *,
    plain: bool = False,
) -> "Text":
    """Marks the words with open gates for a terminal, in a text of the library rich.

    Open words are bold on a blue that becomes darker with their weight; closed words are dim.

        >>> tokens, weights = ["a", "good", "film"], [0.0, 1.0, 0.0]
        >>> print(highlight_terminal(tokens, weights, gates=[0, 1, 0], plain=True))
        a [good] film

    Args:
      tokens: the words of the text, in their order.
      weights: the attention weight of each word; further weights are padding and are ignored.
      gates: the gate of each word; gates above 0 are open. None means that there are no gates:
        words with more than the uniform weight are bold, and no words are dim.
      plain: True puts marked words into [brackets] instead, for output without colours.

    Returns:
      A `rich.text.Text`; control characters in words are replaced.
    """
    from rich.text import Text

    words, weights, marked = _check_words(tokens, weights, gates)
    top = weights.max(initial=0)
    text = Text()
    for i, word in enumerate(words):
        if i:
            text.append(" ")
        if plain:
            text.append(f"[{word}]" if marked[i] else word)
            continue
        if gates is not None and not marked[i]:
            text.append(word, style="dim")
            continue
        share = float(weights[i] / top) if top > 0 else 0.0
        # The largest weight has the share 1, which would lie beyond the last shade.
        back, front = _SHADES[min(int(share * len(_SHADES)), len(_SHADES) - 1)]
        weight = "bold " if marked[i] else ""
        text.append(word, style=f"{weight}{front} on {back}")
    return text


_STYLE = (
    MARKED_WORDS
    + """
body { font: 1.05rem/1.9 Georgia, serif; max-width: 46rem; }
figure { margin: 2rem 0; }
figcaption { font: 0.9rem/1.4 system-ui, sans-serif; margin-bottom: 0.4rem; }
strong.w { border-bottom: 2px solid var(--line); }
.legend { font: 0.9rem/1.9 system-ui, sans-serif; border: 1px solid var(--closed);
  border-radius: 0.3em; padding: 0.3rem 0.8rem; }
"""
)


def highlight_html(
    examples: Iterable[tuple[str, Sequence[str], ArrayLike, ArrayLike | None]],
    title: str,
) -> str:
    """Renders a complete HTML page of texts in which the words with open gates are marked.

    Open words are bold and underlined, so that readers without colours and screen readers can
    distinguish them. The shade of a word becomes darker with its weight; the largest weight of each
    text has the darkest shade. The page has no scripts and loads no other files.

        >>> page = highlight_html([("An example", ["good", "film"], [1.0, 0.0], [1, 0])], "Gates")
        >>> "good</strong>" in page
        True

    Args:
      examples: (caption, tokens, weights, gates or None) of each text: a heading, the words, and
        the attention weight and the gate of each word; gates above 0 are open. With gates None no
        words are bold.
      title: the title of the page, which is also its heading.

    Returns:
      The page, with all texts escaped.
    """
    figures, gated = [], False
    for caption, tokens, weights, gates in examples:
        gated = gated or gates is not None
        body = " ".join(_html_words(tokens, weights, gates))
        figures.append(
            f"<figure>\n<figcaption>{_escape(caption)}</figcaption>\n"
            f'<p class="text">{body}</p>\n</figure>'
        )
    shade = '<span class="w" style="--a:0.3">light</span> to <span class="w" style="--a:1">dark'
    legend = f"Shade: attention weight, {shade}</span> (the largest of each text)."
    if gated:
        legend = (
            '<strong class="w" style="--a:0.6">Bold</strong>: open gate. '
            f'<span class="closed">Struck through</span>: closed gate, not read. {legend}'
        )
    texts_html = "\n".join(figures)
    body = f"""<main>
<h1>{_escape(title)}</h1>
<p class="legend">{legend}</p>
{texts_html}
</main>"""
    return render_page(clean(title), body, _STYLE)


def _html_words(
    tokens: Sequence[str], weights: ArrayLike, gates: ArrayLike | None
) -> Iterable[str]:
    """Yields the HTML text of each of the words `tokens`, shaded by its weight."""
    words, weights, marked = _check_words(tokens, weights, gates)
    top = weights.max(initial=0)
    for word, weight, mark in zip(words, weights.tolist(), marked, strict=True):
        if gates is not None and not mark:
            yield f'<span class="closed">{_escape(word)}</span>'
            continue
        tag = "span" if gates is None else "strong"
        share = weight / top if top > 0 else 0.0
        yield (
            f'<{tag} class="w" style="--a:{share:.3f}" title="weight {weight:.4f}">'
            f"{_escape(word)}</{tag}>"
        )


def write_html(path: str | Path, page: str) -> Path:
    """Writes a page to a file in UTF-8, atomically.

        >>> import tempfile
        >>> page = highlight_html([("An example", ["good", "film"], [1.0, 0.0], None)], "Weights")
        >>> write_html(Path(tempfile.mkdtemp(), "pages", "weights.html"), page).name
        'weights.html'

    Args:
      path: the file; its folder is created if it does not exist.
      page: the text of the page, for example from `highlight_html`.

    Returns:
      The path.
    """
    path = Path(path)
    write_text(path, page)
    return path


def render_table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], *, width: int | None = None
) -> str:
    """Renders a Markdown table with columns that are also aligned in the source.

    Columns of numbers are aligned to the right, columns of text to the left. `None` is an empty
    cell. Vertical bars and line breaks in cells are escaped or replaced.

        >>> rows = [["GA-Net", 93.5], ["baseline", 92]]
        >>> print(render_table(["system", "accuracy"], rows), end="")
        | system   | accuracy |
        | -------- | -------: |
        | GA-Net   |     93.5 |
        | baseline |       92 |

    Args:
      headers: the cells of the first line.
      rows: the cells of each row, as many as headers; they are converted by `str`.
      width: the largest number of columns of a line; the longest texts are cut to fit, and numbers
        stay whole. None cuts nothing.

    Returns:
      The table, with a line break at its end.
    """
    head = [_format_cell(name) for name in headers]
    if not head:
        raise ValueError(f"headers must have at least one cell, got {headers!r}")
    body = [[_format_cell(value) for value in row] for row in rows]
    for i, row in enumerate(body):
        if len(row) != len(head):
            raise ValueError(f"rows[{i}] must have {len(head)} cells, got {len(row)}")
    columns = list(zip(head, *body, strict=True))
    # Some renderers of Markdown need at least three characters below a heading.
    widths = [max(3, *(count_columns(cell) for cell in column)) for column in columns]
    right = [_is_numeric(column[1:]) for column in columns]
    if width is not None:
        _shrink(widths, [_least_width(*pair) for pair in zip(columns, right, strict=True)], width)
    lines = [head, *body]
    rendered = []
    for line in lines:
        cells = []
        for cell, size, at_right in zip(line, widths, right, strict=True):
            shown = cell if count_columns(cell) <= size else f"{cut_columns(cell, size - 1)}…"
            space = " " * (size - count_columns(shown))
            cells.append(space + shown if at_right else shown + space)
        rendered.append(f"| {' | '.join(cells)} |")
    rule = ["-" * (w - 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)]
    rendered.insert(1, f"| {' | '.join(rule)} |")
    return "\n".join(rendered) + "\n"


def _least_width(column: Sequence[str], is_numeric: bool) -> int:
    if is_numeric:
        return max(3, *map(count_columns, column[1:]))
    return max(3, min(_LEAST_TEXT, max(map(count_columns, column))))


def _shrink(widths: list[int], least: Sequence[int], total: int) -> None:
    """Makes the widest columns narrower until a row fits, if it can."""
    while sum(widths) + 3 * len(widths) + 1 > total:
        wide = [i for i in range(len(widths)) if widths[i] > least[i]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def check_word_values(
    name: str, values: ArrayLike, size: int, least: float = -np.inf
) -> np.ndarray:
    """Returns the first `size` values as float64, a finite number for each word."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or array.size < size:
        raise ValueError(
            f"{name} must have a number for each of the {size} words, got shape {array.shape}"
        )
    # Batches are padded, and the padding may be anything, even NaN.
    array = array[:size]
    check_numbers(name, array, least)
    return array


def _check_words(
    tokens: Sequence[str], weights: ArrayLike, gates: ArrayLike | None
) -> tuple[list[str], np.ndarray, Any]:
    """Returns the words without control characters, weights float64 [T] and marks bool [T]."""
    words = [clean(token) for token in tokens]
    weights = check_word_values("weights", weights, len(words))
    if gates is None:
        # Without gates a word is marked if it has more than its share of the attention.
        return words, weights, weights > 1 / max(len(words), 1)
    return words, weights, check_word_values("gates", gates, len(words)) > 0


def _escape(text: str) -> str:
    return html.escape(clean(text), quote=True)


def _format_cell(value: object) -> str:
    text = "" if value is None else clean(str(value))
    return text.replace("\\", "\\\\").replace("|", "\\|")


def _is_numeric(cells: Sequence[str]) -> bool:
    values = [cell for cell in cells if cell not in ("", "-", "not run")]
    return bool(values) and all(_NUMBER.fullmatch(cell) for cell in values)
