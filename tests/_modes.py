"""JAX's multi-device modes, in each of which a function has to give what it gives on one device."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tests.tolerances import F32

MODES = ("shard_map", "explicit")
REPLICATED, BY_ROW = PartitionSpec(), PartitionSpec("d")


def mesh_of(count: int, kind: AxisType) -> Mesh:
    """The first devices, along "d"; the test is skipped where there are fewer."""
    if jax.device_count() < count:
        pytest.skip(f"wants {count} devices, {jax.device_count()} here")
    return jax.make_mesh((count,), ("d",), axis_types=(kind,), devices=jax.devices()[:count])


def run(
    mode: str, function: Callable[..., Any], shared: Any, rows: Any, *, only_trace: bool = False
) -> Any:
    """What function(shared, rows, total) returns, on two devices that have half of the rows each.

    Args:
      mode: "one" is a single device.
      function: returns a pair of trees: what is the same on all devices, and what has one value per
        row; total sums over the devices, where a program sees those of one device only.
      only_trace: neither compile nor run.
    """

    def result(traced: Callable[..., Any], *arguments: Any) -> Any:
        if only_trace:
            return jax.jit(traced).trace(*arguments)
        return jax.device_get(jax.jit(traced)(*arguments))

    if mode == "one":
        return result(lambda s, r: function(s, r, lambda x: x), shared, rows)
    kind = AxisType.Auto if mode == "shard_map" else AxisType.Explicit
    mesh = mesh_of(2, kind)
    if mode == "shard_map":
        mapped = jax.shard_map(
            lambda s, r: function(s, r, lambda x: jax.lax.psum(x, "d")),
            mesh=mesh,
            in_specs=(REPLICATED, BY_ROW),
            out_specs=(REPLICATED, BY_ROW),
        )
        return result(mapped, shared, rows)
    with jax.set_mesh(mesh):
        shared = jax.device_put(shared, NamedSharding(mesh, REPLICATED))
        rows = jax.device_put(rows, NamedSharding(mesh, BY_ROW))
        return result(lambda s, r: function(s, r, lambda x: x), shared, rows)


def assert_same(got: Any, want: Any, tolerance: Mapping[str, float] = F32) -> None:
    """Asserts that trees are equal but for rounding, in which processors differ, too."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        assert a.shape == b.shape, path
        np.testing.assert_allclose(
            np.asarray(a, np.float64), b, **tolerance, err_msg=jax.tree_util.keystr(path)
        )
