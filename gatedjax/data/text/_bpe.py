"""Byte-pair encoding of texts, by the library `tokenizers` (the extra `mt`)."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gatedjax._utils.limits import read_limited
from gatedjax._utils.missing import missing

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
"""Ids 0 to 3."""
_SPACE = "▁"
# what "▁" of a text itself is inside: Unicode keeps this code point for such use, so no text has it
_STAND_IN = "\ufdd0"


class BytePairs:
    """Texts as pieces of words, and back without loss of spaces.

    A piece that begins a word begins with "▁"; punctuation is never joined to a word. Ids 0 to 3
    are padding, unknown, and what stands before and after a text. A text is never read as one of
    these: "<pad>" or "</s>" in it are characters like any others, and so is "▁". Characters that no
    training text has are unknown, and `decode` leaves them out.

    Args:
      tokenizer: of the library, with these four pieces first.

    Raises:
      ValueError: if it has others there.
    """

    def __init__(self, tokenizer: Any) -> None:
        first = tuple(tokenizer.id_to_token(i) for i in range(len(SPECIALS)))
        if first != SPECIALS:
            raise ValueError(f"the first pieces must be {SPECIALS}, got {first}")
        # the library does not save this: without it "<pad>" in a text would be padding
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._tokenizer,)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "BytePairs":
        """Learns merges; of both languages' texts, where they share one vocabulary.

        Args:
          texts: lines.
          vocab_size: pieces in all, the four reserved ones included; fewer if the texts are small.

        Raises:
          ImportError: if `tokenizers` is missing.
          ValueError: if vocab_size leaves no room for a piece.
        """
        if vocab_size <= len(SPECIALS):
            raise ValueError(f"vocab_size must be above {len(SPECIALS)}, got {vocab_size}")
        tokenizers = _library()
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=SPECIALS[1]))
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
        """Ids of a text, without what stands before and after."""
        return self._tokenizer.encode(_inside(text), add_special_tokens=False).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts at once."""
        inside = list(map(_inside, texts))
        encodings = self._tokenizer.encode_batch(inside, add_special_tokens=False)
        return [one.ids for one in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; the reserved ones are left out."""
        text_ids = [int(i) for i in ids if int(i) >= len(SPECIALS)]
        return self._tokenizer.decode(text_ids).strip().replace(_STAND_IN, _SPACE)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces of some ids.

        Raises:
          ValueError: if an id is not one of this vocabulary.
        """
        return [piece.replace(_STAND_IN, _SPACE) for piece in self._pieces(ids)]

    def _pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces as they are inside, where "▁" is never a character of a text."""
        ids = list(ids)
        pieces = [self._tokenizer.id_to_token(int(i)) for i in ids]
        if None in pieces:
            raise ValueError(f"ids must be below {len(self)}, got {max(int(i) for i in ids)}")
        return pieces

    def words(self, ids: Sequence[int]) -> list[int]:
        """Which word, split at spaces, every piece belongs to, from 0."""
        number, numbers = -1, []
        for piece in self._pieces(ids):
            number += piece.startswith(_SPACE) or number < 0
            numbers.append(number)
        return numbers

    def encode_words(
        self, words: Sequence[str], glued: Sequence[bool] | None = None
    ) -> tuple[list[int], list[int]]:
        """Ids of a text that is known as words, and the word that every id belongs to.

        Args:
          words: of the text.
          glued: True at words that no space stands before, as most punctuation.

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
        # the end of a piece: its beginning may be the space before the word, or no character at all
        places = [owner[max(end, 1) - 1] for _, end in encoded.offsets]
        return encoded.ids, places

    def digest(self) -> str:
        """SHA-256 of everything that decides how a text is encoded, in hex."""
        return hashlib.sha256(self._tokenizer.to_str().encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Writes JSON, so that a reader sees the old file or the whole new one."""
        from gatedjax.data.text._vocabulary import write_whole

        write_whole(Path(path), self._tokenizer.to_str() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "BytePairs":
        """Reads what `save` wrote.

        Raises:
          FileNotFoundError: if there is no such file.
          ValueError: if the file is no such vocabulary.
        """
        try:
            tokenizer = _library().Tokenizer.from_str(read_limited(path).decode())
            return cls(tokenizer)
        except (ImportError, OSError):
            raise
        except Exception as error:  # the library raises no narrower class
            raise ValueError(f"{path}: not a BPE vocabulary of gatedjax: {error}") from error

    def __repr__(self) -> str:
        return f"BytePairs({len(self)} ids)"


def _inside(text: str) -> str:
    """A text as the library gets it; every character stays one character."""
    return text.replace(_STAND_IN, "\ufffd").replace(_SPACE, _STAND_IN)


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(missing("BPE needs", "tokenizers")) from error
    return tokenizers
