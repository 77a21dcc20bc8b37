"""GA Reader (Dhingra et al. 2017): in each hop a query gates the tokens of a document.

    D_k = BiGRU(X_{k-1}),  Q_k = BiGRU(Y),  X_k = GA(D_k, Q_k) for k < K
    e_i = D_K[i] . Q_K[cloze],  Pr(c) = sum of softmax(e) over the positions of c, normalised

The mathematics is in `functional.gated_attention` and `functional.pointer_sum`. The AS Reader, the
reader without gating and GA-- are the same network with other options.
"""

import dataclasses
from typing import Annotated, Any, Literal

import flax.linen as nn
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import (
    POSITIVE,
    RATE,
    at_least,
    check_fields,
    check_options,
    check_size,
)
from gatedjax._utils.limits import MOST_LAYERS
from gatedjax._utils.types import Keywords, Tree
from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._devices import take_rows
from gatedjax.functional._export import exportable
from gatedjax.models._checks import Batch
from gatedjax.models._classification import word_vectors
from gatedjax.models._cloze import ClozeBatch, ClozeTask
from gatedjax.nn._initializers import normal
from gatedjax.nn._keys import example_keys, fold_keys
from gatedjax.nn._types import Table
from gatedjax.training import OptimizerConfig

GatingName = Literal["multiply", "sum", "concat", "none"]
InitName = Literal["lasagne", "glorot_orthogonal"]
QueryVector = Literal["cloze", "final"]


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class GAReaderCharacters:
    """The options of word vectors that are computed from characters, as keywords with defaults."""

    char_dim: Annotated[int, at_least(0)] = 25
    """Width of the character vectors. With 0 the network does not read characters."""
    char_hidden: int = 25
    """Width of the character GRU per direction. The paper's text has 50, its program 25."""
    char_features: int = 50
    """Width of the features from characters that are appended to a word vector."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.char_dim:
            check_size(char_hidden=self.char_hidden, char_features=self.char_features)


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class GAReaderConfig:
    """The configuration of the GA Reader and its baselines, as keywords with defaults.

    >>> GAReaderConfig(hops=1, query_vector="final").gru_options()["reset_after"]
    True
    """

    hops: Annotated[int, at_least(1, MOST_LAYERS)] = 3
    """Number of hops K. With 1 there is neither gating nor dropout between hops."""
    hidden: Annotated[int, at_least(1)] = 128
    """Width H of the GRUs per direction."""
    embedding_dim: Annotated[int, at_least(1)] = 100
    """Width of the word vectors."""
    characters: GAReaderCharacters = GAReaderCharacters()
    """Options of word vectors that are computed from characters."""
    gating: GatingName = "multiply"
    """Operation that joins document and query between hops. With "none" the next hop reads the
    states of the document."""
    token_attention: bool = True
    """True attends to the query separately for each token of the document. False gates all tokens
    with the final states of the query's GRU, as in the paper's ablation and GA--."""
    feature: bool = False
    """True adds a feature to the last hop that marks document tokens which also occur in the query
    (qe-comm)."""
    query_vector: QueryVector = "cloze"
    """Query vector that scores the document tokens: the query's state at the placeholder, or its
    final states. The latter with a single hop is the AS Reader."""
    aggregation: F.Aggregation = "paper"
    """Aggregation of the positions of a candidate, see `functional.pointer_sum`."""
    dropout: Annotated[float, RATE] = 0.4
    """Dropout rate between hops. The paper tunes it for each data set, from 0.1 to 0.4."""
    embed_dropout: Annotated[float, RATE] = 0.0
    """Dropout rate on the word vectors of document and query. The paper has no such dropout."""
    freeze_embeddings: bool = False
    """True keeps all word vectors fixed in training, also those of words without a pretrained
    vector. The optimiser then stores no moments for them."""
    reset_after: bool = True
    """True applies the GRU's reset gate after the recurrent product, as in the paper's program.
    False is the paper's equation."""
    init: InitName = "lasagne"
    """Initial kernels of the GRUs: from normal(0, 0.1) as in the paper's program, or Glorot-uniform
    and orthogonal."""
    step_clip: Annotated[float | None, POSITIVE] = None
    """Bound of the gradients inside each step of each GRU: they are clipped to [-step-clip,
    step-clip]. The paper's program has 10. None does not clip."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Dtype of the computation. Parameters, softmax, carries, log-probabilities and the loss stay
    float32. The dtype float64 is for checks and needs jax_enable_x64."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.gating == "none" and not self.token_attention:
            raise ValueError(
                "token_attention must be True for gating='none', got False: the document would "
                "not depend on the query"
            )

    def gru_options(self) -> dict[str, Tree]:
        """Returns keyword arguments, a dict from names such as "reset_after", for all `nn.GRU`."""
        options: Keywords = {
            "reset_after": self.reset_after,
            # Lasagne, the library of the authors, has no second bias in its GRU.
            "recurrent_bias": False,
            "gradient_clip": self.step_clip,
        }
        if self.init == "lasagne":
            options |= dict.fromkeys(("kernel_init", "recurrent_kernel_init"), normal(0.1))
        return options


@exportable
@struct.dataclass
class GAReaderOutput:
    """The output of a `GAReader` for B questions with C candidates each.

    N and Q are the numbers of document and query tokens, e are the scores of the document tokens,
    and K is the number of hops.

    Attributes:
      logits: log-probabilities of the candidates [B, C], float32; -inf for padding and for
        candidates that do not occur in the document.
      attention: a tuple with A of the hops 1 .. K-1, [B, N, Q] each, the weights of the query
        tokens for each document token, 0 at padded query tokens; ones [B, N, 1] without
        token_attention; an empty tuple without gating.
      document_attention: softmax of e over the document [B, N], 0 at padding.
    """

    logits: Array
    attention: tuple[Array, ...]
    document_attention: Array


class GAReader(nn.Module):
    """A gated-attention reader or one of its baselines: answers questions with a gap.

        >>> import jax
        >>> config = GAReaderConfig(hidden=4, characters=GAReaderCharacters(char_dim=0))
        >>> batch = {"document": jnp.array([[5, 6, 7]]), "document_lengths": jnp.array([3])}
        >>> batch |= {"query": jnp.array([[2, 6]]), "query_lengths": jnp.array([2])}
        >>> batch |= {"cloze": jnp.array([0]), "candidate_mask": jnp.array([[True, True]])}
        >>> batch["candidate_positions"] = jnp.array([[[0, -1], [1, 2]]])
        >>> init = GAReader(config, vocab_size=50).init_with_output
        >>> output, variables = jax.eval_shape(init, jax.random.key(0), batch)
        >>> print(output.logits.shape, output.document_attention.shape)
        (1, 2) (1, 3)

    Call the network with a batch. All arrays have the leading axis B, and padding is on the right:
      "document" int [B, N], "document_lengths" [B], "query" int [B, Q], "query_lengths" [B];
      "cloze" int [B], the position of the gap in the query;
      "occurrence" bool [B, N, C], True where a token belongs to a candidate, or instead
      "candidate_positions" int [B, C, P], the positions of each candidate, filled up with -1;
      "candidate_mask" bool [B, C], True at real candidates.
    With characters the batch also has the W distinct words of each example, of L characters,
    "word_characters" int [B, W, L] and "word_lengths" [B, W], and the index of each token among
    them, "document_words" [B, N] and "query_words" [B, Q]. Training with dropout needs the stream
    "dropout"; its bits belong to "example_id" [B] (row numbers by default).

    If "cloze" is outside of the query, so that the query has no gap, all real tokens get equal
    attention under `jit`. Outside of `jit`, where values are known, this raises ValueError.

    Memory of a training step, in floats: each GRU over the document stores 10 B N H for its
    gradient, each gating 6 B N H ("concat" 8) and 2 B N Q, the answer 2 B C P (or 2 B N C). With
    B 32, N 512, Q 32, H 128, K 3 that is 0.36 GB. The compiled step needs 0.69 GB, including
    temporary arrays, parameters and Adam's moments; `experiments.benchmarks.ga_reader` measures
    it.

    Attributes:
      config: a `GAReaderConfig`, the options of the network.
      vocab_size: rows of the embedding table, padding included.
      num_characters: rows of the character table, padding included; 0 without characters.
      embeddings: a pretrained table [vocab_size, embedding_dim] as the initial word vectors, or
        None.

    Reference: Dhingra et al. 2017, "Gated-Attention Readers for Text Comprehension".
    Deviations: as in the authors' program, the reset gate acts after the product (`reset_after`),
      and the option `feature`, which marks document tokens that occur in the query, adds a vector
      only to the input of the last hop. A candidate that does not occur cannot be predicted. Only
      real tokens of the query count for the feature.
    """

    config: GAReaderConfig
    vocab_size: int
    num_characters: int = 0
    embeddings: Table | None = None

    def setup(self) -> None:
        """Creates the embeddings, the hops and the layers of the scores as attributes."""
        check_fields(self, num_characters=0)
        c = self.config
        types: Keywords = {"dtype": jnp.dtype(c.dtype)}
        gru = c.gru_options()
        if bool(c.characters.char_dim) != bool(self.num_characters):
            count = "at least 2" if c.characters.char_dim else "0"
            raise ValueError(
                f"num_characters must be {count} for char_dim={c.characters.char_dim}, got "
                f"{self.num_characters}"
            )
        self.embed = word_vectors(self)
        if c.characters.char_dim:
            self.characters = gnn.CharacterEncoder(
                self.num_characters,
                c.characters.char_features,
                hidden=c.characters.char_hidden,
                char_features=c.characters.char_dim,
                gru=gru,
                **types,
            )
        if c.feature:
            # The table has a vector of width 2 for each of the two values of the feature, as in the
            # program; the formula of the paper appends a one-hot vector.
            self.feature_embedding = self.param("feature_embedding", normal(0.01), (2, 2))
        # Without gates only the last hop uses the query, so the hops below are GRUs over the
        # document.
        if c.gating == "none":
            below: list[Any] = [
                gnn.GRU(c.hidden, bidirectional=True, **gru, **types) for _ in range(c.hops - 1)
            ]
        else:
            below = [
                gnn.GatedAttentionHop(
                    c.hidden, gating=c.gating, token_attention=c.token_attention, gru=gru, **types
                )
                for _ in range(c.hops - 1)
            ]
        # The last hop has no gates: K hops have K - 1 gatings, and each hop has GRUs with separate
        # weights.
        self.hop = [*below, gnn.GatedAttentionHop(c.hidden, gating=None, gru=gru, **types)]

    def __call__(self, batch: Batch, *, train: bool = False) -> GAReaderOutput:
        """Runs the network.

        Args:
          batch: "document" int [B, N], "query" int [B, Q], "document_lengths" and "query_lengths"
            [B], "cloze" int [B], the position of the gap in the query, "candidate_mask" bool [B,
            C], True at real candidates, and "occurrence" bool [B, N, C], True where a token belongs
            to a candidate, or "candidate_positions" int [B, C, P], filled up with -1; N and Q are
            numbers of tokens, C of candidates and P of positions per candidate. With characters the
            batch also has the arrays of words and characters that the class describes.
          train: True runs the network with dropout, which draws from the PRNG stream "dropout".

        Returns:
          A `GAReaderOutput` with the log-probabilities of the candidates and the attention.

        Raises:
          ValueError: also if a cloze is outside its query, outside of `jit`.
        """
        c = self.config
        cloze_batch = ClozeBatch.of(batch, characters=c.characters.char_dim > 0)
        document_mask, query_mask = cloze_batch.document_mask, cloze_batch.query_mask
        noisy = train and (c.dropout > 0 or c.embed_dropout > 0)
        keys: Any = None
        if noisy:
            keys = example_keys(
                self, "dropout", batch.get("example_id"), batch["document"].shape[0]
            )
        xs, query = self._vectors(batch, keys)
        attention: list[Array] = []
        for number, hop in enumerate(self.hop[:-1]):
            if c.gating == "none":
                _, xs = hop(xs, document_mask)
            else:
                _, _, _, xs, hop_attention = hop(xs, query, document_mask, query_mask)
                attention.append(hop_attention)
            if keys is not None:
                # Dropout acts only on the inputs of the hops 2 .. K, as in the program.
                xs = F.example_dropout(xs, c.dropout, fold_keys(keys, number + 1))
        # As in the program, the feature joins after the dropout of hop K - 1 and is never dropped.
        if c.feature:
            shared = _shared_tokens(batch, document_mask, query_mask).astype(jnp.int32)
            feature = take_rows(self.feature_embedding, shared).astype(xs.dtype)
            xs = jnp.concatenate([xs, feature], axis=-1)
        states, query_states, summary, _, _ = self.hop[-1](xs, query, document_mask, query_mask)
        pointer = summary if c.query_vector == "final" else cloze_batch.at_cloze(query_states)
        # Scores are float32 or wider, because their softmax is over hundreds of tokens.
        wide = wide_dtype(states)
        logits = jnp.einsum("bnd,bd->bn", states, pointer, preferred_element_type=wide)
        return GAReaderOutput(
            logits=cloze_batch.log_probabilities(logits, c.aggregation),
            attention=tuple(attention),
            document_attention=F.masked_softmax(logits, document_mask),
        )

    def _vectors(self, batch: Batch, keys: Any) -> tuple[Array, Array]:
        """Returns X_0 [B, N, E] and Y [B, Q, E], the word vectors of document and query."""
        words = None
        if self.config.characters.char_dim:
            # Each distinct word is read once, and its vector is looked up for each token below.
            words = self.characters(batch["word_characters"], batch["word_lengths"])
        both = []
        for number, name in enumerate(("document", "query")):
            vectors = self.embed(batch[name])
            if words is not None:
                rows = batch[f"{name}_words"][..., None]
                spelled = jnp.take_along_axis(words, rows, axis=1)
                vectors = jnp.concatenate([vectors, spelled.astype(vectors.dtype)], axis=-1)
            if keys is not None:
                # Negative numbers separate these draws from those between hops.
                rate = self.config.embed_dropout
                vectors = F.example_dropout(vectors, rate, fold_keys(keys, -1 - number))
            both.append(vectors)
        return both[0], both[1]


def _shared_tokens(batch: Batch, document_mask: Array, query_mask: Array) -> Bool[Array, "B N"]:
    same = batch["document"][:, :, None] == batch["query"][:, None, :]
    # The program compares with the padded query, so that id 0 always counts as present; here only
    # real tokens count.
    return jnp.any(same & query_mask[:, None, :], axis=-1) & document_mask


@dataclasses.dataclass(frozen=True)
class GAReaderTask(ClozeTask):
    """The task for training a `GAReader` or a baseline with the loss -log Pr(answer).

    A batch has the arrays of `training.Task` and `GAReader`, such as "document" and "query", and
    "label" int [B], the index of the answer among the candidates or -1.

        >>> GAReaderTask(GAReader(GAReaderConfig(freeze_embeddings=True), vocab_size=50)).frozen
        ('embed/embedding',)

    Attributes:
      model: the network.
    """

    model: GAReader


def ga_reader_optimizer(
    steps_per_epoch: int,
    *,
    learning_rate: float = 5e-4,
    halve_after: int = 3,
    clip_norm: float | None = 10.0,
    reset_moments: bool = False,
) -> OptimizerConfig:
    """Returns the optimiser of the GA Reader: Adam with a learning rate that is halved each epoch.

        >>> ga_reader_optimizer(steps_per_epoch=100, halve_after=2).decay_begin
        200

    Args:
      steps_per_epoch: updates per epoch.
      learning_rate: learning rate of the first epochs.
      halve_after: number of first epochs without halving: 3 in the authors' program, 2 in the
        paper's text.
      clip_norm: bound of the global norm of the gradient. None does not clip, which suits the
        authors' way of clipping, `GAReaderConfig.step_clip`.
      reset_moments: True resets Adam's moments at each halving, as in the authors' program.

    Returns:
      The options of the optimiser.

    Raises:
      ValueError: if steps_per_epoch or halve_after is below 1.

    Reference: Dhingra et al. 2017, "Gated-Attention Readers for Text Comprehension", appendix.
    """
    for name, number in {"steps_per_epoch": steps_per_epoch, "halve_after": halve_after}.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    return OptimizerConfig(
        name="adam",
        learning_rate=learning_rate,
        schedule="staircase",
        decay_rate=0.5,
        decay_begin=halve_after * steps_per_epoch,
        decay_every=steps_per_epoch,
        clip_norm=clip_norm,
        reset_moments=reset_moments,
    )
