"""A program as a user writes it, with an error in each line that ends in `# wrong`.

It is read by type checkers and never executed, see tests/test_typing.py.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from jax.sharding import PartitionSpec as P

import gatedjax
from gatedjax import TextClassifier, analysis, data, export, gates, models, nn, training
from gatedjax import functional as F
from gatedjax.training import (
    Carried,
    CheckpointStore,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    TrainState,
    evaluate,
    fit,
    fit_lanes,
    make_parallel,
)

Batch = dict[str, Any]


class Trained:
    """A task without an evaluation."""

    def init(self, key: jax.Array, batch: Batch) -> Any:
        return {"w": jax.random.normal(key, (3,))}

    def loss(self, params: Any, batch: Batch, rngs: dict[str, jax.Array]) -> dict[str, Ratio]:
        return {"loss": Ratio.of((batch["x"] @ params["w"]) ** 2, batch["weight"])}


class Evaluated(Trained):
    def evaluate(self, params: Any, batch: Batch) -> tuple[dict[str, Ratio], dict[str, jax.Array]]:
        y = batch["x"] @ params["w"]
        return {"size": Ratio.of(abs(y), batch["weight"])}, {"y": y}


class Summarised(Evaluated):
    def summarise(self, predictions: dict[str, np.ndarray]) -> dict[str, float]:
        return {"largest": float(predictions["y"].max())}


class Summing:
    """A task with carried arrays."""

    def init(self, key: jax.Array, batch: Batch) -> Any:
        return {"w": jnp.zeros(3)}

    def init_carried(self, key: jax.Array, batch: Batch) -> Carried:
        return Carried(rows=jnp.zeros(len(batch["weight"])))

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array], carried: Carried
    ) -> tuple[dict[str, Ratio], Carried]:
        sums = carried.rows + batch["x"] @ params["w"]
        return {"loss": Ratio.of(sums**2, batch["weight"])}, Carried(rows=sums)


class Unannotated:
    def init(self, key, batch):
        return {"w": jnp.zeros(3)}

    def loss(self, params, batch, rngs):
        return {"loss": Ratio.of((batch["x"] @ params["w"]) ** 2, batch["weight"])}


class NoLoss:
    def init(self, key: jax.Array, batch: Batch) -> Any:
        return {}


class Pooled(linen.Module):
    """A network with modules of the library."""

    @linen.compact
    def __call__(self, xs: jax.Array, mask: jax.Array) -> jax.Array:
        _, outputs = nn.GRU(8, bidirectional=True)(xs, mask)
        # Flax gives linen.RNN a union as the type of its result.
        states: Any = linen.RNN(nn.GRUCell(8))(outputs, seq_lengths=mask.sum(1))
        return F.attention_pool(states, F.masked_softmax(states[..., 0], mask), mask)


class Recurrent(nnx.Module):
    """A network of NNX with modules of the library."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.gru = gatedjax.nnx.GRU(3, 8, bidirectional=True, rngs=rngs)

    def __call__(self, xs: jax.Array, lengths: jax.Array) -> jax.Array:
        _, states = self.gru(xs, lengths=lengths)
        return states


def show(event: str, step: int, state: TrainState, metrics: dict[str, Any]) -> None:
    print(event, step, metrics.get("loss"), state.params)


def stop(event: str, step: int, state: TrainState, metrics: dict[str, Any]) -> bool:
    return step == 2


def show_step(step: int) -> None:
    print(step)


def rule(path: str, array: Any) -> P:
    return P("data") if path.endswith("kernel") else P()


xs, logits = jnp.ones((2, 5, 3)), jnp.zeros((2, 5))
mask = F.length_mask(jnp.array([5, 3]), 5)
batch: Batch = {"x": jnp.ones((4, 3)), "weight": jnp.ones(4)}
config = TrainConfig(num_steps=3, parallel="fsdp", optimizer=OptimizerConfig(name="adamw"))
devices = make_parallel("fsdp", param_sharding=rule, accumulate=2)
store = CheckpointStore("runs/checkpoints", keep=3)
pooled = jax.jit(Pooled().apply)(Pooled().init(jax.random.key(0), xs, mask), xs, mask)


def attend(key: jax.Array) -> jax.Array:
    log_gates = F.log_gumbel_sigmoid(logits, F.logistic_noise(key, logits.shape), temperature=0.5)
    return F.attention_pool(xs, F.relaxed_gated_softmax(logits, log_gates, mask), mask)


def reward(gates: jax.Array) -> jax.Array:
    return gates.sum()


slope = jax.grad(gates.expectation(reward, gates.DisARM()))(logits[0], jax.random.key(0))
hard: jax.Array = F.hard_gates(logits, mask, empty="max_gate")
result = fit(Trained(), [batch] * 3, None, config, "runs/a", parallel=devices)
result = fit(Unannotated(), [batch] * 3, None, config, "runs/b", optimizer=optax.sgd(0.1))
result = fit(Evaluated(), [batch] * 3, [batch], config, "runs/c")
result = fit(Summarised(), [batch], [batch], steps=1, params=result.best_params, hook=show)
result = fit(Trained(), iter([batch]), repeatable=False, steps=1, hook=stop)
result = fit(Summing(), [batch], steps=1)
results = fit_lanes(Trained(), lambda seed: [batch], steps=1, optimizer=optax.sgd(0.1))
results = fit_lanes(Evaluated(), lambda seed: [batch] * 3, [batch], steps=3, params={"w": xs[0, 0]})
states = Recurrent(nnx.Rngs(0))(xs, jnp.array([5, 3]))
metrics, predictions = evaluate(Evaluated(), result.best_params, [batch], devices)
loss: float = metrics["size"]
texts = [" ".join(example["tokens"]) for example in data.load("polarity", "train")]
classifier = TextClassifier.train("reviews.csv", share=0.2, progress=True)
labels: list[str] = classifier.predict(texts).tolist()
step: int | None = store.latest()
shown = gatedjax.functional.gated_softmax(logits, hard, mask)

_ = gatedjax.TextClasifier  # wrong
_ = F.gated_sofmax(logits, hard)  # wrong
_ = TrainConfig(num_step=3)  # wrong
_ = TrainConfig(num_steps="3")  # wrong
_ = TrainConfig(parallel="pmapp")  # wrong
_ = OptimizerConfig(name="adamm")  # wrong
_ = fit(NoLoss(), [batch], None, config, "runs")  # wrong
_ = fit(Trained(), [batch], None, OptimizerConfig(), "runs")  # wrong
_ = fit(Trained(), [batch], None, config, "runs").best_param  # wrong
_ = make_parallel("fsdp", accumulate="2")  # wrong
_ = nn.GRU(16, directions=2)  # wrong
_ = F.length_mask(jnp.array([5, 3]))  # wrong
_ = F.hard_gates(logits, mask, empty="max gate")  # wrong
_ = gates.expectation(reward, "disarm")  # wrong
_ = models.GANetTask(config)  # wrong
_ = Ratio.of(logits)  # wrong
_ = CheckpointStore("runs", keep="2")  # wrong
_ = data.Vocabulary.build(3)  # wrong
_ = export.save_modle  # wrong
_ = training.restore  # wrong
_ = analysis.mcnemar()  # wrong
_ = fit(Trained(), [batch], steps="3")  # wrong
_ = fit(Trained(), [batch], hook=(show,))  # wrong
_ = fit(Trained(), [batch], hook=show_step)  # wrong
_ = fit_lanes(Evaluated(), [batch])  # wrong
_ = nn.RAUCell(8, attention="feature-proj")  # wrong
_ = nn.LSTM(8, kernel_initializer=jax.nn.initializers.zeros)  # wrong
_ = gatedjax.nnx.GRU(3, 8)  # wrong
