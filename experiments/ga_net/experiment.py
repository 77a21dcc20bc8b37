"""What one run of GA-Net or a baseline is made of."""

import numpy as np

from experiments.core.experiment import Experiment, Predictions, best, last
from experiments.core.kinds import Json, Params
from experiments.core.text import Texts, for_training, read_texts
from experiments.ga_net.config import Config, DataConfig
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.data import for_schedule
from gatedjax.models import GANet, GANetTask
from gatedjax.text.gate_modes import gate_modes

EXACT = 20
"""Words of a text whose gates' patterns are all evaluated."""
SOURCES = {"imdb": "imdb_reviews", "ag_news": "ag_news_subset"}
"""Data sets that the library calls otherwise."""


def texts_of(config: DataConfig, embedding_dim: int) -> Texts:
    """The texts of a run."""
    return read_texts(
        SOURCES.get(config.name, config.name),
        config,
        embedding_dim,
        vocabulary={"min_count": config.min_count},
        encode={"max_len": config.max_len, "truncate_side": config.truncate_side},
        load={"strict": True} if config.strict else None,
    )


def experiment(config: Config) -> Experiment:
    """The run of a configuration."""
    texts = texts_of(config.data, config.model.embedding_dim)
    parts = for_training(texts, config.data)
    train = parts.pop("train")
    model = texts.classifier(GANet, config.model)
    held = config.model.gates.density is not None
    return Experiment(
        task=GANetTask(model),
        facts={
            "data": config.data.name,
            "system": config.model.system,
            "train_n": len(texts.splits["train"]),
            **texts.facts(),
        },
        score=operations,
        # on the way to the constraint more words are open, and validation favours that
        choose=last if held else best,
        measure=lambda params: exact(model, texts.splits["test"], params) if held else {},
        train=lambda seed: for_schedule(train(seed), config.model),
        **parts,
    )


def whole(texts: gdata.Encoded, count: int | None = None) -> dict[str, np.ndarray]:
    """The first texts of a split as one batch."""
    return {
        "tokens": analysis.pad(texts.ids[:count]),
        "lengths": texts.lengths[:count],
        "example_id": texts.example_ids[:count],
        "label": texts.labels[:count],
    }


def exact(model: GANet, texts: gdata.Encoded, params: Params) -> Json:
    """What is exactly true of the texts of at most 20 words, over all patterns of their gates.

    Nothing where the gates are no longer those of attention, or every text is longer.
    """
    if model.config.gates.gates_on != "attention" or texts.lengths.min() > EXACT:
        return {}
    modes = gate_modes(model, params, whole(texts), longest=EXACT)
    rows = {row.mode: {"loss": row.loss, "accuracy": row.accuracy} for row in modes.table()}
    return {"exact": {"texts": len(modes.rows), "left_out": modes.left_out, **rows}}


def operations(predictions: Predictions) -> Json:
    """What the attention of the test texts costs: words, and open words."""
    return {
        "attended_tokens": int(predictions["attended"].sum()),
        "test_tokens": int(predictions["length"].sum()),
    }
