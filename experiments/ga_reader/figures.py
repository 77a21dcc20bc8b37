"""Figure 2 and learning curves from the records, and figure 3 from the parameters of a run."""

import dataclasses
import functools
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from experiments.core.curves import panels
from experiments.core.origins import NOT_RUN, other_data
from experiments.core.paper import Job, Table
from experiments.core.records import Records, Store, alive, best, read_json
from experiments.ga_reader import reported
from experiments.ga_reader.config import PRESETS, base_of, feature_of
from experiments.ga_reader.experiment import source_of
from experiments.ga_reader.statistics import accuracy_text, one_sided_texts
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax._utils.terminal import say
from gatedjax.text.models._folders import VOCABULARY
from gatedjax.text.models._reader import Reader, Reading, draw

SHOWN = 5
"""The number of questions in figure 3, as in the paper."""
LOOKED_AT = 200
"""The number of validation questions, from the first, that figure 3 chooses from."""
MOST_WORDS = 24
"""The largest number of words of a query in figure 3."""


def with_share(variant: str, share: int) -> str:
    """Returns the name of a reader that is trained on a share of the questions, in percent."""
    return variant if share == 100 else f"{variant}_{share}"


def by_share(store: Store, data: str) -> dict[tuple[bool, int], tuple[Records, Records]]:
    """Returns the records of the readers of figure 2, with gating and without. The keys are (True
    with the feature, share of the questions in percent)."""
    names = {False: (base_of(data), "no_gating"), True: (feature_of(data), "feature_no_gating")}

    def pair(feature: bool, share: int) -> tuple[Records, Records]:
        gated, bare = (store.all(data, with_share(name, share)) for name in names[feature])
        return gated, bare

    return {
        (feature, share): pair(feature, share) for feature in names for share in reported.FRACTIONS
    }


def shares(store: Store, table: Table, data: str) -> Table:
    """Returns figure 2 as a table on a data set."""
    return dataclasses.replace(table, body=functools.partial(_shares, data))


def _shares(data: str, store: Store) -> str:
    """Renders the accuracy with and without gating for each training share, as Markdown."""
    headings = ["feature", "training share (%)", "training questions", "no gating: test (%)"]
    test = "McNemar p, one-sided, each seed (only gating right : only none)"
    headings += ["gating: test (%)", test, "p in the paper"]
    pairs, rows = by_share(store, data), []
    p_values = one_sided_texts(pairs)
    for (feature, share), (gated, bare) in pairs.items():
        sizes = sorted({record["train_n"] for record in (*gated, *bare)})
        row = ["yes" if feature else "no", str(share)]
        row.append(", ".join(f"{size:,}" for size in sizes) or "-")
        row += [accuracy_text(bare), accuracy_text(gated), p_values[feature, share]]
        rows.append([*row, reported.FIGURE2_P.get((data, feature), {}).get(share, "-")])
    return analysis.render_table(headings, rows)


def bars(job: Job) -> None:
    """Draws test accuracy with and without gating against the share of the training questions."""
    for data in job.data:
        series: dict[str, dict[str, list[tuple[float, float, float | None]]]] = {}
        for (feature, share), both in by_share(job.store, data).items():
            panel = f"test accuracy, {'with' if feature else 'without'} the feature"
            lines = series.setdefault(panel, {"gating": [], "no gating": []})
            for points, records in zip(lines.values(), both, strict=True):
                if living := alive(records):
                    mean, std, _ = analysis.summary([r["test"]["accuracy"] for r in living])
                    points.append((float(share), mean, std))
        stem = job.options.results / f"figure2_{data}"
        title = f"Readers with fewer training questions ({reported.NAMES[data]})"
        analysis.plot_lines(series, stem, xlabel="training questions (%)", title=title)
        say(f"wrote {stem}.png and .svg")


def curves(job: Job) -> None:
    """Draws the accuracy on validation and training questions during training."""
    for data in job.data:
        # Readers on shares of the questions are left out because figure 2 shows them.
        variants, learned = job.paper.variants, job.store.learned_records(data)
        runs = {variants[name].title: learned[name] for name in learned if name in variants}
        lines = panels(runs, "curve", {"validation accuracy": 2})
        lines |= panels(runs, "train_curve", {"training accuracy": 2})
        stem = job.options.results / f"curves_{data}"
        records = list(chain.from_iterable(runs.values()))
        steps = max((record["steps"] for record in records), default=0)
        title = f"Readers learn {reported.NAMES[data]} in {steps:,} steps"
        if other_data(records):
            title += ", other data than the paper's"
        analysis.plot_lines(lines, stem, xlabel="step", title=title)
        say(f"wrote {stem}.png and .svg")


def figure_links(store: Store) -> str:
    """Returns links to the figures that exist, as Markdown."""
    lines = []
    for data, name in reported.NAMES.items():
        maps = sorted(path.stem for path in store.folder.glob(f"figure3_{data}_[0-9]*.png"))
        bars_of = [path.stem for path in store.folder.glob(f"figure2_{data}.png")]
        trained = [path.stem for path in store.folder.glob(f"curves_{data}.png")]
        lines += [f"- {name}: [{stem}.png]({stem}.png)" for stem in (*bars_of, *maps, *trained)]
        if data == "wdw" and not maps:
            lines.append(f"- {name}, figure 3: {NOT_RUN}")
        if data in reported.FIGURE2 and not bars_of:
            lines.append(f"- {name}, figure 2: {NOT_RUN}")
    return "\n".join(lines)


def workdir_of(job: Job, data: str) -> Path | None:
    """Returns the work folder of the run for figure 3, or None. It is the run with the best
    validation result among the runs with a work folder, of the reader with and without the feature,
    because only the gating hops of these readers attend to words."""
    candidates = []
    for variant in (base_of(data), feature_of(data)):
        for record in job.store.all(data, variant):
            folder = job.workdir(data, variant, record["seed"])
            # A record may come from another machine, whose work folders are not here.
            if (folder / VOCABULARY).is_file():
                candidates.append(record | {"folder": folder})
    best_run = best(candidates)
    return None if best_run is None else best_run["folder"]


def chosen_readings(readings: Sequence[Reading]) -> list[Reading]:
    """Chooses the questions to show: right answers to short queries that counting would miss.

    A query is short if it has at most 24 words with the markers. Counting would miss the answer if
    another candidate occurs more often in the document. If too few questions are like that, easier
    questions follow, and longer queries if none is short. There are at most five.
    """
    right = [r for r in readings if r.best == r.example["label"]]
    short = [r for r in right if len(r.query) <= MOST_WORDS] or right

    def easy(reading: Reading) -> bool:
        counts = [0] * len(reading.candidates)
        for place in reading.places:
            counts[place.candidate] += 1
        return max(counts) == counts[reading.best]

    # False comes before True, so that the questions that counting would miss come first.
    return sorted(short, key=easy)[:SHOWN]


def heat_maps(job: Job) -> None:
    """Draws validation questions of the best run with a work folder, for each data set. Raises
    ValueError if there is no such run, or it answers no question."""
    for data in job.data:
        workdir = workdir_of(job, data)
        if workdir is None:
            raise ValueError(
                f"{job.options.runs} must have the work folder of a run of {data} with a record, "
                "got none"
            )
        source = source_of(PRESETS[data].data.name, "validation", job.options)
        # The first questions suffice, because the figure shows few of them.
        first = gdata.Source(source[:LOOKED_AT], source.info)
        readings = chosen_readings(Reader.open(workdir).answer_questions(first))
        if not readings:
            raise ValueError(
                f"{workdir} must answer at least 1 of {len(first)} questions, got none"
            )
        seed = read_json(workdir / "config.json", "config")["config"]["train"]["seed"]
        for number, reading in enumerate(readings, 1):
            stem = job.options.results / f"figure3_{data}_{number}"
            answer = reading.candidates[reading.best]
            share = reading.probabilities[reading.best]
            title = (
                f"The last hop points at {answer} ({share:.2f}, right; "
                f"{reported.NAMES[data]}, seed {seed})"
            )
            draw(reading, stem, title)
            say(f"wrote {stem}.png and .svg")
