"""The message for a package that is optional and not installed."""


def missing(need: str, package: str) -> str:
    """Returns a message that names an optional package and the command that installs it."""
    # Never an extra of gatedjax, which is not on the index: an attacker could register the name and
    # run code on the machines of users who follow the message.
    return f"{need} {' and '.join(package.split())}: pip install {package}"


TFDS = "tensorflow-datasets array-record importlib_resources"
"""The packages that read a prepared data set; TFDS does not declare the last of them."""
