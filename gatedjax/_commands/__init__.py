"""The subcommands of `gatedjax`: one module each, with `main(args) -> exit status`."""
