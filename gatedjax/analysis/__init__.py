"""Analysis of gates and attention, with NumPy arrays as arguments and results.

The functions compute the density of gates, count operations, compare gates with true labels, test
differences between systems, draw figures and mark words in a text. `faithfulness` and `roar`
measure whether predictions rest on the words of a rationale. `phrases` selects words by their
attention and finds runs of selected words; `trees` builds constituency trees from attention.

All functions run on the host, except that `faithfulness`, `rationale_scores` and the random words
of `roar` import JAX when they are called. Plots need the extra `plots`: matplotlib is imported when
a plot is drawn, and the ImportError explains how to install it. Each plot takes `path_stem`, the
path of its files without the suffix (it writes path_stem.png and path_stem.svg; None writes no
files), and a `title` above the figure.

A wrong argument raises TypeError for its dtype, and ValueError for its shape, for a number that is
out of range or not finite, or for an unknown option. The message names the argument, the values
that are allowed and the value that was passed. A section "Raises" lists only further errors.
"""

from gatedjax.analysis import phrases as phrases
from gatedjax.analysis import trees as trees
from gatedjax.analysis._curves import plot_learning_curves as plot_learning_curves
from gatedjax.analysis._curves import plot_lines as plot_lines
from gatedjax.analysis._curves import read_metrics as read_metrics
from gatedjax.analysis._faithfulness import faithfulness as faithfulness
from gatedjax.analysis._faithfulness import rationale_scores as rationale_scores
from gatedjax.analysis._flops import attention_flops as attention_flops
from gatedjax.analysis._flops import auxiliary_flops as auxiliary_flops
from gatedjax.analysis._flops import flops_report as flops_report
from gatedjax.analysis._gate_studies import plot_studies as plot_studies
from gatedjax.analysis._gates import density as density
from gatedjax.analysis._gates import gate_truth as gate_truth
from gatedjax.analysis._gates import pad as pad
from gatedjax.analysis._grid import GridPanel as GridPanel
from gatedjax.analysis._grid import plot_attention_grid as plot_attention_grid
from gatedjax.analysis._heatmap import plot_heatmap as plot_heatmap
from gatedjax.analysis._layers import plot_layer_histograms as plot_layer_histograms
from gatedjax.analysis._layers import plot_word_layers as plot_word_layers
from gatedjax.analysis._roar import ROAR_SHARES as ROAR_SHARES
from gatedjax.analysis._roar import racu as racu
from gatedjax.analysis._roar import roar as roar
from gatedjax.analysis._scores import class_scores as class_scores
from gatedjax.analysis._self_attention import distance_counts as distance_counts
from gatedjax.analysis._self_attention import plot_attention as plot_attention
from gatedjax.analysis._self_attention import plot_distances as plot_distances
from gatedjax.analysis._significance import Bootstrap as Bootstrap
from gatedjax.analysis._significance import holm as holm
from gatedjax.analysis._significance import mcnemar as mcnemar
from gatedjax.analysis._significance import paired_bootstrap as paired_bootstrap
from gatedjax.analysis._significance import proportion_test as proportion_test
from gatedjax.analysis._significance import summary as summary
from gatedjax.analysis._text import highlight_html as highlight_html
from gatedjax.analysis._text import highlight_terminal as highlight_terminal
from gatedjax.analysis._text import render_table as render_table
from gatedjax.analysis._text import write_html as write_html
from gatedjax.analysis._tree_plots import plot_trees as plot_trees
from gatedjax.analysis._two_way import TwoWay as TwoWay
from gatedjax.analysis._two_way import two_way_test as two_way_test
