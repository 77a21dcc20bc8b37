"""A survey of labelled texts before training: counts, lengths, scripts, copies and the split."""

import collections
import dataclasses
import functools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gatedjax._utils.terminal import clean, join_first, render_count
from gatedjax._utils.types import Json
from gatedjax.data.text._tokenize import EMOJI
from gatedjax.text._options import TextOptions
from gatedjax.text.answers._prediction import LABELS, REGRESSION, TARGETS
from gatedjax.text.corpus import _corpus
from gatedjax.text.corpus._tagged import read_tagged
from gatedjax.text.sources._conll import SentenceTable
from gatedjax.text.sources._labels import Label
from gatedjax.text.sources._table import Asides, Record, Table
from gatedjax.text.targets import TARGET_OF, WITHOUT_CLASSES

_QUANTILES = {0.0: "shortest", 0.05: "5 %", 0.5: "median", 0.95: "95 %", 1.0: "longest"}
_FEATURES = {
    "links": re.compile(r"https?://\S|\bwww\.\w"),
    "@user": re.compile(r"(?<!\w)@\w"),
    "#tag": re.compile(r"(?<!\w)#[^\W\d]"),
    "emoji": re.compile(EMOJI),
    "entities": re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|amp|lt|gt|quot|nbsp|apos);"),
}
"""The parts of posts that `--tokens social` does not split."""
# The defaults of a training: the words of a text that a network reads, and the validation share.
_MAX_LEN, _HELD_OUT = 400, 0.1
# Tokens of the first text that are printed: a survey should fit on a screen.
_SAMPLE = 24


def survey_texts(
    table: Table,
    task: str,
    *,
    tokens: str | None = None,
    order: Sequence[str] | None = None,
    max_aside: float,
) -> Json:
    """Reads labelled texts as a training would; "problems" are the messages that would stop it."""
    table = table.load()
    report = _count(table, task)
    places = TARGET_OF[task].make_places(None)
    try:
        corpus, numbers = _corpus.read_training(table, lowercase=True, tokens=tokens, places=places)
        counts = list(corpus.class_counts.values())
        target = TARGET_OF[task].of_labels(corpus.classes, counts, TextOptions(order=order))
        targets, strata = _corpus.encode_corpus(corpus, target)
    except ValueError as error:
        return report | {"problems": [str(error)]}
    if task in ("text", LABELS) and (note := _corpus.note_joined_labels(corpus.classes)):
        report["joined_labels"] = note
    if task in TARGETS:
        report["targets"] = target.render_source(targets)
    first = next(row.inputs[0] for row in table if isinstance(row, Record))
    sample = numbers.tokenizer.split(first, _SAMPLE + 1)
    units = numbers.tokenizer.units
    report |= _measure_words(corpus, numbers, _MAX_LEN if task == "pair" else None)
    report["duplicates"] = dataclasses.asdict(_corpus.find_duplicates(corpus))
    report["tokens"] = {
        "kind": numbers.tokenizer.kind,
        "units": None if units is None else len(units.counts),
        "different": len(numbers.ids),
        "sample": [*sample[:_SAMPLE], *["..."] * (len(sample) > _SAMPLE)],
    }
    single = _corpus.list_single(strata, target, targets)
    return report | _split(strata, task, max_aside, single)


def survey_tags(table: SentenceTable, *, max_aside: float) -> Json:
    """Reads tagged sentences as a training would, and returns a dict as `survey_texts` does."""
    numbers = _corpus.Numbers(lowercase=False)
    corpus = read_tagged(table, numbers, longest=_MAX_LEN)
    by_count = sorted(corpus.class_counts.items(), key=lambda pair: -pair[1])
    return {
        "name": corpus.name,
        "texts": len(corpus),
        "classes": [list(pair) for pair in by_count],
        "aside": _aside(corpus.asides) | {"reasons": {}},
        **_measure_words(corpus, numbers, _MAX_LEN),
        **_split(corpus, "tags", max_aside, []),
    }


def _count(table: Table, task: str) -> Json:
    """Returns the entries of a survey that need no usable labels."""
    asides = Asides(table.name)
    records: list[Record] = list(asides.sift(table))
    labels = [row.label if isinstance(row.label, tuple) else (row.label,) for row in records]
    # True is counted separately, because 1 equals True. The numbers 1 and 1.0 are a single class,
    # as in training.
    counts = collections.Counter(
        (isinstance(label, bool), label) for group in labels for label in group
    )
    features = {
        name: sum(pattern.search(" ".join(row.inputs)) is not None for row in records)
        for name, pattern in _FEATURES.items()
    }
    return {
        "name": table.name,
        "columns": {
            "names": table.source.names and list(table.source.names),
            "text": list(table.found.inputs),
            "label": table.found.label,
        },
        "texts": len(records),
        "classes": [[label, n] for (_, label), n in counts.most_common() if task != REGRESSION],
        "several_labels": sum(len(group) > 1 for group in labels),
        "aside": _aside(asides),
        "features": {name: n for name, n in features.items() if n},
    }


def _aside(asides: Asides) -> Json:
    first = [str(aside) for aside in asides.first]
    return {"lines": asides.count, "reasons": dict(asides.reasons.most_common()), "first": first}


def _measure_words(corpus: _corpus.Corpus, numbers: _corpus.Numbers, max_len: int | None) -> Json:
    """Returns the lengths of the texts, and the share of each script in all letters."""
    columns = [rows.lengths for rows in corpus.texts]
    # The limit is on each text; the words of both texts of a pair count for the quantiles.
    lengths, longest = np.sum(columns, axis=0), np.max(columns, axis=0)
    quantiles = np.quantile(lengths, list(_QUANTILES), method="nearest")
    # Scripts are counted for each different word, because most words occur many times.
    times = _corpus.count_words(corpus.texts, numbers)
    letters: collections.Counter[str] = collections.Counter()
    for word, count in zip(numbers.ids, times.tolist(), strict=True):
        for char in filter(str.isalpha, word):
            letters[_script(char)] += count
    total = max(letters.total(), 1)
    return {
        "words": {
            "total": int(lengths.sum()),
            "quantiles": dict(zip(_QUANTILES.values(), quantiles.tolist(), strict=True)),
            "max_len": max_len,
            "longer": 0 if max_len is None else int(np.sum(longest > max_len)),
        },
        "scripts": {script: count / total for script, count in letters.most_common()},
    }


@functools.cache
def _script(char: str) -> str:
    first = unicodedata.name(char, "OTHER").split()[0]
    return "Han" if first == "CJK" else first.title()


def _split(corpus: _corpus.Corpus, task: str, max_aside: float, single: Sequence[Label]) -> Json:
    """Returns "problems" and, if there is a split, "split"."""
    problems = []
    try:
        corpus.asides.check(len(corpus), max_aside)
    except ValueError as error:
        problems.append(str(error))
    try:
        _corpus.check_trainable(corpus, split=True, has_classes=task not in WITHOUT_CLASSES)
    except ValueError as error:
        return {"problems": [*problems, str(error)]}
    training, validation = _corpus.split_training(corpus, _HELD_OUT)
    split = {"training": len(training), "validation": len(validation)}
    return {"split": split | {"single_text_classes": single}, "problems": problems}


def render_survey(report: Json, train: str) -> Iterator[str]:
    """Yields the lines of a survey for a terminal; `train` is the next command."""
    tagged = "columns" not in report
    unit, noun = ("sentence", "tags") if tagged else ("text", "classes")
    classes, problems = report["classes"], report["problems"]
    kinds = noun if len(classes) != 1 else {"classes": "class", "tags": "tag"}[noun]
    size = f"{render_count(report['texts'], unit)}, {len(classes):,} {kinds}"
    targets = report.get("targets")
    yield f"{clean(report['name'])}: {clean(targets) if targets else size}"
    yield f"model: {report['model']}"
    if not tagged and report["columns"]["names"] is not None:
        yield _render_columns(**report["columns"])
    total = max(sum(n for _, n in classes), 1)
    if classes:
        shares = [f"{clean(str(label))} {n:,} ({n / total:.1%})" for label, n in classes]
        yield f"{'labels' if targets else noun}: {join_first(shares)}"
    if note := report.get("joined_labels"):
        yield clean(note)
    if several := report.get("several_labels"):
        yield f"several labels: {render_count(several, 'text')}"
    if words := report.get("words"):
        quantiles = ", ".join(f"{name} {n:,}" for name, n in words["quantiles"].items())
        yield f"words: {words['total']:,}; of a {unit}: {quantiles}"
        if words["longer"]:
            long = render_count(words["longer"], unit)
            yield f"long: {long} with more than {words['max_len']:,} words (--max-len)"
        shares = [f"{name} {share:.1%}" for name, share in report["scripts"].items()]
        yield f"letters: {join_first([text for text in shares if not text.endswith(' 0.0%')])}"
    if duplicates := report.get("duplicates"):
        yield from _render_duplicates(_corpus.Duplicates(**duplicates))
    yield from _render_aside(**report["aside"], unit=unit if tagged else "line")
    if tokens := report.get("tokens"):
        yield from _render_tokens(tokens, report["features"])
    if split := report.get("split"):
        yield from _render_split(split, unit)
    yield from (f"training would stop: {clean(problem)}" for problem in problems)
    if not problems:
        yield f"next: {train}"


def _render_columns(names: Sequence[str], text: Sequence[str], label: str) -> str:
    other = [clean(name) for name in names if name and name not in (*text, label)]
    also = f"; not read: {join_first(other)}" if other else ""
    return f"columns: {' and '.join(map(clean, text))} (text), {clean(label)} (label){also}"


def _render_duplicates(duplicates: _corpus.Duplicates) -> Iterator[str]:
    copies, *contradictions = duplicates.render() or ["no text occurs more than once"]
    same = "; equal texts stay on one side of the split" if duplicates.copies else ""
    yield f"copies: {copies}{same}"
    yield from (f"contradictions: {clean(sentence)}" for sentence in contradictions)


def _render_aside(
    lines: int, reasons: Mapping[str, int], first: Sequence[str], unit: str
) -> Iterator[str]:
    if not lines:
        yield f"set aside: no {unit}s"
        return
    listing = join_first([f"{n:,} x {clean(reason)}" for reason, n in reasons.items()])
    yield f"set aside: {render_count(lines, unit)}{': ' * bool(listing)}{listing}"
    yield f"  the first: {'; '.join(first)}"


def _render_tokens(tokens: Json, features: Mapping[str, int]) -> Iterator[str]:
    learned = tokens["units"]
    units = f", with {learned:,} learned units of scripts without spaces" if learned else ""
    yield f"tokens: {tokens['kind']}, {tokens['different']:,} different{units}; the first text is"
    yield f"  {' | '.join(map(clean, tokens['sample']))}"
    if features and tokens["kind"] == "words":
        counts = ", ".join(f"{name} in {render_count(n, 'text')}" for name, n in features.items())
        yield f"  {counts}: --tokens social keeps them whole"


def _render_split(split: Json, unit: str) -> Iterator[str]:
    training = render_count(split["training"], unit)
    yield f"split: {training} for training, {split['validation']:,} for validation"
    if single := split["single_text_classes"]:
        yield f"  {_corpus.render_single(single)}"
