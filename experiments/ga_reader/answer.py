"""The command `python -m experiments.ga_reader answer`, which asks a trained reader a question."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from gatedjax.text import _answer
from gatedjax.text.models._reader import Reader


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerConfig(_answer.AnswerOptions):
    """Answers a question about a document, and shows where the reader looked."""

    folder: Annotated[Path, tyro.conf.arg(name="workdir")]
    """The work folder of a run of this paper."""


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status."""
    return _answer.run(AnswerConfig, args, "python -m experiments.ga_reader answer", Reader.open)
