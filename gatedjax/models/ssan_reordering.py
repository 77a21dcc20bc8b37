"""`gatedjax.models.ssan.reordering` by its old path, for one release."""

from gatedjax.models.ssan.reordering import *  # noqa: F403
