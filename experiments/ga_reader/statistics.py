"""One-sided tests between readers, tables 5 and 6, and the tests of proportions."""

from collections.abc import Mapping

from experiments.core.comparison import SEEDS, K, p_text, paragraphs, these_runs
from experiments.core.kinds import Json
from experiments.core.origins import NOT_RUN, join_remarks, origin_of, other_data
from experiments.core.paper import Job
from experiments.core.records import (
    COLLAPSED,
    Records,
    Store,
    alive,
    count_each,
    format_average,
    has_collapsed,
    read_json,
)
from experiments.core.text import SPLITS, correctness
from experiments.ga_reader import reported
from experiments.ga_reader.config import PRESETS, feature_of
from experiments.ga_reader.experiment import source_of
from gatedjax import analysis
from gatedjax.analysis._significance import McNemar, Proportion


def accuracy_text(records: Records, part: str = "test", digits: int = 2) -> str:
    """Formats the mean and deviation over the seeds of the accuracy of a part, in percent."""
    return format_average(records, lambda record: 100 * record[part]["accuracy"], digits)


def one_sided(first: Records, second: Records) -> list[McNemar]:
    """Runs exact McNemar tests of whether the first reader is better. There is a test for each seed
    that both have. Raises ValueError if the test sets differ in size."""
    a, b = ({record["seed"]: record for record in records} for records in (first, second))
    tests = []
    for seed in sorted(a.keys() & b.keys()):
        if a[seed]["test_n"] != b[seed]["test_n"]:
            raise ValueError(
                f"records of {a[seed]['data']}, seed {seed}: test_n must be equal, got "
                f"{a[seed]['test_n']} / {b[seed]['test_n']}; run them again with --rerun"
            )
        right, other = correctness([a[seed], b[seed]])
        tests.append(analysis.mcnemar(right, other, alternative="greater"))
    return tests


def one_sided_texts(pairs: Mapping[K, tuple[Records, Records]]) -> dict[K, str]:
    """Formats one-sided p-values by seed with their counts; the p-values are not corrected. A pair
    has no p-value if it has fewer than three common seeds or a collapsed run."""
    texts = {}
    for key, pair in pairs.items():
        tests = one_sided(*pair)
        counts = [f"({test.b} : {test.c})" for test in tests]
        if not tests:
            texts[key] = NOT_RUN
        # A test against a run that collapsed would show the collapse and no effect of the system.
        elif any(map(has_collapsed, (*pair[0], *pair[1]))):
            texts[key] = COLLAPSED
        elif len(tests) < SEEDS:
            texts[key] = f"{these_runs(len(tests))} {', '.join(counts)}"
        else:
            texts[key] = ", ".join(
                f"{p_text(test.p_value)} {of}" for test, of in zip(tests, counts, strict=True)
            )
    return texts


def count(job: Job) -> None:
    """Counts the data sets that can be loaded here, and writes statistics.json."""

    def count_questions(name: str) -> Json:
        parts: Json = {}
        differ: list[str | None] = []
        words: set[str] = set()
        longest = 0
        for split in SPLITS:
            source = source_of(PRESETS[name].data.name, split, job.options)
            for example in source:
                words.update(map(str.lower, (*example["tokens"], *example["query"])))
                longest = max(longest, len(example["tokens"]))
            parts[split] = {
                "questions": len(source),
                "set_aside": len(source.quarantine),
                "notes": dict(source.report.notes),
            }
            differ.append(source.info.substitute)
        return {**parts, "substitute": join_remarks(differ), "words": len(words), "max": longest}

    count_each(
        job.options.results / "statistics.json", job.data, count_questions, rerun=job.options.rerun
    )


def table5(store: Store) -> str:
    """Renders table 5, the sizes of the data sets in the paper and here, as Markdown."""
    path = store.folder / "statistics.json"
    counts = read_json(path) if path.exists() else {}
    headings = ["data", "whose", "train", "validation", "test", "words", "longest document"]
    headings += ["set aside", "out of the ordinary"]
    rows, origins = [], []
    for data, name in reported.NAMES.items():
        paper_counts, counts_here = reported.STATISTICS.get(data), counts.get(data)
        if paper_counts is not None:
            rows.append([name, "paper", *(f"{number:,}" for number in paper_counts), "-", "-"])
        if counts_here is not None:
            parts = {split: counts_here[split] for split in SPLITS}
            numbers = [*(part["questions"] for part in parts.values())]
            numbers += [counts_here["words"], counts_here["max"]]
            numbers.append(sum(part["set_aside"] for part in parts.values()))
            notes = sorted(
                f"{split}, {remark}: {n:,}"
                for split, part in parts.items()
                for remark, n in part["notes"].items()
            )
            other = other_data([counts_here])
            source = "counted, other data" if other else "counted"
            origins += [f"- {name}: {origin_of(counts_here)}."] * other
            rows.append([name, source, *(f"{n:,}" for n in numbers), "; ".join(notes) or "none"])
        elif paper_counts is not None:
            rows.append([name, "counted", *[NOT_RUN] * 5, "-", "-"])
    return paragraphs(analysis.render_table(headings, rows), "\n".join(origins))


def table6(store: Store) -> str:
    """Renders table 6, the tuned values of the paper, the presets and the runs, as Markdown."""
    headings = ["data", "dropout: paper", "preset", "runs", "GRU width: paper", "preset", "runs"]
    headings.append("characters")
    rows = []
    for data, (dropout, width) in reported.TUNED.items():
        model = PRESETS[data].model
        spelt, letters = "none", model.characters
        if letters.char_dim:
            spelt = f"{letters.char_dim}-d, GRU {letters.char_hidden}"
        networks = [record["config"]["model"] for record in store.any_of(data)]
        row = [reported.NAMES[data]]
        for name, theirs in (("dropout", dropout), ("hidden", width)):
            values = sorted({network[name] for network in networks})
            row += [f"{theirs:g}", f"{getattr(model, name):g}"]
            row.append(", ".join(f"{value:g}" for value in values) or NOT_RUN)
        rows.append([*row, spelt])
    return analysis.render_table(headings, rows)


def proportions(store: Store) -> str:
    """Renders the one-sample tests of proportions of section 4.2, for the paper and ours, as
    Markdown."""
    headings = ["data", "second best (quoted)", "its test (%)", "GA test (%)", "whose", "questions"]
    headings += ["z", "p, one-sided", "p in the paper"]
    rows, tests = [], {}
    records = {data: store.all(data, feature_of(data)) for data in reported.PROPORTIONS}
    for data, (_, second, *_) in reported.PROPORTIONS.items():
        living = alive(records[data])
        # The accuracy that the paper quotes is on its data, so that only runs on them can be
        # compared.
        if len(living) >= SEEDS and not other_data(living):
            mean = analysis.summary([record["test"]["accuracy"] for record in living]).mean
            tests[data] = analysis.proportion_test(mean, second / 100, living[0]["test_n"])
    for data, (name, second, accuracy, n, p) in reported.PROPORTIONS.items():
        # The accuracies of the paper are tested too, which shows whether its test is the same.
        test = analysis.proportion_test(accuracy / 100, second / 100, n)
        row = [reported.NAMES[data], name, f"{second:.1f}"]
        rows.append([*row, f"{accuracy:.1f}", "paper", f"{n:,}", *_format_test(test), p])
        ours, source, cells = records[data], "ours", ("-", "-")
        if other_data(ours):
            row, source = [row[0], "-", "-"], "ours, other data"
        elif data in tests:
            cells = _format_test(tests[data])
        elif ours:
            cells = "-", these_runs(len(alive(ours))) if alive(ours) else COLLAPSED
        size = f"{ours[0]['test_n']:,}" if ours else "-"
        rows.append([*row, accuracy_text(ours, digits=1), source, size, *cells, "-"])
    return analysis.render_table(headings, rows)


def _format_test(test: Proportion) -> tuple[str, str]:
    p = f"{test.p_value:.5f}" if test.p_value >= 1e-5 else "<0.00001"
    return f"{test.z:.3f}", p
