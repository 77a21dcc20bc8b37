"""The commands of experiments.ga_reader as a stranger meets them, and what presets become."""

import dataclasses

import pytest

from experiments.ga_reader.config import PRESETS
from experiments.ga_reader.paper import PAPER
from gatedjax.training import make_optimizer


@pytest.mark.parametrize(
    ("halve_after", "rates"),
    [(3, [5e-4, 5e-4, 5e-4, 2.5e-4, 1.25e-4]), (2, [5e-4, 5e-4, 2.5e-4, 1.25e-4, 6.25e-5])],
)
def test_the_rate_is_halved_every_epoch_after_the_first(halve_after, rates):
    import jax.numpy as jnp
    import optax

    config = dataclasses.replace(PRESETS["cbt_ne"], halve_after=halve_after)
    train = config.training(steps_per_epoch=7)
    assert train.num_steps == 70
    options = dataclasses.replace(train.optimizer, clip_norm=None)
    rule = make_optimizer(dataclasses.replace(options, name="sgd"), train.num_steps)
    params = jnp.zeros(())
    state, taken = rule.init(params), []
    for _ in range(35):
        update, state = rule.update(jnp.ones(()), state, params)
        params = optax.apply_updates(params, update)
        taken.append(-float(update))
    assert taken == pytest.approx([rate for rate in rates for _ in range(7)])


def test_epochs_steps_and_patience_are_resolved_with_the_size_of_the_data():
    config = PRESETS["cbt_ne"]
    train = config.training(steps_per_epoch=1_234)
    assert train.num_steps == 12_340
    assert train.early_stop_patience == 13  # evaluations of 100 steps in an epoch, rounded up
    short = dataclasses.replace(config, train=dataclasses.replace(config.train, num_steps=50))
    assert short.training(1_234).num_steps == 50
    free = dataclasses.replace(config, epochs=None, halve_after=None, patience_epochs=None)
    assert free.training(1_234) == config.train
    # what is recorded is what was asked for, wherever it runs
    recorded = PAPER.recorded(config)
    assert recorded["train"]["num_steps"] == config.train.num_steps
    assert (recorded["epochs"], recorded["halve_after"], recorded["patience_epochs"]) == (
        10,
        3,
        1.0,
    )
    assert "manual_dir" not in recorded["data"]
