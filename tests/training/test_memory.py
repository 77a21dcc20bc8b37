"""Page faults of training steps on a CPU: a run keeps the memory that its steps free."""

import json
import platform
import subprocess
import sys

import pytest

from tests._programs import environment
from tests._slow import slow_but

PROGRAM = """
import json, resource, sys
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
        return each.sum(), {"loss": training.Ratio.of(each, batch["weight"])}

rng = np.random.default_rng(0)
batch = {"x": rng.normal(size=(SIZE, 4)).astype(np.float32), "weight": np.ones(SIZE, np.float32)}
config = training.TrainConfig(num_steps=24, log_every=24, progress=False, parallel="single")

def run(keep_memory):
    faults = []
    def count(event, step):
        if event == "step":
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    options = {"config": config, "on_event": count, "keep_memory": keep_memory}
    if HOW == "lanes":
        training.fit_lanes(Products(), lambda seed: [batch] * 24, **options)
    else:
        training.fit(Products(), [batch] * 24, **options)
    return (faults[-1] - faults[-9]) / 8

keeps = {"both": [False, True], "lanes": [False, True], "fit": [True], "off": [False]}
print(json.dumps([run(keep) for keep in keeps.get(HOW, [False])]))
"""


def faults(size, how):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(size), how],
        capture_output=True, text=True, check=True, env=environment(XLA_FLAGS=""),
    )  # fmt: skip
    return json.loads(done.stdout)


pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc")


@pytest.mark.parametrize("how", slow_but(["both", "lanes"], "both"))
def test_a_run_keeps_memory_unless_it_is_told_not_to(how):
    # Blocks of 36 MB, which a later call keeps too: of two runs only the second keeps them.
    before, after = faults(3000, how)
    if before < 0.9 * 2 * 3000 * 3000 * 4 / 4096:
        pytest.skip("this kernel maps a large block without a fault for every page")
    assert after < 0.2 * before


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fit", "call"])
def test_large_blocks_are_kept_if_jax_has_not_computed_yet(how):
    # Blocks of 70 MB do not fit into the arenas of JAX's threads.
    (before,), (after,) = faults(4200, "off"), faults(4200, how)
    if before < 0.9 * 2 * 4200 * 4200 * 4 / 4096:
        pytest.skip("this kernel maps a large block without a fault for every page")
    assert after < 0.2 * before
