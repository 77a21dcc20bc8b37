"""A trained GA-Net under every kind of gate, and estimators of its gradient at its parameters.

`gate_modes` computes loss and accuracy, the exact expectation over all patterns among them, and
`measure` the bias and variance of estimators.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike

from gatedjax._utils.identity import ByIdentity
from gatedjax._utils.types import Json, Params, Tree
from gatedjax.functional._checks import check_positive
from gatedjax.gates import Estimator
from gatedjax.gates._exact import LARGEST
from gatedjax.gates._report import (
    Measured,
    Sample,
    estimate_gradients,
    rounding_tolerance,
    standard_estimators,
    summarize,
)
from gatedjax.gates._study import ModeRow
from gatedjax.models import GANet
from gatedjax.text._gate_patterns import LOWER, Held, TextTruth, text_truth

MOST_WORDS = 24
"""Of a text whose patterns are all evaluated: 2^24 take some seconds."""
_ROWS = 64


class ModeValues(NamedTuple):
    """Texts under one kind of gate, S draws of it (1 where nothing is drawn).

    Attributes:
      loss: cross-entropy.
      right: whether the label is predicted.
      density: share of the words that is open (the mean of soft gates).
    """

    loss: Float[np.ndarray, "S N"]
    right: Float[np.ndarray, "S N"]
    density: Float[np.ndarray, "S N"]


@dataclasses.dataclass(frozen=True, eq=False)
class GateModes:
    """What `gate_modes` found of N texts.

    Attributes:
      rows: [N] of the batch.
      left_out: how many texts have more than `longest` words.
      longest: words of a text whose patterns were all evaluated.
      lengths: [N] words.
      labels: [N] true classes.
      temperature: of the relaxed gates.
      draws: S.
      truths: [N] what is exactly true of each text.
      logits: log-odds of open gates [n] of each text.
      modes: "sample", "threshold", "expected", "relaxed" as `GANet.gate_modes` has them.
    """

    rows: Int[np.ndarray, " N"]
    left_out: int
    longest: int
    lengths: Int[np.ndarray, " N"]
    labels: Int[np.ndarray, " N"]
    temperature: float
    draws: int
    truths: tuple[TextTruth, ...]
    logits: tuple[Float[np.ndarray, " n"], ...]
    modes: Mapping[str, ModeValues]

    @property
    def one_draw(self) -> tuple[float, float]:
        """Standard deviations of mean loss and accuracy when every text has one draw; exact."""
        share = np.array([one.right for one in self.truths])
        sums = sum(one.variance for one in self.truths), float(np.sum(share * (1 - share)))
        loss, accuracy = (float(np.sqrt(max(x, 0.0))) / len(self.rows) for x in sums)
        return loss, accuracy

    def record(self) -> Json:
        """What is known of every text, as JSON can hold it; patterns as texts of 0 and 1."""
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
                "loss": [one.loss for one in truths],
                "variance": [one.variance for one in truths],
                "accuracy": [one.right for one in truths],
                "loss_threshold": self.modes["threshold"].loss[0].tolist(),
                "loss_expected": self.modes["expected"].loss[0].tolist(),
                "loss_best": [one.best_loss for one in truths],
                "best": ["".join("1" if b else "0" for b in one.best) for one in truths],
            },
        }

    def table(self) -> tuple[ModeRow, ...]:
        """A row for every kind of gate: those of the exact expectation between drawn and other."""
        truths = self.truths
        exact = float(np.mean([one.loss for one in truths]))
        open_p = float(np.mean([np.mean(_sigmoid(a)) for a in self.logits]))
        chosen = np.array([
            one.probabilities[label] for one, label in zip(truths, self.labels, strict=True)
        ])  # fmt: skip
        marginal_right = [
            np.argmax(one.probabilities) == label
            for one, label in zip(truths, self.labels, strict=True)
        ]
        with np.errstate(divide="ignore"):
            marginal = float(np.mean(-np.log(chosen)))
        one = lambda values: float(np.mean(values))  # noqa: E731
        best_open = one([np.mean(truth.best) for truth in truths])
        exactly = {
            "exact": ("exact expectation", exact, one([t.right for t in truths]), open_p),
            "marginal": ("exact, mean probabilities", marginal, one(marginal_right), open_p),
            "best": (
                "best pattern (knows the label)",
                one([t.best_loss for t in truths]),
                one([t.best_right for t in truths]),
                best_open,
            ),
        }
        drawn = f"mean of {self.draws} draws"
        titles = {
            "sample": f"sampled, {drawn}",
            "threshold": "thresholded",
            "expected": "mean field",
            "relaxed": f"relaxed, tau {self.temperature:g}, {drawn}",
        }
        rows = []
        for mode in ("sample", "exact", "marginal", "threshold", "best", "expected", "relaxed"):
            if mode in exactly:
                title, loss, right, density = exactly[mode]
                row = ModeRow(mode, title, loss, None, loss - exact, right, None, density)
            else:
                (loss, error), (right, right_error), (density, _) = map(_mean, self.modes[mode])
                gap, title = loss - exact, titles[mode]
                row = ModeRow(mode, title, loss, error, gap, right, right_error, density)
            rows.append(row)
        return tuple(rows)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-logits.astype(np.float64)))


def _mean(values: np.ndarray) -> tuple[float, float | None]:
    """(mean over draws and texts, its standard error over draws)."""
    draws = np.mean(values.astype(np.float64), axis=1)
    error = None
    if len(draws) > 1:
        error = float(np.std(draws, ddof=1) / np.sqrt(len(draws)))
    return float(np.mean(draws)), error


class Network(ByIdentity):
    """A network as a static argument; the head of patterns."""

    def __call__(self, params: Params, pooled: Array) -> Array:
        """Class scores of pooled states."""
        return self.model.apply({"params": params}, pooled, method=GANet.from_pooled)


def check_gated(model: object) -> None:
    """Raises ValueError unless this is a GA-Net with gates on attention."""
    what = (
        f"the system {model.config.system!r}" if isinstance(model, GANet) else type(model).__name__
    )
    if not isinstance(model, GANet) or model.config.system != "ganet":
        raise ValueError(f"model must be a GA-Net with gates, got {what}")
    if (on := model.config.gates.gates_on) != "attention":
        raise ValueError(
            f"model must have gates_on='attention', got {on!r}, with which the "
            "encoder would run again for each of the 2^n patterns"
        )


@functools.partial(jax.jit, static_argnames=("network", "draws"))
def _read(
    network: Network,
    draws: int,
    params: Params,
    batch: Mapping[str, Array],
    key: Key[Array, ""],
    temperature: Array,
) -> tuple[Tree, Held, dict[str, ModeValues]]:
    """What `encode` gave, what patterns need of it, and the modes of the network itself."""
    config = dataclasses.replace(network.model.config, test_samples=draws)
    model, variables = network.model.clone(config=config), {"params": params}
    encoded: Tree = model.apply(variables, batch, method=GANet.encode)
    outputs: Tree = model.apply(
        variables, batch, temperature, encoded=encoded, rngs={"gate": key}, method=GANet.gate_modes
    )
    shut = jnp.zeros((1, *encoded.mask.shape), jnp.float32)
    closed: Tree = model.apply(variables, batch, shut, encoded=encoded, method=GANet.with_gates)
    label, lengths = batch["label"], batch["lengths"]

    def values(output: Tree) -> ModeValues:
        of_all = jnp.broadcast_to(label[None], output.logits.shape[:2])
        log_p = jax.nn.log_softmax(output.logits)
        loss = -jnp.take_along_axis(log_p, of_all[..., None], axis=-1)[..., 0]
        right = jnp.argmax(output.logits, axis=-1) == of_all
        found: Tree = (
            loss,
            right.astype(loss.dtype),
            jnp.sum(output.gates, -1) / lengths[None].astype(output.gates.dtype),
        )
        return ModeValues(*found)

    held = Held(
        encoded.states,
        jnp.where(encoded.mask, encoded.scores, 0),
        encoded.gate_logits,
        closed.logits[0],
        label,
        lengths,
    )
    return encoded, held, {mode: values(output) for mode, output in outputs.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Texts:
    """The texts of a batch that are short enough, padded alike; NumPy."""

    rows: np.ndarray
    left_out: int
    tokens: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    ids: np.ndarray

    @classmethod
    def of(cls, batch: Mapping[str, ArrayLike], longest: int) -> "Texts":
        """Checks the batch and takes its texts of 1 to `longest` words with a weight above 0."""
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
            raise ValueError(f"batch must have a label for each of its texts, {shape}, got {got}")
        counts = (lengths > 0) & (np.asarray(batch.get("weight", 1.0)) > 0)
        rows = np.flatnonzero(counts & (lengths <= longest))
        if not rows.size:
            shortest = f", the shortest of {lengths[counts].min()} words" if counts.any() else ""
            raise ValueError(
                f"batch must have a text of 1 to {longest} words, got {counts.sum()} longer texts"
                + shortest
            )
        width = max(int(lengths[rows].max()), LOWER)
        cut = np.zeros((len(rows), width), tokens.dtype)
        common = min(width, tokens.shape[1])
        cut[:, :common] = tokens[rows, :common]
        ids = np.asarray(batch.get("example_id", np.arange(len(tokens))))
        left_out = int(np.sum(counts & (lengths > longest)))
        labels = np.asarray(batch["label"])
        return cls(rows, left_out, cut, lengths[rows], labels[rows], ids[rows])

    def taken(self, which: np.ndarray) -> "Texts":
        """Some of them."""
        names = ("rows", "tokens", "lengths", "labels", "ids")
        return dataclasses.replace(self, **{name: getattr(self, name)[which] for name in names})

    def batches(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """(real rows, batch), all batches of one shape, the last one filled up."""
        size = min(_ROWS, len(self.rows))
        for begin in range(0, len(self.rows), size):
            which = np.arange(begin, begin + size)
            real = int(np.sum(which < len(self.rows)))
            which = np.minimum(which, len(self.rows) - 1)
            yield (
                real,
                {
                    "tokens": self.tokens[which].astype(np.int32),
                    "lengths": self.lengths[which].astype(np.int32),
                    "label": self.labels[which].astype(np.int32),
                    "example_id": self.ids[which].astype(np.int32),
                },
            )


def truths_of(
    network: Network, params: Params, held: Held, centres: np.ndarray
) -> Iterator[tuple[np.ndarray, TextTruth]]:
    """(log-odds, truth) of every text."""
    for i, centre in enumerate(centres):
        one = Held(*(x[i] for x in held))
        truth = text_truth(network, params, one, float(centre))
        yield np.asarray(one.logits, np.float64)[: int(one.size)], truth


def read_texts(
    network: Network,
    params: Params,
    texts: Texts,
    draws: int,
    key: Key[Array, ""],
    temperature: float,
) -> Iterator[tuple[Tree, Held, dict[str, ModeValues]]]:
    """What `_read` found of every batch, as NumPy arrays of its real rows."""
    for real, batch in texts.batches():
        found = jax.device_get(_read(network, draws, params, batch, key, np.float32(temperature)))
        encoded, held, modes = found
        yield (
            encoded,
            Held(*(x[:real] for x in held)),
            {mode: ModeValues(*(x[:, :real] for x in of)) for mode, of in modes.items()},
        )


def temperature_of(model: GANet, temperature: float | None) -> float:
    """The one that is given, or that of the configuration."""
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
    """Loss and accuracy of a trained GA-Net under every kind of gate, exact over all patterns.

        exact = mean_x sum_b P(b | x) loss(x, b),  b in {0, 1}^n

    The encoder reads every text once. Patterns pass through pooling and classifier alone: those of
    20 words, 2^20, take about half a second on two cores. What `gates.empty` says of the pattern
    without an open gate holds. Texts with more words are left out of everything.

    Args:
      model: a `GANet` with gates on attention; known by its identity.
      params: its parameters.
      batch: "tokens" [B, T], "lengths" [B], "label" [B]; "example_id" keys the draws (row numbers
        if absent), rows with a "weight" of 0 are left out. It may hold a whole test set.
      draws: of sampled and of relaxed gates, at least 2.
      temperature: of relaxed gates; None is that of the model.
      longest: words of a text, at most 24.
      key: of the draws; None is that of 0. With the seed of an evaluation, the first draws are
        those of it.

    Returns:
      The values by text, and a table of means.

    Raises:
      ValueError: also for a network without gates, or with gates on its input, and if no text is
        short enough.

    Reference: Xue et al. 2020 (GA-Net), eq. 5, whose test is one draw; the expectation is exact.
    """
    check_gated(model)
    if draws < 2:
        raise ValueError(f"draws must be at least 2, got {draws}")
    tau, texts = temperature_of(model, temperature), Texts.of(batch, longest)
    network, key = Network(model), jax.random.key(0) if key is None else key
    params = jax.device_put(params)
    parts: dict[str, list[ModeValues]] = {}
    logits, truths = [], []
    for _, held, modes in read_texts(network, params, texts, draws, key, tau):
        for mode, values in modes.items():
            parts.setdefault(mode, []).append(values)
        for a, truth in truths_of(network, params, held, modes["threshold"].loss[0]):
            logits.append(a)
            truths.append(truth)
    joined = {
        mode: ModeValues(*(np.concatenate(x, axis=1) for x in zip(*of, strict=True)))
        for mode, of in parts.items()
    }
    return GateModes(
        rows=texts.rows,
        left_out=texts.left_out,
        longest=longest,
        lengths=texts.lengths,
        labels=texts.labels,
        temperature=tau,
        draws=draws,
        truths=tuple(truths),
        logits=tuple(logits),
        modes=joined,
    )


class TextLoss(ByIdentity):
    """The cross-entropy of one text as a function of its gates; a static argument of programs."""

    def __call__(
        self, gates: Float[Array, " T"], params: Params, encoded: Tree, label: Array
    ) -> Float[Array, ""]:
        """loss(gates), hard or soft, of what `encode` gave of a batch of one text."""
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
) -> Measured:
    """Measures estimators of the gradient of a trained GA-Net's logits against the exact one.

    The loss of a text is its cross-entropy as a function of its gates, the encoder's states fixed;
    `texts` of the batch are taken, at equal distances. Every estimator gets the same keys. One
    program per estimator, whatever the lengths.

    Args:
      model, params, batch, longest: as of `gate_modes`.
      estimators: what to measure, hashable; None is every one that needs nothing but a
        temperature, which is that of the model.
      texts: how many, at most.
      draws: estimates per text, at least 2.
      key: of all draws; None is that of 0.
      on_estimator: called before each of them.

    Raises:
      ValueError: as `gate_modes`.
    """
    check_gated(model)
    for name, value, least in (("texts", texts, 1), ("draws", draws, 2)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    every = Texts.of(batch, longest)
    count = min(texts, len(every.rows))
    some = every.taken(np.unique(np.linspace(0, len(every.rows) - 1, count).round().astype(int)))
    key = jax.random.key(0) if key is None else key
    tau = temperature_of(model, None)
    estimators = standard_estimators(tau) if estimators is None else estimators
    network, params = Network(model), jax.device_put(params)
    exact, sizes, encoded = [], [], []
    for read, held, modes in read_texts(network, params, some, 2, key, tau):
        centres = modes["threshold"].loss[0]
        encoded += [jax.tree.map(lambda x, i=i: x[i : i + 1], read) for i in range(len(centres))]
        for _, truth in truths_of(network, params, held, centres):
            exact.append(truth.gradient)
            sizes.append(abs(truth.loss) + np.sqrt(truth.variance))
    keys = [jax.random.split(jax.random.fold_in(key, i), draws) for i in some.ids.tolist()]
    loss, rows = TextLoss(model), []

    for estimator in estimators:
        if on_estimator is not None:
            on_estimator(estimator)

        def sample(i: int, estimator: Estimator = estimator) -> Sample:
            n, one = int(some.lengths[i]), encoded[i]
            logits = jnp.asarray(one.gate_logits[0], jnp.float32)
            args = (params, one, np.int32(some.labels[i]))
            found = estimate_gradients(loss, estimator, logits, keys[i], args, one.mask[0])
            rounding = rounding_tolerance(sizes[i], logits.dtype)
            return Sample(np.asarray(found)[:, :n], exact[i], rounding, estimator.evaluations(n))

        rows.append(summarize(estimator, map(sample, range(len(exact)))))
    norm = float(np.sqrt(np.mean([g @ g for g in exact])))
    return Measured(tuple(rows), len(exact), draws, norm)
