"""Time and memory of the tests: programs compiled once for all processes and runs, files in order.

Most of the suite's time is compilation. JAX's persistent cache keeps its results in one folder,
which the workers, their children and later runs share. A process that is killed while it writes an
entry leaves half of one; JAX then warns, which setup.cfg ignores, and compiles the program again.
"""

import contextlib
import ctypes
import functools
import gc
import os
import resource
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import jax
import pytest
from jax._src.interpreters import mlir

from gatedjax._utils.program_cache import machine_key

ROOT = Path(__file__).resolve().parent.parent
# Files that take longest come first, so that no worker is left alone with one at the end.
LONGEST = (
    *("test_notebooks.py", "test_docs.py", "experiments/test_ga_reader_runs.py"),
    *("test_jax_modes.py", "models/test_every_task.py", "text/test_commands.py"),
    *("models/test_every_option.py", "training/test_distributed.py"),
    *("experiments/test_ga_net_faithfulness.py", "models/test_ssan_estimators.py"),
    *("explore/test_browser.py", "equality/test_losses.py", "models/test_ga_reader.py"),
    *("experiments/test_ssan_tasks.py", "equality/test_formats.py", "gates/test_maps.py"),
    *("functional/test_devices.py", "experiments/test_ssan.py", "functional/test_persistent.py"),
    *("experiments/test_ga_net_runs.py", "equality/test_own_text.py"),
    *("models/test_ga_net_estimators.py", "experiments/test_ga_reader_benchmark.py"),
    *("experiments/test_core.py", "text/test_model.py", "training/test_resume.py"),
)
# Seconds of processor time that two cores have in the 8 minutes of `make test`.
ALL_SECONDS = 2 * 8 * 60
# A process that holds more megabytes forgets its programs before the next test.
MOST_MEGABYTES = 1_400
# The oldest entries are removed when the folder holds more bytes.
LARGEST_FOLDER = 4 << 30
# JAX makes an MLIR context for each program that it lowers. Loading the dialects takes 2 ms, longer
# than lowering a small program, so the programs of a file share one context.
mlir.make_ir_context = functools.cache(mlir.make_ir_context)
TORN = "Error reading persistent compilation cache entry"
COMPILED = "/jax/core/compile/backend_compile_duration"
FROM_CACHE = "/jax/compilation_cache/cache_hits"


def cache_folder() -> Path | None:
    """Returns the folder of compiled programs, or None with GATEDJAX_TEST_CACHE=off.

    Its name has the version of JAX and a hash of the processor, see `machine_key`.
    """
    given = os.environ.get("GATEDJAX_TEST_CACHE", "")
    if given == "off":
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    versions = f"jax-{version('jax')}-jaxlib-{version('jaxlib')}"
    return Path(given or cache / "gatedjax-tests") / f"{versions}-{machine_key()}" / "programs"


def cache_options() -> dict[str, object]:
    """Returns the settings of JAX's cache, by the names of their environment variables."""
    folder = cache_folder()
    if folder is None:
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0.0,
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": -1,
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
    }


def link_bytecode(prefix: Path, roots: Iterable[str]) -> None:
    """Links the bytecode beside installed sources into a folder for all bytecode, once.

    Python looks nowhere else while it has such a folder, and to compile what the tests import of
    other packages takes half a minute.
    """
    for root in map(Path, roots):
        target = prefix / root.relative_to(root.anchor)
        if target.exists():
            continue
        target.mkdir(parents=True, exist_ok=True)  # two programs may begin at the same time
        for cache in root.rglob("__pycache__"):
            package = cache.parent.relative_to(root)
            if "site-packages" in package.parts:  # of the interpreter below an environment
                continue
            (target / package).mkdir(parents=True, exist_ok=True)
            for file in os.scandir(cache):
                with contextlib.suppress(FileExistsError):
                    (target / package / file.name).symlink_to(file.path)


def clear_old(folder: Path, largest: int = LARGEST_FOLDER) -> None:
    """Removes the oldest entries of a folder beyond a size in bytes."""
    entries = sorted(os.scandir(folder), key=lambda e: e.stat().st_mtime, reverse=True)
    size = 0
    for entry in entries:
        size += entry.stat().st_size
        if size > largest:
            Path(entry.path).unlink(missing_ok=True)


def forget_programs() -> None:
    """Drops all compiled programs, and hands freed memory to the system, which glibc keeps.

    What is left lives as long as the process, so the collector never searches it again: a million
    objects would take it a quarter of a second after each file.
    """
    jax.clear_caches()
    mlir.make_ir_context.cache_clear()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def environment(**changes: str) -> dict[str, str]:
    """Returns the variables of a child process: the project to import, and the cache."""
    folders = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    path = os.pathsep.join(dict.fromkeys(filter(None, folders)))
    cache = {name: str(value) for name, value in cache_options().items()}
    quiet = ",".join(filter(None, [os.environ.get("PYTHONWARNINGS", ""), f"ignore:{TORN}"]))
    cache |= {"PYTHONWARNINGS": quiet} if cache else {}
    return os.environ | {"PYTHONPATH": path} | cache | changes


def megabytes() -> int:
    """Returns the memory that this process holds; 0 if the system does not say."""
    with contextlib.suppress(OSError):
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize() >> 20
    return 0


def file_of(nodeid: str) -> str:
    """Returns the file of a test, below the folder of tests."""
    return nodeid.split("::")[0].removeprefix("tests/")


class Programs:
    """What one process of the suite compiled and took.

    Attributes:
      counts: programs that were compiled or read from the cache, by file.
      of_files: seconds of processor time by file, children included.
      file: the file that runs.
      largest: the most megabytes that the process held, and the file that ran then.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.of_files: Counter[str] = Counter()
        self.seconds, self.hits, self.file = 0.0, 0, ""
        self.largest, self.most = (0, ""), MOST_MEGABYTES
        for name, value in cache_options().items():
            jax.config.update(name.lower(), value)
        jax.monitoring.register_event_duration_secs_listener(self._compiled)
        jax.monitoring.register_event_listener(self._event)

    def _compiled(self, event: str, seconds: float, **_: object) -> None:
        if event == COMPILED:
            self.counts[self.file] += 1
            self.seconds += seconds

    def _event(self, event: str, **_: object) -> None:
        self.hits += event == FROM_CACHE

    @staticmethod
    def processor_seconds() -> float:
        """Returns the processor time of this process and of the children that have ended."""
        both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(sum(usage[:2]) for usage in both)

    def watch_memory(self) -> None:
        """Notes the file in which the process grew, and keeps the next test from adding to it."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.largest = max(self.largest, (peak, self.file), key=lambda one: one[0])
        if megabytes() > self.most:
            forget_programs()
            # what stays is no program, and to search for it takes a second
            self.most = max(MOST_MEGABYTES, megabytes() + 400)

    def report(self) -> dict:
        """Returns the figures that the controller adds up over its workers."""
        return {
            "files": dict(self.of_files),
            "programs": self.counts.total(),
            "hits": self.hits,
            "seconds": self.seconds,
            "processor": self.processor_seconds(),
            "largest": self.largest,
        }


class Plugin:
    """Hooks of pytest: the order of the files, and the report at the end."""

    running: Programs | None = None

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.reports = config, []
        distributed = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
        Plugin.running = self.programs = None if distributed else Programs()
        if not distributed:
            # To collect the tests makes a million objects that stay, and a fifth of the time would
            # go into searching them for cycles.
            gc.disable()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list) -> None:
        """Puts the longest files first."""
        places = {file: place for place, file in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(file_of(item.nodeid), len(places)))

    def pytest_collection_finish(self) -> None:
        """Lets the collector search for cycles again: less often, and not in what is there by now.

        Tracing makes millions of small objects; what a file leaves is collected at its end.
        """
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()

    def pytest_runtest_logfinish(self) -> None:
        if self.programs is not None:
            self.programs.watch_memory()

    def pytest_sessionfinish(self) -> None:
        if self.programs is None:
            return
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
        of_files: Counter[str] = Counter()
        for report in self.reports:
            of_files.update(report.pop("files"))
        megabytes, file = max(report.pop("largest") for report in self.reports)
        total = {key: sum(report[key] for report in self.reports) for key in self.reports[0]}
        terminalreporter.write_line(
            f"{total['programs']:,} programs compiled in {total['seconds']:.0f} s, "
            f"{total['hits']:,} of them read from the cache; {total['processor']:,.0f} s of "
            f"processor time of the {ALL_SECONDS:,} that two cores have in 8 minutes; "
            f"largest process {megabytes:,} MB, in {file}"
        )
        longest = (f"{file} {seconds:.0f} s" for file, seconds in of_files.most_common(10))
        terminalreporter.write_line(f"longest files: {', '.join(longest)}")
        folder = cache_folder()
        if folder is not None and folder.exists():
            clear_old(folder)
