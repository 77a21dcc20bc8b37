"""Byte-pair encoding of texts, by the library `tokenizers` (the extra `mt`)."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gatedjax._utils.limits import read_limited
from gatedjax._utils.missing import missing
from gatedjax._utils.write import write_text

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
"""Ids 0 to 3."""
_SPACE = "▁"
# Replaces a "▁" in a text; a noncharacter of Unicode, which texts do not contain.
_STAND_IN = "\ufdd0"


class BytePairs:
    """A byte-pair encoding of texts that keeps spaces.

    The first piece of a word begins with "▁"; punctuation is not joined to words. Ids 0 to 3 are
    padding, unknown, begin and end of a text. "<pad>" or "</s>" in a text are ordinary characters,
    and so is "▁". Characters outside the training texts are unknown, and `decode` drops them.
    `SPECIALS` are "<pad>", "<unk>", "<s>" and "</s>".

    Args:
      tokenizer: a tokenizer of the library `tokenizers` with `SPECIALS` as its first pieces.

    Raises:
      ValueError: if its first pieces are not `SPECIALS`.
    """

    def __init__(self, tokenizer: Any) -> None:
        first = tuple(tokenizer.id_to_token(i) for i in range(len(SPECIALS)))
        if first != SPECIALS:
            raise ValueError(f"tokenizer must have the first pieces {SPECIALS}, got {first}")
        # Without this setting, which the library does not save, "<pad>" in a text is padding.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy goes through the constructor, because the library does not save the option that it
        # sets.
        return type(self), (self._tokenizer,)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "BytePairs":
        """Learns merges from texts; pass the texts of both languages for a shared vocabulary.

        Args:
          texts: the training texts, for example lines of a file.
          vocab_size: the number of pieces, the four special pieces included; small texts give
            fewer.

        Returns:
          The encoding with the learned pieces.

        Raises:
          ImportError: if `tokenizers` is missing.
          ValueError: if vocab_size is too small for a piece.
        """
        if vocab_size <= len(SPECIALS):
            raise ValueError(f"vocab_size must be at least {len(SPECIALS) + 1}, got {vocab_size}")
        tokenizers = _library()
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=SPECIALS[1]))
        # The same letter may be written with one or two code points, and would become different
        # pieces.
        tokenizer.normalizer = tokenizers.normalizers.NFC()
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
            [
                tokenizers.pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always"),
                tokenizers.pre_tokenizers.Punctuation(),
            ]
        )
        tokenizer.decoder = tokenizers.decoders.Metaspace(
            replacement=_SPACE, prepend_scheme="always"
        )
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(SPECIALS), show_progress=False
        )
        tokenizer.train_from_iterator(map(_inside, texts), trainer)
        return cls(tokenizer)

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without begin and end markers."""
        return self._tokenizer.encode(_inside(text), add_special_tokens=False).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without begin and end markers."""
        inside = list(map(_inside, texts))
        encodings = self._tokenizer.encode_batch(inside, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; the ids 0 to 3, padding and markers, are left out."""
        text_ids = [int(i) for i in ids if int(i) >= len(SPECIALS)]
        return self._tokenizer.decode(text_ids).strip().replace(_STAND_IN, _SPACE)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the piece of text of each id; "▁" at the start marks the beginning of a word.

        Raises:
          ValueError: if an id is not in the vocabulary.
        """
        return [piece.replace(_STAND_IN, _SPACE) for piece in self._pieces(ids)]

    def _pieces(self, ids: Iterable[int]) -> list[str]:
        ids = list(ids)
        pieces = [self._tokenizer.id_to_token(int(i)) for i in ids]
        if None in pieces:
            raise ValueError(f"ids must be below {len(self)}, got {max(int(i) for i in ids)}")
        return pieces

    def words(self, ids: Sequence[int]) -> list[int]:
        """Returns for each piece the number of the word that it belongs to, from 0.

        Words are separated by spaces; `ids` are the ids of the pieces of a text.
        """
        number, numbers = -1, []
        for piece in self._pieces(ids):
            # The first piece begins a word even without its mark, because ids may be a part of a
            # text.
            number += piece.startswith(_SPACE) or number < 0
            numbers.append(number)
        return numbers

    def encode_words(
        self, words: Sequence[str], glued: Sequence[bool] | None = None
    ) -> tuple[list[int], list[int]]:
        """Encodes a tokenised text.

        Args:
          words: the words of the text.
          glued: True at words without a space before them, such as most punctuation; None puts a
            space before all words.

        Returns:
          (ids of the pieces, for each piece the position of its word), lists of equal length.

        Raises:
          ValueError: if glued has another length.
        """
        glued = [False] * len(words) if glued is None else glued
        if len(glued) != len(words):
            raise ValueError(f"glued must have length {len(words)}, got {len(glued)}")
        text, owner = "", []
        for number, (word, joined) in enumerate(zip(words, glued, strict=True)):
            piece = word if joined or not text else f" {word}"
            text += piece
            owner += [number] * len(piece)
        encoded = self._tokenizer.encode(_inside(text), add_special_tokens=False)
        # Use the end of a piece, because it may begin with the space before its word.
        places = [owner[max(end, 1) - 1] for _, end in encoded.offsets]
        return encoded.ids, places

    def digest(self) -> str:
        """Returns the SHA-256 of the tokenizer, in hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Returns the vocabulary and the merges as a JSON text, which `from_json` reads."""
        return self._tokenizer.to_str()

    @classmethod
    def from_json(cls, text: str) -> "BytePairs":
        """Returns the encoding that `to_json` described.

        Raises:
          ImportError: if `tokenizers` is missing.
          ValueError: if the text is not a vocabulary of `BytePairs`.
        """
        library = _library()
        try:
            return cls(library.Tokenizer.from_str(text))
        except Exception as error:  # the library raises no narrower class
            raise ValueError(f"the text must be a vocabulary of BytePairs: {error}") from error

    def save(self, path: str | Path) -> None:
        """Writes the vocabulary and the merges to the JSON file `path`, atomically."""
        write_text(Path(path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "BytePairs":
        """Reads a vocabulary that `save` wrote.

        Raises:
          FileNotFoundError: if the file does not exist.
          ValueError: if the file is not a vocabulary of `BytePairs`.
        """
        try:
            return cls.from_json(read_limited(path).decode())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def __repr__(self) -> str:
        return f"BytePairs({len(self)} ids)"


def _inside(text: str) -> str:
    # The tokenizer marks words with this space, so that one in the text gets a stand-in. The number
    # of characters stays the same.
    return text.replace(_STAND_IN, "\ufffd").replace(_SPACE, _STAND_IN)


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(missing("BPE needs", "tokenizers")) from error
    return tokenizers
