"""What is compared with what: seeds, examples, test and validation, best and last parameters."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.core.comparison import compare, sentence
from experiments.core.curves import results_on_test
from experiments.core.records import Store, best, check_one_kind, write_json
from experiments.core.text import SPLITS, correct_string, digest_of_test, in_batches
from gatedjax.data import Encoded, Source, SourceInfo
from gatedjax.training import OptimizerConfig, TrainConfig, fit, make_parallel
from tests.training._tiny import Data, Tiny

CONFIG = {"data": {}, "train": {}}


def record(seed, **more):
    return {"data": "d", "cell": "c", "config": CONFIG, "seed": seed} | more


def classifier(seed, correct):
    return record(seed, correct=correct, test_n=len(correct))


def language(seed, nll):
    return record(seed, test_nll=nll, test_n=len(nll))


def test_the_same_seeds_are_compared_whatever_the_order_and_what_else_there_is():
    right, wrong = "1" * 12, "0" * 12
    # both systems are right with seed 2 and wrong with seed 1
    first = [classifier(2, right), classifier(1, wrong)]
    second = [classifier(3, right), classifier(1, wrong), classifier(2, right)]
    found = compare(first, second)
    assert found.seeds == (1, 2)
    assert found.exact == (1.0, 1.0)
    assert found.by_seed == (0.0, 0.0)
    assert found.test.p_value == 1
    assert compare(first[:1], second[:1]) is None
    many = [classifier(seed, right) for seed in range(5)]
    assert compare(many, many).seeds == (0, 1, 2, 3, 4)


def test_examples_of_one_group_are_one_example_and_have_no_mcnemar_test():
    first, second = ([classifier(s, one * 6) for s in (1, 2)] for one in ("1101", "1000"))
    groups = np.arange(24) // 4
    found = compare(first, second, lambda record: groups)
    assert found.exact == ()
    # every group has the same difference, and so has every seed
    assert found.test.low == found.test.high == found.difference == 0.5
    alone = compare(first, second)
    assert alone.test.low < 0.5
    assert len(alone.exact) == 2


def test_a_difference_that_one_seed_makes_is_not_certain():
    # 400 examples, with which a test over the examples alone is sure
    first = [classifier(1, "1" * 210 + "0" * 190), classifier(2, "1" * 280 + "0" * 120)]
    second = [classifier(s, "1" * 212 + "0" * 188) for s in (1, 2)]
    found = compare(first, second)
    np.testing.assert_allclose(found.by_seed, [-2 / 400, 68 / 400])
    assert found.test.p_value > 0.3
    assert found.exact[1] < 1e-6
    assert found.why_not == "these runs (n=2)"
    text = sentence("d", "A", "B", found)
    assert text.startswith("d, A minus B: +0.0825 (accuracy), 95 % interval [")
    assert text.endswith(", these runs (n=2); by seed -0.0050, +0.1700.")
    assert found.cells()[2:] == ["these runs (n=2)", "-"]
    three = compare(
        [*first, classifier(3, "1" * 250 + "0" * 150)], [*second, second[0] | {"seed": 3}]
    )
    assert three.why_not is None
    assert "p = 0." in sentence("d", "A", "B", three)
    assert " beats " not in sentence("d", "A", "B", three)


def test_a_single_seed_has_a_difference_and_no_interval():
    found = compare([classifier(1, "1110")], [classifier(1, "1000")])
    assert (found.difference, found.test, found.last) == (0.5, None, None)
    assert found.cells() == ["+50.00 (n=1 seeds)", "-", "these runs (n=1)", "-"]
    assert sentence("d", "A", "B", found) == ("d, A minus B: +0.5000 (accuracy), these runs (n=1).")
    assert compare(*([classifier(s, one) for s in (1, 2)] for one in "10")).test is None


def test_the_score_of_a_seed_is_its_recorded_accuracy_and_the_last_step_stands_beside(tmp_path):
    def made(seed, correct, mean, last=None, **more):
        ended = {} if last is None else {"test_last": {"accuracy": last}}
        whole = classifier(seed, correct) | {"test": {"accuracy": mean}} | ended | more
        write_json(store.path("d", "c", seed), whole)
        return store.get("d", "c", seed)

    store = Store(tmp_path, keys=("config",))

    first = [made(s, "1100", 0.6 + s / 100, 0.8) for s in (0, 1, 2)]
    second = [made(s, "1000", 0.25, 0.25) for s in (0, 1, 2)]
    found = compare(first, second)
    # the mean of several draws, where the correctness is that of the first
    np.testing.assert_allclose(found.by_seed, [0.35, 0.36, 0.37])
    np.testing.assert_allclose(found.last.difference, 0.55)
    earlier = [made(s, "1000", 0.25) for s in (0, 1, 2)]
    assert compare(first, earlier).last is None


def test_differences_by_seed_of_language_models_are_in_nats_per_token():
    first = [language(1, [1.0, 2.0, 5.0]), language(2, [4.0, 2.0, 5.0])]
    second = [language(1, [1.0, 3.0, 5.0]), language(2, [1.0, 2.0, 5.0])]
    found = compare(first, second)
    np.testing.assert_allclose(found.by_seed, [-1 / 3, 1])
    np.testing.assert_allclose(np.mean(found.by_seed), found.test.difference)


def test_other_settings_are_no_reason_not_to_compare_and_are_said():
    first, second = classifier(1, "1100"), classifier(1, "1000")
    assert compare([first], [second]).alike
    other = second | {"config": {"data": {}, "train": {"num_steps": 9}}}
    found = compare([first], [other])
    assert not found.alike
    assert "settings differ" in sentence("d", "A", "B", found)
    with pytest.raises(ValueError, match=r"test_n must be equal, got \d+ / \d+"):
        compare([first], [classifier(1, "100")])


def test_correctness_is_in_the_order_of_the_examples():
    predictions = {"example_id": np.array([7, 2, 5, 3]), "correct": np.array([1.0, 0, 0, 1])}
    assert correct_string(predictions) == "0101"


def test_the_same_texts_in_another_order_are_not_paired_nor_averaged():
    """A position in raw files is not that in a prepared set; older records tell neither."""
    raw, prepared = (
        {"example_id": np.array([3, 1, 2, 0]), "label": np.array(labels)}
        for labels in ([1, 0, 1, 0], [0, 1, 1, 0])
    )
    shuffled = {name: column[[2, 0, 3, 1]] for name, column in raw.items()}
    assert digest_of_test(shuffled) == digest_of_test(raw) != digest_of_test(prepared)
    one, same, other = (
        classifier(seed, "0101") | {"test_digest": digest_of_test(given)}
        for seed, given in ((0, raw), (0, raw), (0, prepared))
    )
    old = classifier(0, "0101")
    for pair in ((one, same), (one, old), (old, other)):
        assert compare(*([record] for record in pair)) is not None
        check_one_kind(list(pair), "c")
    with pytest.raises(
        ValueError, match=r"records of d, c and c: .*test_digest must be equal, got \w+ / \w+:"
    ):
        compare([one], [other])
    with pytest.raises(ValueError, match="records of c: test_digest is"):
        check_one_kind([old, one, other], "c")


def test_the_best_seed_is_chosen_on_validation_and_the_first_of_equals():
    accuracies = [(0, 0.5, 0.9), (1, 0.75, 0.1), (2, 0.75, 0.95)]
    found = [
        record(seed, validation={"accuracy": held}, test={"accuracy": tested})
        for seed, held, tested in accuracies
    ]
    assert best(found)["seed"] == 1


def encoded(lengths, first_id):
    """Texts of one word each, told apart by their example ids."""
    ids = [np.full(n, 2, np.int32) for n in lengths]
    info = SourceInfo("made", "test", ("a", "b"))
    count = len(lengths)
    return Encoded(
        ids, np.array(lengths, np.int32), np.zeros(count, np.int32),
        np.arange(first_id, first_id + count, dtype=np.int32), np.zeros(count, np.int64),
        Source((), info),
    )  # fmt: skip


def test_training_validation_and_test_batches_are_of_their_own_texts():
    parts = encoded([3, 4, 2], 0), encoded([5, 1], 10), encoded([2, 6, 1], 20)
    config = SimpleNamespace(batch_size=2, eval_batch_size=2, max_buckets=2)
    train, validation, test = in_batches(dict(zip(SPLITS, parts, strict=True)), config)
    for batches, part in zip((train(3), validation, test), parts, strict=True):
        ids = np.concatenate([batch["example_id"] for batch in batches])
        assert sorted(ids[ids >= 0]) == list(part.example_ids)


class Telling(Tiny):
    """Its metric is the mean of the parameters."""

    def evaluate(self, params, batch):
        metrics, _ = super().evaluate(params, batch)
        return metrics | {"sum": metrics["accuracy"].of(params["w"], params["w"] * 0 + 1)}, {}


@pytest.mark.slow
@pytest.mark.parametrize("evaluated", [True, False])
def test_results_on_test_are_of_the_best_parameters_and_those_of_the_last_beside(
    evaluated, tmp_path
):
    config = TrainConfig(
        num_steps=6, eval_every=1, checkpoint_every=100, progress=False, parallel="single",
        best_metric="accuracy", best_mode="min",
        optimizer=OptimizerConfig(learning_rate=0.5, ema_decay=0.5),
    )  # fmt: skip
    held = [Data()[1000]] if evaluated else None
    result = fit(Tiny(), Data(), held, config, tmp_path)
    found, _ = results_on_test(Telling(), result, [Data()[1]], make_parallel("single"))
    told = found["test"]["sum"], found["test_last"]["sum"]
    average = result.state.opt_state[-1].ema["w"]
    np.testing.assert_allclose(told[0], result.best_params["w"].mean(), rtol=1e-5)
    np.testing.assert_allclose(told[1], average.mean(), rtol=1e-5)
    if evaluated:  # the first steps are the worst, which is what is asked for here
        assert result.best_step < 6
        assert abs(told[0] - told[1]) > 1e-3


def test_parameters_of_no_step_stand_beside_those_of_the_last():
    last = {"w": np.full(4, 0.25, np.float32)}
    result = SimpleNamespace(
        best_params=last, best_step=6, steps=6,
        state=SimpleNamespace(params=last, opt_state=()),
    )  # fmt: skip
    mean = {"w": np.full(4, 0.5, np.float32)}
    found, _ = results_on_test(Telling(), result, [Data()[1]], make_parallel("single"), mean)
    assert (found["test"]["sum"], found["test_last"]["sum"]) == (0.5, 0.25)
