"""Examples of texts that have to be tokenised."""

from gatedjax.data.files._lines import FileRow
from gatedjax.data.files._source import Example
from gatedjax.data.text._tokenize import tokenize


def text_example(row: FileRow, example_id: int) -> Example:
    """Returns the example of a row with a text as its content."""
    text: str = row.content
    return {"tokens": tokenize(text), "label": row.label, "example_id": example_id, "text": text}
