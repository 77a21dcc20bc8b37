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

import jax
import pytest

from gatedjax.functional._persistent import _compiler, _launch, _plan

HERE = Path(__file__).parent
SOURCE = Path(_compiler.__file__).parent
CARD = _plan.Card("emulated", (9, 0), 132)
COMPILER = shutil.which("g++") or shutil.which("clang++")
_SHAPES = ("rows", "cluster", "split", "back_split", "prefetch")


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
def _handlers(macros: tuple[str, ...]) -> tuple[str, ctypes.CDLL]:
    """Registers the handlers of a plan with XLA, and returns the prefix of their names."""
    library = _compile(macros)
    prefix = "emulated_" + hashlib.sha256("".join(macros).encode()).hexdigest()[:16]
    for kernel in _compiler.KERNELS:
        handler = getattr(library, f"handle_{kernel}")
        capsule = jax.ffi.pycapsule(handler)
        jax.ffi.register_ffi_target(f"{prefix}_{kernel}", capsule, platform="cpu")
    return prefix, library


def _call(variant, plan, kernel, grid, shapes, operands):
    """Replaces `_launch.call_kernel`."""
    constants = plan.constants() | variant.constants()
    macros = tuple(f"-D{name}={value}" for name, value in constants.items())
    prefix, _ = _handlers(macros)
    LAUNCHES.append((kernel, plan, grid))
    return jax.ffi.ffi_call(f"{prefix}_{kernel}", list(shapes))(*operands)


LAUNCHES: list = []
"""The kernel, the plan and the grid of each call that was traced."""


@contextlib.contextmanager
def emulated(card: _plan.Card = CARD, **shape: int) -> Iterator[list]:
    """Runs the kernels in emulation, on `card`, with a plan that has the given numbers.

    The numbers are some of rows, cluster, split, back_split and prefetch.
    """
    if COMPILER is None:
        pytest.skip("no C++ compiler")

    def choose(kind, hidden, batch, directions, card):
        plan = _plan.choose_plan(kind, hidden, batch, directions, card)
        return plan._replace(**shape) if plan is not None else None

    LAUNCHES.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_launch, "PLATFORM", "cpu")
        patch.setattr(_launch, "call_kernel", _call)
        patch.setattr(_launch, "choose_plan", choose)
        _launch._batched.cache_clear()
        _launch._partitioned.cache_clear()
        jax.clear_caches()
        yield LAUNCHES
    _launch._batched.cache_clear()
    _launch._partitioned.cache_clear()
    jax.clear_caches()
