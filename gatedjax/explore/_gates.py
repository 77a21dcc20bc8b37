"""The gates of the explorer: the rules of the modes, and forced gates."""

from collections.abc import Callable, Mapping

import numpy as np

from gatedjax.explore._state import State


def gates_of(
    open_: np.ndarray, state: State, temperature: float, *, removed: int | None = None
) -> np.ndarray:
    """Computes the gates of a mode from the probabilities that they are open.

        >>> state = State(mode="threshold", threshold=0.5)
        >>> print(gates_of(np.array([0.25, 0.75]), state, temperature=1.0))
        [0. 1.]

    Args:
      open_: p [T], the probabilities that the gates of the T words are open.
      state: the mode and its settings; noise depends only on its seed, not on the model.
      temperature: tau of the mode "relaxed", a positive number.
      removed: the former position of a word that was removed from the text, or None. The other
        words keep the noise that they had in the longer text.

    Returns:
      float32 [T]: [p > threshold] for "threshold", [p among the round(density T) largest] for
      "density", [a + L > 0] for "sample", p for "expected", sigmoid((a + L) / tau) for "relaxed",
      ones for "open", with a = logit p and logistic noise L.
    """
    # A probability that was rounded to 0 or 1 would have an infinite logit.
    p = np.clip(np.asarray(open_, np.float64), 1e-12, 1 - 1e-9)
    # The noise depends only on the seed, so that two models and the two random modes have the same
    # noise.
    size = len(p) + (removed is not None)
    noise = np.random.default_rng(state.seed).logistic(size=size)
    if removed is not None:
        noise = np.delete(noise, removed)
    logits = np.log(p) - np.log1p(-p)
    modes: dict[str, Callable[[], np.ndarray]] = {
        "threshold": lambda: p > state.threshold,
        "density": lambda: _largest(p, state.density),
        "sample": lambda: logits + noise > 0,
        "open": lambda: np.ones_like(p),
        "expected": lambda: p,
        "relaxed": lambda: 1 / (1 + np.exp(-(logits + noise) / temperature)),
    }
    return modes[state.mode]().astype(np.float32)


def force(gates: np.ndarray, forced: Mapping[int, bool]) -> np.ndarray:
    """Returns a copy of the gates with the forced gates replaced.

        >>> print(force(np.array([0.5, 0.5]), {0: True, 7: False}))
        [1.  0.5]

    Args:
      gates: [T], the gates of the T words, numbers in [0, 1].
      forced: from positions of words, counted from 0, to True for an open gate (1) or False for a
        closed gate (0). Positions beyond the text have no effect.
    """
    changed = gates.copy()
    for place, is_open in forced.items():
        if place < len(changed):
            changed[place] = is_open
    return changed


def _largest(p: np.ndarray, density: float) -> np.ndarray:
    is_largest = np.zeros(len(p), bool)
    is_largest[np.argsort(-p, kind="stable")[: max(1, int(density * len(p) + 0.5))]] = True
    return is_largest
