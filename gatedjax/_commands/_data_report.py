"""The report of `gatedjax data check` as text."""

from pathlib import Path

from gatedjax._utils.terminal import clean, say
from gatedjax.analysis import render_table
from gatedjax.data.account._check import Report
from gatedjax.data.account._compare import QUANTILES


def print_report(report: Report, limit: int) -> None:
    """Prints the report of a data set, with at most `limit` of the quarantined lines."""
    say(f"{report.name}: {report.origin}\n")
    _print_files(report)
    _print_quarantine(report, limit)
    _print_texts(report)
    _print_overlaps(report)
    for problem in report.problems:
        say(f"FAILED: {problem}")


def _print_files(report: Report) -> None:
    """Prints a table of the files of a data set, with the uses of their lines and notes."""
    # Each reason for which lines are left out becomes a column, because files differ in them.
    reasons = list(dict.fromkeys(reason for file in report.files for reason in file.skipped))
    rows, notes = [], []
    for file in report.files:
        skipped = [file.skipped.get(reason, 0) for reason in reasons]
        counts: tuple = (file.lines, file.used, *skipped, len(file.quarantine))
        name = file.file if "(" in file.file else Path(file.file).name
        if file.error is not None:
            # A file that was not read has no counts, and a 0 would look like a result.
            counts = ("missing" if file.missing else "unreadable", *[None] * (len(counts) - 1))
        elif file.official is not None and file.lines != file.official:
            notes.append(
                f"note: {name} has {file.lines:,} {file.unit}, the official file {file.official:,}"
            )
        rows.append((file.part, name, *counts, file.official))
    unit = report.files[0].unit
    left_out = [f"{reason} (left out)" for reason in reasons]
    headers = ("part", "file", unit, "used", *left_out, "quarantined", f"official {unit}")
    say(render_table(headers, rows))
    if notes:
        say("\n".join(notes) + "\n")
    for file in report.files:
        if file.notes:
            text = ", ".join(f"{kind}: {count:,}" for kind, count in file.notes.items())
            say(f"Among the used of {file.part}: {text}\n")
        if file.spans is not None:
            skipped_spans = [f"{count:,} {reason}" for reason, count in file.spans.skipped.items()]
            parts = ", ".join([f"{file.spans.used:,} used", *skipped_spans])
            say(f"Labelled spans of {file.part}: {file.spans.found:,} = {parts}\n")


def _print_quarantine(report: Report, limit: int) -> None:
    """Prints the first `limit` lines that could not be used, each with its file and the reason."""
    if not report.quarantine:
        return
    say(f"Quarantined: {len(report.quarantine)}")
    for line in report.quarantine[:limit]:
        say(f"  {clean(str(line))}")
    hidden = len(report.quarantine) - limit
    if hidden > 0:
        say(f"  ... and {hidden} more (--limit {len(report.quarantine)} shows all)")
    say()


def _print_texts(report: Report) -> None:
    """Prints tables of the texts, the labels and the lengths of each split in a report."""
    if not report.splits:
        return
    # More splits than official parts mean that validation is a share of the training part.
    if len(report.splits) > len({file.part for file in report.files}):
        say("train and validation are the official training part: a fixed share is held out.\n")
    rows = []
    for split in report.splits:
        n = len(split.lengths)
        rows.append((split.split, n, split.empty, split.repeated, split.conflicting))
    say(render_table(("split", "texts", "empty", "repeated", "label conflicts"), rows))
    say(
        f"Texts (lower-cased tokens) that have different labels somewhere in the set: "
        f"{report.conflicting}\n"
    )
    classes = list(report.splits[0].class_counts)
    shares = []
    for name in classes:
        row = [name]
        for split in report.splits:
            count = split.class_counts[name]
            row += [str(count), f"{100 * count / len(split.lengths):.1f}"]
        shares.append(row)
    headers = ["label"]
    for split in report.splits:
        headers += [split.split, "%"]
    say(render_table(headers, shares))
    names = {0.0: "shortest", 0.5: "median", 1.0: "longest"}
    headers = ["tokens", *(names.get(q, f"{100 * q:.0f}%") for q in QUANTILES), "mean"]
    say(
        render_table(
            headers,
            [(s.split, *s.length_quantiles(), f"{s.lengths.mean():.1f}") for s in report.splits],
        )
    )


def _print_overlaps(report: Report) -> None:
    """Prints the texts of a split that another split has too, because they flatter a test."""
    if not report.overlaps:
        return
    say("Overlap (the same lower-cased tokens):")
    for pair in report.overlaps:
        share = 100 * pair.count / pair.total
        say(
            f"  {pair.second} texts that are also in {pair.first}: {pair.count} of "
            f"{pair.total} ({share:.2f}%)"
        )
        for first, second, text in pair.examples:
            excerpt = clean(text)
            excerpt = excerpt if len(excerpt) <= 60 else f"{excerpt[:57]}..."
            say(f"    {second} = {first}: {excerpt}")
    say()
