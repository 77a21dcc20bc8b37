"""What the explorer shows: one text under a choice of gates, as JSON, from trained models.

A state is what the page holds: the text, the mode of the gates, and the gates that are forced. The
answer to it says, of every model,

    p_t = sigmoid(a_t)                                         the gate's probability to be open
    g_t = forced_t if it is forced, else what the mode makes of p_t
    alpha, y = attention and class probabilities under g, and y under the mode alone

Lengths are padded to a few, so that a program is compiled for each of those and no other.
"""

import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import jax
import numpy as np

from gatedjax._utils.types import Json, Output, Params, Tree
from gatedjax.explore._state import HARD, Mode, State, check_state
from gatedjax.explore._views import LONGEST, View, floats, grids, view_of
from gatedjax.models import GANet
from gatedjax.text._buckets import COARSE, width_of
from gatedjax.text._corpus import split_words
from gatedjax.text._model import Read, TrainedModel, cut

LAYERED = ("agt", "ssan")
"""Networks whose layers are shown."""
_QUICK = {"xla_backend_optimization_level": 0}
"""Halves the time to compile; a text of 256 words then takes 8 ms in place of 2."""
_KEPT_TEXTS = 64


@dataclasses.dataclass(eq=False)
class Explorer:
    """Answers states; several threads may ask at once.

    Attributes:
      models: one, or two to compare.
      names: what the page calls them.
      tokenized: whether what a reader is given is tokens between spaces already.
    """

    models: Sequence[Any]
    names: Sequence[str]
    tokenized: bool = False

    def __post_init__(self) -> None:
        if not self.models or len(self.models) != len(self.names):
            raise ValueError(
                f"names must be one for each model, got {len(self.names)} for {len(self.models)}"
            )
        views = [view_of(model, tokenized=self.tokenized) for model in self.models]
        if len({type(view) for view in views}) > 1:
            raise ValueError("two models must be of one kind to stand side by side")
        self.views = [view for view in views if view is not None]
        self.programs = [] if self.views else [Programs(model) for model in self.models]
        self._parts: list[View | Programs] = [*self.views, *self.programs]
        self._closed = False

    def about(self) -> Json:
        """What does not change: models, classes, modes, and the fields to type in."""
        models = [part.about(name) for name, part in zip(self.names, self._parts, strict=True)]
        return {
            "models": models,
            "modes": list(get_args(Mode)) if any(one["gated"] for one in models) else [],
            "longest": LONGEST,
            "fields": list(self.views[0].fields) if self.views else None,
        }

    def layers(self, message: Mapping[str, Any]) -> Json:
        """What every layer reads of a text, of the models that have such layers.

        Args:
          message: see `answer`.

        Returns:
          {"models": [...]}, None for other models: layers by name, with "values" [T] of the words
          (AGT), or with "pairs" [T, T], the weights that a word (row) gives to words, and
          "selected" [T, T], which may get some (SSAN), of the first `PAIRED` words.

        Raises:
          ValueError: naming what is no state.
        """
        state = check_state(message)
        self.check_open()
        return {"models": [part.layers(state) for part in self._parts]}

    def warm_up(self) -> None:
        """Compiles what short texts need, of all models at once."""
        closed = (lambda: self._closed,)
        # daemons: the end of a process does not wait for them
        threads = [
            threading.Thread(target=part.warm_up, args=closed, daemon=True) for part in self._parts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self, seconds: float = -1) -> bool:
        """Waits for what is being computed; nothing is afterwards, whatever other threads ask.

        A process that ends while a thread of it computes is aborted.

        Args:
          seconds: to wait for each program; -1 has no limit.

        Returns:
          Whether nothing is computed any more.
        """
        self._closed = True
        ended = [part.close(seconds) for part in self._parts]
        return all(ended)

    def check_gates(self, name: str) -> None:
        """Refuses, for models that are no classifiers of single texts, what only these have."""
        if self.views:
            raise ValueError(f"{name} is for classifiers of single texts: leave it out")

    def check_open(self) -> None:
        """Raises ValueError after `close`."""
        if self._closed:
            raise ValueError("the explorer is closed")

    def answer(self, message: Mapping[str, Any]) -> Json:
        """The answer to a state.

        Args:
          message: see `State`; what is missing has its default.

        Raises:
          ValueError: naming what is no state.
        """
        state = check_state(message)
        if self.views:
            return self._viewed(state)
        words = split_words(state.text)
        answer: Json = {"words": len(words), "notes": [], "tokens": [], "models": []}
        if not words:
            answer["notes"].append("No word yet: type a sentence.")
            return answer
        if len(words) > LONGEST:
            answer["notes"].append(
                f"The text has {len(words):,} words; the first {LONGEST:,} are shown."
            )
        tokens = words[:LONGEST]
        answer["tokens"] = list(tokens)
        found = [programs.answer(tokens, state) for programs in self.programs]
        for name, one in zip(self.names, found, strict=True):
            if one["read"] < len(tokens):
                answer["notes"].append(f"{name} reads the first {one['read']:,} words.")
            unknown = len(tokens) - sum(one["known"])
            if unknown == len(tokens):
                answer["notes"].append(f"{name} knows none of these words.")
        answer["models"] = found
        return answer

    def _viewed(self, state: State) -> Json:
        self.check_open()
        found = [view.answer(state) for view in self.views]
        notes = list(dict.fromkeys(note for said, _ in found for note in said))
        words = len(split_words(state.text))
        return {"words": words, "notes": notes, "tokens": [], "models": [one for _, one in found]}


class Programs:
    """What is compiled of one model."""

    def __init__(self, model: TrainedModel) -> None:
        self.model, self.gated = model, model.entry.gated
        self._params = jax.device_put(model.params)
        # of every program: what two threads ask first is compiled once, and others need not wait
        self._locks: dict[tuple[int, bool], threading.Lock] = {}
        self._reading = functools.lru_cache(_KEPT_TEXTS)(self._read)
        self.likely = functools.lru_cache(_KEPT_TEXTS)(self._open)

    def _with_gates(self, params: Params, batch: Tree, gates: Tree, soft: bool) -> Tree:
        output: Output = self.model.module.apply(
            {"params": params}, batch, gates, soft=soft, method=GANet.with_gates
        )
        likely = jax.nn.sigmoid(output.gate_logits)
        return jax.nn.softmax(output.logits), output.attention, output.gates, likely

    @functools.cached_property
    def _forced(self) -> Any:
        """For one text: who asks waits for the compiler, so that it does little where it can."""
        quick = _QUICK if jax.default_backend() == "cpu" else None
        return jax.jit(self._with_gates, static_argnums=3, compiler_options=quick)

    @functools.cached_property
    def _batched(self) -> Any:
        return jax.jit(self._with_gates, static_argnums=3)

    def answer(self, tokens: tuple[str, ...], state: State) -> Json:
        """What the model says of words."""
        tokens = tokens[: self.model.max_len]
        answer: Json = {
            "read": len(tokens),
            "known": [word in self.model.vocabulary for word in tokens],
            "open": None,
            "gates": None,
            "free": None,
            "rule": None,
        }
        if not self.gated:
            read = self._reading(tokens)
            return answer | {
                "probabilities": floats(read.probabilities),
                "base": floats(read.probabilities),
                "attention": floats(read.attention),
                "density": float(read.density),
                "kept": [bool(kept) for kept in read.kept[0]],
            }
        likely = self.likely(tokens)
        free = gates_of(likely, state, self.model.config.gates.temperature)
        forced = force(free, state.forced)
        soft = state.mode not in HARD
        probabilities, attention, gates = self.with_gates(tokens, [forced, free], soft=soft)
        all_shut = not np.any(forced > 0)
        return answer | {
            "probabilities": floats(probabilities[0]),
            "base": floats(probabilities[1]),
            "attention": floats(attention[0]),
            "density": float(np.mean(gates[0])),
            "kept": [bool(gate > 0) for gate in gates[0]],
            "open": floats(likely),
            "gates": floats(gates[0]),
            "free": [bool(gate > 0.5) for gate in free],
            "rule": self.model.config.gates.empty if all_shut and not soft else None,
        }

    @functools.cached_property
    def _whole(self) -> Any:
        def run(params: Params, batch: Tree) -> Tree:
            output: Output = self.model.module.apply({"params": params}, batch)
            return [output.attention] if self.model.network == "agt" else list(output.selections)

        return jax.jit(run)

    def about(self, name: str) -> Json:
        """See `Explorer.about`."""
        return {
            "name": name,
            "network": self.model.entry.about,
            "gated": self.gated,
            "layers": self.model.network in LAYERED,
            "pairs": self.model.network == "ssan",
            "classes": list(map(str, self.model.classes)),
            "max_len": self.model.max_len,
        }

    def warm_up(self, closed: Callable[[], bool]) -> None:
        """Compiles what texts of the two least widths need, until `closed` is true."""
        modes: tuple[Mode, ...] = ("threshold", "expected")
        for mode, edge in itertools.product(modes, COARSE[:2]):
            if not closed():
                self.answer(("a",) * edge, State(mode=mode))

    def layers(self, state: State) -> list[Json] | None:
        """See `Explorer.layers`."""
        tokens = split_words(state.text, LONGEST)[: self.model.max_len]
        if self.model.network not in LAYERED or not tokens:
            return None
        edge = width_of(len(tokens), self.model.max_len, COARSE)
        batch = self.model.batch([(tokens,)], edge)
        with self._lock(edge, True):
            found = jax.device_get(self._whole(self._params, batch))
        if self.model.network == "agt":
            rows = [] if found[0] is None else found[0][0, :, : len(tokens)]
            return [{"name": f"Layer {n}", "values": floats(row)} for n, row in enumerate(rows, 1)]
        note = "A row is a word, and what it attends to."
        numbered = enumerate(found, 1)
        return [one for n, seen in numbered for one in grids(f"Layer {n}", seen, tokens, note)]

    def with_gates(
        self, tokens: tuple[str, ...], gates: Sequence[np.ndarray], *, soft: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(class probabilities [S, C], attention [S, T], gates [S, T] as they were used)."""
        probabilities, attention, used, _ = self._run_forced(tokens, gates, soft)
        size = len(tokens)
        return probabilities[:, 0], attention[:, 0, :size], used[:, 0, :size]

    def batch_with_gates(
        self, batch: Tree, gates: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(class probabilities [S, B, C], gates [S, B, T] as they were used, the probabilities
        [B, T] that they are open) of a padded batch."""
        found = jax.device_get(self._batched(self._params, batch, gates, False))
        probabilities, _, used, likely = found
        return probabilities, used, likely

    def _run_forced(
        self, tokens: tuple[str, ...], gates: Sequence[np.ndarray], soft: bool
    ) -> tuple[np.ndarray, ...]:
        edge = width_of(len(tokens), self.model.max_len, COARSE)
        rows = np.zeros((len(gates), 1, edge), np.float32)
        rows[:, 0, : len(tokens)] = gates
        batch = self.model.batch([(tokens,)], edge)
        with self._lock(edge, soft):
            return jax.device_get(self._forced(self._params, batch, rows, soft))

    def _lock(self, edge: int, soft: bool) -> threading.Lock:
        return self._locks.setdefault((edge, soft), threading.Lock())

    def close(self, seconds: float) -> bool:
        """Takes every lock for good; whether it could."""
        edges = {width_of(n, self.model.max_len, COARSE) for n in COARSE}
        taken = [
            self._lock(edge, soft).acquire(timeout=seconds)
            for edge in edges
            for soft in (False, True)
        ]
        return all(taken)

    def _open(self, tokens: tuple[str, ...]) -> np.ndarray:
        """The probabilities that gates are open: of the program that takes any gates."""
        closed = np.zeros(len(tokens), np.float32)
        *_, likely = self._run_forced(tokens, [closed, closed], False)
        return likely[0, : len(tokens)]

    def _read(self, tokens: tuple[str, ...]) -> Read:
        edge = width_of(len(tokens), self.model.max_len, COARSE)
        with self._lock(edge, False):
            out = self.model.run(self.model.batch([(tokens,)], edge))
        return cut((tokens,), out, 0)


def gates_of(open_: np.ndarray, state: State, temperature: float) -> np.ndarray:
    """Gates [T] of a mode, from the probabilities [T] that they are open.

    Args:
      open_: p.
      state: mode and its settings; noise is drawn from its seed, and the same for every model.
      temperature: tau of "relaxed".

    Returns:
      float32: [p > threshold], [p among the round(density T) largest], [a + L > 0], p,
      sigmoid((a + L) / tau), or ones, with a = logit p and logistic noise L.
    """
    p = np.clip(np.asarray(open_, np.float64), 1e-12, 1 - 1e-9)
    noise = np.random.default_rng(state.seed).logistic(size=len(p))
    logits = np.log(p) - np.log1p(-p)
    modes: dict[str, Callable[[], np.ndarray]] = {
        "threshold": lambda: p > state.threshold,
        "density": lambda: _largest(p, state.density),
        "sample": lambda: logits + noise > 0,
        "open": lambda: np.ones_like(p),
        "expected": lambda: p,
        "relaxed": lambda: 1 / (1 + np.exp(-(logits + noise) / temperature)),
    }
    return modes[state.mode]().astype(np.float32)


def force(gates: np.ndarray, forced: Mapping[int, bool]) -> np.ndarray:
    """The gates with those that are forced, as far as there are such words."""
    changed = gates.copy()
    for place, is_open in forced.items():
        if place < len(changed):
            changed[place] = is_open
    return changed


def _largest(p: np.ndarray, density: float) -> np.ndarray:
    """True at the likeliest, at least one; the first of equal ones."""
    chosen = np.zeros(len(p), bool)
    chosen[np.argsort(-p, kind="stable")[: max(1, int(density * len(p) + 0.5))]] = True
    return chosen
