"""Options of training, the optimizer and its moving average.

The docstrings of the fields are the help of the command line.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gatedjax._utils.choices import check_choices
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import (
    ABOVE_0,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    at_least,
    check_limits,
    check_options,
    make_plain,
)
from gatedjax._utils.limits import MOST_BATCH, MOST_SEED, MOST_STEPS, check_most


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The update rule, the learning rate and its schedule, as keywords with defaults."""

    name: Literal["adam", "adamw", "adadelta", "adagrad", "sgd"] = "adam"
    """The update rule."""
    learning_rate: Annotated[float, POSITIVE] = 1e-3
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
    clip_norm: Annotated[float | None, ABOVE_0] = None
    """The largest global norm of the gradient, to which larger gradients are clipped; None does not
    clip."""
    weight_decay: Annotated[float, NOT_NEGATIVE] = 0.0
    """adamw: the decoupled weight decay. adadelta: the factor w of the penalty w/2 times the sum of
    the squared parameters."""
    beta2: Annotated[float, SHARE] = 0.999
    """adam, adamw: the decay of the mean squared gradient."""
    rho: Annotated[float, SHARE] = 0.9
    """adadelta: the decay of the mean squared gradient and of the mean squared update."""
    epsilon: Annotated[float | None, ABOVE_0] = None
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
    """The length of training, evaluation, checkpoints, and devices, as keywords with defaults."""

    num_steps: Annotated[int, at_least(1, MOST_STEPS)] = 1000
    """The number of updates."""
    log_every: Annotated[int, at_least(1, MOST_STEPS)] = 50
    """The number of steps between lines of metrics.jsonl."""
    eval_every: Annotated[int, at_least(1, MOST_STEPS)] = 200
    """The number of steps between evaluations; the last step is always evaluated."""
    checkpoint_every: Annotated[int, at_least(1, MOST_STEPS)] = 200
    """The number of steps between checkpoints; the last step is always saved."""
    keep_checkpoints: Annotated[int, at_least(1, MOST_STEPS)] = 2
    """The number of checkpoints to keep; older checkpoints are removed."""
    seed: Annotated[int, at_least(0, MOST_SEED)] = 0
    """The seed of parameters, dropout and gates."""
    seeds: Annotated[int, at_least(1, MOST_BATCH)] = 1
    """Train this many seeds, from `seed` on, side by side in one compiled program."""
    sweep: tuple[float, ...] = ()
    """Train each seed with each of these values of sweep-over, in the same program."""
    sweep_over: str = "learning_rate"
    """The number that sweep varies: learning_rate, or a number of the task (GA-Net: penalty,
    temperature)."""
    parallel: Literal["sharding", "fsdp", "pmap", "single"] = "sharding"
    """Split each batch over the devices with jit and shardings (fsdp: the parameters and the
    optimizer state too), or with pmap, or use one device."""
    accumulate: Annotated[int, at_least(1, MOST_BATCH)] = 1
    """Compute the gradient of a batch in this many parts, one after the other. It saves memory and
    does not change the update."""
    early_stop_patience: Annotated[int | None, at_least(1, MOST_STEPS)] = None
    """Stop after this many evaluations without improvement; None never stops early."""
    best_metric: str = "loss"
    """The evaluation metric by which the best parameters are chosen."""
    best_mode: Literal["auto", "max", "min"] = "auto"
    """max if a larger best-metric is better, min if a smaller one is. auto is min for a metric with
    loss, perplexity or error in its name, and max for all others."""
    max_skipped: Annotated[int, at_least(0, MOST_STEPS)] = 10
    """The most updates in a row that may be skipped because the loss, the gradient or the updated
    parameters are not finite."""
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    """The update rule, the learning rate and its schedule."""
    progress: bool = True
    """Show a progress bar, or a line per log if there is no terminal."""

    def __post_init__(self) -> None:
        """Raises ValueError or TypeError for values that no run can use."""
        check_options(self)
        if not isinstance(self.optimizer, OptimizerConfig):
            raise TypeError(
                f"optimizer must be an OptimizerConfig, got {type(self.optimizer).__name__}: "
                "fit(..., optimizer=...) takes any optax.GradientTransformation"
            )

    def is_better(self, value: float, best: float) -> bool:
        """Returns True if `value` of the metric `best_metric` is better than `best`.

            >>> TrainConfig(best_metric="accuracy").is_better(0.75, 0.5)
            True

        NaN is never better, and all numbers are better than NaN.
        """
        if math.isnan(value) or math.isnan(best):
            return not math.isnan(value)
        is_max = self.mode == "max"
        return value > best if is_max else value < best

    @property
    def mode(self) -> str:
        """The better values of `best_metric`, "max" or "min"; "auto" depends on its name."""
        if self.best_mode != "auto":
            return self.best_mode
        falls = any(word in self.best_metric.lower() for word in ("loss", "perplexity", "error"))
        return "min" if falls else "max"


def make_optimizer(
    config: OptimizerConfig, num_steps: int, *, learning_rate: Any = None
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
      learning_rate: a traced peak learning rate in place of the configured rate.

    Returns:
      The chain.

    Raises:
      ValueError: if a number is out of range, or an option does not belong to the update rule.
    """
    check_optimizer(config, num_steps)
    rate = learning_rate_of(config, num_steps, learning_rate)
    tiny: dict[str, Any] = {} if config.epsilon is None else {"eps": config.epsilon}
    adam, decay = {"b2": config.beta2, **tiny}, {"weight_decay": config.weight_decay}
    rules = {
        "adam": lambda: optax.adam(rate, **adam),
        "adamw": lambda: optax.adamw(rate, **decay, **adam),
        "adadelta": lambda: optax.adadelta(rate, rho=config.rho, **decay, **tiny),
        "adagrad": lambda: optax.adagrad(rate, **tiny),
        "sgd": lambda: optax.sgd(rate),
    }
    links = [rules[config.name]()]
    if config.reset_moments:
        links = [forgetful_adam(config, adam), optax.add_decayed_weights(config.weight_decay)]
        links.append(optax.scale_by_learning_rate(rate))
    if config.clip_norm is not None:
        links.insert(0, optax.clip_by_global_norm(config.clip_norm))
    if config.ema_decay is not None:
        links.append(params_ema(config.ema_decay))
    tx = optax.with_extra_args_support(links[0] if len(links) == 1 else optax.chain(*links))
    return optax.GradientTransformationExtraArgs(tx.init, promoting(tx.update))


def promoting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` with the standard promotion of dtypes, which the rules of Optax need."""

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return function(*args, **options)

    return run


def check_optimizer(config: OptimizerConfig, num_steps: int) -> None:
    """Raises ValueError for numbers out of range and for options that the update rule lacks."""
    check_choices(config)
    check_limits(config, "optimizer.")
    c, falls = config, config.schedule == "staircase"
    decays, resets = c.name in ("adamw", "adadelta"), c.name in ("adam", "adamw") and falls
    for name in ("decay_begin", "decay_every"):
        check_most(name, getattr(c, name), MOST_STEPS)
    for name, good, what in (  # comparisons in this form also refuse NaN
        ("weight_decay", not c.weight_decay or decays, f"0 for {c.name!r} (not adamw, adadelta)"),
        ("warmup_steps", 0 <= c.warmup_steps <= num_steps, f"in [0, num_steps = {num_steps}]"),
        ("decay_rate", 0 < c.decay_rate <= 1 or not falls, "in (0, 1]"),
        ("decay_begin", c.decay_begin >= 0 or not falls, "at least 0"),
        ("decay_every", c.decay_every >= 1 or not falls, "at least 1"),
        (
            "reset_moments",
            not c.reset_moments or resets,
            "False unless name is adam or adamw and schedule is staircase",
        ),
    ):
        if not good:
            raise ValueError(f"optimizer.{name} must be {what}, got {getattr(c, name)}")


def learning_rate_of(config: OptimizerConfig, num_steps: int, learning_rate: Any = None) -> Any:
    """Returns the learning rate of `config`: a number, or a function of the number of updates."""
    peak: Any = config.learning_rate if learning_rate is None else learning_rate
    if config.schedule == "constant" and not config.warmup_steps:
        return peak  # a number needs no counter in the state of the optimiser
    decay_steps, after = max(num_steps - config.warmup_steps, 1), max(config.warmup_steps, 1)
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


class ResetState(NamedTuple):
    """The number of updates so far, and the state of the inner transformation."""

    steps: jax.Array
    inner: Any


def forgetful_adam(config: OptimizerConfig, adam: dict[str, Any]) -> optax.GradientTransformation:
    """Returns Adam with moments that are reset at each fall of a staircase."""
    inner, begin = optax.scale_by_adam(**adam), config.warmup_steps + config.decay_begin

    def init(params: Any) -> ResetState:
        return ResetState(jnp.zeros((), jnp.int32), inner.init(params))

    def update(updates: Any, state: ResetState, params: Any = None) -> tuple[Any, ResetState]:
        since = state.steps - begin
        again = (since >= 0) & (since % config.decay_every == 0)
        fresh = inner.init(updates)
        old = jax.tree.map(lambda new, old: jnp.where(again, new, old), fresh, state.inner)
        updates, new = inner.update(updates, old, params)
        return updates, ResetState(state.steps + 1, new)

    return optax.GradientTransformation(init, update)


class EmaState(NamedTuple):
    """The number of updates so far, and the average, in float32 or wider."""

    steps: jax.Array
    ema: Any


def params_ema(decay: float) -> optax.GradientTransformation:
    """Returns a transformation that computes a moving average of the parameters.

    ema <- d ema + (1 - d) params,  d = min(decay, (1 + t) / (10 + t)) after t updates, so that the
    average soon forgets the first parameters. Updates pass through unchanged.

        >>> tx = optax.chain(optax.sgd(0.5), params_ema(0.9))
        >>> params = {"w": jnp.array(1.0)}
        >>> updates, state = tx.update({"w": jnp.array(2.0)}, tx.init(params), params)
        >>> print(eval_params(params, state)["w"])
        0.1

    Args:
      decay: the weight of the old average, in [0, 1).

    Returns:
      The transformation. It belongs at the end of a chain.

    Raises:
      ValueError: if decay is outside [0, 1).
    """
    if not 0 <= decay < 1:
        raise ValueError(f"ema_decay must be in [0, 1) or None, got {decay}")

    def init(params: Any) -> EmaState:
        # The small steps of an average round to 0 in bfloat16 and float16.
        wide = lambda p: jnp.array(p, jnp.promote_types(jnp.asarray(p).dtype, jnp.float32))  # noqa: E731
        return EmaState(jnp.zeros((), jnp.int32), jax.tree.map(wide, params))

    def update(updates: Any, state: EmaState, params: Any = None) -> tuple[Any, EmaState]:
        if params is None:
            raise ValueError("params must be given to update of params_ema, got None")
        t = state.steps.astype(jnp.float32)
        d = jnp.minimum(decay, (1 + t) / (10 + t))
        new = optax.apply_updates(params, updates)
        ema = jax.tree.map(lambda e, p: (d * e + (1 - d) * p).astype(e.dtype), state.ema, new)
        return updates, EmaState(state.steps + 1, ema)

    return optax.GradientTransformation(init, update)


def eval_params(params: Any, opt_state: Any) -> Any:
    """Returns the parameters to evaluate and to save, which depend on the optimiser.

    With `params_ema` they are the moving average, with a schedule-free optimiser the result of
    `optax.contrib.schedule_free_eval_params`, and with all other optimisers `params` unchanged. The
    states are found inside chains and wrappers. A parameter that a transformation masks, or that is
    None there because it is frozen, is returned as in `params`.

        >>> params = {"w": jnp.array(1.0)}
        >>> float(eval_params(params, optax.sgd(0.1).init(params))["w"])
        1.0

    Args:
      params: the parameters of the last step.
      opt_state: the state of the optimiser after the last step.

    Returns:
      Parameters with the structure, shapes and dtypes of `params`.
    """
    kinds = (EmaState, optax.contrib.ScheduleFreeState)
    ours = lambda node: isinstance(node, kinds)  # noqa: E731
    hole = lambda x: x is None or isinstance(x, optax.MaskedNode)  # noqa: E731
    point = params
    # In a chain the point moves from node to node, so that each parameter has the value of the last
    # transformation that does not mask it.
    for node in filter(ours, jax.tree.leaves(opt_state, is_leaf=ours)):
        if isinstance(node, EmaState):
            moved = node.ema
        else:
            part = jax.tree.map(lambda z, p: z if hole(z) else p, node.z, params, is_leaf=hole)
            moved = optax.contrib.schedule_free_eval_params(node, part)
        # An average that needs no change is returned itself, so that no array is copied.
        narrow = lambda new, p: p if hole(new) else new.astype(p.dtype, copy=False)  # noqa: E731
        point = jax.tree.map(narrow, moved, point, is_leaf=hole)
    return point
