"""Runs, checkpoints and exports with names of parameters from before 0.1.0 load."""

import jax
import numpy as np
import optax
import pytest

from gatedjax import export
from gatedjax._utils.parameter_names import current_name, former_names, with_current_names
from gatedjax.export._names import unflatten
from gatedjax.training import TrainConfig, average_params, fit, restore_params
from gatedjax.training.checkpoint import CheckpointStore
from gatedjax.training.identity import named_leaves
from tests.training._tiny import Data, Tiny

NAMES = {
    "auxiliary.LSTM_0.layer_0_backward_input": "auxiliary.LSTM_0.layer_0.backward.kernel",
    "backbone.layer_11_recurrent": "backbone.layer_11.forward.recurrent_kernel",
    "recurrent.layer_0_bias": "recurrent.layer_0.forward.bias",
    "recurrent.layer_0_recurrent_bias": "recurrent.layer_0.forward.recurrent_bias",
    "recurrent.layer_0_hidden": "recurrent.layer_0.forward.hidden_kernel",
    "recurrent.layer_0_hidden_bias": "recurrent.layer_0.forward.hidden_bias",
    "recurrent.layer_0_score": "recurrent.layer_0.forward.score_kernel",
    "recurrent.layer_0_value_bias": "recurrent.layer_0.forward.value_bias",
    "recurrent.layer_0_affinity": "recurrent.layer_0.forward.affinity",
    "opt_state.0.mu.embed.table": "opt_state.0.mu.embed.embedding",
    "transform.input": "transform.kernel",
    "transform.attention_vector": "transform.score_kernel",
    "transform.highway_recurrent": "transform.highway_kernel",
    "feature_table": "feature_embedding",
    "target_table": "target_embedding",
    "output_table": "output_embedding",
    "encoder.positions": "encoder.position_embedding",
    "predicate": "predicate_embedding",
}
UNCHANGED = ("kernel", "layer_0.attention.query.kernel", "recurrent.kernel", "layer_0.norm.bias")


def test_former_names_become_present_names():
    for old, new in NAMES.items():
        assert current_name(old) == new
        assert current_name(old.replace(".", "/"), "/") == new.replace(".", "/")
        assert current_name(new) == new
    for name in UNCHANGED:
        assert current_name(name) == name


def test_names_of_a_network_of_ones_own_stay():
    arrays = {"table": 1, "positions": 2, "input": 3}
    assert with_current_names(arrays, arrays) == (arrays, {})
    assert former_names(["table"], ["table", "embedding"]) == {}
    assert former_names(["table"], ["words"]) == {}
    assert former_names(["table", "embedding"], ["embedding"]) == {}
    assert with_current_names({"table": 1, "b": 2}, ["embedding", "b"]) == (
        {"embedding": 1, "b": 2},
        {"embedding": "table"},
    )


FORMER = {
    "layer_0.forward.kernel": "layer_0_input",
    "embed.embedding": "embed.table",
}


class Named(Tiny):
    """`Tiny` with its weights under two names of the library; one of them is frozen."""

    frozen = ("embed/embedding",)

    def init(self, key, batch):
        start = super().init(key, batch)["w"]
        return {"layer_0": {"forward": {"kernel": start}}, "embed": {"embedding": 0 * start}}

    def loss(self, params, batch, rngs):
        return super().loss(flat(params), batch, rngs)

    def evaluate(self, params, batch):
        return super().evaluate(flat(params), batch)


def flat(params):
    return {"w": params["layer_0"]["forward"]["kernel"] + params["embed"]["embedding"]}


def former(name):
    for new, old in FORMER.items():
        if name == new or name.endswith(f".{new}"):
            return name.removesuffix(new) + old
    return name


def rewrite(workdir):
    """Gives the arrays of the newest checkpoint their former names."""
    store = CheckpointStore(workdir / "checkpoints")
    step = store.steps()[-1]
    record = store.record(step)
    # Texts of programs contain names of parameters, so that their digests were others.
    record["digests"] |= {"frozen": ["embed/table"], "loss": "program of former names"}
    if "optimizer" in record["settings"]:
        record["settings"]["optimizer"] = "optax program of former names"
    trees = [
        unflatten({former(name): array for name, array in store.arrays(step, item).items()})
        for item in ("state", "best")
    ]
    store.set_aside(step)
    store.save(step, *trees, record)
    store.close()


@pytest.mark.parametrize("optimizer", [None, optax.adam(0.05)], ids=["adam", "optax"])
def test_a_run_with_former_names_continues_with_the_same_bits(optimizer, tmp_path):
    def run(workdir, steps):
        config = TrainConfig(
            num_steps=steps,
            log_every=2,
            eval_every=2,
            checkpoint_every=2,
            progress=False,
            best_metric="accuracy",
        )
        return fit(Named(), Data(), [Data()[1000]], config, workdir, optimizer=optimizer)

    run(tmp_path / "whole", 4)
    half = tmp_path / "half"
    run(half, 2)
    rewrite(half)
    store = CheckpointStore(half / "checkpoints")
    assert "params.layer_0_input" in store.arrays(2, "state")
    like = jax.eval_shape(lambda: Named().init(jax.random.key(0), Data()[0]))
    params, skipped = restore_params(half, like)
    assert skipped == []
    np.testing.assert_array_equal(flat(params)["w"], store.arrays(2, "best")["layer_0_input"])
    mean, _ = average_params(half, like, 1)
    assert named_leaves(mean).keys() == FORMER.keys()
    run(half, 4)
    want = CheckpointStore(tmp_path / "whole" / "checkpoints").arrays(4, "state")
    got = store.arrays(4, "state")
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


def test_an_export_with_former_names_loads_with_its_network(tmp_path):
    like = Named().init(jax.random.key(0), Data()[0])
    saved = {"layer_0_input": like["layer_0"]["forward"]["kernel"], "embed": {"table": np.ones(4)}}
    folder = export.save(tmp_path / "model", saved, config={})
    with pytest.raises(export.ParamsMismatch, match="embed"):
        export.load(folder, like)  # the word vectors are float64
    saved["embed"]["table"] = np.ones(4, np.float32)
    folder = export.save(tmp_path / "model", saved, config={}, overwrite=True)
    params, _ = export.load(folder, like)
    np.testing.assert_array_equal(params["embed"]["embedding"], 1)
    assert named_leaves(params).keys() == FORMER.keys()
    assert named_leaves(export.load(folder)[0]).keys() == set(FORMER.values())
