"""Conversion of weights of PyTorch's `nn.LSTM` and `nn.GRU`, without importing PyTorch.

PyTorch stores the kernel of a gate as [H, D], gatedjax as [D, H], and PyTorch has two biases, of
the input and of the recurrent product. Its LSTM adds them and has the same order of gates, i, f, g,
o. Its GRU,

    r, z = sigmoid(...);  n = tanh(W x + b + r (U h + b'));  h' = (1 - z) n + z h

is the GRU of gatedjax with reset_after=True and 1 - z in place of z. Because
sigmoid(-a) = 1 - sigmoid(a), the block of z changes its sign.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np

from gatedjax._utils.types import Tree
from gatedjax._utils.weight_names import PARAMETERS
from gatedjax.export._names import check_same, flatten, leaves, unflatten
from gatedjax.export._tensors import load_flat
from gatedjax.functional import GRUWeights, LSTMWeights

Weights = TypeVar("Weights", LSTMWeights, GRUWeights)
_NAME = re.compile(r"(weight|bias)_(ih|hh)_l(\d+)(_reverse)?")
_CELLS = {4: "an LSTM", 3: "a GRU"}


class Block(NamedTuple):
    """The weights of a layer and direction of an LSTM or GRU in the layout of PyTorch."""

    input: np.ndarray  # weight_ih [G H, D] for G gates, inputs of width D and states of width H
    recurrent: np.ndarray  # weight_hh [G H, H]
    input_bias: np.ndarray  # bias_ih [G H]
    recurrent_bias: np.ndarray  # bias_hh [G H]


def lstm_from_torch(
    state_dict: Mapping[str, Tree] | str | Path, prefix: str = ""
) -> tuple[LSTMWeights | tuple[LSTMWeights, LSTMWeights], ...]:
    """Converts the state dict of a `torch.nn.LSTM`.

        >>> shapes = {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4)}
        >>> shapes |= {"bias_ih_l0": 16, "bias_hh_l0": 16}
        >>> state_dict = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        >>> (layer,) = lstm_from_torch(state_dict)
        >>> layer.input.shape, layer.recurrent.shape, float(layer.bias[0])
        ((3, 16), (4, 16), 2.0)

    Args:
      state_dict: arrays by name (weight_ih_l0, ...), or the path of a `safetensors` file.
      prefix: prefix of the names, for example "encoder.lstm."; the last dot is optional.

    Returns:
      An LSTMWeights per layer, or a pair (forward, backward) if it is bidirectional, with `input`
      [D, 4H], `recurrent` [H, 4H] and `bias` [4H] for inputs of width D and states of width H;
      float32, or float64 for float64 weights. Layers without biases get zeros.

    Raises:
      ValueError: if a name is missing or unknown, a shape is wrong, or proj_size was used.
      TypeError: if a value is not a floating-point array.
    """

    def convert(block: Block) -> LSTMWeights:
        # PyTorch has two biases because cuDNN has. Only their sum has an effect in an LSTM.
        bias = block.input_bias + block.recurrent_bias
        return LSTMWeights(*map(jnp.asarray, (block.input.T, block.recurrent.T, bias)))

    return _convert(state_dict, prefix, 4, convert)


def gru_from_torch(
    state_dict: Mapping[str, Tree] | str | Path, prefix: str = ""
) -> tuple[GRUWeights | tuple[GRUWeights, GRUWeights], ...]:
    """Converts the state dict of a `torch.nn.GRU`, for use with reset_after=True.

    Args:
      state_dict: arrays by name (weight_ih_l0, ...), or the path of a `safetensors` file.
      prefix: prefix of the names, for example "encoder.gru."; the last dot is optional.

    Returns:
      A GRUWeights per layer, or a pair (forward, backward) if it is bidirectional, with the arrays
      `input` [D, 3H], `recurrent` [H, 3H], `bias` [3H] and `recurrent_bias` [H] for inputs of width
      D and states of width H; float32, or float64 for float64 weights. Layers without biases get
      zeros.

    Raises:
      ValueError: if a name is missing or unknown, or a shape is wrong.
      TypeError: if a value is not a floating-point array.
    """

    def convert(block: Block) -> GRUWeights:
        size = block.recurrent.shape[1]
        # PyTorch multiplies the candidate by 1 - z instead of z.
        sign = np.repeat(np.array([1, -1, 1], block.input.dtype), size)
        bias = sign * block.input_bias
        # The two biases of r and z are added; the second bias of the candidate is reset.
        bias[: 2 * size] += (sign * block.recurrent_bias)[: 2 * size]
        recurrent_bias = block.recurrent_bias[2 * size :]
        arrays = (block.input.T * sign, block.recurrent.T * sign, bias, recurrent_bias)
        return GRUWeights(*map(jnp.asarray, arrays))

    return _convert(state_dict, prefix, 3, convert)


def recurrent_params(
    layers: Sequence[LSTMWeights | GRUWeights | tuple[Tree, Tree]],
) -> dict[str, Tree]:
    """Converts weights to parameters of `gatedjax.nn.LSTM` or `gatedjax.nn.GRU`.

    Args:
      layers: the result of `lstm_from_torch` or `gru_from_torch`. The GRU needs reset_after=True.

    Returns:
      The parameters, nested dicts: "layer_0", "forward", then the name of an array, such as
      "kernel". Layers of both directions also have "backward".
    """
    params: dict[str, Tree] = {}
    for number, layer in enumerate(layers):
        # Weights are named tuples and a pair of directions is a plain tuple, so that
        # `isinstance(layer, tuple)` would not distinguish them.
        ways = (layer,) if hasattr(layer, "_asdict") else layer
        names = ("forward", "backward")[: len(ways)]
        params[f"layer_{number}"] = {
            name: {PARAMETERS[f]: v for f, v in weights._asdict().items() if v is not None}
            for name, weights in zip(names, ways, strict=True)
        }
    return params


def replace_params(
    params: Mapping[str, Tree], path: str, new: Mapping[str, Tree]
) -> dict[str, Tree]:
    """Returns parameters in which the parameters of a module are replaced.

        >>> params = {"encoder": {"w": np.zeros(2)}, "head": {"w": np.zeros(3)}}
        >>> print(replace_params(params, "head", {"w": np.ones(3)})["head"]["w"])
        [1. 1. 1.]

    Args:
      params: the parameters of a model, which do not change.
      path: the dotted name of the module, for example "backbone"; "" for the model.
      new: the parameters of the module, with the same names, shapes and dtypes.

    Returns:
      The parameters.

    Raises:
      ValueError: if no module has that name.
      ParamsMismatch: if new does not fit.
    """
    flat = flatten(params)
    start = f"{path}." if path else ""
    module_params = {name: value for name, value in flat.items() if name.startswith(start)}
    if not module_params:
        modules = sorted({name.rpartition(".")[0] for name in flat} - {""})
        raise ValueError(f"path must name a module with parameters ({modules}), got {path!r}")
    new_params = {start + name: value for name, value in flatten(new, "new").items()}
    # Arrays of another shape or dtype would fail far away from here, in the first call of the
    # model.
    check_same(
        leaves(unflatten(new_params), "new"), leaves(unflatten(module_params), "params"), "new"
    )
    return unflatten(flat | new_params)


def _convert(
    state_dict: Mapping[str, Tree] | str | Path,
    prefix: str,
    gates: int,
    convert: Callable[[Block], Weights],
) -> Tree:
    """Returns a tuple of the weights of each layer, or of (forward, backward) weights."""
    if isinstance(state_dict, str | Path):
        state_dict = load_flat(state_dict)
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"state_dict must map names to arrays, got {type(state_dict).__name__}")
    if prefix and not prefix.endswith("."):
        prefix += "."
    names = _own_names(state_dict, prefix)
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    layer_numbers = {int(match[3]) for match in matches}
    depth = 1 + max(layer_numbers)
    if len(layer_numbers) < depth:
        raise ValueError(f"state_dict must hold layers from 0 on, got only {sorted(layer_numbers)}")
    ends = ("", "_reverse") if any(match[4] for match in matches) else ("",)
    kinds = ("weight", "bias") if any(match[1] == "bias" for match in matches) else ("weight",)
    required = [
        f"{kind}_{side}_l{layer}{end}"
        for layer in range(depth)
        for end in ends
        for kind in kinds
        for side in ("ih", "hh")
    ]
    if missing := [prefix + name for name in required if name not in names]:
        raise ValueError(
            f"state_dict must hold {depth} layers in {len(ends)} direction(s), "
            f"it lacks {', '.join(missing)}"
        )
    full = {name: prefix + name for name in required}
    arrays = {k: as_array(f"state_dict[{name!r}]", state_dict[name]) for k, name in full.items()}
    layers = []
    width = None
    for layer in range(depth):
        blocks = [_block(arrays, f"l{layer}{end}", prefix, gates, width) for end in ends]
        _check_pair(blocks, f"{prefix}*_l{layer}")
        converted = tuple(map(convert, blocks))
        layers.append(converted if len(ends) == 2 else converted[0])
        width = len(ends) * blocks[0].recurrent.shape[1]
    return tuple(layers)


def _own_names(state_dict: Mapping[str, Tree], prefix: str) -> set[str]:
    """Returns the names of a recurrent module without prefix, and without its submodules."""
    names = {name.removeprefix(prefix) for name in state_dict if name.startswith(prefix)}
    names = {name for name in names if "." not in name}
    if projected := sorted(name for name in names if name.startswith("weight_hr_l")):
        raise ValueError(f"state_dict must be of an LSTM without proj_size, got {projected[0]!r}")
    if not any(_NAME.fullmatch(name) for name in names):
        prefixes = {
            name[: match.start()] for name in state_dict if (match := re.search(_NAME, name))
        }
        hint = (
            f": pass prefix={' or prefix='.join(map(repr, sorted(prefixes)))}" if prefixes else ""
        )
        raise ValueError(f"state_dict must have weight_ih_l0 below prefix {prefix!r}{hint}")
    if unknown := sorted(name for name in names if not _NAME.fullmatch(name)):
        raise ValueError(f"state_dict must have only names of an LSTM or GRU, got {unknown}")
    return names


def as_array(name: str, value: Tree) -> np.ndarray:
    """Converts an array to float64 if it has that dtype, and all other floats to float32."""
    try:
        array = np.asarray(value)
    except Exception as error:
        raise TypeError(f"{name} must become an array: {error}") from error
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got dtype {array.dtype}")
    # Biases are added later, and half precision would round them.
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)


def _block(
    arrays: dict[str, np.ndarray], end: str, prefix: str, gates: int, width: int | None
) -> Block:
    """Returns the checked arrays of a layer and direction; missing biases are 0."""
    kernel, recurrent = arrays[f"weight_ih_{end}"], arrays[f"weight_hh_{end}"]
    if recurrent.ndim != 2 or 0 in recurrent.shape or len(recurrent) != gates * recurrent.shape[1]:
        other = (
            (7 - gates) * recurrent.shape[-1] == len(recurrent) if recurrent.ndim == 2 else False
        )
        raise ValueError(
            f"state_dict[{prefix + 'weight_hh_' + end!r}] must have shape ({gates}H, H) for "
            f"{_CELLS[gates]}, got {recurrent.shape}{f', as {_CELLS[7 - gates]} has' * other}"
        )
    rows, size = recurrent.shape
    if kernel.ndim != 2:
        raise ValueError(
            f"state_dict[{prefix + 'weight_ih_' + end!r}] must have 2 axes, got {kernel.shape}"
        )
    zeros = np.zeros(rows, kernel.dtype)
    biases = [arrays.get(f"bias_{side}_{end}", zeros) for side in ("ih", "hh")]
    shapes = {
        f"weight_ih_{end}": (kernel, (rows, kernel.shape[1] if width is None else width)),
        f"bias_ih_{end}": (biases[0], (rows,)),
        f"bias_hh_{end}": (biases[1], (rows,)),
    }
    for name, (array, shape) in shapes.items():
        if array.shape != shape:
            raise ValueError(
                f"state_dict[{prefix + name!r}] must have shape {shape} for hidden width {size}, "
                f"got {array.shape}"
            )
    return Block(kernel, recurrent, *biases)


def _check_pair(blocks: list[Block], name: str) -> None:
    first, last = blocks[0], blocks[-1]
    if first.input.shape != last.input.shape or first.recurrent.shape != last.recurrent.shape:
        raise ValueError(
            f"{name}: the two directions must have the same shapes, got "
            f"{first.input.shape} and {last.input.shape}"
        )
