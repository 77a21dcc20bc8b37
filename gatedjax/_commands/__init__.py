"""The commands of `gatedjax`. Each has a module with `main(args) -> exit status`."""
