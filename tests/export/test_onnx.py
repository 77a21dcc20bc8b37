"""The program for converters computes the same outputs; ONNX models are compared where possible."""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

from gatedjax import export, nn
from gatedjax.export._onnx import _CALLS, onnx_program
from gatedjax.models import GANet, GANetConfig, GateConfig
from tests._drawn import drawn
from tests._grouped import grouped
from tests.conftest import ROOT

TOKENS = jnp.array([[2, 3, 4, 5, 6], [8, 9, 0, 0, 0], [0, 0, 0, 0, 0]])
BATCH = {"tokens": TOKENS, "lengths": jnp.array([5, 2, 0])}
XS = {
    "text": {"xs": jnp.asarray(np.random.default_rng(0).normal(size=(3, 5, 4)), jnp.float32)},
    "lengths": BATCH["lengths"],
}


def ga_net():
    gates = GateConfig(test_gate="threshold")
    model = GANet(grouped(GANetConfig, hidden=4, num_layers=1, aux_hidden=4, gates=gates), 20, 2)
    return model.apply, drawn(model.init, BATCH), BATCH


def recurrence(kind):
    module = getattr(nn, kind)(4, bidirectional=True)

    def apply(params, batch):
        return module.apply(params, batch["text"]["xs"], lengths=batch["lengths"])[1]

    return apply, drawn(module.init, XS["text"]["xs"]), XS


def equations(program):
    """Yields the equations of a program and of the programs inside it."""
    for equation in program.eqns:
        yield equation
        for option in jax.tree.leaves(
            equation.params, is_leaf=lambda x: isinstance(x, core.Jaxpr | core.ClosedJaxpr)
        ):
            if isinstance(option, core.Jaxpr | core.ClosedJaxpr):
                yield from equations(getattr(option, "jaxpr", option))


def by_name(outputs):
    if isinstance(outputs, jax.Array):
        return {"output": outputs}
    return {name: value for name, value in vars(outputs).items() if value is not None}


CASES = [ga_net, lambda: recurrence("LSTM"), lambda: recurrence("RAU")]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=["GANet", "LSTM", "RAU"])
def test_the_program_has_no_reverse_scan_and_the_outputs_of_the_function(case):
    apply, params, batch = case()
    program, inputs, names = onnx_program(apply, params, batch)
    original = jax.make_jaxpr(lambda batch: apply(params, batch))(batch)
    found = list(equations(program.jaxpr))
    assert any(e.params.get("reverse") for e in equations(original.jaxpr))
    assert not any(e.params.get("reverse") for e in found)
    called = {e.primitive.name for e in found} & set(_CALLS)
    assert called <= {"jit", "pjit"}  # functions of jax.numpy, which are called again
    assert list(inputs) == ["tokens" if "tokens" in batch else "text.xs", "lengths"]
    results = dict(
        zip(names, jax.jit(core.jaxpr_as_fun(program))(*jax.tree.leaves(batch)[::-1]), strict=True)
    )
    expected = by_name(jax.jit(apply)(params, batch))
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, atol=1e-6, err_msg=name)


def test_without_the_converter_the_message_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(ImportError, match="ONNX export needs jax2onnx: pip install jax2onnx"):
        export.export_onnx(*recurrence("GRU"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=["GANet", "LSTM", "RAU"])
def test_onnx_runtime_computes_the_outputs_of_the_function(case):
    pytest.importorskip("jax2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    apply, params, batch = case()
    session = onnxruntime.InferenceSession(export.export_onnx(apply, params, batch))
    names = [output.name for output in session.get_outputs()]
    arrays = map(np.asarray, jax.tree.leaves(batch)[::-1])
    feed = dict(zip([i.name for i in session.get_inputs()], arrays, strict=True))
    results = dict(zip(names, session.run(names, feed), strict=True))
    expected = by_name(apply(params, batch))
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, atol=1e-5, err_msg=name)


@pytest.mark.filterwarnings("ignore")
def test_the_example_of_the_page_prints_what_it_says(capsys):
    pytest.importorskip("jax2onnx")
    pytest.importorskip("onnxruntime")
    text = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    ((code, printed),) = re.findall(r"```py\n(.*?)```\s+This prints `(.*?)`", text, re.DOTALL)
    exec(compile(code, "export.md", "exec"), {})
    assert capsys.readouterr().out.strip() == printed
