"""Parameter counts without training, and widths that make them equal."""

import dataclasses
import functools

import jax
import numpy as np

from experiments.rau.config import PRESETS, TEXT, CellName
from gatedjax.models import RAUClassifier, RAUConfig

ROW_WIDTH = {"digits": 8, "mnist": 28, "fashion_mnist": 28}
CLASSES = {"digits": 10, "mnist": 10, "fashion_mnist": 10, "imdb": 2}


@functools.lru_cache(maxsize=512)
def network(config: RAUConfig, name: str) -> tuple[int, int]:
    """Parameters of the network of a data set: without word vectors, and of its recurrent layer.

    Args:
      config: the network.
      name: the data set, not "ptb".
    """
    text = name in TEXT
    model = RAUClassifier(config, num_classes=CLASSES[name], vocab_size=2 if text else None)
    batch: dict = {"lengths": np.ones(1, np.int32)}
    if text:
        batch["tokens"] = np.ones((1, 1), np.int32)
    else:
        batch["rows"] = np.ones((1, 1, ROW_WIDTH[name]), np.float32)
    shapes = jax.eval_shape(lambda key: model.init(key, batch), jax.random.key(0))["params"]
    sizes = {part: sum(x.size for x in jax.tree.leaves(tree)) for part, tree in shapes.items()}
    return sizes["recurrent"] + sizes["classifier"], sizes["recurrent"]


def matched_width(preset: str, cell: CellName) -> int:
    """The width at which a cell has as nearly as possible as many parameters as the preset's GRU.

    Word vectors, which all cells have alike, are not counted.
    """
    config = PRESETS[preset]
    name = config.data.name

    def count(cell: CellName, hidden: int) -> int:
        return network(dataclasses.replace(config.model, cell=cell, hidden=hidden), name)[0]

    target = count("gru", config.model.hidden)
    low, high = 1, config.model.hidden
    while low < high:  # the smallest width with at least as many
        middle = (low + high) // 2
        low, high = (low, middle) if count(cell, middle) >= target else (middle + 1, high)
    near = [width for width in (low - 1, low) if width >= 1]
    return min(near, key=lambda width: abs(count(cell, width) - target))
