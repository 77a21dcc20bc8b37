"""`python -m tests.gates.timing`: the maps against bisection and against sorting, in one process.

Bisections halve the bracket until nothing below rounding is left (26 in float32); they share the
maps' derivative, so that forward and backward differ in the search alone. Every figure is the
median over turns of a map's time over that of the other: below 1 the map is faster.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from experiments.benchmarks._harness import ratio, times_ms
from gatedjax.gates import _maps, _thresholds

SIZES = (16, 64, 256, 1024)
CALLS = 10
MAPS = {
    "sparsemax": _maps.sparsemax,
    "entmax15": _maps.entmax15,
    "entmax(1.3)": lambda z: _maps.entmax(z, 1.3),
    "budget": lambda z: _maps.budget(z, z.shape[-1] // 4),
    "soft_top_k": lambda z: _maps.soft_top_k(z, z.shape[-1] // 4, temperature=0.5),
}


def bisection(family, u, keep, total, bounds, a=None):
    """Halves the bracket to rounding."""
    low, high, _ = bounds
    u = jnp.where(keep, u, -jnp.inf)

    def step(_, state):
        low, high = state
        middle = (low + high) / 2
        large = jnp.sum(family.parts(u - middle, a)[0], axis=-1, keepdims=True) > total
        return jnp.where(large, middle, low), jnp.where(large, high, middle)

    return lax.fori_loop(0, 26 if u.dtype == jnp.float32 else 54, step, (low, high))[0]


def sorting(family, u, keep, total, bounds, a=None):
    """The usual closed forms: Martins & Astudillo 2016, Peters et al. 2019, Wang & Lu 2015."""
    u = jnp.where(keep, u, -100.0)
    down = -jnp.sort(-u, axis=-1)
    rank = jnp.arange(1, u.shape[-1] + 1, dtype=u.dtype).reshape((1,) * (u.ndim - 1) + (-1,))
    if family == _thresholds.SPARSEMAX:
        bounds = (jnp.cumsum(down, axis=-1) - 1) / rank
        return 1 + jnp.max(bounds, axis=-1, keepdims=True)
    if family == _thresholds.ENTMAX15:
        mean = jnp.cumsum(down, axis=-1) / (2 * rank)
        spread = jnp.cumsum(down**2, axis=-1) / 4 - rank * mean**2
        tau = mean - jnp.sqrt(jnp.maximum((1 - spread) / rank, 0))
        last = jnp.sum((tau <= down / 2) & (spread < 1), axis=-1, keepdims=True) - 1
        return 2 * (1 + jnp.take_along_axis(tau, last, axis=-1))
    # capped simplex: sum clip(u - t, 0, 1) at all 2n corners, then the line between two
    ones = jnp.ones_like(u)
    both = jnp.concatenate([-u, 1 - u], -1), jnp.concatenate([ones, -ones], -1)
    corners, signs = lax.sort(both, num_keys=1)
    slope = jnp.cumsum(signs, axis=-1)
    steps = slope[..., :-1] * jnp.diff(corners, axis=-1)
    heights = jnp.pad(jnp.cumsum(steps, axis=-1), ((0, 0),) * (u.ndim - 1) + ((1, 0),))
    at = jnp.sum(heights <= total, axis=-1, keepdims=True) - 1
    corner, height, slope = (jnp.take_along_axis(x, at, -1) for x in (corners, heights, slope))
    return -(corner + (total - height) / jnp.where(slope > 0, slope, 1))


def programs(search, name):
    """Forward, and forward with backward, compiled with another search, which searches once."""
    original = _thresholds.search
    _thresholds.search = search
    if search is not original:
        _maps.search = lambda family, u, keep, total, *_: jnp.zeros_like(total)
    jax.clear_caches()
    call = MAPS[name]
    try:
        forward = functools.partial(lambda call, z, c: call(z), call)
        backward = functools.partial(
            lambda call, z, c: jax.grad(lambda z: jnp.sum(call(z) * c))(z), call
        )
        made = {}
        for size in SIZES:
            z, c = inputs(size)
            made[size] = [jax.jit(f).lower(z, c).compile() for f in (forward, backward)]
        return made
    finally:
        _thresholds.search = _maps.search = original


def inputs(size):
    rng = np.random.default_rng(size)
    return jax.device_put(rng.normal(size=(2, 32, size)).astype(np.float32))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--maps", nargs="*", default=list(MAPS), choices=list(MAPS))
    options = parser.parse_args()
    repeats = options.repeats
    searches = {"newton": _thresholds.search, "bisection": bisection, "sorting": sorting}
    print("n: newton / bisection forward, and with backward; sorting / bisection the same (newton)")
    for name in options.maps:
        sorts = name in ("sparsemax", "entmax15", "budget")
        kinds = ["newton", "bisection"] + ["sorting"] * sorts
        made = {kind: programs(searches[kind], name) for kind in kinds}
        for size in SIZES:
            z, c = inputs(size)
            shown = []
            for way in (0, 1):
                values = {kind: np.asarray(made[kind][size][way](z, c)) for kind in kinds}
                for kind in kinds:
                    np.testing.assert_allclose(
                        values[kind], values["newton"], atol=2e-4, err_msg=f"{name} {kind} {size}"
                    )

                def many(program, z=z, c=c):
                    for _ in range(CALLS):
                        out = program(z, c)
                    return out

                calls = {kind: functools.partial(many, made[kind][size][way]) for kind in kinds}
                taken = times_ms(calls, repeats)
                shown.append({kind: ratio(taken, kind, "bisection") for kind in kinds})
                shown[-1]["us"] = 1e3 * np.median(taken["newton"]) / CALLS
            columns = [f"{s[kind]:.2f}" for kind in kinds if kind != "bisection" for s in shown]
            took = ", ".join(f"{s['us']:.0f} us" for s in shown)
            print(f"{name:12} {size:5}: {'  '.join(columns)}  ({took})", flush=True)


if __name__ == "__main__":
    main()
