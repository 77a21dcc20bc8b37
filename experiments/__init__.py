"""One package per paper: presets, single runs, and the commands that reproduce its tables."""
