"""The view of a reader: its answer to a question, and the attention to the document."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from gatedjax._utils.types import Output, Params, Tree
from gatedjax.data.batches._cloze import ClozeBatches, ClozeShape
from gatedjax.data.batches._encode import add_markers, encode_cloze, find_phrase
from gatedjax.data.sets._cloze import PLACEHOLDER
from gatedjax.data.text._tokenize import treebank_tokens
from gatedjax.data.text._vocabulary import Vocabulary
from gatedjax.explore import _views
from gatedjax.explore._state import State
from gatedjax.models import GAReader
from gatedjax.text.models._buckets import COARSE, width_of
from gatedjax.text.models._reader import Reader, Reading, question, reading_of

QUESTION_EDGES = (32, 128)
"""Padded lengths of a question with its two markers; a longer question is refused."""
CANDIDATE_EDGES = (16, 128)
"""Padded numbers of candidates; more are refused."""


class ReaderView(_views.View):
    """The view of a `Reader`, which answers a question about a document with a candidate."""

    network = "a gated-attention reader"
    title = "Which words of the document does the answer rest on?"
    fields = (
        {"name": "text", "label": "Document", "empty": "Paste a document"},
        {
            "name": "question",
            "label": "Question",
            "empty": "A sentence with @placeholder (or XXXXX) where the answer belongs",
        },
        {"name": "candidates", "label": "Candidates, one on each line", "empty": "Anna"},
    )
    layered = False

    def __init__(self, reader: Reader, name: str, *, tokenized: bool = False) -> None:
        super().__init__(name)
        self._reader = reader
        self._split: Callable[[str], list[str]] = str.split if tokenized else treebank_tokens
        self.max_len = min(_views.LONGEST, reader.data["max_doc_len"] or _views.LONGEST)
        self._asking = functools.lru_cache(_views.KEPT)(self._ask)

    @functools.cached_property
    def _program(self) -> Any:
        """A compiled function of (params, batch) that returns the output of the GA Reader."""
        config = self._reader.config
        letters = len(self._reader.characters) if config.characters.char_dim else 0

        def run(params: Params, batch: Tree) -> Tree:
            # The table has another size for each padded length, so the network is built for its
            # size.
            rows = params["embed"]["embedding"].shape[0]
            network = GAReader(config, vocab_size=rows, num_characters=letters)
            return network.apply({"params": params}, batch)

        return jax.jit(run)

    def example(self) -> dict[str, str]:
        words = _views.example_words(self._reader.vocabulary.words)
        if len(words) < 3:
            return {}
        return {
            "text": " ".join([*words, *reversed(words)]),
            "question": f"{PLACEHOLDER} {words[1]} {words[2]}",
            "candidates": f"{words[0]}\n{words[-1]}",
        }

    def _ask(
        self, document: tuple[str, ...], query_words: tuple[str, ...], candidates: tuple[str, ...]
    ) -> tuple[Reading, np.ndarray, list[np.ndarray]]:
        """Returns the `Reading`, the last hop's attention [N], and [N, Q] of each gating hop."""
        source = question(" ".join(document), " ".join(query_words), candidates)
        query = add_markers(source[0])
        wide = width_of(len(document), _views.LONGEST, COARSE)
        long = width_of(len(query), QUESTION_EDGES[-1], QUESTION_EDGES)
        shape = ClozeShape(
            document=wide,
            query=long,
            candidates=width_of(len(candidates), CANDIDATE_EDGES[-1], CANDIDATE_EDGES),
            # The occurrences fit into a mask, so that no positions are listed.
            positions=1,
            # All tokens of the document and of the question may be different words.
            words=wide + long,
        )
        vocabulary, params = self._build_table((*document, *query), shape.words + 2)
        encoded = encode_cloze(source, vocabulary, whole_candidates=True)
        spelling = None
        if self._reader.config.characters.char_dim:
            spelling = self._reader.characters.table(vocabulary)
        batches = ClozeBatches.eval(encoded, batch_size=1, shapes=[shape], characters=spelling)
        with self._lock:
            output: Output = jax.device_get(self._program(params, batches[0]))
        # A hop with a single view for all tokens has no attention to the words of the question.
        hops = [
            hop[0, : len(document), : len(query)] for hop in output.attention if hop.shape[-1] > 1
        ]
        reading = reading_of(encoded, 0, output, 0)
        return reading, output.document_attention[0, : len(document)], hops

    def _build_table(self, words: Sequence[str], rows: int) -> tuple[Vocabulary, Params]:
        """Returns a small vocabulary and table, so that new words need no compilation."""
        reader = self._reader
        vectors, lowercase = reader.params["embed"]["embedding"], reader.vocabulary.lowercase
        fold = str.lower if lowercase else str
        have = [word for word in dict.fromkeys(map(fold, words)) if word in reader.vocabulary]
        vocabulary = Vocabulary(have, lowercase=lowercase)
        ids = [0, 1, *reader.vocabulary.encode(have)]
        # Only the vectors of these words are copied, because the whole table may have gigabytes.
        embed = {**reader.params["embed"], "embedding": vectors[np.array(ids)]}
        params = {**reader.params, "embed": embed}
        small = dataclasses.replace(reader, vocabulary=vocabulary, params=params).with_words(words)
        table = small.params["embed"]["embedding"]
        filled = np.zeros((rows, table.shape[1]), table.dtype)
        filled[: len(table)] = table
        embed = {**small.params["embed"], "embedding": filled}
        return small.vocabulary, {**small.params, "embed": embed}

    def answer(self, state: State) -> _views.Found:
        words = tuple(self.split(state.text))
        query = tuple(self._split(state.question.replace("XXXXX", PLACEHOLDER)))
        names = [" ".join(self._split(text)) for text in state.candidates.splitlines()]
        candidates = tuple(dict.fromkeys(name for name in names if name))
        document = words[: self.max_len]
        notes = _views.describe_cut("The document", len(words), len(document))
        wrong = self._find_fault(document, query, candidates)
        if wrong:
            return [*notes, wrong], None
        reading, last, hops = self._asking(document, query, candidates)
        places = {place.position for place in reading.places}
        is_candidate = [place in places for place in range(len(document))]
        is_known = [word in self._reader.vocabulary for word in document]
        draw = functools.partial(
            _views.line, tokens=document, is_known=is_known, marked=is_candidate
        )
        lines = [
            draw(
                f"Hop {number}",
                of=list(reading.query),
                values=[_views.floats(column.round(4)) for column in hop.T],
                uniform=1 / len(reading.query),
            )
            for number, hop in enumerate(hops, 1)
        ]
        note = "What decides: the attention of the question to the document."
        values = _views.floats(last.round(6))
        lines.append(draw("Last hop", values=values, uniform=1 / len(document), note=note))
        best = reading.best
        return notes, _views.make_answer(
            candidates[best],
            lines,
            share=float(reading.probabilities[best]),
            head="Candidate",
            classes=list(candidates),
            probabilities=_views.floats(reading.probabilities),
            details=[f"{n} \u00d7" if n else "not in the document" for n in reading.counts],
            note="Words with a frame belong to a candidate.",
        )

    def _find_fault(
        self, document: tuple[str, ...], query: tuple[str, ...], candidates: tuple[str, ...]
    ) -> str:
        """Returns a note for the user about missing or unsuitable input, or ""."""
        if not document:
            return "No document yet: paste one."
        if not query:
            return "No question yet: type one, with @placeholder where the answer belongs."
        if PLACEHOLDER not in query:
            return "The question has no @placeholder (or XXXXX) where the answer belongs."
        if len(query) > QUESTION_EDGES[-1] - 2:
            return f"A question has at most {QUESTION_EDGES[-1] - 2} words here, not {len(query)}."
        if not candidates:
            return "No candidate yet: type them, one on each line."
        if len(candidates) > CANDIDATE_EDGES[-1]:
            return f"There are at most {CANDIDATE_EDGES[-1]} candidates, not {len(candidates)}."
        if not any(find_phrase(document, candidate.split(" ")) for candidate in candidates):
            return (
                "None of the candidates occurs in the document: a candidate must occur as a whole, "
                "letter by letter."
            )
        return ""

    def split(self, text: str) -> Sequence[str]:
        return self._split(" ".join(text.split()))

    def warm_up(self, closed: Callable[[], bool]) -> None:
        # A document is rarely as short as the smallest padded length.
        for edge in COARSE[1:3]:
            if not closed():
                self._asking(("a",) * edge, (PLACEHOLDER,), ("a",))
