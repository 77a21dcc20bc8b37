"""What our TFDS builders share."""

import abc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

from gatedjax.data.files import _lines as _files
from gatedjax.data.files._source import Quarantined


class LinesBuilder(tfds.core.GeneratorBasedBuilder):
    """Common part: official files by split, each line an example or listed as set aside."""

    MANUAL_DOWNLOAD_INSTRUCTIONS: ClassVar[None] = None
    FILES: ClassVar[Mapping[str, str]]

    @abc.abstractmethod
    def _features(self) -> dict[str, Any]:
        raise NotImplementedError

    @abc.abstractmethod
    def _example(self, row: _files.Row) -> dict[str, Any]:
        raise NotImplementedError

    @abc.abstractmethod
    def _download(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, _files.AnyPath]:
        raise NotImplementedError

    @abc.abstractmethod
    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        raise NotImplementedError

    @abc.abstractmethod
    def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
        raise NotImplementedError

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=type(self).__doc__,
            features=tfds.features.FeaturesDict(self._features() | {"index": np.int64}),
            metadata=tfds.core.MetadataDict(),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        # not dl_manager.manual_dir: it makes the folder
        manual = getattr(dl_manager, "_manual_dir", None)
        paths = self._manual(Path(manual)) if manual is not None else None
        if paths is None:
            paths = self._download(dl_manager)
        return {part: self._generate_examples(part, path) for part, path in paths.items()}

    def _manual(self, manual_dir: Path) -> Mapping[str, _files.AnyPath] | None:
        found = {part: self._find(manual_dir, part) for part in self.FILES}
        paths = {part: path for part, path in found.items() if path is not None}
        return paths if len(paths) == len(found) else None

    def _generate_examples(
        self, part: str, path: _files.AnyPath
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        rows = self._read(part)(path)
        if self.info.metadata is not None:
            self.info.metadata[part] = {
                "lines": rows.lines,
                "note": rows.note,
                "quarantine": [[self._file(part, q), q.line, q.reason] for q in rows.quarantine],
            }
        for row in rows.rows:
            yield row.index, self._example(row) | {"index": row.index}

    def _file(self, part: str, aside: Quarantined) -> str:
        """The name of the file that something was set aside from."""
        return self.FILES[part]
