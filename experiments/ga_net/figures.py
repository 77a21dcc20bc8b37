"""Figures 1, 4 and 5 and the tables that show texts: 1 (statistics) and 4 (open words)."""

import collections
import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from experiments.core.command import run_of
from experiments.core.experiment import Run
from experiments.core.kinds import Array, Json
from experiments.core.origins import NOT_RUN
from experiments.core.paper import Job
from experiments.core.records import Store, alive, count_each, read_json
from experiments.core.text import SPLITS, load_splits
from experiments.ga_net import reported
from experiments.ga_net.experiment import SOURCES, texts_of
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax._utils.terminal import new_console, say


def count(job: Job) -> None:
    """Counts each data set that is available here; writes table1.json."""

    def count_splits(name: str) -> Json:
        sources = load_splits(SOURCES.get(name, name), job.options)
        parts = {split: count_texts(source) for split, source in sources.items()}
        return {**parts, "substitute": sources["train"].info.substitute}

    count_each(job.options.results / "table1.json", job.data, count_splits, rerun=job.options.rerun)


def count_texts(source: gdata.Source) -> Json:
    """Counts the texts, words and classes of a split; its vocabulary is in lower case."""
    lengths = [len(example["tokens"]) for example in source]
    labels = collections.Counter(example["label"] for example in source)
    classes = source.info.class_names
    return {
        "name": source.info.name,
        "split": source.info.split,
        "n": len(lengths),
        "mean_length": round(float(np.mean(lengths)), 3) if lengths else 0.0,
        "max_length": max(lengths, default=0),
        "num_classes": len(classes),
        "class_counts": {name: labels[place] for place, name in enumerate(classes)},
        "vocabulary_size": len({word.lower() for example in source for word in example["tokens"]}),
    }


def statistics(store: Store) -> str:
    """Returns table 1 for the data sets that were counted."""
    path = store.folder / "table1.json"
    counts = read_json(path) if path.exists() else {}
    headings = ["data", "paper: length", "C", "train", "test"]
    headings += ["ours: length", "C", "train", "validation", "test", "words"]
    rows = []
    for data, (length, classes, train, test) in reported.STATISTICS.items():
        row = [reported.NAMES[data], str(length), str(classes), train, test]
        if data not in counts:
            rows.append([*row, NOT_RUN, *["-"] * 5])
            continue
        parts = [counts[data][split] for split in SPLITS]
        # The paper has one length per data set, so the means of the splits are weighted by their
        # numbers of texts.
        mean = sum(part["n"] * part["mean_length"] for part in parts) / sum(p["n"] for p in parts)
        row += [f"{mean:.1f}", str(len(parts[0]["class_counts"]))]
        rows.append([*row, *(str(part["n"]) for part in parts), str(parts[0]["vocabulary_size"])])
    return analysis.render_table(headings, rows)


@dataclasses.dataclass(frozen=True)
class Inspected:
    """A text under a trained model: its words, their weights and gates (if any), and its class."""

    tokens: tuple[str, ...]
    attention: np.ndarray
    gates: np.ndarray | None
    predicted: str
    label: str


class Inspector:
    """Runs a trained model on examples of an encoded split.

    The gates are those of evaluation, independent of the other examples of a batch, because the
    noise of an example depends only on its id.

    Args:
      run: the run with the model.
      encoded: the split.
    """

    def __init__(self, run: Run, encoded: gdata.Encoded) -> None:
        model, seed = run.task.model, run.task.eval_seed
        self._params, self._encoded = run.fit.best_params, encoded
        self._forward = jax.jit(
            lambda params, batch: model.apply(
                {"params": params}, batch, rngs={"gate": jax.random.key(seed)}
            )
        )

    def inspect(
        self, indices: Sequence[int], keep: Sequence[np.ndarray] | None = None
    ) -> list[Inspected]:
        """Runs the model on examples. `keep` has for each example a bool [T], True at the words
        that the model reads. The remaining words are removed from the text."""
        # All batches have the same shape, so that a single program is compiled.
        encoded, rows = self._encoded, min(len(indices), 128)
        size = max(len(encoded.ids[index]) for index in indices)
        names = encoded.info.class_names
        places = [np.arange(len(encoded.ids[index])) for index in indices]
        if keep is not None:
            places = [np.flatnonzero(mask) for mask in keep]
        inspected = []
        for start in range(0, len(indices), rows):
            chunk = list(zip(indices, places, strict=True))[start : start + rows]
            tokens = np.zeros((rows, size), np.int32)
            for line, (index, words) in zip(tokens, chunk, strict=False):
                line[: len(words)] = np.asarray(encoded.ids[index])[words]
            # The missing rows have the id of a real example but no tokens. Their output is not
            # read.
            padded = chunk + [chunk[0]] * (rows - len(chunk))
            batch = {
                "tokens": tokens,
                "lengths": np.count_nonzero(tokens, axis=1).astype(np.int32),
                "example_id": np.asarray([encoded.example_ids[i] for i, _ in padded], np.int32),
            }
            output = jax.device_get(self._forward(self._params, batch))
            for row, (index, words) in enumerate(chunk):
                texts, length = encoded.tokens(index), len(words)
                inspected.append(
                    Inspected(
                        tokens=tuple(texts[place] for place in words.tolist()),
                        attention=output.attention[row, :length],
                        gates=None if output.gates is None else output.gates[row, :length],
                        predicted=names[int(np.argmax(output.logits[row]))],
                        label=names[int(encoded.labels[index])],
                    )
                )
        return inspected


def find(encoded: gdata.Encoded, beginning: str) -> int | None:
    """Returns the index of the first text with these words, ignoring spaces and case, or None."""
    # Spaces are ignored, because versions of a data set differ in how they split words.
    letters = "".join(beginning.lower().split())
    for index in range(len(encoded)):
        if letters in "".join(encoded.tokens(index)).lower():
            return index
    return None


def trained_run(job: Job, data: str, system: str) -> tuple[Run, gdata.Encoded]:
    """Returns seed 0 of a system and its test texts. The run is trained now or read from its
    finished work folder."""
    config = job.config(data, system, 0)
    workdir = str(job.workdir(data, system, 0))
    run = run_of(job.paper, dataclasses.replace(config, workdir=workdir))
    return run, texts_of(config.data, config.model.embedding_dim).splits["test"]


def figure4(job: Job) -> None:
    """Draws heat maps of the paper's two SST-2 test sentences under three models."""
    results = {name: trained_run(job, "sst2", name) for name in ("ganet", "soft", "local")}
    for number, sentence in enumerate(reported.FIGURE4, start=1):
        rows: list[tuple[str, Sequence[str], Array, Array]] = []
        label = ""
        for name, (run, encoded) in results.items():
            index = find(encoded, sentence)
            if index is None:
                raise ValueError(
                    f"the test set of sst2 must have the sentence {sentence!r}, got none"
                )
            (seen,) = Inspector(run, encoded).inspect([index])
            label = seen.label
            title = f"{job.paper.variants[name].title}: {seen.predicted}"
            rows.append((title, seen.tokens, seen.attention, seen.gates))
        stem = job.options.results / f"figure4_{number}"
        analysis.plot_heatmap(rows, stem, title=f"The words that attention sees (SST-2, {label})")
        say(f"wrote {stem}.png and .svg")


def table4(job: Job) -> None:
    """Shows the open words of the paper's two IMDB test reviews, in the terminal and as HTML."""
    data = job.data[0]
    run, encoded = trained_run(job, data, "ganet")
    places = [find(encoded, text) for text in reported.TABLE4]
    if data == "imdb" and None in places:
        missing = [t for t, index in zip(reported.TABLE4, places, strict=True) if index is None]
        say(f"not in this copy of the test set (or cut off): {missing}; first texts instead")
    console = new_console()
    examples = []
    shown = [n if i is None else i for n, i in enumerate(places)]
    for seen in Inspector(run, encoded).inspect(shown):
        num_open = 0 if seen.gates is None else int((seen.gates > 0).sum())
        caption = (
            f"label {seen.label}, predicted {seen.predicted}, "
            f"{num_open} of {len(seen.tokens)} words open"
        )
        examples.append((caption, seen.tokens, seen.attention, seen.gates))
        console.print(f"\n{caption}", style="italic")
        console.print(analysis.highlight_terminal(seen.tokens, seen.attention, seen.gates))
    # The page is written to the work folders and not to the results, because its texts belong to
    # the data set.
    path = job.options.runs / "table4.html"
    title = f"Words that GA-Net attends to: {data} test reviews"
    analysis.write_html(path, analysis.highlight_html(examples, title))
    say(f"\nwrote {path}")


def figure5(job: Job) -> None:
    """Draws accuracy and density against the width of the auxiliary network."""
    series: dict[str, dict[str, list[tuple[float, float, float | None]]]] = {
        "accuracy": {},
        "density": {},
    }
    for data in job.data:
        for metric, lines in series.items():
            points = []
            for variant, width in zip(job.table.variants, reported.AUX_WIDTHS, strict=True):
                # A collapsed run has no density, and its accuracy is that of the most frequent
                # class.
                records = alive(job.store.all(data, job.paper.record_name(data, variant)))
                values = [record["test"][metric] for record in records]
                if values:
                    summary = analysis.summary(values)
                    points.append((float(width), summary.mean, summary.std))
            lines[reported.NAMES[data]] = points
    stem = job.options.results / "figure5"
    title = "Does a wider gate network open fewer words?"
    analysis.plot_lines(series, stem, xlabel="width of the auxiliary LSTM", title=title)
    say(f"wrote {stem}.png and .svg")
