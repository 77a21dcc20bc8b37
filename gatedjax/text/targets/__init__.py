"""The targets of a model of texts: a class, several labels, a number or a grade, and the metrics.

Each kind is a file with a `Target`: `_class`, `_labels`, `_number` and `_grades`. A new kind is a
file like `_number.py` with a line in `TARGET_OF`; its loss is a `Head` in `gatedjax.lexicon._heads`
with a line in `HEADS`, its name, columns and form of answers are in
`gatedjax.text.answers._prediction`, the tables of its metrics in `gatedjax.text.answers._report`,
and its class in `gatedjax.text.estimators._targets`. Words for people (card, command, explorer)
stand where `ORDINAL` or "ordinal" stands.
"""

from gatedjax.text.targets._base import Target
from gatedjax.text.targets._class import ClassTarget
from gatedjax.text.targets._grades import OrdinalTarget
from gatedjax.text.targets._labels import LabelTarget
from gatedjax.text.targets._number import RealTarget

TARGET_OF: dict[str, type[Target]] = {"pair": ClassTarget} | {
    target.kind: target for target in (ClassTarget, LabelTarget, RealTarget, OrdinalTarget)
}
"""The targets by the kind of the model folder; a tagger has none."""
WITHOUT_CLASSES = tuple(kind for kind, target in TARGET_OF.items() if not target.has_classes)
"""The kinds of models whose texts have not a single class each."""
