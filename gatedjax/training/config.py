"""Options of training. The docstrings of the fields are the help of the command line."""

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from gatedjax._utils.choices import check_choices
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.limits import MOST_BATCH, MOST_SEED, MOST_STEPS, check_most
from gatedjax._utils.numbers import make_plain
from gatedjax.training._averages import EmaState as EmaState
from gatedjax.training._averages import eval_params as eval_params
from gatedjax.training._averages import params_ema as params_ema
from gatedjax.training._transforms import promoting, reset_where, train_all_but


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The update rule, the learning rate and its schedule, as keywords with defaults.

    `name` is "adam", "adamw", "adadelta", "adagrad" or "sgd". `learning_rate` is the peak rate
    after `warmup_steps`, and `schedule` its course: "constant", "cosine", "linear", "rsqrt" or
    "staircase". `clip_norm` bounds the norm of the gradient; None does not clip.
    """

    name: Literal["adam", "adamw", "adadelta", "adagrad", "sgd"] = "adam"
    """The update rule."""
    learning_rate: float = 1e-3
    """The peak learning rate."""
    schedule: Literal["constant", "cosine", "linear", "rsqrt", "staircase"] = "constant"
    """The course of the learning rate after warm-up. cosine and linear fall to 0 at the last step,
    rsqrt falls with the square root of the step, and staircase multiplies the rate by decay-rate
    at regular steps."""
    decay_rate: float = 0.5
    """staircase: the factor of the learning rate at each fall."""
    decay_begin: int = 0
    """staircase: the number of steps from the end of the warm-up to the first fall."""
    decay_every: int = 1
    """staircase: the number of steps between two falls."""
    reset_moments: bool = False
    """staircase: reset the moments of adam or adamw at each fall of the learning rate."""
    warmup_steps: int = 0
    """The number of steps in which the learning rate rises linearly from 0."""
    clip_norm: float | None = None
    """The largest global norm of the gradient, to which larger gradients are clipped; None does not
    clip."""
    weight_decay: float = 0.0
    """adamw: the decoupled weight decay. adadelta: the factor w of the penalty w/2 times the sum of
    the squared parameters."""
    beta2: float = 0.999
    """adam, adamw: the decay of the mean squared gradient."""
    rho: float = 0.9
    """adadelta: the decay of the mean squared gradient and of the mean squared update."""
    epsilon: float | None = None
    """The number that is added to denominators; None is 1e-8, or 1e-6 for adadelta and 1e-7 for
    adagrad."""
    ema_decay: float | None = None
    """The decay of an exponential moving average of the parameters, which is evaluated and saved in
    their place; None averages no parameters."""

    def __post_init__(self) -> None:
        """Converts NumPy numbers to Python numbers; `make_optimizer` checks their values."""
        make_plain(self)


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The length of training, evaluation, checkpoints, and the use of the devices.

    All fields are keywords with defaults. A run has `num_steps` updates and the random `seed`;
    `log_every`, `eval_every` and `checkpoint_every` are the steps between logs, evaluations and
    checkpoints. `best_metric` names the metric that selects the best parameters, `parallel` is
    "sharding", "fsdp", "pmap" or "single", and `optimizer` is an `OptimizerConfig`.
    """

    num_steps: int = 1000
    """The number of updates."""
    log_every: int = 50
    """The number of steps between lines of metrics.jsonl."""
    eval_every: int = 200
    """The number of steps between evaluations; the last step is always evaluated."""
    checkpoint_every: int = 200
    """The number of steps between checkpoints; the last step is always saved."""
    keep_checkpoints: int = 2
    """The number of checkpoints to keep; older checkpoints are removed."""
    seed: int = 0
    """The seed of parameters, dropout and gates."""
    seeds: int = 1
    """Train this many seeds, from `seed` on, side by side in one compiled program."""
    sweep: tuple[float, ...] = ()
    """Train each seed with each of these values of sweep-over, in the same program."""
    sweep_over: str = "learning_rate"
    """The number that sweep varies: learning_rate, or a number of the task (GA-Net: penalty,
    temperature)."""
    parallel: Literal["sharding", "fsdp", "pmap", "single"] = "sharding"
    """Split each batch over the devices with jit and shardings (fsdp: the parameters and the
    optimizer state too), or with pmap, or use one device."""
    accumulate: int = 1
    """Compute the gradient of a batch in this many parts, one after the other. It saves memory and
    does not change the update."""
    early_stop_patience: int | None = None
    """Stop after this many evaluations without improvement; None never stops early."""
    best_metric: str = "loss"
    """The evaluation metric by which the best parameters are chosen."""
    best_mode: Literal["auto", "max", "min"] = "auto"
    """max if a larger best-metric is better, min if a smaller one is. auto is min for a metric with
    loss, perplexity or error in its name, and max for all others."""
    max_skipped: int = 10
    """The most updates in a row that may be skipped because the loss, the gradient or the updated
    parameters are not finite."""
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    """The update rule, the learning rate and its schedule."""
    progress: bool = True
    """Show a progress bar, or a line per log if there is no terminal."""
    tensorboard: bool = False
    """Also write TensorBoard events, if a package for it is installed."""
    profile_steps: int = 0
    """Write a jax.profiler trace of this many steps to WORKDIR/profile, from step 10 on."""

    def __post_init__(self) -> None:
        """Raises ValueError or TypeError for values that no run can use."""
        make_plain(self)
        check_choices(self)
        if not isinstance(self.optimizer, OptimizerConfig):
            raise TypeError(
                f"optimizer must be an OptimizerConfig, got {type(self.optimizer).__name__}: "
                "fit(..., optimizer=...) takes any optax.GradientTransformation"
            )
        for name in (
            "num_steps",
            "log_every",
            "eval_every",
            "checkpoint_every",
            "keep_checkpoints",
            "accumulate",
            "seeds",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
            most = MOST_BATCH if name == "accumulate" else MOST_STEPS
            check_most(name, getattr(self, name), most)
        for name in ("max_skipped", "profile_steps", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
            check_most(name, getattr(self, name), MOST_SEED if name == "seed" else MOST_STEPS)
        check_most("seeds", self.seeds, MOST_BATCH)
        if self.early_stop_patience is not None and self.early_stop_patience < 1:
            raise ValueError(
                f"early_stop_patience must be at least 1 or None, got {self.early_stop_patience}"
            )

    def is_better(self, value: float, best: float) -> bool:
        """Returns True if `value` of the metric `best_metric` is better than `best`.

            >>> TrainConfig(best_metric="accuracy").is_better(0.75, 0.5)
            True

        NaN is never better, and all numbers are better than NaN.
        """
        if math.isnan(value) or math.isnan(best):
            return not math.isnan(value)
        is_max = mode_of(self.best_metric, self.best_mode) == "max"
        return value > best if is_max else value < best


def mode_of(best_metric: str, best_mode: str) -> str:
    """Returns "max" or "min", the better values of a metric; "auto" depends on its name."""
    if best_mode != "auto":
        return best_mode
    return "min" if any(word in best_metric.lower() for word in _FALLING) else "max"


_FALLING = ("loss", "perplexity", "error")
"""Words in the names of metrics of which smaller values are better."""


def make_optimizer(
    config: OptimizerConfig,
    num_steps: int,
    *,
    learning_rate: Any = None,
    frozen: tuple[str, ...] = (),
) -> optax.GradientTransformation:
    """Builds an Optax chain of clipping, the update rule with its schedule, and the moving average.

        >>> tx = make_optimizer(OptimizerConfig(name="sgd", learning_rate=0.5), num_steps=10)
        >>> params = {"w": jnp.array(1.0)}
        >>> updates, _ = tx.update({"w": jnp.array(2.0)}, tx.init(params), params)
        >>> float(optax.apply_updates(params, updates)["w"])
        0.0

    Args:
      config: the update rule, the learning rate and its schedule.
      num_steps: the step at which a cosine or linear schedule reaches 0.
      learning_rate: a traced peak learning rate in place of the configured one, for a program that
        trains with several learning rates.
      frozen: paths of parameters that are not updated and have no optimiser state, see
        `frozen_parameters`.

    Returns:
      The chain.

    Raises:
      ValueError: if a number is out of range, weight_decay is set without adamw or adadelta,
        or reset_moments is set without adam or adamw and a staircase.
    """
    _check_optimizer(config, num_steps)
    rate = learning_rate_of(config, num_steps, learning_rate)
    tiny: dict[str, Any] = {} if config.epsilon is None else {"eps": config.epsilon}
    adam = {"b2": config.beta2, **tiny}
    rules = {
        "adam": lambda: optax.adam(rate, **adam),
        "adamw": lambda: optax.adamw(rate, weight_decay=config.weight_decay, **adam),
        "adadelta": lambda: optax.adadelta(
            rate, rho=config.rho, weight_decay=config.weight_decay, **tiny
        ),
        "adagrad": lambda: optax.adagrad(rate, **tiny),
        "sgd": lambda: optax.sgd(rate),
    }
    links = [_forgetful(config, rate, adam) if config.reset_moments else rules[config.name]()]
    if config.clip_norm is not None:
        # The gradient is clipped before the rule, so that the moments of the rule are those of the
        # clipped gradient.
        links.insert(0, optax.clip_by_global_norm(config.clip_norm))
    if frozen:
        links = [train_all_but(optax.chain(*links), frozen)]
    if config.ema_decay is not None:
        # The average stands behind the part with the frozen parameters, because evaluation needs an
        # average of all parameters.
        links.append(params_ema(config.ema_decay))
    tx = optax.with_extra_args_support(links[0] if len(links) == 1 else optax.chain(*links))
    return optax.GradientTransformationExtraArgs(tx.init, promoting(tx.update))


def _check_optimizer(config: OptimizerConfig, num_steps: int) -> None:
    """Raises ValueError for numbers out of range and for options that the update rule lacks."""
    check_choices(config)
    # Comparisons in this form also refuse NaN.
    if not 0 < config.learning_rate < float("inf"):
        raise ValueError(f"learning_rate must be positive and finite, got {config.learning_rate}")
    if not 0 <= config.weight_decay < float("inf"):
        raise ValueError(f"weight_decay must be in [0, inf), got {config.weight_decay}")
    if config.weight_decay and config.name not in ("adamw", "adadelta"):
        raise ValueError(
            f"weight_decay must be 0 for {config.name!r}, got {config.weight_decay}: use 'adamw' "
            "or 'adadelta'"
        )
    if not 0 <= config.warmup_steps <= num_steps:
        raise ValueError(
            f"optimizer.warmup_steps must be in [0, num_steps = {num_steps}], got "
            f"{config.warmup_steps}"
        )
    if config.schedule == "staircase":
        if not 0 < config.decay_rate <= 1:
            raise ValueError(f"decay_rate must be in (0, 1], got {config.decay_rate}")
        if config.decay_begin < 0 or config.decay_every < 1:
            raise ValueError(
                "decay_begin must be at least 0 and decay_every at least 1, got "
                f"{config.decay_begin} and {config.decay_every}"
            )
        check_most("decay_begin", config.decay_begin, MOST_STEPS)
        check_most("decay_every", config.decay_every, MOST_STEPS)
    adaptive = config.name in ("adam", "adamw")
    if config.reset_moments and not (adaptive and config.schedule == "staircase"):
        raise ValueError(
            "reset_moments must be False unless name is 'adam' or 'adamw' and schedule "
            f"'staircase', got True for {config.name!r} and {config.schedule!r}"
        )
    for name in ("beta2", "rho"):
        if not 0 < getattr(config, name) < 1:
            raise ValueError(f"{name} must be in (0, 1), got {getattr(config, name)}")
    for name in ("epsilon", "clip_norm"):
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive or None, got {value}")


TO_ZERO = ("cosine", "linear")
"""Schedules that fall to 0 at the last step, so that their rates depend on num_steps."""


def learning_rate_of(config: OptimizerConfig, num_steps: int, learning_rate: Any = None) -> Any:
    """Returns the learning rate of `config`: a number, or a function of the number of updates."""
    peak: Any = config.learning_rate if learning_rate is None else learning_rate
    # A number needs no counter of steps in the state of the optimiser, a schedule does.
    if config.schedule == "constant" and not config.warmup_steps:
        return peak
    decay_steps = max(num_steps - config.warmup_steps, 1)
    after = max(config.warmup_steps, 1)
    # The schedules have a peak of 1, so that a traced peak can scale them.
    falls: dict[str, optax.Schedule] = {
        "constant": optax.constant_schedule(1.0),
        "cosine": optax.cosine_decay_schedule(1.0, decay_steps),
        "linear": optax.linear_schedule(1.0, 0.0, decay_steps),
        "rsqrt": lambda count: jnp.sqrt(after / (after + count)),
        "staircase": lambda count: (
            config.decay_rate
            ** jnp.maximum((count - config.decay_begin) // config.decay_every + 1, 0)
        ),
    }
    shape = falls[config.schedule]
    if config.warmup_steps:
        warmup = optax.linear_schedule(0.0, 1.0, config.warmup_steps)
        shape = optax.join_schedules([warmup, shape], [config.warmup_steps])
    return promoting(lambda count: peak * shape(count))


def _forgetful(
    config: OptimizerConfig, rate: Any, adam: dict[str, Any]
) -> optax.GradientTransformation:
    """Returns Adam or AdamW with moments that are reset at each fall of the learning rate."""
    begin = config.warmup_steps + config.decay_begin

    def falls(count: jax.Array) -> jax.Array:
        return (count >= begin) & ((count - begin) % config.decay_every == 0)

    # Only the moments are reset; the schedule of the rate is outside and keeps its count of steps.
    links = [reset_where(optax.scale_by_adam(**adam), falls)]
    if config.weight_decay:
        links.append(optax.add_decayed_weights(config.weight_decay))
    return optax.chain(*links, optax.scale_by_learning_rate(rate))
