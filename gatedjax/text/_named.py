"""Data sets by name: from gatedjax.data, from TFDS and from Hugging Face."""

import contextlib
import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from gatedjax._utils.missing import TFDS, missing
from gatedjax.data import load, names
from gatedjax.data.files._source import Source
from gatedjax.text._memory import InRows, dataset_form
from gatedjax.text._table import Aside, Form

DEMO = "demo"
"""The name of the data set that is part of the program: generated sentences, no real reviews."""


def open_named(name: str, split: str) -> Form | None:
    """Opens a data set by its name."""
    if name.startswith("hf:"):
        return _hugging_face(name, split)
    if name.startswith("tfds:"):
        return _tfds(name, name.removeprefix("tfds:"), split)
    if name == DEMO:
        form = open_named("polarity", split)
        assert form is not None
        return dataclasses.replace(cast(InRows, form), name="demo (generated sentences)")
    # The sets of gatedjax.data come before those of TFDS with the same name.
    if name in names():
        source = load(name, split)
        if not isinstance(source, Source) or not source.info.class_names or not _texts(source):
            raise ValueError(f"data must be a data set of labelled texts, got {name!r}")
        classes = {"label": source.info.class_names}
        return InRows(name, _Examples(source), classes, (*_texts(source), "label"))
    # All names of TFDS are identifiers, so that a wrong path does not import TFDS.
    if name.isidentifier():
        with contextlib.suppress(ImportError):
            import tensorflow_datasets as tfds  # Imported last, because it takes a second.

            if name in tfds.list_builders(with_community_datasets=False):
                return _tfds(name, name, split)
    return None


def _texts(source: Source) -> tuple[str, ...]:
    # The kind of a data set shows in the names of the parts of an example.
    first = source[0]
    if "tokens" not in first or "query" in first:
        return ()
    return ("premise", "hypothesis") if "hypothesis" in first else ("text",)


@dataclasses.dataclass(frozen=True)
class _Examples:
    """An iterable of the examples of `source`, a data set of gatedjax.data, as rows."""

    source: Source

    def __iter__(self) -> Iterator[Mapping[str, object] | Aside]:
        keys = dict(zip(_texts(self.source), ("tokens", "hypothesis"), strict=False))
        for example in self.source:
            texts = {name: " ".join(example[key]) for name, key in keys.items()}
            yield {**texts, "label": example["label"]}
        for aside in self.source.quarantine:
            yield Aside(aside.file, aside.line, aside.reason)


def _hugging_face(name: str, split: str) -> Form:
    """Opens the part `split` of a data set `name` of Hugging Face."""
    path, _, config = name.removeprefix("hf:").partition(":")
    if not path:
        raise ValueError(f"data of Hugging Face must be hf:NAME or hf:NAME:CONFIG, got {name!r}")
    try:
        import datasets
    except ImportError:
        raise ValueError(missing(f"{name} needs", "datasets")) from None
    try:
        data = datasets.load_dataset(path, config or None, split=split)
    except Exception as error:  # The type depends on the hub, the network and the set.
        raise ValueError(
            f"data and split must exist at Hugging Face, got {name!r} and {split!r}: {_line(error)}"
        ) from error
    return dataset_form(name, data)


class _Records:
    """A data source of TFDS as an iterable that can be read several times."""

    def __init__(self, records: Sequence[object]) -> None:
        self._records = records

    def __iter__(self) -> Iterator[object]:
        return (self._records[i] for i in range(len(self._records)))


def _tfds(label: str, name: str, split: str) -> Form:
    """Opens a data set of TFDS, which is prepared first if necessary."""
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise ValueError(missing(f"{label} needs", TFDS)) from None
    try:
        # A data source reads examples by their number, which needs this format.
        builder = tfds.builder(name, file_format="array_record")
        if not builder.is_prepared():
            # TFDS prints its progress to standard output, where a command writes its result.
            with contextlib.redirect_stdout(io.StringIO()):
                builder.download_and_prepare()
        records: Iterable[object] = _Records(builder.as_data_source(split))
    except Exception as error:  # The type depends on the set, the network and TensorFlow.
        raise ValueError(
            f"data and split must exist in TFDS, got {label!r} and {split!r}: {_line(error)}"
        ) from error
    features = dict(builder.info.features)
    classes = {key: getattr(feature, "names", None) for key, feature in features.items()}
    class_names = {key: tuple(names) for key, names in classes.items() if names}
    return InRows(label, records, class_names, tuple(features))


def _line(error: Exception) -> str:
    lines = f"{type(error).__name__}: {error}".strip().splitlines()
    return lines[0][:300]
