"""Saving and loading models: parameters, model cards, inference programs, weights of PyTorch.

No function of this package reads or writes a pickle. `safetensors` files and model folders can come
from strangers; load an inference program (`model.jax_export`) only from people you trust.
"""

from typing import TYPE_CHECKING

from gatedjax._utils import lazy as _lazy
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

if TYPE_CHECKING:
    from gatedjax.export._inference import export_inference as export_inference
    from gatedjax.export._inference import load_inference as load_inference
    from gatedjax.export._onnx import export_onnx as export_onnx
    from gatedjax.export._torch import gru_from_torch as gru_from_torch
    from gatedjax.export._torch import gru_to_torch as gru_to_torch
    from gatedjax.export._torch import lstm_from_torch as lstm_from_torch
    from gatedjax.export._torch import lstm_to_torch as lstm_to_torch
    from gatedjax.export._torch import recurrent_params as recurrent_params
    from gatedjax.export._torch import replace_params as replace_params
else:  # A folder can be read without JAX.
    __getattr__, __dir__, __all__ = _lazy.attach(__name__)
