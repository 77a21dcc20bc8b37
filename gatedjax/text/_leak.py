"""The gate leak: by how much a prediction depends on words with closed gates."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.text._buckets import Shape, group_texts, pad_texts

TEXTS = 64
"""Largest number of texts in a sample."""
_EACH = 4
"""Largest number of open words, and of closed words, of a text that are removed in turn."""
_WORDS = 60_000
"""Largest number of words that the network reads for a measurement: a second on two cores."""

Ids = tuple[np.ndarray, ...]
"""The ids of the words of a text, or of both texts of a pair."""


class Sample:
    """An evenly spread sample of a stream of texts of any type, at most `TEXTS` (64) of them. Its
    positions in the stream depend only on the number of texts, not on chance.
    """

    def __init__(self) -> None:
        self._texts: list[Any] = []
        self._step, self._count = 1, 0

    def add(self, text: Any) -> None:
        """Passes the next text of the stream to the sample, which may leave it out."""
        if self._count % self._step == 0:
            self._texts.append(text)
        self._count += 1
        # Half of the texts are dropped and the step doubles, so that the sample spans the whole
        # stream although its length is unknown.
        if len(self._texts) == 2 * TEXTS:
            self._texts, self._step = self._texts[::2], 2 * self._step

    def texts(self) -> list[Any]:
        """Returns the sample in the order of the stream, at most `TEXTS` texts."""
        return _spread(self._texts, TEXTS)


def measure_leak(
    run: Callable[[dict[str, np.ndarray]], Json],
    texts: Sequence[Ids],
    shape_of: Callable[[int], Shape],
) -> Json | None:
    """Measures the mean of |p(x) - p(x without w)| for closed and for open words w, where p is the
    probability of the class predicted for x, and the whole network runs again. `run` returns
    "probabilities" [B, C] and "kept", bool [B, T] of the open words for each text of an example.
    The result is None if no word is closed or no word can be removed.
    """
    longest = max((max(map(len, text)) for text in texts), default=1)
    # A text is read again for each word that is removed, up to `_EACH` open and `_EACH` closed
    # words.
    texts = _spread(texts, max(1, _WORDS // (2 * _EACH * longest)))
    sizes = [max(map(len, text)) for text in texts]
    results = _run(run, texts, sizes, shape_of)
    best = [int(np.argmax(probabilities)) for probabilities, _ in results]
    removed: list[tuple[int, bool, Ids]] = []
    for number, (text, (_, masks)) in enumerate(zip(texts, results, strict=True)):
        for is_open in (False, True):
            places = [
                (place, word)
                for place, mask in enumerate(masks)
                for word in np.flatnonzero(mask == is_open).tolist()
                if len(text[place]) > 1
            ]
            # A text must keep a word, so places in texts of a single word were left out.
            for place, word in _spread(places, _EACH):
                remaining = np.delete(text[place], word)
                removed.append((number, is_open, (*text[:place], remaining, *text[place + 1 :])))
    # A shortened text gets the shape of its original, so that no program is compiled for it.
    changed = _run(
        run, [ids for *_, ids in removed], [sizes[number] for number, *_ in removed], shape_of
    )
    changes: dict[bool, list[float]] = {False: [], True: []}
    for (number, is_open, _), (probabilities, _) in zip(removed, changed, strict=True):
        before = float(results[number][0][best[number]])
        changes[is_open].append(abs(before - float(probabilities[best[number]])))
    # The two means are read as a comparison, so neither is reported without the other.
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
    """Returns the dict of `measure_leak`, the changes without a word, as a sentence."""
    return (
        f"the probability changes by {leak['closed']:.4f} on average when a closed word is "
        f"removed, and by {leak['open']:.4f} when an open word is "
        f"({leak['closed_words']} and {leak['open_words']} words of {leak['texts']} texts)"
    )


def _spread(values: Sequence[Any], count: int) -> list[Any]:
    if len(values) <= count:
        return list(values)
    return [values[i] for i in (np.arange(count) * len(values) // count).tolist()]


def _run(
    run: Callable[[dict[str, np.ndarray]], Json],
    texts: Sequence[Ids],
    sizes: Sequence[int],
    shape_of: Callable[[int], Shape],
) -> list[tuple[np.ndarray, list[np.ndarray]]]:
    """Returns the probabilities [C] of each example, and the masks of open words of its texts."""
    results: dict[int, tuple[np.ndarray, list[np.ndarray]]] = {}
    for numbers, shape in group_texts(sizes, shape_of):
        out = run(pad_texts([texts[i] for i in numbers], shape))
        for row, number in enumerate(numbers):
            masks = [
                mask[row, : len(ids)].astype(bool)
                for mask, ids in zip(out["kept"], texts[number], strict=True)
            ]
            results[number] = out["probabilities"][row], masks
    return [results[number] for number in range(len(texts))]
