"""The selections of an attention layer: how they are drawn, and what is recorded of them."""

import functools
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax._utils.types import Options
from gatedjax.functional._export import exportable
from gatedjax.gates._named import ALIASES, EstimatorName, named
from gatedjax.gates._score import ByValues, Reinforce, score

Selector = EstimatorName | Literal["none", "st", "soft", "expect"]
"""An estimator of `gates`, one of three older names of estimators, or no selector."""


NOT_OF_PAIRS = {
    "local_expectation": "it runs the network once for every pair of tokens",
    "enumerate": "it runs the network for every subset of the pairs of tokens",
    "rebar": "it draws noise anew, given the gates, behind every layer",
}
"""The estimators that cannot train selections of pairs, and why."""


@exportable
@struct.dataclass
class Selection:
    """What one attention layer did. Fields of the selector are None where there is none.

    Attributes:
      weights: W [B, M, Q, N], 0 at padded keys; None for an attention in blocks.
      gates: A of this pass [B, M, Q, N] (M = 1 for a shared selector), before the rule for queries
        that select nothing; None as weights.
      logits: log-odds of a selection, as gates.
      rate: share of the pairs that may see each other that were selected [B, M].
      empty: share of the real queries that selected nothing [B, M].
      selected: mean number of keys that a real query selected [B, M].
      entropy: mean entropy of the selection over pairs and heads [B], in nats.
      log_prob: mean log-probability of the selection over pairs and heads [B], in nats.
      probability: mean probability of a selection over pairs and heads [B].
      score: what a difference of the loss is multiplied with to train the selector [B]: its
        derivative with respect to every logit is the weight of the estimator, its value means
        nothing. None unless the selector is trained by values of the loss.
    """

    weights: Array | None = None
    gates: Array | None = None
    logits: Array | None = None
    rate: Array | None = None
    empty: Array | None = None
    selected: Array | None = None
    entropy: Array | None = None
    log_prob: Array | None = None
    probability: Array | None = None
    score: Array | None = None


class Drawn(NamedTuple):
    """The gates of a pass.

    Attributes:
      gates: A.
      logarithms: of soft gates that are never 0, else None.
      hard: whether they are 0 or 1.
      slopes: weights of the logits in `Selection.score`, if it is to be there.
    """

    gates: Array
    logarithms: Array | None = None
    hard: bool = True
    slopes: Array | None = None


def check_selector(selector: str) -> EstimatorName | Literal["none"]:
    """Returns the estimator of a selector, or "none"; raises ValueError for another name."""
    name: Any = ALIASES.get(selector, selector)
    able = [one for one in get_args(EstimatorName) if one not in NOT_OF_PAIRS]
    if name != "none" and name not in able:
        names = ("none", *able, *ALIASES)
        raise ValueError(f"selector must be one of {names}, got {selector!r}")
    return name


def draw_selection(
    selector: str,
    logits: Float[Array, "B M Q N"],
    positions: Int[Array, " Q"],
    keys: dict[str, Array],
    temperature: float | Array,
) -> Drawn:
    """Draws the gates of a training pass.

    Args:
      selector: a name that `check_selector` takes.
      logits: s, the log-odds of a selection.
      positions: of the queries.
      keys: PRNG keys per example of the stream "gate" or "antithetic"; the latter draws the same
        noise with the opposite sign.
      temperature: tau of the relaxation.
    """
    name: Any = ALIASES.get(selector, selector)
    if name == "mean_field":
        return Drawn(jax.nn.sigmoid(logits), jax.nn.log_sigmoid(logits), hard=False)
    mirrored = "antithetic" in keys
    key = keys["antithetic" if mirrored else "gate"]
    uniform = F.pair_uniform(key, logits.shape[1], positions, logits.shape[-1])
    uniform = 1 - uniform if mirrored else uniform
    if name == "st_gumbel":
        options: Options = {"temperature": temperature, "straight_through": True}
        return Drawn(F.uniform_sigmoid(logits, uniform, **options))
    estimator: Any = named(name, temperature=temperature)
    constant = jax.lax.stop_gradient(logits)
    if isinstance(estimator, Reinforce):
        return Drawn(_threshold(constant, uniform))
    noise = jnp.log(uniform) - jnp.log1p(-uniform)
    if name == "soft_gumbel":
        log_gates = F.log_gumbel_sigmoid(logits, noise, temperature=temperature)
        return Drawn(jnp.exp(log_gates), log_gates, hard=False)
    if not isinstance(estimator, ByValues):
        return Drawn(estimator.gates(logits, noise), hard=estimator.hard)
    gates = _threshold(constant, uniform)
    if not hasattr(estimator, "weights"):
        return Drawn(gates, slopes=score(constant, gates))
    pair = jnp.stack([gates, _threshold(constant, 1 - uniform)])
    return Drawn(gates, slopes=estimator.weights(constant, noise, pair))


def _threshold(logits: Array, uniform: Array) -> Array:
    """Returns [a + L > 0]."""
    return F.uniform_sigmoid(logits, uniform, straight_through=True)


def selection_record(
    logits: Float[Array, "B M Q N"],
    drawn: Drawn,
    mask: Bool[Array, "B N"] | None,
    pairs: Bool[Array, "B M Q N"] | None,
) -> dict[str, Array]:
    """Returns the arrays that a `Selection` is made of, over pairs or summed over the keys.

    Args:
      logits: of the selector.
      drawn: the gates of the pass.
      mask: True at real keys.
      pairs: True where a query may see a key; None is everywhere.
    """
    count = functools.partial(F.selection_counts, mask=mask, pair_mask=pairs)
    record = {
        "gates": drawn.gates,
        "logits": logits,
        "counts": count(drawn.gates),
        "entropies": F.selection_entropy(logits, mask, pair_mask=pairs),
        "log_probs": F.selection_log_prob(logits, drawn.gates, mask, pair_mask=pairs),
        "probabilities": count(jax.nn.sigmoid(logits)),
    }
    if pairs is not None:
        record["keys"] = count(jnp.ones((logits.shape[0], *pairs.shape[1:]), logits.dtype))
    if drawn.slopes is not None:
        record["score"] = count(jax.lax.stop_gradient(drawn.slopes) * logits)
    return record


def selection_of(record: dict[str, Array], mask: Bool[Array, "B Q"] | None) -> Selection:
    """Returns the means over pairs and queries of a record; of weights alone without a selector."""
    if "counts" not in record:
        return Selection(weights=record.get("weights"))
    keys = record.get("keys")
    statistics = F.selection_statistics(record["counts"], mask, keys=keys)
    return Selection(
        weights=record.get("weights"),
        gates=record.get("gates"),
        logits=record.get("logits"),
        **statistics._asdict(),
        entropy=F.mean_over_pairs(record["entropies"], mask, keys=keys),
        log_prob=F.mean_over_pairs(record["log_probs"], mask, keys=keys),
        probability=F.mean_over_pairs(record["probabilities"], mask, keys=keys),
        score=_sum_over_queries(record.get("score"), mask),
    )


def _sum_over_queries(values: Array | None, mask: Array | None) -> Array | None:
    """Returns the sum over heads and real queries of values [B, M, N]."""
    if values is None:
        return None
    if mask is not None:
        values = jnp.where(mask[:, None, :], values, 0)
    return jnp.sum(values, axis=(1, 2))
