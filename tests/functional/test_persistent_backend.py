"""The choice between the kernels and the scan, the plans, the compiler and its cache."""

import ctypes
import logging
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from gatedjax import functional as F
from gatedjax.functional import RecurrenceBackend, recurrence_backend
from gatedjax.functional._persistent import _backend, _compiler, _launch, _plan
from gatedjax.functional._persistent._plan import KINDS, Card, choose_plan
from tests.conftest import ROOT
from tests.functional import emulator

H100 = Card("NVIDIA H100", (9, 0), 132)
A100 = Card("NVIDIA A100", (8, 0), 108)


def call(implementation="auto", steps=9, dtype=np.float32):
    weights = F.GRUWeights(*(np.ones(shape, np.float32) for shape in ((3, 12), (4, 12), (12,))))
    return F.gru(weights, np.ones((2, steps, 3), dtype), implementation=implementation)


def test_without_a_gpu_the_scan_runs(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    # on a machine with a GPU an earlier test may have put its card into the cache
    monkeypatch.setattr(_backend, "find_card", _backend.find_card.__wrapped__)
    backend = recurrence_backend("gru", 32, 100, 128)
    assert backend == RecurrenceBackend(
        "scan", "the backend is cpu, and the kernels need an NVIDIA GPU"
    )
    with pytest.raises(ValueError, match="for this call of gru, because the backend is cpu"):
        call("persistent")
    with pytest.raises(ValueError, match="implementation must be one of"):
        call("cudnn")
    with pytest.raises(ValueError, match="recurrence must be one of"):
        recurrence_backend("rnn", 1, 1, 1)


@pytest.mark.slow
def test_import_compiles_nothing():
    program = (
        "import gatedjax.functional._persistent._compiler as c, jax._src.xla_bridge as b;"
        "assert c.load_compiler.cache_info().currsize == 0 and not b._backends"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        (("gru", 2, 7, 4), {}, "fewer than 8 steps"),
        (("gru", 2, 0, 4), {}, "no steps"),
        (("gru", 5000, 9, 4), {}, "5000 rows do not fit"),
        (("gru", 2, 9, 400), {}, "width 400 do not fit in the registers"),
        (("gru", 2, 9, 4), {"dtype": jnp.float64}, "the inputs are float64"),
        (("rau", 2, 9, 4), {"attention": "concat"}, "no kernel for rau with attention='concat'"),
        (("rau", 2, 9, 4), {"reset_after": True}, "no kernel for rau .* and reset_after"),
        (("lstm", 2, 9, 4), {"implementation": "scan"}, "implementation='scan' was given"),
    ],
)
def test_the_scan_has_a_reason(arguments, options, reason, monkeypatch):
    monkeypatch.setattr(_backend, "find_card", lambda: H100)
    with jax.enable_x64(True):
        backend = recurrence_backend(*arguments, **options)
    assert backend.implementation == "scan"
    assert re.search(reason, backend.reason)


def test_auto_takes_the_kernels_from_8_steps_on_for_as_many_rows_as_processors(monkeypatch):
    monkeypatch.setattr(_backend, "find_card", lambda: H100)
    monkeypatch.setattr(_backend, "_trial_error", lambda variant, plan: None)
    backend = recurrence_backend("lstm", H100.processors, 8, 100, dtype=jnp.float16)
    assert backend == RecurrenceBackend("persistent", "one launch on NVIDIA H100")


@pytest.mark.slow
def test_auto_takes_the_kernels_where_all_rows_run_at_once():
    with emulator.emulated() as launches:
        for name, directions in (("lstm", 2), ("gru", 1), ("rau", 2)):
            assert recurrence_backend(name, 2, 9, 4, directions=directions) == RecurrenceBackend(
                "persistent", "one launch on emulated"
            )
        launches.clear()
        call()
    assert [launch.kernel for launch in launches] == ["forward"]


def test_the_trial_runs_once_per_shape_class():
    with emulator.emulated() as launches:
        recurrence_backend("gru", 2, 9, 4)
        trial = len(launches)
        recurrence_backend("gru", 3, 20, 4)
        assert trial == len(launches) == 3


def fail(*_, **__):
    raise RuntimeError("UNIMPLEMENTED: no handler for __gpu$xla.gpu.ptx\nsecond line")


def test_a_failed_trial_means_the_scan_and_a_line_in_the_log(caplog):
    with emulator.emulated(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_launch, "call_kernel", fail)
        _backend._log_once.cache_clear()
        with caplog.at_level(logging.DEBUG, "gatedjax.functional"):
            _, outputs = call()
            call()
    assert outputs.shape == (2, 9, 4)
    (record,) = (each for each in caplog.records if each.name == "gatedjax.functional")
    want = "gru runs by the scan: the trial of the kernels failed: UNIMPLEMENTED: no handler for"
    assert record.getMessage().startswith(want)
    assert "second line" not in record.getMessage()


def test_a_kernel_with_wrong_results_is_not_used():
    with emulator.emulated(), pytest.MonkeyPatch.context() as patch:
        right = _launch.call_kernel

        def wrong(*arguments):
            return [2 * leaf for leaf in right(*arguments)]

        patch.setattr(_launch, "call_kernel", wrong)
        backend = recurrence_backend("gru", 2, 9, 4)
    assert "states of forward must be" in backend.reason


@pytest.mark.slow
def test_sizes_that_an_export_leaves_open_are_scanned():
    weights = F.GRUWeights(*(np.ones(shape, np.float32) for shape in ((3, 12), (4, 12), (12,))))
    (rows,) = export.symbolic_shape("rows")
    xs = jax.ShapeDtypeStruct((rows, 9, 3), jnp.float32)
    with emulator.emulated() as launches:
        exported = export.export(jax.jit(lambda xs: F.gru(weights, xs)[1]))(xs)
    assert not launches
    np.testing.assert_allclose(
        exported.call(np.ones((2, 9, 3), np.float32)), call("scan")[1], rtol=1e-6
    )


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("hidden", [1, 3, 64, 100, 128, 200, 256])
@pytest.mark.parametrize(("batch", "directions"), [(1, 1), (32, 2), (1000, 1)])
def test_all_widths_up_to_256_have_a_plan(kind, hidden, batch, directions):
    plan = choose_plan(kind, hidden, batch, directions, H100)
    assert plan is not None
    assert plan.split >= plan.cluster
    for is_backward in (False, True):
        assert plan.threads(is_backward) <= 1024
        assert plan.threads(is_backward) % 32 == 0
    assert plan.blocks(batch, directions) >= plan.cluster * batch * directions / plan.rows


def test_plans_of_the_measured_sizes_are_the_fastest_measured():
    def numbers(kind, hidden, batch, directions=1):
        return choose_plan(KINDS[kind], hidden, batch, directions, H100)[2:]

    assert numbers("lstm", 100, 32, 2) == (1, 1, 4, 16, 1)
    assert numbers("lstm", 128, 32) == (2, 1, 4, 16, 2)
    assert numbers("lstm", 128, 128) == (2, 2, 4, 16, 2)
    assert numbers("lstm", 256, 64) == (8, 4, 8, 32, 1)


def test_cards_without_clusters_run_small_widths():
    plan = choose_plan(KINDS["lstm"], 100, 32, 2, A100)
    assert plan.cluster == 1
    assert choose_plan(KINDS["lstm"], 128, 32, 2, A100) is None
    variant = _launch.Variant(KINDS["lstm"], False, False, None, 1.0, A100)
    assert "-arch=compute_80" in _launch.options_for(variant, plan, "forward")


class _Device:
    def __init__(self, capability):
        self.device_kind, self.compute_capability, self.core_count = "card", capability, 7


@pytest.mark.parametrize(
    ("capability", "want"),
    [
        ("9.0", Card("card", (9, 0), 7)),
        ("12.0", Card("card", (12, 0), 7)),
        ("7.5", "card is older than compute capability 8.0"),
        ("gfx942", "card has no compute capability of NVIDIA"),
    ],
)
def test_the_card_is_read_from_the_device(capability, want, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [_Device(capability)])
    assert _backend.find_card.__wrapped__() == want


class _Compiler:
    version, calls = "1.0", 0

    def compile(self, source, options):
        type(self).calls += 1
        return f"// {len(source)} {' '.join(options)}"


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("GATEDJAX_KERNEL_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(_compiler, "load_compiler", _Compiler)
    monkeypatch.setattr(_Compiler, "calls", 0)
    _compiler.compile_ptx.cache_clear()
    yield tmp_path / "kernels"
    _compiler.compile_ptx.cache_clear()


def test_compiled_kernels_are_stored_by_source_options_and_version(compiler, monkeypatch):
    def text(*options):
        _compiler.compile_ptx.cache_clear()  # as in another process
        return _compiler.compile_ptx(options)

    first = text("-DHIDDEN=4")
    assert text("-DHIDDEN=4") == first
    assert _Compiler.calls == 1
    text("-DHIDDEN=5")
    monkeypatch.setattr(_Compiler, "version", "2.0")
    text("-DHIDDEN=4")
    monkeypatch.setattr(_compiler, "read_source", lambda: "other")
    text("-DHIDDEN=4")
    assert (
        _Compiler.calls == len(list(compiler.glob("*.ptx"))) == len(list(compiler.iterdir())) == 4
    )


def test_a_folder_that_cannot_be_written_is_no_error(compiler):
    compiler.write_text("a file")
    assert _compiler.compile_ptx(("-DHIDDEN=4",)).startswith("//")


def test_the_cache_can_be_turned_off(compiler, monkeypatch):
    monkeypatch.setenv("GATEDJAX_KERNEL_CACHE", "")
    _compiler.compile_ptx(("-DHIDDEN=4",))
    assert not compiler.exists()
    monkeypatch.delenv("GATEDJAX_KERNEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(compiler))
    assert _compiler.cache_folder() == compiler / "gatedjax" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(_compiler.Path, "home", fail)
    assert _compiler.cache_folder() is None


def test_a_missing_compiler_means_the_scan(monkeypatch):
    monkeypatch.setattr(_backend, "find_card", lambda: H100)
    monkeypatch.setattr(_compiler, "_installed_libraries", list)

    def missing(name, *_):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    for cached in (_compiler.load_compiler, _compiler.compile_ptx, _backend._trial_error):
        cached.cache_clear()
    backend = recurrence_backend("gru", 2, 9, 4)
    assert "NVRTC was not found" in backend.reason
    _backend._trial_error.cache_clear()


def test_the_newest_of_the_installed_compilers_comes_first(monkeypatch, tmp_path):
    paths = [tmp_path / f"nvidia/{name}/lib/libnvrtc.so.{n}" for n, name in ((12, "a"), (13, "b"))]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = [path for path in _compiler._installed_libraries() if path in paths]
    assert found == paths[::-1]


def test_the_compiler_accepts_the_source_for_all_kinds(monkeypatch):
    """Runs where NVRTC is installed, which needs no GPU."""
    monkeypatch.setenv("GATEDJAX_KERNEL_CACHE", "")
    _compiler.load_compiler.cache_clear()
    _compiler.compile_ptx.cache_clear()
    try:
        _compiler.load_compiler()
    except _compiler.CompilerError as error:
        pytest.skip(str(error))
    for card in (H100, A100):
        for kind in KINDS.values():
            plan = choose_plan(kind, 64, 32, 2, card)
            variant = _launch.Variant(kind, True, True, 0.5, 64.0, card)
            for kernel in _compiler.KERNELS:
                text = _compiler.compile_ptx(_launch.options_for(variant, plan, kernel))
                assert f".entry run_{kernel}(" in text
                assert ("_80" if card is A100 else "_90") in text
    with pytest.raises(_compiler.CompilerError, match="splits"):
        _compiler.compile_ptx(_launch.options_for(variant, plan._replace(split=2), "forward"))


def test_the_source_is_part_of_the_package():
    assert "run_backward" in _compiler.read_source()
    assert _plan.Plan(KINDS["gru_before"], 4, 1, 1, 4, 16, 2).constants()["KIND"] == 2


@pytest.mark.slow
def test_a_program_for_a_gpu_calls_the_kernels_with_their_grid(monkeypatch):
    """Lowers for CUDA, which needs no GPU; the compiler is replaced."""
    monkeypatch.setattr(_backend, "find_card", lambda: H100)
    monkeypatch.setattr(_backend, "_trial_error", lambda variant, plan: None)
    monkeypatch.setattr(_launch, "compile_ptx", lambda options: " ".join(options))
    weights = F.LSTMWeights(*(np.ones(shape, np.float32) for shape in ((3, 16), (4, 16), (16,))))

    def loss(weights, xs):
        return jnp.sum(F.bidirectional(F.lstm, weights, weights, xs)[1])

    traced = jax.jit(jax.grad(loss)).trace(weights, np.ones((5, 9, 3), np.float32))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    calls = [line for line in text.splitlines() if "@__gpu$xla.gpu.ptx(" in line]
    assert len(calls) == 2
    for line, kernel in zip(calls, ("saving", "backward"), strict=True):
        assert f'name = "run_{kernel}"' in line
        assert 'kernel_type = "ptx"' in line
        assert "grid_x = 5 : i32, grid_y = 2 : i32, grid_z = 1 : i32" in line
        assert "-DHIDDEN=4" in line
    assert "stablehlo.while" not in text
    # The same program runs by the scan on the CPU of a machine with a GPU.
    other = traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "xla.gpu.ptx" not in other
    assert "stablehlo.while" in other
    with jax.default_device(jax.devices("cpu")[0]):
        gradients = jax.jit(jax.grad(loss))(weights, np.ones((5, 9, 3), np.float32))
    assert np.all(np.isfinite(gradients.recurrent))
