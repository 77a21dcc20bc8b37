"""Figures 1, 4 and 5 and the tables that show texts: 1 (statistics) and 4 (open words)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.common.records import alive, read_json, refuse_other, write_json
from experiments.ga_net import paper
from experiments.ga_net.config import SystemName
from experiments.ga_net.results import Store
from gatedjax import analysis
from gatedjax._terminal import new_console, say

if TYPE_CHECKING:
    from experiments.ga_net.run import RunResult
    from experiments.ga_net.tables import TablesConfig


def table1(options: TablesConfig, names: tuple[str, ...]) -> None:
    """Counts every data set that can be had here; writes table1.json."""
    from experiments.ga_net.run import SOURCES
    from gatedjax import data as gdata

    path = options.results / "table1.json"
    known = read_json(path) if path.exists() else {}
    for name in names:
        sources = {}
        try:
            for split in ("train", "validation", "test"):
                sources[split] = gdata.load(
                    SOURCES.get(name, name),
                    split,
                    data_dir=options.data_dir,
                    manual_dir=options.manual_dir,
                )
        except (FileNotFoundError, ValueError) as error:
            say(f"{name}: not counted: {error}", flush=True)
            continue
        found: dict[str, Any] = {
            split: dataclasses.asdict(gdata.dataset_statistics(source))
            for split, source in sources.items()
        }
        found["substitute"] = sources["train"].info.substitute
        refuse_other(path, f"count of {name}", known.get(name), found, rerun=options.rerun)
        known[name] = found
        say(f"{name}: counted", flush=True)
    write_json(path, known)


@dataclasses.dataclass(frozen=True)
class Inspected:
    """One text under one trained model."""

    tokens: tuple[str, ...]
    attention: np.ndarray
    gates: np.ndarray | None
    predicted: str
    label: str


def inspect(result: RunResult, encoded: Any, indices: Sequence[int]) -> list[Inspected]:
    """Runs the trained model on some examples of an encoded split.

    The gates are those of evaluation, whatever batch an example is in: noise is keyed by example.
    """
    import jax

    model, rows = result.task.model, min(len(indices), 128)
    forward = jax.jit(
        lambda params, batch: model.apply(
            {"params": params}, batch, rngs={"gate": jax.random.key(result.task.eval_seed)}
        )
    )
    size = max(len(encoded.ids[index]) for index in indices)
    names = encoded.info.class_names
    found = []
    for start in range(0, len(indices), rows):
        chunk = list(indices[start : start + rows])
        tokens = np.zeros((rows, size), np.int32)
        for line, index in zip(tokens, chunk, strict=False):
            line[: len(encoded.ids[index])] = encoded.ids[index]
        padded = chunk + [chunk[0]] * (rows - len(chunk))
        batch = {
            "tokens": tokens,
            "lengths": np.count_nonzero(tokens, axis=1).astype(np.int32),
            "example_id": np.asarray([encoded.example_ids[i] for i in padded], np.int32),
        }
        output = jax.device_get(forward(result.fit.best_params, batch))
        for row, index in enumerate(chunk):
            length = len(encoded.ids[index])
            found.append(
                Inspected(
                    tokens=tuple(encoded.tokens(index)[:length]),
                    attention=output.attention[row, :length],
                    gates=None if output.gates is None else output.gates[row, :length],
                    predicted=names[int(np.argmax(output.logits[row]))],
                    label=names[int(encoded.labels[index])],
                )
            )
    return found


def find(encoded: Any, beginning: str) -> int | None:
    """The index of the first text that contains these words, spaces and case aside."""
    wanted = "".join(beginning.lower().split())
    for index in range(len(encoded)):
        if wanted in "".join(encoded.tokens(index)).lower():
            return index
    return None


def trained(options: TablesConfig, data: str, system: str) -> RunResult:
    """Trains seed 0 of a system of table 2, or takes it from its finished work folder."""
    from experiments.ga_net.run import run
    from experiments.ga_net.tables import prepared_for, run_config

    workdir = options.runs / f"{data}-{system}-seed0"
    config = run_config(options, data, 0, system=system)
    config = dataclasses.replace(config, workdir=str(workdir))
    return run(config, prepared_for(config))


def figure4(options: TablesConfig) -> list[Path]:
    """Three-model heat maps of the paper's two SST-2 test sentences."""
    names: tuple[SystemName, ...] = ("ganet", "soft", "local")
    results = {name: trained(options, "sst2", name) for name in names}
    written = []
    for number, sentence in enumerate(paper.FIGURE4, start=1):
        rows: list[tuple[str, Any, Any, Any]] = []
        label = ""
        for name, result in results.items():
            encoded = result.prepared.test
            index = find(encoded, sentence)
            if index is None:
                raise ValueError(f"the SST-2 test split has no sentence {sentence!r}")
            (seen,) = inspect(result, encoded, [index])
            label = seen.label
            title = f"{paper.SYSTEMS[name]}: {seen.predicted}"
            rows.append((title, seen.tokens, seen.attention, seen.gates))
        stem = options.results / f"figure4_{number}"
        analysis.plot_heatmap(rows, stem, title=f"SST-2 test sentence {number}, label: {label}")
        written += [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        say(f"wrote {stem}.png and .svg", flush=True)
    return written


def table4(options: TablesConfig) -> Path:
    """The open words of the paper's two IMDB test reviews, in the terminal and as HTML."""
    data = options.data[0] if options.data else "imdb"
    result = trained(options, data, "ganet")
    encoded = result.prepared.test
    found = [find(encoded, text) for text in paper.TABLE4]
    if data == "imdb" and None in found:
        missing = [t for t, index in zip(paper.TABLE4, found, strict=True) if index is None]
        say(f"not in this copy of the test set (or cut off): {missing}; first texts instead")
    indices = [i if i is not None else n for n, i in enumerate(found)]
    console = new_console()
    examples = []
    for seen in inspect(result, encoded, indices):
        opened = 0 if seen.gates is None else int((seen.gates > 0).sum())
        caption = (
            f"label {seen.label}, predicted {seen.predicted}, "
            f"{opened} of {len(seen.tokens)} words open"
        )
        examples.append((caption, seen.tokens, seen.attention, seen.gates))
        console.print(f"\n{caption}", style="italic")
        console.print(analysis.highlight_terminal(seen.tokens, seen.attention, seen.gates))
    # The texts belong to the data set: the page stays beside the run, outside the results.
    path = options.runs / "table4.html"
    title = f"Words that GA-Net attends to: {data} test reviews"
    analysis.write_html(path, analysis.highlight_html(examples, title))
    say(f"\nwrote {path}", flush=True)
    return path


def figure5(options: TablesConfig, names: tuple[str, ...]) -> Path:
    """Auxiliary width against accuracy and density."""
    from experiments.ga_net.config import PRESETS

    store = Store(options.results)
    series: dict[str, dict[str, list[tuple[float, float, float]]]] = {"accuracy": {}, "density": {}}
    for data in names:
        for metric, lines in series.items():
            points = []
            for width in paper.AUX_WIDTHS:
                same = width == PRESETS[data].model.aux_hidden
                records = alive(store.all(data, "ganet" if same else f"ganet_width_{width}"))
                values = [record["test"][metric] for record in records]
                if values:
                    summary = analysis.summary(values)
                    points.append((float(width), summary.mean, summary.std or 0.0))
            lines[data] = points
    stem = options.results / "figure5"
    analysis.plot_lines(series, stem, xlabel="width of the auxiliary LSTM")
    say(f"wrote {stem}.png and .svg", flush=True)
    return stem.with_suffix(".png")
