"""Figure 2 from the records, figure 3 from the parameters of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.core.records import alive, read_json
from experiments.ga_reader import paper
from experiments.ga_reader.config import PRESETS
from experiments.ga_reader.data import SOURCES
from experiments.ga_reader.reading import Place, Reader, Reading
from experiments.ga_reader.results import Store, best
from experiments.ga_reader.variants import base_of, feature_of, with_fraction
from gatedjax import analysis
from gatedjax._terminal import say

if TYPE_CHECKING:
    from experiments.ga_reader.tables import TablesConfig

SHOWN = 5
"""Questions in figure 3, as in the paper."""
LOOKED_AT = 200
"""Validation questions, from the first, that figure 3 chooses from."""
MOST_ROWS, MOST_WORDS = 24, 24
"""Of a heat map; places beyond are left out, the least weighty first."""


def bars(options: TablesConfig, names: Sequence[str]) -> None:
    """Draws test accuracy with and without gating against the share of the training questions."""
    store = Store(options.results)
    for data in names:
        series: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
        for feature in (False, True):
            own = feature_of(data) if feature else base_of(data)
            plain = "feature_no_gating" if feature else "no_gating"
            title = f"test accuracy, {'with' if feature else 'without'} the feature"
            series[title] = {}
            for label, variant in (("gating", own), ("no gating", plain)):
                points = []
                for share in paper.FRACTIONS:
                    records = alive(store.all(data, with_fraction(variant, share)))
                    if records:
                        found = analysis.summary([r["test"]["accuracy"] for r in records])
                        points.append((float(share), found.mean, found.std or 0.0))
                series[title][label] = points
        stem = options.results / f"figure2_{data}"
        xlabel = "training questions (%)"
        analysis.plot_lines(series, stem, xlabel=xlabel, title=f"GA Reader on {paper.NAMES[data]}")
        say(f"wrote {stem}.png and .svg", flush=True)


def workdir_of(options: TablesConfig, store: Store, data: str) -> Path | None:
    """The work folder of the run that figure 3 shows: the best in validation that is still here.

    Only readers whose gating hops attend to words are asked for: GA with and without the feature.
    """
    found: list[dict[str, Any]] = []
    places: dict[int, Path] = {}
    for variant in (base_of(data), feature_of(data)):
        for record in store.all(data, variant):
            place = options.runs / f"{data}-{variant}-seed{record['seed']}"
            if (place / "vocabulary.json").is_file():
                places[id(record)] = place
                found.append(record)
    chosen = best(found)
    return None if chosen is None else places[id(chosen)]


def chosen_readings(readings: Sequence[Reading]) -> list[Reading]:
    """The questions to show: answered rightly, few words, and not by counting.

    A question qualifies if the reader is right, its query has at most 24 words with the markers,
    and another candidate occurs more often in the document than the answer (where there is such a
    question; else any that is right). Of these the first are taken.
    """
    right = [r for r in readings if r.predicted == r.example["label"]]
    short = [r for r in right if len(r.query) <= MOST_WORDS] or right

    def harder(reading: Reading) -> bool:
        counts = [0] * len(reading.candidates)
        for place in reading.places:
            counts[place.candidate] += 1
        return max(counts) > counts[reading.predicted]

    hard = [r for r in short if harder(r)]
    return (hard + [r for r in short if not harder(r)])[:SHOWN]


def shown_places(places: Sequence[Place]) -> list[Place]:
    """At most 24 places, those with the largest weights, in their order."""
    kept = sorted(places, key=lambda place: -place.weight)[:MOST_ROWS]
    return sorted(kept, key=lambda place: (place.candidate, place.position))


def draw(reading: Reading, stem: Path, title: str) -> None:
    """Draws one question: attention of every hop, and the last one, at the candidates' places."""
    places = shown_places(reading.places)
    if not places:
        raise ValueError("no candidate occurs in the document: there is nothing to draw")
    hops = len(places[0].hops)
    panels = [
        analysis.GridPanel(f"hop {k + 1}", [place.hops[k] for place in places]) for k in range(hops)
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


def heat_maps(options: TablesConfig, data: str) -> list[Path]:
    """Draws some validation questions of the best run; returns the PNGs.

    Raises:
      ValueError: if there is no run whose work folder is still here, or it is right nowhere.
    """
    from gatedjax import data as gdata

    store = Store(options.results)
    workdir = workdir_of(options, store, data)
    if workdir is None:
        raise ValueError(f"no run of {data} in {options.runs} has a record and a work folder")
    reader = Reader.load(workdir)
    loaded = PRESETS[data].data.name
    paths: dict[str, Any] = {}
    if loaded != "two_facts":
        paths = {"data_dir": options.data_dir, "manual_dir": options.manual_dir}
    source = gdata.load(SOURCES.get(loaded, loaded), "validation", **paths)
    first = gdata.Source(source[:LOOKED_AT], source.info)
    readings = chosen_readings(reader.read(first))
    if not readings:
        raise ValueError(f"the run in {workdir} answers none of {len(first)} questions")
    seed = read_json(workdir / "config.json", "config")["config"]["train"]["seed"]
    drawn = []
    for number, reading in enumerate(readings, 1):
        stem = options.results / f"figure3_{data}_{number}"
        answer = reading.candidates[reading.predicted]
        share = reading.probabilities[reading.predicted]
        title = f"{paper.NAMES[data]}, seed {seed}: {answer} ({share:.2f}), right"
        draw(reading, stem, title)
        say(f"wrote {stem}.png and .svg", flush=True)
        drawn.append(stem.with_name(f"{stem.name}.png"))
    return drawn
