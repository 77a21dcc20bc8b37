"""Trees out of attention against a search that adds up every mass, and bracket scores by hand."""

import dataclasses
import math

import numpy as np
import pytest

from gatedjax.analysis import trees


def oracle(weights, norm, single):
    """The spans by the paper's formula: every mass is summed anew, no prefix sums."""
    weights = weights.tolist()

    def score(first, past):
        length = past - first
        if length == 1 and single == "one":
            return 1.0
        mass = sum(weights[q][k] for q in range(first, past) for k in range(first, past))
        return mass / {"rows": length, "area": length**2, "none": 1}[norm]

    def walk(first, past):
        if past - first < 2:
            return []
        best, place = -math.inf, None
        for middle in range(first + 1, past):
            product = math.log(max(score(first, middle), 1e-12))
            product += math.log(max(score(middle, past), 1e-12))
            if product > best + 1e-9:
                best, place = product, middle
        return [(first, past), *walk(first, place), *walk(place, past)]

    return tuple(walk(0, len(weights)))


@pytest.mark.parametrize("norm", ["rows", "area", "none"])
@pytest.mark.parametrize("single", ["mass", "one"])
def test_splits_are_those_of_an_exhaustive_sum(np_rng, norm, single):
    different = set()
    for size in (2, 3, 5, 8, 13):
        for zero in (0.0, 0.6):
            weights = np_rng.gamma(0.4, size=(size, size)) * (np_rng.random((size, size)) >= zero)
            tree = trees.from_attention(weights, norm=norm, single=single)
            assert tree.spans == oracle(weights, norm, single)
            assert len(tree.spans) == size - 1
            different.add(tree.spans != trees.right_branching(size).spans)
    assert True in different


def test_the_three_norms_and_two_rules_for_words_give_different_trees(np_rng):
    weights = np_rng.gamma(0.4, size=(12, 12))
    found = {
        trees.from_attention(weights, norm=norm, single=single).spans
        for norm in ("rows", "area", "none")
        for single in ("mass", "one")
    }
    assert len(found) > 3


def test_blocks_of_attention_are_constituents():
    weights = np.zeros((7, 7))
    for first, past in [(0, 3), (3, 5), (5, 7)]:
        weights[first:past, first:past] = 1 / (past - first)
    spans = set(trees.from_attention(weights).spans)
    assert {(0, 3), (3, 5), (5, 7)} <= spans
    scaled = set(trees.from_attention(weights * 37.0).spans)
    assert scaled == spans


def test_equal_splits_take_the_first_place_in_spite_of_rounding():
    for size in range(2, 40):
        uniform = np.full((size, size), 1 / size)
        # the area norm leaves every span the same score: the first word goes first, every time
        area = trees.from_attention(uniform, norm="area")
        assert area.spans == trees.right_branching(size).spans
        rows = trees.from_attention(uniform).children()
        left = rows[0, size][0]
        assert left[1] - left[0] == size // 2  # L (N - L) is largest in the middle


def test_no_words_one_word_and_a_query_without_a_key():
    assert trees.from_attention(np.zeros((0, 0))).spans == ()
    assert trees.from_attention(np.ones((1, 1))).spans == ()
    assert trees.from_attention(np.zeros((2, 2))).spans == ((0, 2),)
    weights = np.eye(4)
    weights[2] = 0
    assert len(trees.from_attention(weights).spans) == 3
    # below the floor all scores are equal, and the first split wins
    for floor, inner in ((1e-12, (0, 2)), (1.0, (1, 3))):
        assert trees.from_attention(np.diag([0, 0, 1e-3]), floor=floor).spans[1] == inner


def test_baselines(np_rng):
    assert trees.left_branching(4).bracketed("abcd") == "(((a b) c) d)"
    assert trees.right_branching(4).bracketed("abcd") == "(a (b (c d)))"
    assert trees.balanced(5).bracketed("abcde") == "(((a b) c) (d e))"
    drawn = [trees.random_binary(3, np_rng).spans for _ in range(400)]
    share = sum((0, 2) in spans for spans in drawn) / len(drawn)
    assert 0.4 < share < 0.6  # both trees of three words are equally likely
    for make in (trees.left_branching, trees.right_branching, trees.balanced):
        assert make(0).spans == make(1).spans == ()
        assert len(make(3000).spans) == 2999  # far deeper than Python recurses


def test_a_tree_knows_the_parts_of_its_nodes_and_loses_words():
    tree = trees.SpanTree.of(6, [(3, 6), (0, 6), (1, 3), (4, 6), (4, 6), (2, 3)])
    assert tree.spans == ((0, 6), (1, 3), (3, 6), (4, 6))
    assert tree.children() == {
        (0, 6): ((0, 1), (1, 3), (3, 6)),
        (1, 3): ((1, 2), (2, 3)),
        (3, 6): ((3, 4), (4, 6)),
        (4, 6): ((4, 5), (5, 6)),
    }
    # without the words 0 and 5: (4, 6) is one word, (1, 3) is (0, 2)
    left = tree.without([True, False, False, False, False, True])
    assert (left.size, left.spans) == (4, ((0, 4), (0, 2), (2, 4)))


def test_bracket_scores_of_a_hand_made_example():
    gold = trees.SpanTree.of(5, [(0, 5), (0, 2), (2, 5), (3, 5)])
    ours = trees.SpanTree.of(5, [(0, 5), (0, 3), (0, 2), (3, 5)])
    counts = trees.bracket_counts(gold, ours)
    assert (counts.matched, counts.predicted, counts.gold) == (3, 4, 4)
    assert counts.value() == (0.75, 0.75, 0.75)
    inner = trees.bracket_counts(gold, ours, count_root=False)
    assert (inner.matched, inner.predicted, inner.gold) == (2, 3, 3)
    # without the last word: gold (0,4) (0,2) (2,4), ours (0,4) (0,3) (0,2)
    drop = [False] * 4 + [True]
    dropped = trees.bracket_counts(gold, ours, drop=drop)
    assert (dropped.matched, dropped.predicted, dropped.gold) == (2, 3, 3)
    assert trees.bracket_scores([(gold, ours), (gold, gold)]).f1 == 2 * 7 / 16
    assert trees.bracket_scores([(gold, gold)]) == (1.0, 1.0, 1.0)
    assert trees.bracket_scores([(gold, ours)], count_root=False) == inner.value()


def test_short_sentences_and_punctuation_count_for_nothing():
    two = trees.right_branching(2)
    assert trees.bracket_counts(two, two).value() == (1.0, 1.0, 1.0)
    assert dataclasses.astuple(trees.bracket_counts(two, two, count_root=False)) == (0, 0, 0)
    assert dataclasses.astuple(trees.bracket_counts(two, two, drop=[True, True])) == (0, 0, 0)
    assert trees.bracket_counts(trees.balanced(1), trees.balanced(1)).value() == (0.0, 0.0, 0.0)
    assert {",", ":", "``", "''", "."} == trees.PUNCTUATION


def test_bracketed_trees_are_read_without_their_labels():
    words, tree = trees.from_brackets("(S (NP the (N film)) (VP is far from (ADJ bad)) .)")
    assert words == ("the", "film", "is", "far", "from", "bad", ".")
    assert tree.spans == ((0, 7), (0, 2), (2, 6))
    assert tree.bracketed(words) == "((the film) (is far from bad) .)"
    for bad in ("", "(S a", "(S a))", "a", "(S a) b", "(S )", "((S a))", "(S a) (T b)"):
        with pytest.raises(ValueError, match=r"text must .*, got "):
            trees.from_brackets(bad)
