"""The subcommands of `python -m gatedjax`: one module each, with `main(args) -> exit status`."""


def reason(error: BaseException) -> str:
    """The message of an error; one of the system names the file, not the number of the error."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        places = [str(p) for p in (error.filename, error.filename2) if p is not None]
        return f"{' and '.join(places)}: {error.strerror}"
    return str(error)
