"""The table of cases of the kernels: sizes, options and plans, and the truth in float64."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import functional as F


class Case(NamedTuple):
    """A recurrence with its options, sizes and plan; see `emulator.emulated` for `plan`.

    `real` has a text of 0 and 1 per row, 1 at real steps; without it the mask is random.
    """

    cell: str
    hidden: int
    directions: int = 1
    rows: int = 3
    steps: int = 5
    reverse: bool = False
    has_dropout: bool = False
    has_resets: bool = False
    with_mask: bool = True
    real: tuple[str, ...] = ()
    options: dict = {}  # noqa: RUF012
    plan: dict = {}  # noqa: RUF012


CASES = {
    "lstm": Case("lstm", 6, directions=2, rows=2),
    "lstm, no mask, one step": Case("lstm", 9, steps=1, with_mask=False, plan={"prefetch": 4}),
    "lstm, 2 blocks": Case(
        "lstm", 22, reverse=True, has_dropout=True, has_resets=True,
        plan={"cluster": 2, "rows": 2, "prefetch": 2},
    ),
    "lstm, rows that begin and end at other steps": Case(
        "lstm", 10, directions=2, rows=3, steps=7, has_dropout=True, has_resets=True,
        real=("0011010", "0001100", "0000000"), plan={"cluster": 2, "rows": 2, "prefetch": 2},
    ),
    "gru, rows that begin and end at other steps": Case(
        "gru", 10, directions=2, rows=3, steps=7, has_resets=True,
        real=("0011010", "0001100", "0100000"), plan={"rows": 2, "prefetch": 2},
    ),
    "lstm, 4 blocks": Case("lstm", 30, steps=7, plan={"cluster": 4, "rows": 4, "prefetch": 1}),
    "lstm, 8 blocks": Case(
        "lstm", 40, rows=2, steps=3, has_resets=True,
        plan={"cluster": 8, "split": 8, "back_split": 32},
    ),
    "lstm, H = 100": Case("lstm", 100, rows=1, steps=3),
    "gru after": Case(
        "gru", 7, directions=2, has_dropout=True, has_resets=True, options={"reset_after": True},
        plan={"rows": 2},
    ),
    "gru after, clipped": Case(
        "gru", 9, steps=2, reverse=True, options={"reset_after": True, "gradient_clip": 0.05},
        plan={"split": 16, "cluster": 2},
    ),
    "gru": Case("gru", 6, directions=2, rows=2),
    "gru, 4 blocks": Case(
        "gru", 24, directions=2, rows=5, steps=4, has_dropout=True, has_resets=True,
        options={"gradient_clip": 0.05},
        plan={"cluster": 4, "split": 8, "back_split": 32, "rows": 4, "prefetch": 4},
    ),
    "rau": Case("rau", 6, directions=2, rows=2, options={"rescale": True}),
    "rau, 2 blocks": Case(
        "rau", 22, reverse=True, has_dropout=True, has_resets=True,
        plan={"cluster": 2, "rows": 2, "prefetch": 2},
    ),
    "rau, 8 blocks": Case(
        "rau", 40, rows=1, steps=3, options={"rescale": True},
        plan={"cluster": 8, "split": 8, "back_split": 32, "prefetch": 1},
    ),
}  # fmt: skip
WIDTH = 3
GATES = {"lstm": 4, "gru": 3, "rau": 5}
CLASSES = {"lstm": F.LSTMWeights, "gru": F.GRUWeights, "rau": F.RAUWeights}
UNROLL = {"lstm": F.lstm, "gru": F.gru, "rau": F.rau}
STEP = {"lstm": F.lstm_step, "gru": F.gru_step, "rau": F.rau_step}


def draw(case: Case, seed: int = 0) -> tuple[Any, Any]:
    """Returns (floats, masks): weights, xs, initial, drop and fresh; mask and resets."""
    rng = np.random.default_rng(seed)
    hidden, columns = case.hidden, GATES[case.cell] * case.hidden

    def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
        return scale * rng.normal(size=shape)

    def weights() -> Any:
        parts = [
            normal(WIDTH, columns, scale=WIDTH**-0.5),
            normal(hidden, columns, scale=hidden**-0.5),
            normal(columns, scale=0.3),
        ]
        has_bias = case.options.get("reset_after", False)
        return CLASSES[case.cell](*parts, *[normal(hidden, scale=0.3)] * has_bias)

    def carry() -> Any:
        parts = [normal(case.rows, hidden) for _ in range(2 if case.cell == "lstm" else 1)]
        return F.LSTMState(*parts) if case.cell == "lstm" else parts[0]

    mask = rng.random((case.rows, case.steps)) < 0.7
    mask[:1] = True
    if case.rows > 2:
        mask[2] = False  # a row without a real step
    if case.real:
        mask = np.array([[step == "1" for step in row] for row in case.real])
    mask = mask if case.with_mask else None
    xs = normal(case.rows, case.steps, WIDTH)
    if mask is not None:
        xs[~mask] = np.nan
    drop = (rng.random((case.rows, hidden)) < 0.8) / 0.8 if case.has_dropout else None
    resets = rng.random((case.rows, case.steps)) < 0.4 if case.has_resets else None
    directions = range(case.directions)
    floats = {
        "weights": [weights() for _ in directions],
        "xs": xs,
        "initial": [carry() for _ in directions],
        "drop": drop,
        "fresh": [carry() for _ in directions] if case.has_resets else None,
    }
    return floats, {"mask": mask, "resets": resets}


def run(case: Case, floats: Any, masks: Any, **more: Any) -> Any:
    """Returns the final carries and the outputs by the functions of the library."""
    options = case.options | more
    options |= {"recurrent_dropout_mask": floats["drop"], "resets": masks["resets"]}
    unroll, weights, fresh = UNROLL[case.cell], floats["weights"], floats["fresh"]
    if case.directions == 2:
        starts = {"initial": tuple(floats["initial"]), "reset_to": fresh and tuple(fresh)}
        return F.bidirectional(unroll, *weights, floats["xs"], masks["mask"], **starts, **options)
    return unroll(
        weights[0],
        floats["xs"],
        masks["mask"],
        initial=floats["initial"][0],
        reset_to=fresh and fresh[0],
        reverse=case.reverse,
        **options,
    )


def run_steps(case: Case, floats: Any, masks: Any) -> Any:
    """Returns the results of `run` by the equations of the step, differentiated by JAX."""
    found = []
    for d, weights in enumerate(floats["weights"]):
        step = functools.partial(
            STEP[case.cell], weights, recurrent_dropout_mask=floats["drop"], **case.options
        )
        found.append(
            F.masked_scan(
                step,
                floats["initial"][d],
                floats["xs"],
                masks["mask"],
                resets=masks["resets"],
                reset_to=floats["fresh"] and floats["fresh"][d],
                reverse=case.reverse or d == 1,
            )
        )
    if case.directions == 1:
        return found[0]
    return (found[0][0], found[1][0]), jnp.concatenate([found[0][1], found[1][1]], axis=-1)


def with_gradients(function: Any, case: Case, floats: Any, masks: Any, cotangents: Any) -> Any:
    """Returns the results of `run` or `run_steps`, and the gradients of `floats`."""

    @jax.jit
    def both(floats: Any, cotangents: Any) -> Any:
        results, pull = jax.vjp(lambda floats: function(case, floats, masks), floats)
        return results, pull(cotangents)[0]

    return jax.device_get(both(floats, cotangents))


def cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), tree)


def cotangents_of(case: Case, seed: int = 1) -> Any:
    """Returns a cotangent for each final carry and for the outputs."""
    rng = np.random.default_rng(seed)
    shape = case.rows, case.hidden
    carry = [rng.normal(size=shape) for _ in range(2 if case.cell == "lstm" else 1)]
    carry = F.LSTMState(*carry) if case.cell == "lstm" else carry[0]
    outputs = rng.normal(size=(case.rows, case.steps, case.directions * case.hidden))
    return ((carry, carry) if case.directions == 2 else carry), outputs


def truth(case: Case) -> Any:
    """Returns results and gradients of the steps in float64."""
    floats, masks = draw(case)
    with jax.enable_x64(True):
        cotangents = cast(cotangents_of(case), np.float64)
        return with_gradients(run_steps, case, cast(floats, np.float64), masks, cotangents)


def error_of(got: Any, want: Any) -> float:
    """Returns the largest difference of two trees, relative to the largest entry of an array."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    return max(
        float(np.max(np.abs(np.asarray(a, np.float64) - b)) / (np.max(np.abs(b)) + 1e-30))
        for a, b in pairs
    )
