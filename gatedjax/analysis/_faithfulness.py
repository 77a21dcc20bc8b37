"""Faithfulness of rationales, measured by deleting words and running the network again.

Let j be the class that the network predicts for the whole text x, p_j its probability, and r the
words of a rationale:

    comprehensiveness = p_j(x) - p_j(x without r)        high: the words are needed
    sufficiency       = p_j(x) - p_j(only r)             low: the words suffice
    gate leak         = |p_j(x; gates open at r) - p_j(only r; all gates open)|

The gate leak tests the claim that words with closed gates were not used. It is 0 if deleting these
words from the input, and encoding the remaining words again, does not change the probability. The
encoder of GA-Net reads all words, so that the states of open words depend on closed neighbours;
with `gates_on="input"` they do not.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.types import Params
from gatedjax.analysis._significance import holm, least_p_value, paired_bootstrap
from gatedjax.analysis._text import render_table

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the words of a text that rationales have: the bins of ERASER."""
Source = Literal["gates", "attention", "gradient"]
Deletion = Literal["remove", "unk"]
MEASURES = {
    "comprehensiveness": "comprehensiveness (AOPC)",
    "sufficiency": "sufficiency (AOPC)",
    "needed": "comprehensiveness at the density",
    "enough": "sufficiency at the density",
    "leak": "gate leak",
    "flipped": "labels that the leak changes",
}
"""The fields of `Rationale` that are compared, with their headings in tables."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rationale:
    """Faithfulness of a way to choose words, for N texts and K shares of their words.

    A rationale is the chosen words of a text. The measures of a random rationale are means over its
    draws. The gate leak compares the text, read with only the gates of the rationale open, with the
    rationale alone, read with all gates open: it is the absolute difference of the probabilities of
    the predicted class, and 0 if closed words have no influence. Comprehensiveness is the
    probability of the predicted class minus its probability without the rationale; sufficiency is
    the same difference for the text of the rationale only.

    Attributes:
      by_share: (comprehensiveness, sufficiency), each [K, N].
      comprehensiveness: [N] mean over the shares (AOPC); higher is better.
      sufficiency: [N] mean over the shares (AOPC); lower is better.
      needed: [N] comprehensiveness of a rationale with as many words as have open gates; None
        without gates.
      enough: [N] sufficiency of that rationale; None without gates.
      leak: [N] gate leak; None for a network without `with_gates`.
      flipped: [N] 1 where the predicted class changes with the gate leak, and 0 elsewhere; None for
        a network without `with_gates`.
    """

    by_share: tuple[np.ndarray, np.ndarray]
    comprehensiveness: np.ndarray
    sufficiency: np.ndarray
    needed: np.ndarray | None = None
    enough: np.ndarray | None = None
    leak: np.ndarray | None = None
    flipped: np.ndarray | None = None


class Comparison(NamedTuple):
    """A paired bootstrap test of the model's rationale, "own", against another rationale.

    Attributes:
      measure: the field of `Rationale` that is compared.
      against: name of the other rationale.
      difference: mean of the model's rationale minus mean of the other rationale.
      low: lower end of the 95 % interval of the difference.
      high: upper end of the interval.
      p_value: two-sided. If m texts differ, it is at least 2^(1 - m), the least p-value of an exact
        test.
      corrected: the p-value with Holm's correction over all comparisons of the report.
    """

    measure: str
    against: str
    difference: float
    low: float
    high: float
    p_value: float
    corrected: float


@dataclasses.dataclass(frozen=True, eq=False)
class Faithfulness:
    """The faithfulness of a model's rationale and of other rationales for N texts.

    A rationale is a choice of words on which a prediction is said to rest.

    Attributes:
      rows: int [N] rows of the batch that were measured, which excludes rows without words and rows
        with weight 0.
      predicted: int [N] the class that is predicted for the whole text.
      probability: [N] probability of the predicted class.
      density: [N] share of the words that are open; None without gates.
      shares: the K shares of the words.
      rationales: name of a rationale -> its measures, a `Rationale`; "own" is the model's.
      comparisons: a `Comparison` for each measure and each other rationale: the test of the model's
        rationale against it.
    """

    rows: np.ndarray
    predicted: np.ndarray
    probability: np.ndarray
    density: np.ndarray | None
    shares: tuple[float, ...]
    rationales: Mapping[str, Rationale]
    comparisons: tuple[Comparison, ...]

    @property
    def own(self) -> Rationale:
        """The model's rationale, `rationales["own"]`."""
        return self.rationales["own"]

    def mean(self, measure: str, rationale: str = "own") -> float | None:
        """Returns the mean of a measure over the texts, or None if it was not measured.

        Args:
          measure: a field of `Rationale`, such as "comprehensiveness".
          rationale: a name in `rationales`.
        """
        values = getattr(self.rationales[rationale], measure)
        return None if values is None else float(np.mean(values))

    def table(self) -> str:
        """Returns the means of all measures as a Markdown table, a row per rationale.

        A star marks means that differ from the model's rationale with a corrected p-value below
        0.05.
        """
        names = [name for name in MEASURES if getattr(self.own, name) is not None]
        starred = {(c.measure, c.against) for c in self.comparisons if c.corrected < 0.05}
        cells = [
            [rationale]
            + [
                f"{self.mean(name, rationale):.4f}" + "*" * ((name, rationale) in starred)
                for name in names
            ]
            for rationale in self.rationales
        ]  # fmt: skip
        return render_table(["rationale", *(MEASURES[name] for name in names)], cells)


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

    The rationale of a text with n words and a share q is the ceil(q n) words with the highest
    scores, at least a word unless q = 0; among equal scores earlier words come first. AOPC is the
    mean over the shares. With gates all measures are also computed at the density of each text: the
    model's rationale is then the open words, and each other rationale has as many words, with the
    highest scores.

    Comprehensiveness and sufficiency let the network choose new gates for the remaining words. The
    gate leak fixes the gates: the network encodes the remaining words with all gates open, which
    needs its method `with_gates`. For another rationale the gates of the same network are set to
    its words. The leak is the absolute difference between the probability of the predicted class in
    the text with these gates and in the remaining words with all gates open. No random bits are
    passed to the network, so that its gates are open where open is more probable than closed.

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
    shares, names = tuple(float(q) for q in shares), None if against is None else tuple(against)
    if not shares or not all(0 <= q <= 1 for q in shares):
        raise ValueError(f"shares must be one or more numbers in [0, 1], got {shares}")
    if deletion not in get_args(Deletion):
        raise ValueError(f"deletion must be 'remove' or 'unk', got {deletion!r}")
    for name, count in {"draws": draws, "rows": rows, "unk": unk}.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if names is not None and (unknown := set(names) - {"random", "attention", "gradient"}):
        raise ValueError(
            "against must be among 'random', 'attention' and 'gradient', got "
            f"{sorted(unknown)}: give the scores of another rationale in others"
        )
    others = dict(others or {})
    if reserved := others.keys() & {"own", "random", "attention", "gradient"}:
        raise ValueError(
            "others must not have the names 'own', 'random', 'attention' and 'gradient' of this "
            f"report, got {sorted(reserved)}: choose other names"
        )

    tokens, lengths, real = texts_of(batch)
    # Rows without words or weight only fill up a batch, so that means must not contain them.
    used = np.flatnonzero((lengths > 0) & (np.asarray(batch.get("weight", 1.0)) > 0))
    if not used.size:
        raise ValueError("batch must have a text with words and a weight above 0, got none")
    network = _passes.StaticNetwork(model)
    runner = _Runner(_passes, network, params, rows, deletion, unk)
    shape = tokens.shape
    tokens, lengths, real = tokens[used], lengths[used], real[used]
    first = runner.predict(tokens, lengths)
    gated = "gates" in first and hasattr(model, "with_gates")

    def check_scores(name: str, values: ArrayLike) -> np.ndarray:
        array = np.asarray(values, np.float64)
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, that of tokens, got {array.shape}")
        array = array[used]
        if np.isnan(array[real]).any():
            raise ValueError(f"{name} must be a number at each word, got nan")
        return array

    if scores is None:
        source: Source = "gates" if gated else "attention"
        own_scores = runner.compute_scores(source, tokens, lengths, first)
    else:
        source, own_scores = "gates", check_scores("scores", scores)
    if kept is not None:
        open_words = (check_scores("kept", kept) > 0) & real
    elif gated:
        open_words = (first["gates"] > 0) & real
        # A network without an open gate ignores the gates of the row.
        shut = ~open_words.any(axis=1, keepdims=True)
        open_words |= shut & real & (first["attention"] > 0)
    else:
        open_words = None
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
    ranked |= {name: [check_scores(name, values)] for name, values in others.items()}

    parts = []
    for begin in range(0, len(used), rows):
        chunk = slice(begin, begin + rows)
        parts.append(
            runner.measure(
                tokens[chunk],
                lengths[chunk],
                {
                    name: [_rank_words(draw[chunk], real[chunk]) for draw in per_draw]
                    for name, per_draw in ranked.items()
                },
                shares,
                None if open_words is None else open_words[chunk],
                gated,
            )
        )
    predicted, probability = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    rationales = {name: _concatenate([part[2][name] for part in parts]) for name in ranked}
    return Faithfulness(
        rows=used,
        predicted=predicted,
        probability=probability,
        density=None if open_words is None else open_words.sum(axis=1) / lengths,
        shares=shares,
        rationales=rationales,
        comparisons=_compare(rationales, samples),
    )


def rationale_scores(
    model: Any,
    params: Params,
    batch: Mapping[str, ArrayLike],
    source: Source,
    *,
    rows: int = 128,
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
    # Imported here because `_passes` imports JAX.
    from gatedjax.analysis import _passes

    if source not in get_args(Source):
        raise ValueError(f"source must be 'gates', 'attention' or 'gradient', got {source!r}")
    tokens, lengths, real = texts_of(batch)
    runner = _Runner(_passes, _passes.StaticNetwork(model), params, rows, "remove", 1)
    scores = runner.compute_scores(source, tokens, lengths, runner.predict(tokens, lengths))
    return np.where(real, scores, 0)


@dataclasses.dataclass(frozen=True)
class _Runner:
    """A network with its parameters, and the options of its passes."""

    passes: Any
    network: Any
    params: Params
    rows: int  # the largest number of texts in a pass
    deletion: str  # "remove" removes words, "unk" replaces them by `unk`
    unk: int

    def predict(self, tokens: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        program = lambda *arrays: self.passes.predict(self.network, self.params, *arrays)  # noqa: E731
        return self.passes.over_rows(program, self.rows, tokens, lengths)

    def force(
        self, tokens: np.ndarray, lengths: np.ndarray, gates: np.ndarray
    ) -> dict[str, np.ndarray]:
        program = lambda *arrays: self.passes.force(self.network, self.params, *arrays)  # noqa: E731
        gates = gates.astype(np.float32)
        return self.passes.over_rows(program, self.rows, tokens, lengths, gates)

    def compute_scores(
        self, source: str, tokens: np.ndarray, lengths: np.ndarray, first: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Computes scores that rank the words by their importance, float64 [B, T]."""
        if source == "gradient":
            program = lambda *a: self.passes.gradient(self.network, self.params, *a)  # noqa: E731
            values = self.passes.over_rows(program, self.rows, tokens, lengths)["gradient"]
        elif source == "attention" and "gates" in first and "attention" in first:
            values = self.force(tokens, lengths, _word_mask(lengths, tokens))["attention"]
        else:
            name = "gate_logits" if source == "gates" else "attention"
            if name not in first:
                raise ValueError(
                    f"model must have {source} for each word, got the fields {sorted(first)}: give "
                    "scores, or use another source"
                )
            values = first[name]
        return np.asarray(values, np.float64)

    def measure(
        self,
        tokens: np.ndarray,
        lengths: np.ndarray,
        ranks: Mapping[str, list[np.ndarray]],  # per draw [N, T], 0 for the most important word
        shares: tuple[float, ...],
        open_words: np.ndarray | None,
        gated: bool,
    ) -> tuple[np.ndarray, np.ndarray, dict[str, Rationale]]:
        """Returns predicted classes [N], their probabilities [N], and measures by rationale."""
        real = _word_mask(lengths, tokens)
        # A product such as 0.07 * 100 is slightly above the whole number, and would be rounded up
        # too far.
        counts = [np.ceil(np.round(q * lengths, 9)).astype(int) for q in shares]
        masks_of: dict[str, list[list[np.ndarray]]] = {}
        for name, per_draw in ranks.items():
            masks_of[name] = [[draw < count[:, None] for count in counts] for draw in per_draw]
            if open_words is not None:
                size = open_words.sum(axis=1, keepdims=True)
                for masks, draw in zip(masks_of[name], per_draw, strict=True):
                    masks.append(open_words if name == "own" else draw < size)
        flat = [mask for draws in masks_of.values() for masks in draws for mask in masks]
        keep = [real, *itertools.chain.from_iterable((real & ~mask, mask) for mask in flat)]
        shortened = [self._delete(tokens, lengths, mask) for mask in keep]
        # All shortened texts run in one call, because rationales share many of them and equal texts
        # run only once.
        pool = [np.concatenate(arrays) for arrays in zip(*shortened, strict=True)]
        probabilities = _softmax(self.predict(*pool)["logits"]).reshape(len(keep), len(tokens), -1)
        # The first mask deletes no word, so that its probabilities belong to the whole texts.
        predicted = probabilities[0].argmax(axis=-1)
        of_class = np.take_along_axis(probabilities, predicted[None, :, None], axis=-1)[..., 0]
        # The masks come in the same order as above: for each draw and share first the text without
        # the words, then only the words.
        drops = iter((of_class[0] - of_class[1:]).reshape(-1, 2, len(tokens)))
        rationales = {}
        for name, draws in masks_of.items():
            values = np.mean([[next(drops) for _ in masks] for masks in draws], axis=0)
            by_share = values[: len(shares)]
            measures: dict[str, Any] = {}
            if open_words is not None:
                measures = {"needed": values[-1, 0], "enough": values[-1, 1]}
                if gated:
                    # The last mask of a draw is its rationale at the density.
                    leaks = [self._measure_leak(tokens, lengths, m[-1], predicted) for m in draws]
                    measures |= dict(zip(("leak", "flipped"), np.mean(leaks, axis=0), strict=True))
            rationales[name] = Rationale(
                (by_share[:, 0], by_share[:, 1]),
                by_share[:, 0].mean(axis=0),
                by_share[:, 1].mean(axis=0),
                **measures,
            )
        return predicted, of_class[0], rationales

    def _measure_leak(
        self, tokens: np.ndarray, lengths: np.ndarray, is_open: np.ndarray, predicted: np.ndarray
    ) -> np.ndarray:
        """Computes the gate leak, and 1 where the predicted class changes with it or 0, [2, N]."""
        fewer, shorter, moved = self._delete_with_mask(tokens, lengths, is_open)
        # A call fills its last pass with copies, so that a call for both texts needs fewer passes.
        both = (
            np.concatenate(pair)
            for pair in ((tokens, fewer), (lengths, shorter), (is_open, moved))
        )  # fmt: skip
        before, after = _softmax(self.force(*both)["logits"]).reshape(2, len(tokens), -1)
        of_class = [
            np.take_along_axis(p, predicted[:, None], axis=-1)[:, 0] for p in (before, after)
        ]
        return np.stack([np.abs(of_class[0] - of_class[1]), before.argmax(-1) != after.argmax(-1)])

    def _delete(
        self, tokens: np.ndarray, lengths: np.ndarray, keep: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._delete_with_mask(tokens, lengths, keep)[:2]

    def _delete_with_mask(
        self, tokens: np.ndarray, lengths: np.ndarray, keep: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Deletes words where `keep` is False; returns the new tokens, lengths and word mask."""
        if self.deletion == "unk":
            real = _word_mask(lengths, tokens)
            return np.where(keep | ~real, tokens, self.unk).astype(tokens.dtype), lengths, keep
        # False sorts before True, so that the remaining words move to the front in their order.
        order = np.argsort(~keep, axis=1, kind="stable")
        num_left = keep.sum(axis=1)
        stay = np.arange(tokens.shape[1])[None] < num_left[:, None]
        fewer = np.where(stay, np.take_along_axis(tokens, order, axis=1), 0)
        # A network cannot read a text without a word.
        fewer[num_left == 0, 0] = self.unk
        return fewer.astype(tokens.dtype), np.maximum(num_left, 1).astype(lengths.dtype), stay


def texts_of(batch: Mapping[str, ArrayLike]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns tokens int32 [B, T] (0 at padding), lengths int32 [B], and a mask [B, T] of words."""
    if missing := {"tokens", "lengths"} - batch.keys():
        raise ValueError(f"batch must have {', '.join(sorted(missing))}, got {sorted(batch)}")
    tokens, lengths = np.asarray(batch["tokens"]), np.asarray(batch["lengths"])
    for name, array in {"tokens": tokens, "lengths": lengths}.items():
        if not np.issubdtype(array.dtype, np.integer):
            raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if tokens.ndim != 2 or lengths.shape != tokens.shape[:1]:
        raise ValueError(
            f"batch must have tokens [B, T] and lengths [B], got {tokens.shape} and {lengths.shape}"
        )
    if np.any((lengths < 0) | (lengths > tokens.shape[1])):
        raise ValueError(
            f"lengths must be in [0, {tokens.shape[1]}], got {lengths.min()} to {lengths.max()}"
        )
    tokens, lengths = tokens.astype(np.int32), lengths.astype(np.int32)
    real = _word_mask(lengths, tokens)
    return np.where(real, tokens, 0), lengths, real


def _word_mask(lengths: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return np.arange(tokens.shape[1])[None] < lengths[:, None]


def _rank_words(scores: np.ndarray, real: np.ndarray) -> np.ndarray:
    # The stable order gives earlier words the better rank among equal scores.
    order = np.argsort(np.where(real, -scores, np.inf), axis=1, kind="stable")
    ranks = np.argsort(order, axis=1)
    return np.where(real, ranks, scores.shape[1])


def _softmax(logits: np.ndarray) -> np.ndarray:
    # The measures are small differences of probabilities, which float32 would round.
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _concatenate(parts: Sequence[Rationale]) -> Rationale:
    fields: dict[str, Any] = {}
    for name in MEASURES:
        values = [getattr(part, name) for part in parts]
        fields[name] = None if values[0] is None else np.concatenate(values)
    both = [np.concatenate([part.by_share[i] for part in parts], axis=1) for i in (0, 1)]
    return Rationale((both[0], both[1]), **fields)


def _compare(rationales: Mapping[str, Rationale], samples: int) -> tuple[Comparison, ...]:
    """Tests the model's rationale, "own", against each other rationale, by each measure."""
    own_rationale, tests = rationales["own"], []
    for measure, name in itertools.product(MEASURES, rationales):
        values = getattr(own_rationale, measure)
        if name == "own" or values is None:
            continue
        other = getattr(rationales[name], measure)
        test = paired_bootstrap(values, other, samples=samples)
        # The p-value of a bootstrap is too small for few texts.
        p_value = max(test.p_value, least_p_value(values, other))
        tests.append((measure, name, test._replace(p_value=p_value)))
    # All tests of a report are corrected as a family, because its reader looks at all of them.
    corrected = holm([test.p_value for *_, test in tests])
    return tuple(
        Comparison(measure, name, *test, float(p))
        for (measure, name, test), p in zip(tests, corrected, strict=True)
    )
