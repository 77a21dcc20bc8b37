"""The parameters of a model in its folder, so that a loaded estimator has them again."""

import dataclasses
import json
from collections.abc import Mapping

from gatedjax._utils.json import to_json
from gatedjax._utils.types import Json
from gatedjax.text._options import TextOptions

# The name of the model has an entry of its own. A folder has no functions, and no paths of the
# machine of the training, which may be private.
_LEFT_OUT = ("model", "states", "encoder", "tokenizer", "embeddings")


def options_to_json(options: TextOptions) -> Json:
    """Returns the options of a training for config.json, without functions, paths and values that
    have no form in JSON. Thresholds become a list of pairs, because a label may be a number.

        >>> options_to_json(TextOptions(min_class=3, threshold={1: 0.3}))["threshold"]
        [[1, 0.3]]
    """
    values: Json = {}
    for field in dataclasses.fields(TextOptions):
        value = getattr(options, field.name)
        if field.name in _LEFT_OUT:
            continue
        if field.name == "threshold" and isinstance(value, Mapping):
            value = [[label, number] for label, number in value.items()]
        elif isinstance(value, Mapping):
            value = dict(value)
        elif field.name == "order" and value is not None:
            value = list(value)
        try:
            values[field.name] = json.loads(to_json(value))
        except (TypeError, ValueError):
            continue
    return values


def options_from_json(value: object) -> Json:
    """Returns the parameters of an estimator from the options in a config.json, without names that
    this version does not have; {} for None.

        >>> options_from_json({"min_class": 3, "threshold": [[1, 0.3]], "order": ["low", "high"]})
        {'min_class': 3, 'threshold': {1: 0.3}, 'order': ['low', 'high']}
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"options must be an object of JSON, got {value!r:.80}")
    names = {field.name for field in dataclasses.fields(TextOptions)}.difference(_LEFT_OUT)
    params = {name: entry for name, entry in value.items() if name in names}
    if isinstance(threshold := params.get("threshold"), list):
        try:
            params["threshold"] = {label: float(number) for label, number in threshold}
        except TypeError as error:
            raise ValueError(
                f"threshold must be pairs of a label and a number, got {threshold!r:.80}"
            ) from error
    return params
