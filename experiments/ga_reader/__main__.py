"""The command `python -m experiments.ga_reader`, which trains and evaluates a reader."""

import sys

from experiments.core import cli


def main(args: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    args = sys.argv[1:] if args is None else args
    # The imports stand here so that each command loads only the modules that it needs.
    if args[:1] in (["answer"], ["make-cloze"]):
        from experiments.ga_reader import answer, make_cloze

        other = answer if args[0] == "answer" else make_cloze
        return other.main(args[1:])
    return cli.run("ga_reader", args)


if __name__ == "__main__":
    sys.exit(main())
