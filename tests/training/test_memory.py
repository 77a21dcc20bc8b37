"""Page faults of training steps on a CPU: a run keeps the memory that its steps free."""

import functools
import json
import platform
import subprocess
import sys

import pytest

from tests._programs import environment

PROGRAM = """
import json, os, resource, sys
import numpy as np
import jax.numpy as jnp
from gatedjax import training

SIZE, HOW = int(sys.argv[1]), sys.argv[2]
if HOW == "call":
    assert training.keep_freed_memory()

class Products:
    def init(self, key, batch):
        return {"w": jnp.ones(4)}

    def loss(self, params, batch, rngs):
        products = jnp.tanh((batch["x"] * params["w"]) @ batch["x"].T)  # [SIZE, SIZE]
        each = batch["weight"] * (products @ batch["x"]).sum(-1) ** 2
        return {"loss": training.Ratio.of(each, batch["weight"])}

rng = np.random.default_rng(0)
batch = {"x": rng.normal(size=(SIZE, 4)).astype(np.float32), "weight": np.ones(SIZE, np.float32)}
config = training.TrainConfig(num_steps=12, log_every=12, progress=False, parallel="single")

def run(keep_memory):
    faults = []
    def count(event, step, *rest):
        if event == "step":
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    options = {"config": config, "hook": count}
    os.environ["GATEDJAX_KEEP_MEMORY"] = str(int(keep_memory))
    if HOW == "lanes":
        training.fit_lanes(Products(), lambda seed: [batch] * 12, **options)
    else:
        training.fit(Products(), [batch] * 12, **options)
    return (faults[-1] - faults[-5]) / 4

keeps = {"both": [False, True], "lanes": [False, True], "fit": [True], "off": [False]}
print(json.dumps([run(keep) for keep in keeps.get(HOW, [False])]))
"""


@functools.cache
def faults(size, how):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(size), how],
        capture_output=True, text=True, check=True, env=environment(XLA_FLAGS=""),
    )  # fmt: skip
    return json.loads(done.stdout)


# Blocks of 36 MB, which a later call keeps too: of two runs only the second keeps them. Blocks of
# 70 MB do not fit into the arenas of JAX's threads, and JAX has not computed yet.
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "how"), [(3000, "both"), (3000, "lanes"), (4200, "fit"), (4200, "call")]
)
def test_a_run_keeps_memory_unless_it_is_told_not_to(size, how):
    *before, after = faults(size, how)
    before = before or faults(size, "off")
    if before[0] < 0.9 * 2 * size * size * 4 / 4096:
        pytest.skip("this kernel maps a large block without a fault for every page")
    assert after < 0.5 * before[0]  # a block may still move once or twice
