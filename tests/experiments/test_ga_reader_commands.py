"""The commands of experiments.ga_reader as a stranger meets them, and what presets become."""

import dataclasses

import pytest

from experiments.core.command import options_of
from experiments.core.config import with_changes
from experiments.core.paper import Job
from experiments.ga_reader import reported
from experiments.ga_reader.__main__ import main
from experiments.ga_reader.config import PRESETS, GAReaderRunConfig, base_of, feature_of
from experiments.ga_reader.paper import FROM_CORPUS, PAPER, readers
from gatedjax.training import make_optimizer
from tests.experiments._commands import refused


def test_answer_refuses_a_folder_that_is_none_of_a_run(tmp_path, capsys):
    document = tmp_path / "d.txt"
    document.write_text("Anna came.", encoding="utf-8")
    ask = ["answer", "--workdir", str(tmp_path), "--document", str(document)]
    for question, message in (
        ("@placeholder came", "a folder with neither"),
        ("Anna came", "the query has no @placeholder"),
    ):
        args = [*ask, "--question", question, "--candidates", "Anna"]
        assert message in refused(main, args, capsys)
    document.write_bytes(b"caf\xe9")
    args = [*ask, "--question", "@placeholder", "--candidates", "Anna"]
    assert "d.txt must be UTF-8, got other bytes" in refused(main, args, capsys)


def test_presets_have_the_papers_values():
    for data, (dropout, hidden) in reported.TUNED.items():
        config = PRESETS[data]
        assert (config.model.dropout, config.model.hidden) == (dropout, hidden)
        assert (config.data.batch_size, config.train.optimizer.learning_rate) == (32, 5e-4)
        assert (config.model.hops, config.train.eval_every, config.epochs) == (3, 100, 10)
        small = data not in ("cnn", "daily_mail")
        assert bool(config.model.characters.char_dim) == config.model.feature == small
        assert config.model.freeze_embeddings == small
        assert config.model.reset_after


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


def test_every_reader_of_a_table_is_another_one():
    for name, table in PAPER.tables.items():
        for data in table.data:
            made = []
            for reader in readers(table.variants, data):
                network = with_changes(PRESETS[data], PAPER.variants[reader].changes).model
                made.append((network, reader in FROM_CORPUS))
            assert all(one not in made[:i] for i, one in enumerate(made)), (name, data)


def test_readers_change_the_preset_as_their_names_say():
    wdw = PRESETS["wdw"]
    single = with_changes(wdw, PAPER.variants["hops_1"].changes)
    assert single == with_changes(wdw, {"model.hops": 1, "model.feature": False})
    assert with_changes(wdw, PAPER.variants[feature_of("wdw")].changes) == wdw
    assert base_of("cnn") == "update"


def test_table_options_reach_the_run():
    options = options_of(PAPER)(
        what="cbt",
        num_steps=7,
        hidden=16,
        batch_size=4,
        max_doc_len=9,
        fraction=0.5,
        learning_rate=1e-3,
        eval_every=3,
        embeddings="none",
        manual_dir="m",
    )
    config = Job(PAPER, options).config("cbt_ne", "sum", 2)
    assert isinstance(config, GAReaderRunConfig)
    assert (config.train.num_steps, config.train.seed, config.train.eval_every) == (7, 2, 3)
    assert config.train.checkpoint_every == config.train.log_every == 3
    assert (config.model.hidden, config.model.gating, config.model.feature) == (16, "sum", False)
    data = config.data
    assert (data.batch_size, data.max_doc_len, data.fraction) == (4, 9, 0.5)
    assert (data.embeddings, data.manual_dir) == ("none", "m")
    assert config.train.optimizer.learning_rate == 1e-3
