"""What the tests of every paper's records and RESULTS.md share."""

import json

from experiments.core.command import options_of
from experiments.core.config import with_changes
from experiments.core.paper import Job


def config_of(paper, preset, seed, **model):
    """A preset with a seed and another network."""
    changes = {f"model.{name}": value for name, value in model.items()}
    return with_changes(paper.presets[preset], {"train.seed": seed, **changes})


def record_of(paper, config, correct, **more):
    """What a run of a classifier leaves, from which of its test examples are right."""
    return {
        "data": getattr(config.data, "name", config.preset),
        "substitute": None,
        "seed": config.train.seed,
        "config": paper.recorded(config),
        "stopped": "done",
        "steps": 9,
        "best_step": 7,
        "validation": {"accuracy": 0.5, "loss": 1.0},
        "test": {"accuracy": correct.count("1") / len(correct), "loss": 1.0},
        "test_last": {"accuracy": 0.25, "loss": 1.0},
        "test_n": len(correct),
        "correct": correct,
        "curve": [[5, 1.0, 0.5], [10, 0.5, 0.75]],
        "train_curve": [[5, 2.0, 0.25]],
        "seconds": 2.0,
        "seconds_per_step": 0.01,
        "hardware": {"device": "cpu", "devices": 1, "jax": "0"},
        **more,
    }


def save(store, data, variant, records):
    """Writes records to where a table would."""
    for record in records:
        path = store.path(data, variant, record["seed"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")


# of the data and the network, in the records of some paper
FACTS = {"system": "", "cell": "", "train_n": 9, "train_on": "phrases", "embedding_dim": 300,
         "parameters_without_embeddings": 9}  # fmt: skip


def store_of(paper, folder, cells, **more):
    """Returns a small store with records of the presets' runs.

    Args:
      paper: the paper.
      folder: where the records are written.
      cells: (data set, variant) -> which test examples are right ("1101"), by seed.
      **more: further fields of every record.
    """
    store = paper.store(folder)
    for (data, variant), rights in cells.items():
        job = Job(paper, options_of(paper)(what="render", seeds=len(rights)))
        cell = job.cell(data, variant)
        found = [
            record_of(paper, cell.configs[seed], right, **{**FACTS, **more})
            for seed, right in enumerate(rights)
        ]
        save(store, cell.data, cell.variant, found)
    return store


def rendered(paper, store):
    """RESULTS.md, from the records of a folder."""
    paper.write(store)
    return (store.folder / "RESULTS.md").read_text(encoding="utf-8")


def rows_of(text, heading):
    """The cells of every line of the table under a heading."""
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
