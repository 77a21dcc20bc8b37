"""Tables 2 and 4: settings, which need no run."""

import dataclasses
from typing import get_args

from experiments.rau import paper
from experiments.rau.config import PRESETS, PTB_ROW, TRAIN_EXAMPLES, CellName, Config
from experiments.rau.parameters import network
from gatedjax import analysis


def table2() -> str:
    """Settings of the classifiers beside the paper's, and parameters of the recurrent layers."""
    headers = ["preset", "", "width", "batch", "epochs", "dropout", "optimiser", "learning rate"]
    headers += [*paper.CELLS.values()]
    rows = []
    for name, quoted in paper.SETTINGS.items():
        rate = "1e-3, 1e-4, 1e-5" if name == "imdb" else "not given"
        row = [name, "paper", *(str(quoted[key]) for key in ("hidden", "batch", "epochs"))]
        rows.append([*row, f"{quoted['dropout']:g}", str(quoted["optimiser"]), rate, *["-"] * 3])
        for preset, config in PRESETS.items():
            if config.data.name == name:
                rows.append(_ours(preset))
    return analysis.render_table(headers, rows)


def _ours(preset: str) -> list[str]:
    config = PRESETS[preset]
    name, optimizer = config.data.name, config.train.optimizer
    epochs = config.train.num_steps * config.data.batch_size / TRAIN_EXAMPLES[name]
    counts = []
    for cell in get_args(CellName):
        model = dataclasses.replace(config.model, cell=cell)
        counts.append(f"{network(model, name)[1]:,}")
    rate = f"{optimizer.learning_rate:g}, {optimizer.schedule}"
    if optimizer.clip_norm is not None:
        rate += f", clip {optimizer.clip_norm:g}"
    return [
        preset,
        "ours",
        str(config.model.hidden),
        str(config.data.batch_size),
        f"{epochs:.0f}",
        f"{config.model.state_dropout:g}",
        optimizer.name.capitalize(),
        rate,
        *counts,
    ]


def table4() -> str:
    """Settings of the language models beside the paper's."""
    names = list(next(iter(paper.PTB_SETTINGS.values())))
    rows = []
    for preset, quoted in paper.PTB_SETTINGS.items():
        rows.append([preset, "paper", *quoted.values()])
        rows.append([preset, "ours", *_language(PRESETS[preset])])
    return analysis.render_table(["preset", "", *names], rows)


def _language(config: Config) -> list[str]:
    """What a preset has in the columns of Table 4."""
    model, optimizer, window = config.model, config.train.optimizer, config.data.window
    epoch = -(-PTB_ROW // window)
    return [
        "-" if model.init_scale is None else f"{model.init_scale:g}",
        str(model.num_layers),
        str(model.hidden),
        str(config.data.batch_size),
        f"{optimizer.learning_rate:g}",
        f"{optimizer.decay_rate:.4g} after epoch {optimizer.decay_begin // epoch}",
        f"{config.train.num_steps // epoch}",
        f"{model.layer_dropout:g}",
        str(window),
    ]
