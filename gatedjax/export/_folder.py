"""Model folders: parameters, configuration, model card, and optionally an inference program."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gatedjax._utils.json import to_json_values
from gatedjax._utils.limits import read_limited
from gatedjax._utils.types import Params, Tree
from gatedjax._utils.write import new_folder, write_atomic
from gatedjax.export._card import ModelCard, render_card, title_of
from gatedjax.export._tensors import BadFile, check_finite, encode_params, load_params, read_header

PARAMS, CONFIG, INFERENCE = "model.safetensors", "config.json", "model.jax_export"
CARD, DIGESTS = "README.md", "SHA256SUMS"
_LARGEST_SUMS = 1 << 20
_FILES = {PARAMS, CONFIG, INFERENCE, CARD, DIGESTS}
# Names that are valid on all systems: no separator, device or hidden file.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")


def save(
    folder: str | Path,
    params: Params,
    *,
    config: Mapping[str, Tree],
    card: ModelCard | None = None,
    inference: bytes | None = None,
    files: Mapping[str, bytes] | None = None,
    overwrite: bool = False,
) -> Path:
    """Saves a model to a folder, atomically: after a kill it is the old or the new folder.

    The folder contains model.safetensors, config.json, README.md (the card), SHA256SUMS and, if
    given, model.jax_export and further files. You may edit the card; the digests of the other files
    are checked when they are read.

        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp(), "model")
        >>> import numpy as np
        >>> _ = save(folder, {"kernel": np.ones((2, 3))}, config={"hidden": 3})
        >>> params, config = load(folder)
        >>> params["kernel"].shape, config
        ((2, 3), {'hidden': 3})

    Args:
      folder: the target; its parents are created. A link is followed and stays a link.
      params: the parameters, for example nested dicts of arrays; all trees that `save_params`
        accepts.
      config: the values that are needed to build the model, of types that JSON supports;
        dataclasses become dicts.
      card: the model card; None writes a card without texts.
      inference: the result of `export_inference`.
      files: further files by name, such as the vocabulary; `read_file` reads them.
      overwrite: True to replace a folder of an earlier call.

    Returns:
      The folder.

    Raises:
      FileExistsError: if folder exists and is not empty, and overwrite is False or it contains
        files that `save` did not write.
      TypeError, ValueError: if params, config or files cannot be saved, for example parameters that
        are NaN or infinite, which `load` would reject.
    """
    folder = Path(folder).absolute()
    text = _config_text(config)
    further_files = _checked_files(files or {})
    check_target(folder, overwrite, "overwrite=True")
    content, arrays = encode_params(params)
    check_finite(params, "params")
    contents = {PARAMS: content, CONFIG: text.encode()}
    if inference is not None:
        # Imported here, because a model without a program needs no JAX.
        from gatedjax.export._inference import load_inference

        # Loaded once before the folder is replaced, to refuse other bytes.
        load_inference(inference)
        contents[INFERENCE] = inference
    contents |= further_files
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(contents)}
    sums = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    card = card or ModelCard(name=title_of(folder.name))
    readme = render_card(card, json.loads(text), arrays, digests, folder.name)
    # The card has no digest, because its user may edit it; the name of a data file in it may have
    # bytes that are not characters.
    contents |= {DIGESTS: sums.encode(), CARD: readme.encode(errors="backslashreplace")}
    target = Path(os.path.realpath(folder))
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target) as partial:
        for name, content in contents.items():
            # This writes the content to the disk. Otherwise a power cut could leave a folder that
            # has its name already, but empty files.
            write_atomic(partial / name, content)
        # Check again, because another process may have written to the folder.
        check_target(folder, overwrite, "overwrite=True")
    return folder


def load(folder: str | Path, like: Tree = None) -> tuple[dict[str, Tree], dict[str, Tree]]:
    """Reads the parameters and the configuration from a folder that `save` wrote.

    Args:
      folder: the folder. All files must have the digests in SHA256SUMS, unless that file is
        missing.
      like: parameters, or their `jax.eval_shape`, with the names, shapes and dtypes that the saved
        parameters must have; they are compared before an array is read. None accepts all names,
        shapes and dtypes.

    Returns:
      (params, config): the parameters, NumPy arrays in the containers of like, or without it in
      the dicts, lists and tuples that were saved; and the content of config.json, a dict.

    Raises:
      FileNotFoundError: if the folder or one of the two files is missing.
      BadFile: if a file is damaged, or a parameter has NaN or infinite numbers.
      ParamsMismatch: if the parameters differ from like.
    """
    folder = _existing(folder)
    missing = [name for name in (PARAMS, CONFIG) if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(missing)}: it must be a folder that save wrote"
        )
    # Check the header first, because its errors are more precise than a wrong digest.
    read_header(folder / PARAMS)
    digests = _read_digests(folder / DIGESTS)
    for name in dict.fromkeys((PARAMS, CONFIG, *(digests or ()))):
        if (folder / name).is_file():
            _check_digest(folder, name, digests, _sha256(folder / name))
    config = read_config(folder)
    params = load_params(folder / PARAMS, like)
    check_finite(params, folder / PARAMS)
    return params, config


def read_config(folder: str | Path) -> dict[str, Tree]:
    """Reads the configuration of a model from a folder that `save` wrote.

    Only config.json is read, not the file of parameters. The folder does not change.

        >>> import tempfile
        >>> import numpy as np
        >>> folder = Path(tempfile.mkdtemp(), "model")
        >>> _ = save(folder, {"kernel": np.ones((2, 3))}, config={"hidden": 3})
        >>> read_config(folder)
        {'hidden': 3}

    Args:
      folder: the folder that `save` wrote.

    Returns:
      The content of config.json, a dict.

    Raises:
      FileNotFoundError: if the folder or its config.json is missing.
      BadFile: if config.json differs from its digest in SHA256SUMS, or is not a JSON object.
    """
    content = read_file(folder, CONFIG)
    path = Path(folder) / CONFIG
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is damaged: it must be JSON ({error})") from None
    if not isinstance(config, dict):
        raise BadFile(f"{path} must be a JSON object, got {type(config).__name__}")
    return config


def read_file(folder: str | Path, name: str) -> bytes:
    """Reads a file that was passed to `save` as one of `files`, such as a list of classes.

        >>> import tempfile
        >>> import numpy as np
        >>> folder = Path(tempfile.mkdtemp(), "model")
        >>> files = {"classes.json": b'["no", "yes"]'}
        >>> _ = save(folder, {"kernel": np.ones((2, 3))}, config={}, files=files)
        >>> read_file(folder, "classes.json")
        b'["no", "yes"]'

    Args:
      folder: the folder that `save` wrote.
      name: the name of the file, a key of `files`.

    Returns:
      The bytes of the file. If the folder has SHA256SUMS, they have been checked against it.

    Raises:
      FileNotFoundError: if the folder or the file is missing.
      BadFile: if the file differs from its digest.
      ValueError: if name is not the name of a file in the folder.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"name must be that of a file in the folder, got {name!r}")
    folder = _existing(folder)
    if not (folder / name).is_file():
        raise FileNotFoundError(
            f"{folder} lacks {name}: it must be a folder that save wrote with it"
        )
    try:
        content = read_limited(folder / name)
    except ValueError as error:
        raise BadFile(str(error)) from None
    digest = hashlib.sha256(content).hexdigest()
    _check_digest(folder, name, _read_digests(folder / DIGESTS), digest)
    return content


def load_predictor(folder: str | Path) -> Callable[[Mapping[str, Tree]], Any]:
    """Reads the inference function and the parameters of a folder, without the code of the model.

    The function is a program that XLA runs: load programs only from people you trust. `load` reads
    folders from anybody.

    Args:
      folder: a folder of `save` with `inference`.

    Returns:
      A function that maps a batch, a dict of arrays with the names and dtypes of the exported
      batch, to the outputs of the exported function, an array or nested dicts and tuples of arrays.

    Raises:
      FileNotFoundError: if the folder, its parameters or its inference function are missing.
      BadFile: if a file is damaged, or a parameter has NaN or infinite numbers.
      ParamsMismatch: if the parameters do not fit the function.
    """
    import jax

    from gatedjax.export._inference import load_inference

    folder = _existing(folder)
    if not (folder / INFERENCE).is_file():
        raise FileNotFoundError(f"{folder} lacks {INFERENCE}: save it with inference=...")
    inference = load_inference(read_file(folder, INFERENCE))
    # Copy the parameters to the device once, not in each call.
    params = jax.device_put(load(folder, inference.params_like)[0])
    return lambda batch: inference(params, batch)


def _existing(folder: str | Path) -> Path:
    """Returns the path of an existing model folder; raises FileNotFoundError if there is none."""
    folder = Path(folder)
    if folder.is_file():
        raise FileNotFoundError(
            f"{folder} must be the folder of a model, got a file; in Python load_params reads a "
            "single file of parameters"
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    return folder


def _config_text(config: Any) -> str:
    if not isinstance(config, Mapping):
        raise TypeError(f"config must be a dict, got {type(config).__name__}")

    values = to_json_values(dict(config), "config")
    try:
        return json.dumps(values, indent=1, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise ValueError(f"config must be a value that JSON can store: {error}") from None


def _checked_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns the argument `files` of `save`, file name -> content, after checking it."""
    used_names = {name.lower() for name in _FILES}
    for name, content in files.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"files must have names of letters, digits, '_', '-' and '.', got {name!r}"
            )
        # Some file systems ignore case.
        if name.lower() in used_names:
            raise ValueError(
                f"files must not have the name {name!r}, which is taken (upper and lower case are "
                "the same): rename it"
            )
        if not isinstance(content, bytes):
            raise TypeError(f"files[{name!r}] must be bytes, got {type(content).__name__}")
        used_names.add(name.lower())
    return dict(files)


def check_target(folder: Path, overwrite: bool, option: str) -> None:
    """Raises OSError unless `save` may write a folder: a new, an empty or a saved one."""
    target = Path(os.path.realpath(folder))
    for place in (target, *target.parents):
        if place.exists() and not place.is_dir():
            raise NotADirectoryError(f"{place} must be a folder, got a file")
    # A training of minutes must not end with a folder that cannot be written.
    parent = next(place for place in target.parents if place.exists())
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".", dir=parent))
    except OSError as error:
        raise PermissionError(
            f"{parent} must be a folder in which {folder.name} can be made, got "
            f"{error.strerror!r}: choose another place"
        ) from None
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()}
    if names and not overwrite:
        raise FileExistsError(f"{folder} exists: {option} replaces it")
    written = {path.name for path in list_written(folder)}
    if foreign := sorted(names - written):
        raise FileExistsError(
            f"{folder} holds files that save did not write: {', '.join(foreign[:5])}; move them "
            "away, or save to another folder"
        )


def list_written(folder: Path) -> list[Path]:
    """Returns the files of a folder that `save` wrote, without further files that were changed."""
    try:
        digests = _read_digests(folder / DIGESTS) or {}
    except BadFile:
        digests = {}
    further = digests.keys() - _FILES if {PARAMS, CONFIG} <= digests.keys() else ()
    written = {name for name in _FILES if (folder / name).is_file()}
    for name in further:
        if (folder / name).is_file() and _sha256(folder / name) == digests[name]:
            written.add(name)
    return [folder / name for name in sorted(written)]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_digest(folder: Path, name: str, digests: Mapping[str, str] | None, digest: str) -> None:
    """Raises BadFile if a file differs from `SHA256SUMS`; digests are None without that file."""
    if digests is None:
        return
    if name not in digests:
        raise BadFile(f"{folder / DIGESTS} is damaged: it must have a line for {name}")
    if digests[name] != digest:
        raise BadFile(
            f"{folder / name} is damaged: its SHA-256 must be {digests[name]} as in {DIGESTS}, "
            f"got {digest}: take another copy of the folder"
        )


def _read_digests(sums: Path) -> dict[str, str] | None:
    """Returns the SHA-256 in hex of each file in `SHA256SUMS`; None for a folder made by hand."""
    if not sums.is_file():
        return None
    try:
        text = read_limited(sums, _LARGEST_SUMS).decode(errors="replace")
    except ValueError as error:
        raise BadFile(str(error)) from None
    if not text.strip():
        raise BadFile(f"{sums} is damaged: it must have a line for each file, but is empty")
    digests = {}
    for number, line in enumerate(text.splitlines(), 1):
        # The format of sha256sum: two spaces, or a space and a star.
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if not match:
            raise BadFile(
                f"{sums} is damaged: line {number} must be a digest and a name, got {line[:80]!r}"
            )
        if _NAME.fullmatch(match[2]):
            digests[match[2]] = match[1]
    return digests
