"""A stand-in for a GPU: the source of the kernels, compiled for a CPU and called by XLA."""

import contextlib
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

from gatedjax.functional._persistent import _backend, _compiler, _launch, _plan

HERE = Path(__file__).parent
SOURCE = Path(_compiler.__file__).parent
CARD = _plan.Card("emulated", (9, 0), 132)
COMPILER = shutil.which("g++") or shutil.which("clang++")


def _compile(macros: tuple[str, ...]) -> ctypes.CDLL:
    """Compiles the kernels of a plan once, in a folder of temporary files."""
    sources = (HERE / "emulate.h", HERE / "emulate.cpp", SOURCE / "recurrence.cu")
    key = "".join([*(path.read_text() for path in sources), *macros, jax.__version__])
    name = hashlib.sha256(key.encode()).hexdigest()[:24] + ".so"
    folder = Path(tempfile.gettempdir()) / "gatedjax_emulator"
    folder.mkdir(exist_ok=True)
    if not (path := folder / name).exists():
        part = folder / f"{os.getpid()}{name}"
        flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-DEMULATE"]
        folders = [f"-I{each}" for each in (HERE, SOURCE, jax.ffi.include_dir())]
        subprocess.run(
            [COMPILER, *flags, *macros, *folders, "-o", part, HERE / "emulate.cpp"], check=True
        )
        os.replace(part, path)
    return ctypes.CDLL(str(path))


@functools.cache
def _handlers(macros: tuple[str, ...]) -> str:
    """Registers the handlers of a plan with XLA, and returns the prefix of their names."""
    library = _compile(macros)
    prefix = "emulated_" + hashlib.sha256("".join(macros).encode()).hexdigest()[:16]
    for kernel in _compiler.KERNELS:
        handler = getattr(library, f"handle_{kernel}")
        capsule = jax.ffi.pycapsule(handler)
        jax.ffi.register_ffi_target(f"{prefix}_{kernel}", capsule, platform="cpu")
    LIBRARIES.append(library)
    library.set_order(ORDER[0])
    return prefix


def _call(variant, plan, kernel, grid, shapes, operands):
    """Replaces `_launch.call_kernel`."""
    constants = plan.constants() | variant.constants()
    macros = tuple(f"-D{name}={value}" for name, value in constants.items())
    prefix = _handlers(macros)
    LAUNCHES.append(Launch(kernel, plan, grid))
    return jax.ffi.ffi_call(f"{prefix}_{kernel}", list(shapes))(*operands)


class Launch(NamedTuple):
    """A traced call of a kernel."""

    kernel: str
    plan: _plan.Plan
    grid: tuple[int, int]


LAUNCHES: list[Launch] = []


@contextlib.contextmanager
def planned(**shape: int) -> Iterator[None]:
    """Replaces numbers of all plans: some of rows, cluster, split, back_split and prefetch."""

    def choose(*arguments):
        plan = _plan.choose_plan(*arguments)
        return plan._replace(**shape) if plan is not None else None

    with pytest.MonkeyPatch.context() as patch:
        for module in (_launch, _backend):
            patch.setattr(module, "choose_plan", choose)
        _forget()
        yield
    _forget()


@contextlib.contextmanager
def emulated(card: _plan.Card = CARD, **shape: int) -> Iterator[list[Launch]]:
    """Runs the kernels in emulation on `card`, with `planned`; returns the calls while tracing."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    LAUNCHES.clear()
    with pytest.MonkeyPatch.context() as patch, planned(**shape):
        patch.setattr(_launch, "PLATFORM", "cpu")
        patch.setattr(_launch, "call_kernel", _call)
        patch.setattr(_backend, "find_card", lambda: card)
        yield LAUNCHES


@contextlib.contextmanager
def ordered(order: int) -> Iterator[None]:
    """Resumes the threads of a block from the first (0) or from the last (1) between barriers."""
    ORDER[0] = order
    for library in LIBRARIES:
        library.set_order(order)
    yield
    ORDER[0] = 0
    for library in LIBRARIES:
        library.set_order(0)


ORDER, LIBRARIES = [0], []


def _forget() -> None:
    """Forgets programs that were traced with other plans."""
    for cached in (_launch._batched, _launch._partitioned, _backend._trial_error):
        cached.cache_clear()
    jax.clear_caches()
