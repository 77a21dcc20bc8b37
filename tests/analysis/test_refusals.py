"""Arguments that the analyses cannot use are refused by name."""

import math

import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.analysis import phrases, trees
from gatedjax.analysis._flops import bilstm_flops
from gatedjax.analysis._phrase_statistics import LayerHistogram
from gatedjax.analysis._roar import mask_top
from tests.refusals import each_row, refused

NAN = float("nan")
WORDS, EVEN = ["he", "ran", "$home$", "."], np.full((4, 4), 0.25)
ONES, CHOSEN = np.ones((2, 3, 4)), np.ones((2, 3, 4), bool)
# [sentence, layer, word] of sentences of 5 and of 2 words
TOKENS = [("Not", "so", "much", "not", "n't"), ("never", "A")]
SELECTED = np.zeros((2, 2, 5), bool)
HISTOGRAM = LayerHistogram(np.ones((3, 3), int), np.linspace(0, 1, 4))
GATES = phrases.gate_histogram(np.zeros((1, 2, 3))).pooled
HOPS = [analysis.GridPanel("hop 1", np.full((3, 4), 0.25))]
NAMES, LAST = ["a", "b", "c"], [0.7, 0.0, 0.25]
RECORDS = [{"split": "train", "step": 1, "loss": 2.0}]


def heatmap(*row, **options):
    return lambda: analysis.plot_heatmap([("a", *row)], **options)


def grid(rows=NAMES, columns=WORDS, panels=HOPS, final=LAST, **options):
    return lambda: analysis.plot_attention_grid(rows, columns, panels, final, **options)


def layers(r=EVEN, words=WORDS):
    return lambda: analysis.plot_word_layers(words, r)


def roar(**changes):
    texts = {"tokens": np.ones((2, 4), np.int32), "lengths": np.array([4, 2], np.int32)}
    good = {"texts": {"test": texts}, "importance": "random"}
    good["fit"] = lambda share, copies: [(None, 0.0) for _ in copies]
    return lambda: analysis.roar(**(good | changes))


def masked(**changes):
    good = {"tokens": np.ones((2, 4), np.int32), "lengths": np.array([4, 2], np.int32)}
    good |= {"scores": np.zeros((2, 4)), "share": 0.5}
    return lambda: mask_top(**(good | changes))


def racu(shares, measure, random, **options):
    return lambda: analysis.racu(shares, measure, random, **options)


def boot(a=(1.0,), b=(1.0,), **options):
    return lambda: analysis.paired_bootstrap(a, b, **options)


def scored(label, predicted):
    return lambda: analysis.class_scores(np.array(label, int), np.array(predicted, int), 3)


TABLE = {
    "attention_flops": [
        (lambda: analysis.attention_flops(-1, 5), ValueError, "attended|-1"),
        (lambda: analysis.attention_flops(1.5, 5), TypeError, "attended|float"),
        (lambda: analysis.attention_flops(1, 0), ValueError, "width|0"),
        (lambda: analysis.attention_flops(1, 5, count="ops"), ValueError, "count|'ops'"),
        (lambda: analysis.attention_flops(1, 5, score="dot"), ValueError, "score|'dot'"),
    ],
    "flops": [
        (lambda: bilstm_flops(1, 0, 5), ValueError, "input_dim|0"),
        (lambda: analysis.flops_report([1.0], [1], 5), ValueError, "float64"),
        (lambda: analysis.flops_report([1], [[1]], 5), ValueError, "(1, 1)"),
        (lambda: analysis.flops_report([-1], [0], 5), ValueError, "-1"),
        (
            lambda: analysis.auxiliary_flops("gru", tokens=1, input_dim=1, hidden=1),
            ValueError,
            "kind|'gru'",
        ),
        (
            lambda: analysis.auxiliary_flops("att", tokens=1, input_dim=1, hidden=1, examples=0),
            ValueError,
            "examples|0",
        ),
        (lambda: analysis.flops_report([1, 2], [1], 5), ValueError, "(2,)|(1,)"),
        (lambda: analysis.flops_report([4, 2], [1, 3], 5), ValueError, "3 of 2|sentence 1"),
    ],
    "density": [
        (lambda: analysis.density([1, 0], [2]), ValueError, "gates|(2,)"),
        (lambda: analysis.density([[1, 0]], [2, 2]), ValueError, "lengths|(2,)"),
        (lambda: analysis.density([[1, 0]], [3]), ValueError, "lengths|[0, 2]|3"),
        (lambda: analysis.density([[1, 0]], [-1]), ValueError, "lengths|-1"),
        (lambda: analysis.density([[1, 0]], [1.0]), ValueError, "lengths|float64"),
        (lambda: analysis.density([[NAN, 0]], [1]), ValueError, "gates|finite"),
        (lambda: analysis.density([[-1, 0]], [1]), ValueError, "gates|0"),
    ],
    "gate_truth, pad": [
        (lambda: analysis.gate_truth([[1, 0]], [[1]], [2]), ValueError, "lengths|truth|2"),
        (
            lambda: analysis.gate_truth([[1, 0]], [[1, 0], [1, 0]], [2]),
            ValueError,
            "lengths|truth|(2,)|(1,)",
        ),
        (lambda: analysis.pad([[1], [[2]]]), ValueError, "rows[1]|(1, 1)"),
    ],
    "significance": [
        (lambda: analysis.summary([]), ValueError, "values|empty"),
        (lambda: analysis.mcnemar([1, 0], [1]), ValueError, "correct_a|correct_b|(2,)|(1,)"),
        (lambda: analysis.mcnemar([0.5], [1]), ValueError, "correct_a|bool"),
        (lambda: analysis.mcnemar([1], [2]), ValueError, "correct_b|bool"),
        (lambda: analysis.mcnemar([1], [1], alternative="less"), ValueError, "alternative|'less'"),
        (lambda: analysis.proportion_test(1.1, 0.5, 9), ValueError, "accuracy|1.1"),
        (lambda: analysis.proportion_test(0.5, 1.0, 9), ValueError, "known|1.0"),
        (lambda: analysis.proportion_test(0.5, 0.5, 0), ValueError, "n|1|0"),
        (boot([], []), ValueError, "correct_a|empty"),
        (boot([[1]], [[1]]), ValueError, "correct_a|correct_b|(1, 1)"),
        (boot(b=[math.nan]), ValueError, "correct_b|finite"),
        (boot(samples=0), ValueError, "samples|0"),
        (boot(level=1.0), ValueError, "level|(0, 1)|1.0"),
    ],
    "class_scores": [
        (scored([0, 3], [0, 0]), ValueError, "label|[0, 3)|0 to 3"),
        (scored([0, 1], [0, -1]), ValueError, "predicted|[0, 3)|-1 to 0"),
        (scored([0], [0, 1]), ValueError, "label|predicted|(1,)|(2,)"),
        (scored([], []), ValueError, "label|predicted|(0,)"),
    ],
    "normalise": [
        (lambda: phrases.normalise(ONES, how="sum"), ValueError, "how|'sum'"),
        (lambda: phrases.normalise(1.0), ValueError, "attention|()"),
        (lambda: phrases.normalise([1, NAN]), ValueError, "attention|finite"),
        (lambda: phrases.normalise([1, -2.0], how="max"), ValueError, "attention|-2.0"),
        (lambda: phrases.normalise(ONES, ONES[:, 0]), TypeError, "mask|float64"),
        (lambda: phrases.normalise(ONES, CHOSEN[0]), ValueError, "mask|(3, 4)"),
        (lambda: phrases.normalise(ONES, CHOSEN[..., 0]), ValueError, "mask|(2, 3)"),
        (lambda: phrases.normalise(ONES, np.bool_(True)), ValueError, "mask|()"),
    ],
    "histograms": [
        (lambda: phrases.weight_histogram(2 * ONES), ValueError, "r|[0, 1]"),
        (lambda: phrases.weight_histogram(ONES, bins=0), ValueError, "bins|0"),
        (lambda: phrases.weight_histogram(ONES, layer_axis=2), ValueError, "layer_axis|2"),
        (lambda: phrases.weight_histogram(ONES, layer_axis=-1), ValueError, "layer_axis|-1"),
        (lambda: phrases.weight_histogram(ONES, layer_axis=7), ValueError, "layer_axis|7"),
        (lambda: phrases.phrase_length_histogram(ONES), TypeError, "selected|float64"),
        (lambda: phrases.phrase_length_histogram(CHOSEN, min_length=0), ValueError, "min_length|0"),
        (
            lambda: phrases.phrase_length_histogram(CHOSEN, min_length=2, max_length=1),
            ValueError,
            "max_length|2|1",
        ),
        (lambda: phrases.gate_histogram(ONES[0]), ValueError, "gates|(3, 4)"),
        (lambda: phrases.gate_histogram(-ONES), ValueError, "gates|[0, 1]"),
        (lambda: phrases.gate_histogram(ONES, [1, 0]), TypeError, "rows|int64"),
        (lambda: phrases.gate_histogram(ONES, [True]), ValueError, "rows|(1,)"),
    ],
    "phrases": [
        (lambda: phrases.select(ONES, rule="median"), ValueError, "rule|'median'"),
        (lambda: phrases.runs([1, 0]), TypeError, "selected|int64"),
        (lambda: phrases.runs(True), ValueError, "selected|()"),
        (lambda: phrases.selected_words(TOKENS, SELECTED[:1]), ValueError, "selected|[2, L, N]"),
        (lambda: phrases.selected_words(TOKENS, SELECTED, 2), ValueError, "layer|2"),
        (lambda: phrases.selected_words(TOKENS, ~SELECTED), ValueError, "selected|2|tokens[1]"),
        (lambda: phrases.selected_words(TOKENS, SELECTED[..., :3]), ValueError, "tokens[0]|5|3"),
        (lambda: phrases.first_words(TOKENS, ONES, threshold=-1), ValueError, "threshold|-1"),
        (lambda: phrases.trace(TOKENS[0], SELECTED), ValueError, "selected|[L, N]|(2, 2, 5)"),
        (lambda: phrases.trace(TOKENS[1], ~SELECTED[1]), ValueError, "selected|2|tokens"),
    ],
    "trees": [
        (lambda: trees.from_attention(np.ones((2, 3))), ValueError, "weights|[N, N]|(2, 3)"),
        (lambda: trees.from_attention(np.full((2, 2), NAN)), ValueError, "weights|finite"),
        (lambda: trees.from_attention(-np.eye(2)), ValueError, "weights|0"),
        (lambda: trees.from_attention(EVEN, norm="row"), ValueError, "norm|'rows'|'row'"),
        (lambda: trees.from_attention(EVEN, single="zero"), ValueError, "single|'one'|'zero'"),
        (lambda: trees.from_attention(EVEN, floor=0.0), ValueError, "floor|0.0"),
        (lambda: trees.SpanTree(4, ((0, 2), (1, 3))), ValueError, "spans|(0, 2)|(1, 3)"),
        (lambda: trees.SpanTree(4, ((0, 5),)), ValueError, "spans|4|(0, 5)"),
        (lambda: trees.SpanTree(4, ((1, 2),)), ValueError, "spans|4|(1, 2)"),
        (lambda: trees.SpanTree(4, ((0, 2), (0, 2))), ValueError, "spans|(0, 2)"),
        (lambda: trees.SpanTree(4, ((2, 4), (0, 4))), ValueError, "spans|(2, 4)|(0, 4)"),
    ],
    "roar": [
        (roar(shares=(0.1, 0.5)), ValueError, "shares|0|0.1"),
        (roar(shares=(0, 0.5, 0.5)), ValueError, "shares|0.5"),
        (roar(shares=(0, 1.5)), ValueError, "shares|[0, 1]|1.5"),
        (roar(shares=()), ValueError, "shares|(0,)"),
        (roar(seeds=0), ValueError, "seeds|1|0"),
        (roar(importance="gates"), ValueError, "importance|'random'|'gates'"),
        (roar(texts={}), ValueError, "texts"),
        (roar(fit=lambda share, copies: []), ValueError, "fit|1"),
        (roar(importance=lambda network, part: np.zeros(3)), ValueError, "scores|(2, 4)|(3,)"),
        (masked(share=1.01), ValueError, "share|[0, 1]|1.01"),
        (masked(share=NAN), ValueError, "share|[0, 1]|nan"),
        (masked(scores=np.full((2, 4), NAN)), ValueError, "scores|NaN"),
        (masked(already=np.zeros((2, 3), bool)), ValueError, "already|(2, 4)|(2, 3)"),
        (masked(already=np.zeros((2, 4))), TypeError, "already|bool|float64"),
        (masked(lengths=np.full(2, 9)), ValueError, "lengths|[0, 4]"),
        (racu((0,), (1,), (1,)), ValueError, "shares"),
        (racu((0, 1), (1, 1, 1), (1, 1)), ValueError, "measure"),
        (racu((0, 1), (1, NAN), (1, 1)), ValueError, "measure|finite"),
        (racu((0, 1), np.ones((2, 3)), np.ones((2, 2))), ValueError, "measure|random|seeds"),
        (racu((1, 0), (1, 1), (1, 1)), ValueError, "shares"),
        (racu((0, 1), (1, 0), (1, 0), level=1), ValueError, "level|1"),
    ],
    "text": [
        (lambda: analysis.highlight_terminal(WORDS, [0.5]), ValueError, "weights|(4)|(1,)"),
        (lambda: analysis.highlight_terminal(WORDS, EVEN[0], [1]), ValueError, "gates|(4)|(1,)"),
        (lambda: analysis.highlight_terminal(("a",), [NAN]), ValueError, "weights|nan"),
        (lambda: analysis.highlight_html([("", "a", [[1.0]], None)], "t"), ValueError, "weights"),
        (lambda: analysis.render_table([], []), ValueError, "headers"),
        (lambda: analysis.render_table(["a"], [["1"], ["1", "2"]]), ValueError, "rows[1]|1|2"),
    ],
}
PLOTS = {
    "plot_heatmap": [
        (lambda: analysis.plot_heatmap([]), ValueError, "rows"),
        (heatmap([], [], None), ValueError, "rows[0]"),
        (heatmap(WORDS, [0.5], None), ValueError, "weights|rows[0]"),
        (heatmap(WORDS, EVEN[0], [1]), ValueError, "gates|rows[0]"),
        (heatmap(["x"], [-0.5], None), ValueError, "weights|-0.5"),
        (heatmap(["x"], [np.inf], None), ValueError, "weights|finite"),
        (heatmap(["x"], [1], None, width=1), ValueError, "width|1"),
    ],
    "plot_lines": [
        (lambda: analysis.plot_lines({}), ValueError, "series"),
        (lambda: analysis.plot_lines({"m": {"n": [(1, 2)]}}), ValueError, "m, n"),
        (lambda: analysis.plot_lines({"m": {"n": [(1, 2, -1)]}}), ValueError, "m, n"),
        (
            lambda: analysis.plot_learning_curves({"a": RECORDS}, metrics=("bleu",)),
            ValueError,
            "bleu",
        ),
    ],
    "plot_attention": [
        (lambda: analysis.plot_attention([], {"a": EVEN}), ValueError, "one word"),
        (lambda: analysis.plot_attention(WORDS, {}), ValueError, "one map"),
        (lambda: analysis.plot_attention([*WORDS, "x"], {"a": EVEN}), ValueError, "a|5"),
        (lambda: analysis.plot_attention(WORDS, {"a": -EVEN}), ValueError, "a|finite|0"),
        (lambda: analysis.plot_attention(WORDS, {"a": EVEN}, marked=[4]), ValueError, "marked|4"),
        (lambda: analysis.plot_trees([], {"a": trees.balanced(0)}), ValueError, "one word"),
        (lambda: analysis.plot_trees(WORDS, {}), ValueError, "one tree"),
        (lambda: analysis.plot_trees(WORDS, {"a": trees.balanced(3)}), ValueError, "'a'|4"),
        (
            lambda: analysis.plot_trees(WORDS, {"a": trees.balanced(4)}, gold=trees.balanced(2)),
            ValueError,
            "'gold'|4",
        ),
    ],
    "plot_attention_grid": [
        (grid([], [], [], []), ValueError, "rows"),
        (grid(final=[1.0]), ValueError, "final|(3,)|(1,)"),
        (grid(columns=WORDS[:3]), ValueError, "panels[0]|(3, 3)"),
        (grid(final=[1, 1, -1]), ValueError, "final|finite"),
        (grid(columns=[], panels=[], final=[1, 1, NAN]), ValueError, "final|finite"),
        (grid(groups=[1]), ValueError, "groups|3|1"),
        (grid(marked=[True]), ValueError, "marked|3|1"),
    ],
    "plot_layer_histograms": [
        (lambda: analysis.plot_layer_histograms({}), ValueError, "panels"),
        (
            lambda: analysis.plot_layer_histograms({"r": HISTOGRAM}, layers=["a"]),
            ValueError,
            "layers|3|1",
        ),
        (
            lambda: analysis.plot_layer_histograms({"r": HISTOGRAM, "g": GATES}),
            ValueError,
            "'g'|3",
        ),
    ],
    "plot_word_layers": [
        (layers(words=[]), ValueError, "tokens"),
        (layers(np.ones(4)), ValueError, "r|[L, N >= 4]|(4,)"),
        (layers(np.ones((3, 3))), ValueError, "r|(3, 3)"),
        (layers(np.full((3, 4), 2.0)), ValueError, "r|[0, 1]"),
        (layers(np.full((3, 4), NAN)), ValueError, "r|[0, 1]"),
        (layers(np.ones((0, 4))), ValueError, "one layer"),
    ],
}


@each_row(TABLE)
def test_bad_input_is_refused_by_name(call, error, parts):
    refused(call, error, parts)


@each_row(PLOTS)
def test_what_cannot_be_drawn_is_refused_by_name(call, error, parts):
    pytest.importorskip("matplotlib")
    refused(call, error, parts)
