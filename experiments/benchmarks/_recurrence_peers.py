"""The cases and contestants of the benchmark `recurrence`: our recurrences and other libraries'."""

import dataclasses
import functools
import importlib
import operator
import os
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.benchmarks._harness import compile_timed, memory_of
from experiments.core.kinds import Array, Json, Params
from gatedjax import functional as F
from gatedjax.functional import _cell_scan
from gatedjax.functional._devices import target_platform
from gatedjax.functional._recurrence import Restarts

Cell = Literal["lstm", "gru", "rau"]
BLOCKS = {"lstm": 4, "gru": 3, "rau": 5}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A network and a size of batch B, T, H; the inputs are as wide as the state of a direction.
    Several devices split the batch."""

    cell: Cell
    batch: int
    steps: int
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    devices: int = 1

    @property
    def widths(self) -> list[int]:
        """Returns the width of the inputs of each layer."""
        return [self.hidden] + [(1 + self.bidirectional) * self.hidden] * (self.layers - 1)

    @property
    def size(self) -> str:
        """Returns (B, T, H) as text, with the number of layers and directions if there are
        several."""
        stack = f", {self.layers} layers" if self.layers > 1 else ""
        ways = ", bidirectional" if self.bidirectional else ""
        return f"({self.batch}, {self.steps}, {self.hidden}){stack}{ways}"

    @property
    def gflop(self) -> float:
        """Returns 10^9 operations of the forward pass: matrix products only, padding included."""
        flop_per_step = sum(
            2 * BLOCKS[self.cell] * self.hidden * (d + self.hidden) for d in self.widths
        )
        return 1e-9 * self.batch * self.steps * (1 + self.bidirectional) * flop_per_step


@dataclasses.dataclass(frozen=True)
class Runs:
    """The compiled forward pass and forward + backward pass of a contestant. The seconds of
    compilation and the memory are those of `train`; None if they are unknown."""

    forward: Callable[[], object]
    train: Callable[[], object]
    compile_s: float | None = None
    memory_bytes: int | None = None


class NotAvailable(Exception):
    """Raised for a peer that is not installed, lacks the network, or has wrong gradients."""


def make_batch(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Draws inputs [B, T, D] and lengths [B], log-normal as in text; the first length is T."""
    rng = np.random.default_rng(0)
    # A batch with equal lengths would favour peers that ignore padding.
    lengths = rng.lognormal(np.log(0.6 * case.steps), 0.4, case.batch)
    lengths = np.clip(lengths.astype(np.int32), 1, case.steps)
    # The first row has the full length, because batches are padded to their longest row.
    lengths[0] = case.steps
    xs = rng.normal(size=(case.batch, case.steps, case.hidden))
    return xs.astype(np.float32), lengths


def shardings(devices: int) -> tuple[NamedSharding, NamedSharding]:
    """Returns the sharding of arrays that each device has in full, and of arrays split by rows."""
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    return NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))


def jax_runs(
    case: Case, apply: Callable[..., Any], params: Params, xs: Array, lengths: Array
) -> Runs:
    """Compiles the forward pass, and the pass with gradients of parameters and inputs. The loss is
    the sum of the squared outputs of real steps. `apply` is a function of (parameters, inputs,
    lengths) that returns outputs [B, T, *]. Raises NotAvailable if gradients have another shape or
    are not finite."""
    replicated, split = shardings(case.devices)
    params = jax.device_put(params, replicated)
    xs, lengths = jax.device_put((xs, lengths), split)

    def loss(params: Params, xs: jax.Array, lengths: jax.Array) -> jax.Array:
        outputs = apply(params, xs, lengths)
        # Outputs of peers differ at padding. The loss must not depend on them.
        real = F.length_mask(lengths, xs.shape[1])[..., None]
        return jnp.sum(jnp.where(real, outputs, 0) ** 2)

    arguments = (params, xs, lengths)
    # Both programs are compiled ahead, so that no turn includes a compilation.
    forward = jax.jit(apply, out_shardings=split).lower(*arguments).compile()
    gradients = jax.value_and_grad(loss, argnums=(0, 1))
    train_step = jax.jit(gradients, out_shardings=(replicated, (replicated, split)))
    train, compile_s = compile_timed(train_step.lower(*arguments))
    memory = memory_of(train, "temp", "argument", "output")
    # A fast but wrong contestant would be a bad yardstick. Its gradients are checked before the
    # clock starts.
    value, gradient = train(*arguments)
    inputs_of_gradient = jax.tree.leaves((params, xs))
    leaves = jax.tree.leaves(gradient)
    if [leaf.shape for leaf in leaves] != [leaf.shape for leaf in inputs_of_gradient]:
        raise NotAvailable("gradients of another shape")
    if not all(bool(jnp.isfinite(leaf).all()) for leaf in [value, *leaves]):
        raise NotAvailable("gradients not finite")
    return Runs(
        lambda: forward(*arguments),
        lambda: train(*arguments),
        compile_s,
        case.devices * memory,
    )


def masked_scan(
    step: Callable[..., Any], initial: Any, xs: jax.Array, mask: jax.Array, reverse: bool
) -> tuple[Any, jax.Array]:
    """Scans a step over time, and keeps the carry unchanged at padding. `step` is a function of
    (carry, x [B, D]). Returns the last carry and the outputs [B, T, H], 0 at padding."""

    def body(carry: Any, inputs: Any) -> Any:
        x, keep = inputs
        new, output = step(carry, x)
        # The carry stays unchanged at padding, so that the last state is the state at the last real
        # step, as in our scan.
        state = jax.tree.map(lambda n, o: jnp.where(keep[:, None], n, o), new, carry)
        return state, jnp.where(keep[:, None], output, 0)

    carry, outputs = lax.scan(body, initial, (jnp.swapaxes(xs, 0, 1), mask.T), reverse=reverse)
    return carry, jnp.swapaxes(outputs, 0, 1)


# The contestants ---------------------------------------------------------------------------------

OURS = "gatedjax"
RESET_AFTER = "gatedjax reset_after"
OUR_GRU = "gatedjax GRU"
PRODUCTS = "products alone"
NO_CELL = "no such cell"
_UNROLL: dict[str, Callable[..., Any]] = {"lstm": F.lstm, "gru": F.gru, "rau": F.rau}
_STEP: dict[str, Callable[..., Any]] = {"lstm": F.lstm_step, "gru": F.gru_step, "rau": F.rau_step}
_WEIGHTS: Json = {"lstm": F.LSTMWeights, "gru": F.GRUWeights, "rau": F.RAUWeights}


def _make_weights(case: Case) -> list[list[Any]]:
    """Returns the weights for our functions: for each layer a list with an entry per direction."""
    rng = np.random.default_rng(0)
    width = BLOCKS[case.cell] * case.hidden

    def make_direction(features: int) -> Any:
        shapes = (features, width), (case.hidden, width), (width,)
        scale = case.hidden**-0.5
        arrays = (jnp.asarray(rng.normal(size=s) * scale, jnp.float32) for s in shapes)
        return _WEIGHTS[case.cell](*arrays)

    return [
        [make_direction(features) for _ in range(1 + case.bidirectional)]
        for features in case.widths
    ]


def _stack(unroll: Callable[..., Any], params: Params, xs: jax.Array, lengths: jax.Array) -> Any:
    mask = F.length_mask(lengths, xs.shape[1])
    # The number of directions is static, because it is a length of a list and not a value.
    for layer in params:
        if len(layer) == 2:
            forward, backward = layer
            xs = F.bidirectional(unroll, forward, backward, xs, mask)[1]
        else:
            xs = unroll(layer[0], xs, mask)[1]
    return xs


def run_gatedjax(case: Case, xs: Array, lengths: Array, **options: Any) -> Runs:
    """Prepares the runs of our functions, with the implementation that they choose."""
    unroll = functools.partial(_UNROLL[case.cell], **options)
    return jax_runs(case, functools.partial(_stack, unroll), _make_weights(case), xs, lengths)


def run_our_scan(case: Case, xs: Array, lengths: Array) -> Runs:
    """Prepares the runs of our scan where our functions choose another implementation."""
    sizes = case.batch, case.steps, case.hidden
    backend = F.recurrence_backend(case.cell, *sizes, directions=1 + case.bidirectional)
    if backend.implementation == "scan":
        raise NotAvailable(f"{OURS} runs by the scan: {backend.reason}")
    return run_gatedjax(case, xs, lengths, implementation="scan")


def run_scanned_step(case: Case, xs: Array, lengths: Array) -> Runs:
    """Prepares the runs of our step under a plain scan, with gradients by JAX."""
    step = _STEP[case.cell]

    def unroll(weights: Any, xs: jax.Array, mask: jax.Array, *, reverse: bool = False) -> Any:
        zeros = jnp.zeros((xs.shape[0], case.hidden), xs.dtype)
        initial = F.LSTMState(zeros, zeros) if case.cell == "lstm" else zeros
        return masked_scan(functools.partial(step, weights), initial, xs, mask, reverse)

    return jax_runs(case, functools.partial(_stack, unroll), _make_weights(case), xs, lengths)


def linear_recurrence(
    weights: Any, xs: Array, mask: Array, *, reverse: bool = False
) -> tuple[Array, Array]:
    """Runs h_t = sum_k (x_t W + h_{t-1} U + b)_k over the blocks k of H columns, step by step. The
    products are those of a cell with as many blocks, forwards and backwards. Only the sum remains
    of the rest of the cell. Returns the last state [B, H] and all states [B, T, H]. The mask is
    unused, because padding is computed."""
    del mask
    hidden, columns = weights.recurrent.shape
    count = columns // hidden
    cell = _cell_scan.Cell(_add_blocks, None, count, (_cell_scan.Product(tuple(range(count))),))
    start = jnp.zeros((xs.shape[0], hidden), xs.dtype)
    carries = None, start, None, Restarts(None, None)
    # as in `functional._directions.run_recurrences`
    unroll = 1 if target_platform() == "cpu" else 4
    return _cell_scan.run_cell(cell, reverse, unroll, weights, xs, *carries)


def _add_blocks(_: None, terms: _cell_scan.Terms, hidden: Array) -> Array:
    return functools.reduce(operator.add, terms.sums(0, hidden))


def run_products(case: Case, xs: Array, lengths: Array) -> Runs:
    """Prepares the runs of the matrix products without gates. The recurrent weights are divided by
    8, because without gates the states would grow."""

    def unroll(weights: Any, *arguments: Any, **options: Any) -> Any:
        # A factor of 1/8 keeps the spectral radius of the recurrent weights far below 1.
        calm = weights._replace(recurrent=weights.recurrent / 8)
        return linear_recurrence(calm, *arguments, **options)

    return jax_runs(case, functools.partial(_stack, unroll), _make_weights(case), xs, lengths)


def _import(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise NotAvailable("not installed") from error


class _LinenStack(nn.Module):
    cell: Any
    case: Case

    @nn.compact
    def __call__(self, xs: Array, lengths: Array) -> Any:
        for _ in range(self.case.layers):
            count = 1 + self.case.bidirectional
            ways: Any = [nn.RNN(self.cell(self.case.hidden)) for _ in range(count)]
            layer: Any = nn.Bidirectional(*ways) if self.case.bidirectional else ways[0]
            xs = layer(xs, seq_lengths=lengths)
        return xs


def run_linen(case: Case, xs: Array, lengths: Array, *, kind: str = "") -> Runs:
    """Prepares the runs of Flax Linen."""
    module = _LinenStack(getattr(nn, f"{kind}{case.cell.upper()}Cell"), case)
    # Without `jit` the initialisation would run the whole unrolled network operation by operation.
    params = jax.jit(module.init)(jax.random.key(0), jnp.asarray(xs), jnp.asarray(lengths))
    return jax_runs(case, module.apply, params, xs, lengths)


def run_nnx(case: Case, xs: Array, lengths: Array, *, kind: str = "") -> Runs:
    """Prepares the runs of Flax NNX."""
    make, rngs = getattr(nnx, f"{kind}{case.cell.upper()}Cell"), nnx.Rngs(0)

    def layer(features: int) -> Any:
        cells = [make(features, case.hidden, rngs=rngs) for _ in range(1 + case.bidirectional)]
        ways = [nnx.RNN(cell, rngs=rngs) for cell in cells]
        return nnx.Bidirectional(*ways, rngs=rngs) if case.bidirectional else ways[0]

    # NNX modules are mutable. They are split into a graph and arrays, because a compiled function
    # may only take arrays.
    network = nnx.List([layer(features) for features in case.widths])
    graph, params, other_state = nnx.split(network, nnx.Param, ...)  # type: ignore[misc]

    def apply(params: Params, xs: jax.Array, lengths: jax.Array) -> jax.Array:
        for layer_of_network in nnx.merge(graph, params, other_state, copy=True):
            xs = layer_of_network(xs, seq_lengths=lengths)
        return xs

    return jax_runs(case, apply, params, xs, lengths)


def run_haiku(case: Case, xs: Array, lengths: Array) -> Runs:
    """Prepares the runs of Haiku's cores under its unroll. The state stays the same at padding,
    because Haiku's unroll has no lengths."""
    hk = _import("haiku")
    make = getattr(hk, case.cell.upper())

    def way(xs: jax.Array, mask: jax.Array, reverse: bool) -> jax.Array:
        core = make(case.hidden)

        def step(inputs: Any, state: Any) -> Any:
            x, keep = inputs
            output, new = core(x, state)
            return output, jax.tree.map(lambda n, o: jnp.where(keep[:, None], n, o), new, state)

        initial = core.initial_state(xs.shape[0])
        steps = (jnp.swapaxes(xs, 0, 1), mask.T)
        return jnp.swapaxes(hk.dynamic_unroll(step, steps, initial, reverse=reverse)[0], 0, 1)

    def network(xs: jax.Array, lengths: jax.Array) -> jax.Array:
        mask = F.length_mask(lengths, xs.shape[1])
        for _ in case.widths:
            ways = [way(xs, mask, reverse) for reverse in (False, True)[: 1 + case.bidirectional]]
            xs = jnp.concatenate(ways, axis=-1) if case.bidirectional else ways[0]
        return xs

    transformed: Any = hk.without_apply_rng(hk.transform(network))
    params = jax.jit(transformed.init)(jax.random.key(0), jnp.asarray(xs), jnp.asarray(lengths))
    return jax_runs(case, transformed.apply, params, xs, lengths)


def run_equinox(case: Case, xs: Array, lengths: Array) -> Runs:
    """Prepares the runs of Equinox's cells under a scan that keeps the state at padding. Equinox
    has no recurrent layer."""
    eqx = _import("equinox")
    make = getattr(eqx.nn, f"{case.cell.upper()}Cell")
    keys = iter(jax.random.split(jax.random.key(0), 2 * case.layers))
    ways = range(1 + case.bidirectional)
    cells = [[make(d, case.hidden, key=next(keys)) for _ in ways] for d in case.widths]
    # The cells also contain functions and sizes, which are no arguments of a compiled function.
    params, static = eqx.partition(cells, eqx.is_inexact_array)

    def unroll(cell: Any, xs: jax.Array, mask: jax.Array, *, reverse: bool = False) -> Any:
        zeros = jnp.zeros((xs.shape[0], case.hidden), xs.dtype)
        initial = (zeros, zeros) if case.cell == "lstm" else zeros

        def step(carry: Any, x: jax.Array) -> Any:
            new = jax.vmap(cell)(x, carry)
            return new, new[0] if case.cell == "lstm" else new

        return masked_scan(step, initial, xs, mask, reverse)

    def apply(params: Params, xs: jax.Array, lengths: jax.Array) -> jax.Array:
        return _stack(unroll, eqx.combine(params, static), xs, lengths)

    return jax_runs(case, apply, params, xs, lengths)


def run_keras(case: Case, xs: Array, lengths: Array) -> Runs:
    """Prepares the runs of Keras on JAX. Its GRU resets after the product, as in Flax and
    PyTorch."""
    # Keras reads its backend from the environment when it is imported.
    os.environ["KERAS_BACKEND"] = "jax"
    keras = _import("keras")
    if keras.backend.backend() != "jax":
        raise NotAvailable("loaded with another backend")
    layers = []
    for features in case.widths:
        layer = getattr(keras.layers, case.cell.upper())(case.hidden, return_sequences=True)
        layer = keras.layers.Bidirectional(layer) if case.bidirectional else layer
        layer.build((case.batch, case.steps, features))
        layers.append(layer)
    params = [[jnp.asarray(v.value) for v in layer.trainable_variables] for layer in layers]
    # Keras counts the states of random generators as variables that are not trained. They must be
    # passed, too.
    constants = [[jnp.asarray(v.value) for v in layer.non_trainable_variables] for layer in layers]

    def apply(params: Params, xs: jax.Array, lengths: jax.Array) -> jax.Array:
        mask = F.length_mask(lengths, xs.shape[1])
        for layer, trained, fixed in zip(layers, params, constants, strict=True):
            xs, _ = layer.stateless_call(trained, fixed, xs, mask=mask)
        return xs

    return jax_runs(case, apply, params, xs, lengths)


def run_torch(case: Case, xs: Array, lengths: Array, *, packed: bool) -> Runs:
    """Prepares the runs of PyTorch, on a GPU if JAX has a GPU: cuDNN with its defaults and TF32.
    Without packing, padding is computed and counts in the loss like any other step."""
    torch = _import("torch")
    on_gpu = jax.default_backend() == "gpu"
    if on_gpu and not torch.cuda.is_available():
        raise NotAvailable("sees no GPU")
    device = "cuda" if on_gpu else "cpu"
    make = getattr(torch.nn, case.cell.upper())
    ways = {"batch_first": True, "bidirectional": case.bidirectional}
    network = make(case.hidden, case.hidden, case.layers, **ways).to(device)
    inputs = torch.from_numpy(xs.copy()).to(device).requires_grad_()
    sizes = torch.from_numpy(lengths)  # Packing needs the lengths on the CPU.

    def forward() -> Any:
        # Packing skips padding, but sorts the rows first, so that both ways are contestants.
        if not packed:
            return network(inputs)[0]
        sequence = torch.nn.utils.rnn.pack_padded_sequence(
            inputs, sizes, batch_first=True, enforce_sorted=False
        )
        return torch.nn.utils.rnn.pad_packed_sequence(
            network(sequence)[0], batch_first=True, total_length=case.steps
        )[0]

    class Pending:
        """The work of a call, for which `jax.block_until_ready` waits as for an array of JAX."""

        def __init__(self, result: Any) -> None:
            self.result = result

        def block_until_ready(self) -> None:
            """Waits for the GPU, where the work of PyTorch is asynchronous."""
            if on_gpu:
                torch.cuda.synchronize()

    def evaluate() -> Any:
        # Without the graph of the gradients the forward pass is compared on equal terms.
        with torch.no_grad():
            return Pending(forward())

    def train() -> Any:
        variables = [inputs, *network.parameters()]
        return Pending(torch.autograd.grad((forward() ** 2).sum(), variables))

    return Runs(evaluate, train)


def run_cudnn(case: Case, xs: Array, lengths: Array) -> Runs:
    """Prepares the runs of cuDNN's LSTM as JAX calls it."""
    if jax.default_backend() != "gpu":
        raise NotAvailable("wants a GPU")
    rnn = _import("jax.experimental.rnn")
    sizes = (case.hidden, case.hidden, case.layers)
    weights = rnn.init_lstm_weight(jax.random.key(0), *sizes, case.bidirectional)

    def apply(weights: jax.Array, xs: jax.Array, lengths: jax.Array) -> jax.Array:
        stack = (1 + case.bidirectional) * case.layers
        zeros = jnp.zeros((stack, xs.shape[0], case.hidden), xs.dtype)
        options = (*sizes, 0.0, case.bidirectional)
        outputs: jax.Array
        outputs, *_ = rnn.lstm(xs, zeros, zeros, weights, lengths, *options)
        return outputs

    return jax_runs(case, apply, weights, xs, lengths)


def _only_for(make: Callable[..., Runs], *cells: Cell, **options: Any) -> Callable[..., Runs]:
    def run(case: Case, xs: Array, lengths: Array) -> Runs:
        if case.cell not in cells:
            raise NotAvailable(NO_CELL)
        return make(case, xs, lengths, **options)

    return run


# The first contestant is compared with all following ones.
CONTESTANTS: dict[str, Callable[..., Runs]] = {
    OURS: run_gatedjax,
    RESET_AFTER: _only_for(run_gatedjax, "gru", reset_after=True),
    # An RAU is compared with a GRU of the same width.
    OUR_GRU: _only_for(
        lambda case, xs, lengths: run_gatedjax(dataclasses.replace(case, cell="gru"), xs, lengths),
        "rau",
    ),
    "gatedjax scan": run_our_scan,
    PRODUCTS: run_products,
    "scanned step": run_scanned_step,
    "flax": _only_for(run_linen, "lstm", "gru"),
    "flax optimised": _only_for(run_linen, "lstm", kind="Optimized"),
    "flax nnx": _only_for(run_nnx, "lstm", "gru"),
    "flax nnx optimised": _only_for(run_nnx, "lstm", kind="Optimized"),
    "haiku": _only_for(run_haiku, "lstm", "gru"),
    "equinox": _only_for(run_equinox, "lstm", "gru"),
    "keras": _only_for(run_keras, "lstm", "gru"),
    "jax cudnn": _only_for(run_cudnn, "lstm"),
    "torch packed": _only_for(run_torch, "lstm", "gru", packed=True),
    "torch unpacked": _only_for(run_torch, "lstm", "gru", packed=False),
}
"""Name of the contestant -> function of (case, inputs, lengths) that returns its `Runs`, or raises
NotAvailable."""
FLAX = tuple(name for name in CONTESTANTS if name.startswith("flax"))
JAX_PEERS = (*FLAX, "haiku", "equinox", "keras", "jax cudnn")
