"""Saving and loading models: parameters, model cards, inference programs, weights of PyTorch.

No function of this package reads or writes a pickle.
"""

import typing as _typing

from gatedjax._utils.removed import removed_from as _removed_from
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

if not _typing.TYPE_CHECKING:
    __getattr__ = _removed_from(__name__)
