"""Beam and greedy search on Markov chains, against the enumeration of every target."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.models import beam_search, greedy_search
from tests.tolerances import F32

START, STOP = 0, 1


def chain(np_rng, rows=3, classes=4, sharp=1.0):
    """Log-probabilities [rows, position, token before, token]; START is never produced."""
    logits = sharp * np_rng.normal(size=(rows, 6, classes, classes))
    logits[..., START] = -np.inf
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)


def step_of(table):
    """A model that reads its last token out of its cache, which must be that of the target."""

    def step(tokens, cache, position):
        rows, beams = jnp.arange(table.shape[0])[:, None], jnp.arange(tokens.shape[1])[None]
        history = cache.at[:, :, position].set(tokens)
        # the token before the last says whether the cache was gathered with the target
        before = history[rows, beams, position]
        older = history[rows, beams, jnp.maximum(position - 1, 0)]
        shift = jnp.where(position > 0, 0.1 * older, 0.0)[..., None]
        shift = shift * (jnp.arange(table.shape[-1]) == 2)[None, None]
        return jax.nn.log_softmax(table[rows, position, before] + shift, axis=-1), history

    return step


def log_prob(table, row, target):
    """Of a target, by the same rule, in a loop."""
    total, before, older = 0.0, START, 0
    for t, token in enumerate(target):
        scores = np.asarray(table[row, t, before], np.float64).copy()
        scores[2] += 0.1 * older if t > 0 else 0.0
        total += scores[token] - np.log(np.sum(np.exp(scores)))
        before, older = token, before
    return total


def cache_of(rows, beams, size):
    return np.full((rows, beams, size), -1, np.int32)


@functools.partial(jax.jit, static_argnames=("alpha", "size", "beam_size", "greedy"))
def _search(table, cache, limits, *, alpha, size, beam_size, greedy=False):
    options = {"size": size, "start": START, "stop": STOP}
    if greedy:
        return greedy_search(step_of(table), cache, limits, **options)
    return beam_search(step_of(table), cache, limits, beam_size=beam_size, alpha=alpha, **options)


def search(table, limits, *, size, beam_size, alpha=0.0, **options):
    """Compiled once for every shape and length penalty."""
    cache = cache_of(len(table), beam_size, size)
    limits = np.asarray(limits, np.int32)
    found = _search(table, cache, limits, alpha=alpha, size=size, beam_size=beam_size, **options)
    return jax.tree.map(np.asarray, found)


def enumerated(table, row, limit, alpha):
    """Every target of a row up to its limit, the best first."""
    classes = table.shape[-1]
    others = [v for v in range(classes) if v not in (START, STOP)]
    found = []
    for length in range(1, limit + 1):
        for body in itertools.product(others, repeat=length - 1):
            target = (*body, STOP)
            total = log_prob(table, row, target)
            found.append((total / ((5 + length) / 6) ** alpha, target))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_beam_as_wide_as_all_targets_finds_the_best_of_them(np_rng, alpha):
    table = chain(np_rng)
    # 1 + 2 + 4 + 8 targets of at most 4 tokens, and as many that go on
    found = search(table, [4, 2, 3], size=4, beam_size=24, alpha=alpha)
    for row, limit in enumerate([4, 2, 3]):
        wanted = enumerated(table, row, limit, alpha)
        np.testing.assert_allclose(found.scores[row, : len(wanted)], [s for s, _ in wanted], **F32)
        for place, (_, target) in enumerate(wanted[:3]):
            got = np.asarray(found.tokens[row, place])
            assert tuple(got[: len(target)]) == target
            assert not got[len(target) :].any()
        assert np.all(np.isneginf(found.scores[row, len(wanted) :]))


def test_a_beam_of_one_is_greedy_search(np_rng):
    for sharp in (0.5, 3.0):
        table = chain(np_rng, rows=8, classes=5, sharp=sharp)
        limits = [6, 5, 4, 3, 2, 1, 6, 6]
        beam = search(table, limits, size=6, beam_size=1)
        greedy = search(table, limits, size=6, beam_size=1, greedy=True)
        np.testing.assert_array_equal(beam.tokens, greedy.tokens)
        np.testing.assert_allclose(beam.scores, greedy.scores, **F32)
        for row in range(8):  # and both are what a loop finds
            target = []
            for t in range(int(limits[row])):
                options = [STOP] if t + 1 == limits[row] else range(1, 5)
                target.append(max(options, key=lambda v: log_prob(table, row, [*target, v])))
                if target[-1] == STOP:
                    break
            total = log_prob(table, row, target)
            assert list(greedy.tokens[row, 0, : len(target)]) == target
            assert float(greedy.scores[row, 0]) == pytest.approx(total, rel=1e-5)


def looped(table, row, limit, beams, alpha):
    """The search of one row, target by target: (score, target), the best first."""
    alive, ended = [()], []
    for t in range(limit):
        tokens = [STOP] if t + 1 == limit else range(1, table.shape[-1])
        longer = [(*target, token) for target in alive for token in tokens]
        best = sorted(((log_prob(table, row, one), one) for one in longer), reverse=True)
        best = best[: 2 * beams]
        stopped = [(total, one) for total, one in best[:beams] if one[-1] == STOP]
        ended += [(total / ((5 + len(one)) / 6) ** alpha, one) for total, one in stopped]
        alive = [one for _, one in best if one[-1] != STOP][:beams]
        if len(ended) >= beams:
            break
    return sorted(ended, reverse=True)[:beams]


def test_a_narrow_beam_is_the_search_of_each_row_alone(np_rng):
    limits = [6, 1, 3, 5]
    for _ in range(24):
        table = chain(np_rng, rows=4, classes=5, sharp=2.0)
        found = search(table, limits, size=6, beam_size=3, alpha=0.6)
        for row, limit in enumerate(limits):
            wanted = looped(table, row, limit, 3, 0.6)
            scores = [score for score, _ in wanted] + [-np.inf] * (3 - len(wanted))
            np.testing.assert_allclose(found.scores[row], scores, **F32)
            for got, (_, target) in zip(found.tokens[row], wanted, strict=False):
                assert tuple(got) == target + (0,) * (6 - len(target))
