"""Token vectors of texts from a frozen encoder: a function, or a file of states."""

import itertools
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gatedjax._utils.types import Json
from gatedjax._utils.write import check_place, open_atomic
from gatedjax.data.files._unpack import allowance, too_large
from gatedjax.text._asides import Aside
from gatedjax.text._table import EMPTY, Columns, Record, Table
from gatedjax.text._tokens import import_path

Encoder = Callable[[list[str]], Iterable[tuple[Sequence[str], Any]]]
"""A function from texts to the tokens and their vectors [T, D] of each text."""
_ARRAYS = ("vectors", "offsets", "tokens")
_CHUNK = 64
_PROBE = "a fine film, not dull at all"
"""A text for which an encoder must give the same vectors as the encoder of the training."""
_NUMBERS = 8
"""Numbers of the first and of the last vector of this text that are compared."""
_FORM = "save them with gatedjax.text.save_states"


class EncodedText(NamedTuple):
    """A text as its tokens and their vectors.

        >>> EncodedText(["fine"], np.ones((1, 2))).vectors.shape
        (1, 2)

    Attributes:
      tokens: the T tokens.
      vectors: [T, D], the vector of each token, of width D.
    """

    tokens: Sequence[str]
    vectors: np.ndarray


class NeedsEncoder(ValueError):
    """Raised if a model reads vectors and has no encoder, or an encoder with other vectors."""


class States(Sequence[EncodedText]):
    """The tokens and vectors of n texts, a sequence of `EncodedText`.

        >>> states = States("x", np.ones((3, 2)), np.array([0, 1, 3]), ["a", "b", "c"])
        >>> len(states), states[1].tokens
        (2, ['b', 'c'])

    Args:
      name: the name of the source, for messages.
      vectors: [N, D], the vectors, of width D, of the N tokens of all texts.
      offsets: int [n + 1], the position in `vectors` where each text begins, and their end.
      tokens: the N tokens of all texts, in the order of `vectors`.

    Raises:
      ValueError: if the arrays do not belong together, or a number is not finite.
    """

    def __init__(
        self, name: str, vectors: np.ndarray, offsets: np.ndarray, tokens: Sequence[str]
    ) -> None:
        self.name, self.vectors, self.offsets, self.tokens = name, vectors, offsets, tokens
        if vectors.ndim != 2 or vectors.dtype.kind != "f" or not vectors.shape[1]:
            raise ValueError(
                f"{name}: vectors must be floating-point numbers [tokens, width], got "
                f"{vectors.dtype} of shape {vectors.shape}"
            )
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or not len(offsets):
            raise ValueError(
                f"{name}: offsets must be integers [texts + 1], got {offsets.dtype} of shape "
                f"{offsets.shape}"
            )
        falls = np.flatnonzero(offsets[1:] < offsets[:-1])
        if len(falls):
            raise ValueError(f"{name}: offsets must not fall, got a fall at text {falls[0]}")
        if offsets[0] != 0 or offsets[-1] != len(vectors):
            raise ValueError(
                f"{name}: offsets must begin with 0 and end with the number of vectors "
                f"({len(vectors):,}), got {offsets[0]} and {offsets[-1]}"
            )
        if len(tokens) != len(vectors):
            raise ValueError(
                f"{name}: there must be a token for each of the {len(vectors):,} vectors, got "
                f"{len(tokens):,} tokens"
            )
        for begin in range(0, len(vectors), 1 << 16):
            bad = ~np.isfinite(vectors[begin : begin + (1 << 16)]).all(1)
            if bad.any():
                token = begin + int(np.argmax(bad))
                text = int(np.searchsorted(offsets, token, "right")) - 1
                raise ValueError(
                    f"{name}: vectors must be finite, got NaN or infinity at token "
                    f"{token - offsets[text]} of text {text} ({str(tokens[token])[:40]!r})"
                )

    def __len__(self) -> int:
        """Returns the number n of texts."""
        return len(self.offsets) - 1

    def __getitem__(self, index):
        """Returns the `EncodedText` at a position from 0, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        part = slice(int(self.offsets[place]), int(self.offsets[place + 1]))
        return EncodedText(list(map(str, self.tokens[part])), self.vectors[part])

    def __iter__(self) -> Iterator[EncodedText]:
        """Yields the `EncodedText` of each text."""
        return (self[i] for i in range(len(self)))

    @property
    def width(self) -> int:
        """The width D of a vector."""
        return self.vectors.shape[1]


def save_states(
    path: str | Path, texts: Iterable[tuple[Sequence[str], Any]], *, overwrite: bool = False
) -> Path:
    """Writes the tokens and vectors of texts to a file for `gatedjax train --states`.

    The file is an .npz archive of NumPy with three arrays: `vectors` [N, D] (float16, float32 or
    float64), the vectors of the tokens of all texts; `offsets` int64 [n + 1], where text i has the
    vectors offsets[i] to offsets[i + 1] - 1; and `tokens` [N], texts of Unicode.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "states.npz")
        >>> _ = save_states(path, [(["a", "film"], np.ones((2, 3))), (["dull"], np.zeros((1, 3)))])
        >>> [text.tokens for text in read_states(path)]
        [['a', 'film'], ['dull']]

    Args:
      path: the file, which ends with .npz.
      texts: the tokens and the vectors [T, D] of each text, as an encoder returns them, for T
        tokens of width D.
      overwrite: True replaces an existing file.

    Returns:
      The path of the file.

    Raises:
      FileExistsError: if the file exists.
      ValueError: if a text has another number of vectors than tokens, or the widths differ.
    """
    path = Path(path).expanduser()
    if path.suffix != ".npz":
        raise ValueError(f"path must end with .npz, got {path.name!r}")
    check_place(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists: overwrite=True replaces it")
    states = collect_states("texts", check_encoded(texts, "texts"))
    tokens = np.array(list(states.tokens), np.str_)
    with open_atomic(path) as file:
        np.savez(file, vectors=states.vectors, offsets=states.offsets, tokens=tokens)
    return path


def read_states(path: str | Path) -> States:
    """Reads a file of token vectors; see `save_states` for its form.

    No Python object in the file is loaded, because loading could run code.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "states.npz")
        >>> np.savez(path, vectors=np.ones((2, 3)), offsets=[0, 2], tokens=["a", "film"])
        >>> read_states(path)[0].vectors.shape
        (2, 3)

    Args:
      path: the .npz file that `save_states` wrote.

    Returns:
      The tokens and vectors of each text.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is not an .npz archive with these arrays, has Python objects, is
        damaged, or unpacks to more than 1 GiB and more than 32 times its size.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of states; {_FORM}")
    try:
        with zipfile.ZipFile(path) as archive:
            allowed = allowance(path)
            if sum(member.file_size for member in archive.infolist()) > allowed:
                raise too_large(path, allowed)
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in _ARRAYS if name not in file.files]
            if missing:
                raise ValueError(
                    f"{path} must have the arrays vectors, offsets and tokens, got no "
                    f"{' and no '.join(missing)}; {_FORM}"
                )
            arrays = {name: _load_array(path, file, name) for name in _ARRAYS}
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
        raise ValueError(f"{path} must be a complete .npz archive, got {error}; {_FORM}") from error
    tokens = arrays["tokens"]
    if tokens.ndim != 1 or tokens.dtype.kind != "U":
        raise ValueError(
            f"{path}: tokens must be texts [tokens], as np.array(tokens, dtype=str), got "
            f"{tokens.dtype} of shape {tokens.shape}"
        )
    return States(str(path), arrays["vectors"], arrays["offsets"], tokens)  # type: ignore[arg-type]


def _load_array(path: Path, file: Any, name: str) -> np.ndarray:
    """Returns the array `name` of an open .npz file; `path` is its path, for messages."""
    try:
        return np.asarray(file[name])
    except (ValueError, SyntaxError, zipfile.BadZipFile) as error:
        if "allow_pickle" in str(error):
            raise ValueError(
                f"{path}: {name} must be an array of numbers or texts, got pickled Python objects, "
                f"which are not loaded; {_FORM}"
            ) from error
        raise ValueError(
            f"{path}: {name} must be a whole array, got a damaged one: {error}"
        ) from error


def check_encoded(
    results: Iterable[Any], name: str, texts: Sequence[str] | None = None
) -> Iterator[EncodedText]:
    """Yields the checked tokens and vectors of each text."""
    for number, result in enumerate(results):
        text = f"text {number}" if texts is None else f"the text {texts[number]!r:.60}"
        if isinstance(result, str) or not hasattr(result, "__len__") or len(result) != 2:
            raise ValueError(
                f"{name} must give (tokens, vectors [T, D]) for each text, got "
                f"{type(result).__name__} for {text}"
            )
        tokens, vectors = result
        token_list = [] if isinstance(tokens, str | bytes) else list(tokens)
        if isinstance(tokens, str | bytes) or not all(isinstance(t, str) for t in token_list):
            raise ValueError(
                f"{name} must give a list of texts as the tokens of {text}, got {tokens!r:.60}"
            )
        try:
            array = np.asarray(vectors)
            array = array if array.dtype.kind in "fc" else array.astype(np.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            # A tensor of PyTorch may be on a device, need a gradient, or have a type without a
            # counterpart in NumPy.
            raise ValueError(
                f"{name} must give an array of numbers as the vectors of {text}; for a tensor of "
                f"PyTorch give vectors.detach().float().cpu().numpy(): {error}"
            ) from error
        if array.dtype.kind == "c":
            raise ValueError(
                f"{name} must give vectors of real numbers, got complex numbers for {text}: give "
                "their real and imaginary parts as columns"
            )
        if not token_list and not array.size:
            array = array.reshape(0, array.shape[-1] if array.ndim == 2 else 0)
        if array.ndim != 2 or len(array) != len(token_list):
            raise ValueError(
                f"{name} must give a vector for each token: {text} has {len(token_list)} tokens "
                f"and vectors of shape {array.shape}"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must give finite vectors, got NaN or infinity for {text}")
        yield EncodedText([str(token) for token in token_list], array)


def collect_states(name: str, encoded: Iterable[EncodedText]) -> States:
    """Collects the tokens and vectors of texts into the arrays of a `States`."""
    tokens: list[str] = []
    vectors: list[np.ndarray] = []
    lengths = [0]
    width = 0
    for number, text in enumerate(encoded):
        if len(text.tokens):
            width = width or text.vectors.shape[1]
            if text.vectors.shape[1] != width:
                raise ValueError(
                    f"{name} must give vectors of the same width for each text, got {width} and, "
                    f"for text {number}, {text.vectors.shape[1]}"
                )
            vectors.append(text.vectors)
        tokens += text.tokens
        lengths.append(len(text.tokens))
    if not vectors:
        raise ValueError(f"{name} must have a text with a token, got none")
    return States(name, np.concatenate(vectors), np.cumsum(lengths), tokens)


def encode_texts(encoder: Encoder, texts: Iterable[str]) -> Iterator[EncodedText]:
    """Calls an encoder on a few texts at a time, and yields the checked results."""
    iterator = iter(texts)
    while part := list(itertools.islice(iterator, _CHUNK)):
        returned = encoder(part)
        if not isinstance(returned, Iterable):
            raise ValueError(
                "encoder must return a list with (tokens, vectors [T, D]) for each text, got "
                f"{type(returned).__name__} for {part[0]!r:.60}"
            )
        results = list(returned)
        if len(results) != len(part):
            raise ValueError(
                "encoder must return (tokens, vectors [T, D]) for each text, got "
                f"{len(results)} results for {len(part)} texts, the first of which is "
                f"{part[0]!r:.60}"
            )
        yield from check_encoded(results, "encoder", part)


def check_encoder(encoder: Any) -> None:
    """Raises TypeError if `encoder`, a function of a list of texts, cannot be called."""
    if not callable(encoder):
        raise TypeError(
            "encoder must be a function from a list of texts to a list of (tokens, vectors [T, D]),"
            f" got {type(encoder).__name__}"
        )


def sample_encoder(encoder: Encoder | None) -> Json | None:
    """Returns the facts by which an encoder is compared when a model is loaded, or None: its import
    path, the tokens of a fixed text, and first numbers of its first and last vector.
    """
    if encoder is None:
        return None
    ((tokens, vectors),) = encode_texts(encoder, [_PROBE])
    numbers: Any = np.asarray(vectors, np.float64)[[0, -1]][:, :_NUMBERS] if len(tokens) else []
    return {
        "path": import_path(encoder),
        "tokens": list(tokens),
        "vectors": np.asarray(numbers).tolist(),
    }


def compare_encoder(encoder: Encoder, facts: object, width: int) -> None:
    """Checks that an encoder gives the vectors with which a model was trained. After training with
    a file of states `facts` is None, and only the width is compared.
    """
    check_encoder(encoder)
    ((tokens, vectors),) = encode_texts(encoder, [_PROBE])
    if len(tokens) and vectors.shape[1] != width:
        raise NeedsEncoder(
            f"encoder must give vectors of the width {width}, with which the model was trained, "
            f"got {vectors.shape[1]}"
        )
    if facts is None:
        return
    now = sample_encoder(encoder) or {}
    before: Any = facts if isinstance(facts, dict) else {}
    same_tokens = now["tokens"] == before.get("tokens")
    # Encoders on other devices round in another way.
    if not same_tokens or not np.allclose(
        np.asarray(now["vectors"]), np.asarray(before.get("vectors")), rtol=1e-2, atol=1e-2
    ):
        name = before.get("path") or "the encoder of the training"
        raise NeedsEncoder(
            f"encoder must encode texts like {name}, got other "
            f"{'vectors' if same_tokens else 'tokens'} for {_PROBE!r}"
        )


class NumberedTable:
    """A table that counts its records while it is read, so that states are found by the number.
    `place` is the number of the last record, from 0. Empty lines do not count, because programs
    that write states skip them too.
    """

    def __init__(self, table: Table) -> None:
        self._table, self.place = table, -1

    @property
    def name(self) -> str:
        """The name of the source, for messages."""
        return self._table.name

    @property
    def columns(self) -> Columns:
        """The names of the columns that are read, of the texts and of the label."""
        return self._table.columns

    def __iter__(self) -> Iterator[Record | Aside]:
        """Yields each `Record`, or the `Aside` of a line that is set aside, and updates `place`."""
        self.place = -1
        for row in self._table:
            self.place += not (isinstance(row, Aside) and row.reason == EMPTY)
            yield row


def find_states(
    table: NumberedTable, source: str | Path | Sequence[Any] | None, encoder: Encoder | None
) -> States:
    """Returns the states of all records, from the source or, if it is None, the encoder."""
    if source is None:
        assert encoder is not None
        texts: list[str] = []
        for row in table:
            texts += [""] * (table.place + 1 - len(texts))
            if isinstance(row, Record):
                texts[table.place] = row.inputs[0]
        empty = EncodedText([], np.zeros((0, 0), np.float32))
        usable = encode_texts(encoder, [text for text in texts if text])
        return collect_states("encoder", (next(usable) if text else empty for text in texts))
    states = open_states(source)
    for _row in table:
        pass
    if table.place + 1 != len(states):
        raise ValueError(
            f"{states.name} must have the states of the {table.place + 1:,} records of "
            f"{table.name}, in their order, got the states of {len(states):,} texts"
        )
    return states


def open_states(source: str | Path | Sequence[Any]) -> States:
    """Returns the states of a file that `save_states` wrote, or of a pair (tokens, vectors [T, D])
    for each text.
    """
    if isinstance(source, States):
        return source
    if isinstance(source, str | Path):
        return read_states(source)
    return collect_states("states", check_encoded(source, "states"))


def locate_tokens(text: str, tokens: Sequence[str]) -> list[tuple[int, int] | None]:
    r"""Finds the characters of each token in its text, (begin, end) or None, without case, from the
    left to the right. Marks of subwords ("##", "\u2581", "\u0120", "</w>") are left out. A token
    that is not in the rest of the text, such as "[CLS]", has no characters.

        >>> locate_tokens("Unseen film", ["[CLS]", "un", "##seen", "film"])
        [None, (0, 2), (2, 6), (7, 11)]
    """
    # `lower` may change the number of characters, `casefold` even more often.
    lowered = text.lower()
    lowered = lowered if len(lowered) == len(text) else text
    places: list[tuple[int, int] | None] = []
    position = 0
    for token in tokens:
        plain = token.removeprefix("##").lstrip("\u2581\u0120").removesuffix("</w>")
        begin = lowered.find(plain.lower(), position) if plain.strip() else -1
        # A token that is far ahead is more likely a special token with a common spelling.
        if begin < 0 or lowered[position:begin].count(" ") > _FARTHEST:
            places.append(None)
            continue
        position = begin + len(plain)
        places.append((begin, position))
    return places


_FARTHEST = 8
"""Largest number of spaces between a token and the token before it."""


def remove_tokens(text: str, tokens: Sequence[str], is_removed: Sequence[bool]) -> str:
    """Returns a text without the characters of some tokens; see `locate_tokens`.

    >>> remove_tokens("a dull film", ["a", "dull", "film"], [True, False, True])
    'dull'
    """
    letters = list(text)
    for place, removed in zip(locate_tokens(text, tokens), is_removed, strict=True):
        if place is not None and removed:
            # A space keeps the neighbours apart.
            letters[place[0]] = " "
            letters[place[0] + 1 : place[1]] = [""] * (place[1] - place[0] - 1)
    return " ".join("".join(letters).split())
