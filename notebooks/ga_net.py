"""Text copy of ga_net.ipynb; `python notebooks/build.py` writes the notebook."""

# %% [markdown]
# # GA-Net: attention that sees only some words
#
# Xue, Li and Zhang (2020) put a gate $g_t \in \{0, 1\}$ in front of each word. An auxiliary
# network decides which gates open; attention is computed over the open words only:
#
# $$\alpha_t = \frac{g_t\, e^{e_t}}{\sum_s g_s\, e^{e_s}}, \qquad c = \sum_t \alpha_t h_t$$

# %%
import dataclasses
import html
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import HTML

from gatedjax import TextClassifier, analysis, data, models, training
from gatedjax import functional as F

WORK = Path(tempfile.mkdtemp())

# %% parameters
STEPS = 1000  # training steps of each network

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
# A Bernoulli draw has no gradient. With logistic noise $L$ the draw is $[a + L > 0]$. Its smooth
# relaxation is $\sigma((a + L)/\tau)$, which is sharp when $\tau$ is small.

# %% hide-input
noise = F.logistic_noise(jax.random.key(0), (20_000,))
logits = jnp.full_like(noise, 0.5)
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True, layout="constrained")
for axis, tau in zip(axes, (2.0, 1.0, 0.1), strict=True):
    axis.hist(F.gumbel_sigmoid(logits, noise, temperature=tau), bins=40, color="#0072B2")
    axis.set(title=f"temperature {tau}", xlabel="gate")
axes[0].set_ylabel("draws")
opened = float(jnp.mean(F.sample_gates(logits, key=jax.random.key(0))))
print(f"share of open draws {opened:.3f}, sigmoid(0.5) = {float(jax.nn.sigmoid(0.5)):.3f}")

# %% [markdown]
# ## Two models on sentences with known deciding words
# `polarity` is a small generated corpus with negation and contrast, in which the words that decide
# the label are marked.

# %%
source = {split: data.load("polarity", split) for split in ("train", "validation", "test")}
vocabulary = data.Vocabulary.build([source["train"]])
encoded = {split: data.encode(s, vocabulary) for split, s in source.items()}
example = source["train"][0]
print(
    " ".join(
        w.upper() if d else w
        for w, d in zip(*(example[k] for k in ("tokens", "decides")), strict=True)
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
configs = {"soft": soft_config, "ganet": dataclasses.replace(soft_config, system="ganet")}
train_config = training.TrainConfig(
    num_steps=STEPS,
    log_every=max(STEPS // 20, 1),
    eval_every=max(STEPS // 8, 1),
    checkpoint_every=STEPS,
    best_metric="loss",
    best_mode="min",
    progress=False,
    optimizer=training.OptimizerConfig(learning_rate=4e-3, clip_norm=5.0),
)
edges = (int(max(e.lengths.max() for e in encoded.values())),)
train = data.Batches(encoded["train"], batch_size=32, bucket_edges=edges)
validation = data.Batches.eval(encoded["validation"], batch_size=128, bucket_edges=edges)
test = data.Batches.eval(encoded["test"], batch_size=128, bucket_edges=edges)
vectors = data.random_embeddings(vocabulary, 50)
tasks, results = {}, {}
for name, config in configs.items():
    model = models.GANet(config, len(vocabulary), 2, embeddings=vectors)
    tasks[name] = models.GANetTask(model)
    results[name] = training.fit(tasks[name], train, validation, train_config, WORK / name)
    print(name, results[name].best_metrics["accuracy"])

# %%
curves = {name: analysis.read_metrics(WORK / name / "metrics.jsonl") for name in configs}
analysis.plot_learning_curves(curves, title="Learning curves on polarity")

# %% [markdown]
# ## The gap between kinds of gates
# Gates are soft in training and hard at test time. A single pass over the test set evaluates the
# same parameters with sampled, thresholded, expected and relaxed gates.

# %%
metrics, _ = training.evaluate(
    tasks["ganet"], results["ganet"].best_params, test, training.make_parallel()
)
for mode in ("sample", "threshold", "expected", "relaxed"):
    accuracy, density = metrics[f"accuracy_{mode}"], metrics[f"density_{mode}"]
    print(f"{mode:10s} accuracy {accuracy:.4f}  density {density:.4f}")

# %% [markdown]
# ## One example of one training step, again
# Random bits depend on seed, step and example. The input of the network for a sentence in a step of
# training can therefore be computed again from this sentence only, with the same gates and the same
# dropout.

# %%
step = 3
example = int(train[step]["example_id"][5])
alone, rngs = training.replay(train, train_config.seed, step, example)
apply = jax.jit(lambda batch: tasks["ganet"].model.apply(
    {"params": results["ganet"].best_params}, batch, train=True, rngs=rngs
))  # fmt: skip
once = np.asarray(apply(alone).gates[0])
in_batch = np.asarray(apply(train[step]).gates[5])
print(f"example {example}: the largest difference of a gate is {abs(once - in_batch).max():.1e}")

# %% [markdown]
# ## The words with an open gate
# A state of a BiLSTM also contains information about neighbouring words, so an open gate next to a
# deciding word can be enough. Do not read an open gate as "this word decides" before you have
# compared the gates with the marked words.

# %%
batch = test[0]
rngs = {"gate": jax.random.key(0)}
outputs = {
    name: jax.jit(tasks[name].model.apply)({"params": results[name].best_params}, batch, rngs=rngs)
    for name in configs
}
rows = test.rows(0)
words = [encoded["test"].tokens(int(row)) for row in rows]
truth = [encoded["test"].extra(int(row), "decides") for row in rows]
lengths = batch["lengths"][: len(rows)]
gates = np.asarray(outputs["ganet"].gates)[: len(rows)]
print(analysis.gate_truth(gates, analysis.pad(truth), lengths))
print(analysis.density(gates, lengths))

# %%
shown = int(np.argmax(lengths))
size = int(lengths[shown])
analysis.plot_heatmap(
    [
        (
            "GA-Net",
            words[shown],
            np.asarray(outputs["ganet"].attention[shown, :size]),
            gates[shown],
        ),
        ("soft", words[shown], np.asarray(outputs["soft"].attention[shown, :size]), None),
    ],
    title="One sentence under both models",
)

# %%
marked = [
    (f"sentence {i}", words[i], np.asarray(outputs["ganet"].attention[i]), gates[i])
    for i in range(min(4, len(rows)))
]
page = html.escape(analysis.highlight_html(marked, "Open words"))
# a page of its own: its style sheet must not reach the notebook
HTML(f'<div><iframe srcdoc="{page}" title="Open words" width="100%" height="520"></iframe></div>')

# %% [markdown]
# ## The same example, without its batch
# Noise belongs to the example, not to its place in a batch: the gates of the example do not change
# when it is replayed without the other examples.

# %%
alone = {name: value[shown : shown + 1] for name, value in batch.items()}
again = tasks["ganet"].model.apply({"params": results["ganet"].best_params}, alone, rngs=rngs)
assert (np.asarray(again.gates[0]) == gates[shown]).all()
print("equal gates")

# %% [markdown]
# ## Sparsity that saves work
# If few gates are open, gather the open words into a fixed capacity and score only these words.

# %%
states = jax.random.normal(jax.random.key(1), (32, 231, 200))
kernel = 0.1 * jax.random.normal(jax.random.key(2), (200,))
open_gates = (jax.random.uniform(jax.random.key(3), (32, 231)) < 0.2).astype(jnp.float32)


def score(h):
    """Zhou et al.'s score: w . tanh(h)."""
    return jnp.tanh(h) @ kernel


capacity = F.plan_capacity(np.asarray(open_gates.sum(1)))
compact = F.compact_attention_pool(score, states, open_gates, capacity=capacity)
dense = F.attention_pool(states, F.gated_softmax(score(states), open_gates))
print("capacity", capacity, "of 231; largest difference", float(abs(compact.pooled - dense).max()))

# %% [markdown]
# ## Your sentences
# A few rows of text and label are enough to train the same network as a classifier of your data.
# `docs/own_text.md` describes files, options and the command line.

# %%
good, bad = ("fine", "moving", "bright", "witty"), ("dull", "flat", "tedious", "lifeless")
rows = [
    (f"a {one} and {two} {thing}", label)
    for label, words in (("positive", good), ("negative", bad))
    for one in words
    for two in words
    for thing in ("film", "story", "cast", "plot")
]
own = TextClassifier.train(rows, model="ganet", num_steps=min(STEPS, 120))
print(own.predict(["a dull and tedious script"])[0])
page = html.escape(own.explain("a dull script").html())
HTML(f'<iframe srcdoc="{page}" width="100%" height="420"></iframe>')
