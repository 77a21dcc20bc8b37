"""Names of parameters: those of the modules by the field of the weights, and former names."""

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")

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

# Longer names come first, so that "recurrent_bias" is tried before its beginning "recurrent".
_FIELDS = "|".join(sorted(PARAMETERS, key=len, reverse=True))
_RECURRENT = re.compile(rf"(layer_\d+)(?:_(forward|backward))?_({_FIELDS})")
_RENAMED = {
    "table": "embedding",
    "feature_table": "feature_embedding",
    "target_table": "target_embedding",
    "output_table": "output_embedding",
    "positions": "position_embedding",
    "predicate": "predicate_embedding",
    "attention_vector": "score_kernel",
    "input": "kernel",
    "recurrent": "recurrent_kernel",
    "highway_recurrent": "highway_kernel",
}
"""Former name of a parameter -> its name. A parameter of a recurrent module has a rule of its own:
"layer_0_forward_input", without "_forward" in a module of one direction, is now
"layer_0/forward/kernel"."""


def current_name(name: str, separator: str = ".") -> str:
    """Returns the present name of a parameter that may have a former name.

    A name that did not change is returned unchanged. The name of a scope may be that of a former
    parameter, so that only the last part of a name is replaced.

        >>> current_name("opt_state.0.mu.backbone.layer_0_forward_input")
        'opt_state.0.mu.backbone.layer_0.forward.kernel'

    Args:
      name: the path of an array, such as the name in a file or a checkpoint.
      separator: the character between the parts of the path.
    """
    *scopes, last = name.split(separator)
    if match := _RECURRENT.fullmatch(last):
        layer, direction, field = match.groups()
        return separator.join([*scopes, layer, direction or "forward", PARAMETERS[field]])
    return separator.join([*scopes, _RENAMED.get(last, last)])


def former_names(saved: Iterable[str], current: Iterable[str]) -> dict[str, str]:
    """Returns the saved names that are former names, a dict from present name to saved name."""
    saved, current = set(saved), set(current)
    renamed = {current_name(name): name for name in saved - current}
    return {new: old for new, old in renamed.items() if new in current - saved}


def with_current_names(
    arrays: Mapping[str, Value], current: Iterable[str]
) -> tuple[dict[str, Value], dict[str, str]]:
    """Returns `arrays` with present names in place of former names, and the renamed names."""
    former = former_names(arrays, current)
    present = {old: new for new, old in former.items()}
    return {present.get(name, name): value for name, value in arrays.items()}, former
