"""A crafted file of `jax.export` is refused before anything of it is compiled."""

import dataclasses

import jax
import numpy as np
import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from gatedjax import export
from gatedjax.export import _inference, _program

VECTOR = np.ones(4, np.float32)
T = "tensor<4xf32>"


def _deep(levels):
    inner = f"stablehlo.return %arg0 : {T}"
    for level in range(levels):
        case = f'%v{level} = "stablehlo.case"(%c) ({{ {inner} }}) : (tensor<i32>) -> {T}'
        inner = f"{case}\n stablehlo.return %v{level} : {T}"
    return f"%c = stablehlo.constant dense<0> : tensor<i32>\n{case}\n return %v{level} : {T}"


def _functions(count, body):
    return "".join(
        f"func.func private @f{i}(%arg0: {T}) -> ({T}) {{ {body(i)} return %0 : {T} }}\n"
        for i in range(count)
    )


def _call(name):
    return f"%0 = func.call @{name}(%arg0) : ({T}) -> {T}\n"


def _twice(i):
    if i == 0:
        return f"%0 = stablehlo.sine %arg0 : {T}\n"
    return _call(f"f{i - 1}").replace("%0", "%1") + _call(f"f{i - 1}")


@pytest.fixture(scope="module")
def sound():
    """A program of one addition that `export_inference` wrote."""
    data = export.export_inference(
        lambda params, batch: params["w"] + batch["x"],
        {"w": VECTOR},
        {"x": VECTOR},
        batch=None,
        platforms=("cpu",),
    )
    return jax.export.deserialize(bytearray(data))


def _crafted(sound, body, more=""):
    text = (
        f"module {{ {more} func.func public @main(%arg0: {T}, %arg1: {T}) -> ({T}) {{ {body} }} }}"
    )
    # the context of a lowered function knows all dialects
    with jax.jit(jax.numpy.sin).lower(VECTOR).compiler_ir().context:
        module = ir.Module.parse(text)
        version = stablehlo.get_minimum_version()
        program = stablehlo.serialize_portable_artifact(module, version)
    return dataclasses.replace(sound, mlir_module_serialized=program)


def test_custom_calls_cannot_end_the_process(sound):
    # XLA takes the shape of this one for a tuple, and aborts
    body = f"%0 = stablehlo.custom_call @TopK(%arg0) : ({T}) -> {T}\n return %0 : {T}"
    data = bytes(_crafted(sound, body).serialize())
    with pytest.raises(
        export.BadFile, match=r"custom calls must be among \['shape_assertion'\], got 'TopK'"
    ):
        export.load_inference(data)


BODIES = {
    "got 'lapack_sgetrf'": f"%0 = stablehlo.custom_call @lapack_sgetrf(%arg0) : ({T}) "
    f"-> {T}\n return %0 : {T}",
    # hangs
    "host or other devices, got 'stablehlo.infeed'": "%t = stablehlo.create_token "
    ': !stablehlo.token\n %0:2 = "stablehlo.infeed"(%t) {infeed_config = "", layout = [[0]]} : '
    f"(!stablehlo.token) -> ({T}, !stablehlo.token)\n return %0#0 : {T}",
    "got 'stablehlo.all_reduce'": '%0 = "stablehlo.all_reduce"(%arg0) ({ ^bb0(%a: tensor<f32>, %b: '
    "tensor<f32>): stablehlo.return %a : tensor<f32> }) {replica_groups = dense<0> : "
    f"tensor<1x1xi64>}} : ({T}) -> {T}\n return %0 : {T}",
    # aborts: the product of the sizes overflows
    "at most 2,147,483,648 elements": "%i = stablehlo.iota dim = 0 : "
    "tensor<4000000000000x4000000000000xf32>\n %s = stablehlo.slice %i [0:4, 0:1] : "
    "(tensor<4000000000000x4000000000000xf32>) -> tensor<4x1xf32>\n %0 = stablehlo.reshape %s : "
    f"(tensor<4x1xf32>) -> {T}\n return %0 : {T}",
    # a segmentation fault
    "not call themselves, got 'main'": f"%0 = func.call @main(%arg0, %arg1) : ({T}, {T}) -> {T}\n "
    f"return %0 : {T}",
    "operations must be nested at most 200 deep": _deep(300),
    "calls must be nested at most 200 deep": _call("f249") + f"return %0 : {T}",
    "at most 100,000 operations": _call("f59") + f"return %0 : {T}",
}
MORE = {
    "calls must be nested at most 200 deep": _functions(
        250, lambda i: _call(f"f{i - 1}" if i else "main2")
    )
    + f"func.func private @main2(%arg0: {T}) -> ({T}) {{ return %arg0 : {T} }}",
    "at most 100,000 operations": _functions(60, _twice),
}


@pytest.mark.parametrize("fault", BODIES)
def test_programs_that_no_pure_computation_needs_are_refused(sound, fault):
    crafted = _crafted(sound, BODIES[fault], MORE.get(fault, ""))
    assert fault in (_program.program_fault(crafted.mlir_module_serialized) or "")


CHANGES = {
    "calling convention must have a version from .*, got 999": {"calling_convention_version": 999},
    "for a single device, got 7": {"nr_devices": 7},
    "must not switch off checks": {
        "disabled_safety_checks": (jax.export.DisabledSafetyCheck.platform(),)
    },
    "must have a function 'main'": {"mlir_module_serialized": b""},
}


@pytest.mark.parametrize("fault", CHANGES)
def test_other_fields_than_the_librarys_are_refused(sound, fault):
    crafted = bytes(dataclasses.replace(sound, **CHANGES[fault]).serialize())
    with pytest.raises(export.BadFile, match=fault):
        export.load_inference(crafted)


def test_damaged_bytes_end_a_process_of_their_own(sound, monkeypatch, tmp_path):
    data = bytes(sound.serialize())
    program = sound.mlir_module_serialized
    damaged = data.replace(program, program[: len(program) // 2].ljust(len(program), b"\xff"))
    with pytest.raises(export.BadFile, match="data must be an exported inference function"):
        export.load_inference(damaged)
    late = "reading it must take at most 0.01 seconds, but takes longer"
    monkeypatch.setattr(_program, "SECONDS", 0.01)
    assert _program.fault_in_child(b"slow") == late
    script = tmp_path / "aborts.py"
    script.write_text("import os; os.abort()")
    monkeypatch.setattr(_program, "__file__", str(script))
    monkeypatch.setattr(_program, "SECONDS", 30)
    assert "ends a process by signal" in (_program.fault_in_child(b"abort") or "")


def test_files_have_a_largest_size(sound, monkeypatch):
    monkeypatch.setattr(_inference, "MOST_BYTES", 10)
    with pytest.raises(export.BadFile, match="at most 10 bytes"):
        export.load_inference(bytes(sound.serialize()))


def test_what_could_not_be_loaded_is_not_exported():
    def apply(params, batch):
        return jax.numpy.linalg.cholesky(params["w"] + batch["x"])

    arrays = {"w": np.eye(2, dtype=np.float32)}, {"x": np.eye(2, dtype=np.float32)}
    with pytest.raises(ValueError, match=r"apply must be .* custom calls must be .* got 'lapack_"):
        export.export_inference(apply, *arrays, batch=None, platforms=("cpu",))
