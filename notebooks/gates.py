"""Text copy of gates.ipynb; `python notebooks/build.py` writes the notebook."""

# %% [markdown]
# # Gates that can be trusted
#
# A gate is open with probability $p_i = \sigma(a_i)$. A network trained through its gates minimises
#
# $$\mathbb{E} f(b) = \sum_b \prod_i p_i^{b_i} (1 - p_i)^{1 - b_i} f(b)$$
#
# If you draw the gates, you don't get this expectation's gradient.
#
# **You learn** to measure how wrong a gradient estimate is, to see whether you test the network
# that you trained, and to find out whether closed words are really unused.
#
# **It takes** fifteen minutes to read, and the cells run for three minutes on two free CPU cores.
# You should know what a gradient and a Bernoulli draw are.

# %%
import csv
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from gatedjax import analysis, data, gates, models, training

WORK = Path(tempfile.mkdtemp())

# %% parameters
STEPS = 600  # training steps of each network
DRAWS = 2000  # draws of each estimator

# %% [markdown]
# ## A loss of three gates, and its exact gradient
# The first gate raises the loss, the second lowers it, and a sigmoid lets them interact.


# %%
def loss(gates, weights):
    """Computes a sigmoid of a weighted sum of gates."""
    return jax.nn.sigmoid(gates @ weights - 2)


weights, logits = jnp.array([6.0, -5.0, 1.0]), jnp.array([0.4, -0.2, 0.1])
truth = gates.enumerate(loss, logits, weights)
print("expectation", truth.expectation, " gradient", truth.gradient.round(4))

# %% [markdown]
# ## An estimator's error
# The gradient of the function that `expectation` returns is the estimate. `report` compares many
# estimators at a point with the exact gradient (`print(report)` shows all columns). The left
# panel shows how long the bias is, with its standard error: if a bar reaches 0, no bias is shown.
# The right panel shows a single estimate's variance.

# %%
estimators = [
    gates.SoftGumbel(0.5),
    gates.STGumbel(0.5),
    gates.StraightThrough(),
    gates.ReinMax(),
    gates.MeanField(),
    gates.Reinforce(),
    gates.LeaveOneOut(2),
    gates.ARM(),
    gates.DisARM(),
    gates.Rebar(0.5),
    gates.LocalExpectation(),
]
report = gates.report(
    loss, logits, estimators, weights, key=jax.random.key(0), draws=DRAWS
)
print(f"{'':20s} {'bias':>7s} {'variance':>9s} {'evaluations':>12s}")
for row in report.rows:
    bias = np.linalg.norm(row.bias)
    name = type(row.estimator).__name__
    print(f"{name:20s} {bias:7.4f} {row.variance:9.4f} {row.evaluations:12d}")

# %% hide-input
rows = report.rows[::-1]
colours = ["#0072B2" if row.estimator.unbiased else "#D55E00" for row in rows]
figure, (left, right) = plt.subplots(
    1, 2, figsize=(8, 3.6), sharey=True, layout="constrained"
)
for place, (row, colour) in enumerate(zip(rows, colours, strict=True)):
    bias, error = np.linalg.norm(row.bias), np.linalg.norm(row.standard_error)
    left.errorbar(bias, place, xerr=error, fmt="o", color=colour, capsize=3)
left.axvline(0, color="0.7", lw=0.8)
left.set(xlabel="length of the bias", yticks=range(len(rows)))
left.set_yticklabels([type(row.estimator).__name__ for row in rows])
right.barh(range(len(rows)), [row.variance for row in rows], color=colours)
right.set(xlabel="variance of one estimate")
figure.suptitle(
    "Unbiased estimators (blue) need variance or more evaluations", fontsize=10
)
# %% [markdown]
# ## Modes that disagree
# You can draw the same gates, threshold them at one half, replace them by their probabilities, or
# choose them for the smallest loss. These are different networks.

# %% hide-input
losses = gates.enumerate(loss, logits, weights, key=jax.random.key(1)).modes
figure, axis = plt.subplots(figsize=(6, 2.4), layout="constrained")
names = ["sample", "expected", "relaxed", "threshold", "best"]
axis.barh(
    names[::-1], [float(losses[name]) for name in names[::-1]], color="#0072B2"
)
axis.set(xlabel="loss", xlim=(0, 1))
axis.set_title(
    "A threshold has another loss than the draws of training",
    fontsize=10,
)
# %% [markdown]
# ## A trained network
# The cell trains GA-Net on `polarity`, a small generated corpus, in three ways: with its paper's
# relaxation, with DisARM, which is unbiased, and with gates that also close words to the encoder.
# A Lagrange multiplier fixes the share of open words at 0.3 in all three networks.

# %%
source = {
    split: data.load("polarity", split)
    for split in ("train", "validation", "test")
}
vocabulary = data.Vocabulary.build([source["train"]])
encoded = {split: data.encode(s, vocabulary) for split, s in source.items()}
edges = (int(max(e.lengths.max() for e in encoded.values())),)
train = data.Batches(encoded["train"], batch_size=32, bucket_edges=edges)
validation = data.Batches.eval(
    encoded["validation"], batch_size=128, bucket_edges=edges
)
test = data.Batches.eval(encoded["test"], batch_size=128, bucket_edges=edges)
train_config = training.TrainConfig(
    num_steps=STEPS,
    log_every=STEPS // 20,
    eval_every=STEPS,
    checkpoint_every=STEPS,
    best_metric="accuracy",
    progress=False,
    optimizer=training.OptimizerConfig(learning_rate=4e-3, clip_norm=5.0),
)
kinds = {
    "relaxation": {},
    "DisARM": {"estimator": "disarm"},
    "gates on the input": {"gates_on": "input", "estimator": "disarm"},
}
nets, params = {}, {}
for number, (name, options) in enumerate(kinds.items()):
    config = models.GANetConfig(
        embedding_dim=50,
        hidden=32,
        aux_hidden=32,
        num_layers=1,
        gates=models.GateConfig(density=0.3, **options),
        dropouts={"embedding_dropout": 0.1, "pool_dropout": 0.1},
    )
    vectors = data.random_embeddings(vocabulary, 50)
    nets[name] = models.GANet(config, len(vocabulary), 2, embeddings=vectors)
    task = models.GANetTask(nets[name])
    result = training.fit(
        task, train, validation, train_config, WORK / str(number)
    )
    params[name] = result.best_params
    metrics = result.best_metrics
    print(
        f"{name:20s} sampled {metrics['accuracy_sample']:.3f}  "
        f"thresholded {metrics['accuracy_threshold']:.3f}  density "
        f"{metrics['density_sample']:.3f}"
    )

# %% [markdown]
# ## Exact values for a single sentence
# With the encoder's states fixed, you can evaluate all patterns for a sentence. `effects` returns
# how much the expected loss changes when a gate is forced open instead of shut.

# %%
batch = test[0]
row = int(np.argmin(np.abs(batch["lengths"][:64] - 9)))
size = int(batch["lengths"][row])
sentence = {
    name: value[row : row + 1, :size]
    if value.ndim > 1
    else value[row : row + 1]
    for name, value in batch.items()
}
net, weights_fixed = nets["DisARM"], params["DisARM"]


def sentence_loss(pattern, params, sentence):
    """Computes the negative log-likelihood of the label for a pattern."""
    output = net.apply(
        {"params": params}, sentence, pattern[None, None], method=net.with_gates
    )
    return -jax.nn.log_softmax(output.logits[0, 0])[sentence["label"][0]]


gate_logits = jax.jit(net.apply)(
    {"params": weights_fixed}, sentence
).gate_logits[0]
weights_fixed, sentence = jax.tree.map(jnp.asarray, (weights_fixed, sentence))
truth = gates.enumerate(sentence_loss, gate_logits, weights_fixed, sentence)
words = encoded["test"].tokens(int(test.rows(0)[row]))
for word, logit, effect in zip(words, gate_logits, truth.effects, strict=True):
    print(
        f"{word:12s} open with {float(jax.nn.sigmoid(logit)):.2f}   effect "
        f"{float(effect):+.4f}"
    )
print({name: round(float(value), 4) for name, value in truth.modes.items()})

# %% [markdown]
# All effects are close to 0: whichever gates are open, the network answers the same. A BiLSTM's
# states carry their neighbours, so each open word can stand for the sentence. This network's
# gates explain nothing, although its accuracy is as good as any here.
#
# ## Were closed words unused?
# The cell deletes the closed words from the input and runs the encoder again. The predicted
# class's probability changes by the *gate leak*. It's 0 if the gates also close words to the
# encoder.

# %%
for name, net in nets.items():
    measures = analysis.faithfulness(
        net,
        params[name],
        test[0],
        against=["random", "attention"],
        samples=1000,
    )
    print(
        f"{name}: leak {measures.mean('leak'):.3f}, labels it changes "
        f"{measures.mean('flipped'):.1%}"
    )
    for rationale, label in (
        ("own", "its open words"),
        ("random", "as many random words"),
    ):
        print(
            f"    {label}: comprehensiveness "
            f"{measures.mean('comprehensiveness', rationale):.3f}"
        )

# %% [markdown]
# ## Reviews that a person wrote
# `reviews.csv` holds 40 short reviews. The networks saw only generated sentences, so a wrong gate
# shows here first. Capitals mark open gates.

# %%
with open("reviews.csv", newline="", encoding="utf-8") as file:
    reviews = list(csv.DictReader(file))
rows = [data.tokenize(review["text"]) for review in reviews]
review_batch = {
    "tokens": analysis.pad([vocabulary.encode(words) for words in rows]).astype(
        np.int32
    ),
    "lengths": np.array([len(words) for words in rows], np.int32),
    "example_id": np.arange(len(rows), dtype=np.int32),
}
answers = np.array([review["label"] == "positive" for review in reviews])
for name, net in nets.items():
    output = jax.jit(net.apply)(
        {"params": params[name]}, review_batch, rngs={"gate": jax.random.key(0)}
    )
    accuracy = np.mean(np.argmax(output.logits, axis=-1) == answers)
    print(f"{name}: right in {accuracy:.0%} of {len(rows)} reviews")
    for words, open_gates in list(
        zip(rows, np.asarray(output.gates), strict=True)
    )[2:5]:
        pairs = zip(words, open_gates, strict=False)
        print(
            "   ",
            " ".join(w.upper() if g > 0.5 else w.lower() for w, g in pairs),
        )

# %% [markdown]
# ## Summary
# - An unbiased estimator isn't always better: straight-through gradients are slightly biased and
#   vary half as much as DisARM's. The local expectation does neither, but evaluates the loss more
#   often the more gates there are. `gates.report` shows this for your loss.
# - Draws, thresholds and probabilities are different networks. Compare them in evaluation.
# - High accuracy with few open words doesn't show that the other words weren't used. Only gates
#   that also act on the encoder's input bring the leak to 0. This costs accuracy here.
# - On the reviews all three networks are weaker. The gates on the input open the words that a
#   reader would name; the two other networks also open words that only carry a state.
#
# Next: all estimators, maps and modes, on the page of [gates](../docs/gates.md).
