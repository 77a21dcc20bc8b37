"""Recursive ROAR: systems that are trained again without the words of highest importance.

Each share of masked words is a training run of all seeds in a single program, which compiles the
programs of the last share again. JAX finds them if JAX_COMPILATION_CACHE_DIR names a folder.
"""

import dataclasses
import functools
import itertools
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from experiments.core.command import check_cells, remove_workdir
from experiments.core.curves import finish, stop_message
from experiments.core.experiment import Experiment, Place, Run, run_lanes
from experiments.core.kinds import Config, Json
from experiments.core.origins import NOT_RUN
from experiments.core.paper import Cell, Job
from experiments.core.records import Record, Records, Store, saved_record, write_json
from experiments.core.text import SPLITS, Texts, in_batches
from experiments.ga_net import reported
from experiments.ga_net.config import SystemName
from experiments.ga_net.experiment import texts_of
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax._utils.terminal import say

Measure = Literal["gates", "attention", "gradient", "random"]
"""An importance that ranks words."""
ROWS: dict[SystemName, tuple[Measure, ...]] = {
    "ganet": ("gates", "gradient", "random"),
    "soft": ("attention", "gradient", "random"),
}
"""The importances that rank the words of each system; the random importance is the reference."""
CURVES = [(system, measure) for system, measures in ROWS.items() for measure in measures]
EVERYWHERE = (0.0, 1.0)
"""Shares at which all importances have the same texts, and so the same networks."""
SHARES = tuple(sorted({*analysis.ROAR_SHARES, *EVERYWHERE}))
"""The shares of the words that are masked."""
NO_AREA = "masking all costs nothing"
"""The cell of an undefined RACU: masking all words costs no accuracy."""


def name_of(system: str, measure: str) -> str:
    """Returns the name of the records of an importance."""
    return f"roar_{system}_{measure}"


@dataclasses.dataclass(frozen=True)
class Recursion:
    """The curves of a system on a data set, for seeds that are trained in a single program."""

    job: Job
    data: str
    system: str
    seeds: tuple[int, ...]

    @property
    def config(self) -> Config:
        """The configuration of the first seed."""
        return self.job.config(self.data, self.system, self.seeds[0])

    def curves(self, measures: Sequence[Measure]) -> Iterator[tuple[Measure, list[list[Run]]]]:
        """Yields each importance with its runs, by share and seed."""
        config = self.config
        texts = texts_of(config.data, config.model.embedding_dim)
        with_words = functools.partial(
            _with_words, self.job.paper.experiment(config), config, texts
        )
        shared: dict[float, list[Run]] = {}
        for measure in measures:
            yield measure, list(self._curve(measure, texts, with_words, shared))

    def _curve(
        self,
        measure: Measure,
        texts: Texts[gdata.Encoded],
        with_words: Callable[[list[Any]], Experiment],
        shared: dict[float, list[Run]],
    ) -> Iterable[list[Run]]:
        """Returns the runs of each share. All importances have the runs in `shared`, by share."""
        runs: dict[float, list[Run]] = {}

        def fit(share: float, copies: list[Any]) -> list[tuple[Run, float]]:
            # At a share of 0 no word is masked and at 1 all words are, whatever the importance.
            # Networks at these shares are trained once and serve all importances.
            trained = shared if share in EVERYWHERE else runs
            if share not in trained:
                trained[share] = self._train(measure, share, with_words(copies))
            runs[share] = trained[share]
            return [(network, network.record["test"]["accuracy"]) for network in runs[share]]

        analysis.roar(
            _columns(texts),
            fit,
            "random" if measure == "random" else functools.partial(_scores, measure),
            shares=SHARES,
            seeds=len(self.seeds),
            first_seed=self.seeds[0],
        )
        return runs.values()

    def _train(self, measure: Measure, share: float, experiment: Experiment) -> list[Run]:
        """Trains the networks of a share; exits if a signal stops them."""
        job, config = self.job, self.config
        of = "all" if share in EVERYWHERE else measure
        first, last = self.seeds[0], self.seeds[-1]
        name = f"{self.data}-{name_of(self.system, of)}_{share:g}-seeds{first}to{last}"
        # The smaller shares are part of the settings, because they determine the masked words.
        steps = [step for step in SHARES if step <= share]
        masked = {"measure": of, "shares": [] if of == "all" else steps, "share": share}
        settings = job.paper.recorded(config)
        say(f"{self.data}, {self.system}, {of}, {share:.0%}: {job.options.runs / name}")
        # Without the removal the run would continue from its last checkpoint, and --rerun would
        # change nothing.
        if job.options.rerun and (job.options.runs / name).exists():
            remove_workdir(job.options.runs / name)
        networks = run_lanes(
            lambda _: experiment,
            config,
            Place(job.options.runs / name, settings | {"roar": masked}),
            job.paper.recorded,
            seeds=len(self.seeds),
        )
        message = stop_message(networks[-1].record)
        if message is not None:
            say(message, file=sys.stderr)
            sys.exit(networks[-1].record["exit_code"])
        return networks

    def records(self, measure: Measure, runs: list[list[Run]]) -> Records:
        """Returns a record per seed, with the curve over all shares."""
        records = []
        for place in range(len(self.seeds)):
            of_seed = [of_share[place].record for of_share in runs]
            unmasked = of_seed[0]
            rates = [
                share_record["seconds_per_step"]
                for share_record in of_seed
                if share_record["seconds_per_step"]
            ]
            # These facts are the same for all shares, because masking changes neither the number of
            # texts nor the vocabulary.
            names = ("data", "substitute", "seed", "config", "system", "train_n", "test_n",
                    "test_digest", "lanes", "vocabulary_size", "embedding_coverage",
                    "parameters")  # fmt: skip
            record: Record = {name: unmasked[name] for name in names if name in unmasked}
            record |= {
                "measure": measure,
                "shares": list(SHARES),
                "accuracy": [share_record["test"]["accuracy"] for share_record in of_seed],
                "accuracy_last": [
                    share_record["test_last"]["accuracy"] for share_record in of_seed
                ],
                "steps_of_share": [share_record["steps"] for share_record in of_seed],
                "steps": sum(share_record["steps"] for share_record in of_seed),
                "test": {"accuracy": unmasked["test"]["accuracy"]},
                "correct": unmasked["correct"],
                "stopped": "done",
                "seconds_per_step": statistics.median(rates) if rates else None,
            }
            finish(record, sum(share_record["seconds"] for share_record in of_seed))
            records.append(saved_record(record))
        return records


def _scores(source: Any, run: Run, part: Any) -> np.ndarray:
    return analysis.rationale_scores(run.task.model, run.fit.best_params, part, source)


def _columns(texts: Texts[gdata.Encoded]) -> dict[str, Json]:
    """Returns the texts of each split as arrays of equal width, to compile a program only once."""
    width = max(int(texts.splits[name].lengths.max()) for name in SPLITS)
    columns = {}
    for name in SPLITS:
        split = texts.splits[name]
        tokens = np.zeros((len(split), width), np.int32)
        for line, words in zip(tokens, split.ids, strict=True):
            # The rest of the row stays 0, the id of padding.
            line[: len(words)] = words
        columns[name] = {
            "tokens": tokens,
            "lengths": split.lengths,
            "example_id": split.example_ids,
        }
    return columns


def _with_words(
    experiment: Experiment, config: Config, texts: Texts[gdata.Encoded], copies: list[Any]
) -> Experiment:
    """Returns an experiment on masked texts, with another copy of the texts for each seed. `copies`
    has for each seed the masked arrays of each split, in the form of `_columns`."""

    def batches(copy: Any) -> Any:
        splits = {}
        for name in SPLITS:
            split = texts.splits[name]
            rows = zip(copy[name]["tokens"], split.lengths, strict=True)
            splits[name] = dataclasses.replace(split, ids=[row[:size] for row, size in rows])
        return in_batches(splits, config.data)

    passes = [batches(copy) for copy in copies]
    first = config.train.seed
    return dataclasses.replace(
        experiment,
        train=lambda seed: passes[seed - first][0](seed),
        validation=lambda seed: passes[seed - first][1],
        test=lambda seed: passes[seed - first][2],
    )


def run(job: Job) -> None:
    """Trains the curves that have no record yet, and draws the figure."""
    options = job.options
    # All cells are checked before the first training, so that no time is lost.
    for data, (system, measure) in itertools.product(job.data, CURVES):
        configs = {seed: job.config(data, system, seed) for seed in range(options.seeds)}
        check_cells(job, [Cell(data, name_of(system, measure), configs)])
    for data, system in itertools.product(job.data, ROWS):
        lacking: dict[tuple[int, ...], list[Measure]] = {}
        for measure in ROWS[system]:
            variant = name_of(system, measure)
            missing = [
                seed
                for seed in range(options.seeds)
                if options.rerun or not job.store.path(data, variant, seed).exists()
            ]
            for seeds in _neighbours(missing):
                lacking.setdefault(seeds, []).append(measure)
        for seeds, measures in lacking.items():
            recursion = Recursion(job, data, system, seeds)
            for measure, runs in recursion.curves(measures):
                for record in recursion.records(measure, runs):
                    path = job.store.path(data, name_of(system, measure), record["seed"])
                    write_json(path, record)
    draw(job)


def _neighbours(seeds: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns groups of consecutive seeds, each of which is trained in a single program."""
    groups = itertools.groupby(enumerate(seeds), key=lambda place: place[1] - place[0])
    return [tuple(seed for _, seed in group) for _, group in groups]


def body(store: Store) -> str:
    """Returns the table with the accuracy of each curve by share, and its RACU."""
    names = [
        d for d in reported.NAMES if d == "trec" or any(store.all(d, name_of(*r)) for r in CURVES)
    ]
    curves = {(d, *row): store.all(d, name_of(*row)) for d in names for row in CURVES}
    shares = sorted(
        {x for records in curves.values() for record in records for x in record["shares"]}
    )
    rows = []
    for (data, system, measure), records in curves.items():
        line = [reported.NAMES[data], reported.SYSTEMS[system], measure]
        if not records:
            rows.append([*line, NOT_RUN, *["-"] * (len(shares) + 2)])
            continue
        means = dict(
            zip(records[0]["shares"], np.mean([r["accuracy"] for r in records], 0), strict=True)
        )
        line += [str(len(records))]
        line += [f"{means[share]:.3f}" if share in means else "-" for share in shares]
        rows.append(line + _area(records, curves[data, system, "random"], measure))
    headings = ["data", "system", "importance", "seeds", *(f"{share:.0%}" for share in shares)]
    return analysis.render_table([*headings, "RACU", "95 % interval"], rows)


def _area(records: Records, beside: Records, measure: str) -> list[str]:
    """Returns two cells of the table: RACU of a curve, and its 95 % interval. `beside` is the curve
    of random words; only seeds of both curves count."""
    if measure == "random":
        return ["-", "-"]
    first, other = ({r["seed"]: r for r in curve_records} for curve_records in (records, beside))
    seeds = sorted(first.keys() & other.keys())
    if not seeds:
        return [NOT_RUN, "-"]
    curves = [np.array([of[s]["accuracy"] for s in seeds]).T for of in (first, other)]
    area = analysis.racu(records[0]["shares"], *curves)
    if np.isnan(area.mean):
        return [NO_AREA, "-"]
    of = f"{area.mean:+.3f} (n={len(seeds)})"
    if area.low is None or area.high is None:
        return [of, "-"]
    return [of, f"[{area.low:+.3f}, {area.high:+.3f}]"]


def _points(records: Records) -> list[tuple[float, float, float | None]]:
    """Returns (percentage of masked words, mean accuracy, deviation over seeds) for each share."""
    points = []
    for place, share in enumerate(records[0]["shares"] if records else ()):
        summary = analysis.summary([record["accuracy"][place] for record in records])
        points.append((100 * share, summary.mean, summary.std))
    return points


def draw(job: Job) -> None:
    """Draws accuracy against masked words: a panel per system, a line per importance."""
    for data in job.data:
        series: dict[str, dict[str, list[tuple[float, float, float | None]]]] = {}
        for system, measures in ROWS.items():
            curves = {name: job.store.all(data, name_of(system, name)) for name in measures}
            if any(curves.values()):
                lines = {str(measure): _points(records) for measure, records in curves.items()}
                series[f"accuracy, {reported.SYSTEMS[system]}"] = lines
        stem = job.options.results / f"roar_{data}"
        title = f"Masked and trained again: {reported.NAMES[data]}"
        analysis.plot_lines(series, stem, xlabel="masked words, %", title=title)
        say(f"wrote {stem}.png and .svg")
