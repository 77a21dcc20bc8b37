"""Running text for language models: a closed vocabulary and an array of token ids."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax.data.files._source import Example, ReadReport, Source, SourceInfo
from gatedjax.data.text._vocabulary import SPECIALS, Vocabulary, read_words

EOS = "<eos>"


class ClosedVocabulary(Vocabulary):
    """The words that a language model predicts, without an id for padding.

    `<unk>` is an ordinary word. A word that is not in the vocabulary gets the id of `<unk>`, or an
    error if the vocabulary has no `<unk>`.

        >>> ClosedVocabulary(["<unk>", "the", "house"]).encode(["the", "red", "house"])
        [1, 0, 2]

    Args:
      words: the words in the order of their ids, from 0.
      lowercase: True to lower-case words before they are looked up.

    Raises:
      ValueError: if there are no words, or a word occurs twice.

    Attributes:
      words: the words in the order of their ids.
      lowercase: the argument.
    """

    _specials = ()

    def __init__(self, words: Sequence[str], *, lowercase: bool = False) -> None:
        super().__init__(words, lowercase=lowercase)

    @classmethod
    def build(
        cls,
        sources: Iterable[Source],
        *,
        min_count: int = 1,
        lowercase: bool = False,
        max_size: int | None = None,
    ) -> "ClosedVocabulary":
        """Collects the words of sources by descending frequency, equal counts alphabetically.

        Args:
          sources: sequences of examples with "tokens".
          min_count: drop words that occur less often.
          lowercase: True to count and look up words in lower case.
          max_size: keep at most this many words; None keeps all words.

        Returns:
          The vocabulary.
        """
        options: Any = {"min_count": min_count, "lowercase": lowercase, "max_size": max_size}
        return super().build(sources, **options)

    @classmethod
    def load(cls, path: str | Path) -> "ClosedVocabulary":
        """Reads a vocabulary that `save` wrote.

        Raises:
          ValueError: if the file is not a closed vocabulary.
        """
        words, lowercase = read_words(path)
        # A vocabulary of texts begins with <pad>, which a language model does not predict.
        if words[:1] == [SPECIALS[0]]:
            raise ValueError(
                f"{path} must be a vocabulary of a language model, got a vocabulary of texts: read "
                "it with Vocabulary.load"
            )
        return cls(words, lowercase=lowercase)


class TokenStream(Source):
    """The sentences of a split, with all their tokens as an array.

    Each sentence ends with an end-of-sentence token, which is predicted like a word. As a `Source`
    a stream is the sequence of its sentences.

        >>> sentences = [{"tokens": ["a", "b", "<eos>"], "example_id": 0}]
        >>> vocabulary = ClosedVocabulary(["<eos>", "a", "b"])
        >>> info = SourceInfo("letters", "train", class_names=())
        >>> stream = TokenStream(sentences, info, vocabulary=vocabulary)
        >>> print(stream.ids, stream.end_id)
        [1 2 0] 0

    Args:
      sentences: examples with "tokens" (`end` the last of each) and "example_id", in order.
      info: a `SourceInfo` with the name and the split.
      report: a `ReadReport`, the counts of used and unused lines; None means that all were used.
      vocabulary: maps tokens to ids.
      end: the end-of-sentence token; the model reads it before the first word of the stream.

    Attributes:
      info, report, vocabulary: the arguments of these names.
      ids: int32 [n], the ids of all n tokens.
      end_id: the id of `end`.
      unknown: the number of tokens outside the vocabulary; `<unk>` in the text does not count.
      first_id: the example id of the first sentence. `LanguageModelBatches` adds the position of a
        window of tokens to it.

    Raises:
      ValueError: if there are no sentences, a sentence does not end with `end`, or `end` is not in
        the vocabulary.
    """

    def __init__(
        self,
        sentences: Sequence[Example],
        info: SourceInfo,
        report: ReadReport | None = None,
        *,
        vocabulary: ClosedVocabulary,
        end: str = EOS,
    ) -> None:
        super().__init__(sentences, info, report)
        where = f"{info.name}, {info.split}"
        if end not in vocabulary:
            raise ValueError(f"{where}: end must be in the vocabulary, got {end!r}")
        if not len(sentences):
            raise ValueError(f"{where}: sentences must not be empty, got no sentence")
        tokens: list[str] = []
        for sentence in sentences:
            if tuple(sentence["tokens"][-1:]) != (end,):
                raise ValueError(
                    f"{where}: sentence {sentence['example_id']} must end with {end!r}, got "
                    f"{sentence['tokens'][-1:]!r}"
                )
            tokens += sentence["tokens"]
        self.vocabulary = vocabulary
        self.ids = np.array(vocabulary.encode(tokens), np.int32)
        # The batches of all epochs read this array, so a write must fail.
        self.ids.setflags(write=False)
        self.end_id = vocabulary.encode([end])[0]
        self.unknown = sum(token not in vocabulary for token in tokens)
        self.first_id = int(sentences[0]["example_id"])

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the stream, end-of-sentence tokens included."""
        return len(self.ids)

    def __repr__(self) -> str:
        return f"TokenStream({self.info.name!r}, {self.info.split!r}, {self.num_tokens} tokens)"
