"""The command `python -m experiments.ssan`, which trains and evaluates an SSAN or its baseline."""

import sys

from experiments.core import cli


def main(args: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    args = sys.argv[1:] if args is None else args
    # The imports stand here so that each command loads only the modules that it needs.
    if args[:1] == ["translate"]:
        from experiments.ssan import translation

        return translation.main(args[1:])
    if args[:1] == ["make-probes"]:
        from experiments.ssan import make_probes

        return make_probes.main(args[1:])
    return cli.run("ssan", args)


if __name__ == "__main__":
    sys.exit(main())
