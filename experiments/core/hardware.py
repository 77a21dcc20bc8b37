"""What a run runs on."""

import os
import platform

import jax

from experiments.core.kinds import Json
from gatedjax._cpu import keep_freed_memory as keep_freed_memory
from gatedjax._cpu import prepare_cpu as prepare_cpu


def hardware() -> Json:
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
