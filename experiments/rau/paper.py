"""The numbers that Zhong, Yue and Ling (2018) report; spec rows R1 to R39."""

from experiments.rau.config import PresetName
from gatedjax.functional import RAUAttention
from gatedjax.models import RAUConfig

CELLS = {"rau": "RAU", "gru": "GRU", "lstm": "LSTM"}
CLASSIFICATION: tuple[PresetName, ...] = ("mnist", "fashion_mnist", "imdb")
LANGUAGE: tuple[PresetName, ...] = ("ptb_small", "ptb_medium", "ptb_large")

# Table 1, test accuracy.
ACCURACY = {
    "mnist": {"rau": 0.9880, "gru": 0.9854, "lstm": 0.9855},
    "fashion_mnist": {"rau": 0.8960, "gru": 0.8789, "lstm": 0.8845},
    "imdb": {"rau": 0.7952, "gru": 0.7908, "lstm": 0.7896},
}
# Table 1, validation accuracy; the paper prints dashes for the images.
VALIDATION_ACCURACY = {"imdb": {"rau": 0.8042, "gru": 0.7976, "lstm": 0.7897}}
# Table 1, perplexity of (validation, test).
PERPLEXITY = {
    "ptb_small": {"rau": (118.99, 113.89), "gru": (119.37, 115.06), "lstm": (120.64, 114.96)},
    "ptb_medium": {"rau": (86.75, 82.80), "gru": (86.50, 83.01), "lstm": (87.80, 83.62)},
    "ptb_large": {"rau": (82.63, 78.32), "gru": (83.10, 78.50), "lstm": (82.62, 78.63)},
}
# Text: perplexity of the training text in the last epoch.
TRAIN_PERPLEXITY = {("ptb_small", "rau"): 45.72}

# Table 3, error in percent: what the paper trained, and what it quotes from other papers.
MNIST_ERROR = 1.20
QUOTED_ERRORS = {
    "fully connected, 2 layers": 1.35,
    "1 random glimpse": 42.85,
    "RAM, 2 glimpses": 6.27,
    "RAM, 3 glimpses": 2.7,
    "RAM, 4 glimpses": 1.73,
    "RAM, 5 glimpses": 1.55,
    "RAM, 6 glimpses": 1.29,
    "RAM, 7 glimpses": 1.47,
}

# Table 2. Hidden width 28 for images; the text says 128 twice.
SETTINGS = {
    "mnist": {"hidden": 28, "batch": 128, "epochs": 213, "dropout": 0.0, "optimiser": "Adam"},
    "fashion_mnist": {
        "hidden": 28,
        "batch": 128,
        "epochs": 213,
        "dropout": 0.0,
        "optimiser": "Adam",
    },
    "imdb": {"hidden": 128, "batch": 128, "epochs": 100, "dropout": 0.5, "optimiser": "Adam"},
}
# Table 4 (the steps of the large network are not stated).
PTB_SETTINGS = {
    "ptb_small": {
        "init scale": "0.1",
        "layers": "2",
        "hidden": "200",
        "batch": "20",
        "learning rate": "1",
        "decay": "0.5",
        "epochs": "13",
        "dropout": "0",
        "steps": "20",
    },
    "ptb_medium": {
        "init scale": "0.05",
        "layers": "2",
        "hidden": "650",
        "batch": "20",
        "learning rate": "1",
        "decay": "0.8",
        "epochs": "35",
        "dropout": "0.5",
        "steps": "30",
    },
    "ptb_large": {
        "init scale": "0.04",
        "layers": "2",
        "hidden": "1500",
        "batch": "20",
        "learning rate": "1",
        "decay": "1/1.5",
        "epochs": "55",
        "dropout": "0.65",
        "steps": "not stated",
    },
}

# IMDB: the learning rates that the paper tried; figure 7 shows the last one.
LEARNING_RATES = {"1e-3": 1e-3, "1e-4": 1e-4, "1e-5": 1e-5}
FIGURE7_RATE = 1e-5


def rate_name(rate: float) -> str:
    """A learning rate as names of variants have it."""
    known = [name for name, value in LEARNING_RATES.items() if value == rate]
    return known[0] if known else f"{rate:g}"


def rate_variant(cell: str, rate: float) -> str:
    """The name of a cell that was trained at another learning rate than its preset's."""
    return f"{cell}_lr{rate_name(rate)}"


# The forms that the paper's equation 6 leaves open (spec section 3); the matrix form needs a
# matrix [H, D + H] per example and step.
FORMS: tuple[RAUAttention, ...] = (
    "feature_proj",
    "concat",
    "time_causal",
    "sigmoid",
    "additive_relu",
    "matrix",
)
HEAVY_FORMS: tuple[RAUAttention, ...] = ("matrix",)


def variants_of(form: RAUAttention) -> dict[str, dict]:
    """Names of the variants of an attention form, and what they change in the network."""
    found: dict[str, dict] = {f"attention_{form}": {"attention": form}}
    try:
        RAUConfig(attention=form, rescale=True)
    except ValueError:
        return found
    found[f"attention_{form}_rescale"] = {"attention": form, "rescale": True}
    return found
