"""A package per paper, with its presets, its runs, and the commands that reproduce its tables."""
