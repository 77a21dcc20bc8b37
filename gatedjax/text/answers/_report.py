"""The report of a lexicon: sentences for the terminal, and a picture of the curve.

`checked` is "test" or "validation", the part of the report with the scores. `curve` has a dict for
each share: "asked", the share of words that was asked for, "share" (that of the texts that were not
fitted) and the metrics.
"""

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from gatedjax._utils.terminal import measure_width
from gatedjax._utils.types import Json
from gatedjax.analysis._text import render_table
from gatedjax.lexicon import Lexicon
from gatedjax.text.answers._prediction import LINEAR
from gatedjax.text.corpus._tokens import Splitter

WORDS, CHARACTERS = "baseline", "character_baseline"
FILTER, CONSTANT = "chi2_baseline", "constant_baseline"
"""The names of the simple models in the report of a classifier."""
READS_ALL = "all words are read: a linear model leaves no word of a text out"
"""The sentence about the words that a linear model reads."""
# Texts that are read at a time; this bounds the memory for their features.
_CHUNK = 2048
# A confusion matrix of more classes is too wide for a terminal, so its largest cells are listed.
_WIDEST, _MOST_CONFUSIONS = 10, 10
_SCORES = "precision", "recall", "F1"
_CALIBRATION = "confidence", "accuracy"
# Width of a label, in units of the picture.
_LABEL_WIDTH = 31.0


def count_equal(lexicon: Lexicon, splitter: Splitter, texts: Sequence[Sequence[str]]) -> int:
    """Counts the texts with the same prediction, bit for bit, without their unread words."""
    equal = 0
    for begin in range(0, len(texts), _CHUNK):
        part = texts[begin : begin + _CHUNK]
        readings = lexicon.read(part)
        remaining = [compress(w, g) for w, g in zip(part, readings.is_read, strict=True)]
        again = lexicon.read([splitter.split_again(words) for words in remaining])
        # A real target has no probabilities, and its logit is the prediction.
        is_equal = (readings.probabilities == again.probabilities).all(1)
        equal += int(np.sum(is_equal & (readings.logits == again.logits).all(1)))
    return equal


def render_equal(same_answer: Json, noun: str = "probabilities") -> str:
    """Returns the sentence about the number of texts that `count_equal` counted."""
    texts, equal = same_answer["texts"], same_answer["equal"]
    if equal == texts:
        effect = f"left all {noun} unchanged, bit for bit ({texts:,} of {texts:,} texts)"
    else:
        effect = f"CHANGED the {noun} of {texts - equal:,} of {texts:,} texts"
    return f"Dropping every unread word {effect}."


def render_priors(scores: Json) -> str:
    """Returns the sentence about the texts of which no known word is read."""
    return (
        "answered by the prior of the training texts, because no known word is read: "
        f"{scores['by_prior']:,} of {scores['n']:,} texts"
    )


def name_rivals(target: Any) -> dict[str, str]:
    """Returns the titles of the simple models that a model is compared with, by their names."""
    kind = target.rival.partition(" on ")[0]
    return {
        WORDS: target.rival,
        CHARACTERS: f"{kind} on characters",
        FILTER: f"{kind} on the words of a chi-squared filter",
        CONSTANT: target.constant,
    }


def render_better(report: Json, checked: str, target: Any, network: str) -> list[str]:
    """Returns sentences about the simple models that are better by more than chance."""
    better = report["better"]
    order = sorted(better, key=lambda name: better[name]["theirs"], reverse=not target.is_error)
    lines = []
    for name in order:
        low, high = map(render_number, better[name]["interval"])
        theirs, ours = (render_number(better[name][key]) for key in ("theirs", "ours"))
        lines.append(
            f"{name} is better than this model: {target.paired} {theirs} against {ours} on the "
            f"{checked} texts (95 % interval of the difference {low} to {high})"
        )
    if network != LINEAR and set(order) - {target.constant}:
        task = "" if target.kind == "text" else f" --task {target.kind}"
        lines.append(
            f"`gatedjax train DATA --out FOLDER{task} --model linear` trains such a model of words "
            "and letters, which reads all words"
        )
    return lines


def render_accuracies(
    report: Json, checked: str, target: Any, source: str = "from {:.0%} of the words"
) -> str:
    """Returns the accuracies of a model and its rivals; `source` has a place for the share."""
    ours, noun = report[checked], source.split()[-1]
    rivals = {f"the same model with all {noun}": ours.get("all_words")}
    titles = name_rivals(target)
    rivals |= {titles[name]: report.get(name, {}).get(checked) for name in titles}
    best = max(value for value in rivals.values() if value is not None)
    rows = [
        f"{checked}: accuracy {ours['accuracy']:.4f} {source.format(ours['share'])} "
        f"(macro F1 {ours['macro_f1']:.4f})"
    ]
    for name, value in rivals.items():
        if value is not None:
            share = report[FILTER]["share"] if name == titles[FILTER] else None
            words = "" if share is None else f" from {share:.0%} of the words"
            mark = " (better)" * (value == best > ours["accuracy"])
            rows.append(f"  {name}: {value:.4f}{words}{mark}")
        elif name == titles[CHARACTERS]:
            rows.append(f"  {name}: not measured, the texts are too long")
    return "\n".join(rows)


def render_scores(report: Json, checked: str, metrics: Mapping[str, str]) -> str:
    """Formats the metrics of a lexicon and of the compared models, a line for each."""
    ours = report[checked]
    compared = {name: scores[checked] for name, scores in report["baseline"].items()}
    if "all_words" in ours:
        compared = {"the same model with all words": ours["all_words"], **compared}
    rows = [f"{checked}: {render_metric_list(ours, metrics)} from {ours['share']:.0%} of the words"]
    for name, scores in compared.items():
        words = f" from {scores['share']:.0%} of the words" if "share" in scores else ""
        rows.append(f"  {name}: {render_metric_list(scores, metrics)}{words}")
    return "\n".join(rows)


def render_metric_list(scores: Json, metrics: Mapping[str, str]) -> str:
    """Returns metrics with their titles, separated by commas; "-" stands for None."""
    return ", ".join(f"{title} {render_number(scores[name])}" for name, title in metrics.items())


def render_number(value: float | None) -> str:
    """Returns a metric with four decimals, or five digits if it is larger than 10."""
    if value is None:
        return "-"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.5g}"


def render_calibration(report: Json, checked: str, noun: str = "words") -> str:
    """Returns the sentence about the temperatures and the error of the calibration."""
    scores = report[checked]
    temperatures = ", ".join(f"{t:.2f}" for t in report["temperatures"])
    return (
        f"probabilities: temperatures {temperatures} for 1, 2, 3 to 5, and more {noun} read; "
        f"{checked} calibration error {scores['ece']:.4f}, without them "
        f"{scores['uncalibrated_ece']:.4f}"
    )


def render_few_words(few: Json, noun: str = "words") -> str:
    """Returns the sentence about the texts of which at most one word is read."""
    if not few["n"]:
        return f"texts with at most one of their {noun} read: none"
    return (
        f"texts with at most one of their {noun} read: {few['n']:,}, accuracy "
        f"{few['accuracy']:.3f}, mean probability {few['confidence']:.3f}"
    )


def render_curve(curve: Sequence[Json], chosen: int, metric: str) -> list[str]:
    """Returns a line for each share of the curve."""
    return [
        f"  {stage['share']:4.0%} of the words: {render_number(stage[metric])}"
        + f", {stage['by_prior']:,} by the prior" * (stage["by_prior"] > curve[0]["by_prior"])
        + "  <- chosen" * (number == chosen)
        for number, stage in enumerate(curve)
    ]


def draw_curve(curve: Sequence[Json], chosen: int, metric: str, name: str) -> str:
    """Draws a metric at each share of words read, and returns the SVG image."""
    values = np.array([stage[metric] for stage in curve], float)
    # The lowest and the highest point have room for a label below or above them.
    margin = max(np.ptp(values) / 6, 0.005 * max(values.max(), 1.0))
    low, high = max(0.0, values.min() - margin), values.max() + margin
    high = min(1.0, high) if values.max() <= 1 else high
    xs = 60 + 320 * np.array([stage["share"] for stage in curve])
    ys = 200 - 170 * (values - low) / (high - low)
    points = [(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#2563eb"/>' for x, y in points)
    shown = [f"{value:.3f}" if value < 10 else f"{value:.4g}" for value in values]
    texts = [
        (float(xs[i]), _place_label(ys, i), shown[i])
        for i in range(len(curve))
        if i == chosen or abs(xs[i] - xs[chosen]) > _LABEL_WIDTH
    ]
    texts += [(60 + 320 * share, 222, f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    texts += [(220, 242, "words read (the ring is the model)"), (60, 20, name)]
    labels = "".join(
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{text}</text>' for x, y, text in texts
    )
    x, y = points[chosen]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 420 250" role="img" '
        'font-family="sans-serif" font-size="10" fill="#555">'
        f"<title>{name[0].upper()}{name[1:]} by the share of words read</title>"
        '<rect width="420" height="250" fill="#fff"/>'
        '<path d="M60 30V200H380" fill="none" stroke="#999"/>'
        f'<polyline points="{line}" fill="none" stroke="#2563eb" stroke-width="2"/>{dots}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="#2563eb"/>{labels}</svg>'
    )


def _place_label(ys: np.ndarray, place: int) -> float:
    """Returns the y of a label: below its point if the curve rises to its neighbours."""
    neighbours = ys[max(place - 1, 0) : place + 2]
    return float(ys[place]) + (18.0 if neighbours.mean() < ys[place] - 1e-6 else -10.0)


def render_details(metrics: Json, unit: str = "texts") -> str | None:
    """Returns the details of `Target.measure` as tables, or None for a number, which has none."""
    if "per_class" in metrics:
        return _render_classes(metrics, unit)
    if "grades" in metrics:
        return _render_confusion(list(map(str, metrics["grades"])), metrics["confusion"], unit)
    return _render_labels(metrics) if "labels" in metrics else None


def render_summary(metrics: Json, unit: str = "texts") -> str:
    """Returns the metrics of classes in a line."""
    return (
        f"{metrics['n']:,} {unit}: accuracy {metrics['accuracy']:.4f}, macro F1 "
        f"{metrics['macro_f1']:.4f}, log loss {metrics['nll']:.4f}, Brier {metrics['brier']:.4f}, "
        f"calibration error {metrics['ece']:.4f}"
    )


def _render_classes(metrics: Json, unit: str) -> str:
    names = [str(entry["label"]) for entry in metrics["per_class"]]
    calibration = [
        (f"{b['from']:.2f} to {b['to']:.2f}", b["n"], *(f"{b[key]:.3f}" for key in _CALIBRATION))
        for b in metrics["bins"]
        if b["n"]
    ]
    parts = [
        _render_scores(("class", *_SCORES, unit), metrics["per_class"]),
        _render_confusion(names, metrics["confusion"], unit),
        render_table(("confidence", unit, "mean", "accuracy"), calibration),
    ]
    return "\n".join(parts)


def _render_labels(metrics: Json) -> str:
    without = metrics["without_label"]
    lines = [
        _render_scores(("label", *_SCORES, "texts", "predicted"), metrics["labels"]),
        f"texts without a label: {without['n']:,}; without a predicted label: "
        f"{without['predicted']:,}",
    ]
    if metrics["unknown"]:
        lines.append(render_unknown(metrics["unknown"]))
    return "\n".join(lines)


def _render_scores(headers: Sequence[str], entries: Sequence[Json]) -> str:
    """Formats the scores of the classes or labels: their names, shares and counts."""
    rows = []
    for entry in entries:
        label, *values = entry.values()
        rows.append([str(label), *(f"{v:.3f}" if isinstance(v, float) else v for v in values)])
    return render_table(headers, rows, width=measure_width())


def _render_confusion(names: Sequence[str], confusion: Sequence[Sequence[int]], unit: str) -> str:
    """Formats the confusion matrix, or for many classes the most frequent confusions."""
    if len(names) <= _WIDEST:
        matrix = [(name, *row) for name, row in zip(names, confusion, strict=True)]
        return render_table(("true / predicted", *names), matrix, width=measure_width())
    wrong = np.array(confusion)
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CONFUSIONS].tolist()
    cells = [divmod(place, len(names)) for place in order if wrong.flat[place]]
    rows = [(names[i], names[j], confusion[i][j]) for i, j in cells]
    return render_table(("true", "predicted", unit), rows, width=measure_width())


def render_unknown(unknown: Sequence[Json]) -> str:
    """Returns the sentence about labels that the model does not have."""
    listing = ", ".join(f"{entry['label']!r} {entry['n']:,}" for entry in unknown[:5])
    remainder = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    total = sum(entry["n"] for entry in unknown)
    return (
        f"labels that the model does not have, which count as missed: {total:,} in the texts "
        f"({listing}{remainder}); the macro F1 is the mean without them"
    )
