"""Every row of seven pages again, from the JSON files and NumPy alone: intervals, p and words.

The rule is that of docs/papers.md and of the notes in RESULTS.md; no code of the pages is used.
"""

import json

import numpy as np
import pytest
from scipy import stats

from tests.conftest import ROOT

RESULTS = ROOT / "experiments" / "results"
GA_NET = {
    f"GA-Net is better than BiLSTM{end}": ("ganet", name)
    for end, name in (("", "bilstm"), (" + localAtt", "local"), (" + softAtt", "soft"))
}
AGT = {
    "AGT is better than only s_0": ("agt", "agt_above0"),
    "AGT is better than s_0, s_1, s_2": ("agt", "agt_above2"),
    "AGT is better than the mean of the word vectors": ("agt", "average"),
}
GA_READER = {
    "Multiplying is better than adding": ("fix", "sum"),
    "Multiplying is better than concatenating": ("fix", "concat"),
    "Gating is better than none": ("fix", "no_gating"),
    "A query vector for each word is better than one for all": ("fix", "no_token_attention"),
    "Several hops are better than one": ("fix", "hops_1"),
    "Characters help": ("fix", "no_characters"),
    "The feature helps": ("feature_fix", "fix"),
}
RAU = {
    "RAU is better than GRU": ("rau", "gru"),
    "RAU is better than LSTM": ("rau", "lstm"),
    "RAU is better than GRU with as many parameters": ("rau_matched", "gru"),
}
SSAN = {
    "SSAN is better than SAN on tasks (selector in layer 1)": ("ssan_layer1", "san"),
    "SSAN is better than SAN at swapped words, by a recipe that learns them":
    ("ssan_layer1_local", "san_local"),
    "SSAN is better than SAN at moved words": ("ssan_layer1", "san"),
    "SSAN is better than SAN at probes of structure": ("ssan_layer1", "san"),
}  # fmt: skip
PAGES = {
    "ga_net": GA_NET,
    "ga_net/imdb_8_epochs": GA_NET,
    "agt/glove_100d": AGT,
    "agt/joined_400d": AGT,
    "ga_reader/steps_4000": GA_READER,
    "rau": RAU,
    "ssan": SSAN,
}
DATA = {"IMDB": "imdb", "SST-1": "sst1", "SST-2": "sst2", "TREC": "trec", "CBT-NE": "cbt_ne",
        "MNIST": "mnist", "Fashion-MNIST": "fashion_mnist", "PTB small": "ptb_small",
        "SICK": "nli_sick", "BShift": "bshift", "WRD, Multi30k": "wrd_small",
        "TreeDepth": "tree_depth", "TopConst": "top_const"}  # fmt: skip


def rows_of(folder):
    """The rows of the table of claims that have a corrected p."""
    page = (RESULTS / folder / "RESULTS.md").read_text(encoding="utf-8")
    lines = page.split("## Claims\n")[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if len(row) == 15 and row[6] not in ("-", "p: no gain", "")
            and not row[6].startswith("--")]  # fmt: skip


def read(folder, data, system):
    paths = (RESULTS / folder / "runs").glob(f"{data}-{system}-seed*.json")
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return {record["seed"]: record for record in records}


def scores_of(record, step):
    """The score of a run and of each test example: points of accuracy, or nats per token."""
    if "test_nll" in record:  # the sum over the tokens of each window; less is better
        windows = -np.array(record["test_nll"]) * len(record["test_nll"]) / record["test_n"]
        return windows.mean(), windows
    right = 100 * np.array([c == "1" for c in record["correct"]], float)
    return 100 * record[step]["accuracy"], right


def parts_of(folder, data, pair, step):
    """The difference and its variances (seeds of both, examples) with their freedoms, or None."""
    both = [read(folder, data, system) for system in pair]
    seeds = sorted(both[0].keys() & both[1].keys())
    if any(step not in records[seed] for records in both for seed in seeds):
        return None
    scores = [[scores_of(records[seed], step) for seed in seeds] for records in both]
    means = [np.array([mean for mean, _ in of]) for of in scores]
    each = [np.array([examples for _, examples in of]) for of in scores]
    n, count = len(seeds), each[0].shape[1]
    # The moves of a sentence depend on each other, so their errors are added first.
    settings = both[0][seeds[0]]["config"]["data"]
    together = settings["eval_copies"] if settings.get("text") == "multi30k" else 1
    size = count // together

    def squares(errors):
        return (errors.reshape(size, together).sum(1) ** 2).sum() * size / (size - 1) / count**2

    residual = sum(
        squares(error) / ((n - 1) * n)
        for y in each
        for error in y - y.mean(1, keepdims=True) - y.mean(0) + y.mean()
    )
    shift = each[0].mean(0) - each[1].mean(0)
    variances = [of.var(ddof=1) / n for of in means]
    variances.append(max(0.0, squares(shift - shift.mean()) - residual))
    return (
        means[0].mean() - means[1].mean(),
        np.array(variances),
        np.array([n - 1, n - 1, size - 1]),
    )


def student(gap, variances, freedoms):
    """p and half-width of the 95 % interval, by Welch and Satterthwaite."""
    total = variances.sum()
    freedom = total**2 / (variances**2 / freedoms).sum()
    p = 2 * stats.t.sf(abs(gap) / np.sqrt(total), freedom)
    return p, stats.t.ppf(0.975, freedom) * np.sqrt(total)


def holm(values):
    """Corrected p by the definition, a loop over the sorted values."""
    corrected, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(np.argsort(values, kind="stable")):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = largest
    return corrected


def ends(text):
    return [float(end) for end in text.strip("[]").split(",")]


def number(text):
    """The difference in a cell, and half of its last digit."""
    first = text.split()[0]
    return float(first), 0.51 * 10.0 ** -len(first.partition(".")[2])


def same_p(text, p):
    return p < 0.0015 if text == "<0.001" else abs(float(text) - p) < 0.006


@pytest.mark.parametrize("folder", PAGES)
def test_every_row_of_a_page_is_what_an_independent_program_makes_of_its_records(folder):
    rows = rows_of(folder)
    assert rows
    evidence = [[] for _ in rows]
    for step, start in (("test", 4), ("test_last", 9)):
        tested, gains, sizes = [], [], []
        for row in rows:
            label = row[1].removesuffix(", other data")
            parts = parts_of(folder, DATA[label.partition(",")[0] if label not in DATA else label],
                             PAGES[folder][row[0]], step)  # fmt: skip
            if parts is None:
                assert row[start] == "-"
                continue
            gap, variances, freedoms = parts
            tested.append(row)
            gains.append((gap, *student(gap, variances, freedoms)))
            if row[3] == "-":
                sizes.append(gains[-1])
                continue
            # One run of the paper on each side has the spread of our seeds.
            wider = variances * np.array([freedoms[0] + 2, freedoms[1] + 2, 1])
            below = gap - number(row[3])[0]
            sizes.append((below, *student(below, wider, freedoms)))
        p_gains, p_sizes = (holm([p for _, p, _ in of]) for of in (gains, sizes))
        for row, (gap, _, half), p_gain, (below, _, wide), p_size in zip(
            tested, gains, p_gains, sizes, p_sizes, strict=True
        ):
            shown, digit = number(row[start])
            assert shown == pytest.approx(gap, abs=digit), row
            assert ends(row[start + 1]) == pytest.approx([gap - half, gap + half], abs=digit)
            assert same_p(row[start + 2], p_gain)
            if row[3] != "-":
                # The paper's difference is rounded in the row, ours around it is not.
                around = [gap - wide, gap + wide]
                assert ends(row[start + 3]) == pytest.approx(around, abs=digit)
                assert same_p(row[start + 4], p_size), row
            out = p_size < 0.05 and below < 0
            evidence[rows.index(row)].append((out, p_gain < 0.05 and gap > 0, gap - half > 0))
    for row, steps in zip(rows, evidence, strict=True):
        outs, shown, above = zip(*steps, strict=True)
        word = "undecided"
        if all(outs):
            word = "smaller" if all(above) else "ruled out"
        elif not any(outs) and all(shown):
            word = "reproduced"
        assert f" {word}</span>" in row[2], row
        assert ("only where validation chose" in row[2]) == (len(steps) == 1)


def test_a_task_below_the_floor_has_no_verdict():
    """TreeDepth: neither network is above a linear classifier of pairs of words."""
    page = (RESULTS / "ssan" / "RESULTS.md").read_text(encoding="utf-8")
    (path,) = (RESULTS / "ssan").rglob("neighbours-tree_depth.json")
    linear = 100 * json.loads(path.read_text(encoding="utf-8"))["test"]
    for system in ("san", "ssan_layer1"):
        records = read("ssan", "tree_depth", system).values()
        scores = np.array([100 * record["test"]["accuracy"] for record in records])
        error = scores.std(ddof=1) / np.sqrt(len(scores))
        assert scores.mean() - stats.t.ppf(0.975, len(scores) - 1) * error < linear
    row = next(line for line in page.splitlines() if "| TreeDepth, other data" in line)
    assert "? undecided</span>; our networks do not learn this task" in row


@pytest.mark.parametrize("claim", AGT)
@pytest.mark.parametrize("step", ["test", "test_last"])
def test_the_pooled_rows_of_agt_are_those_of_its_pages_together(claim, step):
    """The pages weigh as many as they have seeds; the spread has the differences between pages."""
    first, second = AGT[claim]
    gaps, seeds, spreads = [], [], ([], [])
    for folder in ("agt", "agt/glove_100d", "agt/joined_400d"):
        both = [read(folder, "sst1", system) for system in (first, second)]
        shared = sorted(both[0].keys() & both[1].keys())
        if len(shared) < 3:
            continue
        of = [[100 * records[seed][step]["accuracy"] for seed in shared] for records in both]
        gaps.append(np.mean(of[0]) - np.mean(of[1]))
        seeds.append(len(shared))
        for spread, scores in zip(spreads, of, strict=True):
            spread += list(np.array(scores) - np.mean(of))
    wanted = np.average(gaps, weights=seeds)
    page = (RESULTS / "agt" / "RESULTS.md").read_text(encoding="utf-8")
    label = f"SST-1, {len(gaps)} kinds of word vectors"
    rows = [line.strip("|").split("|") for line in page.splitlines() if label in line]
    (row,) = (row for row in rows if row[0].strip() == claim)
    assert float(row[4 if step == "test" else 9].split()[0]) == pytest.approx(wanted, abs=0.0051)
    low, high = ends(row[5 if step == "test" else 10].strip())
    # The variance over sentences is above 0, so the interval is wider than over the seeds alone.
    least = np.sqrt(sum(np.var(spread, ddof=1) / len(spread) for spread in spreads))
    assert (high - low) / 2 > 1.96 * least
    if step == "test":
        assert f"(n={sum(seeds)})" in row[4]
