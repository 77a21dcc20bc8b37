"""The message for a package that is optional and not installed."""


def missing(need: str, package: str) -> str:
    """Returns a message that names an optional package and the command that installs it.

    The message never names an extra of gatedjax, because gatedjax is not on the index. An attacker
    could register the name there and run code on the machines of users who follow the message.

    Args:
      need: the subject and the verb of the message, such as "plots need".
      package: the name on the Python Package Index, or several names with spaces between them.
    """
    return f"{need} {' and '.join(package.split())}: pip install {package}"


TFDS = "tensorflow-datasets array-record importlib_resources"
"""The packages that read a prepared data set; TFDS does not declare the last of them."""
