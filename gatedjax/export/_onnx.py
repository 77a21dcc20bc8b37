"""Inference functions as ONNX files, by the converter `jax2onnx`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from gatedjax._utils.missing import missing
from gatedjax._utils.types import Params, Tree
from gatedjax.export._inference import as_spec, plain_outputs
from gatedjax.export._tensors import fill, flatten

# Primitives that call a program once, with the names of the parameters that hold the program.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


def export_onnx(
    apply: Callable[[Any, dict[str, Tree]], Any], params: Params, example_batch: Mapping[str, Tree]
) -> bytes:
    """Converts an inference function to an ONNX model that contains the parameters.

    The sizes of all arrays are fixed to those of the example. Pad a batch to these sizes, and give
    the rows of padding a length of 0 or 1. The package `jax2onnx` converts the operations of JAX.

        >>> apply = lambda params, batch: batch["x"] @ params["w"]
        >>> params, batch = {"w": jnp.ones((3, 2))}, {"x": jnp.ones((4, 3))}
        >>> data = export_onnx(apply, params, batch)  # doctest: +SKIP
        >>> session = onnxruntime.InferenceSession(data)  # doctest: +SKIP
        >>> session.run(["output"], {"x": np.ones((4, 3), np.float32)})[0].shape  # doctest: +SKIP
        (4, 2)

    Args:
      apply: a pure function of (params, batch), without noise.
      params: a tree of arrays, which becomes the constants of the model.
      example_batch: a dict of arrays; only shapes and dtypes are used.

    Returns:
      The bytes of an ONNX model (opset 23). Its inputs have the dotted names of the arrays of the
      batch, and its outputs the dotted names of the results: "logits" for the field of a dataclass,
      "0", "1" for the parts of a tuple, "output" for a single array.

    Raises:
      ImportError: if `jax2onnx` is not installed.
      TypeError: if example_batch is not a dict of arrays.
      NotImplementedError: if `jax2onnx` cannot convert an operation; the message names it.
    """
    try:
        from jax2onnx import to_onnx
    except ImportError as error:
        raise ImportError(missing("ONNX export needs", "jax2onnx")) from error
    program, inputs, outputs = onnx_program(apply, params, example_batch)
    # The converter replaces functions of `jax.numpy` while it traces, so it is given a program that
    # is traced already.
    model = to_onnx(
        core.jaxpr_as_fun(program),
        inputs=list(inputs.values()),
        input_names=list(inputs),
        output_names=outputs,
    )
    return model.SerializeToString()


def onnx_program(
    apply: Callable[[Any, dict[str, Tree]], Any], params: Params, example_batch: Mapping[str, Tree]
) -> tuple[core.ClosedJaxpr, dict[str, jax.ShapeDtypeStruct], list[str]]:
    """Traces an inference function into (program, inputs by name, names of outputs), with fixed
    sizes and without the calls, custom derivatives and reverse scans that `jax2onnx` does not
    convert.
    """
    inputs = {
        name: as_spec(array) for name, array in flatten(example_batch, "example_batch").items()
    }
    names: list[str] = []

    def flat(*arrays: jax.Array) -> list[jax.Array]:
        batch = fill(example_batch, dict(zip(inputs, arrays, strict=True)))
        outputs = jax.tree_util.tree_leaves_with_path(plain_outputs(apply(params, batch)))
        names[:] = [jax.tree_util.keystr(p, simple=True, separator=".") for p, _ in outputs]
        return [jnp.asarray(leaf) for _, leaf in outputs]

    traced = jax.make_jaxpr(flat)(*inputs.values())
    program = jax.make_jaxpr(lambda *arrays: _evaluate(traced, arrays))(*inputs.values())
    return program, inputs, [name or "output" for name in names]


def _evaluate(program: core.ClosedJaxpr, arguments: Any) -> list[Any]:
    """Evaluates a program with calls replaced by their content and all scans made forward."""
    jaxpr = program.jaxpr
    values = dict(zip(jaxpr.constvars, program.consts, strict=True))
    values |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, core.Literal) else values[variable]

    for equation in jaxpr.eqns:
        given, options = [*map(read, equation.invars)], equation.params
        name = equation.primitive.name
        if name == "scan":
            results = _scan_forward(given, equation)
        elif name in _CALLS:
            results = _evaluate(_as_closed(options[_CALLS[name]]), given)
        else:
            results = equation.primitive.bind(*given, **options)
            results = results if equation.primitive.multiple_results else [results]
        values |= dict(zip(equation.outvars, results, strict=True))
    return [*map(read, jaxpr.outvars)]


def _scan_forward(given: list[Any], equation: Any) -> list[Any]:
    """Evaluates a scan as a scan from the first step to the last, of reversed inputs if needed."""
    options, (count, carries) = equation.params, _count_scan_operands(equation)
    constants, initial, xs = given[:count], given[count:][:carries], given[count + carries :]

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        results = _evaluate(_as_closed(options["jaxpr"]), [*constants, *carry, *x])
        return results[:carries], results[carries:]

    def flip(arrays: list[Any]) -> list[Any]:
        return [jnp.flip(array, 0) for array in arrays] if options["reverse"] else arrays

    final, ys = jax.lax.scan(step, initial, flip(xs), length=options["length"])
    return [*final, *flip(ys)]


def _as_closed(program: Any) -> Any:
    """Returns a program with its constants, a `core.ClosedJaxpr`."""
    return program if isinstance(program, core.ClosedJaxpr) else core.ClosedJaxpr(program, ())


def _count_scan_operands(equation: Any) -> tuple[int, int]:
    """Returns the numbers of constants and of carries of a `jax.lax.scan`. Its parameters differ
    between versions of JAX, its shapes do not: only scanned arrays have an axis of steps that the
    body lacks.
    """
    body = _as_closed(equation.params["jaxpr"]).jaxpr

    def count_same(outside: Any, inside: Any) -> int:
        pairs = zip(outside, inside, strict=True)
        return sum(a.aval.ndim == b.aval.ndim for a, b in pairs)

    carries = count_same(equation.outvars, body.outvars)
    return count_same(equation.invars, body.invars) - carries, carries
