"""Names of the parameters of recurrent modules."""

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
