"""A search for settings on validation text: `python -m experiments.ga_net.tune --data trec`."""

import dataclasses
import itertools
import math
import operator
import sys
from pathlib import Path

from experiments.core.cli import TABLE_OPTIONS, parse_many, refusals
from experiments.core.command import run_of
from experiments.core.config import Files, with_changes
from experiments.core.kinds import Json, Records
from experiments.core.records import RESULTS, read_json, write_json, write_text
from experiments.ga_net.config import PRESETS, SWEPT, DataName, GANetRunConfig, SystemName, swept
from experiments.ga_net.paper import PAPER
from gatedjax import analysis
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.options import Several, Unset
from gatedjax._utils.terminal import say


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneConfig(Files):
    """Trains all combinations of the given values; the test split is never evaluated.

    An option without values keeps the preset's value. The paper's grids: learning rate 1e-4 to
    1e-2, batch 8 to 128, temperature 0.5 to 2, penalty 4e-6 to 1e-3.
    """

    data: DataName
    """Data set, by preset."""
    system: SystemName = "ganet"
    """System to train."""
    learning_rates: Several[float] = ()
    """Learning rates to try."""
    batch_sizes: Several[int] = ()
    """Batch sizes to try."""
    dropouts: Several[float] = ()
    """Dropout rates to try; each applies to the word vectors and to the pooled state."""
    temperatures: Several[float] = ()
    """Temperatures of the gates to try."""
    penalties: Several[float] = ()
    """Gate penalties (lambda) to try."""
    num_steps: Unset[int] = None
    """Steps per trial (default: the preset's)."""
    seed: int = 0
    """Seed of all trials."""
    embeddings: Unset[str] = None
    """GloVe file (default: the preset's)."""
    results: Path = RESULTS / "ga_net"
    """Folder for tuning.json and TUNING.md."""
    runs: Path = Path("runs/ga_net/tune")
    """Folder with the work folders of the trials, from which an interrupted trial continues."""
    cpu_devices: Unset[int] = None
    """CPU devices to split a batch over (default: one per core)."""


OF_GATES = ("tau", "lambda")
"""The values that only systems with gates have."""
FILES = ("data_dir", "manual_dir", "embeddings")
"""The options that are also fields of the data."""


def trials(options: TuneConfig) -> list[tuple[dict[str, float], GANetRunConfig]]:
    """Returns (values that vary, configuration) for each combination of the options' values."""
    changes: Json = {"train.seed": options.seed, "model.system": options.system}
    overrides = {f"data.{name}": getattr(options, name) for name in FILES}
    overrides["train.num_steps"] = options.num_steps
    changes |= {path: value for path, value in overrides.items() if value is not None}
    preset = with_changes(PRESETS[options.data], changes)
    # An option without values is a grid of a single value, the value of the preset.
    grids = [
        getattr(options, option) or (operator.attrgetter(path)(preset),)
        for option, path, *_ in SWEPT.values()
    ]
    configs = []
    for combination in itertools.product(*grids):
        values = dict(zip(SWEPT, combination, strict=True))
        config = with_changes(preset, swept(values))
        gated = options.system == "ganet"
        # The record of a system without gates must not depend on the temperature and the penalty,
        # because a repeated trial is found by its values.
        varied = {name: v for name, v in values.items() if gated or name not in OF_GATES}
        configs.append((varied, config))
    return configs


def render(records: Records) -> str:
    """Returns TUNING.md; trials chosen by loss come first, with the smallest loss at the top."""
    headers = ["data", "system", "lr", "batch", "dropout", "tau", "lambda", "seed", "steps"]
    headers += ["chosen by", "best step", "validation loss", "validation accuracy", "density"]
    ordered = sorted(
        records,
        key=lambda r: (r["data"], r["system"], r.get("loss", math.inf), -r["accuracy"]),
    )
    rows = []
    for record in ordered:
        values = record["values"]
        rows.append(
            [record["data"], record["system"]]
            + [f"{values[name]:g}" if name in values else "-" for name in SWEPT]
            + [str(record[name]) for name in ("seed", "num_steps")]
            + ["loss" if "loss" in record else "accuracy", str(record["best_step"])]
            + [f"{record['loss']:.4f}" if "loss" in record else "-"]
            + [f"{record['accuracy']:.4f}"]
            + ["-" if record["density"] is None else f"{record['density']:.4f}"]
        )
    return (
        "# GA-Net: tuning record\n\nWritten by `python -m experiments.ga_net.tune`; not edited by "
        "hand. Trials never evaluate on the test split.\n\n" + analysis.render_table(headers, rows)
    )


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(TuneConfig, args, "python -m experiments.ga_net.tune")
    prepare_cpu(options.cpu_devices)
    path = options.results / "tuning.json"
    with refusals(TABLE_OPTIONS):
        records = read_json(path) if path.exists() else []
        for values, config in trials(options):
            key: Json = {"data": options.data, "system": options.system, "values": values}
            # The number of steps belongs to the key, because a short trial says little about a long
            # run.
            key |= {"seed": options.seed, "num_steps": config.train.num_steps}
            # Trials of earlier versions were chosen by accuracy. They stay in the file, but they do
            # not replace a trial chosen by loss.
            by_loss = config.train.best_metric == "loss"
            records_of_kind = [record for record in records if ("loss" in record) == by_loss]
            if any(record.items() >= key.items() for record in records_of_kind):
                continue
            name = "-".join(f"{value:g}" for value in values.values())
            folder = f"{options.data}-{options.system}-{name}-{options.seed}-{key['num_steps']}"
            say(f"{options.data}, {options.system}: {values}")
            trial = dataclasses.replace(config, workdir=str(options.runs / folder))
            # Hyperparameters chosen on the test split would make its accuracy too high.
            result = run_of(PAPER, trial, test=False)
            if result.fit.stopped == "signal":
                say("stopped; the same command continues", file=sys.stderr)
                return result.fit.exit_code
            best = result.fit.best_metrics
            names = ("loss", "accuracy", "density") if by_loss else ("accuracy", "density")
            figures = {name: best.get(name) for name in names}
            records.append({**key, **figures, "best_step": result.fit.best_step})
            # The file is written after each trial, so that an interrupted sweep loses only the
            # trial in progress.
            write_json(path, records)
    table = options.results / "TUNING.md"
    write_text(table, render(records))
    say(f"wrote {table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
