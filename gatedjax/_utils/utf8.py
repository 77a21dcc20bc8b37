"""Decoding of texts in UTF-8."""

import codecs
from pathlib import Path


def decode_text(content: bytes, path: str | Path) -> str:
    """Decodes the content of a file in UTF-8, without a byte-order mark.

    The mark would become a part of the first word.

        >>> decode_text(b"\\xef\\xbb\\xbfAnna saw Emil.", "story.txt")
        'Anna saw Emil.'

    Args:
      content: the bytes of the file.
      path: the path of the file, for the message.

    Raises:
      ValueError: if the bytes are not UTF-8.
    """
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} must be UTF-8, got other bytes: {error}: convert the file to UTF-8"
        ) from error
