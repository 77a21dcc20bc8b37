"""Saving and loading models: parameters, model cards, inference programs, weights of PyTorch.

No function of this package reads or writes a pickle. `safetensors` files and model folders can come
from strangers; load an inference program (`model.jax_export`) only from people you trust.
"""

import importlib as _importlib
import typing as _typing

from gatedjax.export._card import ModelCard as ModelCard
from gatedjax.export._folder import load as load
from gatedjax.export._folder import load_predictor as load_predictor
from gatedjax.export._folder import read_config as read_config
from gatedjax.export._folder import read_file as read_file
from gatedjax.export._folder import save as save
from gatedjax.export._tensors import BadFile as BadFile
from gatedjax.export._tensors import ParamsMismatch as ParamsMismatch
from gatedjax.export._tensors import load_params as load_params
from gatedjax.export._tensors import save_params as save_params

if _typing.TYPE_CHECKING:
    from gatedjax.export._inference import export_inference as export_inference
    from gatedjax.export._inference import load_inference as load_inference
    from gatedjax.export._onnx import export_onnx as export_onnx
    from gatedjax.export._torch import gru_from_torch as gru_from_torch
    from gatedjax.export._torch import gru_to_torch as gru_to_torch
    from gatedjax.export._torch import lstm_from_torch as lstm_from_torch
    from gatedjax.export._torch import lstm_to_torch as lstm_to_torch
    from gatedjax.export._torch import recurrent_params as recurrent_params
    from gatedjax.export._torch import replace_params as replace_params
else:
    _NEED_JAX = {
        "_inference": ("export_inference", "load_inference"),
        "_onnx": ("export_onnx",),
        "_torch": (
            *("gru_from_torch", "gru_to_torch", "lstm_from_torch", "lstm_to_torch"),
            *("recurrent_params", "replace_params"),
        ),
    }

    def __getattr__(name):
        # Names load on first use, because a folder can be read without JAX.
        for module, names in _NEED_JAX.items():
            if name in names:
                return getattr(_importlib.import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted([*globals(), *(name for names in _NEED_JAX.values() for name in names)])
