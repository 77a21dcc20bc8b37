"""The options of GA-Net."""

import dataclasses
from typing import Any, Literal

from jax import Array

from gatedjax._utils.choices import check_choices
from gatedjax._utils.groups import with_groups
from gatedjax._utils.limits import MOST_LENGTH, check_most
from gatedjax._utils.numbers import make_plain
from gatedjax.functional._checks import check_positive
from gatedjax.gates import Estimator
from gatedjax.gates._named import KINDS, EstimatorName, create_estimator, current_name
from gatedjax.models._checks import check_at_least, check_rates
from gatedjax.models._schedule import check_schedule


def needs_closed_words(estimator: Any) -> bool:
    """Returns whether an estimator, or its class, takes the derivative at closed gates."""
    return estimator.needs_gradient and getattr(estimator, "hard", True)


def gateless_error(system: str) -> ValueError:
    """Returns the error for an estimator of a system without gates."""
    return ValueError(f"estimator must be None for system={system!r}: no gates")


def unread_error(option: str) -> ValueError:
    """Returns the error for an option that needs the derivative at a closed word of the input."""
    return ValueError(
        f"gates_on must be 'attention' for {option}: a word that is not read has no gradient"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateConfig:
    """How the gates of GA-Net are trained, penalised and evaluated."""

    gate_bias_init: float = 0.0
    """Gate bias at the start; 0 opens about half of the gates."""
    temperature: float = 1.0
    """tau of the Gumbel relaxation (paper: 0.5, 1.0, 1.5 or 2.0)."""
    final_temperature: float | None = None
    """tau after temperature-steps, reached geometrically; None keeps tau."""
    temperature_steps: int = 1
    """Steps from temperature to final-temperature."""
    penalty: float = 1e-4
    """lambda, weight of the mean gate in the loss (paper: 4e-6 to 1e-3)."""
    density: float | None = None
    """Hold the mean open probability at this by a Lagrange multiplier, in place of the penalty."""
    gates_on: Literal["attention", "input"] = "attention"
    """What the gates close words to: attention, as in the paper, or the backbone too, which then
    reads soft gates times their words, and under hard gates the open words alone."""
    penalty_on: Literal["gate", "prob"] = "gate"
    """Penalise the sampled soft gates, or the open probabilities (lower variance)."""
    relax: Literal["soft", "straight_through"] = "soft"
    """Older names of the estimators "soft_gumbel" and "st_gumbel"."""
    estimator: EstimatorName | None = None
    """How the gates' gradient is estimated (see `gatedjax.gates`); None is what `relax` says:
    "soft_gumbel" where soft, "st_gumbel" where straight-through."""
    estimator_draws: int = 2
    """Draws of "leave_one_out"."""
    test_gate: Literal["sample", "threshold", "multi_sample"] = "sample"
    """Evaluation gates behind "accuracy"; all gate modes are always reported. "multi_sample"
    averages class probabilities over the draws."""
    test_samples: int = 5
    """Draws of the gates in evaluation."""
    empty: Literal["max_gate", "soft", "zeros"] = "max_gate"
    """If all gates close: open the likeliest, attend to everything, or pool nothing."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_choices(self)
        check_at_least(self, 1, "test_samples")
        check_at_least(self, 2, "estimator_draws")
        check_schedule(self)
        check_positive(temperature=self.temperature)
        if not 0 <= self.penalty < float("inf"):
            raise ValueError(f"penalty must be at least 0 and finite, got {self.penalty}")
        if self.density is not None and not 0 < self.density < 1:
            raise ValueError(f"density must be in (0, 1) or None, got {self.density}")
        if self.estimator is not None and self.relax != "soft":
            raise ValueError(f"relax must be 'soft' where estimator={self.estimator!r} says it")
        if self.gates_on == "input" and needs_closed_words(KINDS[self.estimation]):
            said = "relax" if self.estimator is None else "estimator"
            raise unread_error(f"{said}={getattr(self, said)!r}")

    @property
    def estimation(self) -> EstimatorName:
        """The name of the estimator that trains the gates."""
        return self.estimator or current_name("relax", self.relax)

    def make_estimator(self, temperature: float | Array) -> Estimator:
        """Returns the estimator that trains the gates at a temperature."""
        return create_estimator(
            self.estimation, temperature=temperature, draws=self.estimator_draws
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GANetDropout:
    """Dropout rates of GA-Net."""

    embedding_dropout: float = 0.3
    """Dropout on word vectors."""
    layer_dropout: float = 0.0
    """Dropout between the backbone layers."""
    recurrent_dropout: float = 0.0
    """Dropout on the recurrent connections of the backbone, one mask per example."""
    pool_dropout: float = 0.3
    """Dropout on the pooled state."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_rates(self, "embedding_dropout", "layer_dropout", "recurrent_dropout", "pool_dropout")


@with_groups
@dataclasses.dataclass(frozen=True, kw_only=True)
class GANetConfig:
    """Everything that the paper fixes or leaves open about the network."""

    system: Literal["ganet", "soft", "local", "bilstm"] = "ganet"
    """GA-Net, or one of its baselines: global attention, local attention, last hidden state."""
    embedding_dim: int = 100
    """Width of the word vectors."""
    hidden: int = 100
    """Backbone LSTM width per direction."""
    num_layers: int = 2
    """Backbone layers."""
    merge: Literal["concat", "sum"] = "concat"
    """How the two directions become one state."""
    score: Literal["zhou", "mlp1"] = "zhou"
    """Attention score: w . tanh(h), or w . tanh(W h + b)."""
    post_tanh: bool = True
    """Apply tanh to the pooled state before the classifier."""
    aux: Literal["lstm", "fnn", "att"] = "lstm"
    """Auxiliary network that predicts the gates."""
    aux_hidden: int = 100
    """Width of the auxiliary network."""
    aux_positions: bool = True
    """Add sinusoidal positions to the input of the "att" auxiliary network."""
    gates: GateConfig = GateConfig()
    """How the gates are trained, penalised and evaluated."""
    local_half_width: float = 4.0
    """Local attention: half of the window, in tokens."""
    local_renormalise: bool = False
    """Local attention: make the weights sum to 1 after the Gaussian."""
    dropouts: GANetDropout = GANetDropout()
    """Dropout rates."""
    freeze_embeddings: bool = False
    """Keep word vectors as they are."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype; parameters, softmax, noise, carries and the loss stay float32."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_choices(self)
        check_at_least(self, 1, "embedding_dim", "hidden", "num_layers", "aux_hidden")
        check_positive(local_half_width=self.local_half_width)
        check_most("local_half_width", self.local_half_width, MOST_LENGTH)
        if self.system != "ganet":
            self._check_without_gates()

    def _check_without_gates(self) -> None:
        if self.gates.density is not None:
            raise ValueError(f"density must be None for system={self.system!r}: it has no gates")
        if self.gates.estimator is not None:
            raise gateless_error(self.system)
        if self.gates.gates_on == "input":
            raise ValueError(f"gates_on must be 'attention' for system={self.system!r}")
