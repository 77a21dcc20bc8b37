"""The results that Dhingra et al. (2017) report: tables 1 to 6, figure 2, section 4.2.

Accuracies are pairs in percent, (validation, test), with None where the paper has a dash.
"""

NAMES = {
    "toy": "two facts",
    "cnn": "CNN",
    "daily_mail": "Daily Mail",
    "cbt_ne": "CBT-NE",
    "cbt_cn": "CBT-CN",
    "wdw": "WDW strict",
    "wdw_relaxed": "WDW relaxed",
}
Pair = tuple[float | None, float | None]
WDW = ("wdw", "wdw_relaxed")
CLOZE = ("cnn", "daily_mail", "cbt_ne", "cbt_cn")
FIGURE2 = ("cnn", "wdw")
FRACTIONS = (50, 75, 100)

# Tables 1 and 3: rows of other papers, which nobody trained for this paper.
QUOTED_WDW: dict[str, dict[str, Pair]] = {
    "Human": {"wdw": (None, 84)},
    "Attentive Reader": {"wdw": (None, 53), "wdw_relaxed": (None, 55)},
    "AS Reader": {"wdw": (None, 57), "wdw_relaxed": (None, 59)},
    "Stanford AR": {"wdw": (None, 64), "wdw_relaxed": (None, 65)},
    "NSE": {"wdw": (66.5, 66.2), "wdw_relaxed": (67.0, 66.7)},
}


def _row(*values: float | None) -> dict[str, Pair]:
    pairs = zip(values[::2], values[1::2], strict=True)
    return {data: pair for data, pair in zip(CLOZE, pairs, strict=True) if pair != (None, None)}


_: float | None = None
QUOTED_CLOZE: dict[str, dict[str, Pair]] = {
    "Humans (query)": _row(_, _, _, _, _, 52.0, _, 64.4),
    "Humans (context + query)": _row(_, _, _, _, _, 81.6, _, 81.6),
    "LSTMs (context + query)": _row(_, _, _, _, 51.2, 41.8, 62.6, 56.0),
    "Deep LSTM Reader": _row(55.0, 57.0, 63.3, 62.2, _, _, _, _),
    "Attentive Reader": _row(61.6, 63.0, 70.5, 69.0, _, _, _, _),
    "Impatient Reader": _row(61.8, 63.8, 69.0, 68.0, _, _, _, _),
    "MemNets": _row(63.4, 66.8, _, _, 70.4, 66.6, 64.2, 63.0),
    "AS Reader": _row(68.6, 69.5, 75.0, 73.9, 73.8, 68.6, 68.8, 63.4),
    "DER Network": _row(71.3, 72.9, _, _, _, _, _, _),
    "Stanford AR (relabelling)": _row(73.8, 73.6, 77.6, 76.6, _, _, _, _),
    "Iterative Attentive Reader": _row(72.6, 73.3, _, _, 75.2, 68.6, 72.1, 69.2),
    "EpiReader": _row(73.4, 74.0, _, _, 75.3, 69.7, 71.5, 67.4),
    "AoA Reader": _row(73.1, 74.4, _, _, 77.8, 72.0, 72.2, 69.4),
    "ReasoNet": _row(72.9, 74.7, 77.6, 76.6, _, _, _, _),
    "NSE": _row(_, _, _, _, 78.2, 73.2, 74.3, 71.9),
    "BiDAF": _row(76.3, 76.9, 80.3, 79.6, _, _, _, _),
    "MemNets, ensemble": _row(66.2, 69.4, _, _, _, _, _, _),
    "AS Reader, ensemble": _row(73.9, 75.4, 78.7, 77.7, 76.2, 71.0, 71.1, 68.9),
    "Stanford AR (relabelling), ensemble": _row(77.2, 77.6, 80.2, 79.2, _, _, _, _),
    "Iterative Attentive Reader, ensemble": _row(75.2, 76.1, _, _, 76.9, 72.0, 74.1, 71.0),
    "EpiReader, ensemble": _row(_, _, _, _, 76.6, 71.8, 73.6, 70.6),
    "AS Reader, + BookTest": _row(_, _, _, _, 80.5, 76.2, 83.2, 80.8),
    "AS Reader, + BookTest, ensemble": _row(_, _, _, _, 82.3, 78.4, 85.7, 83.7),
}

# Rows of the paper's readers, by the name of our variant.
OWN: dict[str, dict[str, Pair]] = {
    "minus": {"wdw": (None, 57), "wdw_relaxed": (None, 60.0)}
    | _row(73.0, 73.8, 76.7, 75.7, 74.9, 69.0, 69.0, 63.9),
    "update": {"wdw": (67.8, 67.0), "wdw_relaxed": (67.0, 66.6)}
    | _row(77.9, 77.9, 81.5, 80.9, 76.7, 70.1, 69.8, 67.3),
    "fix": {"wdw": (68.3, 68.0), "wdw_relaxed": (69.6, 69.1)}
    | _row(77.9, 77.8, 80.4, 79.6, 77.2, 71.4, 71.6, 68.0),
    "feature_update": {"wdw": (70.1, 69.5), "wdw_relaxed": (70.9, 71.0)}
    | _row(77.3, 76.9, 80.7, 80.0, 77.2, 73.3, 73.0, 69.8),
    "feature_fix": {"wdw": (71.6, 71.2), "wdw_relaxed": (72.6, 72.6)}
    | _row(76.7, 77.4, 80.0, 79.3, 78.5, 74.9, 74.4, 70.7),
    "sum": {"wdw": (64.9, 64.5)},
    "concat": {"wdw": (64.4, 63.7)},
    "hops_2": {"wdw": (65.6, 65.6)},
    "hops_4": {"wdw": (68.3, 68.2)},
    "no_characters": {"wdw": (66.9, 66.9)},
    "no_token_attention": {"wdw": (65.7, 65.0)},
    "corpus": {"wdw": (64.0, 62.5)},
}
K1_QUOTED = 57.0
"""The row K = 1 of table 2, which is the test accuracy of the AS Reader from another paper."""

# Figure 2: one-sided McNemar p of gating against no gating, by (data, feature) and share in %.
# The panel of CNN without the feature is lost in our copy of the paper.
FIGURE2_P: dict[tuple[str, bool], dict[int, str]] = {
    ("cnn", True): {50: "0.07", 75: "0.13", 100: "<0.01"},
    ("wdw", False): {50: "0.28", 75: "<0.01", 100: "<0.01"},
    ("wdw", True): {50: "<0.01 (for no gating)", 75: "0.42", 100: "0.27"},
}

# Section 4.2: proportion tests against the second best, ensembles included:
# (name, its accuracy, the GA Reader's, test questions, the paper's p).
PROPORTIONS: dict[str, tuple[str, float, float, int, str]] = {
    "cnn": ("Stanford AR (relabelling), ensemble", 77.6, 77.9, 3_198, "0.319"),
    "daily_mail": ("BiDAF", 79.6, 80.9, 53_182, "<0.00001"),
    "cbt_ne": ("NSE", 73.2, 74.9, 2_500, "0.028"),
    "wdw": ("NSE", 66.2, 71.2, 10_000, "<0.00001"),
}

# Table 5: training, validation and test questions, words, tokens of the longest document.
STATISTICS = {
    "cnn": (380_298, 3_924, 3_198, 118_497, 2_000),
    "daily_mail": (879_450, 64_835, 53_182, 208_045, 2_000),
    "cbt_ne": (108_719, 2_000, 2_500, 53_063, 1_338),
    "cbt_cn": (120_769, 2_000, 2_500, 53_185, 1_338),
    "wdw": (127_786, 10_000, 10_000, 347_406, 3_085),
    "wdw_relaxed": (185_978, 10_000, 10_000, 308_602, 3_085),
}
# Table 6: dropout and GRU width per direction.
TUNED = {
    "cnn": (0.2, 256),
    "daily_mail": (0.1, 256),
    "cbt_ne": (0.4, 128),
    "cbt_cn": (0.4, 128),
    "wdw": (0.3, 128),
    "wdw_relaxed": (0.3, 128),
}
