"""`gatedjax.models.ssan.probe` by its old path, for one release."""

from gatedjax.models.ssan.probe import *  # noqa: F403
