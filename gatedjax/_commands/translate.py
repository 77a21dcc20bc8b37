"""`gatedjax translate FOLDER`: translates the lines of standard input."""

import dataclasses
import io
import sys
from pathlib import Path
from typing import Annotated, TextIO

import tyro

from gatedjax._utils.cli import parse, program, refusals
from gatedjax._utils.limits import MOST_TEXT_BYTES, check_most, decode_text, read_limited
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say, while_read
from gatedjax.analysis._scores import corpus_bleu
from gatedjax.text.models._translator import open_translator, translate_texts


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """Translates the lines of standard input with a trained network.

    Only the folder of the network is required. The options of the search default to those of the
    run.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Folder that gatedjax export wrote for a run of translation, or its work folder."""
    beam_size: Unset[int] = None
    """Width of the beam (default: the value of the run); 1 is greedy search."""
    length_penalty: Unset[float] = None
    """Scores are divided by the length to this power (default: the value of the run)."""
    average: Unset[int] = None
    """Number of the newest checkpoints that are averaged (default: the value of the run)."""
    batch_sentences: Unset[int] = None
    """Number of sentences in a batch (default: the value of the run)."""
    bpe: Unset[Path] = None
    """File of the byte pairs of the run (default: the file in the folder)."""
    references: Unset[Path] = None
    """File of reference translations; BLEU is printed to standard error."""


def _translate(options: TranslateOptions) -> None:
    changes = {
        name: value
        for name in ("beam_size", "length_penalty", "batch_sentences")
        if (value := getattr(options, name)) is not None
    }
    references = None
    # The references are read first, so that a wrong path fails before the network is loaded.
    if options.references is not None:
        raw = read_limited(options.references, MOST_TEXT_BYTES)
        references = _split_lines(decode_text(raw, options.references))
    translator = open_translator(options.folder, bpe=options.bpe, average=options.average)
    # The parameters were averaged when the folder was opened.
    search = dataclasses.replace(translator.search, average=1, **changes)
    texts = _split_lines(_read_text(sys.stdin))
    if references is not None and not 0 < len(texts) == len(references):
        raise ValueError(
            f"{options.references} must have as many lines as the input, {len(texts):,}, and at "
            f"least one, got {len(references):,}: give the translation of each line, also of an "
            "empty line"
        )
    translations = translate_texts(dataclasses.replace(translator, search=search), texts)
    # Control characters are replaced only for a terminal, which would obey them.
    write = say if sys.stdout.isatty() else print
    with while_read(sys.stdout):
        for text in translations:
            write(text)
    if references is not None:
        scored = corpus_bleu(translations, references)
        say(f"BLEU {scored.score:.2f} {scored.signature}", file=sys.stderr)


def _read_text(lines: TextIO) -> str:
    """Reads a stream of text in UTF-8 and returns it without a byte-order mark."""
    if isinstance(lines, io.TextIOWrapper):
        # The locale may use another encoding. A wrong byte becomes half of a surrogate pair.
        lines.reconfigure(encoding="utf-8", errors="surrogateescape")
    # A character beyond the limit is read, so that a longer input is refused instead of cut.
    text = lines.read(MOST_TEXT_BYTES + 1)
    check_most("the characters of the input", len(text), MOST_TEXT_BYTES)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        number = text.count("\n", 0, error.start) + 1
        raise ValueError(
            f"line {number:,} of the input must be UTF-8, got other bytes: convert it to UTF-8"
        ) from error
    return text.removeprefix("\ufeff")


def _split_lines(text: str) -> list[str]:
    r"""Returns the lines of a text without their ends; only "\n" and "\r\n" end a line."""
    # `splitlines` would also split at characters that may stand within a sentence, such as U+2028.
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status, 0; errors exit with status 2."""
    options = parse(TranslateOptions, args, f"{program()} translate")
    with refusals({}, TranslateOptions):
        _translate(options)
    return 0
