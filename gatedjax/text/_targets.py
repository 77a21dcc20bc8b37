"""The targets of a lexicon by the kind of the model folder."""

from gatedjax.text._target_base import Target
from gatedjax.text._target_class import ClassTarget
from gatedjax.text._target_grades import OrdinalTarget
from gatedjax.text._target_labels import LabelTarget
from gatedjax.text._target_number import RealTarget

TARGET_OF: dict[str, type[Target]] = {
    target.kind: target for target in (ClassTarget, LabelTarget, RealTarget, OrdinalTarget)
}
"""The targets by the kind of the model folder."""
