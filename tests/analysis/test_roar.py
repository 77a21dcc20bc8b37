"""Masking, RACU and the recursion against loops."""

import numpy as np
import pytest
from scipy import stats

from gatedjax import analysis
from gatedjax.analysis import _roar

LENGTHS = (4, 7, 1, 8, 0, 5)
SHARES = (0.0, 0.1, 0.25, 0.5, 0.8, 1.0)
MASK = 1


@pytest.fixture
def texts(np_rng):
    tokens = np_rng.integers(2, 9, size=(len(LENGTHS), 8)).astype(np.int32)
    real = np.arange(8) < np.array(LENGTHS)[:, None]
    return {"tokens": np.where(real, tokens, 0), "lengths": np.array(LENGTHS, np.int32)}


def masked_by_loop(words, scores, share, already):
    """Which words of one text are masked."""
    wanted = int(share * len(words) + 1e-6)
    first = [t for t in range(len(words)) if already[t]]
    rest = sorted((t for t in range(len(words)) if not already[t]), key=lambda t: (-scores[t], t))
    return {*first, *[*first, *rest][:wanted]}


@pytest.mark.parametrize("share", SHARES)
def test_masked_words_are_those_of_a_loop(share, texts, np_rng):
    shape = texts["tokens"].shape
    scores = np_rng.integers(-1, 2, size=shape).astype(float)  # many ties
    scores[3, 2:4] = np.inf
    already = np_rng.random(shape) < 0.2
    padding = np.arange(8) >= np.array(LENGTHS)[:, None]
    scores[padding], texts["tokens"][padding] = np.nan, 7
    tokens, masked = _roar.mask_top(**texts, scores=scores, share=share, already=already)
    for row, length in enumerate(LENGTHS):
        words = texts["tokens"][row, :length]
        chosen = masked_by_loop(words, scores[row], share, already[row])
        assert set(np.flatnonzero(masked[row])) == chosen
        want = [MASK if t in chosen else word for t, word in enumerate(words)]
        np.testing.assert_array_equal(tokens[row], [*want, *[0] * (8 - length)])


def test_a_count_that_is_whole_is_not_rounded_down():
    # 0.29 * 100 is 28.999999999999996
    tokens, lengths = np.full((1, 100), 2), np.array([100])
    for hundredth in range(101):
        left, masked = _roar.mask_top(tokens, lengths, np.zeros((1, 100)), hundredth / 100)
        assert left.dtype == np.int32
        assert masked.sum() == hundredth
        assert masked[0, :hundredth].all()


def racu_by_loop(x, measure, random):
    over = below = 0.0
    for i in range(len(x) - 1):
        step = x[i + 1] - x[i]
        over += step / 2 * ((random[i] - measure[i]) + (random[i + 1] - measure[i + 1]))
        below += step / 2 * ((random[i] - random[-1]) + (random[i + 1] - random[-1]))
    return over / below


def test_racu_is_that_of_a_loop_and_its_interval_students(np_rng):
    random = np.linspace(1, 0.3, len(SHARES))[:, None] + 0.02 * np_rng.normal(size=(len(SHARES), 4))
    measure = random - 0.2 * np_rng.random((len(SHARES), 4))
    want = [racu_by_loop(SHARES, measure[:, s], random[:, s]) for s in range(4)]
    for level, options in ((0.9, {"level": 0.9}), (0.95, {})):
        found = analysis.racu(SHARES, measure, random, **options)
        np.testing.assert_allclose(found.values, want)
        np.testing.assert_allclose(found.mean, np.mean(want))
        interval = stats.t.interval(level, 3, loc=np.mean(want), scale=stats.sem(want))
        np.testing.assert_allclose((found.low, found.high), interval)
    one = analysis.racu(SHARES, measure[:, 0], random[:, 0])
    assert one.mean == pytest.approx(found.values[0])
    assert one.low is one.high is None


def test_racu_of_known_curves():
    assert tuple(n / 10 for n in range(11)) == analysis.ROAR_SHARES
    x, random = (0, 0.5, 1), (1, 0.5, 0)
    assert analysis.racu(x, random, random).mean == 0
    assert analysis.racu(x, (0, 0, 0), random).mean == 1
    assert analysis.racu(x, (1, 0, 0), random).mean == pytest.approx(0.5)
    assert analysis.racu(x, (1, 1, 0), random).mean == pytest.approx(-0.5)
    assert np.isnan(analysis.racu(x, random, (0.5, 0.5, 0.5)).mean)
    # the metric may have any unit, and rounding errors are no curve
    for unit in (1e-12, 1e12):
        small = np.array(random) * unit
        assert analysis.racu(x, (unit, 0, 0), small).mean == pytest.approx(0.5)
        assert np.isnan(analysis.racu(x, small, np.array([0.1 + 0.2, 0.3, 0.3]) * unit).mean)
    # shares need not be evenly apart: the same lines, cut elsewhere
    cut = analysis.racu((0, 0.25, 0.5, 1), (1, 0.5, 0, 0), (1, 0.75, 0.5, 0))
    assert cut.mean == pytest.approx(0.5)


def test_the_recursion_is_that_of_a_loop(texts):
    """The importance changes with the network, which knows its share and seed."""
    splits = {"train": texts | {"label": np.arange(6)}, "test": texts}
    seen = []

    def fit(share, copies):
        seen.append((share, copies))
        return [((share, seed), seed + share) for seed in range(len(copies))]

    def importance(network, part):
        share, seed = network
        return ((part["tokens"] * (7 + 10 * share + seed)) % 5).astype(np.uint8)

    curve = analysis.roar(splits, fit, importance, shares=SHARES, seeds=2)
    np.testing.assert_allclose(curve, [[share, 1 + share] for share in SHARES])
    assert [share for share, _ in seen] == list(SHARES)
    for seed in range(2):
        for row, length in enumerate(LENGTHS):
            words, already = list(texts["tokens"][row, :length]), [False] * length
            for place, (share, copies) in enumerate(seen):
                if place:
                    scores = [int(w * (7 + 10 * SHARES[place - 1] + seed) % 5) for w in words]
                    chosen = masked_by_loop(words, scores, share, already)
                    already = [t in chosen for t in range(length)]
                    words = [MASK if t in chosen else w for t, w in enumerate(words)]
                for name in splits:
                    np.testing.assert_array_equal(copies[seed][name]["tokens"][row, :length], words)
                assert "label" in copies[seed]["train"]
    # both seeds would do the same without networks of their own
    assert any((c[0]["test"]["tokens"] != c[1]["test"]["tokens"]).any() for _, c in seen)


@pytest.mark.slow
def test_random_words_belong_to_seed_share_and_example(texts):
    seen = {}

    def run(which, part, shares=(0, 0.4, 0.8), **options):
        def fit(share, copies):
            for split in ("train", "test"):
                tokens = [one[split]["tokens"] for one in copies]
                seen.setdefault(which if split == "test" else split, []).append(tokens)
            return [(None, 0.0)] * len(copies)

        splits = {"train": part, "test": part}
        analysis.roar(splits, fit, "random", shares=shares, seeds=2, **options)

    ids = np.arange(6)
    run("a", texts | {"example_id": ids})
    assert (seen["train"][1][0] != seen["a"][1][0]).any()
    run("again", texts)  # the numbers of the rows
    run("at once", texts, (0, 0.8), mask_id=0)
    run("turned", {k: v[::-1] for k, v in (texts | {"example_id": ids}).items()})
    run("later", texts | {"example_id": ids}, first_seed=1)
    np.testing.assert_array_equal(seen["a"], seen["again"])
    np.testing.assert_array_equal(np.array(seen["a"])[:, :, ::-1], seen["turned"])
    np.testing.assert_array_equal(np.array(seen["a"])[:, 1], np.array(seen["later"])[:, 0])
    assert (seen["a"][1][0] != seen["a"][1][1]).any()
    # the words of the second step are drawn again
    masked = np.array(seen["at once"][1]) == 0
    assert (masked != (np.array(seen["a"][2]) <= 1)).any()
    assert masked.sum() == (np.array(seen["a"][2]) <= 1).sum()
