"""Text copy of ga_reader.ipynb; `python notebooks/build.py` writes the notebook."""

# %% [markdown]
# # GA Reader: a question gates the meaning of a document's words
#
# The gated-attention reader of Dhingra et al. (2017) answers questions with a gap. It reads the
# document $K$ times. Before each new reading each token $d_i$ attends to the words $q_j$ of the
# question and is multiplied by the result:
#
# $$\alpha_i = \mathrm{softmax}(Q\, d_i), \qquad \tilde q_i = Q^\top \alpha_i, \qquad
# x_i = d_i \odot \tilde q_i$$
#
# At the last hop the state of the gap points at document tokens, and the probability of a candidate
# is the sum over its places. With $K = 1$ there is no gating.

# %%
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import analysis, data, models, training
from gatedjax.functional import gated_attention, pointer_sum

WORK = Path(tempfile.mkdtemp())

# %% parameters
STEPS = 5000  # training steps of each network

# %% [markdown]
# ## The two functions
# `gated_attention` and `pointer_sum` take arrays; no module is needed. The cell compares both with
# the formula, token by token.

# %%
keys = jax.random.split(jax.random.key(0), 3)
document = jax.random.normal(keys[0], (1, 6, 4))
query = jax.random.normal(keys[1], (1, 3, 4))
query_mask = jnp.array([[True, True, False]])
gated, attention = gated_attention(document, query, query_mask)
far = 0.0
for i in range(6):
    scores = query[0, :2] @ document[0, i]
    alpha = jnp.exp(scores) / jnp.exp(scores).sum()
    far = max(far, float(abs(gated[0, i] - document[0, i] * (alpha @ query[0, :2])).max()))
print(f"largest difference from the formula {far:.1e}; a padded word gets {attention[0, 0, 2]}")

occurrence = jnp.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], bool).T[None]
log_probs = pointer_sum(jax.random.normal(keys[2], (1, 6)), occurrence)
print("a candidate at two places, one at one, one that does not occur:", jnp.exp(log_probs)[0])

# %% [markdown]
# ## Questions that take two facts
# The library generates `two_facts`. A sentence is a thing and its place, such as `key box .` (the
# key is in the box). The question asks for the place of a thing. The sentence of this thing has
# only a holder, and another sentence has the place of the holder. The candidates are the places;
# only following the chain distinguishes them. In training half of the things have their place in
# the same sentence. This teaches the reader to find a thing, and does not help with the second
# fact.

# %%
source = {split: data.load("two_facts", split) for split in ("train", "validation", "test")}
for example in source["test"][:2]:
    print(" ".join(example["tokens"]))
    candidates = ", ".join(" ".join(candidate) for candidate in example["candidates"])
    print(f"  {' '.join(example['query'])}   ({candidates}: {example['answer'][0]})\n")

vocabulary = data.cloze_vocabulary(list(source.values()))
encoded = {split: data.encode_cloze(questions, vocabulary) for split, questions in source.items()}
shapes = data.plan_cloze_shapes(list(encoded.values()), max_shapes=1)
train = data.ClozeBatches(encoded["train"], batch_size=32, shapes=shapes)
validation, test = (
    data.ClozeBatches.eval(encoded[split], batch_size=100, shapes=shapes)
    for split in ("validation", "test")
)
print({name: array.shape for name, array in train[0].items()})

# %% [markdown]
# ## One hop and two
# Both readers are the same network with the same budget; $K = 1$ is close to the AS Reader of
# Kadlec et al. (2016).

# %%
config = training.TrainConfig(
    num_steps=STEPS,
    log_every=max(STEPS // 30, 1),
    eval_every=max(STEPS // 15, 1),
    checkpoint_every=STEPS,
    best_metric="accuracy",
    progress=False,
    optimizer=training.OptimizerConfig(learning_rate=3e-3, clip_norm=10.0),
)
readers, params = {}, {}
for hops in (1, 2):
    name = f"K = {hops}"
    readers[name] = models.GAReader(
        models.GAReaderConfig(
            hops=hops,
            hidden=32,
            embedding_dim=32,
            characters={"char_dim": 0},
            dropout=0.0,
            init="glorot_orthogonal",
        ),
        vocab_size=len(vocabulary),
        embeddings=data.random_embeddings(vocabulary, 32, std=1.0),
    )
    task = models.GAReaderTask(readers[name])
    result = training.fit(task, train, validation, config, WORK / str(hops))
    params[name] = result.best_params
curves = {f"K = {k}": analysis.read_metrics(WORK / str(k) / "metrics.jsonl") for k in (1, 2)}
analysis.plot_learning_curves(curves, metrics=("loss", "accuracy"), title="Two facts")

# %%
parallel = training.make_parallel("single")
right = {}
for name, network in readers.items():
    task = models.GAReaderTask(network)
    found, predictions = training.evaluate(task, params[name], test, parallel)
    right[name] = predictions["correct"][np.argsort(predictions["example_id"])]
    print(f"{name}: test accuracy {found['accuracy']:.3f} (chance {1 / 3:.3f})")
tested = analysis.mcnemar(right["K = 2"], right["K = 1"], alternative="greater")
print(f"only K = 2 right {tested.b}, only K = 1 right {tested.c}, one-sided p {tested.p_value:.1e}")

# %% [markdown]
# ## The attention of the two-hop reader
# The figure shows a question under the reader with two hops. Rows are the places of all names in
# the document. The panel shows $\alpha$, the attention of each place to the question in the gating
# between the hops. The bars are the last hop's attention over the document. Orange is the answer.

# %%
index = int(np.argmax(right["K = 2"]))
one = data.ClozeBatches.eval(encoded["test"].take(np.array([index])), batch_size=1, shapes=shapes)[
    0
]
example = source["test"][index]
output = readers["K = 2"].apply({"params": params["K = 2"]}, one)
words, asked = example["tokens"], ("@begin", *example["query"], "@end")
places = [i for i, word in enumerate(words) if word != "."]
analysis.plot_attention_grid(
    [f"{words[i]} · {i + 1}" for i in places],
    asked,
    [analysis.GridPanel("hop 1", np.asarray(output.attention[0][0])[places, : len(asked)])],
    np.asarray(output.document_attention[0])[places],
    title=f"{' '.join(example['query'])}: {example['answer'][0]}",
    groups=[i // 3 for i in places],
    marked=[words[i] == example["answer"][0] for i in places],
    final_name="last hop",
)

# %% [markdown]
# ## Does the gate do it?
# A part of the question is removed from the trained reader before the gating, without new training:
# the name of the thing is replaced by another name of the document. The answer should follow the
# name.

# %%
moved = 0
count = min(200, len(source["test"]))
for batch in data.ClozeBatches.eval(
    encoded["test"].take(np.arange(count)), batch_size=count, shapes=shapes
):
    network = readers["K = 2"]
    before = np.asarray(network.apply({"params": params["K = 2"]}, batch).logits)
    other = {**batch, "query": batch["query"].copy()}
    for row in range(count):
        chains = source["test"][int(batch["example_id"][row]) - 200_000_000]
        things = chains["tokens"][0::3]
        holders = set(chains["tokens"][1::3])
        starts = [w for w in things if w not in holders and w != chains["query"][0]]
        other["query"][row, 1] = vocabulary.encode(starts[:1])[0]
    after = np.asarray(network.apply({"params": params["K = 2"]}, other).logits)
    moved += int((before.argmax(-1) != after.argmax(-1)).sum())
print(f"another thing asked for: the answer changes in {moved} of {count} questions")

# %% [markdown]
# For real text run `python -m experiments.ga_reader --preset cbt_ne`. `make-cloze` makes questions
# from any books, and `answer` gives the trained reader's answer to your questions.
