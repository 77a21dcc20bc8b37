"""Vocabularies: words to ids and back, and the spelling of words as ids of characters."""

import collections
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from gatedjax._utils.limits import read_limited
from gatedjax._utils.write import write_text
from gatedjax.data.files._source import Source

PAD, UNK = 0, 1
SPECIALS = ("<pad>", "<unk>")


class Vocabulary:
    """An ordered set of words: id 0 is padding, id 1 stands for all unknown words.

        >>> vocabulary = Vocabulary(["good", "film"])
        >>> vocabulary.encode(["Good", "plot"]), vocabulary.decode([2, 1])
        ([2, 1], ('good', '<unk>'))

    Args:
      words: the words without `SPECIALS` ("<pad>" and "<unk>"), in the order of their ids from 2.
      lowercase: True to lower-case words before they are looked up; None means True, and False for
        a `ClosedVocabulary`.

    Raises:
      ValueError: if a word occurs twice or is in `SPECIALS`.

    Attributes:
      words: the words in the order of ids, "<pad>" and "<unk>" included.
      lowercase: True if words are lower-cased before they are looked up.
    """

    _specials: ClassVar[tuple[str, ...]] = SPECIALS
    _lowercase: ClassVar[bool] = True

    def __init__(self, words: Sequence[str], *, lowercase: bool | None = None) -> None:
        self.lowercase = self._lowercase if lowercase is None else lowercase
        self._words = (*self._specials, *words)
        self._ids = {word: i for i, word in enumerate(self._words)}
        if not self._words:
            raise ValueError("words must not be empty, got no word")
        if len(self._ids) != len(self._words):
            twice = [w for w, n in collections.Counter(self._words).items() if n > 1]
            raise ValueError(
                f"words must be different, also from special words, got {twice[0]!r} more than once"
            )
        if self._specials:
            del self._ids[SPECIALS[PAD]]  # "<pad>" in a text is an unknown word

    @classmethod
    def build(
        cls,
        sources: Iterable[Source],
        *,
        min_count: int = 1,
        lowercase: bool | None = None,
        max_size: int | None = None,
    ) -> Self:
        """Collects the words of sources by descending frequency, equal counts alphabetically.

        Args:
          sources: sequences of examples with "tokens".
          min_count: drop words that occur less often.
          lowercase: True to count and look up words in lower case; None means True, and False for
            a `ClosedVocabulary`.
          max_size: keep at most this many ids, "<pad>" and "<unk>" included if the vocabulary has
            them; None keeps all words.

        Returns:
          The vocabulary.

        Raises:
          ValueError: if min_count < 1, or max_size leaves no room for "<pad>" and "<unk>".
        """
        fixed = len(cls._specials)
        lowercase = cls._lowercase if lowercase is None else lowercase
        if min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {min_count}")
        if max_size is not None and max_size < fixed:
            raise ValueError(f"max_size must be at least {fixed}, got {max_size}")
        counts: collections.Counter[str] = collections.Counter()
        for source in sources:
            for example in source:
                counts.update(example["tokens"])
        if lowercase:
            # Words are folded after they are counted, because there are fewer words than tokens.
            folded: collections.Counter[str] = collections.Counter()
            for word, n in counts.items():
                folded[word.lower()] += n
            counts = folded
        # A text may have the word <unk>, which already has an id.
        frequent = [w for w, n in counts.items() if n >= min_count and w not in cls._specials]
        words = sorted(frequent, key=lambda w: (-counts[w], w))
        return cls(words[: None if max_size is None else max_size - fixed], lowercase=lowercase)

    @property
    def words(self) -> tuple[str, ...]:
        """The words in the order of ids, "<pad>" and "<unk>" included."""
        return self._words

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, word: str) -> bool:
        return (word.lower() if self.lowercase else word) in self._ids

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Returns the id of each token; unknown tokens get the id of `<unk>`.

        Raises:
          ValueError: for an unknown token of a `ClosedVocabulary` without `<unk>`.
        """
        words = [token.lower() for token in tokens] if self.lowercase else list(tokens)
        get, unknown = self._ids.get, self._ids.get(SPECIALS[UNK], -1)
        ids = [get(word, unknown) for word in words]
        if unknown < 0 and unknown in ids:
            raise ValueError(
                "tokens must be in the vocabulary, which has no <unk>, got "
                f"{words[ids.index(unknown)]!r}"
            )
        return ids

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Returns the words of ids, `<pad>` and `<unk>` included."""
        return tuple(self._words[int(i)] for i in ids)

    def digest(self) -> str:
        """Returns the SHA-256 of the words, their order and `lowercase`, in hex."""
        return hashlib.sha256(self._json().encode()).hexdigest()

    def _json(self) -> str:
        content = {"lowercase": self.lowercase, "words": list(self._words)}
        return json.dumps(content, ensure_ascii=True, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Writes the words and `lowercase` to the JSON file `path`, atomically."""
        write_text(Path(path), self._json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a vocabulary that `save` wrote.

        Raises:
          ValueError: if the file is not a vocabulary of this class.
        """
        try:
            data = json.loads(read_limited(path).decode())
            words, lowercase = data["words"], data["lowercase"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} must be a saved vocabulary, got {error!r}") from error
        valid = isinstance(words, list) and all(isinstance(word, str) for word in words)
        if not valid or not isinstance(lowercase, bool):
            raise ValueError(
                f"{path} must be a saved vocabulary with a list of texts as 'words' and a bool as "
                "'lowercase'"
            )
        fixed = len(cls._specials)
        if tuple(words[:fixed]) != cls._specials:
            raise ValueError(
                f"{path} must be a saved vocabulary that begins with {SPECIALS}, got {words[:2]}"
            )
        # A vocabulary of texts begins with <pad>, which a language model does not predict.
        if not fixed and words[:1] == [SPECIALS[PAD]]:
            raise ValueError(
                f"{path} must be a vocabulary of a language model, got a vocabulary of texts: read "
                "it with Vocabulary.load"
            )
        return cls(words[fixed:], lowercase=lowercase)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} ids, lowercase={self.lowercase})"


class ClosedVocabulary(Vocabulary):
    """The words that a language model predicts, without an id for padding.

    `<unk>` is an ordinary word. A word that is not in the vocabulary gets the id of `<unk>`, or an
    error if the vocabulary has no `<unk>`.

        >>> ClosedVocabulary(["<unk>", "the", "house"]).encode(["the", "red", "house"])
        [1, 0, 2]

    Args:
      words: the words in the order of their ids, from 0.
      lowercase: True to lower-case words before they are looked up; None means False.

    Raises:
      ValueError: if there are no words, or a word occurs twice.

    Attributes:
      words: the words in the order of their ids.
      lowercase: True if words are lower-cased before they are looked up.
    """

    _specials = ()
    _lowercase = False


MAX_CHARACTERS = 10
"""Longer words are truncated (Dhingra et al. 2017, the authors' code)."""
SPACE = 1


class Characters:
    """An alphabet: id 0 is padding, id 1 the space and all unknown characters.

        >>> ids, lengths = Characters("abc").encode(["cab", "a?"])
        >>> print(ids[:, :4], lengths)
        [[4 2 3 0]
         [2 1 0 0]] [3 2]

    Args:
      alphabet: the characters from id 2 on, each a string of length 1.

    Raises:
      ValueError: if an entry is repeated, is the space, or is not a single character.
    """

    def __init__(self, alphabet: Sequence[str]) -> None:
        self.alphabet = "".join(alphabet)
        self._ids = {character: i for i, character in enumerate(self.alphabet, SPACE + 1)}
        if len(self._ids) != len(alphabet) or len(self.alphabet) != len(alphabet):
            raise ValueError(
                f"alphabet must hold single characters, each once, got {alphabet!r:.80}"
            )
        if " " in self._ids:
            raise ValueError(
                f"alphabet must not hold the space, which is id 1, got {alphabet!r:.80}"
            )

    @classmethod
    def build(cls, vocabulary: Vocabulary) -> "Characters":
        """Collects the characters of the words of a vocabulary, sorted by their code points.

        Characters after the first ten of a word are left out.
        """
        words = vocabulary.words[PAD + 1 :]
        return cls(sorted({c for word in words for c in word[:MAX_CHARACTERS]} - {" "}))

    def __len__(self) -> int:
        return len(self.alphabet) + 2

    def encode(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Spells words; only the first 10 characters of a word are used.

        Args:
          words: n words to encode.

        Returns:
          (ids int32 [n, 10], right padded with 0; lengths int32 [n], at most 10).
        """
        ids = np.zeros((len(words), MAX_CHARACTERS), np.int32)
        lengths = np.zeros(len(words), np.int32)
        for i, word in enumerate(words):
            spelt = [self._ids.get(character, SPACE) for character in word[:MAX_CHARACTERS]]
            ids[i, : len(spelt)] = spelt
            lengths[i] = len(spelt)
        return ids, lengths

    def table(self, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
        """Spells the V words of a vocabulary, in the order of ids.

        Returns (character ids int32 [V, 10], number of characters int32 [V]); padding has no
        characters.
        """
        ids, lengths = self.encode(("", *vocabulary.words[PAD + 1 :]))
        return ids, lengths
