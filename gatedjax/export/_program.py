"""Checks that an exported program is a pure computation.

`jax.export` compiles any program in a file. Custom calls, recursion or absurd sizes end the process
inside XLA, where Python cannot catch an error, so programs are checked before they are compiled.
The reader of the bytes may crash on damaged files too. `fault_in_child` therefore runs this file as
a script in a child process, which only imports jaxlib.
"""

import functools
import math
import subprocess
import sys
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

MOST_BYTES = 1 << 28
"""The largest file: a program has tens of kilobytes, as parameters are its inputs."""
MOST_ELEMENTS = 1 << 31
"""The largest number of elements of an array in a program, without open sizes."""
MOST_OPERATIONS = 100_000
"""The largest number of operations, counting a called function in each call."""
MOST_LEVELS = 200
"""The deepest nesting of regions, and of calls."""
SECONDS = 30
"""The time limit of the child process that reads a program."""
CHECK_MEMORY = 4 << 30
"""The memory limit of the child process in bytes."""

# The only custom call in exports of this library, by which JAX checks open sizes. Many of the other
# custom calls that JAX calls stable run code of the file, or crash on unexpected shapes.
CUSTOM_CALLS = frozenset({"shape_assertion"})
# Dialects of pure computations, and operations that state the sharding of an array.
_DIALECTS = frozenset({"builtin", "func", "stablehlo", "chlo"})
_SHARDING = frozenset({"sdy.mesh", "sdy.sharding_constraint"})
# Operations that wait for the host or other devices, which do not answer.
_COMMUNICATION = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute"),
        *("cross-replica-sum", "infeed", "outfeed", "partition_id", "recv", "reduce_scatter"),
        *("replica_id", "send"),
    )
)


@functools.lru_cache(16)
def fault_in_child(program: bytes) -> str | None:
    """Runs `program_fault` in a child process, because a damaged program may end the process."""
    # -P keeps the folder of this file out of the search for modules.
    command = [sys.executable, "-P", __file__]
    try:
        done = subprocess.run(command, input=program, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"reading it must take at most {SECONDS} seconds, but takes longer"
    if done.returncode < 0:
        return f"it is damaged: reading it ends a process by signal {-done.returncode}"
    if done.returncode > 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return f"it cannot be read: {lines[-1] if lines else f'status {done.returncode}'}"
    return done.stdout.decode(errors="replace") or None


def program_fault(program: bytes) -> str | None:
    """Returns the reason why a program must not be compiled, or None if it may be compiled."""
    with ir.Context() as context:
        for dialect in (stablehlo, chlo, sdy):
            dialect.register_dialect(context)
        try:
            _check_module(stablehlo.deserialize_portable_artifact(context, program))
        except ValueError as error:
            return str(error)
    return None


def _check_module(module: Any) -> None:
    """Raises ValueError for an operation, a size or a call that is not allowed in a program."""
    counts: dict[str, int] = {}
    calls: dict[str, list[str]] = {}
    for function in module.body.operations:
        _check_operation(function.operation)
        if function.operation.name == "func.func":
            name = ir.StringAttr(function.attributes["sym_name"]).value
            counts[name], calls[name] = 0, []
            # A list replaces recursion, because a forged program may be nested deeper than Python
            # can recurse.
            pending = [(function.operation, 0)]
            while pending:
                operation, level = pending.pop()
                counts[name] += 1
                if level > MOST_LEVELS:
                    raise ValueError(
                        f"its operations must be nested at most {MOST_LEVELS} deep, got more"
                    )
                for region in operation.regions:
                    for block in region:
                        for argument in block.arguments:
                            _check_size(argument.type)
                        for inner in block.operations:
                            _check_operation(inner.operation)
                            calls[name] += _references(inner.operation)
                            pending.append((inner.operation, level + 1))
    if "main" not in counts:
        raise ValueError(f"it must have a function 'main', got {sorted(counts)[:5]}")
    _check_calls(counts, calls)


def _check_operation(operation: Any) -> None:
    """Raises ValueError for an MLIR operation that is not allowed in a program."""
    name = operation.name
    if name == "stablehlo.custom_call":
        target = ir.StringAttr(operation.attributes["call_target_name"]).value
        if target not in CUSTOM_CALLS:
            raise ValueError(
                f"its custom calls must be among {sorted(CUSTOM_CALLS)}, got {target[:80]!r}"
            )
    elif name in _COMMUNICATION:
        raise ValueError(f"it must not communicate with the host or other devices, got {name!r}")
    elif name.partition(".")[0] not in _DIALECTS and name not in _SHARDING:
        raise ValueError(
            f"its operations must be of the dialects {sorted(_DIALECTS)}, got {name[:80]!r}"
        )
    for result in operation.results:
        _check_size(result.type)


def _check_size(kind: Any) -> None:
    if not isinstance(kind, ir.RankedTensorType):
        return
    open_size = ir.ShapedType.get_dynamic_size()
    size = math.prod(max(size, 1) for size in kind.shape if size != open_size)
    if size > MOST_ELEMENTS:
        raise ValueError(f"its arrays must have at most {MOST_ELEMENTS:,} elements, got {size:,}")


def _references(operation: Any) -> list[str]:
    """Returns the names of the functions that an MLIR operation refers to."""
    names = []
    attributes = operation.attributes
    # By index, because the iterator yields names in some versions of jaxlib, pairs in others.
    for value in (attributes[number].attr for number in range(len(attributes))):
        for reference in value if isinstance(value, ir.ArrayAttr) else (value,):
            if isinstance(reference, ir.FlatSymbolRefAttr):
                names.append(reference.value)
    return names


def _check_calls(counts: dict[str, int], calls: dict[str, list[str]]) -> None:
    """Raises ValueError for recursion, and for functions that are too large or too deep. A function
    has the operations of the functions that it calls, once per call.
    """
    sizes: dict[str, int] = {}
    levels: dict[str, int] = {}
    for start in counts:
        path: dict[str, None] = {}
        pending = [(start, False)]
        while pending:
            name, is_done = pending.pop()
            if is_done:
                path.pop(name)
                callees = [called for called in calls[name] if called in counts]
                sizes[name] = counts[name] + sum(sizes[called] for called in callees)
                levels[name] = 1 + max((levels[called] for called in callees), default=0)
                if sizes[name] > MOST_OPERATIONS:
                    raise ValueError(
                        f"it must have at most {MOST_OPERATIONS:,} operations, got {sizes[name]:,}"
                    )
                if levels[name] > MOST_LEVELS:
                    raise ValueError(
                        f"its calls must be nested at most {MOST_LEVELS} deep, got {levels[name]}"
                    )
            elif name in path:
                raise ValueError(f"its functions must not call themselves, got {name[:80]!r}")
            elif name in counts and name not in sizes:
                path[name] = None
                pending.append((name, True))
                pending += [(called, False) for called in calls[name]]


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # as on Windows
        return
    # A crafted program could otherwise fill the memory, and the core file of a crash the disk.
    resource.setrlimit(resource.RLIMIT_DATA, (CHECK_MEMORY, CHECK_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main() -> None:
    _limit_memory()
    sys.stdout.write(program_fault(sys.stdin.buffer.read()) or "")


if __name__ == "__main__":
    _main()
