"""Names of types that Python cannot express (`functional._types` has more), and of parameters."""

from typing import Any, TypeAlias

Tree: TypeAlias = Any
"""A tree of arrays in containers of JAX, a single array, or a tree of shapes and dtypes."""
Params: TypeAlias = Any
"""The parameters of a network: nested dicts of arrays."""
Output: TypeAlias = Any
"""The output of a network: a struct with `logits` and with arrays for analysis."""
Keywords: TypeAlias = dict[str, Any]
"""Keyword arguments for another function."""
Json: TypeAlias = dict[str, Any]
"""A JSON object as a dict."""
FILLER_ID = -1
"""The example id of filler rows; no text has it."""
PARAMETERS = {
    "input": "kernel",
    "recurrent": "recurrent_kernel",
    "bias": "bias",
    "recurrent_bias": "recurrent_bias",
    "hidden": "hidden_kernel",
    "hidden_bias": "hidden_bias",
    "score": "score_kernel",
    "score_bias": "score_bias",
    "value": "value_kernel",
    "value_bias": "value_bias",
    "affinity": "affinity",
}
"""Field of weights of `functional`, such as `LSTMWeights.input` -> name of the parameter."""
