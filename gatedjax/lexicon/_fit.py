"""The fit of a gated lexicon: linear models, between which words are closed."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gatedjax.lexicon._features import (
    Columns,
    Numbers,
    Spelling,
    compute_scale,
    count_features,
    drop_columns,
    find_keys,
    find_pairs,
    number_words,
    split_rows,
    weigh_cells,
)
from gatedjax.lexicon._heads import ClassHead, Head
from gatedjax.lexicon._lexicon import Lexicon, measure_strengths, sum_spellings
from gatedjax.lexicon._solve import choose_words, compute_gains, fit_weights
from gatedjax.lexicon._spelling import spell

DENSITIES = (1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1)
"""The stages of a fit: shares of the words of the training texts that are open."""
# The scale of n-grams against words, and the occurrences without a gain that are added to those of
# a word, because the mean of few is unreliable. Measured on ten folds of five training sets.
_NGRAM_SCALE, _SHRINK = 0.12, 1.0
# A word or pair is a feature if it occurs this often, an n-gram if this many words have it.
_LEAST = 2
# Up to so many occurrences a word sets the threshold for unknown words.
_RARE = 2
# Largest number of weights. The solver has a dozen arrays of this size, together 2 GB.
_MOST_WEIGHTS = 20_000_000
# Words whose gains are computed at once.
_CHUNK = 200_000


class EmptyLexicon(ValueError):
    """The error that `fit_lexicon` raises for a density at which no word would be open.

    A density is the share of the words that are open; a lexicon reads the open words only.
    """


class _Corpus(NamedTuple):
    """The training texts: V different words by falling frequency, and their character n-grams."""

    types: list[str]
    ids: np.ndarray  # int64 [T], the position of each word in `types`
    rows: np.ndarray  # int64 [T], the text of each word, sorted
    num_texts: int
    counts: np.ndarray  # int64 [V]
    ngrams: list[str]  # n-grams that at least two different words have
    spelling: Spelling  # the positions in `ngrams`


class _Stage(NamedTuple):
    """The fitted weights of a stage, in which some of the V words are open. The F columns are
    words, then pairs, then n-grams; K is the number of classes, but 1 for two classes.
    """

    word_types: np.ndarray
    pairs: np.ndarray
    ngrams: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    logits: np.ndarray
    factors: np.ndarray


def fit_lexicon(
    texts: Sequence[Sequence[str]],
    labels: np.ndarray,
    num_classes: int,
    densities: Sequence[float] = DENSITIES,
    *,
    sample_weight: np.ndarray | None = None,
    head: Head | None = None,
) -> Iterator[Lexicon]:
    """Fits lexicons of falling density to labelled texts, and yields one for each density.

    Each stage is a convex problem, for classes logistic regression, on the features of the open
    words, which starts from the weights of the stage before. After stage k each open word has the
    mean gain and the score

        m_k = sum of gains / (number of occurrences + 1),   gain = loss without the word - loss
        s_k = (m_k + s_{k-1}) / 2,   s_1 = m_1

    and the words of the largest scores stay open, as long as their occurrences fit into the next
    density. The gains are those on the training texts, which favour the words that a stage fits
    best by chance; the mean over the stages has less of this noise. There is no random number, and
    the same texts give the same bits.

        >>> texts = [["a", "fine", "film"], ["a", "dull", "film"]] * 4
        >>> for lexicon in fit_lexicon(texts, np.array([1, 0] * 4), 2, [1.0, 0.4]):
        ...     reading = lexicon.read([["a", "dull", "play"]])
        ...     print(reading.probabilities.argmax(1), reading.is_open[0])
        [0] [ True  True  True]
        [0] [False  True False]

    Args:
      texts: the words of each text.
      labels: the targets of the n texts; for classes int [n], from 0.
      num_classes: the number of classes, at least 2, for the head None.
      densities: the shares of the words that are open, falling, in (0, 1].
      sample_weight: [n], the weight of each text in the loss and in the gains, with a mean above 0
        that is scaled to 1; None gives all texts the same weight. A text of weight 0 is left out.
      head: the loss and the prediction, such as `LabelHead(3)`; None is `ClassHead(num_classes)`.

    Yields:
      The lexicon of each density.

    Raises:
      EmptyLexicon: if a density leaves no word open.
      ValueError: if the number of texts and labels differ, there is no word or no class, the
        densities are not falling numbers in (0, 1], a weight is negative or not finite, or there
        are more than 20,000,000 features times classes.
    """
    labels = np.asarray(labels)
    head = ClassHead(num_classes) if head is None else head
    if sample_weight is not None:
        texts, labels, sample_weight = drop_unweighted(texts, labels, sample_weight)
    _check_arguments(texts, labels, head, densities)
    prior = head.compute_prior(labels, sample_weight)
    corpus = _count_words(texts)
    open_types = np.ones(len(corpus.types), bool)
    before: _Stage | None = None
    scores: np.ndarray | None = None
    for density in densities:
        if density < 1:
            # The gains that choose the words need weights, so a first density below 1 needs a stage
            # in which all words are open.
            if before is None:
                before = _fit_stage(corpus, labels, head, open_types, None, sample_weight)
            gains = _compute_mean_gains(corpus, labels, head, open_types, before, sample_weight)
            scores = gains if scores is None else (gains + scores) / 2
            open_types = choose_words(scores, corpus.counts, density * len(corpus.ids))
            if not open_types.any():
                raise EmptyLexicon(
                    f"density must leave a word open, got {density} of {len(corpus.ids):,} words: "
                    "even the rarest word takes more; choose a larger density"
                )
        before = _fit_stage(corpus, labels, head, open_types, before, sample_weight)
        yield _make_lexicon(corpus, head, prior, open_types, before, density)


def _check_arguments(
    texts: Sequence[Sequence[str]], labels: np.ndarray, head: Head, densities: Sequence[float]
) -> None:
    if len(texts) != len(labels) or not len(texts):
        raise ValueError(
            f"texts and labels must have the same length of at least 1, got {len(texts)} and "
            f"{len(labels)}"
        )
    head.check_targets(labels)
    if not any(map(len, texts)):
        raise ValueError(f"texts must have at least one word, got none in {len(texts)} texts")
    falling = list(densities) == sorted(set(densities), reverse=True)
    if not densities or not falling or not all(0 < density <= 1 for density in densities):
        raise ValueError(f"densities must be falling numbers in (0, 1], got {list(densities)}")


def scale_weights(weights: np.ndarray, num_texts: int) -> np.ndarray:
    """Returns the weights of n texts as float64, divided by their mean.

    >>> print(scale_weights(np.array([1, 3]), 2))
    [0.5 1.5]
    """
    weights = np.asarray(weights, np.float64)
    if weights.shape != (num_texts,):
        raise ValueError(f"sample_weight must have shape ({num_texts},), got {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(
            "sample_weight must be finite numbers of at least 0, and some above 0, got "
            f"{weights[:5].tolist()} first"
        )
    return weights / weights.mean()


def drop_unweighted(
    texts: Sequence[Any], labels: np.ndarray, weights: np.ndarray
) -> tuple[Sequence[Any], np.ndarray, np.ndarray]:
    """Returns the texts with a weight above 0, their labels, and their weights with the mean 1."""
    scaled = scale_weights(weights, len(labels))
    if scaled.all() or len(texts) != len(labels):
        return texts, labels, scaled
    rows = np.flatnonzero(scaled)
    kept = np.asarray(weights, np.float64)[rows]
    return [texts[i] for i in rows.tolist()], labels[rows], scale_weights(kept, len(rows))


def _count_words(texts: Sequence[Sequence[str]]) -> _Corpus:
    """Numbers the words by falling frequency, and finds their n-grams."""
    words = number_words(texts)
    counts = np.bincount(words.ids, minlength=len(words.types))
    # The most frequent words come first; equals stay in the order in which they first occur.
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    types = [words.types[i] for i in order.tolist()]
    # The numbers follow the first occurrences; the order of a set would change with the process.
    numbers = Numbers()
    of_word, word, _ = numbers.number(map(spell, types))
    # A sort is faster than `np.unique`. An n-gram that a word repeats counts once.
    codes = np.sort(word * max(len(numbers), 1) + of_word)
    different = codes[np.diff(codes, prepend=-1) > 0] % max(len(numbers), 1)
    is_ngram = np.bincount(different, minlength=len(numbers)) >= _LEAST
    ngrams = list(itertools.compress(numbers, is_ngram.tolist()))
    column_of = np.where(is_ngram, np.cumsum(is_ngram) - 1, -1)
    spelling = drop_columns(column_of[of_word], np.bincount(word, minlength=len(types)))
    return _Corpus(
        types, place[words.ids], words.rows, words.num_texts, counts[order], ngrams, spelling
    )


def _fit_stage(
    corpus: _Corpus,
    labels: np.ndarray,
    head: Head,
    open_types: np.ndarray,
    before: _Stage | None,
    sample_weight: np.ndarray | None,
) -> _Stage:
    """Fits the head to the features of the open words; the solver starts from the stage before."""
    from scipy.sparse import csr_matrix

    is_open = open_types[corpus.ids]
    ids, rows = corpus.ids[is_open], corpus.rows[is_open]
    width = len(corpus.types)
    # The pairs of each stage are counted again, because closing a word makes its neighbours a pair.
    keys, counts = np.unique(find_pairs(ids, rows, width)[0], return_counts=True)
    pairs = keys[counts >= _LEAST]
    word_types = np.flatnonzero(open_types & (corpus.counts >= _LEAST))
    of_word = np.full(width, -1)
    of_word[word_types] = np.arange(len(word_types))
    sizes = np.diff(corpus.spelling.starts)
    is_ngram = np.zeros(len(corpus.ngrams), bool)
    is_ngram[corpus.spelling.columns[np.repeat(open_types, sizes)]] = True
    ngrams = np.flatnonzero(is_ngram)
    first_ngram = len(word_types) + len(pairs)
    spelling = _renumber(corpus, open_types, ngrams, first_ngram)
    num_columns = first_ngram + len(ngrams)
    if num_columns * head.num_groups > _MOST_WEIGHTS:
        hint = "min_class leaves out rare labels"
        if isinstance(head, ClassHead):
            hint = "a network (model='gru') has fewer"
        raise ValueError(
            f"texts must have at most {_MOST_WEIGHTS:,} weights for a lexicon, got {num_columns:,} "
            f"features for each of {head.num_groups:,} {head.kind}: {hint}"
        )
    cells = count_features(
        ids,
        rows,
        Columns(of_word, pairs, len(word_types), width),
        np.arange(width),
        spelling,
        num_columns,
    )
    scale = compute_scale(
        cells,
        head.group_texts(labels),
        first_ngram,
        num_columns,
        absent=(width - len(word_types), len(corpus.ngrams) - len(ngrams)),
        ngram_scale=_NGRAM_SCALE,
    )
    # A lexicon stores 32 bits, and the fit uses the same numbers.
    scale = scale.astype(np.float32).astype(np.float64)
    values, factors = weigh_cells(cells, scale, corpus.num_texts)
    starts = np.searchsorted(cells.rows, np.arange(corpus.num_texts + 1))
    shape = corpus.num_texts, num_columns
    matrix = csr_matrix((values.astype(np.float32), cells.columns, starts), shape)
    start = None if before is None else _warm_start(before, word_types, pairs, ngrams, scale)
    weights, bias = fit_weights(
        *(matrix, labels, head.num_groups, head.inverse_penalty, start),
        sample_weight=sample_weight,
        head=head,
    )
    weights, bias = weights.astype(np.float32), bias.astype(np.float32)
    logits = head.add_bias(matrix @ weights, bias).astype(np.float64)
    return _Stage(word_types, pairs, ngrams, scale, weights, bias, logits, factors)


def _renumber(corpus: _Corpus, open_types: np.ndarray, ngrams: np.ndarray, first: int) -> Spelling:
    column_of = np.full(len(corpus.ngrams), -1)
    # Closed words have no n-gram, and the n-grams of the stage get the columns from `first` on.
    column_of[ngrams] = first + np.arange(len(ngrams))
    sizes = np.diff(corpus.spelling.starts)
    columns = column_of[corpus.spelling.columns[np.repeat(open_types, sizes)]]
    starts = np.concatenate([[0], np.cumsum(np.where(open_types, sizes, 0))])
    return Spelling(columns, starts)


def _warm_start(
    before: _Stage, word_types: np.ndarray, pairs: np.ndarray, ngrams: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the start (W, bias) of the solver, with the products r W of the stage before, and 0
    for new features.
    """
    old = before.weights * before.scale[:, None]
    parts, first = [], 0
    for old_keys, keys in (
        (before.word_types, word_types),
        (before.pairs, pairs),
        (before.ngrams, ngrams),
    ):
        places = find_keys(old_keys, keys)
        parts.append(np.where((places >= 0)[:, None], old[first + places], 0.0))
        first += len(old_keys)
    return np.concatenate(parts) / np.maximum(scale, 1e-9)[:, None], before.bias.astype(np.float64)


def _compute_mean_gains(
    corpus: _Corpus,
    labels: np.ndarray,
    head: Head,
    open_types: np.ndarray,
    stage: _Stage,
    sample_weight: np.ndarray | None,
) -> np.ndarray:
    """Returns sum of gains / (occurrences + 1) of each open word, -inf for closed words: [V]."""
    is_open = open_types[corpus.ids]
    ids, rows = corpus.ids[is_open], corpus.rows[is_open]
    weights = head.centre(stage.weights * stage.scale[:, None])
    first_pair = len(stage.word_types)
    first_ngram = first_pair + len(stage.pairs)
    # The types that are closed have no n-gram here, so that their shares are 0.
    of_type = sum_spellings(_renumber(corpus, open_types, stage.ngrams, first_ngram), weights)
    of_type[stage.word_types] += weights[:first_pair]
    sums = np.zeros(len(corpus.types))

    def compute_losses(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return head.compute_losses(logits, stage.bias, targets)

    # The shares [T, C] of all words at once may need more memory than the texts.
    bounds = split_rows(rows, _CHUNK)
    for begin, end in itertools.pairwise(bounds):
        part, row = ids[begin:end], rows[begin:end]
        shares = of_type[part]
        keys, first = find_pairs(part, row, len(corpus.types))
        places = find_keys(stage.pairs, keys)
        first, places = first[places >= 0], places[places >= 0]
        # A position is the first word of one pair at most, and the second of one.
        for side in (first, first + 1):
            shares[side] += weights[first_pair + places]
        shares *= stage.factors[row][:, None]
        texts, local = np.unique(row, return_inverse=True)
        gains = compute_gains(stage.logits[texts], shares, local, labels[texts], compute_losses)
        if sample_weight is not None:
            gains = gains * sample_weight[row]
        sums += np.bincount(part, gains, len(sums))
    return np.where(open_types, sums / (corpus.counts + _SHRINK), -np.inf)


def _make_lexicon(
    corpus: _Corpus,
    head: Head,
    prior: np.ndarray,
    open_types: np.ndarray,
    stage: _Stage,
    density: float,
) -> Lexicon:
    """Makes the `Lexicon` of a stage. An unknown word is open if its strength is above the
    threshold, as about the share `density` of the rare training words are.
    """
    scale, weights, num_words = stage.scale, stage.weights, len(stage.word_types)
    column_of = np.full(len(corpus.ngrams), -1)
    column_of[stage.ngrams] = len(scale) - len(stage.ngrams) + np.arange(len(stage.ngrams))
    columns = column_of[corpus.spelling.columns]
    has_column = columns >= 0
    starts = np.concatenate([[0], np.cumsum(has_column)])[corpus.spelling.starts]
    spelling = Spelling(columns[has_column], starts)
    strengths = measure_strengths(
        spelling, head.centre(scale[:, None] * weights.astype(np.float64))
    )
    # Strengths are at least 0, so that -1 opens all unknown words.
    threshold = -1.0
    if density < 1:
        # Rare words of the training texts resemble unknown words most.
        rare = strengths[corpus.counts <= _RARE]
        threshold = float(np.quantile(rare, 1 - density)) if len(rare) else 0.0
    has_weight = np.zeros(len(corpus.types), bool)
    has_weight[stage.word_types] = True
    # All words are stored, because only a word that is not stored is unknown.
    stored = np.concatenate([stage.word_types, np.flatnonzero(~has_weight)])
    number_of = np.full(len(corpus.types), -1)
    number_of[stage.word_types] = np.arange(num_words)
    pairs = number_of[np.stack(np.divmod(stage.pairs, len(corpus.types)), 1)]
    return Lexicon(
        num_classes=head.num_probabilities,
        words=tuple(corpus.types[i] for i in stored.tolist()),
        is_open=open_types[stored],
        counts=corpus.counts[stage.word_types].astype(np.int32),
        pairs=pairs.astype(np.int32).reshape(-1, 2),
        ngrams=tuple(corpus.ngrams[i] for i in stage.ngrams.tolist()),
        scale=scale.astype(np.float32),
        weights=weights,
        bias=stage.bias,
        prior=prior,
        threshold=threshold,
        density=density,
        head=head,
    )
