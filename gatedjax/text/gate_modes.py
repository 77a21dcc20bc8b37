"""Tests of a trained GA-Net under all kinds of gates, and of estimators of its gradient.

`gate_modes` computes the loss and the accuracy for each kind of gate, and their exact expectation
over all patterns. `measure` computes the bias and the variance of estimators of the gradient.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike
from scipy.special import expit

from gatedjax._utils.tracing import ByIdentity
from gatedjax._utils.types import Json, Params, Tree
from gatedjax.functional._checks import check_positive
from gatedjax.gates import Estimator, _report
from gatedjax.gates._enumerate import LARGEST
from gatedjax.gates._registry import standard_estimators
from gatedjax.models import GANet
from gatedjax.text._gate_patterns import LOWER, PatternInputs, TextTruth, text_truth

MOST_WORDS = 24
"""The greatest number of words of a text that is evaluated. Its 2^24 patterns take some seconds."""
# The greatest number of texts in a batch of the encoder.
_ROWS = 64


class ModeValues(NamedTuple):
    """The results of N texts under a kind of gate, for S draws, or one if no gates are drawn."""

    loss: Float[np.ndarray, "S N"]  # the cross-entropy in nats
    right: Float[np.ndarray, "S N"]  # 1 if the label is predicted, else 0
    density: Float[np.ndarray, "S N"]  # the share of open words, or the mean of soft gates


@dataclasses.dataclass(frozen=True, eq=False)
class GateModes:
    """The results of `gate_modes` for N texts."""

    rows: Int[np.ndarray, " N"]  # the positions of the texts in the batch
    left_out: int  # number of texts with more than `longest` words, which have no results
    longest: int
    lengths: Int[np.ndarray, " N"]
    labels: Int[np.ndarray, " N"]
    temperature: float  # of the relaxed gates
    draws: int  # the number S of draws of sampled and of relaxed gates
    truths: tuple[TextTruth, ...]  # the exact results of each text under Bernoulli gates
    logits: tuple[Float[np.ndarray, " n"], ...]  # of the gates of each text
    modes: Mapping[str, ModeValues]  # for the kinds of gates of `GANet.gate_modes`

    @property
    def one_draw(self) -> tuple[float, float]:
        """The exact standard deviations of mean loss and accuracy with one draw per text."""
        share = np.array([truth.right for truth in self.truths])
        sums = sum(truth.variance for truth in self.truths), float(np.sum(share * (1 - share)))
        # The texts are drawn independently, so the variances add up. Rounding can make a variance
        # of 0 slightly negative.
        loss, accuracy = (float(np.sqrt(max(x, 0.0))) / len(self.rows) for x in sums)
        return loss, accuracy

    def record(self) -> Json:
        """Returns the settings and the results of each text as a dict for JSON."""
        loss, accuracy = self.one_draw
        truths = self.truths
        return {
            "texts_in_modes": len(self.rows),
            "texts_left_out": self.left_out,
            "longest": self.longest,
            "temperature": self.temperature,
            "samples": self.draws,
            "one_draw": {"loss_deviation": loss, "accuracy_deviation": accuracy},
            "by_text": {
                "row": self.rows.tolist(),
                "words": self.lengths.tolist(),
                "loss": [truth.loss for truth in truths],
                "variance": [truth.variance for truth in truths],
                "accuracy": [truth.right for truth in truths],
                "loss_threshold": self.modes["threshold"].loss[0].tolist(),
                "loss_expected": self.modes["expected"].loss[0].tolist(),
                "loss_best": [truth.best_loss for truth in truths],
                "best": ["".join("1" if b else "0" for b in truth.best) for truth in truths],
            },
        }

    def table(self) -> tuple[_report.ModeRow, ...]:
        """Computes the means over texts for each kind of gate: "marginal" is the loss of the mean
        probabilities, "best" the pattern with the lowest loss of each text.
        """
        truths, labels = self.truths, self.labels.tolist()
        mean = lambda values: float(np.mean(values))  # noqa: E731
        exact = mean([truth.loss for truth in truths])
        exact_right = mean([truth.right for truth in truths])
        open_p = mean([np.mean(expit(a)) for a in self.logits])
        pairs = [(truth.probabilities, label) for truth, label in zip(truths, labels, strict=True)]
        # The probability of the label may underflow to 0. Its loss is infinite, which is the right
        # value and no fault.
        with np.errstate(divide="ignore"):
            marginal = mean(-np.log([p[label] for p, label in pairs]))
        marginal_right = mean([np.argmax(p) == label for p, label in pairs])
        best = (
            *(mean([truth.best_loss for truth in truths]), None),
            *(mean([truth.best_right for truth in truths]), None),
            mean([np.mean(truth.best) for truth in truths]),
        )
        drawn = f"mean of {self.draws} draws"
        # Of each mode (title, loss, its error, accuracy, its error, density).
        values: dict[str, tuple[Any, ...]] = {
            "sample": (f"sampled, {drawn}",),
            "exact": ("exact expectation", exact, None, exact_right, None, open_p),
            "marginal": ("exact, mean probabilities", marginal, None, marginal_right, None, open_p),
            "threshold": ("thresholded",),
            "best": ("best pattern (knows the label)", *best),
            "expected": ("mean field",),
            "relaxed": (f"relaxed, tau {self.temperature:g}, {drawn}",),
        }
        for mode, results in self.modes.items():
            (loss, error), (right, right_error), (density, _) = map(_mean, results)
            values[mode] = (*values[mode], loss, error, right, right_error, density)
        return tuple(
            _report.ModeRow(mode, title, loss, error, loss - exact, *others)
            for mode, (title, loss, error, *others) in values.items()
        )


def _mean(values: np.ndarray) -> tuple[float, float | None]:
    """Returns the mean over texts of values [S, N], and its standard error over the S draws."""
    draws = np.mean(values.astype(np.float64), axis=1)
    error = float(np.std(draws, ddof=1) / np.sqrt(len(draws))) if len(draws) > 1 else None
    return float(np.mean(draws)), error


class StaticGANet(ByIdentity):
    """A GA-Net as a static argument of compiled programs."""

    def __call__(self, params: Params, pooled: Array) -> Array:
        """Computes the class scores [k, C] of k pooled states [k, D]."""
        return self.model.apply({"params": params}, pooled, method=GANet.from_pooled)


def check_gated(model: object) -> None:
    """Raises ValueError unless the model is a GA-Net with gates on attention."""
    if not isinstance(model, GANet) or model.config.system != "ganet":
        name = f"the system {model.config.system!r}" if isinstance(model, GANet) else type(model)
        raise ValueError(
            f"model must be a GA-Net with gates, got {name}: train a model with "
            "`gatedjax train --model ganet`"
        )
    if (on := model.config.gates.gates_on) != "attention":
        raise ValueError(
            f"model must have gates_on='attention', got {on!r}, with which the "
            "encoder would run again for each of the 2^n patterns: train one with "
            "`gatedjax train --model ganet --model.gates.gates-on attention`"
        )


@functools.partial(jax.jit, static_argnames=("network", "draws"))
def _encode_batch(
    network: StaticGANet,
    draws: int,
    params: Params,
    batch: Mapping[str, Array],
    key: Key[Array, ""],
    temperature: Array,
) -> tuple[Tree, PatternInputs, dict[str, ModeValues]]:
    """Returns the encoded batch, its `PatternInputs`, and the `ModeValues` [S, B] of each mode."""
    # The number of draws is a field of the configuration, so the module is cloned and its
    # parameters stay valid.
    gates = dataclasses.replace(network.model.config.gates, test_samples=draws)
    config = dataclasses.replace(network.model.config, gates=gates)
    model, variables = network.model.clone(config=config), {"params": params}
    encoded: Tree = model.apply(variables, batch, method=GANet.encode)
    outputs: Tree = model.apply(
        variables, batch, temperature, encoded=encoded, rngs={"gate": key}, method=GANet.gate_modes
    )
    # Pooling has no weights if all gates are closed, so the network itself computes the scores of
    # this pattern.
    shut = jnp.zeros((1, *encoded.mask.shape), jnp.float32)
    closed: Tree = model.apply(variables, batch, shut, encoded=encoded, method=GANet.with_gates)
    label, lengths = batch["label"], batch["lengths"]

    def values(output: Tree) -> ModeValues:
        labels = jnp.broadcast_to(label[None], output.logits.shape[:2])
        log_p = jax.nn.log_softmax(output.logits)
        loss: Tree = -jnp.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
        right: Tree = (jnp.argmax(output.logits, axis=-1) == labels).astype(loss.dtype)
        share: Tree = jnp.sum(output.gates, -1) / lengths[None].astype(output.gates.dtype)
        return ModeValues(loss, right, share)

    inputs = PatternInputs(
        encoded.states,
        jnp.where(encoded.mask, encoded.scores, 0),
        encoded.gate_logits,
        closed.logits[0],
        label,
        lengths,
    )
    return encoded, inputs, {mode: values(output) for mode, output in outputs.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Texts:
    """The N texts of a batch that are short enough, padded to the same length."""

    rows: np.ndarray  # positions in the batch
    left_out: int  # number of texts with too many words
    # "tokens" [N, T], "lengths", "label", and "example_id", from which the draws derive
    arrays: dict[str, np.ndarray]

    @classmethod
    def of(cls, batch: Mapping[str, ArrayLike], longest: int) -> "Texts":
        """Checks the batch and selects texts of 1 to `longest` words with a weight above 0."""
        if not 1 <= longest <= MOST_WORDS:
            raise ValueError(f"longest must be in [1, {MOST_WORDS}], got {longest}")
        tokens, lengths = np.asarray(batch["tokens"]), np.asarray(batch["lengths"])
        shape = tokens.shape[:1]
        if tokens.ndim != 2 or lengths.shape != shape:
            raise ValueError(
                "batch must have tokens [B, T] and lengths [B], got shapes "
                f"{tokens.shape} and {lengths.shape}"
            )
        if "label" not in batch or np.shape(batch["label"]) != shape:
            got = np.shape(batch["label"]) if "label" in batch else "none"
            raise ValueError(f"batch must have labels of shape {shape}, got {got}")
        counts = (lengths > 0) & (np.asarray(batch.get("weight", 1.0)) > 0)
        rows = np.flatnonzero(counts & (lengths <= longest))
        if not rows.size:
            shortest = f", the shortest of {lengths[counts].min()} words" if counts.any() else ""
            raise ValueError(
                f"batch must have a text of 1 to {longest} words, got {counts.sum()} longer texts"
                + shortest
            )
        # Patterns are split after LOWER words, so a shorter text is padded to as many.
        width = max(int(lengths[rows].max()), LOWER)
        shown = np.zeros((len(rows), width), tokens.dtype)
        common = min(width, tokens.shape[1])
        shown[:, :common] = tokens[rows, :common]
        # The noise of a text depends on its id only, so that a text has the same draws whatever
        # texts are left out.
        ids = batch.get("example_id", np.arange(len(tokens)))
        columns = {"lengths": lengths, "label": batch["label"], "example_id": ids}
        arrays = {name: np.asarray(x)[rows] for name, x in columns.items()}
        return cls(rows, int(np.sum(counts & (lengths > longest))), {"tokens": shown, **arrays})

    def select(self, indices: np.ndarray) -> "Texts":
        """Returns the texts at the given positions."""
        arrays = {name: array[indices] for name, array in self.arrays.items()}
        return Texts(self.rows[indices], self.left_out, arrays)

    def batches(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yields (number of real texts, batch) for batches of the same shape."""
        size = min(_ROWS, len(self.rows))
        for begin in range(0, len(self.rows), size):
            indices = np.arange(begin, begin + size)
            real = int(np.sum(indices < len(self.rows)))
            # Copies of the last text fill up the last batch, so that all batches share a program.
            indices = np.minimum(indices, len(self.rows) - 1)
            arrays = self.arrays.items()
            yield real, {name: array[indices].astype(np.int32) for name, array in arrays}


def compute_truths(
    network: StaticGANet, params: Params, inputs: PatternInputs, centres: np.ndarray
) -> Iterator[tuple[np.ndarray, TextTruth]]:
    """Yields (gate logits [n], results) for each text; `centres` as in `text_truth`."""
    for i, centre in enumerate(centres):
        text_inputs = PatternInputs(*(x[i] for x in inputs))
        truth = text_truth(network, params, text_inputs, float(centre))
        yield np.asarray(text_inputs.logits, np.float64)[: int(text_inputs.size)], truth


def encode_texts(
    network: StaticGANet,
    params: Params,
    texts: Texts,
    draws: int,
    key: Key[Array, ""],
    temperature: float,
) -> Iterator[tuple[Tree, PatternInputs, dict[str, ModeValues]]]:
    """Yields (encoded, inputs, modes) of each batch; only `encoded` has the copies that fill it."""
    for real, batch in texts.batches():
        tau = np.float32(temperature)
        results = jax.device_get(_encode_batch(network, draws, params, batch, key, tau))
        encoded, inputs, modes = results
        yield (
            encoded,
            PatternInputs(*(x[:real] for x in inputs)),
            {mode: ModeValues(*(x[:, :real] for x in values)) for mode, values in modes.items()},
        )


def resolve_temperature(model: GANet, temperature: float | None) -> float:
    """Returns `temperature`, or that of the configuration of the model if it is None."""
    if temperature is None:
        return float(model.config.gates.temperature)
    check_positive(temperature=temperature)
    return float(temperature)


def gate_modes(
    model: GANet,
    params: Params,
    batch: Mapping[str, ArrayLike],
    *,
    draws: int = 100,
    temperature: float | None = None,
    longest: int = LARGEST,
    key: Key[Array, ""] | None = None,
) -> GateModes:
    """Computes loss and accuracy of a trained GA-Net under all kinds of gates, and exactly.

    The exact loss is the mean over texts x of the expectation over all patterns b of their n gates:

        exact = mean_x sum_b P(b | x) loss(x, b),  b in {0, 1}^n

    The encoder reads each text once. Only pooling and the classifier are computed for each pattern,
    which takes about half a second on two cores for the 2^20 patterns of 20 words. For the pattern
    without an open gate the rule `gates.empty` of the model applies. Texts with more than `longest`
    words are left out of all results.

        >>> import jax, numpy as np
        >>> from gatedjax import gates
        >>> from gatedjax.models import GANet, GANetConfig
        >>> model = GANet(GANetConfig(hidden=4, num_layers=1), vocab_size=50, num_classes=2)
        >>> batch = {"tokens": np.array([[7, 9]]), "lengths": np.array([2]), "label": np.array([1])}
        >>> params = jax.jit(model.init)(jax.random.key(0), batch)["params"]
        >>> found = gates.gate_modes(model, params, batch, draws=2)
        >>> print([row.mode for row in found.table()])
        ['sample', 'exact', 'marginal', 'threshold', 'best', 'expected', 'relaxed']
        >>> print(found.truths[0].best.shape)  # the open gates of the best pattern, by word
        (2,)

    Args:
      model: a `GANet` with gates on attention. Programs are compiled once per model object.
      params: the parameters of the model.
      batch: B texts, padded to T words: "tokens" [B, T], the ids of the words, "lengths" [B] and
        "label" [B], the classes from 0. The draws of a text derive from its
        "example_id", or from its row if there are none. Rows with a "weight" of 0 are left out. The
        batch may be a whole test set.
      draws: the number of draws of sampled and of relaxed gates, at least 2.
      temperature: the temperature of relaxed gates; None means the temperature of the model.
      longest: the greatest number of words of a text, at most 24.
      key: the PRNG key of the draws; None means `jax.random.key(0)`. With the seed of an
        evaluation, the first draws are the draws of that evaluation.

    Returns:
      A `GateModes` with the values of each text; its `table()` has the means.

    Raises:
      ValueError: if the model has no gates or has gates on its input, if `batch` has wrong shapes,
        no labels or no text of 1 to `longest` words, or if an option is outside its range.

    Reference: Xue et al. 2020 (GA-Net), eq. 5. The paper tests with a single draw, and the
    expectation here is exact.
    """
    check_gated(model)
    if draws < 2:
        raise ValueError(f"draws must be at least 2, got {draws}")
    tau, texts = resolve_temperature(model, temperature), Texts.of(batch, longest)
    network, key = StaticGANet(model), jax.random.key(0) if key is None else key
    params = jax.device_put(params)
    parts: dict[str, list[ModeValues]] = {}
    logits, truths = [], []
    for _, inputs, modes in encode_texts(network, params, texts, draws, key, tau):
        for mode, values in modes.items():
            parts.setdefault(mode, []).append(values)
        for a, truth in compute_truths(network, params, inputs, modes["threshold"].loss[0]):
            logits.append(a)
            truths.append(truth)
    joined = {
        mode: ModeValues(*(np.concatenate(x, axis=1) for x in zip(*parts_of_mode, strict=True)))
        for mode, parts_of_mode in parts.items()
    }
    return GateModes(
        rows=texts.rows,
        left_out=texts.left_out,
        longest=longest,
        lengths=texts.arrays["lengths"],
        labels=texts.arrays["label"],
        temperature=tau,
        draws=draws,
        truths=tuple(truths),
        logits=tuple(logits),
        modes=joined,
    )


class TextLoss(ByIdentity):
    """The cross-entropy of a text as a function of its gates; a static argument of programs."""

    def __call__(
        self, gates: Float[Array, " T"], params: Params, encoded: Tree, label: Array
    ) -> Float[Array, ""]:
        """Computes the loss in nats under hard or soft gates; `encoded` has this text only."""
        mask = encoded.mask
        batch = {"tokens": jnp.zeros(mask.shape, jnp.int32), "lengths": jnp.sum(mask, axis=1)}
        output: Tree = self.model.apply(
            {"params": params}, batch, gates[None, None], encoded=encoded, method=GANet.with_gates
        )
        return -jnp.take(jax.nn.log_softmax(output.logits[0, 0]), label)


def measure(
    model: GANet,
    params: Params,
    batch: Mapping[str, ArrayLike],
    estimators: Sequence[Estimator] | None = None,
    *,
    texts: int = 32,
    draws: int = 1024,
    longest: int = LARGEST,
    key: Key[Array, ""] | None = None,
    on_estimator: Callable[[Estimator], None] | None = None,
) -> _report.Measured:
    """Measures estimators of the gradient with respect to gate logits against the exact gradient.

    The loss of a text is its cross-entropy as a function of its gates, with the states of the
    encoder fixed. The measured texts are evenly spread over the texts of the batch that are short
    enough. All estimators use the same keys. A program is compiled for each estimator, and it
    serves texts of all lengths.

        >>> import jax, numpy as np
        >>> from gatedjax import gates
        >>> from gatedjax.models import GANet, GANetConfig
        >>> model = GANet(GANetConfig(hidden=4, num_layers=1), vocab_size=50, num_classes=2)
        >>> batch = {"tokens": np.array([[7, 9]]), "lengths": np.array([2]), "label": np.array([1])}
        >>> params = jax.jit(model.init)(jax.random.key(0), batch)["params"]
        >>> found = gates.measure(model, params, batch, [gates.DisARM()], texts=1, draws=4)
        >>> print([(row.estimator, row.evaluations) for row in found.rows])
        [(DisARM(), 2.0)]

    Args:
      model: a `GANet` with gates on attention.
      params: the parameters of the model.
      batch: B texts as in `gate_modes`.
      estimators: hashable estimators, such as `[gates.ARM()]`; None means all that need no
        option except a temperature (`standard_estimators`), with the temperature of the model.
      texts: the largest number of texts to measure.
      draws: the number of estimates per text, at least 2.
      longest: the greatest number of words of a text, at most 24.
      key: the PRNG key of all draws; None means `jax.random.key(0)`.
      on_estimator: called with each estimator before it is measured.

    Returns:
      A `Measured` with a row for each estimator: its bias, its variance and other means over texts.

    Raises:
      ValueError: if the model has no gates or has gates on its input, if `batch` has wrong shapes,
        no labels or no text of 1 to `longest` words, or if an option is outside its range.
    """
    check_gated(model)
    for name, value, least in (("texts", texts, 1), ("draws", draws, 2)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    candidates = Texts.of(batch, longest)
    count = min(texts, len(candidates.rows))
    selected = candidates.select(
        np.unique(np.linspace(0, len(candidates.rows) - 1, count).round().astype(int))
    )
    key = jax.random.key(0) if key is None else key
    tau = resolve_temperature(model, None)
    estimators = standard_estimators(tau) if estimators is None else estimators
    network, params = StaticGANet(model), jax.device_put(params)
    exact, sizes, encoded = [], [], []
    for batch_encoded, inputs, modes in encode_texts(network, params, selected, 2, key, tau):
        centres = modes["threshold"].loss[0]
        encoded += [
            jax.tree.map(lambda x, i=i: x[i : i + 1], batch_encoded) for i in range(len(centres))
        ]
        for _, truth in compute_truths(network, params, inputs, centres):
            exact.append(truth.gradient)
            sizes.append(abs(truth.loss) + np.sqrt(truth.variance))
    lengths, labels, ids = (selected.arrays[name] for name in ("lengths", "label", "example_id"))
    keys = [jax.random.split(jax.random.fold_in(key, i), draws) for i in ids.tolist()]
    loss, rows = TextLoss(model), []

    for estimator in estimators:
        if on_estimator is not None:
            on_estimator(estimator)

        def sample(i: int, estimator: Estimator = estimator) -> _report.Sample:
            n, text_encoded = int(lengths[i]), encoded[i]
            logits = jnp.asarray(text_encoded.gate_logits[0], jnp.float32)
            args = (params, text_encoded, np.int32(labels[i]))
            estimates = _report.estimate_gradients(
                loss, estimator, logits, keys[i], args, text_encoded.mask[0]
            )
            rounding = _report.rounding_tolerance(sizes[i], logits.dtype)
            return _report.Sample(
                np.asarray(estimates)[:, :n], exact[i], rounding, estimator.evaluations(n)
            )

        rows.append(_report.summarize(estimator, map(sample, range(len(exact)))))
    norm = float(np.sqrt(np.mean([g @ g for g in exact])))
    return _report.Measured(tuple(rows), len(exact), draws, norm)
