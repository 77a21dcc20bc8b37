"""TFDS builders of sentence pairs, semantic roles, trees, probes and parallel text."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

from gatedjax.data.files import _lines as _files
from gatedjax.data.sets import _nli, _parallel, _probing, _reordering, _srl, _treebank
from gatedjax.data.tfds._lines_builder import LinesBuilder


class Sick(LinesBuilder):
    """SICK: pairs of sentences that entail, contradict, or neither (SemEval-2014)."""

    VERSION = tfds.core.Version("1.0.0")
    FILES = _nli.SICK_FILES

    def _features(self) -> dict[str, Any]:
        return {
            "premise": tfds.features.Text(),
            "hypothesis": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=list(_nli.CLASSES)),
        }

    def _example(self, row: _files.Row) -> dict[str, Any]:
        premise, hypothesis = row.content
        return {"premise": premise, "hypothesis": hypothesis, "label": row.label}

    def _download(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, _files.AnyPath]:
        archives = {part: _nli.SICK_URL + name for part, name in _nli.SICK_ARCHIVES.items()}
        paths = dl_manager.download(archives)
        return {part: _files.in_zip(Path(paths[part]), self.FILES[part]) for part in archives}

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _nli.find_sick(manual_dir, part)

    def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
        return _nli.read_sick


class _ByHand(LinesBuilder):
    """A set whose files nobody may download without a licence: they come from manual_dir."""

    WHERE: ClassVar[str]

    def _download(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, _files.AnyPath]:
        raise FileNotFoundError(f"{self.name} has no download; its files are at {self.WHERE}")


class ConllSrl(_ByHand):
    """Semantic roles in CoNLL-2012 columns, sentence by sentence."""

    VERSION = tfds.core.Version("1.0.0")
    FILES: ClassVar[dict[str, str]] = {part: names[0] for part, names in _srl.FILES.items()}
    WHERE = _srl.WHERE

    def _features(self) -> dict[str, Any]:
        return {"sentence": tfds.features.Text()}

    def _example(self, row: _files.Row) -> dict[str, Any]:
        return {"sentence": row.content.text}

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _srl.find(manual_dir, part)

    def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
        return _srl.read


class EwtTrees(_ByHand):
    """English Web Treebank: bracketed constituency trees."""

    VERSION = tfds.core.Version("1.0.0")
    FILES = _treebank.FILES
    WHERE = _treebank.WHERE

    def _features(self) -> dict[str, Any]:
        return {"tree": tfds.features.Text()}

    def _example(self, row: _files.Row) -> dict[str, Any]:
        return {"tree": row.content.text}

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _treebank.find(manual_dir, part)

    def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
        return _treebank.read


class WordReordering(_ByHand):
    """Word reordering detection: sentences of which one token was moved."""

    VERSION = tfds.core.Version("1.0.0")
    FILES = _reordering.FILES
    WHERE = _reordering.WHERE

    def _features(self) -> dict[str, Any]:
        return {
            "text": tfds.features.Text(),
            "insert": tfds.features.Scalar(np.int32),
            "original": tfds.features.Scalar(np.int32),
        }

    def _example(self, row: _files.Row) -> dict[str, Any]:
        tokens, insert, original = row.content
        return {"text": " ".join(tokens), "insert": insert, "original": original}

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _reordering.find(manual_dir, part)

    def _read(self, part: str) -> Callable[[Any], _files.Rows]:
        return _reordering.read

    def _manual(self, manual_dir: Path) -> Mapping[str, _files.AnyPath] | None:
        # the training part is not published everywhere
        found = {part: self._find(manual_dir, part) for part in self.FILES}
        return {part: path for part, path in found.items() if path is not None} or None


class SentevalProbing(LinesBuilder):
    """SentEval's probing tasks, one configuration each: sentences with a label."""

    VERSION = tfds.core.Version("1.0.0")
    FILES = _probing.FILES
    BUILDER_CONFIGS: ClassVar[list[tfds.core.BuilderConfig]] = [
        tfds.core.BuilderConfig(name=task, description=f"SentEval's {task}.")
        for task in _probing.TASKS
    ]

    def _features(self) -> dict[str, Any]:
        # labels of the validation and test part count by those of the training part
        return {"text": tfds.features.Text(), "label": tfds.features.Text()}

    def _example(self, row: _files.Row) -> dict[str, Any]:
        label, text = row.content
        return {"text": text, "label": label}

    def _download(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, _files.AnyPath]:
        path = Path(dl_manager.download(f"{_probing.URL}{self.builder_config.name}.txt"))
        return {part: _probing.part_path(path, part) for part in self.FILES}

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _probing.find(self.builder_config.name, manual_dir, part)

    def _read(self, part: str) -> Callable[[_files.AnyPath], _files.Rows]:
        return _probing.read


class _Parallel(LinesBuilder):
    """Parallel text: the lines of two files."""

    CORPUS: ClassVar[_parallel.Corpus]

    def _features(self) -> dict[str, Any]:
        return {"source": tfds.features.Text(), "target": tfds.features.Text()}

    def _example(self, row: _files.Row) -> dict[str, Any]:
        source, target = row.content
        return {"source": source, "target": target}

    def _download(self, dl_manager: tfds.download.DownloadManager) -> Mapping[str, _files.AnyPath]:
        corpus = self.CORPUS
        if corpus.url is None:
            raise FileNotFoundError(f"{self.name} has no download; its files are at {corpus.where}")
        if corpus.archive is not None:
            archive = Path(dl_manager.download(corpus.url))
            return {part: _parallel.in_archive(corpus, archive, part) for part in corpus.files}
        urls = {
            part: [f"{corpus.url}{names[0].format(language)}.gz" for language in corpus.languages]
            for part, names in corpus.files.items()
        }
        paths = dl_manager.download(urls)
        # TFDS keeps the ending of the name
        return {
            part: _parallel.PairPath(Path(source), Path(target))
            for part, (source, target) in paths.items()
        }

    def _find(self, manual_dir: Path, part: str) -> _files.AnyPath | None:
        return _parallel.find(self.CORPUS, manual_dir, part)

    def _read(self, part: str) -> Callable[[Any], _files.Rows]:
        return _parallel.read


def _names(corpus: _parallel.Corpus) -> dict[str, str]:
    """The file of the source of every part, for the list of lines that were set aside."""
    return {part: names[0].format(corpus.languages[0]) for part, names in corpus.files.items()}


class Multi30k(_Parallel):
    """Multi30k, task 1: descriptions of pictures in English and German."""

    VERSION = tfds.core.Version("1.0.0")
    CORPUS = _parallel.CORPORA["multi30k"]
    FILES = _names(CORPUS)


class Kftt(_Parallel):
    """Kyoto Free Translation Task: English and Japanese, tokenised."""

    VERSION = tfds.core.Version("1.0.0")
    CORPUS = _parallel.CORPORA["kftt"]
    FILES = _names(CORPUS)


class Iwslt14EnRo(_Parallel):
    """IWSLT 2014: TED talks in English and Romanian."""

    VERSION = tfds.core.Version("1.0.0")
    CORPUS = _parallel.CORPORA["iwslt14_en_ro"]
    FILES = _names(CORPUS)


class Wmt14EnDe(_Parallel):
    """WMT 2014: news in English and German."""

    VERSION = tfds.core.Version("1.0.0")
    CORPUS = _parallel.CORPORA["wmt14_en_de"]
    FILES = _names(CORPUS)
