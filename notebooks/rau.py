"""Text copy of rau.ipynb; `python notebooks/build.py` writes the notebook."""

# %% [markdown]
# # RAU: a recurrent unit's attention over the rows of an image
#
# The recurrent attention unit by Zhong, Yue and Ling (2018) is a GRU with a candidate in two
# halves. An attention over the state's $n$ features weighs the second half:
#
# $$h_t = (1 - z_t)\, h_{t-1} + \tfrac{1}{2} z_t\, c_t + \tfrac{1}{2} z_t\, s_t$$
#
# $$s_t = \tanh\big(U_t \odot (W_u [x_t, h_{t-1}] + b_u)\big), \qquad
# U_t = \mathrm{softmax}(W_a [x_t, h_{t-1}] + b_a)$$
#
# $z_t$ and $c_t$ are the GRU's update gate and candidate. The paper doesn't define the softmax
# axis; features are the library's default. We read an image row by row.
#
# **You learn** how the unit works, how to train it next to GRUs of a fair size, how concentrated
# its attention is, and whether the trained network needs it.
#
# **It takes** twenty minutes to read, and the cells run for two minutes on two free CPU cores. You
# should know a GRU.

# %%
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from gatedjax import analysis, data, models, training
from gatedjax.functional import RAUWeights, rau, rau_step

WORK = Path(tempfile.mkdtemp())
HIDDEN = 32
COLOURS = {"RAU": "#0072b2", "RAU, rescaled": "#d55e00"}

# %% parameters
STEPS = 600  # training steps of each network

# %% [markdown]
# ## The unit as a function
# `rau` runs over arrays, so you need no module. Where the mask is False the state stays as it is.
# The result equals a Python loop over `rau_step`.

# %%
keys = jax.random.split(jax.random.key(0), 3)
weights = RAUWeights(
    input=0.3
    * jax.random.normal(
        keys[0], (4, 5 * 6)
    ),  # blocks r, z, c, a, u of 6 columns
    recurrent=0.3 * jax.random.normal(keys[1], (6, 5 * 6)),
    bias=jnp.zeros(5 * 6),
)
xs = jax.random.normal(keys[2], (2, 7, 4))
mask = jnp.arange(7)[None, :] < jnp.array([7, 3])[:, None]
final, states = rau(weights, xs, mask)

step = jax.jit(rau_step, static_argnames="rescale")
h = jnp.zeros((2, 6))
for t in range(7):
    h = jnp.where(mask[:, t, None], step(weights, h, xs[:, t])[0], h)
print("outputs", states.shape, " final state", final.shape)
print(f"largest difference from the loop {float(abs(final - h).max()):.1e}")
print(
    "the second sequence ends after 3 steps:",
    bool(jnp.allclose(final[1], states[1, 2])),
)

# %% [markdown]
# ## Four networks on scikit-learn's digits
# The images are 8 by 8 pixels and come from a package, without a download. *Rescaled* multiplies
# $U_t$ by $n$, so that its mean is 1; the paper doesn't do that. At the same width a RAU needs
# 5/3 as many recurrent weights as a GRU. So we train two GRUs: the first with the same width, the
# second with about as many parameters.

# %%
source = {
    split: data.load("digits", split)
    for split in ("train", "validation", "test")
}
train = data.ImageBatches(source["train"], batch_size=64)
validation = data.ImageBatches.eval(source["validation"], batch_size=72)
test = data.ImageBatches.eval(source["test"], batch_size=len(source["test"]))[0]
configs = {
    "RAU": models.RAUConfig(cell="rau", hidden=HIDDEN),
    "RAU, rescaled": models.RAUConfig(cell="rau", hidden=HIDDEN, rescale=True),
    f"GRU {HIDDEN}": models.RAUConfig(cell="gru", hidden=HIDDEN),
    "GRU 42": models.RAUConfig(cell="gru", hidden=42),
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
nets = {
    name: models.RAUClassifier(config, 10) for name, config in configs.items()
}
run = {
    name: jax.jit(net.apply, static_argnames="attention")
    for name, net in nets.items()
}
params = {}
for number, (name, net) in enumerate(nets.items()):
    task = models.RAUTask(net)
    result = training.fit(
        task, train, validation, train_config, WORK / str(number)
    )
    params[name] = result.best_params

# %% hide-input
curves = {
    n: analysis.read_metrics(WORK / str(i) / "metrics.jsonl")
    for i, n in enumerate(nets)
}
analysis.plot_learning_curves(
    curves, title="All four networks learn the digits"
)


# %%
def accuracy(name, parameters):
    """Computes the share of test images that are classified right."""
    logits = np.asarray(run[name]({"params": parameters}, test).logits)
    return float(np.mean(logits.argmax(axis=-1) == test["label"]))


count = len(test["label"])
print(f"one seed, {count} test images")
for name in nets:
    size = sum(value.size for value in jax.tree.leaves(params[name]))
    share = accuracy(name, params[name])
    error = np.sqrt(share * (1 - share) / count)
    print(
        f"{name:14s} {size:5d} parameters  test accuracy {share:.3f} ± "
        f"{error:.3f}"
    )

# %% [markdown]
# ± is the standard error, from the test images only. Another seed changes the scores as well, so
# a single run can't rank networks this small on data this small.
#
# ## The attention over time
# `attention=True` returns $U_t$ for each row. The figure shows $n$ times $U_t$ (the rescaled
# network contains the factor already), so a uniform softmax gives 1. Units have no natural order:
# here those with the largest mean weight come first, separately in each network.


# %%
def attend(name, parameters, batch):
    """Computes n times the attention of each image, row and unit."""
    gate = run[name]({"params": parameters}, batch, attention=True).attention
    return np.asarray(gate) * (1 if configs[name].rescale else HIDDEN)


gates = {name: attend(name, params[name], test) for name in COLOURS}

# %% hide-input
index = int(np.flatnonzero(test["label"] == 2)[0])
figure, axes = plt.subplots(
    1, 3, figsize=(11, 3.3), layout="constrained", width_ratios=[1, 1.6, 1.6]
)
axes[0].imshow(test["rows"][index], cmap="gray_r", aspect="auto")
axes[0].set(
    title=f"image of class {test['label'][index]}",
    xlabel="column",
    ylabel="row (time)",
)
axes[0].set_xticks(range(8), range(1, 9))
top = max(np.quantile(gates[name][index], 0.98) for name in COLOURS)
for axis, name in zip(axes[1:], COLOURS, strict=True):
    order = np.argsort(-gates[name].mean((0, 1)))
    image = axis.imshow(
        gates[name][index][:, order],
        aspect="auto",
        cmap="viridis",
        vmin=0,
        vmax=top,
    )
    axis.set(
        title=name,
        xlabel=f"{HIDDEN} units, largest mean weight first",
        xticks=[],
    )
figure.colorbar(
    image, ax=axes[1:], label="n U_t (1 = no preference)", extend="max"
)
figure.suptitle(
    "Without rescaling a few units take most of the attention", fontsize=11
)
for axis in axes:
    axis.set_yticks(range(8), range(1, 9))

# %% [markdown]
# ## How concentrated it is
# $U_t$'s entropy divided by $\log n$ is 1 for a uniform softmax and 0 for a single unit;
# $e^{\text{entropy}}$ counts effective units. *Before training* means fresh parameters, the same
# for both networks.


# %%
def entropy(gate):
    """Computes the entropy over the last axis, in nats."""
    share = gate / gate.sum(-1, keepdims=True)
    return -np.sum(share * np.log(np.maximum(share, 1e-30)), axis=-1)


start = models.RAUTask(nets["RAU"]).init(
    jax.random.key(0), train[0]
)  # good for both
fresh = {name: attend(name, start, test) for name in COLOURS}
for name in COLOURS:
    before, after = entropy(fresh[name]), entropy(gates[name])
    print(
        f"{name:14s} entropy / log n {before.mean() / np.log(HIDDEN):.2f} before "
        f"training, {after.mean() / np.log(HIDDEN):.2f} after"
    )
    print(
        f"{'':14s} effective units {np.exp(before).mean():.1f} before "
        f"training, {np.exp(after).mean():.1f} after"
    )

# %% hide-input
time = np.arange(1, 9)
effective = {name: np.exp(entropy(gates[name])) for name in COLOURS}
figure, axes = plt.subplots(
    1, 3, figsize=(11, 3.6), layout="constrained", width_ratios=[1.5, 1, 1]
)
for name, colour in COLOURS.items():
    low, high = np.quantile(effective[name], [0.1, 0.9], axis=0)
    axes[0].fill_between(time, low, high, color=colour, alpha=0.15, linewidth=0)
    axes[0].plot(
        time, effective[name].mean(0), color=colour, marker="o", label=name
    )
    axes[0].plot(
        time, np.exp(entropy(fresh[name])).mean(0), color=colour, linestyle=":"
    )
axes[0].plot([], [], color="black", linestyle=":", label="before training")
axes[0].axhline(HIDDEN, color="gray", linewidth=0.8)
axes[0].set(
    title="mean and middle 80% of the test images",
    ylabel=f"effective units of {HIDDEN}",
    ylim=(0, HIDDEN * 1.05),
)
axes[0].legend(
    frameon=False,
    fontsize=8,
    ncols=3,
    loc="upper center",
    bbox_to_anchor=(0.5, -0.2),
)
table = {
    name: np.stack(
        [effective[name][test["label"] == digit].mean(0) for digit in range(10)]
    )
    for name in COLOURS
}
low, high = (
    min(t.min() for t in table.values()),
    max(t.max() for t in table.values()),
)
for axis, name in zip(axes[1:], COLOURS, strict=True):
    image = axis.imshow(
        table[name], aspect="auto", cmap="viridis", vmin=low, vmax=high
    )
    axis.set(title=f"{name}, mean by class")
    axis.set_xticks(range(8), time)
    axis.set_yticks(range(10))
axes[1].set_ylabel("class")
figure.colorbar(image, ax=axes[1:], label="effective units")
figure.suptitle(
    "Attention becomes more concentrated from row to row", fontsize=11
)
for axis in axes:
    axis.set_xlabel("row")

# %% [markdown]
# ## With ink and without
# Digits are cropped closely, so a row without ink is rare (the first printed line counts them). For
# a fair comparison the cell erases a single row at a time and changes no earlier row: the state
# before the row is the same, and only the ink is missing. The distance is half the summed
# absolute changes in $U_t$: 0 if no weight changes, 1 if all weight moves to other units.

# %%
ink = test["rows"].sum(-1)
print(
    f"{int((ink == 0).sum())} of {ink.size} rows of the test images have no ink"
)
for name in COLOURS:
    moved, units = [], []
    for t in range(8):
        wiped = {**test, "rows": test["rows"].copy()}
        wiped["rows"][:, t] = 0
        gate = attend(name, params[name], wiped)[:, t]
        moved.append(abs(gate - gates[name][:, t]).sum(-1) / (2 * HIDDEN))
        units.append(np.exp(entropy(gate)).mean())
    print(f"\n{name:26s}" + "".join(f" row {t}" for t in time))
    lines = {
        "effective units, with ink": effective[name].mean(0),
        "effective units, wiped": units,
        "distance of the weights": np.mean(moved, axis=1),
        "correlation with ink": [
            np.corrcoef(ink[:, t], effective[name][:, t])[0, 1]
            for t in range(8)
        ],
    }
    for label, values in lines.items():
        print(f"{label:26s}" + "".join(f"{value:6.2f}" for value in values))

# %% [markdown]
# The last printed line correlates, over the test images, a row's ink with its effective units.
#
# ## How large the second half is
# A softmax over $n$ units gives weights near $1/n$, and so $s_t$ is near 0 at the start unless
# $U_t$ is rescaled: the unit begins as a GRU with half of its candidate. To measure a half,
# remove it from a step: zeros in the weights' block c remove the GRU's half, zeros in block u the
# attention's.

# %%
BLOCKS = "rzcau"


def without(parameters, block):
    """Returns parameters with zeros in a block of recurrent weights."""
    columns = slice(
        BLOCKS.index(block) * HIDDEN, (BLOCKS.index(block) + 1) * HIDDEN
    )
    cut = jax.tree.map(
        lambda v: jnp.asarray(v).at[..., columns].set(0),
        parameters["recurrent"],
    )
    return {**parameters, "recurrent": cut}


def halves(parameters, rescale):
    """Computes the sizes of z c / 2 and z s / 2 in each row [2, 8]."""
    names = ("kernel", "recurrent_kernel", "bias")
    variants = [
        RAUWeights(
            *(p["recurrent"]["layer_0"]["forward"][name] for name in names)
        )
        for p in (
            parameters,
            without(parameters, "c"),
            without(parameters, "u"),
        )
    ]
    h, sizes = np.zeros((count, HIDDEN), np.float32), []
    for t in range(8):
        steps = (
            step(w, h, test["rows"][:, t], rescale=rescale)[0] for w in variants
        )
        new, *cut = map(np.asarray, steps)
        sizes.append(
            [np.sqrt(np.mean(np.square(new - other))) for other in cut]
        )
        h = new
    return np.array(sizes).T


# %% hide-input
figure, axes = plt.subplots(
    1, 2, figsize=(9, 3.4), sharey=True, layout="constrained"
)
axes[0].set_ylabel("root mean square over units")
for axis, name in zip(axes, COLOURS, strict=True):
    for label, variables, line in (
        ("before", start, ":"),
        ("after", params[name], "-"),
    ):
        of_gru, of_attention = halves(variables, configs[name].rescale)
        axis.plot(time, of_gru, color="black", marker="s", linestyle=line)
        axis.plot(
            time, of_attention, color=COLOURS[name], marker="o", linestyle=line
        )
        ratio = np.mean(of_attention / of_gru)
        print(
            f"{name:14s} {label:6s} training: attention's half / GRU's half = "
            f"{ratio:.3f}"
        )
    axis.plot([], [], color="black", marker="s", label="z c / 2")
    axis.plot([], [], color=COLOURS[name], marker="o", label="z s / 2")
    axis.plot([], [], color="gray", linestyle=":", label="before training")
    axis.set(title=name, xlabel="row", yscale="log")
    axis.legend(
        frameon=False,
        fontsize=8,
        ncols=3,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
    )
figure.suptitle(
    "Training gives the attention's half its weight, if it is not rescaled",
    fontsize=11,
)

# %% [markdown]
# ## Does the network need it?
# Remove a part of the trained networks, without new training. *No attention half* sets block u to
# 0. *No preference* sets block a to 0, so that $U_t$ is $1/n$ everywhere (1 if rescaled), and
# only the choice between units is lost. Chance is about 0.1.

# %%
print(
    f"{'':14s} {'as trained':>12s} {'no preference':>14s} "
    f"{'no attention half':>18s}"
)
for name in COLOURS:
    scores = [
        accuracy(name, p)
        for p in (params[name], *(without(params[name], b) for b in "au"))
    ]
    print(f"{name:14s} {scores[0]:12.3f} {scores[1]:14.3f} {scores[2]:18.3f}")

# %% [markdown]
# A lower accuracy here shows that the trained network uses the part. It doesn't show that a
# network trained without it would be worse. The GRUs above are such networks, so compare with
# their scores.
#
# ## Summary
# - The RAU is a GRU with a second candidate that an attention over its own units weighs.
# - On these digits all four networks are level; a GRU with as many parameters needs no attention.
# - The attention starts nearly uniform, so its half starts small. Training concentrates it, or
#   rescaling makes it large from the start.
# - The trained networks use the attention, as you see when you remove it. That's no evidence for
#   the unit; the comparison with an equally large GRU is.
#
# Next: see what held in the paper's experiments, on the page of [RAU](../docs/rau.md).
