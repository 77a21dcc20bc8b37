"""A survey of labelled texts before training: counts, lengths, scripts, copies and the split."""

import collections
import dataclasses
import functools
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax._utils.terminal import clean, render_count
from gatedjax._utils.types import Json
from gatedjax.data.text._social import EMOJI
from gatedjax.text import _corpus
from gatedjax.text._asides import Asides
from gatedjax.text._copies import Duplicates, find_duplicates, single_text_classes
from gatedjax.text._corpus import Corpus, Numbers
from gatedjax.text._prediction import LABELS, REGRESSION, TARGETS
from gatedjax.text._read import Aside, Table
from gatedjax.text._table import match_names
from gatedjax.text._tagged import read_tagged
from gatedjax.text._tags import SentenceTable
from gatedjax.text._target_base import TargetOptions
from gatedjax.text._target_corpus import (
    WITHOUT_CLASSES,
    check_strata,
    count_left_out,
    encode_corpus,
    list_single,
    note_joined_labels,
    read_target,
    split_strata,
    stratify_corpus,
)
from gatedjax.text._targets import TARGET_OF

QUANTILES = {0.0: "shortest", 0.05: "5 %", 0.5: "median", 0.95: "95 %", 1.0: "longest"}
_FEATURES = {
    "links": re.compile(r"https?://\S|\bwww\.\w"),
    "@user": re.compile(r"(?<!\w)@\w"),
    "#tag": re.compile(r"(?<!\w)#[^\W\d]"),
    "emoji": re.compile(EMOJI),
    "entities": re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|amp|lt|gt|quot|nbsp|apos);"),
}
"""The parts of posts that `--tokens social` does not split."""
MAX_LEN = 400
"""The number of words of a text that a network reads if no other number is given."""
# Items of a list, and tokens of the first text, that are printed: a survey should fit on a screen.
_SHOWN = 12
_SAMPLE = 24


def survey_texts(
    table: Table,
    *,
    held_out: float,
    max_aside: float,
    max_len: int | None,
    lowercase: bool,
    task: str = "text",
    order: Sequence[str] | None = None,
    min_class: int = 1,
    **tokens: Any,
) -> Json:
    """Reads labelled texts as a training would, and returns a dict for JSON. "problems" are the
    messages with which a training would stop; after some of them entries are missing.
    """
    asides = Asides(table.name)
    counts: collections.Counter[tuple[bool, Any]] = collections.Counter()
    features: collections.Counter[str] = collections.Counter()
    used = several = 0
    sample = ""
    for record in table:
        if isinstance(record, Aside):
            asides.add(record)
            continue
        used += 1
        sample = sample or record.inputs[0]
        labels = record.label if isinstance(record.label, tuple) else (record.label,)
        several += len(labels) > 1
        # True is counted apart, because 1 equals True. The numbers 1 and 1.0 are a single class, as
        # in training.
        if task != REGRESSION:
            counts.update((isinstance(label, bool), label) for label in labels)
        texts = " ".join(record.inputs)
        features.update(name for name, pattern in _FEATURES.items() if pattern.search(texts))
    report: Json = {
        "name": table.name,
        "columns": _columns(table),
        "texts": used,
        "classes": [[label, n] for (_, label), n in counts.most_common()],
        "several_labels": several,
        "aside": _aside(asides),
        "features": {name: features[name] for name in _FEATURES if features[name]},
    }
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gatedjax-") as folder:
        try:
            if task in WITHOUT_CLASSES:
                tokens |= {"classes": (), "places": TARGET_OF[task].make_places(None)}
            else:
                tokens["min_class"] = min_class
            corpus, numbers = _corpus.read_training(
                table, Path(folder), lowercase=lowercase, check_labels=False, **tokens
            )
            duplicates = dataclasses.asdict(find_duplicates(corpus))
            if task in ("text", LABELS) and (note := note_joined_labels(corpus.classes)):
                report["joined_labels"] = note
            if task in TARGETS:
                options = TargetOptions(order=order, min_class=min_class)
                target = read_target(corpus, task, options)
                left_out = count_left_out(corpus, target)
                targets = encode_corpus(corpus, target)
                report["targets"] = target.render_source(targets)
                corpus = stratify_corpus(corpus, target, targets)
        except ValueError as error:
            return report | {"problems": [str(error)]}
        report |= {
            "words": _words(corpus, max_len),
            "scripts": _scripts(corpus, numbers),
            "duplicates": duplicates,
            "tokens": _tokens(numbers, sample),
        }
        for check in (
            lambda: asides.check(len(corpus), max_aside),
            lambda: _corpus.check_classes(
                corpus.name, len(corpus.classes), len(corpus), labels=corpus.classes
            ),
        )[: 1 if task in WITHOUT_CLASSES else 2]:
            problems += _problem(check)
        report |= _split(corpus, held_out, problems, task)
        if task in WITHOUT_CLASSES and "split" in report:
            report["split"]["single_text_classes"] = list_single(corpus, target, targets)
            report["split"]["left_out"] = [[label, n] for label, n in left_out.items()]
    return report


def survey_tags(
    table: SentenceTable, *, held_out: float, max_aside: float, max_len: int, lowercase: bool
) -> Json:
    """Reads tagged sentences as a training would, and returns a dict for JSON, with "problems" as
    in `survey_texts`.
    """
    numbers = Numbers(lowercase=lowercase)
    with tempfile.TemporaryDirectory(prefix="gatedjax-") as folder:
        corpus = read_tagged(table, Path(folder), "train", numbers, longest=max_len)
        by_count = sorted(corpus.class_counts.items(), key=lambda pair: -pair[1])
        report: Json = {
            "name": corpus.name,
            "texts": len(corpus),
            "classes": [list(pair) for pair in by_count],
            "aside": {"lines": corpus.aside, "reasons": {}, "first": list(corpus.first_aside)},
            "words": _words(corpus, max_len),
            "scripts": _scripts(corpus, numbers),
        }
        report["aside"]["first"] = [str(aside) for aside in corpus.first_aside]
        share = corpus.aside / (corpus.aside + len(corpus))
        problems = []
        if share > max_aside:
            problems.append(
                f"{corpus.name}: {corpus.aside:,} sentences cannot be used ({share:.1%}, must be "
                f"at most {max_aside:.1%}): {report['aside']['first'][0]}"
            )
        return report | _split(corpus, held_out, problems)


def _split(corpus: Corpus, held_out: float, problems: list[str], task: str = "text") -> Json:
    """Returns a dict with "split" and "problems", for the report of a survey."""
    more = _problem(lambda: check_strata(corpus, task, split=True))
    if more:
        return {"problems": [*problems, *more]}
    training, validation = split_strata(corpus, held_out)
    split = {
        "training": len(training),
        "validation": len(validation),
        "single_text_classes": single_text_classes(corpus),
        "left_out": [[label, n] for label, n in corpus.left_out.items()],
    }
    return {"split": split, "problems": problems}


def _problem(check: Any) -> list[str]:
    try:
        check()
    except ValueError as error:
        return [str(error)]
    return []


def _columns(table: Table) -> Json:
    names, columns = table.form.names, table.columns
    if names is None:
        return {"names": None, "text": list(columns.inputs), "label": columns.label}
    matched = match_names(names, columns)
    count = len(columns.inputs)
    return {"names": list(names), "text": list(matched[:count]), "label": matched[count]}


def _aside(asides: Asides) -> Json:
    first = [str(aside) for aside in asides.first]
    return {"lines": asides.count, "reasons": dict(asides.reasons.most_common()), "first": first}


def _words(corpus: Corpus, max_len: int | None) -> Json:
    """Returns a dict with "total", the number of words, "quantiles", "max_len" and "longer"."""
    lengths = np.sum([np.diff(rows.starts) for rows in corpus.texts], axis=0)
    # The limit is on each text; the words of both texts of a pair count for the quantiles.
    longest = np.max([np.diff(rows.starts) for rows in corpus.texts], axis=0)
    quantiles = np.quantile(lengths, list(QUANTILES), method="nearest")
    return {
        "total": int(lengths.sum()),
        "quantiles": dict(zip(QUANTILES.values(), quantiles.tolist(), strict=True)),
        "max_len": max_len,
        "longer": 0 if max_len is None else int(np.sum(longest > max_len)),
    }


@functools.cache
def _script(char: str) -> str:
    first = unicodedata.name(char, "OTHER").split()[0]
    return "Han" if first == "CJK" else first.title()


def _scripts(corpus: Corpus, numbers: Numbers) -> Json:
    """Returns a dict from the name of each script, such as "Latin", to its share of all letters."""
    # Scripts are counted for each different word, because most words occur many times.
    times = np.zeros(len(numbers.ids), np.int64)
    for rows in corpus.texts:
        for piece in rows.pieces():
            times += np.bincount(piece, minlength=len(times))
    letters: collections.Counter[str] = collections.Counter()
    for word, count in zip(numbers.ids, times.tolist(), strict=True):
        for char in word:
            if char.isalpha():
                letters[_script(char)] += count
    total = max(letters.total(), 1)
    return {script: count / total for script, count in letters.most_common()}


def _tokens(numbers: Numbers, sample: str) -> Json:
    """Describes the tokenizer of `numbers`, with the tokens of the text `sample`."""
    rule = numbers.tokenizer
    tokens = rule.split(sample, _SAMPLE + 1)
    return {
        "kind": rule.kind,
        "units": None if rule.units is None else len(rule.units.counts),
        "different": len(numbers.ids),
        "sample": list(tokens[:_SAMPLE]) + ["..."] * (len(tokens) > _SAMPLE),
    }


def render_survey(report: Json, train: str) -> Iterator[str]:
    """Yields the lines of a survey for a terminal."""
    tagged = "columns" not in report
    unit, noun = ("sentences", "tags") if tagged else ("texts", "classes")
    classes = report["classes"]
    kinds = noun if len(classes) != 1 else {"classes": "class", "tags": "tag"}[noun]
    size = f"{render_count(report['texts'], unit[:-1])}, {len(classes):,} {kinds}"
    targets = report.get("targets")
    yield f"{clean(report['name'])}: {clean(targets) if targets else size}"
    if model := report.get("model"):
        yield f"model: {model}"
    if not tagged:
        yield from _render_columns(report["columns"])
    total = max(sum(n for _, n in classes), 1)
    listing = _list([f"{clean(str(label))} {n:,} ({n / total:.1%})" for label, n in classes])
    if classes:
        yield f"{noun if not targets else 'labels'}: {listing}"
    if note := report.get("joined_labels"):
        yield clean(note)
    if report.get("several_labels"):
        yield f"several labels: {render_count(report['several_labels'], 'text')}"
    if words := report.get("words"):
        quantiles = ", ".join(f"{name} {n:,}" for name, n in words["quantiles"].items())
        yield f"words: {words['total']:,}; of a {unit[:-1]}: {quantiles}"
        if words["longer"]:
            yield (
                f"long: {render_count(words['longer'], unit[:-1])} with more than "
                f"{words['max_len']:,} words (--max-len)"
            )
    if scripts := report.get("scripts"):
        shares = ((name, f"{share:.1%}") for name, share in scripts.items())
        yield f"letters: {_list([f'{name} {text}' for name, text in shares if text != '0.0%'])}"
    if duplicates := report.get("duplicates"):
        yield from _render_duplicates(duplicates)
    yield from _render_aside(report["aside"], unit if tagged else "lines")
    if tokens := report.get("tokens"):
        yield from _render_tokens(tokens, report["features"])
    yield from _render_split(report, unit, train)


# The next functions yield lines of `render_survey` about the entry of the report with their name.
def _render_columns(columns: Json) -> Iterator[str]:
    if columns["names"] is None:
        return
    columns_read = [*columns["text"], columns["label"]]
    other = [name for name in columns["names"] if name and name not in columns_read]
    texts = " and ".join(clean(name) for name in columns["text"])
    also = f"; not read: {_list([clean(name) for name in other])}" if other else ""
    yield f"columns: {texts} (text), {clean(str(columns['label']))} (label){also}"


def _render_duplicates(duplicates: Json) -> Iterator[str]:
    sentences = Duplicates(**duplicates).render() or ["no text occurs more than once"]
    for name, sentence in zip(("copies", "contradictions"), sentences, strict=False):
        same = "; equal texts stay on one side of the split" if name == "copies" else ""
        yield f"{name}: {clean(sentence)}{same if duplicates['copies'] else ''}"


def _render_aside(aside: Json, unit: str) -> Iterator[str]:
    """Yields lines about the lines that were set aside: their number, the reasons, the first."""
    if not aside["lines"]:
        yield f"set aside: no {unit}"
        return
    reasons = [f"{n:,} x {clean(reason)}" for reason, n in aside["reasons"].items()]
    first = "; ".join(aside["first"])
    listing = f": {_list(reasons)}" if reasons else ""
    yield f"set aside: {render_count(aside['lines'], unit[:-1])}{listing}"
    yield f"  the first: {first}"


def _render_tokens(tokens: Json, features: Mapping[str, int]) -> Iterator[str]:
    learned = tokens["units"]
    units = f", with {learned:,} learned units of scripts without spaces" if learned else ""
    yield f"tokens: {tokens['kind']}, {tokens['different']:,} different{units}; the first text is"
    yield f"  {' | '.join(map(clean, tokens['sample']))}"
    if features and tokens["kind"] == "words":
        counts = ", ".join(f"{name} in {render_count(n, 'text')}" for name, n in features.items())
        yield f"  {counts}: --tokens social keeps them whole"


def _render_split(report: Json, unit: str, train: str) -> Iterator[str]:
    """Yields lines about the split and the problems, and the next command if there are none."""
    if split := report.get("split"):
        yield (
            f"split: {render_count(split['training'], unit[:-1])} for training, "
            f"{split['validation']:,} for validation"
        )
        if single := split["single_text_classes"]:
            listing = _list([clean(str(label)) for label in single])
            yield (
                "  classes with a single text, which are learned and which validation cannot "
                f"check: {listing} (--min-class 2 leaves them out)"
            )
        if left_out := split["left_out"]:
            listing = _list([f"{clean(str(label))} {n:,}" for label, n in left_out])
            yield f"  classes that --min-class leaves out: {listing}"
    if report["problems"]:
        for problem in report["problems"]:
            yield f"training would stop: {clean(problem)}"
    else:
        yield f"next: {train}"


def _list(items: Sequence[str] | Iterable[str]) -> str:
    items = list(items)
    more = f" and {len(items) - _SHOWN:,} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
