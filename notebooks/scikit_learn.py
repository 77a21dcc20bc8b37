"""Text copy of scikit_learn.ipynb; `python notebooks/build.py` writes the notebook."""

# %% [markdown]
# # Classifiers in scikit-learn with gates
#
# **You learn** to use `TextClassifier` wherever scikit-learn takes a classifier: cross-validation
# against two pipelines, a search over the share of words read, a learning curve, a confusion matrix
# with the words behind it, and probabilities that decide when to ask a person.
#
# **It takes** ten minutes to read, and the cells run for two minutes on two free CPU cores. You
# should know scikit-learn's `fit`, `predict` and `cross_val_score`.

# %%
import csv

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_validate,
    learning_curve,
)
from sklearn.pipeline import make_pipeline

from gatedjax import TextClassifier

# %% parameters
FOLDS = 5  # parts of the cross-validation

# %% [markdown]
# ## 280 messages to a shop
# `messages.csv` holds 280 short messages in four classes, 70 each, written for this notebook.
# Many projects start with so few texts, and then a single split can't tell you much: for example,
# with 56 test texts an accuracy of 0.7 comes with a standard error of 0.06.

# %%
with open("messages.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
texts, labels = (
    np.array([row[name] for row in rows]) for name in ("text", "label")
)
for name in np.unique(labels):
    print(f"{name:9s} {(labels == name).sum()}  {texts[labels == name][0]}")

# %% [markdown]
# ## Four classifiers, the same folds
# A `TextClassifier` takes texts, so you don't need a vectoriser. The lexicon computes the class
# from the words that it reads and no other word. The pipelines are scikit-learn's usual start for
# texts.

# %%
folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
classifiers = {
    "logistic regression, words": make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10)
    ),
    "logistic regression, characters": make_pipeline(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)),
        LogisticRegression(C=10),
    ),
    "lexicon, half of the words": TextClassifier(share=0.5),
    "lexicon, 30 % of the words": TextClassifier(share=0.3),
}
scores = {}
for name, classifier in classifiers.items():
    results = cross_validate(classifier, texts, labels, cv=folds)
    scores[name] = results["test_score"]
    error = scores[name].std(ddof=1) / np.sqrt(FOLDS)
    print(f"{name:32s} {scores[name].mean():.3f} ± {error:.3f}")

# %% hide-input
figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
for place, (name, accuracies) in enumerate(reversed(scores.items())):
    colour = "0.5" if name.startswith("logistic") else "#0072B2"
    axis.plot(
        accuracies,
        np.full(FOLDS, place),
        "o",
        color=colour,
        alpha=0.35,
        mec="none",
    )
    axis.plot(accuracies.mean(), place, "|", color=colour, ms=16, mew=3)
axis.axvline(0.25, color="black", lw=0.8, ls=":")
axis.text(0.26, len(scores) - 0.75, "chance", fontsize=8)
axis.set_ylim(-0.5, len(scores) - 0.3)
axis.set_yticks(range(len(scores)), list(reversed(scores)))
axis.set(xlabel="accuracy of a fold (dots) and of all folds (bars)")
figure.suptitle(
    "With half of the words, the lexicon is level with counting them all",
    fontsize=10,
)

# %% [markdown]
# The folds share training texts, so ± is too small rather than too large. If models are closer
# than about 0.05, you can't rank them with 280 texts.
#
# ## A search over options
# `get_params` and `set_params` work as in scikit-learn, so `GridSearchCV` finds the share and the
# token rule. By itself, a lexicon picks its share on three folds of its training texts.

# %%
grid = {"share": [0.2, 0.35, 0.5, 0.7], "tokens": ["social", "words"]}
search = GridSearchCV(TextClassifier(), grid, cv=folds).fit(texts, labels)
print("best options", search.best_params_)
print(f"cross-validated accuracy {search.best_score_:.3f}")

# %% hide-input
figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
results = search.cv_results_
for rule, colour, mark in (
    ("social", "#0072B2", "o"),
    ("words", "#D55E00", "s"),
):
    has_rule = np.array([p["tokens"] == rule for p in results["params"]])
    shares = [
        100 * p["share"]
        for p, c in zip(results["params"], has_rule, strict=True)
        if c
    ]
    error = results["std_test_score"][has_rule] / np.sqrt(FOLDS - 1)
    mean = results["mean_test_score"][has_rule]
    axis.errorbar(
        shares,
        mean,
        yerr=error,
        fmt=f"{mark}-",
        color=colour,
        capsize=3,
        label=rule,
    )
axis.set(xlabel="words read (%)", ylabel="cross-validated accuracy")
axis.legend(title="tokens", frameon=False)
figure.suptitle(
    "More words help, and the rule for tokens doesn't matter", fontsize=10
)

# %% [markdown]
# The best score of a search is a little too good, because it is the largest of eight. A nested
# cross-validation (`cross_val_score(search, ...)`) corrects this and costs five times as much.
#
# ## Would more messages help?

# %%
sizes, _, accuracies = learning_curve(
    search.best_estimator_,
    texts,
    labels,
    cv=folds,
    train_sizes=[0.25, 0.5, 0.75, 1.0],
)

# %% hide-input
figure, axis = plt.subplots(figsize=(6.5, 3), layout="constrained")
error = accuracies.std(axis=1, ddof=1) / np.sqrt(FOLDS)
axis.errorbar(
    sizes,
    accuracies.mean(axis=1),
    yerr=error,
    fmt="o-",
    color="#0072B2",
    capsize=3,
)
axis.set(xlabel="training messages", ylabel="cross-validated accuracy")
figure.suptitle("The curve still rises: more messages would help", fontsize=10)

# %% [markdown]
# ## Which classes are confused, and by which words?
# `cross_val_predict` predicts each message by a model that hasn't seen it.

# %%
predicted = cross_val_predict(search.best_estimator_, texts, labels, cv=folds)

# %% hide-input
figure, axis = plt.subplots(figsize=(4.6, 4), layout="constrained")
ConfusionMatrixDisplay.from_predictions(
    labels, predicted, ax=axis, cmap="Blues", colorbar=False
)
figure.suptitle(
    "Messages about a payment are taken for a delivery most often", fontsize=10
)

# %% [markdown]
# Look at the large numbers off the diagonal: these classes are confused. Take an error apart:
# `explain` gives each word's contribution to each class's score. The contributions are exact: they
# add up to the score.

# %%
wrong = np.flatnonzero((predicted != labels) & (labels == "delivery"))
train, test = next(
    (a, b) for a, b in folds.split(texts, labels) if wrong[0] in b
)
model = TextClassifier(**search.best_params_).fit(texts[train], labels[train])
print(f"{texts[wrong[0]]}\n(true class: {labels[wrong[0]]})\n")
print(model.explain(texts[wrong[0]]).render())

# %% [markdown]
# Small words such as *was* and *I* carry large parts. They're not about a delivery or a payment;
# with so few messages they only happened to be more frequent in one class. You wouldn't have seen
# this in the accuracy. More messages are the cure, as the learning curve shows.
#
# ## When to ask a person
# A lexicon's `predict_proba` is calibrated by temperatures, fitted on folds of the training texts.
# Sort the messages by predicted probability: a machine can answer the surest, and the rest goes
# to a person.

# %%
probabilities = cross_val_predict(
    search.best_estimator_, texts, labels, cv=folds, method="predict_proba"
)
sure = np.argsort(-probabilities.max(axis=1))
is_right = (predicted == labels)[sure]
for share in (0.25, 0.5, 0.75, 1.0):
    part = is_right[: int(share * len(is_right))]
    print(f"the surest {share:4.0%}: accuracy {part.mean():.3f}")

# %% hide-input
figure, axis = plt.subplots(figsize=(6.5, 3), layout="constrained")
answered = np.arange(1, len(is_right) + 1)
axis.plot(
    100 * answered / len(is_right),
    np.cumsum(is_right) / answered,
    color="#0072B2",
)
axis.axhline(is_right.mean(), color="black", lw=0.8, ls=":")
axis.set(
    xlabel="messages that are answered, the surest first (%)",
    ylabel="accuracy",
    xlim=(5, 100),
)
figure.suptitle("The surest predictions are right more often", fontsize=10)

# %% [markdown]
# ## Summary
# - `TextClassifier` is a scikit-learn classifier whose input is texts. `cross_validate`,
#   `GridSearchCV`, `learning_curve`, `cross_val_predict` and `clone` need nothing else.
# - With half of the words, the lexicon is level with logistic regression on all words. On 280
#   messages no test could rank them, so don't try.
# - You can trust the explanation: a word that isn't read has no effect, and the
#   contributions of the words read add up to the score.
# - Small data want cross-validation for every number, also for the share.
#
# Next: [your own text](../docs/own_text.md#from-python) lists the interface, and
# [from a CSV to a model you can defend](from_csv.ipynb) follows one model from file to folder.
