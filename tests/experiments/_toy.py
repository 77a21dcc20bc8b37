"""A paper of one file: two systems, a table, a figure, and a data set drawn from a seed."""

import dataclasses

import numpy as np

from experiments.core import columns
from experiments.core.experiment import Experiment
from experiments.core.paper import Figure, Options, Paper, Row, Table, Variant, variants
from gatedjax.training import OptimizerConfig, TrainConfig
from tests.training._tiny import Data, Tiny


@dataclasses.dataclass(frozen=True)
class ToyData:
    name: str = "toy"
    data_dir: str | None = None
    manual_dir: str | None = None
    rows: int = 8


@dataclasses.dataclass(frozen=True)
class ToyModel:
    noise: float = 0.1


TRAIN = TrainConfig(
    num_steps=6, eval_every=3, log_every=2, progress=False, parallel="single",
    optimizer=OptimizerConfig(learning_rate=0.1),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyConfig:
    preset: str = "toy"
    workdir: str | None = None
    cpu_devices: int | None = None
    data: ToyData = ToyData()
    model: ToyModel = ToyModel()
    train: TrainConfig = TRAIN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyOptions(Options):
    rows: int | None = None
    """Rows of a batch."""


class ToyBatches(Data):
    def __len__(self):
        return 6


class ToyTask(Tiny):
    def evaluate(self, params, batch):
        metrics, predictions = super().evaluate(params, batch)
        return metrics, predictions | {"example_id": batch["example_id"]}


def experiment(config: ToyConfig) -> Experiment:
    data = ToyBatches(rows=config.data.rows)
    test = dict(data[2000], label=np.arange(config.data.rows, dtype=np.float32) % 2)
    facts = {"data": config.data.name, "train_n": 48}
    return Experiment(
        task=ToyTask(), train=lambda seed: data, validation=[data[1000]], test=[test], facts=facts
    )


def against(row: Row) -> list[str]:
    return [] if row.comparison is None else [f"- {row.comparison.verdict(row.title, 'plain')}"]


TABLE = Table(
    title="Table 1", note="Means over seeds.", about="accuracy", data=("toy",),
    variants=("plain", "noisy", "again"), pair=lambda data, name: (name, "plain"),
    columns=(columns.data(), columns.variant(), columns.quoted("{theirs}", {"noisy": 0.5}),
             columns.metric("{mine}", "test.accuracy"), *columns.paired(("minus plain", "95 %"))),
    below=lambda rows: ["\n".join(line for row in rows for line in against(row))],
)  # fmt: skip
PAPER = Paper(
    name="toy", title="Toy", source='Nobody, "Nothing" (2000)', about="Train a toy.",
    presets={"toy": ToyConfig(), "wide": ToyConfig(preset="wide", data=ToyData("wide", rows=16))},
    default="toy", names={"toy": "Toy", "wide": "Toy, wide"}, experiment=experiment,
    variants=variants(
        Variant("plain", "plain", {"model.noise": 0.0}),
        Variant("noisy", "with noise"),
        Variant("again", "with noise, again", {"model.noise": 0.1}, same_as="noisy"),
    ),
    tables={"table1": TABLE, "figure1": Figure(draw=lambda job: None, data=("toy",))},
    page=(TABLE,), report=lambda console, records, workdir: console.print("done"),
    workdir=lambda config: config.preset, keys=("config", "seed", "test"), options=ToyOptions,
    given=lambda options, preset: {} if options.rows is None else {"data.rows": options.rows},
)  # fmt: skip
