"""Pages without a server, which contain the answer to each question that a reader can ask.

The page of networks is about a sentence, with the results for all patterns of its gates. A sentence
of n words has 2^n patterns; in pattern k the gate of word i is open if bit i of k is 1. For the
effects of removal the page also has the results of the n shorter texts for each of their 2^(n-1)
patterns; without them if it would become too large. Class probabilities p [C] are stored as float32
log(p_c / p_C) for c < C, so that also the log-odds of a probability near 1 are exact. Attention is
stored in units of 1 / 65,535 (uint16).

The page of lexicons has the answers for labelled texts, as many as its size allows, and the words
that decide each of them.
"""

import base64
import json
from typing import Any

import numpy as np

from gatedjax._utils.json import to_json
from gatedjax._utils.page import render_page
from gatedjax._utils.types import Json
from gatedjax.explore._engine import Explorer
from gatedjax.explore._lexicon_view import LexiconView
from gatedjax.explore._network_view import NetworkView
from gatedjax.explore._sentences import first_sentence, read_sentences
from gatedjax.explore._server import page_file
from gatedjax.explore._state import State
from gatedjax.explore._views import View, bools, floats
from gatedjax.text.sources._table import Table

LONGEST = 12
"""Largest number of words in a sentence with gates, because the number of patterns is 2^words."""
MODES = ("threshold", "density", "open")
"""Modes with hard gates and without randomness."""
MOST_BYTES = 1_000_000
"""Largest size of a page: with more classes it has fewer words, or fewer texts."""
_ROWS = 256  # patterns in a call of the network


def offline_page(explorer: Explorer, text: str, table: Table | None = None) -> bytes:
    """Makes a page about a sentence, or about the texts of a table, that needs only a browser."""
    views = explorer.views
    if all(isinstance(view, LexiconView) for view in views):
        return _page(_store_answers(explorer, text, table))
    if not all(isinstance(view, NetworkView) for view in views):
        raise ValueError(
            "a page without a server must be of lexicons, or of networks that classify single "
            f"texts, got {' and '.join(view.network for view in views)}: `gatedjax explain` writes "
            "pages of classifiers of pairs"
        )
    if table is not None:
        raise ValueError(
            f"a page without a server must be about one text of a network, got {table.name}: leave "
            "the file out, or let `gatedjax explore` serve the page"
        )
    data = payload(explorer, text)
    page = _page(data)
    if len(page) > MOST_BYTES:
        # The results for all patterns are the purpose of the page, and effects come second.
        page = _page(data | {"models": [model | {"removed": None} for model in data["models"]]})
    if len(page) > MOST_BYTES:
        classes = max(len(view.classes) for view in views)
        raise ValueError(
            f"the page must have at most {MOST_BYTES / 1000:,.0f} kB, got "
            f"{len(page) / 1000:,.0f}: each word doubles the patterns of {classes} classes, so "
            "shorten the text, or let `gatedjax explore` serve the page"
        )
    return page


def _store_answers(explorer: Explorer, text: str, table: Table | None) -> Json:
    """Computes the data of a page of lexicons: the answers for the texts, and their sentences."""
    about = explorer.about()
    if table is None:
        text = text or about["example"].get("text", "")
        if not any(view.split(text) for view in explorer.views):
            raise ValueError(f"text must have a word, got {text!r:.40}")
    sentences = None if table is None else read_sentences(explorer, table)
    rows = [] if sentences is None else [row["text"] for row in sentences.rows]
    answers = {text: _shorten(explorer.answer({"text": text}))} if text else {}
    # A tenth of the page is for the words that decide the sentences.
    room = 0.9 * MOST_BYTES - len(_page(answers))
    count = 0
    for row in rows:
        answers[row] = _shorten(explorer.answer({"text": row}))
        # The list of sentences has the text too, with about 150 bytes of numbers and names.
        room -= len(to_json(answers[row]).encode()) + len(row.encode()) + 150
        if room < 0 and count:
            break
        count += 1
    if table is not None and count < len(rows):
        sentences = read_sentences(explorer, table, most=count)
    fixed = {"layered": False, "switched": False}
    return {
        "about": about
        | {"models": [model | fixed for model in about["models"]]}
        | {"sentences": sentences is not None}
        | {"first": None if table is None else first_sentence(explorer, table)},
        "text": text,
        "answers": answers,
        "sentences": sentences and _shorten(sentences.about()),
        "decided": sentences and sentences.find_all(),
    }


def _shorten(value: Any) -> Any:
    """Rounds the numbers of an answer to six digits, which the page shows with three decimals."""
    return json.loads(to_json(value), parse_float=lambda number: float(f"{float(number):.6g}"))


def payload(explorer: Explorer, text: str) -> Json:
    """Computes the data of a page about a sentence: the results for all patterns of its gates."""
    views: Any = explorer.views
    split = [tuple(view.split(text)) for view in views]
    tokens = split[0]
    if any(words != tokens for words in split):
        raise ValueError("the models must split the text into the same words, got other words")
    if not tokens:
        raise ValueError(f"text must have a word, got {text!r:.40}")
    if len(tokens) > LONGEST:
        raise ValueError(
            f"the text must have at most {LONGEST} words for a page without a server, got "
            f"{len(tokens)}: shorten it, or let `gatedjax explore` serve the page"
        )
    about = explorer.about()
    about["modes"] = [mode for mode in about["modes"] if mode in MODES]
    about["models"] = [model | {"layered": False} for model in about["models"]]
    return {
        "about": about | {"sentences": False},
        "text": text,
        "tokens": list(tokens),
        "models": [_patterns(view, tokens) for view in views],
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


def _patterns(view: NetworkView, tokens: tuple[str, ...]) -> Json:
    """Computes the results of a model for all patterns of the gates of a text."""
    model = view.model
    if model.max_len < len(tokens):
        raise ValueError(
            f"the text must have at most the {model.max_len} words that the model reads, got "
            f"{len(tokens)}: shorten it"
        )
    shared = {
        "known": [word in model.vocabulary for word in tokens],
        "removed": _removed_words(view, tokens),
    }
    if not view.gated:
        (output,) = model.read_tokens([(tokens,)])
        return shared | {
            "read": bools(output.masks[0]),
            "share": output.share,
            "open": None,
            "probabilities": _ratios(output.probabilities),
            "attention": None if output.attention is None else _shares(output.attention),
        }
    probabilities, attention = _run_patterns(view, tokens)
    return shared | {
        "open": floats(view.likely(tokens)),
        "empty": model.config.gates.empty,
        "probabilities": _ratios(probabilities),
        "attention": _shares(attention),
    }


def _run_patterns(view: NetworkView, tokens: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (class probabilities [2^T, C], attention [2^T, T]) of all patterns of the gates."""
    gates = patterns_of(len(tokens))
    # The last call is filled up with repeated patterns, so that all calls share a program.
    filled = np.resize(gates, (-(-len(gates) // _ROWS), _ROWS, len(tokens)))
    parts = [view.with_gates(tokens, list(patterns))[:2] for patterns in filled]
    scores, weights = (
        np.concatenate(results)[: len(gates)] for results in zip(*parts, strict=True)
    )
    return scores, weights


def _removed_words(view: NetworkView, tokens: tuple[str, ...]) -> Json | None:
    """Returns "removed": open [T, T - 1], and ratios [T, 2^(T-1), C - 1] or [T, C - 1]."""
    if len(tokens) < 2:
        return None
    if not view.gated:
        without = view.without_each(tokens, State())
        return {"open": None, "probabilities": _ratios(without)}
    shorter = [(*tokens[:place], *tokens[place + 1 :]) for place in range(len(tokens))]
    scores = np.stack([_run_patterns(view, words)[0] for words in shorter])
    return {
        "open": [floats(row) for row in view.likely_without(tokens)],
        "probabilities": _ratios(scores),
    }


def _shares(values: np.ndarray) -> str:
    # A number takes 2.7 characters, and as decimal digits it would take three times as many.
    return base64.b64encode(np.round(values * 65535).astype("<u2").tobytes()).decode()


def _ratios(probabilities: np.ndarray) -> str:
    logs = np.log(np.maximum(probabilities.astype(np.float64), np.finfo(np.float32).tiny))
    ratios = (logs[..., :-1] - logs[..., -1:]).astype("<f4")
    return base64.b64encode(ratios.tobytes()).decode()


def _page(data: Json) -> bytes:
    script, style = (page_file(name).decode() for name in ("explorer.js", "explorer.css"))
    # "<" is escaped, because "</script>" in a text would end the element.
    content = to_json(data, separators=(",", ":")).replace("<", "\\u003c")
    body = f"""<main data-gatedjax="offline"></main>
<noscript>The explorer is a program of this page: allow it to run scripts.</noscript>
<script type="application/json" id="gatedjax-data">{content}</script>"""
    return render_page(View.title, body, style, script=script, css_class="gx-page").encode()
