"""Gated and selective attention, and masked recurrence, for JAX and Flax.

`functional` has the mathematics as pure functions of arrays, `nn` Flax modules with parameters
(`nnx` has the same modules for NNX), and `models` the networks of the papers with the tasks that
train them. `data`, `training`, `analysis` and `export` work with these networks. `lexicon` is a
text classifier whose gates hold by construction. `text` trains models on your texts
(`TextClassifier`, `PairClassifier`, `Tagger`), and `explore` shows their gates (`explorer(model)`
in a notebook). Names are imported on first use, so that `import gatedjax` is fast.
"""

from typing import TYPE_CHECKING

from gatedjax._utils import lazy as _lazy
from gatedjax._version import __version__ as __version__

if TYPE_CHECKING:
    from gatedjax import analysis as analysis
    from gatedjax import data as data
    from gatedjax import explore as explore
    from gatedjax import export as export
    from gatedjax import functional as functional
    from gatedjax import gates as gates
    from gatedjax import lexicon as lexicon
    from gatedjax import models as models
    from gatedjax import nn as nn
    from gatedjax import nnx as nnx
    from gatedjax import text as text
    from gatedjax import training as training
    from gatedjax.explore import explorer as explorer
    from gatedjax.text import MultiLabelTextClassifier as MultiLabelTextClassifier
    from gatedjax.text import OrdinalTextClassifier as OrdinalTextClassifier
    from gatedjax.text import PairClassifier as PairClassifier
    from gatedjax.text import Tagger as Tagger
    from gatedjax.text import TextClassifier as TextClassifier
    from gatedjax.text import TextRegressor as TextRegressor
else:
    __getattr__, __dir__, __all__ = _lazy.attach(__name__)
