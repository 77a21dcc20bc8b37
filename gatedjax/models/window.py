"""Gates of words that see the two neighbours, and their training with a linear reader.

    z_t = a[x_t] + l[x_{t-1}] + r[x_{t+1}]                    the logit of a gate, `gate_logits`
    g_t ~ Bernoulli(sigmoid(z_t)), straight-through Gumbel    `gates.STGumbel`
    y = b + sum_t g_t E[x_t] / sqrt(sum_t g_t q[x_t])         the class scores, `read_gated`
    loss = w cross-entropy + the constraint mean sigmoid(z) = d(k)

The weights w of the texts and the squared lengths q of the features of words are constants, and all
tables of the parameters are trained. d(k) falls geometrically from 1 to the density in the first
60 % of the steps. `fit_gates` trains in a single compiled program.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from gatedjax import functional as F
from gatedjax._utils.types import Keywords
from gatedjax.functional._export import exportable
from gatedjax.gates import STGumbel
from gatedjax.gates._train import draw
from gatedjax.models._classification import cross_entropy
from gatedjax.models._density import constraint

BATCH_SIZE = 256
"""Texts in a step of `fit_gates`."""
_TEMPERATURE = 0.7
# Adam's rate falls from the first to the second number.
_RATES = 0.05, 0.005
# Share of the steps in which the density falls.
_FALL = 0.6
# The tables and the texts are padded to multiples of these, so that data sets of similar size share
# a compiled program.
_WORDS, _LENGTH = 1024, 16
# Small data sets have more passes, because the gates need steps to close.
_FEWEST_STEPS = 300


@exportable
class WindowParams(NamedTuple):
    """The parameters of gates and of the linear reader, for V words and C classes."""

    word_logits: Float[Array, " G"]  # a, for a word's own gate; G gates
    left_logits: Float[Array, " G"]  # l, for the gate of the word after it
    right_logits: Float[Array, " G"]  # r, for the gate of the word before it
    words: Float[Array, "V C"]  # E, the class scores of the words
    bias: Float[Array, " C"]  # b, the class scores of a text without open words
    multiplier: Float[Array, ""]  # of the density


class WindowTexts(NamedTuple):
    """N texts of at most T words as arrays, padded on the right."""

    words: Int[Array, "N T"]  # rows of `WindowParams.words`
    gates: Int[Array, "N T"]  # rows of `WindowParams.word_logits`
    lengths: Int[Array, " N"]
    labels: Int[Array, " N"]
    weights: Float[Array, " N"]  # of the texts in the loss


class Room(NamedTuple):
    """The smallest sizes of the padded arrays of a call of `fit_gates`."""

    texts: int
    words: int
    length: int


def gate_logits(
    params: WindowParams, gates: Int[Array, "B T"], mask: Bool[Array, "B T"], edge: int | Array
) -> Float[Array, "B T"]:
    """Computes the gate logits z_t = a[x_t] + l[x_{t-1}] + r[x_{t+1}]; -inf at padding.

        >>> a, l, r = jnp.array([[1.0, 2.0, 0.0], [10.0, 20.0, 30.0], [0.1, 0.2, 0.3]])
        >>> params = WindowParams(a, l, r, jnp.zeros((2, 2)), jnp.zeros(2), jnp.zeros(()))
        >>> print(gate_logits(params, jnp.array([[0, 1]]), jnp.array([[True, True]]), 2))
        [[31.2 12.3]]

    The row `edge` of a, l and r stands for the neighbour of the first and of the last word.
    """
    rows = jnp.where(mask, gates, edge)
    left_rows = jnp.pad(rows[:, :-1], ((0, 0), (1, 0)), constant_values=0).at[:, 0].set(edge)
    right_rows = jnp.pad(rows[:, 1:], ((0, 0), (0, 1)), constant_values=0).at[:, -1].set(edge)
    logits = (
        params.word_logits[rows] + params.left_logits[left_rows] + params.right_logits[right_rows]
    )
    return jnp.where(mask, logits, -jnp.inf)


def read_gated(
    params: WindowParams,
    words: Int[Array, "B T"],
    gates: Float[Array, "B T"],
    squares: Float[Array, " V"],
) -> Float[Array, "B C"]:
    """Computes the class scores y = b + sum_t g_t E[x_t] / sqrt(sum_t g_t q[x_t]).

        >>> zeros = jnp.zeros(1)
        >>> params = WindowParams(zeros, zeros, zeros, jnp.array([[2.0]]), zeros, jnp.zeros(()))
        >>> words, gates = jnp.array([[0, 0, 0]]), jnp.array([[1.0, 0.0, 1.0]])
        >>> print(read_gated(params, words, gates, jnp.array([8.0])))
        [[1.]]

    `squares` are q, the squared lengths of the features of words: the word and its character
    n-grams.
    """
    total = jnp.einsum("bt,btc->bc", gates, params.words[words])
    square = jnp.sum(gates * squares[words], axis=1)
    # A text with all gates closed has no length; the small number keeps its derivative finite.
    return params.bias[None] + total * jax.lax.rsqrt(jnp.maximum(square, 1e-3))[:, None]


def fit_gates(
    texts: list[np.ndarray],
    labels: np.ndarray,
    gate_of: np.ndarray,
    initial_logits: np.ndarray,
    words: np.ndarray,
    bias: np.ndarray,
    squares: np.ndarray,
    density: float,
    *,
    epochs: int = 15,
    seed: int = 0,
    room: Room | None = None,
    sample_weight: np.ndarray | None = None,
) -> np.ndarray:
    """Trains gates that see the neighbours; returns a, l and r [G + 1, 3], the edge of a text last.

        >>> texts = [np.array([0, 2]), np.array([1, 2])] * 8
        >>> gates = fit_gates(
        ...     texts, np.array([0, 1] * 8), np.arange(3), np.array([3.0, 3.0, 2.0]),
        ...     np.array([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]]), np.zeros(2), np.ones(3), 0.5,
        ... )
        >>> print(gates.shape, gates[:2, 0].min() > gates[2, 0])
        (4, 3) True

    `gate_of` [V] maps words to gates. `initial_logits`, `words` and `bias` are the initial a, E and
    b, `squares` are q of `read_gated`, and `density` is the target of the mean open probability.
    Calls with one `room` share a program, but small data sets then take more steps.
    """
    if not 0 < density < 1:
        raise ValueError(f"density must be in (0, 1), got {density}")
    if not len(texts):
        raise ValueError("texts must have at least one text, got none")
    weights = np.ones(len(texts)) if sample_weight is None else np.asarray(sample_weight)
    if weights.shape != (len(texts),):
        raise ValueError(f"sample_weight must have shape ({len(texts)},), got {weights.shape}")
    edge = len(initial_logits)
    room = room or Room(0, 0, 0)
    arrays, squares = _pad_arrays(texts, labels, weights, gate_of, squares, room)
    # There are at most as many gates as words, and the tables of gates have the same size.
    size = len(squares)
    start: Keywords = {
        "word_logits": _pad_rows(initial_logits, size),
        "left_logits": np.zeros(size, np.float32),
        "right_logits": np.zeros(size, np.float32),
        "words": _pad_rows(words, size),
        "bias": np.asarray(bias, np.float32),
        "multiplier": np.zeros((), np.float32),
    }
    order = _order_rows(len(texts), len(arrays.labels), epochs, seed)
    fitted = _train(
        WindowParams(**start), arrays, squares, order, edge, density, jax.random.key(seed)
    )
    return np.stack([np.asarray(part)[: edge + 1] for part in fitted[:3]], 1)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _pad_rows(values: Any, rows: int) -> Any:
    values = np.asarray(values, np.float32)
    return np.pad(values, [(0, rows - len(values))] + [(0, 0)] * (values.ndim - 1))


def _pad_arrays(
    texts: list[np.ndarray],
    labels: np.ndarray,
    weights: np.ndarray,
    gate_of: np.ndarray,
    squares: np.ndarray,
    room: Room,
) -> tuple[WindowTexts, np.ndarray]:
    """Returns (texts, squares), padded to `room` with words of square 0 from index V on."""
    lengths = np.array([len(text) for text in texts], np.int32)
    # Rounded sizes let data sets of similar sizes share a compiled program.
    width = _round_up(max(int(lengths.max()), room.length, 1), _LENGTH)
    num_words = _round_up(max(len(squares), room.words) + 2, _WORDS)
    rows = _round_up(max(len(texts), room.texts), BATCH_SIZE)
    words = np.full((rows, width), num_words - 1, np.int32)
    words[: len(texts)][np.arange(width) < lengths[:, None]] = np.concatenate(texts)
    gate_of = np.pad(gate_of, (0, num_words - len(gate_of))).astype(np.int32)
    extra = rows - len(texts)
    columns: Any = (
        words,
        gate_of[words],
        np.pad(lengths, (0, extra)),
        np.pad(labels.astype(np.int32), (0, extra)),
        np.pad(weights.astype(np.float32), (0, extra)),
    )
    return WindowTexts(*columns), _pad_rows(squares, num_words)


def _order_rows(count: int, rows: int, epochs: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    size = max(epochs * rows, _FEWEST_STEPS * BATCH_SIZE)
    passes = [rng.permutation(count) for _ in range(-(-size // count))]
    return np.concatenate(passes)[:size].reshape(-1, BATCH_SIZE).astype(np.int32)


def _loss(
    params: WindowParams,
    batch: WindowTexts,
    squares: Float[Array, " V"],
    edge: Int[Array, ""],
    density: Float[Array, ""],
    key: Key[Array, ""],
) -> Float[Array, ""]:
    """Computes the loss; q are `squares`, and `edge` is the gate row of a text's edge."""
    mask = F.length_mask(batch.lengths, batch.words.shape[1])
    logits = gate_logits(params, batch.gates, mask, edge)
    noise = F.logistic_noise(key, logits.shape)
    gates = draw(STGumbel(_TEMPERATURE), logits, noise, mask).values
    losses = cross_entropy(read_gated(params, batch.words, gates, squares), batch.labels)
    # The share is that of all words of the batch, like the density of the selection.
    share = jnp.sum(jax.nn.sigmoid(logits)) / jnp.maximum(jnp.sum(mask), 1)
    term, _ = constraint(params.multiplier, share[None], density)
    return jnp.mean(losses * batch.weights) + term[0]


@jax.jit
def _train(
    params: WindowParams,
    texts: WindowTexts,
    squares: Float[Array, " V"],
    order: Int[Array, "K B"],
    edge: Int[Array, ""],
    density: Float[Array, ""],
    key: Key[Array, ""],
) -> WindowParams:
    """Trains while the density falls from 1; returns the parameters of the last step."""
    steps = order.shape[0]
    rate = optax.exponential_decay(_RATES[0], steps, _RATES[1] / _RATES[0])
    optimizer = optax.adam(rate)

    def step(carry, inputs):
        """Computes an update, and returns (new carry, None)."""
        params, state = carry
        number, rows = inputs
        # The density falls slowly, because untrained gates would close at random words.
        fall = jnp.minimum(number / (_FALL * steps), 1.0)
        batch = WindowTexts(*(array[rows] for array in texts))
        slope = jax.grad(_loss)(
            params, batch, squares, edge, density**fall, jax.random.fold_in(key, number)
        )
        updates, state = optimizer.update(slope, state)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(
        step, (params, optimizer.init(params)), (jnp.arange(steps), order)
    )
    return params
