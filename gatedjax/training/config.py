"""Options of training, as the command line shows them."""

import dataclasses
from typing import Literal

import optax


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Update rule and learning rate."""

    name: Literal["adam", "adamw", "adadelta", "sgd"] = "adam"
    """Update rule."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """How the learning rate falls after warm-up, to 0 at the last step."""
    warmup_steps: int = 0
    """Steps of linear warm-up from 0."""
    clip_norm: float | None = None
    """Clip the global norm of the gradient; None does not."""
    weight_decay: float = 0.0
    """Decoupled weight decay; only with adamw."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long to train, what to keep, and how to use the devices."""

    num_steps: int = 1000
    """Updates in all."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl."""
    eval_every: int = 200
    """Steps between evaluations; the last step is always evaluated."""
    checkpoint_every: int = 200
    """Steps between checkpoints; the last step is always saved."""
    keep_checkpoints: int = 2
    """Newest checkpoints to keep."""
    seed: int = 0
    """Seed of parameters, dropout and gates."""
    parallel: Literal["sharding", "pmap", "single"] = "sharding"
    """Split every batch over the devices with jit and shardings, with pmap, or use one device."""
    early_stop_patience: int | None = None
    """Stop after this many evaluations without improvement; None never does."""
    best_metric: str = "accuracy"
    """Evaluation metric by which the best parameters are kept."""
    best_mode: Literal["max", "min"] = "max"
    """Whether a larger or a smaller best-metric is better."""
    max_skipped: int = 10
    """Consecutive updates that may be skipped for a loss or gradient that is not finite."""
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    progress: bool = True
    """Show a progress bar (one line per log where there is no terminal)."""
    tensorboard: bool = False
    """Also write TensorBoard events, if a writer is installed."""

    def __post_init__(self) -> None:
        """Refuses values that no run could use."""
        for name in ("num_steps", "log_every", "eval_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.keep_checkpoints < 1:
            raise ValueError(f"keep_checkpoints must be at least 1, got {self.keep_checkpoints}")
        if self.early_stop_patience is not None and self.early_stop_patience < 1:
            raise ValueError(
                f"early_stop_patience must be at least 1 or None, got {self.early_stop_patience}"
            )


def make_optimizer(config: OptimizerConfig, num_steps: int) -> optax.GradientTransformation:
    """Builds the Optax chain: clipping, then the update rule with its schedule.

    Args:
      config: what to build.
      num_steps: where a falling schedule reaches 0.

    Raises:
      ValueError: if a number is out of range, or weight_decay is given without adamw.
    """
    if not 0 < config.learning_rate < float("inf"):
        raise ValueError(f"learning_rate must be positive and finite, got {config.learning_rate}")
    if config.weight_decay and config.name != "adamw":
        raise ValueError(f"weight_decay needs the optimiser adamw, got {config.name!r}")
    if not 0 <= config.warmup_steps <= num_steps:
        raise ValueError(f"warmup_steps must be in [0, {num_steps}], got {config.warmup_steps}")
    rest = max(num_steps - config.warmup_steps, 1)
    peak = config.learning_rate
    falls = {
        "constant": optax.constant_schedule(peak),
        "cosine": optax.cosine_decay_schedule(peak, rest),
        "linear": optax.linear_schedule(peak, 0.0, rest),
    }
    schedule: optax.Schedule = falls[config.schedule]
    if config.warmup_steps:
        warmup = optax.linear_schedule(0.0, peak, config.warmup_steps)
        schedule = optax.join_schedules([warmup, schedule], [config.warmup_steps])
    rate = peak if config.schedule == "constant" and not config.warmup_steps else schedule
    rules = {
        "adam": lambda: optax.adam(rate),
        "adamw": lambda: optax.adamw(rate, weight_decay=config.weight_decay),
        "adadelta": lambda: optax.adadelta(rate),
        "sgd": lambda: optax.sgd(rate),
    }
    rule = rules[config.name]()
    if config.clip_norm is None:
        return rule
    if not config.clip_norm > 0:
        raise ValueError(f"clip_norm must be positive or None, got {config.clip_norm}")
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), rule)
