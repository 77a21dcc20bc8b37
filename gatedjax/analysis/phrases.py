"""Words and phrases that attention selects, for the attention of any model.

    >>> r = normalise([[[0.25, 0.5, 0.25], [0.5, 0.5, 0.0]]])  # [B, L, N], from 0 to 1 per layer
    >>> selected = select(r)  # True where r > 0.95
    >>> print(runs(selected).length)  # of adjacent words that are selected
    [1 2]
    >>> [layer.phrases for layer in trace(["not", "good", "film"], selected[0])]
    [(), ('not good',)]

The words are the last axis of all arrays: [B, N] (a single layer), [B, L, N] or [B, Q, N]. `runs`
explains what a phrase means for attention that does not depend on the order of the words, such as
the attention of AGT.

Reference: Guo 2017, A Deep Network with Visual Text Composition Behavior.
"""

from gatedjax.analysis._phrase_statistics import gate_histogram as gate_histogram
from gatedjax.analysis._phrase_statistics import mean_phrase_length as mean_phrase_length
from gatedjax.analysis._phrase_statistics import phrase_length_histogram as phrase_length_histogram
from gatedjax.analysis._phrase_statistics import weight_histogram as weight_histogram
from gatedjax.analysis._phrase_statistics import weight_mass as weight_mass
from gatedjax.analysis._phrases import THRESHOLD as THRESHOLD
from gatedjax.analysis._phrases import first_words as first_words
from gatedjax.analysis._phrases import normalise as normalise
from gatedjax.analysis._phrases import runs as runs
from gatedjax.analysis._phrases import select as select
from gatedjax.analysis._phrases import selected_words as selected_words
from gatedjax.analysis._phrases import trace as trace
