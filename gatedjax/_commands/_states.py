"""The option --states of the commands that read texts."""

from pathlib import Path
from typing import Any


def check_states(model: Any, folder: object, states: Path | None, *, has_texts: bool) -> bool:
    """Returns True if the model reads --states, False for texts; refuses the other input."""
    from gatedjax.text._prediction import STATES

    reads_states = getattr(model, "network", None) == STATES
    if reads_states and states is None:
        raise ValueError(
            f"--states must be the file with the tokens and vectors of the texts, because {folder} "
            "reads the vectors of an encoder: give --states FILE in place of texts"
        )
    if states is not None and not reads_states:
        raise ValueError(f"--states must be left out for {folder}, which reads texts, got {states}")
    if states is not None and has_texts:
        raise ValueError("texts or --states must be left out, got both: give one of the two")
    return reads_states
