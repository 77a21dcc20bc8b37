"""`gatedjax predict MODEL TEXT ...`: predicts the labels of texts, or the tags of words."""

import dataclasses
import functools
import itertools
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import tyro

from gatedjax._commands._lines import STANDARD_INPUT, Line, in_turns, lines_to, read_piped
from gatedjax._commands._states import check_states
from gatedjax._commands._thresholds import THRESHOLD_ARGUMENTS, Thresholds, set_thresholds
from gatedjax._utils.cli import parse, program, refusals
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.types import Json
from gatedjax._utils.write import check_place

_ARGUMENTS = {
    "columns.inputs must": "--text must",
    "columns.header": "--columns",
    **THRESHOLD_ARGUMENTS,
}
"""Words in messages of the library, and the options that replace them."""
_SECONDS = 1.0
"""The seconds between two messages of progress."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Predicts the classes of texts.

    It writes a line of JSON for each text, with its label, its probability, the words with open
    gates, the density and, if there are any, a note and unknown words, or with an error. For a
    tagger the line has words, tags and probabilities, for several labels "labels" and
    "probabilities", and for a number "value". The exit status is 1 if all lines have an error.

    For example:
    $ gatedjax predict model "a dull film"
    $ gatedjax predict model --file in.csv --out out.jsonl
    $ cat lines.txt | gatedjax predict model -
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder that `gatedjax train` wrote."""
    texts: Annotated[
        Unset[tuple[str, ...]], tyro.conf.Positional, tyro.conf.arg(metavar="[TEXT ...]")
    ] = None
    """The texts. For pairs of texts, give premise and hypothesis in turns. A single - stands for
    the lines of standard input."""
    file: Unset[Path] = None
    """A file with the texts: .csv, .tsv or .jsonl, the lines of a .txt file (without fastText's
    labels), a folder of .txt files, for a tagger the words of a .conll file, or - for the lines of
    standard input (default: standard input, if no text is given)."""
    states: Unset[Path] = None
    """A file with the tokens and vectors of the texts (.npz), for a model that was trained with
    --states, in place of TEXT and --file."""
    out: Unset[Path] = None
    """The file to write (default: standard output)."""
    text: Annotated[Unset[tuple[str, ...]], tyro.conf.arg(metavar="COLUMN ...")] = None
    """The columns of the texts (default: text, or premise and hypothesis)."""
    columns: Annotated[Unset[str], tyro.conf.arg(metavar="NAME,NAME,...")] = None
    """The names of all columns of a file without a header, as text,label."""
    word: Unset[int] = None
    """The column of the words of a .conll file (default: as `gatedjax train` reads the file)."""
    encoding: str = "utf-8"
    """The encoding of the file."""
    reasons: Flag = False
    """Add the parts of the open words and pairs in the score of each class, for a lexicon."""
    abstain: Unset[float] = None
    """Write null as the label, with a note, if the probability of the best class is below this
    number, as 0.6."""
    threshold: Thresholds = None
    """The probability from which a label is predicted by a model with several labels, or a class
    among two, as spam=0.3 (default: the thresholds of the training)."""
    overwrite: Flag = False
    """Replace the file of --out."""


def _sentences(options: PredictOptions) -> Iterable[Line]:
    """Yields (words, "") for each sentence to tag, or (None, reason) if it cannot be used."""
    from gatedjax.text._read import Aside, infer_task, open_tags, parse_header

    file, header = options.file, parse_header(options.columns)
    if file is None or infer_task(file, encoding=options.encoding, header=header) != "tags":
        return ((text and text[0], why) for text, why in _lines(options, "text"))
    table = open_tags(file, word=options.word, encoding=options.encoding, tagged=False)
    return (
        (None, sentence.reason) if isinstance(sentence, Aside) else (sentence.words, "")
        for sentence in table
    )


def _lines(options: PredictOptions, kind: str) -> Iterable[Line]:
    """Returns (texts, "") for each line to classify, or (None, reason) if it cannot be used."""
    from gatedjax.text._prediction import COLUMNS, check_inputs
    from gatedjax.text._read import Columns, Record, open_table, parse_header
    from gatedjax.text._table import EMPTY, fault

    inputs = COLUMNS[kind].inputs
    if options.texts:
        count = len(inputs)
        if len(options.texts) % count:
            raise ValueError(
                f"TEXT must be {' and '.join(inputs)} in turns, got {len(options.texts)} texts"
            )
        turns = list(in_turns(options.texts, count))
        faults = [filter(None, (fault(x, "utf-8") for x in part)) for part in turns]
        whys = [next(problems, "") for problems in faults]
        return [(None if why else part, why) for part, why in zip(turns, whys, strict=True)]
    if options.file is not None:
        columns = Columns(options.text or inputs, None, parse_header(options.columns))
        check_inputs(columns, kind)
        table = open_table(options.file, columns, encoding=options.encoding)
        is_empty = {EMPTY, *(f"no {name}" for name in columns.inputs)}
        return (
            (row.inputs, "")
            if isinstance(row, Record)
            else (("",) * len(inputs), "")
            if row.reason in is_empty
            else (None, row.reason)
            for row in table
        )
    if len(inputs) > 1:
        raise ValueError(
            "pairs of texts must be given as TEXT or in a --file, got standard input, whose lines "
            "have no columns: give a .csv, .tsv or .jsonl --file"
        )
    return read_piped(options.encoding)


def _without_dash(options: PredictOptions) -> PredictOptions:
    if options.texts == (STANDARD_INPUT,) or str(options.file) == STANDARD_INPUT:
        return dataclasses.replace(options, texts=None, file=None)
    return options


def _abstain(prediction: Any, least: float | None) -> Json:
    """Returns the line of a prediction, without its label if no probability reaches `least`."""
    line: Json = prediction.to_json()
    if least is None or "label" not in line:
        return line
    # With a threshold, or for grades, the predicted class may not be the most probable class.
    plain = getattr(prediction, "prediction", prediction)
    best, probability = plain.most_probable or (line["label"], line["probability"])
    if probability >= least:
        return line
    note = f"no class has a probability of {least:g}; the most probable is {best}"
    notes = [line["note"], note] if "note" in line else [note]
    return {**line, "label": None, "note": "; ".join(notes)}


def _run(options: PredictOptions) -> int:
    """Predicts the texts and writes a line for each; returns the exit status, see `main`."""
    from gatedjax.export._folder import list_written
    from gatedjax.text._lines import suggest_encoding
    from gatedjax.text._prediction import LABELS, REGRESSION, TARGETS, Failure
    from gatedjax.text._saved import load_model

    inputs = (options.file, options.states, *(list_written(options.model) if options.out else ()))
    check_place(options.out, inputs=inputs)
    # Only a file needs --overwrite, because a device or a pipe is not replaced.
    if options.out is not None and options.out.is_file() and not options.overwrite:
        raise FileExistsError(f"{options.out} exists: --overwrite replaces it")
    if options.texts and options.file is not None:
        raise ValueError("TEXT or --file must be left out, got both: give one of the two")
    options = _without_dash(options)
    model = load_model(options.model, ("text", "pair", "tags", *TARGETS))
    tagger = model.kind == "tags"
    if options.abstain is not None and (tagger or model.kind in (LABELS, REGRESSION)):
        raise ValueError(
            "--abstain must be left out unless the model has a class for each text, got "
            f"{options.abstain}: leave it out"
        )
    if options.abstain is not None and not 0 < options.abstain <= 1:
        raise ValueError(f"--abstain must be in (0, 1], got {options.abstain}")
    if options.word is not None and not tagger:
        raise ValueError(
            f"--word must be left out unless the model is a tagger, got {options.word}"
        )
    model = set_thresholds(model, options.threshold)
    has_texts = bool(options.texts) or options.file is not None
    reads_states = check_states(model, options.model, options.states, has_texts=has_texts)
    lines: Any = iter(_sentences(options) if tagger else _lines(options, model.kind))
    predict: Any = model.predict
    if reads_states:
        from gatedjax.text._states import read_states

        lines = (((text,), "") for text in read_states(options.states or ""))
        predict = model.predict_with_reasons if options.reasons else predict
    elif options.reasons:
        from gatedjax.text._lexicon import LexiconModel
        from gatedjax.text._lexicon_explanation import predict_with_reasons

        if not isinstance(model, LexiconModel):
            raise ValueError(
                "--reasons must be left out unless the model is a lexicon, got a network, whose "
                "prediction is no sum over words: `gatedjax explain` removes each word and runs it "
                "again"
            )
        predict = functools.partial(predict_with_reasons, model)
    if tagger:
        # Imported here, because a lexicon predicts without JAX.
        from gatedjax.text._tagging import tag_sentences

        predict = functools.partial(tag_sentences, model)
    began = last_report = time.monotonic()
    done = failed = 0
    # A user who types lines waits for each of them; else many lines share a call of the model.
    is_typed = not (reads_states or options.file or options.texts) and sys.stdin.isatty()
    size = 1 if is_typed else 4096
    with lines_to(options.out) as write:
        while chunk := list(itertools.islice(lines, size)):
            predictions = predict([texts for texts, _ in chunk if texts is not None])
            for texts, why in chunk:
                # The model got only the usable lines, so that an unusable line takes no prediction.
                prediction = Failure(why) if texts is None else next(predictions)
                failed += isinstance(prediction, Failure)
                write(_abstain(prediction, options.abstain))
            done += len(chunk)
            now = time.monotonic()
            # A file of messages would get thousands of these lines.
            if sys.stderr.isatty() and now - last_report > _SECONDS:
                last_report = now
                rate = done / (now - began)
                say(f"\r{done:,} lines, {rate:,.0f} a second", file=sys.stderr, end="")
    if sys.stderr.isatty() and last_report > began:
        say("", file=sys.stderr)
    if failed:
        hint = "" if options.file is None else suggest_encoding(options.file, options.encoding)
        ending = "" if failed < done else ", so there is no prediction"
        count = f"{failed:,} of {done:,} lines could not be used (error)"
        say(f"{count}{ending}{hint}", file=sys.stderr)
    # An input without a line has no line that failed.
    return 1 if failed and failed == done else 0


def main(args: list[str]) -> int:
    """Runs the command; returns 0, or 1 if no line could be used; errors exit with status 2."""
    options = parse(PredictOptions, args, f"{program()} predict", words="texts")
    with refusals(_ARGUMENTS):
        return _run(options)
