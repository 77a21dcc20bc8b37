"""`gatedjax.models.ssan.tagger` by its old path, for one release."""

from gatedjax.models.ssan.tagger import *  # noqa: F403
