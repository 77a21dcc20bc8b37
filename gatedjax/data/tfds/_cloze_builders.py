"""TFDS builders of the sets of cloze questions."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

from gatedjax.data.files import _lines as _files
from gatedjax.data.files import _tar
from gatedjax.data.files._source import Quarantined
from gatedjax.data.sets import _cbt, _question_files
from gatedjax.data.tfds._lines_builder import LinesBuilder


class _ClozeBuilder(LinesBuilder):
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

    See `gatedjax.data.sets._question_files` for the lines of such a file.
    """

    SET = "wdw_strict"


class WdwRelaxed(_QuestionFilesBuilder):
    """Who-did-What, relaxed setting, as `WdwStrict` in the folder wdw_relaxed."""

    SET = "wdw_relaxed"
