"""Cells of means: what collapsed is counted and not averaged."""

from experiments.core.records import NOT_RUN, averaged


def record(accuracy, *, predicted=(20, 20)):
    return {"test": {"accuracy": accuracy}, "predicted_classes": list(predicted)}


def accuracy(one):
    return one["test"].get("accuracy")


def test_a_mean_leaves_out_what_collapsed_and_says_how_many():
    learned, lost = [record(0.5), record(0.7)], record(0.9, predicted=(40, 0))
    assert averaged(learned, accuracy) == "0.6000 ± 0.1414 (n=2)"
    assert averaged([*learned, lost], accuracy, 2) == "0.60 ± 0.14 (n=2), 1 collapsed"
    assert averaged([lost, lost], accuracy) == "collapsed (n=2)"
    assert averaged([record(None)], accuracy) == averaged([], accuracy) == NOT_RUN
