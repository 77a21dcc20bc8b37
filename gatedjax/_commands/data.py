"""`gatedjax data prepare|check|list`: prepares, checks and lists data sets."""

import contextlib
import dataclasses
import importlib.util
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gatedjax._utils.cli import parse_command, program, status_of
from gatedjax._utils.fields import at_least
from gatedjax._utils.limits import MOST_STEPS
from gatedjax._utils.missing import missing
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say, say_wrapped, terminal_width

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder

    from gatedjax.data.sets._declaration import DataSet


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepare:
    """Builds a data set in TFDS form from its raw files.

    TensorFlow is needed only for data sets that TFDS defines.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """The name of the data set, as in gatedjax.data.load."""
    manual_dir: Unset[str] = None
    """The folder with the raw files, plain or .gz (default: prepare downloads them, check reads the
    prepared set)."""
    data_dir: Unset[str] = None
    """The folder of the prepared set (default: TFDS's own, ~/tensorflow_datasets)."""
    unpack_limit: Unset[str] = None
    """The most that may come out of one .gz file or archive member, as 8GiB (default: 1GiB)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check(Prepare):
    """Reads all lines of a data set and reports how each of them is used.

    It counts the lines that are used and quarantined, and reports the overlap of the splits, the
    labels and the lengths. It does not write or download files. The exit status is 1 if a line is
    not accounted for, or if a file is missing or unreadable.
    """

    strict: Flag = False
    """Exit with status 1 if a line was quarantined."""
    limit: Annotated[int, at_least(0, MOST_STEPS)] = 20
    """The number of quarantined lines that are printed."""


@dataclasses.dataclass(frozen=True)
class List:
    """Lists the data sets with their requirements and the sources of their files."""


COMMANDS = {"prepare": Prepare, "check": Check, "list": List}


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status: 0, 1 (a check failed) or 2 (an error)."""
    # TFDS would log a warning for each data set that is not prepared yet.
    logging.getLogger("absl").setLevel(logging.ERROR)
    options: Prepare | Check | List = parse_command(
        COMMANDS, args, f"{program()} data", "Prepares and checks data sets."
    )
    return status_of(lambda: _run(options))


def _run(options: Prepare | Check | List) -> int:
    if isinstance(options, List):
        return list_sets()
    from gatedjax.data.files import _unpack

    try:
        size = options.unpack_limit
        limit = None if size is None else _unpack.parse_size(size)
    except ValueError as error:
        raise ValueError(f"--unpack-limit: {error}") from None
    with _unpack.limit_unpacking(limit):
        return check(options) if isinstance(options, Check) else prepare(options)


def prepare(options: Prepare) -> int:
    """Prepares a data set unless it is prepared already, and prints its contents; returns 0."""
    from gatedjax.data import _prepared
    from gatedjax.data.sets._all import resolve
    from gatedjax.data.sets._declaration import Embedded

    declared, _ = resolve(options.name)
    name = declared.name
    if isinstance(declared, Embedded):
        say(f"{name} is {declared.origin}: there is nothing to prepare.")
        return 0
    # A missing part is reported before anything is downloaded or written.
    was_prepared = _prepared.is_prepared(name, options.data_dir)
    if not was_prepared:
        if declared.tfds is None:
            _need_tensorflow(declared, options)
        elif options.manual_dir is not None:
            _read_first(declared, Path(options.manual_dir).expanduser())
    if not sys.stderr.isatty():
        import tensorflow_datasets as tfds

        tfds.disable_progress_bar()
    # TFDS downloads the files of the data sets that it defines.
    manual_dir = options.manual_dir if declared.tfds is not None else None
    builder = _prepared.builder_of(name, options.data_dir)
    with _no_empty_folders(Path(builder.data_path), _prepared.downloads_of(builder)):
        builder = _prepared.prepare(name, data_dir=options.data_dir, manual_dir=manual_dir)
    state = "was already prepared" if was_prepared else "is prepared"
    say_wrapped(f"{name} {state} in {builder.data_path}")
    _print_prepared(builder, declared)
    return 0


def _need_tensorflow(declared: "DataSet", options: Prepare) -> None:
    """Raises ValueError if TensorFlow, with which TFDS prepares the data set, is not installed."""
    name = declared.name
    if importlib.util.find_spec("tensorflow") is None:
        raise ValueError(
            f"TensorFlow must be installed to prepare the data set {name!r}: "
            f"{missing('TFDS needs', 'tensorflow-cpu')} (once, not for reading). "
            f"Without it: gatedjax.data.load({name!r}, split, manual_dir=...) and "
            f"{program()} data check {name} --manual-dir DIR read the raw files as they are. "
            f"They are at {declared.where}."
        )
    if options.manual_dir is not None:
        say(f"note: TFDS prepares {name} from its own download; --manual-dir is not used.")


def _read_first(declared: "DataSet", folder: Path) -> None:
    """Reads the raw files of all parts of a data set, and refuses them if they cannot be used."""
    from gatedjax.data.sets._all import not_there

    again = f". Get it again from {declared.where}."
    for part in declared.official:
        path, looked_for = declared.files.find(folder, part)
        if path is None:
            raise not_there(declared, part, folder, looked_for)
        try:
            rows = declared.read_rows(path, part)
        except ValueError as error:
            raise ValueError(f"{error}{again}") from error
        if not rows.rows:
            first = f"; first {rows.quarantine[0]}" if rows.quarantine else ""
            raise ValueError(f"{path} must have a usable line, got none{first}{again}")


@contextlib.contextmanager
def _no_empty_folders(path: Path, downloads: Path) -> Iterator[None]:
    """Removes new folders that are still empty if its block raises an error."""
    folders = (downloads / "extracted", downloads, path, *path.parents)
    # A folder that was there before may be empty on purpose.
    new = [folder for folder in folders if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _print_prepared(builder: "DatasetBuilder", declared: "DataSet") -> None:
    """Prints a table of the splits of a prepared data set, with the counts of their lines."""
    from gatedjax.analysis import render_table

    metadata = builder.info.metadata or {}
    rows, total = [], 0
    for split, info in builder.info.splits.items():
        account = metadata.get(split, {})
        aside = account.get("quarantine", ())
        total += len(aside)
        # A data set that TFDS defines has no account, and each of its lines is an example.
        lines = account.get("lines", info.num_examples)
        rows.append((split, lines, info.num_examples, len(aside), declared.official.get(split)))
    unit = declared.unit
    headers = ("split", unit, "examples", "quarantined", f"official {unit}")
    say(f"\n{render_table(headers, rows, width=terminal_width())}")
    place = f"{builder.data_path}/metadata.json"
    message = f"Quarantined {unit}, {total} in all, are listed in {place}."
    say_wrapped(message if total else "Nothing was quarantined.")


def check(options: Check) -> int:
    """Prints the report of a data set; returns 1 if a check failed, else 0."""
    from gatedjax._commands import _data_check

    report = _data_check.check(
        options.name, manual_dir=options.manual_dir, data_dir=options.data_dir
    )
    _data_check.print_report(report, options.limit)
    too_many = options.strict and report.quarantine
    if too_many:
        say(f"FAILED: {len(report.quarantine)} quarantined (--strict)")
    if too_many or report.problems:
        return 1
    say_wrapped("OK: every line that was read is used, left out on purpose, or quarantined.")
    return 0


def list_sets() -> int:
    """Prints the names of the data sets for `load`, with their requirements; returns 0."""
    from gatedjax.analysis import render_table
    from gatedjax.data.sets._all import ALIASES, EMBEDDED, FAMILIES, SETS

    aliases: dict[str, list[str]] = {}
    for family, (option, names) in FAMILIES.items():
        for value, name in names.items():
            aliases.setdefault(name, []).append(f"{family} ({option}={value})")
    for alias, (name, preset) in ALIASES.items():
        note = f" ({', '.join(preset.values())})" if preset else ""
        aliases.setdefault(name, []).append(alias + note)
    needs = {
        True: "raw files or prepared; preparing needs [prepare]",
        False: "raw files, or a network; no TensorFlow",
    }
    rows = [(name, "", "nothing", spec.origin) for name, spec in EMBEDDED.items()]
    rows += [
        (name, ", ".join(aliases.get(name, ())), needs[declared.tfds is None], declared.where)
        for name, declared in SETS.items()
    ]
    headers = ("name", "also", "needs", "source")
    if not sys.stdout.isatty():
        say(render_table(headers, rows))
        return 0
    # The table is wider than a terminal.
    for name, *facts in rows:
        pairs = zip(headers[1:], facts, strict=True)
        say_wrapped("\n".join([name, *(f"  {title}: {fact}" for title, fact in pairs if fact)]))
    return 0
