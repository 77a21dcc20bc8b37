"""The learners without a network: a lexicon, a linear model, and gates on the token vectors of an
encoder. This module imports no JAX.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import GatedPooling, Head, Lexicon, fit_lexicon, fit_pooling
from gatedjax.lexicon._linear import fit_linear
from gatedjax.lexicon._vectors import Vectors, read_vectors
from gatedjax.text._options import TextOptions, options_to_json
from gatedjax.text.answers._leak import Sample
from gatedjax.text.answers._report import READS_ALL, count_equal, render_equal, render_priors
from gatedjax.text.answers._words import find_examples, list_words_read
from gatedjax.text.corpus._corpus import Corpus, read_examples
from gatedjax.text.corpus._tokens import (
    LEXICON_KIND,
    Splitter,
    Tokenizer,
    choose_tokenizer,
    learn_units,
)
from gatedjax.text.fit._learner import Say
from gatedjax.text.fit._stages import StagedLearner, TextPart, Trial
from gatedjax.text.models import _states
from gatedjax.text.models._lexicon import LexiconModel, LinearModel
from gatedjax.text.sources._labels import CONTROL
from gatedjax.text.sources._table import Record
from gatedjax.text.targets._base import Target

# With fewer texts the folds cannot tell whether vectors help, and vectors help most.
_MANY = 1000
# Added to the places of each word, which ranks rare words lower: see `fit_lexicon`.
_PSEUDO_COUNT = 1.0
# Share of ASCII letters above which vectors of English words may help.
_ENGLISH = 0.95


class LexiconLearner(StagedLearner):
    """The lexicons of a fit, which read a falling share of the words."""

    model_class = LexiconModel
    _pseudo_count: float | Sequence[float] = 0.0

    def read(self, name: str, table: Any, **options: Any) -> Corpus:
        if name == "train":
            rule = choose_tokenizer(
                self.options.tokens or LEXICON_KIND,
                self.options.tokenizer,
                lambda: (record.inputs[0] for record in table if isinstance(record, Record)),
                lowercase=self.options.lowercase,
            )
            self._splitter = Splitter(rule, self.options.lowercase)
            self._texts: dict[str, list[str]] = {}
            self._vectors: Vectors | None = None
            self._of_vectors: Json = {}
        corpus, records, _ = read_examples(
            table, lambda record: [self._splitter.split(record.inputs[0])], **options
        )
        self._texts[name] = [CONTROL.sub(" ", record.inputs[0]) for record in records]
        return corpus

    def make_part(self, name: str, labels: np.ndarray) -> TextPart:
        texts = self._texts[name]
        if name == "train":
            rule = learn_units(self._splitter.tokenizer, texts)
            self._splitter = Splitter(rule, self.options.lowercase)
        words = list(map(self._splitter.split, texts))
        if name == "train" and self.options.vectors is not None:
            types = dict.fromkeys(itertools.chain.from_iterable(words))
            self._vectors = read_vectors(self.options.vectors, types)
        return TextPart(words, words, texts, labels)

    def start_fit(self, part: TextPart, head: Head, shares: Sequence[float]) -> Iterator[Lexicon]:
        weights = part.weights
        return fit_lexicon(
            *(part.items, part.labels, 0, shares),
            sample_weight=weights,
            head=head,
            vectors=self._vectors,
            pseudo_count=self._pseudo_count,
        )

    def try_shares(
        self, pairs: Sequence[tuple[TextPart, TextPart]], target: Target
    ) -> Iterator[Trial]:
        """Yields the trials; at a user's share the better of two ranks chooses the words."""
        if self.options.share is None:
            yield from super().try_shares(pairs, target)
            return
        # Neither rank is the better on all texts. Another fit for each share would take too long.
        self._pseudo_count = ranks = (0.0, _PSEUDO_COUNT)
        trials = super().try_shares(pairs, target)
        yield next(trials)
        if of_share := list(trials):
            best = int(np.argmin([trial.scores["loss"] for trial in of_share]))
            self._pseudo_count = ranks[best]
            yield of_share[best]

    def start_trials(
        self, every: TextPart, pairs: Sequence[tuple[TextPart, TextPart]], target: Target, say: Say
    ) -> Iterator[Trial]:
        """Starts without vectors if they make the answers worse; mentions them for few texts."""
        if self._vectors is None or self.options.vectors is None:
            # Measured for classes only.
            is_few = self.has_gates and self.kind == "text" and len(every.labels) < _MANY
            if is_few and _are_ascii(every.texts):
                say(
                    f"fewer than {_MANY:,} texts: for topics, intents and emotions in English, "
                    "--vectors wordllama has added 3 to 10 points (pip install wordllama)"
                )
            return self.try_shares(pairs, target)
        source = Path(self.options.vectors).name  # A path may be private.
        counts = collections.Counter(itertools.chain.from_iterable(every.words))
        has_vector = np.diff(self._vectors.pieces.split(counts).starts) > 0
        share = float(np.average(has_vector, weights=list(counts.values())))
        self._of_vectors = {"source": source, "words": share, "used": True}
        line = f"vectors of {source}: for {share:.1%} of the words"
        if len(every.labels) < _MANY:
            say(line)
            return self.try_shares(pairs, target)
        metric = target.choose_metric(self.options.best_metric)
        vectors, choices = self._vectors, []
        for self._vectors in (None, vectors):
            trials = self.try_shares(pairs, target)
            choices.append((next(trials), trials))
        before, after = (first.scores[metric] for first, _ in choices)
        is_worse = after > before if target.is_error else after < before
        self._vectors = None if is_worse else vectors
        self._of_vectors |= {"used": not is_worse, "without": before, "with": after}
        say(
            f"{line}; {target.metrics[metric]} on texts that were not fitted {after:.4f}, without "
            f"vectors {before:.4f}: they are {'left out' if is_worse else 'used'}"
        )
        # The compared models, which read all words, are the first trials of the shares.
        first, rest = choices[0] if is_worse else choices[1]
        return itertools.chain([first], rest)

    def make_model(
        self, stage: Lexicon, target: Target, every: TextPart, report: Json, picture: str
    ) -> LexiconModel:
        if self._of_vectors:
            report["vectors"] = self._of_vectors
        model = self.model_class(
            lexicon=stage,
            splitter=self._splitter,
            target=target,
            report=report,
            picture=picture,
            options=options_to_json(self.options),
        )
        groups = target.name_groups(every.labels)
        examples = find_examples(list_words_read(model), every.words, groups)
        return dataclasses.replace(model, examples=examples)

    def measure_reading(
        self, model: LexiconModel, part: TextPart, scores: Json
    ) -> tuple[str, list[str]]:
        equal = count_equal(model.lexicon, model.splitter, part.words)
        scores["same_answer"] = same = {"texts": len(part.words), "equal": equal}
        return "from", [render_priors(scores), render_equal(same, model.target.answers)]


class LinearLearner(LexiconLearner):
    """A linear model of all words."""

    model_class, has_gates = LinearModel, False

    def start_fit(self, part: TextPart, head: Head, shares: Sequence[float]) -> Iterator[Lexicon]:
        yield fit_linear(part.items, part.labels, head, sample_weight=part.weights)

    def measure_reading(
        self, model: LexiconModel, part: TextPart, scores: Json
    ) -> tuple[str, list[str]]:
        return "from", [READS_ALL]


def _are_ascii(texts: Sequence[str]) -> bool:
    letters = [letter for text in texts for letter in text if letter.isalpha()]
    return sum(map(str.isascii, letters)) > _ENGLISH * len(letters)


class StatesLearner(StagedLearner):
    """The classifiers of a fit, which read a falling share of the tokens."""

    noun = "tokens"
    title = ", by the share of tokens read"

    def __init__(self, kind: str, options: TextOptions) -> None:
        super().__init__(kind, options)
        _states.check_encoder(options.encoder)
        self._encoder: Any = options.encoder
        self._width = 0
        self._parts: dict[str, tuple[list[str], list[np.ndarray]]] = {}

    def read(self, name: str, table: Any, **options: Any) -> Corpus:
        loaded, left_out = table.load(), options["left_out"]
        vectors: list[np.ndarray] = []
        rows = (row for row in loaded if isinstance(row, Record) and row.label not in left_out)
        texts = (row.inputs[0] for row in rows if row.inputs[0])
        encoded = _states.encode_texts(self._encoder, texts, self._width)

        def split(record: Record) -> list[Sequence[str]]:
            tokens: Sequence[str] = ()
            if record.inputs[0]:
                tokens, of_tokens = next(encoded)
                # A text without a token is set aside.
                if tokens:
                    vectors.append(of_tokens)
            return [tokens]

        corpus, records, _ = read_examples(loaded, split, **options)
        self._parts[name] = [record.inputs[0] for record in records], vectors
        self._width = vectors[0].shape[1]
        return corpus

    def make_part(self, name: str, labels: np.ndarray) -> TextPart:
        texts, vectors = self._parts[name]
        split = Splitter(Tokenizer(LEXICON_KIND)).split
        return TextPart(vectors, list(map(split, texts)), texts, labels)

    def start_fit(
        self, part: TextPart, head: Head, shares: Sequence[float]
    ) -> Iterator[GatedPooling]:
        number, weights = head.num_probabilities, part.weights
        return fit_pooling(part.items, part.labels, number, shares, sample_weight=weights)

    def make_model(
        self, stage: GatedPooling, target: Target, every: TextPart, report: Json, picture: str
    ) -> _states.StatesModel:
        return _states.StatesModel(
            pooling=stage,
            classes=target.classes,
            encoder=self._encoder,
            facts=_states.sample_encoder(self._encoder, stage.width),
            report=report,
            picture=picture,
            options=options_to_json(self.options),
        )

    def measure_reading(
        self, model: _states.StatesModel, part: TextPart, scores: Json
    ) -> tuple[str, list[str]]:
        sample = Sample()
        for text in part.texts:
            sample.add(text)
        leak = _states.measure_states_leak(model, sample.texts())
        model.report["leak"] = leak
        for name in {"validation", "test"}.intersection(model.report):
            del model.report[name]["by_prior"]  # Each text has a token, so it is always 0.
        verb = "from" if _states.is_zero(leak) else "reading"
        return verb, [_states.render_states_leak(leak)]
