"""The leak: by how much a prediction depends on words that are not read."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.text.models._buckets import Ids, Run, Shape, make_batches, run_batches

TEXTS = 64
"""Largest number of texts in a sample."""
_EACH = 4
"""Largest number of words that are read, and of other words, that are removed from a text."""
_WORDS = 60_000
"""Largest number of words that the network reads for a measurement: a second on two cores."""


class Sample:
    """An evenly spread sample of a stream of texts, whose positions do not depend on chance."""

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


def measure_leak(run: Run, texts: Sequence[Ids], shape_of: Callable[[int], Shape]) -> Json | None:
    """Measures the mean of |p(x) - p(x without w)| for read and for unread words w: p is the
    probability of the class predicted for x, and the whole network runs again. Returns None without
    words of both kinds.
    """
    longest = max((max(map(len, text)) for text in texts), default=1)
    # A text is read again for each word that is removed.
    texts = _spread(texts, max(1, _WORDS // (2 * _EACH * longest)))
    sizes = [max(map(len, text)) for text in texts]
    results = run_batches(run, texts, make_batches(texts, sizes, shape_of))
    removed = [
        (number, is_read, shorter)
        for number, result in enumerate(results)
        for is_read in (False, True)
        for shorter in _shorten(texts[number], result.masks, is_read)
    ]
    # A shortened text gets the shape of its original, so that no program is compiled for it.
    sizes, shorter = [sizes[number] for number, *_ in removed], [ids for *_, ids in removed]
    changed = run_batches(run, shorter, make_batches(shorter, sizes, shape_of))
    changes: dict[bool, list[float]] = {False: [], True: []}
    for (number, is_read, _), after in zip(removed, changed, strict=True):
        before = results[number].probabilities
        best = int(np.argmax(before))
        changes[is_read].append(abs(float(before[best]) - float(after.probabilities[best])))
    # The two means are read as a comparison, so neither is reported without the other.
    if not changes[False] or not changes[True]:
        return None
    return {
        "texts": len({number for number, *_ in removed}),
        "not_read": float(np.mean(changes[False])),
        "words_not_read": len(changes[False]),
        "read": float(np.mean(changes[True])),
        "words_read": len(changes[True]),
    }


def _shorten(text: Ids, masks: Sequence[np.ndarray], is_read: bool) -> Iterator[Ids]:
    """Yields an example without a word, for some of its read or unread words."""
    places = [
        (place, word)
        for place, mask in enumerate(masks)
        for word in np.flatnonzero(mask == is_read).tolist()
        if len(text[place]) > 1  # a text must keep a word
    ]
    for place, word in _spread(places, _EACH):
        yield (*text[:place], np.delete(text[place], word), *text[place + 1 :])


def render_leak(leak: Json) -> str:
    """Returns the dict of `measure_leak`, the changes without a word, as a sentence."""
    return (
        f"the probability changes by {leak['not_read']:.4f} on average when a word that is not "
        f"read is removed, and by {leak['read']:.4f} when a word that is read is "
        f"({leak['words_not_read']} and {leak['words_read']} words of {leak['texts']} texts)"
    )


def _spread(values: Sequence[Any], count: int) -> list[Any]:
    if len(values) <= count:
        return list(values)
    return [values[i] for i in (np.arange(count) * len(values) // count).tolist()]
