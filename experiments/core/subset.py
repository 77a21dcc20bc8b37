"""The part of a GloVe file for the words of data sets: `python -m experiments.core.subset`."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.core.cli import TABLE_OPTIONS, check_folder, fail, parse_many, refusals
from experiments.core.config import Files
from experiments.core.text import load_splits, open_vectors
from gatedjax._utils.terminal import say
from gatedjax._utils.write import open_atomic


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubsetConfig(Files):
    """Writes the lines of a GloVe file for the words of data sets.

    A run with the part has the same vectors as with the whole file, and reads it in a second.
    """

    glove: Path
    """GloVe file, plain or .gz."""
    data: tuple[str, ...]
    """Data sets, such as trec sst1 sst2 imdb."""
    out: Path = Path("glove.6B.100d.subset.txt")
    """File to write; the records have its name."""


def words_of(value: Any) -> Iterator[str]:
    """Yields the words of a field of an example: of tokens, or of lists of tokens."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from (part,) if isinstance(part, str) else words_of(part)


def vocabulary(options: SubsetConfig) -> set[str]:
    """Returns the words of all splits of the data sets, as they are and in lower case."""
    words: set[str] = set()
    for name in options.data:
        for source in load_splits(name, options).values():
            for example in source:
                # A raw text gives no words, because each example also has its tokens.
                for value in example.values():
                    words.update(words_of(value))
    return words | {word.lower() for word in words}


def main(args: list[str] | None = None) -> int:
    """Writes the part of the file; returns the exit status."""
    options = parse_many(SubsetConfig, args, "python -m experiments.core.subset")
    # Records name the file, so a present file is never replaced.
    if options.out.exists():
        fail(f"--out must be a new file, got {options.out}, which exists")
    check_folder(options.out.parent, "--out", exists=True)
    with refusals(TABLE_OPTIONS):
        path = options.glove.expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"{path}: there is no such file; GloVe is a separate download")
        words = {word.encode() for word in vocabulary(options)}
        count = 0
        with open_vectors(path) as source, open_atomic(options.out) as target:
            for line in source:
                if line.partition(b" ")[0] in words:
                    target.write(line)
                    count += 1
    say(f"wrote {options.out}: {count:,} words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
