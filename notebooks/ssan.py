"""Text copy of ssan.ipynb; `python notebooks/build.py` writes the notebook."""

# %% [markdown]
# # SSAN: self-attention in which each word selects the words that it attends to
#
# Geng et al. (2020) put a selector before the softmax in a Transformer's first layer. For each
# query $i$ and key $j$ it draws whether $j$ may be attended to:
#
# $$A_{ij} \sim \mathrm{Bernoulli}\big(\sigma(q^s_i \cdot k^s_j)\big), \qquad
# W_{ij} = \frac{A_{ij}\, e^{q_i \cdot k_j / \sqrt{d}}}
# {\sum_n A_{in}\, e^{q_i \cdot k_n / \sqrt{d}}}$$
#
# Draws are hard, and gradients come from a relaxation (straight-through). In evaluation
# $A_{ij} = [\sigma(\cdot) > 1/2]$. The paper claims that the selector helps the network to see word
# order and structure.
#
# **You learn** how selection and attention fit together, how to train encoders with and without a
# selector on a word-order probe, and how to measure distances and trees in their attention.
#
# **It takes** twenty minutes to read, and the cells run for two minutes on two free CPU cores. You
# should know self-attention.

# %%
import csv
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import analysis, data, models, training
from gatedjax.analysis import trees
from gatedjax.functional import selective_attention

WORK = Path(tempfile.mkdtemp())

# %% parameters
STEPS = 600  # training steps of each network

# %% [markdown]
# ## The attention as a function
# You can pass `selective_attention` gates from anywhere. With all gates open it's standard
# attention. If a query's gates are all closed, its weights are 0. A key that was *not* selected
# still sends a gradient, from which the selector learns to open its gate.

# %%
keys = jax.random.split(jax.random.key(0), 4)
query, key, value = (
    jax.random.normal(k, (1, 2, 5, 4)) for k in keys[:3]
)  # batch, heads, words
every = jnp.ones((1, 2, 5, 5))
output, weights = selective_attention(query, key, value, every, hard=True)
standard = jax.nn.softmax(query @ jnp.swapaxes(key, -1, -2) / 2) @ value
print(
    "all selected: largest difference from softmax "
    f"{float(abs(output - standard).max()):.1e}"
)

gates = every.at[:, :, 0].set(0.0).at[:, :, 1, 2:].set(0.0)
output, weights = selective_attention(query, key, value, gates, hard=True)
print(
    "query 0 selects nothing, query 1 two keys:\n",
    np.round(weights[0, 0, :2], 2),
)


def first_feature(gates):
    """Computes a number that depends on the attention of query 1."""
    return selective_attention(query, key, value, gates, hard=True)[0][
        0, 0, 1, 0
    ]


gradient = jax.grad(first_feature)(gates)[0, 0, 1]
print("gradient at its gates:", " ".join(f"{value:.2f}" for value in gradient))

# %% [markdown]
# ## Have two words changed places?
# The paper asks this, and so do we, on sentences from the library's grammar (`polarity`): half of
# them invert two neighbouring words. The cell trains a standard encoder (SAN) and one with a
# selector in layer 1 (SSAN), with the same seed and the same batches. In both, one head per layer
# begins with attention to the word before and one to the word after (`relative="local"`). Without
# this, encoders as small as these stay at chance on new sentences.

# %%
text = {
    split: data.load("polarity", split)
    for split in ("train", "validation", "test")
}
source = {
    split: data.bigram_shift(
        [example["tokens"] for example in examples],
        seed=number,
        split=split,
        base=number * 10_000,
    )
    for number, (split, examples) in enumerate(text.items())
}
vocabulary = data.Vocabulary.build([source["train"]])
encoded = {
    split: data.encode(examples, vocabulary)
    for split, examples in source.items()
}
edges = (32,)
train = data.Batches(encoded["train"], batch_size=64, bucket_edges=edges)
validation, test = (
    data.Batches.eval(encoded[split], batch_size=250, bucket_edges=edges)
    for split in ("validation", "test")
)
configs = {
    name: models.SSANProbeConfig(
        gates=models.SelectorConfig(select_layers=layers),
        num_layers=2,
        hidden=32,
        filter_size=64,
        num_heads=2,
        head_hidden=(32,),
        order={"relative": "local"},
        dropouts={
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "relu_dropout": 0.0,
        },
    )
    for name, layers in {"SAN": (0,), "SSAN": (1,)}.items()
}
train_config = training.TrainConfig(
    num_steps=STEPS,
    log_every=STEPS // 20,
    eval_every=STEPS // 10,
    checkpoint_every=STEPS,
    best_metric="accuracy",
    progress=False,
    optimizer=training.OptimizerConfig(
        learning_rate=2e-3, warmup_steps=STEPS // 10, clip_norm=5.0
    ),
)
nets = {
    name: models.SSANProbe(config, len(vocabulary), 2)
    for name, config in configs.items()
}
best, scores = {}, {}
parallel = training.make_parallel("single")
for name, net in nets.items():
    task = models.SSANProbeTask(net)
    result = training.fit(
        task, train, validation, train_config, WORK / name, parallel=parallel
    )
    best[name] = result.best_params
    scores[name] = training.evaluate(task, result.best_params, test, parallel)

# %% hide-input
curves = {
    name: analysis.read_metrics(WORK / name / "metrics.jsonl") for name in nets
}
analysis.plot_learning_curves(
    curves,
    metrics=("loss", "accuracy"),
    title="The encoder without a selector learns first",
)

# %%
right = {}
for name, (metrics, predictions) in scores.items():
    order = np.argsort(predictions["example_id"])
    right[name] = predictions["correct"][order]
    print(f"{name:5s} test accuracy {metrics['accuracy']:.3f}")
tested = analysis.mcnemar(right["SSAN"], right["SAN"])
print(
    f"exact McNemar test of the two: p = {tested.p_value:.1e} (one seed each)"
)

# %% [markdown]
# ## Sentences that a person wrote
# `reviews.csv` holds 40 short reviews. The cell inverts two neighbours in half of them, as in the
# training sentences. Don't expect much: the encoders know only the grammar's sentences.

# %%
with open("reviews.csv", newline="", encoding="utf-8") as file:
    reviews = [
        data.tokenize(line["text"].lower()) for line in csv.DictReader(file)
    ]
shifted = data.bigram_shift(reviews, seed=3, split="test", base=30_000)
for example in shifted[:3]:
    print(
        " ".join(example["tokens"]),
        "(inverted)" if example["position"] >= 0 else "",
    )
review_batches = data.Batches.eval(
    data.encode(shifted, vocabulary), batch_size=40, bucket_edges=edges
)
for name, net in nets.items():
    metrics, _ = training.evaluate(
        models.SSANProbeTask(net), best[name], review_batches, parallel
    )
    print(
        f"{name:5s} accuracy on the reviews {metrics['accuracy']:.3f} (chance "
        "0.5)"
    )

# %% [markdown]
# ## The share of selected pairs
# The figure shows how many pairs the draws select in training. If the share is near 0 or 1, the
# selector makes no useful choice.

# %% hide-input
rates = [line for line in curves["SSAN"] if "selected_1" in line]
series = {
    "pairs (%)": {
        name: [
            (line["step"], 100 * line[key], 0.0)
            for line in rates
            if line["split"] == "train"
        ]
        for name, key in (
            ("selected", "selected_1"),
            ("words without a key", "empty_1"),
        )
    }
}
analysis.plot_lines(
    series, xlabel="step", title="The share of pairs that the selector opens"
)

# %%
metrics = scores["SSAN"][0]
print(
    f"in evaluation it selects {100 * metrics['selected_1']:.1f} % of the "
    "pairs,"
)
print(f"and {100 * metrics['empty_1']:.1f} % of the words select nothing")

# %% [markdown]
# ## Attention in one sentence
# Boxes mark each query's largest weight; bold words changed places.

# %%
applied = {name: jax.jit(net.apply) for name, net in nets.items()}


def attention(name, words):
    """Computes the mean attention of the heads of layer 1."""
    ids = np.zeros((1, 32), np.int32)
    ids[0, : len(words)] = vocabulary.encode(words)
    batch = {"tokens": ids, "lengths": np.array([len(words)], np.int32)}
    weights = applied[name]({"params": best[name]}, batch).selections[0].weights
    return np.asarray(weights)[0].mean(axis=0)[: len(words), : len(words)]


inverted = [
    x
    for x in source["test"]
    if x["position"] >= 0 and 8 <= len(x["tokens"]) <= 13
]
example = inverted[0]
maps = {name: attention(name, example["tokens"]) for name in nets}
moved = [example["position"], example["position"] + 1]

# %% hide-input
analysis.plot_attention(
    example["tokens"],
    maps,
    title="Do the words that changed places attract attention?",
    marked=moved,
)

# %% [markdown]
# ## The distance of the attention
# How far away, in words, are the keys that a query attends to?

# %%
counts = {}
for name in nets:
    total = analysis.distance_counts(np.zeros((0, 1, 1)), np.zeros(0, int))
    for sentence in source["test"][:200]:
        weights = attention(name, sentence["tokens"])
        total += analysis.distance_counts(weights[None], [len(weights)])
    counts[name] = total
    print(
        f"{name:5s} {100 * total.shares()[1]:.1f} % of a word's attention "
        "goes to its neighbours"
    )

# %% hide-input
analysis.plot_distances(
    counts, max_distance=12, title="How far does attention reach?"
)

# %% [markdown]
# ## Does attention know the grammar's trees?
# We build a tree from the top down: a span is split where both parts pay most of their attention
# to themselves. The grammar knows the true trees. A useful tree must beat four baselines, which
# don't look at the words.

# %%
pairs = [trees.from_brackets(example["tree"]) for example in text["test"][:200]]
draws = np.random.default_rng(0)
makers = {
    **{
        f"{name}, layer 1": lambda w, n=name: trees.from_attention(
            attention(n, w)
        )
        for name in nets
    },
    "right-branching": lambda words: trees.right_branching(len(words)),
    "left-branching": lambda words: trees.left_branching(len(words)),
    "balanced": lambda words: trees.balanced(len(words)),
    "random": lambda words: trees.random_binary(len(words), draws),
}
for name, make in makers.items():
    score = trees.bracket_scores([(gold, make(words)) for words, gold in pairs])
    print(
        f"{name:16s} precision {score.precision:.3f}  recall "
        f"{score.recall:.3f}  F1 {score.f1:.3f}"
    )

# %% hide-input
words, gold = next(pair for pair in pairs if 9 <= len(pair[0]) <= 13)
tree_of = {
    "gold": gold,
    **{name: makers[f"{name}, layer 1"](words) for name in nets},
}
analysis.plot_trees(
    words,
    tree_of,
    title="Trees from attention differ from the true tree",
    gold=gold,
)

# %% [markdown]
# ## Summary
# - A selector decides for each pair of words whether attention may use it, with hard draws and
#   gradients that also reach the pairs that were not selected.
# - On this probe the encoder without a selector learns faster. The other's selector must open
#   first: it selects more and more pairs. With more steps the two come closer.
# - Compare trees from attention with trees that ignore the words. For example, a left-branching
#   tree is a strong baseline here.
# - The encoders learned this grammar and not English, as the reviews show.
#
# Next: see what held in the paper's experiments, on the page of [SSAN](../docs/ssan.md).
