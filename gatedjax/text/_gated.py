"""A trained GA-Net and labelled texts, from the folder of a run or of `gatedjax train`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax import data as gdata
from gatedjax import export
from gatedjax._utils.types import Json, Params
from gatedjax.data.batches._plan import pad_rows
from gatedjax.export._card import check_kind
from gatedjax.models import GANet
from gatedjax.text.models import _folders
from gatedjax.text.models._network import TrainedModel, open_ga_net
from gatedjax.text.sources._labels import Classes
from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import Aside, Columns

# Number of words of a text that are stored, because the analysis reads short texts only.
_WIDTH = 32


@dataclasses.dataclass(frozen=True, eq=False)
class GatedTexts:
    """A network with gates and texts for it, as input of an analysis of gates."""

    title: str
    model: GANet
    params: Params
    batch: dict[str, np.ndarray]  # "tokens" [B, T], and "lengths", "label", "example_id" [B]
    aside: int = 0  # number of lines that could not be used


def is_run(folder: Path) -> bool:
    """Returns True for the folder of a run or its export, False for a model of `gatedjax train`."""
    if not _folders.is_exported(folder):
        return True
    return check_kind(export.read_config(folder), ("text", "run"), folder) == "run"


def _check_gates(system: object, folder: Path) -> None:
    if system != "ganet":
        raise ValueError(f"{folder} must hold a GA-Net with gates, got the network {system!r}")


def open_run(
    folder: Path,
    *,
    data: str | None = None,
    data_dir: str | Path | None = None,
    manual_dir: str | Path | None = None,
) -> GatedTexts:
    """Opens a run of GA-Net, or its export, with its best parameters and its test texts."""
    trained, texts = open_ga_net(folder)
    _check_gates(trained.network, folder)
    with _folders.explain_faults(folder):
        name = texts["name"]
        cut = {"max_len": texts["max_len"], "truncate_side": texts["truncate_side"]}
    if data is not None and data != name:
        raise ValueError(
            f"data must be {name!r}, on which {folder} was trained, got {data!r}: leave it out"
        )
    source = gdata.load(name, "test", data_dir=data_dir, manual_dir=manual_dir)
    if trained.classes != (classes := source.info.class_names):
        raise ValueError(
            f"{folder / _folders.CLASSES} must name the classes of {name!r}, "
            f"{list(classes)!r:.80}, got others: use the data with which the run was trained"
        )
    encoded = gdata.encode(source, trained.vocabulary, **cut)
    batch = _batch(encoded.ids, encoded.labels, encoded.example_ids)
    title = f"{folder.resolve().name}: GA-Net on {name}, test"
    network: Any = trained.module
    return GatedTexts(title, network, trained.params, batch)


def open_own(
    folder: Path,
    file: str | Path,
    *,
    text: str = "text",
    label: str = "label",
    encoding: str = "utf-8",
) -> GatedTexts:
    """Opens a model that `gatedjax train` wrote, and the labelled texts of a file."""
    trained = TrainedModel.load(folder, ("text",))
    if not trained.entry.gated:
        _check_gates(trained.network, folder)
    table = open_table(str(file), Columns((text,), label), encoding=encoding)
    classes = Classes("label", trained.classes)
    ids, labels, aside = [], [], 0
    for record in table:
        words = () if isinstance(record, Aside) else trained.all_tokens(record.inputs)[0]
        if isinstance(record, Aside) or record.label is None or not words:
            aside += 1
            continue
        # Each window of a long text counts as a text.
        for (window,) in trained.list_windows([(words,)])[0]:
            ids.append(trained.ids(window))
            labels.append(classes.place(record.label, record.where, record.line))
    if not ids:
        raise ValueError(
            f"{table.name} must have a labelled text, got none ({aside} lines cannot be used)"
        )
    network: Any = trained.module
    title = f"{folder.resolve().name} on {Path(file).name}"
    batch = _batch(ids, np.array(labels), np.arange(len(ids)))
    return GatedTexts(title, network, trained.params, batch, aside)


def _batch(ids: Sequence[np.ndarray], labels: np.ndarray, numbers: np.ndarray) -> Json:
    width = min(max(map(len, ids)), _WIDTH)
    return {
        "tokens": pad_rows([row[:width] for row in ids], (len(ids), width)),
        "lengths": np.array([len(row) for row in ids], np.int32),
        "label": np.asarray(labels, np.int32),
        "example_id": np.asarray(numbers, np.int32),
    }
