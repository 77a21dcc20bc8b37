"""The metrics of predictions that no model made."""

import numpy as np

from gatedjax.lexicon import ClassHead, Readings
from gatedjax.text.targets import ClassTarget, LabelTarget, OrdinalTarget, RealTarget, _calibration


def readings(probabilities, logits=None):
    values = np.asarray(probabilities, float)
    return Readings.of_outputs(values, values if logits is None else logits)


def measure_classes(labels, probabilities, classes, weights=None):
    return ClassTarget(tuple(classes)).measure(labels, readings(probabilities), weights=weights)


def measure_labels(targets, predicted, labels, unknown, weights=None):
    target = LabelTarget(tuple(labels), (0.5,) * len(labels))
    return target.measure(targets, readings(predicted), unknown, weights)


def measure_numbers(targets, predicted, weights=None):
    return RealTarget(()).measure(targets, readings(predicted[:, None]), weights=weights)


def measure_grades(targets, predicted, grades, weights=None):
    found = readings(np.eye(len(grades))[predicted])
    return OrdinalTarget(tuple(grades)).measure(targets, found, weights=weights)


def choose_temperature(probabilities, labels, weights=None):
    """The temperature of all texts, of each of which six words are read."""
    n, num_classes = probabilities.shape
    head = ClassHead(num_classes)
    found = readings(probabilities)._replace(
        is_read=[np.ones(6, bool)] * n, is_prior=np.zeros(n, bool)
    )
    bias = np.zeros((n, head.num_biases))
    return _calibration.choose_temperatures(head, bias, found, labels, weights)[1]
