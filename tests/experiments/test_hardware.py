"""What a command sets before it trains."""

import os
import platform
import subprocess
import sys

import pytest

from tests._programs import environment

STEP = """
import resource, sys
from gatedjax.training import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
import jax, jax.numpy as jnp

@jax.jit
def step(x):  # temporaries of 36 MB (32 are kept anyhow), small inputs and outputs
    return jnp.square(x @ x.T) @ x

x = jnp.ones((3072, 4))
for _ in range(12):
    step(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    step(x).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc")
def test_freed_memory_is_kept():
    def faults(mode):
        done = subprocess.run(
            [sys.executable, "-c", STEP, mode],
            capture_output=True, text=True, check=True, env=environment(XLA_FLAGS=""),
        )  # fmt: skip
        return int(done.stdout)

    pages = 8 * 3072 * 3072 * 4 / 4096
    if faults("default") < 0.9 * pages:
        pytest.skip("this kernel maps a large block without a fault for every page")
    assert faults("keep") < 0.5 * pages  # a block may still move once or twice


BOUND = """
import os
from gatedjax._utils.cpu import prepare_cpu
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
prepare_cpu(None)
import jax
print(jax.device_count())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="binds a process to one core")
def test_a_process_bound_to_one_core_has_one_device():
    done = subprocess.run(
        [sys.executable, "-c", BOUND],
        capture_output=True, text=True, check=True, env=environment(XLA_FLAGS=""),
    )  # fmt: skip
    assert done.stdout.strip() == "1"
