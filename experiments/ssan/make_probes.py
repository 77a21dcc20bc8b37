"""The command `python -m experiments.ssan make-probes`, which builds BShift and word reordering
detection from any sentences.

The sentences of both tasks are the same, and each sentence occurs once. BShift swaps two
neighbouring words of half of the sentences (Conneau et al. 2018), and word reordering moves a word
of each sentence (Yang et al. 2019).
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from experiments.core.cli import check_folder, parse_options, refusals
from experiments.core.kinds import Json
from experiments.core.records import write_json, write_text
from gatedjax import data as gdata
from gatedjax._utils.terminal import say
from gatedjax.data.files._unpack import open_compressed

PARTS = {"train": "tr", "validation": "va", "test": "te"}
"""The parts, and their marks in the files of both tasks."""
SHORTEST, LONGEST = 6, 49
"""The numbers of words of a sentence in the published generator of word reordering."""
_NUMBERED = re.compile(r"(\d+) ([^\t]+)$")
"""A line of a document in the form of the Children's Book Test; the line with the question has tabs
and is left out, because a word of it is replaced."""
Sentence = tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeProbesConfig:
    """Makes the probes BShift and word reordering detection of sentences.

    It writes bigram_shift.txt, word_order.txt.{tr,va,te}.{x,y}, and make_probes.json with the
    counts. A network trains on them with --data.manual-dir DIR: --preset bshift or bshift_local,
    and --preset wrd_files. The same sentences, options and seed give the same files.
    """

    texts: tuple[Path, ...]
    """The text files, in UTF-8, plain or compressed (.gz, .bz2, .xz, .zst or .zip)."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The folder for the files."""
    form: Literal["lines", "cloze"] = "lines"
    """The form of the files: a sentence per line with spaces between its words, or questions in the
    form of the Children's Book Test, whose documents have the sentences."""
    held_out: int = 5_000
    """The number of sentences for validation, and the same for test."""
    seed: int = 0
    """The seed of the choice of sentences for validation and test, and of the swaps and moves."""


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse_options(MakeProbesConfig, args, "python -m experiments.ssan make-probes")
    check_folder(options.out, "--out")
    with refusals():
        make_probes(options)
    return 0


def make_probes(options: MakeProbesConfig) -> Json:
    """Writes the files of both tasks. Returns the counts, as in make_probes.json. Raises ValueError
    if there are too few sentences."""
    if options.held_out < 1:
        raise ValueError(f"--held-out must be at least 1, got {options.held_out}")
    report: Json = {"texts": sorted(path.name for path in options.texts), "sentences": 0}
    distinct: dict[Sentence, None] = {}
    for path in options.texts:
        for sentence in read_sentences(path, options.form):
            report["sentences"] += 1
            if SHORTEST <= len(sentence) <= LONGEST:
                # Equal sentences in two parts would make a test of memory, and a dict stays in
                # order.
                distinct[sentence] = None
    report["distinct"] = len(distinct)
    if len(distinct) <= 2 * options.held_out:
        raise ValueError(
            f"there must be more than {2 * options.held_out:,} different sentences of "
            f"{SHORTEST} to {LONGEST} words, twice --held-out, got "
            f"{len(distinct):,}; give more text, or a smaller --held-out"
        )
    parts = split(list(distinct), options.held_out, options.seed)
    probes = []
    for number, (part, sentences) in enumerate(parts.items()):
        # Each part has a separate seed, so that equal places have different draws.
        seed = len(PARTS) * options.seed + number
        swapped = gdata.bigram_shift(sentences, seed=seed)
        probes += [
            "\t".join((PARTS[part], swapped.info.class_names[e["label"]], " ".join(e["tokens"])))
            for e in swapped
        ]
        moved = list(gdata.word_reordering(sentences, seed=seed))
        name = f"word_order.txt.{PARTS[part]}"
        write_text(options.out / f"{name}.x", _lines(" ".join(e["tokens"]) for e in moved))
        write_text(
            options.out / f"{name}.y", _lines(f"{e['insert']} {e['original']}" for e in moved)
        )
        distances = [abs(e["insert"] - e["original"]) for e in moved]
        report[part] = {
            "sentences": len(sentences),
            "mean_words": round(float(np.mean([len(s) for s in sentences])), 2),
            "swapped": sum(e["label"] == 0 for e in swapped),
            "mean_move": round(float(np.mean(distances)), 2),
        }
    write_text(options.out / "bigram_shift.txt", _lines(probes))
    write_json(options.out / "make_probes.json", report)
    for part in parts:
        counts = report[part]
        say(
            f"{part}: {counts['sentences']:,} sentences of {counts['mean_words']} words, "
            f"{counts['swapped']:,} with swapped words; words move by {counts['mean_move']}"
        )
    say(
        f"wrote {options.out}; train on it with --preset bshift_local or --preset wrd_files, "
        f"--data.manual-dir {options.out}, and name the texts with --data.note"
    )
    return report


def read_sentences(path: Path, form: str) -> Iterator[Sentence]:
    """Yields the words of each sentence in a file, see `MakeProbesConfig.form`. Raises ValueError
    if a line is not UTF-8, or the file is damaged."""
    with open_compressed(path) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig").strip()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"--texts: {path}, line {number:,} must be UTF-8, got the byte "
                    f"0x{line[error.start]:02x}"
                ) from error
            if form == "cloze":
                numbered = _NUMBERED.match(text)
                text = numbered[2] if numbered else ""
            if words := tuple(text.split()):
                yield words


def split(sentences: list[Sentence], held_out: int, seed: int) -> dict[str, list[Sentence]]:
    """Returns the sentences of each part, in a random order. There must be more than 2 * `held_out`
    different sentences."""
    order = np.random.default_rng(seed).permutation(len(sentences))
    shuffled = [sentences[i] for i in order]
    return {
        "train": shuffled[2 * held_out :],
        "validation": shuffled[:held_out],
        "test": shuffled[held_out : 2 * held_out],
    }


def _lines(texts: Iterator[str] | list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)
