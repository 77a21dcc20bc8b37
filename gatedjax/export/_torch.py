"""Conversion of weights of PyTorch's `nn.LSTM` and `nn.GRU`, without importing PyTorch.

PyTorch stores the kernel of a gate as [H, D], gatedjax as [D, H], and PyTorch has two biases, of
the input and of the recurrent product. Its LSTM adds them and has the same order of gates, i, f, g,
o. Its GRU,

    r, z = sigmoid(...);  n = tanh(W x + b + r (U h + b'));  h' = (1 - z) n + z h

is the GRU of gatedjax with reset_after=True and 1 - z in place of z. Because
sigmoid(-a) = 1 - sigmoid(a), the block of z changes its sign.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax.numpy as jnp
import numpy as np

from gatedjax._utils.types import PARAMETERS, Tree
from gatedjax.export._tensors import check_same, fill, flatten, leaves, load_flat
from gatedjax.functional import GRUWeights, LSTMWeights

Weights = TypeVar("Weights", LSTMWeights, GRUWeights)
Arrays: TypeAlias = dict[str, np.ndarray]
Kind: TypeAlias = type[LSTMWeights] | type[GRUWeights]
_NAME = re.compile(r"(weight|bias)_(ih|hh)_l(\d+)(_reverse)?")
_PARAMETER = re.compile(r"layer_(\d+)\.(forward|backward)\.(\w+)")
_CELLS = {4: "an LSTM", 3: "a GRU"}


class Block(NamedTuple):
    """The weights of a layer and direction of an LSTM or GRU, with PyTorch's names and layout."""

    weight_ih: np.ndarray  # [G H, D] for G gates, inputs of width D and states of width H
    weight_hh: np.ndarray  # [G H, H]
    bias_ih: np.ndarray  # [G H]
    bias_hh: np.ndarray  # [G H]


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
        bias = block.bias_ih + block.bias_hh
        return LSTMWeights(*map(jnp.asarray, (block.weight_ih.T, block.weight_hh.T, bias)))

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
        size = block.weight_hh.shape[1]
        sign = _signs(block.weight_ih, size)
        bias = sign * block.bias_ih
        # The two biases of r and z are added; the second bias of the candidate is reset.
        bias[: 2 * size] += (sign * block.bias_hh)[: 2 * size]
        recurrent_bias = block.bias_hh[2 * size :]
        arrays = (block.weight_ih.T * sign, block.weight_hh.T * sign, bias, recurrent_bias)
        return GRUWeights(*map(jnp.asarray, arrays))

    return _convert(state_dict, prefix, 3, convert)


def lstm_to_torch(
    layers: Sequence[LSTMWeights | tuple[LSTMWeights, LSTMWeights]] | Mapping[str, Tree],
    prefix: str = "",
) -> dict[str, np.ndarray]:
    """Converts weights into the state dict of a `torch.nn.LSTM`.

    PyTorch adds two biases: the bias becomes bias_ih, and bias_hh is 0. `lstm_from_torch` restores
    the same bits.

        >>> weights = LSTMWeights(np.ones((3, 16)), np.ones((4, 16)), np.zeros(16))
        >>> sorted(lstm_to_torch([weights]))
        ['bias_hh_l0', 'bias_ih_l0', 'weight_hh_l0', 'weight_ih_l0']

    Args:
      layers: an LSTMWeights per layer, or a pair (forward, backward), like the result of
        `lstm_from_torch`; or the parameters of a `gatedjax.nn.LSTM`.
      prefix: prefix of the names, for example "encoder.lstm."; the last dot is optional.

    Returns:
      NumPy arrays by name (weight_ih_l0, ..., weight_ih_l0_reverse, ...), in the order of PyTorch;
      float32, or float64 for float64 weights. Apply `torch.from_numpy` to each before
      `load_state_dict`.

    Raises:
      ValueError: if the widths of consecutive layers do not fit, or their directions differ.
      TypeError: if a layer has another type, or a value is not a floating-point array.
    """

    def convert(ours: Arrays) -> Block:
        bias = ours["bias"]
        return Block(ours["input"].T, ours["recurrent"].T, bias, np.zeros_like(bias))

    return _state_dict(layers, prefix, LSTMWeights, 4, convert)


def gru_to_torch(
    layers: Sequence[GRUWeights | tuple[GRUWeights, GRUWeights]] | Mapping[str, Tree],
    prefix: str = "",
) -> dict[str, np.ndarray]:
    """Converts weights of a GRU with reset_after=True into the state dict of a `torch.nn.GRU`.

    Args:
      layers: a GRUWeights per layer, or a pair (forward, backward), like the result of
        `gru_from_torch`; or the parameters of a `gatedjax.nn.GRU`.
      prefix: prefix of the names, for example "encoder.gru."; the last dot is optional.

    Returns:
      NumPy arrays by name (weight_ih_l0, ..., weight_ih_l0_reverse, ...), in the order of PyTorch;
      float32, or float64 for float64 weights.

    Raises:
      ValueError: if the widths of consecutive layers do not fit, their directions differ, or a
        recurrent_bias is None, because PyTorch has no GRU that resets before the product. If yours
        resets after it, pass zeros.
      TypeError: if a layer has another type, or a value is not a floating-point array.
    """

    def convert(ours: Arrays) -> Block:
        if "recurrent_bias" not in ours:
            raise ValueError(
                "layers must have a recurrent_bias, got None: PyTorch's GRU resets after the "
                "recurrent product. If yours does too (reset_after=True), give zeros for it"
            )
        size = len(ours["recurrent"])
        sign = _signs(ours["input"], size)
        bias, second = sign * ours["bias"], np.zeros_like(ours["bias"])
        second[2 * size :] = ours["recurrent_bias"]
        return Block((ours["input"] * sign).T, (ours["recurrent"] * sign).T, bias, second)

    return _state_dict(layers, prefix, GRUWeights, 3, convert)


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
        ways = _directions_of(layer)
        params[f"layer_{number}"] = {
            name: {PARAMETERS[f]: v for f, v in weights._asdict().items() if v is not None}
            for name, weights in zip(("forward", "backward")[: len(ways)], ways, strict=True)
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
    check_same(leaves(new_params), leaves(module_params), "new")
    return fill(params, flat | new_params)


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
    prefix = _with_dot(prefix)
    matches = _own_names(state_dict, prefix)
    ends = ("", "_reverse") if any(match[4] for match in matches) else ("",)
    has_biases = any(match[1] == "bias" for match in matches)
    depth = 1 + max(int(match[3]) for match in matches)
    suffixes = [f"_l{layer}{end}" for layer in range(depth) for end in ends]
    names = [match.string for match in matches]
    arrays = {n: _as_array(f"state_dict[{prefix + n!r}]", state_dict[prefix + n]) for n in names}
    # The first layer determines the sizes of all layers.
    first = (arrays.get(name, np.zeros(0)) for name in ("weight_hh_l0", "weight_ih_l0"))
    size, width = (np.atleast_1d(array).shape[-1] for array in first)
    rows = gates * size
    shapes: dict[str, tuple[int, ...]] = {}
    for suffix in suffixes:
        inputs = width if suffix.startswith("_l0") else len(ends) * size
        shapes |= {f"weight_ih{suffix}": (rows, inputs), f"weight_hh{suffix}": (rows, size)}
        if has_biases:
            shapes |= {f"bias_ih{suffix}": (rows,), f"bias_hh{suffix}": (rows,)}
    _check_shapes(f"the state dict of {_CELLS[gates]}", arrays, shapes)
    zeros = np.zeros_like(arrays["weight_hh_l0"][:, 0])
    layers = [
        convert(Block(*(arrays.get(f"{name}{suffix}", zeros) for name in Block._fields)))
        for suffix in suffixes
    ]
    return tuple(layers if len(ends) == 1 else zip(layers[::2], layers[1::2], strict=True))


def _own_names(state_dict: Mapping[str, Tree], prefix: str) -> list[re.Match[str]]:
    """Returns the matched names of a recurrent module, without its submodules."""
    names = [name.removeprefix(prefix) for name in state_dict if name.startswith(prefix)]
    names = sorted(name for name in names if "." not in name)
    if projected := [name for name in names if name.startswith("weight_hr_l")]:
        raise ValueError(f"state_dict must be of an LSTM without proj_size, got {projected[0]!r}")
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    if not matches:
        found = [match for name in state_dict if (match := _NAME.search(name))]
        prefixes = sorted({match.string[: match.start()] for match in found})
        hint = f": pass prefix={' or prefix='.join(map(repr, prefixes))}" if prefixes else ""
        raise ValueError(f"state_dict must have weight_ih_l0 below prefix {prefix!r}{hint}")
    if unknown := [name for name in names if not _NAME.fullmatch(name)]:
        raise ValueError(f"state_dict must have only names of an LSTM or GRU, got {unknown}")
    return matches


def _as_array(name: str, value: Tree) -> np.ndarray:
    """Converts an array to float64 if it has that dtype, and all other floats to float32."""
    try:
        array = np.asarray(value)
    except Exception as error:
        raise TypeError(f"{name} must become an array: {error}") from error
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got dtype {array.dtype}")
    # Biases are added later, and half precision would round them.
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)


def _state_dict(
    layers: Sequence[Tree] | Mapping[str, Tree],
    prefix: str,
    kind: Kind,
    gates: int,
    convert: Callable[[Arrays], Block],
) -> dict[str, np.ndarray]:
    """Converts layers, weights or pairs (forward, backward) of them, to a state dict of PyTorch."""
    if isinstance(layers, Mapping):
        layers = _layers_of(layers, kind)
    if not layers:
        raise ValueError("layers must hold at least one layer, got none")
    pairs = [_directions_of(layer) for layer in layers]
    state_dict: dict[str, np.ndarray] = {}
    width, size, directions = 0, 0, len(pairs[0])
    for number, pair in enumerate(pairs):
        if len(pair) not in (1, 2) or len(pair) != directions:
            wanted = directions if directions in (1, 2) else "1 or 2"
            raise ValueError(f"layers[{number}] must have {wanted} directions, got {len(pair)}")
        for end, weights in zip(("", "_reverse"), pair, strict=False):
            ours = _arrays_of(f"layers[{number}]", weights, kind)
            width, size = width or len(ours["input"]), size or len(ours["recurrent"])
            columns = gates * size
            shapes = {"input": (width, columns), "recurrent": (size, columns), "bias": (columns,)}
            shapes |= {"recurrent_bias": (size,)} if "recurrent_bias" in ours else {}
            _check_shapes(f"layers[{number}]", ours, shapes)
            for name, array in convert(ours)._asdict().items():
                key = f"{_with_dot(prefix)}{name}_l{number}{end}"
                state_dict[key] = np.ascontiguousarray(array)
        # The next layer reads the states of all directions.
        width = directions * size
    return state_dict


def _arrays_of(name: str, weights: Any, kind: Kind) -> Arrays:
    """Returns the NumPy arrays of LSTM or GRU weights by field, without fields that are None."""
    if not isinstance(weights, kind):
        raise TypeError(f"{name} must be {kind.__name__}, got {type(weights).__name__}")
    return {
        field: _as_array(f"{name}.{field}", value)
        for field, value in weights._asdict().items()
        if value is not None
    }


def _layers_of(params: Mapping[str, Tree], kind: Kind) -> list[Tree]:
    """Returns the layers in a dict of parameters, the inverse of `recurrent_params`."""
    fields = {PARAMETERS[field]: field for field in kind._fields}
    blocks: dict[tuple[int, str], dict[str, Tree]] = {}
    for name, value in flatten(params, "layers").items():
        match = _PARAMETER.fullmatch(name)
        if match is None or match[3] not in fields:
            raise ValueError(f"layers must have only parameters of {kind.__name__}, got {name!r}")
        blocks.setdefault((int(match[1]), match[2]), {})[fields[match[3]]] = value
    ways = sorted({way for _, way in blocks} | {"forward"}, reverse=True)
    layers: list[Tree] = []
    for number in range(1 + max(number for number, _ in blocks)):
        for way in ways:
            block = blocks.get((number, way), {})
            if lacks := [PARAMETERS[f] for f in kind._fields[:3] if f not in block]:
                raise ValueError(f"layers must have {lacks} in layer_{number}.{way}, got none")
        layers.append(tuple(kind(**blocks[number, way]) for way in ways))
    return layers


def _directions_of(layer: Tree) -> tuple[Tree, ...]:
    # Weights are named tuples, so that `isinstance(layer, tuple)` would not distinguish them from a
    # pair of directions.
    return (layer,) if hasattr(layer, "_asdict") else tuple(layer)


def _check_shapes(where: str, arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ValueError, with all differences, unless the arrays have these names and shapes."""
    got = {name: array.shape for name, array in arrays.items()}
    faults = [
        f"{name}: wanted {shapes.get(name, 'no array')}, got {got.get(name, 'no array')}"
        for name in sorted(got.keys() | shapes.keys())
        if got.get(name) != shapes.get(name)
    ]
    # A width of 0 would be the same everywhere.
    if faults or 0 in itertools.chain.from_iterable(shapes.values()):
        raise ValueError(f"{where} must have other arrays: {'; '.join(faults) or got}")


def _signs(array: np.ndarray, size: int) -> np.ndarray:
    # PyTorch multiplies the candidate by 1 - z instead of z.
    return np.repeat(np.array([1, -1, 1], array.dtype), size)


def _with_dot(prefix: str) -> str:
    return f"{prefix}." if prefix and not prefix.endswith(".") else prefix
