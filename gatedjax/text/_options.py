"""The options of a model for texts: names, defaults, limits and descriptions in a single place.

`TextClassifier`, `PairClassifier` and `Tagger` inherit the fields of `TextOptions`: a new field
becomes a parameter of the classes, with its description in `help()`. `gatedjax train` has those
that can be typed, in fewer words.
"""

import contextlib
import dataclasses
import json
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gatedjax._utils import limits
from gatedjax._utils.choices import suggestion
from gatedjax._utils.fields import POSITIVE, SHARE, SHARE_OR_ALL, at_least, make_plain
from gatedjax._utils.json import to_json
from gatedjax._utils.types import Json
from gatedjax.text.answers import _prediction
from gatedjax.text.corpus._tokens import Tokenizer

C = TypeVar("C")
Check = Callable[[str, Any], object]
"""A function of (name, value) that raises ValueError for a value that the option cannot have."""
METRICS = ("accuracy", "macro_f1")
"""The metrics that may choose the share of a lexicon."""
BALANCED = "balanced"
"""The value of `class_weight` with which all classes have the same total weight."""
NETWORK = "network"
"""Stands for each network in the models of an option."""
_NETWORKS = ("ganet", "soft", "local", "bilstm", "agt", "rau", "gru", "lstm", "ssan")
MODELS: dict[str, tuple[str, ...]] = {
    "text": (*_prediction.WITHOUT_NETWORK, *_NETWORKS),
    "pair": ("ssan", "san"),
    "tags": ("ssan", "san"),
} | dict.fromkeys(_prediction.TARGETS, _prediction.OF_WORDS)
"""The names of the models of each task, the default first. The networks are named here too, so that
a lexicon is trained without JAX; `networks` has what they are."""
_TEXTS = ("text", "pair", *_prediction.TARGETS)
"""The tasks whose texts are split into tokens; a tagger's files have a word in each line."""
# Number of characters in a line of a docstring.
_WIDTH = 100


def _check_that(is_valid: Callable[[Any], bool], requirement: str) -> Check:
    def check(name: str, value: Any) -> None:
        if not is_valid(value):
            raise ValueError(f"{name} must be {requirement}, got {value!r}")

    return check


def _check_threshold(name: str, value: Any) -> None:
    thresholds = value.values() if isinstance(value, Mapping) else [value]
    if not thresholds:
        raise ValueError(f"{name} must have a number, got {value!r}")
    for threshold in thresholds:
        if not isinstance(threshold, int | float) or not 0 < threshold < 1:
            raise ValueError(f"{name} must be in (0, 1), got {threshold!r}")


def _check_vectors(_: str, source: Any) -> None:
    # Imported here, because the help of a command needs none of its modules.
    from gatedjax.lexicon._vectors import check_source

    check_source(source)


def _are_grades(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) >= 2


def _option(
    default: Any,
    text: str,
    check: Check | None = None,
    *,
    tasks: Collection[str] = tuple(MODELS),
    models: Collection[str] = (*_prediction.WITHOUT_NETWORK, NETWORK),
) -> Any:
    """Returns the field of an option that only these models of these tasks use."""
    metadata = {"text": text, "check": check, "tasks": tasks, "models": models}
    return dataclasses.field(default=default, metadata=metadata)


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
        "linear (TF-IDF of words and letters with logistic regression, which reads all words), "
        "states (gates on the token vectors of an encoder; the default with `encoder`), or a "
        "network: ganet, soft, local, bilstm, agt, rau, gru, lstm or ssan; for "
        "pairs and tags ssan (attention to selected words) or san (attention to all words).",
    )
    _: dataclasses.KW_ONLY
    vectors: str | Path | None = _option(  # noqa: RUF009
        None,
        "Pretrained word vectors, which help with few texts: a file of GloVe, fastText or word2vec "
        "(.vec, .txt), plain or .gz, a model of fastText (.bin), which has vectors for all words "
        "from their subwords, or the name of an installed package with vectors of pieces of words: "
        "'wordllama', for English (default: a lexicon has none; a network has random vectors, "
        "which mostly contain the frequency of each word in each class).",
        _check_vectors,
        models=(_prediction.LEXICON, NETWORK),
    )
    encoder: Callable[[list[str]], Iterable[Any]] | None = _option(  # noqa: RUF009
        None,
        "Frozen encoder of model='states': a function from a list of texts to a list of (tokens, "
        "vectors [T, D]).",
        tasks=("text",),
        models=(_prediction.STATES,),
    )
    minutes: float | None = _option(
        None,
        "Largest training time in minutes, without compilation (default: no limit).",
        POSITIVE.check,
        models=(NETWORK,),
    )
    num_steps: int | None = _option(
        None,
        "Largest number of training steps (default: about twenty epochs). Training stops earlier "
        "if the validation loss does not improve.",
        at_least(1, limits.MOST_STEPS).check,
        models=(NETWORK,),
    )
    share: float | None = _option(
        None,
        "Share of the words with an open gate, for lexicon, states and ganet (default: for ganet "
        "0.5, else the smallest share that surely loses at most one point on three folds). With 1 "
        "all words are read.",
        SHARE_OR_ALL.check,
        models=(_prediction.LEXICON, _prediction.STATES, "ganet"),
    )
    max_len: int = _option(
        400,
        "Number of words that a network reads at once. A longer text is read in windows of at most "
        "so many words, whose scores are averaged; texts of pairs are cut. A tagger splits longer "
        "sentences in training. It predicts their tags in windows that overlap by half, and takes "
        "the tag of a word from the window with the most words around it.",
        at_least(1, limits.MOST_LENGTH).check,
        models=(NETWORK,),
    )
    min_count: int | None = _option(
        None,
        "Words that occur less often are unknown; a tagger distinguishes them by their shape "
        "(capitals, digits, last letters). The default is 1 with word vectors. Without word "
        "vectors it is 2 for a tagger, and for a classifier 1 up to 1,000 texts, 2 up to 5,000, 5 "
        "up to 20,000 and 10 above.",
        at_least(1, limits.MOST_WORDS).check,
        models=(NETWORK,),
    )
    max_words: int = _option(
        100_000,
        "Largest number of words from the texts in the vocabulary.",
        at_least(1, limits.MOST_WORDS).check,
        models=(NETWORK,),
    )
    lowercase: bool = _option(
        True,
        "Ignore case. The default is False for a tagger, because capitals mark names.",
        models=(*_prediction.OF_WORDS, NETWORK),
    )
    tokens: str | None = _option(
        None,
        "Rule that splits texts into tokens: words (words and marks, like the vocabulary of "
        "GloVe), social (links, @user, #tag and emoji stay whole, entities of HTML are replaced), "
        "characters, or bpe (8,000 learned pieces of words). With words and social, scripts "
        "without spaces are cut into units that are learned from the texts (default: words for "
        "networks, else social).",
        lambda _, kind: Tokenizer(kind),
        tasks=_TEXTS,
        models=(*_prediction.OF_WORDS, NETWORK),
    )
    tokenizer: Callable[[str], Iterable[str]] | None = _option(  # noqa: RUF009
        None,
        "Function from a text to its tokens, in place of `tokens`; see `load`.",
        tasks=_TEXTS,
        models=(*_prediction.OF_WORDS, NETWORK),
    )
    min_class: int = _option(
        1,
        "Classes with fewer texts are left out, also of the validation and test data.",
        at_least(1, limits.MOST_WORDS).check,
        tasks=("text", "pair", _prediction.LABELS, _prediction.ORDINAL),
    )
    class_weight: str | None = _option(
        None,
        "balanced gives the classes the same total weight in the fit (default: the "
        "texts have the same weight).",
        _check_that(lambda weight: weight in (None, BALANCED), f"{BALANCED!r} or None"),
        tasks=("text", _prediction.ORDINAL),
        models=_prediction.WITHOUT_NETWORK,
    )
    best_metric: str = _option(
        "accuracy",
        "Metric of the validation texts that chooses the share of a lexicon: accuracy or "
        "macro_f1. For a network see `training`.",
        _check_that(lambda name: name in METRICS, f"one of {', '.join(map(repr, METRICS))}"),
        tasks=("text", _prediction.LABELS),
        models=(_prediction.LEXICON, _prediction.STATES),
    )
    threshold: float | Mapping[Any, float] | None = _option(
        None,
        "Probability from which a label is predicted by a model with several labels, or a class "
        "among two classes. A number is for all labels; spam=0.3, in Python a dict from labels to "
        "numbers, is for the label spam (default: for labels the threshold with the largest F1 on "
        "the validation texts; of two classes the most probable is predicted).",
        _check_threshold,
        tasks=("text", _prediction.LABELS),
        models=_prediction.OF_WORDS,
    )
    order: Sequence[Any] | None = _option(
        None,
        "Grades of an ordinal target from the lowest to the highest (default: the order of their "
        "numbers).",
        _check_that(_are_grades, "a sequence of at least two grades, the lowest first"),
        tasks=(_prediction.ORDINAL,),
    )
    held_out: float = _option(
        0.1,
        "Share of the training texts, at most 20,000 texts, that is split off for validation if "
        "there are no validation data.",
        SHARE.check,
    )
    batch_size: int | None = _option(
        None,
        "Number of texts in a training step (default: 32, or 64 above 10,000 texts).",
        at_least(1, limits.MOST_BATCH).check,
        models=(NETWORK,),
    )
    seed: int = _option(
        0,
        "Seed of the parameters, the dropout, the gates and the order of the texts. A lexicon has "
        "no random number, and does not depend on it.",
        at_least(0, limits.MOST_SEED).check,
    )
    network: Mapping[str, object] | None = _option(
        None,
        'Options of the network by name, such as {"hidden": 128}.',
        models=(NETWORK,),
    )
    training: Mapping[str, object] | None = _option(
        None,
        "Options of `gatedjax.training.TrainConfig` by dotted name, such as "
        '{"optimizer.learning_rate": 3e-4}.',
        models=(NETWORK,),
    )

    def __post_init__(self) -> None:
        """Converts NumPy numbers to Python numbers."""
        make_plain(self)


with_arguments(TextOptions)


def uses(option: str, kind: str) -> tuple[str, ...]:
    """Returns the names of the models of a task that use an option."""
    rule = TextOptions.__dataclass_fields__[option].metadata
    names = MODELS[kind] if kind in rule["tasks"] else ()
    return tuple(
        name
        for name in names
        if name in rule["models"]
        or (NETWORK in rule["models"] and name not in _prediction.WITHOUT_NETWORK)
    )


def check_options(options: TextOptions, kind: str) -> None:
    """Checks the options for a task before files are read."""
    names = MODELS[kind]
    if options.model not in names:
        raise ValueError(
            f"model must be one of {', '.join(map(repr, names))} for the task {kind!r}, got "
            f"{options.model!r}.{suggestion(options.model, names)}"
        )
    for field in dataclasses.fields(TextOptions):
        value, check = getattr(options, field.name), field.metadata["check"]
        # None is checked only where it is not the default, because a default is always allowed.
        if check is not None and (value is not None or field.default is not None):
            check(field.name, value)
        users = uses(field.name, kind)
        if options.model not in users and value not in (field.default, {}):
            where = f"model={options.model!r}" if users else f"the task {kind!r}"
            others = " or ".join(f"model={name!r}" for name in users[: 3 if len(users) < 4 else 1])
            raise ValueError(
                f"{field.name} must be left out for {where}, got {value!r:.60}: leave it out"
                f"{others and f', or give {others}'}"
            )
    if options.tokenizer is not None:
        if options.tokens is not None:
            raise ValueError(
                f"tokens must be None if there is a tokenizer, got {options.tokens!r} and a "
                "function: give one of the two"
            )
        Tokenizer("custom", function=options.tokenizer)
    if options.model not in _prediction.WITHOUT_NETWORK:
        # Its module imports JAX, which only a network needs.
        from gatedjax.text.fit._network_options import check_network

        check_network(options, kind)


# A folder stores no functions, and no paths of the training machine, which may be private; the name
# of the model has its own entry.
_NOT_STORED = ("model", "encoder", "tokenizer", "vectors")
_STORED = tuple(name for name in TextOptions.__dataclass_fields__ if name not in _NOT_STORED)


def options_to_json(options: TextOptions) -> Json:
    """Returns the options of a training for config.json, without functions, paths and values that
    have no form in JSON. Thresholds become a list of pairs, because a label may be a number.

        >>> options_to_json(TextOptions(min_class=3, threshold={1: 0.3}))["threshold"]
        [[1, 0.3]]
    """
    values: Json = {}
    for name in _STORED:
        value = getattr(options, name)
        if isinstance(value, Mapping):
            value = list(value.items()) if name == "threshold" else dict(value)
        elif name == "order" and value is not None:
            value = list(value)
        with contextlib.suppress(TypeError, ValueError):
            values[name] = json.loads(to_json(value))
    return values


def options_from_json(value: Json | None) -> Json:
    """Returns the parameters of an estimator from the options in a config.json, without names that
    this version does not have; {} for None.

        >>> options_from_json({"min_class": 3, "threshold": [[1, 0.3]], "order": ["low", "high"]})
        {'min_class': 3, 'threshold': {1: 0.3}, 'order': ['low', 'high']}
    """
    params = {name: entry for name, entry in (value or {}).items() if name in _STORED}
    if isinstance(threshold := params.get("threshold"), list):
        try:
            params["threshold"] = {label: float(number) for label, number in threshold}
        except TypeError as error:
            raise ValueError(
                f"threshold must be pairs of a label and a number, got {threshold!r:.80}"
            ) from error
    return params
