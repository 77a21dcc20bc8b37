"""GA-Net (Xue et al. 2020): attention sees only the words that a network of gates opens.

    h = BiLSTM(x),  e_t = w . tanh(h_t)              eq. 1, `GANet.encode`
    a = AuxiliaryNetwork(x),  p_t = sigmoid(a_t)     eq. 4, `GANet.encode`
    g_t ~ Bernoulli(p_t) in evaluation               eqs. 5 and 6, `draw_gates`
    g_t = sigmoid((a_t + L_t) / tau) in training     eqs. 7 and 8, `gates.draw` with `SoftGumbel`
    alpha_t = g_t exp(e_t) / sum_s g_s exp(e_s)      eqs. 2 and 9, `GANet.attend`
    c = sum_t alpha_t h_t,  y = W tanh(c) + b        eq. 3, `GANet.attend` and `classify`

L is the difference of two Gumbel variables, so that eq. 8 with two classes is this sigmoid. Eqs. 7
and 8 are not in this file: `GANet.__call__` passes the estimator of the configuration, by default
`gates.SoftGumbel`, to `gatedjax.gates.draw`, which computes the sigmoid. The loss, eq. 10, is in
`GANetTask`. The three baselines of the paper have the same backbone and another `system`. With
`gates_on="input"` the gates also remove words from the input of the backbone, see `_ga_net_input`.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.fields import check_fields
from gatedjax._utils.types import Keywords, Output
from gatedjax.functional._attention import (
    pool_finite,
    softmax_of_open,
    softmax_of_relaxed,
    softmax_where,
)
from gatedjax.functional._checks import check_floating, check_same_shape, check_values, wide_dtype
from gatedjax.functional._random import drop, noise_of
from gatedjax.functional._relaxations import binarize
from gatedjax.functional._types import Carry
from gatedjax.gates import Estimator, Pathwise, SoftGumbel
from gatedjax.gates._train import Gates, draw, gates_of
from gatedjax.models import _ga_net_input as on_input
from gatedjax.models._checks import Batch, check_batch, schedule
from gatedjax.models._classification import word_vectors
from gatedjax.models._ga_net_config import GANetConfig as GANetConfig
from gatedjax.models._ga_net_config import GANetDropout as GANetDropout
from gatedjax.models._ga_net_config import GateConfig as GateConfig
from gatedjax.models._ga_net_parts import Encoded, first_draw, mean_log_probability, open_one
from gatedjax.models._ga_net_parts import GANetOutput as GANetOutput
from gatedjax.nn._keys import example_keys
from gatedjax.nn._types import Table

GATE_MODES = ("sample", "threshold", "expected", "relaxed")


def draw_gates(
    logits: Float[Array, "B T"], noise: Float[Array, "*S B T"]
) -> Float[Array, "*S B T"]:
    """Draws g_t ~ Bernoulli(sigmoid(a_t)) (eqs. 5 and 6): 1 where a + L > 0, for logistic noise L.

        >>> print(draw_gates(jnp.array([[1.0, 1.0, -1.0]]), jnp.array([[0.0, -2.0, 2.0]])))
        [[1. 0. 1.]]

    The noise may have a leading axis S, for S draws.
    """
    return binarize(jnp.broadcast_to(logits, noise.shape) + noise).astype(jnp.float32)


class GANet(nn.Module):
    """GA-Net or one of its baselines: a classifier of sequences.

        >>> model = GANet(GANetConfig(hidden=4, num_layers=1), vocab_size=50, num_classes=2)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> output, variables = jax.eval_shape(model.init_with_output, jax.random.key(0), batch)
        >>> print(output.logits.shape, output.gates.shape)
        (1, 2) (1, 3)

    Call the network with a batch of B texts of at most T words, {"tokens": int [B, T], "lengths":
    int [B]} and, for draws that belong to examples, "example_id": int [B]. The streams are
    "dropout" (training) and "gate" (training and sampled evaluation). Without the stream "gate"
    evaluation opens the gates with a probability above 0.5. In all methods `batch` is such a batch,
    `encoded` the result of `encode` for it, and train=True makes it a pass with dropout.

    Attributes:
      config: a `GANetConfig`, the options of the network.
      vocab_size: rows of the embedding table, padding included.
      num_classes: C, the number of classes.
      embeddings: a pretrained table [vocab_size, embedding_dim] as the initial word vectors, or
        None.

    Reference: Xue et al. 2020, "Not All Attention Is Needed".
    """

    config: GANetConfig
    vocab_size: int
    num_classes: int
    embeddings: Table | None = None

    def setup(self) -> None:
        """Creates the layers of `config.system`: embedding, LSTM, scores, gates, classifier."""
        check_fields(self)
        c = self.config
        types: Keywords = {"dtype": jnp.dtype(c.dtype)}
        self.embed = word_vectors(self)
        self.backbone = gnn.LSTM(
            c.hidden,
            num_layers=c.num_layers,
            bidirectional=True,
            dropout=c.dropouts.layer_dropout,
            recurrent_dropout=c.dropouts.recurrent_dropout,
            **types,
        )
        # A system creates only the layers that it uses, because unused layers would be stored, too.
        if c.system != "bilstm":
            self.score = gnn.TokenScore(c.score, **types)
        if c.system == "ganet":
            self.auxiliary = gnn.GatePredictor(
                c.aux,
                features=c.aux_hidden,
                positions=c.aux_positions,
                bias_init=nn.initializers.constant(c.gates.gate_bias_init),
                **types,
            )
            if c.gates.density is not None:
                self.param("multiplier", nn.initializers.zeros, ())
        if c.system == "local":
            self.position = gnn.LocalPosition(**types)
        self.classifier = nn.Dense(self.num_classes, name="classifier", **types)

    def __call__(
        self,
        batch: Batch,
        *,
        train: bool = False,
        temperature: float | Array | None = None,
        estimator: Estimator | None = None,
    ) -> GANetOutput:
        """Runs the network with the gates of training, or of evaluation.

        Training draws the noise of the gates from the PRNG stream "gate", and the masks of dropout
        from "dropout". In evaluation the option `config.gates.test_gate` is "sample" (a draw),
        "multi_sample" (several draws) or "threshold" (open with a probability above 0.5); the draws
        need the stream "gate", and without it the gates are thresholded.

        Args:
          batch: "tokens" int [B, T] and "lengths" int [B] of B texts of at most T words; optionally
            "example_id" int [B], the examples to which random bits belong (default: row numbers),
            and "step" int [B], the number of the training step in all rows, from which the schedule
            computes the temperature.
          train: True runs the network with dropout and with gates that `estimator` draws.
          temperature: the temperature tau of the relaxed gates, instead of that of the
            configuration; it may be traced, and has no effect if `estimator` is given.
          estimator: draws the gates of training, an object such as `gates.SoftGumbel(0.5)`; None
            takes that of the configuration.

        Returns:
          A `GANetOutput` with `logits`, the scores of C classes [B, C], `attention`, the weights
          [B, T], `gates` [B, T], `gate_logits` [B, T], the log-odds of open gates, `scores` [B, T],
          the attention scores, and `closed` [B], True for texts with all gates closed. The gates
          are 0 or 1 in evaluation; in training they are so if the estimator draws hard gates, and
          in (0, 1) for relaxed gates. With "multi_sample" the gates come from the first draw,
          and the logits are the log of the class probabilities averaged over the draws. The gate
          fields of a baseline are None.
        """
        config, encoded = self.config, self.encode(batch, train=train)
        if config.system != "ganet":
            return self.attend_without_gates(encoded, batch, train=train)
        logits = encoded.gate_logits
        if train:
            noise = noise_of(self.keys_of(batch, "gate"), logits.shape[-1])
            if estimator is None:
                # The batch of an initialisation may have no step.
                if temperature is None and self.is_initializing():
                    temperature = config.gates.temperature
                if temperature is None:
                    temperature = schedule(config.gates, batch.get("step"))
                estimator = config.gates.make_estimator(temperature)
            # Eqs. 7 and 8: with `SoftGumbel` g = sigmoid((a + L) / tau).
            gates = gates_of(estimator, logits, noise, encoded.mask)
            # The `empty` rule is only for gates that can be exactly 0.
            may_close = config.gates.gates_on == "attention" and gates.logarithms is None
            gates = gates._replace(hard=gates.hard or may_close)
            has_slope = isinstance(estimator, Pathwise)
            return self._attend(encoded, gates, batch, train=True, has_slope=has_slope)
        output: Output = self._attend(encoded, self.test_gates(encoded, batch), batch)
        if output.logits.ndim == 2:
            return output
        return first_draw(output).replace(logits=mean_log_probability(output.logits))

    def encode(self, batch: Batch, *, train: bool = False) -> Encoded:
        """Computes the states h [B, T, D], scores e and gate logits a [B, T] (eqs. 1 and 4).

        D is the width of a state. `batch` has "tokens" int [B, T] and "lengths" int [B] of B texts
        of at most T words, and train=True adds dropout. If the gates act on the input, the result
        has word vectors in place of states and scores. The result is an `Encoded`, which also has
        the mask bool [B, T]. Dropout draws from the PRNG stream "dropout".
        """
        config = self.config
        check_batch(batch, tokens="B T", lengths="B")
        tokens = batch["tokens"]
        mask = F.length_mask(batch["lengths"], tokens.shape[1])
        xs = self.embed(tokens)
        # The backbone and the auxiliary network read the same vectors, dropout included.
        if train and config.dropouts.embedding_dropout > 0:
            keys = self.keys_of(batch, "dropout")
            xs = drop(xs, config.dropouts.embedding_dropout, keys)
        # The backbone has to wait for the gates, because it reads gated words.
        if config.gates.gates_on == "input":
            logits = self.auxiliary(xs, mask)
            return Encoded(None, None, mask, scores=None, gate_logits=logits, words=xs)
        ids = batch.get("example_id")
        states, last = self.merge_directions(
            *self.backbone(xs, mask, deterministic=not train, example_id=ids)
        )
        scores = None if config.system == "bilstm" else self.score(states)
        gated = config.system == "ganet"
        return Encoded(states, last, mask, scores, self.auxiliary(xs, mask) if gated else None)

    def attend(
        self,
        encoded: Encoded,
        gates: Gates,
        batch: Batch,
        *,
        train: bool = False,
        has_slope: bool = False,
    ) -> GANetOutput:
        """Computes the output (eqs. 2, 3 and 9) under gates [B, T], or [S, B, T] of S draws.

        Args:
          encoded: the result of `encode` for the batch.
          gates: a `gates.Gates` with `values` in [0, 1] for each word; `hard` is True for 0 and 1.
          batch: "tokens" [B, T] and "lengths" [B] of B texts of at most T words.
          train: True runs the network with dropout.
          has_slope: True for hard gates [B, T] at which the loss must have a derivative, as in
            straight-through training.

        Returns:
          A `GANetOutput` with the logits [B, C] of C classes, and attention, gates and scores
          [B, T]. For S draws its fields have a leading axis S, except `gate_logits` and, unless the
          gates act on the input, `scores`.

        Raises:
          TypeError: if the gates or their logarithms are no floating numbers.
          ValueError: if the gates have another shape than the words or their logarithms or, where
            they are known, gates are negative or logarithms positive.
        """
        values, shape = gates.values, jnp.shape(encoded.mask)
        check_floating(gates=values)
        if jnp.ndim(values) not in (2, 3) or jnp.shape(values)[-2:] != shape:
            raise ValueError(
                f"gates must have shape {shape}, or draws of it, got {jnp.shape(values)}"
            )
        requirement = "not be negative; logarithms of gates belong in `Gates.logarithms`"
        check_values("gates", values, encoded.mask, lambda g: g < 0, requirement)
        if gates.logarithms is not None:
            name, logarithms = "gates.logarithms", gates.logarithms
            check_floating(**{name: logarithms})
            check_same_shape(gates=values, **{name: logarithms})
            requirement = "not be positive; gates themselves belong in `Gates.values`"
            check_values(name, logarithms, encoded.mask, lambda g: g > 0, requirement)
        return self._attend(encoded, gates, batch, train=train, has_slope=has_slope)

    def _attend(
        self,
        encoded: Encoded,
        gates: Gates,
        batch: Batch,
        *,
        train: bool = False,
        has_slope: bool = False,
    ) -> GANetOutput:
        config = self.config
        if config.gates.gates_on == "input":
            if gates.hard and not has_slope:
                return on_input.read_open_words(self, encoded, gates, batch, train=train)
            encode = on_input.skip_closed_words if gates.hard else on_input.read_scaled_words
            encoded = encode(self, encoded, gates, batch, train=train)
        values, closed = open_one(config, encoded, gates) if gates.hard else (gates.values, None)
        mask, scores = (jnp.broadcast_to(x, values.shape) for x in (encoded.mask, encoded.scores))
        if gates.logarithms is not None:
            # Eq. 9 in log space: a gate too small for float32 still has a weight and a gradient.
            weights = softmax_of_relaxed(scores, gates.logarithms, mask)
        else:
            # Eq. 2: the softmax over the open words.
            weights = softmax_of_open(scores, values, mask)
        # Eq. 2 is 0 / 0 for a text with all gates closed, which the paper does not discuss.
        if closed is not None and config.gates.empty == "soft":
            weights = jnp.where(closed[..., None], softmax_where(scores, mask), weights)
        pooled = self.pool_states(encoded.states, weights)
        return GANetOutput(
            logits=self.classify(pooled, batch, train=train),
            attention=weights,
            gates=jnp.where(mask, values, 0),
            gate_logits=encoded.gate_logits,
            scores=encoded.scores,
            closed=closed,
        )

    def merge_directions(
        self, carries: Carry, states: Float[Array, "B T 2H"]
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B D"]]:
        """Merges the two directions of the backbone; returns the states and the last state."""
        forward, backward = (carry.hidden.astype(states.dtype) for carry in carries[-1])
        # GA-Net uses the attention of Zhou et al. 2016, who add the directions. The paper does not
        # say how it merges them, and the operations in its Table 3 fit both.
        if self.config.merge == "concat":
            return states, jnp.concatenate([forward, backward], axis=-1)
        hidden = forward.shape[-1]
        return states[..., :hidden] + states[..., hidden:], forward + backward

    def pool_states(
        self, states: Float[Array, "*S B T D"], weights: Float[Array, "*S B T"]
    ) -> Float[Array, "*S B D"]:
        """Computes c = sum_t alpha_t h_t, or tanh(c) with `post_tanh`, of one or several draws."""
        # The weights of several draws share their states, which are 0 at padding.
        share = weights.ndim == states.ndim
        pooled = (jax.vmap(pool_finite, (None, 0)) if share else pool_finite)(states, weights)
        # GA-Net uses the attention of Zhou et al. 2016, who apply tanh to the pooled state.
        return jnp.tanh(pooled) if self.config.post_tanh else pooled

    def keys_of(self, batch: Batch, stream: str) -> Key[Array, " B"]:
        """Returns a PRNG key of a stream, such as "gate", for each example of a batch."""
        return example_keys(self, stream, batch.get("example_id"), batch["tokens"].shape[0])

    def classify(self, features: Array, batch: Batch, *, train: bool = False) -> Array:
        """Computes class scores y [B, C], in float32 or wider, of pooled states.

        features are the pooled states c [B, D] of width D, or [S, B, D] of S draws for scores
        [S, B, C] of C classes. With train=True they get dropout, with bits that belong to
        "example_id" of the batch.
        """
        if train and self.config.dropouts.pool_dropout > 0:
            keys = self.keys_of(batch, "dropout")
            features = drop(features, self.config.dropouts.pool_dropout, keys)
        logits = self.classifier(features)
        return logits.astype(wide_dtype(logits))

    def attend_without_gates(
        self, encoded: Encoded, batch: Batch, *, train: bool = False
    ) -> GANetOutput:
        """Computes the output of a baseline: the last state, soft attention or local attention.

        encoded is the result of `encode` for the batch, "tokens" [B, T] of T words per text and
        "lengths" [B]; with train=True the pooled states get dropout. The result is a `GANetOutput`
        with the logits [B, C] of C classes and, except for the last state, attention and scores
        [B, T]; its gate fields are None.
        """
        config, lengths = self.config, batch["lengths"]
        if config.system == "bilstm":
            # The last states are that of the last real word forwards and of the first word
            # backwards.
            return GANetOutput(logits=self.classify(encoded.last, batch, train=train))
        if config.system == "soft":
            weights = softmax_where(encoded.scores, encoded.mask)
        else:
            weights = F.local_attention_weights(
                encoded.scores,
                self.position(encoded.last, lengths),
                config.local_half_width,
                lengths=lengths,
                renormalise=config.local_renormalise,
            )
        pooled = self.pool_states(encoded.states, weights)
        logits = self.classify(pooled, batch, train=train)
        return GANetOutput(logits=logits, attention=weights, scores=encoded.scores)

    def test_gates(self, encoded: Encoded, batch: Batch) -> Gates:
        """Returns the gates of evaluation: a draw [B, T], S draws [S, B, T], or thresholded [B, T].

        There are T words per text. The option `config.gates.test_gate` selects them: "sample",
        "multi_sample" or "threshold". Without the stream "gate" gates with a probability above 0.5
        are open. encoded is the result of `encode` for the batch. The values of the returned
        `gates.Gates` are 0 and 1.
        """
        if self.config.gates.test_gate == "threshold" or not self.has_rng("gate"):
            return Gates(F.threshold_gates(encoded.gate_logits), hard=True)
        draws = draw_gates(encoded.gate_logits, self.test_noise(encoded, batch))
        return Gates(draws[0] if self.config.gates.test_gate == "sample" else draws, hard=True)

    def test_noise(self, encoded: Encoded, batch: Batch) -> Float[Array, "S B T"]:
        """Draws the logistic noise of S = `config.gates.test_samples` draws, for each text.

        It draws from the PRNG stream "gate". The bits belong to "example_id" [B] of the batch, or
        to the row numbers. encoded is the result of `encode` for the batch of B texts of T words.
        """
        keys, size = self.keys_of(batch, "gate"), encoded.mask.shape[-1]

        # `vmap` traces this function once, where a loop would trace it for each of many draws.
        def noise_of_draw(number: Array) -> Array:
            return noise_of(jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, number), size)

        numbers = jnp.arange(self.config.gates.test_samples, dtype=jnp.uint32)
        return jax.vmap(noise_of_draw)(numbers)

    def gate_modes(
        self,
        batch: Batch,
        temperature: float | Array | None = None,
        *,
        encoded: Encoded | None = None,
    ) -> dict[str, GANetOutput]:
        """Computes the outputs under all kinds of gates, from a single pass over the sequence.

        Args:
          batch: "tokens" [B, T] and "lengths" [B] of B texts of at most T words.
          temperature: tau of "relaxed", instead of the last temperature of the configuration.
          encoded: the result of `encode` for the batch, if it is computed already.

        Returns:
          The outputs by mode: "sample" (gates of 0 and 1) and "relaxed" (gates between 0 and 1), of
          `gates.test_samples` draws with the same noise; "threshold" (open with a probability above
          0.5); and "expected" (the open probabilities as gates). All fields but
          gate_logits and scores have a leading axis over the draws, of size 1 for the latter two
          modes. If the gates act on the input, scores have it too, because each draw is a separate
          pass over the sequence.

        Raises:
          ValueError: if the system has no gates.
        """
        config = self.config
        encoded = self.encode(batch) if encoded is None else encoded
        self.check_gated()
        noise, logits = self.test_noise(encoded, batch), encoded.gate_logits
        if temperature is None:
            last = config.gates.final_temperature
            temperature = config.gates.temperature if last is None else last
        # A leading axis of size 1 makes modes without draws like modes with draws.
        modes = {
            "sample": Gates(draw_gates(logits, noise), hard=True),
            "threshold": Gates(F.threshold_gates(logits[None]), hard=True),
            "expected": Gates(nn.sigmoid(logits[None])),
            "relaxed": draw(SoftGumbel(temperature), jnp.broadcast_to(logits, noise.shape), noise),
        }
        return {name: self.attend(encoded, gates, batch) for name, gates in modes.items()}

    def with_gates(
        self,
        batch: Batch,
        gates: Float[Array, "S B T"],
        *,
        soft: bool = False,
        encoded: Encoded | None = None,
    ) -> GANetOutput:
        """Computes the outputs under given gates, from a single pass over the sequence.

        Args:
          batch: "tokens" [B, T] and "lengths" [B] of B texts of at most T words.
          gates: S patterns of gates, 0 or 1 for each of T words of B texts; the option
            `gates.empty` is the rule for a text with all gates closed.
          soft: True if gates are numbers from 0 to 1, as for "expected" and "relaxed"; a text with
            all gates 0 is pooled to 0.
          encoded: the result of `encode` for the batch, if it is computed already.

        Returns:
          A `GANetOutput` with the logits [S, B, C] of C classes, and attention and gates
          [S, B, T]. Its fields have a leading axis S, except `gate_logits` and, unless the gates
          act on the input, `scores`.

        Raises:
          ValueError: if the system has no gates.
        """
        encoded = self.encode(batch) if encoded is None else encoded
        self.check_gated()
        return self.attend(encoded, Gates(gates, hard=not soft), batch)

    def read(
        self, encoded: Encoded, gates: Float[Array, "B T"], batch: Batch, *, train: bool = False
    ) -> GANetOutput:
        """Computes the `GANetOutput` of encoded words under hard gates [B, T], 0 or 1.

        encoded is the result of `encode` for the batch, "tokens" [B, T] of T words per text and
        "lengths" [B], and train=True adds dropout.
        """
        return self.attend(encoded, Gates(gates, hard=True), batch, train=train)

    def to_estimate(self, batch: Batch) -> tuple[Encoded, Key[Array, " B"]]:
        """Returns the result of `encode` in training, and PRNG keys of the noise of the gates.

        There is a key for each example of the batch, "tokens" [B, T] of T words per text and
        "lengths" [B]. An estimator of the gradient of the gates needs both results.
        """
        return self.encode(batch, train=True), self.keys_of(batch, "gate")

    def from_pooled(self, pooled: Float[Array, "... D"]) -> Float[Array, "... C"]:
        """Computes the scores of C classes from pooled states of D numbers, in evaluation.

        pooled are the states before the tanh that the option `post_tanh` adds; "..." are any axes.
        """
        return self.classify(jnp.tanh(pooled) if self.config.post_tanh else pooled, {})

    def compact(self, batch: Batch, *, capacity: int) -> GANetOutput:
        """Computes the output of evaluation with a backbone that reads only the open words.

        Args:
          batch: "tokens" [B, T] and "lengths" [B] of B texts of at most T words.
          capacity: number of steps of the backbone, at least the number of open words of a text,
            such as a result of `functional.plan_capacity`. A batch with more open words in a text
            is read in T steps.

        Returns:
          The `GANetOutput` of a call, with the logits [B, C] of C classes and gates [B, T], except
          that `scores` is None.

        Raises:
          ValueError: if the gates do not act on the input, or test_gate is "multi_sample".
        """
        self.check_gated()
        if self.config.gates.gates_on != "input":
            raise ValueError(
                "gates_on must be 'input' for compact, got 'attention': it reads all words"
            )
        if self.config.gates.test_gate == "multi_sample":
            raise ValueError(
                "test_gate must have a single draw for compact, got 'multi_sample': use 'sample'"
            )
        encoded = self.encode(batch)
        gates = self.test_gates(encoded, batch)
        return on_input.read_into_slots(self, encoded, gates, capacity, batch)

    def check_gated(self) -> None:
        """Raises ValueError for a baseline, which has no gates."""
        if self.config.system != "ganet":
            raise ValueError(f"system must be 'ganet' for gates, got {self.config.system!r}")
