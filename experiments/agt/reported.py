"""Numbers of Guo (2017), the rows A1 to A27 of the specification."""

from experiments.agt.config import PresetName

DATA: PresetName = "sst1"
NAMES = {
    "sst1": "SST-1",
    "sst1_sentences": "SST-1, sentences only",
    "sst2": "SST-2",
    "trec": "TREC",
    "polarity": "polarity",
}
"""Data sets in the order of tables."""
SYSTEMS = {"agt": "AGT", "highway": "highway network", "average": "mean word vector"}

# Test accuracy in percent: from table 1, and without the selection vectors of later layers from
# section 3.2.
ACCURACY = {"agt": 50.5, "agt_above0": 48.5, "agt_above2": 49.0}
# The rows that table 1 quotes.
QUOTED = {
    "high-order CNN": 51.2,
    "tree-LSTM": 51.0,
    "DRNN": 49.8,
    "PVEC": 48.7,
    "DCNN": 48.5,
    "DAN": 48.2,
    "CNN-MC": 47.4,
    "CNN": 47.2,
    "RNTN": 45.7,
    "NBoW": 44.5,
    "RNN": 43.2,
    "SVM": 38.3,
}

THRESHOLD, RELAXED = 0.95, 0.5
SELECTION_LAYER = 8
"""The layer of the selected words, counted from 1 as in the paper's figures."""
FIRST_WORDS = ("n't", "never", "not")
"""The most frequent words of the first layer over the test set, from section 3.2."""

# Figure 4: the beginnings of its three test sentences, lower-cased.
EXAMPLES = (
    "though the plot is predictable",
    "bad company leaves a bad taste",
    "not so much a movie as a picture book for the big screen",
)
# Section 3.1: the words that layer 8 selects above 0.95, and the words that the threshold 0.5 adds.
SELECTED = (
    "though plot predictable movie never feels formulaic attention nuances emotional development "
    "delicate characters",
    "bad company leaves bad taste not only bad luck but also staleness script",
    "not so much movie picture big screen",
)
ADDED = ("is because is on", "a because its timing its", "a a book for")
# Section 3.1, the third sentence layer by layer.
TRACE = {
    (1, 1): "only not",
    (2, 4): "adds book, screen, movie",
    (5, 6): "phrases: not so much, picture book, big screen",
    (7, 8): "adds a, and, for",
}
