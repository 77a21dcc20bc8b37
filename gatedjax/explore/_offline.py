"""A page without a server: it contains the results for all patterns of the gates of a sentence.

A sentence of n words has 2^n patterns. In pattern k the gate of word i is open if bit i of k is 1.
The page has the class probabilities and the attention for each pattern, in units of 1 / 65,535
(uint16), so that the error of a number is at most 7.6e-6.

For the effects of removal it also has the class probabilities of the n shorter texts for each of
their 2^(n-1) patterns, without the last class, because the probabilities sum to 1. If the page
would become too large, it has no effects.
"""

import base64
from typing import Any

import numpy as np

from gatedjax._utils.json import to_json
from gatedjax._utils.page import render_page
from gatedjax._utils.types import Json
from gatedjax.explore._engine import TITLE, Explorer, Programs
from gatedjax.explore._server import page_file
from gatedjax.explore._state import State

LONGEST = 12
"""Largest number of words in a sentence, because the number of patterns is 2^words."""
MODES = ("threshold", "density", "open")
"""Modes with hard gates and without randomness."""
MOST_BYTES = 500_000
"""Largest size of a page; a model with many classes reaches it with fewer words."""
_ROWS = 256
"""Number of patterns in a call of the network."""


def offline_page(explorer: Explorer, text: str) -> bytes:
    """Makes a page about a sentence that needs only a browser."""
    data = payload(explorer, text)
    page = _page(data)
    if len(page) > MOST_BYTES:
        # The results for all patterns are the purpose of the page, and effects come second.
        page = _page(data | {"models": [model | {"removed": None} for model in data["models"]]})
    if len(page) > MOST_BYTES:
        classes = max(len(model.classes) for model in explorer.models)
        raise ValueError(
            f"the page must have at most {MOST_BYTES / 1000:,.0f} kB, got "
            f"{len(page) / 1000:,.0f}: each word doubles the patterns of {classes} classes, so "
            "shorten the text, or let `gatedjax explore` serve the page"
        )
    return page


def payload(explorer: Explorer, text: str) -> Json:
    """Computes the data of a page about a sentence: the results for all patterns of its gates."""
    explorer.check_gates("a page without a server")
    tokens = explorer.tokenizer.split(text)
    if not tokens:
        raise ValueError(f"text must have a word, got {text!r:.40}")
    if len(tokens) > LONGEST:
        raise ValueError(
            f"the text must have at most {LONGEST} words for a page without a server, got "
            f"{len(tokens)}: shorten it, or let `gatedjax explore` serve the page"
        )
    about = explorer.about()
    about["modes"] = [mode for mode in about["modes"] if mode in MODES]
    about["models"] = [model | {"layers": False} for model in about["models"]]
    return {
        "about": about | {"sentences": False},
        "text": text,
        "tokens": list(tokens),
        "models": [_patterns(programs, tokens) for programs in explorer.programs],
    }


def patterns_of(words: int) -> np.ndarray:
    """Returns all patterns of gates, float32 [2^words, words]: in pattern i gate t is bit t of i.

    >>> print(patterns_of(2))
    [[0. 0.]
     [1. 0.]
     [0. 1.]
     [1. 1.]]
    """
    numbers = np.arange(2**words)[:, None]
    return ((numbers >> np.arange(words)) & 1).astype(np.float32)


def _patterns(programs: Programs, tokens: tuple[str, ...]) -> Json:
    """Computes the results of a model for all patterns of the gates of a text."""
    model = programs.model
    if model.max_len < len(tokens):
        raise ValueError(
            f"the text must have at most the {model.max_len} words that the model reads, got "
            f"{len(tokens)}: shorten it"
        )
    is_known = [word in model.vocabulary for word in tokens]
    if not programs.gated:
        (output,) = model.read_tokens([(tokens,)])
        return {
            "known": is_known,
            "kept": [bool(is_open) for is_open in output.masks[0]],
            "density": output.density,
            "open": None,
            "probabilities": _shares(output.probabilities),
            "attention": None if output.attention is None else _shares(output.attention),
            "removed": _removed_words(programs, tokens),
        }
    probabilities, attention = _run_patterns(programs, tokens)
    return {
        "known": is_known,
        "open": [float(p) for p in programs.likely(tokens)],
        "empty": model.config.gates.empty,
        "probabilities": _shares(probabilities),
        "attention": _shares(attention),
        "removed": _removed_words(programs, tokens),
    }


def _run_patterns(programs: Programs, tokens: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (class probabilities [2^T, C], attention [2^T, T]) of all patterns of the gates."""
    gates = patterns_of(len(tokens))
    parts: list[Any] = []
    for begin in range(0, len(gates), _ROWS):
        patterns = gates[begin : begin + _ROWS]
        # The last call is filled up with repeated patterns, so that all calls share one program.
        filled = np.resize(patterns, (_ROWS, len(tokens)))
        probabilities, attention, _ = programs.with_gates(tokens, list(filled))
        parts.append((probabilities[: len(patterns)], attention[: len(patterns)]))
    scores, weights = zip(*parts, strict=True)
    return np.concatenate(scores), np.concatenate(weights)


def _removed_words(programs: Programs, tokens: tuple[str, ...]) -> Json | None:
    """Returns "removed": open [T, T - 1], and probabilities [T, 2^(T-1), C - 1] or [T, C - 1]."""
    if len(tokens) < 2:
        return None
    if not programs.gated:
        without = programs.removal.without_each(tokens, State())
        return {"open": None, "probabilities": _shares(without[:, :-1])}
    shorter = [(*tokens[:place], *tokens[place + 1 :]) for place in range(len(tokens))]
    scores = np.stack([_run_patterns(programs, words)[0] for words in shorter])
    return {
        "open": [[float(p) for p in row] for row in programs.removal.open_probabilities(tokens)],
        "probabilities": _shares(scores[..., :-1]),
    }


def _shares(values: np.ndarray) -> str:
    # A number takes 2.7 characters, and as decimal digits it would take three times as many.
    return base64.b64encode(np.round(values * 65535).astype("<u2").tobytes()).decode()


def _page(data: Json) -> bytes:
    script, style = (page_file(name).decode() for name in ("explorer.js", "explorer.css"))
    # "<" is escaped, because "</script>" in a text would end the element.
    content = to_json(data, separators=(",", ":")).replace("<", "\\u003c")
    body = f"""<main data-gatedjax="offline"></main>
<noscript>The explorer is a program of this page: allow it to run scripts.</noscript>
<script type="application/json" id="gatedjax-data">{content}</script>"""
    return render_page(TITLE, body, style, script=script, css_class="gx-page").encode()
