"""A search for settings on validation text: `python -m experiments.agt.tune --data sst1`."""

import dataclasses
import sys
from pathlib import Path
from typing import Literal

from experiments.agt.config import PRESETS, SWEPT, PresetName
from experiments.agt.paper import PAPER, VARIANTS
from experiments.core.config import swept_changes, with_changes
from experiments.core.kinds import Record
from experiments.core.records import RESULTS
from experiments.core.tune import Search, Trial, TuneOptions, combinations, make_trial, preset_of

SystemName = Literal["agt", "agt_above0", "agt_above2", "average"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneConfig(TuneOptions):
    """Trains all combinations of the given values; the test split is never evaluated.

    An option without values keeps the value of the system in the tables.
    """

    data: PresetName
    """Data set, by preset."""
    system: SystemName = "agt"
    """System to train, a row of the table ablation."""
    results: Path = RESULTS / "agt"
    """Folder for tuning.json and TUNING.md."""
    runs: Path = Path("runs/agt/tune")
    """Folder with the work folders of the trials, from which an interrupted trial continues."""


def trials(options: TuneConfig) -> list[Trial]:
    """Returns a trial for each combination of the options' values."""
    system = VARIANTS[options.system].on(options.data)
    preset = preset_of(options, PRESETS[options.data], system)
    grid = []
    for values in combinations(options, preset, SWEPT):
        # The width of the word vectors is that of their file, as in the tables.
        config = PAPER.resolve(with_changes(preset, swept_changes(SWEPT, values)))
        # The name of the file belongs to the key, because other vectors may need other settings.
        vectors = PAPER.recorded(config)["data"]["embeddings"]
        grid.append(make_trial(options, config, values, embeddings=vectors))
    return grid


def _row(record: Record) -> list[str]:
    return [
        *(record["data"], record["system"]),
        *(f"{record['values'][name]:g}" for name in SWEPT),
        *(str(record[name]) for name in ("embeddings", "seed", "num_steps", "best_step")),
        *(f"{record[name]:.4f}" for name in ("loss", "accuracy")),
    ]


SEARCH = Search(
    paper=PAPER,
    options=TuneConfig,
    trials=trials,
    metrics=("accuracy",),
    headings=(
        *("data", "system", "lr", "dropout", "vectors", "seed", "steps", "best step"),
        *("validation loss", "validation accuracy"),
    ),
    row=_row,
)
main = SEARCH.main

if __name__ == "__main__":
    sys.exit(main())
