"""`Tagger`: a tag for every word, from Python."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from gatedjax._utils.types import Json
from gatedjax.text._asides import MAX_ASIDE
from gatedjax.text._estimator import Estimator
from gatedjax.text._model import usable
from gatedjax.text._options import with_arguments
from gatedjax.text._tagging import Tagging, evaluate_tags, tag_sentences
from gatedjax.text._tags import open_sentences
from gatedjax.text._training import Say


@with_arguments
@dataclasses.dataclass(eq=False, repr=False)
class Tagger(Estimator):
    """Gives every word of a sentence a tag: a name's kind, a part of speech, whatever is learned.

        model = Tagger.train("ner.conll")
        model.predict(["John lives in Paris"])[0]   # Tagging(words=(...), tags=(...), ...)
        model.save("model"); model = Tagger.load("model")

    Attributes:
      classes_: the tags, sorted.
      report_: what is known of the model's quality, beside that of the most frequent tag of a word.
    """

    _kind = "tags"

    model: str = "ssan"
    lowercase: bool = dataclasses.field(default=False, kw_only=True)

    @classmethod
    def train(
        cls,
        data: object,
        *,
        word: int | None = None,
        tag: int | None = None,
        validation: object = None,
        test: object = None,
        encoding: str = "utf-8",
        max_aside: float = MAX_ASIDE,
        workdir: str | Path | None = None,
        say: Say = lambda line: None,
        progress: bool = False,
        **options: Any,
    ) -> Self:
        """Trains a tagger.

        Args:
          data: the path of a file with a word and its tag a line, and an empty line after every
            sentence (CoNLL's columns, .conllu); or [(words, tags), ...].
          word: column of the words, from 0; by default the first, in .conllu the second.
          tag: column of the tags, negative from the end; by default the last, in .conllu the
            fourth.
          validation: data that choose the best parameters; None holds out a tenth.
          test: data that are reported on.
          encoding: of files.
          max_aside: the largest share of the lines (of a tagger, sentences) of a source that may be
            set aside because they cannot be used; empty lines do not count.
          workdir, say, progress, **options: as for `TextClassifier.train`.

        Returns:
          The trained tagger.

        Raises:
          FileNotFoundError, ValueError, TypeError: for data or options that cannot be used.
          StoppedBySignal: after Ctrl-C or SIGTERM.
        """
        tables = (
            None if one is None else open_sentences(one, word=word, tag=tag, encoding=encoding)
            for one in (data, validation, test)
        )
        more: Json = {"say": say, "progress": progress, "max_aside": max_aside}
        return cls(**options)._train(*tables, workdir=workdir, **more)

    def predict(self, X: Iterable[str | Sequence[str]]) -> list[Tagging]:
        """Tags sentences.

        Args:
          X: texts, which are split into words, or lists of words, which stay as they are.

        Returns:
          A tagging for each.

        Raises:
          ValueError: if a sentence has no word.
        """
        if isinstance(X, str):
            raise TypeError("X must be a list of sentences, got one text")
        return list(usable(tag_sentences(self._fitted(), X), "sentence"))

    def evaluate(
        self,
        data: object,
        *,
        word: int | None = None,
        tag: int | None = None,
        encoding: str = "utf-8",
    ) -> Json:
        """Accuracy of words, scores of every tag, calibration, and the F1 of spans (BIO tags).

        Args:
          data: tagged sentences, as for `train`, of tags that training has seen.
          word: see `train`.
          tag: see `train`.
          encoding: of files.
        """
        table = open_sentences(data, word=word, tag=tag, encoding=encoding)
        return evaluate_tags(self._fitted(), table)
