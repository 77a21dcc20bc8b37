"""Saving and loading models: parameters, model cards, inference programs, weights of PyTorch.

No function of this package reads or writes a pickle.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from gatedjax.export._card import ModelCard as ModelCard
    from gatedjax.export._folder import load as load
    from gatedjax.export._folder import load_predictor as load_predictor
    from gatedjax.export._folder import read_config as read_config
    from gatedjax.export._folder import read_file as read_file
    from gatedjax.export._folder import save as save
    from gatedjax.export._inference import export_inference as export_inference
    from gatedjax.export._inference import load_inference as load_inference
    from gatedjax.export._names import ParamsMismatch as ParamsMismatch
    from gatedjax.export._onnx import export_onnx as export_onnx
    from gatedjax.export._tensors import BadFile as BadFile
    from gatedjax.export._tensors import load_params as load_params
    from gatedjax.export._tensors import save_params as save_params
    from gatedjax.export._to_torch import gru_to_torch as gru_to_torch
    from gatedjax.export._to_torch import lstm_to_torch as lstm_to_torch
    from gatedjax.export._torch import gru_from_torch as gru_from_torch
    from gatedjax.export._torch import lstm_from_torch as lstm_from_torch
    from gatedjax.export._torch import recurrent_params as recurrent_params
    from gatedjax.export._torch import replace_params as replace_params

_MODULES = {
    "BadFile": "_tensors",
    "ModelCard": "_card",
    "ParamsMismatch": "_names",
    "export_inference": "_inference",
    "export_onnx": "_onnx",
    "gru_from_torch": "_torch",
    "gru_to_torch": "_to_torch",
    "load": "_folder",
    "load_inference": "_inference",
    "load_params": "_tensors",
    "load_predictor": "_folder",
    "lstm_from_torch": "_torch",
    "lstm_to_torch": "_to_torch",
    "read_config": "_folder",
    "read_file": "_folder",
    "recurrent_params": "_torch",
    "replace_params": "_torch",
    "save": "_folder",
    "save_params": "_tensors",
}

__all__ = [
    "BadFile",
    "ModelCard",
    "ParamsMismatch",
    "export_inference",
    "export_onnx",
    "gru_from_torch",
    "gru_to_torch",
    "load",
    "load_inference",
    "load_params",
    "load_predictor",
    "lstm_from_torch",
    "lstm_to_torch",
    "read_config",
    "read_file",
    "recurrent_params",
    "replace_params",
    "save",
    "save_params",
]

if not _typing.TYPE_CHECKING:

    def __getattr__(name):
        # Names load on first use, because a folder can be read without JAX.
        if name in _MODULES:
            return getattr(_importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
