"""Inference functions as files: StableHLO by `jax.export`, for all batch sizes.

Parameters are an input of the program, not part of the file. The file has tens of kilobytes and
works with all parameters of the same shapes, such as those of another seed. It is a program that
XLA compiles and runs: load programs only from people you trust.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export, lax

from gatedjax._utils.types import Output, Params, Tree
from gatedjax.export._tensors import BadFile, check_same, fill, flatten, leaves
from gatedjax.functional._devices import exported_for

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
    """Serialises an inference function, which can run without the code of the model.

    The result is a program: tell its users to load programs only from people they trust, and
    `safetensors` files from anybody.

        >>> params = {"w": np.ones((3, 2), np.float32)}
        >>> batch = {"x": np.ones((4, 3), np.float32)}
        >>> data = export_inference(lambda p, b: b["x"] @ p["w"], params, batch, platforms=("cpu",))
        >>> load_inference(data)(params, {"x": np.ones((5, 3), np.float32)}).shape
        (5, 2)

    Args:
      apply: a pure function of (params, batch), without noise.
      params: a tree of arrays or `jax.ShapeDtypeStruct`; only shapes and dtypes are used.
      example_batch: a dict of arrays; only shapes and dtypes are used.
      batch: the name of the first axis of all arrays, whose size is left open; None fixes all
        sizes to those of the example. Arrays of shape () do not change.
      shapes: shapes of some arrays in the notation of `jax.export.symbolic_shape`; for example
        {"tokens": "b, t"} also leaves the padded length open. "_" is the size in the example, and
        "..." all further sizes.
      platforms: the platforms to lower for, of "cpu", "cuda" and "tpu"; the file contains a program
        for each, in which recurrences have the layout of that platform.

    Returns:
      The bytes of `jax.export.Exported.serialize`. Outputs become dicts and tuples of arrays:
      dataclasses and named tuples as dicts of the fields that are not None.

    Raises:
      TypeError: if params or example_batch is not a tree of arrays.
      ValueError: if shapes names an array that is not in the batch, platforms is empty, or apply
        calls kernels or other programs by names that JAX may change.
    """
    specs = fill(params, {name: as_spec(leaf) for name, leaf in flatten(params).items()})
    arrays = flatten(example_batch, "example_batch")
    if unknown := sorted(set(shapes or ()) - set(arrays)):
        raise ValueError(f"shapes must name arrays of {sorted(arrays)}, got {unknown}")
    if isinstance(platforms, str) or not platforms:
        raise ValueError(f"platforms must be names such as {PLATFORMS}, got {platforms!r}")
    # Sizes with the same name are equal, because all shapes are read in a single call.
    sizes = {
        name: "..." if batch is None or not array.shape else f"{batch}, ..."
        for name, array in arrays.items()
    }
    examples = {name: as_spec(array) for name, array in arrays.items()}
    inputs = export.symbolic_args_specs(examples, sizes | dict(shapes or {}))

    def on(platform: str) -> Callable[[Params, Any], Tree]:
        def run(params: Params, batch: Any) -> Tree:
            with exported_for(platform):
                return plain_outputs(apply(params, batch))

        return run

    def plain(params: Params, batch: Any) -> Tree:
        # Recurrences have a layout for CPUs and another for all accelerators.
        accelerators = [platform for platform in platforms if platform != "cpu"]
        if "cpu" not in platforms or not accelerators:
            return on(platforms[0])(params, batch)
        return lax.platform_dependent(params, batch, cpu=on("cpu"), default=on(accelerators[0]))

    batch_specs = fill(example_batch, inputs)
    exported = export.export(jax.jit(plain), platforms=tuple(platforms))(specs, batch_specs)
    return bytes(exported.serialize())


class Inference:
    """A loaded inference function: `inference(params, batch) -> outputs`.

    `load_inference` constructs it from a file.

    Attributes:
      platforms: the platforms that it was lowered for, of "cpu", "cuda", "tpu".
      params_like: a tree like the parameters, with the shape and dtype of each leaf.
      batch_like: a tree like the batch, with the shape (open sizes by name) and dtype of each leaf.
    """

    def __init__(self, exported: export.Exported) -> None:
        # Without jit each call would lower the program again.
        self._call = jax.jit(exported.call)
        self.platforms: tuple[str, ...] = tuple(exported.platforms)
        specs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
        (self.params_like, self.batch_like), _ = jax.tree.unflatten(exported.in_tree, specs)
        self._wanted = leaves(flatten(self.params_like))
        self._inputs = flatten(self.batch_like, "batch")

    def __call__(self, params: Params, batch: Mapping[str, Tree]) -> Tree:
        """Runs the function.

        Args:
          params: parameters with the exported names, shapes and dtypes.
          batch: the arrays of the exported batch, with any value of the open sizes.

        Returns:
          The outputs of the exported function: an array, or nested dicts and tuples of arrays.

        Raises:
          TypeError: if batch is not a dict of arrays.
          ParamsMismatch: if params has other names, shapes or dtypes.
          ValueError: if arrays of the batch are missing or unknown, or their sizes do not fit.
        """
        flat = flatten(params)
        check_same(leaves(flat), self._wanted, "params")
        arrays = flatten(batch, "batch")
        if arrays.keys() != self._inputs.keys():
            raise ValueError(
                f"batch must have the arrays {sorted(self._inputs)}, got {sorted(arrays)}"
            )
        inputs = {name: self._cast(name, array) for name, array in arrays.items()}
        return self._call(fill(self.params_like, flat), fill(self.batch_like, inputs))

    def _cast(self, name: str, array: Tree) -> Tree:
        dtype = self._inputs[name].dtype
        # NumPy integers have 64 bits by default; casts to another kind would hide mistakes.
        if array.dtype.kind != np.dtype(dtype).kind:
            raise ValueError(f"batch[{name!r}] must have dtype {dtype}, got {array.dtype}")
        return array.astype(dtype)


def load_inference(data: bytes) -> Inference:
    """Loads an inference function from the bytes of `export_inference`, by `jax.export`.

    The bytes are a program, which XLA compiles and runs: load programs only from people you trust.
    A crafted or damaged program can end the process, use up the memory or run code of its own. For
    models of strangers use the parameters in their `safetensors` file with your code of the model.

    Args:
      data: the bytes that `export_inference` returned.

    Returns:
      The function, an `Inference`: `inference(params, batch) -> outputs`.

    Raises:
      TypeError: if data is not bytes.
      BadFile: if it is not an exported function of (params, batch).
    """
    if not isinstance(data, bytes | bytearray):
        raise TypeError(f"data must be bytes, got {type(data).__name__}")
    try:
        return Inference(export.deserialize(bytearray(data)))
    except ImportError:  # of flatbuffers, which jax.export needs: no fault of the data
        raise
    except Exception as error:
        # The deserializer checks no input, so damaged bytes can raise any error.
        raise BadFile(f"data must be an exported inference function: {error!r:.500}") from error


def as_spec(array: Tree) -> jax.ShapeDtypeStruct:
    """Returns the shape of an array and the dtype in which JAX computes with it."""
    # NumPy arrays have 64 bits by default, and JAX computes with 32 unless it is configured
    # otherwise.
    return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))


def plain_outputs(output: Output) -> Tree:
    """Converts dataclasses and named tuples to dicts, so that a reader needs no model classes."""
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        fields = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    elif isinstance(output, tuple) and hasattr(output, "_asdict"):
        fields = output._asdict()
    elif isinstance(output, Mapping):
        fields = dict(output)
    elif isinstance(output, list | tuple):
        return tuple(map(plain_outputs, output))
    else:
        return output
    return {name: plain_outputs(value) for name, value in fields.items() if value is not None}
