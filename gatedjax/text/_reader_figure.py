"""What a reader looked at, as a heat map."""

from collections.abc import Sequence
from pathlib import Path

from gatedjax import analysis
from gatedjax.text._reader import Place, Reading

MOST_ROWS = 24
"""Of a heat map; places beyond are left out, the least weighty first."""


def shown_places(places: Sequence[Place]) -> list[Place]:
    """At most 24 places, those with the largest weights, in their order."""
    heaviest = sorted(places, key=lambda place: -place.weight)[:MOST_ROWS]
    return sorted(heaviest, key=lambda place: (place.candidate, place.position))


def draw(reading: Reading, stem: Path, title: str) -> None:
    """Draws one question: attention of every hop, and the last one, at the candidates' places."""
    places = shown_places(reading.places)
    if not places:
        raise ValueError("no candidate occurs in the document: there is nothing to draw")
    panels = [
        analysis.GridPanel(f"hop {k + 1}", [place.hops[k] for place in places])
        for k in range(len(places[0].hops))
    ]
    left_out = len(reading.places) - len(places)
    rest = f" ({left_out} places with less weight not shown)" if left_out else ""
    analysis.plot_attention_grid(
        [f"{reading.candidates[p.candidate]} · {p.position + 1}" for p in places],
        reading.query,
        panels,
        [place.weight for place in places],
        stem,
        title + rest,
        groups=[place.candidate for place in places],
        marked=[place.candidate == reading.example["label"] for place in places],
        final_name="last hop",
    )
