"""Lines through a trained translator: the command, whatever it is called by."""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TextIO

import tyro

from gatedjax._utils.cli import parse, refusals
from gatedjax._utils.limits import MOST_TEXT_BYTES, check_most, read_limited
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say, while_read
from gatedjax.analysis._bleu import corpus_bleu
from gatedjax.text._translator import Translator, translate_texts


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """Translates the lines of standard input with a trained network."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder that `gatedjax export` wrote of a run of translation, or the run's work folder."""
    beam_size: Unset[int] = None
    """The number of targets that are followed, 1 for greedy search (default: as in the test)."""
    length_penalty: Unset[float] = None
    """The exponent of the length that divides the scores (default: as in the test)."""
    average: Unset[int] = None
    """The number of newest checkpoints whose mean translates (default: as in the test)."""
    batch_sentences: Unset[int] = None
    """The number of sentences that are translated at once (default: as in the test)."""
    bpe: Unset[Path] = None
    """The file of the run's byte pairs (default: that in the folder)."""
    references: Unset[Path] = None
    """The file of reference translations. Their BLEU score is printed to standard error."""


def run(
    kind: type[TranslateOptions],
    args: Sequence[str],
    prog: str,
    read: Callable[..., Translator],
    *,
    called: Mapping[str, str],
    lines: TextIO,
    out: TextIO,
) -> int:
    """Runs the command; returns its exit status.

    Args:
      kind: the options; a subclass may call the folder otherwise.
      args: the command line.
      prog: how the command is called, for its help.
      read: opens the folder, with `bpe` and `average`.
      called: what the library says, and what it is called here.
      lines: what is translated.
      out: where translations go.
    """
    options = parse(kind, args, prog)
    changes = {
        name: value
        for name in ("beam_size", "length_penalty", "batch_sentences")
        if (value := getattr(options, name)) is not None
    }
    with refusals(called):
        references = None
        if options.references is not None:
            references = lines_of(read_limited(options.references, MOST_TEXT_BYTES).decode())
        translator = read(options.folder, bpe=options.bpe, average=options.average)
        search = dataclasses.replace(translator.search, average=1, **changes)
        text = lines.read(MOST_TEXT_BYTES + 1)
        check_most("the characters of the input", len(text), MOST_TEXT_BYTES)
        texts = lines_of(text)
        if references is not None and len(references) != len(texts):
            raise ValueError(
                f"{options.references} has {len(references):,} lines, the input {len(texts):,}"
            )
        translations = translate_texts(dataclasses.replace(translator, search=search), texts)
    # a file gets the translations as they are; a terminal is not to obey them
    write = say if out.isatty() else print
    with while_read(out):
        for text in translations:
            write(text, file=out)
    if references is not None:
        scored = corpus_bleu(translations, references)
        say(f"BLEU {scored.score:.2f} {scored.signature}", file=sys.stderr)
    return 0


def lines_of(text: str) -> list[str]:
    r"""The lines of a text; only "\n" and "\r\n" end one."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
