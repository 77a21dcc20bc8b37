"""What a command sets before it trains."""

import os
import subprocess
import sys

import pytest

from tests._programs import environment

BOUND = """
import os
from gatedjax._utils.cpu import prepare_cpu
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
prepare_cpu(None)
import jax
print(jax.device_count())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="binds a process to one core")
def test_a_process_bound_to_one_core_has_one_device():
    done = subprocess.run(
        [sys.executable, "-c", BOUND],
        capture_output=True, text=True, check=True, env=environment(XLA_FLAGS=""),
    )  # fmt: skip
    assert done.stdout.strip() == "1"
