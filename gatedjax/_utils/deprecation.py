"""The warning about names, arguments and calls that work for one more release."""

import warnings


def warn_deprecated(old: str, new: str, *, stacklevel: int = 2) -> None:
    """Gives a DeprecationWarning; all deprecations of the library pass through this function."""
    message = f"{old} works only until the next release: {new}"
    # This function is a call, too.
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel + 1)
