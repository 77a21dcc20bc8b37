"""What one run of GA-Net or a baseline is made of."""

from experiments.core.experiment import Experiment, Predictions
from experiments.core.kinds import Json
from experiments.core.text import Texts, for_training, read_texts
from experiments.ga_net.config import Config, DataConfig
from gatedjax.models import GANet, GANetTask

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
    return Experiment(
        task=GANetTask(texts.classifier(GANet, config.model)),
        facts={
            "data": config.data.name,
            "system": config.model.system,
            "train_n": len(texts.splits["train"]),
            **texts.facts(),
        },
        score=operations,
        **for_training(texts, config.data),
    )


def operations(predictions: Predictions) -> Json:
    """What the attention of the test texts costs: words, and open words."""
    return {
        "attended_tokens": int(predictions["attended"].sum()),
        "test_tokens": int(predictions["length"].sum()),
    }
