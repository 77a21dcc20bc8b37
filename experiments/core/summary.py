"""The first sections of RESULTS.md: sentences, a chart, the tables of claims and of numbers."""

from collections.abc import Iterable, Mapping, Sequence

from experiments.core.claims import TOLERANCE, Finding, Number
from experiments.core.comparison import SEEDS
from experiments.core.kinds import Record, Records
from experiments.core.origins import OFFICIAL, marks_of, origin_of, remarks_of
from experiments.core.records import LAST, Store
from experiments.core.verdict import LEVEL, WORDS, Word, mark
from gatedjax import analysis

SUBSET = ".subset.txt"
"""The end of the name of a file with a part of the vectors of GloVe."""
CHART = "claims"
"""The name of the chart's files, without suffix."""
NOTE = "These sentences come from the records. The table of claims has the numbers."
RULES = (
    "Positive differences favour the system of the claim, in points of accuracy or as named. "
    f"Reproduced: ours is above 0 (corrected p < {LEVEL}), and the paper's difference is not ruled "
    "out. Smaller: it is ruled out, and our 95 % interval is above 0. Ruled out: it is ruled out, "
    "and 0 is inside our interval or above it. Undecided: neither. The paper's difference is ruled "
    f"out if it is above ours (corrected p < {LEVEL}) as a difference of two single runs with our "
    'spread of seeds; "95 % of single runs" is the interval of such differences. Where the paper '
    "gives no size, every gain is ruled out if ours is below 0 (corrected). The parameters that "
    f"validation chose and those of the last step have to agree. A verdict needs {SEEDS} seeds of "
    "both systems. The test is `gatedjax.analysis.two_way_test`, over seeds and test examples; p "
    "are corrected together (Holm) over the claims of this page, separately at the last step. The "
    'chance is that of "reproduced" if the paper\'s difference is true; below 20 % the row says so.'
)
"""The rule of `verdict.decide`, for the note of the table of claims."""
NUMBERS_NOTE = (
    "Accuracy in %, or the metric that stands beside the data, with the parameters that validation "
    "chose. The interval is of the difference of our mean to the paper's number, by Student's t "
    "over our seeds; the paper gives no interval. A number of the paper's method is reproduced if "
    f"ours is less than {TOLERANCE:g} point below it (perplexity: {TOLERANCE:g} % above it) by a "
    "one-sided test at 5 %, where validation chose and at the last step, and ruled out if a single "
    f"run with our spread of seeds could not reach it (corrected p < {LEVEL}). It needs {SEEDS} "
    "seeds."
)


def join(parts: Sequence[str]) -> str:
    """Joins parts of a sentence: "A", "A and B", or "A, B and C"."""
    *early, last = parts
    return f"{', '.join(early)} and {last}" if early else last


def opening(numbers: Sequence[Number], otherwise: str) -> str:
    """Returns the first paragraph of a page: our numbers of the method and of its baselines."""
    gaps: dict[str, list[float]] = {}
    methods = {number.system for number in numbers if number.is_method}
    for number in numbers:
        # Other metrics have other scales, so that they get separate sentences below.
        if number.unit == "points":
            gaps.setdefault(number.system, []).append(number.ours - number.paper)
    sentences = [
        f"**{system} is {_distance(values)}.**"
        for system, values in gaps.items()
        if system in methods
    ]
    words = [number.word for number in numbers if number.word is not None]
    if words:
        amounts = [_amount(words.count(word), word) for word in WORDS if word in words]
        text = f"it is {words[0]}" if len(words) == 1 else join(amounts)
        sentences.append(f"By the rule for numbers {text}.")
    baselines = {system: values for system, values in gaps.items() if system not in methods}
    kinds = {
        "stronger": [name for name, values in baselines.items() if min(values) > 0],
        "weaker": [name for name, values in baselines.items() if max(values) < 0],
    }
    for kind, names in kinds.items():
        if names:
            sizes = [f"{name} by {_range(baselines[name])} points" for name in names]
            which = "Other systems" if len(names) > 1 else "Another system"
            verb = "are" if len(names) > 1 else "is"
            sentences.append(f"{which} of the paper {verb} {kind} here: {join(sizes)}.")
    sentences += [
        f"{name} is {-min(values):.1f} points below to {max(values):.1f} points above the paper's "
        "numbers."
        for name, values in baselines.items()
        if not any(name in names for names in kinds.values())
    ]
    for unit, label in dict.fromkeys((n.unit, n.label) for n in numbers if n.unit != "points"):
        chosen = [n for n in numbers if (n.unit, n.label) == (unit, label)]
        ours = join([f"{n.ours:.1f} for {n.system}" for n in chosen])
        theirs = join([f"{n.paper:.1f}" for n in chosen])
        sentences.append(
            f"On {label} the {unit}, where less is better, is {ours}; the paper has {theirs}."
        )
        sentences += [f"For {n.system}: {n.remark}." for n in chosen if n.remark]
    return " ".join(sentences) or otherwise


def _distance(gaps: Sequence[float]) -> str:
    if max(map(abs, gaps)) <= 1:
        return f"within {max(map(abs, gaps)):.1f} points of the paper's numbers"
    if min(gaps) > 0:
        return f"{_range(gaps)} points above the paper's numbers"
    if max(gaps) < 0:
        return f"{_range(gaps)} points below the paper's numbers"
    return f"{-min(gaps):.1f} points below to {max(gaps):.1f} points above the paper's numbers"


def _range(gaps: Sequence[float]) -> str:
    """Formats the sizes of gaps with one sign: "1.6 to 2.9", or a single number."""
    sizes = sorted(map(abs, gaps))
    low, high = f"{sizes[0]:.1f}", f"{sizes[-1]:.1f}"
    # The texts are compared, because different numbers may be printed alike.
    return low if low == high else f"{low} to {high}"


def _amount(number: int, word: Word) -> str:
    """Returns "3 are undecided", "1 is ruled out", "none is reproduced" or "none was not run"."""
    singular, plural = ("was", "were") if word == "not run" else ("is", "are")
    return f"{number or 'none'} {plural if number > 1 else singular} {word}"


def count(findings: Iterable[Finding]) -> str:
    """Returns a paragraph with the number of comparisons and their results."""
    findings = list(findings)
    words = [finding.word for finding in findings]
    # All comparisons were run: a sentence with "none was not run" would be hard to read.
    shown = [word for word in WORDS if word != "not run" or "not run" in words]
    amounts = join([_amount(words.count(word), word) for word in shown])
    text = f"**Of {len(findings)} comparisons {amounts}.**"
    few = sum(finding.word == "undecided" and finding.chosen is None for finding in findings)
    if few:
        text += (
            f" Of the undecided comparisons {few} {'have' if few > 1 else 'has'} fewer than "
            f"{SEEDS} seeds, a run that collapsed, or networks that do not learn the task."
        )
    hardly = sum(finding.could_hardly_show for finding in findings)
    if hardly:
        text += (
            f" Of the comparisons that are not reproduced {hardly} could hardly have been, with "
            "so few seeds."
        )
    return text


def lines(by_claim: Mapping[str, Sequence[Finding]]) -> list[str]:
    """Returns lines of Markdown: each claim with its results, and the claims without a run."""
    text, unrun = [], []
    for claim, findings in by_claim.items():
        if not findings:
            continue
        if all(finding.word == "not run" for finding in findings):
            reasons = dict.fromkeys(part for finding in findings for part in finding.case.remarks)
            unrun.append(f"{claim} ({join(list(reasons))})" if reasons else claim)
            continue
        parts = []
        for word in WORDS:
            places = [finding.place for finding in findings if finding.word == word]
            if places:
                parts.append(f"{mark(word)} on {join(places)}")
        text.append(f"- {claim}: {'; '.join(parts)}.")
    if unrun:
        text.append(f"- {mark('not run')}: {'; '.join(unrun)}.")
    return text


def chart_link(store: Store, title: str, findings: Sequence[Finding]) -> str:
    """Returns the chart as a Markdown image; "" if it has not been drawn."""
    # The file is looked up, because a link to a missing picture would be broken.
    if not (store.folder / f"{CHART}.svg").exists():
        return ""
    return f"![{chart_title(title, findings)}]({CHART}.svg)"


def chart_title(title: str, findings: Sequence[Finding]) -> str:
    """Returns the title of the chart: the number of each result."""
    words = [finding.word for finding in findings]
    amounts = [_amount(words.count(word), word) for word in WORDS if word in words]
    return f"{title} here and in the paper: of {len(words)} comparisons {join(amounts)}"


def claims_table(findings: Iterable[Finding]) -> str:
    """Returns the table of all claims, as Markdown."""
    # The verdict stands before the numbers, because a small screen shows only the first columns.
    headings = ["claim", "data", "verdict", "paper"]
    for ours, lead in (("ours", ""), (LAST, f"{LAST}, ")):
        tests = ("95 % interval", "p: no gain", "95 % of single runs", "p: the paper's")
        headings += [ours, *(lead + test for test in tests)]
    headings.append("chance")
    return analysis.render_table(headings, [finding.cells() for finding in findings])


def numbers_table(numbers: Sequence[Number]) -> str:
    """Returns the table of the paper's numbers and ours, as Markdown."""
    headings = ["system", "data", "verdict", "paper", "ours", "ours minus paper", "95 % interval"]
    headings += [LAST, "remark"]
    rows = []
    for number in numbers:
        metric = "" if number.unit == "points" else f", {number.unit}"
        verdict = "-" if number.word is None else mark(number.word)
        verdict += "; exceeded" * number.is_exceeded
        row = [number.system, number.label + metric, verdict, f"{number.paper:g}", number.text]
        row += [f"{number.ours - number.paper:+.2f}"]
        if number.interval is None:
            row += ["-"]
        else:
            low, high = (end - number.paper for end in number.interval)
            row += [f"[{low:+.2f}, {high:+.2f}]"]
        row += [f"{analysis.summary(number.last).mean:.2f}" if number.last else "-"]
        rows.append([*row, number.remark or "-"])
    return analysis.render_table(headings, rows)


def data_lines(names: Mapping[str, str], records: Mapping[str, Records]) -> list[str]:
    """Returns lines with the origin of the data: the official files, or a substitute."""
    official, substitutes = [], []
    for name, ours in records.items():
        origins = list(dict.fromkeys(map(origin_of, ours)))
        if origins == [OFFICIAL]:
            official.append(names.get(name, name))
        else:
            substitutes.append(f"- Other data for {names.get(name, name)}: {', '.join(origins)}.")
    if official:
        substitutes.insert(0, f"- Official files for {join(official)}.")
    return substitutes


def vectors_line(records: Iterable[Record]) -> str:
    """Returns a line with the substitutes for the paper's word vectors; "" without a substitute."""
    remarks = [part for record in records for part in remarks_of(record)]
    vectors = dict.fromkeys(
        remark.removeprefix("word vectors ") for remark in remarks if "word vectors" in remark
    )
    return f"- Word vectors: {'; '.join(vectors)}." if vectors else ""


def settings_lines(names: Mapping[str, str], records: Mapping[str, Records]) -> list[str]:
    """Returns lines with settings that can carry a result: cut texts, and a part of a file."""
    cut: dict[str, list[str]] = {}
    parts: dict[str, list[str]] = {}
    for name, ours in records.items():
        label = names.get(name, name)
        for record in ours:
            data = record["config"].get("data", {})
            if name_of_cut := next((m for m in marks_of([record]) if "cut at" in m), None):
                cut.setdefault(name_of_cut, []).append(label)
            if str(data.get("embeddings")).endswith(SUBSET):
                parts.setdefault(data["embeddings"], []).append(label)
    lines = [f"- {join(list(dict.fromkeys(of)))}: {mark}." for mark, of in cut.items()]
    return lines + [
        f"- The word vectors of {join(list(dict.fromkeys(of)))} are {file}, the vectors of GloVe "
        "for the words of the data sets."
        for file, of in parts.items()
    ]
