"""Faithfulness of trained networks: the effect of deleted words, and leaks of closed gates."""

import dataclasses
import itertools
from typing import Any

import numpy as np

from experiments.core.command import run_of
from experiments.core.comparison import SEEDS, interval_text, p_text, these_runs
from experiments.core.experiment import last
from experiments.core.kinds import Json
from experiments.core.origins import NOT_RUN
from experiments.core.paper import Job
from experiments.core.records import Records, Store, mean_std, write_json
from experiments.core.verdict import LEVEL
from experiments.ga_net import reported
from experiments.ga_net.experiment import first_texts, texts_of
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax._utils.terminal import say

VARIANTS = {
    "ganet_density": "GA-Net, density 0.2",
    "ganet_input": "GA-Net, density 0.2, gates on the input",
}
"""The compared systems and their titles."""
MEASURES = {
    "comprehensiveness": "comprehensiveness (AOPC)",
    "sufficiency": "sufficiency (AOPC)",
    "leak": "gate leak",
    "flipped": "labels flipped",
}
"""The measures in a record and their headings."""
TEXTS = 1000
"""The largest number of test texts."""
OWN = "own"
RATIONALES = {
    OWN: "gates",
    "random": "random",
    "attention": "soft attention",
    "gradient": "gradient x input",
}
"""The rationales in a record and their titles."""


def measure(job: Job) -> None:
    """Adds measures of faithfulness to the records of trained networks."""
    for data, variant in itertools.product(job.data, job.table.variants):
        for record in job.store.all(data, variant)[: job.options.seeds]:
            count = min(record["test_n"], TEXTS)
            # A finished measurement is not repeated, because it runs the network many times for
            # each text.
            if record.get("faithfulness", {}).get("texts") == count:
                continue
            config = job.config(data, variant, record["seed"])
            workdir = job.workdir(data, variant, record["seed"])
            say(f"{data}, {variant}, seed {record['seed']}: faithfulness")
            # A finished run is restored from its work folder. Without the folder the network is
            # trained again.
            run = run_of(job.paper, dataclasses.replace(config, workdir=str(workdir)))
            texts = texts_of(config.data, config.model.embedding_dim).splits["test"]
            # The record has the test accuracy of the last parameters, and the measures must belong
            # to the same network.
            params, _ = last(run.fit, workdir)
            measures = facts(run.task.model, params, texts, count)
            write_json(
                job.store.path(data, variant, record["seed"]), {**record, "faithfulness": measures}
            )


def facts(model: Any, params: Any, texts: gdata.Encoded, count: int) -> Json:
    """Returns the entry "faithfulness" of a record. It has the number of texts, the density, and
    the values of each text by rationale and measure."""
    result = analysis.faithfulness(model, params, first_texts(texts, count))
    density = result.density
    return {
        "texts": count,
        "density": None if density is None else round(float(density.mean()), 6),
        "shares": list(result.shares),
        "values": {
            name: {of: np.round(getattr(rationale, of), 4).tolist() for of in MEASURES}
            for name, rationale in result.rationales.items()
        },
    }


def _measured_records(store: Store) -> dict[tuple[str, str], Records]:
    """Returns the records with "faithfulness" by (data set, system). The data sets are TREC and
    those with such a record. Raises ValueError if seeds of a cell were measured on different texts.
    """
    measured = {}
    for data, variant in itertools.product(reported.NAMES, VARIANTS):
        records = [record for record in store.all(data, variant) if "faithfulness" in record]
        measured[data, variant] = records
    # A data set without a measurement has no rows, because a table that lists all data sets would
    # consist of empty rows. TREC is listed in any case, so that the table exists before the first
    # run.
    some = {data for (data, _), records in measured.items() if records} | {"trec"}
    return {
        (data, variant): records for (data, variant), records in measured.items() if data in some
    }


def values(records: Records, rationale: str, of: str) -> np.ndarray:
    """Returns a measure of a rationale as an array [seeds, texts]."""
    return np.array(
        [record["faithfulness"]["values"][rationale][of] for record in records], np.float64
    )


def body(store: Store) -> str:
    """Returns the table with the means of each measure by rationale."""
    rows = []
    for (data, variant), records in _measured_records(store).items():
        first = [reported.NAMES[data], VARIANTS[variant]]
        if not records:
            rows.append([*first, NOT_RUN, *["-"] * (2 + len(MEASURES))])
        for rationale, title in RATIONALES.items() if records else ():
            line = [*first, title, "-", "-"]
            if rationale == OWN:
                line[-2:] = [
                    mean_std([record["test"]["accuracy"] for record in records]),
                    mean_std([record["faithfulness"]["density"] for record in records]),
                ]
            # The mean over texts comes first, so that the deviation in the table is the deviation
            # between seeds.
            means = (values(records, rationale, of).mean(axis=1) for of in MEASURES)
            rows.append([*line, *(mean_std(list(mean)) for mean in means)])
    headings = ["data", "system", "rationale", "accuracy", "density", *MEASURES.values()]
    return analysis.render_table(headings, rows)


def paired_table(store: Store) -> str:
    """Returns tests of the gates against each other rationale, with corrected p-values. The
    p-values of the rows with enough seeds are corrected together."""
    lines: list[tuple[list[str], int, float, analysis.TwoWay | None]] = []
    for (data, variant), records in _measured_records(store).items():
        first = [reported.NAMES[data], VARIANTS[variant]]
        if not records:
            lines.append(([*first, NOT_RUN, "-"], 0, 0.0, None))
            continue
        for other, of in itertools.product([name for name in RATIONALES if name != OWN], MEASURES):
            gates, against = (values(records, name, of) for name in (OWN, other))
            # Both rationales are of the same networks, so the difference is a single sample of
            # seeds, which is compared with 0.
            shift = gates - against
            several = len(records) > 1
            test = analysis.two_way_test(shift, 0 * shift) if several else None
            row = [*first, RATIONALES[other], MEASURES[of]]
            lines.append((row, len(records), float(shift.mean()), test))
    tested = [test.p_value for _, seeds, _, test in lines if test is not None and seeds >= SEEDS]
    corrected = iter(analysis.holm(tested))
    rows = []
    for line, seeds, difference, test in lines:
        if not seeds:
            rows.append([*line, "-", "-", "-"])
            continue
        p = these_runs(seeds)
        if test is not None and seeds >= SEEDS:
            value = float(next(corrected))
            p = p_text(value) + " *" * (value < LEVEL)
        interval = "-" if test is None else interval_text(test, 1, 4)
        rows.append([*line, f"{difference:+.4f} (n={seeds} seeds)", interval, p])
    headings = ["data", "system", "gates minus", "measure", "difference", "95 % interval", "p"]
    return analysis.render_table(headings, rows)
