"""RESULTS.md of small stores, whole: before the first run, and with runs of every kind.

`python -m tests.experiments.test_pages [PAPER ...]` writes the committed texts.
"""

import difflib
import importlib
import sys
import tempfile
from pathlib import Path

import pytest

from experiments.core.command import options_of
from experiments.core.paper import Job
from tests.experiments._results import FACTS, record_of, rendered, save

FOLDER = Path(__file__).with_name("pages")
GATES = {f"{name}_{mode}": value for mode in ("sample", "threshold", "expected", "relaxed")
         for name, value in (("accuracy", 0.75), ("density", 0.5))}  # fmt: skip
HIGH, LOW, FEW = ["1" * 30 + "0" * 10] * 3, ["1" * 17 + "0" * 23] * 3, ["1110"]
LAYERS = {
    "layers": {
        "threshold": 0.95, "attention": [[6] + [0] * 18 + [2], [3] + [1] * 2 + [0] * 16 + [3]],
        "runs": [[4, 0, 0], [1, 2, 1]], "shuffled_runs": [[4, 0, 0], [5, 1, 0]],
        "gates": [[0] * 5 + [8] + [0] * 14], "mass_low": [0.75, 0.375],
        "mass_high": [0.25, 0.375], "mean_run": [1.0, 2.0], "mean_phrase": [None, 2.333333],
        "mean_run_shuffled": [1.0, 1.166667], "mean_phrase_shuffled": [None, 2.0],
        "mean_gate": [0.28],
    },
    "first_words": [["never", 9], ["not", 8], ["bad", 8]],
    "paper_words": {"n't": [None, 0], "never": [1, 9], "not": [2, 8]},
    "examples": [
        {"number": number, "tokens": ["Not", "so", "much", "bad-luck", "."], "label": "negative",
         "predicted": "neutral", "gates": [[200] + [0] * 19] * 8,
         "attention": [[[1, 0, 0, 0.6, 0.5], [1, 0.96, 1, 0.95, 0]][i % 2] for i in range(9)]}
        for number in (1, 3)
    ],
}  # fmt: skip
HEADS = {"selected_heads": {"1": [0.25, 0.75]}, "empty_heads": {"1": [0.0, 0.5]},
         "train_curve": [[10, 0.5, 0.8]]}  # fmt: skip
LOST = HEADS | {"train_curve": [[9, 0.6931, 0.5], [10, None, 0.5]], "label_entropy": 0.693147}
OTHER = {"substitute": "other texts"}
WORDS = {"test_tokens": 400, "attended_tokens": 160}
# paper -> (data, variant, which test examples are right by seed, further entries); "test" is
# added to the metrics of the test
RUNS = {
    "ga_net": [
        ("trec", "ganet", HIGH, {"test": GATES | {"density": 0.25, "closed_sample": 0.0}}),
        ("trec", "soft", ["1" * 20 + "0" * 20, "1" * 18 + "0" * 22, "01" * 20], {}),
        ("trec", "local", HIGH[:1], {}),
        ("sst2", "bilstm", LOW, {"predicted_classes": [40, 0]}),
        ("polarity", "soft", FEW, {}),
        ("trec", "ganet_width_20", FEW, {"test": {"density": 0.5, "closed_sample": 0.25}}),
        ("trec", "untuned_ganet", HIGH, {}),
        ("trec", "untuned_soft", LOW, {}),
    ],
    "ga_reader": [
        ("wdw", "fix", HIGH, {}),
        ("wdw", "hops_1", LOW, {}),
        ("cbt_ne", "fix", FEW, {"substitute": "41,191 questions"}),
        ("cbt_ne", "feature_fix", ["1111"], {"substitute": "41,191 questions"}),
        ("cbt_cn", "fix", FEW, {}),
        ("cbt_cn", "hops_1", ["1000"], {}),
        ("cnn", "update", FEW, {"train_n": 500}),
    ],
    "rau": [
        ("mnist", "rau", HIGH, {}),
        ("mnist", "gru", ["1" * 20 + "0" * 20, "1" * 18 + "0" * 22, "01" * 20], {}),
        ("mnist", "lstm", HIGH, {}),
        ("fashion_mnist", "rau_long", HIGH, {"test_last": {"accuracy": 0.91, "loss": 1.0}}),
        ("fashion_mnist", "gru_long", LOW, {"test_last": {"accuracy": 0.88, "loss": 1.0}}),
        ("fashion_mnist", "lstm_long", LOW, {"predicted_classes": [40]}),
        ("ptb_small", "rau", HIGH, {"test_nll": [60.0, 64.0, 72.0]}),
        ("ptb_small", "gru", LOW, {"test_nll": [62.0, 66.0, 70.0]}),
        ("mnist", "rau_matched", LOW[:1], {}),
        ("imdb", "gru_lr1e-4", FEW, {}),
        ("mnist", "attention_feature_proj", LOW[:1], {}),
        ("mnist", "attention_concat_rescale", HIGH[:1], {}),
    ],
    "agt": [
        ("sst1", "agt", HIGH, LAYERS),
        ("sst1", "agt_above0", LOW, {}),
        ("sst1", "agt_adam_5e-4", HIGH, {}),
        ("sst1", "agt_adadelta_lr1", LOW, {"validation": {"accuracy": 0.75, "loss": 1.0}}),
        ("sst1_sentences", "agt", FEW, LAYERS),
    ],
    "ssan": [
        ("bshift", "san_local", [right[:4] for right in LOW[:2]], HEADS | OTHER),
        ("bshift", "ssan_layer1_local", [right[:4] for right in LOW[:2]], HEADS | OTHER),
        ("bshift", "san", FEW, LOST | OTHER),
        ("bshift", "ssan_layer1", FEW, LOST | OTHER),
        ("nli_sick", "san", LOW, {}),
        ("nli_sick", "ssan_layer1", HIGH, {}),
        ("nli_sick", "ssan_reinforce", HIGH, {}),
        ("wrd_small", "san", ["0000" * 3] * 2, {}),
        ("wrd_small", "ssan_layer1", ["1111" * 2 + "0000"] * 2, {}),
        ("wrd_cited", "san", LOW, {}),
        ("wrd_cited", "ssan_layer1_fixed", HIGH, {}),
    ],
}  # fmt: skip


def page(name, kind, folder):
    """RESULTS.md of a paper, from the records of `RUNS` or of none."""
    paper = importlib.import_module(f"experiments.{name}.paper").PAPER
    store = paper.store(folder)
    for data, variant, rights, more in RUNS[name] if kind == "runs" else ():
        # Some variants are made by options and have only a name in the page.
        known = [name for name in (variant, variant.split("_")[0], "rau") if name in paper.variants]
        job = Job(paper, options_of(paper)(what="render", seeds=len(rights)))
        cell = job.cell(data, known[0])
        model = next(iter(cell.configs.values())).model
        facts = FACTS | WORDS | {"parameters": 1234, "steps_per_epoch": 32}
        facts |= {"system": getattr(model, "system", "san"), "cell": getattr(model, "cell", "")}
        for seed, right in enumerate(rights):
            record = record_of(paper, cell.configs[seed], right, **facts | more)
            accuracy = right.count("1") / len(right)
            record["test"] = {"accuracy": accuracy, "loss": 1.0} | more.get("test", {})
            if "test_nll" in more:
                record["test"] = {"loss": 3.27 + seed / 100, "perplexity": 26.25 + seed}
                record |= {"test_n": 60, "validation": record["test"]}
                del record["correct"], record["test_last"]
            save(store, data, cell.variant if known[0] == variant else variant, [record])
    return rendered(paper, store)


@pytest.mark.parametrize("kind", ["empty", "runs"])
@pytest.mark.parametrize("name", RUNS)
def test_a_page_is_the_committed_text(name, kind, tmp_path):
    found = page(name, kind, tmp_path)
    wanted = (FOLDER / f"{name}_{kind}.md").read_text(encoding="utf-8")
    lines = found.splitlines(), wanted.splitlines()
    assert found == wanted, "\n".join(difflib.unified_diff(*reversed(lines), lineterm="", n=0))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or RUNS:
        for kind in ("empty", "runs"):
            with tempfile.TemporaryDirectory() as folder:
                text = page(name, kind, Path(folder))
            (FOLDER / f"{name}_{kind}.md").write_text(text, encoding="utf-8")
