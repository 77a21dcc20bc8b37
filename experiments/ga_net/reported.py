"""Numbers of Xue et al. (2020), the rows G1 to G68 of the specification."""

from experiments.ga_net.config import DataName, SystemName

DATA: tuple[DataName, ...] = ("imdb", "ag_news", "sst1", "sst2", "trec")
NAMES = {
    "imdb": "IMDB",
    "ag_news": "AG News",
    "sst1": "SST-1",
    "sst2": "SST-2",
    "trec": "TREC",
    "polarity": "polarity",
}
"""Data sets in the order of tables, with ours last."""
SYSTEMS: dict[SystemName, str] = {
    "bilstm": "BiLSTM",
    "local": "BiLSTM + localAtt",
    "soft": "BiLSTM + softAtt",
    "ganet": "GA-Net",
}
AUXILIARY = {"fnn": "AUX FNN", "att": "AUX ATT", "lstm": "AUX LSTM"}
ESTIMATORS = {
    "soft_gumbel": "Gumbel-sigmoid (as the paper)",
    "st_gumbel": "straight-through Gumbel",
    "reinmax": "ReinMax",
    "mean_field": "mean field",
    "leave_one_out": "leave-one-out, 2 draws",
    "disarm": "DisARM",
}
"""Estimators that train the gates here, in addition to the paper's relaxation. The paper has no
such table."""
AUX_WIDTHS = (20, 40, 60, 80, 100)


def _row(*values: float) -> dict[str, float]:
    return dict(zip(DATA, values, strict=True))


# Table 1: mean length, classes, training and test texts as printed.
STATISTICS = {
    "imdb": (231, 2, "25k", "25k"),
    "ag_news": (44, 4, "120k", "7.6k"),
    "sst1": (20, 5, "12k", "2.2k"),
    "sst2": (20, 2, "10k", "1.8k"),
    "trec": (10, 6, "6k", "500"),
}
# Table 2: test accuracy and density.
ACCURACY = {
    "bilstm": _row(0.8509, 0.9139, 0.4125, 0.8035, 0.8876),
    "local": _row(0.8578, 0.9234, 0.4343, 0.8154, 0.8944),
    "soft": _row(0.8863, 0.9264, 0.4445, 0.8246, 0.9008),
    "ganet": _row(0.8941, 0.9263, 0.4464, 0.8262, 0.9124),
}
DENSITY = _row(0.1999, 0.4310, 0.4722, 0.6005, 0.4431)
# Table 3: attention operations over the test set.
FLOPS = {
    "soft": _row(2.4e9, 131e6, 17e6, 14.1e6, 1.4e6),
    "ganet": _row(0.4e9, 59e6, 6e6, 5.6e6, 0.7e6),
}
# Table 5: IMDB, accuracy and density by auxiliary network.
AUX_ACCURACY = {
    "ganet_aux_fnn": {"imdb": 0.8890},
    "ganet_aux_att": {"imdb": 0.8892},
    "ganet_aux_lstm": {"imdb": 0.8941},
}
AUX_DENSITY = {
    "ganet_aux_fnn": {"imdb": 0.2178},
    "ganet_aux_att": {"imdb": 0.5326},
    "ganet_aux_lstm": {"imdb": 0.1999},
}

# Figure 4: two test sentences of SST-2, both positive, as the treebank spells them.
FIGURE4 = (
    "This is a film well worth seeing , talking and singing heads and all .",
    "Occasionally melodramatic , it 's also extremely effective .",
)
# Table 4: words of the two IMDB test reviews, by which the reviews are found.
TABLE4 = ("I admire Deepa Mehta", "take up and read")
