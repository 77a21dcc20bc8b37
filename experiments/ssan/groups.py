"""F1 of groups of classes, as the probing tables report them."""

from collections.abc import Mapping, Sequence

import numpy as np

from gatedjax.analysis import class_scores
from gatedjax.analysis._scores import ratio


def group_scores(
    label: np.ndarray, predicted: np.ndarray, groups: Mapping[str, Sequence[int]], num_classes: int
) -> dict[str, tuple[float, float]]:
    """Computes two F1 scores of each group of classes. They are the F1 of the classes averaged by
    support, and the F1 after the classes of each group are merged; a class outside of all groups
    stays a class. Raises ValueError if a class is in two groups."""
    scores = class_scores(label, predicted, num_classes)
    # Numbers below len(groups) stand for groups, so that other classes keep different numbers.
    merged = np.arange(len(groups), len(groups) + num_classes)
    for number, (name, members) in enumerate(groups.items()):
        for member in members:
            if merged[member] < len(groups):
                raise ValueError(
                    f"groups must have no common class, got class {member} in group {name!r} and "
                    "in an earlier group"
                )
            merged[member] = number
    merged_scores = class_scores(
        merged[np.asarray(label)], merged[np.asarray(predicted)], len(groups) + num_classes
    )
    result = {}
    for number, (name, members) in enumerate(groups.items()):
        classes = np.asarray(members, int)
        average = ratio(scores.f1[classes] @ scores.support[classes], scores.support[classes].sum())
        result[name] = (float(average), float(merged_scores.f1[number]))
    return result
