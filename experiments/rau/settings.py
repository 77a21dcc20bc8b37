"""Tables 2 and 4: settings, which need no run."""

import dataclasses

from experiments.rau import paper
from experiments.rau.config import PRESETS, TRAIN_EXAMPLES
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
    for cell in paper.CELLS:
        model = dataclasses.replace(config.model, cell=cell)  # type: ignore[arg-type]
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
        if preset not in PRESETS:
            rows.append([preset, "ours", *["no preset"] * len(names)])
            continue
        config = PRESETS[preset]
        known = {
            "hidden": config.model.hidden,
            "batch": config.data.batch_size,
            "learning rate": config.train.optimizer.learning_rate,
        }
        rows.append([preset, "ours", *(f"{known[n]:g}" if n in known else "-" for n in names)])
    return analysis.render_table(["preset", "", *names], rows)
