"""The experiment of a run of AGT or a baseline."""

from pathlib import Path

from experiments.agt import layers
from experiments.agt.config import PAPER_DIM, AGTRunConfig
from experiments.core.config import with_changes
from experiments.core.experiment import Experiment
from experiments.core.origins import join_remarks
from experiments.core.text import Texts, find_embeddings, for_training, read_texts, width_of
from gatedjax.models import AGT, AGTTask


def resolve_width(config: AGTRunConfig) -> AGTRunConfig:
    """Returns the configuration with the width of the file of word vectors. A width other than the
    paper's 300 is an explicit option and does not change; the loader then refuses a file of another
    width."""
    path = find_embeddings(config.data.embeddings, config.data.manual_dir)
    if path is None or config.model.embedding_dim != PAPER_DIM or not path.is_file():
        return config
    width = width_of(path)
    return config if width is None else with_changes(config, {"model.embedding_dim": width})


def texts_of(config: AGTRunConfig) -> Texts:
    """Returns the texts of a run; only the training texts may be phrases."""
    data = config.data
    path = find_embeddings(data.embeddings, data.manual_dir)
    if path is not None and path.name.startswith("skipgram.") and not path.exists():
        # The records use these vectors. They cannot be downloaded, so the message has their
        # command.
        raise FileNotFoundError(
            f"{path}: there is no such file of word vectors: create it with python -m "
            f"experiments.agt.vectors --out {path}"
        )
    train = f"{data.name}_phrases" if data.train_on == "phrases" else data.name
    return read_texts((train, data.name, data.name), data, config.model.embedding_dim)


def experiment(config: AGTRunConfig) -> Experiment:
    """Returns the experiment of a configuration."""
    texts = texts_of(config)
    model = texts.classifier(AGT, config.model)
    parts = for_training(texts, config.data) | {"substitute": substitute(config, texts)}
    return Experiment(
        task=AGTTask(model),
        facts={
            "data": config.data.name,
            "train_on": config.data.train_on,
            "train_n": len(texts.splits["train"]),
            "system": config.model.system,
            "embedding_dim": config.model.embedding_dim,
            **texts.facts(),
        },
        measure=lambda params: layers.facts(model, params, parts["test"]),
        **parts,
    )


def substitute(config: AGTRunConfig, texts: Texts) -> str | None:
    """Returns the differences from the paper's data and word vectors; None without a difference."""
    width, vectors = config.model.embedding_dim, None
    name = Path(config.data.embeddings).name
    if config.data.name == "polarity":
        return texts.substitute
    if config.data.embeddings == "none":
        vectors = f"random word vectors of width {width} where the paper has GloVe 300-d"
    elif "glove" not in name.lower():
        vectors = f"word vectors {name} of width {width} where the paper has GloVe 300-d"
    elif width != PAPER_DIM:
        vectors = f"word vectors of width {width} where the paper has 300"
    return join_remarks([texts.substitute, vectors])
