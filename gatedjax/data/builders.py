"""TFDS builders of the sets that TFDS does not have in this form.

`Sst`, `Trec`, `Ptb`; cloze questions: `CbtNe`, `CbtCn`, `CnnCloze`, `DailyMailCloze`, `WdwStrict`,
`WdwRelaxed`; sentences: `Sick`, `ConllSrl`, `EwtTrees`, `SentevalProbing`, `WordReordering`;
parallel text: `Multi30k`, `Kftt`, `Iwslt14EnRo`, `Wmt14EnDe`.

They need no TensorFlow: files are array_record. `load` uses them; they also stand alone:

    builder = Sst(data_dir=..., file_format="array_record")
    builder.download_and_prepare()  # or with DownloadConfig(manual_dir=...)
    builder.as_data_source("train")

Importing this module imports tensorflow_datasets. Lines that cannot be used are listed in the
metadata of the prepared set, with the counts.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from gatedjax.data.files import _lines as _files
from gatedjax.data.files import _tar
from gatedjax.data.sets import _ptb, _sst, _trec
from gatedjax.data.tfds._cloze_builders import CbtCn as CbtCn
from gatedjax.data.tfds._cloze_builders import CbtNe as CbtNe
from gatedjax.data.tfds._cloze_builders import CnnCloze as CnnCloze
from gatedjax.data.tfds._cloze_builders import DailyMailCloze as DailyMailCloze
from gatedjax.data.tfds._cloze_builders import WdwRelaxed as WdwRelaxed
from gatedjax.data.tfds._cloze_builders import WdwStrict as WdwStrict
from gatedjax.data.tfds._lines_builder import LinesBuilder
from gatedjax.data.tfds._sentence_builders import ConllSrl as ConllSrl
from gatedjax.data.tfds._sentence_builders import EwtTrees as EwtTrees
from gatedjax.data.tfds._sentence_builders import Iwslt14EnRo as Iwslt14EnRo
from gatedjax.data.tfds._sentence_builders import Kftt as Kftt
from gatedjax.data.tfds._sentence_builders import Multi30k as Multi30k
from gatedjax.data.tfds._sentence_builders import SentevalProbing as SentevalProbing
from gatedjax.data.tfds._sentence_builders import Sick as Sick
from gatedjax.data.tfds._sentence_builders import Wmt14EnDe as Wmt14EnDe
from gatedjax.data.tfds._sentence_builders import WordReordering as WordReordering


class Sst(LinesBuilder):
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


class Ptb(LinesBuilder):
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


# TFDS has a `trec` 1.0.0 of its own, so ours is not registered under that name
with tfds.core.registered.skip_registration():

    class Trec(LinesBuilder):
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
