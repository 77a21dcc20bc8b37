"""A trained reader out of a folder, and what it looks at in a question."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gatedjax import data as gdata
from gatedjax._utils.types import Json, Params, Tree
from gatedjax.data.batches._encode_cloze import wrapped
from gatedjax.data.sets import _cloze
from gatedjax.models import GAReader, GAReaderConfig, GAReaderTask
from gatedjax.text._folders import CHARACTERS, VOCABULARY, described, open_folder
from gatedjax.training.log import read_json


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a candidate occurs in a document, and how the reader weighs it."""

    candidate: int
    position: int
    weight: float
    """The last hop's attention, as a share of that to all places of candidates."""
    hops: tuple[np.ndarray, ...]
    """Per gating hop, the attention to every word of the query [Q]."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """One question under a trained reader."""

    example: Json
    candidates: tuple[str, ...]
    probabilities: np.ndarray
    """Of the candidates; 0 for one that does not occur."""
    places: tuple[Place, ...]
    """Of all candidates, in the order of candidates, then of the document."""
    query: tuple[str, ...]
    """Its words with the markers, as `Place.hops` counts them."""

    @property
    def predicted(self) -> int:
        """The most probable candidate."""
        return int(np.argmax(self.probabilities))


# compiled once for each network and shape, however often questions are read
@functools.partial(jax.jit, static_argnums=0)
def _forward(network: GAReader, params: Params, batch: Tree) -> Any:
    return network.apply({"params": params}, batch)


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """A trained reader: network, recorded options of its data, words, characters, parameters."""

    config: GAReaderConfig
    data: Json
    vocabulary: gdata.Vocabulary
    characters: gdata.Characters
    params: Params

    @classmethod
    def open(cls, folder: str | Path) -> "Reader":
        """Reads the best parameters of a run of the GA Reader, or of its export, and its words.

        Raises:
          FileNotFoundError, ValueError: for a folder that holds no such run.
        """
        folder = Path(folder)
        found = open_folder(folder, "cloze", VOCABULARY, CHARACTERS)
        with described(folder):
            settings = found.config["config"]
            vocabulary = gdata.Vocabulary.load(folder / VOCABULARY)
            alphabet = read_json(folder / CHARACTERS, "alphabet")["alphabet"]
            config, data = GAReaderConfig(**settings["model"]), settings["data"]
            reader = cls(config, data, vocabulary, gdata.Characters(alphabet), {})
            # a batch, for the shapes of the parameters
            batch: Tree = reader._batches(question("it", _cloze.PLACEHOLDER, ["it"]), 1)[0]
        task = GAReaderTask(reader._network())
        like = jax.eval_shape(lambda key: task.init(key, batch), jax.random.key(0))
        return dataclasses.replace(reader, params=found.params(like))

    def knowing(self, words: Sequence[str], vectors: str | Path | None = None) -> "Reader":
        """The reader with more words in its vocabulary: each gets a vector of its own.

        What the GloVe file lacks, or all without one, is drawn from the word as the vectors of
        unknown words were in training.
        """
        fold = str.lower if self.vocabulary.lowercase else str
        new = [w for w in dict.fromkeys(map(fold, words)) if w not in self.vocabulary]
        if not new:
            return self
        added = gdata.Vocabulary(new, lowercase=self.vocabulary.lowercase)
        dim, std = self.config.embedding_dim, self.data["oov_std"]
        if vectors is None:
            table = gdata.random_embeddings(added, dim, std=std)
        else:
            table = gdata.load_embeddings(vectors, added, dim=dim, oov_std=std).matrix
        embed = self.params["embed"]
        embed = {**embed, "table": np.concatenate([embed["table"], table[2:]])}
        words = [*self.vocabulary.words[2:], *new]
        return dataclasses.replace(
            self,
            vocabulary=gdata.Vocabulary(words, lowercase=self.vocabulary.lowercase),
            params={**self.params, "embed": embed},
        )

    def read(self, source: gdata.Source, *, batch_size: int = 8) -> list[Reading]:
        """Answers questions, in their order; unknown words are all the same one."""
        batches, network = self._batches(source, batch_size), self._network()
        readings: dict[int, Reading] = {}
        for step in range(len(batches)):
            output: Any = jax.device_get(_forward(network, self.params, batches[step]))
            for row, index in enumerate(batches.rows(step)):
                readings[int(index)] = reading_of(batches.encoded, int(index), output, row)
        return [readings[index] for index in range(len(source))]

    def _network(self) -> GAReader:
        letters = len(self.characters) if self.config.characters.char_dim else 0
        return GAReader(self.config, vocab_size=len(self.vocabulary), num_characters=letters)

    def _batches(self, source: gdata.Source, batch_size: int) -> gdata.ClozeBatches:
        encoded = gdata.encode_cloze(source, self.vocabulary, max_doc_len=self.data["max_doc_len"])
        spelling = (
            self.characters.table(self.vocabulary) if self.config.characters.char_dim else None
        )
        size = min(batch_size, len(encoded))
        return gdata.ClozeBatches.eval(encoded, batch_size=size, max_shapes=1, characters=spelling)


def question(document: str, query: str, candidates: Sequence[str]) -> gdata.Source:
    """A question of one's own: tokens between spaces, under the rules of the files of questions."""
    # there is no answer to check: any candidate stands for it
    answer = candidates[0] if candidates else "?"
    example = _cloze.example(_cloze.question(document, query, answer, candidates), 0)
    info = gdata.SourceInfo("answer", "test", _cloze.CLASSES)
    return gdata.Source([{**example, "label": -1}], info)


def reading_of(encoded: gdata.EncodedCloze, index: int, output: Any, row: int) -> Reading:
    """What the output of a network says of one question: a row of its batch."""
    example = encoded.example(index)
    names = tuple(" ".join(candidate) for candidate in example["candidates"])
    query, where = wrapped(example), encoded.occurrences[index]
    attention = output.document_attention[row]
    # a token that two candidates share counts once
    total = float(attention[np.unique(where[:, 1])].sum()) or 1.0
    # one view for all tokens has no words of the query to show
    hops = [hop[row, :, : len(query)] for hop in output.attention if hop.shape[-1] >= len(query)]
    places = tuple(
        Place(int(candidate), int(at), float(attention[at]) / total, tuple(hop[at] for hop in hops))
        for candidate, at in where
    )
    return Reading(example, names, np.exp(output.logits[row, : len(names)]), places, query)
