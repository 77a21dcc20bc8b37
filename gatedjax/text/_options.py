"""The options of a model for texts: names, defaults, limits and descriptions in a single place.

`TextClassifier`, `PairClassifier`, `Tagger` and `gatedjax train` inherit the fields of
`TextOptions`. A new field becomes a parameter of the classes and an option of the command, with its
description in `help()` and `--help`.
"""

import dataclasses
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gatedjax._utils.choices import suggestion
from gatedjax._utils.limits import (
    MOST_BATCH,
    MOST_LENGTH,
    MOST_SEED,
    MOST_STEPS,
    MOST_WORDS,
    check_most,
)
from gatedjax._utils.nested import with_changes
from gatedjax._utils.numbers import make_plain
from gatedjax.text._model import networks
from gatedjax.text._networks import Config, NetworkEntry
from gatedjax.text._prediction import (
    LABELS,
    LEXICON,
    ORDINAL,
    REGRESSION,
    STATES,
    TARGETS,
    WITHOUT_NETWORK,
)
from gatedjax.text._tokens import check_function, check_kind
from gatedjax.training import OptimizerConfig, TrainConfig

C = TypeVar("C")
Check = Callable[[str, Any], None]
"""A function of (name, value) that raises ValueError for a value that the option cannot have."""
METRICS = ("accuracy", "macro_f1")
"""The metrics that may choose the density of a lexicon."""
BALANCED = "balanced"
"""The value of `class_weight` with which all classes have the same total weight."""
# Twenty epochs of a few texts would be too few steps for the learning rate.
_FEWEST_STEPS = 400
# Number of characters in a line of a docstring.
_WIDTH = 100


def _check_integer(least: int, most: int) -> Check:
    def check(name: str, value: int) -> None:
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value!r}")
        check_most(name, value, most)

    return check


# The next functions are checks of options: each takes the name of an option, for its message, and a
# value, and raises ValueError for a value that the option cannot have.
def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")


def _share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value!r}")


def _check_density(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {value!r}")


def _check_tokens(name: str, value: str) -> None:
    check_kind(value)


def _check_class_weight(name: str, value: str | None) -> None:
    if value not in (None, BALANCED):
        raise ValueError(f"{name} must be {BALANCED!r} or None, got {value!r}")


def _check_best_metric(name: str, value: str) -> None:
    if value not in METRICS:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, METRICS))}, got {value!r}."
            f"{suggestion(str(value), METRICS)}"
        )


def _check_threshold(name: str, value: Any) -> None:
    thresholds = value.values() if isinstance(value, Mapping) else [value]
    if not thresholds:
        raise ValueError(f"{name} must have a number, got {value!r}")
    for threshold in thresholds:
        if not isinstance(threshold, int | float) or not 0 < threshold < 1:
            raise ValueError(f"{name} must be in (0, 1), got {threshold!r}")


def _check_order(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) < 2:
        raise ValueError(
            f"{name} must be a sequence of at least two grades, the lowest first, got {value!r}"
        )


def _option(default: Any, text: str, check: Check | None = None) -> Any:
    return dataclasses.field(default=default, metadata={"text": text, "check": check})


def with_arguments(cls: type[C]) -> type[C]:
    """Adds the fields of `TextOptions` to the docstring of a class, as "Args:" before
    "Attributes:".
    """
    lines = ["Args:"]
    for field in dataclasses.fields(TextOptions):
        lines += textwrap.wrap(
            f"{field.name}: {field.metadata['text']}",
            _WIDTH - 4,
            initial_indent="  ",
            subsequent_indent="    ",
        )
    section = textwrap.indent("\n".join(lines), "    ")
    head, attributes, tail = (cls.__doc__ or "").rstrip().partition("\n\n    Attributes:")
    cls.__doc__ = f"{head}\n\n{section}{attributes}{tail}\n    "
    return cls


@dataclasses.dataclass(eq=False)
class TextOptions:
    """Options of a model for texts. The defaults work without changes for most data.

    All options have defaults. The name of the model may be given by position, and the other options
    by keyword: `TextOptions("gru", num_steps=200)` trains the network "gru" for at most 200 steps.
    """

    model: str = _option(
        "lexicon",
        "Name of the model: lexicon (reads its open words and no other word, needs no network), "
        "states (gates on the token vectors of an encoder; the default with `states` or "
        "`encoder`), or a network: ganet, soft, local, bilstm, agt, rau, gru, lstm or ssan; for "
        "pairs and tags ssan (attention to selected words) or san (attention to all words).",
    )
    _: dataclasses.KW_ONLY
    embeddings: str | Path | None = _option(  # noqa: RUF009
        None,
        "File of word vectors: GloVe or fastText (.vec), plain or .gz, or a model of fastText "
        "(.bin), which has vectors for all words from their subwords (default: random vectors, "
        "which for most networks contain the frequency of each word in each class).",
    )
    states: str | Path | None = _option(  # noqa: RUF009
        None,
        "File with the token vectors of the texts from a frozen encoder (.npz with vectors, "
        "offsets and tokens; see gatedjax.text.save_states).",
    )
    encoder: Callable[[list[str]], Iterable[Any]] | None = _option(  # noqa: RUF009
        None,
        "Frozen encoder, in place of `states`: a function from a list of texts to a list of "
        "(tokens, vectors [T, D]).",
    )
    minutes: float | None = _option(
        None,
        "Largest training time in minutes, without compilation (default: no limit).",
        _positive,
    )
    num_steps: int | None = _option(
        None,
        "Largest number of training steps (default: about twenty epochs). Training stops earlier "
        "if the validation loss does not improve.",
        _check_integer(1, MOST_STEPS),
    )
    density: float | None = _option(
        None,
        "Share of the words with an open gate, for lexicon, states and ganet (default: for ganet "
        "0.5, else the smallest share that loses no accuracy on the validation texts). With 1 all "
        "words are read.",
        _check_density,
    )
    max_len: int = _option(
        400,
        "Number of words that a network reads at once. A longer text is read in windows of at most "
        "so many words, whose scores are averaged; texts of pairs are cut. A tagger splits longer "
        "sentences in training. It predicts their tags in windows that overlap by half, and takes "
        "the tag of a word from the window with the most words around it.",
        _check_integer(1, MOST_LENGTH),
    )
    min_count: int | None = _option(
        None,
        "Words that occur less often are unknown; a tagger distinguishes them by their shape "
        "(capitals, digits, last letters). The default is 1 with word vectors. Without word "
        "vectors it is 2 for a tagger, and for a classifier 1 up to 1,000 texts, 2 up to 5,000, 5 "
        "up to 20,000 and 10 above.",
        _check_integer(1, MOST_WORDS),
    )
    max_words: int = _option(
        100_000,
        "Largest number of words from the texts in the vocabulary.",
        _check_integer(1, MOST_WORDS),
    )
    lowercase: bool = _option(
        True, "Ignore case. The default is False for a tagger, because capitals mark names."
    )
    tokens: str | None = _option(
        None,
        "Rule that splits texts into tokens: words (words and marks, like the vocabulary of "
        "GloVe), social (links, @user, #tag and emoji stay whole, entities of HTML are replaced), "
        "characters, or bpe (8,000 learned pieces of words). With words and social, scripts "
        "without spaces are cut into units that are learned from the texts (default: social for "
        "lexicon, words for networks).",
        _check_tokens,
    )
    tokenizer: Callable[[str], Iterable[str]] | None = _option(  # noqa: RUF009
        None, "Function from a text to its tokens, in place of `tokens`; see `load`."
    )
    min_class: int = _option(
        1,
        "Classes with fewer texts are left out, also of the validation and test data.",
        _check_integer(1, MOST_WORDS),
    )
    class_weight: str | None = _option(
        None,
        "balanced gives the classes the same total weight in the fit of a lexicon (default: the "
        "texts have the same weight).",
        _check_class_weight,
    )
    best_metric: str = _option(
        "accuracy",
        "Metric of the validation texts that chooses the density of a lexicon: accuracy or "
        "macro_f1. For a network see `training`.",
        _check_best_metric,
    )
    threshold: float | Mapping[Any, float] | None = _option(
        None,
        "Probability from which a label is predicted by a model with several labels, or a class "
        "among two classes. A number is for all labels; spam=0.3, in Python a dict from labels to "
        "numbers, is for the label spam (default: for labels the threshold with the largest F1 on "
        "the validation texts; of two classes the most probable is predicted).",
        _check_threshold,
    )
    order: Sequence[Any] | None = _option(
        None,
        "Grades of an ordinal target from the lowest to the highest (default: the order of their "
        "numbers).",
        _check_order,
    )
    held_out: float = _option(
        0.1,
        "Share of the training texts, at most 20,000 texts, that is split off for validation if "
        "there are no validation data.",
        _share,
    )
    batch_size: int | None = _option(
        None,
        "Number of texts in a training step (default: 32, or 64 above 10,000 texts).",
        _check_integer(1, MOST_BATCH),
    )
    seed: int = _option(
        0,
        "Seed of the parameters, the dropout, the gates and the order of the texts. A lexicon has "
        "no random number, and does not depend on it.",
        _check_integer(0, MOST_SEED),
    )
    network: Mapping[str, object] | None = _option(
        None, 'Options of the network by name, such as {"hidden": 128}.'
    )
    training: Mapping[str, object] | None = _option(
        None,
        "Options of `gatedjax.training.TrainConfig` by dotted name, such as "
        '{"optimizer.learning_rate": 3e-4}.',
    )

    def __post_init__(self) -> None:
        """Converts NumPy numbers to Python numbers."""
        make_plain(self)


with_arguments(TextOptions)


def check_options(options: TextOptions, kind: str) -> None:
    """Checks the options for a kind of model before files are read."""
    available = networks(kind)
    names = model_names(kind)
    _check_vectors(options, kind)
    if kind in TARGETS and options.model not in names:
        raise ValueError(
            f"model must be 'lexicon' for the task {kind!r}, got {options.model!r}: the remaining "
            "models have a class for each text. Leave it out"
        )
    if options.model not in names:
        raise ValueError(
            f"model must be one of {', '.join(map(repr, names))}, got {options.model!r}."
            f"{suggestion(options.model, names)}"
        )
    # None is checked only where it is not the default, which always is a possible value.
    for field in dataclasses.fields(TextOptions):
        value, check = getattr(options, field.name), field.metadata["check"]
        if check is not None and (value is not None or field.default is not None):
            check(field.name, value)
    if kind == "tags":
        _check_left_out(
            options,
            ("tokens", "tokenizer", "min_class"),
            "for taggers, whose files have a word in each line",
        )
    if options.tokenizer is not None:
        if options.tokens is not None:
            raise ValueError(
                f"tokens must be None if there is a tokenizer, got {options.tokens!r} and a "
                "function: give one of the two"
            )
        check_function(options.tokenizer)
    _check_for_target(options, kind)
    if options.model in WITHOUT_NETWORK:
        _check_without_network(options)
        return
    if options.class_weight is not None:
        raise ValueError(
            "class_weight must be None unless model is 'lexicon', got "
            f"{options.class_weight!r} for model={options.model!r}: leave it out"
        )
    if options.best_metric != METRICS[0]:
        raise ValueError(
            "best_metric must be left out unless model is 'lexicon', got "
            f"{options.best_metric!r} for model={options.model!r}: give "
            "training={'best_metric': ...}"
        )
    entry = available[options.model]
    if options.density is not None and not entry.gated:
        # Pairs and words with tags have no model with gates of words.
        gated = ", or give model='lexicon' or model='ganet'" if kind == "text" else ""
        raise ValueError(
            "density must be None for a network without gates, got "
            f"{options.density!r} for model={options.model!r}: leave it out{gated}"
        )
    # The file of vectors, which determines their width, has not been read yet. Any width shows
    # whether the names and values are possible.
    network_config(options, entry, entry.vectors)
    train_config(options, 1)


def model_names(kind: str) -> tuple[str, ...]:
    """Returns the names of the models of a kind, such as "lexicon" or "gru", the default first."""
    if kind in TARGETS:
        return (LEXICON,)
    return WITHOUT_NETWORK * (kind == "text") + tuple(networks(kind))


_WITHOUT = {
    "class_weight": (LABELS, REGRESSION),
    "best_metric": (REGRESSION, ORDINAL),
    "min_class": (REGRESSION,),
    "threshold": ("pair", "tags", REGRESSION, ORDINAL),
    "order": ("text", "pair", "tags", LABELS, REGRESSION),
}
"""The kinds of models for which an option has no meaning."""


def _check_for_target(options: TextOptions, kind: str) -> None:
    """Raises ValueError for an option that has no meaning for the target of the model."""
    for field in dataclasses.fields(TextOptions):
        value = getattr(options, field.name)
        if kind in _WITHOUT.get(field.name, ()) and value != field.default:
            raise ValueError(f"{field.name} must be left out for the task {kind!r}, got {value!r}")
    if options.threshold is not None and options.model != LEXICON:
        raise ValueError(
            "threshold must be left out unless model='lexicon', got "
            f"{options.threshold!r} for model={options.model!r}"
        )


def _check_vectors(options: TextOptions, kind: str) -> None:
    """Raises ValueError for vectors of an encoder, `states` or `encoder`, for another model."""
    name = "states" if options.encoder is None else "encoder"
    value = getattr(options, name)
    if value is None or (kind == "text" and options.model == STATES):
        return
    if kind != "text":
        raise ValueError(
            f"{name} must be None for the task {kind!r}, got {value!r:.60}: leave it out, because "
            "only a model with a class for each text reads the vectors of an encoder"
        )
    raise ValueError(
        f"{name} must be None unless model='states', got model={options.model!r}: give "
        "model='states', which is the default with vectors"
    )


def _check_without_network(options: TextOptions) -> None:
    """Raises ValueError for an option that a lexicon or a model of states does not use."""
    if options.model == STATES:
        if options.states is not None and options.encoder is not None:
            raise ValueError("states or encoder must be None, got both: give one of the two")
        _check_left_out(
            options,
            ("tokens", "tokenizer", "lowercase"),
            "for model='states', whose tokens are those of the encoder",
        )
    name = "a lexicon" if options.model == LEXICON else f"model={options.model!r}"
    for option, part in _OF_NETWORKS.items():
        reason = f"for {name}, which has no {part}"
        _check_left_out(options, (option,), reason, ", or give model='ganet' or another network")


_OF_NETWORKS = {
    "embeddings": "vectors of words",
    "minutes": "steps",
    "num_steps": "steps",
    "max_len": "limit on the words of a text",
    "min_count": "vectors of words",
    "max_words": "vectors of words",
    "batch_size": "steps",
    "network": "network",
    "training": "steps",
}
"""The options that only networks use, and what other models do not have, so that they need none."""


def _check_left_out(
    options: TextOptions, names: Sequence[str], reason: str, remedy: str = ""
) -> None:
    """Raises ValueError if one of the options `names` has another value than its default.

    `reason` says for which models they must be left out, and `remedy` what else can be done.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(TextOptions)}
    for name in names:
        value = getattr(options, name)
        if value not in (defaults[name], {}):
            raise ValueError(
                f"{name} must be left out {reason}, got {value!r}: leave it out{remedy}"
            )


def network_config(options: TextOptions, entry: NetworkEntry, width: int) -> Config:
    """Builds the configuration of the network from the options."""
    overrides = {} if options.embeddings is None else dict(entry.with_vectors)
    if options.density is not None:
        overrides["gates.density"] = options.density
    config = entry.width(entry.config, width)
    return _change_options(config, {**overrides, **(options.network or {})}, "network")


def train_config(options: TextOptions, epoch: int) -> TrainConfig:
    """Builds the configuration of the training; `epoch` is the number of steps of an epoch."""
    every = min(max(epoch // 2, 20), 2000)
    default = TrainConfig(
        num_steps=options.num_steps or max(20 * epoch, _FEWEST_STEPS),
        log_every=max(every // 2, 1),
        eval_every=every,
        checkpoint_every=2 * every,
        early_stop_patience=6,
        seed=options.seed,
        optimizer=OptimizerConfig(
            learning_rate=1e-3 if options.embeddings is None else 2e-3, clip_norm=5.0
        ),
    )
    changes = options.training or {}
    config: TrainConfig = _change_options(default, changes, "training")
    if config.seeds > 1 or config.sweep:
        raise ValueError(
            "training: seeds must be 1 and sweep empty for a model, got "
            f"{config.seeds} and {config.sweep}: train a model for each `seed`"
        )
    # With a time limit the last step is unknown, and the rate of such a schedule depends on it.
    planned = options.num_steps is not None or "num_steps" in changes
    # These schedules do not depend on the number of steps.
    ends = config.optimizer.schedule not in ("constant", "rsqrt", "staircase")
    if options.minutes and not planned and ends:
        raise ValueError(
            f"minutes must be left out for the schedule {config.optimizer.schedule!r}, which "
            f"depends on the number of steps, got {options.minutes!r}: leave it out, or give "
            "num_steps"
        )
    return config


def _change_options(config: Config, changes: Mapping[str, object], option: str) -> Config:
    """Returns a copy of a configuration with changes by names such as "optimizer.learning_rate";
    `option` is the argument that has them, for messages.
    """

    def unknown(kind: type, name: str, first: str) -> ValueError:
        names = [field.name for field in dataclasses.fields(kind)]
        # The list of all options is too long for a message, so only the nearest name is suggested.
        return ValueError(
            f"{option} must have names of options of {kind.__name__}, got {name!r}."
            f"{suggestion(first, names)}"
        )

    return with_changes(config, changes, unknown)
