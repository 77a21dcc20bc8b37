"""A model's inference as a file: StableHLO by `jax.export`, for any batch size.

Parameters stay an input, they are not copied into the file: it is tens of kilobytes, and serves
every set of parameters of the same shapes, such as those of another seed.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from gatedjax._utils.types import Output, Params, Tree
from gatedjax.export._names import check_same, flatten, leaves, unflatten
from gatedjax.export._program import MOST_BYTES, fault_in_child, program_fault
from gatedjax.export._tensors import BadFile

PLATFORMS = ("cpu", "cuda", "tpu")


def export_inference(
    apply: Callable[[Any, dict[str, Tree]], Any],
    params: Params,
    example_batch: Mapping[str, Tree],
    *,
    batch: str | None = "b",
    shapes: Mapping[str, str] | None = None,
    platforms: Sequence[str] = PLATFORMS,
) -> bytes:
    """Serialises an inference function, which runs later without the code of the model.

    Args:
      apply: a pure function of (params, batch), without noise.
      params: nested dicts of arrays or `jax.ShapeDtypeStruct`; only shapes and dtypes are used.
      example_batch: a dict of arrays; only shapes and dtypes are used.
      batch: the name of the first axis of every array, whose size is left open; None fixes all
        sizes to those of the example. An array without axes stays without.
      shapes: shapes of single arrays in the notation of `jax.export.symbolic_shape`, as in
        {"tokens": "b, t"}, which leaves the padded length open, too.
      platforms: what to lower for; the file holds the program of each.

    Returns:
      The bytes of `jax.export.Exported.serialize`. Outputs become dicts and tuples of arrays:
      dataclasses and named tuples as dicts of the fields that are not None.

    Raises:
      TypeError: if params or example_batch is no dict of arrays.
      ValueError: if shapes names no array of the batch, platforms is empty, or apply has custom
        calls (as `jnp.linalg` and kernels have), effects, or an array too large for a program.
    """
    specs = jax.tree.map(_spec, unflatten(flatten(params)))
    arrays = flatten(example_batch, "example_batch")
    if unknown := sorted(set(shapes or ()) - set(arrays)):
        raise ValueError(f"shapes must name arrays of {sorted(arrays)}, got {', '.join(unknown)}")
    if isinstance(platforms, str) or not platforms:
        raise ValueError(f"platforms must be names such as {PLATFORMS}, got {platforms!r}")
    scope = export.SymbolicScope()
    inputs = {}
    for name, array in arrays.items():
        sizes = [str(size) for size in array.shape]
        if batch is not None and sizes:
            sizes[0] = batch
        # a comma makes one size a shape of one axis
        text = (shapes or {}).get(name, "".join(f"{size}," for size in sizes))
        shape = export.symbolic_shape(text, scope=scope) if text else ()
        inputs[name] = jax.ShapeDtypeStruct(shape, _spec(array).dtype)

    def plain(params: Params, batch: Any) -> Tree:
        return _plain(apply(params, batch))

    exported = export.export(jax.jit(plain), platforms=tuple(platforms))(specs, unflatten(inputs))
    if fault := _field_fault(exported) or program_fault(exported.mlir_module_serialized):
        raise ValueError(f"apply cannot be exported as a pure computation: {fault}")
    return bytes(exported.serialize())


class Inference:
    """A loaded inference function: `inference(params, batch) -> outputs`.

    Attributes:
      platforms: what it was lowered for.
      params_like: shapes and dtypes of the parameters.
      batch_like: shapes (open sizes by name) and dtypes of the batch.
    """

    def __init__(self, exported: export.Exported) -> None:
        # jit: without it every call would lower the program again
        self._call = jax.jit(exported.call)
        self.platforms: tuple[str, ...] = tuple(exported.platforms)
        specs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
        (self.params_like, self.batch_like), keywords = jax.tree.unflatten(exported.in_tree, specs)
        if keywords:
            raise ValueError(f"it takes keyword arguments: {', '.join(keywords)}")
        self._wanted = leaves(self.params_like, "params")
        self._inputs = flatten(self.batch_like, "batch")

    def __call__(self, params: Params, batch: Mapping[str, Tree]) -> Tree:
        """Runs the function.

        Args:
          params: parameters as the exported ones.
          batch: exactly the arrays of the exported batch, sizes that were left open free.

        Raises:
          TypeError: if batch is no dict of arrays.
          ParamsMismatch: if params has other names, shapes or dtypes.
          ValueError: if batch lacks an array, has another, or their sizes do not go together.
        """
        check_same(leaves(params, "params"), self._wanted, "params")
        arrays = flatten(batch, "batch")
        if arrays.keys() != self._inputs.keys():
            raise ValueError(
                f"batch must hold {', '.join(sorted(self._inputs))}, "
                f"got {', '.join(sorted(arrays))}"
            )
        given = {name: self._cast(name, array) for name, array in arrays.items()}
        return self._call(unflatten(flatten(params)), unflatten(given))

    def _cast(self, name: str, array: Tree) -> Tree:
        dtype = self._inputs[name].dtype
        # NumPy's integers are 64 bits wide unless told otherwise; other casts hide mistakes
        if array.dtype.kind != np.dtype(dtype).kind:
            raise ValueError(f"batch[{name!r}] must have dtype {dtype}, got {array.dtype}")
        return array.astype(dtype)


def load_inference(data: bytes) -> Inference:
    """Reads what `export_inference` returned.

    The bytes are a program that XLA compiles, not Python code. Before it is compiled, a process of
    its own reads it, so that damaged bytes cannot end this one, and refuses what no pure
    computation of a model has: every custom call but JAX's check of open sizes, infeed and
    outfeed, collectives, recursion, effects, and arrays of more than 2**31 elements. A program may
    still run for ever or need more memory than there is: load only what you would run.

    Args:
      data: the bytes.

    Raises:
      TypeError: if data is not bytes.
      BadFile: if it is no exported function of (params, batch), or one that is refused.
    """
    if not isinstance(data, bytes | bytearray):
        raise TypeError(f"data must be bytes, got {type(data).__name__}")
    wrong = "data is no exported inference function"
    if len(data) > MOST_BYTES:
        raise BadFile(f"{wrong}: at most {MOST_BYTES:,} bytes are read, got {len(data):,}")
    try:
        exported = export.deserialize(bytearray(data))
        fault = "it brings a derivative" if exported.has_vjp() else _field_fault(exported)
        if not fault:
            fault = fault_in_child(exported.mlir_module_serialized)
        if fault:
            raise BadFile(f"{wrong}: {fault}")
        return Inference(exported)
    except (BadFile, ImportError):
        raise
    except Exception as error:
        # the reader of the format checks nothing, so damage shows as any kind of error
        raise BadFile(f"{wrong}: {error!r}") from error


def _field_fault(exported: export.Exported) -> str | None:
    """Returns what is unlike a file of `export_inference` around the program itself, or None."""
    lowest = export.minimum_supported_calling_convention_version
    highest = export.maximum_supported_calling_convention_version
    version = exported.calling_convention_version
    if not lowest <= version <= highest:
        return f"its calling convention has version {version}, this JAX has {lowest} to {highest}"
    if exported.nr_devices != 1:
        return f"it is a program for {exported.nr_devices} devices, not for one"
    if exported.ordered_effects or exported.unordered_effects:
        return "it has effects beside its results"
    if exported.disabled_safety_checks:
        return "it switches off checks of JAX"
    return None


def _spec(array: Tree) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))


def _plain(output: Output) -> Tree:
    """Containers that any reader of the file knows."""
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        fields = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    elif isinstance(output, tuple) and hasattr(output, "_asdict"):
        fields = output._asdict()
    elif isinstance(output, Mapping):
        fields = dict(output)
    elif isinstance(output, list | tuple):
        return tuple(map(_plain, output))
    else:
        return output
    return {name: _plain(value) for name, value in fields.items() if value is not None}
