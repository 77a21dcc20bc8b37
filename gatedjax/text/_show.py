"""Explanations of predictions, word by word: as JSON, for a terminal, and as an HTML page."""

import html
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gatedjax._utils.page import MARKED_WORDS, render_page
from gatedjax._utils.terminal import clean, printable
from gatedjax._utils.types import Json
from gatedjax.analysis._text import render_table

Label = str | int | float | bool
# Number of characters in a bar of the terminal.
_BAR = 10
# A page lists so many classes of a text, and collapses the table of a text with more words.
_MOST_CLASSES, _MOST_WORDS = 10, 60
# A table of reasons has so many classes, the most probable.
_MOST_SHARES = 4
# Largest length of a title that is the beginning of a text.
_TITLE = 60
# A closed word has an effect if the probability changes by more than the noise of float32, because
# a shorter text runs in a batch of another shape.
_LEAST_CHANGE = 1e-5
UNKNOWN = " (unknown)"
"""The mark of a word that is in no training text, behind the word."""
UNKNOWN_LEGEND = (
    '<span class="unknown">Dotted</span>: unknown, in no training text; if it is read, then by its '
    "letters only."
)
READ, OPEN = "read", "open"
"""The two names of the words that `Explanation.kept` marks, see `name_open_words`."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The prediction after a gate is flipped or a word is removed.

        >>> Change(label="bad", probability=0.25)
        Change(label='bad', probability=0.25)

    Attributes:
      label: the class that is predicted after the change.
      probability: the probability, after the change, of the class that was predicted before.
    """

    label: Label
    probability: float


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """The parts of the logits of a prediction, which is a sum over words and pairs of words.

        logit of class c = bias_c + sum_t words_tc + sum_p pairs_pc

    Attributes:
      classes: the C classes, in the order of the numbers.
      bias: the C numbers that are added for all texts.
      words: for each word of the text its C numbers; 0 for a closed word.
      pairs: for each pair of open neighbours a tuple: the positions of its two words in the text,
        from 0, and its C numbers.
      is_same: True if the text without its closed words has bitwise the same probabilities.
      note: a remark about the text, or "".
      rule: the sentence by which the prediction follows from the sums.
      leak: a sentence about the closed words that the prediction depends on through the vectors of
        an encoder, or "".
    """

    classes: tuple[Label, ...]
    bias: tuple[float, ...]
    words: tuple[tuple[float, ...], ...]
    pairs: tuple[tuple[int, int, tuple[float, ...]], ...]
    is_same: bool
    note: str = ""
    rule: str = "The class with the largest sum is predicted; the parts are exact."
    leak: str = ""

    def to_json(self) -> Json:
        """Returns a dict of the fields for `json.dumps`.

        It has the lists "classes", "bias" [C] and "words" [T, C] for T words and C classes;
        "pairs", a list of dicts with "first", "second" and "parts" [C]; "is_same", "note", and
        "leak" unless it is empty.
        """
        return {
            "classes": list(self.classes),
            "bias": list(self.bias),
            "words": [list(parts) for parts in self.words],
            "pairs": [
                {"first": first, "second": second, "parts": list(parts)}
                for first, second, parts in self.pairs
            ],
            "is_same": self.is_same,
            "note": self.note,
        } | ({"leak": self.leak} if self.leak else {})


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A prediction and its explanation by the words of the text.

        >>> explanation = Explanation(
        ...     text="a dull film", tokens=("dull", "film"), label="bad", probability=0.75,
        ...     probabilities={"bad": 0.75, "good": 0.25}, kept=(True, False), density=0.5,
        ...     attention=(1.0, 0.0), gates=(0.75, 0.25), flips=None,
        ...     removed=(Change(label="good", probability=0.5),) * 2,
        ... )
        >>> for line in explanation.render().splitlines()[:4]:
        ...     print(line)
        bad 0.750 (of bad 0.750, good 0.250)
        1 of 2 words are open (50%).
        Removing a closed word changes the probability too, by up to 0.250 ("film").
        Removing one of these changes the prediction: "dull", "film".

    Attributes:
      text: the text.
      tokens: the words of the text that the network reads. Each of kept, attention, gates, flips
        and removed has an entry for each word.
      label: the predicted class.
      probability: the probability of the predicted class.
      probabilities: the probability of each class.
      kept: True if the gate of the word is open. A lexicon reads these words and no other. In a
        network attention can see them, but its encoder may read all words, so that removing a word
        with a closed gate may change the prediction too. The sentences of the explanation call the
        words "read" only if it does not.
      density: share of the words that attention can see.
      attention: the attention to each word, with the sum 1 (for local attention at most 1); None if
        the network has no attention.
      gates: the probability that each gate is open; None if the network has no gates.
      flips: the prediction if only this gate is flipped, with None for the last open gate of a
        network that would open the likeliest gate again; None if the network has no gates.
      removed: the prediction for the text without the word.
      cut: number of words at the end of the text that the network does not read because of
        `max_len`.
      reasons: the part of each word in the logits, for a lexicon; for a network None, unless the
        answer is the prior.
      unknown: for a lexicon True at each word that is in no training text; else (). Such a word is
        read by its letters only.
      windows: the number of the window of each word, from 1, if a network reads a long text in
        several windows; else ().
    """

    text: str
    tokens: tuple[str, ...]
    label: Label
    probability: float
    probabilities: Mapping[Label, float]
    kept: tuple[bool, ...]
    density: float
    attention: tuple[float, ...] | None
    gates: tuple[float, ...] | None
    flips: tuple[Change | None, ...] | None
    removed: tuple[Change, ...]
    cut: int = 0
    reasons: Reasons | None = None
    unknown: tuple[bool, ...] = ()
    windows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.windows and len(self.windows) != len(self.tokens):
            raise ValueError(
                f"windows must have one entry per word ({len(self.tokens)}), got "
                f"{len(self.windows)}"
            )
        for name in ("kept", "attention", "gates", "flips", "removed"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.tokens):
                raise ValueError(
                    f"{name} must have an entry for each of the {len(self.tokens)} words, got "
                    f"{len(values)}"
                )

    def to_json(self) -> Json:
        """Returns a dict of the fields for `json.dumps`.

        It has `text`, `label`, `probability`, `probabilities`, `density` and `cut`; the lists
        `tokens`, `kept`, `attention`, `gates`, `flips` and `removed` with an entry for each word,
        of which `attention`, `gates` and `flips` may be None; and, if there are any, `windows`,
        `unknown` and `reasons`. `probabilities` is a list of dicts with "label" and "probability",
        because a class may be a number.
        """
        return {
            "text": self.text,
            "label": self.label,
            "probability": float(self.probability),
            "probabilities": [
                {"label": label, "probability": float(share)}
                for label, share in _rank_classes(self)
            ],
            "tokens": list(self.tokens),
            "kept": [bool(is_open) for is_open in self.kept],
            "density": float(self.density),
            "attention": None if self.attention is None else [float(a) for a in self.attention],
            "gates": None if self.gates is None else [float(g) for g in self.gates],
            "flips": None
            if self.flips is None
            else [None if c is None else _change_json(c) for c in self.flips],
            "removed": [_change_json(c) for c in self.removed],
            "cut": self.cut,
            **({"windows": list(self.windows)} if self.windows else {}),
            **({"unknown": list(self.unknown)} if self.unknown else {}),
            **({} if self.reasons is None else {"reasons": self.reasons.to_json()}),
        }

    def render(self) -> str:
        """Formats the explanation as `print` shows it: a few sentences, and a table of the words.

        Control characters are replaced.
        """
        classes = ", ".join(
            f"{clean(str(k))} {p:.3f}" for k, p in _rank_classes(self)[:_MOST_CLASSES]
        )
        lines = [f"{clean(str(self.label))} {self.probability:.3f} (of {classes})", _reading(self)]
        if self.reasons is not None:
            return "\n".join(
                [*lines, *describe_open_words(self.reasons), "", _render_reasons(self)]
            )
        lines += [clean(sentence) for sentence in (*_describe_leak(self), *_deciding(self))]
        headers, rows = ["window"] * bool(self.windows) + ["word", name_open_words(self)], []
        top = max(self.attention or (0.0,))
        headers += ["gate"] if self.gates is not None else []
        headers += ["attention", ""] if self.attention is not None else []
        headers += ["if flipped"] if self.flips is not None else []
        headers += ["if removed"]
        for i, token in enumerate(self.tokens):
            row: list[str] = [str(number) for number in self.windows[i : i + 1]]
            row += [clean(token) or "(empty)", "yes" if self.kept[i] else "-"]
            if self.gates is not None:
                row.append(f"{self.gates[i]:.2f}")
            if self.attention is not None:
                share = self.attention[i] / top if top > 0 else 0.0
                row += [f"{self.attention[i]:.3f}", "#" * round(_BAR * share)]
            if self.flips is not None:
                flip = self.flips[i]
                row.append("-" if flip is None else _change(self, flip))
            rows.append([*row, _change(self, self.removed[i])])
        return "\n".join([*lines, "", render_table(headers, rows)])

    __str__ = render

    def html(self) -> str:
        """Returns the explanation as an HTML page; `html_page` makes a page about several texts."""
        text = clean(self.text)
        cut = text if len(text) <= _TITLE else text[: _TITLE - 1] + "…"
        return html_page([self], f"{clean(str(self.label))}: {cut}")


def explain_open_words(
    text: str,
    tokens: Sequence[str],
    classes: Sequence[Label],
    probabilities: np.ndarray,
    is_open: np.ndarray,
    best: int,
    removed: Iterable[tuple[int, np.ndarray]],
    reasons: Reasons,
    unknown: tuple[bool, ...] = (),
) -> Explanation:
    """Returns the explanation of a model that reads only the T tokens with an open gate. `removed`
    has for each token the predicted class without it, and the probabilities [C].
    """
    return Explanation(
        text=text,
        tokens=tuple(tokens),
        label=classes[best],
        probability=float(probabilities[best]),
        probabilities=dict(zip(classes, map(float, probabilities), strict=True)),
        kept=tuple(map(bool, is_open)),
        density=float(is_open.sum() / max(len(is_open), 1)),
        attention=None,
        gates=tuple(map(float, is_open)),
        flips=None,
        removed=tuple(
            Change(label=classes[place], probability=float(row[best])) for place, row in removed
        ),
        reasons=reasons,
        unknown=unknown,
    )


def html_page(explanations: Sequence[Explanation], title: str) -> str:
    """Makes an HTML page without scripts, in light and dark style. Open words are underlined, on a
    blue that grows with attention; closed words are struck through. Texts are escaped, and control
    characters, such as marks of the direction of writing, are shown as Python escapes.
    """
    gated = any(e.gates is not None for e in explanations)
    left_out = gated or not all(flag for e in explanations for flag in e.kept)
    shaded = any(e.attention is not None for e in explanations)
    legend = []
    if left_out:
        is_open, is_closed = (
            ("its gate is open", "its gate is closed") if gated else (OPEN, "closed")
        )
        if all(name_open_words(e) == READ for e in explanations):
            is_open = f"read ({is_open})" if gated else "read"
            is_closed = f"not read ({is_closed})" if gated else "not read"
        legend.append(f'<span class="w">Underlined</span>: {is_open}.')
        legend.append(f'<del class="closed">Struck through</del>: {is_closed}.')
    if any(flag for e in explanations for flag in e.unknown):
        legend.append(UNKNOWN_LEGEND)
    if shaded:
        legend.append(
            'Shade: attention, from <span class="w" style="--a:0.1">little</span> to '
            '<span class="w" style="--a:1">the most of the text</span>.'
        )
    if rules := dict.fromkeys(e.reasons.rule for e in explanations if e.reasons is not None):
        legend.append(
            "The tables have the parts of the open words in the score of each class. Their sum is "
            f"the score. {_escape(' '.join(rules))}"
        )
    if not explanations or any(e.reasons is None for e in explanations):
        legend.append(
            "The tables have the probability of the predicted class, and its change, "
            + ("if the gate of a word alone were the other way, and " if gated else "")
            + "if the word were not in the text."
        )
    articles = "\n".join(_article(e, i) for i, e in enumerate(explanations, 1))
    page_title = printable(clean(title))
    body = f"""<main>
<h1>{_escape(page_title)}</h1>
<p class="legend">{" ".join(legend)}</p>
{articles}
</main>"""
    return render_page(page_title, body, _STYLE)


def _article(e: Explanation, number: int) -> str:
    """Returns the part of a page about the explanation `e` as HTML."""
    parts = [
        f'<article aria-labelledby="e{number}">',
        f'<h2 id="e{number}"><bdi>{_escape(str(e.label))}</bdi> '
        f'<span class="share">{_percent(e.probability)}</span></h2>',
    ]
    # The language of the text is unknown, and its letters decide the direction of writing.
    shown = " ".join(_words(e)) or _escape(e.text.strip() or "(empty)")
    parts.append(f'<p class="text" lang="" dir="auto">{shown}</p>')
    if e.reasons is None:
        sentences = [*_describe_leak(e), *_deciding(e)]
    else:
        sentences = [*describe_open_words(e.reasons)]
    parts.append(f"<p>{' '.join(_escape(s) for s in (_reading(e), *sentences))}</p>")
    # The table of a long text is closed at first, so that the next text can be reached by
    # scrolling.
    is_open = " open" if len(e.tokens) <= _MOST_WORDS else ""
    parts += [
        f"<details{is_open}>",
        f"<summary>Word by word ({len(e.tokens)})</summary>",
        f'<div class="scroll" role="region" tabindex="0" aria-label="Words of text {number}">',
        _table(e),
        "</div>",
        "</details>",
        _classes(e),
        "</article>",
    ]
    return "\n".join(parts)


def describe_open_words(reasons: Reasons, noun: str = "probabilities") -> Iterator[str]:
    """Yields a remark about the text, if there is any, and a sentence that compares the output, the
    `noun`, with the output without the closed words.
    """
    if reasons.note:
        yield f"{reasons.note[0].upper()}{reasons.note[1:]}."
    if reasons.leak:
        yield f"{reasons.leak[0].upper()}{reasons.leak[1:]}."
    elif reasons.is_same:
        yield f"The open words alone have the same {noun}, bit by bit."
    else:
        yield (
            f"THE OPEN WORDS ALONE DO NOT HAVE THE SAME {noun.upper()}: this is an error of the "
            "program."
        )


def _effect(e: Explanation, parts: Sequence[float]) -> float:
    assert e.reasons is not None
    # A number that is added to the logits of all classes changes no probability.
    return parts[e.reasons.classes.index(e.label)] - sum(parts) / len(parts)


def _list_reasons(e: Explanation) -> list[tuple[str, tuple[float, ...]]]:
    """Returns pairs (words, parts) of the open words and pairs, the largest effects first."""
    assert e.reasons is not None
    items = [
        (_word(e.tokens[i]) + UNKNOWN * any(e.unknown[i : i + 1]), e.reasons.words[i])
        for i, is_open in enumerate(e.kept)
        if is_open
    ]
    items += [
        (f"{_word(e.tokens[first])} {_word(e.tokens[second])}", parts)
        for first, second, parts in e.reasons.pairs
    ]
    return sorted(items, key=lambda item: -abs(_effect(e, item[1])))


def _reason_rows(e: Explanation) -> tuple[list[str], list[list[str]]]:
    assert e.reasons is not None
    shown = [label for label, _ in _rank_classes(e)[:_MOST_SHARES]]
    places = [e.reasons.classes.index(label) for label in shown]
    items = [*_list_reasons(e), ("(no word)", e.reasons.bias)]
    totals = [sum(parts[place] for _, parts in items) for place in places]
    rows = [[name, *(f"{parts[place]:+.3f}" for place in places)] for name, parts in items]
    return [str(label) for label in shown], [*rows, ["sum", *(f"{total:+.3f}" for total in totals)]]


def _render_reasons(e: Explanation) -> str:
    classes, rows = _reason_rows(e)
    headers = ["open word or pair", *(f"for {clean(label)}" for label in classes)]
    table = render_table(headers, [[clean(cell) for cell in row] for row in rows])
    assert e.reasons is not None
    return f"{table}\n{clean(e.reasons.rule)}\n"


def _words(e: Explanation) -> Iterator[str]:
    """Yields the words of the explained text in HTML, marked as open or closed."""
    top = max(e.attention or (0.0,))
    for i, token in enumerate(e.tokens):
        # A word of a language written from right to left must not turn the order of its neighbours.
        word = f"<bdi>{_escape(_word(token))}</bdi>"
        mark = " unknown" * any(e.unknown[i : i + 1])
        # Open and closed words differ in the tag and not only in the colour, for screen readers and
        # for readers who see no colours.
        if not e.kept[i]:
            yield f'<del class="closed{mark}">{word}</del>'
            continue
        share = e.attention[i] / top if e.attention is not None and top > 0 else 0.0
        tag = "span" if e.gates is None else "strong"
        yield f'<{tag} class="w{mark}" style="--a:{share:.3f}">{word}</{tag}>'


def _table(e: Explanation) -> str:
    """Returns the table of an explanation in HTML: its words, or for a lexicon its reasons."""
    if e.reasons is not None:
        classes, rows = _reason_rows(e)
        columns = "".join(f'<th scope="col">For {_escape(label)}</th>' for label in classes)
        head = f'<thead><tr><th scope="col">Open word or pair</th>{columns}</tr></thead>'
        body = []
        for name, *cells in rows:
            numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
            body.append(f'<tr><th scope="row"><bdi>{_escape(name)}</bdi></th>{numbers}</tr>')
        return "\n".join(["<table>", head, "<tbody>", *body, "</tbody>", "</table>"])
    top = max(e.attention or (0.0,))
    heads = ["Window"] * bool(e.windows) + ["Word", name_open_words(e).capitalize()]
    heads += ["Gate open"] if e.gates is not None else []
    heads += ["Attention"] if e.attention is not None else []
    heads += ["If flipped"] if e.flips is not None else []
    heads += ["If removed"]
    lines = ["<table>", "<thead><tr>"]
    lines += [f'<th scope="col">{head}</th>' for head in heads]
    lines += ["</tr></thead>", "<tbody>"]
    for i, token in enumerate(e.tokens):
        style = "" if e.kept[i] else ' class="closed"'
        cells = [f'<td class="n">{number}</td>' for number in e.windows[i : i + 1]]
        cells += [
            f'<th scope="row" lang=""{style}><bdi>{_escape(_word(token))}</bdi></th>',
            f"<td>{'yes' if e.kept[i] else 'no'}</td>",
        ]
        if e.gates is not None:
            cells.append(f'<td class="n">{e.gates[i]:.2f}</td>')
        if e.attention is not None:
            cells.append(_bar(e.attention[i], e.attention[i] / top if top > 0 else 0.0))
        for change in ([e.flips[i]] if e.flips is not None else []) + [e.removed[i]]:
            other = change is not None and change.label != e.label
            mark = ' class="other n"' if other else ' class="n"'
            cell = "–" if change is None else _change(e, change)
            cells.append(f"<td{mark}>{_escape(cell)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody>", "</table>"])


def _classes(e: Explanation) -> str:
    """Returns the table of the probabilities of at most ten classes of an explanation, in HTML."""
    ranked = _rank_classes(e)
    lines = [
        '<table class="classes">',
        '<thead><tr><th scope="col">Class</th><th scope="col">Probability</th></tr></thead>',
        "<tbody>",
    ]
    lines += [
        f'<tr><th scope="row"><bdi>{_escape(str(label))}</bdi></th>{_bar(share, share)}</tr>'
        for label, share in ranked[:_MOST_CLASSES]
    ]
    lines += ["</tbody>", "</table>"]
    if len(ranked) > _MOST_CLASSES:
        remainder = sum(share for _, share in ranked[_MOST_CLASSES:])
        lines.append(f"<p>{len(ranked) - _MOST_CLASSES} more classes together: {remainder:.3f}</p>")
    return "\n".join(lines)


def _bar(number: float, share: float) -> str:
    width = min(max(share, 0.0), 1.0)
    return (
        f'<td class="n">{number:.3f}'
        f'<span class="bar" style="--a:{width:.3f}" aria-hidden="true"></span></td>'
    )


def name_open_words(e: Explanation) -> str:
    """Returns "read" for the open words if the prediction is the same without the closed words, and
    "open" otherwise.
    """
    if e.reasons is not None:
        return OPEN if e.reasons.leak else READ
    has_leak = any(abs(change) > _LEAST_CHANGE for change in _list_closed_changes(e).values())
    return OPEN if has_leak else READ


def _list_closed_changes(e: Explanation) -> dict[int, float]:
    return {
        i: change.probability - e.probability for i, change in enumerate(e.removed) if not e.kept[i]
    }


def _describe_leak(e: Explanation) -> Iterator[str]:
    if name_open_words(e) == OPEN:
        changes = _list_closed_changes(e)
        i = max(changes, key=lambda i: abs(changes[i]))
        yield (
            f"Removing a closed word changes the probability too, by up to {abs(changes[i]):.3f} "
            f'("{_word(e.tokens[i])}").'
        )


def _reading(e: Explanation) -> str:
    """Returns the sentence about the number of words of an explained text that are open."""
    cut = f" The text goes on for {e.cut:,} words that are not used." if e.cut else ""
    if e.windows:
        cut += (
            f" They are in {e.windows[-1]} windows, which the network reads one by one; the scores "
            "are the mean of those of the windows, weighted by their numbers of words."
        )
    if not e.tokens:
        return "The text has no word."
    if e.gates is None and all(e.kept) and not any(e.unknown):
        return f"{len(e.tokens)} words, all of them read.{cut}"
    count = sum(map(bool, e.kept))
    share = f"{count} of {len(e.tokens)} words are"
    # In SSAN each word selects other words, so that the density is the share of pairs.
    if abs(count / len(e.tokens) - e.density) > 1e-3:
        pairs = f"{e.density:.0%} of all pairs are"
        return f"{share} selected by more than half of the words; {pairs}.{cut}"
    unknown = sum(map(operator.and_, e.kept, e.unknown))
    return f"{share} {name_open_words(e)} ({e.density:.0%}){describe_unknown(unknown)}.{cut}"


def describe_unknown(count: int) -> str:
    """Returns the end of a sentence about `count` words that are read and in no training text."""
    return f", {count} of them unknown: by their letters only" if count else ""


def _deciding(e: Explanation) -> Iterator[str]:
    """Yields sentences about the words with the largest effects on the prediction of `e`."""
    for entries, deed in ((e.flips or (), "Flipping the gate of"), (e.removed, "Removing")):
        # A missing change belongs to a gate that the network does not let close.
        changes = {i: change for i, change in enumerate(entries) if change is not None}
        if len(changes) < len(entries):
            yield "The last open gate cannot be closed: the network opens the likeliest again."
        if not changes:
            continue
        other = [_word(e.tokens[i]) for i, c in changes.items() if c.label != e.label]
        if other:
            more_words = f" and {len(other) - 5} more" if len(other) > 5 else ""
            names = ", ".join(f'"{word}"' for word in other[:5])
            yield f"{deed} one of these changes the prediction: {names}{more_words}."
        else:
            i = max(changes, key=lambda i: abs(changes[i].probability - e.probability))
            yield (
                f"{deed} no single word changes the prediction; "
                f'"{_word(e.tokens[i])}" does most ({_change(e, changes[i])}).'
            )


def _change(e: Explanation, change: Change) -> str:
    # Another class is named, because the probability is still that of the class predicted before.
    moved = f"{change.probability:.3f} ({change.probability - e.probability:+.3f})"
    return moved if change.label == e.label else f"{moved}, {_word(str(change.label))}"


def _change_json(change: Change) -> Json:
    return {"label": change.label, "probability": float(change.probability)}


def _rank_classes(e: Explanation) -> list[tuple[Label, float]]:
    return sorted(e.probabilities.items(), key=lambda item: -item[1])


def _percent(share: float) -> str:
    # A share below 1 is never shown as 100 %, because the prediction is not certain.
    return f"{min(share, 0.999) if share < 1 else 1:.1%}"


def _word(token: str) -> str:
    return printable(token).replace("\n", "\\n").replace("\t", "\\t") or "(empty)"


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
.closed { text-decoration: line-through; }
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
