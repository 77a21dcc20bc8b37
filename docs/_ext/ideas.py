"""The pictures of the papers' ideas; `python docs/_ext/ideas.py` writes docs/images/idea_*.svg.

Text and lines have the colour of the surrounding text. Inside a page of the site that is the colour
of its theme. As a file, for example on GitHub, the picture follows the reader's colour scheme.
"""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "images"
WIDTH = 480
BLUE, ORANGE = "#3a8ad1", "#d9822b"
STYLE = (
    "<style>svg.idea{color:#1f2328}"
    "@media (prefers-color-scheme:dark){svg.idea{color:#e6edf3}}</style>"
)
"""The colours of a file. `site_parts` removes them, because a page has a theme."""


class Picture:
    """An SVG that grows by shapes.

    Args:
      title: the text that stands in for the picture.
      height: the height; the width is `WIDTH`.
    """

    def __init__(self, title: str, height: int):
        """Starts the picture with its title and the tip of its arrows."""
        self.name = title.split(":")[0].lower().replace("-", "_").replace(" ", "_")
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="idea" viewBox="0 0 {WIDTH} {height}" '
            'role="img" font-family="system-ui, sans-serif" font-size="14" fill="none" '
            'stroke="currentColor" stroke-width="1.3">',
            f"<title>{escape(title)}</title>{STYLE}",
            f'<defs><marker id="tip-{self.name}" viewBox="0 0 8 8" refX="7" refY="4" '
            'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" '
            'fill="currentColor" stroke="none"/></marker></defs>',
        ]

    def text(self, x: float, y: float, words: str, anchor: str = "middle", size: int = 14) -> None:
        """Adds a line of text; `y` is its middle."""
        self.parts.append(
            f'<text x="{x:g}" y="{y + 0.35 * size:g}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="currentColor" stroke="none">{escape(words)}</text>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str = "",
        fill: str = "none",
        opacity: float = 0.3,
        dashed: bool = False,
    ) -> None:
        """Adds a rectangle with text in its middle."""
        dash = ' stroke-dasharray="4 3" stroke-opacity="0.7"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" '
            f'fill="{fill}" fill-opacity="{opacity:g}"{dash}/>'
        )
        if words:
            self.text(x + width / 2, y + height / 2, words)

    def arrow(self, x: float, y: float, u: float, v: float, *, faint: bool = False) -> None:
        """Adds an arrow from (x, y) to (u, v)."""
        look = ' stroke-opacity="0.45"' if faint else ""
        tip = "" if faint else f' marker-end="url(#tip-{self.name})"'
        self.parts.append(f'<path d="M{x:g} {y:g} {u:g} {v:g}"{look}{tip}/>')

    def svg(self) -> str:
        """Returns the picture."""
        return "\n".join([*self.parts, "</svg>\n"])


def _row(picture: Picture, y: float, label: str) -> None:
    """Adds the name of a row at the left."""
    for i, part in enumerate(label.split("\n")):
        picture.text(4, y + 17 * i, part, "start", 13)


def draw_ga_net() -> str:
    """Draws GA-Net: a gate before each word, and attention over the open words."""
    words = ["a", "film", "far", "from", "boring"]
    is_open = [False, False, True, False, True]
    weights = [0.0, 0.0, 0.62, 0.0, 0.38]
    picture = Picture(
        "GA-Net: an auxiliary network opens two of five gates, attention sees only the open words",
        296,
    )
    _row(picture, 276, "words")
    _row(picture, 217, "auxiliary\nnetwork")
    _row(picture, 166, "gates")
    _row(picture, 106, "attention")
    picture.box(100, 208, 376, 34, "reads the words and decides which gates open")
    for i, word in enumerate(words):
        x = 104 + 76 * i
        picture.box(x, 262, 64, 28, word, BLUE if is_open[i] else "none")
        picture.arrow(x + 32, 262, x + 32, 245)
        picture.arrow(x + 32, 208, x + 32, 184)
        gate = "open" if is_open[i] else "closed"
        fill = BLUE if is_open[i] else "none"
        picture.box(x, 154, 64, 26, gate, fill, 0.3, dashed=not is_open[i])
        if is_open[i]:
            height = 70 * weights[i]
            picture.box(x + 18, 128 - height, 28, height, "", ORANGE, 0.75)
            picture.text(x + 32, 119 - height, f"{weights[i]:.2f}", size=12)
            picture.arrow(x + 32, 154, x + 32, 132)
            picture.arrow(x + 32, 108 - height, min(x + 32, 400), 37)
        else:
            picture.text(x + 32, 120, "0", size=12)
    picture.box(148, 6, 280, 28, "sum of the open words, then the class")
    return picture.svg()


def draw_agt() -> str:
    """Draws AGT: layers with separate attentions, which a gate mixes into the state."""
    weights = [[0.1, 0.1, 0.9, 0.05, 0.1], [0.05, 0.9, 0.1, 0.05, 0.3], [0.7, 0.05, 0.1, 0.1, 0.6]]
    picture = Picture(
        "AGT: each of three layers has a separate attention over the words, and a gate mixes its "
        "vector into the state",
        272,
    )
    picture.text(136, 14, "attention of each layer", size=13)
    picture.text(340, 14, "vector", size=13)
    picture.text(440, 14, "state", size=13)
    for layer, row in enumerate(weights):
        y = 176 - 72 * layer
        picture.text(4, y + 17, f"layer {layer}", "start", 13)
        for i, weight in enumerate(row):
            picture.box(58 + 46 * i, y, 42, 34, "", ORANGE, weight)
        picture.arrow(290, y + 17, 312, y + 17)
        picture.box(316, y, 48, 34, f"s{'₀₁₂'[layer]}", BLUE)
        picture.arrow(364, y + 17, 406, y + 17)
        picture.box(410, y, 60, 34, f"h{'₀₁₂'[layer]}", BLUE)
        if layer:
            picture.arrow(440, y + 72, 440, y + 38)
            picture.text(432, y + 54, "gate", "end", 13)
    for i, word in enumerate(["an", "oddly", "witty", "little", "film"]):
        picture.text(79 + 46 * i, 230, word, size=13)
    picture.text(4, 230, "words", "start", 13)
    picture.text(58, 258, "the last state gives the class of the sentence", "start", 13)
    return picture.svg()


def draw_rau() -> str:
    """Draws RAU: a GRU whose candidate state comes half from attention over features."""
    picture = Picture(
        "RAU: the candidate state is the mean of the GRU's candidate and a softmax over the "
        "features of input and state",
        250,
    )
    weights = [0.10, 0.55, 0.05, 0.20, 0.06, 0.04]
    picture.box(4, 34, 88, 30, "input x", BLUE)
    picture.box(4, 184, 88, 30, "state h", BLUE)
    picture.arrow(92, 49, 132, 108)
    picture.arrow(92, 199, 132, 140)
    picture.box(122, 110, 60, 28, "[x, h]")
    picture.arrow(170, 110, 212, 72)
    picture.arrow(170, 138, 212, 184)
    picture.text(274, 12, "softmax over features", size=13)
    for i, weight in enumerate(weights):
        picture.box(216 + 20 * i, 90 - 100 * weight, 16, 100 * weight, "", ORANGE, 0.75)
    picture.arrow(208, 90, 340, 90, faint=True)
    picture.text(274, 106, "attention candidate s", size=13)
    picture.box(212, 178, 124, 30, "GRU candidate c", BLUE)
    picture.arrow(342, 88, 392, 118)
    picture.arrow(338, 190, 392, 138)
    picture.text(372, 92, "½", size=15)
    picture.text(372, 176, "½", size=15)
    picture.box(396, 112, 80, 30, "mean")
    picture.arrow(436, 142, 436, 178)
    picture.text(428, 160, "gate z", "end", 13)
    picture.box(396, 182, 80, 30, "new h", BLUE)
    picture.arrow(92, 226, 392, 226, faint=True)
    picture.arrow(392, 226, 420, 214)
    picture.text(240, 238, "the old state stays where the gate z is closed", size=13)
    return picture.svg()


def draw_ga_reader() -> str:
    """Draws the GA Reader: document words times their view of the question, in several hops."""
    picture = Picture(
        "GA Reader: each document word is multiplied by its view of the question, three times; "
        "then attention points at the answer",
        300,
    )
    document = ["Anna", "gave", "Ben", "the", "key"]
    views = [[0.8, 0.1, 0.1], [0.1, 0.7, 0.2], [0.8, 0.1, 0.1], [0.3, 0.3, 0.4], [0.1, 0.1, 0.8]]
    question = ["who", "has", "key"]
    _row(picture, 282, "document")
    _row(picture, 166, "view of the\nquestion")
    _row(picture, 106, "product")
    _row(picture, 34, "answer")
    for i, (word, view) in enumerate(zip(document, views, strict=True)):
        x = 92 + 58 * i
        picture.box(x, 268, 50, 28, word, BLUE)
        picture.arrow(x + 25, 268, x + 25, 215)
        for j, weight in enumerate(view):
            picture.box(x + 8, 154 + 20 * j, 34, 18, "", ORANGE, weight)
        picture.arrow(x + 25, 154, x + 25, 126)
        picture.box(x, 96, 50, 26, "×", BLUE)
    for j, word in enumerate(question):
        picture.box(418, 153 + 20 * j, 58, 20, word)
        picture.arrow(416, 163 + 20 * j, 372, 163 + 20 * j, faint=True)
    picture.text(447, 142, "question", size=13)
    picture.arrow(388, 109, 404, 109, faint=True)
    picture.arrow(404, 109, 404, 282, faint=True)
    picture.arrow(404, 282, 378, 282)
    picture.text(412, 109, "next hop", "start", 13)
    for i, height in enumerate([12, 3, 48, 3, 6]):
        x = 92 + 58 * i
        picture.box(x + 13, 76 - height, 24, height, "", ORANGE, 0.75)
    picture.arrow(88, 76, 384, 76, faint=True)
    picture.text(233, 18, "Ben", size=13)
    picture.text(398, 52, "attention of", "start", 12)
    picture.text(398, 68, "the last hop", "start", 12)
    return picture.svg()


def draw_ssan() -> str:
    """Draws SSAN: each query selects keys, and attention is computed over the selected keys."""
    words = ["the", "dog", "that", "barked", "ran"]
    selected = ["01001", "11000", "01110", "01011", "01001"]
    weights = [
        [0, 0.7, 0, 0, 0.3],
        [0.5, 0.5, 0, 0, 0],
        [0, 0.6, 0.1, 0.3, 0],
        [0, 0.6, 0, 0.2, 0.2],
        [0, 0.8, 0, 0, 0.2],
    ]
    picture = Picture(
        "SSAN: each query word selects the key words that it may attend to, and attention is "
        "computed over the selected keys only",
        236,
    )
    picture.text(140, 12, "1. each query selects keys", size=13)
    picture.text(378, 12, "2. attention over them", size=13)
    for i, word in enumerate(words):
        y = 56 + 34 * i
        picture.text(56, y + 15, word, "end", 13)
        for j, key in enumerate(words):
            if i == 0:
                for left in (64, 306):
                    picture.text(left + 34 * j + 15, 38 if j % 2 else 46, key, size=11)
            is_selected = selected[i][j] == "1"
            picture.box(
                *(64 + 34 * j, y, 30, 30, "✓" if is_selected else ""),
                *(BLUE if is_selected else "none", 0.35, not is_selected),
            )
            if is_selected:
                picture.box(306 + 34 * j, y, 30, 30, "", ORANGE, weights[i][j])
            else:
                picture.text(306 + 34 * j + 15, y + 15, "0", size=12)
    picture.arrow(244, 140, 292, 140)
    return picture.svg()


IDEAS: dict[str, Callable[[], str]] = {
    "ga_net": draw_ga_net,
    "agt": draw_agt,
    "rau": draw_rau,
    "ga_reader": draw_ga_reader,
    "ssan": draw_ssan,
}
"""The functions that draw the pictures, by the name of the paper's package."""


def inline(svg: str) -> str:
    """Returns a picture for use inside a page, where it takes the colours of the page."""
    size = '<svg style="display:block;width:100%;max-width:34rem;height:auto;margin:0 auto"'
    return svg.replace(STYLE, "").replace("\n", "").replace("<svg", size, 1)


def main(names: Sequence[str] = tuple(IDEAS)) -> None:
    """Writes the pictures."""
    for name in names:
        (IMAGES / f"idea_{name}.svg").write_text(IDEAS[name](), encoding="utf-8")


if __name__ == "__main__":
    main()
