"""What a program that computes on a CPU sets before its first computation."""

import ctypes
import os
import platform

import jax

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8


def prepare_cpu(devices: int | None) -> None:
    """Gives JAX one CPU device per core and keeps freed memory; call before the first computation.

    A scan runs on one thread of a CPU device, so data parallelism is what uses the other cores.
    """
    keep_freed_memory()
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", devices or usable_cores())


def usable_cores() -> int:
    """Cores that this process may use.

    The machine may have more: `taskset` and batch systems bind a process to some of them, and
    devices that share a core wait for each other at every step.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> bool:
    """Lets the process keep large blocks that it frees, where the C library is glibc.

    XLA's CPU backend allocates the temporaries of a step anew at every step. By default glibc maps
    large blocks and unmaps them when they are freed, so that every step pays for page faults on all
    of its memory. Returns whether the settings were taken; another C library stays as it is.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = (
        (_ARENA_MAX, 1),
        (_MMAP_MAX, 0),
        (_TRIM_THRESHOLD, 2**31 - 1),
        (_TOP_PAD, 2**27),
    )
    taken = [mallopt(name, value) == 1 for name, value in settings]  # all, also after a refusal
    return all(taken)
