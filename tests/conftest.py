"""Strict settings for every test, made before JAX starts."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=8"
    # most of the suite's time is compilation; the code itself runs on tiny arrays
    + " --xla_backend_optimization_level=0"
).strip()

import jax
import numpy as np
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

ROOT = Path(__file__).resolve().parent.parent
MAPS = Path("/proc/self/maps")
# Linux lets a process map 65,530 pieces of memory and ends one that needs more; a compiled program
# takes several, a file of tests up to 5,000
MOST_MAPS = 20_000


@pytest.fixture(scope="module", autouse=True)
def room_for_programs():
    """Forgets compiled programs after a file of tests, where many have come together."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def rng() -> jax.Array:
    return jax.random.key(0)


@pytest.fixture
def np_rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The raw data sets, where a developer has them; tests that need them are skipped elsewhere."""
    path = Path(os.environ.get("GATEDJAX_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip("the raw data sets are not on this machine (set GATEDJAX_SHARED_DATA)")
    return path
