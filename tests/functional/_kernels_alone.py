"""Launches the kernels of the recurrences through CuPy, for `compute-sanitizer`.

    compute-sanitizer --tool racecheck python -m tests.functional._kernels_alone

JAX itself ends under the sanitizer with a segmentation fault, so it only plans the launches here.
"""

import os
import tempfile
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import numpy as np

from gatedjax.functional._persistent import _compiler, _launch, _plan

ROWS, STEPS, DIRECTIONS = 5, 9, 2
CARD = _plan.Card("a card with clusters", (9, 0), 132)
CASES = (
    ("lstm", 100, {}),
    ("lstm", 40, {"cluster": 4, "rows": 2}),
    ("lstm", 256, {}),
    ("gru_after", 100, {}),
    ("gru_before", 100, {}),
    ("gru_before", 48, {"cluster": 2, "rows": 2}),
    ("rau", 64, {}),
    ("rau", 100, {}),
)


def launch(name: str, hidden: int, changes: dict[str, int]) -> None:
    """Launches the saving and the backward kernel of a recurrence on random operands."""
    import cupy

    kind = _plan.KINDS[name]
    plan = _plan.choose_plan(kind, hidden, ROWS, DIRECTIONS, CARD)._replace(**changes)
    variant = _launch.Variant(kind, True, True, None, 1.0, CARD)
    sizes = {"b": ROWS, "t": STEPS, "d": DIRECTIONS, "h": hidden}
    sizes |= {"g": kind.gates * hidden, "s": kind.saved * hidden}
    rng = np.random.default_rng(0)
    flags = (rng.random((DIRECTIONS, ROWS, STEPS)) < 0.8).astype(np.uint8)
    flags += 2 * flags * (rng.random(flags.shape) < 0.2)

    def operand(axes: str) -> np.ndarray:
        fixed = {"d": np.array([0, 1], np.uint8), "dbt": flags}
        shape = tuple(sizes[axis] for axis in axes) or (1,)
        return fixed.get(axes, (0.2 * rng.normal(size=shape)).astype(np.float32))

    for kernel in ("saving", "backward"):
        operands, results = (map(operand, axes) for axes in _launch.axes_of(variant, kernel))
        text = _compiler.compile_ptx(_launch.options_for(variant, plan, kernel))
        arrays = [np.array([STEPS, ROWS], np.int32), *operands, *results]
        grid = plan.blocks(ROWS, DIRECTIONS) // DIRECTIONS, DIRECTIONS
        threads = (plan.threads(kernel == "backward"),)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.ptx"
            path.write_text(text, encoding="ascii")
            function = cupy.RawModule(path=str(path)).get_function(f"run_{kernel}")
        function(grid, threads, tuple(map(cupy.asarray, arrays)))
        cupy.cuda.Device().synchronize()
        print(name, hidden, kernel, "launched", flush=True)


if __name__ == "__main__":
    for case in CASES:
        launch(*case)
