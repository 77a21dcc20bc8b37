"""What needs no run: parameter counts, widths that make them equal, tables 2 and 4 (settings)."""

import dataclasses
import functools
from typing import get_args

import jax
import numpy as np

from experiments.core.kinds import Json, Params
from experiments.rau import reported
from experiments.rau.config import PRESETS, PTB_ROW, TRAIN_EXAMPLES, CellName, Config
from gatedjax import analysis
from gatedjax.models import RAUClassifier, RAUConfig

ROW_WIDTH = {"digits": 8, "mnist": 28, "fashion_mnist": 28}
CLASSES = {"digits": 10, "mnist": 10, "fashion_mnist": 10, "imdb": 2}


def count_parameters(params: Params) -> dict[str, int]:
    """How many numbers are trained: all of them, and those of the recurrent layers."""
    sizes = {name: sum(x.size for x in jax.tree.leaves(part)) for name, part in params.items()}
    recurrent = sum(size for name, size in sizes.items() if name.startswith("recurrent"))
    return {"parameters": sum(sizes.values()), "recurrent_parameters": recurrent}


@functools.lru_cache(maxsize=512)
def network(config: RAUConfig, name: str) -> tuple[int, int]:
    """Parameters for a data set (not "ptb"): without word vectors, and of the recurrent layer."""
    batch: Json = {"lengths": np.ones(1, np.int32)}
    if name in ROW_WIDTH:
        batch["rows"] = np.ones((1, 1, ROW_WIDTH[name]), np.float32)
    else:
        batch["tokens"] = np.ones((1, 1), np.int32)
    words = 2 if "tokens" in batch else None
    model = RAUClassifier(config, num_classes=CLASSES[name], vocab_size=words)
    params = jax.eval_shape(lambda key: model.init(key, batch), jax.random.key(0))["params"]
    params = {part: params[part] for part in ("recurrent", "classifier")}
    counts = count_parameters(params)
    return counts["parameters"], counts["recurrent_parameters"]


def matched_width(preset: str, cell: CellName) -> int:
    """The width at which a cell has as nearly as possible as many parameters as the preset's GRU.

    Word vectors, which all cells have alike, are not counted.
    """
    config = PRESETS[preset]

    def count(cell: CellName, hidden: int) -> int:
        model = dataclasses.replace(config.model, cell=cell, hidden=hidden)
        return network(model, config.data.name)[0]

    target = count("gru", config.model.hidden)
    low, high = 1, config.model.hidden
    while low < high:  # the smallest width with at least as many
        middle = (low + high) // 2
        low, high = (low, middle) if count(cell, middle) >= target else (middle + 1, high)
    near = [width for width in (low - 1, low) if width >= 1]
    return min(near, key=lambda width: abs(count(cell, width) - target))


def _cells(*values: object) -> list[str]:
    """Settings as tables show them."""
    return [value if isinstance(value, str) else f"{value:g}" for value in values]


def table2() -> str:
    """Settings of the classifiers beside the paper's, and parameters of the recurrent layers."""
    headings = ["preset", "", "width", "batch", "epochs", "dropout", "optimiser", "learning rate"]
    rows = []
    for name, quoted in reported.SETTINGS.items():
        rows.append([name, "paper", *quoted, *("-" for _ in reported.CELLS)])
        rows += [_classifier(config) for config in PRESETS.values() if config.data.name == name]
    return analysis.render_table([*headings, *reported.CELLS.values()], rows)


def _classifier(config: Config) -> list[str]:
    """What a preset has in the columns of Table 2."""
    name, model, optimizer = config.data.name, config.model, config.train.optimizer
    epochs = config.train.num_steps * config.data.batch_size / TRAIN_EXAMPLES[name]
    rate = f"{optimizer.learning_rate:g}, {optimizer.schedule}, clip {optimizer.clip_norm:g}"
    cells = (dataclasses.replace(model, cell=cell) for cell in get_args(CellName))
    return _cells(
        *(config.preset, "ours", model.hidden, config.data.batch_size, round(epochs)),
        *(model.state_dropout, optimizer.name.capitalize(), rate),
        *(f"{network(cell, name)[1]:,}" for cell in cells),
    )


def table4() -> str:
    """Settings of the language models beside the paper's."""
    rows = []
    for preset, quoted in reported.PTB_SETTINGS.items():
        rows.append([preset, "paper", *quoted])
        rows.append([preset, "ours", *_language(PRESETS[preset])])
    return analysis.render_table(["preset", "", *reported.PTB_COLUMNS], rows)


def _language(config: Config) -> list[str]:
    """What a preset has in the columns of Table 4."""
    model, train, data = config.model, config.train, config.data
    epoch = -(-PTB_ROW // data.window)
    decay = f"{train.optimizer.decay_rate:.4g} after epoch {train.optimizer.decay_begin // epoch}"
    return _cells(
        *(model.init_scale, model.num_layers, model.hidden, data.batch_size),
        *(train.optimizer.learning_rate, decay, train.num_steps // epoch),
        *(model.layer_dropout, data.window),
    )
