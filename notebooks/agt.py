"""Text copy of agt.ipynb; `python notebooks/build.py` writes the notebook."""

# %% [markdown]
# # AGT: one attention per layer, and a gate on its contribution
#
# Guo's attention gated transformation network (2017) reads a text $L$ times. Each layer attends
# separately to the projected words $M_n$, and its *selection vector* drives the gate that lets
# the layer change the text's state:
#
# $$a_l = \mathrm{softmax}_n\big(w_l \cdot \tanh(W_l M_n)\big), \qquad s_l = \sum_n a_{ln} M_n$$
# $$y_0 = s_0, \qquad T_l = \sigma(W^t_l s_l + b^t_l), \qquad
# y_l = T_l \odot \tanh\big(W^f_l [y_{l-1}; s_l] + b^f_l\big) + (1 - T_l) \odot y_{l-1}$$
#
# The paper says that its layers compose phrases.
#
# **You learn** what a trained network's layers and gates select, how to test whether selected
# neighbours are phrases, and which layers the network needs.
#
# **It takes** fifteen minutes to read, and the cells run for two minutes on two free CPU cores. You
# should know what attention is.

# %%
import csv
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from gatedjax import analysis, data, models, training
from gatedjax import functional as F
from gatedjax.analysis import phrases

WORK = Path(tempfile.mkdtemp())
LAYERS = 8

# %% parameters
STEPS = 800  # training steps of each network

# %% [markdown]
# ## The two functions of the network
# `selection_vectors` computes all $L$ attentions at once, because no attention depends on a state.
# `highway_mix` is one step in the gated stack: a gate of 1 takes the new candidate, a gate of 0
# carries the state.

# %%
keys = jax.random.split(jax.random.key(0), 3)
words = jax.random.normal(keys[0], (2, 5, 4))  # two texts, five words, width 4
mask = F.length_mask(jnp.array([5, 3]), 5)
selected, attention = F.selection_vectors(
    words,
    kernels=jax.random.normal(keys[1], (LAYERS, 4, 6)),
    vectors=jax.random.normal(keys[2], (LAYERS, 6)),
    mask=mask,
)
print("selection vectors", selected.shape, " attention", attention.shape)
print("sums of the attention", np.unique(np.round(attention.sum(-1), 5)))
print("weight on padding", float(attention[1, :, 3:].sum()))
for gate in (0.0, 0.5, 1.0):
    mixed = F.highway_mix(jnp.ones(1), -jnp.ones(1), jnp.full(1, gate))
    print(
        f"gate {gate}: candidate 1 and carry -1 become {float(mixed[0]):+.1f}"
    )

# %% [markdown]
# ## Three networks on sentences with known deciding words
# `polarity` is a small generated corpus with negation and contrast. The highway network uses only
# the first selection vector; the third network averages the word vectors.

# %%
source = {
    split: data.load("polarity", split)
    for split in ("train", "validation", "test")
}
vocabulary = data.Vocabulary.build([source["train"]])
encoded = {split: data.encode(s, vocabulary) for split, s in source.items()}
train = data.Batches(encoded["train"], batch_size=50, max_buckets=1)
validation = data.Batches.eval(
    encoded["validation"], batch_size=256, max_buckets=1
)
test = data.Batches.eval(
    encoded["test"], batch_size=len(source["test"]), max_buckets=1
)
batch, rows = test[0], test.rows(0)
tokens = [source["test"][row]["tokens"] for row in rows]
mask = np.asarray(F.length_mask(batch["lengths"], batch["tokens"].shape[1]))

sizes = {
    "embedding_dim": 50,
    "hidden": 32,
    "head_hidden": (32,),
    "dropout": 0.1,
}
configs = {
    "AGT": models.AGTConfig(attention_hidden=32, num_layers=LAYERS, **sizes),
    "highway": models.AGTConfig(
        system="highway", attention_hidden=32, num_layers=LAYERS, **sizes
    ),
    "average": models.AGTConfig(system="average", **sizes),
}
nets = {
    name: models.AGT(config, len(vocabulary), 2)
    for name, config in configs.items()
}
train_config = training.TrainConfig(
    num_steps=STEPS,
    log_every=STEPS // 20,
    eval_every=STEPS // 10,
    checkpoint_every=STEPS,
    best_metric="accuracy",
    progress=False,
    optimizer=training.OptimizerConfig(learning_rate=4e-3),
)
outputs = {}
for name, net in nets.items():
    result = training.fit(
        models.AGTTask(net), train, validation, train_config, WORK / name
    )
    outputs[name] = jax.device_get(
        jax.jit(net.apply)({"params": result.best_params}, batch)
    )
    if name == "AGT":
        params = result.best_params
correct = {
    n: np.argmax(o.logits, -1) == batch["label"] for n, o in outputs.items()
}
for name, right in correct.items():
    size = np.sqrt(right.mean() * (1 - right.mean()) / len(right))
    print(
        f"{name:8s} test accuracy {right.mean():.3f} ± {size:.3f} (n = "
        f"{len(right)}, one seed)"
    )
for name in ("highway", "average"):
    tested = analysis.mcnemar(correct["AGT"], correct[name])
    print(
        f"only AGT right {tested.b}, only {name} right {tested.c}, p = "
        f"{tested.p_value:.1e}"
    )

# %% [markdown]
# ± is the standard error, from the test sentences only. The test compares the same sentences in
# both networks.
#
# ## The words that the layers select
# Weights are rescaled to $[0, 1]$ per sentence and layer. A word is *selected* above 0.95, and
# selected neighbours get one outline.

# %%
r = phrases.normalise(outputs["AGT"].attention, mask)
selection = phrases.select(r, mask)
longest = int(np.argmax([len(words) for words in tokens]))
for layer, entry in enumerate(
    phrases.trace(tokens[longest], selection[longest])
):
    print(f"L{layer + 1}: {' '.join(entry.words)}")

# %% hide-input
analysis.plot_word_layers(
    tokens[longest],
    r[longest, :, : len(tokens[longest])],
    title="Layers select different words",
)

# %% [markdown]
# ## A review that a person wrote
# `reviews.csv` holds 40 short reviews. The networks saw only generated sentences; words that they
# don't know share a single vector.

# %%
with open("reviews.csv", newline="", encoding="utf-8") as file:
    reviews = list(csv.DictReader(file))
review_words = [data.tokenize(review["text"]) for review in reviews]
review_batch = {
    "tokens": analysis.pad(
        [vocabulary.encode(review) for review in review_words]
    ).astype(np.int32),
    "lengths": np.array([len(review) for review in review_words], np.int32),
}
answers = np.array([review["label"] == "positive" for review in reviews])
output = jax.device_get(nets["AGT"].apply({"params": params}, review_batch))
share = np.mean(np.argmax(output.logits, -1) == answers)
print(f"AGT is right in {share:.0%} of {len(reviews)} reviews")
review_mask = np.asarray(
    F.length_mask(review_batch["lengths"], review_batch["tokens"].shape[1])
)
review_r = phrases.normalise(output.attention, review_mask)

# %% hide-input
place = 4
analysis.plot_word_layers(
    review_words[place],
    review_r[place, :, : len(review_words[place])],
    title="What the layers select in a review",
)

# %% [markdown]
# ## How often the selected words decide
# The next cell prints the first layer's most selected words, and how often layers select words
# that decide the label. The corpus marks these words, but training didn't use the marks.

# %%
common = phrases.first_words(tokens, r).most_common(5)
print(", ".join(f"{word} {count}" for word, count in common))
decides = np.zeros_like(mask)
for row, number in enumerate(rows):
    decides[row, : len(tokens[row])] = source["test"][number]["decides"]
base = decides.sum() / mask.sum()
print(f"{base:.2f} of all words decide. Among the selected words:")
for layer in range(LAYERS):
    hits = (selection[:, layer] & decides).sum() / max(
        selection[:, layer].sum(), 1
    )
    weight = (outputs["AGT"].attention[:, layer] * decides).sum(-1).mean()
    print(
        f"L{layer + 1}: {hits:.2f}   attention on deciding words {weight:.2f}"
    )

# %% [markdown]
# ## Distributions over the test set
# The figures show each layer's attention, how long runs of selected words are, and the gates.

# %% hide-input
gates = phrases.gate_histogram(outputs["AGT"].gates)
analysis.plot_layer_histograms(
    {
        "rescaled attention": phrases.weight_histogram(r, mask),
        "words in a run": phrases.phrase_length_histogram(selection),
    },
    title="Most weights are near 0, and most runs have a single word",
)

# %% hide-input
analysis.plot_layer_histograms(
    {"gate": gates.pooled},
    title="What each layer may change",
    layers=[f"L{i + 2}" for i in range(LAYERS - 1)],
)

# %% [markdown]
# ## Are the runs phrases?
# The network knows nothing about order. Shuffle a text's words, and its attention is shuffled in
# the same way, and the class scores stay as they are, up to rounding:

# %%
order = np.random.default_rng(0).permutation(int(batch["lengths"][longest]))
sentence = {
    "tokens": np.asarray(batch["tokens"][longest : longest + 1, : len(order)]),
    "lengths": np.array([len(order)]),
}
mixed = {**sentence, "tokens": sentence["tokens"][:, order]}
before, after = (
    nets["AGT"].apply({"params": params}, b) for b in (sentence, mixed)
)
print(
    "largest change of a score", float(abs(before.logits - after.logits).max())
)
print(
    "attention is permuted:",
    bool(
        jnp.allclose(before.attention[..., order], after.attention, atol=1e-6)
    ),
)

# %% [markdown]
# So a run is several words that are selected *independently* and happen to be neighbours. You
# should compare it with the same selection after shuffling each sentence. Only the difference
# shows that the network's choices follow the text.

# %% hide-input
rng = np.random.default_rng(0)
random_order = np.argsort(
    np.where(mask, rng.random(mask.shape), np.inf), axis=-1
)
shuffled = np.take_along_axis(
    selection, np.broadcast_to(random_order[:, None], selection.shape), axis=-1
)
measured, chance = (
    phrases.mean_phrase_length(s) for s in (selection, shuffled)
)
figure, axis = plt.subplots(figsize=(6.5, 3), layout="constrained")
layers = np.arange(1, LAYERS + 1)
axis.plot(
    layers, measured, color="#0072b2", marker="o", label="as the text stands"
)
axis.plot(
    layers,
    chance,
    color="black",
    marker="s",
    linestyle=":",
    label="words shuffled",
)
axis.set(xlabel="layer", ylabel="mean words in a run", xticks=layers)
axis.legend(frameon=False)
figure.suptitle("Are the runs longer than chance makes them?", fontsize=10)

# %% [markdown]
# ## Which layers the network needs
# We shut all gates above a layer in the trained network, so that $y$ is carried from this layer
# to the head, without new training. A lower accuracy shows that the trained network uses the
# layers. It doesn't show that a network trained without them would be worse; if you want such
# networks, train them with `ablate_above`.


# %%
def accuracy_up_to(last):
    """Computes the accuracy with the state of this layer given to the head."""
    head, states = params["head_0"], outputs["AGT"].states[:, last]
    hidden = np.tanh(
        states @ np.asarray(head["kernel"]) + np.asarray(head["bias"])
    )
    final = params["classifier"]
    scores = hidden @ np.asarray(final["kernel"]) + np.asarray(final["bias"])
    return np.mean(scores.argmax(-1) == batch["label"])


for last in range(LAYERS):
    print(f"state of L{last + 1}: {accuracy_up_to(last):.3f}")

# %% [markdown]
# ## Summary
# - AGT computes all attentions at once from the words; only the gated stack has an order.
# - Its layers select words that decide the label two to four times as often as chance. They also
#   select, for example, *although* and *but*, which show that there are two clauses.
# - Runs of selected words are phrases only as far as they're longer than in shuffled text. The
#   network itself knows nothing about order.
# - Shutting a trained network's upper layers shows that they're used. It doesn't show that you
#   need many; compare with the highway network, which uses a single attention.
#
# Next: see what held in the paper's experiments, on the page of [AGT](../docs/agt.md).
