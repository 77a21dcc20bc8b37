"""Decoding of texts in UTF-8."""

import codecs
from pathlib import Path


def decode_text(content: bytes, path: str | Path) -> str:
    """Decodes a file in UTF-8; a byte-order mark would become a part of its first word.

    >>> decode_text(b"\\xef\\xbb\\xbfAnna saw Emil.", "story.txt")
    'Anna saw Emil.'
    """
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} must be UTF-8, got other bytes: {error}: convert the file to UTF-8"
        ) from error
