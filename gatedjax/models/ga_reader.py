"""GA Reader (Dhingra et al. 2017): a query gates the document's tokens, hop after hop.

    D_k = BiGRU(X_{k-1}),  Q_k = BiGRU(Y),  X_k = GA(D_k, Q_k) for k < K
    e_i = D_K[i] . Q_K[cloze],  Pr(c) = sum of softmax(e) over the places of c, normalised

The mathematics is `functional.gated_attention` and `functional.pointer_sum`. The AS Reader, the
reader without gating and GA-- are the same network with other options.
"""

import dataclasses
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.choices import check_choices
from gatedjax._utils.groups import with_groups
from gatedjax._utils.numbers import make_plain
from gatedjax._utils.types import Options, Tree
from gatedjax.functional._checks import check_positive, wide_dtype
from gatedjax.functional._devices import take_rows
from gatedjax.functional._export import exportable
from gatedjax.models._checks import check_at_least, check_rates
from gatedjax.models._classification import word_vectors
from gatedjax.models._cloze import ClozeBatch, ClozeTask
from gatedjax.models._types import Batch
from gatedjax.nn._keys import example_keys, folded
from gatedjax.nn._types import Table
from gatedjax.training import OptimizerConfig

GatingName = Literal["multiply", "sum", "concat", "none"]
InitName = Literal["lasagne", "glorot_orthogonal"]
QueryVector = Literal["cloze", "final"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GAReaderCharacters:
    """The characters of a word, which add to its vector."""

    char_dim: int = 25
    """Width of the character vectors; 0 takes the characters away."""
    char_hidden: int = 25
    """Width of the character GRU per direction (the paper's text says 50, its program 25)."""
    char_features: int = 50
    """Width of what the characters add to a word vector."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_at_least(self, 0, "char_dim")
        if self.char_dim:
            check_at_least(self, 1, "char_hidden", "char_features")


@with_groups
@dataclasses.dataclass(frozen=True, kw_only=True)
class GAReaderConfig:
    """Everything that the paper fixes or leaves open about the network."""

    hops: int = 3
    """Hops K; 1 has no gating and no dropout between hops."""
    hidden: int = 128
    """Width H of every GRU per direction."""
    embedding_dim: int = 100
    """Width of the word vectors."""
    characters: GAReaderCharacters = GAReaderCharacters()
    """What the characters of a word add to its vector."""
    gating: GatingName = "multiply"
    """How document and query are joined between hops; "none" hands the document states on."""
    token_attention: bool = True
    """Attend to the query for every document token; False gives all the same view of it, the final
    states of its GRU (the paper's ablation and GA--)."""
    feature: bool = False
    """Tell the last hop which document tokens also occur in the query (qe-comm)."""
    query_vector: QueryVector = "cloze"
    """What points at the document: the query's state at the placeholder, or its final states (with
    one hop: the AS Reader)."""
    aggregation: F.Aggregation = "paper"
    """How places of a candidate become its probability, see `functional.pointer_sum`."""
    dropout: float = 0.4
    """Dropout between hops; the paper tunes it for each data set, from 0.1 to 0.4."""
    embed_dropout: float = 0.0
    """Dropout on the word vectors of document and query; the paper has none."""
    freeze_embeddings: bool = False
    """Keep word vectors as they are, those of words without a pretrained vector too; they take no
    memory of the optimiser."""
    reset_after: bool = True
    """Apply the GRU's reset gate after the recurrent product, as the paper's program did; False is
    the paper's equation."""
    init: InitName = "lasagne"
    """GRU kernels from normal(0, 0.1), as the paper's program drew them, or Glorot-uniform and
    orthogonal ones."""
    step_clip: float | None = None
    """Clip gradients to [-step-clip, step-clip] inside every step of every GRU, as the paper's
    program did with 10; None does not."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Compute dtype; parameters, softmax, carries, log-probabilities and the loss stay float32.
    float64 is for checks, and needs jax_enable_x64."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_choices(self)
        check_at_least(self, 1, "hops", "hidden", "embedding_dim")
        check_rates(self, "dropout", "embed_dropout")
        if self.gating == "none" and not self.token_attention:
            raise ValueError("token_attention must be True for gating='none': nothing attends")
        if self.step_clip is not None:
            check_positive(step_clip=self.step_clip)

    def gru_options(self) -> dict[str, Tree]:
        """Options of every `nn.GRU` of the network."""
        options: Options = {
            "reset_after": self.reset_after,
            "recurrent_bias": False,
            "gradient_clip": self.step_clip,
        }
        if self.init == "lasagne":
            options |= {"init_scale": 0.1, "init_distribution": "normal"}
        return options


@exportable
@struct.dataclass
class GAReaderOutput:
    """What one pass computed.

    Attributes:
      logits: log-probabilities of the candidates [B, C], float32; -inf for one that is padding or
        does not occur in the document.
      attention: A of the hops 1 .. K-1, [B, N, Q] each, 0 at padded query tokens; [B, N, 1] of ones
        without token_attention; none without gating.
      document_attention: softmax of e over the document [B, N], 0 at padding.
    """

    logits: Array
    attention: tuple[Array, ...]
    document_attention: Array


class GAReader(nn.Module):
    """A gated-attention reader, or one of its baselines, for questions with a gap.

    Attributes:
      config: the network.
      vocab_size: rows of the embedding table, padding included.
      num_characters: rows of the character table, padding included; 0 without characters.
      embeddings: a pretrained table to start from, or None.

    Call with a batch; all arrays have the leading axis B, padding is on the right:
      "document" int [B, N], "document_lengths" [B], "query" int [B, Q], "query_lengths" [B];
      "cloze" int [B]: the place of the gap in the query;
      "occurrence" bool [B, N, C], whether a token belongs to a candidate, or instead
      "candidate_positions" int [B, C, P], the places of each candidate, -1 where there are no more;
      "candidate_mask" bool [B, C].
    With characters also "word_characters" int [B, W, L] and "word_lengths" [B, W], the distinct
    words of each example, and "document_words" [B, N], "query_words" [B, Q], their rows of them.
    Training with dropout keys its bits to "example_id" [B] (row numbers if absent) and needs the
    stream "dropout".

    Where a query has no gap, that is, "cloze" is not inside it, all real tokens are attended to
    alike; outside of `jit`, where values are known, that raises.

    Memory of a training step, in floats: each document GRU keeps 10 B N H for its gradient, each
    gating 6 B N H ("concat" 8) and 2 B N Q, the answer 2 B C P (or 2 B N C). With B 32, N 512,
    Q 32, H 128, K 3 that is 0.36 GB; the compiled step takes 0.69 GB with what it needs meanwhile,
    parameters and Adam's moments included (`experiments.benchmarks.ga_reader` measures it).

    Reference: Dhingra et al. 2017, "Gated-Attention Readers for Text Comprehension".
    Deviations: as in its authors' program, the reset gate acts after the product (`reset_after`)
      and the feature is a vector that joins the input of the last hop alone; a candidate that does
      not occur cannot be predicted; only real tokens of the query count for the feature.
    """

    config: GAReaderConfig
    vocab_size: int
    num_characters: int = 0
    embeddings: Table | None = None

    def setup(self) -> None:
        """Creates the layers."""
        c = self.config
        types: Options = {"dtype": jnp.dtype(c.dtype)}
        gru = c.gru_options()
        if bool(c.characters.char_dim) != bool(self.num_characters):
            raise ValueError(
                "num_characters must be 0 without characters and at least 2 with them, got "
                f"{self.num_characters} for char_dim {c.characters.char_dim}"
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
            normal = nn.initializers.normal(0.01)
            self.feature_table = self.param("feature_table", normal, (2, 2))
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
        self.hop = [*below, gnn.GatedAttentionHop(c.hidden, gating=None, gru=gru, **types)]

    def __call__(self, batch: Batch, *, train: bool = False) -> GAReaderOutput:
        """Runs the network; to train, with dropout.

        Raises:
          ValueError: also if a cloze that is known is outside its query.
        """
        c = self.config
        given = ClozeBatch.of(batch, characters=c.characters.char_dim > 0)
        document_mask, query_mask = given.document_mask, given.query_mask
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
                _, _, _, xs, seen = hop(xs, query, document_mask, query_mask)
                attention.append(seen)
            if keys is not None:
                xs = F.example_dropout(xs, c.dropout, folded(keys, number + 1))
        if c.feature:
            shared = _shared_tokens(batch, document_mask, query_mask).astype(jnp.int32)
            feature = take_rows(self.feature_table, shared).astype(xs.dtype)
            xs = jnp.concatenate([xs, feature], axis=-1)
        states, asked, summary, _, _ = self.hop[-1](xs, query, document_mask, query_mask)
        pointer = summary if c.query_vector == "final" else given.at_cloze(asked)
        wide = wide_dtype(states)
        logits = jnp.einsum("bnd,bd->bn", states, pointer, preferred_element_type=wide)
        return GAReaderOutput(
            logits=given.log_probabilities(logits, c.aggregation),
            attention=tuple(attention),
            document_attention=F.masked_softmax(logits, document_mask),
        )

    def _vectors(self, batch: Batch, keys: Any) -> tuple[Array, Array]:
        """X_0 and Y."""
        words = None
        if self.config.characters.char_dim:
            words = self.characters(batch["word_characters"], batch["word_lengths"])
        both = []
        for number, name in enumerate(("document", "query")):
            vectors = self.embed(batch[name])
            if words is not None:
                rows = batch[f"{name}_words"][..., None]
                spelled = jnp.take_along_axis(words, rows, axis=1)
                vectors = jnp.concatenate([vectors, spelled.astype(vectors.dtype)], axis=-1)
            if keys is not None:
                rate = self.config.embed_dropout
                vectors = F.example_dropout(vectors, rate, folded(keys, -1 - number))
            both.append(vectors)
        return both[0], both[1]


def _shared_tokens(batch: Batch, document_mask: Array, query_mask: Array) -> Bool[Array, "B N"]:
    """True at document tokens that are also tokens of the query."""
    same = batch["document"][:, :, None] == batch["query"][:, None, :]
    return jnp.any(same & query_mask[:, None, :], axis=-1) & document_mask


@dataclasses.dataclass(frozen=True)
class GAReaderTask(ClozeTask):
    """How a `GAReader` (or a baseline) is trained and evaluated: -log Pr(answer).

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
    """The optimiser of the GA Reader: Adam whose rate is halved before every later epoch.

    Args:
      steps_per_epoch: updates of one epoch.
      learning_rate: that of the first epochs.
      halve_after: epochs at that rate: 3 in the authors' program, 2 in the paper's text.
      clip_norm: clip the global norm of the gradient; None does not, as with the authors' own way,
        `GAReaderConfig.step_clip`.
      reset_moments: forget Adam's moments at every halving, as the authors' program does.

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
