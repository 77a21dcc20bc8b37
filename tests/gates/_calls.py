"""A call of every public function of `gatedjax.gates` that takes arrays, with a few NumPy rows."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import functional as F
from gatedjax import gates
from tests.functional._calls import ROWS, STEPS, Call
from tests.gates import _cases

NOT_CALLED = {
    "ByValues": "a protocol",
    "Estimator": "a protocol",
    "Gates": "a tuple",
    "Pathwise": "a protocol",
    "Study": "a result of the host",
    "plot_studies": "draws a figure of a study",
}
"""Public names that have no call below, and why."""

ON_HOST = ("gate_modes", "measure", "report", "toys")
"""Functions that return numbers of the host, so that no program can hold them."""


ESTIMATORS = {_cases.name(estimator): estimator for estimator in _cases.ESTIMATORS}


def smooth(g: Any, weights: Any) -> Any:
    """A loss of gates [n] and as many weights, differentiable in both."""
    return jnp.sum(weights.astype(g.dtype) * g) ** 2 + jnp.sum(jnp.sin(g))


def calls() -> dict[str, Call]:
    """Every call, by the name of its function and what is special about it."""
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 0.5, (ROWS, STEPS)).astype(np.float32)
    mask = np.arange(STEPS) < np.array([5, 3, 0, 4])[:, None]
    weights = rng.normal(0, 0.5, (ROWS, STEPS)).astype(np.float32)
    shares = rng.uniform(0.5, 2.5, (ROWS, 1)).astype(np.float32)
    counts = np.array([[2], [0], [5], [3]], np.int32)
    key = np.array([1, 2], np.uint32)
    masked = {"scores": scores, "mask": mask}
    losses = {"logits": scores, "weights": weights, "mask": mask}

    def estimated(estimator: gates.Estimator) -> Callable[[Any, Any], Any]:
        expected = gates.expectation(smooth, estimator)

        def one(key: Any, row: Any) -> Any:
            return expected(row["logits"], key, row["weights"], mask=row["mask"])

        def all_rows(data: Any, rows: Any) -> Any:
            key = jax.random.wrap_key_data(jnp.asarray(data))
            return jax.vmap(one)(F.example_keys(key, rows["ids"]), rows)

        return all_rows

    def truth(_: Any, rows: Any) -> Any:
        def one(row: Any) -> Any:
            return gates.enumerate(smooth, row["logits"], row["weights"], mask=row["mask"])

        return jax.vmap(one)(rows)

    def carried(_: Any, rows: Any) -> Any:
        return jax.vmap(lambda row: gates.attached(jnp.sum(row["logits"]), **row))(rows)

    def drawn(data: Any, rows: Any) -> Any:
        noise = F.example_noise(
            F.example_keys(jax.random.wrap_key_data(jnp.asarray(data)), rows["ids"]),
            rows["logits"].shape[1],
        )
        return gates.draw(gates.ReinMax(), rows["logits"], noise, rows["mask"])

    def trained(data: Any, rows: Any) -> Any:
        def reader(g: Any, weights: Any) -> Any:
            return jax.vmap(jax.vmap(smooth, (0, None)))(g, weights), g[:, 0]

        keys = F.example_keys(jax.random.wrap_key_data(jnp.asarray(data)), rows["ids"])
        given = rows["logits"], keys, reader, rows["mask"]
        return gates.train(gates.LocalExpectation(), *given, rows=(rows["weights"],))

    def objective(_: Any, rows: Any) -> Any:
        def one(row: Any) -> Any:
            of_gates = gates.Objective(smooth, (row["weights"],), row["logits"].dtype)
            return of_gates(row["logits"]), of_gates.values(row["logits"][None])

        return jax.vmap(one)(rows)

    def penalty(kind: Any) -> Callable[[Any, Any], Any]:
        return lambda _, rows: jax.vmap(lambda row: kind.penalty(**row))(rows)

    found = {
        "sparsemax": Call(lambda _, rows: gates.sparsemax(**rows), masked),
        "entmax15": Call(lambda _, rows: gates.entmax15(**rows), masked),
        "entmax": Call(lambda _, rows: gates.entmax(**rows, alpha=1.3), masked),
        "entmax of alphas": Call(
            lambda _, rows: gates.entmax(**rows), {**masked, "alpha": 1 + shares / 4}
        ),
        "budget": Call(lambda _, rows: gates.budget(**rows, k=2.0), masked),
        "budget of shares": Call(lambda _, rows: gates.budget(**rows), {**masked, "k": shares}),
        "budget of counts": Call(lambda _, rows: gates.budget(**rows), {**masked, "k": counts}),
        "soft_top_k": Call(lambda _, rows: gates.soft_top_k(**rows, k=2), masked),
        "soft_top_k at a temperature": Call(
            lambda tau, rows: gates.soft_top_k(**rows, temperature=tau),
            {**masked, "k": shares},
            np.float32(0.7),
        ),
        "hard_top_k": Call(lambda _, rows: gates.hard_top_k(**rows, k=2), masked),
        "hard_top_k of counts": Call(
            lambda tau, rows: gates.hard_top_k(**rows, temperature=tau),
            {**masked, "k": counts},
            np.float32(0.7),
        ),
        "attached": Call(carried, {"logits": scores, "gradient": weights}),
        "enumerate": Call(truth, losses),
        "expectation": Call(estimated(gates.Reinforce(np.float32(0.3))), losses, key),
        "Objective": Call(objective, {"logits": scores, "weights": weights}),
        "HardConcrete penalty": Call(
            penalty(gates.HardConcrete()), {"logits": scores, "mask": mask}
        ),
        "HardKuma penalty": Call(penalty(gates.HardKuma()), {"logits": scores, "mask": mask}),
    }
    ids = {"ids": np.arange(ROWS, dtype=np.int32)}
    for name, estimator in ESTIMATORS.items():
        found[name] = Call(estimated(estimator), losses | ids, key)
    found["train"] = Call(trained, losses | ids, key)
    found["draw"] = Call(drawn, {"logits": scores, "mask": mask} | ids, key)
    found["expectation"] = found["expectation"]._replace(rows=losses | ids)
    return found
