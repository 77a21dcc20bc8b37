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

from gatedjax._commands._columns import Thresholds, columns_of, set_thresholds, task_of
from gatedjax._commands._lines import STANDARD_INPUT, Line, in_turns, lines_to, read_piped, show
from gatedjax._utils.cli import parse, program, refusals
from gatedjax._utils.fields import SHARE_OR_ALL
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.types import Json
from gatedjax._utils.write import check_place
from gatedjax.text.answers._prediction import LABELS, REGRESSION, TARGETS, Failure
from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import EMPTY, Aside, Record

_SECONDS = 1.0
"""The seconds between two messages of progress."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Predicts the classes of texts.

    In a terminal it prints the label of each text, its probability and the words that are read. In
    a pipe, with --json or --out, it writes a line of JSON for each text, with its label, its
    probability, the words read, their share and, if there are any, a note and unknown words, or
    with an error. For a tagger the line has words, tags and probabilities, for several labels
    "labels" and "probabilities", and for a number "value". The exit status is 1 if all lines have
    an error.

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
    """Write JSON with the parts of the words and pairs read in the score of each class, for a
    lexicon."""
    abstain: Annotated[Unset[float], SHARE_OR_ALL] = None
    """Write null as the label, with a note, if the probability of the best class is below this
    number, as 0.6."""
    threshold: Thresholds = None
    """The probability from which a label is predicted by a model with several labels, or a class
    among two, as spam=0.3 (default: the thresholds of the training)."""
    json: Flag = False
    """Write JSON in a terminal, too."""
    overwrite: Flag = False
    """Replace the file of --out."""


def _sentences(options: PredictOptions) -> Iterable[Line]:
    """Yields (words, "") for each sentence to tag, or (None, reason) if it cannot be used."""
    from gatedjax.text.sources._conll import open_sentences

    file = options.file
    if file is None or task_of(file, None, options.encoding, options.columns) != "tags":
        return ((text and text[0], why) for text, why in _lines(options, "text"))
    table = open_sentences(file, word=options.word, encoding=options.encoding, tagged=False)
    return (
        (None, sentence.reason) if isinstance(sentence, Aside) else (sentence.words, "")
        for sentence in table
    )


def _lines(options: PredictOptions, kind: str) -> Iterable[Line]:
    """Returns (texts, "") for each line to classify, or (None, reason) if it cannot be used."""
    from gatedjax.text.sources._lines import fault

    columns = columns_of(options, kind)
    count = len(columns.inputs)
    if options.texts:
        turns = in_turns(options.texts, count)
        whys = [next(filter(None, (fault(text, "utf-8") for text in part)), "") for part in turns]
        return [(None if why else part, why) for part, why in zip(turns, whys, strict=True)]
    if options.file is not None:
        table = open_table(options.file, columns, encoding=options.encoding)
        is_empty = {EMPTY, *(f"no {name}" for name in columns.inputs)}
        return (
            (row.inputs, "")
            if isinstance(row, Record)
            else (("",) * count, "")
            if row.reason in is_empty
            else (None, row.reason)
            for row in table
        )
    if count > 1:
        raise ValueError(
            "pairs of texts must be given as TEXT or in a --file, got standard input, whose lines "
            "have no columns: give a .csv, .tsv or .jsonl --file"
        )
    return read_piped(options.encoding)


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
    from gatedjax.text.models._saved import load_model
    from gatedjax.text.sources._lines import suggest_encoding

    inputs = (options.file, *(list_written(options.model) if options.out else ()))
    check_place(options.out, inputs=inputs)
    # Only a file needs --overwrite, because a device or a pipe is not replaced.
    if options.out is not None and options.out.is_file() and not options.overwrite:
        raise FileExistsError(f"{options.out} exists: --overwrite replaces it")
    if options.texts and options.file is not None:
        raise ValueError("TEXT or --file must be left out, got both: give one of the two")
    if options.texts == (STANDARD_INPUT,) or str(options.file) == STANDARD_INPUT:
        options = dataclasses.replace(options, texts=None, file=None)
    model = load_model(options.model, ("text", "pair", "tags", *TARGETS))
    tagger = model.kind == "tags"
    if options.abstain is not None and (tagger or model.kind in (LABELS, REGRESSION)):
        raise ValueError(
            "--abstain must be left out unless the model has a class for each text, got "
            f"{options.abstain}: leave it out"
        )
    model = set_thresholds(model, options.threshold)
    lines: Any = iter(_sentences(options) if tagger else _lines(options, model.kind))
    predict: Any = model.predict
    if options.reasons:
        from gatedjax.text.answers._explain import predict_with_reasons
        from gatedjax.text.models._lexicon import LexiconModel

        if not isinstance(model, LexiconModel):
            raise ValueError(
                "--reasons must be left out for a network, whose prediction is no sum over words: "
                "`gatedjax explain` removes each word and runs it again"
            )
        predict = functools.partial(predict_with_reasons, model)
    if tagger:
        # Imported here, because a lexicon predicts without JAX.
        from gatedjax.text.models._tagging import tag_sentences

        predict = functools.partial(tag_sentences, model)
    began = last_report = time.monotonic()
    done = failed = 0
    # A user who types lines waits for each of them; else many lines share a call of the model.
    is_typed = not (options.file or options.texts) and sys.stdin.isatty()
    size = 1 if is_typed else 4096
    is_shown = sys.stdout.isatty() and not (options.out or options.json or options.reasons)
    with lines_to(options.out) as write:
        while chunk := list(itertools.islice(lines, size)):
            predictions = predict([texts for texts, _ in chunk if texts is not None])
            for number, (texts, why) in enumerate(chunk, done + 1):
                # The model got only the usable lines, so that an unusable line takes no prediction.
                prediction = Failure(why) if texts is None else next(predictions)
                failed += isinstance(prediction, Failure)
                line = _abstain(prediction, options.abstain)
                if is_shown:
                    # The tags of words show the text already.
                    text = None if texts is None or tagger else " | ".join(texts)
                    show(f"line {number:,}" if texts is None else text, line)
                else:
                    write(line)
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
    with refusals({}, PredictOptions):
        return _run(options)
