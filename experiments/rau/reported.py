"""Numbers of Zhong, Yue and Ling (2018), the rows R1 to R39 of the specification."""

CELLS = {"rau": "RAU", "gru": "GRU", "lstm": "LSTM"}
NAMES = {
    "digits": "digits",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "imdb": "IMDB",
    "imdb_100": "IMDB, width 100",
    "ptb_small": "PTB small",
    "ptb_medium": "PTB medium",
    "ptb_large": "PTB large",
}
"""Presets in the order of tables."""
LANGUAGE = ("ptb_small", "ptb_medium", "ptb_large")
DATA = ("mnist", "fashion_mnist", "imdb", *LANGUAGE)


def _row(*numbers: str) -> dict[str, str]:
    return dict(zip(DATA, numbers, strict=True))


# Table 1, accuracy or perplexity; the paper prints dashes for the validation of images.
TEST = {
    "rau": _row("0.9880", "0.8960", "0.7952", "113.89", "82.80", "78.32"),
    "gru": _row("0.9854", "0.8789", "0.7908", "115.06", "83.01", "78.50"),
    "lstm": _row("0.9855", "0.8845", "0.7896", "114.96", "83.62", "78.63"),
}
VALIDATION = {
    "rau": _row("-", "-", "0.8042", "118.99", "86.75", "82.63"),
    "gru": _row("-", "-", "0.7976", "119.37", "86.50", "83.10"),
    "lstm": _row("-", "-", "0.7897", "120.64", "87.80", "82.62"),
}
# Text: perplexity of the training text in the last epoch.
TRAIN_PERPLEXITY = {"rau": {"ptb_small": "45.72"}}

# Table 3, error in percent: of the paper's network, and of networks that it quotes.
MNIST_ERROR = "1.20"
QUOTED_ERRORS = {
    "fully connected, 2 layers": "1.35",
    "1 random glimpse": "42.85",
    "RAM, 2 glimpses": "6.27",
    "RAM, 3 glimpses": "2.70",
    "RAM, 4 glimpses": "1.73",
    "RAM, 5 glimpses": "1.55",
    "RAM, 6 glimpses": "1.29",
    "RAM, 7 glimpses": "1.47",
}

# Table 2: width, batch, epochs, dropout, optimiser, learning rate. The table has the hidden width
# 28 for images, the text has 128 twice.
SETTINGS = {
    "mnist": ("28", "128", "213", "0", "Adam", "not given"),
    "fashion_mnist": ("28", "128", "213", "0", "Adam", "not given"),
    "imdb": ("128", "128", "100", "0.5", "Adam", "1e-3, 1e-4, 1e-5"),
}
# Table 4 (the steps of the large network are not stated).
PTB_COLUMNS = (
    *("init scale", "layers", "hidden", "batch", "learning rate"),
    *("decay", "epochs", "dropout", "steps"),
)
PTB_SETTINGS = {
    "ptb_small": ("0.1", "2", "200", "20", "1", "0.5", "13", "0", "20"),
    "ptb_medium": ("0.05", "2", "650", "20", "1", "0.8", "35", "0.5", "30"),
    "ptb_large": ("0.04", "2", "1500", "20", "1", "1/1.5", "55", "0.65", "not stated"),
}

# IMDB: the learning rates that the paper tried; figure 7 shows the last one.
LEARNING_RATES = {"1e-3": 1e-3, "1e-4": 1e-4, "1e-5": 1e-5}
FIGURE7_RATE = 1e-5


def rate_name(rate: float) -> str:
    """Returns a learning rate in the form that names of variants have."""
    printed = [name for name, value in LEARNING_RATES.items() if value == rate]
    return printed[0] if printed else f"{rate:g}"
