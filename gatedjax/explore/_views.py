"""Views of the networks that read or write several texts: pairs, readers and translators.

A view answers the state of a page (see `Explorer.answer`) in a form that a single panel shows:

    {"title", "share", "head", "classes", "probabilities", "details", "lines"}

"lines" are texts with a number for each word, "values" [T]; if "of" has Q words, "values" is
[Q, T], with a list for each of them. Numbers for pairs of words are grids from `View.layers`.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from gatedjax import functional as F
from gatedjax._utils.types import Json, Output, Params, Tree
from gatedjax.data.batches._cloze import ClozeBatches, ClozeShape
from gatedjax.data.batches._encode_cloze import add_markers, encode_cloze
from gatedjax.data.sets._cloze import PLACEHOLDER
from gatedjax.data.text._tokenize import treebank_tokens
from gatedjax.data.text._vocabulary import Vocabulary
from gatedjax.explore._example import example_text, example_words
from gatedjax.explore._removal import summarize_effects
from gatedjax.explore._state import State
from gatedjax.models import GAReader
from gatedjax.models.ssan.translation import STOP, UNK
from gatedjax.text._buckets import COARSE, pad_texts, width_of
from gatedjax.text._model import TrainedModel
from gatedjax.text._reader import Reader, Reading, question, reading_of
from gatedjax.text._translator import Translator, encode

LONGEST = 1000
"""Largest number of words of a text that are shown; a model may read fewer."""
PAIR_EFFECTS = 64
"""Largest number of words of each text of a pair with effects."""
MOST_CLASSES = 10
"""Largest number of classes in a table of probabilities."""
PAIRED = 40
"""Largest number of words in a grid of pairs."""
QUESTION_EDGES = (32, 128)
"""Padded lengths of a question with its two markers; a longer question is refused."""
CANDIDATE_EDGES = (16, 128)
"""Padded numbers of candidates; more are refused."""
PIECES = 256
"""Largest number of pieces, including the end, of a sentence; a longer sentence is refused."""
# The mark of a space at the start of a piece, and the name of the stop token in grids.
SPACE, END = "\u2581", "</s>"
# Results of texts that stay in memory, for the grids and effects that the page asks for next.
_KEPT = 16

Field = dict[str, Any]
Found = tuple[list[str], Json | None]
"""Notes for the user, and the answer, or None if there is no answer."""


class View:
    """The base class of the views of a model, which compute the content of the page.

    Several threads may call a view; a lock lets one of them compute at a time.

    Attributes:
      network: a description of the network.
      fields: the input fields, each a dict of texts: "name", its field of `State`; "label"; and
        "empty", the text that is shown in an empty field. With "options", a list of names, the
        user chooses among them, and the field of the state has the position in the list, from 0.
      layered: True if `layers` returns grids, dicts with a number for each pair of words.
      weighed: True if `effects` returns the effects of words.
      max_len: the largest number of words that the model reads.
      classes: the names of the classes of a classifier; () for other models.
    """

    network: str
    fields: tuple[Field, ...]
    title = "Which words does the prediction rest on?"
    """The title of the page, which states its purpose."""
    layered = True
    """True if `layers` returns grids."""
    weighed = False
    """True if `effects` returns the effects of words."""
    max_len = LONGEST
    """Largest number of words that the model reads."""
    classes: Sequence[str] = ()

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def about(self, name: str) -> Json:
        """Returns the constants of the model for the page, for JSON.

        Keys: "name", the given name of the model; "network", a description; "gated", False;
        "layers", True if `layers` returns grids; "weighed", True if `effects` returns the
        effects of words; "pairs", False; "classes", the names of the classes; and "max_len", the
        largest number of words.
        """
        return {
            "name": name,
            "network": self.network,
            "gated": False,
            "layers": self.layered,
            "weighed": self.weighed,
            "pairs": False,
            "classes": list(self.classes),
            "max_len": self.max_len,
        }

    def example(self) -> dict[str, str]:
        """Returns the texts with which the page opens.

        They are a dict from names of fields of `State`, such as "text" and "hypothesis", to texts.
        """
        return {}

    def answer(self, state: State) -> Found:
        """Computes the answer to a state of the page.

        Returns (notes, answer). The notes are a list of sentences for the user. The answer is None
        if there is no answer, else a dict for JSON: "title", the predicted class, candidate or
        translation; "share", its probability or None; "head", the title of the table of classes;
        "classes" and "probabilities", lists for this table; "details", a text for each class, or
        None; "note", a remark; and "lines", a list of dicts that `line` makes, each with the words
        of a text ("tokens") and perhaps numbers for them ("values").

        An answer may also have "order", the positions of the classes in the order of the table
        (default: by falling probability), of which the first 10 (`MOST_CLASSES`) are shown; "best",
        the positions of the predicted classes (default: the first of the order); "details_head",
        the title of the details; "exclusive", False if the probabilities do not sum to 1; "choice",
        the question for the entry of "of" whose numbers are shown; "chosen", the entry at first;
        and "signs", the meaning of positive and negative numbers, a list of two texts (default: a
        word speaks for or against a class).
        """
        raise NotImplementedError

    def layers(self, state: State) -> list[Json] | None:
        """Returns the attention in the layers for a state, a `grid` per head, for JSON.

        A grid is a dict with the words of its rows and columns ("rows", "columns"), and a number
        for each pair of them ("pairs"). The result is None if the model has no layers or there is
        no answer.
        """
        raise NotImplementedError

    def effects(self, state: State) -> Json | None:
        """Computes the effect of each word of a state: the change without the word.

        Returns {"class", "lines"}: the position of the predicted class, and for each line of the
        answer a list with the effect of each word on the probability p of this class, p(with the
        word) - p(without it). The result is None if there are no effects.
        """
        return None

    def warm_up(self, closed: Callable[[], bool]) -> None:
        """Compiles the programs for short texts.

        `closed` returns True when the explorer has been closed; no further program is then
        compiled.
        """

    def close(self, seconds: float) -> bool:
        """Waits for a running computation to end, and lets none start again.

        It acquires the lock and never releases it. `seconds` is the largest time to wait, -1 for no
        limit. Returns True if the lock was acquired.
        """
        return self._lock.acquire(timeout=seconds)


def floats(values: np.ndarray | None) -> list[float] | None:
    """Converts the array `values` [n] to a list of Python floats for JSON; None stays None."""
    return None if values is None else [float(value) for value in values]


def grids(name: str, selection: Any, rows: Sequence[str], note: str = "") -> list[Json]:
    """Makes a grid for each head of an attention layer, without padding.

    Args:
      name: name of the layer.
      selection: the output of the layer for a text padded to T' words, with the fields `weights`
        [1, heads, T', T'], the attention, and `gates`, of the same shape or with a head dimension
        of 1, True at selected pairs; a field may be None.
      rows: the T words of the text.
      note: a note below the grid.

    Returns:
      The list of the grids, dicts for JSON that `grid` makes, with "pairs" [T, T]; [] if the
      layer has no weights.
    """
    weights, gates = selection.weights, selection.gates
    results = []
    for head in range(0 if weights is None else weights.shape[1]):
        # If all heads share their gates, the axis of heads has size 1.
        is_selected = None if gates is None else gates[0, head % gates.shape[1]] > 0.5
        results.append(
            grid(f"{name}, head {head + 1}", weights[0, head], rows, rows, is_selected, note=note)
        )
    return results


def grid(
    name: str,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    is_selected: np.ndarray | None = None,
    *,
    note: str = "",
) -> Json:
    """Makes a grid of numbers for pairs of words, for the first 40 (`PAIRED`) words of both axes.

    Args:
      name: title of the grid.
      values: [R, C], the numbers.
      rows: the R words of the rows.
      columns: the C words of the columns.
      is_selected: bool [R, C], True at selected pairs, or None.
      note: a note below the grid.

    Returns:
      A dict for JSON: "name", the title; "note"; "rows" and "columns", the words of each axis;
      "cut", True if words are left out; "uniform", the weight 1 / C of each column if all were
      equal; "pairs", a list of numbers per row; and "selected", a list of bools per row, or None.
    """
    # The number of cells grows with the square of the words, and a browser becomes slow with too
    # many.
    high, wide = min(len(rows), PAIRED), min(len(columns), PAIRED)
    # Four digits are enough for a colour, and keep the answer small.
    cut = values[:high, :wide].round(4)
    return {
        "name": name,
        "note": note,
        "rows": list(rows[:high]),
        "columns": list(columns[:wide]),
        "cut": len(rows) > high or len(columns) > wide,
        "uniform": 1 / len(columns),
        "pairs": [floats(row) for row in cut],
        "selected": None
        if is_selected is None
        else [[bool(value) for value in row] for row in is_selected[:high, :wide]],
    }


def line(name: str, tokens: Sequence[str], is_known: Sequence[bool], **entries: Any) -> Json:
    """Makes a line of an answer: a text with a number for each word.

    Args:
      name: title of the line.
      tokens: the T words.
      is_known: for each word True if the vocabulary has it.
      **entries: further entries: "values" [T] or [Q, T], the numbers; "of", the Q words that the
        rows of [Q, T] belong to; "kept" [T], True at words that are emphasised; "uniform", the
        number of each word if all were equal; "note", a text. Missing entries are None, and "" for
        "note". For signed shares also "effects", True; "noun", "share"; "strong", the number with
        the strongest colour; "decimals", the number of decimals (default 3); "totals", a sentence
        for each of the Q words, or a single one; "rule", a sentence that follows it; and "gates"
        [T], True at open gates.

    Returns:
      A dict for JSON: "name", "tokens", "known" and the entries.
    """
    empty: Json = {"values": None, "of": None, "kept": None, "uniform": None, "note": ""}
    return {"name": name, "tokens": list(tokens), "known": list(is_known), **empty, **entries}


class PairView(View):
    """The view of a classifier of pairs of texts.

    Args:
      model: the classifier, a `TrainedModel`.

    Attributes:
      network: a description of the network.
      fields: the input fields, each a dict of texts: "name", its field of `State`; "label"; and
        "empty", the text that is shown in an empty field.
      classes: the names of the classes.
      layered: True if `layers` returns grids, dicts with a number for each pair of words.
      max_len: the largest number of words that the model reads.
    """

    fields = (
        {"name": "text", "label": "First text", "empty": "Type a sentence (a premise)"},
        {"name": "hypothesis", "label": "Second text", "empty": "Type another (a hypothesis)"},
    )
    weighed = True

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self._model, self.network, self.max_len = model, model.entry.about, model.max_len
        self.classes = [str(label) for label in model.classes]
        # The parameters are moved once, because each call would otherwise copy them to the device.
        self._params = jax.device_put(model.params)
        self._reading = functools.lru_cache(_KEPT)(self._run_texts)
        self._removing = functools.lru_cache(_KEPT)(self._run_removed)

    def effects(self, state: State) -> Json | None:
        """Computes the effect of each word of the two texts of a state on the predicted class.

        The network runs again without the word, in a batch of all words. Returns {"class",
        "lines"}: the position of the predicted class, and for each text a list with the effect of
        each word on its probability p, p(with the word) - p(without it). None if a text has fewer
        than two words, or more than 64 (`PAIR_EFFECTS`).
        """
        _, texts = self._texts(state)
        if not all(2 <= len(words) <= PAIR_EFFECTS for words in texts):
            return None
        probabilities, *_ = self._reading(texts)
        result = summarize_effects(probabilities[0], self._removing(texts))
        count, effects = len(texts[0]), result["effects"]
        return {"class": result["class"], "lines": [effects[:count], effects[count:]]}

    def _run_removed(self, texts: tuple[tuple[str, ...], ...]) -> np.ndarray:
        """Computes the probabilities [T, C] of C classes for a pair without each of its T words.

        `texts` are the words of both texts; the T words are first the words of the first text, then
        the words of the second.
        """
        first, second = map(self._model.ids, texts)
        pairs = [(np.delete(first, place), second) for place in range(len(first))]
        pairs += [(first, np.delete(second, place)) for place in range(len(second))]
        edge = width_of(max(map(len, texts)), PAIR_EFFECTS, COARSE)
        # The number of rows depends only on the padded length, and so does the program.
        with self._lock:
            outputs = self._model.run(pad_texts(pairs, (2 * edge, edge)))
        probabilities: np.ndarray = outputs["probabilities"][: len(pairs)]
        return probabilities

    @functools.cached_property
    def _program(self) -> Any:
        """A compiled function of (params, batch) for a pair.

        `batch` has B pairs: the first texts in "tokens" [B, T] and "lengths" [B], the second in
        "hypothesis" [B, T] and "hypothesis_lengths" [B]. The function returns the probabilities [B,
        C] of C classes; a tuple with the mask of the open words, a bool [B, T], of each text of T
        words; the density [B], the share of selected pairs of words; and the outputs of the
        attention layer for both texts, with the fields `weights` and `gates`.
        """

        def run(params: Params, batch: Tree) -> Tree:
            output: Output = self._model.module.apply({"params": params}, batch)
            reading = self._model.entry.summarize(output, batch)
            both = output.premise, output.hypothesis
            return jax.nn.softmax(output.logits), reading["kept"], reading["density"], both

        return jax.jit(run)

    def _run_texts(self, texts: tuple[tuple[str, ...], ...]) -> Any:
        """Runs `_program` on a pair, given as the words of both texts.

        Returns its four outputs for a batch of one pair, as NumPy arrays: the probabilities [1, C]
        of C classes; the mask of the open words, a bool [1, T] for each text of T words with
        padding; the density [1], the share of selected pairs of words; and the outputs of the
        attention layer.
        """
        # Both texts are padded to the same width, so that there is one program for each width and
        # not for each pair of widths.
        edge = width_of(max(map(len, texts)), min(LONGEST, self.max_len), COARSE)
        batch = self._model.batch([texts], edge)
        with self._lock:
            return jax.device_get(self._program(self._params, batch))

    def example(self) -> dict[str, str]:
        """Returns {"text", "hypothesis"}: two texts of frequent words of the vocabulary."""
        words = example_words(self._model.vocabulary.words)
        return {"text": " ".join(words), "hypothesis": " ".join(words[: len(words) // 2])}

    def _texts(self, state: State) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
        """Returns (notes, words of both texts) of a state.

        The notes are sentences for the user about a text that is empty or too long. The words are a
        tuple of two tuples of strings, cut after the words that are read.
        """
        notes, most = [], min(LONGEST, self.max_len)
        texts = [self._model.tokenizer.split(text) for text in (state.text, state.hypothesis)]
        for number, words in zip(("first", "second"), texts, strict=True):
            if not words:
                notes.append(f"The {number} text has no word yet.")
            if len(words) > most:
                notes.append(
                    f"The {number} text has {len(words):,} words; the first {most:,} are read."
                )
        return notes, tuple(words[:most] for words in texts)

    def answer(self, state: State) -> Found:
        """Computes the class of the pair of texts in a state.

        Returns (notes, answer): a list of sentences for the user, and a dict for JSON with the keys
        of `View.answer`, or None if a text has no word. They include "title" (the predicted class),
        "share" (its probability), "classes" with "probabilities", and "lines", with a dict that
        `line` makes for each text, with its selected words if the model has a selector.
        """
        notes, texts = self._texts(state)
        if not all(texts):
            return notes, None
        probabilities, masks, density, both = self._reading(texts)
        selects = both[0].gates is not None
        lines = []
        for name, words, mask in zip(("First text", "Second text"), texts, masks, strict=True):
            is_selected = [bool(flag) for flag in mask[0, : len(words)]]
            note = f"{sum(is_selected)} of {len(words)} words are selected by most words."
            is_known = [word in self._model.vocabulary for word in words]
            entries: Json = {"kept": is_selected, "note": note} if selects else {}
            lines.append(line(name, words, is_known, **entries))
        share = f"{density[0]:.3f} of the pairs of words are selected, over both texts."
        best = int(np.argmax(probabilities[0]))
        return notes, {
            "title": self.classes[best],
            "share": float(probabilities[0, best]),
            "head": "Class",
            "classes": self.classes,
            "probabilities": floats(probabilities[0]),
            "details": None,
            "note": share if selects else "The model has no selector: words attend to all words.",
            "lines": lines,
        }

    def layers(self, state: State) -> list[Json] | None:
        """Computes a grid for each of the two texts and each head: the weights of its words.

        Returns the grids, a list of dicts for JSON that `grid` makes, with the words of the "rows"
        and "columns" and a number for each pair of them in "pairs"; None if a text has no word.
        """
        _, texts = self._texts(state)
        if not all(texts):
            return None
        *_, both = self._reading(texts)
        note = "A row is a word, and what it attends to within its text."
        sides = zip(("First text", "Second text"), both, texts, strict=True)
        return [
            result
            for name, selection, words in sides
            for result in grids(name, selection, words, note)
        ]

    def warm_up(self, closed: Callable[[], bool]) -> None:
        """Compiles the programs for short texts.

        `closed` returns True when the explorer has been closed; no further program is then
        compiled.
        """
        # Short texts come first when a user begins to type, and their programs are quick to
        # compile.
        for edge in COARSE[:2]:
            if not closed():
                self._reading((("a",) * edge, ("a",)))


class ReaderView(View):
    """The view of a `Reader`, which answers a question about a document with one of the candidates.

    Each question gets a table with the vectors of its words. The size of the table depends only on
    the padded lengths, so that new words need no compilation. Out-of-vocabulary words get the
    vectors of `Reader.with_words`.

    Args:
      reader: the trained reader.
      tokenized: True if the texts are already tokens with spaces between them.

    Attributes:
      network: a description of the network.
      fields: the input fields, each a dict of texts: "name", its field of `State`; "label"; and
        "empty", the text that is shown in an empty field.
      layered: False, because `layers` returns None.
      max_len: the largest number of words that the model reads.
    """

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

    def __init__(self, reader: Reader, *, tokenized: bool = False) -> None:
        super().__init__()
        self._reader = reader
        self._split: Callable[[str], list[str]] = str.split if tokenized else treebank_tokens
        self.max_len = min(LONGEST, reader.data["max_doc_len"] or LONGEST)
        self._asking = functools.lru_cache(_KEPT)(self._ask)

    @functools.cached_property
    def _program(self) -> Any:
        """A compiled function of (params, batch) that returns the output of the GA Reader.

        `batch` is a batch of `ClozeBatches` with a single question: padded ids of the document and
        the query, their lengths, and the occurrences of the candidates. The output is a
        `GAReaderOutput` with log-probabilities of the candidates ("logits"), the attention to the
        words of the query in each layer but the last, and that of the last layer to the document.
        """
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
        """Returns {"text", "question", "candidates"}, texts of words of the vocabulary.

        "text" is the document, and "candidates" has a candidate on each line. The result is {} if
        the vocabulary has fewer than three words.
        """
        words = example_words(self._reader.vocabulary.words)
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
        """Runs the reader on a document of N words and a query of Q words.

        `document` and `query_words` are the words; Q counts the two markers that are added to the
        query. Each of `candidates` is a possible answer. A hop is a layer of the reader, and a
        gating hop attends from each word of the document to the words of the query. Returns (the
        `Reading` with the probabilities of the candidates, the attention [N] of the last hop to the
        document, a list with the attention [N, Q] of each gating hop).
        """
        source = question(" ".join(document), " ".join(query_words), candidates)
        query = add_markers(source[0])
        wide = width_of(len(document), LONGEST, COARSE)
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
        encoded = encode_cloze(source, vocabulary)
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
        """Returns a vocabulary of only the given words, and parameters for it.

        The result is (vocabulary, parameters of the reader). The table of word vectors in the
        parameters has `rows` rows: the vectors of the vocabulary in its order, then zeros.
        """
        reader = self._reader
        vectors, lowercase = reader.params["embed"]["embedding"], reader.vocabulary.lowercase
        fold = str.lower if lowercase else str
        have = [word for word in dict.fromkeys(map(fold, words)) if word in reader.vocabulary]
        vocabulary = Vocabulary(have, lowercase=lowercase)
        ids = [0, 1, *reader.vocabulary.encode(have)]
        # Only the vectors of these words are copied, because the whole table may have gigabytes.
        embed = {**reader.params["embed"], "embedding": vectors[np.array(ids)]}
        small = type(reader)(
            reader.config,
            reader.data,
            vocabulary,
            reader.characters,
            {**reader.params, "embed": embed},
        ).with_words(words)
        table = small.params["embed"]["embedding"]
        filled = np.zeros((rows, table.shape[1]), table.dtype)
        filled[: len(table)] = table
        embed = {**small.params["embed"], "embedding": filled}
        return small.vocabulary, {**small.params, "embed": embed}

    def answer(self, state: State) -> Found:
        """Computes the answer to the question of a state.

        Returns (notes, answer). notes is a list of sentences for the user. answer is None for
        missing or unsuitable input, else a dict for JSON with "title" (the predicted candidate),
        "share" (its probability), "classes" (the candidates) with "probabilities", "details" (how
        often each occurs), texts for the page, and "lines". A line is a dict of `line` with numbers
        for the words of the document: first a line for each hop (layer of the reader) but the last,
        whose "values" have for each word of the question the attention of each document word to it;
        then the attention of the last hop to the words of the document.
        """
        words = tuple(self._split(" ".join(state.text.split())))
        query = tuple(self._split(state.question.replace("XXXXX", PLACEHOLDER)))
        names = [" ".join(self._split(text)) for text in state.candidates.splitlines()]
        candidates = tuple(dict.fromkeys(name for name in names if name))
        document = words[: self.max_len]
        notes = []
        if len(words) > len(document):
            notes.append(
                f"The document has {len(words):,} words; the first {len(document):,} are read."
            )
        wrong = self._find_fault(document, query, candidates)
        if wrong:
            return [*notes, wrong], None
        reading, last, hops = self._asking(document, query, candidates)
        places = {place.position for place in reading.places}
        is_candidate = [place in places for place in range(len(document))]
        is_known = [word in self._reader.vocabulary for word in document]
        counts = [
            sum(place.candidate == i for place in reading.places) for i in range(len(candidates))
        ]
        lines = [
            line(
                f"Hop {number}",
                document,
                is_known,
                kept=is_candidate,
                of=list(reading.query),
                values=[floats(column.round(4)) for column in hop.T],
                uniform=1 / len(reading.query),
            )
            for number, hop in enumerate(hops, 1)
        ]
        note = "What decides: the attention of the question to the document."
        lines.append(
            line(
                "Last hop",
                document,
                is_known,
                kept=is_candidate,
                values=floats(last.round(6)),
                uniform=1 / len(document),
                note=note,
            )
        )
        best = reading.best
        return notes, {
            "title": candidates[best],
            "share": float(reading.probabilities[best]),
            "head": "Candidate",
            "classes": list(candidates),
            "probabilities": floats(reading.probabilities),
            "details": [f"{n} \u00d7" if n else "not in the document" for n in counts],
            "note": "Words with a frame belong to a candidate.",
            "lines": lines,
        }

    def _find_fault(
        self, document: tuple[str, ...], query: tuple[str, ...], candidates: tuple[str, ...]
    ) -> str:
        """Returns a note for the user about missing or unsuitable input, or "".

        The arguments are the words of the document and of the query, and the candidates, each with
        spaces between its tokens.
        """
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
        tokens = {token for candidate in candidates for token in candidate.split(" ")}
        if tokens.isdisjoint(document):
            return (
                "None of the candidates occurs in the document: they are compared letter by letter."
            )
        return ""

    def layers(self, state: State) -> list[Json] | None:
        """Returns None, because `answer` already has the attention of all layers."""
        return None

    def warm_up(self, closed: Callable[[], bool]) -> None:
        """Compiles the programs for short texts.

        `closed` returns True when the explorer has been closed; no further program is then
        compiled.
        """
        # A document is rarely as short as the smallest padded length.
        for edge in COARSE[1:3]:
            if not closed():
                self._asking(("a",) * edge, (PLACEHOLDER,), ("a",))


class TranslatorView(View):
    """The view of a translator: the translation, and the attention of its layers to the source.

    The attention weights of all decoder layers and heads to the source are

        W = softmax(q k^T / sqrt(d)) [L, M, T, N]

    for L layers, M heads, T pieces of the best translation and N pieces of the source, with the
    queries q and keys k of the network and their width d. Pieces are the parts of words that the
    network reads and writes. The weight of a pair of words is the sum over the pieces of the source
    word and the mean over the pieces of the word of the translation.

    Args:
      translator: the trained `Translator`.

    Attributes:
      network: a description of the network.
      fields: the input fields, each a dict of texts: "name", its field of `State`; "label"; and
        "empty", the text that is shown in an empty field.
      layered: True if `layers` returns grids, dicts with a number for each pair of words.
      max_len: the largest number of words that the model reads.
    """

    network = "a Transformer"
    title = "Which words does each word of the translation attend to?"
    fields = ({"name": "text", "label": "Sentence", "empty": "Type a sentence to translate"},)

    def __init__(self, translator: Translator) -> None:
        super().__init__()
        self._translator = translator
        model, search = translator.model, translator.search
        if model.config.gates.selective:
            self.network = "a Transformer whose encoder selects whom words attend to"
        room = PIECES
        # Learned positions end at `max_length`, and a translation may be longer than its source.
        if model.config.order.positions == "learned":
            room = min(room, model.config.order.max_length - search.extra)
        self._pieces = self.max_len = room
        self._params = jax.device_put(translator.params)
        self._translating = functools.lru_cache(_KEPT)(self._translate)
        self._aligning = functools.lru_cache(_KEPT)(self._align)

    def example(self) -> dict[str, str]:
        """Returns {"text": a sentence of the first pieces in the vocabulary that are words}."""
        bpe = self._translator.bpe
        pieces = bpe.pieces(range(len(bpe)))
        return {"text": example_text(p[1:] for p in pieces if p.startswith(SPACE) and len(p) > 3)}

    @functools.cached_property
    def _search(self) -> Any:
        """A compiled function of (params, batch) that returns the ids of the translation.

        `batch` has the ids of the T pieces of a single sentence, "tokens" [1, T] and "lengths" [1].
        The result is an int array [L] for the L pieces of the longest possible translation; the ids
        after the stop token have no meaning.
        """
        decode = self._translator.decode
        return jax.jit(lambda params, batch: decode(params, batch)[0])

    @functools.cached_property
    def _look(self) -> Any:
        """A compiled function of (params, batch) that returns (weights, selections).

        `batch` has a sentence of N pieces ("tokens" [1, N], "lengths" [1]) and its translation of T
        pieces ("targets" [1, T], "target_lengths" [1]). The weights are a list with the attention
        [M, T, N] of each decoder layer to the source, for M heads. The selections are a list with
        the output of each encoder layer, with the fields `weights` and `gates`, [1, M, N, N] or
        None.
        """
        model = self._translator.model

        def is_projection(module: Any, method: str) -> bool:
            return module.name in ("query", "key") and module.parent.name == "source_attention"

        def run(params: Params, batch: Tree) -> Tree:
            # The network does not return its attention to the source, so the queries and keys of
            # these layers are captured.
            output, seen = model.apply(
                {"params": params},
                batch,
                capture_intermediates=is_projection,
                mutable="intermediates",
            )
            mask = F.length_mask(batch["lengths"], batch["tokens"].shape[1])[:, None, None]
            weights = []
            for number in range(model.config.decoder_layers):
                layer = seen["intermediates"][f"decoder_{number}"]["source_attention"]
                query, key = (
                    layer[name]["__call__"][0].swapaxes(1, 2) for name in ("query", "key")
                )
                weights.append(F.masked_softmax(F.scaled_dot_product(query, key), mask)[0])
            return weights, output.selections

        return jax.jit(run)

    def _batch(self, ids: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Returns the ids of a sentence as a padded batch: "tokens" [1, T] and "lengths" [1].

        `ids` are the ids of the pieces of the sentence, and T is their padded number.
        """
        edge = width_of(len(ids), self._pieces, COARSE)
        tokens = np.zeros((1, edge), np.int32)
        tokens[0, : len(ids)] = ids
        return {"tokens": tokens, "lengths": np.array([len(ids)], np.int32)}

    def _translate(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the ids of the pieces of the best translation, with the stop token as the last.

        `ids` are the ids of the pieces of the source sentence, with the stop token.
        """
        with self._lock:
            tokens = np.asarray(self._search(self._params, self._batch(ids)))
        stops = np.flatnonzero(tokens == STOP)
        return tuple(int(token) for token in tokens[: stops[0] + 1 if len(stops) else len(tokens)])

    def _align(self, ids: tuple[int, ...], target: tuple[int, ...]) -> tuple[np.ndarray, Any]:
        """Computes the attention of a translation to its source.

        Returns (W, selections). W is [L, M, T, N] without padding: the attention of the T pieces of
        `target` to the N pieces of the source `ids`, in L decoder layers with M heads. The
        selections are a list with the output of each encoder layer, with the fields `weights` and
        `gates`, [1, M, N', N'] with padding or None.
        """
        batch = self._batch(ids)
        # The target is padded to the longest possible translation, so that all translations share a
        # program.
        room = batch["tokens"].shape[1] + self._translator.search.extra
        batch["targets"] = np.zeros((1, room), np.int32)
        batch["targets"][0, : len(target)] = target
        batch["target_lengths"] = np.array([len(target)], np.int32)
        with self._lock:
            weights, selections = jax.device_get(self._look(self._params, batch))
        return np.stack(weights)[:, :, : len(target), : len(ids)], selections

    def _ids(self, state: State) -> tuple[str, tuple[int, ...]]:
        """Returns (note, ids): the ids of the pieces of the text of `state`, with the stop token.

        If the text is empty or too long, the note gives the reason and the ids are (); else it is
        "".
        """
        (ids,) = encode(self._translator.bpe, [" ".join(state.text.split())])
        if len(ids) <= 1:
            return "No word yet: type a sentence.", ()
        if len(ids) > self._pieces:
            return (
                f"The sentence has {len(ids) - 1:,} pieces, and at most {self._pieces - 1:,} can "
                "be translated here: shorten it.",
                (),
            )
        return "", tuple(int(piece) for piece in ids)

    def answer(self, state: State) -> Found:
        """Computes the translation of the text of a state.

        Returns (notes, answer): a list of sentences for the user, and a dict for JSON with the keys
        of `View.answer`, or None for a text that is empty or too long. "title" is the translation,
        "lines" has the subword pieces of the text, and "classes" and "probabilities" are empty.
        """
        wrong, ids = self._ids(state)
        if wrong:
            return [wrong], None
        translation = self._translator.bpe.decode(self._translating(ids))
        pieces = self._show_pieces(ids[:-1])
        is_known = [piece != UNK for piece in ids[:-1]]
        return [], {
            "title": translation or "(nothing)",
            "share": None,
            "head": None,
            "classes": [],
            "probabilities": [],
            "details": None,
            "note": "",
            "lines": [line("The sentence, as pieces", pieces, is_known)],
        }

    def layers(self, state: State) -> list[Json] | None:
        """Computes the grids of attention weights for the text of a state, as dicts for JSON.

        A grid, see `grid`, has a row for each word of the translation and a column for each word of
        the source. The first grid is the mean over the heads of the last decoder layer. Then come
        the grids of all decoder layers, and those of the encoder layers, which have the subword
        pieces of the source on both axes. The result is None for a text that is empty or too long.
        """
        wrong, ids = self._ids(state)
        if wrong:
            return None
        target = self._translating(ids)
        weights, selections = self._aligning(ids, target)
        # A translation that reaches the limit has no stop token.
        body = target[:-1] if target[-1] == STOP else target
        rows, row_of = self._words(body)
        columns, column_of = self._words(ids[:-1])
        # The last column is that of the stop token, which belongs to no word.
        into = np.zeros((len(ids), len(columns) + 1), np.float32)
        into[np.arange(len(ids)), [*column_of, len(columns)]] = 1
        out = np.zeros((len(rows), len(body)), np.float32)
        out[row_of, np.arange(len(body))] = 1
        out /= np.maximum(out.sum(axis=1, keepdims=True), 1)
        between = out @ weights[:, :, : len(body)] @ into
        names = [*columns, END]
        note = "A row is a word of the translation, and what it attends to in the sentence."
        draw = functools.partial(grid, rows=rows, columns=names, note=note)
        results = [draw("Alignment: last layer, mean of heads", between[-1].mean(axis=0))]
        for number, heads in enumerate(between, 1):
            if number < len(between):
                results.append(draw(f"Decoder layer {number}, mean of heads", heads.mean(axis=0)))
            for head, values in enumerate(heads, 1):
                results.append(draw(f"Decoder layer {number}, head {head}", values))
        pieces = [*self._show_pieces(ids[:-1]), END]
        note = "A row is a piece of the sentence, and what it attends to."
        for number, selection in enumerate(selections, 1):
            results += grids(f"Encoder layer {number}", selection, pieces, note)
        return results

    def _show_pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the texts of the pieces with the given ids, without the mark of a space."""
        # A piece may be only the mark of a space, which would be invisible.
        pieces = [piece.replace(SPACE, "") for piece in self._translator.bpe.pieces(ids)]
        return [piece or "\u2423" for piece in pieces]

    def _words(self, ids: Sequence[int]) -> tuple[list[str], list[int]]:
        """Returns the words that pieces form, and for each piece the position of its word.

        `ids` are the ids of the pieces. The positions count from 0 in the list of words.
        """
        owner = self._translator.bpe.words(ids)
        words = [""] * (owner[-1] + 1 if owner else 0)
        for number, piece in zip(owner, self._translator.bpe.pieces(ids), strict=True):
            words[number] += piece.replace(SPACE, "")
        return [word or "\u2423" for word in words], owner

    def warm_up(self, closed: Callable[[], bool]) -> None:
        """Compiles the programs for short texts.

        `closed` returns True when the explorer has been closed; no further program is then
        compiled.
        """
        ids = (UNK, STOP)
        if not closed():
            target = self._translating(ids)
        if not closed():
            self._aligning(ids, target)
