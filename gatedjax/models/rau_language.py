"""RAU (Zhong et al. 2018), section on language modelling: prediction of the next word of a text.

    p(w_{t+1} | w_1 .. w_t) = softmax(W h_t + b),    h_t of the last of two recurrent layers

The text is read in windows. Each window starts with the state at the end of the window before, and
gradients stay within a window (truncated back-propagation through time).
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax._utils.fields import check_fields
from gatedjax._utils.types import Params, Tree
from gatedjax.functional._checks import check_dtype, check_shape
from gatedjax.functional._devices import rows_like, take_rows
from gatedjax.functional._export import exportable
from gatedjax.functional._types import Carry
from gatedjax.models._checks import Batch, Metrics, Predictions, check_batch
from gatedjax.models._classification import NetworkTask
from gatedjax.models.rau import RAUConfig, recurrent_layers
from gatedjax.nn._initializers import symmetric_uniform
from gatedjax.nn._keys import example_keys, fold_keys
from gatedjax.training import Carried, Ratio


@exportable
@struct.dataclass
class RAULanguageOutput:
    """The output of an `RAULanguageModel` for a window, T successive words of each of B texts.

    V is the number of words of the vocabulary, and H the width of the states.

    Attributes:
      logits: scores of the next word [B, T, V], float32.
      states: the hidden states of the last layer [B, T, H], the input of the softmax: after
        dropout, 0 at padding.
      carry: the state after the window, to be passed with the next window: a tuple with the carry
        of each layer, such as h [B, H] of a GRU or an `LSTMState`.
    """

    logits: Array
    states: Array
    carry: Carry


class RAULanguageModel(nn.Module):
    """A language model: word vectors, recurrent layers, and a softmax over the vocabulary.

        >>> model = RAULanguageModel(RAUConfig(hidden=4, embedding_dim=4), vocab_size=50)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> init = model.init_with_output
        >>> output, variables = jax.eval_shape(init, jax.random.key(0), batch)
        >>> print(output.logits.shape, output.states.shape)
        (1, 3, 50) (1, 3, 4)

    Call the network with a window, T successive words of each of B texts: a batch {"tokens": int
    [B, T], "lengths": int [B]} and optionally "reset": bool [B], True for rows that begin a text.
    Training with dropout needs the stream "dropout"; its bits belong to "example_id": int [B] (row
    numbers by default). Dropout acts on word vectors, between layers and before the softmax, and on
    the recurrent connections only with recurrent_dropout.

    Attributes:
      config: an `RAUConfig`, the options of the network; `init_scale` also applies to word vectors
        and softmax.
      vocab_size: V, the number of words; the id 0 is a word like all other ids.

    Reference: Zhong, Yue and Ling 2018, "Recurrent Attention Unit".
    """

    config: RAUConfig
    vocab_size: int

    def setup(self) -> None:
        """Creates the embedding, the recurrent layers, and the kernel and bias of the softmax."""
        check_fields(self)
        c = self.config
        uniform = symmetric_uniform(0.1 if c.init_scale is None else c.init_scale)
        self.embed = nn.Embed(
            self.vocab_size, c.embedding_dim, embedding_init=uniform, dtype=jnp.dtype(c.dtype)
        )
        self.recurrent = recurrent_layers(c)
        self.kernel = self.param("kernel", uniform, (c.hidden, self.vocab_size))
        self.bias = self.param("bias", nn.initializers.zeros_init(), (self.vocab_size,))

    def __call__(
        self, batch: Batch, carry: Carry = None, *, train: bool = False
    ) -> RAULanguageOutput:
        """Reads a window, T successive words of each of B texts.

        Args:
          batch: "tokens" int [B, T], "lengths" int [B] and optionally "reset" bool [B], True for
            rows that begin a new text.
          carry: the state before the window, `carry` of the last output; None means the beginning
            of a text. It is a tuple with the carry of each layer, such as h [B, H] of a GRU.
          train: True runs the network with dropout, which draws from the PRNG stream "dropout".

        Returns:
          An `RAULanguageOutput` with the scores of the next words and the carry after them.
        """
        states, carry = self._run(batch, carry, train)
        kernel = self.kernel.astype(states.dtype)
        # The logits are float32, because a softmax over the vocabulary needs more digits than
        # bfloat16 has.
        logits = jnp.matmul(states, kernel, preferred_element_type=jnp.float32)
        return RAULanguageOutput(logits + self.bias[None, None], states, carry)

    def score(
        self, batch: Batch, carry: Carry = None, *, train: bool = False
    ) -> tuple[Float[Array, "B T"], Carry]:
        """Computes the negative log-likelihoods of the next words without storing their logits.

        Args:
          batch: "tokens" int [B, T] (T words per text), "lengths" int [B] and "targets" int [B, T],
            the next words, and optionally "reset" bool [B], True for rows that begin a new text.
          carry: the state before the window, `carry` of `RAULanguageOutput`; None means the
            beginning of a text.
          train: True runs the network with dropout.

        Returns:
          Negative log-likelihoods in nats, 0 at padding, and the carry for the next window, a tuple
          with the carry of each layer.
        """
        check_batch(batch, tokens="B T", lengths="B", targets="B T")
        states, carry = self._run(batch, carry, train)
        kernel = self.kernel.astype(states.dtype)
        targets = batch["targets"]
        mask = F.length_mask(batch["lengths"], targets.shape[1])
        return F.linear_cross_entropy(states, kernel, targets, bias=self.bias, mask=mask), carry

    def _run(self, batch: Batch, carry: Carry, train: bool) -> tuple[Array, Tree]:
        """Returns (states of the last layer [B, T, H], carry for the next window)."""
        config = self.config
        check_batch(batch, tokens="B T", lengths="B")
        tokens, lengths = batch["tokens"], batch["lengths"]
        if not jnp.issubdtype(tokens.dtype, jnp.integer):
            raise ValueError(f"tokens must be integers, got dtype {tokens.dtype}")
        if "reset" in batch:
            reset = {"reset": batch["reset"]}
            check_dtype(jnp.bool_, "bool (True = the row begins a text)", reset)
            check_shape(lengths.shape, **reset)
        # Rows with a reset, and all rows of the first window, start with this state.
        begin = self.recurrent.initial_carry(tokens.shape[0])
        if carry is None:
            carry = begin
        elif "reset" in batch:
            new = batch["reset"][:, None]
            # The carries must be sharded like the batch, because `where` needs equal shardings.
            begin = rows_like(begin, tokens)
            carry = jax.tree.map(lambda old, first: jnp.where(new, first, old), carry, begin)
        # `take_rows` replaces the call of `nn.Embed`, because it also supports sharded batches.
        table = self.embed.embedding.astype(self.embed.dtype)
        if config.freeze_embeddings:
            table = jax.lax.stop_gradient(table)
        xs = take_rows(table, tokens)
        keys = None
        if train and (config.dropouts.embedding_dropout > 0 or config.dropouts.state_dropout > 0):
            keys = example_keys(self, "dropout", batch.get("example_id"), tokens.shape[0])
            xs = F.example_dropout(xs, config.dropouts.embedding_dropout, keys)
        carry, states = self.recurrent(
            xs,
            F.length_mask(lengths, tokens.shape[1]),
            initial=carry,
            deterministic=not train,
            example_id=batch.get("example_id"),
        )
        if keys is not None:
            # The folded number gives the states other bits than the word vectors.
            states = F.example_dropout(states, config.dropouts.state_dropout, fold_keys(keys, 1))
        return states, carry


@dataclasses.dataclass(frozen=True)
class RAULanguageTask(NetworkTask):
    """The task of training and evaluating an `RAULanguageModel`.

    A window has T successive words of each of B texts. The loss is the sum over the steps of a
    window of the mean over its rows, which is T times the mean per token. The usual learning rates
    (SGD, 1) and clipping norms are chosen for this loss.

        >>> task = RAULanguageTask(RAULanguageModel(RAUConfig(hidden=4), vocab_size=50))
        >>> task.init_carried(None, {"tokens": jnp.array([[7, 9, 3]])}).rows[0].shape
        (1, 4)

    Attributes:
      model: the network.
    """

    model: RAULanguageModel

    def init_carried(self, key: Array | None, batch: Batch) -> Carried:
        """Returns the state at the beginning of a text.

        Args:
          key: not used.
          batch: a window with "tokens" [B, T]; T may be any number of words.

        Returns:
          `Carried` with `rows`, a tuple with the carry of each layer, such as h [B, H] of a GRU
          with H units, or an `LSTMState`, as in `RAULanguageOutput.carry`.
        """
        del key
        layers = recurrent_layers(self.model.config)
        return Carried(rows=layers.initial_carry(batch["tokens"].shape[0]))

    def loss(
        self, params: Params, batch: Batch, rngs: dict[str, Array], carried: Carried
    ) -> tuple[Metrics, Carried]:
        """Computes the training loss of a window.

        Args:
          params: the parameters, as from `init`.
          batch: the window, "tokens" and "targets" int [B, T] (T words per text), "lengths" int
            [B], optionally "reset" bool [B], True for rows that begin a new text, and
            "token_weight" [B, T], 1 at words and 0 at padding.
          rngs: a dict with the PRNG key of the stream "dropout".
          carried: the state before the window, as from `init_carried`.

        Returns:
          (metrics, carried): a dict with "loss" and "perplexity" of the real tokens and with
          "objective", T times the loss, which training minimises, each a `Ratio` of a sum and a
          count; and the state for the next window.
        """
        nll, carry = self._score(params, batch, carried.rows, train=True, rngs=rngs)
        metrics = _metrics(nll, batch["token_weight"])
        loss = metrics["loss"]
        target = Ratio(loss.total * nll.shape[1], loss.count)
        return metrics | {"objective": target}, dataclasses.replace(carried, rows=carry)

    def evaluate(
        self, params: Params, batch: Batch, carried: Carried
    ) -> tuple[Metrics, Predictions, Carried]:
        """Evaluates a window.

        Args:
          params: the parameters, as from `init`.
          batch: the window, "tokens" and "targets" int [B, T] (T words per text), "lengths" and
            "example_id" int [B], optionally "reset" bool [B], True for rows that begin a new text,
            and "token_weight" [B, T], 1 at words and 0 at padding.
          carried: the state before the window, as from `init_carried`.

        Returns:
          (metrics, predictions, carried): a dict with "loss" (nats per token) and "perplexity",
          each a `Ratio`; a dict of arrays [B] with "example_id", "tokens" (the number of words) and
          "nll" (the summed negative log-likelihood, in nats) of each row; and the state for the
          next window.
        """
        nll, carry = self._score(params, batch, carried.rows)
        check_batch(batch, example_id="B")
        real = batch["token_weight"] > 0
        predictions = {
            "example_id": batch["example_id"],
            "tokens": batch["lengths"],
            "nll": jnp.sum(jnp.where(real, nll, 0), axis=1),
        }
        metrics = _metrics(nll, batch["token_weight"])
        return metrics, predictions, dataclasses.replace(carried, rows=carry)

    def _score(self, params: Params, batch: Batch, carry: Carry, **options: Any) -> Tree:
        check_batch(batch, token_weight="B T")
        return self.model.apply(
            {"params": params}, batch, carry, method=RAULanguageModel.score, **options
        )


def _metrics(nll: Float[Array, "B T"], weight: Float[Array, "B T"]) -> Metrics:
    tokens = Ratio.of(nll.reshape(-1), weight.reshape(-1))
    # The perplexity is computed when a `Ratio` of this name becomes a float.
    return {"loss": tokens, "perplexity": tokens}
