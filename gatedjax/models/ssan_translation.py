"""`gatedjax.models.ssan.translation` by its old path, for one release."""

from gatedjax.models.ssan.translation import *  # noqa: F403
