"""Means of records, and records that would be replaced by others."""

from experiments.core.records import NOT_RUN, format_average, refuse_other
from tests.refusals import refused


def record(accuracy, *, predicted=(20, 20)):
    return {"test": {"accuracy": accuracy}, "predicted_classes": list(predicted)}


def accuracy(one):
    return one["test"].get("accuracy")


def test_a_mean_leaves_out_what_collapsed_and_says_how_many():
    learned, lost = [record(0.5), record(0.7)], record(0.9, predicted=(40, 0))
    assert format_average(learned, accuracy) == "0.6000 ± 0.1414 (n=2)"
    assert format_average([*learned, lost], accuracy, 2) == "0.60 ± 0.14 (n=2), 1 collapsed"
    assert format_average([lost, lost], accuracy) == "collapsed (n=2)"
    assert format_average([record(None)], accuracy) == format_average([], accuracy) == NOT_RUN


def test_other_figures_than_the_recorded_ones_are_refused_unless_asked_for(tmp_path):
    known, path = {"n": 3, "hardware": {"cores": 2}}, tmp_path / "counts.json"
    refuse_other(path, "count of trec", None, {"n": 4}, rerun=False)
    refuse_other(path, "count of trec", known, known | {"hardware": {"cores": 8}}, rerun=False)
    refuse_other(path, "count of trec", known, {"n": 4}, rerun=True)
    refused(
        lambda: refuse_other(path, "count of trec", known, {"n": 4}, rerun=False),
        f"{path}|count of trec|n|3|4|--results DIR|--rerun",
    )
