"""A heat map of the attention of a reader."""

from collections.abc import Sequence
from pathlib import Path

from gatedjax import analysis
from gatedjax.text.models._reader import Place, Reading

MOST_ROWS = 24
"""Largest number of rows in a heat map; the places with the smallest weights are left out."""


def shown_places(places: Sequence[Place]) -> list[Place]:
    """Returns the 24 places with the largest attention, sorted by candidate and position."""
    heaviest = sorted(places, key=lambda place: -place.weight)[:MOST_ROWS]
    return sorted(heaviest, key=lambda place: (place.candidate, place.position))


def draw(reading: Reading, stem: Path, title: str) -> None:
    """Draws the attention of all hops (layers of the reader) at the places of the candidates, in
    the files `stem` with .png and .svg. Raises ValueError if no candidate occurs in the document.
    """
    places = shown_places(reading.places)
    if not places:
        raise ValueError(
            "candidates must occur in the document letter by letter, got "
            f"{', '.join(map(repr, reading.candidates))}, which do not: spell them as the document "
            "does"
        )
    panels = [
        analysis.GridPanel(f"hop {k + 1}", [place.hops[k] for place in places])
        for k in range(len(places[0].hops))
    ]
    left_out = len(reading.places) - len(places)
    note = f" ({left_out} places with less weight not shown)" if left_out else ""
    analysis.plot_attention_grid(
        [f"{reading.candidates[p.candidate]} · {p.position + 1}" for p in places],
        reading.query,
        panels,
        [place.weight for place in places],
        stem,
        title + note,
        groups=[place.candidate for place in places],
        marked=[place.candidate == reading.example["label"] for place in places],
        final_name="last hop",
    )
