"""The language model's command: perplexities from token sums, and runs that continue."""

import dataclasses
import json
import math
import signal

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.core import experiment
from experiments.core.command import run_of
from experiments.rau.config import PRESETS
from experiments.rau.experiment import last_epoch_perplexity
from experiments.rau.paper import PAPER
from gatedjax import data as gdata
from gatedjax.training import fit, make_optimizer

SENTENCE = 40


def write_log(folder, losses, every):
    lines = [{"split": "eval", "step": every, "loss": 9.0}]
    lines += [
        {"split": "train", "step": every * (n + 1), "loss": loss} for n, loss in enumerate(losses)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def test_training_perplexity_is_of_the_last_whole_epoch_only(tmp_path):
    write_log(tmp_path, [7.0, 6.0, 5.0, 3.0, 2.0], every=10)
    # epochs of 20 steps: the second is steps 21 to 40
    found = last_epoch_perplexity(tmp_path, steps=50, steps_per_epoch=20)
    assert found == pytest.approx(math.exp((5.0 + 3.0) / 2))
    assert last_epoch_perplexity(tmp_path, steps=19, steps_per_epoch=20) is None


@pytest.mark.parametrize(
    ("name", "epoch", "epochs", "full"),
    [("ptb_small", 2324, 13, 4), ("ptb_medium", 1550, 35, 6), ("ptb_large", 1328, 55, 14)],
)
def test_the_learning_rate_falls_after_the_epochs_of_the_paper(name, epoch, epochs, full):
    config = PRESETS[name].train
    assert config.num_steps == epochs * epoch
    optimizer = dataclasses.replace(config.optimizer, clip_norm=None)
    tx = make_optimizer(optimizer, config.num_steps)
    state = tx.init({"w": jnp.zeros(())})

    def rate(step):
        moved = optax.tree.set(state, count=jnp.asarray(step))
        update, _ = tx.update({"w": jnp.ones(())}, moved)
        return -float(update["w"])

    decay = {"ptb_small": 0.5, "ptb_medium": 0.8, "ptb_large": 1 / 1.15}[name]
    assert rate(full * epoch - 1) == 1.0
    assert rate(full * epoch) == pytest.approx(decay)
    assert rate((full + 1) * epoch) == pytest.approx(decay**2)
    assert rate(epochs * epoch - 1) == pytest.approx(decay ** (epochs - full))


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    """(folder of 10,000 words, as a treebank must have, tokens of its test text); 20 short epochs.

    Half of the training text has every word once, the other half and the rest are of a few.
    """
    folder, rng = tmp_path_factory.mktemp("treebank"), np.random.default_rng(0)
    words = np.array(["<unk>", *(f"w{i}" for i in range(9_998))])
    sizes = {"train": 10_001, "valid": 800, "test": 1_600}
    for part, size in sizes.items():
        text = words[
            (len(words) ** rng.random(size)).astype(int) - 1
        ]  # as often as their ranks say
        if part == "train":
            text = np.concatenate([rng.permutation(words), text])
        lines = (" ".join(text[i : i + SENTENCE]) for i in range(0, len(text), SENTENCE))
        (folder / f"ptb.{part}.txt").write_text("".join(f" {line} \n" for line in lines), "utf-8")
    return folder, sizes["test"] + sizes["test"] // SENTENCE


def tiny(workdir, folder, **train):
    preset = PRESETS["ptb_small"]
    settings = {"num_steps": 6, "eval_every": 3, "checkpoint_every": 3, "log_every": 1}
    return dataclasses.replace(
        preset,
        workdir=str(workdir),
        data=dataclasses.replace(
            preset.data,
            manual_dir=str(folder),
            batch_size=50,
            eval_batch_size=10,
            window=20,
        ),
        model=dataclasses.replace(preset.model, hidden=4, embedding_dim=4),
        train=dataclasses.replace(preset.train, progress=False, **(settings | train)),
    )


@pytest.mark.slow
def test_a_run_on_the_treebank_counts_every_token_and_continues_within_an_epoch(
    tmp_path, treebank, monkeypatch
):
    folder, tokens = treebank
    whole = run_of(PAPER, tiny(tmp_path / "whole", folder)).record
    assert whole["vocabulary_size"] == 10_000
    assert whole["test_n"] == tokens == sum(whole["test_tokens"])
    total = sum(whole["test_nll"]) / whole["test_n"]
    assert whole["test"]["loss"] == pytest.approx(total, rel=1e-4)
    assert whole["test"]["perplexity"] == pytest.approx(math.exp(total), rel=1e-3)
    # untrained, it would be the vocabulary
    assert 500 < whole["test"]["perplexity"] < 9_900
    assert len(whole["curve"]) == 2
    again = run_of(PAPER, tiny(tmp_path / "whole", folder)).record
    assert again["test_nll"] == whole["test_nll"]

    # The carried state of a run that is stopped within an epoch comes back with every bit.
    take, stops = gdata.LanguageModelBatches.__getitem__, [4]

    def stopped(self, step):
        if step in stops and not self.one_pass:
            stops.remove(step)
            signal.raise_signal(signal.SIGTERM)
        return take(self, step)

    monkeypatch.setattr(gdata.LanguageModelBatches, "__getitem__", stopped)
    broken = tiny(tmp_path / "broken", folder)
    first = run_of(PAPER, broken).record
    assert first["stopped"] == "signal"
    assert first["steps"] < 6

    # A signal with the last step leaves measuring to the same command.
    def signalled(*args, **kwargs):
        return dataclasses.replace(fit(*args, **kwargs), signal=signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "fit", signalled)
        second = run_of(PAPER, broken).record
    assert (second["stopped"], second["steps"], second["exit_code"]) == ("signal", 6, 0)
    assert "test" not in second
    assert not (tmp_path / "broken" / "results.json").exists()
    third = run_of(PAPER, broken).record
    assert third["stopped"] == "done"
    for key in ("test_nll", "test", "validation", "curve", "train_curve", "steps"):
        assert third[key] == whole[key], key
