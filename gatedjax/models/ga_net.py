"""GA-Net (Xue et al. 2020): a network of gates decides which words attention may see.

    h = BiLSTM(x),  e_t = w . tanh(h_t),  a = AuxiliaryNetwork(x)
    g_t = sigmoid((a_t + L_t) / tau) in training, Bernoulli(sigmoid(a_t)) in evaluation
    alpha_t = g_t exp(e_t) / sum_s g_s exp(e_s),  c = sum_t alpha_t h_t,  y = W tanh(c) + b

The three baselines of the paper are the same backbone with another `system`.

There the backbone reads every word, and tells its neighbours of it: what attention sees of the open
words rests on the closed ones too. With `gates_on="input"` the gates act before it as well,

    h = BiLSTM(g_1 x_1, ..., g_T x_T)           where gates are soft: training, "expected"
    h = BiLSTM(x_{t_1}, ..., x_{t_K}),  g_{t_k} = 1   where they are hard

and the rest as above. With hard gates nothing behind the auxiliary network has read a closed word:
it computes what it would compute had the words been deleted. (The auxiliary network reads them all;
it chooses.) A soft gate near 0 leaves a step of the LSTM on a vector near 0, which a closed gate
does not: the two agree in what attention sees, and better where tau is low in training.
"""

import dataclasses
import functools
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Key

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._choices import check_choices
from gatedjax._types import Options, Output, Params, Tree
from gatedjax.functional._checks import check_positive, wide_dtype
from gatedjax.functional._devices import on_rows
from gatedjax.functional._export import exportable
from gatedjax.functional._tracing import is_traced
from gatedjax.gates import Estimator, expectation
from gatedjax.gates._expectation import check_estimator, noise_rows
from gatedjax.gates._named import EstimatorName, named
from gatedjax.gates._score import ByValues
from gatedjax.gates._together import expectation_together
from gatedjax.models._checks import check_at_least, check_batch, check_rates
from gatedjax.models._classification import (
    accuracy,
    class_metrics,
    class_predictions,
    cross_entropy,
    frozen_embeddings,
    word_vectors,
)
from gatedjax.models._density import constraint
from gatedjax.models._schedule import check_schedule, schedule
from gatedjax.models._types import Batch, Metrics, Predictions
from gatedjax.nn._keys import example_keys
from gatedjax.nn._types import Table
from gatedjax.training import Ratio

GATE_MODES = ("sample", "threshold", "expected", "relaxed")
READ_AT_HARD_GATES = ("st_gumbel", "straight_through", "reinmax", "rebar")
"""Estimators that take the derivative of the loss at gates of 0 and 1."""


def _gateless(system: str) -> ValueError:
    return ValueError(f"estimator must be None for system={system!r}: no gates")


def _unread(said: str) -> ValueError:
    return ValueError(
        f"gates_on must be 'attention' for {said}: a word that is not read has no gradient"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GANetConfig:
    """Everything that the paper fixes or leaves open about the network."""

    system: Literal["ganet", "soft", "local", "bilstm"] = "ganet"
    """GA-Net, or one of its baselines: global attention, local attention, last hidden state."""
    embedding_dim: int = 100
    """Width of the word vectors."""
    hidden: int = 100
    """Backbone LSTM width per direction."""
    num_layers: int = 2
    """Backbone layers."""
    merge: Literal["concat", "sum"] = "concat"
    """How the two directions become one state."""
    score: Literal["zhou", "mlp1"] = "zhou"
    """Attention score: w . tanh(h), or w . tanh(W h + b)."""
    post_tanh: bool = True
    """Apply tanh to the pooled state before the classifier."""
    aux: Literal["lstm", "fnn", "att"] = "lstm"
    """Auxiliary network that predicts the gates."""
    aux_hidden: int = 100
    """Width of the auxiliary network."""
    aux_positions: bool = True
    """Add sinusoidal positions to the input of the "att" auxiliary network."""
    gate_bias_init: float = 0.0
    """Gate bias at the start; 0 opens about half of the gates."""
    temperature: float = 1.0
    """tau of the Gumbel relaxation (paper: 0.5, 1.0, 1.5 or 2.0)."""
    final_temperature: float | None = None
    """tau after temperature-steps, reached geometrically; None keeps tau."""
    temperature_steps: int = 1
    """Steps from temperature to final-temperature."""
    penalty: float = 1e-4
    """lambda, weight of the mean gate in the loss (paper: 4e-6 to 1e-3)."""
    density: float | None = None
    """Hold the mean open probability at this by a Lagrange multiplier, in place of the penalty."""
    gates_on: Literal["attention", "input"] = "attention"
    """What the gates close words to: attention, as in the paper, or the backbone too, which then
    reads soft gates times their words, and under hard gates the open words alone."""
    penalty_on: Literal["gate", "prob"] = "gate"
    """Penalise the sampled soft gates, or the open probabilities (lower variance)."""
    relax: Literal["soft", "straight_through"] = "soft"
    """Training gates: soft, or hard forward with the soft gradient."""
    estimator: EstimatorName | None = None
    """How the gates' gradient is estimated (see `gatedjax.gates`); None is what `relax` says:
    "soft_gumbel" where soft, "st_gumbel" where straight-through."""
    estimator_draws: int = 2
    """Draws of "leave_one_out"."""
    test_gate: Literal["sample", "threshold", "multi_sample"] = "sample"
    """Evaluation gates behind "accuracy"; all gate modes are always reported. "multi_sample"
    averages class probabilities over the draws."""
    test_samples: int = 5
    """Draws of the gates in evaluation."""
    empty: Literal["max_gate", "soft", "zeros"] = "max_gate"
    """If all gates close: open the likeliest, attend to everything, or pool nothing."""
    local_half_width: float = 4.0
    """Local attention: half of the window, in tokens."""
    local_renormalise: bool = False
    """Local attention: make the weights sum to 1 after the Gaussian."""
    embedding_dropout: float = 0.3
    """Dropout on word vectors."""
    layer_dropout: float = 0.0
    """Dropout between the backbone layers."""
    recurrent_dropout: float = 0.0
    """Dropout on the recurrent connections of the backbone, one mask per example."""
    pool_dropout: float = 0.3
    """Dropout on the pooled state."""
    freeze_embeddings: bool = False
    """Keep word vectors as they are."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype; parameters, softmax, noise, carries and the loss stay float32."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(self, 1, "embedding_dim", "hidden", "num_layers", "aux_hidden")
        check_at_least(self, 1, "test_samples")
        check_at_least(self, 2, "estimator_draws")
        check_schedule(self)
        check_positive(temperature=self.temperature, local_half_width=self.local_half_width)
        if not 0 <= self.penalty < float("inf"):
            raise ValueError(f"penalty must be at least 0 and finite, got {self.penalty}")
        check_rates(self, "embedding_dropout", "layer_dropout")
        check_rates(self, "recurrent_dropout", "pool_dropout")
        if self.density is not None and not 0 < self.density < 1:
            raise ValueError(f"density must be in (0, 1) or None, got {self.density}")
        if self.density is not None and self.system != "ganet":
            raise ValueError(f"density must be None for system={self.system!r}: it has no gates")
        self._check_estimator()

    def _check_estimator(self) -> None:
        if self.estimator is not None:
            if self.system != "ganet":
                raise _gateless(self.system)
            if self.relax != "soft":
                raise ValueError(f"relax must be 'soft' where estimator={self.estimator!r} says it")
        if self.gates_on == "input":
            if self.system != "ganet":
                raise ValueError(f"gates_on must be 'attention' for system={self.system!r}")
            if self.estimation in READ_AT_HARD_GATES:
                said = "relax" if self.estimator is None else "estimator"
                raise _unread(f"{said}={getattr(self, said)!r}")

    @property
    def estimation(self) -> EstimatorName:
        """The estimator that trains the gates."""
        by_relaxation: EstimatorName = "soft_gumbel" if self.relax == "soft" else "st_gumbel"
        return self.estimator or by_relaxation


@exportable
@struct.dataclass
class GANetOutput:
    """What one pass computed. Gate fields are None for the baselines.

    Attributes:
      logits: class scores [B, C], float32.
      attention: alpha [B, T]; None for "bilstm".
      gates: g [B, T] used in this pass, 0 at padding.
      gate_logits: a [B, T], -inf at padding.
      scores: e [B, T]; None for "bilstm".
      closed: bool [B], rows in which every gate was closed before the `empty` rule.
    """

    logits: Array
    attention: Array | None = None
    gates: Array | None = None
    gate_logits: Array | None = None
    scores: Array | None = None
    closed: Array | None = None


@struct.dataclass
class _Encoded:
    """What every gate mode shares; states, last and scores are None until the gates are known where
    those act on the input."""

    states: Any
    last: Any
    mask: Array
    scores: Any  # None for "bilstm"
    gate_logits: Any  # None for the baselines
    words: Any = None  # word vectors, where the gates act on them


class GANet(nn.Module):
    """GA-Net or one of its baselines, for classifying sequences.

    Attributes:
      config: the network.
      vocab_size: rows of the embedding table, padding included.
      num_classes: C.
      embeddings: a pretrained table to start from, or None.

    Call with a batch {"tokens": int [B, T], "lengths": int [B]} and, where noise is drawn,
    "example_id": int [B]. Streams: "dropout" (train) and "gate" (train and sampled evaluation).
    Evaluation without the stream "gate" takes the gates that are likelier open than closed.

    Reference: Xue et al. 2020, "Not All Attention Is Needed".
    """

    config: GANetConfig
    vocab_size: int
    num_classes: int
    embeddings: Table | None = None

    def setup(self) -> None:
        """Creates the layers that the system needs."""
        c = self.config
        types: Options = {"dtype": jnp.dtype(c.dtype)}
        self.embed = word_vectors(self)
        self.backbone = gnn.LSTM(
            c.hidden,
            num_layers=c.num_layers,
            bidirectional=True,
            dropout=c.layer_dropout,
            recurrent_dropout=c.recurrent_dropout,
            **types,
        )
        if c.system != "bilstm":
            self.score = gnn.TokenScore(c.score, **types)
        if c.system == "ganet":
            self.auxiliary = gnn.GatePredictor(
                c.aux,
                features=c.aux_hidden,
                positions=c.aux_positions,
                bias_init=c.gate_bias_init,
                **types,
            )
            if c.density is not None:
                self.param("multiplier", nn.initializers.zeros, ())
        if c.system == "local":
            self.position = gnn.LocalPosition(**types)
        self.classifier = nn.Dense(self.num_classes, name="classifier", **types)

    def __call__(
        self, batch: Batch, *, train: bool = False, temperature: float | Array | None = None
    ) -> GANetOutput:
        """Runs the network with the gates of training or of `config.test_gate`.

        Args:
          batch: "tokens" [B, T], "lengths" [B], "example_id" [B] (row numbers if absent).
          train: relaxed gates and dropout if True.
          temperature: tau instead of the configuration's; it may be traced.

        Returns:
          The output; for `test_gate="multi_sample"` it holds the first draw's gates, and the log
          of the class probabilities averaged over the draws.
        """
        encoded = self.encode(batch, train=train)
        config = self.config
        if config.system != "ganet":
            return self._ungated(encoded, batch, train)
        if train:
            tau = schedule(config, batch.get("step")) if temperature is None else temperature
            noise = F.example_noise(self._keys(batch, "gate"), encoded.mask.shape[-1])
            return self._trained(encoded, noise, batch, tau)
        gates = self._test_gates(encoded, batch)
        hard = self._hard(encoded, gates, batch)
        if gates.ndim == encoded.mask.ndim:
            return hard
        return _first_draw(hard).replace(logits=_mean_log_probability(hard.logits))

    def _test_gates(self, encoded: _Encoded, batch: Batch) -> Float[Array, "*S B T"]:
        """The gates of evaluation: of one draw, of all, or those likelier open than closed."""
        if self.config.test_gate == "threshold" or not self.has_rng("gate"):
            return F.threshold_gates(encoded.gate_logits)
        draws = _draw(encoded, self._noise(encoded, batch))
        return draws[0] if self.config.test_gate == "sample" else draws

    def compact(self, batch: Batch, *, capacity: int) -> GANetOutput:
        """What a call gives in evaluation, from the open words alone.

        No score is computed for a closed word, and nothing of it is pooled; where the gates act on
        the input, the backbone takes as many steps as there are slots. The auxiliary network reads
        every word, and so does the backbone where the gates act on attention.

        Args:
          batch: as of a call.
          capacity: slots for the open words of a text, see `functional.plan_capacity`. A batch
            with a text that has more is computed as by a call.

        Returns:
          As a call; `scores` is None.

        Raises:
          ValueError: if the system has no gates, or test_gate is "multi_sample".
        """
        self._check_gated()
        if self.config.test_gate == "multi_sample":
            raise ValueError("compact needs one draw, test_gate must not be 'multi_sample'")
        encoded = self._encoded(batch, train=False, scored=False)
        mask, gates = encoded.mask, self._test_gates(encoded, batch)
        opened, closed = F.ensure_open(gates, encoded.gate_logits, mask)
        if self.config.empty == "max_gate":
            gates = opened
        kept = self._kept(encoded, gates, closed)
        if encoded.words is not None:
            pooled, attention = self._read_compactly(encoded, kept, capacity, batch)
        else:
            score, params = self.score.unbind()
            score_fn: Any = functools.partial(score.apply, params)
            pooled, attention, _ = F.compact_attention_pool(
                score_fn, encoded.states, kept, capacity=capacity
            )
        output = self._answered(encoded, pooled, attention, batch)
        return output.replace(gates=jnp.where(mask, gates, 0), closed=closed)

    def _read_compactly(
        self, encoded: _Encoded, kept: Bool[Array, "B T"], capacity: int, batch: Batch
    ) -> tuple[Float[Array, "B D"], Float[Array, "B T"]]:
        """(what is pooled, attention) by a backbone that reads as many words as there are slots."""
        size = kept.shape[-1]
        indices, valid, excess = F.open_indices(kept, min(capacity, size))

        def pooled(self: GANet, words: Array, valid: Array) -> tuple[Array, Array]:
            short = self._read(encoded, jnp.where(valid[..., None], words, 0), valid, batch)
            weights = F.masked_softmax(short.scores, valid)
            return F.attention_pool(short.states, weights), weights

        def short(self: GANet) -> tuple[Array, Array]:
            words = jnp.take_along_axis(encoded.words, indices[..., None], axis=1)
            vector, weights = pooled(self, words, valid)
            return vector, _unpacked(weights, jnp.cumsum(kept, axis=-1) - 1, kept)

        def long(self: GANet) -> tuple[Array, Array]:
            words, packed, slots = _packed(encoded.words, kept)
            vector, weights = pooled(self, words, packed)
            return vector, _unpacked(weights, slots, kept)

        if capacity >= size:
            return long(self)
        return nn.cond(jnp.any(excess > 0), long, short, self)

    def encode(self, batch: Batch, *, train: bool = False) -> _Encoded:
        """The part that does not depend on the gates: states, scores and gate logits."""
        return self._encoded(batch, train, scored=self.config.system != "bilstm")

    def _encoded(self, batch: Batch, train: bool, scored: bool) -> _Encoded:
        config = self.config
        check_batch(batch, tokens="B T", lengths="B")
        tokens = batch["tokens"]
        mask = F.length_mask(batch["lengths"], tokens.shape[1])
        xs = self.embed(tokens)
        if train and config.embedding_dropout > 0:
            xs = F.example_dropout(xs, config.embedding_dropout, self._keys(batch, "dropout"))
        if config.gates_on == "input":
            gate_logits = self.auxiliary(xs, mask)
            return _Encoded(None, None, mask, scores=None, gate_logits=gate_logits, words=xs)
        states, last = self._states(xs, mask, batch.get("example_id"), train)
        return _Encoded(
            states=states,
            last=last,
            mask=mask,
            scores=self.score(states) if scored else None,
            gate_logits=self.auxiliary(xs, mask) if config.system == "ganet" else None,
        )

    def _states(
        self, xs: Float[Array, "B T E"], mask: Bool[Array, "B T"], ids: Any, train: bool
    ) -> tuple[Array, Array]:
        """The backbone: the states of all words, and the last ones."""
        config = self.config
        carries, states = self.backbone(xs, mask, deterministic=not train, example_id=ids)
        ahead, back = carries[-1]
        left, right = ahead.hidden.astype(states.dtype), back.hidden.astype(states.dtype)
        if config.merge == "concat":
            last = jnp.concatenate([left, right], axis=-1)
        else:
            states = states[..., : config.hidden] + states[..., config.hidden :]
            last = left + right
        return states, last

    def _read(
        self,
        encoded: _Encoded,
        xs: Float[Array, "*S B T E"],
        mask: Bool[Array, "*S B T"],
        batch: Batch,
        train: bool = False,
    ) -> _Encoded:
        """States and scores of words that gates have been at, every draw of them."""
        if xs.ndim == 3:
            states, last = self._states(xs, mask, batch.get("example_id"), train)
            return dataclasses.replace(
                encoded, states=states, last=last, mask=mask, scores=self.score(states)
            )
        # rows first: their axis may be sharded
        by_row = [jnp.swapaxes(x, 0, 1) for x in (xs, mask)]
        flat = [x.reshape(-1, *x.shape[2:]) for x in by_row]
        states, _ = self._states(flat[0], flat[1], None, False)
        states = jnp.swapaxes(states.reshape(*by_row[1].shape, -1), 0, 1)
        return dataclasses.replace(encoded, states=states, mask=mask, scores=self.score(states))

    def _scaled(
        self, encoded: _Encoded, gates: Float[Array, "*S B T"], batch: Batch, train: bool = False
    ) -> _Encoded:
        """What soft gates let the backbone read."""
        if encoded.words is None:
            return encoded
        xs = _draws_of(encoded, gates) * gates[..., None].astype(encoded.words.dtype)
        return self._read(encoded, xs, _like(encoded.mask, gates), batch, train)

    def gate_modes(
        self,
        batch: Batch,
        temperature: float | Array | None = None,
        *,
        encoded: _Encoded | None = None,
    ) -> dict[str, GANetOutput]:
        """The same states under every kind of gate, from one pass over the sequence.

        Args:
          batch, temperature: as of a call.
          encoded: what `encode` returned of the batch, which is then not read again.

        Returns:
          "sample" and "relaxed" (`config.test_samples` draws with the same noise), "threshold" and
          "expected" (the open probabilities as gates). Every field but gate_logits and scores has
          a leading axis over the draws, of size 1 where nothing is drawn; scores too, where the
          gates act on the input: then every draw is a pass of its own over the sequence.

        Raises:
          ValueError: if the system has no gates.
        """
        encoded = self.encode(batch) if encoded is None else encoded
        self._check_gated()
        noise = self._noise(encoded, batch)
        logits = encoded.gate_logits[None]
        return {
            "sample": self._hard(encoded, _draw(encoded, noise), batch),
            "threshold": self._hard(encoded, F.threshold_gates(logits), batch),
            "expected": self._gated(encoded, nn.sigmoid(logits), batch),
            "relaxed": self._relaxed(encoded, noise, batch, temperature, train=False),
        }

    def with_gates(
        self,
        batch: Batch,
        gates: Float[Array, "S B T"],
        *,
        soft: bool = False,
        encoded: _Encoded | None = None,
    ) -> GANetOutput:
        """The same states under gates that are given, from one pass over the sequence.

        Args:
          batch: as of a call.
          gates: 0 or 1 for every word, S times; `config.empty` says what happens if all are 0.
          soft: gates are any numbers from 0 to 1, as of "expected" and "relaxed"; where all are 0,
            nothing is pooled.
          encoded: what `encode` returned of the batch, which is then not read again.

        Returns:
          As `gate_modes`, with the leading axis S.

        Raises:
          ValueError: if the system has no gates.
        """
        encoded = self.encode(batch) if encoded is None else encoded
        self._check_gated()
        act = self._gated if soft else self._hard
        return act(encoded, gates, batch)

    def read(
        self, encoded: _Encoded, gates: Float[Array, "B T"], batch: Batch, *, train: bool = False
    ) -> GANetOutput:
        """What follows the gates: attention to, or the reading of, the words that they leave.

        Args:
          encoded: of `encode`.
          gates: in [0, 1]; `config.empty` says what happens if all are 0.
          batch, train: as of a call.
        """
        return self._hard(encoded, gates, batch, train=train)

    def to_estimate(self, batch: Batch) -> tuple[_Encoded, Key[Array, " B"]]:
        """What an estimator of the gates' gradient starts from in training.

        Returns:
          (the part that does not depend on the gates, keys of the gates' noise).
        """
        return self.encode(batch, train=True), self._keys(batch, "gate")

    def from_pooled(self, pooled: Float[Array, "... D"]) -> Float[Array, "... C"]:
        """Class scores, float32, of what attention has pooled, in evaluation.

        Args:
          pooled: states of any leading axes, weighted and summed over the words.
        """
        return self._classify(jnp.tanh(pooled) if self.config.post_tanh else pooled, {}, False)

    def _check_gated(self) -> None:
        if self.config.system != "ganet":
            raise ValueError(f"system {self.config.system!r} has no gates")

    def _keys(self, batch: Batch, stream: str) -> Array:
        return example_keys(self, stream, batch.get("example_id"), batch["tokens"].shape[0])

    def _noise(self, encoded: _Encoded, batch: Batch) -> Float[Array, "S B T"]:
        """Noise of every draw; draw s of an example is the same in any batch."""
        keys, size = self._keys(batch, "gate"), encoded.mask.shape[-1]

        def one(draw: Array) -> Array:  # traced once: there may be a hundred draws
            return F.example_noise(
                jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, draw), size
            )

        return jax.vmap(one)(jnp.arange(self.config.test_samples, dtype=jnp.uint32))

    def _gated(
        self,
        encoded: _Encoded,
        gates: Float[Array, "*S B T"],
        batch: Batch,
        *,
        train: bool = False,
    ) -> GANetOutput:
        encoded = self._scaled(encoded, gates, batch, train)
        weights = F.gated_softmax(_like(encoded.scores, gates), gates, _like(encoded.mask, gates))
        return self._pooled(encoded, weights, batch, gates=gates, train=train)

    def _trained(
        self,
        encoded: _Encoded,
        noise: Float[Array, "B T"],
        batch: Batch,
        temperature: float | Array,
    ) -> GANetOutput:
        """One pass under gates that carry the derivative of the estimator."""
        name, logits = self.config.estimation, encoded.gate_logits
        if name == "soft_gumbel":
            return self._relaxed(encoded, noise, batch, temperature, train=True)
        if name == "st_gumbel":
            gates = F.gumbel_sigmoid(logits, noise, temperature=temperature, straight_through=True)
            return self._hard(encoded, gates, batch, train=True)
        estimator: Any = named(name, temperature=temperature)
        if not hasattr(estimator, "gates"):  # by values of the loss, of which this is one
            return self._hard(encoded, _draw(encoded, noise), batch, train=True)
        wide = logits.astype(wide_dtype(logits))
        gates = jnp.where(encoded.mask, estimator.gates(wide, noise), 0)
        if self.config.gates_on == "input":
            return self._gated(encoded, gates, batch, train=True)
        return self._hard(encoded, gates, batch, train=True)

    def _relaxed(
        self,
        encoded: _Encoded,
        noise: Float[Array, "*S B T"],
        batch: Batch,
        temperature: float | Array | None,
        *,
        train: bool,
    ) -> GANetOutput:
        tau = self._last_temperature() if temperature is None else temperature
        logits = _like(encoded.gate_logits, noise)
        log_gates = F.log_gumbel_sigmoid(logits, noise, temperature=tau)
        encoded = self._scaled(encoded, jnp.exp(log_gates), batch, train)
        weights = F.relaxed_gated_softmax(
            _like(encoded.scores, noise), log_gates, _like(encoded.mask, noise)
        )
        return self._pooled(encoded, weights, batch, gates=jnp.exp(log_gates), train=train)

    def _last_temperature(self) -> float:
        """tau at the end of training."""
        last = self.config.final_temperature
        return self.config.temperature if last is None else last

    def _hard(
        self, encoded: _Encoded, gates: Array, batch: Batch, *, train: bool = False
    ) -> GANetOutput:
        mask = _like(encoded.mask, gates)
        opened, closed = F.ensure_open(gates, _like(encoded.gate_logits, gates), mask)
        if self.config.empty == "max_gate":
            gates = opened
        if encoded.words is not None:
            return self._shortened(encoded, gates, closed, batch, train)
        scores = _like(encoded.scores, gates)
        weights = F.gated_softmax(scores, gates, mask)
        if self.config.empty == "soft":
            weights = jnp.where(closed[..., None], F.masked_softmax(scores, mask), weights)
        return self._pooled(encoded, weights, batch, gates=gates, closed=closed, train=train)

    def _shortened(
        self,
        encoded: _Encoded,
        gates: Float[Array, "*S B T"],
        closed: Array,
        batch: Batch,
        train: bool = False,
    ) -> GANetOutput:
        """What the open words say by themselves: they move to the front, and the rest is padding.

        So it is what the network computes of a text without the other words, to the last bit.
        """
        mask, kept = _like(encoded.mask, gates), self._kept(encoded, gates, closed)
        axes = gates.ndim - 1
        xs, packed, slots = on_rows(_packed, _draws_of(encoded, gates), kept, axes=axes)
        short = self._read(encoded, xs, packed, batch, train)
        weights = F.masked_softmax(short.scores, packed)
        output: Output = self._pooled(short, weights, batch, train=train)
        attention, scores = on_rows(
            _unpacked, (output.attention, short.scores), slots, kept, axes=axes
        )
        open_gates = jnp.where(mask, gates, 0)
        return output.replace(attention=attention, scores=scores, gates=open_gates, closed=closed)

    def _kept(
        self, encoded: _Encoded, gates: Float[Array, "*S B T"], closed: Bool[Array, "*S B"]
    ) -> Bool[Array, "*S B T"]:
        """The words that are read: the open ones, or all where the `empty` rule says so."""
        mask = _like(encoded.mask, gates)
        kept = mask & (gates > 0)
        return jnp.where(closed[..., None], mask, kept) if self.config.empty == "soft" else kept

    def _ungated(self, encoded: _Encoded, batch: Batch, train: bool) -> GANetOutput:
        config = self.config
        if config.system == "bilstm":
            return GANetOutput(logits=self._classify(encoded.last, batch, train))
        if config.system == "soft":
            weights = F.masked_softmax(encoded.scores, encoded.mask)
        else:
            weights = F.local_attention_weights(
                encoded.scores,
                self.position(encoded.last, batch["lengths"]),
                config.local_half_width,
                batch["lengths"],
                renormalise=config.local_renormalise,
            )
        return self._pooled(encoded, weights, batch, train=train)

    def _pooled(
        self,
        encoded: _Encoded,
        weights: Float[Array, "B T"],
        batch: Batch,
        *,
        gates: Array | None = None,
        closed: Bool[Array, " B"] | None = None,
        train: bool = False,
    ) -> GANetOutput:
        pool = F.attention_pool
        if weights.ndim == encoded.states.ndim:  # several draws over the same states
            pool = jax.vmap(pool, (None, 0))
        output = self._answered(encoded, pool(encoded.states, weights), weights, batch, train)
        gates = None if gates is None else jnp.where(_like(encoded.mask, gates), gates, 0)
        return output.replace(gates=gates, closed=closed)

    def _answered(
        self, encoded: _Encoded, pooled: Array, weights: Array, batch: Batch, train: bool = False
    ) -> Output:
        """The output behind what attention has pooled, without the gates."""
        if self.config.post_tanh:
            pooled = jnp.tanh(pooled)
        return GANetOutput(
            logits=self._classify(pooled, batch, train),
            attention=weights,
            gate_logits=encoded.gate_logits,
            scores=encoded.scores,
        )

    def _classify(self, pooled: Array, batch: Batch, train: bool) -> Array:
        if train and self.config.pool_dropout > 0:
            keys = self._keys(batch, "dropout")
            pooled = F.example_dropout(pooled, self.config.pool_dropout, keys)
        logits = self.classifier(pooled)
        return logits.astype(wide_dtype(logits))


def _like(array: Array, other: Array) -> Array:
    """The array with the leading axes of the other."""
    return jnp.broadcast_to(array, other.shape)


def _draws_of(encoded: _Encoded, gates: Float[Array, "*S B T"]) -> Float[Array, "*S B T E"]:
    """The word vectors, once for every draw of the gates."""
    return jnp.broadcast_to(encoded.words, (*gates.shape, encoded.words.shape[-1]))


def _packed(
    words: Float[Array, "*B T E"], kept: Bool[Array, "*B T"]
) -> tuple[Float[Array, "*B T E"], Bool[Array, "*B T"], Array]:
    """(the words that are kept, moved to the front, 0 behind them; where they are; of every word,
    to which place it moved)."""
    order = jnp.argsort(~kept, axis=-1, stable=True)
    packed = jnp.take_along_axis(kept, order, axis=-1)
    moved = jnp.take_along_axis(words, order[..., None], axis=-2)
    return jnp.where(packed[..., None], moved, 0), packed, jnp.argsort(order, axis=-1)


def _unpacked(values: Tree, slots: Array, kept: Bool[Array, "*B T"]) -> Tree:
    """Values of words that were moved, in the order of the text; 0 where none is kept."""
    back = lambda x: jnp.where(kept, jnp.take_along_axis(x, slots, axis=-1), 0)  # noqa: E731
    return jax.tree.map(back, values)


def _draw(encoded: _Encoded, noise: Float[Array, "*S B T"]) -> Float[Array, "*S B T"]:
    return (_like(encoded.gate_logits, noise) + noise > 0).astype(jnp.float32)


def _first_draw(output: Output) -> Tree:
    first = {
        name: None if (value := getattr(output, name)) is None else value[0]
        for name in ("logits", "attention", "gates", "closed")
    }
    return output.replace(**first)


def _mean_log_probability(logits: Float[Array, "S B C"]) -> Float[Array, "B C"]:
    """The log of the class probabilities averaged over draws, without leaving log space."""
    return jax.nn.logsumexp(nn.log_softmax(logits), axis=0) - jnp.log(logits.shape[0])


@dataclasses.dataclass(frozen=True)
class GANetTask:
    """How a `GANet` (or a baseline) is trained and evaluated.

    Loss per example: cross-entropy + lambda * mean gate over the true length. With
    `config.density` lambda is a multiplier that gradient ascent fits to the constraint, and what it
    multiplies is the mean open probability less that density (Bastings et al. 2019).

    An estimator that takes values of the loss at several draws is given the cross-entropy behind
    one pass of the encoder, and the penalty is its exact expectation. In the metrics the
    cross-entropy is then the mean over those draws; accuracy and density are of the first, whose
    gates are hard even if an `estimator` has others.

    Attributes:
      model: the network.
      eval_seed: seed of the gates drawn in evaluation.
      penalty, temperature: lambda and tau instead of the configuration's; they may be traced.
        Where tau changes by the step, it is what it starts from.
      estimator: of the gates' gradient instead of the configuration's; any `gates.Estimator`,
        treated like those that take values of the loss.

    Raises:
      ValueError: if the estimator cannot train this network.
    """

    model: GANet
    eval_seed: int = 0
    penalty: float | Array | None = None
    temperature: float | Array | None = None
    estimator: Estimator | None = None

    lookups: ClassVar[dict[str, tuple[str, ...]]] = {"embed/table": ("tokens",)}
    """Word vectors, and by which arrays of a batch they are looked up."""

    def __post_init__(self) -> None:
        if self.estimator is None:
            return
        check_estimator(self.estimator)
        config, name = self.model.config, type(self.estimator).__name__
        if config.system != "ganet":
            raise _gateless(config.system)
        if config.estimator is not None or config.relax != "soft":
            said = "estimator" if config.estimator else "relax"
            raise ValueError(
                f"estimator must be None, or the configuration's {said} not set: got {name} and "
                f"{said}={getattr(config, said)!r}"
            )
        if config.gates_on == "input" and self.estimator.needs_gradient:
            raise _unread(f"estimator={name}")

    @property
    def frozen(self) -> tuple[str, ...]:
        """Parameters that the optimiser leaves alone: the word vectors, if they are to stay."""
        return frozen_embeddings(self.model)

    @property
    def sweepable(self) -> tuple[str, ...]:
        """Numbers of which `with_value` takes others: those that the loss has."""
        config = self.model.config
        if config.system != "ganet":
            return ()
        tempered = self.estimator is None and hasattr(named(config.estimation), "tau")
        penalised = config.density is None
        return ("penalty",) * penalised + ("temperature",) * tempered

    def with_value(self, name: str, value: Tree) -> "GANetTask":
        """The task with another value of a number in `sweepable`, which may be traced."""
        if is_traced(value):
            return dataclasses.replace(self, **{name: value})
        config = dataclasses.replace(self.model.config, **{name: value})
        return dataclasses.replace(self, model=self.model.clone(config=config))

    def init(self, key: Array, batch: Batch) -> Tree:
        """Returns parameters for batches with the widths of this one."""
        streams = dict(zip(("params", "dropout", "gate"), jax.random.split(key, 3), strict=True))
        # not that of a schedule: no step is known yet
        tau = self.model.config.temperature
        return self.model.init(streams, batch, train=True, temperature=tau)["params"]

    def loss(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> tuple[Array, Metrics]:
        """Returns the loss summed over the real rows, and metrics as sums and counts."""
        config, weight = self.model.config, batch["weight"]
        estimator = self._by_values(batch)
        output: Output
        if estimator is not None:
            output, likelihood = self._estimated(params, batch, rngs, estimator)
        else:
            tau = self._temperature(batch)
            output = self.model.apply(
                {"params": params}, batch, train=True, temperature=tau, rngs=rngs
            )
            likelihood = cross_entropy(output.logits, batch["label"])
        loss = likelihood
        metrics = {}
        if config.system == "ganet":
            mask = F.length_mask(batch["lengths"], batch["tokens"].shape[1])
            open_probability = nn.sigmoid(output.gate_logits)
            if config.density is not None:
                term, multiplier = constraint(
                    params["multiplier"], F.gate_penalty(open_probability, mask), config.density
                )
                loss = loss + term
                metrics["multiplier"] = Ratio.of(multiplier, weight)
            else:
                sampled = config.penalty_on == "gate" and estimator is None
                strength = config.penalty if self.penalty is None else self.penalty
                penalised = output.gates if sampled else open_probability
                loss = loss + strength * F.gate_penalty(penalised, mask)
            metrics["density"] = Ratio.of(F.gate_penalty(output.gates, mask), weight)
        metrics["loss"] = Ratio.of(loss, weight)
        metrics["cross_entropy"] = Ratio.of(likelihood, weight)
        metrics["accuracy"] = Ratio.of(accuracy(output.logits, batch["label"]), weight)
        return jnp.sum(loss * weight), metrics

    def _temperature(self, batch: Batch) -> float | Array | None:
        """tau of the step of a batch in training; None where there are no gates."""
        config = self.model.config
        if config.system != "ganet":
            return None
        return schedule(config, batch.get("step"), self.temperature)

    def _by_values(self, batch: Batch) -> Estimator | None:
        """The estimator that is given the loss as a function of the gates, if that is how."""
        if self.estimator is not None:
            return self.estimator
        config, tau = self.model.config, self._temperature(batch)
        if tau is None:
            return None
        estimator = named(config.estimation, temperature=tau, draws=config.estimator_draws)
        return None if hasattr(estimator, "gates") else estimator

    def _estimated(
        self, params: Params, batch: Batch, rngs: dict[str, Array], estimator: Estimator
    ) -> tuple[Output, Float[Array, " B"]]:
        """(a pass under the gates of the first draw, the estimate of every example).

        Rows are run together where the patterns are known before any value of the loss is.
        """
        rows = {"example_id": jnp.arange(batch["tokens"].shape[0], dtype=jnp.int32), **batch}
        started: Output = self.model.apply(
            {"params": params}, rows, rngs=rngs, method=GANet.to_estimate
        )
        encoded, keys = started
        # other bits than those that dropped the words
        later = {name: jax.random.fold_in(key, 1) for name, key in rngs.items()}

        def passed(params, encoded, gates, batch):
            return self.model.apply(
                {"params": params}, encoded, gates, batch, train=True, rngs=later, method=GANet.read
            )

        def passes(gates):
            """Every pattern [B, k, T] is a draw of all rows."""
            run = lambda one: passed(params, encoded, one, rows)  # noqa: E731
            outputs = jax.vmap(run, in_axes=1)(gates)
            values = jax.vmap(cross_entropy, in_axes=(0, None), out_axes=1)(
                outputs.logits, batch["label"]
            )
            return values, jax.tree.map(lambda x: x[0], outputs)

        if isinstance(estimator, ByValues):
            likelihood, output = expectation_together(
                passes, estimator, encoded.gate_logits, keys, encoded.mask
            )
            return output, likelihood

        def cost(gates, params, *row):
            encoded, batch = jax.tree.map(lambda x: x[None], row)
            output = passed(params, encoded, gates[None], batch)
            return cross_entropy(output.logits, batch["label"])[0]

        expected = expectation(cost, estimator)

        def estimate(logits, key, mask, *row):
            return expected(logits, key, params, *row, mask=mask)

        mask = encoded.mask
        likelihood = jax.vmap(estimate)(encoded.gate_logits, keys, mask, encoded, rows)
        noise = jax.vmap(lambda key: noise_rows(key, max(estimator.rows, 1), mask.shape[-1])[0])
        held = jax.lax.stop_gradient((params, encoded))
        output = passed(*held, _draw(encoded, noise(keys)), rows)
        return output.replace(gate_logits=encoded.gate_logits), likelihood

    def evaluate(self, params: Params, batch: Batch) -> tuple[Metrics, Predictions]:
        """Returns metrics and per-example predictions; for GA-Net under every gate mode.

        Metrics: "loss" (cross-entropy) and "accuracy" under `config.test_gate`; for GA-Net also
        accuracy_*, density_* (sentence mean), density_tok_* (token-pooled) per gate mode, each
        averaged over the draws, and closed_* (rows whose gates were all closed).
        Predictions: "label", "predicted", "correct" and, per example, "attended" tokens.
        """
        config, label, weight = self.model.config, batch["label"], batch["weight"]
        rngs = {"gate": jax.random.key(self.eval_seed)}
        variables = {"params": params}
        if config.system != "ganet":
            output: Output = self.model.apply(variables, batch)
            metrics = class_metrics(output.logits, label, weight)
            attended = batch["lengths"]
            if config.system == "local":
                attended = jnp.sum(output.attention > 0, axis=-1)
            return metrics, self._predictions(batch, output.logits, attended)

        # at the end of a schedule it does not matter what it started from
        tau = self.temperature if config.final_temperature is None else None
        modes: Any = self.model.apply(variables, batch, tau, rngs=rngs, method=GANet.gate_modes)
        metrics = {
            f"{name}_{mode}": ratio
            for mode, output in modes.items()
            for name, ratio in on_rows(self._gate_metrics, output, batch, rows=()).items()
        }
        hard = modes["threshold" if config.test_gate == "threshold" else "sample"]
        draw = _first_draw(hard)
        logits = draw.logits
        source = config.test_gate
        if config.test_gate == "multi_sample":
            logits, source = _mean_log_probability(hard.logits), "sample"
            metrics |= class_metrics(logits, label, weight)
        else:
            metrics["accuracy"] = metrics[f"accuracy_{source}"]
            metrics["loss"] = metrics[f"loss_{source}"]
        metrics["density"] = metrics[f"density_{source}"]
        attended = jnp.sum(draw.gates > 0, axis=-1)
        if config.empty == "soft":
            attended = jnp.where(draw.closed, batch["lengths"], attended)
        return metrics, self._predictions(batch, logits, attended)

    def _gate_metrics(self, output: Output, batch: Batch) -> Metrics:
        """Means over examples and draws: every draw counts every example once."""
        draws = output.logits.shape[0]
        repeat = lambda values: jnp.tile(values, draws)  # noqa: E731
        label, weight = repeat(batch["label"]), repeat(batch["weight"])
        lengths = repeat(batch["lengths"])
        logits = output.logits.reshape(-1, output.logits.shape[-1])
        gates = output.gates.reshape(-1, output.gates.shape[-1])
        mask = F.length_mask(lengths, gates.shape[-1])
        metrics = {
            **class_metrics(logits, label, weight),
            "density": Ratio.of(F.gate_penalty(gates, mask), weight),
            "density_tok": Ratio(
                total=jnp.sum(jnp.sum(gates, axis=-1) * weight),
                count=jnp.sum(lengths * weight).astype(jnp.float32),
            ),
        }
        if output.closed is not None:
            metrics["closed"] = Ratio.of(output.closed.reshape(-1).astype(jnp.float32), weight)
        return metrics

    def _predictions(self, batch: Batch, logits: Array, attended: Array) -> Predictions:
        more = {"attended": attended, "length": batch["lengths"]}
        return class_predictions(logits, batch) | more
