"""The networks that tables compare: names of their records, and what they change."""

from typing import Any

BASE, FULL = "san", "ssan_layer1"
LAYERS = (1, 2, 3, 4, 5, 6)
TEMPERATURES = (0.1, 0.5, 1.0, 2.0)

# Variant -> (its name in tables, what it changes in the network).
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    BASE: ("SAN", {"select_layers": (0,)}),
    **{f"ssan_layer{n}": (f"SSAN, layer {n}", {"select_layers": (n,)}) for n in LAYERS},
    "ssan_soft": ("SSAN, soft samples", {"select_layers": (1,), "selector": "soft"}),
    "ssan_expect": ("SSAN, probabilities", {"select_layers": (1,), "selector": "expect"}),
    "ssan_reinforce": ("SSAN, REINFORCE", {"select_layers": (1,), "selector": "reinforce"}),
    "ssan_shared": ("SSAN, one selection for all heads", {"share_heads": True}),
    **{
        f"ssan_tau{tau:g}": (f"SSAN, temperature {tau:g}", {"temperature": tau})
        for tau in TEMPERATURES
        if tau != 0.5
    },
}

MODES = {
    BASE: "none (SAN)",
    FULL: "st: hard draws, gradient of the relaxation (authors' code)",
    "ssan_soft": "soft: the relaxation itself (paper's text)",
    "ssan_expect": "expect: probabilities, no noise (option of the code)",
    "ssan_reinforce": "reinforce: hard draws, gradient of the reward",
}
SHARING = {
    BASE: "none (SAN)",
    FULL: "a selection for every head (authors' code)",
    "ssan_shared": "one selection for all heads (paper's text)",
}


def temperatures() -> dict[str, float]:
    """Variant -> temperature; 0.5 is that of the network that the other tables have."""
    return {FULL if tau == 0.5 else f"ssan_tau{tau:g}": tau for tau in TEMPERATURES}
