"""`gatedjax train DATA --out FOLDER`: trains a classifier of your texts, or a tagger of words."""

import argparse
import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from gatedjax._commands._columns import parse_thresholds, task_of, task_of_columns
from gatedjax._commands._training import (
    LexiconOptions,
    LinearOptions,
    Task,
    fit,
    open_data,
    save,
    split_order,
    text_options,
)
from gatedjax._utils.cli import parse, program, refusals
from gatedjax._utils.signals import raise_on_sigterm
from gatedjax.text.answers._prediction import LEXICON, LINEAR, OF_WORDS


def _choose(args: Sequence[str]) -> tuple[str, str, bool]:
    """Returns the task, the model and whether there are word vectors, on which the options depend.

    Everything else is read by tyro, with the class of options that belongs to them.
    """
    from gatedjax.text._options import TextOptions

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, prefix_chars="-")
    kinds: tuple[Any, ...] = (LexiconOptions, TextOptions)
    flags = ("data", "lowercase", "overwrite")
    names = {field.name for kind in kinds for field in dataclasses.fields(kind)}.difference(flags)
    for name in {*names, "word", "tag", "workdir", "cpu_devices"}:
        spellings = {f"--{name}", f"--{name.replace('_', '-')}"}
        parser.add_argument(*spellings, dest=name, nargs="*" if name in ("text",) else "?")
    known, words = parser.parse_known_args(args)
    words = [word for word in words if not word.startswith("-")]
    # A value of an option that is not listed above may stand before the data.
    data = next((word for word in words if Path(word).exists()), next(iter(words), None))
    task = known.task
    if task not in get_args(Task)[1:]:
        task = task_of_columns(known.text)
        # The reader of the data reports the error.
        with contextlib.suppress(ValueError, OSError, LookupError):
            if data is not None:
                task = task_of(data, known.text, known.encoding or "utf-8", known.columns)
    default = "ssan" if task in ("pair", "tags") else LEXICON
    return task, known.model or default, known.vectors is not None


def _elsewhere(model: str, option: str) -> str | None:
    """Returns the message about an option that only other models have."""
    from gatedjax._utils.options import nearest_option, option_names

    if model not in OF_WORDS:
        if option not in option_names(LexiconOptions):
            return None
        return f"{option} must be left out for {model}: it is an option of the model lexicon"
    if model == LINEAR and option in option_names(LexiconOptions):
        return f"{option} must be left out for a linear model, which reads all words"
    from gatedjax._commands._train_network import NetworkOptions, TaggerOptions, options_of

    if option.startswith(("--model.", "--train.")) or option in option_names(NetworkOptions):
        name = "a lexicon" if model == LEXICON else "a linear model"
        return f"{option} must be left out for {name}, which has no network: add --model ganet"
    if option in option_names(TaggerOptions):
        return f"{option} must be left out except for files of tags: add --task tags"
    networks = option_names(options_of("text", "ganet", has_vectors=False))
    nearest = nearest_option(option, networks)
    if nearest is None or nearest_option(option, option_names(LexiconOptions)):
        return None
    return f"unknown option {option}. Did you mean {nearest}? It needs --model ganet"


def _train_lexicon(command: LexiconOptions, kind: str) -> int:
    """Fits a lexicon or a linear model and writes it; nothing is written before."""
    options = text_options(
        command,
        threshold=parse_thresholds(command.threshold),
        order=split_order(command.order),
    )
    tables = open_data(command, kind, options)
    with raise_on_sigterm():
        save(command, kind, options, fit(command, kind, options, tables))
    return 0


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status: 0, or 130 after Ctrl-C. SIGTERM gives 0 for a
    network, which can continue its run, and raises `Terminated` if there is nothing to continue.
    """
    kind, model, has_vectors = _choose(args)
    options: type = LinearOptions if model == LINEAR else LexiconOptions
    run: Any = _train_lexicon
    words = {}
    if model not in OF_WORDS or kind in ("pair", "tags"):
        from gatedjax._commands import _train_network

        options = _train_network.options_of(kind, model, has_vectors=has_vectors)
        run, words = _train_network.train_network, _train_network.words_of(options)
    elsewhere = functools.partial(_elsewhere, model)
    command: Any = parse(options, args, f"{program()} train", elsewhere=elsewhere)
    with refusals(words, options):
        return run(command, kind)
