"""The computations of the explorer: a text with chosen gates, from trained models, as JSON.

The state of the page has the text, the mode of the gates, and the gates that are forced. The answer
to a state has, for each model,

    p_t = sigmoid(a_t)                              the probability that gate t is open
    g_t = forced_t if gate t is forced, else the gate that the mode computes from p_t
    alpha, y = attention and class probabilities with the gates g; and y without forced gates

Texts are padded to a few lengths, so that only a few programs are compiled.
"""

import dataclasses
import functools
import importlib.metadata
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import jax
import numpy as np

from gatedjax._utils.types import Json, Output, Params, Tree
from gatedjax._version import __version__
from gatedjax.explore._example import FREQUENT_WORDS, example_text
from gatedjax.explore._gates import force, gates_of
from gatedjax.explore._lexicon_view import LexiconView
from gatedjax.explore._open import view_of
from gatedjax.explore._removal import MOST_REMOVED, Removal
from gatedjax.explore._state import HARD, Mode, State, check_state
from gatedjax.explore._views import LONGEST, Found, View, floats, grids
from gatedjax.models import GANet
from gatedjax.text._buckets import COARSE, width_of
from gatedjax.text._model import TextOutput, TrainedModel, take_row
from gatedjax.text._prediction import LEXICON
from gatedjax.text._states import EncodedText
from gatedjax.text._tokens import Tokenizer

TITLE = "Which words does the prediction rest on?"
"""The title of the page for classifiers of single texts."""
LAYERED = ("agt", "ssan")
"""Names of the networks with layers that the explorer shows."""
_QUICK = {"xla_backend_optimization_level": 0}
"""Options that halve the time to compile; a text of 256 words then takes 8 ms instead of 2."""
_OTHER_UNITS = (
    "The models show different tokens, because each of them learned its units from its training "
    "texts."
)
"""The note for two models whose tokens of a text differ."""
# Results of texts that stay in memory, because a user goes back and forth between a few texts.
_KEPT_TEXTS = 64


def tokenizer_of(model: Any) -> Tokenizer:
    """Returns the rule that splits texts into words, for a trained model of any kind."""
    if getattr(model, "network", None) == LEXICON:
        rule: Tokenizer = model.splitter.tokenizer
        return rule
    return model.tokenizer if isinstance(model, TrainedModel) else Tokenizer()


def _differ_in_tokens(answers: Sequence[Found]) -> bool:
    # The first line has the words of the text, and a second line the pairs of open neighbours.
    shown = [answer["lines"][0]["tokens"] for _, answer in answers if answer is not None]
    return len({tuple(token.lower() for token in tokens) for tokens in shown}) > 1


@dataclasses.dataclass(eq=False)
class Explorer:
    """The models that a page shows; `answer` may be called by several threads at a time."""

    models: Sequence[Any]  # one or two: TrainedModel, LexiconModel, StatesModel, Reader, Translator
    names: Sequence[str]
    tokenized: bool = False  # texts for a reader are tokens with spaces between them
    states: Sequence[EncodedText] | None = None  # the texts of a StatesModel without an encoder

    def __post_init__(self) -> None:
        if not self.models or len(self.models) != len(self.names):
            raise ValueError(
                f"names must have a name for each of the {len(self.models)} models, got "
                f"{list(self.names)!r}"
            )
        views = [
            view_of(model, tokenized=self.tokenized, states=self.states) for model in self.models
        ]
        if len({type(view) for view in views}) > 1:
            kinds = " and ".join(type(model).__name__ for model in self.models)
            raise ValueError(
                "models must be of the same kind, such as two classifiers of single texts, got "
                f"{kinds}"
            )
        self._check_tokenizers()
        self.views = [view for view in views if view is not None]
        self.programs = [] if self.views else [Programs(model) for model in self.models]
        self._parts: list[View | Programs] = [*self.views, *self.programs]
        self._closed = False

    def _check_tokenizers(self) -> None:
        """Raises ValueError if the models split a text by different rules."""
        rules = [tokenizer_of(model) for model in self.models]
        if len({(rule.kind, rule.function) for rule in rules}) > 1:
            got = " and ".join(
                f"{rule.name!r} ({name})" for rule, name in zip(rules, self.names, strict=True)
            )
            raise ValueError(
                "models must have the same kind of tokens, because the page shows their words side "
                f"by side, got {got}: train one of them again with the tokens of the other"
            )
        # Each lexicon has a line of words, so that the units that they learned may differ.
        has_lexicons = all(getattr(model, "network", None) == LEXICON for model in self.models)
        if not has_lexicons and any(rule != rules[0] for rule in rules):
            raise ValueError(
                "models must split texts into the same tokens, because the page shows them once, "
                f"got {' and '.join(self.names)}, whose tokens of the kind {rules[0].name!r} were "
                "learned from different texts: show each of them on its own page"
            )

    @property
    def tokenizer(self) -> Tokenizer:
        """The rule that splits the texts of the page into words."""
        return tokenizer_of(self.models[0])

    def about(self) -> Json:
        """Returns the constants of the page, for JSON."""
        models = [part.about(name) for name, part in zip(self.names, self._parts, strict=True)]
        return {
            "models": models,
            "modes": list(get_args(Mode)) if any(model["gated"] for model in models) else [],
            "longest": LONGEST,
            "effects": MOST_REMOVED,
            "fields": list(self.views[0].fields) if self.views else None,
            "title": self.views[0].title if self.views else TITLE,
            "example": self._example(),
            "origin": self._describe_example(),
            "library": describe_library(),
        }

    def _example(self) -> Json:
        if self.views:
            return self.views[0].example()
        return {"text": example_text(self.models[0].vocabulary.words)}

    def _describe_example(self) -> Json:
        if self.views:
            return self.views[0].describe_example()
        return {"note": FREQUENT_WORDS, "label": None}

    def layers(self, message: Mapping[str, Any]) -> Json:
        """Computes the attention in each layer of each model; None for a model without layers."""
        state = check_state(message)
        self.check_open()
        return {"models": [part.layers(state) for part in self._parts]}

    def removal(self, message: Mapping[str, Any]) -> Json:
        """Computes the effect of each word: the change of the prediction when it is removed."""
        state = check_state(message)
        self.check_open()
        if self.views:
            return {"models": [view.effects(state) for view in self.views]}
        tokens = self.tokenizer.split(state.text, LONGEST)
        return {"models": [programs.removal.effects(tokens, state) for programs in self.programs]}

    def warm_up(self) -> None:
        """Compiles the programs for short texts, for all models at the same time."""
        closed = (lambda: self._closed,)
        # Daemon threads, because the end of the process should not wait for them.
        threads = [
            threading.Thread(target=part.warm_up, args=closed, daemon=True) for part in self._parts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self, seconds: float = -1) -> bool:
        """Prevents new computations, and waits at most `seconds` for running ones (-1: no limit),
        because a process that ends while a thread computes is aborted. True if none is running.
        """
        self._closed = True
        # A list, because `all` would not close the programs after the first that is still running.
        results = [part.close(seconds) for part in self._parts]
        return all(results)

    def check_gates(self, name: str) -> None:
        """Raises ValueError unless the models are networks that classify single texts."""
        if self.views:
            raise ValueError(
                f"{name} must be left out unless the models are networks that classify single "
                f"texts, got {self.views[0].network}"
            )

    def check_sentences(self, name: str) -> None:
        """Raises ValueError unless the models are networks or lexicons with a class for a text."""
        has_classes = bool(self.views) and isinstance(self.views[0], LexiconView)
        has_classes = has_classes and all(model.kind == "text" for model in self.models)
        if self.views and not has_classes:
            raise ValueError(
                f"{name} must be left out unless the models are networks or lexicons that classify "
                f"single texts, got {self.views[0].network}"
            )

    def check_open(self) -> None:
        """Raises ValueError if the explorer has been closed."""
        if self._closed:
            raise ValueError("the explorer must be open, got a closed one: start it again")

    def answer(self, message: Mapping[str, Any]) -> Json:
        """Computes the answer to a state of the page."""
        state = check_state(message)
        if self.views:
            return self._answer_views(state)
        words = self.tokenizer.split(state.text)
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
        results = [programs.answer(tokens, state) for programs in self.programs]
        for name, result in zip(self.names, results, strict=True):
            if result["read"] < len(tokens):
                answer["notes"].append(f"{name} reads the first {result['read']:,} words.")
            unknown = len(tokens) - sum(result["known"])
            if unknown == len(tokens):
                answer["notes"].append(f"{name} knows none of these words.")
        answer["models"] = results
        return answer

    def _answer_views(self, state: State) -> Json:
        self.check_open()
        answers = [view.answer(state) for view in self.views]
        # Two models may have the same note, which is shown once.
        notes = list(dict.fromkeys(note for notes_of_view, _ in answers for note in notes_of_view))
        if isinstance(self.views[0], LexiconView) and _differ_in_tokens(answers):
            notes.append(_OTHER_UNITS)
        return {
            "words": self.views[0].count_words(state),
            "notes": notes,
            "tokens": [],
            "models": [answer for _, answer in answers],
        }


def describe_library() -> Json:
    """Returns {"name", "version", "address"} of the library, for the foot of the page."""
    try:
        urls = importlib.metadata.metadata("gatedjax").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        urls = []
    # An entry is "label, address".
    addresses = [url.partition(",")[2].strip() for url in urls]
    web = [address for address in addresses if address.startswith("https://")]
    return {"name": "gatedjax", "version": __version__, "address": web[0] if web else ""}


class Programs:
    """The compiled programs of a classifier of single texts; `Programs(model)` builds them."""

    def __init__(self, model: TrainedModel) -> None:
        self.model, self.gated = model, model.entry.gated
        # The parameters are copied to the device once, because each answer uses them.
        self._params = jax.device_put(model.params)
        # A lock per program, so that two threads do not compile it twice and others need not wait.
        self._locks: dict[tuple[int, bool], threading.Lock] = {}
        self._reading = functools.lru_cache(_KEPT_TEXTS)(self._run_words)
        self.likely = functools.lru_cache(_KEPT_TEXTS)(self._open_probabilities)
        self.removal = Removal(self)

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
        quick = _QUICK if jax.default_backend() == "cpu" else None
        return jax.jit(self._with_gates, static_argnums=3, compiler_options=quick)

    @functools.cached_property
    def _batch_program(self) -> Any:
        return jax.jit(self._with_gates, static_argnums=3)

    def answer(self, tokens: tuple[str, ...], state: State) -> Json:
        """Computes the prediction, attention and gates for words in a state of the page."""
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
            output = self._reading(tokens)
            return answer | {
                "probabilities": floats(output.probabilities),
                "base": floats(output.probabilities),
                "attention": floats(output.attention),
                "density": float(output.density),
                "kept": [bool(is_open) for is_open in output.masks[0]],
            }
        likely = self.likely(tokens)
        free = gates_of(likely, state, self.model.config.gates.temperature)
        forced = force(free, state.forced)
        soft = state.mode not in HARD
        # Both patterns run in a call, so that the effect of the forced gates costs no second call.
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
    def _layer_program(self) -> Any:
        def run(params: Params, batch: Tree) -> Tree:
            output: Output = self.model.module.apply({"params": params}, batch)
            return [output.attention] if self.model.network == "agt" else list(output.selections)

        return jax.jit(run)

    def about(self, name: str) -> Json:
        """Returns the constants of the model for the page, for JSON."""
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
        """Compiles the programs for the two smallest padded lengths."""
        modes: tuple[Mode, ...] = ("threshold", "expected")
        for mode, edge in itertools.product(modes, COARSE[:2]):
            if not closed():
                self.answer(("a",) * edge, State(mode=mode))
        for edge in COARSE[:2]:
            if not closed():
                self.removal.effects(("a",) * edge, State())

    def layers(self, state: State) -> list[Json] | None:
        """Computes the attention in each layer for the text of a state."""
        tokens = self.model.tokenizer.split(state.text, LONGEST)[: self.model.max_len]
        if self.model.network not in LAYERED or not tokens:
            return None
        edge = width_of(len(tokens), self.model.max_len, COARSE)
        batch = self.model.batch([(tokens,)], edge)
        with self._lock(edge, True):
            outputs = jax.device_get(self._layer_program(self._params, batch))
        if self.model.network == "agt":
            rows = [] if outputs[0] is None else outputs[0][0, :, : len(tokens)]
            return [{"name": f"Layer {n}", "values": floats(row)} for n, row in enumerate(rows, 1)]
        note = "A row is a word, and what it attends to."
        numbered = enumerate(outputs, 1)
        return [
            grid
            for n, selection in numbered
            for grid in grids(f"Layer {n}", selection, tokens, note)
        ]

    def with_gates(
        self, tokens: tuple[str, ...], gates: Sequence[np.ndarray], *, soft: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns probabilities [S, C], attention and used gates [S, T] for S patterns of gates."""
        probabilities, attention, used, _ = self._run_forced(tokens, gates, soft)
        size = len(tokens)
        return probabilities[:, 0], attention[:, 0, :size], used[:, 0, :size]

    def batch_with_gates(
        self, batch: Tree, gates: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns probabilities [S, B, C], used gates [S, B, T] and open probabilities [B, T]."""
        outputs = jax.device_get(self._batch_program(self._params, batch, gates, False))
        probabilities, _, used, likely = outputs
        return probabilities, used, likely

    def run_patterns(self, batch: Tree, gates: np.ndarray, *, soft: bool) -> tuple[np.ndarray, ...]:
        """Runs the quickly compiled program for gates [S, B, T] on a padded batch."""
        outputs: tuple[np.ndarray, ...] = jax.device_get(
            self._text_program(self._params, batch, gates, soft)
        )
        return outputs

    def _run_forced(
        self, tokens: tuple[str, ...], gates: Sequence[np.ndarray], soft: bool
    ) -> tuple[np.ndarray, ...]:
        """Runs `run_patterns` on a text of T words with S patterns of gates, each [T]."""
        edge = width_of(len(tokens), self.model.max_len, COARSE)
        rows = np.zeros((len(gates), 1, edge), np.float32)
        rows[:, 0, : len(tokens)] = gates
        batch = self.model.batch([(tokens,)], edge)
        # The lock lets a single thread compile while other threads wait for the program.
        with self._lock(edge, soft):
            return self.run_patterns(batch, rows, soft=soft)

    def _lock(self, edge: int, soft: bool) -> threading.Lock:
        # `setdefault` is a single step, so that two threads get the same lock.
        return self._locks.setdefault((edge, soft), threading.Lock())

    def close(self, seconds: float) -> bool:
        """Acquires all locks for good, so that no program starts again; True if it got them all."""
        # Each program has a lock, so a thread that has all locks stops all computations.
        edges = {width_of(n, self.model.max_len, COARSE) for n in COARSE}
        acquired = [
            self._lock(edge, soft).acquire(timeout=seconds)
            for edge in edges
            for soft in (False, True)
        ]
        return all([*acquired, self.removal.close(seconds)])

    def _open_probabilities(self, tokens: tuple[str, ...]) -> np.ndarray:
        closed = np.zeros(len(tokens), np.float32)
        # Two patterns are passed, because `answer` passes two as well and the program has their
        # number in its shape.
        *_, likely = self._run_forced(tokens, [closed, closed], False)
        return likely[0, : len(tokens)]

    def _run_words(self, tokens: tuple[str, ...]) -> TextOutput:
        edge = width_of(len(tokens), self.model.max_len, COARSE)
        with self._lock(edge, False):
            out = self.model.run(self.model.batch([(tokens,)], edge))
        return take_row((tokens,), out, 0)
