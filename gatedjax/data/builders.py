"""TFDS builders of the data sets that TFDS does not have in this form.

`Sst`, `Trec`, `Ptb`; cloze questions: `CbtNe`, `CbtCn`, `CnnCloze`, `DailyMailCloze`, `WdwStrict`,
`WdwRelaxed`; sentences: `Sick`, `ConllSrl`, `EwtTrees`, `SentevalProbing`, `WordReordering`;
parallel text: `Multi30k`, `Kftt`, `Iwslt14EnRo`, `Wmt14EnDe`.

They need no TensorFlow, because their files are array_record. `load` uses them. They can be used
directly: `Sst(data_dir="data", file_format="array_record")` has the methods
`download_and_prepare()`, for files at hand with DownloadConfig(manual_dir=...), and
`as_data_source("train")`.

Importing this module imports tensorflow_datasets. Lines that cannot be used are listed in the
metadata of the prepared set, with the counts.
"""

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gatedjax._utils.missing import TFDS, missing
from gatedjax.data.files._paths import Found
from gatedjax.data.sets._all import SETS
from gatedjax.data.sets._declaration import DataSet, Record

try:
    import tensorflow_datasets as tfds
except ImportError as error:
    raise ImportError(missing("the builders of data sets need", TFDS)) from error


class _SetBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A TFDS builder that writes the rows of each part of a data set as records."""

    MANUAL_DOWNLOAD_INSTRUCTIONS: ClassVar[None] = None
    SETS: ClassVar[Mapping[str, str]]
    """Name of a configuration ("" if there are none) -> name of the data set."""

    @property
    def _declaration(self) -> DataSet:
        """The declaration of the data set of this builder and configuration."""
        config = self.builder_config
        return SETS[self.SETS["" if config is None else config.name]]

    def _info(self) -> tfds.core.DatasetInfo:
        form = self._declaration.tfds
        assert form is not None
        features = {name: _feature(kind) for name, kind in form.features.items()}
        return tfds.core.DatasetInfo(
            builder=self,
            description=type(self).__doc__,
            features=tfds.features.FeaturesDict(features | {"index": np.int64}),
            metadata=tfds.core.MetadataDict(),
            # TFDS would otherwise store the rows in the order of a hash of their keys.
            disable_shuffling=True,
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[tuple[int, Record]]]:
        # Not dl_manager.manual_dir, which creates the folder.
        manual = getattr(dl_manager, "_manual_dir", None)
        paths = {} if manual is None else self._manual(Path(manual))
        if not paths:
            declaration = self._declaration
            if declaration.files.url is None:
                raise FileNotFoundError(
                    f"{declaration.name} has no download; its files are at {declaration.where}: "
                    "get them and name their folder (manual_dir=...)"
                )
            paths = declaration.files.download(lambda url: Path(dl_manager.download(url)))
        return {part: self._generate_examples(part, path) for part, path in paths.items()}

    def _manual(self, manual_dir: Path) -> Mapping[str, Found]:
        declaration = self._declaration
        paths = {part: declaration.files.find(manual_dir, part)[0] for part in declaration.official}
        existing = {part: path for part, path in paths.items() if path is not None}
        # TFDS would prepare a set without its missing parts as if it were complete.
        must_all = declaration.tfds is None or declaration.tfds.complete
        return {} if must_all and len(existing) < len(paths) else existing

    def _generate_examples(self, part: str, path: Found) -> Iterator[tuple[int, Record]]:
        declaration = self._declaration
        assert declaration.tfds is not None
        rows = declaration.read_rows(path, part)
        # Lines that were set aside give no record, so that only the metadata can store them.
        if self.info.metadata is not None:
            aside = [
                [declaration.files.prepared_name(part, q.file), q.line, q.reason]
                for q in rows.quarantine
            ]
            self.info.metadata[part] = {"lines": rows.lines, "note": rows.note, "quarantine": aside}
        for row in rows.rows:
            yield row.index, {**declaration.tfds.to_record(row), "index": row.index}


def _feature(kind: object) -> object:
    if kind is str:
        return tfds.features.Text()
    if isinstance(kind, list):
        return tfds.features.Sequence(_feature(kind[0]))
    if isinstance(kind, tuple):
        return tfds.features.ClassLabel(names=list(kind))
    return kind


def builder_class(builder: str, members: Mapping[str, DataSet]) -> type[_SetBuilder]:
    """Returns the class of a TFDS builder, by the name of each of its configurations."""
    form = next(iter(members.values())).tfds
    assert form is not None
    body = {
        "__doc__": form.description,
        # TFDS writes this module into the metadata of prepared sets.
        "__module__": __name__,
        "VERSION": tfds.core.Version(form.version),
        "SETS": {config: declared.name for config, declared in members.items()},
        "BUILDER_CONFIGS": [
            tfds.core.BuilderConfig(name=config, description=f"The data set {declared.name}.")
            for config, declared in members.items()
            if config
        ],
    }
    name = "".join(word.capitalize() for word in builder.split("_"))
    registration = {"skip_registration": not form.registered}
    return types.new_class(name, (_SetBuilder,), registration, lambda space: space.update(body))


def _classes() -> dict[str, type[_SetBuilder]]:
    sets: dict[str, dict[str, DataSet]] = {}
    for declared in SETS.values():
        if declared.tfds is not None:
            sets.setdefault(declared.builder, {})[declared.config] = declared
    return {builder: builder_class(builder, members) for builder, members in sets.items()}


BUILDERS = _classes()

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[_SetBuilder]: ...
else:
    __all__ = [builder.__name__ for builder in BUILDERS.values()]
    globals().update(zip(__all__, BUILDERS.values(), strict=True))
