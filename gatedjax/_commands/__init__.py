"""The subcommands of `python -m gatedjax`: one module each, with `main(args) -> exit status`."""
