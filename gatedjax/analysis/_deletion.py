"""Deletion of words from texts, and the measures of rationales by running the network again."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gatedjax._utils.types import Params
from gatedjax.analysis import _passes
from gatedjax.analysis._checks import mask_before
from gatedjax.analysis._rationale import Rationale


@dataclasses.dataclass(frozen=True)
class Runner:
    """A network with its parameters, and the options of its passes."""

    network: _passes.StaticNetwork
    params: Params
    rows: int  # the largest number of texts in a pass
    deletion: str  # "remove" removes words, "unk" replaces them by `unk`
    unk: int

    def predict(self, tokens: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        """Computes the arrays of `_passes.predict`."""
        return self._run(_passes.predict, tokens, lengths)

    def force(
        self, tokens: np.ndarray, lengths: np.ndarray, gates: np.ndarray
    ) -> dict[str, np.ndarray]:
        return self._run(_passes.force, tokens, lengths, gates.astype(np.float32))

    def _run(self, program: Callable[..., Any], *arrays: np.ndarray) -> dict[str, np.ndarray]:
        given = functools.partial(program, self.network, self.params)
        return _passes.over_rows(given, self.rows, *arrays)

    def compute_scores(
        self, source: str, tokens: np.ndarray, lengths: np.ndarray, first: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Computes scores that rank the words by their importance, float64 [B, T]."""
        if source == "gradient":
            values = self._run(_passes.gradient, tokens, lengths)["gradient"]
        elif source == "attention" and "gates" in first and "attention" in first:
            values = self.force(tokens, lengths, mask_before(lengths, tokens.shape[1]))["attention"]
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
        real = mask_before(lengths, tokens.shape[1])
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
        shortened = [self._delete(tokens, lengths, mask)[:2] for mask in keep]
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
        fewer, shorter, moved = self._delete(tokens, lengths, is_open)
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
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Deletes words where `keep` is False; returns the new tokens, lengths and word mask."""
        if self.deletion == "unk":
            real = mask_before(lengths, tokens.shape[1])
            return np.where(keep | ~real, tokens, self.unk).astype(tokens.dtype), lengths, keep
        # False sorts before True, so that the remaining words move to the front in their order.
        order = np.argsort(~keep, axis=1, kind="stable")
        num_left = keep.sum(axis=1)
        stay = np.arange(tokens.shape[1])[None] < num_left[:, None]
        fewer = np.where(stay, np.take_along_axis(tokens, order, axis=1), 0)
        # A network cannot read a text without a word.
        fewer[num_left == 0, 0] = self.unk
        return fewer.astype(tokens.dtype), np.maximum(num_left, 1).astype(lengths.dtype), stay


def _softmax(logits: np.ndarray) -> np.ndarray:
    # The measures are small differences of probabilities, which float32 would round.
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
