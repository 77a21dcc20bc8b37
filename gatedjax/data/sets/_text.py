"""The example of a text that is not split into words yet."""

from gatedjax.data.files._lines import Row
from gatedjax.data.files._source import Example
from gatedjax.data.text._tokenize import tokenize


def text_example(row: Row, example_id: int) -> Example:
    """Splits a text; it is kept beside its words."""
    text: str = row.content
    return {"tokens": tokenize(text), "label": row.label, "example_id": example_id, "text": text}
