"""The papers and their commands, which `python -m experiments` lists."""

import dataclasses
import importlib


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper in the list of commands."""

    title: str
    """Subject, authors and year."""
    commands: dict[str, str]
    """The words that follow `python -m experiments.PAPER`, and a description of each command."""


_TABLES = "reproduce tables and figures"
PAPERS: dict[str, Paper] = {
    "agt": Paper(
        "attention gated transformation network (Guo 2017)",
        {
            " --preset sst1": "train one network and test it",
            ".tables table1": _TABLES,
            ".tune --data sst1": "search settings on the validation text",
            ".vectors --out FILE": "train word vectors on film reviews",
        },
    ),
    "ga_net": Paper(
        "gated attention network, GA-Net (Xue et al. 2020)",
        {
            " --preset trec": "train one network and test it",
            ".tables table2": _TABLES,
            ".tune --data trec": "search settings on the validation text",
            ".demo": "train on the embedded corpus and show what the gates chose",
        },
    ),
    "ga_reader": Paper(
        "gated-attention reader (Dhingra et al. 2017)",
        {
            " --preset toy": "train one reader and test it",
            ".tables table2": _TABLES,
            " make-cloze": "make questions of books",
        },
    ),
    "rau": Paper(
        "recurrent attention unit (Zhong et al. 2018)",
        {" --preset digits": "train one network and test it", ".tables table1": _TABLES},
    ),
    "ssan": Paper(
        "selective self-attention network (Geng et al. 2020)",
        {
            " --preset bshift_local": "train one network and test it",
            ".tables table2": _TABLES,
            " make-probes": "make the probes BShift and word reordering of sentences",
        },
    ),
}
"""The papers by the name of their package."""
BENCHMARKS = (
    "agt",
    "compact_attention",
    "compile",
    "ga_net",
    "ga_reader",
    "own_text",
    "recurrence",
    "ssan",
    "vectors",
)
"""The commands of `experiments.benchmarks`."""


def owners(preset: str) -> list[str]:
    """Returns the papers that have a preset of this name."""
    return [
        name
        for name in PAPERS
        if preset in importlib.import_module(f"experiments.{name}.config").PRESETS
    ]
