"""Tables 5 and 6 and the proportion tests: counts of the data sets, tuned values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.core.collapse import COLLAPSED
from experiments.core.origins import joined, origin_of, other_data, substitute_of
from experiments.core.records import NOT_RUN, alive, averaged, read_json, refuse_other, write_json
from experiments.core.comparison import ONE_SEED, paragraphs
from experiments.ga_reader import paper
from experiments.ga_reader.config import PRESETS
from experiments.ga_reader.data import SOURCES, SPLITS
from experiments.ga_reader.results import Store
from experiments.ga_reader.variants import feature_of
from gatedjax import analysis
from gatedjax._terminal import say

if TYPE_CHECKING:
    from experiments.ga_reader.tables import TablesConfig


def count(options: TablesConfig, names: Sequence[str]) -> None:
    """Counts every data set that can be had here; writes statistics.json."""
    from gatedjax import data as gdata

    path = options.results / "statistics.json"
    known = read_json(path) if path.exists() else {}
    for name in names:
        loaded = PRESETS[name].data.name
        paths: dict[str, Any] = {}
        if loaded != "two_facts":
            paths = {"data_dir": options.data_dir, "manual_dir": options.manual_dir}
        found: dict[str, Any] = {}
        differ: list[str | None] = []
        words: set[str] = set()
        longest = 0
        try:
            for split in SPLITS:
                source = gdata.load(SOURCES.get(loaded, loaded), split, **paths)
                for example in source:
                    words.update(map(str.lower, (*example["tokens"], *example["query"])))
                    longest = max(longest, len(example["tokens"]))
                found[split] = {
                    "questions": len(source),
                    "set_aside": len(source.quarantine),
                    "notes": dict(source.report.notes),
                }
                differ.append(source.info.substitute)
        except (FileNotFoundError, ValueError) as error:
            say(f"{name}: not counted: {error}", flush=True)
            continue
        found["substitute"] = joined(differ)
        found |= {"words": len(words), "max": longest}
        if name in known:
            earlier = known[name] | {"substitute": substitute_of(known[name])}
            refuse_other(path, f"count of {name}", earlier, found, rerun=options.rerun)
        known[name] = found
        say(f"{name}: counted", flush=True)
    write_json(path, known)


def table5(store: Store) -> str:
    """Sizes of the data sets: the paper's and those that were counted here."""
    path = store.folder / "statistics.json"
    known = read_json(path) if path.exists() else {}
    headers = ["data", "whose", "train", "validation", "test", "words", "longest document"]
    headers += ["set aside", "out of the ordinary"]
    rows, notes_below = [], []
    for data, name in paper.NAMES.items():
        quoted = paper.STATISTICS.get(data)
        if quoted is not None:
            rows.append([name, "paper", *(f"{quoted[k]:,}" for k in quoted), "-", "-"])
        if data in known:
            found = known[data]
            sizes = [f"{found[split]['questions']:,}" for split in SPLITS]
            aside = sum(found[split]["set_aside"] for split in SPLITS)
            notes = {
                f"{split}, {what}: {n:,}"
                for split in SPLITS
                for what, n in found[split]["notes"].items()
            }
            whose = "counted, other data" if other_data([found]) else "counted"
            if other_data([found]):
                notes_below.append(f"- {name}: {origin_of(found)}.")
            row = [name, whose, *sizes, f"{found['words']:,}", f"{found['max']:,}"]
            rows.append([*row, f"{aside:,}", "; ".join(sorted(notes)) or "none"])
        elif quoted is not None:
            rows.append([name, "counted", *[NOT_RUN] * 5, "-", "-"])
    return paragraphs(analysis.render_table(headers, rows), "\n".join(notes_below))


def table6() -> str:
    """The tuned values, and whether the presets have them."""
    headers = ["data", "dropout: paper", "preset", "GRU width: paper", "preset", "characters"]
    rows = []
    for data, (dropout, width) in paper.TUNED.items():
        model = PRESETS[data].model
        spelt = f"{model.char_dim}-d, GRU {model.char_hidden}" if model.char_dim else "none"
        row = [paper.NAMES[data], f"{dropout:g}", f"{model.dropout:g}"]
        rows.append([*row, str(width), str(model.hidden), spelt])
    return analysis.render_table(headers, rows)


def proportions(store: Store) -> str:
    """One-sample proportion tests of section 4.2, on the paper's accuracies and on ours."""
    headers = ["data", "second best (quoted)", "its test (%)", "GA test (%)", "whose", "questions"]
    headers += ["z", "p, one-sided", "p in the paper"]
    rows, ours = [], {}
    for data, (_, known, *_) in paper.PROPORTIONS.items():
        records = alive(store.all(data, feature_of(data)))
        if len(records) > 1 and not other_data(records):
            mean = analysis.summary([record["test"]["accuracy"] for record in records]).mean
            ours[data] = analysis.proportion_test(mean, known / 100, records[0]["test_n"])
    corrected = dict(zip(ours, analysis.holm([t.p_value for t in ours.values()]), strict=True))
    for data, (name, known, accuracy, n, p) in paper.PROPORTIONS.items():
        test = analysis.proportion_test(accuracy / 100, known / 100, n)
        row = [paper.NAMES[data], name, f"{known:.1f}"]
        rows.append([*row, f"{accuracy:.1f}", "paper", f"{n:,}", *_shown(test), p])
        records = store.all(data, feature_of(data))
        if not records:
            rows.append([*row, NOT_RUN, "ours", "-", "-", "-", "-"])
            continue
        reached = averaged(records, lambda record: 100 * record["test"]["accuracy"], 1)
        size = f"{records[0]['test_n']:,}"
        if other_data(records):
            rows.append([row[0], "-", "-", reached, "ours, other data", size, "-", "-", "-"])
        elif data in ours:
            found = ours[data]._replace(p_value=float(corrected[data]))
            rows.append([*row, reached, "ours", size, *_shown(found), "-"])
        else:
            why = ONE_SEED if alive(records) else COLLAPSED
            rows.append([*row, reached, "ours", size, "-", why, "-"])
    return analysis.render_table(headers, rows)


def _shown(test: analysis.Proportion) -> tuple[str, str]:
    p = f"{test.p_value:.5f}" if test.p_value >= 1e-5 else "<0.00001"
    return f"{test.z:.3f}", p
