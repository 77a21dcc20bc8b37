"""Every task, whatever its batch is beside the examples that count, and on devices of every mode.

The devices: under `shard_map` with checked types and on a mesh with explicit axes.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from gatedjax import models
from tests._modes import MODES, assert_same, run
from tests.models._losses import MAKERS, VOCABULARY, losses, make, total_loss, with_dropout
from tests.models._passes import RNGS, in_numpy
from tests.tolerances import F32

pytestmark = pytest.mark.slow

# every rate of dropout acts: its bits belong to the examples too
LOSSES = {
    name: dataclasses.replace(case, task=with_dropout(case.task)) for name, case in losses().items()
}
NETWORKS = [name for name in LOSSES if "," not in name]
# layer norms over four numbers: 1e-7 of the parameters moves these gradients by up to 2e-4
ROUNDING = {"translation": {"rtol": 1e-3, "atol": 1e-3}}
# What an explicit mesh asks for is asked while tracing; two networks are run there too. The loss of
# a window grows with its width, see test_rau_language, so that it is not run in other company.
ON_DEVICES = [("shard_map", "language"), ("explicit", "GA-Net"), ("explicit", "probe")]
RUN = [("shard_map", name) for name in NETWORKS] + ON_DEVICES
STREAMS = {"dropout": np.array([0, 1], np.uint32), "gate": np.array([0, 2], np.uint32)}


def loss_and_gradient(case, shared, rows, total):
    params, streams = shared
    batch, *carry = rows
    rngs = {name: jax.random.wrap_key_data(data) for name, data in streams.items()}

    def loss(params):
        value, found = total_loss(case.task, params, batch, rngs, *carry)
        return value, found if carry else (found, ())

    (value, (metrics, carry)), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return (total((value, metrics)), gradient), carry


def evaluation(case, shared, rows, total):
    metrics, *by_row = case.task.evaluate(shared[0], *rows)
    return total(metrics), tuple(by_row)


def arguments(case):
    rows = (case.batch,) if case.carry is None else (case.batch, case.carry)
    return (case.params, STREAMS), rows


def test_every_task_has_a_loss_here():
    tasks = {name for name in vars(models) if name.endswith("Task")}
    assert {type(case.task).__name__ for case in LOSSES.values()} == tasks


@pytest.mark.parametrize("name", NETWORKS)
def test_an_array_in_place_of_the_batch_is_told_its_place(name):
    case = LOSSES[name]
    model, (first, array) = case.task.model, next(iter(texts_of(case.batch).items()))
    init = functools.partial(jax.eval_shape, model.init, jax.random.key(0))
    with pytest.raises(TypeError, match=rf'batch must be a dict .*"{first}".*, got an array of sh'):
        init(array)
    with pytest.raises(TypeError, match=r"batch must be a dict of arrays .*, got list"):
        init([array])


@pytest.mark.parametrize("name", MAKERS)
def test_the_word_vectors_that_a_task_freezes_are_among_its_parameters(name):
    # those of inference are frozen only if they are pretrained
    given = {"embeddings": np.zeros((VOCABULARY, 3))} if name == "ssan_nli" else {}
    one = make(name, freeze_embeddings=True, **given)
    (path,) = one.task.frozen
    table = one.shapes
    for part in path.split("/"):
        table = table[part]
    assert table.shape[0] == VOCABULARY
    assert make(name, freeze_embeddings=False, **given).task.frozen == ()


@pytest.mark.parametrize("name", MAKERS)
def test_a_loss_needs_no_numbers_of_examples(name):
    one = make(name)
    given = {key: value for key, value in one.batch.items() if key != "example_id"}
    jax.eval_shape(one.task.loss, one.shapes, given, RNGS, *one.carried)


def texts_of(batch):
    """The arrays that the network reads first."""
    return {name: batch[name] for name in ("tokens", "rows", "document") if name in batch}


TRACED = [(mode, name) for mode in MODES for name in NETWORKS]
TRACED += [("explicit", name) for name in LOSSES if name not in NETWORKS]


@pytest.mark.parametrize(("mode", "name"), TRACED)
def test_loss_gradient_and_evaluation_are_traced(name, mode):
    """Where the modes ask more of a program than one device does, they refuse it while tracing."""
    case = LOSSES[name]
    if (mode, name) not in RUN:
        run(mode, functools.partial(loss_and_gradient, case), *arguments(case), only_trace=True)
    run(mode, functools.partial(evaluation, case), *arguments(case), only_trace=True)


@functools.cache
def found_in(mode, name):
    function = functools.partial(loss_and_gradient, LOSSES[name])
    return run(mode, function, *arguments(LOSSES[name]))


@pytest.mark.parametrize(("mode", "name"), ON_DEVICES)
def test_loss_and_gradient_are_those_of_one_device(name, mode):
    assert_same(found_in(mode, name), found_in("one", name), ROUNDING.get(name, F32))


# what stands beyond the width that an array had: a word or a letter of the vocabulary, unless no
# task may look at more of them
FILL = {"candidate_mask": False, "occurrence": True, "candidate_positions": -1}
# their costs are of words, which are those that the lengths say, whatever the example weighs
BY_WORD = ("tagger", "translation")


def in_other_company(batch, by_word):
    """The examples that count, in another order and wider, among others that do not."""
    counts = np.arange(len(batch["weight"])) if by_word else np.flatnonzero(batch["weight"])
    order = np.concatenate([counts[::-1], counts[: 6 - len(counts)]])
    other = {}
    for name, value in batch.items():
        width = [(0, 0), *[(0, 1)] * (value.ndim - 1)]
        fill = np.asarray(FILL.get(name, 3), value.dtype)
        other[name] = np.pad(value[order], width, constant_values=fill)
    empty = [name for name in batch if name.endswith("lengths")] if by_word else []
    for name in ("weight", *empty):
        other[name][len(counts) :] = 0
    other["example_id"][len(counts) :] = [77, -1, 78][: 6 - len(counts)]
    return other


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "language"])
def test_padding_order_rows_that_do_not_count_and_two_devices_change_nothing(name):
    case = LOSSES[name]
    batch = in_other_company(case.batch, name in BY_WORD)
    function = functools.partial(loss_and_gradient, case)
    (loss, metrics), gradient = run("shard_map", function, (case.params, STREAMS), (batch,))[0]
    (want, want_metrics), want_gradient = found_in("one", name)[0]
    np.testing.assert_allclose(loss, want, rtol=1e-5)
    tolerance = ROUNDING.get(name, F32)
    assert_same((metrics, gradient), (want_metrics, want_gradient), tolerance)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in NETWORKS])
def test_padding_order_and_rows_that_do_not_count_change_no_loss(name):
    case = LOSSES[name]
    loss = in_numpy(lambda task, *given: total_loss(task, *given))
    rngs = {stream: jax.random.wrap_key_data(data) for stream, data in STREAMS.items()}
    got, want = (
        loss(case.task, case.params, batch, rngs)
        for batch in (in_other_company(case.batch, name in BY_WORD), case.batch)
    )
    assert_same(got, want, F32)
