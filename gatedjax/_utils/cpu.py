"""Settings for computations on a CPU."""

import ctypes
import os
import platform

import jax

# The numbers in malloc.h of glibc.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8


def prepare_cpu(devices: int | None) -> None:
    """Gives JAX a CPU device per core and lets the process keep freed memory."""
    keep_freed_memory()
    # A scan runs on a single thread of a device, so only several devices use the other cores. A
    # number of devices that the user has set in XLA_FLAGS stays.
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", devices or usable_cores())


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    # `taskset` and batch systems bind a process to some cores. Devices that share a core wait for
    # each other at every step.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> bool:
    """Lets the process keep large blocks of memory that it frees, if the C library is glibc.

    The CPU backend of XLA allocates the temporaries of a step anew at each step. By default glibc
    maps large blocks and unmaps them when they are freed, so that each step pays for page faults on
    all of its memory. With kept memory a step of GA-Net takes about 0.8 of the processor time. The
    process then never returns memory, so that its size stays at its maximum.

    Call it before JAX's first computation, also before `jax.devices()`: it starts threads whose
    arenas stay. A later call still helps programs whose temporaries have less than 64 MB. `fit` and
    `fit_lanes` call it by themselves on a CPU, unless the environment variable GATEDJAX_KEEP_MEMORY
    is 0.

        >>> from gatedjax.training import keep_freed_memory
        >>> keep_freed_memory() in (True, False)
        True

    Returns:
      True if glibc accepted the settings. With another C library the call has no effect.
    """
    settings = (_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**27)
    # A list, because `all` would stop at the first setting that is refused.
    accepted = [_set_malloc(name, value) for name, value in settings]
    return all(accepted)


def keep_freed_memory_on_cpu() -> None:
    """Calls `keep_freed_memory` on a CPU, unless the variable GATEDJAX_KEEP_MEMORY is 0."""
    if os.environ.get("GATEDJAX_KEEP_MEMORY") == "0":
        return
    # The call for the backend starts its threads, so that the number of arenas is set before it.
    _set_malloc(_ARENA_MAX, 1)
    if jax.default_backend() == "cpu":
        keep_freed_memory()


def _set_malloc(name: int, value: int) -> bool:
    """Sets a number of glibc's malloc; returns False if it is refused or there is no glibc."""
    return platform.libc_ver()[0] == "glibc" and ctypes.CDLL(None).mallopt(name, value) == 1
