"""The fit of a gated lexicon: linear models, each of which reads fewer words."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import get_cached_controller

from gatedjax.lexicon import _features, _lexicon
from gatedjax.lexicon._heads import ClassHead, Head
from gatedjax.lexicon._solve import choose_words, fit_weights
from gatedjax.lexicon._spelling import is_spaceless, spell
from gatedjax.lexicon._vectors import NO_PIECES, Pieces, Vectors, average_matrix

SHARES = (1.0, 0.7, 0.5, 0.4, 0.3)
"""The stages of a fit: shares of the words of the training texts that are read."""
# A pair is a feature if it occurs this often, an n-gram if this many words (or borders of different
# units) and texts have it.
_LEAST = 2
# Words that occur at most this often set the threshold for unknown words.
_RARE = 2
# Training texts without a word of another text, as a share and as a number. Above both such texts
# are usual, as in languages with many forms of a word, and their letters are evidence.
_SHARE_OF_STRANGERS, _MOST_STRANGERS = 0.02, 10
# Largest number of weights. The solver has a dozen arrays of this size, together 2 GB.
_MOST_WEIGHTS = 20_000_000
# Mean length of a text's sum of vectors, the same for many texts, and how many texts are many.
_VECTORS, _VECTORS_OF_MANY, _MANY = 1.0, 0.5, 500
# Number of words in a computation of effects, which bounds its memory.
_CHUNK = 200_000


class EmptyLexicon(ValueError):
    """The error that `fit_lexicon` raises for a share at which no word would be read.

    A share is that of the words that are read among all words of the training texts.
    """


class _Corpus(NamedTuple):
    """The training texts: V different words by falling frequency, and their character n-grams."""

    types: list[str]
    ids: np.ndarray  # int64 [T], the position of each word in `types`
    rows: np.ndarray  # int64 [T], the text of each word, sorted
    num_texts: int
    counts: np.ndarray  # int64 [V]
    ngrams: dict[str, int]  # an n-gram that at least two different words have -> its position
    spelling: _features.Spelling  # the positions in `ngrams`
    is_unit: np.ndarray  # bool [V], True for units of scripts without spaces
    junctions: _features.Junctions  # of all words
    pieces: Pieces  # N pieces with vectors
    of_pieces: np.ndarray  # float32 [N, D], the vectors less their mean over the words of the texts
    split: _features.Spelling  # the pieces of each word
    letters_suffice: bool


class _Stage(NamedTuple):
    """The fitted weights of a stage, in which some of the V words are read. The F columns are
    words, then pairs, then n-grams; K is the number of classes, but 1 for two classes. The D
    weights of vectors are U.
    """

    word_types: np.ndarray
    pairs: np.ndarray
    ngrams: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    vector_weights: np.ndarray
    bias: np.ndarray
    factors: np.ndarray


def fit_lexicon(
    texts: Sequence[Sequence[str]],
    labels: np.ndarray,
    num_classes: int,
    shares: Sequence[float] = SHARES,
    *,
    sample_weight: np.ndarray | None = None,
    head: Head | None = None,
    vectors: Vectors | None = None,
    pseudo_count: float | Sequence[float] = 0.0,
) -> Iterator[_lexicon.Lexicon]:
    """Fits lexicons of falling share to labelled texts, and yields one for each share.

    Each stage is a convex problem, for classes logistic regression, on the features of the words
    read, which starts from the weights of the stage before. The first stage reads all words and
    ranks them by their effect,

        effect = sum over the n places of the word of max_c |part of the word in logit c| / (n + k)

    and a later stage reads the words with the largest effects, as long as their occurrences fit
    into its share. No step is random, so the same texts give the same lexicons, bit for bit.

        >>> texts = [["a", "fine", "film"], ["a", "dull", "film"]] * 4
        >>> for lexicon in fit_lexicon(texts, np.array([1, 0] * 4), 2, [1.0, 0.4]):
        ...     reading = lexicon.read([["a", "dull", "show"]])
        ...     print(reading.probabilities.argmax(1), reading.is_read[0])
        [0] [ True  True  True]
        [0] [False  True False]

    Args:
      texts: the words of each text.
      labels: the targets of the n texts; for classes int [n], from 0.
      num_classes: the number of classes, at least 2, for the head None.
      shares: the shares of the words that are read, falling, in (0, 1].
      sample_weight: [n], the weight of each text in the loss and in the gains, with a mean above 0
        that is scaled to 1; None gives all texts the same weight. A text of weight 0 is left out.
      head: the loss and the prediction, such as `LabelHead(3)`; None is `ClassHead(num_classes)`.
      vectors: pretrained vectors of words, see `read_vectors`; None is none.
      pseudo_count: the number k. Where new texts seldom have the rare words, as in short questions,
        1 ranks these lower and is better than 0; where letters of rare words decide, it is worse.
        With several numbers each share below 1 has a lexicon for each of them, in their order.

    Yields:
      The lexicon of each share.

    Raises:
      EmptyLexicon: if a share leaves no word to read.
      ValueError: if the number of texts and labels differ, there is no word or no class, the
        shares are not falling numbers in (0, 1], a weight is negative or not finite, or there
        are more than 20,000,000 features times classes.
    """
    labels = np.asarray(labels)
    head = ClassHead(num_classes) if head is None else head
    if sample_weight is not None:
        texts, labels, sample_weight = drop_unweighted(texts, labels, sample_weight)
    _check_arguments(texts, labels, head, shares)
    pseudo_counts = np.atleast_1d(pseudo_count).tolist()
    if not all(0 <= k < np.inf for k in pseudo_counts):
        raise ValueError(f"pseudo_count must be a finite number of at least 0, got {pseudo_count}")
    prior = head.compute_prior(labels, sample_weight)
    corpus = _count_words(texts, vectors)
    read_types = np.ones(len(corpus.types), bool)
    # The effects that choose the words need the weights of a stage that reads all words.
    before = _fit_stage(corpus, labels, head, read_types, None, sample_weight)
    if shares[0] == 1:
        yield _make_lexicon(corpus, head, prior, read_types, before, 1.0)
        shares = shares[1:]
    if not shares:
        return
    ranks = [_compute_effects(corpus, head, before, sample_weight, k) for k in pseudo_counts]
    for share in shares:
        start = before
        for effects in ranks:
            read_types = choose_words(effects, corpus.counts, share * len(corpus.ids))
            if not read_types.any():
                raise EmptyLexicon(
                    f"share must leave a word to read, got {share} of {len(corpus.ids):,} words: "
                    "even the rarest word takes more; choose a larger share"
                )
            before = _fit_stage(corpus, labels, head, read_types, start, sample_weight)
            yield _make_lexicon(corpus, head, prior, read_types, before, share)


def _check_arguments(
    texts: Sequence[Sequence[str]], labels: np.ndarray, head: Head, shares: Sequence[float]
) -> None:
    if len(texts) != len(labels) or not len(texts):
        raise ValueError(
            f"texts and labels must have the same length of at least 1, got {len(texts)} and "
            f"{len(labels)}"
        )
    head.check_targets(labels)
    if not any(map(len, texts)):
        raise ValueError(f"texts must have at least one word, got none in {len(texts)} texts")
    falling = list(shares) == sorted(set(shares), reverse=True)
    if not shares or not falling or not all(0 < share <= 1 for share in shares):
        raise ValueError(f"shares must be falling numbers in (0, 1], got {list(shares)}")


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


def _count_words(texts: Sequence[Sequence[str]], vectors: Vectors | None) -> _Corpus:
    """Numbers the words by falling frequency, and finds their n-grams."""
    words = _features.number_words(texts)
    counts = np.bincount(words.ids, minlength=len(words.types))
    # The most frequent words come first; equals stay in the order in which they first occur.
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    types = [words.types[i] for i in order.tolist()]
    is_unit = np.fromiter(map(is_spaceless, types), bool, len(types))
    ids = place[words.ids]
    left, kinds, across = _features.find_borders(ids, words.rows, is_unit, types)
    # The numbers follow the first occurrences; the order of a set would change with the process.
    numbers = _features.Numbers()
    # A kind of borders counts as a further word.
    of_word, word, num_words = numbers.number(itertools.chain(map(spell, types), across))
    # A sort is faster than `np.unique`. An n-gram that a word repeats counts once.
    codes = np.sort(word * max(len(numbers), 1) + of_word)
    different = codes[np.diff(codes, prepend=-1) > 0] % max(len(numbers), 1)
    is_ngram = np.bincount(different, minlength=len(numbers)) >= _LEAST
    # An n-gram is in two texts unless all of its words are in a single text.
    places = np.concatenate([ids, len(types) + kinds])
    rows = np.concatenate([words.rows, words.rows[left]])
    first, last = np.empty(num_words, np.int64), np.empty(num_words, np.int64)
    # Of several numbers for a place the last is stored, and the texts of a word are sorted.
    last[places], first[places[::-1]] = rows, rows[::-1]
    begin = np.full(len(numbers), len(texts))
    end = np.full(len(numbers), -1)
    np.minimum.at(begin, of_word, first[word])
    np.maximum.at(end, of_word, last[word])
    is_ngram &= begin < end
    is_strange = np.zeros(words.num_texts, bool)
    is_strange[words.rows] = True
    is_strange[words.rows[first[ids] < last[ids]]] = False
    num_strangers = int(is_strange.sum())
    letters_suffice = num_strangers > max(_SHARE_OF_STRANGERS * words.num_texts, _MOST_STRANGERS)
    chosen = itertools.compress(numbers, is_ngram.tolist())
    ngrams = {ngram: position for position, ngram in enumerate(chosen)}
    column_of = np.where(is_ngram, np.cumsum(is_ngram) - 1, -1)
    spelling = _features.drop_columns(column_of[of_word], np.bincount(word, minlength=num_words))
    of_types = _features.select_spelling(spelling, np.arange(len(types)))
    of_kinds = _features.select_spelling(spelling, np.arange(len(types), num_words))
    pieces, matrix = vectors or Vectors(NO_PIECES, np.zeros((0, 0), np.float32))
    split = pieces.split(types)
    junctions = _features.Junctions(left, kinds, of_kinds)
    of_pieces = _centre(matrix, split, counts[order])
    return _Corpus(
        *(types, ids, words.rows, words.num_texts, counts[order], ngrams, of_types, is_unit),
        *(junctions, pieces, of_pieces, split, letters_suffice),
    )


def _centre(matrix: np.ndarray, split: _features.Spelling, counts: np.ndarray) -> np.ndarray:
    """Returns the vectors of pieces less the mean vector of the words of the texts."""
    counts = np.where(np.diff(split.starts) > 0, counts, 0)
    weights = counts @ average_matrix(split, len(matrix)) / max(counts.sum(), 1)
    return np.asarray(matrix - (weights @ matrix).astype(np.float32))


def _fit_stage(
    corpus: _Corpus,
    labels: np.ndarray,
    head: Head,
    read_types: np.ndarray,
    before: _Stage | None,
    sample_weight: np.ndarray | None,
) -> _Stage:
    """Fits the head to the features of the words read; the solver starts from the stage before."""
    from scipy.sparse import csr_matrix, hstack

    is_read = read_types[corpus.ids]
    ids, rows = corpus.ids[is_read], corpus.rows[is_read]
    width = len(corpus.types)
    # The pairs of each stage are counted again, because without a word its neighbours are a pair.
    keys, counts = np.unique(_features.find_pairs(ids, rows, width)[0], return_counts=True)
    pairs = keys[counts >= _LEAST]
    word_types = np.flatnonzero(read_types)
    of_word = np.full(width, -1)
    of_word[word_types] = np.arange(len(word_types))
    sizes = np.diff(corpus.spelling.starts)
    is_ngram = np.zeros(len(corpus.ngrams), bool)
    is_ngram[corpus.spelling.columns[np.repeat(read_types, sizes)]] = True
    # The borders of each stage are found again like its pairs.
    junctions = corpus.junctions
    if not is_read.all():
        junctions = _features.find_junctions(ids, rows, corpus.is_unit, corpus.types, corpus.ngrams)
    is_ngram[junctions.spelling.columns] = True
    ngrams = np.flatnonzero(is_ngram)
    first_ngram = len(word_types) + len(pairs)
    column_of = np.full(len(corpus.ngrams), -1)
    column_of[ngrams] = first_ngram + np.arange(len(ngrams))
    num_columns = first_ngram + len(ngrams)
    num_weights = num_columns + corpus.of_pieces.shape[1]
    if num_weights * head.num_groups > _MOST_WEIGHTS:
        hint = "min_class leaves out rare labels"
        if isinstance(head, ClassHead):
            hint = "a network (model='gru') has fewer"
        raise ValueError(
            f"texts must have at most {_MOST_WEIGHTS:,} weights for a lexicon, got {num_weights:,} "
            f"features for each of {head.num_groups:,} {head.kind}: {hint}"
        )
    cells = _features.count_features(
        ids,
        rows,
        _features.Columns(np.arange(width), of_word, pairs, len(word_types), width),
        _renumber(corpus.spelling, column_of),
        junctions._replace(spelling=_renumber(junctions.spelling, column_of)),
        num_columns,
    )
    groups = head.group_texts(labels)
    scale = _features.compute_scale(cells, groups, first_ngram, num_columns)
    # A lexicon stores 32 bits, and the fit uses the same numbers.
    scale = scale.astype(np.float32).astype(np.float64)
    values, factors = _features.weigh_cells(cells, scale, corpus.num_texts)
    starts = np.searchsorted(cells.rows, np.arange(corpus.num_texts + 1))
    shape = corpus.num_texts, num_columns
    matrix = csr_matrix((values.astype(np.float32), cells.columns, starts), shape)
    start = None if before is None else _warm_start(before, word_types, pairs, ngrams, scale)
    length = 1.0
    if len(corpus.of_pieces):
        sums = _sum_vectors(corpus, ids, rows) * factors[:, None]
        # The rows have about the length of the other features, so that all have the same penalty.
        mean = _VECTORS if corpus.num_texts < _MANY else _VECTORS_OF_MANY
        length = mean / max(np.sqrt((sums * sums).sum(1).mean()), 1e-9)
        matrix = hstack([matrix, csr_matrix((length * sums).astype(np.float32))], "csr")
        if start is not None and before is not None:
            start = np.concatenate([start[0], before.vector_weights / length]), start[1]
    weights, bias = fit_weights(
        *(matrix, labels, head.num_groups, head.inverse_penalty, start),
        sample_weight=sample_weight,
        head=head,
    )
    of_vectors = length * weights[num_columns:]
    weights, bias = weights[:num_columns].astype(np.float32), bias.astype(np.float32)
    return _Stage(word_types, pairs, ngrams, scale, weights, of_vectors, bias, factors)


def _sum_vectors(corpus: _Corpus, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns the sum of the vectors of the different words `ids` of each text: [n, D]."""
    from scipy.sparse import csr_matrix

    first = _features.find_first(ids, rows, len(corpus.types))
    starts = np.searchsorted(rows[first], np.arange(corpus.num_texts + 1))
    shape = corpus.num_texts, len(corpus.types)
    has_word = csr_matrix((np.ones(len(first)), ids[first], starts), shape)
    of_piece = has_word @ average_matrix(corpus.split, len(corpus.of_pieces))
    return np.asarray(of_piece.astype(np.float32) @ corpus.of_pieces)


def _weigh_pieces(corpus: _Corpus, stage: _Stage) -> np.ndarray:
    """Returns the weights U v of the pieces, float32 [N, K]."""
    with get_cached_controller().limit(limits=1, user_api="blas"):
        return np.asarray(corpus.of_pieces @ stage.vector_weights.astype(np.float32))


def _renumber(spelling: _features.Spelling, column_of: np.ndarray) -> _features.Spelling:
    # The columns of words that are not read may be -1, and are not used.
    return spelling._replace(columns=column_of[spelling.columns])


def _warm_start(
    before: _Stage, word_types: np.ndarray, pairs: np.ndarray, ngrams: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the products r W and the bias of the stage before, with 0 for new features."""
    old = before.weights * before.scale[:, None]
    parts, first = [], 0
    for old_keys, keys in (
        (before.word_types, word_types),
        (before.pairs, pairs),
        (before.ngrams, ngrams),
    ):
        places = _features.find_keys(old_keys, keys)
        parts.append(np.where((places >= 0)[:, None], old[first + places], 0.0))
        first += len(old_keys)
    return np.concatenate(parts) / np.maximum(scale, 1e-9)[:, None], before.bias.astype(np.float64)


def _compute_effects(
    corpus: _Corpus,
    head: Head,
    stage: _Stage,
    sample_weight: np.ndarray | None,
    pseudo_count: float,
) -> np.ndarray:
    """Returns the effect of each word in a stage that reads all words, with its n-grams and pairs:
    [V].
    """
    weights = head.centre(stage.weights * stage.scale[:, None])
    first_pair = len(stage.word_types)
    # A stage that reads all words has all n-grams.
    of_ngrams = weights[first_pair + len(stage.pairs) :]
    of_pieces = head.centre(_weigh_pieces(corpus, stage).astype(np.float64))
    of_type = _lexicon.sum_parts(corpus.spelling, of_ngrams, corpus.split, of_pieces)
    of_type[stage.word_types] += weights[:first_pair]
    sums = np.zeros(len(corpus.types))
    masses = np.zeros(len(corpus.types))
    # The parts [T, C] of all words at once may need more memory than the texts.
    for begin, end in itertools.pairwise(_features.split_rows(corpus.rows, _CHUNK)):
        ids, rows = corpus.ids[begin:end], corpus.rows[begin:end]
        parts = of_type[ids]
        first, places = _features.match_pairs(ids, rows, stage.pairs, len(corpus.types))
        # A position is the first word of one pair at most, and the second of one.
        left, borders = corpus.junctions.select(begin, end)
        across = _lexicon.sum_spellings(borders, of_ngrams)
        for side in (0, 1):
            parts[first + side] += weights[first_pair + places]
            parts[left + side] += across
        effects = np.abs(parts).max(1) * stage.factors[rows]
        each = np.ones(len(rows)) if sample_weight is None else sample_weight[rows]
        sums += np.bincount(ids, each * effects, len(sums))
        masses += np.bincount(ids, each, len(sums))
    return np.asarray(sums / (masses + pseudo_count))


def _make_lexicon(
    corpus: _Corpus,
    head: Head,
    prior: np.ndarray,
    read_types: np.ndarray,
    stage: _Stage,
    share: float,
) -> _lexicon.Lexicon:
    """Makes the `Lexicon` of a stage. An unknown word is read if its strength is above the
    threshold, so that unknown words are read as often as rare words of the training texts.
    """
    scale, weights, num_words = stage.scale, stage.weights, len(stage.word_types)
    piece_weights = _weigh_pieces(corpus, stage)
    # Strengths are at least 0, so that all unknown words are read with -1. Where letters suffice, a
    # word without a known n-gram is not read.
    threshold = 0.0 if corpus.letters_suffice else -1.0
    if share < 1:
        column_of = np.full(len(corpus.ngrams), -1)
        column_of[stage.ngrams] = len(scale) - len(stage.ngrams) + np.arange(len(stage.ngrams))
        columns = column_of[corpus.spelling.columns]
        spelling = _features.drop_columns(columns, np.diff(corpus.spelling.starts))
        of_ngrams = head.centre(scale[:, None] * weights.astype(np.float64))
        of_pieces = head.centre(piece_weights.astype(np.float64))
        parts = _lexicon.sum_parts(spelling, of_ngrams, corpus.split, of_pieces)
        strengths = np.abs(parts).max(1)
        # Rare words of the training texts resemble unknown words most.
        is_rare = corpus.counts <= max(_RARE, corpus.counts.min())
        threshold = float(np.quantile(strengths[is_rare], 1 - read_types[is_rare].mean()))
    # All words are stored, because only a word that is not stored is unknown.
    stored = np.concatenate([stage.word_types, np.flatnonzero(~read_types)])
    number_of = np.full(len(corpus.types), -1)
    number_of[stage.word_types] = np.arange(num_words)
    pairs = number_of[np.stack(np.divmod(stage.pairs, len(corpus.types)), 1)]
    return _lexicon.Lexicon(
        num_classes=head.num_probabilities,
        words=tuple(corpus.types[i] for i in stored.tolist()),
        is_read=read_types[stored],
        counts=corpus.counts[stage.word_types].astype(np.int32),
        pairs=pairs.astype(np.int32).reshape(-1, 2),
        ngrams=tuple(map(list(corpus.ngrams).__getitem__, stage.ngrams.tolist())),
        scale=scale.astype(np.float32),
        weights=weights,
        bias=stage.bias,
        prior=prior,
        threshold=threshold,
        share=share,
        head=head,
        pieces=corpus.pieces,
        piece_weights=piece_weights,
        letters_suffice=corpus.letters_suffice,
    )
