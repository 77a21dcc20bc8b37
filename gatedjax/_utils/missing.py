"""The message for a package that is optional and not installed."""


def missing(need: str, package: str) -> str:
    """Returns a message that names an optional package and the command that installs it.

    The message never names an extra of gatedjax, because gatedjax is on no index: whoever takes the
    name there could run code on the machine of everybody who follows such a message.

    Args:
      need: who needs it, with the verb, as "plots need".
      package: its name on the Python Package Index, or several names with spaces between them.
    """
    return f"{need} {' and '.join(package.split())}: pip install {package}"


TFDS = "tensorflow-datasets array-record importlib_resources"
"""The packages that read a prepared data set; the last is a requirement that TFDS forgets."""
