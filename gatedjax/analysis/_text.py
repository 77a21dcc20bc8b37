"""Attention as text: marked words in the terminal and in HTML, and tables in Markdown."""

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.page import MARKED_WORDS, render_page
from gatedjax._utils.terminal import clean
from gatedjax._utils.write import write_atomic

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
_NUMBER = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?\s*[%kMG]?(\s*±.*)?(\s*\(n=.*\))?")


def highlight_terminal(
    tokens: Sequence[str],
    weights: ArrayLike,
    gates: ArrayLike | None = None,
    *,
    plain: bool = False,
) -> "Text":
    """Marks the words that attention sees, for a rich console.

    Open words are bold on a blue that grows with their weight; closed words are dim.

    Args:
      tokens: the words.
      weights: attention, one per word; what follows the last word is ignored.
      gates: open is > 0; None (no gates) marks every word whose weight is above the uniform one.
      plain: put marked words in [brackets] instead, for places without colour.

    Returns:
      A `rich.text.Text`; control characters in words are replaced.
    """
    from rich.text import Text

    words, weights, marked = _words(tokens, weights, gates)
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
    *,
    lang: str = "en",
) -> str:
    """A complete HTML page of texts with the words that attention sees.

    Open words are bold and underlined, which survives greyscale and screen readers; the shade
    grows with the weight, the darkest of each text being its largest. No script, nothing loaded.

    Args:
      examples: (caption, tokens, weights, gates or None) per text, as in `highlight_terminal`.
      title: of the page.
      lang: language of the texts, as in the `lang` attribute.

    Returns:
      The page; all text is escaped.
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
            f'<span class="closed">Grey</span>: closed gate, not read. {legend}'
        )
    shown = "\n".join(figures)
    body = f"""<main>
<h1>{_escape(title)}</h1>
<p class="legend">{legend}</p>
{shown}
</main>"""
    return render_page(clean(title), body, _STYLE, lang=lang)


def _html_words(
    tokens: Sequence[str], weights: ArrayLike, gates: ArrayLike | None
) -> Iterable[str]:
    words, weights, marked = _words(tokens, weights, gates)
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
    """Writes a page in UTF-8 so that a reader sees the old file or the whole new one.

    Args:
      path: the file; its folder is made if it is missing.
      page: the text, as from `highlight_html`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page.encode("utf-8"))
    return path


def render_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table whose columns are aligned in the source, too.

    Columns of numbers are set to the right, others to the left; `None` is an empty cell, and a
    vertical bar or a line break inside a cell is made harmless.

    Args:
      headers: the first line.
      rows: cells, as many per row as headers; `str` is applied to them.

    Returns:
      The table, ending in a line break.
    """
    head = [_cell(name) for name in headers]
    if not head:
        raise ValueError("headers must not be empty")
    body = [[_cell(value) for value in row] for row in rows]
    for i, row in enumerate(body):
        if len(row) != len(head):
            raise ValueError(f"rows[{i}] must have {len(head)} cells, got {len(row)}")
    columns = list(zip(head, *body, strict=True))
    widths = [max(3, *(_width(cell) for cell in column)) for column in columns]
    right = [_is_numeric(column[1:]) for column in columns]
    lines = [head, *body]
    rendered = []
    for line in lines:
        cells = []
        for cell, width, at_right in zip(line, widths, right, strict=True):
            space = " " * (width - _width(cell))
            cells.append(space + cell if at_right else cell + space)
        rendered.append(f"| {' | '.join(cells)} |")
    rule = ["-" * (w - 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)]
    rendered.insert(1, f"| {' | '.join(rule)} |")
    return "\n".join(rendered) + "\n"


def aligned(name: str, values: ArrayLike, size: int) -> np.ndarray:
    """One finite number per word; raises ValueError naming the argument."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or array.size < size:
        raise ValueError(f"{name} must have one number per word ({size}), got shape {array.shape}")
    array = array[:size]
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def _words(
    tokens: Sequence[str], weights: ArrayLike, gates: ArrayLike | None
) -> tuple[list[str], np.ndarray, Any]:
    words = [clean(token) for token in tokens]
    weights = aligned("weights", weights, len(words))
    if gates is None:
        return words, weights, weights > 1 / max(len(words), 1)
    return words, weights, aligned("gates", gates, len(words)) > 0


def _escape(text: str) -> str:
    return html.escape(clean(text), quote=True)


def _cell(value: object) -> str:
    text = "" if value is None else clean(str(value))
    return text.replace("\\", "\\\\").replace("|", "\\|")


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _is_numeric(cells: Sequence[str]) -> bool:
    told = [cell for cell in cells if cell not in ("", "-", "not run")]
    return bool(told) and all(_NUMBER.fullmatch(cell) for cell in told)
