"""The experiment of a run of GA-Net or a baseline."""

import numpy as np

from experiments.core.experiment import Experiment, Predictions, best, last
from experiments.core.kinds import Json, Params
from experiments.core.text import Texts, for_training, read_texts
from experiments.ga_net.config import DataConfig, GANetRunConfig
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.data import for_schedule
from gatedjax.models import GANet, GANetTask
from gatedjax.text.gate_modes import gate_modes

EXACT = 20
"""The largest number of words of a text for which all patterns of gates are evaluated."""
SOURCES = {"imdb": "imdb_reviews", "ag_news": "ag_news_subset"}
"""Data sets with another name in the library."""


def texts_of(config: DataConfig, embedding_dim: int) -> Texts:
    """Returns the texts of a run."""
    return read_texts(
        SOURCES.get(config.name, config.name),
        config,
        embedding_dim,
        vocabulary={"min_count": config.min_count},
        encode={"max_len": config.max_len, "truncate_side": config.truncate_side},
        load={"strict": True} if config.strict else None,
    )


def experiment(config: GANetRunConfig) -> Experiment:
    """Returns the experiment of a configuration."""
    texts = texts_of(config.data, config.model.embedding_dim)
    parts = for_training(texts, config.data)
    train = parts.pop("train")
    model = texts.classifier(GANet, config.model)
    has_constraint = config.model.gates.density is not None
    return Experiment(
        task=GANetTask(model),
        facts={
            "data": config.data.name,
            "system": config.model.system,
            "train_n": len(texts.splits["train"]),
            **texts.facts(),
        },
        score=operations,
        # The last parameters are tested, because validation favours early parameters, which do not
        # yet meet the constraint on density: their gates are open for more words.
        choose=last if has_constraint else best,
        measure=lambda params: exact(model, texts.splits["test"], params) if has_constraint else {},
        train=lambda seed: for_schedule(train(seed), config.model),
        **parts,
    )


def first_texts(texts: gdata.Encoded, count: int | None = None) -> dict[str, np.ndarray]:
    """Returns the first texts of a split as a single batch; without `count` all texts."""
    return {
        "tokens": analysis.pad(texts.ids[:count]),
        "lengths": texts.lengths[:count],
        "example_id": texts.example_ids[:count],
        "label": texts.labels[:count],
    }


def exact(model: GANet, texts: gdata.Encoded, params: Params) -> Json:
    """Returns exact losses and accuracies of short texts, over all patterns of their gates. The
    result is empty if the gates are not gates of the attention, or if each text has more than
    `EXACT` words."""
    if model.config.gates.gates_on != "attention" or texts.lengths.min() > EXACT:
        return {}
    modes = gate_modes(model, params, first_texts(texts), longest=EXACT)
    rows = {row.mode: {"loss": row.loss, "accuracy": row.accuracy} for row in modes.table()}
    return {"exact": {"texts": len(modes.rows), "left_out": modes.left_out, **rows}}


def operations(predictions: Predictions) -> Json:
    """Returns the entries of a record on the cost of attention: test words and open test words."""
    return {
        "attended_tokens": int(predictions["attended"].sum()),
        "test_tokens": int(predictions["length"].sum()),
    }
