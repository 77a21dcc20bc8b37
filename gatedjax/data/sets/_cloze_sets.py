"""How `load` reads the sets of cloze questions."""

import functools
from typing import Any

from gatedjax.data.sets import _cbt, _cloze, _question_files
from gatedjax.data.sets._set import Set


def _cloze_set(**parts: Any) -> Set:
    """A set of cloze questions; their classes are what becomes of the answer."""
    return Set(
        examples=lambda rows, base, o: _cloze.examples(rows, base=base),
        classes=lambda o: _cloze.CLASSES,
        unit="questions",
        notes=_cloze.notes,
        **parts,
    )


def _cbt_set(kind: str) -> Set:
    return _cloze_set(
        official=_cbt.OFFICIAL[kind],
        where=f"{_cbt.URL} (as it is, or unpacked)",
        files=functools.partial(_cbt.find, kind),
        read=lambda path, part: _cbt.read(path),
    )


def _question_set(name: str) -> Set:
    return _cloze_set(
        official=_question_files.OFFICIAL[name],
        where=f"{_question_files.URLS[name]} (folders of .question files)",
        files=functools.partial(_question_files.find, name),
        read=_question_files.read,
    )


CLOZE_SETS: dict[str, Set] = {
    **{f"cbt_{kind.lower()}": _cbt_set(kind) for kind in _cbt.OFFICIAL},
    **{name: _question_set(name) for name in _question_files.OFFICIAL},
}
