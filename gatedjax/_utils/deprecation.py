"""The warning about names, arguments and calls that work for one more release."""

import warnings


def warn_deprecated(old: str, new: str, *, stacklevel: int = 2) -> None:
    """Gives a DeprecationWarning; all deprecations of the library pass through this function.

    The rule of the library: a form that release 0.N replaces works in 0.N with this warning, and
    is removed in 0.N+1. The message is "{old} works only until the next release: {new}".

    Args:
      old: the form that the caller used, as the subject of the message.
      new: the form to use in its place.
      stacklevel: the number of calls between this function and the line of the user, as in
        `warnings.warn`: 1 is the caller of this function, 2 the caller of that one.
    """
    message = f"{old} works only until the next release: {new}"
    # This function is a call of its own.
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel + 1)
