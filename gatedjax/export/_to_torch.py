"""Conversion of LSTM and GRU weights to PyTorch, the inverse of `gatedjax.export._torch`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from gatedjax._utils.types import Tree
from gatedjax._utils.weight_names import PARAMETERS
from gatedjax.export._names import flatten
from gatedjax.export._torch import Block, as_array
from gatedjax.functional import GRUWeights, LSTMWeights

Arrays: TypeAlias = dict[str, np.ndarray]
Kind: TypeAlias = type[LSTMWeights] | type[GRUWeights]
_PARAMETER = re.compile(r"layer_(\d+)\.(forward|backward)\.(\w+)")


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
        # PyTorch multiplies the candidate by 1 - z instead of z.
        sign = np.repeat(np.array([1, -1, 1], ours["input"].dtype), size)
        bias, second = sign * ours["bias"], np.zeros_like(ours["bias"])
        second[2 * size :] = ours["recurrent_bias"]
        return Block((ours["input"] * sign).T, (ours["recurrent"] * sign).T, bias, second)

    return _state_dict(layers, prefix, GRUWeights, 3, convert)


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
    if prefix and not prefix.endswith("."):
        prefix += "."
    state_dict: dict[str, np.ndarray] = {}
    common: tuple[int, int, int] | None = None
    for number, layer in enumerate(layers):
        # Weights are named tuples, so that `isinstance(layer, tuple)` would not distinguish them
        # from a pair of directions.
        ways = (layer,) if hasattr(layer, "_asdict") else tuple(layer)
        if len(ways) not in (1, 2):
            raise ValueError(f"layers[{number}] must have 1 or 2 directions, got {len(ways)}")
        checked = [_check_weights(f"layers[{number}]", weights, kind, gates) for weights in ways]
        sizes = [(len(ways), len(ours["input"]), len(ours["recurrent"])) for ours in checked]
        common = common or sizes[0]
        if any(its != common for its in sizes):
            raise ValueError(
                f"layers[{number}] must have {common[0]} direction(s), inputs of width {common[1]} "
                f"and hidden width {common[2]} in each, got {sizes}"
            )
        # The next layer reads the states of all directions.
        common = (common[0], common[0] * common[2], common[2])
        for end, ours in zip(("", "_reverse"), checked, strict=False):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            for name, array in zip(names, convert(ours), strict=True):
                state_dict[f"{prefix}{name}_l{number}{end}"] = np.ascontiguousarray(array)
    return state_dict


def _check_weights(name: str, weights: Any, kind: Kind, gates: int) -> Arrays:
    """Returns the NumPy arrays of LSTM or GRU weights by field, without fields that are None."""
    if not isinstance(weights, kind):
        raise TypeError(f"{name} must be {kind.__name__}, got {type(weights).__name__}")
    arrays = {
        field: as_array(f"{name}.{field}", value)
        for field, value in weights._asdict().items()
        if value is not None
    }
    size = arrays["recurrent"].shape[0]
    shapes = {
        "input": (arrays["input"].shape[0], gates * size),
        "recurrent": (size, gates * size),
        "bias": (gates * size,),
        "recurrent_bias": (size,),
    }
    for field, array in arrays.items():
        if array.shape != shapes[field]:
            raise ValueError(f"{name}.{field} must be {shapes[field]}, got {array.shape}")
    return arrays


def _layers_of(params: Mapping[str, Tree], kind: Kind) -> list[Tree]:
    """Returns the layers in a dict of parameters, the inverse of `recurrent_params`."""
    blocks: dict[tuple[int, str], dict[str, Tree]] = {}
    fields = {PARAMETERS[field]: field for field in kind._fields}
    for name, value in flatten(params, "layers").items():
        match = _PARAMETER.fullmatch(name)
        if match is None or match[3] not in fields:
            raise ValueError(f"layers must have only parameters of {kind.__name__}, got {name!r}")
        blocks.setdefault((int(match[1]), match[2]), {})[fields[match[3]]] = value
    layers: list[Tree] = []
    for number in range(1 + max((number for number, _ in blocks), default=-1)):
        directions = [way for way in ("forward", "backward") if (number, way) in blocks]
        if "forward" not in directions:
            raise ValueError(f"layers must have all directions of layer_{number}, got {directions}")
        for way in directions:
            block = blocks[number, way]
            if lacks := [PARAMETERS[f] for f in kind._fields[:3] if f not in block]:
                raise ValueError(f"layers must have all of layer_{number}, it lacks {lacks}")
        layers.append(tuple(kind(**blocks[number, way]) for way in directions))
    return layers
