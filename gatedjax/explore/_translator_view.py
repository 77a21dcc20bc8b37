"""The view of a translator: the translation, and its attention to the sentence."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from gatedjax import functional as F
from gatedjax._utils.types import Json, Params, Tree
from gatedjax.explore import _views
from gatedjax.explore._state import State
from gatedjax.models.ssan.translation import STOP, UNK
from gatedjax.text.models._buckets import COARSE, width_of
from gatedjax.text.models._translator import Translator, encode

PIECES = 256
"""Largest number of pieces, including the end, of a sentence; a longer sentence is refused."""
# The mark of a space at the start of a piece, and the name of the stop token in grids.
SPACE, END = "\u2581", "</s>"


class TranslatorView(_views.View):
    """The view of a translator: the translation, and its layers' attention to the source, W =
    softmax(q k^T / sqrt(d)) [L, M, T, N] for pieces. A pair of words has the sum of W over the
    pieces of the source word, and the mean over the pieces of the word of the translation.
    """

    network = "a Transformer"
    title = "Which words does each word of the translation attend to?"
    fields = ({"name": "text", "label": "Sentence", "empty": "Type a sentence to translate"},)

    def __init__(self, translator: Translator, name: str) -> None:
        super().__init__(name)
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
        self._translating = functools.lru_cache(_views.KEPT)(self._translate)
        self._aligning = functools.lru_cache(_views.KEPT)(self._align)

    def example(self) -> dict[str, str]:
        bpe = self._translator.bpe
        pieces = bpe.pieces(range(len(bpe)))
        words = (piece[1:] for piece in pieces if piece.startswith(SPACE) and len(piece) > 3)
        return {"text": " ".join(_views.example_words(words))}

    @functools.cached_property
    def _search(self) -> Any:
        decode = self._translator.decode
        return jax.jit(lambda params, batch: decode(params, batch)[0])

    @functools.cached_property
    def _look(self) -> Any:
        """A compiled function: (params, batch) -> (weights [M, T, N] by layer, selections)."""
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
        edge = width_of(len(ids), self._pieces, COARSE)
        tokens = np.zeros((1, edge), np.int32)
        tokens[0, : len(ids)] = ids
        return {"tokens": tokens, "lengths": np.array([len(ids)], np.int32)}

    def _translate(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        with self._lock:
            tokens = np.asarray(self._search(self._params, self._batch(ids)))
        stops = np.flatnonzero(tokens == STOP)
        return tuple(int(token) for token in tokens[: stops[0] + 1 if len(stops) else len(tokens)])

    def _align(self, ids: tuple[int, ...], target: tuple[int, ...]) -> tuple[np.ndarray, Any]:
        """Returns W [L, M, T, N] without padding, and the outputs of the encoder layers."""
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
        """Returns (note, ids of the text's pieces and the stop token); a note has no ids."""
        (ids,) = encode(self._translator.bpe, [" ".join(state.text.split())])
        if len(ids) <= 1:
            return _views.NO_WORD, ()
        if len(ids) > self._pieces:
            return (
                f"The sentence has {len(ids) - 1:,} pieces, and at most {self._pieces - 1:,} can "
                "be translated here: shorten it.",
                (),
            )
        return "", tuple(int(piece) for piece in ids)

    def answer(self, state: State) -> _views.Found:
        wrong, ids = self._ids(state)
        if wrong:
            return [wrong], None
        translation = self._translator.bpe.decode(self._translating(ids))
        pieces = self._show_pieces(ids[:-1])
        is_known = [piece != UNK for piece in ids[:-1]]
        shown = _views.line("The sentence, as pieces", pieces, is_known)
        return [], _views.make_answer(translation or "(nothing)", [shown])

    def layers(self, state: State) -> list[Json] | None:
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
        draw = functools.partial(_views.grid, rows=rows, columns=names, note=note)
        results = [draw("Alignment: last layer, mean of heads", between[-1].mean(axis=0))]
        for number, heads in enumerate(between, 1):
            if number < len(between):
                results.append(draw(f"Decoder layer {number}, mean of heads", heads.mean(axis=0)))
            for head, values in enumerate(heads, 1):
                results.append(draw(f"Decoder layer {number}, head {head}", values))
        pieces = [*self._show_pieces(ids[:-1]), END]
        note = "A row is a piece of the sentence, and what it attends to."
        for number, selection in enumerate(selections, 1):
            results += _views.grids(f"Encoder layer {number}", selection, pieces, note)
        return results

    def _show_pieces(self, ids: Sequence[int]) -> list[str]:
        # A piece may be only the mark of a space, which would be invisible.
        pieces = [piece.replace(SPACE, "") for piece in self._translator.bpe.pieces(ids)]
        return [piece or "\u2423" for piece in pieces]

    def _words(self, ids: Sequence[int]) -> tuple[list[str], list[int]]:
        owner = self._translator.bpe.words(ids)
        words = [""] * (owner[-1] + 1 if owner else 0)
        for number, piece in zip(owner, self._translator.bpe.pieces(ids), strict=True):
            words[number] += piece.replace(SPACE, "")
        return [word or "\u2423" for word in words], owner

    def warm_up(self, closed: Callable[[], bool]) -> None:
        ids = (UNK, STOP)
        if not closed():
            target = self._translating(ids)
        if not closed():
            self._aligning(ids, target)
