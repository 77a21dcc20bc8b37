"""A search for settings on validation text: `python -m experiments.ga_net.tune --data trec`."""

import dataclasses
import sys
from pathlib import Path

from experiments.core.config import with_changes
from experiments.core.kinds import Record
from experiments.core.records import RESULTS
from experiments.core.tune import Search, Trial, TuneOptions, combinations, make_trial, preset_of
from experiments.ga_net.config import PRESETS, SWEPT, DataName, SystemName, swept
from experiments.ga_net.paper import PAPER
from gatedjax._utils.options import Several


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneConfig(TuneOptions):
    """Trains all combinations of the given values; the test split is never evaluated.

    An option without values keeps the preset's value. The paper's grids: learning rate 1e-4 to
    1e-2, batch 8 to 128, temperature 0.5 to 2, penalty 4e-6 to 1e-3.
    """

    data: DataName
    """Data set, by preset."""
    system: SystemName = "ganet"
    """System to train."""
    batch_sizes: Several[int] = ()
    """Batch sizes to try."""
    dropouts: Several[float] = ()
    """Dropout rates to try; each applies to the word vectors and to the pooled state."""
    temperatures: Several[float] = ()
    """Temperatures of the gates to try."""
    penalties: Several[float] = ()
    """Gate penalties (lambda) to try."""
    results: Path = RESULTS / "ga_net"
    """Folder for tuning.json and TUNING.md."""
    runs: Path = Path("runs/ga_net/tune")
    """Folder with the work folders of the trials, from which an interrupted trial continues."""


OF_GATES = ("tau", "lambda")
"""The values that only systems with gates have."""


def trials(options: TuneConfig) -> list[Trial]:
    """Returns a trial for each combination of the options' values."""
    preset = preset_of(options, PRESETS[options.data], {"model.system": options.system})
    grid = []
    for values in combinations(options, preset, SWEPT):
        config = with_changes(preset, swept(values))
        gated = options.system == "ganet"
        # The record of a system without gates must not depend on the temperature and the penalty,
        # because a repeated trial is found by its values.
        varied = {name: v for name, v in values.items() if gated or name not in OF_GATES}
        grid.append(make_trial(options, config, varied))
    return grid


def _row(record: Record) -> list[str]:
    """Returns the cells of a trial in TUNING.md."""
    values = record["values"]
    return (
        [record["data"], record["system"]]
        + [f"{values[name]:g}" if name in values else "-" for name in SWEPT]
        + [str(record[name]) for name in ("seed", "num_steps")]
        + ["loss" if "loss" in record else "accuracy", str(record["best_step"])]
        + [f"{record['loss']:.4f}" if "loss" in record else "-"]
        + [f"{record['accuracy']:.4f}"]
        + ["-" if record["density"] is None else f"{record['density']:.4f}"]
    )


SEARCH = Search(
    paper=PAPER,
    options=TuneConfig,
    trials=trials,
    metrics=("accuracy", "density"),
    headings=(
        *("data", "system", "lr", "batch", "dropout", "tau", "lambda", "seed", "steps"),
        *("chosen by", "best step", "validation loss", "validation accuracy", "density"),
    ),
    row=_row,
)
main = SEARCH.main

if __name__ == "__main__":
    sys.exit(main())
