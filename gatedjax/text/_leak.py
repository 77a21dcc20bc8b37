"""Measures by how much a prediction depends on words that are not kept."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.text._buckets import Shape, grouped, padded

TEXTS = 64
"""Texts of a sample, at most."""
_EACH = 4
"""Words of a text that are removed in turn, at most, of those that are kept and of the others."""
_WORDS = 60_000
"""Words that the network reads for one measurement, at most: about a second on two cores."""

Ids = tuple[np.ndarray, ...]
"""The ids of the words of a text, or of both texts of a pair."""


class Sample:
    """An even sample of texts that come one after the other, always the same for the same texts."""

    def __init__(self) -> None:
        self._texts: list[Any] = []
        self._step, self._count = 1, 0

    def add(self, text: Any) -> None:
        """Offers the next text to the sample."""
        if self._count % self._step == 0:
            self._texts.append(text)
        self._count += 1
        if len(self._texts) == 2 * TEXTS:
            self._texts, self._step = self._texts[::2], 2 * self._step

    def texts(self) -> list[Any]:
        """Returns up to `TEXTS` texts."""
        return _spread(self._texts, TEXTS)


def measure_leak(
    run: Callable[[dict[str, np.ndarray]], Json],
    texts: Sequence[Ids],
    shape_of: Callable[[int], Shape],
) -> Json | None:
    """Removes single words from texts, and compares the changes by whether the word was kept.

    With p(x) the probability of the class that is predicted of the text x, the change of a word w
    is |p(x) - p(x without w)|, where the whole network runs again without the word.

    Args:
      run: from a padded batch to "probabilities" and "kept" as `TrainedModel.run` returns them.
      texts: a sample of texts.
      shape_of: from the number of words of a text to the shape of its batch, so that
        the batches are of shapes for which there is a program already.

    Returns:
      {"texts": how many, "closed" and "open": the mean change of words that are not kept and of
      kept ones, "closed_words" and "open_words": how many of them}; None where no word is left out
      or none can be removed.
    """
    longest = max((max(map(len, text)) for text in texts), default=1)
    texts = _spread(texts, max(1, _WORDS // (2 * _EACH * longest)))
    sizes = [max(map(len, text)) for text in texts]
    whole = _run(run, texts, sizes, shape_of)
    best = [int(np.argmax(probabilities)) for probabilities, _ in whole]
    removed: list[tuple[int, bool, Ids]] = []
    for number, (text, (_, kept)) in enumerate(zip(texts, whole, strict=True)):
        for is_open in (False, True):
            places = [
                (place, word)
                for place, mask in enumerate(kept)
                for word in np.flatnonzero(mask == is_open).tolist()
                if len(text[place]) > 1
            ]
            for place, word in _spread(places, _EACH):
                rest = np.delete(text[place], word)
                removed.append((number, is_open, (*text[:place], rest, *text[place + 1 :])))
    changed = _run(
        run, [ids for *_, ids in removed], [sizes[number] for number, *_ in removed], shape_of
    )
    changes: dict[bool, list[float]] = {False: [], True: []}
    for (number, is_open, _), (probabilities, _) in zip(removed, changed, strict=True):
        before = float(whole[number][0][best[number]])
        changes[is_open].append(abs(before - float(probabilities[best[number]])))
    if not changes[False] or not changes[True]:
        return None
    return {
        "texts": len({number for number, *_ in removed}),
        "closed": float(np.mean(changes[False])),
        "closed_words": len(changes[False]),
        "open": float(np.mean(changes[True])),
        "open_words": len(changes[True]),
    }


def render_leak(leak: Json) -> str:
    """Returns the result of `measure_leak` as one line."""
    return (
        f"the probability changes by {leak['closed']:.4f} on average when a word that is not kept "
        f"is removed, and by {leak['open']:.4f} when a kept word is "
        f"({leak['closed_words']} and {leak['open_words']} words of {leak['texts']} texts)"
    )


def _spread(values: Sequence[Any], count: int) -> list[Any]:
    """Returns so many of the values at most, evenly spread."""
    if len(values) <= count:
        return list(values)
    return [values[i] for i in (np.arange(count) * len(values) // count).tolist()]


def _run(
    run: Callable[[dict[str, np.ndarray]], Json],
    texts: Sequence[Ids],
    sizes: Sequence[int],
    shape_of: Callable[[int], Shape],
) -> list[tuple[np.ndarray, list[np.ndarray]]]:
    """Returns (probabilities, masks of the kept words) of each text, padded for its size."""
    results: dict[int, tuple[np.ndarray, list[np.ndarray]]] = {}
    for numbers, shape in grouped(sizes, shape_of):
        out = run(padded([texts[i] for i in numbers], shape))
        for row, number in enumerate(numbers):
            kept = [
                mask[row, : len(ids)].astype(bool)
                for mask, ids in zip(out["kept"], texts[number], strict=True)
            ]
            results[number] = out["probabilities"][row], kept
    return [results[number] for number in range(len(texts))]
