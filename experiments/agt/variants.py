"""The networks that tables compare: names of their records, and what they change."""

from typing import Any

from experiments.agt.config import OPTIMIZERS, PRESETS

FULL = "agt"
# Variant -> (its name, what it changes in the network).
ABLATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    FULL: ("AGT, all selection vectors", {}),
    "agt_above0": ("only s_0", {"ablate_above": 0}),
    "agt_above2": ("s_0, s_1, s_2", {"ablate_above": 2}),
    "average": ("mean of the word vectors", {"system": "average"}),
}
HIGHWAY = "agt_above0"
"""The run that is also the plain highway network on s_0: without later selection vectors the two
have the same equations."""
# The paper only says that 1 encourages composition.
GATE_BIASES: dict[str, float] = {"agt": 1.0, "agt_bias_0": 0.0, "agt_bias_minus1": -1.0}
# Ours: whether the class layer is one of the paper's two fully connected layers is open.
HEADS: dict[str, tuple[int, ...]] = {"agt": (200,), "agt_head_200_200": (200, 200)}


def optimizer_variant(data: str, name: str) -> str:
    """The name of the runs of an optimiser preset; that of table1 for the preset's own."""
    return FULL if PRESETS[data].train.optimizer == OPTIMIZERS[name] else f"agt_{name}"


def ablation_variant(variant: str, mode: str) -> str:
    """The name of an ablation in a mode."""
    return variant if mode == "highway" else f"{variant}_{mode}"
