"""`analysis.phrases`: rescaled attention, selected words, runs and their distributions."""

import collections

import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.analysis import _phrases, phrases

NAN = float("nan")


def ragged(np_rng, shape=(7, 4), size=9):
    """Random attention with ties and constant rows, and a mask with empty and full rows."""
    attention = np.round(np_rng.random((*shape, size)), 1)  # rounding makes ties
    attention[2, 1] = 0.25
    lengths = np_rng.integers(1, size + 1, shape[0])
    lengths[:3] = 0, 1, size
    return attention, np.arange(size) < lengths[:, None]


def normalise_loop(attention, mask, how):
    """One row at a time, in Python floats."""
    out = np.zeros(attention.shape)
    for place in np.ndindex(attention.shape[:-1]):
        real = [n for n in range(attention.shape[-1]) if mask[place][n]]
        weights = [float(attention[place][n]) for n in real]
        for n, weight in zip(real, weights, strict=True):
            low, high = min(weights), max(weights)
            if low == high:
                out[place][n] = 1.0
            elif how == "minmax":
                out[place][n] = (weight - low) / (high - low)
            else:
                out[place][n] = weight / high
    return out


def runs_loop(row):
    """(start, length) by walking along the row."""
    found, start = [], None
    for n, on in enumerate([*row, False]):
        if on and start is None:
            start = n
        elif not on and start is not None:
            found.append((start, n - start))
            start = None
    return found


@pytest.mark.parametrize("how", ["minmax", "max"])
def test_normalise_equals_the_loop(np_rng, how):
    attention, mask = ragged(np_rng)
    full = np.broadcast_to(mask[:, None], attention.shape)
    want = normalise_loop(attention, full, how)
    for given in (mask, full):
        np.testing.assert_allclose(phrases.normalise(attention, given, how=how), want, atol=1e-12)
    np.testing.assert_allclose(
        phrases.normalise(attention[:, 0], mask, how=how), want[:, 0], atol=1e-12
    )
    every = np.ones(attention.shape, bool)
    np.testing.assert_allclose(
        phrases.normalise(attention, how=how), normalise_loop(attention, every, how), atol=1e-12
    )


@pytest.mark.parametrize("how", ["minmax", "max"])
@pytest.mark.parametrize("row", [[0.3], [0.25, 0.25, 0.25], [0.0, 0.0]])
def test_one_word_and_constant_weights_are_all_one(row, how):
    np.testing.assert_array_equal(phrases.normalise(row, how=how), np.ones(len(row)))
    padded = [*row, 9.0, NAN]
    mask = np.arange(len(padded)) < len(row)
    np.testing.assert_array_equal(phrases.normalise(padded, mask, how=how), mask)


def test_weights_that_differ_by_rounding_are_constant():
    row = np.float32(1 / 3) * np.array([1, 1 + 2e-7, 1], np.float32)
    assert len(set(row.tolist())) == 2
    np.testing.assert_array_equal(phrases.normalise(row), [1, 1, 1])
    np.testing.assert_array_equal(phrases.normalise(row, rtol=0), [0, 1, 0])
    assert phrases.normalise([1.0, 1.00001]).tolist() == [0, 1]


def test_padding_is_zero_whatever_stands_there_and_changes_nothing(np_rng):
    attention, mask = ragged(np_rng)
    junk = np.where(mask[:, None], attention, NAN)
    np.testing.assert_array_equal(phrases.normalise(junk, mask), phrases.normalise(attention, mask))
    wide = np.concatenate([junk, np.full((7, 4, 5), np.inf)], -1)
    longer = np.pad(mask, ((0, 0), (0, 5)))
    got = phrases.normalise(wide, longer)
    np.testing.assert_array_equal(got[..., :9], phrases.normalise(attention, mask))
    assert not got[..., 9:].any()
    assert not got[0].any()  # no real word


def test_words_on_the_last_axis_of_query_attention_and_of_no_words_at_all():
    attention = jnp.asarray([[[0.2, 0.8, 0.0], [0.5, 0.5, 0.0]]], jnp.bfloat16)  # [B, N, Q]
    got = phrases.normalise(attention, np.array([[True, True, False]]))
    np.testing.assert_array_equal(got, [[[0, 1, 0], [1, 1, 0]]])
    for shape in ((0, 3, 4), (2, 3, 0)):
        for how in ("minmax", "max"):
            assert phrases.normalise(np.zeros(shape), how=how).shape == shape
        for rule in ("threshold", "median_of_sentence"):
            assert phrases.select(np.zeros(shape), rule=rule).shape == shape


def test_select_is_strict_and_leaves_padding_out():
    r = np.array([[0.95, 0.951, 1.0, 1.0]])
    mask = np.array([[True, True, True, False]])
    assert phrases.select(r, mask).tolist() == [[False, True, True, False]]
    assert phrases.select(r, mask, threshold=0.5).tolist() == [[True, True, True, False]]
    assert phrases.select(r[0]).dtype == bool


def test_the_median_rule_equals_numpys_median_of_the_real_words(np_rng):
    attention, mask = ragged(np_rng, (20, 3))
    r = phrases.normalise(attention, mask)
    got = phrases.select(r, mask, rule="median_of_sentence")
    for b in range(20):
        for layer in range(3):
            real = r[b, layer][mask[b]]
            want = np.zeros(9, bool)
            if real.size:
                want[: real.size] = real > np.median(real)
            np.testing.assert_array_equal(got[b, layer], want)
    counts, lengths = got.sum(-1), mask.sum(-1)
    assert np.all(counts <= lengths[:, None] / 2)  # why the paper cannot have meant this rule


@pytest.mark.parametrize(
    ("row", "want"),
    [
        ([1, 1, 0, 1, 0, 0, 1, 1, 1], [(0, 2), (3, 1), (6, 3)]),  # runs at both ends
        ([0, 1, 1, 0], [(1, 2)]),
        ([], []),
    ],
)
def test_runs_made_by_hand(row, want):
    got = phrases.runs(np.array(row, bool))
    assert list(zip(got.start.tolist(), got.length.tolist(), strict=True)) == want
    assert got.row.shape == (len(want), 0)
    assert runs_loop(row) == want


def test_runs_equal_the_loop_and_name_their_row(np_rng):
    selected = np_rng.random((5, 4, 8)) < 0.6
    selected[1, 2], selected[3, 0] = True, False
    got = phrases.runs(selected)
    want = [
        (b, layer, *run)
        for b in range(5)
        for layer in range(4)
        for run in runs_loop(selected[b, layer])
    ]
    assert np.column_stack([got.row, got.start, got.length]).tolist() == [list(w) for w in want]
    assert got.length.sum() == selected.sum()
    assert np.all(np.bincount(got.row[:, 0], minlength=5) > 0)


def lengths_loop(selected, min_length):
    counts = [collections.Counter() for _ in range(selected.shape[1])]
    for sentence in selected:
        for layer, row in enumerate(sentence):
            counts[layer].update(k for _, k in runs_loop(row) if k >= min_length)
    return counts


@pytest.mark.parametrize("min_length", [1, 2])
def test_phrase_lengths_equal_the_loop_with_and_without_single_words(np_rng, min_length):
    selected = np_rng.random((30, 3, 11)) < np.array([0.2, 0.5, 0.8])[:, None]
    selected[:, 0, 4:] = False
    want = lengths_loop(selected, min_length)
    got = phrases.phrase_length_histogram(selected, min_length=min_length)
    assert got.centres.tolist() == list(range(1, max(max(c) for c in want if c) + 1))
    means = phrases.mean_phrase_length(selected, min_length=min_length)
    for layer, counter in enumerate(want):
        for length, count in zip(got.centres, got.counts[layer], strict=True):
            assert count == counter[int(length)]
        total = sum(counter.values())
        assert means[layer] == pytest.approx(sum(k * c for k, c in counter.items()) / total)
        assert got.mean[layer] == pytest.approx(means[layer])
        assert got.probability[layer].sum() == pytest.approx(1)
        assert got.probability[layer, 0] == (counter[1] / total if min_length == 1 else 0)


def test_lengths_above_the_largest_are_pooled_and_the_histogram_says_so():
    selected = np.array([[[1, 1, 1, 1, 0, 1, 1]]], bool)
    got = phrases.phrase_length_histogram(selected, max_length=3)
    assert got.counts.tolist() == [[0, 1, 1]]
    assert got.open_end
    assert phrases.mean_phrase_length(selected).tolist() == [3.0]


def test_a_layer_without_a_run_has_no_mean_and_no_probability():
    selected = np.zeros((2, 2, 3), bool)
    selected[0, 1, 1] = True
    got = phrases.phrase_length_histogram(selected)
    assert got.counts.tolist() == [[0], [1]]
    assert got.probability.tolist() == [[0], [1]]
    np.testing.assert_array_equal(phrases.mean_phrase_length(selected), [NAN, 1])
    np.testing.assert_array_equal(got.mean, [NAN, 1])
    np.testing.assert_array_equal(phrases.mean_phrase_length(selected, min_length=2), [NAN, NAN])
    assert phrases.phrase_length_histogram(selected, min_length=2).counts.tolist() == [[0, 0]] * 2


def test_layers_are_axis_one_of_three_and_everything_is_one_layer_of_two(np_rng):
    selected = np_rng.random((4, 3, 6)) < 0.5
    whole = phrases.phrase_length_histogram(selected, max_length=6)
    flat = phrases.phrase_length_histogram(selected[:, 1], max_length=6)
    np.testing.assert_array_equal(flat.counts, whole.counts[1:2])
    heads = np.stack([selected, selected], axis=2)  # [B, L, M, N]: heads are pooled
    np.testing.assert_array_equal(
        phrases.phrase_length_histogram(heads, max_length=6).counts, 2 * whole.counts
    )


def test_weights_are_counted_once_each_and_padding_not_at_all(np_rng):
    attention, mask = ragged(np_rng)
    r = np.where(mask[:, None], phrases.normalise(attention, mask), NAN)
    got = phrases.weight_histogram(r, mask)
    assert got.counts.shape == (4, 20)
    assert got.counts.sum(-1).tolist() == [mask.sum()] * 4
    for layer in range(4):
        real = [r[b, layer, n] for b in range(7) for n in range(9) if mask[b, n]]
        want = [0] * 20
        for value in real:
            want[min(int(np.searchsorted(got.edges, value, side="right")) - 1, 19)] += 1
        assert got.counts[layer].tolist() == want
        for low, high in ((0, 0.05), (0.95, 1), (0, 1)):
            share = sum(low <= v <= high for v in real) / len(real)
            mass = phrases.weight_mass(r, mask, low=low, high=high)
            assert mass[layer] == pytest.approx(share)
    np.testing.assert_allclose(got.probability.sum(-1), 1)
    empty = phrases.weight_mass(r, np.zeros_like(mask), low=0, high=1)
    np.testing.assert_array_equal(empty, [NAN] * 4)


def test_histograms_of_parts_add_up_to_that_of_the_whole(np_rng):
    attention, mask = ragged(np_rng)
    r = phrases.normalise(attention, mask)
    parts = phrases.weight_histogram(r[:3], mask[:3]) + phrases.weight_histogram(r[3:], mask[3:])
    np.testing.assert_array_equal(parts.counts, phrases.weight_histogram(r, mask).counts)
    # buckets of another width have phrases of another length
    selected = np_rng.random((6, 2, 9)) < 0.8
    selected[:3, :, 4:] = False
    narrow = phrases.phrase_length_histogram(selected[:3, :, :4])
    wide = phrases.phrase_length_histogram(selected[3:])
    whole = phrases.phrase_length_histogram(selected)
    for total in (narrow + wide, wide + narrow):
        np.testing.assert_array_equal(total.counts, whole.counts)
        np.testing.assert_array_equal(total.edges, whole.edges)


def test_histograms_that_do_not_fit_are_not_added():
    selected = np.ones((1, 2, 5), bool)
    whole = phrases.phrase_length_histogram(selected)
    pooled = phrases.phrase_length_histogram(selected, max_length=3)
    r = np.ones((1, 2, 5))
    for a, b in (
        (whole, phrases.phrase_length_histogram(selected[:, :1])),
        (whole, pooled),
        (phrases.weight_histogram(r), phrases.weight_histogram(r, bins=10)),
        (phrases.weight_histogram(r, bins=5), whole),
    ):
        with pytest.raises(ValueError, match="same layers and bins"):
            a + b
    assert (pooled + pooled).open_end
    shorter = phrases.phrase_length_histogram(selected[..., :3])
    assert (pooled + shorter).open_end
    assert (shorter + pooled).open_end


def test_gates_are_pooled_per_layer_and_averaged_per_sentence(np_rng):
    gates = np_rng.random((5, 3, 4)).astype(np.float32)
    gates[:, 1] = 0.0
    gates[:, 2] = 1.0
    rows = np.array([True, True, False, True, False])
    counted = np.where(rows[:, None, None], gates, NAN)
    got = phrases.gate_histogram(counted, rows, bins=10)
    want = [0] * 10
    for value in gates[rows][:, 0].ravel():
        want[int(float(value) * 10)] += 1
    assert got.pooled.counts[0].tolist() == want
    assert got.pooled.counts[1].tolist() == [12] + [0] * 9
    assert got.pooled.counts[2].tolist() == [0] * 9 + [12]
    assert np.isnan(got.sentence_means[~rows]).all()
    for b in np.flatnonzero(rows):
        np.testing.assert_allclose(
            got.sentence_means[b], [gates[b, i].mean() for i in range(3)], 1e-6
        )
    every = phrases.gate_histogram(gates)
    assert every.pooled.counts.sum(-1).tolist() == [20] * 3
    assert not np.isnan(every.sentence_means).any()


TOKENS = [("Not", "so", "much", "not", "n't"), ("never", "A")]
SELECTED = np.array(
    [
        [[1, 0, 0, 1, 0], [1, 1, 1, 0, 1]],
        [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]],
    ],
    bool,
)


def test_selected_words_are_counted_lower_cased():
    assert phrases.selected_words(TOKENS, SELECTED) == {"not": 2, "never": 1}
    want = {"not": 1, "so": 1, "much": 1, "n't": 1, "a": 1}
    assert phrases.selected_words(TOKENS, SELECTED, 1) == want
    assert phrases.selected_words(TOKENS, SELECTED, -1) == want
    assert phrases.selected_words(TOKENS, SELECTED[:, 1]) == want
    assert phrases.selected_words([], np.zeros((0, 2, 5), bool)) == {}


def test_first_words_are_those_above_the_threshold_in_the_first_layer():
    r = np.where(SELECTED, 0.96, 0.9) * (np.arange(5) < np.array([[5], [2]]))[:, None]
    assert phrases.first_words(TOKENS, r) == phrases.selected_words(TOKENS, SELECTED)
    assert phrases.first_words(TOKENS, r, threshold=0.96) == {}
    assert phrases.first_words(TOKENS, r, threshold=0.5)["a"] == 1
    assert phrases.first_words(TOKENS, r).most_common(1) == [("not", 2)]


def test_a_trace_tells_words_and_phrases_layer_by_layer():
    first, second = phrases.trace(TOKENS[0], SELECTED[0])
    assert first == _phrases.Selection(0, (0, 3), ("Not", "not"), ())
    assert second == _phrases.Selection(
        1, (0, 1, 2, 4), ("Not", "so", "much", "n't"), ("Not so much",)
    )
    assert phrases.trace(TOKENS[1], SELECTED[1])[1].words == ("A",)
    assert phrases.trace((), np.zeros((1, 4), bool)) == [_phrases.Selection(0, (), (), ())]
