"""Compiled programs of the tests: kept between runs, counted per file, and held to a budget.

Most of the suite's time is compilation. JAX's persistent cache keeps its results, with two things
added here. JAX writes an entry in place, so a process that is killed can leave half of one: every
process therefore has a folder of its own, made of hard links, and only whole entries are passed on.
And `programs.json` states how many programs each file of tests may compile, so that a file that
compiles its inputs one by one is seen when it is written. `pytest --write-programs` rewrites it.
"""

import atexit
import contextlib
import ctypes
import gc
import hashlib
import json
import os
import platform
import resource
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = Path(__file__).with_name("programs.json")
# what a file that is not in the table may compile
DEFAULT_BUDGET = 60
# the oldest entries go when a folder holds more
LARGEST_FOLDER = 4 << 30
COMPILED = "/jax/core/compile/backend_compile_duration"
FROM_CACHE = "/jax/compilation_cache/cache_hits"


def cache_folder() -> Path | None:
    """Where whole entries are, by version and processor; None with GATEDJAX_TEST_CACHE=off."""
    given = os.environ.get("GATEDJAX_TEST_CACHE", "")
    if given == "off":
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cpuinfo = Path("/proc/cpuinfo")
    flags = [platform.machine(), platform.processor()]
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        flags += [line for line in lines if line.startswith(("model name", "flags", "Features"))][
            :2
        ]
    key = hashlib.sha256("\n".join(flags).encode()).hexdigest()[:12]
    name = f"jax-{version('jax')}-jaxlib-{version('jaxlib')}-{key}"
    return Path(given or cache / "gatedjax-tests") / name


def link_bytecode(prefix: Path, roots: Iterable[str]) -> None:
    """Links the bytecode beside installed sources into a folder for all bytecode, once.

    Python looks nowhere else while it has such a folder, and to compile what the tests import of
    other packages takes half a minute.
    """
    for root in map(Path, roots):
        target = prefix / root.relative_to(root.anchor)
        if target.exists():
            continue
        target.mkdir(parents=True)
        for cache in root.rglob("__pycache__"):
            package = cache.parent.relative_to(root)
            if (
                "site-packages" in package.parts
            ):  # not those of the interpreter below an environment
                continue
            (target / package).mkdir(parents=True, exist_ok=True)
            for file in os.scandir(cache):
                (target / package / file.name).symlink_to(file.path)


def is_whole(entry: os.DirEntry) -> bool:
    """Whether an entry was written to its end; JAX compresses with zlib, which says so."""
    decompress = zlib.decompressobj()
    try:
        decompress.decompress(Path(entry.path).read_bytes())
    except zlib.error:  # torn, or compressed by another library, which cannot be told apart
        return False
    return decompress.eof


def link_missing(
    source: Path, target: Path, only_if: Callable[[os.DirEntry], bool] = os.DirEntry.is_file
) -> None:
    """Links the files of source that target lacks; a name is there whole or not at all."""
    present = {entry.name for entry in os.scandir(target)}
    for entry in os.scandir(source):
        if entry.name not in present and only_if(entry):
            # another process was faster: with the same entry, or in clearing the folder
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(entry.path, target / entry.name)


def _ended(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, ValueError):
        return False
    return False


class Programs:
    """The programs of one test process: its folder of the cache, and what it compiled."""

    def __init__(self) -> None:
        self.shared, self.own, self.children = cache_folder(), None, 0
        self.counts: Counter[str] = Counter()
        self.seconds, self.hits, self.file = 0.0, 0, ""
        if self.shared is not None:
            self._open()
        self._listen()

    def _listen(self) -> None:
        jax.monitoring.register_event_duration_secs_listener(self._compiled)
        jax.monitoring.register_event_listener(self._event)

    def _open(self) -> None:
        (self.shared / "whole").mkdir(parents=True, exist_ok=True)
        for left in self.shared.glob("process-*"):
            if _ended(left.name.split("-")[1]):
                shutil.rmtree(left, ignore_errors=True)
        self.own = self.shared / f"process-{os.getpid()}" / "own"
        self.own.mkdir(parents=True)
        atexit.register(shutil.rmtree, self.own.parent, ignore_errors=True)
        self.exchange()
        for name, value in self._options(self.own).items():
            jax.config.update(name.lower(), value)

    def _options(self, folder: Path) -> dict[str, object]:
        return {
            "JAX_COMPILATION_CACHE_DIR": str(folder),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0.0,
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": -1,
            # XLA's own caches put the folder, which differs per process, into the keys
            "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
        }

    def exchange(self) -> None:
        """Takes what others compiled, gives what this process and its ended children did.

        Called where this process compiles nothing and has no child.
        """
        if self.own is None:
            return
        for child in self.own.parent.glob("child-*"):
            link_missing(child, self.own, only_if=is_whole)
            shutil.rmtree(child)
        link_missing(self.shared / "whole", self.own)
        link_missing(self.own, self.shared / "whole")

    def for_child(self) -> dict[str, str]:
        """Variables by which a child process uses a copy of the cache, for it may be killed."""
        if self.own is None:
            return {}
        self.children += 1
        folder = self.own.with_name(f"child-{self.children}")
        folder.mkdir()
        link_missing(self.own, folder)
        return {name: str(value) for name, value in self._options(folder).items()}

    def _compiled(self, event: str, seconds: float, **_: object) -> None:
        if event == COMPILED:
            self.counts[self.file] += 1
            self.seconds += seconds

    def _event(self, event: str, **_: object) -> None:
        self.hits += event == FROM_CACHE

    def report(self) -> dict:
        """What the controller of several workers adds up."""
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "counts": dict(self.counts), "seconds": self.seconds, "hits": self.hits,
            "processor": sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
            "megabytes": memory // 1024,
        }  # fmt: skip


def clear_old(folder: Path, largest: int = LARGEST_FOLDER) -> None:
    """Removes the oldest entries beyond a size."""
    entries = sorted(os.scandir(folder), key=lambda e: e.stat().st_mtime, reverse=True)
    size = 0
    for entry in entries:
        size += entry.stat().st_size
        if size > largest:
            Path(entry.path).unlink(missing_ok=True)


def budgets() -> dict[str, dict]:
    """{file: {"programs": most that it may compile, "seconds": what it took, warm}}."""
    return json.loads(BUDGETS.read_text(encoding="utf-8")) if BUDGETS.exists() else {}


def over_budget(file: str, compiled: int, table: dict[str, dict]) -> str | None:
    """What to say of a file that compiled more than it may, or None."""
    allowed = table.get(file, {}).get("programs", DEFAULT_BUDGET)
    if compiled <= allowed:
        return None
    return (
        f"{file} compiled {compiled} programs, its budget is {allowed}: make inputs with NumPy, "
        "and one jitted program per shape (pytest --write-programs states a new budget)"
    )


def give_memory_back() -> None:
    """Hands freed memory to the system: glibc keeps it, 500 MB after a file of large programs."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def environment(**changes: str) -> dict[str, str]:
    """Variables of a child process: the project to import, and the compiled programs."""
    folders = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    path = os.pathsep.join(dict.fromkeys(filter(None, folders)))
    cache = {} if Plugin.running is None else Plugin.running.for_child()
    return os.environ | {"PYTHONPATH": path} | cache | changes


class Plugin:
    """Hooks of pytest: order of files, the report at the end, and the table."""

    running: Programs | None = None

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.reports, self.seconds = config, [], Counter()
        distributed = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
        Plugin.running = self.programs = None if distributed else Programs()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list) -> None:
        """Longest files first, so that no worker is left alone with one at the end."""
        table = budgets()
        items.sort(key=lambda item: -table.get(file_of(item.nodeid), {}).get("seconds", 0))

    def pytest_collection_finish(self) -> None:
        """Searches for cycles less often, and not in what is there by now.

        Tracing makes millions of small objects; what a file leaves is collected at its end.
        """
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        if self.programs is None:
            return
        self.programs.exchange()
        if hasattr(self.config, "workerinput"):
            self.config.workeroutput["programs"] = self.programs.report()
        else:
            self.reports.append(self.programs.report())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        report = getattr(node, "workeroutput", {}).get("programs")
        if report:
            self.reports.append(report)

    def pytest_terminal_summary(self, terminalreporter: object) -> None:
        if not self.reports:
            return
        compiled = sum((Counter(report["counts"]) for report in self.reports), Counter())
        hits, seconds, processor = (
            sum(report[name] for report in self.reports)
            for name in ("hits", "seconds", "processor")
        )
        terminalreporter.write_line(
            f"{compiled.total():,} programs compiled, {hits:,} of them read from the cache: "
            f"{seconds:.0f} s of {processor:.0f} s of processor time; "
            f"largest process {max(report['megabytes'] for report in self.reports):,} MB"
        )
        folder = cache_folder()
        if folder is not None:
            clear_old(folder / "whole")
        if self.config.getoption("--write-programs"):
            write_budgets(compiled, self.seconds)


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.split("::")[0]


def write_budgets(compiled: Counter, seconds: Counter) -> None:
    """States what the files of this run compiled, with a tenth and five to spare."""
    table = budgets()
    for file, took in seconds.items():
        programs = compiled.get(file, 0)
        table[file] = {"programs": programs + programs // 10 + 5, "seconds": round(took, 1)}
    lines = [
        f"  {json.dumps(file)}: {json.dumps(table[file])}"
        for file in sorted(table)
        if (ROOT / file).exists()
    ]
    BUDGETS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
