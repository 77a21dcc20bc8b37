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
    """Lets the process keep large blocks of memory that it frees, if the C library is glibc."""
    if platform.libc_ver()[0] != "glibc":
        return False
    # XLA allocates the temporaries of a step anew at each step. By default glibc unmaps large freed
    # blocks, so that each step pays for page faults on all of its memory.
    mallopt = ctypes.CDLL(None).mallopt
    settings = (
        (_ARENA_MAX, 1),
        (_MMAP_MAX, 0),
        (_TRIM_THRESHOLD, 2**31 - 1),
        (_TOP_PAD, 2**27),
    )
    # A list, because `all` would stop at the first setting that is refused.
    accepted = [mallopt(name, value) == 1 for name, value in settings]
    return all(accepted)
