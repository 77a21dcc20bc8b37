"""Faithfulness of rationales, measured by deleting words and running the network again."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.choices import check_choice
from gatedjax._utils.types import Params
from gatedjax.analysis._checks import check_scores
from gatedjax.analysis._rationale import Faithfulness, Rationale, compare, texts_of

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the words of a text that rationales have: the bins of ERASER."""
Source = Literal["gates", "attention", "gradient"]
Deletion = Literal["remove", "unk"]


def faithfulness(
    model: Any,
    params: Params,
    batch: Mapping[str, ArrayLike],
    *,
    scores: ArrayLike | None = None,
    kept: ArrayLike | None = None,
    against: Sequence[str] | None = None,
    others: Mapping[str, ArrayLike] | None = None,
    shares: Sequence[float] = SHARES,
    deletion: Deletion = "remove",
    unk: int = 1,
    key: Any = None,
    draws: int = 5,
    rows: int = 128,
    samples: int = 10_000,
) -> Faithfulness:
    """Measures whether predictions rest on a rationale, by deleting words from the texts.

    Let j be the class that the network predicts for the whole text x, p_j its probability, and r
    the words of a rationale:

        comprehensiveness = p_j(x) - p_j(x without r)        high: the words are needed
        sufficiency       = p_j(x) - p_j(only r)             low: the words suffice
        gate leak         = |p_j(x; gates open at r) - p_j(only r; all gates open)|

    The rationale of a text with n words and a share q is the ceil(q n) words with the highest
    scores, at least a word unless q = 0; among equal scores earlier words come first. AOPC is the
    mean over the shares. With gates all measures are also computed at the density of each text: the
    model's rationale is then the open words, and each other rationale has as many words, with the
    highest scores.

    Comprehensiveness and sufficiency let the network choose new gates for the remaining words. The
    gate leak fixes the gates, which needs the network's method `with_gates`. It tests the claim
    that words with closed gates were not used: it is 0 if deleting these words from the input, and
    encoding the remaining words again, does not change the probability. The encoder of GA-Net reads
    all words, so that the states of open words depend on closed neighbours; with
    `gates_on="input"` they do not. No random bits are passed to the network, so that its gates are
    open where open is more probable than closed.

        >>> import types
        >>> import jax.numpy as jnp
        >>> class CountTwos:
        ...     def apply(self, variables, batch):
        ...         count = 9 * jnp.sum(batch["tokens"] == 2, axis=1)
        ...         return types.SimpleNamespace(logits=jnp.stack([0 * count, count], axis=1))
        >>> batch, scores = {"tokens": [[3, 2, 4, 5]], "lengths": [4]}, [[0.0, 1.0, 0.0, 0.0]]
        >>> options = {"against": ["random"], "shares": [0.25]}
        >>> report = faithfulness(CountTwos(), {}, batch, scores=scores, **options)
        >>> round(report.mean("comprehensiveness"), 2), round(report.mean("sufficiency"), 2)
        (0.5, 0.0)

    Args:
      model: a text classifier with the method `apply` of Flax modules. It returns an object with
        `logits` [B, C] for C classes and, if it has them, `attention`, `gates` and `gate_logits`
        (the log-odds of open gates) [B, ..., T], of which all axes between are averaged. Programs
        are compiled for each model object.
      params: the parameters of the model.
      batch: the texts, for example a whole test set: "tokens" int [B, T] and "lengths" int [B] of B
        texts, padded to T words. Optional "example_id" int [B] are keys of the random rationale
        (default: row numbers); rows with an optional "weight" of 0 are skipped.
      scores: [B, T] scores that rank the words of the model's rationale; None computes
        `rationale_scores` from the gates, or from the attention of a network without gates.
      kept: bool [B, T], True at words that count as open; None means words with an open gate, and
        words with attention in a row whose gates were all closed and therefore ignored.
      against: names of rationales to compare with: "random", "attention", "gradient". None means
        "random" and "gradient", and "attention" too if the network has attention that is not
        already the model's rationale.
      others: {name: scores [B, T]} of further rationales, for example another model's attention.
      shares: K shares of the words, in [0, 1].
      deletion: "remove" shortens the text, to a single `unk` if no word remains. "unk" replaces
        each deleted word by `unk`, so that the positions of the other words stay; the gates of
        these `unk` are closed for the gate leak.
      unk: id of the unknown word.
      key: PRNG key of the random rationales; None means `jax.random.key(0)`.
      draws: number of random rationales, of which the mean is taken.
      rows: number of texts in a pass of the network. All passes have the width T, so that few
        programs are compiled.
      samples: number of samples of each paired bootstrap.

    Returns:
      The measures of each text, and tests of the model's rationale against the others with Holm's
      correction.

    Raises:
      TypeError: for a model without `apply`, such as a lexicon, which reads no closed word.
      ValueError: for a malformed batch or argument, and for a network with neither gates nor
        attention if scores is None.

    Reference: DeYoung et al. 2020, "ERASER", section 4.2; AOPC as in its code, the mean over the
      shares. The gate leak is a measure of this library.
    Deviation: the number of words is rounded up; the paper does not specify the rounding.
    """
    if not hasattr(model, "apply"):
        raise TypeError(
            "model must be a network with the method apply, got "
            f"{type(model).__name__}: for a lexicon use evaluate, whose same_answer counts the "
            "texts with the same probabilities from the open words alone, and for a trained "
            "network pass model_.module and model_.params"
        )
    # Imported here because both import JAX.
    from gatedjax._utils.tracing import check_key
    from gatedjax.analysis import _passes

    if key is not None:
        check_key(key=key)
    shares, further = tuple(float(q) for q in shares), dict(others or {})
    names = None if against is None else tuple(against)
    _check_options(shares, deletion, names, further, {"draws": draws, "rows": rows, "unk": unk})
    tokens, lengths, real = texts_of(batch)
    # Rows without words or weight only fill up a batch, so that means must not contain them.
    used = np.flatnonzero((lengths > 0) & (np.asarray(batch.get("weight", 1.0)) > 0))
    if not used.size:
        raise ValueError("batch must have a text with words and a weight above 0, got none")
    shape = tokens.shape
    tokens, lengths, real = tokens[used], lengths[used], real[used]

    def scores_of(name: str, values: ArrayLike) -> np.ndarray:
        array = check_scores(name, values, shape)[used]
        if np.isnan(array[real]).any():
            raise ValueError(f"{name} must be a number at each word, got nan")
        return array

    runner = _passes.Runner(_passes.StaticNetwork(model), params, rows, deletion, unk)
    first = runner.run(_passes.predict, tokens, lengths)
    gated = "gates" in first and hasattr(model, "with_gates")
    source: Source = "gates" if gated or scores is not None else "attention"
    if scores is None:
        own_scores = runner.compute_scores(source, tokens, lengths, first)
    else:
        own_scores = scores_of("scores", scores)
    if kept is not None:
        open_words = (scores_of("kept", kept) > 0) & real
    else:
        open_words = _find_open_words(first, real) if gated else None
    if names is None:
        with_attention = "attention" in first and source != "attention"
        names = ("random", "attention", "gradient") if with_attention else ("random", "gradient")
    ranked: dict[str, list[np.ndarray]] = {"own": [own_scores]}
    for name in names:
        if name == "random":
            # The ids determine the random scores, so that a text has the same scores in each part
            # of a data set.
            ids = np.asarray(batch.get("example_id", np.arange(shape[0])))
            ranked[name] = list(_passes.random_scores(key, ids[used], tokens.shape[1], draws))
        else:
            ranked[name] = [runner.compute_scores(name, tokens, lengths, first)]
    ranked |= {name: [scores_of(name, values)] for name, values in further.items()}

    parts = []
    for begin in range(0, len(used), rows):
        chunk = slice(begin, begin + rows)
        ranks = {
            name: [_rank_words(draw[chunk], real[chunk]) for draw in per_draw]
            for name, per_draw in ranked.items()
        }
        of_chunk = None if open_words is None else open_words[chunk]
        parts.append(runner.measure(tokens[chunk], lengths[chunk], ranks, shares, of_chunk, gated))
    predicted, probability = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    pairs = {name: np.concatenate([part[2][name] for part in parts], axis=-1) for name in ranked}
    rationales = {name: Rationale.of(values, len(shares)) for name, values in pairs.items()}
    return Faithfulness(
        rows=used,
        predicted=predicted,
        probability=probability,
        density=None if open_words is None else open_words.sum(axis=1) / lengths,
        shares=shares,
        rationales=rationales,
        comparisons=compare(rationales, samples),
    )


def _check_options(
    shares: tuple[float, ...],
    deletion: str,
    names: tuple[str, ...] | None,
    further: Mapping[str, ArrayLike],
    counts: Mapping[str, int],
) -> None:
    if not shares or not all(0 <= q <= 1 for q in shares):
        raise ValueError(f"shares must be one or more numbers in [0, 1], got {shares}")
    check_choice(Deletion, deletion=deletion)
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if names is not None and (unknown := set(names) - {"random", "attention", "gradient"}):
        raise ValueError(
            "against must be among 'random', 'attention' and 'gradient', got "
            f"{sorted(unknown)}: give the scores of another rationale in others"
        )
    if reserved := further.keys() & {"own", "random", "attention", "gradient"}:
        raise ValueError(
            "others must not have the names 'own', 'random', 'attention' and 'gradient' of this "
            f"report, got {sorted(reserved)}: choose other names"
        )


def _find_open_words(first: Mapping[str, np.ndarray], real: np.ndarray) -> np.ndarray:
    open_words = (first["gates"] > 0) & real
    # A network without an open gate ignores the gates of the row.
    shut = ~open_words.any(axis=1, keepdims=True)
    return open_words | shut & real & (first["attention"] > 0)


def _rank_words(scores: np.ndarray, real: np.ndarray) -> np.ndarray:
    # The stable order gives earlier words the better rank among equal scores.
    order = np.argsort(np.where(real, -scores, np.inf), axis=1, kind="stable")
    ranks = np.argsort(order, axis=1)
    return np.where(real, ranks, scores.shape[1])


def rationale_scores(
    model: Any, params: Params, batch: Mapping[str, ArrayLike], source: Source, *, rows: int = 128
) -> np.ndarray:
    """Computes scores that rank the words of texts by their importance to a network.

        >>> import types
        >>> import jax.numpy as jnp
        >>> class AttendToTwos:
        ...     def apply(self, variables, batch):
        ...         attention = jnp.where(batch["tokens"] == 2, 1.0, 0.0)
        ...         return types.SimpleNamespace(logits=attention[:, :2], attention=attention)
        >>> batch = {"tokens": [[3, 2, 4]], "lengths": [3]}
        >>> print(rationale_scores(AttendToTwos(), {}, batch, "attention"))
        [[0. 1. 0.]]

    Args:
      model: a text classifier with the method `apply` of Flax modules, which returns an object with
        `logits` [B, C] for C classes and, if it has them, `attention` and `gate_logits`
        [B, ..., T], of which all axes between are averaged.
      params: the parameters of the model.
      batch: "tokens" int [B, T] and "lengths" int [B] of B texts, padded to T words.
      source: "gates" are the log-odds that gates are open. "attention" is the soft attention, with
        all gates open, as a mean over layers. "gradient" is gradient times input at the word
        vectors, sum_e x_te d log p_j / d x_te with its sign, where j is the predicted class. Hard
        gates have no gradient: a word that only influences the gates has score 0.
      rows: number of texts in a pass of the network.

    Returns:
      float64 [B, T], 0 at padding.

    Raises:
      ValueError: for a malformed batch, or if source is "gates" or "attention" and the network has
        no gates or no attention for each word.
    """
    # Imported here because it imports JAX.
    from gatedjax.analysis import _passes

    check_choice(Source, source=source)
    tokens, lengths, real = texts_of(batch)
    runner = _passes.Runner(_passes.StaticNetwork(model), params, rows, "remove", 1)
    first = runner.run(_passes.predict, tokens, lengths)
    scores = runner.compute_scores(source, tokens, lengths, first)
    return np.where(real, scores, 0)
