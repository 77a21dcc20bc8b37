"""One page without a server: every pattern of the gates of a sentence, computed beforehand.

A sentence of n words has 2^n patterns; number k has the gate of word i open where bit i of k is 1.
For each there are the class probabilities and the attention, both in 65,535ths (uint16): a number
is wrong by 7.6e-6 at most.
"""

import base64
from typing import Any

import numpy as np

from gatedjax._utils.json import to_json
from gatedjax._utils.page import render_page
from gatedjax._utils.types import Json
from gatedjax.explore._engine import Explorer, Programs
from gatedjax.explore._server import page_file
from gatedjax.text._corpus import split_words

LONGEST = 12
"""Words of a sentence of which all patterns are computed."""
MODES = ("threshold", "density", "open")
"""Those that choose a pattern, and draw nothing."""
MOST_BYTES = 500_000
"""Of a page; a model of many classes reaches them with fewer words."""
_ROWS = 256
"""Patterns of one call."""


def offline_page(explorer: Explorer, text: str) -> bytes:
    """A page of one sentence that needs nothing but a browser.

    Args:
      explorer: of the models.
      text: the sentence.

    Raises:
      ValueError: if it has no word, or more than `LONGEST`, or more classes than fit into
        `MOST_BYTES`.
    """
    page = _page(payload(explorer, text))
    if len(page) > MOST_BYTES:
        classes = max(len(model.classes) for model in explorer.models)
        raise ValueError(
            f"the page would have {len(page) / 1000:,.0f} kB, and it may have "
            f"{MOST_BYTES / 1000:,.0f}: every word doubles the patterns of {classes} classes, so "
            "shorten the text, or let `gatedjax explore` serve the page"
        )
    return page


def payload(explorer: Explorer, text: str) -> Json:
    """What the page knows: see the head of this file.

    Args:
      explorer, text: see `offline_page`.
    """
    explorer.check_gates("a page without a server")
    tokens = split_words(text)
    if not tokens:
        raise ValueError("the text has no word")
    if len(tokens) > LONGEST:
        raise ValueError(
            f"a page without a server has every pattern of at most {LONGEST} words, and the text "
            f"has {len(tokens)}: shorten it, or let `gatedjax explore` serve the page"
        )
    about = explorer.about()
    about["modes"] = [mode for mode in about["modes"] if mode in MODES]
    about["models"] = [one | {"layers": False} for one in about["models"]]
    return {
        "about": about | {"sentences": False},
        "text": text,
        "tokens": list(tokens),
        "models": [_patterns(programs, tokens) for programs in explorer.programs],
    }


def patterns_of(words: int) -> np.ndarray:
    """All patterns [2^words, words] of gates, as floats."""
    numbers = np.arange(2**words)[:, None]
    return ((numbers >> np.arange(words)) & 1).astype(np.float32)


def _patterns(programs: Programs, tokens: tuple[str, ...]) -> Json:
    model = programs.model
    if model.max_len < len(tokens):
        raise ValueError(f"the model reads {model.max_len} words, and the text has {len(tokens)}")
    known = [word in model.vocabulary for word in tokens]
    if not programs.gated:
        (read,) = model.read_tokens([(tokens,)])
        return {
            "known": known,
            "kept": [bool(kept) for kept in read.kept[0]],
            "density": read.density,
            "open": None,
            "probabilities": _shares(read.probabilities),
            "attention": None if read.attention is None else _shares(read.attention),
        }
    gates = patterns_of(len(tokens))
    parts: list[Any] = []
    for begin in range(0, len(gates), _ROWS):
        some = gates[begin : begin + _ROWS]
        filled = np.resize(some, (_ROWS, len(tokens)))
        probabilities, attention, _ = programs.with_gates(tokens, list(filled))
        parts.append((probabilities[: len(some)], attention[: len(some)]))
    return {
        "known": known,
        "open": [float(p) for p in programs.likely(tokens)],
        "empty": model.config.gates.empty,
        "probabilities": _shares(np.concatenate([one for one, _ in parts])),
        "attention": _shares(np.concatenate([one for _, one in parts])),
    }


def _shares(values: np.ndarray) -> str:
    return base64.b64encode(np.round(values * 65535).astype("<u2").tobytes()).decode()


def _page(data: Json) -> bytes:
    """Returns the page around its data."""
    script, style = (page_file(name).decode() for name in ("explorer.js", "explorer.css"))
    # "</script>" in a text would end the element
    held = to_json(data, separators=(",", ":")).replace("<", "\\u003c")
    body = f"""<main data-gatedjax="offline"></main>
<noscript>The explorer is a program of this page: allow it to run scripts.</noscript>
<script type="application/json" id="gatedjax-data">{held}</script>"""
    return render_page("Gate explorer", body, style, script=script, css_class="gx-page").encode()
