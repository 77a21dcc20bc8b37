"""Runs of several processes with the multi-controller runtime of JAX."""

import dataclasses
import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Annotated, Any

import jax
import numpy as np

from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import at_least, check_options
from gatedjax._utils.limits import MOST_STEPS
from gatedjax._utils.terminal import say

EXIT_UNREACHABLE = 69
"""The exit status if the processes of a run do not find each other in time (EX_UNAVAILABLE)."""
_SHOWN = 12


class ProcessMismatch(ValueError):
    """Raised on all processes of a run if their settings, programs or data differ.

    The message lists the processes and the values.
    """


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedConfig:
    """The connection of the processes of a run. All of them are started with the same command.

    The defaults connect no processes. Set `auto` on a cluster that JAX detects, or else
    `coordinator`, `num_processes` and `process_id`.
    """

    auto: bool = False
    """Join the processes of the cluster that JAX detects: SLURM, Open MPI, TPU pods, GKE."""
    coordinator: str | None = None
    """HOST:PORT of process 0, if JAX detects no cluster; it needs num-processes and process-id."""
    num_processes: int | None = None
    """The number of processes."""
    process_id: int | None = None
    """The number of this process, from 0."""
    timeout_s: Annotated[int, at_least(1, MOST_STEPS)] = 60
    """The seconds to wait for the other processes at the start."""
    heartbeat_s: Annotated[int, at_least(1, MOST_STEPS)] = 30
    """The seconds after which a process without a heartbeat counts as dead and stops the run."""

    def __post_init__(self) -> None:
        """Raises ValueError or TypeError for values that no run can use."""
        check_options(self)
        explicit = (self.coordinator, self.num_processes, self.process_id)
        is_set = [value is not None for value in explicit]
        if any(is_set) and not all(is_set):
            raise ValueError(
                "coordinator, num_processes and process_id must be given together, got "
                f"{self.coordinator!r}, {self.num_processes}, {self.process_id}"
            )
        if all(is_set):
            if self.auto:
                raise ValueError(
                    "auto must be False with a coordinator, got "
                    f"{self.coordinator!r}: give one of them"
                )
            host, _, port = str(self.coordinator).rpartition(":")
            if not host or not port.isdigit():
                raise ValueError(f"coordinator must be HOST:PORT, got {self.coordinator!r}")
            processes, number = int(self.num_processes or 0), int(self.process_id or 0)
            if not 0 <= number < processes:
                raise ValueError(
                    f"process_id must be in [0, num_processes = {processes}), got {number}"
                )


def initialize(config: DistributedConfig) -> bool:
    """Connects this process with the other processes of a run.

    Call it before the first computation. If a process dies later, JAX reports it ("tasks are
    unhealthy") and ends the other processes with SIGABRT, at most `heartbeat_s` and the time
    between two heartbeats after the last heartbeat of the dead process.

        >>> initialize(DistributedConfig())  # neither a cluster nor a coordinator
        False

    Args:
      config: the connection. With neither `auto` nor `coordinator` the call has no effect.

    Returns:
      True if several processes form the run.

    Raises:
      RuntimeError: if the coordinator does not answer in time. If other processes are missing,
        process 0 prints an error and exits with status 69, because its wait in JAX cannot be
        interrupted.
    """
    if not config.auto and config.coordinator is None:
        return False
    peers = "the processes of this cluster"
    if config.coordinator is not None:
        peers = f"{config.num_processes} processes at {config.coordinator}"
        # Process 0 opens the coordinator itself. The wait gives a clear message if it does not
        # answer.
        if config.process_id != 0:
            _wait_for(config.coordinator, config.timeout_s)

    def give_up() -> None:
        say(
            f"error: {peers} did not come together within {config.timeout_s} s. Start all of them "
            "with the same coordinator and num-processes, and process-id 0, 1, ...",
            file=sys.stderr,
        )
        # The timer runs in a separate thread, where `sys.exit` would end only that thread.
        os._exit(EXIT_UNREACHABLE)

    # The timer ends sooner than the wait of JAX, which would end with a stack trace.
    timer = threading.Timer(config.timeout_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            config.coordinator,
            config.num_processes,
            config.process_id,
            initialization_timeout=config.timeout_s + 30,
            heartbeat_timeout_seconds=config.heartbeat_s,
            # A process that ends with an error would otherwise wait long for the other processes.
            shutdown_timeout_seconds=config.heartbeat_s,
        )
    finally:
        timer.cancel()
    return jax.process_count() > 1


def _wait_for(address: str, timeout_s: float) -> None:
    host, _, port = address.rpartition(":")
    end = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
            return
        except OSError as error:
            if time.monotonic() >= end:
                raise RuntimeError(
                    f"coordinator {address} did not answer within {timeout_s} s ({error}): is "
                    "process 0 running, and is the address the one it was given?"
                ) from error
            time.sleep(0.2)


def is_main() -> bool:
    """Returns True in process 0, which writes logs, checkpoints and results; else False."""
    return jax.process_index() == 0


def gather_text(text: str) -> list[str]:
    """Returns the `text` of each process in all processes, which must call it at the same point."""
    from jax.experimental import multihost_utils

    raw = text.encode()
    data, digest = (np.frombuffer(x, np.uint8) for x in (raw, hashlib.sha256(raw).digest()))
    digests = np.asarray(multihost_utils.process_allgather(digest))
    if (digests == digest).all():
        return [text] * len(digests)
    # A gather needs rows of the same length, so the texts are padded to the longest.
    sizes = np.asarray(multihost_utils.process_allgather(np.int32(len(data))))
    padded = np.zeros(sizes.max(), np.uint8)
    padded[: len(data)] = data
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [bytes(row[:size]).decode() for row, size in zip(rows, sizes, strict=True)]


def agree(values: dict[str, Any]) -> None:
    """Raises ProcessMismatch on all processes unless their values are equal; all must call it."""
    # Each process compares the texts of all processes, so that all processes raise the error. If
    # only a single process raised it, the rest would wait for it in the next exchange.
    texts = gather_text(json.dumps(values, sort_keys=True))
    if len(set(texts)) == 1:
        return
    first, *remaining = map(json.loads, texts)
    lines = [
        f"  process {number}: {name} is {other.get(name, 'not there')!r}, "
        f"process 0 has {first.get(name, 'nothing')!r}"
        for number, other in enumerate(remaining, 1)
        for name in sorted(first.keys() | other.keys())
        if first.get(name) != other.get(name)
    ]
    tail = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise ProcessMismatch(
        f"the {jax.process_count()} processes of this run must be given the same:\n"
        + "\n".join(lines[:_SHOWN] + tail)
    )


class Seen:
    """Hashes of all arrays of some batches, which the processes of a run compare."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}

    def add(self, batch: Mapping[str, Any]) -> None:
        """Adds the arrays of a batch."""
        for name, array in batch.items():
            self._hashes.setdefault(name, hashlib.sha256()).update(np.asarray(array).tobytes())

    def compare(self, title: str) -> None:
        """Raises ProcessMismatch if the processes have seen other batches, and begins anew."""
        agree({f"{title}, {k}": v.hexdigest()[:12] for k, v in sorted(self._hashes.items())})
        self._hashes = {}


def gather(value: Any) -> np.ndarray:
    """Returns the numbers of all processes, with a first axis over them; all must call it."""
    if jax.process_count() == 1:
        return np.asarray(value)[None]
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(np.asarray(value)))
