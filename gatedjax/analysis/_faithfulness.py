"""Does a rationale tell what a prediction rests on? Words are deleted, and the network runs again.

With p_j the probability of the class j that is predicted of the whole text x, and r some words:

    comprehensiveness = p_j(x) - p_j(x without r)        high: the words are needed
    sufficiency       = p_j(x) - p_j(r alone)            low: they are enough
    gate leak         = |p_j(x; gates open at r) - p_j(r alone; all gates open)|

The leak is that of a claim: "the words behind closed gates were not used". It is 0 where deleting
them from the input, with the encoder run again on what is left, changes nothing. The encoder of
GA-Net reads all words, so that open ones know of closed neighbours; with `gates_on="input"` it
does not.
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
"""Of the words; the bins of ERASER."""
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
"""Fields of `Rationale` by which rationales are compared."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rationale:
    """What deletions say of one way to choose words; a random one is averaged over its draws.

    Attributes:
      by_share: (comprehensiveness, sufficiency), each [K, N], of every share of the words.
      comprehensiveness: [N] mean over the shares (AOPC); higher is better.
      sufficiency: [N] likewise; lower is better.
      needed: [N] comprehensiveness of as many words as the gates open; None without gates.
      enough: [N] sufficiency of those.
      leak: [N] gate leak; None for a network without `with_gates`.
      flipped: [N] whether the label changes with it.
    """

    by_share: tuple[np.ndarray, np.ndarray]
    comprehensiveness: np.ndarray
    sufficiency: np.ndarray
    needed: np.ndarray | None = None
    enough: np.ndarray | None = None
    leak: np.ndarray | None = None
    flipped: np.ndarray | None = None


class Comparison(NamedTuple):
    """A paired bootstrap of the model's own rationale and another one.

    Attributes:
      measure: a field of `Rationale`.
      against: name of the other one.
      difference: own mean less that of the other.
      low: lower end of the interval of 95 %.
      high: upper end.
      p_value: two-sided; of m texts that differ at least 2^(1 - m), as of an exact test.
      corrected: after Holm, over all comparisons of the report.
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
    """What `faithfulness` found of N texts.

    Attributes:
      rows: [N] of the batch; those without words or with weight 0 are left out.
      predicted: [N] class of the whole text.
      probability: [N] of that class.
      density: [N] share of the words that are kept; None without gates.
      shares: [K] of the words.
      rationales: "own" and the others, by name.
      comparisons: of own and every other one.
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
        """That of the model."""
        return self.rationales["own"]

    def mean(self, measure: str, rationale: str = "own") -> float | None:
        """The mean of a field of a rationale over the texts; None where it has none."""
        values = getattr(self.rationales[rationale], measure)
        return None if values is None else float(np.mean(values))

    def table(self) -> str:
        """Means by rationale as a Markdown table; a star where own differs, corrected p < .05."""
        names = [name for name in MEASURES if getattr(self.own, name) is not None]
        starred = {(c.measure, c.against) for c in self.comparisons if c.corrected < 0.05}
        cells = [
            [who]
            + [
                f"{self.mean(name, who):.4f}" + "*" * ((name, who) in starred)
                for name in names
            ]
            for who in self.rationales
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
    """Deletes words from texts by a rationale, and runs the whole network on what is left.

    For a share q the ceil(q n) words of a text of n with the highest scores are the rationale, so
    one word at least unless q = 0; of equal scores the earlier word comes first. AOPC is the mean
    over the shares. Where there are gates, all measures are also taken at the density of each text:
    the rationale is the open words, and of the others as many, with the highest scores.

    Comprehensiveness and sufficiency let the network choose its gates anew on the rest; the leak
    holds them: what is left is read with all gates open, by a network that has `with_gates`. The
    leak of another rationale is that of the same network with its gates forced to it. No stream of
    random bits is given: gates are those that are likelier open than closed.

    Args:
      model: an object with `apply`, as Flax has it, that classifies texts; known by its identity.
      params: its parameters.
      batch: "tokens" [B, T], "lengths" [B]; "example_id" keys the random rationale (row numbers if
        absent), rows with a "weight" of 0 are left out. It may hold a whole test set.
      scores: [B, T] what ranks the words; None takes `rationale_scores` from the gates, or from
        the attention of a network without.
      kept: bool [B, T] words that count as open; None is those with an open gate (or that have
        attention, in a row whose gates were all closed and disregarded).
      against: names of rationales to compare with: "random", "attention", "gradient"; None is those
        that there are.
      others: scores [B, T] of further ones by name, such as the soft attention of another model.
      shares: of the words, in [0, 1].
      deletion: "remove" makes the text shorter (one `unk` where nothing is left); "unk" puts that
        word in the place of each deleted one, so that no other moves. For the leak, its gate stays
        closed.
      unk: id of the unknown word.
      key: of the random rationales; None is that of 0.
      draws: of random rationales, each averaged over.
      rows: texts of one pass, of the width of the batch; there are few compiled programs whatever
        the number of texts.
      samples: of each paired bootstrap.

    Returns:
      The measures by text, and own against each of the others with Holm's correction.

    Raises:
      ValueError: also for a network with neither gates nor attention if scores is None.

    Reference: DeYoung et al. 2020, "ERASER", section 4.2; AOPC as in its code, the mean over the
      shares. The leak is of this library.
    Deviation: the number of words is rounded up; the paper does not say how.
    """
    from gatedjax.analysis import _passes  # JAX: not before it is needed

    shares, names = tuple(float(q) for q in shares), None if against is None else tuple(against)
    if not shares or not all(0 <= q <= 1 for q in shares):
        raise ValueError(f"shares must be one or more numbers in [0, 1], got {shares}")
    if deletion not in get_args(Deletion):
        raise ValueError(f"deletion must be one of {get_args(Deletion)}, got {deletion!r}")
    for name, count in {"draws": draws, "rows": rows, "unk": unk}.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if names is not None and (unknown := set(names) - {"random", "attention", "gradient"}):
        raise ValueError(
            f"against must be among random, attention, gradient, got {sorted(unknown)}; scores of "
            "others are given as others"
        )
    others = dict(others or {})
    if taken := others.keys() & {"own", "random", "attention", "gradient"}:
        raise ValueError(f"others must have names of their own, got {sorted(taken)}")

    tokens, lengths, real = texts_of(batch)
    used = np.flatnonzero((lengths > 0) & (np.asarray(batch.get("weight", 1.0)) > 0))
    if not used.size:
        raise ValueError("batch must have a text with words and a weight above 0")
    network = _passes.Network(model)
    runs = _Runs(_passes, network, params, rows, deletion, unk)
    whole = tokens.shape
    tokens, lengths, real = tokens[used], lengths[used], real[used]
    first = runs.read(tokens, lengths)
    gated = "gates" in first and hasattr(model, "with_gates")

    def given(name: str, values: ArrayLike) -> np.ndarray:
        array = np.asarray(values, np.float64)
        if array.shape != whole:
            raise ValueError(f"{name} must have shape {whole}, that of tokens, got {array.shape}")
        array = array[used]
        if np.isnan(array[real]).any():
            raise ValueError(f"{name} must not be NaN at a word")
        return array

    if scores is None:
        source: Source = "gates" if gated else "attention"
        own = runs.scores(source, tokens, lengths, first)
    else:
        source, own = "gates", given("scores", scores)
    if kept is not None:
        open_words = (given("kept", kept) > 0) & real
    elif gated:
        open_words = (first["gates"] > 0) & real
        shut = ~open_words.any(axis=1, keepdims=True)
        open_words |= shut & real & (first["attention"] > 0)
    else:
        open_words = None
    if names is None:
        has = "attention" in first and source != "attention"
        names = ("random", "attention", "gradient") if has else ("random", "gradient")
    ranked: dict[str, list[np.ndarray]] = {"own": [own]}
    for name in names:
        if name == "random":
            ids = np.asarray(batch.get("example_id", np.arange(whole[0])))
            ranked[name] = list(_passes.random_scores(key, ids[used], tokens.shape[1], draws))
        else:
            ranked[name] = [runs.scores(name, tokens, lengths, first)]
    ranked |= {name: [given(name, values)] for name, values in others.items()}

    parts = []
    for begin in range(0, len(used), rows):
        some = slice(begin, begin + rows)
        parts.append(
            runs.measured(
                tokens[some],
                lengths[some],
                {
                    name: [_ranks(one[some], real[some]) for one in many]
                    for name, many in ranked.items()
                },
                shares,
                None if open_words is None else open_words[some],
                gated,
            )
        )
    predicted, probability = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    rationales = {name: _joined([part[2][name] for part in parts]) for name in ranked}
    return Faithfulness(
        rows=used,
        predicted=predicted,
        probability=probability,
        density=None if open_words is None else open_words.sum(axis=1) / lengths,
        shares=shares,
        rationales=rationales,
        comparisons=_compared(rationales, samples),
    )


def rationale_scores(
    model: Any,
    params: Params,
    batch: Mapping[str, ArrayLike],
    source: Source,
    *,
    rows: int = 128,
) -> np.ndarray:
    """Scores [B, T] by which a network's words can be ranked, 0 at padding.

    Args:
      model, params, batch, rows: as of `faithfulness`.
      source: "gates" is the log-odds that they are open; "attention" is the soft attention, with
        all gates open and averaged over layers; "gradient" is gradient times input at the word
        vectors, sum_e x_te d log p_j / d x_te with j the predicted class, with its sign. Hard gates
        pass no gradient: a word that only they depend on has 0.
    """
    from gatedjax.analysis import _passes  # JAX: not before it is needed

    if source not in get_args(Source):
        raise ValueError(f"source must be one of {get_args(Source)}, got {source!r}")
    tokens, lengths, real = texts_of(batch)
    runs = _Runs(_passes, _passes.Network(model), params, rows, "remove", 1)
    found = runs.scores(source, tokens, lengths, runs.read(tokens, lengths))
    return np.where(real, found, 0)


@dataclasses.dataclass(frozen=True)
class _Runs:
    """A network, and how it is run."""

    passes: Any
    network: Any
    params: Params
    rows: int
    deletion: str
    unk: int

    def read(self, tokens: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        """Logits, gates and attention."""
        program = lambda *arrays: self.passes.read(self.network, self.params, *arrays)  # noqa: E731
        return self.passes.over_rows(program, self.rows, tokens, lengths)

    def force(
        self, tokens: np.ndarray, lengths: np.ndarray, gates: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Logits and attention under gates."""
        program = lambda *arrays: self.passes.force(self.network, self.params, *arrays)  # noqa: E731
        gates = gates.astype(np.float32)
        return self.passes.over_rows(program, self.rows, tokens, lengths, gates)

    def scores(
        self, source: str, tokens: np.ndarray, lengths: np.ndarray, first: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """See `rationale_scores`."""
        if source == "gradient":
            program = lambda *a: self.passes.gradient(self.network, self.params, *a)  # noqa: E731
            found = self.passes.over_rows(program, self.rows, tokens, lengths)["gradient"]
        elif source == "attention" and "gates" in first and "attention" in first:
            found = self.force(tokens, lengths, _real(lengths, tokens))["attention"]
        else:
            name = "gate_logits" if source == "gates" else "attention"
            if name not in first:
                raise ValueError(f"model must have {source} for each word; give scores instead")
            found = first[name]
        return np.asarray(found, np.float64)

    def measured(
        self,
        tokens: np.ndarray,
        lengths: np.ndarray,
        ranks: Mapping[str, list[np.ndarray]],
        shares: tuple[float, ...],
        open_words: np.ndarray | None,
        gated: bool,
    ) -> tuple[np.ndarray, np.ndarray, dict[str, Rationale]]:
        """(predicted, probability, rationales) of some texts."""
        real = _real(lengths, tokens)
        counts = [np.ceil(np.round(q * lengths, 9)).astype(int) for q in shares]
        chosen: dict[str, list[list[np.ndarray]]] = {}
        for name, many in ranks.items():
            chosen[name] = [[one < count[:, None] for count in counts] for one in many]
            if open_words is not None:
                size = open_words.sum(axis=1, keepdims=True)
                for masks, one in zip(chosen[name], many, strict=True):
                    masks.append(open_words if name == "own" else one < size)
        flat = [mask for draws in chosen.values() for masks in draws for mask in masks]
        keep = [real, *itertools.chain.from_iterable((real & ~mask, mask) for mask in flat)]
        shortened = [self._deleted(tokens, lengths, one) for one in keep]
        pool = [np.concatenate(arrays) for arrays in zip(*shortened, strict=True)]
        found = _probabilities(self.read(*pool)["logits"]).reshape(len(keep), len(tokens), -1)
        predicted = found[0].argmax(axis=-1)
        of_class = np.take_along_axis(found, predicted[None, :, None], axis=-1)[..., 0]
        drops = iter((of_class[0] - of_class[1:]).reshape(-1, 2, len(tokens)))
        rationales = {}
        for name, draws in chosen.items():
            values = np.mean([[next(drops) for _ in masks] for masks in draws], axis=0)
            by_share = values[: len(shares)]
            more: dict[str, Any] = {}
            if open_words is not None:
                more = {"needed": values[-1, 0], "enough": values[-1, 1]}
                if gated:
                    leaks = [self._leak(tokens, lengths, m[-1], predicted) for m in draws]
                    more |= dict(zip(("leak", "flipped"), np.mean(leaks, axis=0), strict=True))
            rationales[name] = Rationale(
                (by_share[:, 0], by_share[:, 1]),
                by_share[:, 0].mean(axis=0),
                by_share[:, 1].mean(axis=0),
                **more,
            )
        return predicted, of_class[0], rationales

    def _leak(
        self, tokens: np.ndarray, lengths: np.ndarray, kept: np.ndarray, predicted: np.ndarray
    ) -> np.ndarray:
        """[2, N]: how much the probability changes without the closed words, and does the label."""
        fewer, shorter, moved = self._deleted_with(tokens, lengths, kept)
        both = (
            np.concatenate(pair)
            for pair in ((tokens, fewer), (lengths, shorter), (kept, moved))
        )  # fmt: skip
        before, after = _probabilities(self.force(*both)["logits"]).reshape(2, len(tokens), -1)
        of_class = [
            np.take_along_axis(p, predicted[:, None], axis=-1)[:, 0] for p in (before, after)
        ]
        return np.stack([np.abs(of_class[0] - of_class[1]), before.argmax(-1) != after.argmax(-1)])

    def _deleted(
        self, tokens: np.ndarray, lengths: np.ndarray, keep: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._deleted_with(tokens, lengths, keep)[:2]

    def _deleted_with(
        self, tokens: np.ndarray, lengths: np.ndarray, keep: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(tokens, lengths, where the words are that stay) of the texts without the others."""
        if self.deletion == "unk":
            real = _real(lengths, tokens)
            return np.where(keep | ~real, tokens, self.unk).astype(tokens.dtype), lengths, keep
        order = np.argsort(~keep, axis=1, kind="stable")
        left = keep.sum(axis=1)
        stay = np.arange(tokens.shape[1])[None] < left[:, None]
        fewer = np.where(stay, np.take_along_axis(tokens, order, axis=1), 0)
        fewer[left == 0, 0] = self.unk
        return fewer.astype(tokens.dtype), np.maximum(left, 1).astype(lengths.dtype), stay


def texts_of(batch: Mapping[str, ArrayLike]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, lengths and which of the tokens are words."""
    if missing := {"tokens", "lengths"} - batch.keys():
        raise ValueError(f"batch needs {', '.join(sorted(missing))}, got {sorted(batch)}")
    tokens, lengths = np.asarray(batch["tokens"]), np.asarray(batch["lengths"])
    for name, array in {"tokens": tokens, "lengths": lengths}.items():
        if not np.issubdtype(array.dtype, np.integer):
            raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if tokens.ndim != 2 or lengths.shape != tokens.shape[:1]:
        raise ValueError(
            f"batch needs tokens [B, T] and lengths [B], got {tokens.shape} and {lengths.shape}"
        )
    if np.any((lengths < 0) | (lengths > tokens.shape[1])):
        raise ValueError(f"lengths must be in [0, {tokens.shape[1]}]")
    tokens, lengths = tokens.astype(np.int32), lengths.astype(np.int32)
    real = _real(lengths, tokens)
    return np.where(real, tokens, 0), lengths, real


def _real(lengths: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return np.arange(tokens.shape[1])[None] < lengths[:, None]


def _ranks(scores: np.ndarray, real: np.ndarray) -> np.ndarray:
    """The place of every word in the order of the scores, the highest first; padding is last."""
    order = np.argsort(np.where(real, -scores, np.inf), axis=1, kind="stable")
    ranks = np.argsort(order, axis=1)
    return np.where(real, ranks, scores.shape[1])


def _probabilities(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _joined(parts: Sequence[Rationale]) -> Rationale:
    """One rationale of those of parts of the texts."""
    fields: dict[str, Any] = {}
    for name in MEASURES:
        values = [getattr(part, name) for part in parts]
        fields[name] = None if values[0] is None else np.concatenate(values)
    both = [np.concatenate([part.by_share[i] for part in parts], axis=1) for i in (0, 1)]
    return Rationale((both[0], both[1]), **fields)


def _compared(rationales: Mapping[str, Rationale], samples: int) -> tuple[Comparison, ...]:
    """Own against each other one, by every measure."""
    own, found = rationales["own"], []
    for measure, name in itertools.product(MEASURES, rationales):
        values = getattr(own, measure)
        if name == "own" or values is None:
            continue
        other = getattr(rationales[name], measure)
        test = paired_bootstrap(values, other, samples=samples)
        # a bootstrap of few texts is sure of what it cannot know
        p_value = max(test.p_value, least_p_value(values, other))
        found.append((measure, name, test._replace(p_value=p_value)))
    corrected = holm([test.p_value for *_, test in found])
    return tuple(
        Comparison(measure, name, *test, float(p))
        for (measure, name, test), p in zip(found, corrected, strict=True)
    )
