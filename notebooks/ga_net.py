"""Text copy of ga_net.ipynb; `python notebooks/build.py` writes the notebook."""

# %% [markdown]
# # GA-Net: attention that sees only some words
#
# Xue, Li and Zhang (2020) put a gate $g_t \in \{0, 1\}$ in front of each word. An auxiliary
# network decides which gates open; attention is computed over the open words only:
#
# $$\alpha_t = \frac{g_t\, e^{e_t}}{\sum_s g_s\, e^{e_s}}, \qquad c = \sum_t \alpha_t h_t$$
#
# **You learn** how a gate closes a word to attention, how gates get a gradient, how to train GA-Net
# next to soft attention, and how to read its open words, on generated sentences and on reviews that
# a person wrote.
#
# **It takes** fifteen minutes to read, and the cells run for two minutes on two free CPU cores. You
# should know what attention is.

# %%
import csv
import dataclasses
import html
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import HTML

from gatedjax import analysis, data, models, training
from gatedjax import functional as F

WORK = Path(tempfile.mkdtemp())

# %% parameters
STEPS = 500  # training steps of each network

# %% [markdown]
# ## The gated softmax on three words
# A closed gate removes a word, and the remaining weights are normalised again.

# %%
scores = jnp.array([1.0, 2.0, 0.5])
print("all open    ", F.gated_softmax(scores, jnp.array([1.0, 1.0, 1.0])))
print("second shut ", F.gated_softmax(scores, jnp.array([1.0, 0.0, 1.0])))
print("half open   ", F.gated_softmax(scores, jnp.array([1.0, 0.5, 1.0])))

# %% [markdown]
# ## Gates that have a gradient
# You can't differentiate a Bernoulli draw. With logistic noise $L$ the draw is $[a + L > 0]$. Its
# smooth relaxation is $\sigma((a + L)/\tau)$, which is sharp when $\tau$ is small.

# %% hide-input
noise = F.logistic_noise(jax.random.key(0), (20_000,))
logits = jnp.full_like(noise, 0.5)
figure, axes = plt.subplots(
    1, 3, figsize=(9, 2.6), sharey=True, layout="constrained"
)
for axis, tau in zip(axes, (2.0, 1.0, 0.1), strict=True):
    axis.hist(
        F.gumbel_sigmoid(logits, noise, temperature=tau),
        bins=40,
        color="#0072B2",
    )
    axis.set(title=f"temperature {tau}", xlabel="gate")
axes[0].set_ylabel("draws")
figure.suptitle(
    "The lower the temperature, the closer a soft gate is to 0 or 1",
    fontsize=10,
)
open_share = float(jnp.mean(F.sample_gates(logits, key=jax.random.key(0))))
print(
    f"share of open draws {open_share:.3f}, sigmoid(0.5) = "
    f"{float(jax.nn.sigmoid(0.5)):.3f}"
)

# %% [markdown]
# ## Two models on sentences with known deciding words
# `polarity` is a small generated corpus with negation and contrast, in which the words that decide
# the label are marked.

# %%
source = {
    split: data.load("polarity", split)
    for split in ("train", "validation", "test")
}
vocabulary = data.Vocabulary.build([source["train"]])
encoded = {split: data.encode(s, vocabulary) for split, s in source.items()}
example = source["train"][0]
print(
    " ".join(
        w.upper() if d else w
        for w, d in zip(
            *(example[k] for k in ("tokens", "decides")), strict=True
        )
    )
)

# %%
soft_config = models.GANetConfig(
    system="soft",
    embedding_dim=50,
    hidden=32,
    aux_hidden=32,
    num_layers=1,
    gates=models.GateConfig(penalty=1e-3),
    dropouts={"embedding_dropout": 0.1, "pool_dropout": 0.1},
)
configs = {
    "soft": soft_config,
    "ganet": dataclasses.replace(soft_config, system="ganet"),
}
train_config = training.TrainConfig(
    num_steps=STEPS,
    log_every=STEPS // 20,
    eval_every=STEPS // 10,
    checkpoint_every=STEPS,
    best_metric="loss",
    best_mode="min",
    progress=False,
    optimizer=training.OptimizerConfig(learning_rate=4e-3, clip_norm=5.0),
)
edges = (int(max(e.lengths.max() for e in encoded.values())),)
train = data.Batches(encoded["train"], batch_size=32, bucket_edges=edges)
validation = data.Batches.eval(
    encoded["validation"], batch_size=128, bucket_edges=edges
)
test = data.Batches.eval(encoded["test"], batch_size=128, bucket_edges=edges)
vectors = data.random_embeddings(vocabulary, 50)
tasks, results = {}, {}
for name, config in configs.items():
    model = models.GANet(config, len(vocabulary), 2, embeddings=vectors)
    tasks[name] = models.GANetTask(model)
    results[name] = training.fit(
        tasks[name], train, validation, train_config, WORK / name
    )
    print(
        f"{name:6s} validation accuracy "
        f"{results[name].best_metrics['accuracy']:.4f}"
    )

# %% hide-input
curves = {
    name: analysis.read_metrics(WORK / name / "metrics.jsonl")
    for name in configs
}
analysis.plot_learning_curves(
    curves, title="GA-Net learns as fast as soft attention, with few words"
)

# %% [markdown]
# ## The gap between kinds of gates
# Gates are soft in training and hard at test time. Does that matter? A single pass over the test
# set evaluates the same parameters with sampled, thresholded, expected and relaxed gates.

# %%
metrics, _ = training.evaluate(
    tasks["ganet"], results["ganet"].best_params, test, training.make_parallel()
)
for mode in ("sample", "threshold", "expected", "relaxed"):
    accuracy, density = metrics[f"accuracy_{mode}"], metrics[f"density_{mode}"]
    print(f"{mode:10s} accuracy {accuracy:.4f}  density {density:.4f}")

# %% [markdown]
# ## One example of one training step, again
# Random bits depend on seed, step and example. So you can compute again what the network saw for
# a sentence in any training step, from this sentence only, with the same gates and the same
# dropout.

# %%
step = 3
example = int(train[step]["example_id"][5])
single, rngs = training.replay(train, train_config.seed, step, example)


@jax.jit
def apply(batch):
    """Runs the network as in this step of training."""
    params = {"params": results["ganet"].best_params}
    return tasks["ganet"].model.apply(params, batch, train=True, rngs=rngs)


gates_alone = np.asarray(apply(single).gates[0])
in_batch = np.asarray(apply(train[step]).gates[5])
print(
    f"example {example}: the largest difference of a gate is "
    f"{abs(gates_alone - in_batch).max():.1e}"
)

# %% [markdown]
# ## The words with an open gate
# A BiLSTM state also carries neighbouring words, so an open gate next to a deciding word can be
# enough. Don't read an open gate as "this word decides" before you compare the gates with the
# marked words.

# %%
batch = test[0]
rngs = {"gate": jax.random.key(0)}
outputs = {
    name: jax.jit(tasks[name].model.apply)(
        {"params": results[name].best_params}, batch, rngs=rngs
    )
    for name in configs
}
rows = test.rows(0)
words = [encoded["test"].tokens(int(row)) for row in rows]
truth = [encoded["test"].extra(int(row), "decides") for row in rows]
lengths = batch["lengths"][: len(rows)]
gates = np.asarray(outputs["ganet"].gates)[: len(rows)]
truth_scores, shares = (
    analysis.gate_truth(gates, analysis.pad(truth), lengths),
    analysis.density(gates, lengths),
)
print(f"{shares.sentence:.1%} of the words of a sentence are open")
print(f"{truth_scores.precision:.0%} of the open words decide the label")
print(f"{truth_scores.recall:.0%} of the deciding words are open")

# %% hide-input
longest = int(np.argmax(lengths))
size = int(lengths[longest])
analysis.plot_heatmap(
    [
        (
            "GA-Net",
            words[longest],
            np.asarray(outputs["ganet"].attention[longest, :size]),
            gates[longest],
        ),
        (
            "soft",
            words[longest],
            np.asarray(outputs["soft"].attention[longest, :size]),
            None,
        ),
    ],
    title="GA-Net opens few words; soft attention has a weight for each",
)

# %% [markdown]
# ## Reviews that a person wrote
# `reviews.csv` holds 40 short reviews. The networks saw only generated sentences, and don't know
# a fifth of the words. The accuracy falls, and the open words show why: a word that the grammar
# never used can take the gate.

# %%
with open("reviews.csv", newline="", encoding="utf-8") as file:
    reviews = list(csv.DictReader(file))
review_words = [data.tokenize(review["text"]) for review in reviews]
review_batch = {
    "tokens": analysis.pad(
        [vocabulary.encode(review) for review in review_words]
    ).astype(np.int32),
    "lengths": np.array([len(review) for review in review_words], np.int32),
    "example_id": np.arange(len(review_words), dtype=np.int32),
}
answers = np.array([review["label"] == "positive" for review in reviews])
review_outputs = {
    name: jax.jit(tasks[name].model.apply)(
        {"params": results[name].best_params}, review_batch, rngs=rngs
    )
    for name in configs
}
for name, output in review_outputs.items():
    share = np.mean(np.argmax(output.logits, axis=-1) == answers)
    print(f"{name:6s} is right in {share:.0%} of {len(review_words)} reviews")

# %% hide-input
guesses = np.argmax(review_outputs["ganet"].logits, axis=-1)
marked = [
    (
        f"{reviews[i]['label']}, "
        f"{'right' if guesses[i] == answers[i] else 'wrong'}",
        review_words[i],
        np.asarray(review_outputs["ganet"].attention[i]),
        np.asarray(review_outputs["ganet"].gates[i]),
    )
    for i in range(2, 8)
]
page = html.escape(analysis.highlight_html(marked, "Open words of six reviews"))
# The page is in a frame, because its style sheet must not reach the notebook.
HTML(
    f'<div><iframe srcdoc="{page}" title="Open words of six reviews" '
    'width="100%" height="560">'
    "</iframe></div>"
)

# %% [markdown]
# ## Sparsity that saves work
# If few gates are open, gather the open words into a fixed capacity and score only these words.

# %%
states = jax.random.normal(jax.random.key(1), (32, 231, 200))
kernel = 0.1 * jax.random.normal(jax.random.key(2), (200,))
open_gates = (jax.random.uniform(jax.random.key(3), (32, 231)) < 0.2).astype(
    jnp.float32
)


def score(h):
    """Computes the score w . tanh(h) of Zhou et al."""
    return jnp.tanh(h) @ kernel


capacity = F.plan_capacity(np.asarray(open_gates.sum(1)))
compact = F.compact_attention_pool(score, states, open_gates, capacity=capacity)
dense = F.attention_pool(states, F.gated_softmax(score(states), open_gates))
difference = float(abs(compact.pooled - dense).max())
print(
    f"capacity {capacity} of 231; largest difference from all words "
    f"{difference:.1e}"
)

# %% [markdown]
# ## Summary
# - A closed gate gives a word the attention weight 0. In training the gates are soft and drawn,
#   so they pass on a gradient.
# - On the generated sentences GA-Net is as accurate as soft attention with a tenth of the words.
# - An open word need not decide the label, because a BiLSTM state also carries its neighbours.
#   Compare open words with marked words, or remove words, before you believe a gate.
# - On other sentences the accuracy is lower. A test set from the same source doesn't show this.
#
# Next: [GA-Net](../docs/ga_net.md) shows what held in the paper's experiments,
# [gates that can be trusted](gates.ipynb) measures what closed words still do, and
# [from a CSV to a model you can defend](from_csv.ipynb) trains the network on a file.
