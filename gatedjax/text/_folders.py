"""Where a trained model is: a folder that `gatedjax export` wrote, or the work folder of a run."""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from gatedjax import export
from gatedjax._utils.limits import read_limited
from gatedjax._utils.types import Json, Params, Tree
from gatedjax._utils.write import recover
from gatedjax.export._folder import CONFIG, PARAMS
from gatedjax.export._kinds import Kind, check_kind
from gatedjax.export._tensors import check_finite
from gatedjax.training import average_params, load_params
from gatedjax.training.log import read_json

VOCABULARY, CHARACTERS, CLASSES, BYTE_PAIRS = (
    "vocabulary.json",
    "characters.json",
    "classes.json",
    "bpe.json",
)
"""What a run or an export has beside its parameters, as far as the task has it."""
_RUNS = {"run": "GA-Net over texts", "cloze": "the GA Reader", "translation": "translation"}


def is_exported(folder: Path) -> bool:
    """Whether a folder is one that `gatedjax export` wrote, not the work folder of a run.

    Raises:
      FileNotFoundError: if it is neither.
    """
    if not folder.exists():
        # a process may have been killed while it replaced the folder
        recover(Path(os.path.realpath(folder)))
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    exported = (folder / PARAMS).is_file()
    if not exported and not (folder / "checkpoints").is_dir():
        raise FileNotFoundError(
            f"{folder} is not a model: it has neither {PARAMS}, which gatedjax export writes, nor "
            "the checkpoints of a run"
        )
    return exported


def kind_of(folder: Path) -> str:
    """The kind of model in a folder, exported or the work folder of a run: see `belongings`.

    Raises:
      FileNotFoundError: if it is neither.
      ValueError: for a folder that does not say it.
    """
    if is_exported(folder):
        return check_kind(export.read_config(folder), get_args(Kind), folder)
    if (folder / CHARACTERS).is_file():
        return "cloze"
    return "translation" if (folder / BYTE_PAIRS).is_file() else "run"


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A trained network on disk: the work folder of a run, or what `gatedjax export` made of it.

    Attributes:
      path: of the folder.
      is_export: whether `gatedjax export` wrote it.
      config: the content of its config.json.
    """

    path: Path
    is_export: bool
    config: Json

    def params(self, like: Tree, average: int = 1) -> Params:
        """Reads the parameters.

        Args:
          like: their shapes.
          average: of a run, how many of the newest checkpoints the parameters are the mean of; 1
            reads the best parameters.

        Raises:
          ValueError: if they have other shapes, or numbers that are not finite.
          CheckpointDamaged, BadFile: if a file is not what was saved.
        """
        if self.is_export:
            params, _ = export.load(self.path, like)
        elif average == 1:
            params, _ = load_params(self.path, like)
        else:
            params, _ = average_params(self.path, like, average)
        check_finite(params, self.path)
        return params


def open_folder(path: Path, kind: Kind, *names: str) -> ModelFolder:
    """Opens a run, or its export, whose model is of a kind.

    Args:
      path: the work folder of the run, or what `gatedjax export` wrote.
      kind: of the model that is wanted.
      *names: files that it must have beside its parameters, undamaged.

    Raises:
      FileNotFoundError: if there is no such folder, or it lacks one of the files.
      BadFile: if a file of an export is damaged.
      ValueError: if the folder has another kind of model, the vocabulary of another run, or a newer
        version wrote it.
    """
    if is_exported(path):
        config = export.read_config(path)
        check_kind(config, kind, path)
        for name in names:
            export.read_file(path, name)
        return ModelFolder(path, True, config)
    missing = [name for name in (CONFIG, *names) if not (path / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{path} lacks {', '.join(missing)}: no run of {_RUNS[kind]} made it"
        )
    config = read_json(path / CONFIG, "config")
    belongings(path, config)
    return ModelFolder(path, False, config)


def belongings(workdir: Path, metadata: Mapping[str, Any]) -> tuple[Kind, dict[str, bytes]]:
    """What a model folder of a run needs beside its parameters.

    Args:
      workdir: of the run.
      metadata: of its checkpoint: the configuration, and the digest of its vocabulary.

    Returns:
      The kind of the model, and files by name: vocabulary, alphabet, byte pairs, classes, as far as
      they are in workdir.

    Raises:
      ValueError: if workdir has the vocabulary of another run.
    """
    names = (VOCABULARY, BYTE_PAIRS, CHARACTERS, CLASSES)
    files = {name: read_limited(workdir / name) for name in names if (workdir / name).is_file()}
    digest = metadata.get("vocabulary")
    for name in (VOCABULARY, BYTE_PAIRS):
        # both kinds of vocabulary digest the text that they write as one line
        if name in files and hashlib.sha256(files[name].removesuffix(b"\n")).hexdigest() != digest:
            raise ValueError(
                f"{workdir / name} is not the vocabulary that the checkpoint was trained with"
            )
    kind: Kind = "run"
    if {VOCABULARY, CHARACTERS} <= files.keys():
        kind = "cloze"
    elif BYTE_PAIRS in files and "search" in metadata.get("config", {}):
        kind = "translation"
    return kind, files


@contextlib.contextmanager
def described(folder: Path) -> Iterator[None]:
    """Names config.json where what it says of a model cannot be that of a model."""
    try:
        yield
    except (AttributeError, KeyError, TypeError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{folder / CONFIG} does not describe such a model: {what}") from error
