"""`gatedjax.models.ssan.nli` by its old path, for one release."""

from gatedjax.models.ssan.nli import *  # noqa: F403
