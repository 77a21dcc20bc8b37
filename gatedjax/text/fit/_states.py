"""The fit of gates and a classifier to the token vectors of labelled texts."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import GatedPooling, Head, fit_pooling
from gatedjax.text._options import TextOptions, options_to_json
from gatedjax.text.answers._leak import Sample
from gatedjax.text.corpus._corpus import Corpus, read_examples
from gatedjax.text.corpus._tokens import LEXICON_KIND, Splitter, Tokenizer
from gatedjax.text.fit._stages import StagedLearner, TextPart
from gatedjax.text.models import _states
from gatedjax.text.sources._table import Record
from gatedjax.text.targets._base import Target


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
