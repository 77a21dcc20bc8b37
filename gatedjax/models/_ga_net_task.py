"""Training and evaluation of GA-Net and its baselines."""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax._utils.tracing import is_traced
from gatedjax._utils.types import Output, Params, Tree
from gatedjax.functional._devices import on_rows
from gatedjax.gates import Estimator, Pathwise
from gatedjax.gates import train as train_gates
from gatedjax.gates._estimator import check_estimator
from gatedjax.gates._registry import takes_temperature
from gatedjax.models._checks import Batch, Metrics, Predictions, check_batch, schedule
from gatedjax.models._classification import (
    NetworkTask,
    accuracy,
    class_metrics,
    class_predictions,
    constraint,
    cross_entropy,
)
from gatedjax.models._ga_net_config import needs_relaxed_words, unread_error
from gatedjax.models.ga_net import GANet, first_draw, mean_log_probability
from gatedjax.training import Ratio


@dataclasses.dataclass(frozen=True)
class GANetTask(NetworkTask):
    """The task for training and evaluating a `GANet` or a baseline.

    The loss of an example is cross-entropy + lambda * mean gate over the true length (eq. 10). With
    `gates.density` lambda is a multiplier that gradient ascent fits to the constraint, and its
    factor is the mean open probability less the density (Bastings et al. 2019).

    An estimator that is not a `gates.Pathwise` reads the words once and evaluates the cross-entropy
    for several draws of the gates; the penalty is then its exact expectation. In the metrics the
    cross-entropy is the mean over the draws, and accuracy and density belong to the first draw.

        >>> from gatedjax.models import GANetConfig
        >>> task = GANetTask(GANet(GANetConfig(hidden=4, num_layers=1), 50, 2))
        >>> batch = {"tokens": jnp.array([[7, 9]]), "lengths": jnp.array([2])}
        >>> batch |= {"label": jnp.array([1]), "weight": jnp.ones(1)}
        >>> params = jax.eval_shape(task.init, jax.random.key(0), batch)
        >>> rngs = {"gate": jax.random.key(1), "dropout": jax.random.key(2)}
        >>> sorted(jax.eval_shape(task.loss, params, batch, rngs))
        ['accuracy', 'cross_entropy', 'density', 'loss']

    Attributes:
      model: the network.
      eval_seed: seed of the gates that are drawn in evaluation.
      penalty: lambda instead of that of the configuration; may be traced. None uses the latter.
      temperature: tau instead of that of the configuration, or the start of its schedule; may be
        traced. None uses the configuration.
      estimator: any `gates.Estimator` of the gradient of the gates, instead of that of the
        configuration; None uses the latter.

    Raises:
      ValueError: if the estimator cannot train this network.
    """

    model: GANet
    eval_seed: int = 0
    penalty: float | Array | None = None
    temperature: float | Array | None = None
    estimator: Estimator | None = None

    streams: ClassVar[tuple[str, ...]] = ("params", "dropout", "gate")

    def __post_init__(self) -> None:
        if self.estimator is None:
            return
        check_estimator(self.estimator)
        config, name = self.model.config, type(self.estimator).__name__
        if config.system != "ganet":
            raise ValueError(
                f"estimator must be None for system={config.system!r}, got {name}: it has no gates"
            )
        if config.gates.estimator is not None:
            raise ValueError(
                "estimator must be None for a configuration with estimator="
                f"{config.gates.estimator!r}, got {name}: give the estimator in one of the two"
            )
        if config.gates.gates_on == "input" and needs_relaxed_words(self.estimator):
            raise unread_error(f"estimator={name}")

    @property
    def sweepable(self) -> tuple[str, ...]:
        """Names of the numbers in the loss that `with_value` can change: "penalty", "temperature".

        The tuple is empty for a baseline. It has no "penalty" if a density is prescribed. It has no
        "temperature" if the estimator of the configuration takes none, or if the task was made with
        an `estimator`, which has its own temperature.
        """
        config = self.model.config
        if config.system != "ganet":
            return ()
        tempered = self.estimator is None and takes_temperature(config.gates.estimation)
        penalised = config.gates.density is None
        return ("penalty",) * penalised + ("temperature",) * tempered

    def with_value(self, name: str, value: Tree) -> "GANetTask":
        """Returns the task with another value of a number.

        Args:
          name: "penalty" or "temperature", if it is in `sweepable`.
          value: the value, a float or a traced scalar.
        """
        # A traced value cannot be a field of a configuration, which is checked and hashed.
        if is_traced(value):
            return dataclasses.replace(self, **{name: value})
        config = self.model.config
        config = dataclasses.replace(
            config, gates=dataclasses.replace(config.gates, **{name: value})
        )
        return dataclasses.replace(self, model=self.model.clone(config=config))

    def loss(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> Metrics:
        """Computes the training loss of a batch.

        Args:
          params: the parameters, as from `init`.
          batch: "tokens" int [B, T] (T words per text), "lengths" int [B], "label" int [B] and
            "weight" [B], 0 at filler rows; for a schedule of the temperature also "step" int [B].
          rngs: a PRNG key for each of the streams "dropout" and "gate".

        Returns:
          The metrics, a dict of `Ratio`s (sums over the rows of weight 1, and counts): "loss",
          whose mean training minimises, "cross_entropy" and "accuracy", for GA-Net also "density"
          (the mean gate) and, with a prescribed density, "multiplier" (lambda, the Lagrange
          multiplier of the constraint).
        """
        check_batch(batch, tokens="B T", lengths="B", label="B", weight="B")
        config, weight = self.model.config, batch["weight"]
        estimator = self._estimator(batch)
        output: Output
        if estimator is None or isinstance(estimator, Pathwise):
            output = self.model.apply(
                {"params": params}, batch, train=True, estimator=estimator, rngs=rngs
            )
            likelihood = cross_entropy(output.logits, batch["label"])
        else:
            output, likelihood = self._estimate_loss(params, batch, rngs, estimator)
        loss = likelihood
        metrics = {}
        if config.system == "ganet":
            mask = F.length_mask(batch["lengths"], batch["tokens"].shape[1])
            open_probability = nn.sigmoid(output.gate_logits)
            if config.gates.density is not None:
                term, multiplier = constraint(
                    params["multiplier"],
                    F.gate_penalty(open_probability, mask),
                    config.gates.density,
                )
                loss = loss + term
                metrics["multiplier"] = Ratio.of(multiplier, weight)
            else:
                # Only pathwise estimators have a gradient of sampled gates.
                sampled = config.gates.penalty_on == "gate" and isinstance(estimator, Pathwise)
                # Eq. 10: lambda times the mean gate. The gates of a word are the pair (open,
                # closed) in the paper, and its L1 norm is always 1, so only the open component is
                # penalised. T is the length of the text and not of the padded batch.
                strength = config.gates.penalty if self.penalty is None else self.penalty
                penalised = output.gates if sampled else open_probability
                loss = loss + strength * F.gate_penalty(penalised, mask)
            metrics["density"] = Ratio.of(F.gate_penalty(output.gates, mask), weight)
        metrics["loss"] = Ratio.of(loss, weight)
        metrics["cross_entropy"] = Ratio.of(likelihood, weight)
        metrics["accuracy"] = Ratio.of(accuracy(output.logits, batch["label"]), weight)
        return metrics

    def _estimator(self, batch: Batch) -> Estimator | None:
        config = self.model.config
        if self.estimator is not None or config.system != "ganet":
            return self.estimator
        return config.gates.make_estimator(
            schedule(config.gates, batch.get("step"), self.temperature)
        )

    def _estimate_loss(
        self, params: Params, batch: Batch, rngs: dict[str, Array], estimator: Estimator
    ) -> tuple[Output, Float[Array, " B"]]:
        """Returns the `GANetOutput` of the first draw of the gates, and the losses [B]."""
        # Rows without an id need an id, because the noise belongs to examples.
        rows = {"example_id": jnp.arange(batch["tokens"].shape[0], dtype=jnp.int32), **batch}
        started: Output = self.model.apply(
            {"params": params}, rows, rngs=rngs, method=GANet.to_estimate
        )
        encoded, keys = started
        # The keys are folded, because the dropout of words has used their bits.
        head_rngs = {name: jax.random.fold_in(key, 1) for name, key in rngs.items()}

        def reader(gates, encoded, rows):
            """Returns the losses [B, k] of k patterns of gates, and the output of the first."""

            def run(pattern):
                arguments = {"params": params}, encoded, pattern, rows
                return self.model.apply(*arguments, train=True, rngs=head_rngs, method=GANet.read)

            outputs = jax.vmap(run, in_axes=1)(gates)
            values = jax.vmap(cross_entropy, in_axes=(0, None), out_axes=1)(
                outputs.logits, rows["label"]
            )
            # The metrics and the density belong to the first draw.
            return values, jax.tree.map(lambda x: x[0], outputs)

        likelihood, output = train_gates(
            estimator, encoded.gate_logits, keys, reader, encoded.mask, rows=(encoded, rows)
        )
        return output.replace(gate_logits=encoded.gate_logits), likelihood

    def evaluate(self, params: Params, batch: Batch) -> tuple[Metrics, Predictions]:
        """Evaluates a batch; GA-Net under all gate modes.

        The modes are "sample" (drawn gates, 0 or 1), "threshold" (open with a probability above
        0.5), "expected" (the open probabilities as gates) and "relaxed" (drawn soft gates).

        Args:
          params: the parameters, as from `init`.
          batch: "tokens" int [B, T] (T words per text), and "lengths", "label", "weight" and
            "example_id" [B].

        Returns:
          (metrics, predictions): a dict of `Ratio`s and a dict of arrays [B]. The metrics are
          "loss" (cross-entropy) and "accuracy" under `gates.test_gate`. For GA-Net they also have
          "density", the mean gate under `gates.test_gate`, and, for each gate mode * and averaged
          over the draws of the mode, loss_*, accuracy_*, density_* (mean gate over sentences),
          density_tok_* (mean gate over tokens) and, for "sample" and "threshold", closed_* (share
          of texts with all gates closed). The predictions are "example_id", "label", "predicted",
          "correct", "attended" (the number of tokens that attention sees) and "length".
        """
        check_batch(batch, tokens="B T", lengths="B", label="B", weight="B", example_id="B")
        config, label, weight = self.model.config, batch["label"], batch["weight"]
        rngs = {"gate": jax.random.key(self.eval_seed)}
        variables = {"params": params}
        if config.system != "ganet":
            output: Output = self.model.apply(variables, batch)
            metrics = class_metrics(output.logits, label, weight)
            # A baseline counts as attending to all words, except local attention with its narrower
            # window.
            attended = batch["lengths"]
            if config.system == "local":
                attended = jnp.sum(output.attention > 0, axis=-1)
            return metrics, self._predictions(batch, output.logits, attended)

        # None means the final temperature of a schedule, which does not depend on its start.
        tau = self.temperature if config.gates.final_temperature is None else None
        modes: Any = self.model.apply(variables, batch, tau, rngs=rngs, method=GANet.gate_modes)
        metrics = {
            f"{name}_{mode}": ratio
            for mode, output in modes.items()
            for name, ratio in on_rows(self._gate_metrics, output, batch, rows=()).items()
        }
        # The text of the paper samples the gates at test time, but eq. 6 without noise is a
        # threshold. The metrics of both are reported in any case.
        hard = modes["threshold" if config.gates.test_gate == "threshold" else "sample"]
        draw = first_draw(hard)
        logits = draw.logits
        source = config.gates.test_gate
        if config.gates.test_gate == "multi_sample":
            logits, source = mean_log_probability(hard.logits), "sample"
            metrics |= class_metrics(logits, label, weight)
        else:
            metrics["accuracy"] = metrics[f"accuracy_{source}"]
            metrics["loss"] = metrics[f"loss_{source}"]
        metrics["density"] = metrics[f"density_{source}"]
        attended = jnp.sum(draw.gates > 0, axis=-1)
        # Attention sees all words of a text with closed gates under the rule "soft".
        if config.gates.empty == "soft":
            attended = jnp.where(draw.closed, batch["lengths"], attended)
        return metrics, self._predictions(batch, logits, attended)

    def _gate_metrics(self, output: Output, batch: Batch) -> Metrics:
        """Computes means over examples and draws; all draws of all examples have equal weights."""
        draws = output.logits.shape[0]
        repeat = lambda values: jnp.tile(values, draws)  # noqa: E731
        label, weight = repeat(batch["label"]), repeat(batch["weight"])
        lengths = repeat(batch["lengths"])
        logits = output.logits.reshape(-1, output.logits.shape[-1])
        gates = output.gates.reshape(-1, output.gates.shape[-1])
        mask = F.length_mask(lengths, gates.shape[-1])
        metrics = {
            **class_metrics(logits, label, weight),
            # The paper does not say whether its densities are means over sentences or over tokens,
            # so both are reported.
            "density": Ratio.of(F.gate_penalty(gates, mask), weight),
            "density_tok": Ratio(
                total=jnp.sum(jnp.sum(gates, axis=-1) * weight),
                count=jnp.sum(lengths * weight).astype(jnp.float32),
            ),
        }
        if output.closed is not None:
            metrics["closed"] = Ratio.of(output.closed.reshape(-1).astype(jnp.float32), weight)
        return metrics

    def _predictions(self, batch: Batch, logits: Array, attended: Array) -> Predictions:
        columns = {"attended": attended, "length": batch["lengths"]}
        return class_predictions(logits, batch) | columns
