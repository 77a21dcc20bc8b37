"""The class `Tagger`, which predicts a tag for each word."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gatedjax._utils.types import Json
from gatedjax.text._options import with_arguments
from gatedjax.text.answers._prediction import usable
from gatedjax.text.estimators._base import TextEstimator, explains_unknown_parameters
from gatedjax.text.fit._learner import Say
from gatedjax.text.sources._conll import open_sentences
from gatedjax.text.sources._table import MAX_ASIDE

if TYPE_CHECKING:
    from gatedjax.text.models._tagging import Tagging


@with_arguments
@explains_unknown_parameters
@dataclasses.dataclass(eq=False, repr=False)
class Tagger(TextEstimator):
    """A model that predicts a tag for each word of a sentence, such as a part of speech.

    The constructor takes the name of the model, "ssan" or "san", and keywords, the fields of
    `TextOptions`. `Tagger.train("ner.conll")` trains on a file, and `predict` returns a `Tagging`
    for each sentence.

        >>> tagger = Tagger(num_steps=200, seed=1)
        >>> tagger
        Tagger(num_steps=200, seed=1)
        >>> tagger.get_params()["lowercase"]
        False

    Attributes:
      classes_: array [C] of the tags, sorted.
      report_: a dict; "validation" and, with test sentences, "test" are dicts of scores of the
        model, such as "accuracy", and "baseline" has the accuracy of the baseline that gives each
        word its most frequent tag.
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
          data: the path of a file with a word and its tag in each line, and an empty line after
            each sentence (CoNLL's columns, .conllu); or a list [(words, tags), ...].
          word: column of the words, from 0; None reads the first column, in .conllu the second.
          tag: column of the tags, negative from the end; None reads the last column, in .conllu the
            fourth.
          validation: data that choose the best parameters; None splits off a part of `data`, a
            tenth unless `held_out` is set.
          test: data on which the trained model is evaluated for its report.
          encoding: encoding of the files.
          max_aside: the largest share of the sentences in a source that may be set aside because
            they cannot be used.
          workdir: folder for checkpoints; the same call continues an interrupted training. None
            uses a temporary folder.
          say: called with each line of the progress report, like `print`.
          progress: True shows a progress bar.
          **options: parameters of the constructor.

        Returns:
          The trained tagger.

        Raises:
          FileNotFoundError, ValueError, TypeError: for data or options that cannot be used.
          StoppedBySignal: after Ctrl-C or SIGTERM.
        """
        return cls(**options)._train(
            *(data, validation, test),
            opener=lambda source: open_sentences(source, word=word, tag=tag, encoding=encoding),
            workdir=workdir,
            say=say,
            progress=progress,
            max_aside=max_aside,
        )

    def predict(self, X: Iterable[str | Sequence[str]]) -> "list[Tagging]":
        """Predicts a tag for each word of sentences.

        Args:
          X: texts, which are split into words, or lists of words, which are not split further.

        Returns:
          A `Tagging` for each sentence.

        Raises:
          TypeError: if X is a single text.
          ValueError: if a sentence has no word.
        """
        if isinstance(X, str):
            raise TypeError(f"X must be a list of sentences, got the text {X[:40]!r}: pass [text]")
        from gatedjax.text.models._tagging import tag_sentences  # imports JAX

        return list(usable(tag_sentences(self._get_trained(), X), "sentence"))

    def evaluate(
        self,
        data: object,
        *,
        word: int | None = None,
        tag: int | None = None,
        encoding: str = "utf-8",
    ) -> Json:
        """Evaluates the model on tagged sentences.

        Args:
          data: tagged sentences, with tags that the training data have: the path of a file with a
            word and its tag in each line, or a list [(words, tags), ...].
          word: column of the words, from 0; None reads the first column, in .conllu the second.
          tag: column of the tags, negative from the end; None reads the last column, in .conllu the
            fourth.
          encoding: encoding of the files.

        Returns:
          A dict with the accuracy of words, scores of each tag, calibration, and the F1 of spans if
          the tags are BIO tags (O, B-X and I-X, which mark the spans of kind X).

        Raises:
          ValueError: for a tag that is not in the training data, or data that cannot be used.
        """
        from gatedjax.text.models._tagging import evaluate_tags  # imports JAX

        table = open_sentences(data, word=word, tag=tag, encoding=encoding)
        return evaluate_tags(self._get_trained(), table)
