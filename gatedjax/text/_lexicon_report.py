"""The report of a lexicon: sentences for the terminal, and a picture of the curve.

`checked` is "test" or "validation", the part of the report with the scores. `curve` has a dict for
each stage, the lexicon of a density: "density", "words" (the share of open words in the validation
texts) and the metrics.
"""

from collections.abc import Mapping, Sequence
from itertools import compress, pairwise

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import Lexicon
from gatedjax.text._tokens import Splitter

_POINTS = (1.0, 0.7, 0.5, 0.3, 0.1)
"""The densities of the curve that are printed; `report.json` and the picture have all stages."""
# Texts that are read at a time; this bounds the memory for their features.
_CHUNK = 2048
Point = tuple[float, float]
"""The x and the y of a point of a picture, in its units."""
_LABEL_WIDTH, _LABEL_HEIGHT, _RING = 31.0, 12.0, 7.0
# The places of a label relative to its point, from the preferred place to the last.
_OFFSETS = np.array(
    [
        *((x, -14.0) for x in (0, 10, -10, 20, -20)),
        *((x, 14.0) for x in (0, 10, -10, 20, -20)),
        *((24.0, 0.0), (-24.0, 0.0)),
        *((x, y) for y in (-24.0, 24.0, -34.0, 34.0) for x in (0.0, 16.0, -16.0)),
    ]
)
# The corners of the picture between the axes and its edges.
_INSIDE = np.array([[62.0, 24.0], [418.0, 198.0]])


def count_equal(lexicon: Lexicon, splitter: Splitter, texts: Sequence[Sequence[str]]) -> int:
    """Counts the texts with bitwise the same prediction if their open words are read as a text."""
    equal = 0
    for begin in range(0, len(texts), _CHUNK):
        part = texts[begin : begin + _CHUNK]
        readings = lexicon.read(part)
        remaining = [compress(w, g) for w, g in zip(part, readings.is_open, strict=True)]
        again = lexicon.read([splitter.split_again(words) for words in remaining])
        # A real target has no probabilities, and its logit is the prediction.
        is_equal = (readings.probabilities == again.probabilities).all(1)
        equal += int(np.sum(is_equal & (readings.logits == again.logits).all(1)))
    return equal


def render_equal(same_answer: Json) -> str:
    """Returns the sentence about the number of texts that `count_equal` counted."""
    texts, equal = same_answer["texts"], same_answer["equal"]
    question = "the same answer from the open words alone"
    if equal == texts:
        return f"{question}: yes, bit by bit ({texts:,} texts)"
    return f"{question}: NO, for {texts - equal:,} of {texts:,} texts"


def render_priors(scores: Json) -> str:
    """Returns the sentence about the texts of which no known word is read.

    `scores` is the dict of a report: "n", the number of texts, and "by_prior", that of these texts.
    """
    return (
        "answered by the frequencies of the training texts, because no known word is read: "
        f"{scores['by_prior']:,} of {scores['n']:,} texts"
    )


def render_accuracies(report: Json, checked: str) -> str:
    """Returns the accuracy of a lexicon and of the models that it is compared with, in lines."""
    ours = report[checked]
    characters = report["character_baseline"].get(checked)
    others = {
        "the same model with all words": ours["all_words"],
        "logistic regression on words": report["baseline"][checked],
        "logistic regression on characters": characters,
    }
    best = max(value for value in others.values() if value is not None)
    rows = [
        f"{checked}: accuracy {ours['accuracy']:.4f} from {ours['density']:.0%} of the words "
        f"(macro F1 {ours['macro_f1']:.4f})"
    ]
    for name, value in others.items():
        mark = ""
        if value is not None and value == best > ours["accuracy"]:
            mark = " (better)"
        shown = "not measured, the texts are too long" if value is None else f"{value:.4f}{mark}"
        rows.append(f"  {name}: {shown}")
    return "\n".join(rows)


def render_scores(report: Json, checked: str, metrics: Mapping[str, str]) -> str:
    """Returns the metrics of a lexicon and of the models that it is compared with, in lines."""
    ours = report[checked]
    compared = {"the same model with all words": ours["all_words"]}
    compared |= {name: scores[checked] for name, scores in report["baseline"].items()}
    lines = [
        f"{checked}: {render_metric_list(ours, metrics)} from {ours['density']:.0%} of the words"
    ]
    lines += [
        f"  {name}: {render_metric_list(scores, metrics)}" for name, scores in compared.items()
    ]
    return "\n".join(lines)


def render_metric_list(scores: Json, metrics: Mapping[str, str]) -> str:
    """Returns metrics with their titles, separated by commas; "-" stands for None."""
    return ", ".join(f"{title} {render_number(scores[name])}" for name, title in metrics.items())


def render_number(value: float | None) -> str:
    """Returns a metric with four decimals, or five digits if it is larger than 10."""
    if value is None:
        return "-"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.5g}"


def render_calibration(report: Json, checked: str) -> str:
    """Returns the sentence about the temperature and the error of the calibration."""
    scores = report[checked]
    if report["temperature"] == 1:
        return (
            f"probabilities: no temperature, because {report['fitted_temperature']:.2f} improves "
            "the likelihood of the validation texts by less than the standard error; "
            f"{checked} calibration error {scores['ece']:.4f}"
        )
    fitted = " (fitted on these texts)" if checked == "validation" else ""
    return (
        f"probabilities: temperature {report['temperature']:.2f} from the validation texts; "
        f"{checked} calibration error {scores['ece']:.4f}{fitted}, without the temperature "
        f"{scores['uncalibrated_ece']:.4f}"
    )


def render_curve(curve: Sequence[Json], chosen: int, metric: str = "accuracy") -> list[str]:
    """Returns a line for five densities of the curve, and for the chosen stage."""
    lines = []
    for number, stage in enumerate(curve):
        if number == chosen or stage["density"] in _POINTS:
            mark = "  <- chosen" if number == chosen else ""
            lines.append(
                f"  {stage['words']:4.0%} of the words: {render_number(stage[metric])}{mark}"
            )
    return lines


def draw_curve(
    curve: Sequence[Json], chosen: int, metric: str = "accuracy", name: str = "accuracy"
) -> str:
    """Draws a metric at each share of open words, and returns the SVG image."""
    low = min(stage[metric] for stage in curve)
    highest = max(stage[metric] for stage in curve)
    # The lowest and the highest point have room for a label below or above them.
    margin = max((highest - low) / 6, 0.005 * max(highest, 1.0))
    low, high = max(0.0, low - margin), highest + margin
    high = min(1.0, high) if highest <= 1 else high

    # On few validation texts all stages may have the same accuracy, so the range may be 0.
    def place(stage: Json) -> Point:
        height = (stage[metric] - low) / max(high - low, 1e-9)
        return 60 + 320 * stage["words"], 200 - 170 * height

    points = [place(stage) for stage in curve]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#2563eb"/>' for x, y in points)
    labels = "".join(
        f'<text x="{x:.1f}" y="{y + 3.5:.1f}" text-anchor="middle">{_shorten(stage[metric])}</text>'
        for (x, y), stage in zip(_place_labels(points), curve, strict=True)
    )
    ticks = "".join(
        f'<text x="{60 + 320 * share:.0f}" y="222" text-anchor="middle">{share:.0%}</text>'
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    x, y = points[chosen]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 420 250" role="img" '
        'font-family="sans-serif" font-size="10" fill="#555">'
        f"<title>{name[0].upper()}{name[1:]} on the validation texts by the share of open words"
        "</title>"
        '<rect width="420" height="250" fill="#fff"/>'
        '<path d="M60 30V200H380" fill="none" stroke="#999"/>'
        f'<polyline points="{line}" fill="none" stroke="#2563eb" stroke-width="2"/>{dots}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="#2563eb"/>{labels}{ticks}'
        '<text x="220" y="242" text-anchor="middle">open words (the ring is the model)</text>'
        '<text x="60" y="20" text-anchor="middle">'
        f"{name}</text></svg>"
    )


def _shorten(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.4g}"


def _place_labels(points: Sequence[Point]) -> list[Point]:
    """Returns, next to each point, the centre of the label that covers the least of the curve."""
    # Samples of the line and of the circles stand for what a label may cover.
    steps = np.linspace(0, 1, 81)[:, None]
    ends = np.asarray([*points, points[-1]])
    line = np.concatenate([a + steps * (b - a) for a, b in pairwise(ends)])
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)[:, None]
    ring = _RING * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    circles = (ends[:, None] + ring).reshape(-1, 2)
    drawn = np.concatenate([line, circles])
    half = np.array([_LABEL_WIDTH, _LABEL_HEIGHT]) / 2
    labels: list[np.ndarray] = []
    for point in points:
        places = np.asarray(point) + _OFFSETS
        costs = (np.abs(drawn - places[:, None]) < half).all(2).sum(1).astype(float)
        for label in labels:
            costs += 1000 * (np.abs(places - label) < 2 * half).all(1)
        costs += 1000 * ((places - half < _INSIDE[0]) | (places + half > _INSIDE[1])).any(1)
        labels.append(places[int(np.argmin(costs))])
    return [(float(x), float(y)) for x, y in labels]
