"""The configuration of GA-Net."""

import dataclasses
from typing import Annotated, Any, Literal

from jax import Array

from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import (
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    RATE,
    SHARE,
    at_least,
    at_most,
    check_options,
)
from gatedjax._utils.limits import MOST_LAYERS, MOST_LENGTH, MOST_STEPS
from gatedjax.gates import Estimator
from gatedjax.gates._registry import KINDS, EstimatorName, create_estimator
from gatedjax.models._checks import check_defaults


def needs_relaxed_words(estimator: Any) -> bool:
    """Returns True if an estimator cannot train gates on the input (gates_on="input")."""
    # Only pathwise estimators have the attribute `hard`.
    return estimator.needs_gradient and not hasattr(estimator, "hard")


def unread_error(option: str) -> ValueError:
    """Returns a ValueError for an estimator that cannot train gates on the input of the network."""
    return ValueError(
        f"gates_on must be 'attention' for {option}, got 'input': the estimator needs the gradient "
        "at gates between 0 and 1, and the network reads open words only; use 'st_gumbel' or "
        "'leave_one_out'"
    )


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class GateConfig:
    """The options for training, penalising and evaluating the gates of GA-Net, as keywords.

    >>> GateConfig(estimator="leave_one_out", density=0.25).estimation
    'leave_one_out'
    """

    gate_bias_init: Annotated[float, FINITE] = 0.0
    """Initial bias of the gates. With 0 about half of the gates are open."""
    temperature: Annotated[float, POSITIVE] = 1.0
    """Temperature tau of the Gumbel relaxation. The paper uses 0.5, 1.0, 1.5 or 2.0."""
    final_temperature: Annotated[float | None, POSITIVE] = None
    """Temperature after temperature-steps, approached geometrically. None keeps the temperature."""
    temperature_steps: Annotated[int, at_least(1, MOST_STEPS)] = 1
    """Number of steps from temperature to final-temperature."""
    penalty: Annotated[float, NOT_NEGATIVE] = 1e-4
    """Weight lambda of the mean gate in the loss. The paper uses 4e-6 to 1e-3."""
    density: Annotated[float | None, SHARE] = None
    """Target of the mean open probability. A Lagrange multiplier enforces it in place of the
    penalty. None trains with the penalty."""
    gates_on: Literal["attention", "input"] = "attention"
    """Where the gates act. With "attention", as in the paper, they decide which words attention may
    see; the states of these words still depend on all words. With "input" they also remove words
    from the input of the backbone, which reads the words times their soft gates, or only the open
    words under hard gates."""
    penalty_on: Literal["gate", "prob"] = "gate"
    """The penalised quantity: the sampled soft gates, or the open probabilities with lower
    variance."""
    estimator: EstimatorName | None = None
    """Estimator of the gradient of the gates, see `gatedjax.gates`. None means "soft_gumbel"."""
    estimator_draws: Annotated[int, at_least(2)] = 2
    """Number of draws of the estimator "leave_one_out"."""
    test_gate: Literal["sample", "threshold", "multi_sample"] = "sample"
    """Gates with which "accuracy" is evaluated. "multi_sample" averages class probabilities over
    the draws. The accuracies of all gate modes are reported in any case."""
    test_samples: Annotated[int, at_least(1)] = 5
    """Number of draws of the gates in evaluation."""
    empty: Literal["max_gate", "soft", "zeros"] = "max_gate"
    """Rule for a text with all gates closed: open the gate with the highest probability, attend to
    all words, or pool zeros."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.gates_on == "input" and needs_relaxed_words(KINDS[self.estimation]):
            raise unread_error(f"estimator={self.estimator!r}")

    @property
    def estimation(self) -> EstimatorName:
        """Name of the estimator that trains the gates: `estimator`, or "soft_gumbel" for None."""
        return self.estimator or "soft_gumbel"

    def make_estimator(self, temperature: float | Array) -> Estimator:
        """Returns the gradient estimator of the gates, such as `gates.SoftGumbel`.

        Its name is `estimation`. temperature is tau, a float or a traced scalar, for an estimator
        that has a temperature; the remaining estimators ignore it.
        """
        draws = self.estimator_draws
        return create_estimator(self.estimation, temperature=temperature, draws=draws)


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class GANetDropout:
    """Dropout rates of GA-Net in training, in [0, 1), as keywords."""

    embedding_dropout: Annotated[float, RATE] = 0.3
    """Dropout rate on word vectors."""
    layer_dropout: Annotated[float, RATE] = 0.0
    """Dropout rate between the layers of the backbone."""
    recurrent_dropout: Annotated[float, RATE] = 0.0
    """Dropout rate on the recurrent connections of the backbone, with a single mask per example."""
    pool_dropout: Annotated[float, RATE] = 0.3
    """Dropout rate on the pooled state."""

    def __post_init__(self) -> None:
        check_options(self)


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class GANetConfig:
    """The configuration of GA-Net and its baselines, as keywords with defaults.

    >>> config = GANetConfig(hidden=50, gates=GateConfig(density=0.25))
    >>> config.gates.density
    0.25
    """

    system: Literal["ganet", "soft", "local", "bilstm"] = "ganet"
    """The network: GA-Net, or a baseline with soft attention, local attention or the last state of
    the BiLSTM."""
    embedding_dim: Annotated[int, at_least(1)] = 100
    """Width of the word vectors."""
    hidden: Annotated[int, at_least(1)] = 100
    """Width of the backbone LSTM per direction."""
    num_layers: Annotated[int, at_least(1, MOST_LAYERS)] = 2
    """Number of layers of the backbone."""
    merge: Literal["concat", "sum"] = "concat"
    """Merging of the two directions: concatenation or sum of their states."""
    score: Literal["zhou", "mlp1"] = "zhou"
    """Attention score: w . tanh(h) for "zhou", w . tanh(W h + b) for "mlp1"."""
    post_tanh: bool = True
    """True applies tanh to the pooled state before the classifier."""
    aux: Literal["lstm", "fnn", "att"] = "lstm"
    """Auxiliary network that predicts the gates."""
    aux_hidden: Annotated[int, at_least(1)] = 100
    """Width of the auxiliary network."""
    aux_positions: bool = True
    """True adds sinusoidal positions to the input of the auxiliary network "att"."""
    gates: GateConfig = GateConfig()
    """Options for training, penalising and evaluating the gates."""
    local_half_width: Annotated[float, POSITIVE, at_most(MOST_LENGTH)] = 4.0
    """Half of the window of local attention, in tokens."""
    local_renormalise: bool = False
    """True rescales the weights of local attention to sum 1 after the Gaussian."""
    dropouts: GANetDropout = GANetDropout()
    """Dropout rates."""
    freeze_embeddings: bool = False
    """True keeps the word vectors fixed in training."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the computation. Parameters, softmax, noise, carries and the loss stay float32."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.system != "ganet":
            names = ("density", "estimator", "gates_on")
            check_defaults(self.gates, names, f"system={self.system!r}", "it has no gates")
