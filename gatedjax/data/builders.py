"""TFDS builders of the sets that TFDS does not have in this form.

`Sst`, `Trec` and `Ptb`; cloze questions: `CbtNe`, `CbtCn`, `CnnCloze`, `DailyMailCloze`,
`WdwStrict` and `WdwRelaxed`.

They need no TensorFlow: files are array_record. `load` uses them; they also stand alone:

    builder = Sst(data_dir=..., file_format="array_record")
    builder.download_and_prepare()  # or with DownloadConfig(manual_dir=...)
    builder.as_data_source("train")

Importing this module imports tensorflow_datasets. Lines that cannot be used are listed in the
metadata of the prepared set, with the counts.
"""

import abc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

from gatedjax.data import _cbt, _files, _ptb, _question_files, _sst, _tar, _trec
from gatedjax.data._source import Quarantined


class _LinesBuilder(tfds.core.GeneratorBasedBuilder):
    """Common part: official files by split, each line an example or listed as set aside."""

    MANUAL_DOWNLOAD_INSTRUCTIONS: ClassVar[None] = None
    FILES: ClassVar[dict[str, str]]

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
                "quarantine": [[self._file(part, q), q.line, q.reason] for q in rows.quarantine],
            }
        for row in rows.rows:
            yield row.index, self._example(row) | {"index": row.index}

    def _file(self, part: str, aside: Quarantined) -> str:
        """The name of the file that something was set aside from."""
        return self.FILES[part]


class Sst(_LinesBuilder):
    """Stanford Sentiment Treebank: bracketed trees; classes and phrases are read off the tree."""

    VERSION = tfds.core.Version("1.0.0")
    FILES = _sst.FILES

    def _features(self) -> dict[str, Any]:
        return {
            "text": tfds.features.Text(),
            "tree": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=list(_sst.FINE)),
        }

    def _example(self, row: _files.Row) -> dict[str, Any]:
        line, words, _ = row.content
        return {"text": " ".join(words), "tree": line, "label": row.label}

    def _download(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, _files.AnyPath]:
        # not download_and_extract: TFDS unpacks with TensorFlow
        archive = Path(dl_manager.download(_sst.URL))
        return {p: _files.in_zip(archive, f"trees/{name}") for p, name in self.FILES.items()}

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _sst.find(manual_dir, part)

    def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
        return _sst.read


class Ptb(_LinesBuilder):
    """Penn Treebank for language modelling: the lines of Mikolov's files, without `<eos>`."""

    VERSION = tfds.core.Version("1.0.0")
    FILES = _ptb.FILES

    def _features(self) -> dict[str, Any]:
        return {"text": tfds.features.Text()}

    def _example(self, row: _files.Row) -> dict[str, Any]:
        return {"text": " ".join(row.content[:-1])}

    def _download(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, _files.AnyPath]:
        # not download_and_extract: TFDS unpacks with TensorFlow
        archive = Path(dl_manager.download(_ptb.URL))
        return {p: _tar.TarPath(archive, _ptb.inside(p)) for p in self.FILES}

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _ptb.find(manual_dir, part)

    def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
        return _ptb.read


class _ClozeBuilder(_LinesBuilder):
    """Cloze questions: document, query with @placeholder, answer, candidates without repeats."""

    VERSION = tfds.core.Version("1.0.0")

    def _features(self) -> dict[str, Any]:
        text = tfds.features.Text()
        return {
            "document": text,
            "query": text,
            "answer": text,
            "candidates": tfds.features.Sequence(text),
            "repeated": np.int64,
            "place": text,
        }

    def _example(self, row: _files.Row) -> dict[str, Any]:
        return row.content._asdict() | {
            "candidates": list(row.content.candidates),
            "place": row.file,
        }


class _CbtBuilder(_ClozeBuilder):
    KIND: ClassVar[str]

    def _download(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, _files.AnyPath]:
        # not download_and_extract: TFDS unpacks with TensorFlow
        archive = Path(dl_manager.download(_cbt.URL))
        return {p: _tar.TarPath(archive, _cbt.inside(self.KIND, p)) for p in self.FILES}

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _cbt.find(self.KIND, manual_dir, part)[0]

    def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
        return _cbt.read


class CbtNe(_CbtBuilder):
    """Children's Book Test, named entities: 20 sentences, a query, ten candidates."""

    KIND = "NE"
    FILES = _cbt.FILES["NE"]


class CbtCn(_CbtBuilder):
    """Children's Book Test, common nouns: 20 sentences, a query, ten candidates."""

    KIND = "CN"
    FILES = _cbt.FILES["CN"]


class _QuestionFilesBuilder(_ClozeBuilder):
    FILES = _question_files.PARTS
    SET: ClassVar[str]

    def _download(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, _files.AnyPath]:
        raise FileNotFoundError(
            f"{self.SET} cannot be downloaded by a program; see {_question_files.URLS[self.SET]}"
        )

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _question_files.find(self.SET, manual_dir, part)[0]

    def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
        return lambda path: _question_files.read(path, part)  # type: ignore[arg-type]

    def _file(self, part: str, aside: Quarantined) -> str:
        return Path(aside.file).name


class CnnCloze(_QuestionFilesBuilder):
    """Questions on anonymised CNN stories."""

    SET = "cnn_cloze"


class DailyMailCloze(_QuestionFilesBuilder):
    """Questions on anonymised Daily Mail stories."""

    SET = "daily_mail_cloze"


class WdwStrict(_QuestionFilesBuilder):
    """Who-did-What, strict setting, as one question file each: wdw/{training,validation,test}.

    See `gatedjax.data._question_files` for the lines of such a file.
    """

    SET = "wdw_strict"


class WdwRelaxed(_QuestionFilesBuilder):
    """Who-did-What, relaxed setting, as `WdwStrict` in the folder wdw_relaxed."""

    SET = "wdw_relaxed"


# TFDS has a `trec` 1.0.0 of its own, so ours is not registered under that name
with tfds.core.registered.skip_registration():

    class Trec(_LinesBuilder):
        """TREC questions with coarse and fine labels, in the order of the official files."""

        VERSION = tfds.core.Version("2.0.0")
        FILES = _trec.FILES

        def _features(self) -> dict[str, Any]:
            return {
                "text": tfds.features.Text(),
                "label-coarse": tfds.features.ClassLabel(names=list(_trec.CLASSES)),
                "label-fine": tfds.features.Text(),
            }

        def _example(self, row: _files.Row) -> dict[str, Any]:
            fine, text = row.content
            return {"text": text, "label-coarse": row.label, "label-fine": fine}

        def _download(
            self, dl_manager: tfds.download.DownloadManager
        ) -> Mapping[str, _files.AnyPath]:
            paths = dl_manager.download({part: _trec.URL + n for part, n in self.FILES.items()})
            return {part: Path(path) for part, path in paths.items()}

        def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
            return _trec.find(manual_dir, part)

        def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
            return _trec.read
