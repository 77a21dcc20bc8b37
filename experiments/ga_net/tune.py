"""Searches settings on the validation split: `python -m experiments.ga_net.tune --data trec`."""

import dataclasses
import itertools
import math
import operator
import sys
from pathlib import Path

from experiments.core.cli import TABLE_OPTIONS, parse_many, refusals
from experiments.core.command import run_of
from experiments.core.config import Files, changed
from experiments.core.kinds import Json, Records
from experiments.core.records import RESULTS, read_json, write_json, write_text
from experiments.ga_net.config import PRESETS, SWEPT, Config, DataName, SystemName, swept
from experiments.ga_net.paper import PAPER
from gatedjax import analysis
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.options import Several, Unset
from gatedjax._utils.terminal import say


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneConfig(Files):
    """Trains every combination of the given values; the test split is never evaluated.

    A value that is not given stays as in the preset. The paper's grids: learning rate 1e-4 to 1e-2,
    batch 8 to 128, temperature 0.5 to 2, penalty 4e-6 to 1e-3.
    """

    data: DataName
    """The data set."""
    system: SystemName = "ganet"
    """The system."""
    learning_rates: Several[float] = ()
    """The learning rates to try (default: the preset's)."""
    batch_sizes: Several[int] = ()
    """The batch sizes to try (default: the preset's)."""
    dropouts: Several[float] = ()
    """The dropout rates to try, on word vectors and on the pooled state alike
    (default: the preset's)."""
    temperatures: Several[float] = ()
    """The temperatures of the gates to try (default: the preset's)."""
    penalties: Several[float] = ()
    """The gate penalties (lambda) to try (default: the preset's)."""
    num_steps: Unset[int] = None
    """The number of steps per trial (default: the preset's)."""
    seed: int = 0
    """The seed of every trial."""
    embeddings: Unset[str] = None
    """The GloVe file (default: the preset's)."""
    results: Path = RESULTS / "ga_net"
    """The folder for tuning.json and TUNING.md."""
    runs: Path = Path("runs/ga_net/tune")
    """The folder for the work folders of the trials. An interrupted trial continues from there."""
    cpu_devices: Unset[int] = None
    """The number of CPU devices that split a batch (default: one per core)."""


OF_GATES = ("tau", "lambda")
FILES = ("data_dir", "manual_dir", "embeddings")


def trials(options: TuneConfig) -> list[tuple[dict[str, float], Config]]:
    """Every combination: the values that vary, and the configuration."""
    changes: Json = {"train.seed": options.seed, "model.system": options.system}
    given = {f"data.{name}": getattr(options, name) for name in FILES}
    given["train.num_steps"] = options.num_steps
    changes |= {path: value for path, value in given.items() if value is not None}
    preset = changed(PRESETS[options.data], changes)
    grids = [
        getattr(options, option) or (operator.attrgetter(path)(preset),)
        for option, path, *_ in SWEPT.values()
    ]
    configs = []
    for combination in itertools.product(*grids):
        values = dict(zip(SWEPT, combination, strict=True))
        config = changed(preset, swept(values))
        gated = options.system == "ganet"
        shown = {name: v for name, v in values.items() if gated or name not in OF_GATES}
        configs.append((shown, config))
    return configs


def render(records: Records) -> str:
    """TUNING.md from the records: those chosen by loss come first, the smallest at the top."""
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
            key |= {"seed": options.seed, "num_steps": config.train.num_steps}
            by_loss = config.train.best_metric == "loss"
            records_of_kind = [one for one in records if ("loss" in one) == by_loss]
            if any(record.items() >= key.items() for record in records_of_kind):
                continue
            name = "-".join(f"{value:g}" for value in values.values())
            folder = f"{options.data}-{options.system}-{name}-{options.seed}-{key['num_steps']}"
            say(f"{options.data}, {options.system}: {values}")
            trial = dataclasses.replace(config, workdir=str(options.runs / folder))
            result = run_of(PAPER, trial, test=False)
            if result.fit.stopped == "signal":
                say("stopped; the same command continues", file=sys.stderr)
                return result.fit.exit_code
            best = result.fit.best_metrics
            names = ("loss", "accuracy", "density") if by_loss else ("accuracy", "density")
            figures = {name: best.get(name) for name in names}
            records.append({**key, **figures, "best_step": result.fit.best_step})
            write_json(path, records)
    table = options.results / "TUNING.md"
    write_text(table, render(records))
    say(f"wrote {table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
