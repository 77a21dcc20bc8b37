"""Strict settings for every test, made before JAX starts."""

import contextlib
import importlib
import os
import signal
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

# A script starts its background jobs with SIGINT ignored, and child processes would inherit this.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The tests need no plugins of hypothesis, and the warnings of these plugins would be errors.
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=8"
    # Most of the suite's time is compilation, because the programs run on tiny arrays.
    + " --xla_backend_optimization_level=0"
    # Compilation takes half the time with elemental loops in place of the fusion emitters, and
    # without dividing them among threads. XLA refuses unknown flags, and this version knows both.
    + " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    * version("jaxlib").startswith("0.10.")
).strip()

import jax
import numpy as np
import pytest

from tests._programs import (
    ROOT,
    Plugin,
    cache_folder,
    file_of,
    forget_programs,
    link_bytecode,
)

# Each process would spend 3 s on compiling the tests. If no bytecode may be written into the tree,
# it is stored next to the compiled programs.
if sys.dont_write_bytecode and (folder := cache_folder()) is not None:
    bytecode = folder.parent.with_name("bytecode")
    link_bytecode(bytecode, map(sysconfig.get_path, ("purelib", "stdlib")))
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(bytecode)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
jax.config.update("jax_numpy_rank_promotion", "raise")
# To hide its own frames, JAX looks up the file of each frame of an error on disk, which takes a
# tenth of the time of tests that expect an error.
jax.config.update("jax_traceback_filtering", "off")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Plugin(config), "programs")


@pytest.fixture(scope="module", autouse=True)
def programs_of_this_file(request):
    """Forgets the programs of a file at its end, because they took 5 GB where all were kept."""
    programs, file = Plugin.running, file_of(request.node.nodeid)
    programs.file, begin = file, programs.processor_seconds()
    yield
    if programs.counts[file]:  # to search a whole process takes a second, and most files leave none
        forget_programs()
    programs.of_files[file] += programs.processor_seconds() - begin


@contextlib.contextmanager
def runs_with(make_parallel, program_digest):
    """Gives `fit` its devices and the digests of its programs by these functions."""
    fit, identity = (importlib.import_module(f"gatedjax.training.{n}") for n in ("fit", "identity"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "make_parallel", make_parallel)
        patch.setattr(identity, "program_digest", program_digest)
        fit.shared_parallel.cache_clear()  # of the devices of other runs
        yield
    fit.shared_parallel.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def short_runs(request):
    """Outside of the tests of training, a run uses one device and lowers its programs once.

    A program for the eight devices is several times as large, and to lower the programs once more
    for their digest takes a third of a short run.
    """
    if "training" in request.path.parts:
        yield
        return
    from gatedjax.training.identity import program_digest
    from gatedjax.training.parallel import make_parallel

    def on_one_device(kind="sharding", **options):
        return make_parallel("single" if kind == "sharding" else kind, **options)

    with runs_with(on_one_device, lambda *_: ""):
        yield make_parallel, program_digest


@pytest.fixture
def whole_runs(short_runs):
    """Gives a test the devices and the digests that `short_runs` leaves out."""
    with runs_with(*short_runs):
        yield


@pytest.fixture
def rng() -> jax.Array:
    return jax.random.key(0)


@pytest.fixture
def np_rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The raw data sets, where a developer has them; tests that need them are skipped elsewhere."""
    path = Path(os.environ.get("GATEDJAX_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip("the raw data sets are not on this machine (set GATEDJAX_SHARED_DATA)")
    return path
