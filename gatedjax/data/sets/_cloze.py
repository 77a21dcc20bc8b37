"""Cloze questions: a document, a query with a placeholder, candidates, and the answer.

The readers of all cloze files make a `Question` by the same rules (Dhingra et al. 2017 and its code
leave them open or contradict them):

- A query without a placeholder, a document, query or answer without a word, and a question
  without candidates are set aside. If there are several placeholders, the first is used.
- Repeated candidates are merged, because two equal strings cannot both be right.
- A token of the document belongs to a candidate if it equals any of the candidate's tokens
  exactly; a shared surname belongs to both candidates.
- A question whose answer does not occur in the document, or is no candidate, stays. The model
  cannot learn from it, and it counts as wrong. `report.notes` counts these questions.
"""

import collections
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gatedjax.data.files._lines import FileRow, FileRows, LineError
from gatedjax.data.files._source import Example
from gatedjax.data.sets._declaration import DataSet, Record, TfdsForm, lazily

PLACEHOLDER = "@placeholder"
OCCURS, ABSENT, FOREIGN = 0, 1, 2
CLASSES = ("answer occurs", "answer does not occur", "answer is no candidate")
"""The status of an answer; the class of a question in `python -m gatedjax data check`."""

# Not `str.split`, because a no-break space does not separate tokens.
_SPACE = re.compile("[ \t]+")


class Question(NamedTuple):
    """A cloze question about a document; in all texts single spaces separate the tokens."""

    document: str
    query: str
    answer: str
    candidates: tuple[str, ...]  # without repetitions
    repeated: int = 0  # repeated candidates that were removed

    @property
    def label(self) -> int:
        """The index in `candidates` of the candidate that is equal to the answer, or -1."""
        return self.candidates.index(self.answer) if self.answer in self.candidates else -1

    @property
    def status(self) -> int:
        """`OCCURS` if a token of the answer is in the document, `FOREIGN` if it is no candidate."""
        if self.answer not in self.candidates:
            return FOREIGN
        return (
            ABSENT if set(self.answer.split(" ")).isdisjoint(self.document.split(" ")) else OCCURS
        )


def tokens_of(text: str) -> str:
    """Returns the text with a single space between tokens, without spaces at its ends."""
    # Most texts have single spaces. The test avoids a slow substitution for millions of tokens.
    if "\t" in text or "  " in text:
        text = _SPACE.sub(" ", text)
    return text.strip(" ")


def question(
    document: str,
    query: str,
    answer: str,
    candidates: Sequence[str],
    *,
    placeholder: str = PLACEHOLDER,
    lines: tuple[int, int, int, int] = (0, 0, 0, 0),  # of document, query, answer, candidates
) -> Question:
    """Makes a `Question`; raises LineError if it cannot be asked or answered."""
    document, query, answer = tokens_of(document), tokens_of(query), tokens_of(answer)
    options = [tokens_of(candidate) for candidate in candidates]
    if not document:
        raise LineError("the document is empty", lines[0])
    if not query:
        raise LineError("the query is empty", lines[1])
    words = query.split(" ")
    if placeholder not in words:
        raise LineError(f"the query has no {placeholder}", lines[1])
    if not answer:
        raise LineError("there is no answer", lines[2])
    if not options:
        raise LineError("there are no candidates", lines[3])
    # An empty candidate would match at all positions of the document.
    if "" in options:
        raise LineError(f"candidate {options.index('') + 1} is empty", lines[3])
    # `fromkeys` keeps the order of the file, on which the label depends.
    distinct = tuple(dict.fromkeys(options))
    query = " ".join(PLACEHOLDER if word == placeholder else word for word in words)
    return Question(document, query, answer, distinct, len(options) - len(distinct))


def example(question: Question, example_id: int) -> Example:
    """Returns the example of a question, with tuples of tokens in place of its texts."""
    return {
        "tokens": _split(question.document),
        "query": _split(question.query),
        "candidates": tuple(_split(candidate) for candidate in question.candidates),
        "answer": _split(question.answer),
        "label": question.label,
        "status": question.status,
        "example_id": example_id,
    }


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(" "))


def _parse_record(record: Record) -> tuple[int, Question, str]:
    """Returns (status of the answer, question, location in the files) for a TFDS record."""
    question = Question(
        record["document"].decode(),
        record["query"].decode(),
        record["answer"].decode(),
        tuple(candidate.decode() for candidate in record["candidates"]),
        int(record["repeated"]),
    )
    return question.status, question, record["place"].decode()


def _of_row(row: FileRow, example_id: int) -> Example:
    return example(row.content, example_id)


def cloze_set(*, description: str, **declared: Any) -> DataSet:
    """Declares a set of cloze questions. Its classes are the status of the answer."""
    return DataSet(
        **declared,
        examples=lazily(_of_row),
        classes=CLASSES,
        unit="questions",
        notes=notes,
        tfds=TfdsForm(
            description=description,
            features={
                "document": str,
                "query": str,
                "answer": str,
                "candidates": [str],
                "repeated": np.int64,
                "place": str,
            },
            record=lambda row: (
                row.content._asdict()
                | {"candidates": list(row.content.candidates), "place": row.file}
            ),
            row=_parse_record,
        ),
    )


def notes(rows: FileRows) -> Mapping[str, int]:
    """Counts the unusual questions: reason -> number of questions, without zeros."""
    counts: collections.Counter[str] = collections.Counter()
    for row in rows.rows:
        question: Question = row.content
        words = set(question.document.split(" "))
        is_there = [not words.isdisjoint(candidate.split(" ")) for candidate in question.candidates]
        counts["answer does not occur"] += row.label == ABSENT
        counts["answer is no candidate"] += row.label == FOREIGN
        counts["no candidate occurs"] += not any(is_there)
        counts["some candidate does not occur"] += any(is_there) and not all(is_there)
        counts["repeated candidates"] += question.repeated > 0
        counts["several placeholders"] += question.query.split(" ").count(PLACEHOLDER) > 1
    return {reason: count for reason, count in counts.items() if count}
