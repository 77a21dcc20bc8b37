"""The gates of the explorer: the rules of the modes, and forced gates."""

from collections.abc import Callable, Mapping

import numpy as np

from gatedjax.explore._state import State


def gates_of(
    open_: np.ndarray, state: State, temperature: float, *, removed: int | None = None
) -> np.ndarray:
    """Computes the gates of a mode, float32 [T], from the probabilities p that they are open.

    [p > threshold], [p among the round(density T) largest], [a + L > 0] for "sample", ones for
    "open", p for "expected", sigmoid((a + L) / tau) for "relaxed", with a = logit p and logistic
    noise L that depends only on the seed; without the word `removed` the other words keep theirs.

    >>> state = State(mode="threshold", threshold=0.5)
    >>> print(gates_of(np.array([0.25, 0.75]), state, temperature=1.0))
    [0. 1.]
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
    """Returns a copy of `gates` with the forced ones replaced; places beyond the text are ignored.

    >>> print(force(np.array([0.5, 0.5]), {0: True, 7: False}))
    [1.  0.5]
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
