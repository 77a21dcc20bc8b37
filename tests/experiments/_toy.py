"""A whole paper: a system with two settings, a table, and a data set drawn from a seed."""

import dataclasses

import numpy as np

from experiments.core import columns
from experiments.core.config import Files, RunConfig, Start
from experiments.core.experiment import Experiment
from experiments.core.paper import Figure, Paper, Table, Variant, variants
from gatedjax.training import OptimizerConfig, TrainConfig
from tests.training._tiny import Data, Tiny

BEST = {"best_metric": "accuracy", "optimizer": OptimizerConfig(learning_rate=0.1)}
TRAIN = TrainConfig(num_steps=6, eval_every=3, log_every=2, progress=False, **BEST)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows(Files):
    rows: int = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    noise: float = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RunConfig):
    preset: str = "toy"
    data: Rows = dataclasses.field(default_factory=Rows)
    model: Model = dataclasses.field(default_factory=Model)
    train: TrainConfig = dataclasses.field(default_factory=lambda: TRAIN)


def experiment(config: Config) -> Experiment:
    data = Data(rows=config.data.rows)
    test = data[2000] | {"label": np.arange(config.data.rows, dtype=np.float32) % 2}
    facts = {"data": config.preset, "train_n": 48}
    train, held = lambda seed: data, [data[1000]]
    return Experiment(task=Tiny(), train=train, validation=held, test=[test], facts=facts)


COLUMNS = (columns.data(), columns.variant(), columns.paper_number("{theirs}", {"noisy": 0.5}),
    columns.metric("{mine}", "test.accuracy"), *columns.paired_tests(("minus", "p")))  # fmt: skip
TABLE = Table(
    title="Table 1", note="Means over seeds.", about="accuracy", data=("toy",), columns=COLUMNS,
    variants=("plain", "noisy", "again"), pair=lambda data, name: (name, "plain"),
)  # fmt: skip
PRESETS = {"toy": Config(), "wide": Config(preset="wide", data=Rows(rows=16))}
PAPER = Paper(
    start=Start(name="toy", about="Train a toy.", presets=PRESETS, default="toy"),
    title="Toy", source='Nobody, "Nothing" (2000)',
    names={"toy": "Toy", "wide": "Toy, wide"}, experiment=experiment,
    variants=variants(Variant("plain", "plain", {"model.noise": 0.0}), Variant("noisy", "noise"),
                      Variant("again", "noise, again", {"model.noise": 0.1}, same_as="noisy")),
    tables={"table1": TABLE, "figure1": Figure(after=lambda job: None, data=("toy",))},
    page=(TABLE,), report=lambda console, records, workdir: console.print("done"),
)  # fmt: skip
