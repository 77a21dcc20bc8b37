"""What a run runs on."""

import os
import platform
from typing import Any

import jax


def use_all_cores(devices: int | None) -> None:
    """Gives JAX one CPU device per core; call before the first computation.

    A scan runs on one thread of a CPU device, so data parallelism is what uses the other cores.
    """
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", devices or os.cpu_count() or 1)


def hardware() -> dict[str, Any]:
    """What the run ran on."""
    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "device": device.device_kind,
        "devices": jax.device_count(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }
