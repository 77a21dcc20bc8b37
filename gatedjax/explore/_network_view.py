"""The view of a network that classifies single texts: words with attention, and gates to force.

The answer to a state has

    p_t = sigmoid(a_t)                              the probability that gate t is open
    g_t = forced_t if gate t is forced, else the gate that the mode computes from p_t
    alpha, y = attention and class probabilities with the gates g; and y without forced gates

and the effect of word t on the predicted class j is y_j minus y_j of the text without the word.
Texts are padded to a few lengths, so that only a few programs are compiled.
"""

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from gatedjax._utils.types import Json, Output, Params, Tree
from gatedjax.explore import _effects, _views
from gatedjax.explore._state import HARD, Mode, State, force, gates_of, shift_forced
from gatedjax.models import GANet
from gatedjax.text.models._buckets import (
    COARSE,
    TextOutput,
    group_texts,
    shape_of,
    take_row,
    width_of,
)
from gatedjax.text.models._network import TrainedModel

# Results of texts that stay in memory, because a user goes back and forth between a few texts.
_KEPT_TEXTS = 64

Words = tuple[str, ...]


class NetworkView(_views.View):
    """The view of a classifier of single texts. Its answers have "tokens", and for each of them
    "known", "read", "attention" and, with gates, "open" (probabilities), "gates" and "free"
    (without forced gates).
    """

    panel = "words"
    weighed = True
    labelled = True

    def __init__(self, model: TrainedModel, name: str) -> None:
        super().__init__(name)
        self.model, self.gated, self.network = model, model.entry.gated, model.entry.about
        self.layered, self.pairs = model.network in ("agt", "ssan"), model.network == "ssan"
        self.classes, self.max_len = list(map(str, model.classes)), model.max_len
        self.tokenizer = model.tokenizer
        self._params = jax.device_put(model.params)
        # A lock per program, so that two threads do not compile it twice and others need not wait.
        # Effects use `_lock`, because a user waits for answers and not for effects.
        self._locks: dict[tuple[int, bool], threading.Lock] = {}
        self._reading = functools.lru_cache(_KEPT_TEXTS)(self._run_words)
        self.likely = functools.lru_cache(_KEPT_TEXTS)(self._open_probabilities)
        # [T, T - 1]: row t has the open probabilities of the text without word t.
        self.likely_without = functools.lru_cache(_views.KEPT)(self._open_probabilities_without)
        self._reading_without = functools.lru_cache(_views.KEPT)(self._run_without)

    def example(self) -> dict[str, str]:
        return {"text": " ".join(_views.example_words(self.model.vocabulary.words))}

    def answer(self, state: State) -> _views.Found:
        words = tuple(self.split(state.text))
        if not words:
            return [_views.NO_WORD], None
        notes = _views.describe_cut("The text", len(words), _views.LONGEST, "are shown")
        answer = self._answer_words(self._cut(words), state)
        if len(answer["known"]) < min(len(words), _views.LONGEST):
            notes.append(f"{self.name} reads the first {len(answer['known']):,} words.")
        if not any(answer["known"]):
            notes.append(f"{self.name} knows none of these words.")
        return notes, answer

    def _cut(self, words: Sequence[str]) -> Words:
        return tuple(words[: min(_views.LONGEST, self.max_len)])

    def _answer_words(self, tokens: Words, state: State) -> Json:
        answer: Json = {
            "tokens": list(tokens),
            "known": [word in self.model.vocabulary for word in tokens],
            **dict.fromkeys(("open", "gates", "free", "rule")),
        }
        if not self.gated:
            output = self._reading(tokens)
            return answer | {
                "probabilities": _views.floats(output.probabilities),
                "base": _views.floats(output.probabilities),
                "attention": _views.floats(output.attention),
                "share": float(output.share),
                "read": _views.bools(output.masks[0]),
            }
        likely = self.likely(tokens)
        free = gates_of(likely, state, self.model.config.gates.temperature)
        forced = force(free, state.forced)
        soft = state.mode not in HARD
        # Both patterns run in a call, so that the effect of the forced gates costs no second call.
        probabilities, attention, gates, _ = self.with_gates(tokens, [forced, free], soft=soft)
        all_shut = not np.any(forced > 0)
        return answer | {
            "probabilities": _views.floats(probabilities[0]),
            "base": _views.floats(probabilities[1]),
            "attention": _views.floats(attention[0]),
            "share": float(np.mean(gates[0])),
            "read": _views.bools(gates[0] > 0),
            "open": _views.floats(likely),
            "gates": _views.floats(gates[0]),
            "free": _views.bools(free > 0.5),
            "rule": self.model.config.gates.empty if all_shut and not soft else None,
        }

    def layers(self, state: State) -> list[Json] | None:
        tokens = self._cut(self.split(state.text))
        if not self.layered or not tokens:
            return None
        edge = width_of(len(tokens), self.max_len, COARSE)
        batch = self.model.batch([(tokens,)], edge)
        with self._lock_of(edge, True):
            outputs = jax.device_get(self._layer_program(self._params, batch))
        if self.model.network == "agt":
            rows = [] if outputs[0] is None else outputs[0][0, :, : len(tokens)]
            return [
                {"name": f"Layer {n}", "values": _views.floats(row)}
                for n, row in enumerate(rows, 1)
            ]
        note = "A row is a word, and what it attends to."
        return [
            grid
            for n, selection in enumerate(outputs, 1)
            for grid in _views.grids(f"Layer {n}", selection, tokens, note)
        ]

    def effects(self, state: State) -> Json | None:
        return self._weigh(self._cut(self.split(state.text)), state)

    def _weigh(self, tokens: Words, state: State) -> Json | None:
        if not 2 <= len(tokens) <= _effects.MOST_REMOVED:
            return None
        probabilities = np.array(self._answer_words(tokens, state)["probabilities"])
        return _effects.summarize_effects(probabilities, self.without_each(tokens, state))

    def without_each(self, tokens: Words, state: State) -> np.ndarray:
        """Computes the probabilities [T, C] of C classes for a text without each of its T words.

        The gates of the other words are computed again; forced gates stay with their words.
        """
        if not self.gated:
            return self._reading_without(tokens)
        temperature = self.model.config.gates.temperature
        gates = np.stack(
            [
                force(
                    gates_of(row, state, temperature, removed=place),
                    shift_forced(state.forced, place),
                )
                for place, row in enumerate(self.likely_without(tokens))
            ]
        )
        return self._run_gates_without(tokens, gates, soft=state.mode not in HARD)[0]

    def _open_probabilities_without(self, tokens: Words) -> np.ndarray:
        # The open probabilities do not depend on the gates, so any pattern serves.
        return self._run_gates_without(tokens, np.zeros(()), soft=False)[1]

    def _run_gates_without(
        self, tokens: Words, gates: np.ndarray, *, soft: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        batch = _effects.batch_without_each(self.model, (tokens,), _effects.MOST_REMOVED)
        count = len(tokens)
        padded = np.zeros((1, *batch["tokens"].shape), np.float32)
        padded[0, :count, : count - 1] = gates
        with self._lock:
            probabilities, *_, likely = self._run(self._text_program, batch, padded, soft)
        return probabilities[0, :count], likely[:count, : count - 1]

    def _run_without(self, tokens: Words) -> np.ndarray:
        with self._lock:
            return _effects.probabilities_without_each(self.model, (tokens,), _effects.MOST_REMOVED)

    def probabilities(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        with self._lock:
            outputs = self.model.read_tokens([(tuple(words),) for words in texts])
        return np.array([output.probabilities for output in outputs]).reshape(len(texts), -1)

    def results(
        self, texts: Sequence[str], check: Callable[[], None], leaks: int
    ) -> _views.Results:
        words = [tuple(self.split(text))[: self.max_len] for text in texts]
        total = sum(map(len, words))
        probabilities = np.zeros((len(words), len(self.classes)))
        if not self.gated:
            for numbers, batch in self._batches(words, check):
                probabilities[numbers] = self.model.run(batch)["probabilities"][: len(numbers)]
            return _views.Results(
                probabilities=probabilities,
                predicted=probabilities.argmax(1)[None],
                num_read=np.array([list(map(len, words))], float),
                words=total,
                masks=None,
                thresholds=np.array([-1.0]),
            )
        likely: dict[int, np.ndarray] = {}
        for numbers, batch in self._batches(words, check):
            closed = np.zeros(_shape_swept(batch), np.float32)
            *_, rows = self._run(self._batch_program, batch, closed)
            likely |= {n: rows[row, : len(words[n])] for row, n in enumerate(numbers)}
        # The thresholds depend on the probabilities of all texts, so the network runs a second time
        # with the gates.
        pooled = np.concatenate([likely[number] for number in range(len(words))])
        thresholds = -np.sort(
            -np.array([*_views.thresholds_of(pooled, _views.SHARES), *_views.ROUND, -1.0])
        )
        # `ROUND` has the threshold 0.5, the first that is not above it, as the thresholds descend.
        middle = int(np.argmax(thresholds <= 0.5))
        predicted = np.zeros((len(thresholds), len(words)), int)
        num_read = np.zeros((len(thresholds), len(words)))
        masks = [np.zeros(0, bool)] * len(words)
        for numbers, batch in self._batches(words, check):
            gates = np.zeros(_shape_swept(batch), np.float32)
            for row, number in enumerate(numbers):
                p = likely[number]
                gates[:, row, : len(p)] = p > thresholds[:, None]
            swept, _, used, _ = self._run(self._batch_program, batch, gates)
            predicted[:, numbers] = swept.argmax(-1)[:, : len(numbers)]
            num_read[:, numbers] = used.sum(-1)[:, : len(numbers)]
            probabilities[numbers] = swept[middle, : len(numbers)]
            for row, number in enumerate(numbers):
                masks[number] = used[middle, row, : len(words[number])] > 0
        open_words = [
            tuple(itertools.compress(text, mask.tolist()))
            for text, mask in zip(words[:leaks], masks, strict=False)
        ]
        return _views.Results(
            probabilities=probabilities,
            predicted=predicted,
            num_read=num_read,
            words=total,
            masks=masks,
            thresholds=thresholds,
            leaks=self._leaks(open_words, probabilities, check),
        )

    def _leaks(
        self, open_words: Sequence[Words], probabilities: np.ndarray, check: Callable[[], None]
    ) -> list[float]:
        """Computes the gate leak, as in `faithfulness`, of texts from their open words."""
        leaks = np.zeros(len(open_words))
        for numbers, batch in self._batches(open_words, check):
            gates = np.ones(_shape_swept(batch), np.float32)
            alone, *_ = self._run(self._batch_program, batch, gates)
            for row, number in enumerate(numbers):
                best = int(np.argmax(probabilities[number]))
                leaks[number] = abs(probabilities[number, best] - alone[0, row, best])
        return _views.floats(leaks) or []

    def _batches(
        self, texts: Sequence[Words], check: Callable[[], None]
    ) -> Iterator[tuple[list[int], Tree]]:
        shapes = functools.partial(shape_of, longest=self.max_len, widths=COARSE)
        for numbers, (rows, width) in group_texts(map(len, texts), shapes):
            check()
            # Rows after the `numbers` repeat texts, so that each padded length has a program.
            filled = [(texts[n],) for n in (numbers * rows)[:rows]]
            yield numbers, self.model.batch(filled, width)

    def _with_gates(self, params: Params, batch: Tree, gates: Tree, soft: bool) -> Tree:
        output: Output = self.model.module.apply(
            {"params": params}, batch, gates, soft=soft, method=GANet.with_gates
        )
        # Returned for S patterns: [S, B, C], [S, B, T], [S, B, T] (gates after the rule for texts
        # without an open gate) and [B, T].
        likely = jax.nn.sigmoid(output.gate_logits)
        return jax.nn.softmax(output.logits), output.attention, output.gates, likely

    @functools.cached_property
    def _text_program(self) -> Any:
        # It halves the time to compile; a text of 256 words then takes 8 ms instead of 2.
        on_cpu = jax.default_backend() == "cpu"
        quick = {"xla_backend_optimization_level": 0} if on_cpu else None
        return jax.jit(self._with_gates, static_argnums=3, compiler_options=quick)

    @functools.cached_property
    def _batch_program(self) -> Any:
        return jax.jit(self._with_gates, static_argnums=3)

    def _run(self, program: Any, batch: Tree, gates: np.ndarray, soft: bool = False) -> Any:
        return jax.device_get(program(self._params, batch, gates, soft))

    @functools.cached_property
    def _layer_program(self) -> Any:
        def run(params: Params, batch: Tree) -> Tree:
            output: Output = self.model.module.apply({"params": params}, batch)
            return [output.attention] if self.model.network == "agt" else list(output.selections)

        return jax.jit(run)

    def with_gates(
        self, tokens: Words, gates: Sequence[np.ndarray], *, soft: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns probabilities, attention and gates of S patterns, and open probabilities."""
        edge = width_of(len(tokens), self.max_len, COARSE)
        rows = np.zeros((len(gates), 1, edge), np.float32)
        rows[:, 0, : len(tokens)] = gates
        batch = self.model.batch([(tokens,)], edge)
        # The lock lets a single thread compile while other threads wait for the program.
        with self._lock_of(edge, soft):
            outputs = self._run(self._text_program, batch, rows, soft)
        probabilities, attention, used, likely = outputs
        size = len(tokens)
        return probabilities[:, 0], attention[:, 0, :size], used[:, 0, :size], likely[0, :size]

    def _open_probabilities(self, tokens: Words) -> np.ndarray:
        closed = np.zeros(len(tokens), np.float32)
        # Two patterns are passed, because an answer passes two as well and the program has their
        # number in its shape.
        return self.with_gates(tokens, [closed, closed])[-1]

    def _run_words(self, tokens: Words) -> TextOutput:
        edge = width_of(len(tokens), self.max_len, COARSE)
        with self._lock_of(edge, False):
            out = self.model.run(self.model.batch([(tokens,)], edge))
        return take_row((tokens,), out, 0)

    def warm_up(self, closed: Callable[[], bool]) -> None:
        texts = [self._cut(("a",) * edge) for edge in COARSE[:2]]
        modes: tuple[Mode, ...] = ("threshold", "expected")
        for mode, tokens in itertools.product(modes, texts):
            if not closed():
                self._answer_words(tokens, State(mode=mode))
        for tokens in texts:
            if not closed():
                self._weigh(tokens, State())

    def _lock_of(self, edge: int, soft: bool) -> threading.Lock:
        # `setdefault` is a single step, so that two threads get the same lock.
        return self._locks.setdefault((edge, soft), threading.Lock())

    def close(self, seconds: float) -> bool:
        edges = {width_of(n, self.max_len, COARSE) for n in COARSE}
        locks = [self._lock_of(edge, soft) for edge in edges for soft in (False, True)]
        acquired = [lock.acquire(timeout=seconds) for lock in (*locks, self._lock)]
        return all(acquired)


def _shape_swept(batch: Tree) -> tuple[int, ...]:
    return (len(_views.SHARES) + len(_views.ROUND) + 1, *batch["tokens"].shape)
