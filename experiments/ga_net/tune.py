"""Searches settings on the validation split: `python -m experiments.ga_net.tune --data trec`."""

import dataclasses
import itertools
import sys
from pathlib import Path

from experiments.core.cells import run_of
from experiments.core.cli import TABLE_OPTIONS, parse_many, refusals
from experiments.core.config import changed
from experiments.core.hardware import prepare_cpu
from experiments.core.kinds import Json, Records
from experiments.core.records import RESULTS, read_json, write_json, write_text
from experiments.ga_net.config import PRESETS, Config, DataName, SystemName, given_paths
from experiments.ga_net.paper import PAPER
from gatedjax import analysis
from gatedjax._terminal import say


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """Trains every combination of the given values; the test split is never evaluated.

    A value that is not given stays as in the preset. The paper's grids: learning rate 1e-4 to 1e-2,
    batch 8 to 128, temperature 0.5 to 2, penalty 4e-6 to 1e-3.
    """

    data: DataName
    """Data set."""
    system: SystemName = "ganet"
    """System."""
    learning_rates: tuple[float, ...] = ()
    """Learning rates to try."""
    batch_sizes: tuple[int, ...] = ()
    """Batch sizes to try."""
    dropouts: tuple[float, ...] = ()
    """Dropout rates to try, on word vectors and on the pooled state alike."""
    temperatures: tuple[float, ...] = ()
    """Temperatures of the gates to try."""
    penalties: tuple[float, ...] = ()
    """Gate penalties (lambda) to try."""
    num_steps: int | None = None
    """Steps per trial (default: the preset's)."""
    seed: int = 0
    """Seed of every trial."""
    data_dir: str | None = None
    """Where prepared TFDS data sets are."""
    manual_dir: str | None = None
    """Folder with the raw files, to work without a network."""
    embeddings: str | None = None
    """GloVe file (default: the preset's)."""
    results: Path = RESULTS / "ga_net"
    """Where tuning.json and TUNING.md are written."""
    runs: Path = Path("runs/ga_net/tune")
    """Work folders of the trials; an interrupted trial continues from here."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core)."""


def trials(options: TuneConfig) -> list[tuple[dict[str, float], Config]]:
    """Every combination: the values that vary, and the configuration."""
    preset = changed(
        PRESETS[options.data],
        {"train.seed": options.seed, "model.system": options.system}
        | {f"data.{name}": value for name, value in given_paths(options).items()}
        | ({} if options.num_steps is None else {"train.num_steps": options.num_steps}),
    )
    configs = []
    for rate, size, drop, tau, penalty in itertools.product(
        options.learning_rates or (preset.train.optimizer.learning_rate,),
        options.batch_sizes or (preset.data.batch_size,),
        options.dropouts or (preset.model.embedding_dropout,),
        options.temperatures or (preset.model.temperature,),
        options.penalties or (preset.model.penalty,),
    ):
        values: dict[str, float] = {"learning rate": rate, "batch": size, "dropout": drop}
        if options.system == "ganet":
            values |= {"tau": tau, "lambda": penalty}
        changes = {
            "train.optimizer.learning_rate": rate,
            "data.batch_size": size,
            "model.embedding_dropout": drop,
            "model.pool_dropout": drop,
            "model.temperature": tau,
            "model.penalty": penalty,
        }
        configs.append((values, changed(preset, changes)))
    return configs


def render(records: Records) -> str:
    """TUNING.md from the records, best validation accuracy first."""
    headers = ["data", "system", "lr", "batch", "dropout", "tau", "lambda", "seed", "steps"]
    headers += ["best step", "validation accuracy", "density"]
    ordered = sorted(records, key=lambda r: (r["data"], r["system"], -r["accuracy"]))
    rows = []
    for record in ordered:
        values = record["values"]
        names = ("learning rate", "batch", "dropout", "tau", "lambda")
        rows.append(
            [record["data"], record["system"]]
            + [f"{values[name]:g}" if name in values else "-" for name in names]
            + [str(record[name]) for name in ("seed", "num_steps", "best_step")]
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
            key: Json = {"data": options.data, "system": options.system}
            key["values"] = values
            key |= {"seed": options.seed, "num_steps": config.train.num_steps}
            if any(record.items() >= key.items() for record in records):
                continue
            name = "-".join(f"{value:g}" for value in values.values())
            folder = f"{options.data}-{options.system}-{name}-{options.seed}-{key['num_steps']}"
            say(f"{options.data}, {options.system}: {values}", flush=True)
            trial = dataclasses.replace(config, workdir=str(options.runs / folder))
            result = run_of(PAPER, trial, test=False)
            if result.fit.stopped == "signal":
                say("stopped; the same command continues", file=sys.stderr)
                return result.fit.exit_code
            best = result.fit.best_metrics
            records.append(
                key
                | {
                    "accuracy": best["accuracy"],
                    "density": best.get("density"),
                    "best_step": result.fit.best_step,
                }
            )
            write_json(path, records)
    table = options.results / "TUNING.md"
    write_text(table, render(records))
    say(f"wrote {table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
