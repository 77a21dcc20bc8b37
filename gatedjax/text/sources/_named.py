"""Data sets by name: from gatedjax.data, from TFDS and from Hugging Face."""

import contextlib
import functools
import io
from collections.abc import Iterator

from gatedjax._utils.missing import TFDS, missing
from gatedjax.data import load, names
from gatedjax.data.files._source import Source as DataSet
from gatedjax.text.sources._memory import open_dataset, open_dicts
from gatedjax.text.sources._table import Aside, Source


def open_named(name: str, split: str) -> Source | None:
    """Opens a data set by its name; None if no data set has it."""
    if name.startswith("hf:"):
        return _open_hugging_face(name, split)
    if name.startswith("tfds:"):
        return _open_tfds(name, split)
    # The sets of gatedjax.data come before TFDS sets with the same name.
    if name in names():
        data = load(name, split)
        classes = data.info.class_names if isinstance(data, DataSet) else None
        example = data[0] if classes else {}
        if "tokens" not in example or "query" in example:
            raise ValueError(f"data must be a data set of labelled texts, got {name!r}")
        # The column of each text, and its name in an example. The demo is read like a file, because
        # its sentences keep their spaces and capitals.
        keys = {"text": "text" if name == "demo" else "tokens"}
        if "hypothesis" in example:
            keys = {"premise": "tokens", "hypothesis": "hypothesis"}
        shown = "demo (sentences of three authors)" if name == "demo" else name
        rows = functools.partial(_examples, data, keys)
        return open_dicts(shown, rows, (*keys, "label"), {"label": classes})
    # All names of TFDS are identifiers, so that a wrong path does not import TFDS.
    if name.isidentifier():
        with contextlib.suppress(ImportError):
            import tensorflow_datasets as tfds  # Imported last, because it takes a second.

            if name in tfds.list_builders(with_community_datasets=False):
                return _open_tfds(name, split)
    return None


def _examples(data: DataSet, keys: dict[str, str]) -> Iterator[object]:
    for example in data:
        texts = {
            name: example[key] if key == "text" else " ".join(example[key])
            for name, key in keys.items()
        }
        yield {**texts, "label": example["label"]}
    for aside in data.quarantine:
        yield Aside(aside.file, aside.line, aside.reason)


def _open_hugging_face(name: str, split: str) -> Source:
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
        raise _fault("at Hugging Face", name, split, error) from error
    return open_dataset(name, data)


def _open_tfds(name: str, split: str) -> Source:
    """Opens a data set of TFDS, which is prepared first if necessary."""
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise ValueError(missing(f"{name} needs", TFDS)) from None
    try:
        # A data source reads examples by their number, which needs this format.
        builder = tfds.builder(name.removeprefix("tfds:"), file_format="array_record")
        if not builder.is_prepared():
            # TFDS prints its progress to standard output, where a command writes its result.
            with contextlib.redirect_stdout(io.StringIO()):
                builder.download_and_prepare()
        records = builder.as_data_source(split)
    except Exception as error:  # The type depends on the set, the network and TensorFlow.
        raise _fault("in TFDS", name, split, error) from error
    features = dict(builder.info.features)
    classes = {key: getattr(feature, "names", None) for key, feature in features.items()}
    return open_dicts(
        name, lambda: (records[i] for i in range(len(records))), tuple(features), classes
    )


def _fault(place: str, name: str, split: str, error: Exception) -> ValueError:
    line = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
    return ValueError(f"data and split must exist {place}, got {name!r} and {split!r}: {line}")
