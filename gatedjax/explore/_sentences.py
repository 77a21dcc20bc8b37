"""Labelled sentences in the explorer: predictions, accuracy by threshold, and deciding words.

A word decides a sentence if the first model predicts another class when the word is taken out of
the sentence at all its places.
"""

import dataclasses
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.explore._engine import Explorer
from gatedjax.explore._views import LONGEST, View
from gatedjax.text.sources._labels import Classes
from gatedjax.text.sources._table import Record, Table

MOST, MOST_LEAKS = 1000, 200
"""Largest number of sentences that are read, and for which the gate leak is measured."""
ORDERS = ("error", "share", "leak")


@dataclasses.dataclass(frozen=True, eq=False)
class Sentences:
    """Labelled sentences and the results of the models for them."""

    name: str
    has_more: bool
    rows: Sequence[Json]  # "leak" is None after MOST_LEAKS sentences and without gates
    curves: Sequence[Json]  # of each model
    words: Sequence[Sequence[str]]  # of each sentence, as the first model reads it
    view: View  # of the first model

    def about(self) -> Json:
        """Returns the sentences and the curves, for JSON."""
        return {
            "name": self.name,
            "more": self.has_more,
            "rows": list(self.rows),
            "leaks": sum(row["leak"] is not None for row in self.rows),
            "orders": [o for o in ORDERS if any(row[o] is not None for row in self.rows)],
            "curves": list(self.curves),
        }

    def find(self, word: Any) -> Json:
        """Returns the numbers of the sentences with a word, and of the sentences it decides."""
        if not isinstance(word, str):
            raise ValueError(f"word must be a string, got {word!r:.40}")
        word = word.strip().lower()
        rows = [n for n, words in enumerate(self.words) if word in map(str.lower, words)]
        decided = self._decided([(number, word) for number in rows])
        return {"has": rows, "decided": [number for number, _ in decided]}

    def find_all(self) -> Json:
        """Returns for each word that decides a sentence the numbers of these sentences."""
        by_word: dict[str, list[int]] = {}
        for number, words in enumerate(self.words):
            different = dict.fromkeys(map(str.lower, words))
            for _, word in self._decided([(number, word) for word in different]):
                by_word.setdefault(word, []).append(number)
        return by_word

    def _decided(self, pairs: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """Returns the pairs (number, word) in which the word, in lower case, decides."""
        if not pairs:
            return []
        texts = [[token for token in self.words[n] if token.lower() != word] for n, word in pairs]
        places = self.view.probabilities(texts).argmax(1).tolist()
        return [
            (number, word)
            for (number, word), place in zip(pairs, places, strict=True)
            if self.view.classes[place] != self.rows[number]["predicted"]
        ]


def read_sentences(
    explorer: Explorer, table: Table, *, most: int = MOST, leaks: int = MOST_LEAKS
) -> Sentences:
    """Runs all models on labelled sentences."""
    # A sentence beyond the limit is read, to find out whether the file has more.
    pairs = list(itertools.islice(_usable(explorer, table), most + 1))
    has_more, pairs = len(pairs) > most, pairs[:most]
    classes = explorer.models[0].classes
    if not pairs:
        raise ValueError(
            f"{table.name} must have a sentence with a label of the model, got none: its labels "
            f"are {', '.join(map(repr, classes[:10]))}"
        )
    texts = [record.inputs[0] for record, _ in pairs]
    # The table shows the results of the first model.
    results = [
        view.results(texts, explorer.check_open, 0 if number else leaks)
        for number, view in enumerate(explorer.views)
    ]
    labels = np.array([places for _, places in pairs]).T.tolist()
    curves = [result.curve(right) for result, right in zip(results, labels, strict=True)]
    first = results[0]
    rows = [
        {
            "text": record.inputs[0],
            "label": str(record.label),
            "predicted": str(classes[int(np.argmax(first.probabilities[number]))]),
            "error": float(1 - first.probabilities[number, labels[0][number]]),
            "share": None if first.masks is None else float(first.masks[number].mean()),
            "leak": first.leaks[number] if number < len(first.leaks) else None,
        }
        for number, (record, _) in enumerate(pairs)
    ]
    view = explorer.views[0]
    words = [view.split(text)[: min(LONGEST, view.max_len)] for text in texts]
    return Sentences(table.name, has_more, rows, curves, words, view)


def first_sentence(explorer: Explorer, table: Table) -> Json | None:
    """Returns {"text", "label", "name"} of the first sentence with a label of the models."""
    try:
        record, _ = next(_usable(explorer, table))
    except (StopIteration, OSError, ValueError):
        return None  # `read_sentences` raises the error.
    return {"text": record.inputs[0], "label": str(record.label), "name": table.name}


def _usable(explorer: Explorer, table: Table) -> Iterator[tuple[Record, list[Any]]]:
    """Yields (record, positions of its label in the classes of the models)."""
    tables = [Classes("label", model.classes, accept_unknown=True) for model in explorer.models]
    for record in table:
        if not isinstance(record, Record) or record.label is None:
            continue
        if explorer.views[0].split(record.inputs[0]):
            places = [classes.place(record.label, record.where, record.line) for classes in tables]
            if -1 not in places:  # The curves of all models are of the same sentences.
                yield record, places


class Session:
    """A session of a page, which answers the messages of its script; see `ask`."""

    def __init__(
        self, explorer: Explorer, table: Table | None = None, leaks: int = MOST_LEAKS
    ) -> None:
        self._explorer, self._table, self._leaks = explorer, table, leaks
        self._found: Sentences | None = None
        self._failed: str | None = None
        self._warming: list[threading.Thread] = []
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def ask(self, message: Mapping[str, Any]) -> Json:
        """Answers a message of the page with the result of the method named by "do", as JSON."""
        do = message.get("do")
        answers = {
            "about": self._about,
            "answer": lambda: self._explorer.answer(message),
            "removal": lambda: self._explorer.removal(message),
            "layers": lambda: self._explorer.layers(message),
            "sentences": self._sentences,
            "word": lambda: self._find(message),
        }
        if not isinstance(do, str) or do not in answers:
            raise ValueError(
                f"do must be one of {', '.join(map(repr, answers))}, got {str(do)[:40]!r}"
            )
        return answers[do]()

    def warm_up(self) -> None:
        """Starts to compile the programs for short texts."""
        self._warming = self._explorer.warm_up()

    def close(self, seconds: float = -1) -> bool:
        """Closes the explorer and waits for its computations in the background."""
        closed = self._explorer.close(seconds)
        if self._thread is not None:
            # The thread ends soon, because it asks between batches whether the explorer is closed.
            self._thread.join(None if seconds < 0 else seconds)
        return closed and not (self._thread is not None and self._thread.is_alive())

    def _about(self) -> Json:
        table = self._table
        first = None if table is None else first_sentence(self._explorer, table)
        return {**self._explorer.about(), "sentences": table is not None, "first": first}

    def _find(self, message: Mapping[str, Any]) -> Json:
        if self._found is None:
            raise ValueError(
                "the sentences must be read before a word is looked up in them, got no sentences "
                "yet: ask for 'sentences' until they are ready"
            )
        self._explorer.check_open()
        return self._found.find(message.get("word"))

    def _sentences(self) -> Json:
        """Returns the answer to "sentences", and starts to read them at the first question."""
        if self._table is None:
            raise ValueError(
                "the explorer must be started with labelled sentences, got none: start it with "
                "--file test.csv"
            )
        # Two questions may come at the same time, and only the first may start the thread.
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, args=(self._table,), daemon=True)
                self._thread.start()
        if self._failed is not None:
            return {"ready": True, "failed": self._failed}
        if self._found is None:
            return {"ready": False}
        return {"ready": True, **self._found.about()}

    def _work(self, table: Table) -> None:
        # The sentence that the user types must not wait for the sentences of the file.
        for thread in self._warming:
            thread.join()
        try:
            self._found = read_sentences(self._explorer, table, leaks=self._leaks)
        except Exception as error:  # The page shows any error, because nobody else sees it.
            self._failed = str(error) or type(error).__name__
