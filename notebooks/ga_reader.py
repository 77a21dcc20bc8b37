"""Text copy of ga_reader.ipynb; `python notebooks/build.py` writes the notebook."""

# %% [markdown]
# # GA Reader: a question gates the meaning of a document's words
#
# The gated-attention reader by Dhingra et al. (2017) fills a gap in a question. It reads the
# document $K$ times. Before each new reading each token $d_i$ attends to the question's words
# $q_j$ and is multiplied by the result:
#
# $$\alpha_i = \mathrm{softmax}(Q\, d_i), \qquad \tilde q_i = Q^\top \alpha_i, \qquad
# x_i = d_i \odot \tilde q_i$$
#
# At the last hop the gap's state points at document tokens, and a candidate's probability is the
# sum over its places. With $K = 1$ there is no gating.
#
# **You learn** what a hop is, why questions that need two facts need two hops, how to read the
# attention between hops, and how to test whether an answer follows the question.
#
# **It takes** fifteen minutes to read, and the cells run for three minutes on two free CPU cores.
# You should know what a GRU and attention are.

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
STEPS = 4000  # training steps of each network

# %% [markdown]
# ## The two functions
# `gated_attention` and `pointer_sum` take arrays, so you need no module. The cell compares both
# with the formula, token by token.

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
    far = max(
        far,
        float(abs(gated[0, i] - document[0, i] * (alpha @ query[0, :2])).max()),
    )
print(
    f"largest difference from the formula {far:.1e}; a padded word gets "
    f"{attention[0, 0, 2]}"
)

occurrence = jnp.array(
    [[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], bool
).T[None]
log_probs = pointer_sum(jax.random.normal(keys[2], (1, 6)), occurrence)
names = ("at two places", "at one place", "that does not occur")
for name, probability in zip(names, jnp.exp(log_probs)[0], strict=True):
    print(f"a candidate {name}: {float(probability):.3f}")

# %% [markdown]
# ## Questions that take two facts
# The library generates `two_facts`. A sentence names a thing and its place, for example `key box
# .` (the key is in the box). The question asks where a thing is. The thing's sentence names only
# a holder, and another sentence says where the holder is. The candidates are the places; you can
# tell them apart only by following the chain. In training, half of the things stand next to their
# place. This teaches the reader to find a thing, and doesn't help with the second fact.

# %%
source = {
    split: data.load("two_facts", split)
    for split in ("train", "validation", "test")
}
for example in source["test"][:2]:
    print(" ".join(example["tokens"]))
    candidates = ", ".join(
        " ".join(candidate) for candidate in example["candidates"]
    )
    print(
        f"  {' '.join(example['query'])}   ({candidates}: "
        f"{example['answer'][0]})\n"
    )

vocabulary = data.cloze_vocabulary(list(source.values()))
encoded = {
    split: data.encode_cloze(questions, vocabulary)
    for split, questions in source.items()
}
shapes = data.plan_cloze_shapes(list(encoded.values()), max_shapes=1)
train = data.ClozeBatches(encoded["train"], batch_size=32, shapes=shapes)
validation, test = (
    data.ClozeBatches.eval(encoded[split], batch_size=100, shapes=shapes)
    for split in ("validation", "test")
)
for name, array in train[0].items():
    print(f"{name:16s} {array.shape}")

# %% [markdown]
# ## One hop and two
# Both readers are the same network with the same budget; $K = 1$ comes close to the AS Reader
# (Kadlec et al. 2016).

# %%
config = training.TrainConfig(
    num_steps=STEPS,
    log_every=STEPS // 20,
    eval_every=STEPS // 20,
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

# %% hide-input
curves = {
    f"K = {k}": analysis.read_metrics(WORK / str(k) / "metrics.jsonl")
    for k in (1, 2)
}
analysis.plot_learning_curves(
    curves,
    metrics=("loss", "accuracy"),
    title="A single hop does not learn to join two facts",
)

# %%
parallel = training.make_parallel("single")
right = {}
for name, network in readers.items():
    task = models.GAReaderTask(network)
    metrics, predictions = training.evaluate(task, params[name], test, parallel)
    right[name] = predictions["correct"][np.argsort(predictions["example_id"])]
    print(
        f"{name}: test accuracy {metrics['accuracy']:.3f} (chance {1 / 3:.3f})"
    )
tested = analysis.mcnemar(right["K = 2"], right["K = 1"], alternative="greater")
print(
    f"only K = 2 right {tested.b}, only K = 1 right {tested.c}, one-sided p "
    f"{tested.p_value:.1e}"
)

# %% [markdown]
# ## The attention of the two-hop reader
# The figure shows a question as the reader with two hops sees it. Rows are the places where names
# stand in the document. The panel shows $\alpha$, each place's attention to the question between
# the hops. The bars show the last hop's attention over the document. Orange is the answer.
#
# Only the places are candidates, and probabilities are normalised over them. So weight at a thing
# or a holder is lost, and the small weights at the places decide. A bar at a holder isn't an
# error, but doesn't explain the answer either.

# %% hide-input
index = int(np.argmax(right["K = 2"]))
selection = encoded["test"].take(np.array([index]))
question_batch = data.ClozeBatches.eval(selection, batch_size=1, shapes=shapes)[
    0
]
example = source["test"][index]
output = readers["K = 2"].apply({"params": params["K = 2"]}, question_batch)
words, query = example["tokens"], ("@begin", *example["query"], "@end")
places = [i for i, word in enumerate(words) if word != "."]
analysis.plot_attention_grid(
    [f"{words[i]} · {i + 1}" for i in places],
    query,
    [
        analysis.GridPanel(
            "hop 1", np.asarray(output.attention[0][0])[places, : len(query)]
        )
    ],
    np.asarray(output.document_attention[0])[places],
    title=f"Where is the {example['query'][0]}? ({example['answer'][0]})",
    groups=[i // 3 for i in places],
    marked=[words[i] == example["answer"][0] for i in places],
    final_name="last hop",
)

# %% [markdown]
# ## Does the gate do it?
# Change the question before the gating, without new training: put another name from the document
# in place of the thing. The answer should follow the name.

# %%
network = readers["K = 2"]
subset = encoded["test"].take(np.arange(200))
(batch,) = data.ClozeBatches.eval(subset, batch_size=200, shapes=shapes)
other = {**batch, "query": batch["query"].copy()}
for row in range(200):
    words, name = subset.example(row)["tokens"], subset.example(row)["query"][0]
    holders = set(
        words[1::3]
    )  # a sentence is a thing, its place and a full stop
    another = next(
        word for word in words[0::3] if word not in holders and word != name
    )
    other["query"][row, 1] = vocabulary.encode([another])[0]
before, after = (
    np.asarray(
        network.apply({"params": params["K = 2"]}, questions).logits
    ).argmax(axis=-1)
    for questions in (batch, other)
)
print(
    "another thing asked for: the answer changes in "
    f"{(before != after).sum()} of 200 questions"
)

# %% [markdown]
# ## Stories that a person wrote
# The reader knows 39 nouns and the full stop. The cell removes all other words from short stories
# and asks it. In the last story the place comes before the thing, as in no training sentence.

# %%
STORIES = {
    "things first": """
        Grandmother put the key into the jar. The old map lies in the box.
        We carried the jar up to the attic. The bag hangs in the kitchen.
        I saw a coin in the bag. Somebody took the box to the library.
    """,
    "things first, again": """
        A ring fell into the box. In winter the bag is kept in the tower.
        The box was left in the garden. My brother hides his pen in a jar.
        A flute is in the bag. On Sundays the jar stands in the office.
    """,
    "places first": """
        In the bag there is a rope. In the cellar there is the bag.
        In the hall you will find a jar. In the jar lies a candle.
        In the stable stands a box. In the box somebody has left a shoe.
    """,
}
ANSWERS = {
    "things first": {"key": "attic", "map": "library", "coin": "kitchen"},
    "things first, again": {
        "ring": "garden",
        "pen": "office",
        "flute": "tower",
    },
    "places first": {"rope": "cellar", "candle": "hall", "shoe": "stable"},
}
nouns = {word for question in source["train"] for word in question["tokens"]}
questions = []
for name, story in STORIES.items():
    words = tuple(
        word for word in data.tokenize(story.lower()) if word in nouns
    )
    places = tuple((place,) for place in sorted(ANSWERS[name].values()))
    questions += [
        {
            "tokens": words,
            "query": (thing, "@placeholder"),
            "candidates": places,
            "answer": (place,),
            "label": places.index((place,)),
            "status": 0,
            "example_id": len(questions) + number,
        }
        for number, (thing, place) in enumerate(ANSWERS[name].items())
    ]
encoded_stories = data.encode_cloze(
    data.Source(questions, source["test"].info), vocabulary
)
(batch,) = data.ClozeBatches.eval(
    encoded_stories, batch_size=len(questions), shapes=shapes
)
choices = {
    name: np.asarray(
        readers[name].apply({"params": params[name]}, batch).logits
    ).argmax(axis=-1)
    for name in readers
}
print(" ".join(questions[0]["tokens"]), "\n")
print(
    f"{'where is the':12s} {'right':9s}",
    "  ".join(f"{name:7s}" for name in choices),
)
for row, question in enumerate(questions):
    answers = (
        question["candidates"][places[row]][0] for places in choices.values()
    )
    print(
        f"{question['query'][0]:12s} {question['answer'][0]:9s}",
        "  ".join(f"{answer:7s}" for answer in answers),
    )

# %% [markdown]
# ## Summary
# - A hop multiplies each document word by its view of the question. A second reading then finds
#   words that belong to the question only through other words.
# - On questions that need two facts, a reader with two hops is right almost always, and a reader
#   with one hop is right in three of five, with the same budget.
# - Replacing the thing in the question changes the answer, so the reader uses the question.
# - It learned its training sentences, with the thing before the place. Stories in another order
#   are another task.
#
# Next: see the results on books, on the page of [the GA Reader](../docs/ga_reader.md). You can
# make questions from any books with `make-cloze`, and put yours to a trained reader with
# `gatedjax answer`.
