"""`python -m experiments.ssan translate --workdir W < in.txt`: a line in, a line out."""

import dataclasses
import sys
from pathlib import Path
from typing import TextIO

import tyro

from experiments.core.cli import refusals, show_version
from experiments.ssan.bleu import corpus_bleu
from experiments.ssan.translation import load_run, run_translations
from gatedjax._terminal import say

PROG = "python -m experiments.ssan translate"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateConfig:
    """Translates the lines of standard input with a finished run."""

    workdir: Path
    """Work folder of the run."""
    beam_size: int | None = None
    """Targets that are followed (default: as the run was tested); 1 is greedy search."""
    length_penalty: float | None = None
    """Exponent of the length that scores are divided by (default: as the run was tested)."""
    average: int | None = None
    """Use the mean of so many of the newest checkpoints (default: as the run was tested)."""
    batch_sentences: int | None = None
    """Sentences that are translated at once (default: as the run was tested)."""
    bpe: Path | None = None
    """File of the run's byte pairs (default: that in the work folder)."""
    references: Path | None = None
    """Text to score the translations against: BLEU is printed to standard error."""


def main(args: list[str], lines: TextIO = sys.stdin, out: TextIO = sys.stdout) -> int:
    """Runs the command; returns its exit status."""
    show_version(args)
    options = tyro.cli(TranslateConfig, args=args, prog=PROG)
    changes = {
        name: value
        for name in ("beam_size", "length_penalty", "batch_sentences")
        if (value := getattr(options, name)) is not None
    }
    with refusals():
        references = None
        if options.references is not None:
            references = _lines(options.references.read_text("utf-8"))
        trained = load_run(options.workdir, bpe=options.bpe, average=options.average)
        search = dataclasses.replace(trained.search, average=1, **changes)
        texts = _lines(lines.read())
        if references is not None and len(references) != len(texts):
            raise ValueError(
                f"{options.references} has {len(references):,} lines, the input {len(texts):,}"
            )
        translations = run_translations(dataclasses.replace(trained, search=search), texts)
    # a file gets the translations as they are; a terminal is not to obey them
    write = say if out.isatty() else print
    for text in translations:
        write(text, file=out)
    if references is not None:
        scored = corpus_bleu(translations, references)
        say(f"BLEU {scored.score:.2f} {scored.signature}", file=sys.stderr)
    return 0


def _lines(text: str) -> list[str]:
    r"""The lines of a text; only "\n" and "\r\n" end one."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
