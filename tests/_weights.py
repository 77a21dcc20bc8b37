"""Weights of `functional` out of the parameters of a recurrent module."""

from gatedjax._utils.types import PARAMETERS


def weights_of(kind, params, layer=0, direction="forward"):
    """The weights of a direction of a layer, of the class `kind`."""
    own = params[f"layer_{layer}"][direction]
    fields = {field: own[name] for field, name in PARAMETERS.items() if name in own}
    assert len(fields) == len(own)
    return kind(**fields)
