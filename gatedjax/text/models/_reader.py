"""A trained reader from a folder, its answers, and a heat map of its attention."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax._utils.run_files import read_json
from gatedjax._utils.types import Json, Params, Tree
from gatedjax.data.batches._encode import add_markers, find_phrase
from gatedjax.data.sets import _cloze
from gatedjax.export._tensors import check_outputs
from gatedjax.models import GAReader, GAReaderConfig, GAReaderTask
from gatedjax.text.models._folders import CHARACTERS, VOCABULARY, explain_faults, open_folder

_ROWS = 8  # questions in a batch


@dataclasses.dataclass(frozen=True)
class Place:
    """An occurrence of a candidate in a document, and the attention to it in each hop (layer)."""

    candidate: int  # its number
    position: int  # of the word in the document, from 0
    weight: float  # attention of the last hop, as a share of that to all places of candidates
    hops: tuple[np.ndarray, ...]  # for each gating hop [Q], the attention to the words of the query


@dataclasses.dataclass(frozen=True)
class Reading:
    """The answer of a trained reader to a question."""

    example: Json  # the question as a data set has it
    candidates: tuple[str, ...]
    probabilities: np.ndarray  # of each candidate; 0 for one that does not occur
    places: tuple[Place, ...]  # of all candidates, sorted by candidate, then by position
    query: tuple[str, ...]  # words with the markers; `Place.hops` has an entry for each

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of times that each candidate occurs as a whole in the part that was read."""
        tokens = self.example["tokens"]
        read = {(place.candidate, place.position) for place in self.places}
        return tuple(
            sum((i, start + len(candidate) - 1) in read for start in find_phrase(tokens, candidate))
            for i, candidate in enumerate(self.example["candidates"])
        )

    @property
    def best(self) -> int:
        """The position in `candidates`, from 0, of the most probable candidate."""
        return int(np.argmax(self.probabilities))


# A function of the module, so that it is compiled only once for each network and shape.
@functools.partial(jax.jit, static_argnums=0)
def _forward(network: GAReader, params: Params, batch: Tree) -> Any:
    return network.apply({"params": params}, batch)


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """A trained reader of documents with its vocabulary."""

    config: GAReaderConfig
    data: Json  # the options of the run's data, by name
    vocabulary: gdata.Vocabulary
    characters: gdata.Characters  # maps characters to ids
    params: Params

    @classmethod
    def open(cls, folder: str | Path) -> "Reader":
        """Opens a run of the GA Reader, or its export, with its best parameters."""
        folder = Path(folder)
        run_folder = open_folder(folder, "cloze", VOCABULARY, CHARACTERS)
        with explain_faults(folder):
            settings = run_folder.config["config"]
            vocabulary = gdata.Vocabulary.load(folder / VOCABULARY)
            alphabet = read_json(folder / CHARACTERS, "alphabet")["alphabet"]
            config, data = GAReaderConfig(**settings["model"]), settings["data"]
            reader = cls(config, data, vocabulary, gdata.Characters(alphabet), {})
            # The shapes of the parameters follow from a batch.
            batch: Tree = reader._batches(question("it", _cloze.PLACEHOLDER, ["it"]))[0]
        task = GAReaderTask(reader._network())
        like = jax.eval_shape(lambda key: task.init(key, batch), jax.random.key(0))
        return dataclasses.replace(reader, params=run_folder.params(like))

    def with_words(self, words: Sequence[str], vectors: str | Path | None = None) -> "Reader":
        """Returns a reader with more words; a word without a vector gets its random vector."""
        lowercase = self.vocabulary.lowercase
        folded = dict.fromkeys(word.lower() if lowercase else word for word in words)
        new = [word for word in folded if word not in self.vocabulary]
        if not new:
            return self
        added = gdata.Vocabulary(new, lowercase=lowercase)
        dim, std = self.config.embedding_dim, self.data["oov_std"]
        if vectors is None:
            table = gdata.random_embeddings(added, dim, std=std)
        else:
            table = gdata.load_embeddings(vectors, added, dim=dim, oov_std=std).matrix
        embed = self.params["embed"]
        # The first two rows belong to the special words, which the reader has already.
        embed = {**embed, "embedding": np.concatenate([embed["embedding"], table[2:]])}
        vocabulary = gdata.Vocabulary([*self.vocabulary.words[2:], *new], lowercase=lowercase)
        params = {**self.params, "embed": embed}
        return dataclasses.replace(self, vocabulary=vocabulary, params=params)

    def answer_questions(
        self, source: gdata.Source, *, whole_candidates: bool = False
    ) -> list[Reading]:
        """Answers the questions of a data set; all unknown words have the same vector. With
        `whole_candidates` a candidate of several words counts only where it occurs as a whole,
        otherwise each of its words, as in training.
        """
        batches = self._batches(source, whole_candidates=whole_candidates)
        readings: dict[int, Reading] = {}
        for step in range(len(batches)):
            output: Any = jax.device_get(_forward(self._network(), self.params, batches[step]))
            for row, index in enumerate(map(int, batches.rows(step))):
                readings[index] = reading_of(batches.encoded, index, output, row)
                check_outputs([readings[index].probabilities], self.params)
        return [readings[index] for index in range(len(source))]

    def _network(self) -> GAReader:
        # A run without vectors of characters has no parameters for letters.
        letters = len(self.characters) if self.config.characters.char_dim else 0
        return GAReader(self.config, vocab_size=len(self.vocabulary), num_characters=letters)

    def _batches(
        self, source: gdata.Source, *, whole_candidates: bool = False
    ) -> gdata.ClozeBatches:
        # All batches have a single shape, because each shape costs a compilation.
        longest, has_letters = self.data["max_doc_len"], self.config.characters.char_dim
        encoded = gdata.encode_cloze(
            source, self.vocabulary, max_doc_len=longest, whole_candidates=whole_candidates
        )
        spelling = self.characters.table(self.vocabulary) if has_letters else None
        size = min(_ROWS, len(encoded))
        return gdata.ClozeBatches.eval(encoded, batch_size=size, max_shapes=1, characters=spelling)


def question(document: str, query: str, candidates: Sequence[str]) -> gdata.Source:
    """Makes a data set with a single question of texts of tokens with spaces between them."""
    # The format needs an answer; it has no effect, so the first candidate is used.
    answer = candidates[0] if candidates else "?"
    example = _cloze.example(_cloze.question(document, query, answer, candidates), 0)
    info = gdata.SourceInfo("answer", "test", _cloze.CLASSES)
    return gdata.Source([{**example, "label": -1}], info)


def reading_of(encoded: gdata.EncodedCloze, index: int, output: Any, row: int) -> Reading:
    """Extracts the answer to a question from the output of the network."""
    example = encoded.example(index)
    names = tuple(" ".join(candidate) for candidate in example["candidates"])
    query, where = add_markers(example), encoded.occurrences[index]
    attention = output.document_attention[row]
    # A token that two candidates share must count only once.
    total = float(attention[np.unique(where[:, 1])].sum()) or 1.0
    # A hop with a single view for all tokens has no attention to the words of the query.
    hops = [hop[row, :, : len(query)] for hop in output.attention if hop.shape[-1] >= len(query)]
    places = tuple(
        Place(int(candidate), int(at), float(attention[at]) / total, tuple(hop[at] for hop in hops))
        for candidate, at in where
    )
    return Reading(example, names, np.exp(output.logits[row, : len(names)]), places, query)


MOST_ROWS = 24
"""Largest number of rows in a heat map; the places with the smallest weights are left out."""


def shown_places(places: Sequence[Place]) -> list[Place]:
    """Returns the 24 places with the largest attention, sorted by candidate and position."""
    heaviest = sorted(places, key=lambda place: -place.weight)[:MOST_ROWS]
    return sorted(heaviest, key=lambda place: (place.candidate, place.position))


def draw(reading: Reading, stem: Path, title: str) -> None:
    """Draws the attention of all hops (layers of the reader) at the places of the candidates, in
    the files `stem` with .png and .svg. A candidate must occur in the document.
    """
    places = shown_places(reading.places)
    panels = [
        analysis.GridPanel(f"hop {k + 1}", [place.hops[k] for place in places])
        for k in range(len(places[0].hops))
    ]
    left_out = len(reading.places) - len(places)
    note = f" ({left_out} places with less weight not shown)" if left_out else ""
    analysis.plot_attention_grid(
        [f"{reading.candidates[p.candidate]} · {p.position + 1}" for p in places],
        reading.query,
        panels,
        [place.weight for place in places],
        stem,
        title + note,
        groups=[place.candidate for place in places],
        marked=[place.candidate == reading.example["label"] for place in places],
        final_name="last hop",
    )
