"""AGT (Guo 2017): each layer attends to the words, and a gate mixes the result into the state.

    M_n = tanh(W_p x_n + b_p),  a_l = softmax_n(w_l . tanh(W_l M_n)),  s_l = sum_n a_ln M_n
    y_0 = s_0,  T_l = sigmoid(Wt_l s_l + bt_l),  f_l = tanh(Wf_l [y_{l-1}; s_l] + bf_l)
    y_l = T_l f_l + (1 - T_l) y_{l-1}

The baselines, a highway network on s_0 and the mean word vector, have the same head and another
`system`.
"""

import dataclasses
from typing import Annotated, Any, Literal

import flax.linen as nn
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.choices import check_choice
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import FINITE, RATE, at_least, check_fields, check_options
from gatedjax._utils.limits import MOST_LAYERS
from gatedjax._utils.types import Keywords
from gatedjax.functional._export import exportable
from gatedjax.models._checks import WIDTHS, Batch, check_batch, check_defaults
from gatedjax.models._classification import ClassifierTask, word_vectors
from gatedjax.nn._keys import example_keys, fold_keys
from gatedjax.nn._types import Table

System = Literal["agt", "highway", "average"]
AblateMode = Literal["highway", "reuse_last_s", "zero"]
DropoutSite = Literal["words", "head"]


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class AGTConfig:
    """The configuration of AGT and its baselines, as keywords with defaults.

    >>> AGTConfig(num_layers=5, ablate_above=2).ablate_mode
    'highway'
    """

    system: System = "agt"
    """The network: AGT, or a baseline, a plain highway network on s_0 or the mean word vector."""
    num_layers: Annotated[int, at_least(1, MOST_LAYERS)] = 15
    """Number of layers L. The first layer has no gate: there are L attentions and L - 1 gates."""
    hidden: Annotated[int, at_least(1)] = 200
    """Width of words and layers."""
    attention_hidden: Annotated[int, at_least(1)] = 200
    """Width of the hidden layer of the attentions."""
    embedding_dim: Annotated[int, at_least(1)] = 300
    """Width of the word vectors."""
    gate_bias: Annotated[float, FINITE] = 1.0
    """Initial bias of the gates. It is trained like all other biases."""
    head_hidden: Annotated[tuple[int, ...], WIDTHS] = (200,)
    """Widths of the tanh layers between the last state and the class layer."""
    dropout: Annotated[float, RATE] = 0.2
    """Dropout rate at the dropout-sites."""
    dropout_sites: tuple[DropoutSite, ...] = ("words", "head")
    """Places with dropout: "words" after their projection, "head" on the inputs of its layers."""
    share_attention_matrix: bool = False
    """True shares a single W between the attentions of all layers. The paper has a W per layer."""
    attend_raw: bool = False
    """True computes the attentions from the word vectors instead of the projected words."""
    ablate_above: int | None = None
    """Index of the last layer with a selection vector. None means the top layer."""
    ablate_mode: AblateMode = "highway"
    """Replacement of the layers above: plain highway layers, or the same layers with the last
    selection vector or with zeros."""
    freeze_embeddings: bool = False
    """True keeps the word vectors fixed in training."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the computation. Parameters, softmax, gates, states and the loss stay float32."""

    def __post_init__(self) -> None:
        check_options(self)
        for site in self.dropout_sites:
            check_choice(DropoutSite, dropout_sites=site)
        where = f"system={self.system!r}"
        if self.system != "agt":
            names = ("ablate_above", "share_attention_matrix")
            check_defaults(self, names, where, "it has no layers with gates and attention")
        if self.system == "average":
            check_defaults(self, ("attend_raw",), where, "it has no attention")
        if self.ablate_above is None:
            check_defaults(self, ("ablate_mode",), "ablate_above=None")
        elif not 0 <= self.ablate_above < self.num_layers:
            raise ValueError(
                f"ablate_above must be in [0, num_layers - 1 = {self.num_layers - 1}], "
                f"got {self.ablate_above}"
            )


@exportable
@struct.dataclass
class AGTOutput:
    """The output of an `AGT` for B texts of N words; for "average" only the logits are not None.

    C is the number of classes, L the number of layers and D their width `hidden`.

    Attributes:
      logits: class scores [B, C], float32.
      attention: weights a of the words in the S layers that attend to them [B, S, N], 0 at padding;
        S is L, or 1 for "highway", or ablate_above + 1.
      gates: the gates T of the layers 1 .. L-1 [B, L-1, D].
      states: the states y of all L layers [B, L, D].
    """

    logits: Array
    attention: Array | None = None
    gates: Array | None = None
    states: Array | None = None


class AGT(nn.Module):
    """An attention gated transformation network or one of its baselines: a classifier of texts.

        >>> import jax
        >>> config = AGTConfig(num_layers=3, hidden=4, embedding_dim=8)
        >>> model = AGT(config, vocab_size=50, num_classes=2)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> init = model.init_with_output
        >>> output, variables = jax.eval_shape(init, jax.random.key(0), batch)
        >>> print(output.logits.shape, output.attention.shape, output.gates.shape)
        (1, 2) (1, 3, 3) (1, 2, 4)

    Call the network with a batch of B texts of at most N words, {"tokens": int [B, N], "lengths":
    int [B]}, padded on the right. Training with dropout needs the stream "dropout"; its bits belong
    to "example_id": int [B] (row numbers by default). Another order of the words changes only the
    order of the attention.

    Attributes:
      config: an `AGTConfig`, the options of the network.
      vocab_size: rows of the embedding table, padding included.
      num_classes: C, the number of classes.
      embeddings: a pretrained table [vocab_size, embedding_dim] as the initial word vectors, or
        None.

    Reference: Guo 2017, "A Deep Network with Visual Text Composition Behavior".
    Deviation: the candidates have a bias, which the equations of the paper omit.
    """

    config: AGTConfig
    vocab_size: int
    num_classes: int
    embeddings: Table | None = None

    def setup(self) -> None:
        """Creates the embedding, the projection, the gated layers and the head as attributes."""
        check_fields(self)
        c = self.config
        types: Keywords = {"dtype": jnp.dtype(c.dtype)}
        dense: Keywords = types | {"kernel_init": nn.initializers.glorot_uniform()}
        self.embed = word_vectors(self)
        if c.system != "average":
            self.projection = nn.Dense(c.hidden, **dense)
            # The highway network is the ablation of all selection vectors but the first.
            self.transform = gnn.AttentionGatedTransform(
                c.num_layers,
                attention_features=c.attention_hidden,
                gate_bias=c.gate_bias,
                share_attention_matrix=c.share_attention_matrix,
                ablate_above=0 if c.system == "highway" else c.ablate_above,
                ablate_mode=c.ablate_mode,
                **types,
            )
        self.head = [nn.Dense(width, **dense) for width in c.head_hidden]
        self.classifier = nn.Dense(self.num_classes, name="classifier", **dense)

    def __call__(self, batch: Batch, *, train: bool = False) -> AGTOutput:
        """Runs the network.

        Args:
          batch: "tokens" int [B, N] and "lengths" int [B] of B texts of at most N words; optionally
            "example_id" int [B], the examples to which random bits belong (default: row numbers).
          train: True runs the network with dropout, which draws from the PRNG stream "dropout".

        Returns:
          An `AGTOutput` with the class scores, the attention, the gates and the states.
        """
        check_batch(batch, tokens="B N", lengths="B")
        tokens, lengths = batch["tokens"], batch["lengths"]
        mask = F.length_mask(lengths, tokens.shape[1])
        vectors = self.embed(tokens)
        rate = self.config.dropout
        sites = self.config.dropout_sites if train and rate > 0 else ()
        keys: Any = None
        if sites:
            keys = example_keys(self, "dropout", batch.get("example_id"), tokens.shape[0])
        if self.config.system == "average":
            if "words" in sites:
                vectors = F.example_dropout(vectors, rate, keys)
            # A text without words has the mean 0 instead of 0 / 0.
            count = jnp.maximum(lengths, 1).astype(jnp.float32)[:, None]
            mean = F.attention_pool(vectors, mask.astype(jnp.float32) / count)
            return AGTOutput(logits=self._classify(mean, keys if "head" in sites else None))
        # The width of the layers and y_0 = s_0 force attention over projected words; the paper does
        # not say whether the scores read the raw or the projected vectors.
        words = jnp.tanh(self.projection(vectors))
        if "words" in sites:
            words = F.example_dropout(words, rate, keys)
        looked_at = vectors if self.config.attend_raw else None
        states, gates, attention = self.transform(words, mask, keys=looked_at)
        # The paper does not say where its dropout acts. None acts inside the gated layers here, so
        # that the path of the carried state stays intact.
        logits = self._classify(states[:, -1], keys if "head" in sites else None)
        return AGTOutput(logits=logits, attention=attention, gates=gates, states=states)

    def _classify(self, features: Float[Array, "B D"], keys: Array | None) -> Float[Array, "B C"]:
        """Computes the class scores with the tanh layers of the head and the class layer."""
        # The folded number gives each layer other bits than the words, which use the keys
        # themselves.
        for number, layer in enumerate((*self.head, self.classifier)):
            if keys is not None:
                rate = self.config.dropout
                features = F.example_dropout(features, rate, fold_keys(keys, number + 1))
            features = layer(features)
            if layer is not self.classifier:
                features = jnp.tanh(features)
        return features.astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class AGTTask(ClassifierTask):
    """The task for training an `AGT` or a baseline with cross-entropy, and for evaluating it.

    A batch has the arrays of `training.Task` and `AGT`, and "label" int [B], the index of the
    class. `frozen` has the paths of the parameters that training does not change.

        >>> AGTTask(AGT(AGTConfig(freeze_embeddings=True), vocab_size=50, num_classes=2)).frozen
        ('embed/embedding',)

    Attributes:
      model: the network.
    """

    model: AGT
