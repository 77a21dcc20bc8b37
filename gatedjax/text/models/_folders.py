"""Folders of trained models: exports of `gatedjax export`, and work folders of runs."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from gatedjax import export
from gatedjax._utils.limits import read_limited
from gatedjax._utils.run_files import read_json
from gatedjax._utils.types import Json, Params, Tree
from gatedjax.export._card import Kind, check_kind
from gatedjax.export._folder import CONFIG, PARAMS
from gatedjax.export._tensors import check_finite
from gatedjax.text.answers._prediction import VOCABULARY as VOCABULARY
from gatedjax.training import average_params, restore_params
from gatedjax.training.checkpoint import CheckpointDamaged, CheckpointStore

# Files that a run or an export may have in addition to its parameters and VOCABULARY.
CHARACTERS, CLASSES, BYTE_PAIRS = "characters.json", "classes.json", "bpe.json"
_RUNS = {"run": "GA-Net over texts", "cloze": "the GA Reader", "translation": "translation"}


def is_exported(folder: Path) -> bool:
    """Returns True for an export, False for a work folder; raises FileNotFoundError for neither."""
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    exported = (folder / PARAMS).is_file()
    if not exported and not (folder / "checkpoints").is_dir():
        raise FileNotFoundError(
            f"{folder} must be the folder of a model, got a folder with neither {PARAMS}, which "
            "gatedjax export writes, nor the checkpoints of a run"
        )
    return exported


def kind_of(folder: Path) -> str:
    """Returns the kind of the model in an exported folder or in the work folder of a run."""
    if is_exported(folder):
        return check_kind(export.read_config(folder), get_args(Kind), folder)
    if (folder / CHARACTERS).is_file():
        return "cloze"
    return "translation" if (folder / BYTE_PAIRS).is_file() else "run"


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """The work folder of a run, or an export of it."""

    path: Path
    is_export: bool
    config: Json

    def params(self, like: Tree, average: int = 1) -> Params:
        """Reads the best parameters of a run, or the mean of its `average` newest checkpoints."""
        if self.is_export:
            params, _ = export.load(self.path, like)
        elif average == 1:
            params, _ = restore_params(self.path, like)
        else:
            params, _ = average_params(self.path, like, average)
        # A network with NaN would predict without an error.
        check_finite(params, self.path)
        return params


def open_folder(path: Path, kind: Kind, *names: str) -> ModelFolder:
    """Opens a run or an export with the files `names`, and checks its kind and its vocabulary."""
    if is_exported(path):
        config = export.read_config(path)
        check_kind(config, kind, path)
        for name in names:
            # Reading a file also compares it with the hash in the export.
            export.read_file(path, name)
        return ModelFolder(path, True, config)
    missing = [name for name in (CONFIG, *names) if not (path / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{path} must be the work folder of a run of {_RUNS[kind]}, got a folder without "
            f"{', '.join(missing)}"
        )
    config = read_json(path / CONFIG, "config")
    belongings(path, config)
    store = CheckpointStore(path / "checkpoints")
    for step in reversed(store.steps()):
        # A damaged checkpoint is left to the reader of the parameters, which uses an older one.
        with contextlib.suppress(CheckpointDamaged):
            check_single(store.record(step), path)
            break
    return ModelFolder(path, False, config)


def check_single(record: Json, workdir: Path) -> None:
    """Refuses the checkpoint of several seeds that were trained together."""
    # The parameters of such a checkpoint have a further axis over the seeds, so that no model of a
    # single seed can read them.
    if len(record.get("runs", ())) > 1:
        raise ValueError(
            f"{workdir} must have the checkpoints of a single seed, got several seeds that were "
            "trained together: train a seed by itself, or save the best_params of a result of "
            "fit_lanes with gatedjax.export.save"
        )


def belongings(workdir: Path, metadata: Mapping[str, Any]) -> tuple[Kind, dict[str, bytes]]:
    """Returns the kind of a run, and the files that its export needs in addition to parameters."""
    names = (VOCABULARY, BYTE_PAIRS, CHARACTERS, CLASSES)
    files = {name: read_limited(workdir / name) for name in names if (workdir / name).is_file()}
    digest = metadata.get("vocabulary")
    for name in (VOCABULARY, BYTE_PAIRS):
        # The digest of both kinds of vocabulary is a hash of their file without the last line end.
        if name in files and hashlib.sha256(files[name].removesuffix(b"\n")).hexdigest() != digest:
            raise ValueError(
                f"{workdir / name} must be the vocabulary that the checkpoint was trained with, "
                "got another: copy it from the folder in which the run was trained"
            )
    # config.json of a run has no kind, which follows from its own files.
    if {VOCABULARY, CHARACTERS} <= files.keys():
        return "cloze", files
    is_translation = BYTE_PAIRS in files and "search" in metadata.get("config", {})
    return "translation" if is_translation else "run", files


@contextlib.contextmanager
def explain_faults(folder: Path) -> Iterator[None]:
    """Turns errors about the content of config.json in `folder` into a ValueError."""
    try:
        yield
    except (AttributeError, KeyError, TypeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{folder / CONFIG} must describe a model of this kind, got a file that does not: "
            f"{reason}"
        ) from error
