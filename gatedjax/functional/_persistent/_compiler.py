"""PTX of the kernels, compiled by NVRTC through ctypes and stored on disk."""

import ctypes
import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

KERNELS = ("forward", "saving", "backward")
"""The kernels of the source: without and with the values for the backward pass, and that pass."""


class CompilerError(Exception):
    """Raised if there is no compiler, or if it refuses the source."""


@functools.cache
def read_source() -> str:
    """Returns the text of `recurrence.cu`, the CUDA source of the kernels."""
    return resources.files(__package__).joinpath("recurrence.cu").read_text(encoding="utf-8")


@functools.cache
def compile_ptx(options: tuple[str, ...]) -> str:
    """Returns the PTX of the source for options such as "-DHIDDEN=100", cached in a file."""
    compiler = load_compiler()
    source = read_source()
    key = "\n".join([source, f"nvrtc {compiler.version}", *sorted(options)])
    name = hashlib.sha256(key.encode()).hexdigest()[:32] + ".ptx"
    folder = cache_folder()
    if folder is not None and (path := folder / name).is_file():
        return path.read_text(encoding="ascii")
    text = compiler.compile(source, options)
    if folder is not None:
        _write(folder / name, text)
    return text


def cache_folder() -> Path | None:
    """Returns the folder of compiled kernels; None without a home directory or a cache."""
    folder = os.environ.get("GATEDJAX_KERNEL_CACHE")
    if folder is not None:
        return Path(folder) if folder else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "gatedjax" / "kernels"
    except RuntimeError:
        return None


def _write(path: Path, text: str) -> None:
    """Writes a text under a temporary name, because two processes may write the same file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError:  # the file is only a cache
        return
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        Path(part).unlink(missing_ok=True)


class Compiler:
    """NVRTC, the CUDA compiler that is a shared library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, source: str, options: Sequence[str]) -> str:
        """Returns the PTX of a source, compiled with options such as "-DHIDDEN=100"."""
        library, program, size = self._library, ctypes.c_void_p(), ctypes.c_size_t()
        text = source.encode()
        if library.nvrtcCreateProgram(ctypes.byref(program), text, b"recurrence.cu", 0, None, None):
            raise CompilerError("NVRTC could not create a program")
        try:
            flags = [option.encode() for option in options]
            array = (ctypes.c_char_p * len(flags))(*flags)
            if library.nvrtcCompileProgram(program, len(flags), array):
                library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
                log = ctypes.create_string_buffer(size.value or 1)
                library.nvrtcGetProgramLog(program, log)
                raise CompilerError(f"NVRTC {self.version}: {log.value.decode()[:2000]}")
            library.nvrtcGetPTXSize(program, ctypes.byref(size))
            ptx = ctypes.create_string_buffer(size.value)
            library.nvrtcGetPTX(program, ptx)
            return ptx.value.decode()
        finally:
            # NVRTC is a C library and does not free a program after an error.
            library.nvrtcDestroyProgram(ctypes.byref(program))


@functools.cache
def load_compiler() -> Compiler:
    """Loads NVRTC, from the packages that `jax[cuda12]` and `jax[cuda13]` install or the system."""
    for path in _installed_libraries():
        try:
            # NVRTC would look for its second library on the search path of the system only.
            for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
            return Compiler(ctypes.CDLL(str(path)))
        except OSError:
            continue
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"):
        try:
            return Compiler(ctypes.CDLL(name))
        except OSError:
            continue
    raise CompilerError("NVRTC was not found; jax[cuda12] and jax[cuda13] install it")


def _installed_libraries() -> list[Path]:
    folders = [Path(entry) / "nvidia" for entry in sys.path if entry]
    # The packages of CUDA 13 have the folder nvidia/cu13, and CUDA 12 has nvidia/cuda_nvrtc.
    paths = [path for folder in folders for path in folder.glob("*/lib/libnvrtc.so.1[0-9]")]
    paths += Path("/usr/local").glob("cuda*/lib64/libnvrtc.so.1[0-9]")
    return sorted(paths, key=lambda path: path.suffix, reverse=True)
