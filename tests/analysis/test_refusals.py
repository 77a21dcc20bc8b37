"""Arguments that the analyses cannot use are refused by name."""

import math

import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.analysis import phrases, trees
from gatedjax.analysis._phrase_statistics import LayerHistogram
from gatedjax.analysis._roar import mask_top
from tests.refusals import each_row, refused

NAN = float("nan")
PAIR = [[1, 0]] * 2
WORDS, EVEN = ["he", "ran", "$home$", "."], np.full((4, 4), 0.25)
ONES, CHOSEN = np.ones((2, 3, 4)), np.ones((2, 3, 4), bool)
# [sentence, layer, word] of sentences of 5 and of 2 words
TOKENS = [("Not", "so", "much", "not", "n't"), ("never", "A")]
SELECTED = np.zeros((2, 2, 5), bool)
HISTOGRAM = LayerHistogram(np.ones((3, 3), int), np.linspace(0, 1, 4))
GATES = phrases.gate_histogram(np.zeros((1, 2, 3))).pooled
HOPS = [analysis.GridPanel("hop 1", np.full((3, 4), 0.25))]
NAMES, LAST = ["a", "b", "c"], [0.7, 0.0, 0.25]
SIZES = {"tokens": 1, "input_dim": 1, "hidden": 1}
RECORDS = [{"split": "train", "step": 1, "loss": 2.0}]


def heatmap(*row):
    return lambda: analysis.plot_heatmap([("a", *row)])


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


def two_way(a=PAIR, b=PAIR, **options):
    return lambda: analysis.two_way_test(a, b, **options)


def scored(label, predicted):
    return lambda: analysis.class_scores(np.array(label, int), np.array(predicted, int), 3)


TABLE = {
    "attention_flops": [
        (lambda: analysis.attention_flops(-1, 5), "attended|-1"),
        (lambda: analysis.attention_flops(1.5, 5), "attended|1.5", TypeError),
        (lambda: analysis.attention_flops(1, 0), "width|0"),
        (lambda: analysis.attention_flops(1, 5, count="ops"), "count|'ops'"),
        (lambda: analysis.attention_flops(1, 5, score="dot"), "score|'dot'"),
    ],
    "flops": [
        (
            lambda: analysis.auxiliary_flops("lstm", tokens=1, input_dim=0, hidden=5),
            "input_dim|0",
        ),
        *(
            (
                lambda name=name, n=n: analysis.auxiliary_flops("att", **SIZES | {name: n}),
                f"{name}|{n}",
            )
            for name, n in {"tokens": -1, "hidden": 0, "squared_tokens": -1}.items()
        ),
        (lambda: analysis.flops_report([1.0], [1], 5), "float64"),
        (lambda: analysis.flops_report([1], [[1]], 5), "(1, 1)"),
        (lambda: analysis.flops_report([-1], [0], 5), "-1"),
        (lambda: analysis.auxiliary_flops("gru", tokens=1, input_dim=1, hidden=1), "kind|'gru'"),
        (
            lambda: analysis.auxiliary_flops("att", tokens=1, input_dim=1, hidden=1, examples=0),
            "examples|0",
        ),
        (lambda: analysis.flops_report([1, 2], [1], 5), "(2,)|(1,)"),
        (lambda: analysis.flops_report([4, 2], [1, 3], 5), "3 of 2|sentence 1"),
    ],
    "density": [
        (lambda: analysis.density([1, 0], [2]), "gates|(2,)"),
        (lambda: analysis.density([[1, 0]], [2, 2]), "lengths|(2,)"),
        (lambda: analysis.density([[1, 0]], [3]), "lengths|[0, 2]|3"),
        (lambda: analysis.density([[1, 0]], [-1]), "lengths|-1"),
        (lambda: analysis.density([[1, 0]], [1.0]), "lengths|float64", TypeError),
        (lambda: analysis.distance_counts([[[1]]], [1.0]), "lengths|float64", TypeError),
        (lambda: analysis.distance_counts([[[1]]], [2]), "lengths|[0, 1]|weights|2"),
        (lambda: analysis.distance_counts(EVEN, [3]), "weights|[B, N, N]"),
        (lambda: analysis.distance_counts(EVEN[None], [3, 3]), "lengths"),
        (lambda: analysis.distance_counts(-EVEN[None], [3]), "finite|-0.25"),
        (lambda: analysis.density([[NAN, 0]], [1]), "gates|finite|nan"),
        (lambda: analysis.density([[-1, 0]], [1]), "gates|-1.0"),
    ],
    "gate_truth, pad": [
        (lambda: analysis.gate_truth([[1, 0]], [[1]], [2]), "lengths|truth|2"),
        (lambda: analysis.gate_truth([[1, 0]], [[1, 0], [1, 0]], [2]), "lengths|truth|(2,)|(1,)"),
        (lambda: analysis.pad([[1], [[2]]]), "rows[1]|(1, 1)"),
    ],
    "significance": [
        (lambda: analysis.summary([]), "values|none"),
        (lambda: analysis.mcnemar([1, 0], [1]), "correct_a|correct_b|(2,)|(1,)"),
        (lambda: analysis.mcnemar([0.5], [1]), "correct_a|bool|0.5"),
        (lambda: analysis.mcnemar([1], [2]), "correct_b|bool|2.0"),
        (lambda: analysis.mcnemar([1], [1], alternative="less"), "alternative|'less'"),
        (lambda: analysis.proportion_test(1.1, 0.5, 9), "accuracy|1.1"),
        (lambda: analysis.proportion_test(0.5, 1.0, 9), "known|1.0"),
        (lambda: analysis.proportion_test(0.5, 0.5, 0), "n|1|0"),
        (boot([], []), "correct_a|none"),
        (boot([[1]], [[1]]), "correct_a|correct_b|(1, 1)"),
        (boot(b=[math.nan]), "correct_b|finite|nan"),
        (boot(samples=0), "samples|0"),
        (boot(level=1.0), "level|(0, 1)|1.0"),
        (boot(groups=[0, 1]), "groups|(1,)|(2,)"),
        (boot(groups=[[0]]), "groups|(1,)|(1, 1)"),
        *((lambda p=p: analysis.holm([p]), "p_values|[0, 1]") for p in (1.1, -0.1, NAN)),
        (lambda: analysis.holm([[0.5]]), "p_values|[m]|(1, 1)"),
    ],
    "two_way_test": [
        (two_way([1, 0], [0, 1]), "scores_a"),
        (two_way([[1, 0]], PAIR), "scores_a|2 seeds|1"),
        (two_way(PAIR, [[0, 1, 1]] * 2), "examples|2|3"),
        (two_way([[1, NAN]] * 2, PAIR), "scores_a|finite"),
        (two_way([[1]] * 2, [[0]] * 2), "2 examples"),
        (two_way(groups=[1]), "groups"),
        (two_way(groups=[1, 1]), "2 examples"),
        (two_way(means_b=[1]), "means_b|2"),
        (two_way(means_a=[1, NAN]), "means_a|finite"),
        (two_way(level=1), "level"),
    ],
    "class_scores": [
        (scored([0, 3], [0, 0]), "label|[0, 3)|0 to 3"),
        (scored([0, 1], [0, -1]), "predicted|[0, 3)|-1 to 0"),
        (scored([0], [0, 1]), "label|predicted|(1,)|(2,)"),
        (scored([], []), "label|predicted|(0,)"),
    ],
    "normalise": [
        (lambda: phrases.normalise(ONES, how="sum"), "how|'sum'"),
        (lambda: phrases.normalise(1.0), "attention|()"),
        (lambda: phrases.normalise([1, NAN]), "attention|finite|nan"),
        (lambda: phrases.normalise([1, -2.0], how="max"), "attention|-2.0"),
        (lambda: phrases.normalise(ONES, ONES[:, 0]), "mask|float64", TypeError),
        (lambda: phrases.normalise(ONES, CHOSEN[0]), "mask|(3, 4)"),
        (lambda: phrases.normalise(ONES, CHOSEN[..., 0]), "mask|(2, 3)"),
        (lambda: phrases.normalise(ONES, np.bool_(True)), "mask|()"),
    ],
    "histograms": [
        (lambda: phrases.weight_histogram(2 * ONES), "r|[0, 1]|2.0|normalise"),
        (lambda: phrases.weight_histogram(ONES, bins=0), "bins|0"),
        (lambda: phrases.phrase_length_histogram(ONES), "selected|float64", TypeError),
        (lambda: phrases.phrase_length_histogram(CHOSEN, min_length=0), "min_length|0"),
        (
            lambda: phrases.phrase_length_histogram(CHOSEN, min_length=2, max_length=1),
            "max_length|2|1",
        ),
        (lambda: phrases.gate_histogram(ONES[0]), "gates|(3, 4)"),
        (lambda: phrases.gate_histogram(-ONES), "gates|[0, 1]|-1.0"),
        (lambda: phrases.gate_histogram(ONES, [1, 0]), "rows|int64", TypeError),
        (lambda: phrases.gate_histogram(ONES, [True]), "rows|(1,)"),
    ],
    "phrases": [
        (lambda: phrases.select(ONES, rule="median"), "rule|'median'"),
        (lambda: phrases.runs([1, 0]), "selected|int64", TypeError),
        (lambda: phrases.runs(True), "selected|()"),
        (lambda: phrases.selected_words(TOKENS, SELECTED[:1]), "selected|[2, L, N]"),
        (lambda: phrases.selected_words(TOKENS, SELECTED, 2), "layer|[-2, 2)|2"),
        (lambda: phrases.selected_words(TOKENS, ~SELECTED), "selected|2|tokens[1]|position 2"),
        (lambda: phrases.selected_words(TOKENS, SELECTED[..., :3]), "tokens[0]|5|3"),
        (lambda: phrases.first_words(TOKENS, ONES, threshold=-1), "threshold|-1"),
        (lambda: phrases.trace(TOKENS[0], SELECTED), "selected|[L, N]|(2, 2, 5)"),
        (lambda: phrases.trace(TOKENS[1], ~SELECTED[1]), "selected|2|tokens"),
    ],
    "trees": [
        (lambda: trees.from_attention(np.ones((2, 3))), "weights|[N, N]|(2, 3)"),
        (lambda: trees.from_attention(np.full((2, 2), NAN)), "weights|finite|nan"),
        (lambda: trees.from_attention(-np.eye(2)), "weights|-1.0"),
        (lambda: trees.from_attention(EVEN, norm="row"), "norm|'rows'|'row'"),
        (lambda: trees.from_attention(EVEN, single="zero"), "single|'one'|'zero'"),
        (lambda: trees.from_attention(EVEN, floor=0.0), "floor|0.0"),
        (lambda: trees.balanced(-1), "size|0"),
        (lambda: trees.balanced(3).without([True]), "drop"),
        (lambda: trees.balanced(3).bracketed("ab"), "words|3"),
        (lambda: trees.bracket_counts(trees.balanced(2), trees.balanced(3)), "words|2|3"),
        (lambda: trees.SpanTree(4, ((0, 2), (1, 3))), "spans|(0, 2)|(1, 3)"),
        (lambda: trees.SpanTree(4, ((0, 5),)), "spans|4|(0, 5)"),
        (lambda: trees.SpanTree(4, ((1, 2),)), "spans|4|(1, 2)"),
        (lambda: trees.SpanTree(4, ((0, 2), (0, 2))), "spans|(0, 2)"),
        (lambda: trees.SpanTree(4, ((2, 4), (0, 4))), "spans|(2, 4)|(0, 4)"),
    ],
    "roar": [
        (roar(shares=(0.1, 0.5)), "shares|0|0.1"),
        (roar(shares=(0, 0.5, 0.5)), "shares|0.5"),
        (roar(shares=(0, 1.5)), "shares|[0, 1]|1.5"),
        (roar(shares=()), "shares|(0,)"),
        (roar(seeds=0), "seeds|1|0"),
        (roar(importance="gates"), "importance|'random'|'gates'"),
        (roar(texts={}), "texts|{}"),
        (roar(fit=lambda share, copies: []), "fit|1"),
        (roar(importance=lambda network, part: np.zeros(3)), "scores|(2, 4)|(3,)"),
        (masked(scores=np.full((2, 4), NAN)), "scores|nan"),
        (masked(lengths=np.full(2, 9)), "lengths|[0, 4]|9"),
        (racu((0,), (1,), (1,)), "shares|[0.0]"),
        (racu((0, 1), (1, 1, 1), (1, 1)), "measure"),
        (racu((0, 1), (1, NAN), (1, 1)), "measure|finite|nan"),
        (racu((0, 1), np.ones((2, 3)), np.ones((2, 2))), "measure|random|seeds"),
        (racu((1, 0), (1, 1), (1, 1)), "shares"),
        (racu((0, 1), (1, 0), (1, 0), level=1), "level|1"),
    ],
    "text": [
        (lambda: analysis.highlight_terminal(WORDS, [0.5]), "weights|4 words|(1,)"),
        (lambda: analysis.highlight_terminal(WORDS, EVEN[0], [1]), "gates|4 words|(1,)"),
        (lambda: analysis.highlight_terminal(("a",), [NAN]), "weights|nan"),
        (lambda: analysis.highlight_html([("", "a", [[1.0]], None)], "t"), "weights"),
        (lambda: analysis.render_table([], []), "headers"),
        (lambda: analysis.render_table(["a"], [["1"], ["1", "2"]]), "rows[1]|1|2"),
    ],
}
PLOTS = {
    "plot_heatmap": [
        (lambda: analysis.plot_heatmap([]), "rows"),
        (heatmap([], [], None), "rows[0]"),
        (heatmap(WORDS, [0.5], None), "weights|rows[0]"),
        (heatmap(WORDS, EVEN[0], [1]), "gates|rows[0]"),
        (heatmap(["x"], [-0.5], None), "weights|-0.5"),
        (heatmap(["x"], [np.inf], None), "weights|finite"),
    ],
    "plot_lines": [
        (lambda: analysis.plot_studies([]), "studies|one study"),
        (lambda: analysis.plot_lines({}), "series"),
        (lambda: analysis.plot_lines({"m": {"n": [(1, 2)]}}), "series['m']['n']|(1, 2)"),
        (lambda: analysis.plot_lines({"m": {"n": [(1, 2, -1)]}}), "series['m']['n']|(1, 2, -1)"),
        (
            lambda: analysis.plot_learning_curves({"a": RECORDS}, metrics=("bleu",)),
            "metrics|bleu|loss",
        ),
    ],
    "plot_attention": [
        (lambda: analysis.plot_attention([], {"a": EVEN}), "one word"),
        (lambda: analysis.plot_attention(WORDS, {}), "one map"),
        (lambda: analysis.plot_attention([*WORDS, "x"], {"a": EVEN}), "panels['a']|5"),
        (lambda: analysis.plot_attention(WORDS, {"a": -EVEN}), "panels['a']|finite|-0.25"),
        (lambda: analysis.plot_attention(WORDS, {"a": EVEN}, marked=[4]), "marked|4"),
        (lambda: analysis.plot_trees([], {"a": trees.balanced(0)}), "one word"),
        (lambda: analysis.plot_trees(WORDS, {}), "one tree"),
        (lambda: analysis.plot_trees(WORDS, {"a": trees.balanced(3)}), "'a'|4"),
        (
            lambda: analysis.plot_trees(WORDS, {"a": trees.balanced(4)}, gold=trees.balanced(2)),
            "'gold'|4",
        ),
    ],
    "plot_attention_grid": [
        (grid([], [], [], []), "rows"),
        (grid(final=[1.0]), "final|(3,)|(1,)"),
        (grid(columns=WORDS[:3]), "panels[0]|(3, 3)"),
        (grid(final=[1, 1, -1]), "final|finite|-1.0"),
        (grid(columns=[], panels=[], final=[1, 1, NAN]), "final|finite"),
        (grid(groups=[1]), "groups|3|1"),
        (grid(marked=[True]), "marked|3|1"),
    ],
    "plot_layer_histograms": [
        (lambda: analysis.plot_layer_histograms({}), "panels"),
        (lambda: analysis.plot_layer_histograms({"r": HISTOGRAM}, layers=["a"]), "layers|3|1"),
        (lambda: analysis.plot_layer_histograms({"r": HISTOGRAM, "g": GATES}), "'g'|3"),
    ],
    "plot_word_layers": [
        (layers(words=[]), "tokens"),
        (layers(np.ones(4)), "r|[L, N]|4|(4,)"),
        (layers(np.ones((3, 3))), "r|(3, 3)"),
        (layers(np.full((3, 4), 2.0)), "r|[0, 1]|2.0|normalise"),
        (layers(np.full((3, 4), NAN)), "r|[0, 1]|nan"),
        (layers(np.ones((0, 4))), "one layer|0 layers"),
    ],
}


@each_row(TABLE)
def test_bad_input_is_refused_by_name(call, parts, error):
    refused(call, parts, error)


@each_row(PLOTS)
def test_what_cannot_be_drawn_is_refused_by_name(call, parts, error):
    pytest.importorskip("matplotlib")
    refused(call, parts, error)
